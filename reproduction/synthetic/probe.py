"""How good features are without privacy: a linear probe on CIFAR-10.

CIFAR-10 is the private set of this experiment. What is printed here describes weights that are
already written, and may choose nothing about them.
"""

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from dptune.features.maps import ALL_MAPS
from reproduction.synthetic.views import plain

BATCH = 1000
STEPS = 300  # of L-BFGS
DECAY = 1e-4  # half of this times the weights' squared length, beside the mean loss


def probe(network: nn.Module, file: Path, device: str) -> Mapping[str, float]:
    """Test accuracy in percent by kind of features."""
    with np.load(file, allow_pickle=False) as arrays:
        found = {part: _decoded(arrays, part) for part in ("train", "test")}
        targets = {
            part: torch.from_numpy(arrays[f"y_{part}"].astype(np.int64)).to(device)
            for part in ("train", "test")
        }
    network = network.to(device).eval()
    train, test = (_features(network, found[part], device) for part in ("train", "test"))
    return {
        kind: accuracy(train[kind], targets["train"], test[kind], targets["test"]) for kind in train
    }


def accuracy(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor) -> float:
    """In percent, of a softmax regression on rows of length one."""
    train, test = F.normalize(train, dim=1), F.normalize(test, dim=1)
    mean, deviation = train.mean(0), train.std(0).clamp(min=1e-6)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    classes = int(labels.max()) + 1
    weights = torch.zeros((train.shape[1], classes), device=train.device, requires_grad=True)
    bias = torch.zeros(classes, device=train.device, requires_grad=True)
    descent = torch.optim.LBFGS(
        [weights, bias], max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        descent.zero_grad()
        value = F.cross_entropy(train @ weights + bias, labels)
        value = value + DECAY / 2 * weights.square().sum()
        torch.autograd.backward(value)
        return value

    descent.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        right = ((test @ weights + bias).argmax(1) == truth).float().mean()
    return 100 * right.item()


def _features(network: nn.Module, pictures: NDArray[np.uint8], device: str) -> Mapping[str, Tensor]:
    found: dict[str, list[Tensor]] = {kind: [] for kind in ALL_MAPS}
    with torch.no_grad():
        for batch in torch.split(torch.from_numpy(pictures), BATCH):
            taken = plain(batch.to(device).permute(0, 3, 1, 2))
            for kind, features in ALL_MAPS.items():
                found[kind].append(features(network, taken))
    return {kind: torch.cat(rows) for kind, rows in found.items()}


def _decoded(arrays: Mapping[str, NDArray[np.generic]], part: str) -> NDArray[np.uint8]:
    from PIL import Image

    content, ends = arrays[f"jpeg_{part}"], arrays[f"offsets_{part}"].astype(np.int64)

    def one(begin: int, end: int) -> NDArray[np.uint8]:
        return np.asarray(Image.open(io.BytesIO(content[begin:end].tobytes())), dtype=np.uint8)

    with ThreadPoolExecutor() as threads:
        return np.stack(list(threads.map(one, ends[:-1], ends[1:])))
