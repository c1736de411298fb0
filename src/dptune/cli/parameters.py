"""Parameters that several verbs share, and the values that they may have."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer

HELP_FLAGS = {"help_option_names": ["-h", "--help"]}
PICTURES, TEXTS = "Pictures", "Texts"  # groups of the help


def option(help: str, *names: str, group: str | None = None, **more: Any) -> Any:
    """An option of the command line; without names it is called like its parameter."""
    return typer.Option(*names, help=help, rich_help_panel=group, **more)


def flag(help: str, *names: str, group: str | None = None, **more: Any) -> Any:
    """An option without a value, which Typer would show as if it took one."""
    return option(help, *names, group=group, metavar="", **more)


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter that is a dataclass of options by these, for Typer to see."""
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb).parameters.values():
        if not is_dataclass(kind := parameter.annotation):
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        shown += [
            parameter.replace(name=field.name, default=field.default, annotation=hints[field.name])
            for field in fields(kind)
        ]

    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        verb(**given)

    run.__name__, run.__doc__ = verb.__name__, verb.__doc__
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


Epsilon = Annotated[float, option("Total epsilon.", "--epsilon")]
Delta = Annotated[float, option("Total delta, for example 1e-5.", "--delta")]
Steps = Annotated[int, option("Number of training steps.", "--steps")]
SamplingRate = Annotated[
    float | None,
    typer.Option(
        "--sampling-rate",
        help="Poisson sampling rate; leave out for full batch.",
        callback=lambda rate: None if rate == 1 else rate,  # every row in every step
    ),
]
NoiseMultiplier = Annotated[
    float, option("Noise on the sum, in clipping norms.", "--noise-multiplier")
]
LedgerAddress = Annotated[
    str,
    typer.Argument(metavar="LEDGER", help="A file, or a postgresql:// URL.", show_default=False),
]
PaymentNumber = Annotated[
    int, typer.Argument(metavar="PAYMENT", help="The payment's number.", show_default=False)
]
PrivateData = Annotated[
    str,
    option(
        "The private data: what tune takes. Only a keyed hash of it is stored.",
        "--data",
        metavar="ROWS",
    ),
]
Reason = Annotated[str, option("Why; kept in the ledger for good.", "--reason", metavar="TEXT")]
AsJson = Annotated[bool, flag("Print one JSON object instead of tables.", "--json")]
Verbose = Annotated[bool, flag("Show every price, step and condition.", "--verbose")]


def in_words(choices: type[StrEnum]) -> str:
    """The choices in words, for a help that breaks lines at words only."""
    *others, last = choices
    return f"{', '.join(others)} or {last}"


class Balance(StrEnum):
    none = "none"
    classes = "classes"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


class Kind(StrEnum):
    pooled = "pooled"
    class_token = "class-token"
    blocks = "blocks"
    grid4 = "grid4"
    mean = "mean"


class TextTask(StrEnum):
    classes = "classes"
    words = "words"
    spans = "spans"


class Precision(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


IMAGES = (
    "a folder with a folder of pictures for each class (or train and test folders of such), an "
    ".npz file, hub:NAME, or the name of a known set such as cifar10"
)
BACKBONE = option(
    "The public network that computes features: lite0, timm:NAME, hf:NAME, "
    "module:FILE.py:FACTORY and others (dptune backbones). Features of several are concatenated.",
    "--backbone",
    metavar="NAME",
)
FeatureKind = Annotated[
    Kind | None,
    option(
        "Which output of the network. For pictures: its own pooling (pooled), the class token "
        "(class-token), all blocks (blocks) or its last map in 4 x 4 parts (grid4); default: "
        "pooled. For texts: the mean over the tokens (mean) or the class token.",
        "--features",
        metavar="KIND",
    ),
]
PictureSize = Annotated[
    int | None,
    option("Pixels of a side. Default: what the network was made for.", "--size", group=PICTURES),
]
PictureRoot = Annotated[
    str | None,
    option(
        "Where known sets are looked for. Default: $DPTUNE_PICTURES, or the current folder; "
        "then the hub.",
        "--root",
        metavar="FOLDER",
        group=PICTURES,
    ),
]
Label = Annotated[str | None, option("The column of labels. Default: label.", metavar="COLUMN")]
TextColumns = Annotated[
    list[str] | None,
    option(
        "The column of texts; repeat it for a pair such as question and sentence, for "
        "context, question and answer (spans), or for prompt and answer (words).",
        "--column",
        metavar="COLUMN",
        group=TEXTS,
    ),
]
PrivateTexts = Annotated[
    str | None,
    option(
        "The private texts: a .csv, .jsonl (also .gz) or .parquet file, a folder that "
        "save_to_disk wrote, or hub:NAME.",
        "--text",
        metavar="TEXTS",
        group=TEXTS,
    ),
]
LanguageModel = Annotated[
    str | None,
    option(
        "The pretrained language model: a folder, or NAME@REVISION on the Hugging Face hub.",
        "--model",
        metavar="MODEL",
        group=TEXTS,
    ),
]
TextLength = Annotated[
    int | None,
    option("Tokens of a text; longer texts are cut. Default: 128.", "--length", group=TEXTS),
]
NetworkDevice = Annotated[
    Device, option(f"Where networks run: {in_words(Device)}.", "--device", metavar="DEVICE")
]
TrainingDevice = Annotated[
    Device, option(f"Where to train: {in_words(Device)}.", "--device", metavar="DEVICE")
]
Folder = Annotated[
    str,
    typer.Argument(metavar="FOLDER", help="The folder of the run.", show_default=False),
]
RunCode = Annotated[
    bool,
    flag(
        "Import and run the Python code that the run names, such as the function that makes "
        "its module. Give it only for code that you trust.",
        "--run-code",
    ),
]
