"""Every table and figure of the linear scaling paper that real data here allow, with the paper's
figures beside ours.

Each experiment leaves NAME.md, NAME.csv, NAME.json and, where there is something to see, NAME.png
in a folder, and README.md there links them. What was measured is kept in cells/ and not measured
again: see `lab`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dptune import validate
from dptune.bench.harness import Report
from dptune.bench.store import read, write
from dptune.errors import InvalidInput
from experiments.pages import draw
from experiments.paper import (
    averaging,
    budgets,
    line,
    maps,
    methods,
    own_setting,
    radius,
    recipe,
    rows,
    runtime,
)
from experiments.paper.experiment import Experiment, Result, declared
from experiments.paper.lab import EFFORTS, Lab

ALL = "all"
_PLAIN = "All of it is plain DP-GD, not the recipe that is the default of `tune`."
_OLDER = "Their pages say how they were measured; the same names measure them otherwise now."
_COARSE = "Measured with little effort, on coarse grids: these figures mean nothing."
_MEASURES = {
    "paper": own_setting.paper,
    "methods": methods.methods,
    "rerr": methods.rerr,
    "recipe": recipe.recipe,
    "momentum": recipe.momentum,
    "clipping": recipe.clipping,
    "batch-size": rows.batch_size,
    "averaging": averaging.averaging,
    "weight-decay": recipe.weight_decay,
    "augmult": rows.augmult,
    "split": line.split,
    "fits": line.fits,
    "batch-and-clip": line.batch_and_clip,
    "runtime": runtime.runtime,
    "subset-noise": rows.subset_noise,
    "decompositions": line.decompositions,
    "architectures": methods.architectures,
    "heatmaps": maps.heatmaps,
    "pareto": budgets.pareto,
    "scatter": maps.scatter,
    "one-search": budgets.one_search,
    "radius": radius.radius,
}
EXPERIMENTS = declared(_MEASURES)


def reproduce(
    name: str,
    sources: Sequence[str],
    *,
    repeats: int,
    out: Path,
    device: str,
    report: Report,
    effort: str = "full",
) -> dict[str, Result]:
    """Run one experiment, or all, and write them down."""
    chosen = choose(name)
    repeats = validate.whole(2, repeats=repeats)
    validate.one_of(tuple(EFFORTS), effort=effort)
    lab = Lab(tuple(sources), repeats, out, device, report, EFFORTS[effort])
    for source in sources:
        lab.task(source)  # a bad source is refused before anything is measured
    results = {}
    for experiment in chosen:
        report(experiment.name)
        found = experiment.measure(experiment.lab(lab))
        if effort != "full":
            found = replace(found, notes=(_COARSE, *found.notes))
        results[experiment.name] = found
        _save(experiment, results[experiment.name], lab, effort)
        write(out / "README.md", _contents(out))
    return results


def choose(name: str) -> list[Experiment]:
    """The experiments that a name means, or names with commas between them."""
    if name == ALL:
        return list(EXPERIMENTS.values())
    for one in name.split(","):
        if one not in EXPERIMENTS:
            raise InvalidInput(
                f"there is no table or figure called {one!r}; give some of "
                f"{', '.join(EXPERIMENTS)}, separated by commas, or {ALL}."
            )
    return [EXPERIMENTS[one] for one in name.split(",")]


def _save(experiment: Experiment, result: Result, lab: Lab, effort: str) -> None:
    name = experiment.name
    drawn = draw(result.picture, lab.out / f"{name}.png", lab.report)
    every = result.details or result.table
    write(lab.out / f"{name}.csv", every.csv())
    write(lab.out / f"{name}.md", _page(experiment, result, lab, drawn))
    plain: dict[str, Any] = {
        "name": name,
        "title": experiment.title,
        "paper": experiment.paper,
        "setting": experiment.setting,
        "data": experiment.data(lab),
        "repeats": lab.repeats,
        "effort": effort,
        "device": lab.device,
        "rows": result.table.plain(),
        "details": result.details.plain() if result.details else [],
        "notes": list(result.notes),
    }
    # Last, since the page of contents goes by it.
    write(lab.out / f"{name}.json", json.dumps(plain, indent=1) + "\n")


def _page(experiment: Experiment, result: Result, lab: Lab, drawn: bool) -> str:
    data = ", ".join(experiment.data(lab))
    parts = [
        f"# {experiment.title}",
        f"**The paper.** {experiment.paper}",
        f"**Here.** {experiment.setting} Data: {data}. Accuracies are means over {lab.repeats} "
        "repeats with fresh noise (more where the table says so), in percent of the test rows, "
        "spreads their standard deviations; delta is 1e-5.",
        result.table.markdown().rstrip(),
        *result.notes,
    ]
    if drawn:
        parts.append(f"![{experiment.title}]({experiment.name}.png)")
    return "\n\n".join(parts) + "\n"


def _contents(out: Path) -> str:
    """A page that links every experiment that is there."""
    lines = [
        "# The linear scaling paper's tables and figures, measured with dptune",
        "",
        _PLAIN,
        "",
        "| | what | data | repeats | picture |",
        "| --- | --- | --- | --- | --- |",
    ]
    older = []
    for name, experiment in EXPERIMENTS.items():
        file = out / f"{name}.json"
        found = read(
            file, lambda plain: (", ".join(plain["data"]), plain["repeats"], plain["setting"])
        )
        if found is None:
            continue
        data, repeats, setting = found
        picture = f"[{name}.png]({name}.png)" if (out / f"{name}.png").exists() else ""
        link = f"[{name}]({name}.md)"
        lines.append(f"| {link} | {experiment.title} | {data} | {repeats} | {picture} |")
        if setting != experiment.setting:
            older.append(link)
    if older:
        lines += ["", f"Older, and in another setting: {', '.join(older)}. {_OLDER}"]
    return "\n".join(lines) + "\n"
