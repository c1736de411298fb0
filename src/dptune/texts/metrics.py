"""Metrics: accuracy, F1, exact match, perplexity.

They are exact, so they are for test rows and public rows only. A result on private rows must be
paid for, with noise.
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


def accuracy(predicted: ArrayLike, true: ArrayLike) -> float:
    """The fraction of correct predictions."""
    return float(np.mean(np.asarray(predicted) == np.asarray(true)))


def f1(predicted: ArrayLike, true: ArrayLike, classes: int) -> float:
    """F1 of numbered classes: of the second of two classes, or the mean over more.

    >>> f1([1, 1, 0, 0], [1, 0, 1, 0], classes=2)
    0.5
    """
    predicted, true = np.asarray(predicted), np.asarray(true)
    counted = [1] if classes == 2 else range(classes)
    return float(np.mean([_f1_of(predicted == one, true == one) for one in counted]))


def perplexity(losses: ArrayLike, words: ArrayLike) -> float:
    """Perplexity, from the mean loss per token of each row and its number of tokens."""
    weights = np.asarray(words, dtype=np.float64)
    if not weights.sum() > 0:
        return math.nan
    mean = float(np.average(np.asarray(losses, dtype=np.float64), weights=weights))
    return math.exp(mean) if mean < 700 else math.inf


def exact_match(answer: str, true: Sequence[str]) -> float:
    """Whether an answer equals a true one, up to case, punctuation and articles (SQuAD).

    >>> exact_match("The Cat!", ["a cat", "dog"])
    1.0
    """
    return float(_normalised(answer) in map(_normalised, true or [""]))


def word_f1(answer: str, true: Sequence[str]) -> float:
    """The F1 of the words of an answer and the closest true one (SQuAD)."""
    words = _normalised(answer).split()
    return max(_shared(words, _normalised(one).split()) for one in true or [""])


def spans(predicted: NDArray[Any], true: NDArray[Any]) -> tuple[float, float]:
    """(exact match, F1) of answers from a first to a last token, averaged over the rows; F1 counts
    shared positions. 0 and 0 mean no answer."""
    exact = (predicted == true).all(1)
    lengths = [np.maximum(some[:, 1] - some[:, 0] + 1, 0) for some in (predicted, true)]
    begin, end = np.maximum(predicted[:, 0], true[:, 0]), np.minimum(predicted[:, 1], true[:, 1])
    shared = np.maximum(end - begin + 1, 0)
    return float(exact.mean()), float((2 * shared / np.maximum(sum(lengths), 1)).mean())


def _f1_of(predicted: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    counted = int(predicted.sum() + true.sum())
    return 2 * int((predicted & true).sum()) / counted if counted else 0.0


def _normalised(text: str) -> str:
    plain = text.lower().translate(_WITHOUT_MARKS)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def _shared(predicted: Sequence[str], true: Sequence[str]) -> float:
    if not predicted or not true:
        return float(predicted == true)
    both = sum((Counter(predicted) & Counter(true)).values())
    return 2 * both / (len(predicted) + len(true))
