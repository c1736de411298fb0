"""Verbs of a finished run: predict, print its card, copy what may be published."""

import csv
from pathlib import Path
from typing import Annotated, Any

import typer

from dptune.cli import screen
from dptune.cli.parameters import AsJson, Device, Folder, RunCode, in_words, option
from dptune.errors import InvalidInput


def predict(
    folder: Folder,
    out: Annotated[str, option("The CSV file to write.", "--out", "-o", metavar="FILE")],
    data: Annotated[
        str | None,
        option("New rows: a source as for tune; a column of labels is ignored.", metavar="ROWS"),
    ] = None,
    images: Annotated[
        str | None,
        option(
            "New pictures, for a model of pictures: a folder, with class folders or without, "
            "or one picture. Pictures that cannot be read get no line.",
            metavar="PICTURES",
        ),
    ] = None,
    text: Annotated[
        str | None,
        option(
            "New texts, for a model of texts, with the columns it was trained on. A model of "
            "next tokens writes the loss of every text.",
            metavar="TEXTS",
        ),
    ] = None,
    device: Annotated[
        Device, option(f"Where features are computed: {in_words(Device)}.", metavar="DEVICE")
    ] = Device.cpu,
    run_code: RunCode = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows, pictures or texts; write one prediction a line to a CSV file.

    Example: dptune predict runs/patients-1 --data new.csv -o predictions.csv
    """
    from dptune.study.finished_run import FinishedRun
    from dptune.study.run_settings import read_source
    from dptune.study.trained_model import load_from
    from dptune.texts.metrics import perplexity

    if [data, images, text].count(None) != 2:
        raise InvalidInput(
            "give one of these: new rows with --data, new pictures with --images, new texts with "
            "--text."
        )
    if images is not None:
        screen.say_listing()
    if text is not None:
        screen.say_reading()
    run = FinishedRun.open(folder)
    if run.unchecked:
        screen.warn(run.unchecked)
    model = load_from(run, own_code=run_code)
    columns: dict[str, list[Any]] = {}
    features: Any  # or texts, where the model takes these
    if images is not None:
        from dptune.cli.picture_rows import features_of_new_pictures

        columns["picture"], features = features_of_new_pictures(
            images, model.made_by, folder, device.value
        )
    elif text is not None:
        from dptune.cli.new_texts import read_new_texts

        features = read_new_texts(text, model, folder, device.value)
    else:
        assert data is not None
        from dptune.cli.new_texts import must_take_rows
        from dptune.data.sources import read_features, read_new_rows

        must_take_rows(model, folder)
        label = read_source(run).get("label")
        if model.encoding is not None:
            features = read_new_rows(data, model.encoding)
        else:
            features = read_features(data, model.column_names or model.shape, label)
    written = "predictions"
    if model.loss == "words":  # nothing is predicted; the loss says how unlikely a text is
        losses, words = model.decision_function(features).T
        columns |= {"loss": losses.tolist(), "words": words.astype(int).tolist()}
        written = f"losses, a perplexity of {perplexity(losses, words):,.2f},"
    else:
        columns["prediction"] = model.predict(features).tolist()
    _write_columns(out, columns, beside=data or text or "")
    count = len(next(iter(columns.values())))
    screen.show(
        as_json,
        {"rows": count, "out": out},
        lambda: print(f"Wrote {count:,} {written} to {out}."),
    )


def card(folder: Folder, as_json: AsJson = False) -> None:
    """Print the model card of a finished run, as Markdown.

    Example: dptune card runs/patients-1 > CARD.md
    """
    from dptune.report.card import model_card

    text = model_card(folder)
    screen.show(as_json, {"markdown": text}, lambda: print(text, end=""))


def publish(
    folder: Folder,
    out: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="A new folder for what may be published.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Copy what may be published of a finished run: no ledger, key or path of the data.

    Example: dptune publish runs/patients-1 patients-model
    """
    from dptune.report.publishing import publish as copy_what_may_leave

    files = copy_what_may_leave(folder, out)
    screen.show(
        as_json,
        {"out": out, "files": files},
        lambda: print(f"Copied {len(files)} files to {out}. It loads, predicts and has a card."),
    )


def _write_columns(path: str, columns: dict[str, list[Any]], *, beside: str) -> None:
    if beside and Path(path).absolute() == Path(beside).absolute():
        raise InvalidInput(f"{path!r} is the data file itself; write predictions to another file.")
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    except OSError as error:
        raise InvalidInput(
            f"predictions cannot be written to {path!r}: {error.strerror}."
        ) from None
