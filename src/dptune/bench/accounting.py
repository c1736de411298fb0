"""The time of computing prices, compared with other packages in one run."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from dptune import accounting
from dptune.accounting import Budget
from dptune.errors import MissingExtra
from dptune.privacy import SampledRun

EPSILON, DELTA, STEPS, SLACK = 1.0, 1e-5, 100, 1e-7
SAMPLED_RUNS = [
    SampledRun(sampling_rate=0.1, noise_multiplier=2.0, steps=100),
    SampledRun(sampling_rate=0.01, noise_multiplier=1.0, steps=1_000),
    SampledRun(sampling_rate=0.01, noise_multiplier=1.0, steps=10_000),
    SampledRun(sampling_rate=0.01, noise_multiplier=20.0, steps=10_000),
    SampledRun(sampling_rate=0.001, noise_multiplier=1.0, steps=10_000),
]


def measure(report: Callable[[str], None]) -> dict[str, Any]:
    """Time full-batch calibration against two other packages, and the price of sampled runs."""
    return {
        "full_batch_calibration": {
            "epsilon": EPSILON,
            "delta": DELTA,
            "steps": STEPS,
            "routes": _calibration_routes(report),
        },
        "sampled_prices": [_sampled_price(run, report) for run in SAMPLED_RUNS],
    }


def _calibration_routes(report: Callable[[str], None]) -> list[dict[str, Any]]:
    routes: list[tuple[str, Callable[[], float], int]] = [
        ("dptune", _ours, 200),
        ("dp-accounting, PLD", _pld_route(), 1),
        ("prv-accountant, find_noise_multiplier", _prv_route(), 1),
    ]
    results: list[dict[str, Any]] = []
    for name, calibrate, repeats in routes:
        report(f"calibrating with {name}")
        noise, seconds = _time(calibrate, repeats)
        ratio = seconds / results[0]["seconds"] if results else 1.0
        results.append(
            {"route": name, "noise_multiplier": noise, "seconds": seconds, "ratio": ratio}
        )
    return results


def _ours() -> float:
    mu = Budget(EPSILON, DELTA).mu
    return accounting.calibrate_full_batch(mu=mu, steps=STEPS).noise_multiplier


def _pld_route() -> Callable[[], float]:
    import dp_accounting
    from dp_accounting import pld

    def event(noise: float) -> dp_accounting.DpEvent:
        return dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise), STEPS)

    bracket = dp_accounting.ExplicitBracketInterval(10.0, 100.0)

    def calibrate() -> float:
        return float(
            dp_accounting.calibrate_dp_mechanism(
                pld.PLDAccountant, event, EPSILON, DELTA, bracket, tol=1e-4
            )
        )

    return calibrate


def _prv_route() -> Callable[[], float]:
    try:
        from prv_accountant.dpsgd import find_noise_multiplier
    except ImportError:
        raise MissingExtra(
            "this comparison needs prv-accountant: pip install 'dptune[bench]'."
        ) from None

    def calibrate() -> float:
        return float(
            find_noise_multiplier(
                sampling_probability=1.0,
                num_steps=STEPS,
                target_epsilon=EPSILON,
                target_delta=DELTA,
                eps_error=0.01,
            )
        )

    return calibrate


def _sampled_price(run: SampledRun, report: Callable[[str], None]) -> dict[str, Any]:
    from dp_accounting import dp_event, pld

    report(f"pricing {run.steps:,} sampled steps at rate {run.sampling_rate:g}")
    step = dp_event.PoissonSampledDpEvent(
        run.sampling_rate, dp_event.GaussianDpEvent(run.noise_multiplier)
    )

    def by_pld() -> float:
        accountant = pld.PLDAccountant()  # its default grid
        return float(accountant.compose(step, run.steps).get_epsilon(DELTA))

    mu, seconds = _time(lambda: accounting.price(run, slack=SLACK).mu, 3)
    pld_epsilon, pld_seconds = _time(by_pld, 1)
    return {
        "sampling_rate": run.sampling_rate,
        "noise_multiplier": run.noise_multiplier,
        "steps": run.steps,
        "mu": mu,
        "seconds": seconds,
        "epsilon": accounting.direct_epsilon([run], DELTA),
        "pld_epsilon": pld_epsilon,
        "pld_seconds": pld_seconds,
        "ratio": pld_seconds / seconds,
    }


def _time(work: Callable[[], float], repeats: int) -> tuple[float, float]:
    """The last result and the median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return result, median(times)
