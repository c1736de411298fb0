"""Events on parts of the rows that are kept apart: the dearest is the price of all."""

import json
import math

import dp_accounting
import pytest
from dp_accounting import dp_event, pld
from hypothesis import given
from hypothesis import strategies as st

from dptune import accounting
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    Parallel,
    PrivateMean,
    PrivateSecondMoment,
    RandomStopping,
    SampledRun,
    event_from_dict,
    event_to_dict,
)

DELTA = 1e-5
TRAIN = FullBatchRun(steps=100, noise_multiplier=50.0)
SCORES = NoisyCount(counts=3, noise=10.0, centered=True)
SAMPLED = SampledRun(steps=10, noise_multiplier=1.5, sampling_rate=0.01)
gaussian: st.SearchStrategy[Event] = st.one_of(
    st.builds(FullBatchRun, steps=st.integers(1, 300), noise_multiplier=st.floats(0.5, 1e4)),
    st.builds(
        NoisyCount, counts=st.integers(2, 9), noise=st.floats(0.5, 1e4), centered=st.booleans()
    ),
    st.builds(PrivateMean, noise_multiplier=st.floats(0.5, 1e4)),
    st.builds(PrivateSecondMoment, noise_multiplier=st.floats(0.5, 1e4)),
)


def mu_squared(event: Event) -> float:
    return accounting.price(event).mu_squared


@given(st.lists(gaussian, min_size=1, max_size=5))
def test_price_of_parallel_event_is_its_most_expensive_part(parts: list[Event]) -> None:
    dearest = max(map(mu_squared, parts))
    found = accounting.price(Parallel(parts=tuple(parts)))
    assert dearest <= found.mu_squared <= dearest * (1 + 1e-14)
    assert found.slack == 0


@given(st.lists(gaussian, min_size=1, max_size=4), st.lists(gaussian, min_size=1, max_size=4))
def test_within_a_part_prices_add_and_beside_it_too(one: list[Event], other: list[Event]) -> None:
    sums = [math.fsum(map(mu_squared, part)) for part in (one, other)]
    apart = Parallel(parts=(Composition(parts=tuple(one)), Composition(parts=tuple(other))))
    assert mu_squared(apart) == pytest.approx(max(sums), rel=1e-14)
    followed = Composition(parts=(apart, TRAIN))
    assert mu_squared(followed) == pytest.approx(max(sums) + mu_squared(TRAIN), rel=1e-14)
    nested = Parallel(parts=(apart, TRAIN))
    assert mu_squared(nested) == pytest.approx(max(*sums, mu_squared(TRAIN)), rel=1e-14)


@pytest.mark.parametrize("noise", [1.0, 10.0, 100.0])
def test_dp_accounting_agrees_about_most_expensive_part(noise: float) -> None:
    """Three trials beside their counts: each part by a privacy loss distribution of its own."""
    event = Parallel(
        parts=(
            Composition(parts=(TRAIN,) * 3),
            NoisyCount(counts=3, noise=noise, centered=True),
        )
    )
    trials = pld.PLDAccountant().compose(dp_event.GaussianDpEvent(50.0), 300)
    counts = pld.PLDAccountant().compose(dp_event.GaussianDpEvent(noise / math.sqrt(2 / 3)))
    theirs = max(trials.get_epsilon(DELTA), counts.get_epsilon(DELTA))
    ours = accounting.epsilon(accounting.price(event), DELTA)
    assert ours == pytest.approx(theirs, rel=1e-3)
    sigma = min(50.0 / math.sqrt(300), noise / math.sqrt(2 / 3))
    assert ours == pytest.approx(dp_accounting.get_epsilon_gaussian(sigma, DELTA), rel=1e-9)
    assert accounting.direct_epsilon([event], DELTA) == pytest.approx(ours, rel=1e-9)
    assert accounting.rdp_epsilon([event], DELTA) >= ours


@pytest.mark.parametrize(
    "event",
    [
        Parallel(parts=(TRAIN, SCORES)),
        Parallel(parts=(Composition(parts=(TRAIN, TRAIN)), SCORES)),
        Composition(parts=(Parallel(parts=(TRAIN, SCORES)), TRAIN)),
    ],
)
def test_parallel_events_survive_json(event: Event) -> None:
    plain = json.loads(json.dumps(event_to_dict(event)))
    assert event_from_dict(plain) == event
    assert mu_squared(event_from_dict(plain)) == mu_squared(event)


def test_a_list_of_parts_becomes_a_tuple() -> None:
    event = Parallel(parts=[TRAIN, SCORES])  # type: ignore[arg-type]
    assert event.parts == (TRAIN, SCORES)
    assert hash(event) == hash(Parallel(parts=(TRAIN, SCORES)))


@pytest.mark.parametrize(
    "part",
    [
        SAMPLED,
        Composition(parts=(TRAIN, SAMPLED)),
        Parallel(parts=(SAMPLED,)),
        RandomStopping(trial=TRAIN, expected_trials=5.0),
    ],
)
@pytest.mark.parametrize("slack", [0.0, 1e-8])
def test_parts_with_a_failure_probability_are_refused(part: Event, slack: float) -> None:
    """The failures would have to be compared too, which nobody needs yet."""
    event = Parallel(parts=(TRAIN, part))
    with pytest.raises(UnpricedEvent, match="no accountant"):
        accounting.price(event, slack=slack)
    with pytest.raises(UnpricedEvent, match="no accountant"):
        accounting.direct_epsilon([event], DELTA)


@pytest.mark.parametrize("parts", [(), ("a run",)])
def test_a_parallel_event_needs_events(parts: tuple[Event, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"needs|consist of"):
        Parallel(parts=parts)


def test_the_statement_names_the_sampler_of_the_parts() -> None:
    promise = accounting.guarantee(
        [Parallel(parts=(TRAIN, SCORES))],
        DELTA,
        covers_search=True,
        covers_selection=True,
        releases=("a model",),
    )
    assert promise.sampler == "all rows in every step (full batch)"
    assert promise.accountant == "Gaussian DP, exact"
    assert promise.mu == pytest.approx(max(0.2, math.sqrt(2 / 3) / 10))
