"""One person with many texts is one row: what it may move, and what that costs, derived twice."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dptune import accounting, gdp
from dptune.data import Data, Preprocessing
from dptune.data.rows import IDS
from dptune.engines import TorchModule
from dptune.engines.modules.tracing import traced
from dptune.plan import TrainPlan
from dptune.texts import Encoder, Texts
from support.tiny_models import WORDS, write_tiny_model

CLIP, TEXTS, LENGTH, PEOPLE = 1e-4, 4, 12, 5
PLAIN = Preprocessing(unit_rows=False)
TASKS = {"words": "gpt2", "inside": "bert"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind in TASKS.values():
        write_tiny_model(folder / kind, kind)
    return folder


def _people(models: Path, task: str) -> Any:
    """Rows of people; the third wrote one text only."""
    rng = np.random.default_rng(3)
    units = [who for who in range(PEOPLE) for _ in range(1 if who == 2 else TEXTS + 1)]
    column = [" ".join(rng.choice(WORDS, rng.integers(4, LENGTH))) for _ in units]
    encoder = Encoder(
        tokenizer=str(models / TASKS[task]),
        task=task,
        unit="who",
        texts_per_unit=TEXTS,
        length=LENGTH,
    )
    rows = encoder.encode(Texts({"text": column}, units=units), rng.integers(2, size=len(units)))
    return torch.from_numpy(rows.astype(np.int64))


class Sums:
    """Clipped sums of gradients, as a step of the engine takes them."""

    def __init__(self, models: Path, task: str, rows: torch.Tensor) -> None:
        classes = ["no", "yes"] if task == "inside" else None
        data = Data.from_texts(rows.numpy(), task=task, classes=classes, augmented=True)
        self.engine = TorchModule(f"hf:{models / TASKS[task]}").for_data(data.facts)
        module, device = self.engine.made(), torch.device("cpu")
        copies = rows.shape[1]
        self.flat, self.gradients = traced(self.engine, module, data.facts, device, copies)

    def of(self, rows: torch.Tensor, clip: float | None = CLIP) -> torch.Tensor:
        total = torch.zeros(len(self.flat.vector), dtype=torch.float64)
        self.gradients.add(total, rows, torch.zeros(len(rows), dtype=torch.int64), clip)
        return total


def _emptied(rows: torch.Tensor, who: int) -> torch.Tensor:
    """A neighbour: everything that one person wrote is replaced by nothing."""
    other = rows.clone()
    other[who, :, 0], other[who, :, 1] = -1, -100
    return other


@pytest.mark.parametrize("task", TASKS)
def test_everything_that_one_person_wrote_moves_a_sum_by_the_clip_norm_at_most(
    models: Path, task: str
) -> None:
    """First derivation: one person is one clipped row, so a step has the sensitivity of a row, and
    its noise the price of a row."""
    rows = _people(models, task)
    sums = Sums(models, task, rows)
    everybody = sums.of(rows)
    for who in range(PEOPLE):
        moved = (everybody - sums.of(_emptied(rows, who))).norm()
        assert 0.9 * CLIP < moved <= CLIP * (1 + 1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_who_is_emptied_adds_nothing(models: Path, task: str) -> None:
    rows = _people(models, task)
    nobody = _emptied(rows[:1], 0)
    assert not Sums(models, task, rows).of(nobody, clip=None).any()


def test_texts_clipped_one_by_one_move_a_sum_by_more(models: Path) -> None:
    """Second derivation: with every text a row, a person moves a sum by up to as many clip norms as
    texts, which group privacy prices at that many times mu: never cheaper than one row a person."""
    rows = _people(models, "words")
    sums = Sums(models, "words", rows[:, :1])
    one_by_one = (sums.of(rows[0][:, None]) - sums.of(_emptied(rows[0][:, None], 0)[:0])).norm()
    assert CLIP * 1.5 < one_by_one <= TEXTS * CLIP * (1 + 1e-6)
    plan = TrainPlan(rows=PEOPLE, steps=7, learning_rate=1.0, noise_multiplier=3.0, clip_norm=CLIP)
    mu = accounting.price(plan.event).mu
    assert mu == pytest.approx(math.sqrt(7) / 3.0)  # sensitivity over noise, of seven steps
    for epsilon in (0.1, 1.0, 4.0):
        # delta of two Gaussians that lie `shift` apart, by hand
        group, person = (_delta(shift * mu, epsilon) for shift in (TEXTS, 1))
        assert gdp.delta_from_mu(mu, epsilon) == pytest.approx(person, rel=1e-9)
        assert person < group


def _delta(mu: float, epsilon: float) -> float:
    from scipy.stats import norm

    upper, lower = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
    return float(upper - math.exp(epsilon) * lower)


def test_the_price_does_not_depend_on_how_many_texts_enter() -> None:
    plans = [
        TrainPlan(
            rows=100,
            steps=5,
            learning_rate=1.0,
            noise_multiplier=2.0,
            sampling_rate=rate,
            augmentations=texts,
        )
        for rate in (None, 0.1)
        for texts in (1, TEXTS)
    ]
    events = [plan.event for plan in plans]
    assert events[0] == events[1] and events[2] == events[3]


@pytest.mark.parametrize("task", TASKS)
def test_a_score_sees_one_row_of_a_person_within_its_bound(models: Path, task: str) -> None:
    rows = _people(models, task)
    sums = Sums(models, task, rows)
    model = sums.engine.model(sums.engine.made(), tuple(rows.shape[2:]))
    classes = ["no", "yes"] if task == "inside" else None

    def total(some: torch.Tensor) -> float:
        empty = (some[:, 0, 0] == -1).all(1)
        data = Data.from_texts(some[~empty].numpy(), task=task, classes=classes, augmented=True)
        opened = data.unprotected_rows(PLAIN, precision=IDS)
        (found,) = sums.engine.evaluate_many([model], opened, loss_bound=0.5)
        return found.loss * found.rows

    everybody = total(rows)
    for who in range(PEOPLE):
        assert 0 <= everybody - total(_emptied(rows, who)) <= 0.5
