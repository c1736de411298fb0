"""What is released of a noisy sum: its last bits tell nothing of the sum beneath."""

import ast
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy.integrate import quad
from scipy.stats import kstest, norm

import dptune
from dptune.engines.per_row import add_noise_
from dptune.engines.randomness import Randomness, fill_in_pairs_
from dptune.noise import add_noise, grid_step, rounder
from dptune.study.measure import fresh_normal

Array = NDArray[np.float64]
CPU = torch.device("cpu")
_MANTISSA = 2**52


# The attack: NumPy's normal numbers are whole numbers below 2^52 times one of 256 constants


@cache
def constants() -> Array:
    """Read off NumPy's own draws: the first word of each says which constant it is, and which
    whole number it was multiplied by."""
    draws = 60_000
    bits = np.random.PCG64DXSM(1)
    words, numbers = np.empty(draws, np.uint64), np.empty(draws)
    generator = np.random.Generator(bits)
    for draw in range(draws):
        state = bits.state
        words[draw] = bits.random_raw()
        bits.state = state
        numbers[draw] = generator.standard_normal()
    which = (words & np.uint64(0xFF)).astype(int)
    whole = ((words >> np.uint64(9)) & np.uint64(_MANTISSA - 1)).astype(np.float64)
    found = np.zeros(256)
    for constant in range(256):
        here = (which == constant) & (whole > 0)
        near = float(np.median(np.abs(numbers[here]) / whole[here]))
        candidates = [near]
        for direction in (0.0, math.inf):
            candidates += [math.nextafter(near, direction)]
        # Some draws went on to other words; most are this product, to the last bit.
        hits = [(np.abs(numbers[here]) == whole[here] * c).sum() for c in candidates]
        found[constant] = candidates[int(np.argmax(hits))]
        assert max(hits) > 0.8 * here.sum() or constant < 2
    return found


def likelihood(released: Array, exact: Array, noise: float) -> float:
    """Log likelihood of noisy float64 sums, by the products that would give them to the last bit.
    Few draws are none: those in the tail."""
    numbers = (released - exact)[:, None] / noise
    whole, ways = np.rint(np.abs(numbers) / constants()), np.zeros(len(released))
    for nearby in (-1, 0, 1):
        products = np.sign(numbers) * ((whole + nearby) * constants())
        fits = (whole + nearby >= 0) & (whole + nearby < _MANTISSA)
        ways += (fits & (exact[:, None] + noise * products == released[:, None])).sum(1)
    return float(np.log(np.maximum(ways, 1e-3)).sum())


def told_apart(noisy: Any, tries: int) -> int:
    """How often the attack says rightly which of two data sets 500 noisy sums came from."""
    chance, right, noise = np.random.default_rng(0), 0, 40.0
    for _ in range(tries):
        sums = chance.integers(-(2**30), 2**30, size=500) * 2.0**-24
        others = sums + chance.integers(-(2**20), 2**20, size=500) * 2.0**-24  # one row more
        released = noisy(sums, noise)
        right += likelihood(released, sums, noise) > likelihood(released, others, noise)
    return right


def test_the_attack_tells_sums_whose_last_bits_are_seen_and_no_others() -> None:
    """By luck alone it would be right so often once in ten million."""
    assert told_apart(lambda sums, noise: sums + noise * fresh_normal(sums.shape), 24) == 24
    assert told_apart(lambda sums, noise: add_noise(sums, noise, fresh_normal), 24) < 24


def probability_of_step(released: Array, exact: Array, noise: float) -> tuple[Array, Array]:
    """That a noisy sum is rounded to this step of the grid: by counting the products of each
    constant that fall into it, and by the normal distribution. Within the 255 layers, where a
    product is kept or not as the density says, both are shares of the same boxes."""
    step = grid_step(noise)
    low, high = ((released - exact + side * step / 2) / noise for side in (-1, 1))
    widths = constants() * _MANTISSA  # of the boxes, of equal area
    layers = widths[None] > np.maximum(np.abs(low), np.abs(high))[:, None]
    products = np.floor(high[:, None] / constants()) - np.floor(low[:, None] / constants())
    counted = (products * layers / _MANTISSA).sum(1)
    true = ((high - low)[:, None] * layers / widths).sum(1)
    return counted, true


def test_all_sums_are_as_likely_beneath_what_is_released_as_they_should_be() -> None:
    """All sums are possible beneath what is released, and each is as likely as by the priced
    mechanism, to what docs/design/noise.md says."""
    chance, noise = np.random.default_rng(0), 40.0
    sums = chance.integers(-(2**30), 2**30, size=2000) * 2.0**-24
    others = sums + chance.integers(-(2**20), 2**20, size=2000) * 2.0**-24
    released = add_noise(sums, noise, fresh_normal)
    inside = np.abs(released - sums) < 3 * noise  # beyond lies the tail, see docs/design/noise.md
    assert inside.mean() > 0.9
    for beneath in (sums, others):
        counted, true = probability_of_step(released[inside], beneath[inside], noise)
        assert (counted > 0).all()
        assert np.abs(np.log(counted / true)).max() < 2.5e-10


def test_bound_of_what_last_bits_tell_is_what_pages_say() -> None:
    """By the numbers alone: a step may have one product more or less at either end."""
    products = []
    for noise in (1e-3, 1.0, 1.9999, 40.0, 1e6):
        assert 2.0**-17 < grid_step(noise) / noise <= 2.0**-16
        products.append(grid_step(noise) / (noise * constants().max()))
    assert min(products) > 8e9
    one = 2 / 8e9
    assert one <= 2.5e-10
    many, failing = 1e10, 1e-10
    assert many * one**2 / 2 + one * math.sqrt(2 * many * math.log(1 / failing)) < 2e-4
    # In the tail, 3.65 and what 53 bits of an exponential give; beyond 6.5 deviations is nobody.
    exceeding = math.exp(-3.65 * (6.5 - 3.65))
    assert 2 / (2.0**-17 * 3.65 * exceeding * 2**53) < 3e-7 and 2 * norm.sf(6.5) < 1e-10


# The same of noise that is made in pairs, as on a GPU: a pair is two whole numbers below 2^53


def pairs_as_on_a_gpu(shape: tuple[int, ...]) -> Array:
    """What torch's kernel does (curand_normal2_double), number by number."""
    chance = np.random.default_rng(7)
    length, angle = (chance.integers(_MANTISSA * 2, size=shape[1]) for _ in range(2))
    sizes = np.sqrt(-2 * np.log((length + 0.5) * 2.0**-53))
    turns = np.pi * (angle + 0.5) * 2.0**-52
    return np.stack([sizes * np.sin(turns), sizes * np.cos(turns)])


def share_that_fits(released: Array, exact: Array, noise: float) -> float:
    """Of pairs whose whole number can be computed to a tenth, how many have one."""
    numbers = (released - exact) / noise
    squares = (numbers**2).sum(0)
    uniform = np.exp(-squares / 2)
    off = np.sqrt(squares) * np.spacing(np.abs(released)).max(0) / noise + squares * 2.0**-52
    room = 2 * uniform * off * 2.0**53
    whole = uniform * 2.0**53 - 0.5
    computable = (room < 0.1) & (uniform < 2.0**-6)  # near 1, float64 has no finer digits
    assert computable.sum() > 100
    return float((np.abs(whole - np.rint(whole)) <= room)[computable].mean())


def test_the_attack_on_pairs_tells_sums_whose_last_bits_are_seen_and_no_others() -> None:
    chance, noise, many = np.random.default_rng(0), 40.0, 200_000
    sums = chance.integers(-(2**30), 2**30, size=(2, many)) * 2.0**-24
    others = sums + chance.integers(-(2**20), 2**20, size=(2, many)) * 2.0**-24
    drawn = pairs_as_on_a_gpu((2, many))
    seen, rounded = sums + noise * drawn, add_noise(sums, noise, lambda shape: drawn)
    assert share_that_fits(seen, sums, noise) > 0.99 > 0.3 > share_that_fits(seen, others, noise)
    difference = share_that_fits(rounded, sums, noise) - share_that_fits(rounded, others, noise)
    assert abs(difference) < 0.2, "by luck alone it is more once in a million"


def test_pairs_far_from_zero_are_as_many_as_elsewhere() -> None:
    """At 7.2 deviations torch's kernel has 2.7 lengths to a step of the grid. Here they do not come
    from whole numbers: in the tail a uniform number is as fine as float64."""
    radius, step = 7.2, 2.0**-17
    assert radius * math.exp(-(radius**2) / 2) * step * 2**53 < 3
    kernel, zeros = pairs_as_on_a_gpu((2, 200_000)), np.zeros((2, 200_000))
    drawn = torch.empty(2, 200_000, dtype=torch.float64)
    ours = fill_in_pairs_(drawn, torch.Generator().manual_seed(1)).numpy()
    assert share_that_fits(kernel, zeros, 1.0) > 0.99 > 0.3 > share_that_fits(ours, zeros, 1.0)


def test_bound_of_what_last_bits_of_pairs_tell_is_what_pages_say() -> None:
    """A step at r deviations has r 2^36 lengths and 2^36 / (2 pi r) angles or more: up to two more
    or less of each at either end."""
    pairs, failing, least = 5e9, 1e-10, 2.0**-17

    def square(r: float) -> float:
        return ((4 / r + 8 * math.pi * r) / 2**36) ** 2

    mean, _ = quad(
        lambda log: math.exp(2 * log - math.exp(2 * log) / 2) * square(math.exp(log)),
        math.log(least),
        math.log(40),
        limit=200,
    )
    mean += least**2 / 2 * square(least)
    assert square(0.01) < 6e-9**2 and square(9.0) < 6e-9**2
    assert pairs * mean / 2 + math.sqrt(2 * pairs * mean * math.log(1 / failing)) < 3e-4


def test_pairs_are_normal_and_independent() -> None:
    """By moments and by the distribution, at levels that luck misses once in a million."""
    for many in (1, 400_001):
        out = torch.empty(many, dtype=torch.float64)
        drawn = fill_in_pairs_(out, torch.Generator().manual_seed(3)).numpy()
        assert np.isfinite(drawn).all() and drawn.shape == (many,)
    assert kstest(drawn, "norm").pvalue > 1e-6
    first, second = drawn[:200_000], drawn[200_001:]
    for one, other in ((first, second), (first**2 - 1, second**2 - 1)):
        assert abs(float((one * other).mean())) < 5 * 2 / math.sqrt(200_000)
    long = torch.empty(2, 5, dtype=torch.float64)
    assert len({*fill_in_pairs_(long, torch.Generator()).flatten().tolist()}) == 10


# What is added, and where it lies


@given(
    noise=st.floats(1e-9, 1e9),
    exact=st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
)
def test_noisy_sums_lie_on_the_grid_and_are_rounded_to_the_nearest(
    noise: float, exact: list[float], seed: int
) -> None:
    drawn = np.random.default_rng(seed).normal(size=len(exact))
    found = add_noise(np.array(exact), noise, lambda shape: drawn)
    step = grid_step(noise)
    np.testing.assert_array_equal(np.rint(found / step) * step, found)
    wanted = np.array(exact) + noise * drawn
    # Sums of far more than the noise have a coarser grid of their own.
    assert (np.abs(found - wanted) <= np.maximum(step / 2, np.abs(wanted) * 2.0**-51)).all()


def test_tensors_and_arrays_are_rounded_alike() -> None:
    for noise in (0.7, 30.0):
        exact = np.random.default_rng(1).normal(size=100) * 50
        stream = Randomness(noise_seed=3).noise(CPU)
        found = add_noise_(torch.tensor(exact), noise, stream).numpy()
        drawn = Randomness(noise_seed=3).noise(CPU).normal_(torch.empty(100).double()).numpy()
        np.testing.assert_array_equal(found, add_noise(exact, noise, lambda shape, d=drawn: d))


def test_each_sum_may_have_noise_of_its_own() -> None:
    noise = np.array([1.0, 64.0, 0.0])
    found = add_noise(np.array([0.3, 0.3, 0.3]), noise, lambda shape: np.ones(shape))
    assert found[0] != 1.3 and abs(found[0] - 1.3) <= 2.0**-17
    assert found[1] != 64.3 and abs(found[1] - 64.3) <= 2.0**-11
    assert found[2] == 0.3 and rounder(0.0) == 0, "without noise nothing is rounded"


def test_the_smallest_and_the_largest_noise_give_numbers() -> None:
    for noise in (5e-324, 1e-300, 1e-100, 1e100):
        assert np.isfinite(add_noise(np.array([1.0]), noise, fresh_normal)).all()


def test_rounding_does_not_change_the_noise() -> None:
    """By chi-square, at a level that luck misses once in a million."""
    many = 40_000
    found = add_noise(np.zeros(many), 5.0, fresh_normal) / 5.0
    assert float((found**2).mean()) == pytest.approx(1, abs=norm.isf(5e-7) * math.sqrt(2 / many))


# Nothing else adds noise


DRAWS = {"normal_", "standard_normal", "stream_normal", "fresh_normal", "drawn", "normal", "randn"}
DRAWS |= {"fill_in_pairs_", "randn_like", "laplace", "gauss", "normalvariate", "exponential_"}
DRAWS |= {"multivariate_normal", "standard_t", "gumbel", "log_normal_", "cauchy_"}
ALLOWED = {
    "noise.py",
    "validate.py",  # which asks for it
    "engines/randomness.py",  # which makes it
    "engines/per_row.py",  # add_noise_, for tensors
    "engines/release.py",  # the same for many trials at once
    "engines/linear.py",  # first weights: public
    "engines/modules/zeroth_order.py",  # directions: public
    "engines/promises.py",  # made-up rows
    "engines/modules/made_up.py",  # of rows and weights that are nobody's
    "engines/modules/module_model.py",
    "engines/modules/standardized.py",
    "columns/marks.py",  # noise that is not independent
    "search/score.py",  # nor is this
    "study/measure.py",  # fresh_normal
}


def test_noise_is_drawn_in_few_places_only() -> None:
    """A sum with noise that went around `dptune.noise` would be seen as it was added up."""
    root = Path(dptune.__file__).parent
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and _called(node) in DRAWS
    }
    outside = {name for name in found if not name.startswith(("bench/", "pictures/"))}
    assert outside <= ALLOWED, "add noise by dptune.noise.add_noise"
    assert {"noise.py", "engines/randomness.py"} <= found


def _called(node: ast.Call) -> Any:
    function = node.func
    return getattr(function, "attr", getattr(function, "id", None))


def test_what_a_study_releases_of_sums_lies_on_their_grids(tmp_path: Path) -> None:
    """Its files, the published model among them, and its counts: each number is a whole number of
    steps, divided by public numbers."""
    chance = np.random.default_rng(0)
    features = chance.normal(size=(4000, 120)) + 0.5
    data = dptune.Data(features, (features[:, :3].sum(1) > 1.5).astype(int))
    folder, space = tmp_path / "run", dptune.Space(learning_rate=(0.1, 10.0), steps=(5, 5))
    result = dptune.tune(data, budget=dptune.Budget(4.0, 1e-5), space=space, out=folder)
    events = {
        payment.purpose.partition(" (")[0]: payment.event
        for payment in dptune.Ledger.open(folder / "ledger.db").state().payments
    }
    files = {name: load_file(folder / f"models/{name}.safetensors") for name in FIGURES.values()}
    released = {
        (label, name): tensor.numpy()
        for label, name in FIGURES.items()
        for tensor in files[name].values()
    }
    rows, model = 4000, load_file(folder / "model.safetensors")
    (subtracted,) = (array for name, array in model.items() if name.endswith(".mean"))
    np.testing.assert_array_equal(subtracted, released["private mean", "mean"])
    for (label, name), found in released.items():
        event: Any = events[label]
        noise = event.noise if name == "lengths" else event.noise_multiplier
        step = grid_step(
            noise / math.sqrt(2)
        )  # of what is off the diagonal, and finer than that on it
        steps = found * (1 if name == "lengths" else rows) / step
        assert np.abs(steps).max() > 1000
        assert np.abs(steps - np.rint(steps)).max() < 1e-3, name
    assert result.census is not None and result.check is not None
    census: Any = events["census"]
    counts = np.array(result.census.classes) / grid_step(census.noise)
    np.testing.assert_array_equal(counts, np.rint(counts))


FIGURES = {"row lengths": "lengths", "private mean": "mean", "second moment": "second_moment"}
