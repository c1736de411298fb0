"""`HuggingFace("roberta-base@REVISION", lora=8)`: the engine for a language model, in one word."""

from typing import Any

import torch

from dptune.engines.modules.lora import LoRA
from dptune.engines.modules.module_engine import ModuleEngine
from dptune.engines.modules.torch_module import TorchModule
from dptune.engines.modules.zeroth_order import ZerothOrder
from dptune.errors import InvalidInput
from dptune.own_code import PRETRAINED, pretrained_name


def HuggingFace(
    model: str, *, lora: int | None = None, zeroth_order: bool = False, **options: Any
) -> ModuleEngine:
    """The engine that trains a language model of the Hugging Face hub or in a folder.

    Args:
        model: NAME@REVISION on the hub, or a folder with config.json and model.safetensors.
        lora: the rank of adapters, where these are trained in the model's place.
        zeroth_order: whether losses are compared, without gradients (DP-ZO).
        options: of the engine that is made: `TorchModule`, `LoRA` or `ZerothOrder`. Without
            `compute`, gradients are computed in bfloat16 where there is a GPU.

    """
    if lora is not None and zeroth_order:
        raise InvalidInput("adapters are trained by gradients; leave lora or zeroth_order out.")
    factory = f"{PRETRAINED}{pretrained_name(model)}"
    if zeroth_order:
        return ZerothOrder(factory, **options)
    # Most other processors are slow in bfloat16.
    options = {"compute": "bfloat16" if torch.cuda.is_available() else "float32"} | options
    return TorchModule(factory, **options) if lora is None else LoRA(factory, rank=lora, **options)
