"""The trained parameters of a module as one vector, which they are views of: what moves the vector
moves the module, and nothing is copied."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput


def digest_of_frozen(module: nn.Module, trained: Iterable[str]) -> Tensor:
    """SHA-256 over all that is frozen, with its names, as 32 numbers."""
    digest, apart = hashlib.sha256(), set(trained)
    for name, tensor in sorted(module.state_dict().items()):
        if name in apart:
            continue
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().data)
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)


class FlatWeights:
    """`module` on `device`, parameters called `names` ready to be trained, all others frozen."""

    def __init__(self, module: nn.Module, names: Iterable[str], device: torch.device) -> None:
        self.module = module.to(device).requires_grad_(False)
        named = dict(module.named_parameters())
        self.trained = {name: named[name] for name in names}
        for name, parameter in self.trained.items():
            if parameter.dtype != torch.float32:
                raise InvalidInput(
                    f"{name} is kept in {str(parameter.dtype).removeprefix('torch.')}, and what is "
                    "trained is kept in float32; convert it, or leave it out of what is trained."
                )
        sizes = [parameter.numel() for parameter in self.trained.values()]
        self.vector = torch.empty(sum(sizes), dtype=torch.float32, device=device)
        parts = torch.split(self.vector, sizes)
        for parameter, part in zip(self.trained.values(), parts, strict=True):
            part.copy_(parameter.detach().flatten())
            parameter.data = part.view(parameter.shape)
            parameter.requires_grad_(True)
        self.sizes = sizes

    def mark(self) -> Tensor:
        """Of the module without the vector: what is frozen, and which parameters are trained, as 32
        numbers. A vector is worth something beside that module alone."""
        digest = hashlib.sha256(bytes(digest_of_frozen(self.module, self.trained).tolist()))
        for name, parameter in self.trained.items():
            digest.update(f"{name} {tuple(parameter.shape)}".encode())
        return torch.tensor(list(digest.digest()), dtype=torch.uint8)

    def release(self, vector: Tensor) -> nn.Module:
        """The module with these weights, cut loose from the vector."""
        parts = torch.split(vector, self.sizes)
        for parameter, part in zip(self.trained.values(), parts, strict=True):
            parameter.data = part.view(parameter.shape).clone()
        return self.module.requires_grad_(False).eval()
