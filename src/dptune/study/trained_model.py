"""A trained model with all that prediction needs: how features are prepared, what outputs mean."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.columns import as_table
from dptune.data.arrays import as_features, names_of, places
from dptune.data.declared import code_new_rows
from dptune.data.made_by import is_of_texts, is_of_words
from dptune.engines.base import Engine, Model
from dptune.engines.language.folder import save_pretrained
from dptune.engines.modules.module_engine import ModuleEngine
from dptune.engines.modules.module_model import ModuleModel
from dptune.errors import InvalidInput
from dptune.features.local_module import own_functions
from dptune.own_code import must_be_absolute, must_be_given, pretrained_name
from dptune.study.config import engine_from
from dptune.study.finished_run import FinishedRun
from dptune.study.model_facts import MODEL_FILE, PREPARE, ModelFacts, read_facts
from dptune.study.model_page import model_page
from dptune.study.new_texts import new_texts
from dptune.study.run_folder import RunFolder
from dptune.texts import Encoder, Texts

_AT_ONCE = 8192
_LANGUAGE_MODEL = "language model"


@dataclass(frozen=True, kw_only=True)
class TrainedModel(ModelFacts):
    """Predicts labels for features as they were given to `tune`; carries its guarantee.

    A frame's columns are found by name, in any order, where the model knows names; of anything
    else only their number is checked. Where columns were declared, a frame holds what was given
    then: texts, dates and gaps.
    """

    engine: Engine[Any]
    model: Model = field(repr=False)

    @property
    def trains(self) -> str:
        """What was trained, in words."""
        return _LANGUAGE_MODEL if self.is_pretrained else self.engine.traits.trains

    @property
    def own_functions(self) -> list[str]:
        """Names of functions of a user's own that it, or what made its features, calls."""
        return [*self.engine.traits.own_functions.values(), *own_functions(self.made_by or {})]

    def predict(self, features: Any) -> NDArray[Any]:
        """A label, or a value, for every row. A model of texts takes texts: a list of them, of
        tuples where it reads several columns, or columns by name; where it finds answers in them,
        these come back, and where it guesses their words, the mean loss of each. It takes rows of
        words, too, whose answers come back as the numbers of their first and last words."""
        logits = self.decision_function(features)
        if self.loss == "words":
            return logits[:, 0]
        if self.loss == "spans":
            if _are_numbers(features):
                return logits.astype(np.int64)  # the first and the last word of each answer
            encoder, texts = self._read(features)
            return np.asarray(encoder.answers(texts, logits), dtype=object)
        if self.target_range is not None:
            low, high = self.target_range
            values: NDArray[Any] = low + (logits[:, 0].astype(np.float64) + 1) / 2 * (high - low)
            return values
        labels: NDArray[Any] = np.asarray(self.classes)[logits.argmax(1)]
        return labels

    def predict_proba(self, features: Any) -> NDArray[np.float64]:
        """The probability of every class, in the order of `classes`."""
        if not self.classes:
            raise InvalidInput("a model without classes has no probabilities; use predict.")
        logits = torch.from_numpy(self.decision_function(features)).double()
        probabilities: NDArray[np.float64] = torch.softmax(logits, 1).numpy()
        return probabilities

    def decision_function(self, features: Any) -> NDArray[np.float32]:
        """The logit of every class; what the model gives beside the loss, where it gives that. For
        words, the mean loss and of how many words it is."""
        if is_of_texts(self.made_by) and not _are_numbers(features):
            encoder, texts = self._read(features)
            features = self._rows(encoder, texts)
        logits = self._logits(features)
        return logits[:, 1:] if self.loss in ("spans", "inside") else logits

    @property
    def is_pretrained(self) -> bool:
        """Whether it is a language model of transformers, which `save_pretrained` can write."""
        return self.engine.traits.pretrained

    def save_pretrained(self, folder: str | Path, figures: Sequence[str] = ()) -> None:
        """Write a language model, or its adapters, as Hugging Face has it: `from_pretrained` opens
        the folder. A tokenizer and a card with the guarantee lie beside; `figures` are lines of it
        about how good the model is."""
        engine = self.engine
        if not isinstance(engine, ModuleEngine) or not engine.traits.pretrained:
            raise InvalidInput(
                f"a Hugging Face folder is written of language models that came from one, and this "
                f"is a {engine.traits.trains}; keep the run's folder, which holds the weights."
            )
        tokenizer = pretrained_name(engine.factory)
        if is_of_texts(self.made_by):
            tokenizer = self.made_by["tokenizer"]
        save_pretrained(
            engine,
            cast(ModuleModel, self.model),
            folder,
            tokenizer=tokenizer,
            card=model_page(self.guarantee, self.made_by, figures),
            classes=self.classes,
        )

    def _read(self, texts: Any) -> tuple[Encoder, Texts]:
        assert self.made_by is not None
        encoder = Encoder.of(self.made_by)
        return encoder, new_texts(encoder, texts)

    def _rows(self, encoder: Encoder, texts: Texts) -> NDArray[Any]:
        if is_of_words(self.made_by):
            return encoder.encode(texts)
        from dptune.features.from_texts import features_of_texts

        assert self.made_by is not None
        return features_of_texts(texts, self.made_by)

    def _logits(self, features: Any) -> NDArray[np.float32]:
        if self.encoding is None:
            table = self._numbers(features)
        else:
            table = code_new_rows(features, self.encoding)
        if not len(table):
            return np.empty((0, self.facts(0).width), dtype=np.float32)
        with torch.no_grad():
            parts = [
                self.model.logits(self._prepared(table[start : start + _AT_ONCE])).float().numpy()
                for start in range(0, len(table), _AT_ONCE)
            ]
        return np.concatenate(parts)

    def _numbers(self, features: Any) -> NDArray[Any]:
        if isinstance(features, Mapping):
            features = as_table(features)
        table, names = np.asarray(features), names_of(features)
        if self.column_names and names:
            table = table[:, places(self.column_names, names, "the table of features")]
        if table.ndim != 1 + len(self.shape) or table.shape[1:] != self.shape:
            takes = f"{self.columns} features"
            if len(self.shape) > 1:
                takes = f"shape {self.shape}"
            raise InvalidInput(f"this model takes rows of {takes}; got shape {table.shape}.")
        if self.preprocessing.encoding is not None:  # which would take a gap for what it knows
            table = as_features(table, "the features", self.column_names) if len(table) else table
        return table

    def _prepared(self, table: NDArray[Any]) -> Tensor:
        if self.engine.traits.takes_ids:
            return torch.from_numpy(table.astype(np.int64))
        if len(self.shape) > 1:
            return torch.from_numpy(table.astype(np.float32))
        return torch.from_numpy(self.preprocessing.apply(table))

    def save(self, folder: RunFolder) -> None:
        """Weights, preparation, labels and guarantee."""
        tensors = self.engine.pack(self.model)
        arrays = self.preprocessing.arrays()
        tensors |= {f"{PREPARE}{name}": torch.from_numpy(a.copy()) for name, a in arrays.items()}
        facts = {
            "engine": {"name": self.engine.name, **self.engine.options()},
            "shape": self.shape,
            **self.preprocessing.facts(),
            "loss": self.loss,
            "classes": self.classes,
            "target_range": self.target_range,
            "column_names": self.column_names,
            "made_by": self.made_by,
        }
        folder.write_guarantee(self.guarantee)
        folder.write_tensors(MODEL_FILE, tensors, facts=json.dumps(facts))


def _are_numbers(features: Any) -> bool:
    """Whether these are rows already, not texts."""
    return isinstance(features, np.ndarray | Tensor) and np.asarray(features).dtype.kind in "iuf"


def load(path: str | Path, *, own_code: bool = False) -> TrainedModel:
    """The model of a finished run, whose files must be as they were.

    Args:
        path: the run folder, or a published one.
        own_code: whether functions that the run names may be imported and called, although this
            process did not get them: that runs their code, whatever it is.

    """
    return load_from(FinishedRun.open(path), own_code=own_code)


def load_from(folder: FinishedRun, *, own_code: bool) -> TrainedModel:
    """The same from a folder that is open."""
    facts, made, tensors = read_facts(folder)
    engine, file = engine_from(made), folder.path / MODEL_FILE  # an unknown engine is no damage
    must_be_absolute(made, file)
    must_be_given(engine.traits.own_functions.values(), file, asked=own_code)
    if own_code:  # what made its features is run when new rows are predicted
        must_be_given(own_functions(facts.made_by or {}), file, asked=True)
    with folder.undamaged(MODEL_FILE):
        model = engine.unpack(tensors)
    return TrainedModel(engine=engine, model=model, **vars(facts))
