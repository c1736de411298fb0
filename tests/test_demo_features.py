"""The bundled features, made again from pictures, where the machine has pictures and weights."""

import os
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from dptune.features.find import find_backbone
from dptune.features.in_memory import features_of
from dptune.features.network import Networks
from dptune.pictures.find import find_pictures

ROOT = Path(os.environ.get("DPTUNE_PICTURES", "."))
WEIGHTS = ROOT / "weights" / "resnet20_cifar100.safetensors"


@pytest.mark.skipif(not WEIGHTS.is_file(), reason="DPTUNE_PICTURES names no folder with weights")
def test_pictures_give_the_bundled_features() -> None:
    bundled = resources.files("dptune.data") / "demo" / "cifar10_resnet20.npz"
    with np.load(str(bundled), allow_pickle=False) as arrays:
        codes, scale, labels = arrays["X_test"], arrays["scale"], arrays["y_test"]
    pictures = find_pictures("cifar10", ROOT).part("test")
    networks = Networks([find_backbone(f"resnet20:{WEIGHTS}")])
    numbers = list(range(0, len(pictures), 20))
    found = features_of(pictures, networks, numbers)
    assert np.array_equal(pictures.labels[numbers], labels[numbers])
    wanted = codes[numbers].astype(int)
    rebuilt = np.clip(np.round(found.rows / scale), 0, 255).astype(int)
    # They were made in half precision, and a code is the nearest of 256 numbers.
    assert np.abs(rebuilt - wanted).max() <= 1
    assert (rebuilt == wanted).mean() > 0.97
