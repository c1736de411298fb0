"""What every verb that begins a study does once it knows what the study is about."""

import itertools
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptune.cli import progress_view, screen, study_screen
from dptune.cli.options import TuneOptions, declared_of_features, read_options
from dptune.cli.study_options import StudyOptions
from dptune.errors import DptuneError, InvalidInput
from dptune.printable import printable
from dptune.report.record import Record
from dptune.study import planning, study
from dptune.study.config import Config
from dptune.study.result import StudyResult
from dptune.study.run_folder import EXPORTED, RunFolder
from dptune.study.run_settings import read_source
from dptune.study.runner import Watch

if TYPE_CHECKING:
    from dptune.cli.feature_rows import FeatureRows

Section = dict[str, Any]


def begin(
    asked: StudyOptions,
    data: Section,
    *,
    columns: Section | None = None,
    engine: Section | None = None,
    find_features: Callable[..., "FeatureRows"] | None = None,
) -> None:
    """Run the study that was asked for, or show its plan. `data`, `columns` and `engine` are
    sections of a --config file; features are made first where the rows are pictures or texts."""
    if asked.out is not None and not asked.dry_run:
        RunFolder(asked.out).must_be_new()
    options = asked.sections()
    options["data"] |= data
    options["columns"] = columns or {}
    if engine is not None:
        options["engine"] = engine
    made = None
    if find_features is None:
        read = read_options(asked.config, options)
        if read.data.unused_test_rows:
            study_screen.mention_unused_test("rows", read.settings["source"]["source"])
    else:
        name = declared_of_features(asked.config).get("name")
        made = find_features(options["data"], name=name, device=asked.where)
        options["data"] |= made.source
        read = read_options(asked.config, options, made.stand_in)
        if made.unused_test:
            study_screen.mention_unused_test(made.networks.things, made.given)
    planning.must_protect(read.config, read.data.count)  # before features are made for hours
    study_screen.say_trying(read.config.engine)
    if asked.dry_run:
        if made is not None and read.config.ledger:
            read.data.fingerprint = made.fingerprint()
        _show_plan(read, asked)
        return
    folder = asked.out
    if folder is None:
        folder = _free_folder(read.data.name, read.settings["source"]["source"])
    if made is not None:
        options["data"] |= made.make()
        read = read_options(asked.config, options)
    for note in planning.before_paying(read.data, read.config):
        screen.warn(note)
    run_code = bool(read.config.engine.traits.own_functions)
    with _explain_interrupt(folder, run_code=run_code), _watching(read.config, asked) as watch:
        result = study.tune(read.data, out=folder, watch=watch, **read.settings)
    _show_result(result, asked, delta_chosen=read.delta_chosen)


def go_on(folder: str, asked: StudyOptions, *, run_code: bool) -> None:
    """Resume the study in `folder`."""
    config = planning.read_config(RunFolder.open(folder), own_code=run_code)
    study_screen.say_trying(config.engine)
    with _explain_interrupt(folder, run_code=run_code), _watching(config, asked) as watch:
        result = study.resume(folder, watch=watch, own_code=run_code)
    _show_result(result, asked, delta_chosen=False)


def _watching(config: Config, asked: StudyOptions) -> AbstractContextManager[Watch]:
    return progress_view.live_view(config.search, verbose=asked.verbose)


def _show_plan(read: TuneOptions, asked: StudyOptions) -> None:
    """Show what a study would pay for and promise."""
    planned, guarantee = planning.foresee(read.data, read.config)
    for note in planning.export_notes(read.config):
        screen.warn(note)
    plain = study_screen.plan_as_dict(planned, guarantee) | {"delta_chosen": read.delta_chosen}

    def draw() -> None:
        names = read.data.column_names
        study_screen.show_plan(planned, guarantee, read.delta_chosen, names, verbose=asked.verbose)

    screen.show(asked.as_json, plain, draw)


def _show_result(result: StudyResult, asked: StudyOptions, *, delta_chosen: bool) -> None:
    assert result.folder is not None
    record = Record.read(result.folder)
    picture = _draw(record)
    plain = {**result.to_dict(), "picture": picture and str(picture), "delta_chosen": delta_chosen}
    exported = result.folder / EXPORTED
    plain["hugging_face"] = str(exported) if exported.exists() else None

    def draw() -> None:
        study_screen.show_result(record, picture, delta_chosen, verbose=asked.verbose)

    screen.show(asked.as_json, plain, draw)


def _draw(record: Record) -> Path | None:
    """Write the picture of a study, which is finished without it: None where that fails."""
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


@contextmanager
def _explain_interrupt(folder: str, *, run_code: bool) -> Iterator[None]:
    """Say how to go on when a study is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        if (Path(folder) / "run.toml").exists():
            flag = " --run-code" * run_code
            screen.error(f"interrupted; go on with: dptune resume {shlex.quote(folder)}{flag}")
        raise


def _free_folder(name: str, source: str) -> str:
    """The first free folder of runs/NAME-1, runs/NAME-2, ... Refuses to pass an unfinished study of
    the same source: repeating the command would pay twice."""
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
    folder = RunFolder(path)
    if not folder.holds_a_run() or folder.is_finished():
        return False
    try:
        return bool(read_source(folder).get("source") == source)
    except DptuneError:  # a damaged run cannot be resumed
        return False
