"""`timm:NAME`: any model of PyTorch Image Models (timm), with its own weights and configuration."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from dptune.errors import InvalidInput, MissingExtra
from dptune.features.backbone import Network, Way
from dptune.features.maps import grid, side_by_side
from dptune.features.transform import Transform


def open_timm(name: str, size: int | None) -> Network:
    timm = _timm()
    if not name:
        raise InvalidInput("timm: needs the name of a model: timm:vit_base_patch16_224.")
    module = _create(timm, name, size)
    stored = timm.data.resolve_model_data_config(module)
    own = getattr(module, "pretrained_cfg", None) or {}
    tag = own.get("tag")
    return Network(
        module=module.eval(),
        ways=_ways(module),
        transform=_transform(name, stored),
        made_of=f"timm {own.get('architecture') or name}",
        trained_on=f"what timm calls {tag}" if tag else "",
    )


def _create(timm: Any, name: str, size: int | None) -> nn.Module:
    """Transformers are built for one size and need another as an option; others take any size."""
    asked: dict[str, Any] = {"pretrained": True, "num_classes": 0}
    try:
        if size is not None:
            try:
                return timm.create_model(name, **asked, img_size=size)  # type: ignore[no-any-return]
            except TypeError:
                pass  # without this option it takes any size
        return timm.create_model(name, **asked)  # type: ignore[no-any-return]
    except Exception as problem:  # errors of the hub, the network and timm have no common base
        first = str(problem).strip().partition("\n")[0].rstrip(".") or type(problem).__name__
        raise InvalidInput(
            f"timm cannot load {name} with its weights: {first}. timm.list_models(pretrained=True) "
            "lists the names. Without access to the hub, download the model elsewhere and give its "
            "folder: timm:local-dir:FOLDER."
        ) from problem


def _transform(name: str, stored: Mapping[str, Any]) -> Transform:
    channels, height, width = stored["input_size"]
    mode = stored.get("crop_mode", "center")
    if channels != 3 or height != width or mode not in ("center", "squash"):
        raise InvalidInput(
            f"{name} takes pictures of {channels} channels, {height} x {width} pixels, cropped by "
            f"{mode!r}; dptune supports squares of three channels, by 'center' or 'squash'."
        )
    return Transform(
        size=height,
        mean=stored["mean"],
        deviation=stored["std"],
        crop=stored.get("crop_pct") or 1.0,
        resampling=stored.get("interpolation", "bicubic"),
        squash=mode == "squash",
    )


def _ways(module: nn.Module) -> Mapping[str, Way]:
    ways: dict[str, Way] = {"pooled": _pooled}
    if getattr(module, "cls_token", None) is not None:
        ways["class-token"] = _class_token
    if hasattr(module, "forward_intermediates"):
        ways.update(blocks=_blocks, grid4=_grid4)
    return ways


def _pooled(module: nn.Module, pictures: Tensor) -> Tensor:
    features: Tensor = module(pictures)
    return features


def _class_token(module: nn.Module, pictures: Tensor) -> Tensor:
    tokens: Tensor = module.forward_features(pictures)  # type: ignore[operator]
    return tokens[:, 0]


def _blocks(module: nn.Module, pictures: Tensor) -> Tensor:
    return side_by_side(_maps(module, pictures))


def _grid4(module: nn.Module, pictures: Tensor) -> Tensor:
    return grid(_maps(module, pictures, indices=1, norm=True)[-1])


def _maps(module: nn.Module, pictures: Tensor, **asked: Any) -> list[Tensor]:
    """The feature maps; tokens of patches are arranged as maps, too."""
    maps: list[Tensor] = module.forward_intermediates(  # type: ignore[operator]
        pictures, intermediates_only=True, output_fmt="NCHW", **asked
    )
    return maps


def _timm() -> Any:
    try:
        import timm
        import timm.data
    except (ImportError, RuntimeError) as problem:  # RuntimeError: torchvision of another torch
        raise MissingExtra(
            f"timm's models need the packages timm and torchvision, which cannot be imported here "
            f"({problem}). Install them for your torch: pip install timm torchvision"
        ) from problem
    return timm
