"""A convolutional network from scratch on pictures of clothes, private with all of its search.

    python examples/fashion_mnist.py PICTURES            a folder of Fashion-MNIST, or an .npz
    python examples/fashion_mnist.py PICTURES cuda       the same on a GPU

Without PICTURES it takes the small digits that come with scikit-learn: few rows, so privacy costs
much, but it runs anywhere within a minute.
"""

import sys

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dptune
from dptune.pictures.find import find_pictures


def network() -> nn.Module:
    """As Tramèr & Boneh (2021) have it: tanh, and no layer in which rows see each other."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def clothes(source: str) -> tuple[dptune.Data, dict[str, int]]:
    """Pictures from disk, by way of PyTorch's loaders; and how to train on so many."""
    loaders = {}
    for which in ("train", "test"):
        part = find_pictures(source).part(which)
        pixels = np.stack([part.content(number) for number in range(len(part))])
        scaled = (torch.from_numpy(pixels)[:, None] / 255 - 0.286) / 0.353  # public constants
        rows = TensorDataset(scaled, torch.from_numpy(part.labels))
        loaders[which] = DataLoader(rows, batch_size=1000)
    data = dptune.Data.from_batches(
        loaders["train"], test=loaders["test"], name="clothes", classes=range(10)
    )
    return data, {"batch": 2048, "steps": 900}


def digits() -> tuple[dptune.Data, dict[str, int]]:
    """1,500 pictures of 8 x 8, made as large as the clothes are."""
    pixels, labels = load_digits(return_X_y=True)
    pictures = torch.from_numpy(pixels).float().view(-1, 1, 8, 8) / 8 - 1
    large = nn.functional.interpolate(pictures, size=(28, 28), mode="bilinear")
    test = (large[1500:], labels[1500:])
    data = dptune.Data(large[:1500], labels[:1500], test=test, name="digits", classes=range(10))
    return data, {"batch": 150, "steps": 30}


if __name__ == "__main__":
    source, device = (*sys.argv[1:], *("", "cpu")[len(sys.argv) - 1 :])
    data, size = clothes(source) if source else digits()
    result = dptune.tune(
        data,
        budget=dptune.Budget(epsilon=2.7 if source else 8.0, delta=1e-5),
        engine=dptune.TorchModule(network),
        recipe={"sampling_rate": size["batch"] / data.count, "clip_norm": 0.1},
        space=dptune.Space(learning_rate=(0.01, 100.0), steps=(size["steps"], size["steps"])),
        device=device,
    )
    print(result.guarantee.in_words())
    print(f"accuracy on the test pictures: {result.test_accuracy:.4f}")
