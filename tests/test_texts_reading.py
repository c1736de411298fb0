"""Texts of files, folders and programs: what is read, and what is refused without showing any."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dptune.errors import InvalidInput
from dptune.texts import read

SECRET = "the dog of a secret house"
ROWS = [
    {"body": f"{SECRET}, one\nand two", "topic": "x", "who": "ann"},
    {"body": '12 "quoted" words', "topic": "y", "who": "bob"},
    {"body": "34", "topic": "x", "who": "ann"},
]
BODIES = [row["body"] for row in ROWS]


def _csv(folder: Path) -> Path:
    quoted = ['"' + body.replace('"', '""') + '"' for body in BODIES]
    lines = [f"{body},{row['topic']},{row['who']}" for body, row in zip(quoted, ROWS, strict=True)]
    path = folder / "mails.csv"
    path.write_text("\n".join(["body,topic,who", *lines]) + "\n")
    return path


def _csv_gz(folder: Path) -> Path:
    path = folder / "mails.csv.gz"
    path.write_bytes(gzip.compress(_csv(folder).read_bytes()))
    return path


def _jsonl(folder: Path) -> Path:
    path = folder / "mails.jsonl"
    path.write_text("".join(json.dumps(row) + "\n\n" for row in ROWS))
    return path


def _jsonl_gz(folder: Path) -> Path:
    path = folder / "mails.jsonl.gz"
    path.write_bytes(gzip.compress(_jsonl(folder).read_bytes()))
    return path


def _parquet(folder: Path) -> Path:
    path = folder / "mails.parquet"
    parquet.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def _saved(folder: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(folder / "saved")
    return folder / "saved"


def _mapping(folder: Path) -> dict[str, list[str]]:
    return {name: [row[name] for row in ROWS] for name in ROWS[0]}


@pytest.mark.parametrize(
    "write",
    [_csv, _csv_gz, _jsonl, _jsonl_gz, _parquet, _saved, _mapping],
    ids=lambda f: f.__name__,
)
def test_every_kind_of_source_gives_the_same_texts(
    write: Callable[[Path], Any], tmp_path: Path
) -> None:
    texts = read(write(tmp_path), "body", label="topic", unit="who")
    assert list(texts.columns["body"]) == BODIES  # line breaks, quotes and numbers included
    assert list(texts.labels or ()) == ["x", "y", "x"]
    assert list(texts.units or ()) == ["ann", "bob", "ann"]
    assert texts.count == 3 and SECRET not in repr(texts)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('"one\ntwo,x\n"three,y\n', "not closed at the end of its value, near line 4"),
        ('one,x\n"two\nthree,y\n', "cannot be read"),
    ],
)
def test_unclosed_quotation_mark_does_not_join_rows(
    body: str, said: str, packed: bool, tmp_path: Path
) -> None:
    file = tmp_path / ("m.csv.gz" if packed else "m.csv")
    whole = f"body,topic\n{body}".encode()
    file.write_bytes(gzip.compress(whole) if packed else whole)
    with pytest.raises(InvalidInput, match=said):
        read(file, "body", label="topic")


def test_a_column_without_a_letter_holds_no_texts(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("body,other\n1.5,some\n-20,words\n")
    with pytest.raises(InvalidInput, match=r"'body' of .*none of its values has a letter"):
        read(tmp_path / "m.csv", "body")
    assert read(tmp_path / "m.csv", "other").count == 2


def test_columns_keep_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    texts = read(_csv(tmp_path), ["who", "body"])
    assert list(texts.columns) == ["who", "body"]
    assert texts.labels is None and texts.units is None


def test_a_split_is_named_behind_a_colon(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"body": datasets.Value("string"), "topic": datasets.ClassLabel(names=["no", "yes"])}
    )
    splits = {
        name: datasets.Dataset.from_dict({"body": [name], "topic": [1]}, features=features)
        for name in ("train", "validation")
    }
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    chosen = read(f"{tmp_path / 'saved'}:validation", "body", label="topic")
    assert list(chosen.columns["body"]) == ["validation"]
    assert chosen.classes == ("no", "yes")
    with pytest.raises(InvalidInput, match="no split 'tset'; found train, validation"):
        read(f"{tmp_path / 'saved'}:tset", "body")
    with pytest.raises(InvalidInput, match="no split test; found train, validation"):
        read(tmp_path / "saved", "body", splits=("test",))


def test_the_hub_is_asked_for_a_configuration_at_a_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []

    def load(*names: Any, **pinned: Any) -> Any:
        asked.append((names, pinned))
        return {"train": datasets.Dataset.from_dict({"body": ["a word"]})}

    monkeypatch.setattr(datasets, "load_dataset", load)
    read("hub:owner/name/config@abc:train", "body")
    read("hub:owner/name", "body")
    assert asked == [(("owner/name", "config"), {"revision": "abc"}), (("owner/name", None), {})]


def test_answers_are_texts_or_as_squad_has_them() -> None:
    given = {
        "context": ["a cat", "a dog", "a bird"],
        "answers": [
            {"text": ["cat"], "answer_start": [2]},
            {"text": [], "answer_start": []},
            "bird",
        ],
    }
    texts = read(given, ["context", "answers"], answers=True)
    assert list(texts.columns["answers"]) == ["cat", "", "bird"]
    assert list(texts.starts or ()) == [2, -1, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"columns": "text"},
            r"of texts; found the columns body, topic, who.* lacks a line of names",
        ),
        ({"columns": "body", "label": "class"}, "no column 'class' of labels; found the columns"),
        ({"columns": "body", "unit": "author"}, "no column 'author' of units; found the columns"),
        ({"columns": ["body", "body"]}, "one or several different names"),
        ({"columns": []}, "one or several different names"),
        ({"columns": 3}, "one or several different names"),
    ],
)
def test_error_names_missing_column_and_existing_ones(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        read(_csv(tmp_path), **options)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({"body": [SECRET, None]}, {}, "'body' of 'the texts' has missing texts"),
        ({"body": [SECRET, 3]}, {}, "must hold texts; found int"),
        ({"body": [SECRET, " \n"]}, {}, "some rows of 'the texts' have empty texts in body"),
        ({"body": []}, {}, "holds no rows, only columns: body"),
        ({"body": [SECRET], "who": [None]}, {"unit": "who"}, "'who' .* name the unit of some rows"),
        ({"body": [SECRET], "who": [" "]}, {"unit": "who"}, "'who' .* name the unit of some rows"),
        ({"body": [SECRET], "who": [float("nan")]}, {"unit": "who"}, "name the unit of some rows"),
        ({"body": [SECRET], "who": ["N/A"]}, {"unit": "who"}, "name the unit of some rows"),
        ({"body": [SECRET], "who": ["None"]}, {"unit": "who"}, "name the unit of some rows"),
        ({"body": [SECRET], "who": [0.5]}, {"unit": "who"}, "names or numbers"),
        ({"body": [SECRET, "a"], "who": [1, "1"]}, {"unit": "who"}, "all text, or all"),
        ({"body": [SECRET, "a"], "who": [1, True]}, {"unit": "who"}, "all text, or all"),
        ({"body": [SECRET + chr(0xD800)]}, {}, "'body' of 'the texts' holds invalid characters"),
        ({"body": [SECRET], "who": ["a", "b"]}, {"unit": "who"}, "differ in length"),
        ({"body": SECRET}, {}, "'body' must be a list; got str"),
        (3, {}, "a mapping of columns to lists; got int"),
    ],
)
def test_invalid_texts_are_refused_without_showing_any(
    given: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        read(given, "body", **options)
    assert SECRET not in str(refused.value)


def test_units_of_csv_file_are_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "mails.csv"
    path.write_text("body,who\na,007\nb,7\nc,7.0\nd, 7\n")
    assert list(read(path, "body", unit="who").units or ()) == ["007", "7", "7.0", "7"]
    of_numpy = list(np.array(["ann", "bob "]))
    assert list(read({"body": ["a", "b"], "who": of_numpy}, "body", unit="who").units or ()) == [
        "ann",
        "bob",
    ]
    path.write_text("body,who\na,1\nb,NA\n")  # not one person more
    with pytest.raises(InvalidInput, match=r"'who' .* name the unit of some rows"):
        read(path, "body", unit="who")


def test_one_text_of_a_pair_may_be_empty() -> None:
    texts = read({"subject": ["", "a"], "body": ["b", ""]}, ["subject", "body"])
    assert texts.count == 2
    with pytest.raises(InvalidInput, match="empty texts in subject, body"):
        read({"subject": ["", "a"], "body": ["", "b"]}, ["subject", "body"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mails.txt", SECRET, "does not end in one of .csv, .csv.gz, .jsonl"),
        ("mails.csv", "", "is empty"),
        ("mails.csv", f"1,2\n{SECRET},x\n", "must name the columns"),
        ("mails.csv", f"body;topic\n{SECRET};x\n", "separated by commas"),
        ("mails.csv", f"body,topic\n{SECRET}\n", "cannot be read: .*Expected 2 columns, got 1"),
        ("mails.jsonl", f'{{"body": "a"}}\n{SECRET}\n', "line 2 of .* is not a JSON object"),
        ("mails.jsonl", f'["{SECRET}"]\n', "line 1 of .* is not a JSON object"),
        ("mails.csv.gz", SECRET, "cannot be read"),
        ("mails.parquet", SECRET, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_says_why_and_shows_nothing(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=message) as refused:
        read(tmp_path / name, "body")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize("text", ["body,topic\n{},x\n", 'body,topic\nfine,x\n"a\n{}",x\n'])
def test_a_csv_file_that_is_not_utf_8_is_to_be_saved_so(
    text: str, encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "mails.csv"
    path.write_bytes(text.format(f"{SECRET} für").encode(encoding))
    with pytest.raises(InvalidInput, match="save the file as UTF-8") as refused:
        read(path, "body")
    assert SECRET not in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"no file or folder 'nowhere\.csv'"):
        read("nowhere.csv", "body")


def test_prints_agree_where_texts_do_but_for_case_and_white_space() -> None:
    some = read({"body": ["The  cat\n", "a dog"]}, "body").prints(["body"])
    other = read({"body": ["the cat", "another dog"]}, "body").prints(["body"])
    assert (some[0] == other[0]).all()
    assert not (some[1] == other[1]).all()
    assert some.max() < 2**24


def test_error_on_line_that_is_not_utf8_hides_bytes(tmp_path: Path) -> None:
    file = tmp_path / "mails.jsonl"
    file.write_bytes('{"body": "über"}\n'.encode("latin1"))
    with pytest.raises(InvalidInput, match="is not UTF-8") as error:
        read(file, "body")
    assert "0xfc" not in str(error.value)
