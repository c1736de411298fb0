"""Which rows a step reads: batches, augmented copies, subsets."""

from dptune import gdp
from dptune.accounting import Budget, calibrate_direct
from dptune.bench.tables import Table
from reproduction import paper
from reproduction.augmented import load_augmented
from reproduction.charts import Picture, Plot, Series
from reproduction.experiment import UNKNOWN, Experiment, Result
from reproduction.experiments.recipe import sampling_rate
from reproduction.lab import DELTA, Lab, priced

_FRACTIONS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
_COPIES = (1, 2, 4, 8, 16)
_ACCURACY = {"accuracy": ".2f", "spread": ".2f"}
_SETTING = {"learning rate": ".4g", "c": ".2f"}


def _batch_size(lab: Lab) -> Result:
    task, budget = lab.task(lab.source), Budget(1.0, DELTA)
    rows: list[list[object]] = []
    rates = (sampling_rate(task), 0.2, 0.5, None)
    series = []
    for label in ("same number of epochs", "same number of steps"):
        found = []
        for rate in rates:
            epochs = label.endswith("epochs")
            steps = round(lab.effort.epochs / rate) if rate and epochs else lab.effort.epochs
            plan, runs = lab.tuned(lab.source, priced(task, budget, steps, sampling_rate=rate))
            found.append(runs)
            rows.append(
                [
                    label,
                    1.0,
                    round(plan.divisor),
                    steps,
                    plan.noise_multiplier,
                    runs.mean,
                    runs.spread,
                    plan.learning_rate,
                    plan.weight_noise,
                    None,
                ]
            )
        sizes = [(rate or 1.0) * task.train.count for rate in rates]
        series.append(Series(label, sizes, [r.mean for r in found], [r.spread for r in found]))
    for sampled, steps, known in paper.NOISE_AT_A_HUNDREDTH:
        if sampled is None:
            noise = gdp.noise_multiplier(gdp.mu_from_epsilon(0.01, DELTA), steps)
        else:
            noise = calibrate_direct(
                epsilon=0.01, delta=DELTA, steps=steps, sampling_rate=sampled
            ).noise_multiplier
        batch = "all rows" if sampled is None else f"{sampled:g} of the rows"
        rows.append(
            ["noise only", 0.01, batch, steps, noise, *[None] * 4, f"noise multiplier {known:g}"]
        )
    return Result(
        Table(
            {
                "compared at": "",
                "epsilon": "g",
                "batch": ",d",
                "steps": ",d",
                "noise multiplier": ".5g",
                **_ACCURACY,
                **_SETTING,
                "paper": "",
            },
            rows,
        ),
        Picture(
            f"{task.name}: batches drawn by Poisson sampling, epsilon 1",
            [
                Plot(
                    "mean and standard deviation, each at its best learning rate",
                    "expected batch (rows)",
                    "test accuracy (%)",
                    series,
                    xlog=True,
                )
            ],
        ),
        notes=(
            "The paper's noise multipliers at epsilon 0.01 come from an accountant that rounds up; "
            "ours are the exact ones, so a little smaller.",
        ),
    )


def _augmult(lab: Lab) -> Result:
    columns = {"copies": "d", **_ACCURACY, **_SETTING, "note": ""}
    task = load_augmented(lab.source, device=lab.device)
    if task is None:
        note = "not run: these features come without augmented copies"
        return Result(Table(columns, [[None, None, None, None, None, note]]))
    augmented = lab.changed(lab.source, "augmented", task)
    rows: list[list[object]] = []
    found = []
    counts = [count for count in _COPIES if count <= task.train.copies]
    for count in counts:
        wanted = priced(task, Budget(1.0, DELTA), lab.effort.steps, augmentations=count)
        plan, runs = lab.tuned(augmented, wanted)
        found.append(runs)
        rows.append([count, runs.mean, runs.spread, plan.learning_rate, plan.weight_noise, ""])
    return Result(
        Table(columns, rows),
        Picture(
            f"{task.name}: gradients averaged over augmented copies, epsilon 1",
            [
                Plot(
                    "mean and standard deviation, each at its best learning rate",
                    "copies of each row",
                    "test accuracy (%)",
                    [Series("dptune", counts, [r.mean for r in found], [r.spread for r in found])],
                    xlog=True,
                )
            ],
        ),
    )


def _subset_noise(lab: Lab) -> Result:
    task, budget = lab.task(lab.source), Budget(1.0, DELTA)
    steps = lab.effort.steps
    rows: list[list[object]] = []
    few, noisy, used = [], [], []
    for fraction in _FRACTIONS:
        count = max(task.outputs, round(fraction * task.train.count))
        mark = "&" if "?" in lab.source else "?"
        source = lab.source if fraction == 1.0 else f"{lab.source}{mark}rows={count}"
        small = lab.task(source)
        _, subset = lab.tuned(source, priced(small, budget, steps))
        mu = budget.mu * small.train.count / task.train.count
        _, more = lab.tuned(lab.source, priced(task, budget, steps, mu=mu))
        few.append(subset)
        noisy.append(more)
        used.append(small.train.count)
        rows.append(
            [
                fraction,
                small.train.count,
                subset.mean,
                subset.spread,
                gdp.epsilon_from_mu(mu, DELTA),
                more.mean,
                more.spread,
            ]
        )
    return Result(
        Table(
            {
                "fraction": "g",
                "rows": ",d",
                "accuracy, subset at epsilon 1": ".2f",
                "spread": ".2f",
                "epsilon of all rows": ".4f",
                "accuracy, all rows": ".2f",
                "spread of all rows": ".2f",
            },
            rows,
        ),
        Picture(
            f"{task.name}: fewer rows against more noise, with the same noise a row",
            [
                Plot(
                    "mean and standard deviation, each at its best learning rate",
                    "rows of the subset; all rows have noise larger in proportion",
                    "test accuracy (%)",
                    [
                        Series(label, used, [r.mean for r in runs], [r.spread for r in runs])
                        for label, runs in (
                            ("subset, epsilon 1", few),
                            ("all rows, a smaller epsilon", noisy),
                        )
                    ],
                    xlog=True,
                )
            ],
        ),
    )


EXPERIMENTS = (
    Experiment(
        "batch-size",
        "Batch size",
        "Full batches are best. For epsilon 0.01 it needs noise multiplier 2561 for 100 full-batch "
        "steps and 1145 for 500 steps with a fifth of the rows each; accuracies are "
        + UNKNOWN
        + ".",
        "Poisson sampling; the same number of epochs, and the same number of steps.",
        _batch_size,
    ),
    Experiment(
        "augmult",
        "Augmentation multiplicity",
        "Copies of a row are averaged before clipping; accuracies are " + UNKNOWN + ".",
        "Needs features of augmented copies: see docs/benchmarks.md.",
        _augmult,
    ),
    Experiment(
        "subset-noise",
        "A subset of the rows against more noise",
        "Trials on a subset save time rather than privacy, and small subsets may rank learning "
        "rates differently; accuracies are " + UNKNOWN + ".",
        "A subset at epsilon 1 beside all rows at the mu that gives the same noise a row.",
        _subset_noise,
    ),
)
