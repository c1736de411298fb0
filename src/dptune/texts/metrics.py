"""How good answers are: accuracy, F1, exact match, perplexity.

They are exact, so they are for test rows and public ones; on private rows only what was paid for
may be told.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_MARKS = str.maketrans("", "", string.punctuation)


def accuracy(found: ArrayLike, true: ArrayLike) -> float:
    """The share that is right."""
    return float(np.mean(np.asarray(found) == np.asarray(true)))


def f1(found: ArrayLike, true: ArrayLike, classes: int) -> float:
    """From numbers of classes: of two, F1 of the second; of more, the mean over all of them.

    >>> f1([1, 1, 0, 0], [1, 0, 1, 0], classes=2)
    0.5
    """
    found, true = np.asarray(found), np.asarray(true)
    counted = [1] if classes == 2 else range(classes)
    return float(np.mean([_f1_of(found == one, true == one) for one in counted]))


def perplexity(losses: ArrayLike, words: ArrayLike) -> float:
    """From the mean loss of the words of each row, and how many words those are."""
    weights = np.asarray(words, dtype=np.float64)
    if not weights.sum() > 0:
        return math.nan
    mean = float(np.average(np.asarray(losses, dtype=np.float64), weights=weights))
    return math.exp(mean) if mean < 700 else math.inf


def exact_match(answer: str, true: Sequence[str]) -> float:
    """Whether an answer is one of the true ones, but for case, punctuation and articles (SQuAD).

    >>> exact_match("The Cat!", ["a cat", "dog"])
    1.0
    """
    return float(_normalised(answer) in map(_normalised, true or [""]))


def word_f1(answer: str, true: Sequence[str]) -> float:
    """How many words an answer shares with the true one that is nearest (SQuAD)."""
    words = _normalised(answer).split()
    return max(_shared(words, _normalised(one).split()) for one in true or [""])


def spans(found: NDArray[Any], true: NDArray[Any]) -> tuple[float, float]:
    """(exact match, F1) of answers from a first to a last word, as shares of the rows; F1 is of
    the places that both have. 0 and 0 mean that there is no answer."""
    exact = (found == true).all(1)
    lengths = [np.maximum(some[:, 1] - some[:, 0] + 1, 0) for some in (found, true)]
    begin, end = np.maximum(found[:, 0], true[:, 0]), np.minimum(found[:, 1], true[:, 1])
    shared = np.maximum(end - begin + 1, 0)
    return float(exact.mean()), float((2 * shared / np.maximum(sum(lengths), 1)).mean())


def _f1_of(found: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    counted = int(found.sum() + true.sum())
    return 2 * int((found & true).sum()) / counted if counted else 0.0


def _normalised(text: str) -> str:
    plain = text.lower().translate(_WITHOUT_MARKS)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def _shared(found: Sequence[str], true: Sequence[str]) -> float:
    if not found or not true:
        return float(found == true)
    both = sum((Counter(found) & Counter(true)).values())
    return 2 * both / (len(found) + len(true))
