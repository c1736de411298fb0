"""Private data that are texts: which rows come of them, what is public, what is refused."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.data import Data, Preprocessing, load_data
from dptune.data.rows import IDS, DataFacts
from dptune.errors import InvalidInput
from dptune.texts import Encoder
from support.tiny_models import WORDS, tiny_tokenizer

PLAIN = Preprocessing(unit_rows=False)
SECRET = "moon star river"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    for kind in ("bert", "gpt2"):
        tiny_tokenizer(kind).save_pretrained(folder / kind)
    return folder


def mails(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        said, topic = " ".join(rng.choices(WORDS, k=rng.randint(3, 12))), rng.choice("xyz")
        answer = said.split()[1]
        rows.append(
            {
                "body": f"{said} {SECRET}",
                "topic": topic,
                "who": f"p{number % 5}",
                "question": "what is it ?",
                "answer": answer,
            }
        )
    return rows


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def private(tmp_path: Path) -> str:
    return write(tmp_path / "mails.jsonl", mails(40, seed=0))


@pytest.fixture
def options(private: str, tokenizers: Path) -> dict[str, Any]:
    return {
        "source": private,
        "text": "body",
        "label": "topic",
        "classes": "public",
        "tokenizer": str(tokenizers / "bert"),
        "length": 16,
    }


def features(data: Data, which: str = "train") -> Any:
    rows = data.test_rows(PLAIN, precision=IDS)
    if which == "train":
        rows = data.unprotected_rows(PLAIN, precision=IDS)
    assert rows is not None
    (chunk,) = rows.chunks()
    return chunk.features.numpy(), chunk.targets.numpy()


def test_labelled_texts_become_rows_of_token_ids_with_classes(
    options: dict[str, Any], tokenizers: Path
) -> None:
    data = load_data(**options)
    assert data.facts == DataFacts(40, (16,), 1, 3, "softmax")
    assert data.facts.width == 3
    words, targets = features(data)
    encoder = Encoder(tokenizer=str(tokenizers / "bert"), columns=("body",), length=16)
    texts = encoder.read(options["source"], "topic")
    assert np.array_equal(words[:, 0], encoder.encode(texts))
    assert [data.classes[number] for number in targets] == list(texts.labels or ())
    assert data.name == "mails" and data.made_by == encoder.made_by


def test_rows_of_people_hold_their_classes(options: dict[str, Any]) -> None:
    data = load_data(**options, unit="who", texts_per_unit=3)
    assert data.facts == DataFacts(5, (2, 16), 3, 3, "inside")
    assert data.facts.width == 4 and not data.facts.has_classes
    words, targets = features(data)
    assert words.shape == (5, 3, 2, 16)
    rows = mails(40, seed=0)
    asked = [[data.classes[number] for number in person[:, 1, 0]] for person in words]
    assert asked == [[rows[who + 5 * i]["topic"] for i in range(3)] for who in range(5)]
    assert np.array_equal(targets, words[:, 0, 1, 0])  # the class of the first text


def test_tasks_words_and_spans_have_no_labels(options: dict[str, Any], tokenizers: Path) -> None:
    del options["label"], options["classes"]
    prose = load_data(**options | {"task": "words", "tokenizer": str(tokenizers / "gpt2")})
    assert prose.facts == DataFacts(40, (2, 16), 1, 1, "words") and prose.facts.width == 2
    spans = load_data(**options | {"task": "spans", "text": ["body", "question", "answer"]})
    assert spans.facts == DataFacts(40, (2, 16), 1, 1, "spans") and spans.facts.width == 3
    assert prose.classes == spans.classes == ()
    assert not features(prose)[1].any()


def test_test_texts_are_single_rows_without_units(options: dict[str, Any], tmp_path: Path) -> None:
    others = [{k: v for k, v in row.items() if k != "who"} for row in mails(12, seed=1)]
    options["test"] = options["public"] = write(tmp_path / "test.jsonl", others)
    data = load_data(**options, unit="who")
    words, targets = features(data, "test")
    assert words.shape == (12, 1, 2, 16)
    assert [data.classes[number] for number in targets] == [row["topic"] for row in others]


@pytest.mark.parametrize("which", ["test", "public"])
def test_no_unit_is_in_training_and_test(
    options: dict[str, Any], tmp_path: Path, which: str
) -> None:
    """A figure on what somebody wrote is about them, and has no noise."""
    others = mails(12, seed=1)
    options[which] = write(tmp_path / "same.jsonl", others)
    with pytest.raises(InvalidInput, match=rf"column 'who', some {which} texts are by people who"):
        load_data(**options, unit="who")
    assert load_data(**options).count == 40, "where a text is the unit, anybody may be there"
    strangers = [row | {"who": f"another {row['who']}"} for row in others]
    options[which] = write(tmp_path / "other.jsonl", strangers)
    assert load_data(**options, unit="who").count == 5


def test_public_facts_say_unit_length_and_tokenizer_and_not_how_many_were_cut(
    options: dict[str, Any], tokenizers: Path
) -> None:
    by_row = " ".join(load_data(**options).public_facts)
    assert "the number of texts (40), taken from the data" in by_row
    assert "cut to 16 tokens of the tokenizer bert, and shorter ones padded" in by_row
    assert "the classes (3), taken from the data" in by_row
    declared = load_data(**options | {"classes": ["x", "y", "z"]}, rows=50).public_facts
    assert declared[0] == "the number of texts (50), as declared"
    assert declared[-1] == "the classes (3), as declared"
    person = " ".join(load_data(**options, unit="who", texts_per_unit=3).public_facts)
    assert "the number of people that the column who tells apart (5)" in person
    assert "of every person the first 3 texts enter" in person
    del options["label"], options["classes"]
    asked = load_data(**options | {"task": "spans", "text": ["body", "question", "answer"]})
    assert "questions to half of it before their contexts" in " ".join(asked.public_facts)
    packed = load_data(
        **options | {"task": "words", "unit": "who", "tokenizer": str(tokenizers / "gpt2")}
    )
    assert "joined in the order of the file and cut into 8 rows of 16" in " ".join(
        packed.public_facts
    )


def test_the_same_facts_come_of_longer_texts(options: dict[str, Any], tmp_path: Path) -> None:
    """How many are cut is not among them."""
    longer = [row | {"body": f"{row['body']} " + "the dog " * 20} for row in mails(40, seed=0)]
    other = load_data(**options | {"source": write(tmp_path / "longer.jsonl", longer)})
    assert other.public_facts == load_data(**options).public_facts


def test_ledger_of_texts_is_refused_for_people(options: dict[str, Any]) -> None:
    by_row, again = load_data(**options), load_data(**options | {"length": 8})
    by_person = load_data(**options, unit="who")
    assert by_row.fingerprint == again.fingerprint != by_person.fingerprint
    assert by_person.fingerprint == load_data(**options, unit="who", texts_per_unit=2).fingerprint


def test_texts_in_memory_are_identified_by_content(options: dict[str, Any]) -> None:
    rows = mails(40, seed=0)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    data = load_data(**options | {"source": columns})
    assert np.array_equal(features(data)[0], features(load_data(**options))[0])
    assert data.fingerprint == load_data(**options | {"source": columns, "length": 8}).fingerprint
    columns["body"][3] += " dog"
    assert data.fingerprint != load_data(**options | {"source": columns}).fingerprint


@pytest.mark.parametrize("which", ["test", "public"])
def test_private_texts_are_refused_as_public_texts(
    which: str, options: dict[str, Any], tmp_path: Path
) -> None:
    rows = mails(40, seed=0)
    copied = [row | {"topic": "x", "body": row["body"].upper()} for row in rows[:20]]
    with pytest.raises(InvalidInput, match=f"some {which} texts are private texts") as refused:
        load_data(**options, **{which: write(tmp_path / "other.jsonl", copied)})
    assert SECRET not in str(refused.value)
    with pytest.raises(InvalidInput, match="is the private data itself"):
        load_data(**options, **{which: options["source"]})


def test_copy_of_packed_text_is_found(
    options: dict[str, Any], tokenizers: Path, tmp_path: Path
) -> None:
    """Their rows share nothing, their texts do."""
    del options["label"]
    options |= {"task": "words", "unit": "who", "tokenizer": str(tokenizers / "gpt2")}
    nameless = [{k: v for k, v in row.items() if k != "who"} for row in mails(40, seed=0)[10:30]]
    copied = write(tmp_path / "other.jsonl", nameless)
    with pytest.raises(InvalidInput, match="some test texts are private texts"):
        load_data(**options, test=copied)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"label": "class"}, "no column 'class' of labels; found the columns body, topic"),
        ({"label": None}, "no column 'label' of labels"),
        ({"tokenizer": None}, "texts need a tokenizer"),
        ({"task": "values"}, "task must be one of classes, words, spans"),
        ({"task": "words"}, "task='words' has no labels"),
        ({"target_range": (0.0, 1.0)}, "target_range does not go with texts"),
        ({"texts_per_unit": 3}, "texts_per_unit says how many texts of a person enter"),
        ({"unit": "author"}, "no column 'author' of units"),
        ({"text": ["body", "answer", "who"]}, "takes one column, or two for pairs"),
        ({"classes": ["x", "y"]}, r"hold others, not among the classes \('x', 'y'\)"),
        ({"classes": ["x", "y"], "unit": "who"}, r"hold others, not among the classes"),
        ({"text": None}, "tokenizer is for texts; name their columns"),
    ],
)
def test_text_options_that_do_not_fit_are_refused(
    more: dict[str, Any], message: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        load_data(**options | more)
    assert SECRET not in str(refused.value)


def test_labels_that_are_missing_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    rows = mails(40, seed=0)
    del rows[7]["topic"]
    with pytest.raises(InvalidInput, match="the column 'topic' are missing in 1 row"):
        load_data(**options | {"source": write(tmp_path / "gaps.jsonl", rows)})


def _inside(rows: int = 6, copies: int = 2) -> Any:
    table = np.full((rows, copies, 2, 8), -100, np.int64)
    table[:, :, 0] = np.arange(8) + 10 * np.arange(rows)[:, None, None]
    table[:, :, 1, 0] = np.arange(rows)[:, None] % 2
    return table


def test_targets_in_rows_are_checked() -> None:
    table = _inside()
    data = Data.from_texts(table, task="inside", classes=["no", "yes"], augmented=True)
    assert data.facts == DataFacts(6, (2, 8), 2, 2, "inside")
    table[3, 1, 1, 0] = -100  # a copy that is empty
    Data.from_texts(table, task="inside", classes=["no", "yes"], augmented=True)
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (_inside(), {"task": "inside"}, "needs its classes"),
        (_inside(), {"task": "words", "classes": [1, 2]}, "classes does not go with task='words'"),
        (_inside(), {"task": "words", "labels": [0] * 6}, "labels does not go with"),
        (_inside() + 0.5, {"task": "words"}, "must be whole numbers"),
        (_inside()[:, :, 0], {"task": "words"}, "rows of shape"),
        (_inside(), {"task": "words", "target_range": (0, 1)}, "target_range does not go with"),
    ]
    for features_, options, message in refused:
        with pytest.raises(InvalidInput, match=message):
            Data.from_texts(features_, augmented=True, **options)
    table[3, 0, 1, 0] = 2
    with pytest.raises(InvalidInput, match="the number of a class, from 0 to 1"):
        Data.from_texts(table, task="inside", classes=["no", "yes"], augmented=True)


def test_targets_in_test_and_public_rows_are_checked() -> None:
    other = _inside()[:, 0]
    other[:, 0] += 1000
    made = Data.from_texts(
        _inside(), task="inside", classes=["no", "yes"], augmented=True, test=(other, None)
    )
    assert features(made, "test")[1].tolist() == [0, 1] * 3
    with pytest.raises(InvalidInput, match="the test labels does not go with"):
        Data.from_texts(_inside(), task="words", augmented=True, test=(other, [0] * 6))
    with pytest.raises(InvalidInput, match="rows of shape"):
        Data.from_texts(_inside(), task="words", augmented=True, test=(other[..., :4], None))
