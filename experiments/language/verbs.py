"""`python -m experiments language`: pretrained models, tuned privately on public texts."""

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
from experiments import lines, options
from experiments.language.cells import LINE, PROBE, WAYS, Cell, cells_of, line_cells
from experiments.lines import Figures
from experiments.options import Batch, Limit, Out, Repeats, Steps, Workers, group, numbers, words

FOLDER = "benchmarks/language"
_DELTA_OF_UNITS = 1e-5  # half of one over six mailboxes would promise nothing
Root = Annotated[
    str, typer.Option(metavar="FOLDER", help="What language prepare made, sets and models.")
]
Texts = Annotated[str, typer.Option(metavar="FOLDER", help="Texts, a .jsonl.gz file a set.")]
Prepared = Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where it goes.")]
Epsilons = Annotated[
    str, typer.Option("--epsilon", metavar="EPSILONS", help="Budgets, separated by commas, or inf.")
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
Rule = Annotated[
    str, typer.Option(metavar="NAME", help="adam, whose rate falls, or sgd, whose rate stays.")
]
Compute = Annotated[
    str | None,
    typer.Option(metavar="TYPE", help="Of products: bfloat16, which a CPU is slow at, or float32."),
]


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
    from experiments.language.prepare import SOURCES
    from experiments.language.prepare import prepare as make

    with screen.progress() as report:
        make(Path(root), Path(model), Path(folder), words(sets) or SOURCES, report)


def finetune(
    root: Root,
    folder: Out = FOLDER,
    sets: Annotated[str, typer.Option(metavar="SETS", help="Sets, separated by commas.")] = "sst2",
    epsilon: Epsilons = "0.7,3,8,0.1,0.2,inf",
    ways: Ways = "lora,full",
    methods: Methods = "default",
    repeats: Repeats = 1,
    batch: Batch = 4096,
    steps: Steps = 200,
    optimizer: Rule = "adam",
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
    compute: Compute = None,
    workers: Workers = 1,
) -> None:
    """Tune MiniLM: our search against the paper's line, random search and an oracle.

    Example: python -m experiments language finetune --root carried --epsilon 3 --device cuda
    """
    from experiments.language.measure import measure
    from experiments.language.sets import LENGTHS, private_rows

    cells: list[Cell] = []
    for name in words(sets):
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
    _measure(cells, measure, folder, root, device, workers, line=LINE in words(methods))


def prepare_mails(
    root: Texts,
    folder: Prepared,
    more: Annotated[
        str, typer.Option(metavar="FOLDERS", help="With .txt files of further public text.")
    ] = "",
) -> None:
    """Make a tokenizer from public text, and turn that text and mails into numbers of words."""
    from experiments.language.public_text import prepare_texts

    with screen.progress() as report:
        prepare_texts(Path(root), [Path(one) for one in words(more)], Path(folder), report)


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

    Example: python -m experiments language pretrain --root carried --device cuda
    """
    from experiments.language.pretrain import pretrain as train

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
    steps: Steps = 60,
    length: Annotated[int, typer.Option(help="Words of a row; longer mails are cut.")] = 128,
    optimizer: Rule = "adam",
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
    compute: Compute = None,
    workers: Workers = 1,
) -> None:
    """Tune the small GPT-2 on mails: perplexity and r by budget, as in the paper's Table 8.

    Example: python -m experiments language lm --root carried --epsilon 0.7,2.7 --device cuda
    """
    from experiments.language.mails import measure, private_mails

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
    _measure(cells, measure, folder, root, device, workers, line=LINE in words(methods))


def page(folder: Out = FOLDER) -> None:
    """Write language.md again from what was measured, and draw language.png."""
    from experiments.language.page import draw_picture, write_page

    draw_picture(Path(folder))
    options.show(write_page(Path(folder)))


def head_rates(
    features: Annotated[str, typer.Argument(metavar="FEATURES.npz", help="Of public texts.")],
    epsilon: Epsilons = "0.7,8",
    repeats: Repeats = 3,
) -> None:
    """Find the rate that a new last layer likes: it alone, on stored features."""
    from experiments.language.head_rates import measure

    print(measure(features, numbers(epsilon), repeats).markdown(), end="")


def new_layer_rates(
    root: Root,
    sets: Annotated[
        str, typer.Option(metavar="SETS", help="Sets, separated by commas.")
    ] = "trec,newsgroups20,subj,ag_news",
    ways: Ways = "lora,full",
    epsilon: Epsilons = "0.1,0.7,8",
    share: Annotated[
        float, typer.Option(help="1: noise moves the layer as far as the network.")
    ] = 1.0,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Move the new layer further than the network that is trained with it."""
    from experiments.language.new_layer_rates import measure_rates

    budgets = numbers(epsilon)
    found = measure_rates(root, words(sets), words(ways), budgets, share, device.value)
    print(found.markdown(), end="")


def row_check(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="opt-125m, opt-1.3b, opt-13b, ...")
    ] = None,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Time the check that rows do not interact on large models of random weights.

    A little of the mean over the rows of a batch is planted in the middle layer: the check must
    find it, however little.
    """
    import torch

    from experiments.language.row_check import SIZES, check

    with screen.progress() as report:
        for name in models or ["opt-125m"]:
            validate.one_of(tuple(SIZES), model=name)
            for attention in ("sdpa", "eager"):
                check(name, torch.device(device.value), attention, report)


app = group(
    "Language models, tuned with all of the search paid.",
    prepare, finetune, prepare_mails, pretrain, lm, page, head_rates, new_layer_rates, row_check,
)  # fmt: skip


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
    from experiments.language.page import write_page

    asked = {(cell.texts, cell.way, cell.epsilon) for cell in cells}

    def on_the_line() -> list[Cell]:
        if not line:
            return []
        found = line_cells(lines.read(Path(folder), cells[0].verb, Cell))
        return [cell for cell in found if (cell.texts, cell.way, cell.epsilon) in asked]

    rounds: list[tuple[options.Cells, int]] = [
        ([cell for cell in cells if cell.way != PROBE], workers),
        # A probe is quick, and processes would make its features side by side.
        ([cell for cell in cells if cell.way == PROBE], 1),
        (on_the_line, workers),
    ]
    options.measure_and_show(rounds, measure, folder, _said, write_page, root, device)


def _all_ways(
    base: Cell, ways: str, epsilon: str, methods: str, rows: int, repeats: int
) -> list[Cell]:
    """Budgets as they were asked for, each in all ways before the next."""
    found: list[Cell] = []
    for budget in _budgets(epsilon):
        for way in words(ways):
            validate.one_of(WAYS, ways=way)
            found += cells_of(replace(base, way=way), [budget], words(methods), rows, repeats)
    return found


def _rule(optimizer: str) -> dict[str, Any]:
    validate.one_of(("adam", "sgd"), optimizer=optimizer)
    return {"optimizer": optimizer, "schedule": "linear" if optimizer == "adam" else "constant"}


def _usual(device: Device) -> str:
    return "float32" if device is Device.cpu else "bfloat16"


def _said(cell: Cell, figures: Figures) -> str:
    budget = "no privacy" if cell.epsilon is None else f"epsilon {cell.epsilon:g}"
    parts = [cell.texts, cell.way, cell.method, budget]
    if cell.learning_rate is not None:
        parts.append(f"rate {cell.learning_rate:.3g}")
    result = (
        f"{figures['accuracy']:.2f} %"
        if "accuracy" in figures
        else f"perplexity {figures['perplexity']:.2f}"
    )
    return f"{', '.join(parts)}, seed {cell.seed}: {result} in {figures['seconds']:.0f} s"


def _budgets(given: str) -> list[float | None]:
    try:
        return [None if word == "inf" else float(word) for word in words(given)]
    except ValueError:
        raise InvalidInput(
            f"--epsilon takes numbers or inf, separated by commas; got {given!r}."
        ) from None
