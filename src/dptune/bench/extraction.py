"""The rate of feature extraction from pictures, compared with the network alone.

Both rates come from one run, with the same batch size and precision. The extraction includes
everything: it starts processes, decodes and prepares pictures, and writes features to disk.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from dptune import validate
from dptune.bench.timing import median_seconds
from dptune.features.extraction import write_features
from dptune.features.from_pictures import find_networks, gather
from dptune.features.network import Networks
from dptune.pictures.pictures import Pictures
from dptune.pictures.shifts import some
from dptune.scratch import scratch_folder

Report = Callable[[str], None]
_BARE_SHARE = 20  # one of this many batches suffices to time the network alone
_BARE_FEWEST, _BARE_MOST = 5, 50


def measure(
    images: str | Path,
    backbone: str | Sequence[str],
    report: Report,
    *,
    pictures: int = 10_000,
    features: str = "pooled",
    size: int | None = None,
    root: str | Path | None = None,
    device: str = "cpu",
    precision: str | None = None,
) -> dict[str, Any]:
    """Pictures per second of the network alone and of a whole extraction, and their ratio."""
    count = validate.whole(1, pictures=pictures)
    networks = find_networks(
        backbone, features=features, size=size, device=device, precision=precision
    )
    train = some(gather(images, root=root)["train"], count)
    report(f"the network alone, {networks.batch} pictures at once")
    before = bare_rate(networks, train)
    report(f"the whole extraction of {len(train):,} pictures")
    with scratch_folder() as folder:
        began = perf_counter()
        done = write_features({"train": train}, networks, folder, source="bench")
        seconds = perf_counter() - began
    report("the network alone again")
    bare = (before + bare_rate(networks, train)) / 2  # other processes may use the machine, too
    whole = done.made / seconds
    return {
        "device": device,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "threads": torch.get_num_threads(),
        "backbone": networks.made_by["name"],
        "precision": networks.precision,
        "batch": networks.batch,
        "pictures": done.made,
        "seconds": seconds,
        "bare_per_second": bare,
        "extraction_per_second": whole,
        "ratio": whole / bare,
    }


def bare_rate(networks: Networks, pictures: Pictures) -> float:
    """Pictures per second of the forward pass alone, on a batch that is already on the device."""
    first = range(min(networks.batch, len(pictures)))
    batch = next(networks.batches(pictures, [first]))
    ready = networks.prepared(batch, len(first))
    times = len(pictures) // networks.batch // _BARE_SHARE
    times = min(max(times, _BARE_FEWEST), _BARE_MOST)
    return len(first) / median_seconds(lambda: networks.forward(ready), times)
