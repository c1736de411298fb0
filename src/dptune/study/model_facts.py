"""What a run's model is, as far as its folder says it without the engine that trained it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from dptune.accounting import Guarantee
from dptune.columns import Encoding
from dptune.data.declared import takes_numbers
from dptune.data.made_by import must_be_whole
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import DataFacts
from dptune.errors import InvalidInput
from dptune.plain_data import read_json
from dptune.search.trial import Trial
from dptune.study.finished_run import FinishedRun

MODEL_FILE = "model.safetensors"
PREPARE = "prepare."  # how the names begin of what prepares features


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """All that is known of a trained model but its engine and its weights."""

    shape: tuple[int, ...]  # of one row's features
    preprocessing: Preprocessing = field(repr=False)
    loss: str  # how what the model gives is meant, as in DataFacts
    classes: tuple[Any, ...]
    target_range: tuple[float, float] | None
    guarantee: Guarantee
    trials: tuple[Trial, ...]
    column_names: tuple[str, ...] = ()  # none where the private rows had none
    made_by: Mapping[str, Any] | None = None  # which backbone made the features, where one did

    @property
    def columns(self) -> int:
        """How many numbers a row has."""
        return math.prod(self.shape)

    @property
    def encoding(self) -> Encoding | None:
        """Of declared columns, by which new rows are read; None where these are plain numbers."""
        encoding = self.preprocessing.encoding
        return None if encoding is None or takes_numbers(encoding) else encoding

    @property
    def inputs(self) -> Encoding | None:
        """What files that hold the model read columns by, one by one; None where they take all
        features as one matrix."""
        encoding = self.preprocessing.encoding
        if self.encoding is None and encoding and encoding.columns.kept != self.column_names:
            return None  # an array, whose columns were only numbered
        return encoding

    def facts(self, rows: int) -> DataFacts:
        """What was public about the `rows` rows it was trained on; how many copies they had is not
        known any more."""
        encoding = self.preprocessing.encoding
        named = None if encoding is None else encoding.columns
        as_given = encoding is not None and self.inputs is None
        outputs = len(self.classes) or 1
        return DataFacts(rows, self.shape, 1, outputs, self.loss, named, as_given)


def read_facts(folder: FinishedRun) -> tuple[ModelFacts, dict[str, Any], dict[str, Tensor]]:
    """The facts of a finished run's model, the options of its engine, and its packed weights. No
    code of the engine is run."""
    guarantee = folder.read_guarantee()
    stored = folder.read_tensors(MODEL_FILE)
    if stored is None:
        raise InvalidInput(
            f"the run in {folder.path} has no model yet; continue it with: dptune resume "
            f"{folder.path}"
        )
    tensors, words = stored
    with folder.undamaged(MODEL_FILE):
        facts = read_json(words["facts"], "its facts")
        prepare = {
            name.removeprefix(PREPARE): tensor.numpy()
            for name, tensor in tensors.items()
            if name.startswith(PREPARE)
        }
        span = facts["target_range"]
        if facts.get("made_by") is not None:
            must_be_whole(facts["made_by"])
        made, shape = facts.get("engine"), facts.get("shape")
        if made is None:  # by version 0.1
            outputs, *shape = tensors["weights"].shape
            made = {"outputs": outputs, "loss": facts["loss"], "bias": "bias" in tensors}
        read = ModelFacts(
            shape=tuple(shape),
            preprocessing=Preprocessing.from_arrays(prepare, facts),
            # Models that older versions made know classes and values only.
            loss=facts.get("loss") or ("softmax" if facts["classes"] else "squared"),
            classes=tuple(facts["classes"]),
            target_range=None if span is None else (span[0], span[1]),
            guarantee=guarantee,
            trials=tuple(folder.read_trials()),
            column_names=tuple(facts.get("column_names", ())),  # older models know none
            made_by=facts.get("made_by"),  # nor this
        )
    weights = {name: one for name, one in tensors.items() if not name.startswith(PREPARE)}
    return read, made, weights
