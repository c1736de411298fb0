"""`timm:NAME`: any model of PyTorch Image Models, with its own weights and configuration."""

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
    module = _made(timm, name, size)
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


def _made(timm: Any, name: str, size: int | None) -> nn.Module:
    """Transformers are made for one size and must be told of another; others take any."""
    asked: dict[str, Any] = {"pretrained": True, "num_classes": 0}
    try:
        if size is not None:
            try:
                return timm.create_model(name, **asked, img_size=size)  # type: ignore[no-any-return]
            except TypeError:
                pass  # it has no such option: its size is free
        return timm.create_model(name, **asked)  # type: ignore[no-any-return]
    except Exception as problem:  # the hub's, the network's and timm's own have nothing in common
        first = str(problem).strip().partition("\n")[0] or type(problem).__name__
        raise InvalidInput(
            f"timm cannot give {name} with its weights: {first}. timm.list_models(pretrained=True) "
            "has the names. Without a way to the hub, download the model where there is one and "
            "give its folder: timm:local-dir:FOLDER."
        ) from problem


def _transform(name: str, stored: Mapping[str, Any]) -> Transform:
    channels, height, width = stored["input_size"]
    mode = stored.get("crop_mode", "center")
    if channels != 3 or height != width or mode not in ("center", "squash"):
        raise InvalidInput(
            f"{name} takes pictures of {channels} channels, {height} x {width} pixels, cropped by "
            f"{mode!r}; dptune makes squares of three colours, by 'center' or 'squash'."
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
    found: dict[str, Way] = {"pooled": _pooled}
    if getattr(module, "cls_token", None) is not None:
        found["class-token"] = _class_token
    if hasattr(module, "forward_intermediates"):
        found.update(blocks=_blocks, grid4=_grid4)
    return found


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
    """Tokens of patches come as maps as well."""
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
