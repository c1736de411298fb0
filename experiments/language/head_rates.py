"""What rate a new last layer would like: it alone, trained on stored features of a frozen network.

All else is as where the network is trained with it: 100 steps of Adam at a rate that falls to
nothing, samples of 512 rows, clipping norm 0.1, delta 1 / (2 rows). Nobody pays for the choice of
a rate: take public rows.
"""

from collections.abc import Sequence
from statistics import fmean

from dptune.accounting.calibration import calibrate_direct
from dptune.bench.tables import Table
from dptune.bench.tasks import load_task
from dptune.engines import LinearEngine, Randomness
from dptune.plan import TrainPlan

STEPS, SAMPLE = 100, 512
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)


def measure(features: str, epsilons: Sequence[float], repeats: int) -> Table:
    """Test accuracies in percent by budget and rate."""
    task = load_task(f"{features}?unscaled")
    engine = LinearEngine(outputs=task.outputs, bias=True)
    rows, share = task.train.count, SAMPLE / task.train.count
    shown: list[list[float]] = []
    for epsilon in epsilons:
        noise = calibrate_direct(
            epsilon=epsilon, delta=1 / (2 * rows), steps=STEPS, sampling_rate=share
        ).noise_multiplier
        shown.append([epsilon])
        for rate in RATES:
            plan = TrainPlan(
                rows=rows, steps=STEPS, learning_rate=rate, noise_multiplier=noise, clip_norm=0.1,
                sampling_rate=share, optimizer="adam", schedule="linear",
            )  # fmt: skip
            streams = [Randomness(seed=seed) for seed in range(repeats)]
            models = engine.fit_many([plan] * repeats, task.train, streams)
            found = engine.evaluate_many(models, task.test)
            shown[-1].append(100 * fmean(one.correct / one.rows for one in found))
    return Table({"epsilon": "g"} | {f"{rate:g}": ".1f" for rate in RATES}, shown)
