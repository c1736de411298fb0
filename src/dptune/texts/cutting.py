"""Turn single texts into token ids and targets, truncated to a length.

Every function yields a pair of lists for each text: its token ids, and as many targets, NOT_ASKED
where there is none.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from dptune.errors import InvalidInput

PADDING, NOT_ASKED = -1, -100
Piece = tuple[list[int], list[int]]


def texts(tokenizer: Any, columns: Sequence[Sequence[str]], length: int) -> Iterator[Piece]:
    """One text or a pair, with the special tokens of the tokenizer. Of a pair the longer text is
    truncated first."""
    first, *second = columns
    if second and not _separates(tokenizer):
        second = [[f"\n{text}" for text in second[0]]]
    cut = tokenizer(list(first), *map(list, second), truncation=True, max_length=length)
    for ids in cut["input_ids"]:
        yield ids, [NOT_ASKED] * len(ids)


def prose(tokenizer: Any, column: Sequence[str], length: int) -> Iterator[Piece]:
    """A text for next-token prediction, up to its end-of-text token."""
    end, begin = end_of_text(tokenizer), begin_of_text(tokenizer)
    for words in _plain(tokenizer, column, length):
        ids = [*begin, *words, end][:length]
        yield ids, ids


def replies(
    tokenizer: Any, prompts: Sequence[str], answers: Sequence[str], length: int
) -> Iterator[Piece]:
    """A prompt and its answer, whose tokens are the targets. A long answer is truncated at its
    end, then a long prompt at its beginning."""
    end, begin = end_of_text(tokenizer), begin_of_text(tokenizer)
    spaced = [
        answer if prompt[-1:].isspace() else f" {answer}"
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    room = length - len(begin) - 1  # leaves at least one token of the prompt
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
    """A question and its context, with the first and the last token of the answer as targets: 0
    and 0 if there is none, or if it was truncated. Without `answers` there are no targets."""
    cut = question_and_context(tokenizer, contexts, questions, length)
    for number, ids in enumerate(cut["input_ids"]):
        asked = [NOT_ASKED] * len(ids)
        if answers is not None:
            start = -1 if starts is None else starts[number]
            characters = _find_answer(contexts[number], answers[number], start)
            asked[:2] = _find_tokens(context_places(cut, number), characters)
        yield ids, asked


def question_and_context(
    tokenizer: Any, contexts: Sequence[str], questions: Sequence[str], length: int
) -> Any:
    """Tokenize both. A question may fill half of a row; the context is truncated to the rest."""
    if not tokenizer.is_fast:
        raise InvalidInput(
            "task='spans' needs a fast tokenizer (one with a tokenizer.json), which reports the "
            "positions of its tokens; this one is slow. Use a model that has a fast one."
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
    """The characters of every token, from and to; None for tokens outside the context."""
    of = cut.sequence_ids(number)
    places = cut["offset_mapping"][number]
    return [tuple(place) if which == 1 else None for place, which in zip(places, of, strict=True)]


def end_of_text(tokenizer: Any) -> int:
    """The id of the end-of-text token."""
    if tokenizer.eos_token_id is None:
        raise InvalidInput(
            "task='words' needs a tokenizer with an end-of-text token (eos_token), and this one "
            "has none; use a model that generates text, such as GPT-2."
        )
    return int(tokenizer.eos_token_id)


def begin_of_text(tokenizer: Any) -> list[int]:
    """The beginning-of-text token, if the tokenizer adds one."""
    begins = list(tokenizer("")["input_ids"])[:1]
    return begins if begins == [tokenizer.bos_token_id] else []


def _plain(tokenizer: Any, column: Sequence[str], length: int) -> list[list[int]]:
    cut: list[list[int]] = tokenizer(
        list(column), add_special_tokens=False, truncation=True, max_length=length
    )["input_ids"]
    return cut


def _separates(tokenizer: Any) -> bool:
    """Whether the tokenizer adds a separator between the texts of a pair."""
    alone, paired = (tokenizer.num_special_tokens_to_add(pair=pair) for pair in (False, True))
    return bool(paired > alone)


def _find_answer(context: str, answer: str, start: int) -> tuple[int, int] | None:
    """The characters of an answer in its context, from and to; None for an empty answer."""
    if not answer:
        return None
    if start < 0 or context[start : start + len(answer)] != answer:
        start = context.find(answer)
    if start < 0:
        raise InvalidInput(
            "some answers do not appear literally in their contexts; with task='spans' an answer "
            "must be a part of its context, or empty if there is none."
        )
    return start, start + len(answer)


def _find_tokens(
    places: Sequence[tuple[int, int] | None], characters: tuple[int, int] | None
) -> tuple[int, int]:
    """The first and the last token that overlap the characters; 0 and 0 if some are truncated."""
    if characters is None:
        return 0, 0
    begin, end = characters
    touched = [
        number
        for number, place in enumerate(places)
        if place is not None and place[0] < end and place[1] > begin
    ]
    last = max((place[1] for place in places if place is not None), default=0)
    if not touched or last < end:
        return 0, 0
    return touched[0], touched[-1]
