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
from dptune.report.card import model_card
from dptune.study.run_folder import RunFolder
from dptune.study.runner import read_census
from dptune.texts.reading import read as read_texts
from support.old_folders import without_digests
from support.pictures import encoded, pixels
from support.rows import make_data
from support.studies import stop_after

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
    sets, backbones = _of_picture_sets(place), _of_backbones(place)
    return found | _of_toml(place) | _of_pictures(place) | sets | backbones | _of_folders(place)


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
        return [decode(_part(path).content(number)) for number in range(len(_part(path)))]

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
    return {
        name: Reader(file, file.read_bytes(), lambda path: find_backbone(f"hf:{folder}"))
        for name, file in files.items()
    }


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
    stop_after(begun, make_data(), "sweep")
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
        "statistic of a run": (begun / "census.json", lambda path: read_census(RunFolder(begun))),
        **{
            name: (run / name, lambda path: model_card(run))
            for name in (
                *("run.toml", "guarantee.json", "result.json", "environment.json"),
                *("trials.jsonl", "ranges.json", "model.safetensors"),
            )
        },
        "ledger": (run / "ledger.db", lambda path: Ledger.open(str(path))),
    }
    found = {name: Reader(path, path.read_bytes(), read) for name, (path, read) in written.items()}
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
        {"age": {"kind": "number"}, "town": {"kind": "category", "values": ["a", "b"]}},
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
