"""Texts in the place of rows: what --text and its options say, as [data] and [engine] of a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.cli import screen
from dptune.cli.options import parsed
from dptune.errors import InvalidInput
from dptune.hub import ModelPlace
from dptune.own_code import PRETRAINED, pretrained_name

Section = dict[str, Any]
NO_COLUMN = "say which column of --text holds the texts: --column NAME."


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """What was asked about texts on the command line; None is not given."""

    text: str | None
    column: Sequence[str] | None
    model: str | None
    lora: int | None
    task: str | None
    length: int | None
    unit: str | None
    texts_per_unit: int | None

    @property
    def given(self) -> list[str]:
        """The options, as they are written."""
        return [
            f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value is not None
        ]

    @property
    def of_training(self) -> dict[str, object]:
        """The options that say how the language model is trained, and on whose texts."""
        task = None if self.task == "classes" else self.task
        return {
            "--lora": self.lora,
            "--task": task,
            "--unit": self.unit,
            "--texts-per-unit": self.texts_per_unit,
        }

    def sections(
        self, file: str | None, others: Mapping[str, object], *, on_cpu: bool
    ) -> tuple[Section, Section]:
        """[data] and [engine]; nothing where nothing was asked. `others` are the options that name
        rows or an engine, too."""
        if not self.given:
            return {}, {}
        for option, value in others.items():
            if value is not None:
                raise InvalidInput(
                    f"{self.given[0]} is about texts and a language model, and {option} names "
                    "something else to train; leave one out."
                )
        plain = parsed(file)
        in_file, engine = plain["data"], plain["engine"]
        if self.text is None and "text" not in in_file:
            raise InvalidInput(
                f"{', '.join(self.given)}: these are about texts; name them with --text."
            )
        if self.column is None and "text" not in in_file:
            raise InvalidInput(NO_COLUMN)
        if self.model is None and "factory" not in engine:
            raise InvalidInput(
                "texts need a pretrained language model, which is trained on them: --model FOLDER, "
                "or --model NAME@REVISION from the Hugging Face hub."
            )
        if self.texts_per_unit is not None and self.unit is None and "unit" not in in_file:
            raise InvalidInput("--texts-per-unit says how many of a --unit enter; give that too.")
        model = None if self.model is None else _place(self.model)
        data = {
            "source": self.text,
            "text": None if self.column is None else list(self.column),
            "task": self.task,
            "length": self.length,
            "unit": self.unit,
            "texts_per_unit": self.texts_per_unit,
            "tokenizer": model,
        }
        return data, self._engine(model, engine, on_cpu)

    def _engine(self, model: str | None, in_file: Section, on_cpu: bool) -> Section:
        name = in_file.get("name", "torch-module") if self.lora is None else "lora"
        # In bfloat16 a GPU is several times as fast, and many other processors are slow; and
        # differences of two losses drown in its rounding.
        precise = on_cpu or name == "zeroth-order"
        return {
            "name": name,
            "factory": in_file.get("factory") if model is None else f"{PRETRAINED}{model}",
            "rank": self.lora,
            "compute": in_file.get("compute", "float32" if precise else "bfloat16"),
        }


def named_model(model: str) -> ModelPlace:
    """What --model names; hf: may stand before it, as it does wherever else a model is named."""
    return ModelPlace.of(pretrained_name(model))


def _place(model: str) -> str:
    """A folder so that a run can be resumed from another one."""
    place = named_model(model)
    if place.is_folder:
        return str(Path(place.where).absolute())
    screen.remark(f"There is no folder {place}, so the Hugging Face hub is asked for it.")
    return str(place)
