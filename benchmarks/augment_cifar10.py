"""Features of augmented CIFAR-10 images, for `python -m reproduction run augmult`.

    python benchmarks/augment_cifar10.py cifar10.npz resnet20.safetensors features.npz out.npz

`cifar10.npz` holds the training images as JPEG files (`jpeg_train`, `offsets_train`), the weights
are those of a ResNet-20, and `features.npz` the features of the same images (`X_train` as codes,
`scale`, ...), which are copied. Copy 0 is the image, copy 1 its mirror image, and the others are
mirrored at random and moved by up to four pixels. Needs Pillow.
"""

import io
import itertools
import sys

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

COPIES = 8
MEAN = torch.tensor([0.5071, 0.4865, 0.4409]).view(3, 1, 1)
DEVIATION = torch.tensor([0.2673, 0.2564, 0.2762]).view(3, 1, 1)


def images_of(file):
    with np.load(file) as arrays:
        joined, ends = arrays["jpeg_train"], arrays["offsets_train"]
    parts = (joined[start:end].tobytes() for start, end in itertools.pairwise(ends))
    return np.stack([np.asarray(Image.open(io.BytesIO(part))) for part in parts])


def moved(images, draws):
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    found = np.empty_like(images)
    for number, (down, right) in enumerate(draws.integers(0, 9, (len(images), 2))):
        part = padded[number, down : down + 32, right : right + 32]
        found[number] = part[:, ::-1] if draws.random() < 0.5 else part
    return found


class ResNet20:
    """Nine blocks; shortcuts take every second pixel and pad channels with zeros on both sides."""

    def __init__(self, file):
        self.weights = {name: value.float() for name, value in load_file(file).items()}

    def norm(self, x, name):
        names = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(x, *(self.weights[f"{name}.{part}"] for part in names))

    def convolve(self, x, name, stride=1):
        return F.conv2d(x, self.weights[f"{name}.weight"], stride=stride, padding=1)

    @torch.no_grad()
    def features(self, images):
        x = (torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - MEAN) / DEVIATION
        x = F.relu(self.norm(self.convolve(x, "c"), "b"))
        for block in range(9):
            name, stride = f"body.{block}", 2 if block in (3, 6) else 1
            inner = F.relu(self.norm(self.convolve(x, f"{name}.c1", stride), f"{name}.b1"))
            inner = self.norm(self.convolve(inner, f"{name}.c2"), f"{name}.b2")
            if stride == 2:
                more = (inner.shape[1] - x.shape[1]) // 2
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more, more))
            x = F.relu(inner + x)
        return x.mean((2, 3)).numpy()


def main(images_file, weights_file, features_file, out):
    images, network = images_of(images_file), ResNet20(weights_file)
    draws = np.random.default_rng(0)
    with np.load(features_file) as arrays:
        kept = dict(arrays)
    copies = [kept["X_train"]]
    for number in range(1, COPIES):
        changed = images[:, :, ::-1].copy() if number == 1 else moved(images, draws)
        batches = [changed[start : start + 500] for start in range(0, len(changed), 500)]
        found = np.concatenate([network.features(batch) for batch in batches])
        copies.append(np.clip(np.rint(found / kept["scale"]), 0, 255).astype(np.uint8))
        print(f"copy {number} of {COPIES - 1}", flush=True)
    np.savez_compressed(out, **kept, X_train_augmented=np.stack(copies, 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
