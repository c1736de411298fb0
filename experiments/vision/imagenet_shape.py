"""ImageNet's shape from made-up files: JPEG pictures of 1,000 classes in its layout, features of
them, and a study that reads the features in chunks from disk."""

import io
import os
import resource
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from dptune import validate
from dptune.accounting import Budget
from dptune.bench.extraction import bare_rate
from dptune.bench.harness import Report
from dptune.data.data import Data
from dptune.data.disk import DiskRows
from dptune.data.extracted import Extracted
from dptune.features.extraction import write_features
from dptune.features.from_pictures import find_networks, gather
from dptune.search.one_step import OneStep
from dptune.study.study import tune
from experiments.vision.cells import DELTA

CLASSES = 1000
_EPSILON = 8.0  # a few pictures of each class teach little below
_WIDTH, _HEIGHT = (450, 550), (330, 420)  # ImageNet's are 500 x 375 on average
_QUALITY = 92
_GRAIN = 9.0  # grey levels of the finest noise: with it a file has ImageNet's 100 kB or so
_IMAGENET = 1_281_167
_MARGIN = 64  # by which the grain is moved about
_A_JOB = 100


def measure(
    out: Path, pictures: int, backbone: str, device: str, report: Report
) -> dict[str, float | str]:
    """Make up what is not there, extract, study; how fast all of that was."""
    count = validate.whole(CLASSES, pictures=pictures)
    networks = find_networks(backbone, device=device)
    source = out / "pictures"
    report(f"{count:,} JPEG files")
    began = perf_counter()
    made, size = make_up(source, count)
    making = perf_counter() - began
    train = gather(source)["train"]
    report("the network alone")
    bare = bare_rate(networks, train)
    report("features")
    began = perf_counter()
    features = out / "features"
    done = write_features({"train": train}, networks, features, source=str(source.absolute()))
    extracting = perf_counter() - began
    report("a study from chunks on disk")
    began = perf_counter()
    data = Data.from_disk(
        DiskRows(features / "train"), name="made-up", classes=Extracted.read(features).classes
    )
    result = tune(data, budget=Budget(_EPSILON, DELTA), search=OneStep(), device=device)
    studying = perf_counter() - began
    rate = done.made / extracting
    found: dict[str, float | str] = {
        "pictures": count,
        "kB a picture": size / 1e3,
        "made up now": made,
        "made up per second": made / making,
        "left out": sum(remark.left_out for _, remark in done.remarks),
        "backbone": networks.made_by["name"],
        "precision": networks.precision,
        "features made now": done.made,
        "pictures per second, the network alone": bare,
        "seconds of extraction": extracting,
        "chunks": len(list((features / "train").glob("*.features.npy"))),
        "seconds of the study": studying,
        "epsilon of the study": result.guarantee.epsilon,
        "peak memory of this process, GiB": _peak_gib(resource.RUSAGE_SELF),
        "peak memory of a process that decodes, GiB": _peak_gib(resource.RUSAGE_CHILDREN),
    }
    if done.made:  # a second time, there is nothing to measure
        found |= {
            "pictures per second, decoding included": rate,
            "ratio": rate / bare,
            "minutes for 1,281,167 pictures": _IMAGENET / rate / 60,
        }
    if device == "cuda":
        found["peak memory of the GPU, GiB"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def make_up(folder: Path, count: int) -> tuple[int, float]:
    """So many files in train/nXXXXXXXX; how many of them are new, and their mean size in bytes."""
    for label in range(CLASSES):
        (folder / "train" / _class(label)).mkdir(parents=True, exist_ok=True)
    jobs = [range(at, min(at + _A_JOB, count)) for at in range(0, count, _A_JOB)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        sizes = list(chain.from_iterable(pool.map(partial(_make, folder), jobs)))
    return sum(new for new, _ in sizes), float(np.mean([size for _, size in sizes]))


def _class(label: int) -> str:
    return f"n{label + 1440764:08d}"


def _make(folder: Path, numbers: range) -> list[tuple[bool, int]]:
    """(whether it is new, bytes) of every file."""
    done = []
    for number in numbers:
        label = number % CLASSES
        name = f"{_class(label)}_{number // CLASSES}.JPEG"
        file = folder / "train" / _class(label) / name
        new = not file.exists()
        if new:
            file.write_bytes(_jpeg(label, number))
        done.append((new, file.stat().st_size))
    return done


def _jpeg(label: int, number: int) -> bytes:
    """Smooth noise, some of which all pictures of a class share, and grain on it."""
    draws = np.random.default_rng([1, number])
    width, height = int(draws.integers(*_WIDTH)), int(draws.integers(*_HEIGHT))
    shared = np.random.default_rng([0, label])
    # Whole numbers all the way: this is to be quick.
    pixels = _smooth(shared, 5, width, height).astype(np.int16)
    for side in (5, 9, 60):
        pixels += _smooth(draws, side, width, height)
    pixels >>= 2
    down, across = draws.integers(0, _MARGIN, 2)
    pixels += _grain()[down : down + height, across : across + width]
    picture = np.clip(pixels, 0, 255, out=pixels).astype(np.uint8)
    done = io.BytesIO()
    Image.fromarray(picture).save(done, "JPEG", quality=_QUALITY)
    return done.getvalue()


def _smooth(draws: np.random.Generator, side: int, width: int, height: int) -> NDArray[np.uint8]:
    small = draws.integers(0, 256, (side, side, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


@lru_cache(maxsize=1)  # drawing it anew would take longer than all the rest
def _grain() -> NDArray[np.int16]:
    draws = np.random.default_rng(2)
    shape = (_HEIGHT[1] + _MARGIN, _WIDTH[1] + _MARGIN, 1)
    return (_GRAIN * draws.standard_normal(shape)).astype(np.int16)


def _peak_gib(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 2**20  # Linux counts in KiB
