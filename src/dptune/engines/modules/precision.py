"""What products of matrices are computed in."""

import torch

COMPUTE = ("float32", "bfloat16")


def computing(compute: str, device: torch.device) -> torch.autocast:
    """Products of matrices in this precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=compute == "bfloat16")
