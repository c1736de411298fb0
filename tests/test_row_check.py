"""A module whose rows interact, or which keeps something of them, is refused before anything is
paid; one that only looks like it is not."""

import pytest
import torch
from torch import Tensor, nn

from dptune.engines.modules.doctor import examine, problems
from dptune.engines.modules.made_up import nothing_near_zero
from dptune.engines.modules.mending import fix
from dptune.engines.modules.problem import must_be_none, wanting_gradients
from dptune.engines.modules.row_check import problems_on_rows
from dptune.errors import InvalidInput
from support import zoo

ROWS = 5


def must_be_apart(module: nn.Module, rows: Tensor, others: Tensor) -> None:
    """All that a rehearsal looks at before gradients are taken."""
    names = wanting_gradients(module)
    coarse = next(module.parameters()).dtype == torch.bfloat16
    with nothing_near_zero(module, names):
        compute = "bfloat16" if coarse else "float32"
        must_be_none([] if coarse else problems(module))
        must_be_none(problems_on_rows(module, rows, others, compute=compute))


@pytest.mark.parametrize("name", zoo.TOGETHER)
def test_module_whose_rows_interact_is_refused(name: str) -> None:
    torch.manual_seed(0)
    make, rows, says = zoo.TOGETHER[name]
    with pytest.raises(InvalidInput, match=says):
        must_be_apart(make(), rows(ROWS), rows(ROWS))


@pytest.mark.parametrize("name", zoo.APART)
def test_module_whose_rows_do_not_interact_is_accepted(name: str) -> None:
    torch.manual_seed(0)
    make, rows = zoo.APART[name]
    must_be_apart(make(), rows(ROWS)[:, 0], rows(ROWS)[:, 0])


@pytest.mark.parametrize("depth", [8, 48])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_depth_and_precision_raise_no_false_alarm(depth: int, compute: str) -> None:
    """Roundings grow with depth; what is compared bit for bit, or layer by layer, does not."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU()) for _ in range(depth)]
    module = nn.Sequential(nn.Linear(6, 32), *blocks, nn.Linear(32, 3))
    rows, others = torch.randn(2, ROWS, 6)
    assert not problems_on_rows(module, rows, others, compute=compute)


def test_a_module_may_write_into_its_input() -> None:
    """It gets a copy of the rows, here and in every step."""
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))
    rows, others = torch.randn(2, ROWS, 6)
    before = rows.clone()
    assert not problems_on_rows(module, rows, others)
    assert torch.equal(rows, before)


def test_max_norm_is_named_and_taken_out_by_fix() -> None:
    fixed = fix(zoo.Renormed())
    assert fixed.replaced == ("words: Embedding without max_norm",) and not fixed.left
    assert not examine(fixed.module, (4,), ids=True).problems


def test_dropout_inside_of_attention_is_set_to_zero_by_fix() -> None:
    fixed = fix(zoo.encoder())
    assert fixed.replaced == ("0.self_attn: MultiheadAttention without dropout inside of it",)
    assert not examine(fixed.module, (5, 8)).problems
    frozen = zoo.encoder()
    frozen[0].self_attn.requires_grad_(False)
    assert not fix(frozen).replaced and not problems(frozen)
