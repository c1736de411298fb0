"""From when on a private mean and a private second moment are worth their price: where their noise
does not outweigh them, by public numbers alone. Measurements: experiments/notes/law-measured.md."""

import math

from dptune import rounding
from dptune.data.rows import DataFacts
from dptune.prior import signal
from dptune.study.config import Config

# Of mu^2, where nobody names a share; of a mean at least.
_CENTER_SHARE, WHITEN_SHARE = 0.01, 0.02
# A noisy mean may be off by this part of a row's length. What brings it there is paid, up to so
# much of mu^2; one that is off by more is shrunk, and worth its price up to the last of these.
_MEAN_ERROR, _MOST_CENTER_SHARE, _MOST_MEAN_ERROR = 0.25, 0.05, 0.7
# Where rows share nearly all of their length, one that is off by more hides what they do not share.
_FINE_MEAN = 0.1
# Below so much signal for every weight, where no price is small, so much is paid at most.
_LITTLE_SIGNAL, _MOST_FOR_LITTLE = 0.1, 0.02
# The noise on a second moment may be so many times its mean eigenvalue.
_NOISE_LEVEL = 5.0


def center_share(config: Config, facts: DataFacts) -> float:
    """Of mu^2, what is paid for a mean; 0 where it would be mostly noise."""
    wanted = _CENTER_SHARE * (_mean_error(config, facts, _CENTER_SHARE) / _MEAN_ERROR) ** 2
    most, limit = _most(config, facts)
    share = min(max(rounding.share(wanted), _CENTER_SHARE), most)
    return share if _mean_error(config, facts, share) <= limit else 0.0


def clear_mean(config: Config, facts: DataFacts, share: float) -> bool:
    """Whether a mean bought for this share is so little off that it is subtracted as it is."""
    return _mean_error(config, facts, share) <= _MEAN_ERROR


def fine_mean(config: Config, facts: DataFacts, share: float) -> bool:
    """Whether a mean bought for this share is fine enough for rows that share nearly all."""
    return _mean_error(config, facts, share) <= _FINE_MEAN


def _most(config: Config, facts: DataFacts) -> tuple[float, float]:
    """What may be paid, and by how much the mean may be off then."""
    if not facts.has_classes:  # values were measured at the usual price alone
        return _CENTER_SHARE, _MEAN_ERROR
    told = signal(config.budget.mu, facts.count, facts.columns, facts.outputs)
    if told < _LITTLE_SIGNAL:
        return _MOST_FOR_LITTLE, _MEAN_ERROR
    return _MOST_CENTER_SHARE, _MOST_MEAN_ERROR


def _mean_error(config: Config, facts: DataFacts, share: float) -> float:
    """By which part of a row's length the mean of all is off that is bought for this share."""
    mu = math.sqrt(share) * config.budget.mu
    return math.sqrt(facts.columns) / (mu * facts.count)


def noisy_moment(config: Config, facts: DataFacts) -> bool:
    """Whether a second moment would be mostly noise at the usual price."""
    mu = math.sqrt(WHITEN_SHARE) * config.budget.mu
    size = 1.4 * facts.columns * math.sqrt(facts.columns)
    return size / (mu * facts.count) > _NOISE_LEVEL
