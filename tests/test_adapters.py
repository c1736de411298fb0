"""Low-rank adapters: what they compute, what they leave alone, and what is released of them."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dptune
from dptune.data.rows import DataFacts, MemoryRows
from dptune.engines import fix_module
from dptune.engines.modules.adapters import add_adapters
from dptune.engines.modules.doctor import problems
from dptune.engines.modules.lora import LoRA
from dptune.engines.modules.losses import outputs_of
from dptune.engines.modules.module_model import SEEN_LOGITS, SEEN_SHAPE
from dptune.engines.modules.precision import all_in_float32, computing
from dptune.engines.modules.problem import wanting_gradients
from dptune.engines.modules.torch_module import TorchModule
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan

# Of processors that have no bfloat16 of their own.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


def sizes_of_bert() -> dict[str, Any]:
    return {
        "vocab_size": 20,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 8,
        "num_labels": 3,
        "attn_implementation": "eager",
    }


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes_of_bert()))


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=20,
        n_positions=8,
        n_embd=8,
        n_layer=1,
        n_head=2,
        num_labels=3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    )
    return transformers.GPT2ForSequenceClassification(config)  # type: ignore[no-any-return]


def adapted(module: nn.Module, **asked: Any) -> nn.Module:
    return add_adapters(module, rank=2, alpha=6.0, **asked)


def test_an_adapter_is_nothing_at_first_and_then_a_product_of_low_rank() -> None:
    torch.manual_seed(0)
    base, rows = nn.Sequential(nn.Linear(4, 5)), torch.randn(3, 4)
    before = base(rows)
    module = adapted(base)
    assert torch.equal(module(rows), before)
    layer = module[0]
    nn.init.normal_(layer.lora_B.weight)
    beside = rows @ layer.lora_A.weight.T @ layer.lora_B.weight.T * (6.0 / 2)
    torch.testing.assert_close(module(rows), before + beside)


def test_all_but_adapters_is_frozen_unless_it_is_asked_for() -> None:
    names = wanting_gradients(adapted(plain()))
    assert names == [f"{layer}.lora_{part}.weight" for layer in (0, 3) for part in "AB"]
    chosen = adapted(plain(), layers="*, nowhere.*", trained="3.*")
    assert wanting_gradients(chosen) == [
        "0.lora_A.weight",
        "0.lora_B.weight",
        "3.weight",
        "3.bias",
    ]
    with pytest.raises(InvalidInput, match=r"layers='1' fits no linear layer.*it has 0, 3"):
        adapted(plain(), layers="1")
    with pytest.raises(InvalidInput, match=r"it has none inside it"):
        adapted(nn.Flatten())
    with pytest.raises(InvalidInput, match=r"trained='head.\*' fits none"):
        adapted(plain(), trained="head.*")


def test_large_frozen_weights_are_kept_in_bfloat16_and_norms_are_not() -> None:
    module = adapted(plain(), base_dtype=torch.bfloat16, trained="3.bias")
    kept = {name: value.dtype for name, value in module.named_parameters()}
    half = {name for name, dtype in kept.items() if dtype == torch.bfloat16}
    assert half == {"0.base_layer.weight", "0.base_layer.bias", "3.base_layer.weight"}


@pytest.mark.parametrize("make", [plain, bert, gpt2])
def test_what_is_kept_in_bfloat16_can_be_computed_with_in_float32(make: Any) -> None:
    torch.manual_seed(0)
    module = adapted(make(), base_dtype=torch.bfloat16).eval()
    wide = copy.deepcopy(module).float()
    rows = torch.randn(3, 4) if make is plain else torch.randint(3, 20, (3, 6))
    kept = {name: one.dtype for name, one in module.state_dict().items()}
    assert torch.bfloat16 in kept.values()
    with torch.no_grad(), all_in_float32(module):
        found = outputs_of(module(rows))
    assert torch.allclose(found, outputs_of(wide(rows)), rtol=1e-5, atol=1e-6)
    assert {name: one.dtype for name, one in module.state_dict().items()} == kept


@pytest.mark.parametrize("graded", [False, True])
def test_attention_of_torch_can_be_computed_with_in_float32(graded: bool) -> None:
    """It takes the weights of layers inside it without calling these; in one go, or by parts."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    module = adapted(nn.Sequential(nn.Linear(4, 8), block), layers="0", base_dtype=torch.bfloat16)
    wide, rows = copy.deepcopy(module.eval()).float(), torch.randn(3, 5, 4)
    kept = {name: one.dtype for name, one in module.state_dict().items()}
    assert kept["1.self_attn.out_proj.weight"] == torch.bfloat16
    with torch.set_grad_enabled(graded), all_in_float32(module):
        found = module(rows)
    assert torch.allclose(found, wide(rows), rtol=1e-5, atol=1e-6)
    assert {name: one.dtype for name, one in module.state_dict().items()} == kept


def test_weights_are_in_bfloat16_again_where_a_pass_fails() -> None:
    module = adapted(plain(), base_dtype=torch.bfloat16)
    kept = {name: one.dtype for name, one in module.state_dict().items()}
    with pytest.raises(RuntimeError), all_in_float32(module):
        module(torch.randn(3, 5))
    assert {name: one.dtype for name, one in module.state_dict().items()} == kept


@pytest.mark.parametrize(("make", "head"), [(bert, "classifier"), (gpt2, "score")])
def test_models_of_transformers_get_the_adapters_of_peft(make: Any, head: str) -> None:
    pytest.importorskip("peft")
    module = adapted(make())
    names = wanting_gradients(module)
    assert any(name.startswith(head) for name in names)
    assert all("lora_" in name or name.startswith(head) for name in names)
    beside = [
        part
        for name, part in module.named_modules()
        if name.endswith((".lora_A.default", ".lora_B.default"))
    ]
    assert beside and {type(part) for part in beside} == {nn.Linear}
    only = wanting_gradients(adapted(make(), layers="*.attn.c_proj, *.intermediate.dense"))
    assert len([name for name in only if "lora_" in name]) == (2 if head == "score" else 4)


def vit() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=4,
        patch_size=2,
        num_channels=1,
        num_labels=3,
    )
    return transformers.ViTForImageClassification(config)  # type: ignore[no-any-return]


def test_a_kind_of_model_that_peft_does_not_know_gets_adapters_at_its_attention() -> None:
    pytest.importorskip("peft")
    names = [name for name in wanting_gradients(adapted(vit())) if "lora_" in name]
    assert names and all("attention" in name for name in names)


def test_ties_of_a_model_of_transformers_stay_cut() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    module = transformers.GPT2LMHeadModel(config)
    (problem,) = problems(module)
    assert problem.kind == "shared" and "lm_head.weight" in problem.what
    fixed = fix_module(module)
    fixed.tie_weights()
    assert not problems(fixed)


FACTS = DataFacts(40, (4,), 1, 3, "softmax")
PLAN = TrainPlan(rows=40, steps=3, learning_rate=0.5, noise_multiplier=1.0)


def test_what_goes_into_an_adapter_is_not_widened_to_be_made_narrow_again() -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    module = adapted(bert(), layers="*.layer.?.output.dense", base_dtype=torch.bfloat16).eval()
    layers = [one for one in module.modules() if hasattr(one, "cast_input_dtype_enabled")]
    seen: list[torch.dtype] = []
    for layer in layers:
        nn.init.normal_(layer.lora_B.default.weight)
        layer.lora_A.default.register_forward_pre_hook(lambda _, given: seen.append(given[0].dtype))
    words = torch.randint(20, (3, 6))
    with torch.no_grad(), computing("bfloat16", words.device):
        found = module(words).logits
        assert seen == [torch.bfloat16] * len(layers) and layers
        for layer in layers:
            layer.cast_input_dtype_enabled = True
        assert torch.equal(module(words).logits, found)
    assert seen[len(layers) :] == [torch.float32] * len(layers)


def _rows() -> MemoryRows:
    generator = torch.Generator().manual_seed(0)
    return MemoryRows(torch.randn(40, 4, generator=generator), torch.arange(40) % 3)


def _words() -> MemoryRows:
    generator = torch.Generator().manual_seed(0)
    features = torch.randint(20, (40, 6), generator=generator)
    return MemoryRows(features, torch.arange(40) % 3, precision="int64")


def _base(tensors: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in tensors.items() if name not in names}


def peft_model() -> nn.Module:
    """As users write it: wrapped before anything is on the device that trains."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=0.0)
    return peft.get_peft_model(bert(), config)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "engine",
    [
        TorchModule(peft_model, trained="*.lora_A.*,*.lora_B.*", ids=True),
        LoRA(bert, ids=True, rank=2, compute="float32"),
    ],
    ids=["get_peft_model", "LoRA"],
)
def test_adapters_of_peft_learn_on_the_device_that_trains(engine: TorchModule, device: str) -> None:
    """Hooks on parameters that are replaced when the module moves would leave adapters as they
    began, while training looks healthy."""
    pytest.importorskip("peft")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    facts = DataFacts(40, (6,), 1, 3, "softmax")
    engine = engine.for_data(facts)
    before = engine.made().state_dict()
    features = torch.randint(20, (40, 6), generator=torch.Generator().manual_seed(0))
    rows = MemoryRows(features, torch.arange(40) % 3, precision="int64", device=device)
    engine.inspection.rehearse(facts, rows.device)
    (model,) = engine.fit_many([PLAN], rows, [Randomness(seed=3, noise_seed=0)])
    after = model.module.state_dict()
    assert {tensor.device.type for tensor in after.values()} == {device}
    moved = {name for name in after if not torch.equal(after[name].cpu(), before[name])}
    assert {name for name in after if "lora_" in name} <= moved
    packed = engine.pack(model)
    assert all(torch.equal(packed[name], after[name].cpu()) for name in moved)
    again = engine.unpack(packed).logits(features)
    torch.testing.assert_close(again, model.logits(rows.features[:, 0]).cpu(), rtol=1e-3, atol=1e-4)


def without_weights() -> nn.Module:
    with torch.device("meta"):
        return plain()


def test_a_module_whose_weights_are_loaded_later_is_refused() -> None:
    engine = TorchModule(without_weights).for_data(FACTS)
    with pytest.raises(InvalidInput, match=r"not loaded yet \(0.weight is on the device meta\)"):
        engine.inspection.rehearse(FACTS, torch.device("cpu"))


@pytest.mark.parametrize("compute", ["bfloat16", "float32"])
@pytest.mark.parametrize(("make", "ids"), [(plain, False), (bert, True), (gpt2, True)])
def test_what_is_released_is_the_adapter_and_the_base_stays_as_it_was(
    make: Any, ids: bool, compute: str
) -> None:
    if ids:
        pytest.importorskip("peft")
    facts = DataFacts(40, (6,) if ids else (4,), 1, 3, "softmax")
    engine = LoRA(make, ids=ids, rank=2, compute=compute).for_data(facts)
    before = engine.made()
    names = engine.names(before)
    base = _base(before.state_dict(), names)
    rows = _words() if ids else _rows()
    (model,) = engine.fit_many([PLAN], rows, [Randomness(seed=3, noise_seed=0)])
    after = model.module.state_dict()
    assert all(torch.equal(after[name], value) for name, value in base.items())
    kept = {value.dtype for value in base.values() if value.ndim > 1 and value.is_floating_point()}
    assert kept == {getattr(torch, compute)}
    packed = engine.pack(model)
    assert set(packed) == {*names, "base.sha256", SEEN_SHAPE, SEEN_LOGITS}
    assert all(packed[name].dtype == torch.float32 for name in names)
    assert any(packed[name].any() for name in names if "lora_B" in name)
    again = engine.unpack(packed)
    features = rows.features[:, 0]
    assert torch.equal(again.logits(features), model.logits(features))
    total = sum(packed[name].numel() for name in names)
    assert engine.parameters(facts) == total


def test_adapters_differ_by_seed_and_the_base_does_not() -> None:
    engine = LoRA(plain, rank=2)
    one, other = (engine.made(Randomness(seed=seed)) for seed in (1, 2))
    assert not torch.equal(one[0].lora_A.weight, other[0].lora_A.weight)
    assert torch.equal(one[0].base_layer.weight, other[0].base_layer.weight)
    assert torch.equal(one[0].lora_A.weight, engine.made(Randomness(seed=1))[0].lora_A.weight)


def otherwise() -> nn.Module:
    module = plain()
    nn.init.zeros_(module[1].weight)  # type: ignore[arg-type]
    return module


def test_another_base_is_refused() -> None:
    engine = LoRA(plain, rank=2, outputs=3, loss="softmax")
    (model,) = engine.fit_many([PLAN], _rows(), [Randomness(noise_seed=0)])
    packed = engine.pack(model)
    with pytest.raises(InvalidInput, match=r"another base than .*otherwise makes now"):
        LoRA(otherwise, rank=2, outputs=3, loss="softmax").unpack(packed)
    with pytest.raises(InvalidInput, match="have other adapters than those that were trained"):
        LoRA(plain, rank=2, layers="0", outputs=3, loss="softmax").unpack(packed)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"rank": 0}, "rank must be a whole number from 1 to 65,536; got 0"),
        ({"alpha": 0}, "alpha must be a finite number above 0"),
        ({"trained": "3.*"}, r'comes after: "adapters, head.\*"; got trained=\'3.\*\''),
    ],
)
def test_options_without_sense_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        LoRA(plain, **asked)


SCRIPT = """
import sys
import dptune
import numpy as np

print(dptune.load(sys.argv[1], own_code=True).predict(np.load(sys.argv[2])).tolist())
"""


def test_a_study_of_adapters_is_loaded_by_another_process(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "nets.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))\n"
    )
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(200, 4, generator=generator)
    data = dptune.Data(rows.numpy(), (rows[:, 0] > 0).long().numpy())
    result = dptune.tune(
        data,
        budget=dptune.Budget(3.0, 1e-4),
        engine=LoRA(f"{tmp_path}/nets.py:make", rank=2, rows_at_once=64),
        search=dptune.RandomSearch(trials=2),
        space=dptune.Space(learning_rate=(0.1, 1.0), steps=(3, 5)),
        out=tmp_path / "run",
    )
    assert result.guarantee.epsilon <= 3.0
    np.save(tmp_path / "new.npy", rows[:5].numpy())
    (tmp_path / "load.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "load.py", str(tmp_path / "run"), "new.npy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    assert done.stdout.strip() == str(result.model.predict(rows[:5].numpy()).tolist())
