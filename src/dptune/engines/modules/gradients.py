"""The clipped sum of the gradients of rows, for any module: one pass forward, one back.

The pass back stops at the outputs of the layers that are trained. What went into a layer and what
came back to it is all that its rows' gradients are made of, so norms and the clipped sum come from
the same stored numbers: what is added is what was measured, whatever the module does besides.
"""

from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import add

import torch
from torch import Tensor, nn

from dptune.engines import sums
from dptune.engines.modules import checks, functions, ghost
from dptune.engines.modules.ghost import Kept, Lengths, Lookup, Outer, Piece, Remade
from dptune.engines.modules.layout import Layer, Layout, find_layout, widening
from dptune.engines.modules.recording import Call, Recording, recorded, replaced
from dptune.errors import InvalidInput

RowLoss = Callable[[Tensor, Tensor], Tensor]


class RowGradients:
    """Adds up clipped gradients of rows, in the parameters `trained` of `module`.

    Guarantees: with a clip norm, replacing one row of a batch by one that contributes nothing moves
    `total`, as really added up, by at most that (docs/modules-bound.md).
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
        self._layout = Layout()
        self.routes: dict[str, str] = {}

    def trace(self, features: Tensor, targets: Tensor) -> None:
        """Find out on made-up rows, three or more, which layer is recorded how; refuse modules
        whose gradients cannot be told apart by rows."""
        if len(features) < checks.FEWEST_ROWS:
            raise InvalidInput(
                f"a module is looked at with {checks.FEWEST_ROWS} made-up rows or more; got "
                f"{len(features)}."
            )
        checks.no_batch_norm(self._module)
        checks.parameters_are_their_own(self._module, self._trained)
        with checks.undisturbed(self._module, features.device):
            wanted = self._by_autograd(features, targets)
            wrong = self._lay_out(features, targets, wanted, expand=True)
            if any(name in self._layout.expanded for name in wrong):
                # Some parameter cannot be given a copy a row: its layer is run again instead.
                wrong = self._lay_out(features, targets, wanted, expand=False)
            checks.agrees(wrong)
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
        ghost.MOST_ROWS rows in all: `StepTotal` is for more."""
        if not sums.products_are_exact():
            raise InvalidInput(
                "torch was told to round float32 products (TF32 or bfloat16), which would break "
                "the bound on a row's contribution; restore the default, for example with "
                "torch.set_float32_matmul_precision('highest')."
            )
        rows = len(features)
        if not rows:
            return
        pieces = self._pieces(features, targets)
        with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
            share = torch.ones(rows, dtype=torch.float64, device=features.device)
            if weights is not None:
                share = weights.to(share)
            if clip_norm is not None and pieces:
                clip(pieces, clip_norm, share)
            elif weights is not None:
                _multiply(pieces, share)
            # The same blocks in all layers: see docs/modules-bound.md.
            factored = [piece for piece in pieces.values() if isinstance(piece, Outer)]
            block = min((piece.most_rows for piece in factored), default=1)
            for name in list(pieces):
                pieces.pop(name).add_to(total[self._places[name]], block)

    def _pieces(self, features: Tensor, targets: Tensor) -> dict[str, Piece]:
        """What every parameter's gradients are made of."""
        rows, copies = features.shape[:2]
        expanded = {
            name: _one_a_piece(self._trained[name], rows * copies) for name in self._layout.expanded
        }
        recording, found = self._pass(features, targets, expanded)
        pieces: dict[str, Piece] = {}
        with torch.no_grad():
            for name, gradient in zip(expanded, found, strict=True):
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
                with self._precision(call.input.device):
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
        self, features: Tensor, targets: Tensor, expanded: Mapping[str, Tensor]
    ) -> tuple[Recording, list[Tensor | None]]:
        """Forward and back, once."""
        pieces = features.shape[0] * features.shape[1]
        known = {key: layer.module for key, layer in self._layout.layers.items()}
        widened = dict.fromkeys(self._layout.widened, widening(pieces))
        with (
            replaced(self._module, expanded),
            recorded(known, widened, self._layout.narrowed) as recording,
        ):
            objective = self._objective(features, targets)
            recording.on = False
            gradients = recording.differentiate(objective, list(expanded.values()))
        return recording, gradients

    def _objective(self, features: Tensor, targets: Tensor) -> Tensor:
        """The sum over rows of the mean loss of a row's copies."""
        rows, copies = features.shape[:2]
        aims = targets.repeat_interleave(copies, 0) if copies > 1 else targets
        with torch.enable_grad(), self._precision(features.device):
            losses = self._loss(self._module(features.flatten(0, 1)), aims)
        if losses.shape != (rows * copies,):
            raise InvalidInput(
                f"a loss gives one number a row: {(rows * copies,)} are expected, got "
                f"{tuple(losses.shape)}; for losses of torch say reduction='none'."
            )
        return losses.sum() / copies

    def _precision(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=self._compute == "bfloat16")

    def _lay_out(
        self, features: Tensor, targets: Tensor, wanted: Mapping[str, Tensor], expand: bool
    ) -> list[str]:
        """Decide how layers are recorded; returns parameters for which that is not right."""

        def objective(count: int) -> Tensor:
            return self._objective(features[:count], targets[:count])

        self._layout = find_layout(self._module, self._trained, objective, len(features), expand)
        try:
            self._choose_loops(features, targets)
            found = self._repeated_sum(features, targets, None)
        except (RuntimeError, TypeError, ValueError):
            if not expand or not self._layout.expanded:
                raise
            return list(self._layout.expanded)
        self.routes = self._routes(features, targets)
        return checks.disagreeing(found, wanted, self._places, self._compute)

    def _choose_loops(self, features: Tensor, targets: Tensor) -> None:
        again = {key: layer for key, layer in self._layout.layers.items() if layer.rule is None}
        if not again:
            return
        expanded = {
            name: _one_a_piece(self._trained[name], features.shape[0] * features.shape[1])
            for name in self._layout.expanded
        }
        recording, _ = self._pass(features, targets, expanded)
        with self._precision(features.device):
            for key, layer in again.items():
                call, by_row = recording.calls[key][0], layer.by_row[0]
                layer.looped = functions.must_be_looped(
                    layer.module, list(layer.own), call, by_row, len(features)
                )

    def _routes(self, features: Tensor, targets: Tensor) -> dict[str, str]:
        pieces = self._pieces(features, targets)
        routes = {}
        for key, layer in self._layout.layers.items():
            name = key.strip()
            ghosts = any(isinstance(pieces[full], Outer | Lookup) for full in layer.own.values())
            routes[name] = "torch.func" if layer.rule is None else "ghost" if ghosts else "per row"
        return routes | dict.fromkeys(self._layout.expanded, "expanded")

    def _by_autograd(self, features: Tensor, targets: Tensor) -> dict[str, Tensor]:
        torch.manual_seed(0)
        objective = self._objective(features, targets)
        gradients = torch.autograd.grad(objective, list(self._trained.values()), allow_unused=True)
        return checks.all_take_part(dict(zip(self._trained, gradients, strict=True)))

    def _repeated_sum(self, features: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Without clipping; what is random in the module (dropout) is the same every time."""
        torch.manual_seed(0)
        total = torch.zeros(self._numbers, dtype=torch.float64, device=features.device)
        self.add(total, features, targets, None, weights)
        return total


def _one_a_piece(parameter: Tensor, pieces: int) -> Tensor:
    return parameter.detach().expand(pieces, *parameter.shape[1:]).requires_grad_()


def clip(pieces: Mapping[str, Piece], clip_norm: float, share: Tensor) -> None:
    """Multiply rows so that each is within its share of the clip norm; silence those that cannot
    be."""
    # Whatever `compute` says: layers may have been given bfloat16 weights.
    rounded = any(isinstance(piece, Outer) and piece.is_bfloat16 for piece in pieces.values())
    reach = clip_norm * (1 - ghost.margin("bfloat16" if rounded else "float32"))
    aim = reach * (1 - ghost.ROUNDED_FACTORS) if rounded else reach
    lengths = _lengths(pieces)
    norms, uncancelled = lengths.squared.sqrt(), lengths.uncancelled.sqrt()
    bound = torch.maximum(norms / aim, uncancelled / (ghost.CANCELLING * clip_norm))
    kept = torch.isfinite(bound)
    scale = torch.where(kept, share / bound.clamp(min=1.0), 0.0)
    if not bool(kept.all()):  # a GPU is waited for here, and below
        for piece in pieces.values():
            piece.silence(kept)
    _multiply(pieces, scale)
    if rounded:
        # Measured again as they are multiplied. Where rounding has made a row longer than it may
        # be, a power of two, by which everything is multiplied exactly, shortens it.
        over = _lengths(pieces).squared.sqrt() / (share * reach).clamp(min=1e-300)
        halvings = torch.ceil(torch.log2(over.clamp(min=1.0)) - 1e-9)
        if bool((halvings[scale > 0] > 0).any()):
            _multiply(pieces, torch.exp2(-halvings))


def _lengths(pieces: Mapping[str, Piece]) -> Lengths:
    return reduce(add, (piece.lengths() for piece in pieces.values()))


def _multiply(pieces: Mapping[str, Piece], scale: Tensor) -> None:
    for piece in pieces.values():
        piece.multiply(scale)
