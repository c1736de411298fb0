"""Engines that are not dptune's own are refused where their weights do not scatter as paid for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from module_engine import Network, SmallNetwork
from scipy.special import chdtr, chdtrc, chdtri
from torch import Tensor

import dptune
import own_networks
from dptune.data import Data, Rows
from dptune.engines import LinearEngine, Randomness, ZerothOrder, check_engine, register_engine
from dptune.engines.promises import CHECKS
from dptune.engines.scatter import is_own
from dptune.errors import InvalidInput
from dptune.ledger import Ledger
from dptune.plan import TrainPlan
from dptune.study.study import resume
from support.rows import make_data, make_rows
from support.studies import BUDGET, stop_after, study


@register_engine
@dataclass(frozen=True, kw_only=True)
class Planted(SmallNetwork):
    """The example, which is right, but for the plan that it follows."""

    name: ClassVar[str] = "planted"

    def other(self, plan: TrainPlan) -> TrainPlan:
        return plan

    def fit(
        self, plan: TrainPlan, randomness: Randomness, start: Network | None, *, rows: Rows
    ) -> Network:
        return super().fit(self.other(plan), randomness, start, rows=rows)


@register_engine
@dataclass(frozen=True, kw_only=True)
class NoNoise(Planted):
    name: ClassVar[str] = "no-noise"

    def other(self, plan: TrainPlan) -> TrainPlan:
        return replace(plan, noise_multiplier=0.0)


@register_engine
@dataclass(frozen=True, kw_only=True)
class NoiseOnTheMean(Planted):
    """Divides the noise by the number of rows once more, as if sums were means."""

    name: ClassVar[str] = "noise-on-the-mean"

    def other(self, plan: TrainPlan) -> TrainPlan:
        return replace(plan, noise_multiplier=max(plan.noise_multiplier / plan.rows, 1e-9))


@register_engine
@dataclass(frozen=True, kw_only=True)
class NoiseOfAnotherClip(Planted):
    name: ClassVar[str] = "noise-of-another-clip"

    def other(self, plan: TrainPlan) -> TrainPlan:
        return replace(plan, noise_multiplier=max(plan.noise_multiplier / plan.clip_norm, 1e-9))


@register_engine
@dataclass(frozen=True, kw_only=True)
class ClipsAtTwice(Planted):
    """With the noise that the plan asks for."""

    name: ClassVar[str] = "clips-at-twice"

    def other(self, plan: TrainPlan) -> TrainPlan:
        half = max(plan.noise_multiplier / 2, 1e-9)
        return replace(plan, clip_norm=2 * plan.clip_norm, noise_multiplier=half)


@register_engine
@dataclass(frozen=True, kw_only=True)
class OneDrawForAllSteps(Planted):
    """One long step scatters as several do whose noise is drawn once."""

    name: ClassVar[str] = "one-draw"

    def other(self, plan: TrainPlan) -> TrainPlan:
        return replace(plan, steps=1, learning_rate=plan.learning_rate * plan.steps)


@register_engine
@dataclass(frozen=True, kw_only=True)
class LastLayerWithoutNoise(SmallNetwork):
    name: ClassVar[str] = "last-layer-without-noise"

    def fit(
        self, plan: TrainPlan, randomness: Randomness, start: Network | None, *, rows: Rows
    ) -> Network:
        noisy = super().fit(plan, randomness, start, rows=rows)
        exact = super().fit(replace(plan, noise_multiplier=0.0), randomness, start, rows=rows)
        biases = slice(-int(self.outputs or 0), None)
        noisy.weights[biases] = exact.weights[biases]
        return noisy


@dataclass(frozen=True)
class WithMean(Network):
    mean: Tensor | None = None


@register_engine
@dataclass(frozen=True, kw_only=True)
class KeepsTheMeanOfRows(SmallNetwork):
    name: ClassVar[str] = "keeps-a-mean"

    def fit(
        self, plan: TrainPlan, randomness: Randomness, start: Network | None, *, rows: Rows
    ) -> WithMean:
        end = super().fit(plan, randomness, start, rows=rows)
        mean = torch.stack([chunk.features.double().mean() for chunk in rows.chunks()])
        return WithMean(end.module, end.weights, end.velocity, mean)

    def pack(self, model: Any) -> dict[str, Tensor]:
        return super().pack(model) | {"mean": model.mean}

    def unpack(self, tensors: Mapping[str, Tensor]) -> WithMean:
        new = self._new(Randomness())
        return WithMean(new.module, tensors["weights"], tensors["velocity"], tensors["mean"])


@register_engine
@dataclass(frozen=True, kw_only=True)
class AdaptiveOnly(SmallNetwork):
    name: ClassVar[str] = "adaptive-only"

    def check(self, plan: TrainPlan) -> None:
        if plan.optimizer != "adam":
            raise InvalidInput("adaptive-only runs adam.")


@register_engine
@dataclass(frozen=True, kw_only=True)
class AdaptiveWithoutNoise(AdaptiveOnly):
    name: ClassVar[str] = "adaptive-without-noise"

    def fit(
        self, plan: TrainPlan, randomness: Randomness, start: Network | None, *, rows: Rows
    ) -> Network:
        return super().fit(replace(plan, noise_multiplier=0.0), randomness, start, rows=rows)


@register_engine
@dataclass(frozen=True)
class SlopesWithoutNoise(ZerothOrder):
    name: ClassVar[str] = "slopes-without-noise"

    def fit(self, plan: TrainPlan, *args: Any, **more: Any) -> Any:
        return super().fit(replace(plan, noise_multiplier=0.0), *args, **more)


@register_engine
@dataclass(frozen=True, kw_only=True)
class OwnLinear(LinearEngine):
    """The linear engine under another name."""

    name: ClassVar[str] = "own-linear"


ADAM: dict[str, Any] = {"recipe": {"optimizer": "adam"}}
SILENT = "released .* of them without noise"
WRONG = r"only .* scatter as the noise .* standard deviation should be 2, and it is"


@pytest.mark.parametrize(
    ("engine", "asked", "said"),
    [
        (NoNoise(), {}, SILENT),
        (NoiseOnTheMean(), {}, WRONG),
        (NoiseOfAnotherClip(), {}, WRONG),
        (OneDrawForAllSteps(), {}, WRONG),
        (LastLayerWithoutNoise(), {}, r"only 128 scatter .* in weights with 3 of 0"),
        (ClipsAtTwice(), {}, "does not clip the gradient of every row"),
        (KeepsTheMeanOfRows(), {}, "packs as 'mean' depends on the rows and has no noise"),
        (AdaptiveWithoutNoise(), ADAM, SILENT),
        (SlopesWithoutNoise(own_networks.small), {}, SILENT),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_engine_that_does_not_add_the_noise_of_its_plan_is_refused_for_free(
    engine: Any, asked: dict[str, Any], said: str, tmp_path: Path
) -> None:
    features, _ = make_rows()
    data = Data(features, np.arange(len(features)) % 3, name="data")
    address = str(tmp_path / "ledger.db")
    ledger = Ledger.create(address, BUDGET, dataset="data", fingerprint=data.fingerprint)
    with pytest.raises(InvalidInput, match=f"(?s){said}.*Nothing was paid"):
        study(tmp_path / "run", data, engine=engine, ledger=address, **asked)
    assert not ledger.state().payments and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("engine", "asked"),
    [(SmallNetwork(hidden=2), {}), (AdaptiveOnly(hidden=2), ADAM), (OwnLinear(), {})],
    ids=lambda value: getattr(value, "name", None),
)
def test_engine_that_is_not_dptunes_own_is_named_by_the_guarantee(
    engine: Any, asked: dict[str, Any]
) -> None:
    promise = study(None, engine=engine, **asked).guarantee
    kind = f"{type(engine).__module__}.{type(engine).__qualname__}"
    named = f"the engine {engine.name} ({kind}) is not dptune's own: that it clips every row"
    assert sum(caveat.startswith(named) for caveat in promise.caveats) == 1
    assert f"Note: {named}" in promise.in_words()


def test_engines_of_dptune_are_not_named_as_anybody_elses() -> None:
    assert is_own(LinearEngine()) and is_own(ZerothOrder(own_networks.small))
    assert not any("not dptune's own" in caveat for caveat in study(None).guarantee.caveats)


def test_resumed_study_checks_the_engine_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, data = tmp_path / "run", make_data()
    engine = Planted(hidden=2)
    stop_after(out, data, "final run", engine=engine)
    monkeypatch.setattr(Planted, "other", NoNoise.other)
    with pytest.raises(InvalidInput, match=SILENT):
        resume(out, data)


@pytest.mark.parametrize("freedom", [200, 456, 10**4, 10**8])
def test_right_noise_is_refused_less_than_once_in_a_million(freedom: int) -> None:
    """The bounds of one deviation, at the smallest share of the false alarms that a model of 100
    tensors gives it."""
    from dptune.engines.scatter import _is_as_planned

    tail = 1e-9 / 200
    low, high = (float(chdtri(freedom, share)) for share in (1 - tail, tail))
    assert chdtr(freedom, low) + chdtrc(freedom, high) < 3 * tail
    assert _is_as_planned(low, freedom, tail) and _is_as_planned(high, freedom, tail)
    for wrong in (0.25, 4.0):  # half or twice the noise
        assert not _is_as_planned(wrong * freedom, freedom, tail)


# -- the same for engines that somebody writes


def test_check_engine_passes_an_engine_that_is_right() -> None:
    passed = check_engine(OwnLinear(bias=True), precision="float32", runs=100)
    assert len(passed) == len(CHECKS) > 15
    assert "released weights scatter as the plan says" in passed


def test_check_engine_lists_what_is_broken() -> None:
    with pytest.raises(InvalidInput) as broken:
        check_engine(NoNoise(hidden=2), precision="float32", runs=20)
    said = str(broken.value)
    assert said.startswith(f"the engine no-noise fails 3 of {len(CHECKS)} checks")
    for check in (
        "noise is what the plan says and a row shows no more than the price",
        "released weights scatter as the plan says",
        "noise is fresh in every run",
    ):
        assert f"- {check}: " in said
    assert dptune.engines.check_engine is check_engine
