"""The options of tune-texts, and what they say as sections of a --config file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from dptune.cli import screen
from dptune.cli.parameters import (
    TEXTS,
    Device,
    Kind,
    Label,
    LanguageModel,
    TextColumns,
    TextLength,
    TextTask,
    option,
)
from dptune.cli.study_options import StudyOptions
from dptune.errors import InvalidInput

Section = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """What the user asked of texts; None stands for the default."""

    data: Annotated[
        str | None,
        option(
            "The private texts: a .csv, .jsonl (also .gz) or .parquet file, a folder that "
            "save_to_disk wrote, or hub:NAME. Default: what --config says.",
            metavar="TEXTS",
        ),
    ] = None
    label: Label = None
    column: TextColumns = None
    model: LanguageModel = None
    lora: Annotated[
        int | None,
        option(
            "Train low-rank adapters of this rank. Default: train all weights but the token "
            "embeddings.",
            metavar="RANK",
            group=TEXTS,
            min=1,
        ),
    ] = None
    features: Annotated[
        Kind | None,
        option(
            "Keep the model frozen and train a linear model on its features: the mean over the "
            "tokens (mean) or the class token (class-token).",
            metavar="KIND",
            group=TEXTS,
        ),
    ] = None
    task: Annotated[
        TextTask | None,
        option(
            "Classification (classes), next-token prediction or completion (words), or question "
            "answering (spans). Default: classes.",
            metavar="TASK",
            group=TEXTS,
        ),
    ] = None
    length: TextLength = None
    unit: Annotated[
        str | None,
        option(
            "The column that names the author: all texts of one person are protected together. "
            "Default: each text by itself.",
            metavar="COLUMN",
            group=TEXTS,
        ),
    ] = None
    texts_per_unit: Annotated[
        int | None,
        option("With --unit: use the first so many texts of a person. Default: 8.", group=TEXTS),
    ] = None

    def sections(self, asked: StudyOptions) -> tuple[Section, Section]:
        """[data] and [engine] for a study that trains the language model."""
        from dptune.cli.options import read_config

        if asked.engine is not None:
            raise InvalidInput(
                "tune-texts trains the model that --model names, and --engine names another; leave "
                "one out, or give --features to train on features of the texts."
            )
        plain = read_config(asked.config)
        in_file, engine = plain["data"], plain["engine"]
        if self.data is None and "text" not in in_file:
            raise InvalidInput("name the private texts with --data.")
        if self.column is None and "text" not in in_file:
            raise InvalidInput("say which column of --data holds the texts: --column NAME.")
        if self.model is None and "factory" not in engine:
            raise InvalidInput(
                "texts need a pretrained language model, which is trained on them: --model FOLDER, "
                "or --model NAME@REVISION from the Hugging Face hub."
            )
        if self.texts_per_unit is not None and self.unit is None and "unit" not in in_file:
            raise InvalidInput("--texts-per-unit says how many of a --unit enter; give that too.")
        model = None if self.model is None else _find_model(self.model)
        data = {
            "source": self.data,
            "label": self.label,
            "text": self.column,
            "task": self.task and self.task.value,
            "length": self.length,
            "unit": self.unit,
            "texts_per_unit": self.texts_per_unit,
            "tokenizer": model,
        }
        return data, self._engine(model, engine, on_cpu=asked.device is not Device.cuda)

    def _engine(self, model: str | None, in_file: Section, *, on_cpu: bool) -> Section:
        from dptune.own_code import PRETRAINED

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

    def must_keep_model_frozen(self) -> None:
        """Refuse options of training a language model, where only features of it are asked for."""
        task = None if self.task is TextTask.classes else self.task
        trained = {
            "--lora": self.lora,
            "--task": task,
            "--unit": self.unit,
            "--texts-per-unit": self.texts_per_unit,
        }
        for name, value in trained.items():
            if value is not None:
                raise InvalidInput(
                    f"{name} is for language models that are trained, and with --features the "
                    "model is frozen; leave one out."
                )


def _find_model(model: str) -> str:
    """The model's place; a folder with its whole path, so that a run can be resumed from another
    one."""
    from dptune.hub import ModelPlace
    from dptune.own_code import pretrained_name

    place = ModelPlace.of(pretrained_name(model))
    if place.is_folder:
        return str(Path(place.where).absolute())
    screen.remark(f"There is no folder {place}, so the Hugging Face hub is asked for it.")
    return str(place)
