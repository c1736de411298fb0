"""Studies with engines other than the default: what is refused before it is paid, what is written
down, and what version 0.1 left behind."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tomli_w
import torch
from module_engine import Network, SmallNetwork
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import dptune
from dptune.data import Data, Preprocessing
from dptune.data.row_maps import Multiply, Subtract, UnitLength
from dptune.engines import LinearEngine, Prior, ProcessExecutor, descend, register_engine
from dptune.engines.base import Engine
from dptune.engines.linear import LinearModel
from dptune.errors import FolderProblem, InvalidInput
from dptune.ledger import Ledger
from dptune.search.base import Facts
from dptune.search.law import best_noise
from dptune.search.linear_scaling import law_error
from dptune.study.config import digest, engine_from, parse
from dptune.study.finished_run import finish
from dptune.study.planning import read_config
from dptune.study.run_folder import RunFolder
from dptune.study.study import resume
from support.old_folders import without_digests
from support.row_maps import earlier
from support.rows import make_data, make_rows
from support.studies import BUDGET, PLAIN, study


@register_engine
@dataclass(frozen=True, kw_only=True)
class CannotUnpack(SmallNetwork):
    name: ClassVar[str] = "cannot-unpack"

    def unpack(self, tensors: Mapping[str, Tensor]) -> Network:
        raise InvalidInput("this engine cannot unpack")


@register_engine
@dataclass(frozen=True, kw_only=True)
class Forgets(SmallNetwork):
    name: ClassVar[str] = "forgets"

    def unpack(self, tensors: Mapping[str, Tensor]) -> Network:
        return super().unpack({name: tensor * 0 for name, tensor in tensors.items()})


@register_engine
@dataclass(frozen=True, kw_only=True)
class ForgetsItsVelocity(SmallNetwork):
    name: ClassVar[str] = "forgets-its-velocity"

    def unpack(self, tensors: Mapping[str, Tensor]) -> Network:
        return replace(super().unpack(tensors), velocity=tensors["velocity"] * 0)


@dataclass(frozen=True)
class Mixed(Network):
    def logits(self, features: Tensor, weights: Tensor | None = None) -> Tensor:
        logits = super().logits(features, weights)
        return logits if weights is not None else logits - logits.mean(0) + logits.sum(0)


@register_engine
@dataclass(frozen=True, kw_only=True)
class MixesRows(SmallNetwork):
    name: ClassVar[str] = "mixes-rows"

    def _new(self, randomness: Any) -> Network:
        made = super()._new(randomness)
        return Mixed(made.module, made.weights, made.velocity)

    def fit(self, plan: Any, randomness: Any, start: Any, *, rows: Any) -> Network:
        fitted = super().fit(plan, randomness, start, rows=rows)
        return Mixed(fitted.module, fitted.weights, fitted.velocity)


@register_engine
@dataclass(frozen=True, kw_only=True)
class NoNumbers(SmallNetwork):
    name: ClassVar[str] = "no-numbers"

    def fit(self, plan: Any, randomness: Any, start: Any, *, rows: Any) -> Network:
        fitted = super().fit(plan, randomness, start, rows=rows)
        return replace(fitted, weights=fitted.weights * torch.nan)


@register_engine
@dataclass(frozen=True, kw_only=True)
class TooWide(SmallNetwork):
    name: ClassVar[str] = "too-wide"

    def for_data(self, facts: Any) -> "TooWide":
        made = super().for_data(facts)
        return replace(made, outputs=facts.outputs + 1)


@register_engine
@dataclass(frozen=True, kw_only=True)
class CannotGoOn(SmallNetwork):
    name: ClassVar[str] = "cannot-go-on"

    def fit(self, plan: Any, randomness: Any, start: Any, *, rows: Any) -> Network:
        if start is not None:
            raise InvalidInput("this engine cannot go on")
        return super().fit(plan, randomness, start, rows=rows)


@register_engine
@dataclass(frozen=True, kw_only=True)
class Breaks(SmallNetwork):
    name: ClassVar[str] = "breaks"

    def pack(self, model: Network) -> dict[str, Tensor]:
        raise ZeroDivisionError("by zero")


@register_engine
@dataclass(frozen=True, kw_only=True)
class Ties(SmallNetwork):
    name: ClassVar[str] = "ties"

    def pack(self, model: Network) -> dict[str, Tensor]:
        return super().pack(model) | {"again": model.weights}


@register_engine
@dataclass(frozen=True, kw_only=True)
class TakesOurNames(SmallNetwork):
    name: ClassVar[str] = "takes-our-names"

    def pack(self, model: Network) -> dict[str, Tensor]:
        return super().pack(model) | {"prepare.shift": torch.zeros(1)}


@register_engine
@dataclass(frozen=True, kw_only=True)
class SumsOverRows(SmallNetwork):
    name: ClassVar[str] = "sums-over-rows"

    def fit(self, plan: Any, randomness: Any, start: Any, *, rows: Any) -> Network:
        begun = self._new(randomness)
        parts = (plan, rows, randomness, begun.weights, begun.velocity)
        return Network(begun.module, *descend(*parts, lambda weights, *_: weights))


@register_engine
@dataclass(frozen=True, kw_only=True)
class HasAnOption(SmallNetwork):
    name: ClassVar[str] = "has-an-option"
    depth: int | None = 7


class NotRegistered(SmallNetwork):
    name: ClassVar[str] = "not-registered"


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (CannotUnpack(), "cannot unpack"),
        (Forgets(), "otherwise once it is packed"),
        (ForgetsItsVelocity(), "otherwise once it is packed"),
        (MixesRows(), "depends on the others in its batch"),
        (NoNumbers(), "some that are no numbers"),
        ("linear", "engine must be an engine"),
        (SmallNetwork, "engine must be an engine"),
        (TooWide(), r"shape \(3, 3\)"),
        (CannotGoOn(), "cannot go on"),
        (Breaks(), "failed on a made-up row, so nothing was paid: ZeroDivisionError: by zero"),
        (Ties(), "share memory"),
        (TakesOurNames(), "names that begin with 'prepare.' are taken"),
        (SumsOverRows(), "one each"),
        (HasAnOption(depth=None), "cannot be written down"),
        (NotRegistered(), "register_engine"),
        (LinearEngine(outputs=3), "need an engine of 2 outputs"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_an_engine_cannot_do_is_refused_before_anything_is_paid(
    engine: Engine[Any], message: str, tmp_path: Path
) -> None:
    data, address = make_data(), str(tmp_path / "ledger.db")
    fingerprint = data.fingerprint
    ledger = Ledger.create(address, BUDGET, dataset="data", fingerprint=fingerprint)
    with pytest.raises(InvalidInput, match=message):
        study(tmp_path / "run", data, engine=engine, ledger=address)
    assert not ledger.state().payments and not (tmp_path / "run").exists()


class Unpicklable(LinearModel):
    def __reduce__(self) -> Any:
        raise TypeError("this model does not travel")


@register_engine
@dataclass(frozen=True, kw_only=True)
class StaysAtHome(LinearEngine):
    name: ClassVar[str] = "stays-at-home"

    def fit_many(self, *given: Any) -> Any:
        return [Unpicklable(m.weights, m.bias, m.loss) for m in super().fit_many(*given)]


def test_an_engine_whose_models_do_not_travel_is_refused_where_they_would_have_to(
    tmp_path: Path,
) -> None:
    asked = {"engine": StaysAtHome(), "search": dptune.RandomSearch(trials=2)}
    with pytest.raises(InvalidInput, match="nothing was paid"):
        study(tmp_path / "run", executor=ProcessExecutor(), **asked)
    assert not (tmp_path / "run").exists()
    assert study(tmp_path / "run", **asked).guarantee.epsilon <= BUDGET.epsilon


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda: dptune.tune(None, make_data(), budget=BUDGET), "tune takes the data"),  # type: ignore[arg-type]
        (lambda: dptune.tune(LinearEngine(), make_data(), budget=BUDGET), "engine="),  # type: ignore[arg-type]
        (lambda: study(None, recipe={"bias": True}), r"LinearEngine\(bias=\.\.\.\)"),
        (lambda: study(None, recipe={"initialization": "random"}), r"under \[engine\]"),
        (lambda: study(None, pictures()), "linear models take rows"),
        (
            lambda: study(
                None, pictures(), engine=SmallNetwork(), preparation=dptune.Preparation()
            ),
            "only rows of a table",
        ),
    ],
)
def test_what_was_asked_the_old_way_or_makes_no_sense_says_what_to_do(
    asked: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        asked()


def pictures(count: int = 200, copies: int | None = None) -> Data:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    shape = (count, 2, 3) if copies is None else (count, copies, 2, 3)
    features = rng.normal(size=shape) + 2 * labels.reshape(-1, *[1] * (len(shape) - 1))
    return Data.from_table(features, labels, augmented=copies is not None)


def test_pictures_are_learned_without_preparation(tmp_path: Path) -> None:
    result = study(tmp_path / "run", pictures(), engine=SmallNetwork(hidden=4))
    assert "the shape of a row (2 x 3), taken from the data" in result.guarantee.public_facts
    assert result.census is not None and len(result.census.classes) == 2
    loaded = dptune.load(tmp_path / "run")
    assert loaded.shape == (2, 3) and loaded.predict(np.zeros((4, 2, 3))).shape == (4,)
    assert loaded.predict(np.zeros((0, 2, 3))).shape == (0,)
    with pytest.raises(InvalidInput, match=r"rows of shape \(2, 3\); got shape \(4, 6\)"):
        loaded.predict(np.zeros((4, 6)))


def test_copies_are_trained_on_as_many_as_the_recipe_says() -> None:
    data = pictures(copies=3)
    engine = SmallNetwork(hidden=3)
    result = study(None, data, engine=engine, recipe={"augmentations": 3})
    assert result.final.plan.augmentations == 3
    with pytest.raises(InvalidInput, match="averages 4 copies of each row, but the data hold 3"):
        study(None, data, engine=engine, recipe={"augmentations": 4})


# -- what is written down


def test_an_engine_is_part_of_what_was_asked(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    study(out, data, engine=LinearEngine(bias=True), search=dptune.UnitNoise())
    config = read_config(RunFolder.open(out))
    assert config.engine == LinearEngine(bias=True)
    file = out / "run.toml"
    changed = file.read_text().replace("bias = true", "bias = false")
    assert changed != file.read_text()
    file.write_text(changed)
    with pytest.raises(FolderProblem, match="was changed"):
        resume(out, data)


def test_engines_are_known_by_name() -> None:
    assert engine_from({"name": "linear", "bias": True}) == LinearEngine(bias=True)
    assert engine_from({}) == LinearEngine()
    with pytest.raises(InvalidInput, match=r"no engine is called 'cubic'; there are: .*linear"):
        engine_from({"name": "cubic"})
    with pytest.raises(InvalidInput, match="has no setting rank"):
        engine_from({"name": "linear", "rank": 8})

    @dataclass(frozen=True, kw_only=True)
    class Taken(SmallNetwork):
        name: ClassVar[str] = "linear"

    with pytest.raises(InvalidInput, match=r"called 'linear' is there already"):
        register_engine(Taken)
    assert register_engine(LinearEngine) is LinearEngine  # again, as in a notebook


# -- version 0.1


def as_in_version_0_1(out: Path) -> None:
    """The run as 0.1 would have written it: no engine, its options in the recipe and the plans."""
    without_digests(out)
    plain = parse((out / "run.toml").read_text(), "run.toml")
    engine = plain.pop("engine")
    plain["recipe"] = {"bias": engine["bias"], "initialization": "zero"}
    plain["study"] = plain["study"].split("-")[0] + "-" + digest(plain | {"engine": {}})
    (out / "run.toml").write_text(tomli_w.dumps(plain))
    lines = []
    for line in (out / "trials.jsonl").read_text().splitlines():
        trial = json.loads(line)
        trial["plan"] |= {"bias": True, "initialization": "zero"}
        lines.append(json.dumps(trial))
    (out / "trials.jsonl").write_text("\n".join(lines) + "\n")


def test_a_run_of_version_0_1_is_read_with_its_engine(tmp_path: Path) -> None:
    out = tmp_path / "run"
    study(out, engine=LinearEngine(bias=True))
    as_in_version_0_1(out)
    config = read_config(RunFolder.open(out))
    assert config.engine == LinearEngine(bias=True) and config.recipe == {}
    assert len(RunFolder.open(out).read_trials()) == 3


def test_a_model_of_version_0_1_predicts(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = study(out, engine=LinearEngine(bias=True), preparation=PLAIN)
    without_digests(out)
    file = out / "model.safetensors"
    tensors = load_file(file)
    facts = {
        "loss": "softmax",
        "unit_rows": True,
        "classes": [0, 1],
        "target_range": None,
        "column_names": [],
    }
    save_file(tensors, file, metadata={"facts": json.dumps(facts)})
    features, _ = make_rows(50, 7)
    loaded = dptune.load(out)
    assert loaded.engine == LinearEngine(outputs=2, bias=True) and loaded.columns == 4
    assert (loaded.predict(features) == result.model.predict(features)).all()


def test_a_whitened_model_is_stored_with_all_that_prepares_its_rows(tmp_path: Path) -> None:
    model = study(tmp_path / "run").model
    chance = np.random.default_rng(0)
    whitened = replace(
        model,
        preprocessing=Preprocessing(
            [
                UnitLength(),
                Subtract(chance.normal(size=4) / 9),
                UnitLength(),
                Multiply(chance.normal(size=(4, 4))),
                UnitLength(),
            ]
        ),
    )
    run = RunFolder.open(tmp_path / "run")
    whitened.save(run)
    finish(run, run.read_json("result.json") or {})
    loaded = dptune.load(tmp_path / "run")
    features, _ = make_rows(50, 7)
    expected = whitened.decision_function(features)
    np.testing.assert_array_equal(loaded.decision_function(features), expected)
    assert loaded.preprocessing.in_words() == whitened.preprocessing.in_words()
    assert not np.allclose(expected, model.decision_function(features))


def test_a_centred_model_of_an_older_version_predicts_as_before(tmp_path: Path) -> None:
    """Its rows are not scaled again once the mean is subtracted, and its file does not say so."""
    model = replace(study(tmp_path / "run").model, preprocessing=earlier(center=[0.3] * 4))
    model.save(RunFolder.open(tmp_path / "run"))
    without_digests(tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    with safe_open(file, "pt") as stored:
        facts = json.loads(stored.metadata()["facts"])
    del facts["row_maps"]
    tensors = load_file(file)
    tensors["prepare.center"] = tensors.pop("prepare.1.mean")
    save_file(tensors, file, metadata={"facts": json.dumps(facts)})
    features, _ = make_rows(50, 7)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    expected = model.model.logits(torch.from_numpy((unit - 0.3).astype(np.float32)))
    found = dptune.load(tmp_path / "run").decision_function(features)
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_model_whose_engine_nobody_registered_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    study(out)
    without_digests(out)
    file = out / "model.safetensors"
    facts = {"engine": {"name": "unheard-of"}, "shape": [4]}
    facts |= {"unit_rows": True, "classes": [0, 1], "target_range": None}
    save_file(load_file(file), file, metadata={"facts": json.dumps(facts)})
    with pytest.raises(InvalidInput, match=r"no engine is called 'unheard-of'.*register"):
        dptune.load(out)


def test_a_run_whose_engine_nobody_registered_says_so(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    study(out, data)
    plain = parse((out / "run.toml").read_text(), "run.toml")
    plain["engine"]["name"] = "unheard-of"
    plain["study"] = plain["study"].split("-")[0] + "-" + digest(plain)
    (out / "run.toml").write_text(tomli_w.dumps(plain))
    with pytest.raises(InvalidInput, match=r"^no engine is called 'unheard-of'.*register"):
        resume(out, data)


def test_only_engines_are_registered() -> None:
    for kind in (SmallNetwork(), object, "linear"):
        with pytest.raises(InvalidInput, match="a frozen dataclass over"):
            register_engine(kind)  # type: ignore[type-var]


def test_a_paid_run_that_fails_says_what_is_lost_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = SmallNetwork.fit

    def fails(self: Any, plan: Any, randomness: Any, start: Any, *, rows: Any) -> Network:
        if rows.count > 3:
            raise MemoryError("too large")
        return fit(self, plan, randomness, start, rows=rows)

    monkeypatch.setattr(SmallNetwork, "fit", fails)
    with pytest.raises(MemoryError) as failed:
        study(tmp_path / "run", engine=SmallNetwork())
    assert "dptune resume" in failed.value.__notes__[0]


# -- what somebody removed, or reuses


def test_a_trial_whose_model_was_removed_is_not_chosen(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    first = study(out, data, search=dptune.RandomSearch(trials=3))
    (out / "result.json").unlink()
    (out / "models" / f"trial-{first.final.number}.safetensors").unlink()
    again = resume(out, data)
    assert again.final.number != first.final.number
    assert [trial.score for trial in again.trials] == [trial.score for trial in first.trials]


def test_a_search_is_reused_for_the_engine_that_it_was_for(tmp_path: Path) -> None:
    data, address = make_data(), str(tmp_path / "ledger.db")
    fingerprint = data.fingerprint
    Ledger.create(address, dptune.Budget(6.0, 1e-5), dataset="data", fingerprint=fingerprint)
    study(tmp_path / "a", data, ledger=address)
    with pytest.raises(InvalidInput, match=r"the engine in .* reuse"):
        study(tmp_path / "b", data, ledger=address, reuse=tmp_path / "a", engine=SmallNetwork())


# -- where searches start from


def test_a_search_starts_from_the_prior_of_its_engine() -> None:
    plan = dptune.TrainPlan(rows=1000, steps=10, learning_rate=1.0, noise_multiplier=1.0)
    linear, other = (
        Facts(10, 5, True, True, prior) for prior in (LinearEngine().traits.prior, Prior(noise=0.1))
    )
    near, far = 18 / 10**0.5, 0.2 * 100 ** (2 / 3) / 2.0
    clipped_at_one = 2 / 3
    assert best_noise(2.0, plan, linear, None) == pytest.approx(
        clipped_at_one / math.hypot(1 / near, 1 / far)
    )
    assert best_noise(2.0, plan, other, None) == pytest.approx(0.1)
    assert (law_error(linear), law_error(other)) == (0.6, 2.3)


def test_an_engine_that_does_not_care_for_lengths_pays_for_no_lengths(tmp_path: Path) -> None:
    as_given = dptune.Preparation(unit_rows=False)
    asked = {"preparation": as_given, "space": dptune.Space(steps=(5, 10))}
    for engine, lengths in ((LinearEngine(), True), (SmallNetwork(hidden=2), False)):
        result = study(tmp_path / engine.name, engine=engine, **asked)
        told = any("by length" in text for text in result.guarantee.releases)
        assert told is lengths


def test_what_is_trained_is_not_on_the_device_of_training_any_more(tmp_path: Path) -> None:
    result = study(tmp_path / "run")
    tensors = result.model.engine.pack(result.model.model)
    assert {tensor.device for tensor in tensors.values()} == {torch.device("cpu")}


def test_the_page_on_engines_runs(same_noise: None) -> None:
    page = Path(__file__).parent.parent / "docs" / "guide" / "engines.md"
    names: dict[str, Any] = {}
    for text in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(text, str(page), "exec"), names)
    assert names["linear"].test_accuracy < 0.7 < 0.85 < names["network"].test_accuracy
