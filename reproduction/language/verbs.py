"""`python -m reproduction language`: pretrained models, tuned privately on public texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dptune import validate
from dptune.cli import screen
from dptune.cli.parameters import Device, TrainingDevice
from dptune.data.rows import find_device
from dptune.errors import InvalidInput
from reproduction import lines
from reproduction.language.cells import (
    LINE,
    PROBE,
    WAYS,
    Cell,
    cells_of,
    line_cells,
)
from reproduction.lines import Figures

app = typer.Typer(help="Language models, tuned with all of the search paid.", no_args_is_help=True)
FOLDER = "benchmarks/language"
_DELTA_OF_UNITS = 1e-5  # half of one over six mailboxes would promise nothing
Root = Annotated[
    str, typer.Option(metavar="FOLDER", help="What language prepare made, sets and models.")
]
Texts = Annotated[str, typer.Option(metavar="FOLDER", help="Texts, a .jsonl.gz file a set.")]
Prepared = Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where it goes.")]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="A .jsonl file for every verb and language.md go here; what was measured is not "
        "measured again.",
    ),
]
Epsilons = Annotated[
    str,
    typer.Option("--epsilon", metavar="EPSILONS", help="Budgets, separated by commas, or inf."),
]
Ways = Annotated[
    str, typer.Option(metavar="WAYS", help="What is trained: full, lora, probe; several by commas.")
]
Methods = Annotated[
    str,
    typer.Option(
        metavar="METHODS",
        help="Searches: default, paper-line, random, oracle (an unpaid grid) and line (through the "
        "grid's best r at epsilon 0.1 and 0.2).",
    ),
]
Repeats = Annotated[int, typer.Option(help="Studies behind every accuracy.")]
Limit = Annotated[
    int | None, typer.Option(help="Rows of each part at most, to see whether all works.")
]
Rule = Annotated[
    str, typer.Option(metavar="NAME", help="adam, whose rate falls, or sgd, whose rate stays.")
]
Workers = Annotated[int, typer.Option(help="Processes that train at once.")]
Compute = Annotated[
    str | None,
    typer.Option(metavar="TYPE", help="Of products: bfloat16, which a CPU is slow at, or float32."),
]


@app.command()
def prepare(
    root: Texts,
    model: Annotated[
        str, typer.Option(metavar="FOLDER", help="all-MiniLM-L6-v2, as its package has it.")
    ],
    folder: Prepared,
    sets: Annotated[
        str, typer.Option(metavar="SETS", help="Sets, separated by commas; else all.")
    ] = "",
) -> None:
    """Turn texts into numbers of words, and keep a network in half precision beside them."""
    from reproduction.language.prepare import SOURCES
    from reproduction.language.prepare import prepare as make

    with screen.progress() as report:
        make(Path(root), Path(model), Path(folder), _words(sets) or SOURCES, report)


@app.command()
def finetune(
    root: Root,
    folder: Out = FOLDER,
    sets: Annotated[str, typer.Option(metavar="SETS", help="Sets, separated by commas.")] = "sst2",
    epsilon: Epsilons = "0.7,3,8,0.1,0.2,inf",
    ways: Ways = "lora,full",
    methods: Methods = "default",
    repeats: Repeats = 1,
    batch: Annotated[int, typer.Option(help="Rows expected in a Poisson sample.")] = 4096,
    steps: Annotated[int, typer.Option(help="Of every run, those of trials included.")] = 200,
    optimizer: Rule = "adam",
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
    compute: Compute = None,
    workers: Workers = 1,
) -> None:
    """Tune MiniLM: our search against the paper's line, random search and an oracle.

    Example: python -m reproduction language finetune --root carried --epsilon 3 --device cuda
    """
    from reproduction.language.measure import measure
    from reproduction.language.sets import LENGTHS, private_rows

    cells: list[Cell] = []
    for name in _words(sets):
        validate.one_of(tuple(LENGTHS), sets=name)
        rows = private_rows(name, root, LENGTHS[name], limit).count
        base = Cell(
            verb="finetune",
            texts=name,
            way="",
            method="",
            epsilon=None,
            delta=1 / (2 * rows),
            seed=0,
            batch=min(batch, rows // 4),
            steps=steps,
            length=LENGTHS[name],
            compute=compute or _usual(device),
            limit=limit,
            **_rule(optimizer),
        )
        cells += _all_ways(base, ways, epsilon, methods, rows, repeats)
    _measure(cells, measure, folder, root, device, workers, line=LINE in _words(methods))


@app.command("prepare-mails")
def prepare_mails(
    root: Texts,
    folder: Prepared,
    more: Annotated[
        str, typer.Option(metavar="FOLDERS", help="With .txt files of further public text.")
    ] = "",
) -> None:
    """Make a tokenizer from public text, and turn that text and mails into numbers of words."""
    from reproduction.language.public_text import prepare_texts

    with screen.progress() as report:
        prepare_texts(Path(root), [Path(one) for one in _words(more)], Path(folder), report)


@app.command()
def pretrain(
    root: Annotated[str, typer.Option(metavar="FOLDER", help="What language prepare-mails made.")],
    layers: Annotated[int, typer.Option(help="Of the GPT-2.")] = 6,
    width: Annotated[int, typer.Option(help="Of each layer.")] = 384,
    batch: Annotated[int, typer.Option(help="Pieces of text in a step.")] = 128,
    steps: Annotated[int, typer.Option(help="At most.")] = 3000,
    seconds: Annotated[float, typer.Option(help="At most, on this machine.")] = 100.0,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Train a small GPT-2 on public text.

    Example: python -m reproduction language pretrain --root carried --device cuda
    """
    from reproduction.language.pretrain import pretrain as train

    find_device(device.value)
    with screen.progress() as report:
        found = train(
            Path(root),
            layers=layers,
            width=width,
            batch=batch,
            steps=steps,
            seconds=seconds,
            device=device.value,
            report=report,
        )
    screen.out.print(", ".join(f"{name} {value:,.6g}" for name, value in found.items()))


@app.command()
def lm(
    root: Root,
    folder: Out = FOLDER,
    epsilon: Epsilons = "0.1,0.2,0.7,1.1,1.9,2.7,inf",
    ways: Ways = "full",
    methods: Methods = "default,oracle,line",
    unit: Annotated[
        str, typer.Option(metavar="UNIT", help="What is protected: row (a mail), or mailbox.")
    ] = "row",
    repeats: Repeats = 1,
    batch: Annotated[int, typer.Option(help="Mails expected in a Poisson sample.")] = 1024,
    steps: Annotated[int, typer.Option(help="Of every run, those of trials included.")] = 60,
    length: Annotated[int, typer.Option(help="Words of a row; longer mails are cut.")] = 128,
    optimizer: Rule = "adam",
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
    compute: Compute = None,
    workers: Workers = 1,
) -> None:
    """Tune the small GPT-2 on mails: perplexity and r by budget, as in the paper's Table 8.

    Example: python -m reproduction language lm --root carried --epsilon 0.7,2.7 --device cuda
    """
    from reproduction.language.mails import measure, private_mails

    validate.one_of(("row", "mailbox"), unit=unit)
    rows = private_mails(root, length, limit, unit).count
    base = Cell(
        verb="lm",
        texts="enron",
        way="",
        method="",
        epsilon=None,
        delta=1 / (2 * rows) if unit == "row" else _DELTA_OF_UNITS,
        seed=0,
        batch=min(batch, rows // 4) if unit == "row" else rows,
        steps=steps,
        length=length,
        compute=compute or _usual(device),
        unit=unit,
        limit=limit,
        **_rule(optimizer),
    )
    cells = _all_ways(base, ways, epsilon, methods, rows, repeats)
    _measure(cells, measure, folder, root, device, workers, line=LINE in _words(methods))


@app.command()
def page(folder: Out = FOLDER) -> None:
    """Write language.md again from what was measured, and draw language.png."""
    from reproduction.language.page import draw_picture

    draw_picture(Path(folder))
    _show_page(Path(folder))


def _measure(
    cells: Sequence[Cell],
    measure: "lines.Measure[Cell]",
    folder: str,
    root: str,
    device: Device,
    workers: int,
    *,
    line: bool,
) -> None:
    find_device(device.value)
    validate.whole(1, workers=workers)
    file = Path(folder) / f"{cells[0].verb}.jsonl"
    # A probe is quick, and processes would make its features side by side.
    probes = [cell for cell in cells if cell.way == PROBE]
    others = [cell for cell in cells if cell.way != PROBE]

    with screen.progress() as report:

        def measure_all(some: Sequence[Cell], processes: int) -> int:
            return lines.measure_missing(
                some,
                measure,
                file,
                _said,
                root=root,
                device=device.value,
                workers=processes,
                report=report,
            )

        count = measure_all(others, workers) + measure_all(probes, 1)
        if line:
            asked = {(cell.texts, cell.way, cell.epsilon) for cell in cells}
            wanted = line_cells(lines.read(file, Cell))
            count += measure_all(
                [cell for cell in wanted if (cell.texts, cell.way, cell.epsilon) in asked], workers
            )
        report(f"{count} cells measured; the others were there")
    _show_page(Path(folder))


def _all_ways(
    base: Cell, ways: str, epsilon: str, methods: str, rows: int, repeats: int
) -> list[Cell]:
    """Budgets as they were asked for, each in all ways before the next."""
    found: list[Cell] = []
    for budget in _budgets(epsilon):
        for way in _words(ways):
            validate.one_of(WAYS, ways=way)
            found += cells_of(replace(base, way=way), [budget], _words(methods), rows, repeats)
    return found


def _rule(optimizer: str) -> dict[str, Any]:
    validate.one_of(("adam", "sgd"), optimizer=optimizer)
    return {"optimizer": optimizer, "schedule": "linear" if optimizer == "adam" else "constant"}


def _usual(device: Device) -> str:
    return "float32" if device is Device.cpu else "bfloat16"


def _said(cell: Cell, figures: Figures) -> str:
    budget = "no privacy" if cell.epsilon is None else f"epsilon {cell.epsilon:g}"
    words = [cell.texts, cell.way, cell.method, budget]
    if cell.learning_rate is not None:
        words.append(f"rate {cell.learning_rate:.3g}")
    result = (
        f"{figures['accuracy']:.2f} %"
        if "accuracy" in figures
        else f"perplexity {figures['perplexity']:.2f}"
    )
    return f"{', '.join(words)}, seed {cell.seed}: {result} in {figures['seconds']:.0f} s"


def _show_page(folder: Path) -> None:
    from reproduction.language.page import write_page

    text = write_page(folder).read_text()
    screen.out.print(text, highlight=False, markup=False, soft_wrap=True)


def _words(given: str) -> list[str]:
    return [word.strip() for word in given.split(",") if word.strip()]


def _budgets(given: str) -> list[float | None]:
    try:
        return [None if word == "inf" else float(word) for word in _words(given)]
    except ValueError:
        raise InvalidInput(
            f"--epsilon takes numbers or inf, separated by commas; got {given!r}."
        ) from None
