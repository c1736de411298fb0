"""Parameters that several verbs share, and the values that they may have."""

from enum import StrEnum
from typing import Annotated

import typer

HELP_FLAGS = {"help_option_names": ["-h", "--help"]}
FLAG = ""  # Typer would show a flag as if it took a value
PICTURES, TEXTS = "Pictures", "Texts"  # groups of the help
Epsilon = Annotated[float, typer.Option("--epsilon", help="Total epsilon.")]
Delta = Annotated[float, typer.Option("--delta", help="Total delta, for example 1e-5.")]
Steps = Annotated[int, typer.Option("--steps", help="Number of training steps.")]
SamplingRate = Annotated[
    float | None,
    typer.Option(
        "--sampling-rate",
        help="Poisson sampling rate; leave out for full batch.",
        callback=lambda rate: None if rate == 1 else rate,  # every row in every step
    ),
]
NoiseMultiplier = Annotated[
    float, typer.Option("--noise-multiplier", help="Noise on the sum, in clipping norms.")
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
    typer.Option(
        "--data",
        metavar="ROWS",
        help="The private data: what tune takes. Only a keyed hash of it is stored.",
    ),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the ledger for good.")
]
AsJson = Annotated[
    bool, typer.Option("--json", metavar=FLAG, help="Print one JSON object instead of tables.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", metavar=FLAG, help="Show every price, step and condition.")
]


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
BACKBONE = typer.Option(
    "--backbone",
    metavar="NAME",
    help="The public network that computes features: lite0, timm:NAME, hf:NAME, "
    "module:FILE.py:FACTORY and others (dptune backbones). Features of several are concatenated.",
)
FeatureKind = Annotated[
    Kind | None,
    typer.Option(
        "--features",
        metavar="KIND",
        help="Which output of the network. For pictures: its own pooling (pooled), the class token "
        "(class-token), all blocks (blocks) or its last map in 4 x 4 parts (grid4); default: "
        "pooled. For texts: the mean over the tokens (mean) or the class token.",
    ),
]
PictureSize = Annotated[
    int | None,
    typer.Option(
        "--size",
        help="Pixels of a side. Default: what the network was made for.",
        rich_help_panel=PICTURES,
    ),
]
PictureRoot = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="FOLDER",
        help="Where known sets are looked for. Default: $DPTUNE_PICTURES, or the current folder; "
        "then the hub.",
        rich_help_panel=PICTURES,
    ),
]
TextColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="COLUMN",
        help="The column of texts; repeat it for a pair such as question and sentence, for "
        "context, question and answer (spans), or for prompt and answer (words).",
        rich_help_panel=TEXTS,
    ),
]
PrivateTexts = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="TEXTS",
        help="The private texts: a .csv, .jsonl (also .gz) or .parquet file, a folder that "
        "save_to_disk wrote, or hub:NAME.",
        rich_help_panel=TEXTS,
    ),
]
LanguageModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="The pretrained language model: a folder, or NAME@REVISION on the Hugging Face hub.",
        rich_help_panel=TEXTS,
    ),
]
TextLength = Annotated[
    int | None,
    typer.Option(
        "--length",
        help="Tokens of a text; longer texts are cut. Default: 128.",
        rich_help_panel=TEXTS,
    ),
]
NetworkDevice = Annotated[
    Device,
    typer.Option("--device", metavar="DEVICE", help=f"Where networks run: {in_words(Device)}."),
]
TrainingDevice = Annotated[
    Device,
    typer.Option("--device", metavar="DEVICE", help=f"Where to train: {in_words(Device)}."),
]
Folder = Annotated[
    str,
    typer.Argument(metavar="FOLDER", help="The folder of the run.", show_default=False),
]
RunCode = Annotated[
    bool,
    typer.Option(
        "--run-code",
        metavar=FLAG,
        help="Import and run the Python code that the run names, such as the function that makes "
        "its module. Give it only for code that you trust.",
    ),
]
