"""One step of private training with Opacus, as its users write it."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dptune.errors import MissingExtra

MODES = ("ghost", "hooks")


def opacus_step(
    mode: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    criterion: nn.Module,
    features: Tensor,
    targets: Tensor,
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Callable[[], None]:
    """A step on all rows at once. `criterion` averages their losses, or returns each if its
    `reduction` is none. The forward pass runs inside `precision()`."""
    with quiet():
        try:
            from opacus import PrivacyEngine
        except ImportError:
            raise MissingExtra(
                "this comparison needs Opacus: pip install 'dptune[bench]'."
            ) from None
        dataset = torch.utils.data.TensorDataset(features, targets)
        made: tuple[Any, ...] = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            criterion=criterion,
            data_loader=torch.utils.data.DataLoader(dataset, batch_size=len(targets)),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
    # With ghost clipping, Opacus' criterion runs the two backward passes.
    private, private_optimizer, loss = made[0], made[1], made[2] if mode == "ghost" else criterion

    def step() -> None:
        private_optimizer.zero_grad()
        with precision():
            losses = loss(private(features), targets)
        losses.backward()
        private_optimizer.step()

    return step


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Opacus' warnings about its random numbers and its hooks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
