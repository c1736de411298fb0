"""The verbs that run a study: of a table or features, of pictures, of texts; and resume."""

from functools import partial
from typing import Annotated

from dptune.cli import screen
from dptune.cli.parameters import (
    BACKBONE,
    PICTURES,
    TEXTS,
    AsJson,
    Folder,
    Kind,
    LanguageModel,
    PictureRoot,
    PictureSize,
    RunCode,
    TextColumns,
    TextLength,
    TextTask,
    Verbose,
    option,
)
from dptune.cli.study_options import DATA, StudyOptions, with_study_options

Label = Annotated[str | None, option("The column of labels. Default: label.", metavar="COLUMN")]


@with_study_options
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
    from dptune.cli.options import columns_in

    begin(asked, {"source": data, "label": label}, columns=columns_in(columns))


@with_study_options
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


@with_study_options
def tune_texts(
    data: Annotated[
        str | None,
        option(
            "The private texts: a .csv, .jsonl (also .gz) or .parquet file, a folder that "
            "save_to_disk wrote, or hub:NAME. Default: what --config says.",
            metavar="TEXTS",
        ),
    ] = None,
    label: Label = None,
    column: TextColumns = None,
    model: LanguageModel = None,
    lora: Annotated[
        int | None,
        option(
            "Train low-rank adapters of this rank. Default: train all weights but the token "
            "embeddings.",
            metavar="RANK",
            group=TEXTS,
            min=1,
        ),
    ] = None,
    features: Annotated[
        Kind | None,
        option(
            "Keep the model frozen and train a linear model on its features: the mean over "
            "the tokens (mean) or the class token (class-token).",
            metavar="KIND",
            group=TEXTS,
        ),
    ] = None,
    task: Annotated[
        TextTask | None,
        option(
            "Classification (classes), next-token prediction or completion (words), or "
            "question answering (spans). Default: classes.",
            metavar="TASK",
            group=TEXTS,
        ),
    ] = None,
    length: TextLength = None,
    unit: Annotated[
        str | None,
        option(
            "The column that names the author: all texts of one person are protected "
            "together. Default: each text by itself.",
            metavar="COLUMN",
            group=TEXTS,
        ),
    ] = None,
    texts_per_unit: Annotated[
        int | None,
        option(
            "With --unit: the first so many texts of a person are used. Default: 8.", group=TEXTS
        ),
    ] = None,
    *,
    asked: StudyOptions,
) -> None:
    """Tune and train a language model on texts, or a linear model on its features.

    Example: dptune tune-texts --data mails.csv --column body --label topic --model FOLDER
    """
    screen.say_reading()
    from dptune.cli.begin_study import begin
    from dptune.cli.text_rows import TextOptions

    texts = TextOptions(
        data=data,
        label=label,
        column=column,
        model=model,
        lora=lora,
        task=task and task.value,
        length=length,
        unit=unit,
        texts_per_unit=texts_per_unit,
    )
    if features is None:
        rows, engine = texts.sections(asked)
        begin(asked, rows, engine=engine)
        return
    texts.must_keep_model_frozen()
    from dptune.cli.text_features import find_text_rows

    begin(asked, {}, find_features=partial(find_text_rows, texts=texts, features=features.value))


def resume(
    folder: Folder, run_code: RunCode = False, verbose: Verbose = False, as_json: AsJson = False
) -> None:
    """Resume an interrupted study; no payment is repeated.

    Example: dptune resume runs/patients-1
    """
    from dptune.cli.begin_study import go_on

    go_on(folder, StudyOptions(verbose=verbose, as_json=as_json), run_code=run_code)
