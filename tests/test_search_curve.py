"""One curve through noisy scores: what it learns, and when it does not listen."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.search import curve

PLACES = (-1.4, 0.0, 1.4)


def tent(top: float, height: float = 4.0, level: float = 80.0) -> list[float]:
    return [level - height * (math.sqrt(1 + (x - top) ** 2) - 1) for x in PLACES]


@pytest.mark.parametrize("prior", [0.45, 0.7])
def test_without_scores_the_prior_stands(prior: float) -> None:
    fitted = curve.fit([], [], noise=1.0, prior_error=prior)
    assert fitted.top == pytest.approx(0, abs=1e-12)
    assert fitted.top_error == pytest.approx(prior, rel=2e-3)
    assert fitted.height == pytest.approx(4.0, rel=0.01)


@pytest.mark.parametrize("top", [-0.8, -0.3, 0.0, 0.4, 1.0])
@pytest.mark.parametrize("height", [2.0, 4.0, 12.0])
def test_precise_scores_say_where_the_top_is(top: float, height: float) -> None:
    fitted = curve.fit(PLACES, tent(top, height), noise=0.1, prior_error=0.7)
    assert fitted.top == pytest.approx(top, abs=0.05)
    assert fitted.top_error < 0.15
    assert fitted.height == pytest.approx(height, rel=0.1)
    assert fitted.level == pytest.approx(80, abs=0.2)


def test_very_noisy_scores_are_not_listened_to() -> None:
    fitted = curve.fit(PLACES, tent(1.0), noise=1e3, prior_error=0.45)
    assert fitted.top == pytest.approx(0, abs=1e-3)
    assert fitted.top_error == pytest.approx(0.45, rel=5e-3)


def test_the_noisier_the_scores_the_nearer_the_law() -> None:
    tops = [
        curve.fit(PLACES, tent(1.0), noise=noise, prior_error=0.45).top
        for noise in (0.1, 0.5, 1.0, 2.0, 5.0)
    ]
    assert tops == sorted(tops, reverse=True)
    assert tops[0] > 0.9 and tops[-1] < 0.2


@given(
    scores=st.lists(st.floats(0, 100), min_size=3, max_size=3),
    shift=st.floats(-100, 100),
    noise=st.floats(0.3, 10),
)
def test_only_differences_of_scores_matter(scores: list[float], shift: float, noise: float) -> None:
    """Scores are centred before they are released."""
    fitted = curve.fit(PLACES, scores, noise, 0.45)
    moved = curve.fit(PLACES, [score + shift for score in scores], noise, 0.45)
    assert moved.top == pytest.approx(fitted.top, abs=1e-6)
    assert moved.top_error == pytest.approx(fitted.top_error, abs=1e-6)
    assert moved.height == pytest.approx(fitted.height, rel=1e-6)
    assert moved.level == pytest.approx(fitted.level + shift, abs=1e-4)


@given(scores=st.lists(st.floats(0, 100), min_size=3, max_size=3), noise=st.floats(0.3, 10))
def test_mirrored_scores_have_a_mirrored_top(scores: list[float], noise: float) -> None:
    fitted = curve.fit(PLACES, scores, noise, 0.7)
    mirrored = curve.fit(PLACES, scores[::-1], noise, 0.7)
    assert mirrored.top == pytest.approx(-fitted.top, abs=1e-6)


def test_more_trials_make_the_top_surer() -> None:
    few = curve.fit(PLACES, tent(0.4), 1.0, 0.7)
    many = curve.fit(PLACES * 10, tent(0.4) * 10, 1.0, 0.7)
    assert many.top_error < few.top_error / 2
    assert many.top == pytest.approx(0.4, abs=0.1)


def test_the_stated_error_is_about_the_real_one() -> None:
    """Tops and noise drawn as the model says: errors come out as large as stated."""
    random = np.random.default_rng(5)
    scaled = []
    for _ in range(300):
        top, height = random.normal(0, 0.45), 4.0 * math.exp(random.normal(0, 0.7))
        scores = np.array(tent(top, height)) + random.normal(0, 1.0, 3)
        fitted = curve.fit(PLACES, list(scores), 1.0, 0.45)
        scaled.append((fitted.top - top) / fitted.top_error)
    assert np.std(scaled) == pytest.approx(1.0, abs=0.12)


def test_the_curve_falls_on_both_sides_of_its_top() -> None:
    fitted = curve.Curve(top=0.5, top_error=0.1, level=90.0, height=2.0)
    assert fitted.at(0.5) == 90.0
    assert fitted.at(0.5 + math.sqrt(3)) == pytest.approx(88.0)
    assert fitted.at(0.5 - math.sqrt(3)) == pytest.approx(88.0)
