"""Features of augmented CIFAR-10 images, for `python -m experiments run augmult`.

Copy 0 is the image, copy 1 its mirror image, and the others are mirrored at random and moved by up
to four pixels.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dptune.bench.harness import Report
from dptune.features import find_backbone
from dptune.features.backbone import Backbone
from dptune.pictures.decode import decode
from dptune.pictures.find import find_pictures

COPIES = 8
Pixels = NDArray[np.uint8]


def write_copies(images: str, weights: str, features: Path, out: Path, report: Report) -> None:
    """What `features` holds of a ResNet-20 with these weights, and copies beside it."""
    pixels, network = _pixels(images), find_backbone(f"resnet20:{weights}")
    draws = np.random.default_rng(0)
    with np.load(features) as arrays:
        kept = dict(arrays)
    copies = [kept["X_train"]]
    for number in range(1, COPIES):
        changed = pixels[:, :, ::-1].copy() if number == 1 else _moved(pixels, draws)
        batches = [changed[start : start + 500] for start in range(0, len(changed), 500)]
        found = np.concatenate([_features(network, batch) for batch in batches])
        copies.append(np.clip(np.rint(found / kept["scale"]), 0, 255).astype(np.uint8))
        report(f"copy {number} of {COPIES - 1}")
    np.savez_compressed(out, **kept, X_train_augmented=np.stack(copies, 1))


def _pixels(file: str) -> Pixels:
    pictures = find_pictures(file).part("train")
    return np.stack([decode(pictures.content(number))[0] for number in range(len(pictures))])


def _moved(images: Pixels, draws: np.random.Generator) -> Pixels:
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    found = np.empty_like(images)
    for number, (down, right) in enumerate(draws.integers(0, 9, (len(images), 2))):
        part = padded[number, down : down + 32, right : right + 32]
        found[number] = part[:, ::-1] if draws.random() < 0.5 else part
    return found


def _features(network: Backbone, images: Pixels) -> NDArray[np.float32]:
    found: NDArray[np.float32] = network.module(
        network.transform.normalised(torch.from_numpy(images), torch.float32)
    ).numpy()
    return found
