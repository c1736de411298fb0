"""Features of augmented CIFAR-10 images, for `python -m reproduction run augmult`.

    python benchmarks/augment_cifar10.py cifar10.npz resnet20.safetensors features.npz out.npz

`cifar10.npz` holds the training images as JPEG files (`jpeg_train`, `offsets_train`), the weights
are those of a ResNet-20, and `features.npz` the features of the same images (`X_train` as codes,
`scale`, ...), which are copied. Copy 0 is the image, copy 1 its mirror image, and the others are
mirrored at random and moved by up to four pixels.
"""

import sys

import numpy as np
import torch

from dptune.features import find_backbone
from dptune.pictures.decode import decode
from dptune.pictures.find import find_pictures

COPIES = 8


def images_of(file):
    pictures = find_pictures(file).part("train")
    return np.stack([decode(pictures.content(number))[0] for number in range(len(pictures))])


def moved(images, draws):
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    found = np.empty_like(images)
    for number, (down, right) in enumerate(draws.integers(0, 9, (len(images), 2))):
        part = padded[number, down : down + 32, right : right + 32]
        found[number] = part[:, ::-1] if draws.random() < 0.5 else part
    return found


def features_of(network, images):
    return network.module(network.transform.normalised(torch.from_numpy(images))).numpy()


def main(images_file, weights_file, features_file, out):
    images, network = images_of(images_file), find_backbone(f"resnet20:{weights_file}")
    draws = np.random.default_rng(0)
    with np.load(features_file) as arrays:
        kept = dict(arrays)
    copies = [kept["X_train"]]
    for number in range(1, COPIES):
        changed = images[:, :, ::-1].copy() if number == 1 else moved(images, draws)
        batches = [changed[start : start + 500] for start in range(0, len(changed), 500)]
        found = np.concatenate([features_of(network, batch) for batch in batches])
        copies.append(np.clip(np.rint(found / kept["scale"]), 0, 255).astype(np.uint8))
        print(f"copy {number} of {COPIES - 1}", flush=True)
    np.savez_compressed(out, **kept, X_train_augmented=np.stack(copies, 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
