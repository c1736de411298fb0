"""Tables of many made-up rows: what training on them takes of memory and time.

Tuning on one file of 20 numbers a row in three classes, with the peak of memory beyond what imports
take; and a step over many names of one file of 2 million rows as one table, so that 100 million
rows need little disk, then, for one file, a step over .npy chunks of the same codes. Seconds are
those of the CPU: others may use the machine.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

import dptune
from dptune.bench.harness import Report
from dptune.data import DiskRows, Preprocessing, parquet_rows, write_chunks
from dptune.data.row_sources import DiskSource
from dptune.data.sources import load_data
from dptune.engines import LinearEngine, Randomness
from dptune.engines.modules.memory import resident_bytes
from dptune.plan import TrainPlan
from dptune.study.study import tune

CLASSES = ["low", "middle", "high"]
COLUMNS: dict[str, Any] = {f"c{n}": {"kind": "number", "range": [-5, 5]} for n in range(20)}
COLUMNS["kind"] = {"kind": "category", "values": CLASSES}
IN_A_FILE, AT_ONCE = 2_000_000, 200_000


def made_up(count: int, rng: np.random.Generator) -> pa.Table:
    labels = rng.integers(0, 3, count)
    numbers = rng.normal(size=(count, 20)) + np.eye(3, 20)[labels]
    table = {f"c{n}": np.round(numbers[:, n], 3) for n in range(20)}
    return pa.table(table | {"kind": np.array(CLASSES)[labels]})


def write(file: Path, rows: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    writer: Any = csv.CSVWriter if file.suffix == ".csv" else parquet.ParquetWriter
    with writer(file, made_up(1, rng).schema) as out:
        for start in range(0, rows, AT_ONCE):
            out.write_table(made_up(min(AT_ONCE, rows - start), rng))
    return file


class Memory:
    """Looks at the memory of this process until it is read."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._base, self._peak = resident_bytes("VmRSS") or 0, 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self._peak = max(self._peak, resident_bytes("VmRSS") or 0)
            time.sleep(0.02)

    def timed(self, what: str, work: Callable[[], Any]) -> Any:
        self._peak, began, used = 0, time.perf_counter(), time.process_time()
        found = work()
        seconds, wall = time.process_time() - used, time.perf_counter() - began
        more = (self._peak - self._base) / 2**20
        self._report(f"{what}: {seconds:.1f} CPU s, {wall:.0f} s, peak {more:.0f} MiB")
        return found


def train(folder: Path, rows: int, kind: str, report: Report) -> None:
    file, test = write(folder / f"rows.{kind}", rows), write(folder / f"test.{kind}", 20_000, 1)
    memory = Memory(report)
    asked: dict[str, Any] = {"columns": COLUMNS, "label": "kind", "test": test}
    data = memory.timed("reading", lambda: load_data(file, **asked))
    space = dptune.Space(steps=(3, 5))
    budget = dptune.Budget(1.0, 1e-7)
    memory.timed("tuning", lambda: tune(data, budget=budget, space=space))
    report(f"features in float32: {4 * 20 * rows / 2**20:.0f} MiB")


def step(folder: Path, files: int, report: Report) -> None:
    parquet_rows.LARGE = 1  # one file would be kept in memory
    file = write(folder / "rows.parquet", IN_A_FILE)
    many = folder / "many"
    many.mkdir()
    for number in range(files):
        os.link(file, many / f"{number:04d}.parquet")
    memory = Memory(report)

    def one_step(rows: Any) -> Any:
        plan = TrainPlan(rows=rows.count, steps=1, learning_rate=1.0, noise_multiplier=1.0)
        return LinearEngine(outputs=3).fit_many([plan], rows, [Randomness()])

    def opened(source: Path) -> tuple[Any, Preprocessing]:
        data = load_data(source, columns=COLUMNS, label="kind")
        return data, Preprocessing(encoding=data.encoding)

    for source in (many, file):
        data, encoded = memory.timed(f"opening {source.name}", partial(opened, source))
        rows = data.unprotected_rows(encoded)
        memory.timed(f"a step over {data.count:,} rows", partial(one_step, rows))
    stored = data._parts["train"]
    assert isinstance(stored, DiskSource)
    parts = (stored.chunks._mapped(number)[:2] for number in range(stored.chunks._chunks))
    write_chunks(folder / "chunks", ((x[:, 0].numpy(), y.numpy()) for x, y in parts))
    chunks = DiskRows(folder / "chunks")
    rows = chunks.prepared(encoded, None, device="cpu", precision="float32")
    memory.timed(f"a step over {data.count:,} rows in .npy chunks", lambda: one_step(rows))
