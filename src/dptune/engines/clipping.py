"""The one place where sensitivity is decided: how much of each row enters the sum.

For a linear layer the gradient of one row is the outer product of its residual (prediction minus
target) and its features, so its norm is ||residual|| * ||features|| and no per-row gradient is ever
formed. We scale the residuals, round them to the precision of the matrix product, and promise:

    for every row, || rounded scaled residual || * || stored features ||  <=  clip_norm,

exactly, for the numbers that are multiplied and summed; times its weight, at most 1, where rows are
weighted. And for the sum as it is really added up:

    replacing one row by an empty one moves the computed sum by at most clip_norm.

Norms and sums are computed with rounding, so the bound is aimed at from a little below (`margin`;
for sums see sums.py, and docs/design/engine.md for the proof). What is too small to round safely
contributes nothing.

Layout: (trials, outputs, rows). The rows are contiguous, so every operation over outputs is a
vector operation over rows.
"""

import torch
from torch import Tensor
from torch.nn.functional import hardshrink

from dptune.data.rows import Chunk
from dptune.engines import sums

# A residual smaller than this contributes nothing: its square would underflow and its norm come
# out too small. A scaled one below the second limit neither: rounding a denormal can double it.
SMALLEST_SIZE = 2.0**-50
SMALLEST = 2.0**-100
_HALF_ULP = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}


def residuals_(logits: Tensor, targets: Tensor, loss: str) -> Tensor:
    """Derivative of each row's loss in its logits, which are lost; (trials, outputs, rows)."""
    if loss == "softmax":
        residuals = torch.softmax(logits, 1)
        classes = targets.long().expand(len(logits), 1, -1)
        return residuals.scatter_add_(1, classes, -residuals.new_ones(1).expand(classes.shape))
    if loss == "binary":
        logits.sigmoid_()
    logits -= as_columns(targets, logits)
    return logits


def as_columns(targets: Tensor, logits: Tensor) -> Tensor:
    """Targets of binary and squared loss as (outputs, rows)."""
    return targets.reshape(len(targets), logits.shape[1]).T.to(logits.dtype)


def clip_(
    residuals: Tensor, chunk: Chunk, clip_norms: Tensor | None, weights: Tensor | None = None
) -> Tensor:
    """Scale residuals in place so that no row contributes more than its trial's clip norm, times
    its weight, from 0 to 1, where rows have `weights` (trials, rows).

    `clip_norms` (trials,), or None for plain training. Where rows have augmented copies, residuals
    are (trials, outputs, rows * copies) and the copies of a row are averaged before clipping.
    Returns the residuals in the precision of the features.
    """
    product = chunk.features.dtype
    rows, copies, _ = chunk.features.shape
    parts = residuals.view(*residuals.shape[:2], rows, copies)
    if clip_norms is None:
        if weights is not None:
            parts *= weights[:, None, :, None]
        return residuals.div_(copies).to(product)
    reach = (clip_norms * (1 - margin(residuals, product)))[:, None]
    one = parts.shape[1] == 1
    if one and copies == 1 and weights is None:
        return _cut_(residuals, reach / chunk.norms[:, 0]).to(product)
    sizes = parts[:, 0].abs() if one else (parts * parts).sum(1).sqrt_()  # (trials, rows, copies)
    if copies == 1:
        smallest = sizes[..., 0]
        bound = smallest * chunk.norms[:, 0]
        countable = smallest >= SMALLEST_SIZE
    else:
        silent = ~(sizes >= SMALLEST_SIZE)  # not a number, too
        parts.masked_fill_(silent[:, None], 0.0)
        sizes.masked_fill_(silent, 0.0)
        smallest = sizes.masked_fill(silent, torch.inf).amin(-1)
        bound = _norm_of_average(parts, sizes, chunk)
        countable = bound >= 0
    scale = reach / torch.maximum(bound, reach)
    if weights is not None:
        scale *= weights
    # Overflowing logits, or numbers too small to be rounded safely: the row stays out.
    stays = countable & (scale >= SMALLEST) & (scale * smallest >= SMALLEST)
    scale = torch.where(stays, scale / copies, 0.0)
    parts *= scale[:, None, :, None]
    residuals.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return residuals.to(product)


def _cut_(residuals: Tensor, limits: Tensor) -> Tensor:
    """Residuals of one output, which are their own sizes, brought within each row's limit. What is
    too small contributes nothing here, too, nor does what overflows."""
    limits = hardshrink(limits, SMALLEST)[:, None]  # 0 where not above it
    residuals = hardshrink(residuals.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0), SMALLEST_SIZE)
    return residuals.clamp_(-limits, limits)


def margin(residuals: Tensor, product: torch.dtype) -> float:
    """How far below the clip norm to aim: rounding of the sum of squares, of the scale and of its
    product with a weight, of the scaled residual to the product's precision, and of the sum of all
    rows."""
    terms = residuals.shape[1] + 16
    rounding = terms * 2 * _HALF_ULP[residuals.dtype] + 2 * _HALF_ULP[product]
    return rounding + sums.margin(residuals.dtype)


def _norm_of_average(parts: Tensor, sizes: Tensor, chunk: Chunk) -> Tensor:
    """Norm of the mean of a row's copies' gradients, rounded up: (trials, rows).

    || sum_a r_a x_a^T ||^2 = sum_ab (r_a . r_b)(x_a . x_b), so two small Gram matrices do. They are
    taken of unit vectors, which neither overflow nor vanish; terms may cancel, so rounding is
    bounded by the norm the copies would have if they did not.
    """
    copies, columns = chunk.features.shape[1:]
    per_unit = 1 / chunk.norms  # (rows, copies)
    features = chunk.features.to(parts.dtype) * per_unit[..., None]
    of_features = features @ features.mT  # (rows, copies, copies)
    if chunk.bias:
        of_features += per_unit[:, :, None] * per_unit[:, None, :]
    tiny = torch.finfo(parts.dtype).tiny
    units = parts / sizes.clamp(min=tiny)[:, None]
    of_residuals = torch.einsum("tona,tonb->tnab", units, units)
    lengths = sizes * chunk.norms
    at_most = lengths.sum(-1)
    shares = lengths / at_most[..., None].clamp(min=tiny)
    squared = torch.einsum("tnab,nab,tna,tnb->tn", of_residuals, of_features, shares, shares)
    terms = columns + parts.shape[1] + copies * copies + 32
    rounding = terms * _HALF_ULP[parts.dtype]
    norm = (squared.clamp(min=0) + rounding).sqrt_() + 2 * _HALF_ULP[chunk.features.dtype]
    # What cancels in the norm is still rounded in the sum: at most `copies` clip norms of it.
    return norm.clamp(min=1 / copies) * at_most / copies
