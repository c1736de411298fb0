"""What people would use instead of dptune: Opacus and diffprivlib, as they come."""

import math
from functools import cache
from typing import Any

import numpy as np

DELTA = 1e-5
CLIP, BATCH, EPOCHS = 1.0, 512, 20


def dp_sgd(rows: Any, labels: Any, new: Any, epsilon: float, run: int, rate: float) -> Any:
    """Logits of new rows by Opacus' DP-SGD of a logistic regression on the table as it is."""
    import torch
    from opacus import PrivacyEngine
    from torch.nn.functional import cross_entropy

    class Rows(torch.utils.data.TensorDataset):
        """Hands out a batch at once; row by row, loading takes most of the time."""

        def __getitems__(self, numbers: list[int]) -> tuple[Any, ...]:
            found: tuple[Any, ...] = self[torch.tensor(numbers)]
            return found

    torch.manual_seed(run)
    model = torch.nn.Linear(rows.shape[1], int(labels.max()) + 1)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=torch.utils.data.DataLoader(
            Rows(torch.from_numpy(rows), torch.from_numpy(labels)),
            batch_size=BATCH,
            collate_fn=tuple,
        ),
        noise_multiplier=_noise(len(rows), epsilon),
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for some, theirs in loader:
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(some), theirs))
            optimizer.step()
    with torch.no_grad():
        return torch.from_numpy(new) @ model._module.weight.T + model._module.bias


@cache
def _noise(rows: int, epsilon: float) -> float:
    """As `make_private_with_epsilon` finds it, once for all runs."""
    from opacus.accountants.utils import get_noise_multiplier

    share = 1 / math.ceil(rows / BATCH)
    noise: float = get_noise_multiplier(
        target_epsilon=epsilon, target_delta=DELTA, sample_rate=share, epochs=EPOCHS
    )
    return noise


def diffprivlib(rows: Any, labels: Any, epsilon: float, run: int) -> Any:
    """Its logistic regression. It must know the longest row: give it rows of unit length. One that
    is longer than 1 by a rounding error is clipped."""
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, random_state=run, max_iter=1000)
    return model.fit(rows, labels)


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
