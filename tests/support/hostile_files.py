"""Every reader of bytes that others wrote, with a sound file to damage: for the test suite, and for
the fuzzer that fuzz/readers.py starts.

Whatever a file holds, a reader gives an answer or raises one of our errors.
"""

import gzip
import io
import json
import pickle
import re
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from scipy.io import savemat

from dptune import Budget, Data, Ledger, tune
from dptune.cli.options import read_columns, read_options
from dptune.data.columns_section import columns_section
from dptune.data.disk import write_chunks
from dptune.data.extracted import read_groups
from dptune.data.sources import load_data
from dptune.engines.checkpoint import Checkpoint
from dptune.errors import DptuneError
from dptune.features.find import find_backbone
from dptune.features.from_pictures import extract
from dptune.hub import quiet
from dptune.ledger.chain import next_entry
from dptune.pictures.decode import decode
from dptune.pictures.find import find_pictures
from dptune.pictures.known.class_names import STL10
from dptune.report.card import model_card
from dptune.report.record import Record
from dptune.study.run_folder import RunFolder
from dptune.study.runner import read_census, read_class_names
from dptune.texts.reading import read as read_texts
from dptune.texts.tokenizer import digest_of, load_tokenizer
from support.old_folders import without_digests
from support.pictures import encoded, pixels
from support.studies import stop_after
from support.tiny_models import tiny_tokenizer

COLUMNS = {"age": {"kind": "number", "range": [0, 100]}, "town": {"kind": "category", "buckets": 4}}


@dataclass(frozen=True)
class Reader:
    """What reads `file`, which soundly holds `content`; `write` puts other content in its place."""

    file: Path
    content: bytes
    read: Callable[[Path], object]
    write: Callable[[Path, bytes], object] = Path.write_bytes

    def attempt(self, content: bytes) -> DptuneError | None:
        """The error that names a fault of the file while it holds `content`, None where it can be
        read. Any other error is raised."""
        self.write(self.file, content)
        try:
            self.read(self.file)
        except DptuneError as error:
            return error
        finally:
            self.write(self.file, self.content)
        return None


# What stands in the place of a number, a text or a list.
PLANTED = (
    *(b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"1.5", b"[]", b"{}", b'""', b'"x"'),
    *(b"9" * 400, b"9" * 5_000, b"[" * 100_000, b'{"a":' * 100_000, b"[" * 500 + b"]" * 500),
    *(b'"\\ud800"', b'"\\u001b[2J\\u202e\\n[/]"', b"\x1b[31m", b"\xff\xfe", b"\x00", b"'''"),
    *(b'[["a", 1], null]', b'{"a": {"b": 1}}', b"x = 1\n", b"[[x]]\n", b"a." * 5_000 + b"b = 1\n"),
)
_VALUES = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|true|false|\[[^\[\]]*\]')


def damaged(content: bytes, kind: int, place: float, what: int, byte: int) -> bytes:
    """`content` with one thing wrong, which four numbers tell."""
    planted = PLANTED[what % len(PLANTED)]
    values = list(_VALUES.finditer(content))
    at = int(place * len(content))
    match kind % 5:
        case 0:
            return content[:at]
        case 1:
            return content[:at] + bytes([byte]) + content[at + 1 :]
        case 2:
            return content[:at] + planted + content[at:]
        case 3 if values:
            start, end = values[int(place * len(values))].span()
            return content[:start] + planted + content[end:]
        case _:
            return planted


READERS = (
    *("csv", "csv with declared columns", "csv of texts", "csv.gz", "csv inside gzip"),
    *("columns of a csv", "npz", "npy", "parquet", "parquet with declared columns"),
    *("columns of a parquet", "JSON lines", "JSON lines inside gzip", "config in TOML"),
    *("columns in TOML", "picture in a folder", "pictures in an npz", "index of chunks", "chunk"),
    *("pickle of CIFAR-10", "idx of MNIST", "idx of MNIST inside gzip"),
    *("table of Waterbirds", "texts in parquet", "checkpoint", "statistic of a run"),
    *("preprocessor of a backbone", "config of a backbone", "weights of a backbone"),
    *("features.json", "record of a chunk", "groups of a chunk"),
    *("run.toml", "guarantee.json", "result.json", "environment.json", "trials.jsonl"),
    *("ranges.json", "model.safetensors", "facts of a model", "ledger", "event of a ledger"),
    *("state of a saved data set", "description of a saved data set", "rows of a saved data set"),
    *("saved texts", "saved pictures", "binary of CIFAR-10", "binary of CIFAR-100"),
    *("pixels of STL-10", "labels of STL-10", "names of STL-10", "svhn", "svhn inside zlib"),
    *("table of Camelyon17", "table of FMoW", "countries of FMoW", "solutions of ImageNet"),
    *("truth of ImageNet", "synsets of ImageNet", "tokenizer.json", "tokenizer_config.json"),
    *("network in ONNX", "classes.json", "categories.json"),
)

# Takes the mean of each colour: what the package onnx makes of two nodes.
_NETWORK = (
    b'\x08\n:c\n\x19\n\x01x\x12\x01p"\x11GlobalAveragePool\n\x0f\n\x01p\x12\x01y"\x07Flatten'
    b"\x12\x01gZ\x1c\n\x01x\x12\x17\n\x15\x08\x01\x12\x11\n\x03\x12\x01n\n\x02\x08\x03\n\x02\x08"
    b"\x08\n\x02\x08\x08b\x14\n\x01y\x12\x0f\n\r\x08\x01\x12\t\n\x03\x12\x01n\n\x02\x08\x03B\x04"
    b"\n\x00\x10\x12"
)


def readers(place: Path) -> dict[str, Reader]:
    """All of READERS, with their files under `place`."""
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "age": rng.integers(0, 99, 40).astype(float),
            "town": [f"town {n % 3}" for n in range(40)],
            "label": [n % 2 for n in range(40)],
        }
    )
    plain = table.drop_columns(["town"])
    lines = ["age,town,label", *(f"{r['age']},{r['town']},{r['label']}" for r in table.to_pylist())]
    csv = "\n".join(lines).encode()
    numbers = "\n".join(["age,label", *(f"{n % 7},{n % 2}" for n in range(40))]).encode()
    texts = "".join(
        json.dumps({"body": f"text {n}", "label": n % 2}) + "\n" for n in range(20)
    ).encode()
    x, y = rng.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    arrays = _npz(X_train=x, y_train=y, classes=np.array(["a", "b"]), scale=np.ones(3))
    declared = partial(load_data, columns=COLUMNS)
    found: dict[str, Reader] = {
        "csv": Reader(place / "n.csv", numbers, load_data),
        "csv with declared columns": Reader(place / "d.csv", csv, declared),
        "csv of texts": Reader(
            place / "t.csv", csv, lambda path: read_texts(str(path), "town", "label")
        ),
        "csv.gz": Reader(place / "z.csv.gz", gzip.compress(numbers), load_data),
        "csv inside gzip": Reader(place / "i.csv.gz", numbers, load_data, _write_gzip),
        "columns of a csv": Reader(place / "c.csv", csv, columns_section),
        "npz": Reader(place / "a.npz", arrays, load_data),
        "npy": Reader(place / "a.npy", _npy(np.column_stack([x, y])), load_data),
        "parquet": Reader(place / "a.parquet", _parquet(plain), load_data),
        "parquet with declared columns": Reader(place / "d.parquet", _parquet(table), declared),
        "columns of a parquet": Reader(place / "c.parquet", _parquet(table), columns_section),
        "JSON lines": Reader(
            place / "a.jsonl", texts, lambda path: read_texts(str(path), "body", "label")
        ),
        "JSON lines inside gzip": Reader(
            place / "a.jsonl.gz",
            texts,
            lambda path: read_texts(str(path), "body", "label"),
            _write_gzip,
        ),
    }
    found["texts in parquet"] = Reader(
        place / "t.parquet", _parquet(table), lambda path: read_texts(str(path), "town", "label")
    )
    found |= _of_toml(place) | _of_pictures(place) | _of_picture_sets(place)
    found |= _of_saved(place) | _of_binaries(place) | _of_listed(place)
    return found | _of_backbones(place) | _of_folders(place)


def _of_saved(place: Path) -> dict[str, Reader]:
    """Data sets that save_to_disk of the package datasets wrote."""
    import datasets

    rows, texts, pictures = (place / f"saved-{name}" for name in ("rows", "texts", "pictures"))
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    images = [{"bytes": encoded(pixels()), "path": None}] * 2
    labels = [0, 1]
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"x": [1.0, 2.0], "label": labels}).save_to_disk(rows)
    datasets.Dataset.from_dict({"body": ["u", "v"], "label": labels}).save_to_disk(texts)
    datasets.Dataset.from_dict({"image": images, "label": labels}, kinds).save_to_disk(pictures)
    arrow = "data-00000-of-00001.arrow"
    files = {
        "state of a saved data set": (rows / "state.json", lambda path: load_data(rows)),
        "description of a saved data set": (
            rows / "dataset_info.json",
            lambda path: load_data(rows),
        ),
        "rows of a saved data set": (rows / arrow, lambda path: load_data(rows)),
        "saved texts": (texts / arrow, lambda path: read_texts(str(texts), "body", "label")),
        "saved pictures": (pictures / arrow, lambda path: _contents(_part(pictures))),
    }
    return _as_they_are(files)


def _of_binaries(place: Path) -> dict[str, Reader]:
    """Public sets of pictures in binary files."""
    ten, hundred, stl, numbers, packed = (
        place / "binaries" / name
        for name in ("cifar10", "cifar100", "stl10", "plain/svhn", "packed/svhn")
    )
    for folder in (ten, hundred, stl, numbers, packed):
        folder.mkdir(parents=True)
    for number in range(1, 6):
        (ten / f"data_batch_{number}.bin").write_bytes(bytes([9]) + bytes(3072))
    (hundred / "train.bin").write_bytes(bytes([19, 99]) + bytes(3072))
    (stl / "train_X.bin").write_bytes(bytes(2 * 3 * 96 * 96))
    (stl / "train_y.bin").write_bytes(bytes([1, 10]))
    (stl / "class_names.txt").write_text("\n".join(STL10))
    digits = {"X": np.zeros((4, 4, 3, 2), np.uint8), "y": np.array([[10], [1]], np.uint8)}
    savemat(numbers / "train_32x32.mat", digits)
    savemat(packed / "train_32x32.mat", digits, do_compression=True)

    def read(folder: Path) -> Callable[[Path], object]:
        return lambda path: _contents(find_pictures(folder.name, folder.parent).part("train"))

    return _as_they_are(
        {
            "binary of CIFAR-10": (ten / "data_batch_2.bin", read(ten)),
            "binary of CIFAR-100": (hundred / "train.bin", read(hundred)),
            "pixels of STL-10": (stl / "train_X.bin", read(stl)),
            "labels of STL-10": (stl / "train_y.bin", read(stl)),
            "names of STL-10": (stl / "class_names.txt", read(stl)),
            "svhn": (numbers / "train_32x32.mat", read(numbers)),
            "svhn inside zlib": (packed / "train_32x32.mat", read(packed)),
        }
    )


def _of_listed(place: Path) -> dict[str, Reader]:
    """Public sets of pictures of which a table or a list has the labels."""
    patches, places, solved, kit = (
        place / "listed" / name
        for name in ("camelyon17", "fmow", "solved/imagenet", "kit/imagenet")
    )
    truth = kit / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    for folder in (patches, places, truth.parent):
        folder.mkdir(parents=True)
    (patches / "metadata.csv").write_text(
        ",patient,node,x_coord,y_coord,tumor,slide,center,split\n"
        "0,004,4,3328,21792,1,0,0,0\n1,017,1,1,2,0,3,4,0\n"
    )
    (places / "rgb_metadata.csv").write_text(
        "split,img_filename,category,country_code,timestamp\n"
        "train,a.jpg,zoo,BRA,2012-12-31T23:59:59Z\n"
    )
    (places / "country_code_mapping.csv").write_text("alpha-3,region\nBRA,Americas\n")
    for folder in (solved, kit):
        for name in ("train/n01/a.JPEG", "train/n02/a.JPEG", "val/ILSVRC2012_val_00000001.JPEG"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(encoded(pixels()))
    (solved / "LOC_val_solution.csv").write_text(
        "ImageId,PredictionString\nILSVRC2012_val_00000001,n01 1 2 3 4 \n"
    )
    truth.write_text("2\n")
    synsets = np.array([(1, "n01"), (2, "n02")], [("ILSVRC2012_ID", "O"), ("WNID", "O")])
    savemat(truth.with_name("meta.mat"), {"synsets": synsets[:, None]})

    def read(folder: Path, part: str = "train") -> Callable[[Path], object]:
        return lambda path: find_pictures(folder.name, folder.parent).part(part)

    return _as_they_are(
        {
            "table of Camelyon17": (patches / "metadata.csv", read(patches)),
            "table of FMoW": (places / "rgb_metadata.csv", read(places)),
            "countries of FMoW": (places / "country_code_mapping.csv", read(places)),
            "solutions of ImageNet": (solved / "LOC_val_solution.csv", read(solved, "test")),
            "truth of ImageNet": (truth, read(kit, "test")),
            "synsets of ImageNet": (truth.with_name("meta.mat"), read(kit, "test")),
        }
    )


def _contents(pictures: Any) -> object:
    return [decode(pictures.content(number)) for number in range(len(pictures))]


def _as_they_are(files: dict[str, tuple[Path, Callable[[Path], object]]]) -> dict[str, Reader]:
    return {name: Reader(path, path.read_bytes(), read) for name, (path, read) in files.items()}


def _of_toml(place: Path) -> dict[str, Reader]:
    config = b"""
[budget]
epsilon = 1.0
[data]
source = "demo"
classes = [0, 1]
[search]
method = "linear-scaling"
[space]
steps = [5, 20]
[recipe]
clip_norm = 1.0
[preparation]
range_share = 0.0
[columns]
age = { kind = "number", range = [0, 100], fill = 3 }
town = { kind = "category", values = ["a", "b"], fill = "a" }
born = { kind = "date", range = ["2010-01-01", 2025-12-31], parts = ["month"] }
"""
    columns = b"""[columns]
age = { kind = "number", range = [0, 100], fill = 3 }
town = { kind = "category", values = ["a", "b"], fill = "a" }
born = { kind = "date", range = ["2010-01-01", 2025-12-31], parts = ["month"] }
"""
    table = "\n".join(["age,town,born,label", *["3,a,2011-01-01,0", "4,b,2012-01-01,1"] * 20])
    rows = place / "declared.csv"
    rows.write_text(table)
    sections = ("data", "budget", "search", "score", "space", "preparation", "engine", "run")

    def options(path: Path) -> object:
        given: dict[str, dict[str, Any]] = {section: {} for section in sections}
        given["data"] = {"source": str(rows)}
        return read_options(str(path), given).config.to_toml()

    return {
        "config in TOML": Reader(place / "config.toml", config, options),
        "columns in TOML": Reader(
            place / "columns.toml",
            columns,
            lambda path: load_data(rows, columns=read_columns(str(path))),
        ),
    }


def _of_pictures(place: Path) -> dict[str, Reader]:
    folder = place / "pictures"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        (folder / name / "0.png").write_bytes(encoded(pixels()))
    x = np.stack([pixels(seed=seed) for seed in range(4)])
    packed = _npz(x_train=x, y_train=np.arange(4) % 2, classes=np.array(["cat", "dog"]))

    def all_pictures(path: Path) -> object:
        return _contents(_part(path))

    return {
        "picture in a folder": Reader(
            folder / "cat" / "0.png", encoded(pixels()), lambda path: all_pictures(folder)
        ),
        "pictures in an npz": Reader(place / "packed.npz", packed, all_pictures),
    }


def _of_picture_sets(place: Path) -> dict[str, Reader]:
    """Public sets, as their makers packed them."""
    names = ("cifar10", "mnist", "waterbird_complete95_forest2water2")
    cifar, mnist, birds = (place / name for name in names)
    x = np.stack([pixels(32, 32, seed=seed) for seed in range(2)])
    batch = pickle.dumps({"labels": [0, 9], "data": x.reshape(2, -1)}, protocol=2)
    images = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 4, 4) + bytes(range(32))
    table = b"img_filename,y,split,place\na/0.jpg,0,0,0\na/1.jpg,1,0,1\n"
    for folder in (cifar, mnist, birds / "a"):
        folder.mkdir(parents=True)
    for number in range(1, 6):
        (cifar / f"data_batch_{number}").write_bytes(batch)
    (mnist / "train-labels-idx1-ubyte").write_bytes(
        bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + bytes(2)
    )
    for number in range(2):
        (birds / "a" / f"{number}.jpg").write_bytes(encoded(pixels()))

    def read(name: str) -> Callable[[Path], object]:
        def all_pictures(path: Path) -> object:
            part = find_pictures(name, place).part("train")
            return [part.content(number) for number in range(len(part))]

        return all_pictures

    packed = mnist / "train-images-idx3-ubyte.gz"
    return {
        "pickle of CIFAR-10": Reader(cifar / "data_batch_2", batch, read("cifar10")),
        "idx of MNIST": Reader(packed.with_suffix(""), images, read("mnist"), _instead_of_packed),
        "idx of MNIST inside gzip": Reader(packed, images, read("mnist"), _packed_instead),
        "table of Waterbirds": Reader(
            birds / "metadata.csv",
            table,
            lambda path: find_pictures("waterbirds", place).part("train"),
        ),
    }


def _instead_of_packed(path: Path, content: bytes) -> None:
    path.with_suffix(".gz").unlink(missing_ok=True)
    path.write_bytes(content)


def _packed_instead(path: Path, content: bytes) -> None:
    path.with_suffix("").unlink(missing_ok=True)
    _write_gzip(path, content)


def _of_backbones(place: Path) -> dict[str, Reader]:
    """A model of transformers in a folder."""
    import transformers

    folder = place / "model"
    config = transformers.ViTConfig(
        **{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
        **{"intermediate_size": 8, "image_size": 8, "patch_size": 4},
    )
    with quiet(transformers):
        transformers.ViTModel(config).save_pretrained(folder)
    prepared = folder / "preprocessor_config.json"
    prepared.write_text(
        '{"size": 8, "do_center_crop": false, "image_mean": [0.5, 0.5, 0.5], '
        '"image_std": [0.5, 0.5, 0.5], "resample": 3, "rescale_factor": 0.00392156862745098}'
    )
    files = {
        "preprocessor of a backbone": prepared,
        "config of a backbone": folder / "config.json",
        "weights of a backbone": folder / "model.safetensors",
    }
    found = {
        name: (file, lambda path: find_backbone(f"hf:{folder}")) for name, file in files.items()
    }
    network, words = folder / "network.onnx", place / "tokenizer"
    network.write_bytes(_NETWORK)
    tiny_tokenizer("bert").save_pretrained(words)
    found["network in ONNX"] = (network, lambda path: find_backbone(f"onnx:{path}"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        found[name] = (words / name, lambda path: digest_of(load_tokenizer(str(words))))
    return _as_they_are(found)


def _part(path: Path) -> Any:
    return find_pictures(path).part("train")


def _of_folders(place: Path) -> dict[str, Reader]:
    """Folders that dptune wrote."""
    chunks = place / "chunks"
    write_chunks(chunks, [(np.eye(4, dtype=np.float32), np.arange(4) % 2)])
    features = place / "features"
    _features(place / "faces", features)
    run = place / "run"
    _a_run(run)
    begun = place / "begun"
    names = np.array(["sick", "well"])[np.arange(2000) % 2]
    secret = Data(np.random.default_rng(0).normal(size=(2000, 2)), names)
    stop_after(begun, secret, "sweep")
    without_digests(begun)
    keep = Checkpoint(place / "run.checkpoint", "a run")
    keep.save({"weights": torch.ones(2)}, 3)
    written = {
        "index of chunks": (chunks / "index.json", lambda path: load_data(chunks)),
        "chunk": (chunks / "000000.features.npy", lambda path: load_data(chunks)),
        "features.json": (features / "features.json", lambda path: load_data(features)),
        "record of a chunk": (
            features / "train" / "000000.json",
            lambda path: load_data(features),
        ),
        "groups of a chunk": (
            features / "train" / "000000.groups.npy",
            lambda path: read_groups(features, "train"),
        ),
        "checkpoint": (keep.path, lambda path: keep.load()),
        "classes.json": (
            begun / "classes.json",
            lambda path: secret.with_classes(read_class_names(RunFolder(begun)) or ()),
        ),
        "statistic of a run": (begun / "census.json", lambda path: read_census(RunFolder(begun))),
        **{
            name: (run / name, lambda path: model_card(run))
            for name in (
                *("run.toml", "guarantee.json", "result.json", "environment.json"),
                *("trials.jsonl", "model.safetensors"),
            )
        },
        "ranges.json": (run / "ranges.json", lambda path: Record.read(run)),
        "categories.json": (run / "categories.json", lambda path: Record.read(run)),
        "ledger": (run / "ledger.db", lambda path: Ledger.open(str(path))),
    }
    found = _as_they_are(written)
    model = run / "model.safetensors"
    facts = _facts_of(model.read_bytes())
    found["facts of a model"] = Reader(
        model, facts, lambda path: model_card(run), partial(_write_facts, model.read_bytes())
    )
    ledger = run / "ledger.db"
    event = json.dumps({"kind": "full-batch-run", "steps": 1, "noise_multiplier": 2.0}).encode()
    found["event of a ledger"] = Reader(
        ledger,
        event,
        lambda path: Ledger.open(str(path)).state().guarantee(),
        partial(_write_event, ledger.read_bytes()),
    )
    return found


def _features(pictures: Path, folder: Path) -> None:
    """Made of pictures by a public network, as small as there can be."""
    network = pictures.with_name("network.py")
    network.write_text(
        "from torch import nn\n"
        "def factory():\n"
        "    network = nn.Conv2d(3, 2, 4)\n"
        "    network.size, network.mean, network.deviation = 8, (0, 0, 0), (1, 1, 1)\n"
        "    return network\n"
    )
    for kind in ("cat", "dog"):
        (pictures / kind).mkdir(parents=True)
        for number in range(3):
            (pictures / kind / f"{number}.png").write_bytes(encoded(pixels(seed=number)))
    extract(pictures, f"module:{network}:factory", folder)


def _a_run(folder: Path) -> None:
    rng = np.random.default_rng(0)
    data = Data.from_columns(
        {"age": rng.integers(0, 99, 2000).astype(float), "town": ["a", "b"] * 1000},
        np.arange(2000) % 2,
        {"age": {"kind": "number"}, "town": {"kind": "category", "values": "paid"}},
        test=({"age": [1.0, 2.0], "town": ["a", "b"]}, [0, 1]),
    )
    tune(data, budget=Budget(20.0, 1e-5), out=folder)
    without_digests(folder)  # which would hide what lies behind them from damage


def _npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _parquet(table: Any) -> bytes:
    file = pa.BufferOutputStream()
    parquet.write_table(table, file)
    return file.getvalue().to_pybytes()


def _write_gzip(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, compresslevel=1))


def _facts_of(content: bytes) -> bytes:
    return json.loads(content[8 : 8 + _head(content)])["__metadata__"]["facts"].encode()


def _write_facts(sound: bytes, path: Path, content: bytes) -> None:
    size = _head(sound)
    head = json.loads(sound[8 : 8 + size])
    head["__metadata__"]["facts"] = content.decode(errors="replace")
    written = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + sound[8 + size :])


def _write_event(sound: bytes, path: Path, content: bytes) -> None:
    """A ledger whose first payment is for this event, with the hashes of a sound one."""
    path.write_bytes(sound)
    with closing(sqlite3.connect(path)) as stored:
        cursor = stored.execute("SELECT * FROM entries ORDER BY number")
        names = [column[0] for column in cursor.description]
        entries = [dict(zip(names, row, strict=True)) for row in cursor]
        next(one for one in entries if one["kind"] == "reserve")["event"] = content.decode(
            errors="replace"
        )
        last: dict[str, Any] | None = None
        for entry in entries:
            wanted = {name: entry[name] for name in names if name not in ("previous", "hash")}
            last = next_entry(last, **wanted)
            values = (last["event"], last["previous"], last["hash"], last["number"])
            stored.execute("UPDATE entries SET event=?, previous=?, hash=? WHERE number=?", values)
        assert last is not None
        stored.execute("UPDATE head SET hash=?", (last["hash"],))
        stored.commit()


def _head(content: bytes) -> int:
    size: int = struct.unpack("<Q", content[:8])[0]
    return size
