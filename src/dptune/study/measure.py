"""What is measured on private rows beside training: a census, and scores that compare models.

The caller must have paid for `event`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dptune.data.rows import Rows
from dptune.engines.base import Engine, Model
from dptune.engines.evaluation import Evaluation, Tally
from dptune.engines.randomness import Randomness
from dptune.noise import add_noise
from dptune.preparation.lengths import CELLS, counts_by_length, typical_length
from dptune.privacy import NoisyCount
from dptune.search.base import Census
from dptune.search.score import NoisyScore, Score, release_counts

_SPREAD = 0.5  # of what rows add to a score, from 0 to 1: at most
COUNTS_OF_ERRORS = 3  # what `measure_errors` counts
_CLOSE = NoisyScore(measure="loss", loss_bound=0.5)  # half the squared error of half the range
_UNIT = 2.0**-24  # float64 sums of its multiples are exact up to 2^29


def fresh_normal(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal numbers that nobody can repeat."""
    stream = Randomness().noise(torch.device("cpu"))
    drawn: NDArray[np.float64] = stream.normal_(torch.empty(shape, dtype=torch.float64)).numpy()
    return drawn


def take_census(rows: Rows, event: NoisyCount, *, classes: int, unit_rows: bool) -> Census:
    """Noisy counts of rows by class (none where there are no classes) and by length.

    A row is in one cell of each histogram, so each is one count.
    """
    by_class, by_length = histograms(rows, classes)
    counts, norm = add_noise(by_class, event.noise, fresh_normal), 1.0
    if not unit_rows:
        noisy = add_noise(by_length, event.noise, fresh_normal)
        norm = typical_length(noisy, event.noise) or 1.0
    return Census(tuple(counts.tolist()), event.noise, norm)


def compare(
    engine: Engine[Any],
    models: Sequence[Model],
    rows: Rows,
    score: Score,
    event: NoisyCount | None,
    census: Census | None,
    count: int,
) -> tuple[list[float], float]:
    """Scores as shares of `count` rows, and the noise on them; exact where `event` is None.

    Where rows are weighted by a `census`, every class counts alike, unless losses are compared.
    Where `event` counts a sample of the rows, a fresh one is drawn, the same for all models.
    """
    weighing = census if score.measure == "correct" else None
    rate = event.sampling_rate if event else None
    seen = rows if rate is None else _sampled(rows, rate)
    exact = _exact(engine, models, seen, score, weighing.weights if weighing else None)
    share = weighing.effective_share if weighing else 1.0
    if event is None:
        values, error = _shares(exact, rows)
        return [value / share for value in values], error
    everything = count * share * (1.0 if rate is None else rate)  # public, unlike the sample's size
    noisy = release_counts(exact, event.noise, fresh_normal)
    error = event.noise / everything
    if rate is not None:  # and other rows might have been drawn
        error = math.hypot(error, _SPREAD * math.sqrt((1 - rate) / everything))
    return [value / everything for value in noisy], error


def _sampled(rows: Rows, rate: float) -> Rows:
    """A sample that nobody can repeat."""
    return rows.taken(Randomness().sampling(rows.device).uniform(rows.count) < rate)


def count_correct(
    engine: Engine[Any], model: Model, rows: Rows, event: NoisyCount, weighing: Census | None
) -> float:
    """A noisy count of the rows that a model gets right; of their weights where they have any."""
    weights = weighing.weights if weighing else None
    exact = np.asarray(_exact(engine, [model], rows, NoisyScore(), weights))
    return float(add_noise(exact, event.noise, fresh_normal)[0])


def measure_errors(
    engine: Engine[Any], model: Model, rows: Rows, event: NoisyCount, count: int
) -> tuple[float, float, float]:
    """Noisy sums over rows with values, from -1 to 1, to each of which a row adds from 0 to 1: how
    close the model comes, how close a constant comes, and from which sum that constant follows
    (`middle_of`). Close is 1 less the squared error, or 0 where that is above 1: a row that is off
    by more than half the range counts as if by half.

    The constant is taken from the noisy sum, so this is three counts, the last two chosen by the
    first: together they cost what `event`, of three counts, does.
    """
    exact = 0.0
    for chunk in rows.chunks():  # in whole multiples of a power of two: exact in any order
        halves = ((chunk.targets.double().clamp(-1, 1) + 1) / 2 / _UNIT).floor()
        exact += float(halves.sum())
    total = float(add_noise(np.array([exact * _UNIT]), event.noise, fresh_normal)[0])
    middle = middle_of(total, count)
    tallies = [Tally(1, 1, "squared", _CLOSE.loss_bound, None, rows.device) for _ in range(2)]
    with torch.no_grad(), torch.autocast(rows.device.type, enabled=False):
        for chunk in rows.chunks():
            given = engine.logits_many([model], chunk.features[:, 0])
            tallies[0].add(given, chunk.targets)
            tallies[1].add(torch.full_like(given, middle), chunk.targets)
    worth = [_worth(tally.evaluations(rows.count)[0], _CLOSE) for tally in tallies]
    close, of_middle = add_noise(np.array(worth), event.noise, fresh_normal).tolist()
    return close, of_middle, total


def middle_of(total: float, count: int) -> float:
    """The mean of values from -1 to 1, from the noisy sum that `measure_errors` gives."""
    return min(max(2 * total / count - 1, -1.0), 1.0)


def score_alone(
    engine: Engine[Any],
    models: Sequence[Model],
    rows: Rows,
    score: Score,
    event: NoisyCount | None,
    count: int,
) -> tuple[list[float], float]:
    """The same for models that are not compared with each other: every score has noise of its own,
    and `event` is the price of one."""
    exact = _exact(engine, models, rows, score, None)
    if event is None:
        return _shares(exact, rows)
    noisy = add_noise(np.asarray(exact), event.noise, fresh_normal)
    return (noisy / count).tolist(), event.noise / count


def _exact(
    engine: Engine[Any],
    models: Sequence[Model],
    rows: Rows,
    score: Score,
    weights: tuple[float, ...] | None,
) -> list[float]:
    evaluations = engine.evaluate_many(
        models,
        rows,
        loss_bound=score.loss_bound if score.measure == "loss" else None,
        row_weights=None if weights is None else torch.tensor(weights, dtype=torch.float64),
    )
    return [_worth(evaluation, score) for evaluation in evaluations]


def _shares(exact: Sequence[float], rows: Rows) -> tuple[list[float], float]:
    """Exact scores; how far such a share is off for other rows takes the place of noise."""
    return [value / rows.count for value in exact], _SPREAD * rows.count**-0.5


def histograms(rows: Rows, classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact counts of rows by class and by length."""
    by_class, by_length = np.zeros(classes), np.zeros(CELLS)
    for chunk in rows.chunks():
        by_length += counts_by_length(chunk.norms[:, 0].double().cpu().numpy())
        if classes:
            by_class += np.bincount(chunk.targets.cpu().numpy(), minlength=classes)
    return by_class, by_length


def _worth(evaluation: Evaluation, score: Score) -> float:
    """A sum over rows, each from 0 to 1; more is better."""
    if score.measure == "loss":
        return evaluation.rows * (1 - evaluation.loss / score.loss_bound)
    return evaluation.weighted_correct
