"""Language models through full training, adapters and DP-ZO, and the folders they leave behind."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dptune
from dptune.accounting import Budget
from dptune.data import Data, MemoryRows
from dptune.data.rows import IDS, DataFacts
from dptune.engines import HuggingFace, ModuleModel, Randomness, TorchModule
from dptune.engines.language.folder import save_pretrained
from dptune.engines.modules import made_up
from dptune.errors import InvalidInput
from dptune.hub import ModelPlace
from dptune.plan import TrainPlan
from dptune.search.random_search import RandomSearch
from dptune.search.score import NoisyScore
from dptune.search.space import Space
from dptune.study.config import Preparation
from dptune.study.planning import before_paying
from dptune.study.recipe import settled
from dptune.texts.tokenizer import load_tokenizer
from experiments.language.prepare import halve
from support.studies import a_config
from support.tiny_models import KINDS, LENGTH, write_mean_pooling, write_tiny_model

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

WORDS, COUNT = 8, 12
CLASSES = ("sport", "money", "art")
WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora": 2, "compute": "float32"},
    "zeroth order": {"zeroth_order": True},
}
OPENED = {
    "softmax": "AutoModelForSequenceClassification",
    "words": "AutoModelForCausalLM",
    "spans": "AutoModelForQuestionAnswering",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    root = tmp_path_factory.mktemp("tiny")
    for kind in KINDS:
        write_tiny_model(root / kind, kind, layers=1)
    write_mean_pooling(write_tiny_model(root / "means", "bert", layers=1))
    halve(root / "means", root / "half means")
    return lambda kind: str(root / kind)


def task_of(kind: str) -> str:
    """One that suits it; classification, spans and words are all there."""
    return {"bert": "spans", "gpt2": "words", "opt": "words", "llama": "spans"}.get(kind, "softmax")


def trained(engine: TorchModule, task: str) -> tuple[TorchModule, ModuleModel, MemoryRows]:
    """By two steps on rows that are nobody's."""
    shape = (WORDS,) if task == "softmax" else (2, WORDS)
    made = replace(engine, rows_at_once=COUNT).for_data(
        DataFacts(COUNT, shape, 1, len(CLASSES), task)
    )
    features = made_up.made_up(made.made(), shape, COUNT, ids=True)
    rows = MemoryRows(features, torch.arange(COUNT) % 3, precision=IDS, augmented=False)
    plan = TrainPlan(
        rows=COUNT,
        steps=2,
        learning_rate=0.5,
        noise_multiplier=0.1,
        clip_norm=1.0,
        momentum=0.0,
        directions=2 if made.traits.compares_losses else None,
    )
    (model,) = made.fit_many([plan], rows, [Randomness(noise_seed=0)])
    return made, model, rows


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_trained_kept_and_opened_by_transformers_alone(
    kind: str, way: str, folder: Callable[[str], str], tmp_path: Path
) -> None:
    task = task_of(kind)
    engine, model, rows = trained(HuggingFace(folder(kind), **WAYS[way]), task)
    features = rows.features[:, 0]
    begun = engine.made().requires_grad_(False).eval()
    assert not torch.allclose(begun(features), model.logits(features), atol=1e-4)
    again = engine.unpack(engine.pack(model))
    torch.testing.assert_close(again.logits(features), model.logits(features))

    out = save_pretrained(
        engine,
        model,
        tmp_path / "out",
        tokenizer=folder(kind),
        card="# What it promises\n",
        classes=CLASSES if task == "softmax" else (),
    )
    assert "What it promises" in (out / "README.md").read_text()
    modes = {file.stat().st_mode for file in out.glob("*.*")}
    assert len(modes) == 1, "all can be read by whoever may read one"
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    assert tokenizer("the film").input_ids
    words = features[0] if task == "softmax" else features[0, 0]
    found = opened(out, folder(kind), way, task)(words[words >= 0][None])
    row = features[:1]
    if task == "softmax":
        torch.testing.assert_close(found.logits, model.logits(row), rtol=1e-4, atol=1e-5)
    elif task == "words":
        inside = model.module.model(words[None]).logits
        torch.testing.assert_close(found.logits, inside, rtol=1e-4, atol=1e-5)
    else:
        inside = model.module.model(words[None]).start_logits
        torch.testing.assert_close(found.start_logits, inside, rtol=1e-4, atol=1e-5)


def opened(out: Path, base: str, way: str, task: str) -> Any:
    auto = getattr(transformers, OPENED[task])
    if way != "lora":
        found, told = auto.from_pretrained(out, output_loading_info=True)
        assert not told["missing_keys"] and not told["unexpected_keys"]
        if task == "softmax":
            assert found.config.id2label == dict(enumerate(CLASSES))
        return found.eval()
    more: dict[str, Any] = {"num_labels": len(CLASSES)} if task == "softmax" else {}
    if "key_mapping" in (out / "README.md").read_text():
        more["key_mapping"] = {"^model.": "transformer."}
    return peft.PeftModel.from_pretrained(auto.from_pretrained(base, **more), out).eval()


def opened_as_its_card_says(out: Path) -> dict[str, Any]:
    """What the card's lines of Python leave behind."""
    card = (out / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    code = code.replace('folder = "."', f"folder = {str(out)!r}")
    names: dict[str, Any] = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("way", ["full", "lora"])
@pytest.mark.parametrize("kind", ["roberta", "gpt2"])
def test_lines_of_the_card_give_names_of_classes_and_logits(
    kind: str,
    way: str,
    folder: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine, model, _ = trained(HuggingFace(folder(kind), **WAYS[way]), "softmax")
    save_pretrained(engine, model, tmp_path, tokenizer=folder(kind), card="", classes=CLASSES)
    names = opened_as_its_card_says(tmp_path)
    config = names["model"].config
    assert config.id2label == dict(enumerate(CLASSES)) and names["classes"] == list(CLASSES)
    assert config.label2id == {name: number for number, name in enumerate(CLASSES)}
    words = names["tokenizer"]("a text").input_ids
    row = torch.tensor([[*words, *[-1] * (WORDS - len(words))]])
    logits = names["logits"].detach()
    assert capsys.readouterr().out.strip() == CLASSES[int(logits[0].argmax())]
    torch.testing.assert_close(logits, model.logits(row), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "given"), [("gpt2", "logits"), ("llama", "start_logits")])
def test_lines_of_the_card_read_a_text_where_there_are_no_classes(
    kind: str, given: str, folder: Callable[[str], str], tmp_path: Path
) -> None:
    engine, model, _ = trained(HuggingFace(folder(kind), **WAYS["lora"]), task_of(kind))
    save_pretrained(engine, model, tmp_path, tokenizer=folder(kind), card="")
    assert getattr(opened_as_its_card_says(tmp_path)["found"], given).isfinite().all()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_the_tokenizer_cuts_and_pads_as_in_training(
    kind: str, folder: Callable[[str], str], tmp_path: Path
) -> None:
    engine, model, _ = trained(HuggingFace(folder(kind)), "softmax")
    save_pretrained(engine, model, tmp_path, tokenizer=folder(kind), card="")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    long, short = tokenizer(["film " * 50, "film"], truncation=True, padding=True).input_ids
    assert len(long) == len(short) == WORDS
    assert short[-1] == model.module.traits.padding
    assert load_tokenizer(folder(kind)).model_max_length == LENGTH  # the one read with is as it was


def test_a_base_in_a_folder_of_this_machine_is_told_of_and_one_on_the_hub_is_named(
    folder: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "read from a folder of this machine"
    for way in ("full", "lora"):
        engine, model, _ = trained(HuggingFace(folder("bert"), **WAYS[way]), "softmax")
        save_pretrained(engine, model, tmp_path / way, tokenizer=folder("bert"), card="")
        card = (tmp_path / way / "README.md").read_text()
        assert "\n# bert, trained with differential privacy\n" in card
        assert (f"{said}, `{folder('bert')}`" in card) == (way == "lora")
    place = ModelPlace("someone/bert", "a" * 40)
    monkeypatch.setattr("dptune.engines.language.folder.place_of", lambda factory: place)
    out = save_pretrained(engine, model, tmp_path / "hub", tokenizer=folder("bert"), card="")
    card = (out / "README.md").read_text()
    assert said not in card and "\n# someone/bert, trained" in card
    assert f"from_pretrained('someone/bert', revision='{'a' * 40}', " in card
    config = json.loads((out / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == place.where
    assert config["revision"] == place.revision


@pytest.mark.parametrize("way", ["full", "lora"])
@pytest.mark.parametrize("kind", ["means", "half means"])
def test_a_model_of_sentences_is_opened_as_its_card_says(
    kind: str, way: str, folder: Callable[[str], str], tmp_path: Path
) -> None:
    engine, model, _ = trained(HuggingFace(folder(kind), **WAYS[way]), "softmax")
    save_pretrained(engine, model, tmp_path, tokenizer=folder(kind), card="", classes=CLASSES)
    names = opened_as_its_card_says(tmp_path)
    words = names["tokenizer"]("a text").input_ids
    row = torch.tensor([[*words, *[-1] * (WORDS - len(words))]])
    found: Tensor = names["logits"].detach()
    torch.testing.assert_close(found, model.logits(row), rtol=1e-4, atol=1e-5)
    assert names["classes"] == list(CLASSES)
    if way == "full":  # none is drawn, of which transformers would report
        assert names["model"].pooler is None


def test_untied_words_are_written_down_as_such(
    folder: Callable[[str], str], tmp_path: Path
) -> None:
    engine, model, rows = trained(HuggingFace(folder("gpt2"), trained="all"), "words")
    save_pretrained(engine, model, tmp_path, tokenizer=folder("gpt2"), card="")
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert found.lm_head.weight is not found.transformer.wte.weight
    words = rows.features[:1, 0, 0]
    torch.testing.assert_close(found(words).logits, model.module.model(words).logits)


def test_settings_that_were_changed_for_training_are_put_back(
    folder: Callable[[str], str], tmp_path: Path
) -> None:
    engine, model, _ = trained(HuggingFace(folder("gpt2"), zeroth_order=True), "softmax")
    save_pretrained(engine, model, tmp_path, tokenizer=folder("gpt2"), card="", classes=CLASSES)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.attn_pdrop == 0.1 and config.use_cache and config.pad_token_id == 0


def test_a_module_of_ones_own_leaves_no_hugging_face_folder(tmp_path: Path) -> None:
    import own_networks

    engine = TorchModule(own_networks.small, outputs=3)
    model = ModuleModel(own_networks.small(), (4,))
    with pytest.raises(InvalidInput, match="makes a module of its own"):
        save_pretrained(engine, model, tmp_path, tokenizer="", card="")


# -- studies


def some_texts(count: int = 200, seed: int = 0) -> tuple[Any, Any]:
    """Other words where the label is 1; some texts are shorter."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    words = rng.integers(10, 13, (count, WORDS)) + 40 * labels[:, None]
    ends = rng.integers(WORDS // 2, WORDS + 1, count)
    return np.where(np.arange(WORDS) < ends[:, None], words, -1).astype(np.int32), labels


def test_language_models_are_tuned_as_they_were_measured(folder: Callable[[str], str]) -> None:
    """By Adam, in samples of 16 times the root of the rows, at a rate that falls; whoever names
    another rule gets its own rate, which stays."""
    words, labels = some_texts(4096)
    facts = Data(words, labels).facts
    config = a_config(preparation=Preparation(unit_rows=False), engine=HuggingFace(folder("means")))
    usual = settled(config, facts).plan(facts.count)
    assert (usual.optimizer, usual.schedule, usual.clip_norm) == ("adam", "linear", 0.1)
    assert usual.sampling_rate == 0.25
    other = replace(config, recipe={"optimizer": "sgd"})
    named = settled(other, facts).plan(facts.count)
    assert (named.optimizer, named.schedule) == ("sgd", "constant")


@pytest.mark.parametrize(("count", "hopeless"), [(6, True), (200, False)])
def test_so_few_texts_that_a_model_stays_as_it_was_are_told_of_before_paying(
    folder: Callable[[str], str], count: int, hopeless: bool
) -> None:
    """Six mailboxes made a model worse at every budget up to 2.7
    (experiments/notes/language-measured.md)."""
    config = a_config(
        budget=Budget(2.7, 1e-5),
        preparation=Preparation(unit_rows=False),
        engine=HuggingFace(folder("means")),
    )
    notes = before_paying(Data(*some_texts(count)), config)
    assert any("no better than it was before" in note for note in notes) == hopeless


@pytest.mark.usefixtures("same_noise")
def test_texts_are_classified_in_a_study(folder: Callable[[str], str], tmp_path: Path) -> None:
    features, labels = some_texts()
    data = Data(features, labels, test=some_texts(60, 1))
    result = dptune.tune(
        data,
        budget=Budget(8.0, 1e-5),
        engine=HuggingFace(folder("means"), trained="head.*", rows_at_once=64),
        search=RandomSearch(trials=2),
        space=Space(learning_rate=(5.0, 20.0), steps=(10, 10)),
        recipe={"optimizer": "sgd"},
        out=tmp_path / "run",
    )
    assert result.guarantee.epsilon <= 8.0
    assert result.test_accuracy is not None and result.test_accuracy > 0.9
    loaded = dptune.load(tmp_path / "run")
    assert (loaded.predict(features) == result.model.predict(features)).all()
    assert any("means begins with" in fact for fact in result.guarantee.public_facts)


def test_a_mark_that_a_small_model_has_no_word_for_is_not_used(
    folder: Callable[[str], str], tmp_path: Path
) -> None:
    place = shutil.copytree(folder("gpt2"), tmp_path / "small")
    told = json.loads((place / "config.json").read_text())
    told |= {"eos_token_id": 50256, "pad_token_id": None}  # as GPT-2's usual configuration has it
    (place / "config.json").write_text(json.dumps(told))
    words, _ = some_texts(4)
    rows = np.stack([words, words], 1)
    data = Data.from_texts(rows, task="words")
    module = HuggingFace(str(place)).for_data(data.facts).made()
    assert module.traits.padding == 0
    assert module(torch.from_numpy(rows).long()).isfinite().all()


def test_words_are_learned_in_a_study(folder: Callable[[str], str], tmp_path: Path) -> None:
    words, _ = some_texts()
    rows = np.stack([words, np.where(words >= 0, words, -100)], 1)
    data = Data.from_texts(rows, task="words")
    result = dptune.tune(
        data,
        budget=Budget(8.0, 1e-5),
        engine=HuggingFace(folder("gpt2"), rows_at_once=64),
        search=RandomSearch(trials=2),
        score=NoisyScore(measure="loss", loss_bound=8.0),
        space=Space(learning_rate=(0.3, 3.0), steps=(10, 10)),
        recipe={"optimizer": "sgd"},
        out=tmp_path / "run",
    )
    assert all(trial.score is not None for trial in result.trials)
    module = HuggingFace(folder("gpt2")).for_data(data.facts).made().requires_grad_(False).eval()
    given = torch.from_numpy(rows).long()
    before, after = module(given), dptune.load(tmp_path / "run").model.logits(given)
    assert float(after[:, 0].mean()) < float(before[:, 0].mean())
    assert torch.equal(before[:, 1], after[:, 1])  # how much is asked
