"""Studies of texts, from a file to a model: what is trained, scored, told and found again."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dptune import Budget, Space, TorchModule, load, resume, tune
from dptune.accounting import ONE_PERSON, ONE_TEXT
from dptune.data import load_data
from dptune.engines.modules.inspection import ModuleInspection
from dptune.errors import InvalidInput
from dptune.report import model_card
from dptune.search import RandomSearch
from dptune.study.config import usual_measure
from dptune.texts import Encoder, metrics
from support.tiny_models import write_tiny_model

transformers = pytest.importorskip("transformers")

WORDS = ["the", "a", "film", "book", "was", "is", "good", "bad", "red", "green", "dog", "cat"]
COLUMNS = {
    "classes": {"text": "body", "label": "topic", "classes": ["x", "y"]},
    "pairs": {"text": ["body", "question"], "label": "topic", "classes": ["x", "y"]},
    "inside": {
        "text": "body",
        "label": "topic",
        "classes": ["x", "y"],
        "unit": "who",
        "texts_per_unit": 2,
    },
    "words": {"text": "body", "task": "words"},
    "packed": {"text": "body", "task": "words", "unit": "who", "texts_per_unit": 2},
    "replies": {"text": ["body", "answer"], "task": "words"},
    "spans": {"text": ["body", "question", "answer"], "task": "spans"},
}
TOLD = {
    "classes": {"F1"},
    "pairs": {"F1"},
    "inside": {"F1"},
    "words": {"perplexity", "perplexity before tuning"},
    "packed": {"perplexity", "perplexity before tuning"},
    "replies": {"perplexity", "perplexity before tuning"},
    "spans": {"exact match", "F1"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models and texts."""
    folder = tmp_path_factory.mktemp("texts")
    for kind in ("bert", "gpt2"):
        write_tiny_model(folder / kind, kind)
    for name, count, seed in (("mails", 30, 0), ("test", 10, 1)):
        rng = np.random.default_rng(seed)
        rows = []
        for number in range(count):
            said, answer = " ".join(rng.choice(WORDS, 6)), rng.choice(["yes", "no"])
            rows.append(
                {
                    "body": f"{said} {answer}",
                    "topic": "x" if answer == "yes" else "y",
                    "who": 6 * seed + number % 6,  # nobody in both files
                    "question": "is it good ?",
                    "answer": str(answer),
                }
            )
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def _source(place: Path, case: str) -> dict[str, Any]:
    kind = "gpt2" if COLUMNS[case].get("task") == "words" else "bert"
    return {
        "source": str(place / "mails.jsonl"),
        "test": str(place / "test.jsonl"),
        "tokenizer": str(place / kind),
        "length": 20,
        **COLUMNS[case],
    }


def _tuned(place: Path, case: str, **options: Any) -> Any:
    source = _source(place, case)
    return tune(
        load_data(**source),
        budget=Budget(4.0, 1e-3),
        engine=TorchModule(f"hf:{source['tokenizer']}"),
        search=RandomSearch(trials=2),
        space=Space(steps=(2, 2), learning_rate=(1e-3, 1e-2)),
        recipe={"sampling_rate": 0.5},
        source=source,
        **options,
    )


@pytest.mark.parametrize("case", COLUMNS)
def test_every_task_is_trained_scored_told_and_found_again(
    case: str, place: Path, tmp_path: Path
) -> None:
    result = _tuned(place, case, out=tmp_path / "run")
    by_person = case in ("inside", "packed")
    assert result.guarantee.unit == (ONE_PERSON if by_person else ONE_TEXT)
    assert result.rows == (6 if by_person else 30) and result.test_rows == 10
    assert result.final.plan.augmentations == (2 if by_person else 1)
    assert set(result.test_figures) == TOLD[case]
    assert (result.test_accuracy is not None) == ("label" in COLUMNS[case])
    assert all(trial.score is not None for trial in result.trials)

    again = resume(tmp_path / "run")  # with what run.toml says of the texts
    assert again.test_figures == pytest.approx(result.test_figures)
    _must_predict_what_was_told(load(tmp_path / "run"), place, case, result)

    card = model_card(tmp_path / "run")
    assert f"differential privacy for {result.guarantee.unit}" in card
    assert "of the tokenizer" in card and "texts of up to 20 tokens" in card
    for name in TOLD[case]:
        assert f"Test {name}: **" in card


def _perplexity_of_the_pretrained(folder: Path, rows: Any) -> float:
    """By transformers' own loss, a row at a time, without padding."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    losses, counts = [], []
    for words, answers in torch.from_numpy(rows).long():
        there = words >= 0
        asked = answers[there][None]
        with torch.no_grad():
            losses.append(model(words[there][None], labels=asked).loss.item())
        counts.append(int((asked[:, 1:] >= 0).sum()))
    return math.exp(np.average(losses, weights=counts))


def _must_predict_what_was_told(model: Any, place: Path, case: str, result: Any) -> None:
    """From the test texts themselves, read and encoded anew."""
    encoder = Encoder.of(model.made_by)
    texts = encoder.read(place / "test.jsonl", COLUMNS[case].get("label"))
    numbers = None
    if texts.labels is not None:
        numbers = [model.classes.index(label) for label in texts.labels]
    rows = encoder.encode(texts, numbers)
    found = model.predict(rows)
    if case == "spans":
        assert found.shape == (10, 2) and len(encoder.answers(texts, found)) == 10
        told = tuple(result.test_figures.values())
        assert metrics.spans(found, rows[:, 1, :2]) == pytest.approx(told)
    elif texts.labels is None:
        asked = (rows[:, 1, 1:] >= 0).sum(1)
        expected = metrics.perplexity(found, asked)
        assert expected == pytest.approx(result.test_figures["perplexity"], rel=1e-4)
        before = _perplexity_of_the_pretrained(place / "gpt2", rows)
        assert before == pytest.approx(result.test_figures["perplexity before tuning"], rel=1e-4)
    else:
        assert metrics.accuracy(found, texts.labels) == pytest.approx(result.test_accuracy)
        new = encoder.encode(texts)  # without labels
        assert np.array_equal(model.predict(new), found)
        assert model.predict_proba(new).shape == (10, 2)
    if "label" not in COLUMNS[case]:
        with pytest.raises(InvalidInput, match="has no probabilities"):
            model.predict_proba(rows)


def test_words_are_not_right_or_wrong(place: Path) -> None:
    from dptune import NoisyScore

    with pytest.raises(InvalidInput, match="values and words are not right or wrong"):
        _tuned(place, "words", score=NoisyScore())
    with pytest.raises(InvalidInput, match=r"balance='classes' .* not every row is of one class"):
        _tuned(place, "inside", balance="classes")


def test_losses_of_words_are_bounded_more_widely(place: Path) -> None:
    measures = {case: usual_measure(load_data(**_source(place, case)).facts) for case in COLUMNS}
    assert measures["classes"] == measures["inside"] == {"measure": "correct"}
    assert measures["words"] == measures["spans"] == {"measure": "loss", "loss_bound": 10.0}


def test_a_run_never_writes_texts_down(place: Path) -> None:
    columns = {"body": ["a secret dog"] * 3, "topic": ["x", "y", "x"]}
    source = _source(place, "classes") | {"source": columns}
    source.pop("test")
    with pytest.raises(InvalidInput, match="these are in memory") as refused:
        tune(load_data(**source), budget=Budget(1.0, 1e-3), source=source)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("case", ["classes", "words"])
def test_words_that_the_model_has_no_numbers_for_are_refused_before_anything_is_paid(
    case: str, place: Path, tmp_path: Path
) -> None:
    """Or else a row that holds one would stop the run, whenever it is drawn."""
    transformers = pytest.importorskip("transformers")
    source = _source(place, case)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source["tokenizer"])
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(tmp_path / "more")
    data = load_data(**source | {"tokenizer": str(tmp_path / "more")})
    with pytest.raises(InvalidInput, match=r"has words up to number .* own tokenizer"):
        tune(
            data,
            budget=Budget(4.0, 1e-3),
            engine=TorchModule(f"hf:{source['tokenizer']}"),
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_a_study_of_a_model_on_the_hub_goes_on_with_the_commit_it_began_with(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, store = ("0123456789" * 4, "9876543210" * 4), tmp_path / "hub/models--ann--tiny"
    for seed, commit in enumerate(commits):
        write_tiny_model(store / "snapshots" / commit, "bert", seed=seed)
    (store / "refs").mkdir()
    (store / "refs/main").write_text(commits[0])
    for where in ("huggingface_hub.constants", "transformers.utils.hub.constants"):
        monkeypatch.setattr(f"{where}.HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(f"{where}.HF_HUB_OFFLINE", True)
    source = _source(place, "classes") | {"tokenizer": "ann/tiny"}
    data = load_data(**source)
    assert data.made_by is not None and data.made_by["tokenizer"] == f"ann/tiny@{commits[0]}"
    tune(
        data,
        budget=Budget(4.0, 1e-3),
        engine=TorchModule("hf:ann/tiny"),
        search=RandomSearch(trials=2),
        space=Space(steps=(2, 2), learning_rate=(1e-3, 1e-2)),
        recipe={"sampling_rate": 0.5},
        source=source,
        out=tmp_path / "run",
    )
    (store / "refs/main").write_text(commits[1])  # somebody uploads another
    assert len(load(tmp_path / "run").predict(["the dog is red"])) == 1
    again = resume(tmp_path / "run")
    assert isinstance(again.model.engine, TorchModule) and again.model.made_by is not None
    assert again.model.engine.factory == f"hf:ann/tiny@{commits[0]}"
    assert again.model.made_by["tokenizer"] == f"ann/tiny@{commits[0]}"


def _none(inspection: ModuleInspection, shape: tuple[int, ...]) -> None:
    return None


def _too_large(inspection: ModuleInspection, shape: tuple[int, ...]) -> None:
    raise torch.cuda.OutOfMemoryError("no room for two")


@pytest.mark.parametrize("begun", [_none, _too_large])
def test_without_a_beginning_to_show_what_came_of_it_is_told(
    begun: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModuleInspection, "initial_model", begun)
    assert set(_tuned(place, "words").test_figures) == {"perplexity"}
