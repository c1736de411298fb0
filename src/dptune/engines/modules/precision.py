"""What products of matrices are computed in."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

COMPUTE = ("float32", "bfloat16")
# Layers that use the weights of those inside them without calling these.
_WHOLE = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


@contextmanager
def computing(compute: str, device: torch.device) -> Iterator[None]:
    """Products of matrices in this precision; attention not by cuDNN, which plans anew for every
    number of rows, and samples have another each time."""
    cudnn = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=compute == "bfloat16"):
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)


@contextmanager
def all_in_float32(module: nn.Module) -> Iterator[None]:
    """The numbers that layers kept in bfloat16 have, computed with in float32: widened one layer at
    a time, while it runs. Machines then agree on what a module gives."""
    with ExitStack() as stack:
        for layer in module.modules():
            own = layer.parameters(recurse=isinstance(layer, _WHOLE))
            coarse = [parameter for parameter in own if parameter.dtype == torch.bfloat16]
            if coarse:
                before = layer.register_forward_pre_hook(_changed_to(torch.float32, coarse))
                after = layer.register_forward_hook(
                    _changed_to(torch.bfloat16, coarse), always_call=True
                )
                stack.callback(before.remove)
                stack.callback(after.remove)
        yield


def _changed_to(dtype: torch.dtype, parameters: list[nn.Parameter]) -> Any:
    def hook(*_: Any) -> None:
        for parameter in parameters:
            parameter.data = parameter.data.to(dtype)

    return hook
