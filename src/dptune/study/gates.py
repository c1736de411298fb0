"""From when on a private mean and a private second moment are worth their price: where their noise
does not outweigh them, by public numbers alone. Measurements: docs/law-measured.md."""

import math

from dptune.data.rows import DataFacts
from dptune.study.config import Config

# Of mu^2, where nobody names a share.
CENTER_SHARE, WHITEN_SHARE = 0.01, 0.02
# A noisy mean may be off by this part of a row's length.
_MEAN_ERROR = 0.25
# The noise on a second moment may be so many times its mean eigenvalue.
_NOISE_LEVEL = 5.0


def noisy_mean(config: Config, facts: DataFacts) -> bool:
    """Whether it would be mostly noise at the usual price."""
    mu = math.sqrt(CENTER_SHARE) * config.budget.mu
    return math.sqrt(facts.columns) / (mu * facts.count) > _MEAN_ERROR


def noisy_moment(config: Config, facts: DataFacts) -> bool:
    """The same of a second moment."""
    mu = math.sqrt(WHITEN_SHARE) * config.budget.mu
    size = 1.4 * facts.columns * math.sqrt(facts.columns)
    return size / (mu * facts.count) > _NOISE_LEVEL
