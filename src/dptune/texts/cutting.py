"""Single texts as numbers of words and what is asked of them, cut to a length.

Every function gives a pair of lists for each text: its words, and as many answers, NOT_ASKED where
nothing is asked.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from dptune.errors import InvalidInput

PADDING, NOT_ASKED = -1, -100
Piece = tuple[list[int], list[int]]


def texts(tokenizer: Any, columns: Sequence[Sequence[str]], length: int) -> Iterator[Piece]:
    """One text or a pair, with the marks that the tokenizer puts around them. Of a pair the longer
    is cut first."""
    first, *second = columns
    if second and not _sets_apart(tokenizer):
        second = [[f"\n{text}" for text in second[0]]]
    cut = tokenizer(list(first), *map(list, second), truncation=True, max_length=length)
    for ids in cut["input_ids"]:
        yield ids, [NOT_ASKED] * len(ids)


def prose(tokenizer: Any, column: Sequence[str], length: int) -> Iterator[Piece]:
    """A text to be foretold word by word, up to the mark of its end."""
    end, begin = end_of_text(tokenizer), begin_of_text(tokenizer)
    for words in _plain(tokenizer, column, length):
        ids = [*begin, *words, end][:length]
        yield ids, ids


def replies(
    tokenizer: Any, prompts: Sequence[str], answers: Sequence[str], length: int
) -> Iterator[Piece]:
    """A prompt, and after it the answer to be foretold. A reply that is too long is cut at its
    end, and then a prompt at its beginning."""
    end, begin = end_of_text(tokenizer), begin_of_text(tokenizer)
    spaced = [
        answer if prompt[-1:].isspace() else f" {answer}"
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    room = length - len(begin) - 1  # for one word of the prompt at least
    whole = tokenizer(list(prompts), add_special_tokens=False, verbose=False)["input_ids"]
    for prompt, answer in zip(whole, _plain(tokenizer, spaced, length), strict=True):
        reply = [*answer, end][:room]
        kept = prompt[-(length - len(begin) - len(reply)) :]
        asked_from = len(begin) + len(kept)
        yield [*begin, *kept, *reply], [NOT_ASKED] * asked_from + reply


def spans(
    tokenizer: Any,
    contexts: Sequence[str],
    questions: Sequence[str],
    answers: Sequence[str] | None,
    starts: Sequence[int] | None,
    length: int,
) -> Iterator[Piece]:
    """A question and its context, and between which words of it the answer lies: 0 and 0 where
    there is none, or where it was cut off. `answers` are None where nothing is asked."""
    cut = question_and_context(tokenizer, contexts, questions, length)
    for number, ids in enumerate(cut["input_ids"]):
        asked = [NOT_ASKED] * len(ids)
        if answers is not None:
            start = -1 if starts is None else starts[number]
            letters = _letters(contexts[number], answers[number], start)
            asked[:2] = _words(context_places(cut, number), letters)
        yield ids, asked


def question_and_context(
    tokenizer: Any, contexts: Sequence[str], questions: Sequence[str], length: int
) -> Any:
    """As the tokenizer gives them. A question may fill half of a row; then its context is cut."""
    if not tokenizer.is_fast:
        raise InvalidInput(
            "spans need a tokenizer that says where its words lie in a text (a fast one, with a "
            "tokenizer.json); this one does not."
        )
    half = length // 2
    marked = tokenizer(
        list(questions),
        add_special_tokens=False,
        truncation=True,
        max_length=half,
        return_offsets_mapping=True,
    )
    short = [
        question[: places[-1][1]] if len(places) == half else question
        for question, places in zip(questions, marked["offset_mapping"], strict=True)
    ]
    return tokenizer(
        short,
        list(contexts),
        truncation="only_second",
        max_length=length,
        return_offsets_mapping=True,
    )


def context_places(cut: Any, number: int) -> list[tuple[int, int] | None]:
    """From which letter to which every word is, None for words that are not of the context."""
    of = cut.sequence_ids(number)
    places = cut["offset_mapping"][number]
    return [tuple(place) if which == 1 else None for place, which in zip(places, of, strict=True)]


def end_of_text(tokenizer: Any) -> int:
    """The number of the mark that ends a text."""
    if tokenizer.eos_token_id is None:
        raise InvalidInput(
            "task='words' needs a tokenizer with a mark for the end of a text (eos_token), and "
            "this one has none; take that of a model which writes texts, such as GPT-2."
        )
    return int(tokenizer.eos_token_id)


def begin_of_text(tokenizer: Any) -> list[int]:
    """The mark that the tokenizer sets before a text, if it does."""
    begins = list(tokenizer("")["input_ids"])[:1]
    return begins if begins == [tokenizer.bos_token_id] else []


def _plain(tokenizer: Any, column: Sequence[str], length: int) -> list[list[int]]:
    cut: list[list[int]] = tokenizer(
        list(column), add_special_tokens=False, truncation=True, max_length=length
    )["input_ids"]
    return cut


def _sets_apart(tokenizer: Any) -> bool:
    """Whether it puts a mark between the texts of a pair."""
    alone, paired = (tokenizer.num_special_tokens_to_add(pair=pair) for pair in (False, True))
    return bool(paired > alone)


def _letters(context: str, answer: str, start: int) -> tuple[int, int] | None:
    """From which letter of its context to which an answer is; None where there is none."""
    if not answer:
        return None
    if start < 0 or context[start : start + len(answer)] != answer:
        start = context.find(answer)
    if start < 0:
        raise InvalidInput(
            "some answers are not in their contexts, letter by letter; an answer of task='spans' "
            "is a part of its context, or empty where there is none."
        )
    return start, start + len(answer)


def _words(
    places: Sequence[tuple[int, int] | None], letters: tuple[int, int] | None
) -> tuple[int, int]:
    """The first and the last word that touch those letters; 0 and 0 unless all of them are
    there."""
    if letters is None:
        return 0, 0
    begin, end = letters
    touched = [
        number
        for number, place in enumerate(places)
        if place is not None and place[0] < end and place[1] > begin
    ]
    last = max((place[1] for place in places if place is not None), default=0)
    if not touched or last < end:
        return 0, 0
    return touched[0], touched[-1]
