"""A language model that reads rows of numbers: those of words, all rows equally long, -1 after the
last. Rows of tasks that hold what is asked are two lines: the words, and the answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from dptune.engines.language.word_losses import word_losses
from dptune.errors import InvalidInput
from dptune.texts.cutting import NOT_ASKED
from dptune.texts.inputs import seen, which_text

_EVALUATED_AT_ONCE = 2**28  # numbers that a model gives


@dataclass(frozen=True)
class Traits:
    """What a model does not say of itself in one place.

    `padding` is the word that stands where there is none, `separator` the one after which the
    second text of a pair begins, if the model marks it; `causal`: words see those before them only;
    `whole_masks`: it takes masks that say for each word which others it sees;
    `longest`: the most words it takes, if there is such a number; `new`: the names of weights that
    it was not pretrained with.
    """

    padding: int
    separator: int | None
    causal: bool
    whole_masks: bool
    longest: int | None
    new: tuple[str, ...] = ()


class Reader(nn.Module):
    """Takes rows (rows, words), or (rows, 2, words) where they hold answers."""

    holds_answers: ClassVar[bool] = True

    def __init__(self, model: Any, traits: Traits) -> None:
        super().__init__()
        self.model = model
        self.traits = traits

    def parts(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Words and answers; without answers, words twice."""
        if rows.ndim != 2 + self.holds_answers or (self.holds_answers and rows.shape[1] != 2):
            wanted = "two lines of numbers, words and answers" if self.holds_answers else "words"
            raise InvalidInput(
                f"a row of this task is {wanted}, all of one length; got rows of shape "
                f"{tuple(rows.shape[1:])}."
            )
        if self.traits.longest is not None and rows.shape[-1] > self.traits.longest:
            raise InvalidInput(
                f"the model takes texts of {self.traits.longest} tokens at most, and rows have "
                f"{rows.shape[-1]}; ask for a smaller length."
            )
        return (rows[:, 0], rows[:, 1]) if self.holds_answers else (rows, rows)

    def read(self, words: Tensor) -> Any:
        """What the model gives for words (rows, words).

        What is computed of a row, and by which kernel, never depends on how long others are.
        """
        known = words >= 0
        # Beyond the vocabulary there is nothing: a row's number that is would end a run that is
        # paid for, and tell by that that the row is there.
        named = known & (words < self.vocabulary)
        given = {"input_ids": torch.where(named, words, self.traits.padding)}
        if self.traits.causal:
            # Nothing real comes after padding, so nothing real would see it.
            given["attention_mask"] = torch.ones_like(words)
        else:
            known = seen(known)
            whole = known[:, None, None, :].expand(-1, 1, words.shape[1], -1)
            # Of a plain mask transformers asks whether all rows are full, and computes otherwise.
            given["attention_mask"] = whole if self.traits.whole_masks else known.long()
        if self.traits.separator is not None:
            given["token_type_ids"] = which_text(words, self.traits.separator)
        return self.model(**given, return_dict=True)

    @property
    def heads(self) -> list[str]:
        """The names of parameters that belong to the task, not to the language."""
        base = {id(parameter) for parameter in self.model.base_model.parameters()}
        new = {f"model.{name}" for name in self.traits.new}
        named = self.named_parameters()
        return [name for name, one in named if id(one) not in base or name in new]

    @property
    def vocabulary(self) -> int:
        count: int = self.model.get_input_embeddings().num_embeddings
        return count

    def evaluated_at_once(self, words: int) -> int:
        """How many rows, of so many words, are passed at once without gradients."""
        return max(1, min(256, _EVALUATED_AT_ONCE // (words * self.numbers_a_word)))

    @property
    def numbers_a_word(self) -> int:
        """The most that is computed at once for one word."""
        return 8 * int(self.model.config.hidden_size)

    def made_up(self, shape: Sequence[int], rows: int, generator: torch.Generator) -> Tensor:
        """Made-up rows, some of them shorter than others, in `shape` (..., words)."""
        length, before = shape[-1], (rows, *shape[: -1 - self.holds_answers])
        # Special words are the first or the last of a vocabulary.
        low, high = self.vocabulary // 4, max(self.vocabulary // 4 + 1, 3 * self.vocabulary // 4)
        words = torch.randint(low, high, (*before, length), generator=generator)
        ends = length - torch.arange(words[..., 0].numel()).view(before) % max(1, length // 2)
        words = torch.where(torch.arange(length) < ends[..., None], words, -1)
        if not self.holds_answers:
            return words
        return torch.stack([words, self.made_up_answers(words)], -2)

    def made_up_answers(self, words: Tensor) -> Tensor:
        raise NotImplementedError


class Classifier(Reader):
    """Gives a number for each class, as transformers' own classifier of the model does."""

    holds_answers: ClassVar[bool] = False

    def forward(self, rows: Tensor) -> Tensor:
        return self.logits(self.parts(rows)[0])

    def logits(self, words: Tensor) -> Tensor:
        found: Tensor = self.read(words).logits
        return found


class MeanClassifier(Classifier):
    """The same by one linear layer over the mean of a text's words."""

    def __init__(self, model: Any, traits: Traits, outputs: int) -> None:
        super().__init__(model, traits)
        self.head = nn.Linear(model.config.hidden_size, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def logits(self, words: Tensor) -> Tensor:
        states = self.read(words).last_hidden_state
        found: Tensor = self.head(mean_of_words(states, seen(words >= 0)))
        return found


def mean_of_words(states: Tensor, known: Tensor) -> Tensor:
    """(rows, width) of states (rows, words, width)."""
    weights = known.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1)


class _AnswersInRows:
    """A classifier's rows with the class among them: what it gives is the loss, then its logits."""

    holds_answers: ClassVar[bool] = True

    def forward(self: Any, rows: Tensor) -> Tensor:
        words, answers = self.parts(rows)
        logits = self.logits(words).float()
        return torch.cat([_losses(logits, answers[:, 0])[:, None], logits], 1)

    def made_up_answers(self: Any, words: Tensor) -> Tensor:
        answers = torch.full_like(words, NOT_ASKED)
        classes = self.model.config.num_labels
        answers[..., 0] = torch.arange(words[..., 0].numel()).view(words.shape[:-1]) % classes
        return answers


class ClassifierInside(_AnswersInRows, Classifier):
    pass


class MeanClassifierInside(_AnswersInRows, MeanClassifier):
    pass


class Words(Reader):
    """Guesses each word from those before it. Gives the mean loss of the words that are asked, and
    how many these are; a word is asked where answers have it too."""

    def forward(self, rows: Tensor) -> Tensor:
        words, answers = self.parts(rows)
        nothing = torch.full_like(answers[:, :1], NOT_ASKED)
        asked = torch.where(answers < self.vocabulary, answers, NOT_ASKED)
        next_words = torch.cat([asked[:, 1:], nothing], 1)
        losses = word_losses(self.read(words).logits, next_words).sum(1)
        count = (next_words >= 0).sum(1)
        return torch.stack([losses / count.clamp(min=1), count.float()], 1)

    @property
    def heads(self) -> list[str]:
        return []  # its guesses are part of the language

    @property
    def numbers_a_word(self) -> int:
        return self.vocabulary

    def made_up_answers(self, words: Tensor) -> Tensor:
        asked = torch.arange(words.shape[-1]) >= words.shape[-1] // 4
        return torch.where(asked & (words >= 0), words, NOT_ASKED)


class Spans(Reader):
    """Finds the first and the last word of an answer in a text. Gives the mean loss of both, and
    the likeliest pair; 0 and 0 mean that there is no answer."""

    def forward(self, rows: Tensor) -> Tensor:
        words, answers = self.parts(rows)
        found = self.read(words)
        hidden = ~seen(words >= 0)
        starts, ends = (
            logits.float().masked_fill(hidden, -torch.inf)
            for logits in (found.start_logits, found.end_logits)
        )
        losses = (_losses(starts, answers[:, 0]) + _losses(ends, answers[:, 1])) / 2
        return torch.cat([losses[:, None], _likeliest(starts, ends)], 1)

    def made_up_answers(self, words: Tensor) -> Tensor:
        answers = torch.full_like(words, NOT_ASKED)
        last = (words >= 0).sum(-1) - 1
        answers[..., 0], answers[..., 1] = last // 2, last
        return answers


def _losses(logits: Tensor, classes: Tensor) -> Tensor:
    """Nothing is asked where there is no such class, or place."""
    asked = (classes >= 0) & (classes < logits.shape[1])
    classes = torch.where(asked, classes, NOT_ASKED)
    return functional.cross_entropy(logits, classes, reduction="none", ignore_index=NOT_ASKED)


def _likeliest(starts: Tensor, ends: Tensor) -> Tensor:
    """(rows, 2): first and last, the last not before the first, or both 0."""
    starts, ends = starts.detach(), ends.detach()
    none = starts[:, :1] + ends[:, :1]
    best, places = starts[:, 1:].cummax(1)
    last = torch.cat([none, best + ends[:, 1:]], 1).argmax(1, keepdim=True)
    first = torch.cat([torch.zeros_like(last), places + 1], 1).gather(1, last)
    return torch.cat([first, last], 1).float()
