"""What keeps a module from being trained privately is named layer by layer, and mended where it can
be."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from dptune.engines import fix_module
from dptune.engines.modules.doctor import examine, must_be_sound, problems
from dptune.engines.modules.mending import fix
from dptune.engines.modules.problem import must_be_none, wanting_gradients
from dptune.engines.modules.row_check import problems_on_rows
from dptune.errors import InvalidInput


class Lines(nn.Module):
    """Takes the mean of the batch away, between its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.first(rows)
        return self.second(hidden - hidden.mean(0))  # type: ignore[no-any-return]


class Center(nn.Module):
    def forward(self, rows: Tensor) -> Tensor:
        return rows - rows.mean(0)


class Follows(nn.Module):
    """Keeps a mean of what it has seen, and does nothing with it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, rows: Tensor) -> Tensor:
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * rows.mean(0).detach()
        return rows


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.embedding(words).mean(1))  # type: ignore[no-any-return]


def found(module: nn.Module) -> dict[str, str]:
    return {each.layer: each.kind for each in problems(module)}


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (nn.BatchNorm1d(4), "batch norm"),
        (nn.BatchNorm2d(4, affine=False), "batch norm"),
        (nn.BatchNorm3d(4, track_running_stats=False), "batch norm"),
        (nn.SyncBatchNorm(4), "batch norm"),
        (nn.InstanceNorm2d(4, track_running_stats=True), "running statistics"),
        (spectral_norm(nn.Linear(4, 4)), "spectral norm"),
        (torch.nn.utils.spectral_norm(nn.Linear(4, 4)), "spectral norm"),
    ],
)
def test_a_layer_that_mixes_or_keeps_rows_is_found(layer: nn.Module, kind: str) -> None:
    assert found(nn.Sequential(nn.Linear(2, 4), nn.Sequential(layer))) == {"1.0": kind}
    module = nn.Sequential(nn.Linear(2, 4), layer).requires_grad_(False)
    assert found(module).pop("1") == kind  # frozen or not


@pytest.mark.parametrize(
    "layer",
    [
        nn.GroupNorm(2, 4),
        nn.LayerNorm(4),
        nn.InstanceNorm2d(4, affine=True),
        weight_norm(nn.Linear(4, 4)),
        nn.MultiheadAttention(4, 2),
        nn.Dropout(),
    ],
)
def test_a_layer_that_does_neither_is_left_in_peace(layer: nn.Module) -> None:
    assert not problems(nn.Sequential(nn.Linear(2, 4), layer))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_parameters_without_a_size_or_of_another_kind_are_found() -> None:
    assert found(nn.Sequential(nn.LazyLinear(3))) == {"0.weight": "lazy", "0.bias": "lazy"}
    assert found(nn.LazyBatchNorm1d())["the module"] == "batch norm"
    assert found(nn.Sequential(nn.Linear(2, 2).bfloat16())) == dict.fromkeys(
        ("0.weight", "0.bias"), "precision"
    )
    assert found(nn.Linear(2, 2, dtype=torch.complex64)) == dict.fromkeys(
        ("weight", "bias"), "precision"
    )
    assert found(nn.Linear(2, 2).requires_grad_(False)) == {"the module": "frozen"}
    assert found(nn.Flatten()) == {"the module": "frozen"}


def test_shared_parameters_are_named_both_unless_they_are_frozen() -> None:
    tied = Tied()
    (problem,) = problems(tied)
    assert problem.layer == "embedding.weight" and "same parameter as head.weight" in problem.what
    assert problems(tied, ["head.weight"]) == [problem]
    block = nn.Linear(2, 2)
    twice = nn.Sequential(block, nn.ReLU(), block, nn.Linear(2, 2))
    assert found(twice) == {"0.weight": "shared", "0.bias": "shared"}
    assert not problems(twice, ["3.weight", "3.bias"])


def test_all_problems_are_told_and_not_only_the_first() -> None:
    module = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4), Tied()
    )
    with pytest.raises(InvalidInput) as refused:
        must_be_sound(module, wanting_gradients(module))
    said = str(refused.value)
    assert "nothing was paid" in said and "layer 1, 3: batch norm mixes the rows" in said
    assert "parameter 4.embedding.weight: it is the same parameter as 4.head.weight" in said
    assert "fix_module(module)" in said
    many = nn.Sequential(*(nn.BatchNorm1d(2) for _ in range(20)))
    with pytest.raises(
        InvalidInput, match=r"layer 0, 1, 2, 3, 4, 5, ... \(20 in all\): batch norm"
    ):
        must_be_sound(many, wanting_gradients(many))


ROWS, OTHERS = torch.rand(2, 4, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("module", "layer"),
    [
        (Lines(), "the module"),
        (nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.ReLU(), Center())), "1.1"),
        (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), "1"),
        (nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 2), Center(), nn.Dropout(0.5)), "2"),
        (nn.TransformerEncoderLayer(3, 1, 4), "self_attn"),  # which takes rows for words
    ],
)
def test_the_layer_that_mixes_rows_is_named(module: nn.Module, layer: str) -> None:
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():  # weights that leave every ReLU alive: behind dead ones nothing mixes
        for parameter in module.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=numbers))
    before = copy.deepcopy(module.state_dict())
    (problem,) = problems_on_rows(module, ROWS, OTHERS)
    assert (problem.layer, problem.kind) == (layer, "mixes rows")
    # A check leaves nothing behind.
    assert module.training and all(
        torch.equal(value, before[name]) for name, value in module.state_dict().items()
    )


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.Dropout(0.5), nn.Dropout(0.2)),
        nn.Sequential(
            nn.Unflatten(1, (3, 1)), nn.TransformerEncoderLayer(1, 1, 4, batch_first=True)
        ),
    ],
)
def test_rows_that_keep_to_themselves_pass(module: nn.Module) -> None:
    state = torch.get_rng_state()
    assert not problems_on_rows(module, ROWS, OTHERS)
    assert torch.equal(torch.get_rng_state(), state)


class Sneaks(nn.Module):
    """The same outputs whatever the other rows are; not the same gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 2)

    def forward(self, rows: Tensor) -> Tensor:
        found = self.line(rows)
        others = found.sum(0) - found
        return found + others - others.detach()  # type: ignore[no-any-return]


class Counts(nn.Module):
    """Depends on how many rows there are, and on nothing else of them."""

    def forward(self, rows: Tensor) -> Tensor:
        return rows / len(rows)


def test_gradients_and_the_number_of_rows_are_looked_at_too() -> None:
    for module in (Sneaks(), nn.Sequential(nn.Linear(3, 2), Counts())):
        (problem,) = problems_on_rows(module, ROWS, OTHERS)
        assert problem.kind == "mixes rows"


def test_a_buffer_that_changes_is_found_by_rows_that_pass() -> None:
    module = nn.Sequential(Follows(), nn.Linear(3, 2))
    assert not problems(module)
    (problem,) = problems_on_rows(module, ROWS, OTHERS)
    assert (problem.layer, problem.kind) == ("0", "keeps rows") and "seen" in problem.what
    assert not module[0].seen.any()
    with pytest.raises(InvalidInput, match="buffer seen changes"):
        must_be_none(problems_on_rows(module, ROWS, OTHERS))


def test_an_examination_lists_layers_and_problems() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
    module[3].requires_grad_(False)
    seen = examine(module, (1, 6, 6))
    assert [(each.name, each.kind, each.parameters) for each in seen.layers] == [
        ("0", "Conv2d", 40),
        ("1", "BatchNorm2d", 8),
        ("3", "Linear", 130),
    ]
    assert seen.layers[2].way == "frozen"
    assert [(each.layer, each.kind) for each in seen.problems] == [("1", "batch norm")]
    with pytest.raises(InvalidInput, match=r"cannot be run on rows of shape \(3,\)"):
        examine(module, (3,))
    words = examine(Tied(), (4,), ids=True)
    assert [each.kind for each in words.problems] == ["shared"]


@pytest.mark.parametrize(
    ("norm", "groups"),
    [
        (nn.BatchNorm2d(48), 24),
        (nn.BatchNorm2d(16), 16),
        (nn.BatchNorm3d(7), 7),
        (nn.BatchNorm2d(37), 1),
        (nn.SyncBatchNorm(64), 32),
        (nn.BatchNorm1d(16), 1),
        (nn.BatchNorm2d(64, affine=False), 32),
    ],
)
def test_batch_norm_becomes_group_norm_with_the_same_weights(norm: nn.Module, groups: int) -> None:
    if norm.affine:
        nn.init.normal_(norm.weight)
    module = nn.Sequential(nn.Sequential(norm), nn.Linear(2, 2))
    weights = {name: value.clone() for name, value in module.named_parameters()}
    fixed = fix(module)
    new = fixed.module.get_submodule("0.0")
    assert isinstance(new, nn.GroupNorm) and new.num_groups == groups and not fixed.left
    assert new.eps == norm.eps and new.affine == norm.affine
    assert dict.fromkeys(weights, True) == {
        name: torch.equal(value, weights[name]) for name, value in fixed.module.named_parameters()
    }
    assert fixed.replaced == (
        f"0.0: {type(norm).__name__}({norm.num_features}) by "
        f"GroupNorm({groups}, {norm.num_features})",
    )


def test_a_module_that_is_batch_norm_itself_is_replaced() -> None:
    assert isinstance(fix_module(nn.BatchNorm2d(4)), nn.GroupNorm)


def test_ties_are_cut_by_copies_and_frozen_ones_stay() -> None:
    tied = Tied()
    fixed = fix(tied)
    assert fixed.replaced == ("head.weight: the parameter embedding.weight by a copy of it",)
    assert tied.head.weight is not tied.embedding.weight and not fixed.left
    assert torch.equal(tied.head.weight, tied.embedding.weight)
    block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    twice = fix(nn.Sequential(block, block))
    assert not twice.left and len(twice.replaced) == 3
    assert twice.module[0][0].weight is not twice.module[1][0].weight
    frozen = Tied().requires_grad_(False)
    assert not fix(frozen).replaced and frozen.head.weight is frozen.embedding.weight


def test_instance_norm_forgets_and_what_cannot_be_mended_is_left() -> None:
    class Busy(nn.BatchNorm2d):
        def forward(self, rows: Tensor) -> Tensor:
            return super().forward(rows).relu()

    module = nn.Sequential(
        nn.InstanceNorm2d(4, track_running_stats=True, affine=True),
        Busy(4),
        spectral_norm(nn.Conv2d(4, 4, 1)),
    )
    fixed = fix(module)
    assert fixed.replaced == ("0: InstanceNorm2d keeps no running statistics",)
    assert [(each.layer, each.kind) for each in fixed.left] == [
        ("1", "batch norm"),
        ("2", "spectral norm"),
    ]
    picture = torch.rand(2, 4, 3, 3)
    alone, norm = picture[:1], module[0]
    torch.testing.assert_close(norm.eval()(picture)[:1], norm.train()(alone))


def test_what_was_mended_passes_the_checks() -> None:
    def block(width: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(width, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    module = nn.Sequential(block(1), block(8), nn.Flatten(), nn.Linear(32, 4), nn.BatchNorm1d(4))
    fixed = fix_module(module)
    assert not examine(fixed, (1, 6, 6)).problems
    # A normed row of numbers is not lost.
    assert fixed(torch.rand(2, 1, 6, 6)).std() > 0.1
