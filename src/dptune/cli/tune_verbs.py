"""The verbs that run a study: of a table or features, of pictures, of texts; and resume."""

from functools import partial
from typing import Annotated

from dptune.cli import screen
from dptune.cli.parameters import (
    BACKBONE,
    PICTURES,
    AsJson,
    Folder,
    Kind,
    Label,
    PictureRoot,
    PictureSize,
    RunCode,
    Verbose,
    option,
    with_options,
)
from dptune.cli.study_options import DATA, StudyOptions
from dptune.cli.text_rows import TextOptions


@with_options
def tune(
    data: Annotated[
        str | None,
        option(
            "The private rows: a .csv, .csv.gz, .parquet, .npz or .npy file, a folder of "
            ".parquet files or one that save_to_disk or dptune extract wrote, hub:NAME, or demo. "
            "Default: demo, the bundled data.",
            metavar="ROWS",
        ),
    ] = None,
    label: Label = None,
    columns: Annotated[
        str | None,
        option(
            "A TOML file that declares the columns; dptune columns begins one. Default: what "
            "--config says, else all columns are numbers.",
            metavar="FILE",
            group=DATA,
        ),
    ] = None,
    *,
    asked: StudyOptions,
) -> None:
    """Tune and train a model of a table or of features, all in one budget.

    Example: dptune tune --data patients.csv --label state --classes sick,well --epsilon 1
    """
    from dptune.cli.begin_study import begin
    from dptune.cli.options import read_columns

    begin(asked, {"source": data, "label": label}, columns=read_columns(columns))


@with_options
def tune_pictures(
    data: Annotated[
        str,
        option(
            "The private pictures: a folder with a folder for each class (or train and test "
            "folders of such), an .npz file, hub:NAME, or a known set such as cifar10.",
            metavar="PICTURES",
        ),
    ],
    backbone: Annotated[list[str] | None, BACKBONE] = None,
    features: Annotated[
        Kind | None,
        option(
            "Which output of the network: its own pooling (pooled), the class token "
            "(class-token), all blocks (blocks) or its last map in 4 x 4 parts (grid4). Default: "
            "pooled.",
            metavar="KIND",
            group=PICTURES,
        ),
    ] = None,
    size: PictureSize = None,
    root: PictureRoot = None,
    *,
    asked: StudyOptions,
) -> None:
    """Tune and train a model of pictures, on features that a public network computes.

    Example: dptune tune-pictures --data photos --backbone lite0 --epsilon 1
    """
    screen.say_listing()
    from dptune.cli.begin_study import begin
    from dptune.cli.picture_rows import find_rows

    pictures = partial(
        find_rows,
        images=data,
        backbone=backbone,
        features=(features or Kind.pooled).value,
        size=size,
        root=root,
    )
    begin(asked, {}, find_features=pictures)


@with_options
def tune_texts(*, texts: TextOptions, asked: StudyOptions) -> None:
    """Tune and train a language model on texts, or a linear model on its features.

    Example: dptune tune-texts --data mails.csv --column body --label topic --model FOLDER
    """
    screen.say_reading()
    from dptune.cli.begin_study import begin

    if texts.features is None:
        rows, engine = texts.sections(asked)
        begin(asked, rows, engine=engine)
        return
    texts.must_keep_model_frozen()
    from dptune.cli.text_features import find_text_rows

    begin(asked, {}, find_features=partial(find_text_rows, texts=texts))


def resume(
    folder: Folder, run_code: RunCode = False, verbose: Verbose = False, as_json: AsJson = False
) -> None:
    """Resume an interrupted study; no payment is repeated.

    Example: dptune resume runs/patients-1
    """
    from dptune.cli.begin_study import go_on

    go_on(folder, StudyOptions(verbose=verbose, as_json=as_json), run_code=run_code)
