"""Texts as rows of words: one length, what is asked, whose they are; nothing of one in another."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptune.errors import InvalidInput
from dptune.texts import Encoder, Texts
from support.tiny_models import LENGTH, WORDS, tiny_tokenizer

LONG = " ".join(WORDS[:40])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    for kind in ("bert", "roberta", "gpt2", "opt"):
        tiny_tokenizer(kind).save_pretrained(folder / kind)
    return folder


def _words(row: Any, kind: str) -> list[str]:
    """The words of a row, back from their numbers, without padding."""
    tokenizer = tiny_tokenizer(kind)
    numbers = [int(number) for number in row]
    length = numbers.index(-1) if -1 in numbers else len(numbers)
    assert all(number == -1 for number in numbers[length:])  # padding is on the right only
    found: list[str] = tokenizer.convert_ids_to_tokens(numbers[:length])
    return found


def _texts(*column: str, units: Sequence[Any] | None = None) -> Texts:
    return Texts({"text": column}, units=units)


def test_a_text_is_cut_or_padded_to_the_length(folders: Path) -> None:
    encoder = Encoder(tokenizer=str(folders / "bert"), length=8)
    rows = encoder.encode(_texts("the dog", LONG))
    assert rows.shape == (2, 8) and rows.dtype == np.int32
    assert _words(rows[0], "bert") == ["[CLS]", "the", "dog", "[SEP]"]
    assert _words(rows[1], "bert") == ["[CLS]", *WORDS[:6], "[SEP]"]


def test_a_row_is_the_same_whatever_else_is_encoded(folders: Path) -> None:
    encoder = Encoder(tokenizer=str(folders / "bert"), length=16)
    alone = encoder.encode(_texts("the dog was good"))
    among = encoder.encode(_texts(LONG, "the dog was good", "a"))
    assert np.array_equal(alone[0], among[1])


def test_pair_is_separated_and_longer_text_is_truncated_first(folders: Path) -> None:
    pair = Texts({"one": [LONG, "a"], "two": ["yes no", LONG]})
    encoder = Encoder(tokenizer=str(folders / "bert"), length=10, columns=("one", "two"))
    first, second = (_words(row, "bert") for row in encoder.encode(pair))
    assert first == ["[CLS]", *WORDS[:5], "[SEP]", "yes", "no", "[SEP]"]
    assert second == ["[CLS]", "a", "[SEP]", *WORDS[:6], "[SEP]"]


def test_every_token_of_prose_is_a_target(folders: Path) -> None:
    encoder = Encoder(tokenizer=str(folders / "gpt2"), task="words", length=6)
    rows = encoder.encode(_texts("the dog", LONG))
    assert rows.shape == (2, 2, 6)
    assert _words(rows[0, 0], "gpt2") == ["the", "dog", "<|endoftext|>"]
    assert _words(rows[1, 0], "gpt2") == list(WORDS[:6])  # cut, so that its end is not asked
    assert np.array_equal(rows[:, 1], np.where(rows[:, 0] < 0, -100, rows[:, 0]))
    begun = Encoder(tokenizer=str(folders / "opt"), task="words", length=6)
    assert _words(begun.encode(_texts("the dog"))[0, 0], "opt") == ["</s>", "the", "dog", "</s>"]


def test_only_answer_tokens_after_prompt_are_targets(folders: Path) -> None:
    encoder = Encoder(
        tokenizer=str(folders / "opt"), task="words", length=8, columns=("prompt", "answer")
    )
    texts = Texts({"prompt": ["what is it ?", LONG, "a"], "answer": ["a dog", "yes", LONG]})
    rows = encoder.encode(texts)
    plain, cut, long = ([_words(row[0], "opt"), row[1].tolist()] for row in rows)
    assert plain[0] == ["</s>", "what", "is", "it", "?", "a", "dog", "</s>"]
    assert plain[1] == [-100] * 5 + rows[0, 0, 5:].tolist()
    assert cut[0] == ["</s>", *WORDS[35:40], "yes", "</s>"]  # a prompt is cut at its beginning
    assert cut[1] == [-100] * 6 + rows[1, 0, 6:].tolist()
    assert long[0] == ["</s>", "a", *WORDS[:6]]
    assert long[1] == [-100] * 2 + rows[2, 0, 2:].tolist()


def _spans(folders: Path, length: int = 16) -> Encoder:
    columns = ("context", "question", "answer")
    return Encoder(tokenizer=str(folders / "bert"), task="spans", length=length, columns=columns)


def test_answer_tokens_are_found_by_characters(folders: Path) -> None:
    context = "the dog was red . the cat was blue"
    texts = Texts(
        {
            "context": [context] * 4,
            "question": ["what was red ?"] * 4,
            "answer": ["the", "the", "cat was blue", ""],
        },
        starts=[-1, context.rindex("the"), 5, -1],  # a start that is not the answer's is not used
    )
    rows = _spans(folders, 20).encode(texts)
    words = [_words(row[0], "bert") for row in rows]
    found = [words[i][first : last + 1] for i, (first, last) in enumerate(rows[:, 1, :2].tolist())]
    assert found == [["the"], ["the"], ["cat", "was", "blue"], ["[CLS]"]]
    assert rows[1, 1, 0] - rows[0, 1, 0] == 5  # the second "the"
    assert (rows[:, 1, 2:] == -100).all()
    encoder = _spans(folders, 20)
    assert encoder.answers(texts, rows[:, 1, :2]) == ["the", "the", "cat was blue", ""]


def test_truncated_answer_has_target_zero(folders: Path) -> None:
    texts = Texts({"context": [LONG] * 2, "question": ["who ?"] * 2, "answer": ["the", WORDS[39]]})
    rows = _spans(folders).encode(texts)
    assert rows[0, 1, :2].tolist() == [4, 4]
    assert rows[1, 1, :2].tolist() == [0, 0]


def test_a_question_fills_half_of_a_row_at_most(folders: Path) -> None:
    texts = Texts({"context": ["a dog"], "question": [LONG], "answer": ["dog"]})
    rows = _spans(folders).encode(texts)
    words = _words(rows[0, 0], "bert")
    assert words == ["[CLS]", *WORDS[:8], "[SEP]", "a", "dog", "[SEP]"]
    assert rows[0, 1, :2].tolist() == [11, 11]


def test_an_answer_that_is_not_in_its_context_is_refused(folders: Path) -> None:
    texts = Texts({"context": ["a dog"], "question": ["who ?"], "answer": ["secret cat"]})
    with pytest.raises(InvalidInput, match="do not appear literally") as refused:
        _spans(folders).encode(texts)
    assert "secret" not in str(refused.value)


def test_new_questions_are_encoded_without_answers(folders: Path) -> None:
    texts = Texts({"context": ["a dog"], "question": ["who ?"]})
    rows = _spans(folders).encode(texts)
    assert _words(rows[0, 0], "bert") == ["[CLS]", "who", "?", "[SEP]", "a", "dog", "[SEP]"]
    assert (rows[0, 1] == -100).all()


def _by_person(folders: Path, **options: Any) -> Encoder:
    return Encoder(**{"unit": "who", "length": 8, "texts_per_unit": 2, **options})


def test_the_first_texts_of_each_person_enter(folders: Path) -> None:
    encoder = _by_person(folders, tokenizer=str(folders / "bert"), task="inside")
    texts = _texts("the dog", "red", "green", "blue", "a cat", units=["b", "a", "a", "a", "b"])
    rows = encoder.encode(texts, [0, 1, 2, 3, 4])
    assert rows.shape == (2, 2, 2, 8)  # in the order in which people come
    words = [[_words(piece[0], "bert")[1:-1] for piece in unit] for unit in rows]
    assert words == [[["the", "dog"], ["a", "cat"]], [["red"], ["green"]]]
    assert rows[:, :, 1, 0].tolist() == [[0, 4], [1, 2]]
    assert (rows[:, :, 1, 1:] == -100).all()


def test_missing_texts_of_person_are_empty_rows(folders: Path) -> None:
    encoder = _by_person(folders, tokenizer=str(folders / "bert"), task="inside")
    rows = encoder.encode(_texts("red", "blue", "a", units=[7, 7, 8]), [0, 1, 1])
    assert (rows[1, 1, 0] == -1).all() and (rows[1, 1, 1] == -100).all()


def test_texts_of_a_person_are_packed_and_never_mixed(folders: Path) -> None:
    encoder = _by_person(folders, tokenizer=str(folders / "gpt2"), task="words", length=6)
    texts = _texts("the dog", LONG, "a cat is", "one", units=["a", "b", "a", "c"])
    rows = encoder.encode(texts)
    assert rows.shape == (3, 2, 2, 6)
    end = "<|endoftext|>"
    words = [[_words(piece[0], "gpt2") for piece in unit] for unit in rows]
    assert words[0] == [["the", "dog", end, "a", "cat", "is"], [end]]
    assert words[1] == [list(WORDS[:6]), list(WORDS[6:12])]  # the rest is dropped
    assert words[2] == [["one", end], []]
    assert np.array_equal(rows[:, :, 1], np.where(rows[:, :, 0] < 0, -100, rows[:, :, 0]))


def test_rows_of_a_person_depend_on_that_person_alone(folders: Path) -> None:
    """The rule by which texts enter looks at nobody else."""
    rng = np.random.default_rng(0)
    people = rng.integers(5, size=40).tolist()
    column = [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in people]
    for task, kind in (("words", "gpt2"), ("inside", "bert")):
        encoder = _by_person(folders, tokenizer=str(folders / kind), task=task)
        classes = rng.integers(3, size=40)
        everybody = encoder.encode(_texts(*column, units=people), classes.tolist())
        for number, person in enumerate(dict.fromkeys(people)):
            own = [i for i, who in enumerate(people) if who == person]
            alone = encoder.encode(
                _texts(*(column[i] for i in own), units=[person] * len(own)),
                classes[own].tolist(),
            )
            assert np.array_equal(alone[0], everybody[number])


def test_encoder_is_rebuilt_from_made_by(folders: Path, tmp_path: Path) -> None:
    encoder = _by_person(folders, tokenizer=str(folders / "gpt2"), task="words")
    said = encoder.made_by
    assert said["kind"] == "text" and said["name"] == "gpt2" and "/" not in said["name"]
    assert Encoder.of(said) == encoder
    tiny_tokenizer("gpt2").save_pretrained(tmp_path / "moved")
    moved = Encoder.of(said, tokenizer=str(tmp_path / "moved"))
    texts = _texts("the dog", LONG)
    assert np.array_equal(moved.encode(texts), encoder.encode(texts))
    with pytest.raises(InvalidInput, match="differs from the one that the model was trained with"):
        Encoder.of(said, tokenizer=str(folders / "opt"))
    with pytest.raises(InvalidInput, match="not encoded from texts"):
        Encoder.of({"name": "a network"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 3}, "length must be a whole number from 4"),
        ({"length": LENGTH + 1}, f"more than the {LENGTH} tokens that the model bert takes"),
        ({"length": 5, "columns": ("a", "b")}, "length 5 is too short: bert adds 3 special tokens"),
        ({"task": "values"}, "task must be one of"),
        ({"columns": ("a", "b", "c")}, "takes one column, or two for pairs; got 3: a, b, c"),
        ({"task": "spans"}, "context, question and answer; got 1"),
        ({"task": "words"}, "end-of-text token"),
        ({"task": "inside"}, "cannot be combined with unit=None"),
        ({"unit": "who"}, "cannot be combined with unit='who'"),
        ({"texts_per_unit": 0}, "texts_per_unit must be a whole number"),
        ({"tokenizer": "nowhere/at all"}, "could not be loaded"),
    ],
)
def test_invalid_encoder_options_are_refused(
    options: dict[str, Any], message: str, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InvalidInput, match=message):
        Encoder(**{"tokenizer": str(folders / "bert"), "length": 16, **options}).words  # noqa: B018


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    lacking = "it lacks config.json, model.safetensors, tokenizer.json. "
    with pytest.raises(InvalidInput, match=re.escape(lacking)):
        Encoder(tokenizer=str(tmp_path)).words  # noqa: B018
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    (tmp_path / "tokenizer_config.json").write_text("{}")  # a file by which it is read again
    with pytest.raises(InvalidInput, match=r"it lacks config\.json, tokenizer\.json\. "):
        Encoder(tokenizer=str(tmp_path)).words  # noqa: B018
