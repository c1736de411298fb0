"""Language models of transformers, as modules whose rows are numbers of words."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dptune.data.rows import DataFacts, MemoryRows
from dptune.engines import HuggingFace, LoRA, Randomness, TorchModule, ZerothOrder
from dptune.engines.language import pretrained
from dptune.engines.language.reader import MeanClassifier, Reader
from dptune.engines.language.word_losses import word_losses
from dptune.engines.modules import blocks, checks, made_up, tracing
from dptune.engines.modules.by_length import widths
from dptune.engines.modules.losses import row_loss
from dptune.engines.modules.tracing import traced
from dptune.errors import InvalidInput
from dptune.hub import quiet
from dptune.plan import TrainPlan
from support.tiny_models import (
    KINDS,
    LENGTH,
    tiny_tokenizer,
    write_mean_pooling,
    write_tiny_model,
)

transformers = pytest.importorskip("transformers")

TASKS = ("softmax", "words", "spans", "inside")
CASES = [
    (kind, task)
    for kind in KINDS
    for task in TASKS
    if task != "words" or kind not in ("bert", "roberta")
]
CPU = torch.device("cpu")
ROWS, WORDS, CLIP = 5, 9, 0.02


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    root = tmp_path_factory.mktemp("tiny")
    for kind in KINDS:
        write_tiny_model(root / kind, kind)
    write_mean_pooling(write_tiny_model(root / "means", "bert"))
    return lambda kind: str(root / kind)


def facts(task: str, words: int = WORDS) -> DataFacts:
    return DataFacts(24, (words,) if task == "softmax" else (2, words), 1, 3, task)


def made(where: str, task: str, **options: Any) -> tuple[TorchModule, Reader]:
    engine = HuggingFace(where, **options).for_data(facts(task))
    module = engine.made()
    assert isinstance(module, Reader)
    return engine, module


def stirred(module: nn.Module) -> None:
    """Heads and adapters, which begin at zero, are something."""
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))


def rows_of(module: Reader, task: str, rows: int = ROWS, words: int = WORDS) -> Tensor:
    return made_up.made_up(module, facts(task, words).shape, rows, ids=True)


# -- gradients


@pytest.mark.parametrize(
    ("kind", "task", "trained"),
    [(*case, "body") for case in CASES] + [(*case, "lora") for case in CASES[1::3]],
)
def test_rows_are_clipped_as_autograd_has_them_one_by_one(
    kind: str, task: str, trained: str, folder: Callable[[str], str]
) -> None:
    options = {"lora": 2, "compute": "float32"} if trained == "lora" else {}
    engine, module = made(folder(kind), task, **options)
    stirred(module)
    flat, gradients = traced(engine, module, facts(task), CPU)
    rows, targets = rows_of(module, task), torch.arange(ROWS) % 3
    total = torch.zeros(len(flat.vector), dtype=torch.float64)
    gradients.add(total, rows[:, None], targets, CLIP)
    wanted, loss = torch.zeros_like(total), row_loss(task)
    for row, target in zip(rows[:, None], targets[:, None], strict=True):
        found = torch.autograd.grad(loss(module(row), target).sum(), [*flat.trained.values()])
        one = torch.cat([each.flatten() for each in found]).double()
        aim = CLIP * (1 - blocks.margin("float32"))
        assert one.norm() > CLIP  # or nothing was clipped
        wanted += one * (aim / one.norm())
    torch.testing.assert_close(total, wanted, rtol=1e-3, atol=2e-6)


def test_all_of_a_model_whose_words_are_tied_is_trained_after_they_are_untied(
    folder: Callable[[str], str],
) -> None:
    engine, module = made(folder("gpt2"), "words", trained="all")
    tied = made(folder("gpt2"), "words")[1]
    assert tied.model.lm_head.weight is tied.model.transformer.wte.weight
    assert module.model.lm_head.weight is not module.model.transformer.wte.weight
    assert set(engine.names(module)) == {name for name, _ in module.named_parameters()}
    rows = rows_of(module, "words")
    torch.testing.assert_close(module(rows), tied(rows))
    traced(engine, module, facts("words"), CPU)


@pytest.mark.parametrize("kind", KINDS)
def test_the_body_is_all_but_tables_of_words_and_places(
    kind: str, folder: Callable[[str], str]
) -> None:
    engine, module = made(folder(kind), "spans")
    left = {name for name, _ in module.named_parameters()} - {*engine.names(module)}
    assert left and all("emb" in name or ".wte." in name or ".wpe." in name for name in left)
    assert engine.trained == "body"


# -- rows


@pytest.mark.parametrize(("kind", "task"), CASES)
def test_numbers_beyond_the_vocabulary_end_no_run(
    kind: str, task: str, folder: Callable[[str], str]
) -> None:
    """A row that has one would stop what is paid for, and tell by that that it is there."""
    _, module = made(folder(kind), task)
    stirred(module)
    rows = rows_of(module, task)
    there = rows if task == "softmax" else rows[:, 0]
    there[:, 1] = module.vocabulary + 7
    if task != "softmax":
        rows[0, 1] = 10**6
    with torch.no_grad():
        given = module(rows)
    assert given.isfinite().all()
    if task == "softmax":
        there[:, 1] = module.traits.padding
        assert torch.equal(module(rows), given)
    else:
        assert given[0, 0] == 0, "nothing is asked of a row whose answers do not exist"


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_seen_by_nobody(kind: str, folder: Callable[[str], str]) -> None:
    """A text says the same whatever it is padded to, and as transformers has it alone."""
    _, module = made(folder(kind), "softmax")
    stirred(module)
    rows = rows_of(module, "softmax")
    module.eval()
    longer = torch.cat([rows, torch.full((ROWS, 20), -1)], 1)
    torch.testing.assert_close(module(longer), module(rows), rtol=1e-4, atol=1e-5)
    for row, found in zip(rows, module(rows), strict=True):
        alone = module.model(row[row >= 0][None]).logits[0]
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "task"), CASES)
def test_what_a_row_gives_is_its_own_bit_by_bit(
    kind: str, task: str, folder: Callable[[str], str]
) -> None:
    """Also beside rows that are full, of which kernels without a mask could be chosen."""
    _, module = made(folder(kind), task)
    assert module.traits.causal == (kind not in ("bert", "roberta"))
    assert module.traits.causal or module.traits.whole_masks
    stirred(module)
    rows = rows_of(module, task)
    full = rows[:1].expand_as(rows)
    assert not bool((full == -1).any()) and bool((rows == -1).any())
    torch.testing.assert_close(module(full)[0], module(rows)[0], rtol=0, atol=0)


def test_models_that_look_near_compute_a_row_alike_whatever_is_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take no masks for each word; of plain ones, fused attention has another kernel where
    all rows are full."""
    tokenizer = tiny_tokenizer("bert")
    config = transformers.ModernBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        local_attention=16,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
        **dict.fromkeys(("cls_token_id", "sep_token_id"), 3),
    )
    with torch.random.fork_rng([]), quiet(transformers):
        transformers.ModernBertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    masked: list[bool] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def noted(*given: Any, **more: Any) -> Tensor:
        masked.append(more.get("attn_mask") is not None)
        return fused(*given, **more)

    _, module = made(str(tmp_path), "softmax")
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noted)
    full = torch.arange(2 * WORDS).view(2, WORDS) + 5
    short = torch.cat([full[:1], torch.where(torch.arange(WORDS) < 2, full[1:], -1)])
    seen = []
    for rows in (full, short):
        masked.clear()
        module(rows)
        seen.append(masked[:])
    assert seen[0] == seen[1]
    assert not module.traits.causal


@pytest.mark.parametrize("task", ["words", "spans", "inside"])
def test_a_row_that_asks_nothing_has_no_loss_and_no_gradient(
    task: str, folder: Callable[[str], str]
) -> None:
    """As the pieces that a person with few texts does not have."""
    for kind in ("gpt2", "bert") if task != "words" else ("gpt2",):
        _, module = made(folder(kind), task)
        stirred(module)
        nothing = torch.tensor([-1, -100])[:, None].expand(1, 2, WORDS)
        losses = row_loss(task)(module(nothing), torch.zeros(1))
        assert losses.tolist() == [0.0]
        trained = [p for p in module.parameters() if p.requires_grad]
        found = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
        assert all(one is None or not one.any() for one in found)


def test_the_second_text_of_a_pair_is_marked_where_the_model_marks_it(
    folder: Callable[[str], str],
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder("bert"))
    _, module = made(folder("bert"), "softmax")
    stirred(module)
    words = tokenizer("the film", "was not bad", return_tensors="pt")
    row = torch.cat([words.input_ids, torch.full((1, 3), -1)], 1)
    wanted = module.model.eval()(**words).logits
    torch.testing.assert_close(module(row), wanted, rtol=1e-4, atol=1e-6)
    words.pop("token_type_ids")
    assert not torch.allclose(module.model(**words).logits, wanted, atol=1e-5)


@pytest.mark.parametrize(("kind", "task"), CASES)
def test_made_up_rows_are_plausible(kind: str, task: str, folder: Callable[[str], str]) -> None:
    _, module = made(folder(kind), task)
    rows = made_up.made_up(module, (2, *facts(task).shape), 4, ids=True)
    assert rows.shape == (4, 2, *facts(task).shape)
    given = module(rows.flatten(0, 1))
    assert given.shape == (8, facts(task).width) and bool(torch.isfinite(given).all())
    if task != "softmax":
        assert bool((given[:, 0] > 0).all())  # of all something is asked
    words = rows if task == "softmax" else rows[:, :, 0]
    assert bool((words >= 0).any(-1).all()) and bool((words == -1).any())


def test_rows_of_another_shape_and_texts_that_are_too_long_are_refused(
    folder: Callable[[str], str],
) -> None:
    _, module = made(folder("roberta"), "softmax")
    assert module.traits.longest == LENGTH
    module(torch.full((1, LENGTH), 7))
    with pytest.raises(InvalidInput, match="64 tokens at most, and rows have 65; ask for"):
        module(torch.full((1, LENGTH + 1), 7))
    with pytest.raises(InvalidInput, match=r"a row of this task is words.* shape \(2, 9\)"):
        module(torch.zeros(1, 2, 9, dtype=torch.long))
    with pytest.raises(InvalidInput, match="two lines of numbers, words and answers"):
        made(folder("gpt2"), "words")[1](torch.zeros(1, 9, dtype=torch.long))


# -- losses and outputs


def test_losses_of_words_are_those_of_cross_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dptune.engines.language.word_losses._AT_ONCE", 60)  # two rows
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, 10, generator=generator).mul_(4).requires_grad_()
    words = torch.randint(0, 10, (5, 3), generator=generator)
    words[1, 2] = words[4] = -100
    flowing = torch.rand(5, 3, generator=generator)
    wanted = nn.functional.cross_entropy(logits.mT, words, reduction="none")
    found = word_losses(logits, words)
    torch.testing.assert_close(found, wanted)
    assert not found[4].any()
    one, two = (torch.autograd.grad((each * flowing).sum(), logits)[0] for each in (found, wanted))
    torch.testing.assert_close(one, two)
    coarse = word_losses(logits.bfloat16(), words)
    assert coarse.dtype == torch.float32
    torch.testing.assert_close(coarse, wanted, rtol=0.02, atol=0.02)


def test_words_give_the_mean_loss_of_what_is_asked_and_how_much_that_is(
    folder: Callable[[str], str],
) -> None:
    _, module = made(folder("gpt2"), "words")
    rows = rows_of(module, "words")
    words, answers = rows[1]
    alone = module.model.eval()(words[words >= 0][None]).logits[0].log_softmax(1).detach()
    places = [place for place in range(1, WORDS) if answers[place] >= 0]
    wanted = -sum(float(alone[place - 1, answers[place]]) for place in places) / len(places)
    loss, asked = module(rows)[1].tolist()
    assert loss == pytest.approx(wanted, rel=1e-5) and asked == len(places)


def test_spans_give_the_likeliest_pair_in_order_or_none() -> None:
    from dptune.engines.language.reader import _likeliest

    generator = torch.Generator().manual_seed(0)
    starts, ends = (torch.randn(50, 7, generator=generator) * 3 for _ in range(2))
    for first, last, start, end in zip(*_likeliest(starts, ends).T, starts, ends, strict=True):
        pairs = {(i, j): float(start[i] + end[j]) for i in range(1, 7) for j in range(i, 7)}
        pairs[0, 0] = float(start[0] + end[0])
        assert (int(first), int(last)) == max(pairs, key=lambda pair: pairs[pair])


def test_spans_cost_the_mean_of_both_ends(folder: Callable[[str], str]) -> None:
    _, module = made(folder("bert"), "spans")
    stirred(module)
    row = rows_of(module, "spans")[1]
    known = int((row[0] >= 0).sum())
    found = module.model.eval()(row[0, :known][None])
    both = torch.stack([found.start_logits[0], found.end_logits[0]]).log_softmax(1).detach()
    wanted = -(both[0, row[1, 0]] + both[1, row[1, 1]]) / 2
    loss = module(row[None])[0, 0].detach()
    assert float(loss) == pytest.approx(float(wanted), rel=1e-4)


# -- where models come from


@pytest.mark.parametrize("kind", [*KINDS, "means"])
def test_new_heads_begin_at_zero_and_dropout_is_left_out(
    kind: str, folder: Callable[[str], str]
) -> None:
    for task in ("softmax", "spans"):
        engine, module = made(folder(kind), task)
        assert not any(isinstance(m, nn.Dropout) and m.p for m in module.modules())
        rows = rows_of(module, task)
        given = module.train()(rows)
        torch.testing.assert_close(given, module.eval()(rows))
        if task == "softmax":
            assert not given.any()
        again = engine.made().state_dict()
        assert all(torch.equal(one, again[name]) for name, one in module.state_dict().items())


def test_a_head_that_was_trained_before_is_kept_if_it_has_as_many_classes(
    folder: Callable[[str], str], tmp_path: Path
) -> None:
    config = transformers.AutoConfig.from_pretrained(folder("bert"), num_labels=3)
    model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(tmp_path)
    _, module = made(str(tmp_path), "softmax")
    assert torch.equal(module.model.classifier.weight, model.classifier.weight)
    other = HuggingFace(str(tmp_path)).for_data(replace(facts("softmax"), outputs=5)).made()
    assert not other.model.classifier.weight.any()


def test_models_of_sentences_are_classified_by_the_mean_of_their_words(
    folder: Callable[[str], str],
) -> None:
    engine, module = made(folder("means"), "softmax")
    assert isinstance(module, MeanClassifier)
    stirred(module)
    rows = rows_of(module, "softmax")
    for row, found in zip(rows, module.eval()(rows), strict=True):
        states = module.model(row[row >= 0][None]).last_hidden_state[0]
        wanted = module.head(states.mean(0))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    engine.inspection.rehearse(facts("softmax"), CPU)
    lora, _ = made(folder("means"), "inside", lora=2, compute="float32")
    lora.inspection.rehearse(facts("inside"), CPU)


def test_models_with_experts_are_refused(tmp_path: Path) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_local_experts": 2}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    transformers.MixtralConfig(**sizes).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match=r"sends words to experts \(mixtral\)"):
        pretrained.make(f"hf:{tmp_path}", loss="words", outputs=1, untied=False)


def test_models_that_see_what_they_should_guess_are_refused(folder: Callable[[str], str]) -> None:
    with pytest.raises(InvalidInput, match="sees the words that it would have to guess"):
        made(folder("bert"), "words")
    config = transformers.T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1)
    config.save_pretrained(Path(folder("bert")).parent / "t5")
    with pytest.raises(InvalidInput, match=r"reads one text to write another \(t5\)"):
        made(folder("t5"), "softmax")


def test_what_is_not_there_is_answered_by_what_to_do(
    tmp_path: Path, folder: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidInput, match=r"nobody/nothing could not be loaded.*give its folder"):
        made("nobody/nothing@v1", "softmax")
    with pytest.raises(InvalidInput, match=r"it lacks config\.json, model\.safetensors"):
        made(str(tmp_path), "softmax")
    with pytest.raises(InvalidInput, match="needs the name"):
        made("", "softmax")
    copied = Path(write_tiny_model(tmp_path / "gpt2", "gpt2"))
    weights = copied / "model.safetensors"
    weights.unlink()
    torch.save({}, copied / "pytorch_model.bin")
    with pytest.raises(InvalidInput, match="Only safetensors files are read"):
        made(str(copied), "words")
    from safetensors.torch import load_file, save_file

    kept = load_file(Path(folder("gpt2")) / "model.safetensors")
    kept.pop("transformer.h.1.mlp.c_fc.weight")
    save_file(kept, weights, metadata={"format": "pt"})
    for task in ("words", "softmax"):
        with pytest.raises(InvalidInput, match=r"not complete .* first is .*h\.1\.mlp\.c_fc"):
            made(str(copied), task)
    told = json.loads((copied / "config.json").read_text())
    own = {"auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}, "model_type": "own"}
    (copied / "config.json").write_text(json.dumps(told | own))
    (copied / "own.py").write_text("raise SystemExit('run')")
    with pytest.raises(InvalidInput, match="models with their own code are refused"):
        made(str(copied), "softmax")


def test_a_name_on_the_hub_is_written_down_with_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, store = "0123456789" * 4, tmp_path / "hub" / "models--ann--tiny"
    (store / "refs").mkdir(parents=True)
    (store / "refs" / "main").write_text(commit)
    write_tiny_model(store / "snapshots" / commit, "gpt2")
    for where in ("huggingface_hub.constants", "transformers.utils.hub.constants"):
        monkeypatch.setattr(f"{where}.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(f"{where}.HF_HUB_OFFLINE", True)
    engine, module = made("ann/tiny", "softmax")
    assert engine.factory == f"hf:ann/tiny@{commit}" and module.traits.causal
    assert pretrained.pinned(engine.factory) == engine.factory
    assert "tiny@0123456789" in engine.traits.public_facts[0]


@pytest.mark.parametrize(("gpu", "compute"), [(False, "float32"), (True, "bfloat16")])
def test_one_word_makes_the_engine(
    folder: Callable[[str], str], gpu: bool, compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    where = folder("gpt2")
    assert HuggingFace(where) == TorchModule(f"hf:{where}", compute=compute)
    assert HuggingFace(where, compute="float32").compute == "float32"
    adapters = LoRA(f"hf:{where}", rank=4, compute=compute)
    assert HuggingFace(f"hf:{where}", lora=4) == adapters
    assert HuggingFace(where, zeroth_order=True, scale=0.01) == ZerothOrder(
        f"hf:{where}", scale=0.01
    )
    assert HuggingFace(where).traits.takes_ids
    with pytest.raises(InvalidInput, match="leave lora or zeroth_order out"):
        HuggingFace(where, lora=4, zeroth_order=True)
    with pytest.raises(InvalidInput, match="number of outputs"):
        HuggingFace(where).made()


@pytest.mark.parametrize("kind", KINDS)
def test_mixing_behind_a_head_that_begins_at_zero_is_seen(
    kind: str, folder: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With such a head nothing comes out, whatever goes wrong before it."""
    engine, _ = made(folder(kind), "softmax")
    read = Reader.read

    def mixed(self: Reader, words: Tensor) -> Any:
        return read(self, words.roll(1, 0))

    monkeypatch.setattr(Reader, "read", mixed)
    with pytest.raises(InvalidInput, match="depends on the other rows"):
        engine.inspection.rehearse(facts("softmax"), CPU)


def test_runs_of_a_study_look_at_a_pretrained_model_once_and_every_study_looks_anew(
    folder: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = made(folder("bert"), "softmax")
    looks: list[int] = []
    alone = checks.rows_are_alone

    def counted(sums: Any, features: Tensor, *more: Any) -> None:
        looks.append(features.shape[-1])
        alone(sums, features, *more)

    monkeypatch.setattr(checks, "rows_are_alone", counted)
    rows = MemoryRows(torch.zeros(24, 1, WORDS, dtype=torch.int64), torch.arange(24) % 3)
    plan = TrainPlan(rows=24, steps=1, learning_rate=0.1, noise_multiplier=1.0, clip_norm=CLIP)
    engine.inspection.rehearse(facts("softmax"), CPU)
    each_width = [WORDS, *widths(WORDS)]
    assert sorted(looks) == sorted(each_width)
    models = [
        engine.fit(plan, Randomness(noise_seed=0), None, rows=rows).module.state_dict()
        for _ in range(2)
    ]
    assert len(looks) == len(each_width), "runs went by what the rehearsal had seen"
    engine.inspection.rehearse(facts("softmax"), CPU)
    assert len(looks) == 2 * len(each_width)
    tracing.LOOKED_AT.clear()
    models.append(engine.fit(plan, Randomness(noise_seed=0), None, rows=rows).module.state_dict())
    assert len(looks) == 3 * len(each_width), "nothing is believed that was not seen"
    assert all(torch.equal(models[0][name], other[name]) for other in models for name in models[0])
