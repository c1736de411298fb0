"""The trials of a study, as frozen records that may be released."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dptune.errors import InvalidInput
from dptune.plain_data import UNFIT
from dptune.plan import TrainPlan


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One paid run: its settings, its price and, once compared, its noisy score.

    `score` is a share of rows; centred scores are relative to the mean of their sweep.
    `score_noise` is the standard deviation of its noise. A trial is `lost` if its run was
    interrupted after payment: it is never rerun and has no model.
    """

    number: int
    stage: str
    plan: TrainPlan
    mu: float
    score: float | None = None
    score_noise: float | None = None
    lost: bool = False
    notes: tuple[str, ...] = ()

    @property
    def noise(self) -> float:
        """The standard deviation of the noise on every weight."""
        return self.plan.weight_noise

    def with_score(self, score: float, noise: float) -> "Trial":
        return replace(self, score=score, score_noise=noise)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plan = self.plan
        return {
            **asdict(self),
            "total_step_size": plan.total_step_size,
            "weight_noise": plan.weight_noise,
        }

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> "Trial":
        """The inverse of `to_dict`."""
        try:
            return Trial(
                number=int(plain["number"]),
                stage=str(plain["stage"]),
                plan=_plan(plain["plan"]),
                mu=float(plain["mu"]),
                score=_number(plain["score"]),
                score_noise=_number(plain["score_noise"]),
                lost=bool(plain["lost"]),
                notes=tuple(map(str, plain["notes"])),
            )
        except UNFIT as error:
            raise InvalidInput(f"this is not a valid record of a trial ({error}).") from None


def _plan(plain: Mapping[str, Any]) -> TrainPlan:
    """The plan of a record. Version 0.1 stored two options in it that now belong to the engine."""
    return TrainPlan(**{n: v for n, v in plain.items() if n not in ("bias", "initialization")})


def scored_trials(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that have a score."""
    return [trial for trial in trials if trial.score is not None]


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))
