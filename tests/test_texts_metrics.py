"""Metrics of texts beside what others compute, or what can be counted by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import f1_score

from dptune.texts import metrics


@pytest.mark.parametrize("classes", [2, 5])
def test_f1_equals_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(classes)
    found, true = rng.integers(classes, size=(2, 200))
    average = "binary" if classes == 2 else "macro"
    expected = f1_score(true, found, average=average, labels=None)
    assert metrics.f1(found, true, classes) == pytest.approx(expected)
    assert metrics.accuracy(found, true) == pytest.approx((found == true).mean())


def test_f1_of_absent_class_is_zero() -> None:
    assert metrics.f1([0, 0], [0, 0], classes=2) == 0.0
    assert metrics.f1([0, 1], [0, 1], classes=4) == 0.5


def test_perplexity_weighs_rows_by_their_words() -> None:
    words = np.array([1, 3, 0])
    losses = np.array([2.0, 0.5, 100.0])
    one_by_one = [2.0, 0.5, 0.5, 0.5]
    assert metrics.perplexity(losses, words) == pytest.approx(math.exp(np.mean(one_by_one)))
    assert math.isnan(metrics.perplexity([1.0], [0]))
    assert metrics.perplexity([1e4], [1]) == math.inf


@pytest.mark.parametrize(
    ("answer", "true", "exact", "shared"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1.0, 1.0),
        ("in Paris", ["Paris"], 0.0, 2 / 3),
        ("Paris", ["London", "Paris, France"], 0.0, 2 / 3),
        ("", [], 1.0, 1.0),
        ("", ["Paris"], 0.0, 0.0),
        ("Paris", [""], 0.0, 0.0),
        ("cat cat", ["cat dog"], 0.0, 0.5),
    ],
)
def test_answers_are_compared_as_in_squad(
    answer: str, true: list[str], exact: float, shared: float
) -> None:
    assert metrics.exact_match(answer, true) == exact
    assert metrics.word_f1(answer, true) == pytest.approx(shared)


def test_spans_are_right_where_both_ends_are() -> None:
    found = np.array([[3, 5], [3, 5], [0, 0], [7, 8], [0, 0]])
    true = np.array([[3, 5], [4, 7], [0, 0], [1, 2], [4, 4]])
    exact, shared = metrics.spans(found, true)
    assert exact == pytest.approx(2 / 5)
    by_hand = []
    for (a, b), (c, d) in zip(found.tolist(), true.tolist(), strict=True):
        mine, theirs = set(range(a, b + 1)), set(range(c, d + 1))
        by_hand.append(2 * len(mine & theirs) / (len(mine) + len(theirs)))
    assert shared == pytest.approx(np.mean(by_hand))
