"""The clipped sum of the gradients of rows, for any module: one pass forward, one back.

The pass back stops at the outputs of the layers that are trained. What went into a layer and what
came back to it is all that its rows' gradients are made of, so norms and the clipped sum come from
the same stored numbers: what is added is what was measured, whatever the module does besides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from dptune.engines import sums
from dptune.engines.evaluation import RowLoss
from dptune.engines.modules import blocks, checks, functions, ghost
from dptune.engines.modules.ghost import Kept, Lookup, Outer, Piece, Remade
from dptune.engines.modules.layout import Layer, Layout, find_layout, widening
from dptune.engines.modules.precision import computing
from dptune.engines.modules.recording import Call, Recording, recorded, replaced
from dptune.engines.randomness import seed_torch
from dptune.errors import InvalidInput

ROW_BY_ROW = "row by row: slow"  # which torch.func cannot take many rows of


@dataclass(frozen=True)
class Ways:
    """What made-up rows showed: whether large parameters may be given a copy a row, for which
    parameters layers further up have to be run again, and how each layer and each parameter is
    clipped."""

    expand: bool = True
    lifted: dict[str, int] = field(default_factory=dict)
    routes: dict[str, str] = field(default_factory=dict)
    by_parameter: dict[str, str] = field(default_factory=dict)


class RowGradients:
    """Adds up clipped gradients of rows, in the parameters `trained` of `module`.

    Guarantees: with a clip norm, replacing one row of a batch by one that contributes nothing moves
    `total`, as really added up, by at most that (docs/design/modules-bound.md).
    """

    def __init__(
        self,
        module: nn.Module,
        trained: Mapping[str, nn.Parameter],
        loss: RowLoss,
        *,
        compute: str = "float32",
    ) -> None:
        self._module, self._trained, self._loss, self._compute = module, trained, loss, compute
        self._places: dict[str, slice] = {}
        end = 0
        for name, parameter in trained.items():
            self._places[name] = slice(end, end + parameter.numel())
            end += parameter.numel()
        self._numbers = end
        self._known_indices: dict[tuple[tuple[str, ...], torch.device], Tensor] = {}
        self._layout = Layout()
        self.ways = Ways()

    @property
    def routes(self) -> dict[str, str]:
        """How each layer is clipped."""
        return self.ways.routes

    def trace(self, features: Tensor, targets: Tensor, known: Ways | None = None) -> None:
        """Find out on made-up rows, three or more, which layer is recorded how; refuse modules
        whose gradients cannot be separated by rows, unless `known` says that such rows and a
        module of the same code were looked at before."""
        if len(features) < checks.FEWEST_ROWS:
            raise InvalidInput(
                f"a module is looked at with {checks.FEWEST_ROWS} made-up rows or more; got "
                f"{len(features)}."
            )
        checks.no_batch_norm(self._module)
        checks.parameters_are_their_own(self._module, self._trained)
        with checks.undisturbed(self._module):
            if known is not None:
                self._lay_out(features, targets, known)
                self._choose_loops(features, targets)
                self.ways = known
                return
            self.ways = self._found_ways(features, targets)
            checks.rows_are_alone(
                self._repeated_sum, features, targets, self._places, self._compute
            )

    def add(
        self,
        total: Tensor,
        features: Tensor,
        targets: Tensor,
        clip_norm: float | None,
        weights: Tensor | None = None,
    ) -> None:
        """Add the clipped sum over one physical batch to `total`, flat and float64, which is for
        blocks.MOST_ROWS rows in all: `StepTotal` is for more."""
        sums.must_be_exact()
        rows = len(features)
        if not rows:
            return
        pieces = self._pieces(features, targets)
        if not pieces:
            return
        with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
            placed = self._placed(pieces, total.device)
            del pieces
            share = torch.ones(rows, dtype=torch.float64, device=features.device)
            if weights is not None:
                share = weights.to(share)
            only = [piece for _, piece in placed]
            scale = (share if clip_norm is None else clip(only, clip_norm, share)).float()
            if ghost.are_rounded(only):
                scale = blocks.cut(scale)
            # The same blocks in all layers: see docs/design/modules-bound.md.
            factored = [piece for piece in only if isinstance(piece, Outer)]
            block = min((piece.most_rows for piece in factored), default=1)
            del only, factored
            while placed:
                place, piece = placed.pop()
                _add_at(total, place, piece, scale, block)

    def _placed(
        self, pieces: dict[str, Piece], device: torch.device
    ) -> list[tuple[slice | Tensor, Piece]]:
        """Where each has its place in a total; those that are small are put together."""
        small = {
            name: piece
            for name, piece in pieces.items()
            if isinstance(piece, Kept) and piece.is_small
        }
        placed: list[tuple[slice | Tensor, Piece]] = [
            (self._places[name], piece) for name, piece in pieces.items() if name not in small
        ]
        for names in _by_size({name: piece.gradients.numel() for name, piece in small.items()}):
            table = ghost.side_by_side([small[name] for name in names])
            placed.append((self._indices(names, device), table))
        return placed

    def _indices(self, names: tuple[str, ...], device: torch.device) -> Tensor:
        if (names, device) not in self._known_indices:
            numbers = torch.arange(self._numbers, device=device)
            found = torch.cat([numbers[self._places[name]] for name in names])
            self._known_indices[names, device] = found
        return self._known_indices[names, device]

    def _pieces(self, features: Tensor, targets: Tensor) -> dict[str, Piece]:
        """What every parameter's gradients are made of."""
        rows, copies = features.shape[:2]
        recording, expanded = self._pass(features, targets)
        pieces: dict[str, Piece] = {}
        with torch.no_grad():
            for name, gradient in expanded.items():
                if gradient is not None:
                    pieces[name] = Kept(
                        gradient.float().view(rows, copies, *gradient.shape[1:]).sum(1)
                    )
            for key, layer in self._layout.layers.items():
                calls = recording.calls.pop(key, [])
                for own, piece in self._pieces_of(layer, calls, rows).items():
                    pieces[layer.own[own]] = piece
        return pieces

    def _pieces_of(self, layer: Layer, calls: list[Call], rows: int) -> dict[str, Piece]:
        if layer.rule is not None:
            flowing = [call for call in calls if call.gradients[0] is not None]
            return layer.rule(layer.module, flowing, rows, set(layer.own)) if flowing else {}

        def make(names: list[str], some: slice) -> dict[str, Tensor]:
            found: dict[str, Tensor] = {}
            for call, by_row in zip(calls, layer.by_row, strict=True):
                with computing(self._compute, call.input.device):
                    made = functions.row_gradients(
                        layer.module, names, call, by_row, rows, layer.looped, some
                    )
                for own, gradients in made.items():
                    found[own] = found[own] + gradients if own in found else gradients
            return {own: gradients.float() for own, gradients in found.items()}

        def make_one(own: str, some: slice) -> Tensor:
            return make([own], some)[own]

        sizes = {own: self._trained[name].numel() for own, name in layer.own.items()}
        if ghost.can_be_kept(rows * sum(sizes.values())):
            return {own: Kept(made) for own, made in make(list(sizes), slice(0, rows)).items()}
        return {own: Remade(partial(make_one, own), rows, size) for own, size in sizes.items()}

    def _pass(
        self, features: Tensor, targets: Tensor
    ) -> tuple[Recording, dict[str, Tensor | None]]:
        """Forward and back, once: what was recorded, and gradients of what is expanded."""
        pieces = features.shape[0] * features.shape[1]
        names = self._layout.expanded
        expanded = {name: _one_a_piece(self._trained[name], pieces) for name in names}
        known = {key: layer.module for key, layer in self._layout.layers.items()}
        widened = dict.fromkeys(self._layout.widened, widening(pieces))
        with (
            replaced(self._module, expanded),
            recorded(known, widened, self._layout.narrowed) as recording,
        ):
            objective = self._objective(features, targets)
            recording.on = False
            gradients = recording.differentiate(objective, list(expanded.values()))
        return recording, dict(zip(expanded, gradients, strict=True))

    def _objective(self, features: Tensor, targets: Tensor) -> Tensor:
        """The sum over rows of the mean loss of a row's copies."""
        rows, copies = features.shape[:2]
        aims = targets.repeat_interleave(copies, 0) if copies > 1 else targets
        with torch.enable_grad(), computing(self._compute, features.device):
            losses = self._loss(self._module(features.flatten(0, 1)), aims)
        if losses.shape != (rows * copies,):
            raise InvalidInput(
                f"a loss gives one number a row: {(rows * copies,)} are expected, got "
                f"{tuple(losses.shape)}; for losses of torch say reduction='none'."
            )
        return losses.sum() / copies

    def _found_ways(self, features: Tensor, targets: Tensor) -> Ways:
        """Ways by which the sum over rows is autograd's: the cheapest first."""
        wanted, ways = self._by_autograd(features, targets), Ways()
        while True:
            self._lay_out(features, targets, ways)
            again, problem = self._layout.run_again(), None
            try:
                self._choose_loops(features, targets)
                found = self._repeated_sum(features, targets, None)
                wrong = checks.disagreeing(found, wanted, self._places, self._compute)
                if not wrong:
                    routes, by_parameter = self._routes(features, targets)
                    return replace(ways, routes=routes, by_parameter=by_parameter)
            except (
                RuntimeError,
                TypeError,
                ValueError,
            ) as error:  # of some layer that is run again
                wrong, problem = [*self._layout.expanded, *again], error
            if not set(wrong).isdisjoint(self._layout.expanded):
                ways = replace(ways, expand=False)
            elif wrong and all(again.get(name) is not self._module for name in wrong):
                lifted = ((n, ways.lifted.get(n, 0 if n in again else -1)) for n in wrong)
                ways = replace(ways, lifted=ways.lifted | {n: by + 1 for n, by in lifted})
            elif problem is not None:
                raise problem
            else:
                checks.refuse_disagreeing(wrong)

    def _lay_out(self, features: Tensor, targets: Tensor, ways: Ways) -> None:
        def objective(count: int) -> Tensor:
            return self._objective(features[:count], targets[:count])

        self._layout = find_layout(
            self._module, self._trained, objective, len(features), ways.expand, ways.lifted
        )

    def _choose_loops(self, features: Tensor, targets: Tensor) -> None:
        again = {key: layer for key, layer in self._layout.layers.items() if layer.rule is None}
        if not again:
            return
        recording, _ = self._pass(features, targets)
        with computing(self._compute, features.device):
            for key, layer in again.items():
                call, by_row = recording.calls[key][0], layer.by_row[0]
                layer.looped = functions.must_be_looped(
                    layer.module, list(layer.own), call, by_row, len(features)
                )

    def _routes(self, features: Tensor, targets: Tensor) -> tuple[dict[str, str], dict[str, str]]:
        """By layer that is recorded, and by parameter."""
        pieces = self._pieces(features, targets)
        expanded = dict.fromkeys(self._layout.expanded, "expanded")
        routes, by_parameter = dict[str, str](), dict(expanded)
        for key, layer in self._layout.layers.items():
            name = key.strip()
            ghosts = any(isinstance(pieces[full], Outer | Lookup) for full in layer.own.values())
            way = "ghost" if ghosts else "per row"
            if layer.rule is None:
                way = ROW_BY_ROW if layer.looped else "torch.func"
            routes[name] = way
            by_parameter |= dict.fromkeys(layer.own.values(), way)
        return routes | expanded, by_parameter

    def _by_autograd(self, features: Tensor, targets: Tensor) -> dict[str, Tensor]:
        seed_torch(0)
        objective = self._objective(features, targets)
        gradients = torch.autograd.grad(objective, list(self._trained.values()), allow_unused=True)
        return checks.all_take_part(dict(zip(self._trained, gradients, strict=True)))

    def _repeated_sum(self, features: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Without clipping; what is random in the module (dropout) is the same every time."""
        seed_torch(0)
        total = torch.zeros(self._numbers, dtype=torch.float64, device=features.device)
        self.add(total, features, targets, None, weights)
        return total


def _one_a_piece(parameter: Tensor, pieces: int) -> Tensor:
    return parameter.detach().expand(pieces, *parameter.shape[1:]).requires_grad_()


def _by_size(sizes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """In as few groups as can be kept."""
    groups: list[list[str]] = []
    size = 0
    for name, own in sizes.items():
        size += own
        if not groups or not ghost.can_be_kept(size):
            groups.append([])
            size = own
        groups[-1].append(name)
    return [tuple(group) for group in groups]


def _add_at(total: Tensor, place: slice | Tensor, piece: Piece, scale: Tensor, block: int) -> None:
    if isinstance(place, slice):
        piece.add_to(total[place], scale, block)
        return
    assert isinstance(piece, Kept)
    table = total.new_zeros(piece.gradients[0].numel())
    piece.add_to(table, scale, block)
    total.index_add_(0, place, table[: len(place)])


def clip(pieces: Sequence[Piece], clip_norm: float, share: Tensor) -> Tensor:
    """What to multiply rows by so that each is within its share of the clip norm; those that cannot
    be are silenced."""
    aim = clip_norm * (1 - blocks.margin("bfloat16" if ghost.are_rounded(pieces) else "float32"))
    lengths = ghost.lengths(pieces)
    norms = lengths.squared.sqrt() + lengths.rounded.sqrt()
    uncancelled = lengths.uncancelled.sqrt()
    bound = torch.maximum(norms / aim, uncancelled / (blocks.CANCELLING * clip_norm))
    kept = torch.isfinite(bound)
    if not bool(kept.all()):  # a GPU is waited for here
        for piece in pieces:
            piece.silence(kept)
    return torch.where(kept, share / bound.clamp(min=1.0), 0.0)
