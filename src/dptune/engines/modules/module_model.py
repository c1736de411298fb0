"""A trained module, and what it gives for made-up rows, which is stored with it: code that was
changed since shows by that."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from dptune.engines.language.reader import Reader
from dptune.engines.modules.losses import outputs_of
from dptune.engines.modules.made_up import made_up
from dptune.engines.modules.precision import all_in_float32, computing
from dptune.engines.modules.problem import Names

SEEN_SHAPE, SEEN_LOGITS = "dptune.shape", "dptune.logits"
_EVALUATED_AT_ONCE = 256
_SEEN_ROWS = 2
# A module that diverged gives other numbers on every machine. How far rounding moves it shows when
# its weights are moved by some of their last digits.
_LAST_DIGITS, _SPARE = 1e-6, 10.0


@dataclass(frozen=True)
class ModuleModel:
    """A trained module. It is an ordinary one: `model.module` can be used without dptune."""

    module: nn.Module
    shape: tuple[int, ...]  # of a row
    ids: bool = False
    compute: str = "float32"

    def logits(self, features: Tensor) -> Tensor:
        """(rows, outputs), some rows at a time."""
        self.module.to(features.device).eval()
        # A copy: the module may write into what it is given.
        taken = features.to(torch.int64 if self.ids else torch.float32, copy=True)
        with torch.no_grad(), computing(self.compute, features.device):
            some = torch.split(taken, self._at_once)
            parts = [outputs_of(self.module(part)) for part in some]
        return torch.cat(parts).float()

    @property
    def _at_once(self) -> int:
        if isinstance(self.module, Reader):
            return self.module.evaluated_at_once(self.shape[-1])
        return _EVALUATED_AT_ONCE

    def on_made_up_rows(self) -> Tensor:
        """Its logits for rows that are always the same."""
        device = next(self.module.parameters()).device
        rows = made_up(self.module, self.shape, _SEEN_ROWS, ids=self.ids)
        with all_in_float32(self.module):  # bfloat16 is rounded otherwise on every machine
            return replace(self, compute="float32").logits(rows.to(device)).cpu()

    def gives(self, before: Tensor, trained: Names, rounding: float) -> bool:
        """Whether it gives for made-up rows what it gave `before`, except for rounding."""

        def close(allowed: float) -> bool:
            return torch.allclose(now, before, rtol=0.01, atol=allowed, equal_nan=True)

        now = self.on_made_up_rows()
        if now.shape != before.shape:
            return False
        allowed = rounding * float(before.nan_to_num().abs().max())
        if close(allowed):
            return True
        with _shaken(self.module, trained):
            moved = float((self.on_made_up_rows() - now).nan_to_num().abs().max())
        return close(allowed + _SPARE * moved)


@contextmanager
def _shaken(module: nn.Module, names: Names) -> Iterator[None]:
    """The module with the last digits of these parameters changed."""
    named = dict(module.named_parameters())
    kept = {name: named[name].data for name in names}
    generator = torch.Generator().manual_seed(0)
    for name, data in kept.items():
        noise = torch.randn(data.shape, generator=generator).to(data.device)
        named[name].data = data * (1 + _LAST_DIGITS * noise)
    try:
        yield
    finally:
        for name, data in kept.items():
            named[name].data = data
