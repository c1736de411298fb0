"""What rate a new last layer would like: it alone, trained on stored features of a frozen network.

    python benchmarks/head_rates.py FEATURES.npz --epsilon 0.7,8

All else is as where the network is trained with it: 100 steps of Adam at a rate that falls to
nothing, samples of 512 rows, clipping norm 0.1, delta 1 / (2 rows). Nobody pays for the choice of
a rate: take public rows. Prints test accuracies in percent.
"""

import argparse
from statistics import fmean

from dptune.accounting.calibration import calibrate_direct
from dptune.bench.tables import Table
from dptune.bench.tasks import load_task
from dptune.engines import LinearEngine, Randomness
from dptune.plan import TrainPlan

STEPS, SAMPLE = 100, 512
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    asked.add_argument("features")
    asked.add_argument("--epsilon", default="0.7,8")
    asked.add_argument("--repeats", type=int, default=3)
    given = asked.parse_args()
    task = load_task(f"{given.features}?unscaled")
    engine = LinearEngine(outputs=task.outputs, bias=True)
    rows, rate = task.train.count, SAMPLE / task.train.count
    shown: list[list[float]] = []
    for epsilon in map(float, given.epsilon.split(",")):
        noise = calibrate_direct(
            epsilon=epsilon, delta=1 / (2 * rows), steps=STEPS, sampling_rate=rate
        ).noise_multiplier
        shown.append([epsilon])
        for each in RATES:
            plan = TrainPlan(
                rows=rows, steps=STEPS, learning_rate=each, noise_multiplier=noise, clip_norm=0.1,
                sampling_rate=rate, optimizer="adam", schedule="linear",
            )  # fmt: skip
            streams = [Randomness(seed=seed) for seed in range(given.repeats)]
            models = engine.fit_many([plan] * given.repeats, task.train, streams)
            found = engine.evaluate_many(models, task.test)
            shown[-1].append(100 * fmean(one.correct / one.rows for one in found))
    headings = {"epsilon": "g"} | {f"{each:g}": ".1f" for each in RATES}
    print(Table(headings, shown).markdown(), end="")


if __name__ == "__main__":
    main()
