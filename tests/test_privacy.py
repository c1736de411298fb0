"""The frozen values: budgets, events, statements."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dptune import Budget, Guarantee, gdp
from dptune.accounting import ONE_PERSON, ONE_PICTURE, ONE_ROW, ONE_TEXT, guarantee
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    NoisyRanks,
    PrivateMean,
    PrivateSecondMoment,
    RandomStopping,
    SampledRun,
    ThresholdedCount,
    ZerothOrderRun,
    event_from_dict,
    event_to_dict,
)

EVENTS: list[Event] = [
    FullBatchRun(steps=100, noise_multiplier=37.4),
    SampledRun(steps=10, noise_multiplier=1.5, sampling_rate=0.01),
    ZerothOrderRun(steps=10, noise_multiplier=1.5),
    ZerothOrderRun(steps=10, noise_multiplier=1.5, sampling_rate=0.01, directions=3),
    NoisyCount(counts=3, noise=61.0, centered=True),
    NoisyCount(counts=3, noise=61.0, centered=True, sampling_rate=0.1),
    PrivateMean(noise_multiplier=50.0),
    PrivateSecondMoment(noise_multiplier=25.0),
    NoisyRanks(columns=7, noise=50.0),
    ThresholdedCount(counts=3, noise=40.0, threshold=250.0),
    Composition(
        parts=(FullBatchRun(steps=1, noise_multiplier=9.0), NoisyCount(noise=100.0)),
    ),
    RandomStopping(
        trial=Composition(parts=(PrivateMean(noise_multiplier=2.0),)),
        expected_trials=10.0,
        distribution="logarithmic",
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_events_survive_json(event: Event) -> None:
    plain = json.loads(json.dumps(event_to_dict(event)))
    assert event_from_dict(plain) == event
    assert next(iter(plain)) == "kind"


def test_counts_of_older_records_are_of_all_rows() -> None:
    old = {"kind": "noisy-count", "counts": 3, "noise": 61.0, "centered": True}
    found = event_from_dict(old)
    assert isinstance(found, NoisyCount) and found.sampling_rate is None
    assert event_to_dict(found) == old


def test_numpy_numbers_become_plain_ones() -> None:
    event = FullBatchRun(steps=np.int64(5), noise_multiplier=np.float32(2.0))
    assert json.dumps(event_to_dict(event)) == json.dumps(
        {"kind": "full-batch-run", "steps": 5, "noise_multiplier": 2.0}
    )


@pytest.mark.parametrize(
    "plain", [{"kind": "laplace", "scale": 1}, {}, {"kind": "full-batch-run", "steps": 3}]
)
def test_an_event_we_do_not_know_is_an_error(plain: dict[str, object]) -> None:
    with pytest.raises(UnpricedEvent):
        event_from_dict(plain)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FullBatchRun(steps=0, noise_multiplier=1.0),
        lambda: FullBatchRun(steps=1.5, noise_multiplier=1.0),
        lambda: FullBatchRun(steps=1, noise_multiplier=0.0),
        lambda: FullBatchRun(steps=1, noise_multiplier=math.inf),
        lambda: SampledRun(steps=1, noise_multiplier=1.0, sampling_rate=0.0),
        lambda: SampledRun(steps=1, noise_multiplier=1.0, sampling_rate=1.0),
        lambda: NoisyCount(noise=-1.0),
        lambda: NoisyCount(noise=1.0, sampling_rate=0.0),
        lambda: NoisyCount(noise=1.0, sampling_rate=1.0),
        lambda: ZerothOrderRun(steps=0, noise_multiplier=1.0),
        lambda: ZerothOrderRun(steps=1, noise_multiplier=0.0),
        lambda: ZerothOrderRun(steps=1, noise_multiplier=1.0, sampling_rate=1.0),
        lambda: ZerothOrderRun(steps=1, noise_multiplier=1.0, directions=0),
        lambda: PrivateMean(noise_multiplier=math.nan),
        lambda: PrivateSecondMoment(noise_multiplier=0.0),
        lambda: PrivateSecondMoment(noise_multiplier=math.inf),
        lambda: Composition(parts=()),
        lambda: Composition(parts=("a run",)),
        lambda: NoisyCount(noise=1.0, centered="False"),
        lambda: RandomStopping(trial=EVENTS[0], expected_trials=0.5, distribution="poisson"),
        lambda: RandomStopping(trial="a run", expected_trials=5),
        lambda: FullBatchRun(steps=10**400, noise_multiplier=1.0),
        lambda: Budget(10**400, 1e-5),
        lambda: Budget(1e30, 1e-5),
        lambda: Budget(1.0, 1e-200),
        lambda: RandomStopping(trial=EVENTS[0], expected_trials=1.0),
        lambda: RandomStopping(trial=EVENTS[0], expected_trials=5, distribution="fixed"),
        lambda: Budget(0.0, 1e-5),
        lambda: Budget(1.0, 0.0),
        lambda: Budget(1.0, 1.0),
        lambda: Budget(-1.0, 1e-5),
        lambda: Budget(math.inf, 1e-5),
    ],
)
def test_senseless_values_are_refused(make: object) -> None:
    with pytest.raises(InvalidInput, match=r"must|needs|made of"):
        make()  # type: ignore[operator]


def test_slack_takes_from_the_budget() -> None:
    budget = Budget(1.0, 1e-5)
    assert budget.mu_squared() == budget.mu**2
    assert 0 < budget.mu_squared(5e-6) < budget.mu_squared()
    expected = gdp.mu_from_epsilon(1.0, (1e-5 - 5e-6) / (1 - 5e-6)) ** 2
    assert budget.mu_squared(5e-6) == pytest.approx(expected, rel=1e-12)
    assert budget.mu_squared(1e-5) == 0.0
    assert budget.mu_squared(1.0) == 0.0


GUARANTEE = Guarantee(
    epsilon=0.88404,
    delta=1e-5,
    mu=0.239568,
    slack=1e-7,
    replace_one_epsilon=1.9,
    sampler="all rows in every step (full batch)",
    accountant="Gaussian DP, exact",
    covers_search=True,
    covers_selection=False,
    releases=("the final model", "the settings"),
    public_facts=("the number of rows",),
    caveats=("research only",),
)


def test_a_guarantee_says_everything_in_words() -> None:
    words = GUARANTEE.in_words()
    for said in (
        "(0.8841, 1e-05)-differential privacy for one row",
        "zero-out",
        "epsilon would be 1.9000",
        "mu 0.23957, with failure probability 1.00e-7",
        "full batch",
        "Accountant: Gaussian DP, exact.",
        "the search for hyperparameters is covered",
        "choosing among trials is NOT covered",
        "May be released: the final model; the settings.",
        "Taken as public: the number of rows.",
        "Note: research only.",
    ):
        assert said in words


def test_a_guarantee_says_everything_as_json() -> None:
    plain = json.loads(GUARANTEE.to_json())
    assert set(plain) == {field.name for field in dataclasses.fields(Guarantee)}
    assert plain["covers_search"] is True and plain["covers_selection"] is False
    assert plain["releases"] == ["the final model", "the settings"]


def test_delta_is_not_called_the_probability_that_epsilon_fails() -> None:
    """Of a Gaussian release that is 16 times as large, and the statement says so."""
    exact = dataclasses.replace(GUARANTEE, epsilon=1.0, mu=Budget(1.0, 1e-5).mu, slack=0.0)
    (words,) = [sentence for heading, sentence in exact.sections() if heading == "In plain words"]
    assert "by at most a factor of 2.72, plus 1e-05." in words
    assert "towards the truth by more than that factor with probability at most 0.000414" in words
    assert "(0.000162 for a single Gaussian release)" in words
    assert "except with probability" not in exact.in_words()


@pytest.mark.parametrize(
    ("unit", "noun", "several"),
    [
        (ONE_TEXT, "text", "a person with several texts is protected less"),
        (ONE_PERSON, "person", "a group of several people is protected less"),
    ],
)
def test_guarantee_for_texts_names_text_or_person_as_unit(
    unit: str, noun: str, several: str
) -> None:
    event = FullBatchRun(steps=3, noise_multiplier=9.0)
    covered = {"covers_search": True, "covers_selection": True}
    of_rows, of_texts = (
        guarantee([event], 1e-5, unit=each, releases=("it",), **covered) for each in (ONE_ROW, unit)
    )
    as_rows = {"unit": ONE_ROW, "neighbours": of_rows.neighbours}
    assert dataclasses.replace(of_texts, **as_rows) == of_rows
    said = dict(Guarantee.from_dict(json.loads(of_texts.to_json())).sections())
    assert said["Promise"].endswith(f"-differential privacy for one {noun}")
    for heading in ("In plain words", "Neighbours", "Replace-one"):
        assert noun in said[heading]
    assert several in of_texts.in_words()


def test_guarantee_for_pictures_names_picture_as_unit() -> None:
    """The same numbers in other words, also after they were stored."""
    event = FullBatchRun(steps=3, noise_multiplier=9.0)
    of_rows, of_pictures = (
        guarantee(
            [event], 1e-5, unit=unit, covers_search=True, covers_selection=True, releases=("it",)
        )
        for unit in (ONE_ROW, ONE_PICTURE)
    )
    as_rows = {"unit": ONE_ROW, "neighbours": of_rows.neighbours}
    assert dataclasses.replace(of_pictures, **as_rows) == of_rows
    said = dict(Guarantee.from_dict(json.loads(of_pictures.to_json())).sections())
    assert said["Promise"].endswith("-differential privacy for one picture")
    for heading in ("In plain words", "Neighbours", "Replace-one"):
        assert "picture" in said[heading] and "row" not in said[heading].replace("empty row", "")
    assert "a person in several pictures is protected less" in of_pictures.in_words()
    assert "picture" not in of_rows.in_words()
    older = of_rows.to_dict()  # of a version that knew rows only
    assert older.pop("unit") == "one row"
    assert Guarantee.from_dict(older) == of_rows


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_several_rows_cost_no_more_than_the_statement_says(epsilon: float, k: int) -> None:
    """By neighbours one after the other, and by what k Gaussians in a row really are: one of k mu.
    At the same delta, k times epsilon would not be enough."""
    delta, mu = 1e-5, Budget(epsilon, 1e-5).mu
    bound = 0.0
    for _ in range(k):
        bound = bound * math.exp(epsilon) + delta
    at_most = k * math.exp((k - 1) * epsilon) * delta
    assert gdp.delta_from_mu(k * mu, k * epsilon) <= bound <= at_most
    assert gdp.delta_from_mu(k * mu, k * epsilon) > delta
    exact = dataclasses.replace(GUARANTEE, epsilon=epsilon, mu=mu, slack=0.0)
    assert (
        "a person with several rows is protected less: with k of them epsilon is at most k times "
        "as large, and delta at most k e^((k - 1) epsilon) times"
    ) in exact.in_words()


def test_the_statement_never_rounds_delta_down() -> None:
    words = dataclasses.replace(GUARANTEE, delta=1.000004e-5, slack=1.2345e-7).in_words()
    assert "1.00001e-05)-differential" in words and "factor of 2.43, plus 1.00001e-05" in words
    assert "probability 1.24e-7" in words


def test_no_infinity_gets_into_json() -> None:
    boundless = dataclasses.replace(GUARANTEE, replace_one_epsilon=math.inf)
    assert json.loads(boundless.to_json())["replace_one_epsilon"] is None
    assert "we can state no finite epsilon" in boundless.in_words()
