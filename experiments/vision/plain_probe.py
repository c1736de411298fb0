"""Epsilon = infinity: a softmax regression on the same rows, without noise or clipping."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dptune.data.rows import Rows

RIDGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
_HELD_OUT = 10  # one row in so many chooses the ridge
_STEPS = 150


def plain_probe(train: Rows, others: Sequence[Rows], classes: int) -> tuple[float, list[float]]:
    """The ridge that does best on a tenth of the training rows, and the share of rows that are
    right in each of `others` after training on all rows with it."""
    features, targets = _tensors(train)
    center = features.mean(0)
    scale = (features - center).square().mean().sqrt()

    def ready(table: Tensor) -> Tensor:
        return (table - center) / scale

    features = ready(features)
    held_out = torch.arange(len(features), device=features.device) % _HELD_OUT == 0
    rest, known = features[~held_out], targets[~held_out]
    checked, right = features[held_out], targets[held_out]
    weights = _zeros(features, classes)
    found: list[tuple[float, int]] = []
    for ridge in RIDGES:  # each goes on from the one before, which held it back more
        weights = _fitted(weights, rest, known, ridge)
        found.append((_accuracy(weights, checked, right), -len(found)))
    ridge = RIDGES[-max(found)[1]]
    del rest, checked
    weights = _fitted(_zeros(features, classes), features, targets, ridge)
    shares = []
    for rows in others:
        table, labels = _tensors(rows)
        shares.append(_accuracy(weights, ready(table), labels))
    return ridge, shares


def _tensors(rows: Rows) -> tuple[Tensor, Tensor]:
    chunks = list(rows.chunks())
    features = torch.cat([chunk.features[:, 0] for chunk in chunks]).float()
    return features, torch.cat([chunk.targets for chunk in chunks]).long()


def _zeros(features: Tensor, classes: int) -> Tensor:
    return torch.zeros(features.shape[1] + 1, classes, device=features.device)


def _fitted(start: Tensor, features: Tensor, targets: Tensor, ridge: float) -> Tensor:
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(_logits(weights, features), targets)
        value = value + ridge / 2 * weights[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


def _logits(weights: Tensor, features: Tensor) -> Tensor:
    return torch.addmm(weights[-1], features, weights[:-1])


def _accuracy(weights: Tensor, features: Tensor, targets: Tensor) -> float:
    return float((_logits(weights, features).argmax(1) == targets).float().mean())
