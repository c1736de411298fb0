"""The verb that writes a model in a format that needs no dptune."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from dptune.cli import screen
from dptune.cli.parameters import AsJson, Folder, RunCode, option
from dptune.errors import InvalidInput
from dptune.printable import printable

_FORMATS = {".onnx": "ONNX", ".pkl": "scikit-learn"}
_MOST_SHOWN = 10


def export(
    folder: Folder,
    out: Annotated[
        str,
        option(
            "The file to write: model.onnx for ONNX, model.pkl for a pickled scikit-learn "
            "pipeline.",
            "--out",
            "-o",
            metavar="FILE",
        ),
    ],
    run_code: RunCode = False,
    as_json: AsJson = False,
) -> None:
    """Write a linear model so that serving it needs no dptune.

    Example: dptune export runs/patients-1 -o model.onnx
    """
    from dptune.study.finished_run import FinishedRun
    from dptune.study.trained_model import load_from

    made = _FORMATS.get(Path(out).suffix)
    if made is None:
        raise InvalidInput(
            f"the end of a file's name says its format, {' or '.join(_FORMATS)}; got {out!r}."
        )
    if Path(out).exists():
        raise InvalidInput(f"{out} is there already; give another name, or remove it first.")
    run = FinishedRun.open(folder)
    if run.unchecked:
        screen.warn(run.unchecked)
    model = load_from(run, own_code=run_code)
    if made == "ONNX":
        from dptune.export.onnx_columns import inputs_in_words
        from dptune.export.onnx_file import to_onnx

        to_onnx(model, out)
    else:
        from dptune.export.sklearn_columns import inputs_in_words
        from dptune.export.sklearn_pipeline import to_sklearn

        pickled = pickle.dumps(to_sklearn(model))
        try:
            Path(out).write_bytes(pickled)
        except OSError as error:
            raise InvalidInput(f"{out!r} cannot be written: {error.strerror}.") from None
    inputs = {} if model.inputs is None else inputs_in_words(model.inputs)
    plain = {"out": out, "format": made, "inputs": inputs}
    screen.show(as_json, plain, lambda: _show(made, out, inputs))


def _show(made: str, out: str, inputs: Mapping[str, str]) -> None:
    print(f"Wrote {made} to {out}.")
    if inputs:
        print("Each column must be:")
    for name, takes in list(inputs.items())[:_MOST_SHOWN]:
        print(f"  {printable(f'{name}: {takes}')}")
    if len(inputs) > _MOST_SHOWN:
        print(f"  and {len(inputs) - _MOST_SHOWN} more; --json, and the file itself, have all.")
