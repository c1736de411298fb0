"""Encode texts as rows of token ids, all of one public length.

Longer texts are truncated and shorter ones padded on the right, whatever else is in their batch. So
no result for one row depends on the length of another.

    classes  (length): the token ids
    others   (2, length): the token ids, and the targets
             words   next-token prediction: the tokens themselves, at their own places
             spans   question answering: the first and the last token of the answer
             inside  the number of the class, in the first place

If a unit is a person with several texts, rows are (texts of a unit, 2, length).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput
from dptune.texts import cutting
from dptune.texts.cutting import NOT_ASKED, PADDING, Piece
from dptune.texts.reading import names_of_columns, read
from dptune.texts.texts import Texts
from dptune.texts.tokenizer import digest_of, load_tokenizer, pinned_place
from dptune.texts.units import first_of_each, packed

TASKS = ("classes", "words", "spans", "inside")
DEFAULT_LENGTH, DEFAULT_TEXTS_PER_UNIT = 128, 8
KIND = "text"  # the kind of `made_by`
_AT_ONCE = 4096  # texts
Ids = NDArray[np.int32]
_COLUMNS = {  # the least and the largest number of columns, and their content
    "classes": (1, 2, "one column, or two for pairs"),
    "inside": (1, 2, "one column, or two for pairs"),
    "words": (1, 2, "one column, or the columns of prompt and answer"),
    "spans": (3, 3, "the columns of context, question and answer"),
}


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Turns texts into rows.

    Attributes:
        tokenizer: a folder, or NAME[@REVISION] on the hub.
        columns: the columns of texts: one, or two for pairs; context, question and answer for
            spans; one, or prompt and answer, for words.
        task: classes, words (next-token prediction), spans (question answering), or inside
            (classes of people with several texts).
        length: of every row, in tokens.
        unit: the column that names the person or group of a text; None if every row is a unit.
        texts_per_unit: the largest number of rows of one unit.

    """

    tokenizer: str
    columns: tuple[str, ...] = ("text",)
    task: str = "classes"
    length: int = DEFAULT_LENGTH
    unit: str | None = None
    texts_per_unit: int = DEFAULT_TEXTS_PER_UNIT

    def __post_init__(self) -> None:
        validate.one_of(TASKS, task=self.task)
        validate.text(tokenizer=self.tokenizer)
        if Path(self.tokenizer).is_dir():  # absolute, for use from another working directory
            validate.store(self, tokenizer=str(Path(self.tokenizer).absolute()))
        validate.store(
            self,
            columns=names_of_columns(self.columns),
            length=validate.whole(4, at_most=10**6, length=self.length),
            texts_per_unit=validate.whole(1, at_most=4096, texts_per_unit=self.texts_per_unit),
        )
        least, most, content = _COLUMNS[self.task]
        if not least <= len(self.columns) <= most:
            raise InvalidInput(
                f"task={self.task!r} takes {content}; got {len(self.columns)}: "
                f"{', '.join(self.columns)}. Give --column once for each, in this order (a list in "
                "Python)."
            )
        if self.unit is not None:
            validate.text(unit=self.unit)
        if self.task == ("inside" if self.unit is None else "classes"):
            raise InvalidInput(
                f"task={self.task!r} cannot be combined with unit={self.unit!r}; use task='inside' "
                "for classes with a unit, and task='classes' without one."
            )

    @staticmethod
    def of(made_by: Mapping[str, Any], tokenizer: str | None = None) -> "Encoder":
        """Rebuild the encoder of a model's rows; `tokenizer` is its folder if that has moved."""
        if made_by.get("kind") != KIND:
            raise InvalidInput(
                f"these rows were not encoded from texts by a tokenizer, but made by "
                f"{made_by.get('name')}."
            )
        encoder = Encoder(
            tokenizer=tokenizer or made_by["tokenizer"],
            columns=tuple(made_by["columns"]),
            **{name: made_by[name] for name in ("task", "length", "unit", "texts_per_unit")},
        )
        if digest_of(encoder.words) != made_by["digest"]:
            raise InvalidInput(
                f"the tokenizer {encoder.tokenizer} differs from the one that the model was "
                "trained with: its vocabulary, or how it splits texts, has changed. Restore it."
            )
        return encoder

    @property
    def made_by(self) -> dict[str, Any]:
        """Plain data from which `of` rebuilds the encoder."""
        digest, place = digest_of(self.words), pinned_place(self.tokenizer)
        options = asdict(self) | {"columns": list(self.columns), "tokenizer": place}
        name = self.name if Path(place).is_dir() else place
        return {"kind": KIND, "name": name, "digest": digest, **options}

    @property
    def name(self) -> str:
        """The name of the tokenizer, without its parent folders."""
        folder = Path(self.tokenizer)
        return folder.absolute().name if folder.is_dir() else self.tokenizer

    @property
    def packs(self) -> bool:
        """Whether the texts of a unit are joined before they are split into rows."""
        return self.task == "words" and len(self.columns) == 1

    @property
    def has_answers(self) -> bool:
        """Whether the last column holds the answers."""
        return self.task == "spans" or (self.task == "words" and len(self.columns) == 2)

    @property
    def given(self) -> tuple[str, ...]:
        """The columns without the answers."""
        return self.columns[:-1] if self.has_answers else self.columns

    def read(self, source: Any, label: str | None = None, **how: Any) -> Texts:
        """Read the texts of a source; `how` is as in `texts.read`."""
        return read(source, self.columns, label, answers=self.has_answers, **how)

    @cached_property
    def words(self) -> Any:
        """The tokenizer, checked against length and task."""
        tokenizer = load_tokenizer(self.tokenizer)
        if self.length > tokenizer.model_max_length:
            raise InvalidInput(
                f"length {self.length} is more than the {tokenizer.model_max_length} tokens that "
                f"the model {self.name} takes; give a smaller length (--length)."
            )
        marks = tokenizer.num_special_tokens_to_add(pair=len(self.columns) > 1)
        if self.length < marks + 2 * len(self.columns):
            raise InvalidInput(
                f"length {self.length} is too short: {self.name} adds {marks} special tokens to "
                f"{len(self.columns)} texts; give a larger length (--length)."
            )
        if self.task == "words":
            cutting.end_of_text(tokenizer)
        return tokenizer

    def encode(self, texts: Texts, classes: Sequence[int] | None = None) -> Ids:
        """Return one row per text, or per unit if the texts have units. `classes` are the numbers
        of their labels, which only task='inside' needs."""
        if texts.units is None:
            return self._rows(self._pieces(texts, classes, range(texts.count)), texts.count)
        k, length = self.texts_per_unit, self.length
        # A packed text fills at least one place, with its end-of-text token.
        members = first_of_each(texts.units, k * length if self.packs else k)
        order = [number for numbers in members for number in numbers]
        pieces = self._pieces(texts, classes, order)
        if self.packs:
            pieces = packed(pieces, [len(numbers) for numbers in members], k, length)
            return self._rows(pieces, len(members) * k).reshape(len(members), k, 2, length)
        places = [k * unit + i for unit, numbers in enumerate(members) for i in range(len(numbers))]
        rows = self._empty_rows(len(members) * k)
        rows[places] = self._rows(pieces, len(order))
        return rows.reshape(len(members), k, *rows.shape[1:])

    def answers(self, texts: Texts, predicted: NDArray[Any]) -> list[str]:
        """The answers in the contexts, from the first to the last token `predicted` for each."""
        contexts, questions = (list(texts.columns[name]) for name in self.columns[:2])
        answers = []
        for start in range(0, texts.count, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            cut = cutting.question_and_context(
                self.words, contexts[part], questions[part], self.length
            )
            ends = np.asarray(predicted[part]).astype(int).tolist()
            for number, (first, last) in enumerate(ends):
                places = cutting.context_places(cut, number)[first : last + 1]
                inside = [place for place in places if place is not None]
                characters = slice(inside[0][0], inside[-1][1]) if inside else slice(0)
                answers.append(contexts[start + number][characters])
        return answers

    def _pieces(
        self, texts: Texts, classes: Sequence[int] | None, numbers: Sequence[int]
    ) -> Iterator[Piece]:
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            for number, (ids, asked) in zip(some, self._cut(texts, some), strict=True):
                if not ids:
                    raise InvalidInput(
                        f"some texts have no token of the tokenizer {self.name}; remove those "
                        "rows, or use another model."
                    )
                if self.task == "inside" and classes is not None:
                    asked[0] = int(classes[number])
                yield ids, asked

    def _cut(self, texts: Texts, numbers: Sequence[int]) -> Iterator[Piece]:
        columns = {
            name: [values[number] for number in numbers] for name, values in texts.columns.items()
        }
        given = [columns[name] for name in self.columns if name in columns]
        if self.task == "words":
            if len(self.columns) == 2:
                return cutting.replies(self.words, given[0], given[1], self.length)
            longest = self.length * (1 if texts.units is None else self.texts_per_unit)
            return cutting.prose(self.words, given[0], longest)
        if self.task == "spans":
            answers = columns.get(self.columns[2])
            starts = texts.starts and [texts.starts[number] for number in numbers]
            return cutting.spans(self.words, given[0], given[1], answers, starts, self.length)
        return cutting.texts(self.words, given, self.length)

    def _rows(self, pieces: Iterator[Piece], count: int) -> Ids:
        rows = self._empty_rows(count)
        flat = rows[:, None] if self.task == "classes" else rows
        for row, (ids, asked) in zip(flat, pieces, strict=True):
            row[0, : len(ids)] = ids
            if self.task != "classes":
                row[1, : len(asked)] = asked
        return rows

    def _empty_rows(self, count: int) -> Ids:
        """Rows without tokens and targets."""
        if self.task == "classes":
            return np.full((count, self.length), PADDING, np.int32)
        rows = np.full((count, 2, self.length), PADDING, np.int32)
        rows[:, 1] = NOT_ASKED
        return rows
