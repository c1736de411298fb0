"""Verbs of a study: tune, go on, predict, and the card of what came of it."""

import csv
import itertools
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptune.cli import screen
from dptune.cli.parameters import (
    FLAG,
    TEXTS,
    AsJson,
    Balance,
    Device,
    FeatureKind,
    Folder,
    Kind,
    LanguageModel,
    Method,
    PictureRoot,
    PictureSize,
    PrivateTexts,
    RunCode,
    StudyScore,
    TextColumns,
    TextLength,
    TextTask,
    in_words,
)
from dptune.errors import DptuneError, InvalidInput
from dptune.printable import printable

if TYPE_CHECKING:
    from dptune.cli.feature_rows import FeatureRows
    from dptune.cli.options import TuneOptions
    from dptune.cli.text_rows import TextOptions
    from dptune.report.record import Record
    from dptune.study.result import StudyResult


def tune(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="The private rows: a .csv, .csv.gz, .parquet, .npz or .npy file, a folder of "
            ".parquet files or one that save_to_disk or dptune extract wrote, hub:NAME, or demo, "
            "the bundled data. Not given: demo.",
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            metavar="PICTURES",
            help="Private pictures in the place of rows, as for dptune extract; --test, --public "
            "and --shift are pictures then.",
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="With --images: the public network that makes their features."
        ),
    ] = None,
    features: FeatureKind = None,
    size: PictureSize = None,
    root: PictureRoot = None,
    text: PrivateTexts = None,
    column: TextColumns = None,
    model: LanguageModel = None,
    lora: Annotated[
        int | None,
        typer.Option(
            metavar="RANK",
            min=1,
            help="Train adapters of this rank beside the model. Not given: the model itself, all "
            "but its tables of words.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    task: Annotated[
        TextTask | None,
        typer.Option(
            metavar="TASK",
            help="What to learn: the label of a text (classes), the next word (words), or where "
            "the answer stands (spans). Not given: classes.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    length: TextLength = None,
    unit: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that says whose a text is: all texts of a person are protected "
            "together. Not given: every row by itself.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    texts_per_unit: Annotated[
        int | None,
        typer.Option(
            help="With --unit: how many texts of a person enter, the first ones. Not given: 8.",
            rich_help_panel=TEXTS,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="What to train: linear, or a PyTorch module that a function of yours makes: "
            "module:FILE.py:NAME, lora:FILE.py:NAME (adapters beside it), "
            "zeroth-order:FILE.py:NAME (without gradients). Not given: linear.",
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total epsilon. Not given: 1.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Total delta. Not given: one in ten times the rows.")
    ] = None,
    method: Annotated[
        Method | None,
        typer.Option(
            metavar="METHOD", help=f"The search: {in_words(Method)}. Not given: linear-scaling."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="A new run folder. Not given: runs/NAME-1, or the next."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of labels. Not given: label."),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="All classes there can be, separated by commas as in a CSV file; paid, to buy the "
            "names that many rows have; or public, where labels that occur are nobody's secret. "
            "Not given: paid for texts, public for numbers.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file that says what each column of a table is, such as dptune columns "
            "begins. Not given: as --config says, or else all columns are numbers.",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="Rows that report a figure; nobody's secret. To use the test rows that --data "
            "itself holds, name it again.",
        ),
    ] = None,
    public: Annotated[
        str | None, typer.Option(metavar="ROWS", help="Rows that are nobody's secret.")
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROWS",
            help="Rows of another origin, nobody's secret, that report a figure beside the test "
            "rows; may be given several times.",
        ),
    ] = None,
    score: Annotated[
        StudyScore | None,
        typer.Option(
            metavar="SCORE",
            help="How trials are compared: by noisy counts that are paid for (noisy), on --public "
            "rows (public), on private rows held out (held-out), or by exact counts that nobody "
            "pays for (unpaid), which the guarantee then says. Not given: noisy.",
        ),
    ] = None,
    center: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Subtract a private mean from rows: auto, where that is worth its price, no, or "
            "always for this share of mu^2. Not given: auto.",
        ),
    ] = None,
    whiten: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Whiten rows by a private second moment: auto, no, or a share of mu^2, as for "
            "--center. Not given: auto.",
        ),
    ] = None,
    balance: Annotated[
        Balance | None,
        typer.Option(
            metavar="BALANCE",
            help="What counts alike: every row (none), or every class, however rare (classes). Not "
            "given: none.",
        ),
    ] = None,
    device: Annotated[
        Device | None,
        typer.Option(metavar="DEVICE", help=f"Where to train: {in_words(Device)}. Not given: cpu."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For public choices; noise is always fresh.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A TOML file like a run's run.toml, or a part of it. Options win."
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="LEDGER",
            help="A ledger to pay from. Not given: one of the run's own, in its folder.",
        ),
    ] = None,
    reuse: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="A run paid from the same ledger whose search serves this one too; its price "
            "comes on top.",
        ),
    ] = None,
    allow_large_epsilon: Annotated[
        bool,
        typer.Option("--allow-large-epsilon", metavar=FLAG, help="Accept an epsilon above 20."),
    ] = False,
    allow_large_delta: Annotated[
        bool,
        typer.Option(
            "--allow-large-delta",
            metavar=FLAG,
            help="Accept a delta above one in the number of rows.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            metavar=FLAG,
            help="Show what would be paid and promised; do nothing.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search for hyperparameters and train, all inside one budget.

    Example: dptune tune --data patients.csv --label state --classes sick,well --epsilon 1

    Columns that are not all numbers: dptune columns patients.csv -o columns.toml

    Texts: dptune tune --text mails.csv --column body --label topic --model FOLDER
    """
    _say_what_takes_time(images, text)
    from dptune.cli import study_screen
    from dptune.cli.options import classes_in, columns_in, engine_options, read_options, share
    from dptune.cli.text_rows import TextOptions
    from dptune.study import planning, study
    from dptune.study.run_folder import RunFolder

    if out is not None and not dry_run:
        RunFolder(out).must_be_new()
    rows = {"source": data, "label": label, "test": test, "public": public, "shifts": shift}
    texts = TextOptions(
        text=text,
        column=column,
        model=model,
        lora=lora,
        task=task and task.value,
        length=length,
        unit=unit,
        texts_per_unit=texts_per_unit,
    )
    others = {"--data": data, "--images": images, "--engine": engine}
    trained: dict[str, Any] = {}
    if images is not None or text is None or features is None:
        of_texts, trained = texts.sections(config, others, on_cpu=device is not Device.cuda)
        rows |= of_texts
    of_pictures = {"backbone": backbone, "size": size, "root": root}
    kind, where = features and features.value, (device or Device.cpu).value
    made = _find_features(rows, images, texts, config, kind, of_pictures, where)
    if made is not None:
        rows = made.source
    options: dict[str, dict[str, Any]] = {
        "data": rows | {"classes": classes_in(classes)},
        "columns": columns_in(columns),
        "engine": trained or engine_options(engine),
        "budget": {"epsilon": epsilon, "delta": delta},
        "search": {"method": method and method.value},
        "score": {"kind": score and score.value},
        "preparation": {
            "center_share": share(center, "--center"),
            "whiten_share": share(whiten, "--whiten"),
        },
        "run": {
            "device": device and device.value,
            "seed": seed,
            "balance": balance and balance.value,
            "ledger": ledger,
            "reuse": reuse,
            "allow_large_epsilon": allow_large_epsilon or None,
            "allow_large_delta": allow_large_delta or None,
        },
    }
    if made is None:
        asked = read_options(config, options)
        if asked.data.unused_test_rows:
            study_screen.mention_unused_test("rows", asked.settings["source"]["source"])
    else:
        asked = read_options(config, options, made.stand_in)
        if made.unused_test:
            study_screen.mention_unused_test(made.networks.things, made.given)
    planning.must_protect(asked.config, asked.data.count)  # before hours of making features
    study_screen.say_trying(asked.config.engine)
    if dry_run:
        if made is not None and asked.config.ledger:
            asked.data.fingerprint = made.fingerprint()
        _show_plan(asked, as_json)
        return
    folder = out
    if folder is None:
        folder = _free_folder(asked.data.name, asked.settings["source"]["source"])
    if made is not None:
        asked = read_options(config, options | {"data": options["data"] | made.make()})
    for note in planning.before_paying(asked.data, asked.config):
        screen.warn(note)
    runs_code = bool(asked.config.engine.traits.own_functions)
    interrupted = _explain_interrupt(folder, run_code=runs_code)
    with interrupted, study_screen.live_view(asked.config.search) as watch:
        result = study.tune(asked.data, out=folder, watch=watch, **asked.settings)
    _show_study(result, as_json, asked.delta_chosen)


def _find_features(
    rows: dict[str, Any],
    images: str | None,
    texts: "TextOptions",
    config: str | None,
    features: str | None,
    of_pictures: dict[str, Any],
    device: str,
) -> "FeatureRows | None":
    """What makes features of pictures or texts, where these were asked for."""
    from dptune.cli.options import declared_of_features

    if images is not None:
        from dptune.cli.picture_rows import find_rows

        name = declared_of_features(config, "--images").get("name")
        kind = features or Kind.pooled.value
        return find_rows(
            rows, images=images, name=name, features=kind, device=device, **of_pictures
        )
    for option, value in of_pictures.items():
        if value is not None:
            raise InvalidInput(f"--{option} is about pictures; give it with --images.")
    if features is None:
        return None
    if texts.text is None:
        raise InvalidInput(
            "--features is about pictures or texts; give it with --images or --text."
        )
    from dptune.cli.text_features import find_text_rows

    name = declared_of_features(config, "--text").get("name")
    return find_text_rows(rows, texts, name=name, features=features, device=device)


def resume(folder: Folder, run_code: RunCode = False, as_json: AsJson = False) -> None:
    """Go on with a study that was cut off; nothing is paid twice.

    Example: dptune resume runs/patients-1
    """
    from dptune.cli import study_screen
    from dptune.study import planning, study
    from dptune.study.run_folder import RunFolder

    config = planning.read_config(RunFolder.open(folder), own_code=run_code)
    study_screen.say_trying(config.engine)
    interrupted = _explain_interrupt(folder, run_code=run_code)
    with interrupted, study_screen.live_view(config.search) as watch:
        result = study.resume(folder, watch=watch, own_code=run_code)
    _show_study(result, as_json, delta_chosen=False)


def predict(
    folder: Folder,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="The CSV file to write.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS", help="New rows: a source as for tune; a column of labels is left out."
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(
            metavar="PICTURES",
            help="New pictures, for a model of pictures: a folder, with class folders or without, "
            "or one picture. Those that cannot be read get no line.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="TEXTS",
            help="New texts, for a model of texts, with the columns it was trained on: labels, or "
            "for next words, where there is nothing to predict, the loss of every text.",
        ),
    ] = None,
    device: Annotated[
        Device,
        typer.Option(metavar="DEVICE", help=f"Where what makes features runs: {in_words(Device)}."),
    ] = Device.cpu,
    run_code: RunCode = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows, pictures or texts: a CSV file with one prediction a line.

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
    _say_what_takes_time(images, text)
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
    said = "predictions"
    if model.loss == "words":  # there is nothing to predict: how unlikely texts are is told
        losses, words = model.decision_function(features).T
        columns |= {"loss": losses.tolist(), "words": words.astype(int).tolist()}
        said = f"losses, a perplexity of {perplexity(losses, words):,.2f},"
    else:
        columns["prediction"] = model.predict(features).tolist()
    _write_columns(out, columns, beside=data or text or "")
    count = len(next(iter(columns.values())))
    screen.show(
        as_json,
        {"rows": count, "out": out},
        lambda: print(f"Wrote {count:,} {said} to {out}."),
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
        typer.Argument(metavar="DIR", help="A new folder for what may leave.", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Copy exactly what may leave of a finished run: never a ledger, a key or where rows lie.

    Example: dptune publish runs/patients-1 patients-model
    """
    from dptune.report.publishing import publish as copy_what_may_leave

    files = copy_what_may_leave(folder, out)
    screen.show(
        as_json,
        {"out": out, "files": files},
        lambda: print(f"Copied {len(files)} files to {out}. It loads, predicts and has a card."),
    )


def _show_plan(asked: "TuneOptions", as_json: bool) -> None:
    """What a study would pay for and promise."""
    from dptune.cli import study_screen
    from dptune.study import planning

    planned, guarantee = planning.foresee(asked.data, asked.config)
    for note in planning.export_notes(asked.config):
        screen.warn(note)
    plain = study_screen.plan_as_dict(planned, guarantee)
    plain["delta_chosen"] = asked.delta_chosen
    screen.show(
        as_json,
        plain,
        lambda: study_screen.show_plan(
            planned, guarantee, asked.delta_chosen, asked.data.column_names
        ),
    )


def _show_study(result: "StudyResult", as_json: bool, delta_chosen: bool) -> None:
    from dptune.cli import study_screen
    from dptune.report.record import Record
    from dptune.study.run_folder import EXPORTED

    assert result.folder is not None
    record = Record.read(result.folder)
    picture = _draw(record)
    plain = {**result.to_dict(), "picture": picture and str(picture), "delta_chosen": delta_chosen}
    exported = result.folder / EXPORTED
    plain["hugging_face"] = str(exported) if exported.exists() else None
    screen.show(as_json, plain, lambda: study_screen.show_result(record, picture, delta_chosen))


def _draw(record: "Record") -> Path | None:
    """The picture of a study, which is finished without it: None where it cannot be written."""
    try:
        from dptune.report import plots

        return plots.save(record)
    except Exception as problem:  # from a full disk, fonts, or a configuration of matplotlib
        reason = printable(f"{type(problem).__name__}: {problem}").rstrip(".")
        folder = str(record.folder.path)
        screen.warn(
            f"the study is finished, but its picture could not be written ({reason}). To try again "
            f"in Python: dptune.report.search_picture({folder!r})"
        )
        return None


def _say_what_takes_time(images: str | None, text: str | None) -> None:
    """Before packages are loaded, which takes seconds."""
    if images is not None:
        screen.say_listing()
    if text is not None:
        screen.say_reading()


@contextmanager
def _explain_interrupt(folder: str, *, run_code: bool) -> Iterator[None]:
    """Whoever interrupts a study is told how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if (Path(folder) / "run.toml").exists():
            flag = " --run-code" * run_code
            screen.error(f"interrupted; go on with: dptune resume {shlex.quote(folder)}{flag}")
        raise


def _free_folder(name: str, source: str) -> str:
    """The first runs/NAME-1, runs/NAME-2, ... that is not there. Where one of them is an unfinished
    study of the same source, somebody who repeats a command would pay twice."""
    for number in itertools.count(1):
        folder = Path("runs") / f"{name.replace('/', '-')}-{number}"
        if not folder.exists():
            return str(folder)
        if _is_unfinished(folder, source):
            quoted = shlex.quote(str(folder))
            raise InvalidInput(
                f"{folder} is unfinished and was paid for: go on with dptune resume {quoted}, or "
                "give --out for another study, which is paid on top."
            )
    raise AssertionError  # there are numbers enough


def _is_unfinished(path: Path, source: str) -> bool:
    from dptune.study.run_folder import RunFolder
    from dptune.study.run_settings import read_source

    folder = RunFolder(path)
    if not folder.holds_a_run() or folder.is_finished():
        return False
    try:
        return bool(read_source(folder).get("source") == source)
    except DptuneError:  # whatever it is, nothing goes on there
        return False


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
