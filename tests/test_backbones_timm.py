"""timm's models: what is asked of timm (a stand-in answers), and timm itself where installed."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput, MissingExtra
from dptune.features.find import find_backbone
from dptune.features.transform import Transform

CONFIG = {
    "input_size": (3, 32, 32),
    "interpolation": "bilinear",
    "mean": (0.1, 0.2, 0.3),
    "std": (0.4, 0.5, 0.6),
    "crop_pct": 0.875,
    "crop_mode": "center",
}


class Patches(nn.Module):
    """What timm's transformers offer, in small: a class token and a token for each patch."""

    def __init__(self, class_token: bool = True) -> None:
        super().__init__()
        self.pretrained_cfg = {"tag": "in1k", "architecture": "patches"}
        self.cls_token = nn.Parameter(torch.ones(1, 1, 5)) if class_token else None
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 5, 4, 4)
        self.second = nn.Conv2d(5, 5, 1)

    def forward_features(self, x: Tensor) -> Tensor:
        patches = self.second(self.first(x)).flatten(2).transpose(1, 2)
        if self.cls_token is None:
            return patches
        return torch.cat([self.cls_token.expand(len(x), -1, -1), patches], 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_features(x)[:, -1]

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | None = None,
        norm: bool = False,
        output_fmt: str = "",
        intermediates_only: bool = False,
    ) -> list[Tensor]:
        assert intermediates_only
        assert output_fmt == "NCHW"
        first = self.first(x)
        maps = [first, self.second(first)]
        return maps if indices is None else [maps[-1] * (10 if norm else 1)]


class Asked:
    """A stand-in for the package, which keeps what it was asked for."""

    def __init__(self, patch: pytest.MonkeyPatch, model: nn.Module, config: dict[str, Any]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.model, self.config = model, config
        self.sizes = True
        package, data = ModuleType("timm"), ModuleType("timm.data")
        package.create_model = self.create_model  # type: ignore[attr-defined]
        data.resolve_model_data_config = lambda model: self.config  # type: ignore[attr-defined]
        package.data = data  # type: ignore[attr-defined]
        patch.setitem(sys.modules, "timm", package)
        patch.setitem(sys.modules, "timm.data", data)

    def create_model(self, name: str, **asked: Any) -> nn.Module:
        self.calls.append((name, asked))
        if name == "unknown":
            raise RuntimeError("Unknown model (unknown)")
        if "img_size" in asked and not self.sizes:
            raise TypeError("unexpected keyword argument 'img_size'")
        return self.model


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch, Patches(), CONFIG)


def test_timm_is_asked_for_pretrained_weights_without_a_head(asked: Asked) -> None:
    backbone = find_backbone("timm:beitv2_large_patch16_224.in1k_ft_in22k")
    plain = {"pretrained": True, "num_classes": 0}
    assert asked.calls == [("beitv2_large_patch16_224.in1k_ft_in22k", plain)]
    wanted = Transform(32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), crop=0.875, resampling="bilinear")
    assert backbone.transform == wanted
    assert "in1k" in backbone.trained_on
    assert not backbone.module.training


def test_every_kind_comes_from_timms_own_methods(asked: Asked) -> None:
    batch = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        tokens = asked.model.forward_features(batch)  # type: ignore[operator]
        maps = asked.model.forward_intermediates(  # type: ignore[operator]
            batch, output_fmt="NCHW", intermediates_only=True
        )
    expected = {
        "pooled": tokens[:, -1],
        "class-token": tokens[:, 0],
        "blocks": torch.cat([each.mean((2, 3)) for each in maps], 1),
        "grid4": 10 * maps[1].unflatten(2, (4, 2)).unflatten(4, (4, 2)).mean((3, 5)).flatten(1),
    }
    for kind, wanted in expected.items():
        backbone = find_backbone("timm:patches", features=kind)
        torch.testing.assert_close(backbone.module(batch), wanted)


def test_a_model_without_a_class_token_says_so(asked: Asked) -> None:
    asked.model = Patches(class_token=False)
    with pytest.raises(InvalidInput, match="it has pooled, blocks, grid4"):
        find_backbone("timm:patches", features="class-token")


def test_another_size_is_told_to_models_that_must_know(asked: Asked) -> None:
    assert find_backbone("timm:patches", size=48).transform.size == 48
    assert asked.calls[-1][1]["img_size"] == 48
    asked.sizes = False  # as timm's convolutional networks, which take any
    assert find_backbone("timm:patches", size=48).transform.size == 48
    assert "img_size" not in asked.calls[-1][1]


def test_pictures_may_be_pressed_and_other_ways_are_refused(asked: Asked) -> None:
    asked.config = {**CONFIG, "crop_mode": "squash"}
    assert find_backbone("timm:patches").transform.squash
    for odd in ({"crop_mode": "border"}, {"input_size": (3, 32, 48)}, {"input_size": (1, 32, 32)}):
        asked.config = {**CONFIG, **odd}
        with pytest.raises(InvalidInput, match="squares of three channels"):
            find_backbone("timm:patches")


@pytest.mark.usefixtures("asked")
def test_an_unknown_model_is_answered_by_what_to_do() -> None:
    with pytest.raises(InvalidInput, match=r"Unknown model.*timm:local-dir:FOLDER"):
        find_backbone("timm:unknown")
    with pytest.raises(InvalidInput, match="needs the name"):
        find_backbone("timm:")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtra, match="pip install timm torchvision"):
        find_backbone("timm:resnet18")


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "convnext_atto"])
@pytest.mark.filterwarnings("default")  # timm's own
def test_a_real_model_from_a_folder(name: str, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", exc_type=ImportError)
    from safetensors.torch import save_file

    torch.manual_seed(0)
    made = timm.create_model(name).eval()
    save_file(made.state_dict(), tmp_path / "model.safetensors")
    config = {each: made.pretrained_cfg[each] for each in (*CONFIG, "first_conv", "classifier")}
    stored = {"architecture": name, "num_classes": 1000, "pretrained_cfg": config}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    backbone = find_backbone(f"timm:local-dir:{tmp_path}")
    batch = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        wanted = made.forward_head(made.forward_features(batch), pre_logits=True)
    torch.testing.assert_close(backbone.module(batch), wanted)
    assert backbone.transform.mean == tuple(made.pretrained_cfg["mean"])
    for kind in ("blocks", "grid4"):
        assert find_backbone(backbone.name, features=kind).columns > backbone.columns
