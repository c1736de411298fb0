"""Streams: fresh where they protect rows, reproducible where they are public."""

import itertools
import pickle
import secrets

import numpy as np
import pytest
import torch
from scipy import stats

from dptune.data.rows import MemoryRows
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.engines.randomness import Randomness, Stream, seed_torch
from dptune.plan import TrainPlan

CPU = torch.device("cpu")


def numbers(stream: Stream) -> list[float]:
    """Some of each kind."""
    normal = stream.normal_(torch.empty(4, dtype=torch.float64))
    return [*stream.uniform(4).tolist(), *normal.tolist()]


def nothing_but_noise(*randomness: Randomness, columns: int = 30) -> list[LinearModel]:
    """Rows of zeros have no gradient, so the weights are noise."""
    rows = MemoryRows(np.zeros((4, columns)), np.array([0, 1, 2, 0]), precision="float64")
    plan = TrainPlan(rows=4, steps=2, learning_rate=1.0, noise_multiplier=1.0, momentum=0.0)
    return LinearEngine(outputs=3).fit_many([plan] * len(randomness), rows, randomness)


def test_private_streams_differ_however_equal_their_names() -> None:
    noise = [numbers(Randomness(seed=3, trial=1).noise(CPU)) for _ in range(50)]
    sampling = [numbers(Randomness(seed=3, trial=1).sampling(CPU)) for _ in range(50)]
    drawn = list(itertools.chain(*noise, *sampling))
    assert len(set(drawn)) == len(drawn)


def test_trained_weights_never_share_noise_by_default() -> None:
    models = nothing_but_noise(*(Randomness(seed=3, trial=1) for _ in range(6)))
    # On a grid of 2^16 steps a deviation, 1,350 pairs meet 0.004 times by luck.
    same = sum(
        torch.eq(one.weights, other.weights).sum().item()
        for one, other in itertools.combinations(models, 2)
    )
    assert same <= 2


def test_one_private_stream_used_for_two_trials_does_not_repeat_its_noise() -> None:
    """The difference of two such models would hold no noise at all."""
    randomness = Randomness()
    first, second = nothing_but_noise(randomness, randomness)
    assert not torch.equal(first.weights, second.weights)


def test_one_private_stream_used_for_two_runs_does_not_repeat_its_noise() -> None:
    randomness = Randomness()
    (first,), (second,) = nothing_but_noise(randomness), nothing_but_noise(randomness)
    assert not torch.equal(first.weights, second.weights)


def test_a_private_stream_that_was_stored_and_resumed_does_not_repeat_its_noise() -> None:
    randomness = Randomness(seed=3, trial=1)
    stored = pickle.dumps(randomness)
    (before,) = nothing_but_noise(randomness)
    (after,) = nothing_but_noise(pickle.loads(stored))
    assert not torch.equal(before.weights, after.weights)


@pytest.mark.parametrize("bit", [0, 31, 32, 63, 64, 127])
def test_private_streams_depend_on_every_bit_of_entropy(
    monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    """torch's generator on a CPU keeps the low 32 bits of a seed: few enough to try them all."""
    asked = []

    def drawn_with(entropy: int) -> list[list[float]]:
        def randbits(bits: int) -> int:
            asked.append(bits)
            return entropy

        monkeypatch.setattr(secrets, "randbits", randbits)
        return [numbers(Randomness().noise(CPU)), numbers(Randomness().sampling(CPU))]

    entropy = 0x123456789ABCDEF0FEDCBA9876543210
    one, other = drawn_with(entropy), drawn_with(entropy ^ (1 << bit))
    assert min(asked) >= 128
    assert not set(one[0]) & set(other[0])
    assert not set(one[1]) & set(other[1])


def test_a_research_seed_repeats_its_noise_and_samples() -> None:
    one, two = Randomness(noise_seed=7), Randomness(noise_seed=7)
    assert numbers(one.noise(CPU)) == numbers(two.noise(CPU))
    assert numbers(one.sampling(CPU)) == numbers(two.sampling(CPU))
    (first,), (second,) = nothing_but_noise(one), nothing_but_noise(two)
    assert torch.equal(first.weights, second.weights)


def test_research_streams_differ_by_seed_trial_and_purpose() -> None:
    streams = [
        numbers(stream)
        for seed, trial in itertools.product((0, 1, 7, 2**32, 2**40), (0, 1, 2))
        for stream in (
            Randomness(trial=trial, noise_seed=seed).noise(CPU),
            Randomness(trial=trial, noise_seed=seed).sampling(CPU),
            Randomness(seed=seed, trial=trial).initial(),
        )
    ]
    drawn = list(itertools.chain(*streams))
    assert len(set(drawn)) == len(drawn)


def test_initial_weights_are_reproducible_and_know_nothing_of_the_noise() -> None:
    expected = numbers(Randomness(seed=5, trial=2).initial())
    assert numbers(Randomness(seed=5, trial=2).initial()) == expected
    assert numbers(Randomness(seed=5, trial=2, noise_seed=9).initial()) == expected
    assert numbers(Randomness(seed=6, trial=2).initial()) != expected
    assert numbers(Randomness(seed=5, trial=3).initial()) != expected


def test_a_known_noise_seed_is_not_private() -> None:
    assert Randomness(seed=1, trial=2).is_private
    assert not Randomness(noise_seed=0).is_private


def test_secrets_are_not_kept_where_they_could_be_printed_or_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(secrets, "randbits", lambda bits: 987654321)
    randomness = Randomness()
    stream = randomness.noise(CPU)
    assert "987654321" not in f"{randomness!r} {vars(randomness)} {stream!r}"


def test_streams_are_uniform_and_normal_in_each_precision() -> None:
    stream = Randomness(noise_seed=1).noise(CPU)
    assert stats.kstest(stream.uniform(20_000).numpy(), "uniform").pvalue > 1e-4
    for dtype in (torch.float64, torch.float32):
        normal = stream.normal_(torch.empty(200, 100, dtype=dtype))
        assert normal.dtype == dtype
        assert stats.kstest(normal.flatten().double().numpy(), "norm").pvalue > 1e-4


def test_trials_do_not_shift_each_others_numbers() -> None:
    streams = [Randomness(trial=trial, noise_seed=11) for trial in range(4)]
    together = nothing_but_noise(*streams)
    alone = nothing_but_noise(streams[2])
    assert torch.equal(together[2].weights, alone[0].weights)


def test_seed_torch_draws_what_manual_seed_draws() -> None:
    torch.manual_seed(5)
    expected = torch.rand(4)
    seed_torch(5)
    assert torch.equal(torch.rand(4), expected)
