"""The model card of a finished run, as Markdown to publish beside the model."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dptune import gdp
from dptune.accounting.split import Slot
from dptune.data.declared import describe_column
from dptune.data.made_by import is_of_texts, size_in_words, trained_on
from dptune.features.network import short_name
from dptune.printable import markdown, printable
from dptune.report.record import Record
from dptune.report.summary import Summary
from dptune.rounding import cost
from dptune.search.trial import Trial
from dptune.study.figures import lines_of_figures
from dptune.study.model_facts import ModelFacts
from dptune.study.split import slots

_SHOWN = 12  # ranges on the card; run.toml has all of them
_COLUMNS = 50  # columns on the card; run.toml has all of them
_CLASSES = 20  # class names on the card; the model has all of them
_DIGEST = 12  # characters of a digest
_KINDS = {"squared": "a value", "words": "the next word", "spans": "answers in a text"}


def model_card(folder: str | Path) -> str:
    """Return the model card: the model, its guarantee, all trials that may be shown, and how to
    check it. No code of an engine is needed or run.

    Names and sentences from the files of the run are escaped, so none of them becomes Markdown.
    """
    run = Summary.read(folder)
    with run.folder.undamaged("result.json"):
        paid_for = run.slots or slots(Record.read(folder).outline)
        sections = (
            _model(run),
            _data(run),
            _guarantee(run),
            _budget(run, paid_for),
            _trials(run, sealed=any(slot.alone for slot in paid_for)),
            _final(run),
            _verify(run),
        )
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _model(run: Summary) -> list[str]:
    model, data = run.model, run.result["data"]
    kind = f"{len(model.classes)} classes" if model.classes else _KINDS[model.loss]
    search = markdown(run.asked["search"]["method"])
    where = "inside the same privacy budget"
    if run.asked["run"].get("reuse"):
        where = "by an earlier study, which the guarantee includes"
    trains = markdown(run.trains)
    environment = run.folder.read_json("environment.json") or {}
    version = environment.get("packages", {}).get("dptune", "of unknown version")
    figures = lines_of_figures(run.result, model.target_range)
    check = run.result.get("check")  # older versions had none
    return [
        f"# {markdown(data['name'])}: a differentially private {trains}",
        "",
        f"A {trains} of {kind} from {_what(model)}, trained by noisy gradient "
        f"descent. Its hyperparameters were searched ({search}) {where}, by dptune "
        f"{markdown(version)}.",
        "",
        *_classes(run),
        *figures,
        *(
            ["", markdown(f"By {check.get('by', 'a noisy count')} (paid for), {check['words']}.")]
            if check
            else []
        ),
        *_shifts(run),
    ]


def _what(model: ModelFacts) -> str:
    """The input of the model, in words."""
    if is_of_texts(model.made_by):
        return f"texts of up to {model.made_by['length']:,} tokens"
    encoding = model.preprocessing.encoding
    if encoding is None:
        return f"{model.columns:,} features"
    return f"{len(encoding.columns.kept):,} columns, in {encoding.width:,} features"


def _classes(run: Summary) -> list[str]:
    names = [markdown(str(name)) for name in run.model.classes]
    if not names:
        return []
    more = f", ... ({len(names):,} in all)" if len(names) > _CLASSES else ""
    return [f"Classes: {', '.join(names[:_CLASSES])}{more}.", ""]


def _shifts(run: Summary) -> list[str]:
    """The accuracy on rows of other origins, by group."""
    shifts = run.result.get("shifts")  # older versions had none
    if not shifts:
        return []
    lines = []
    if run.result["test_accuracy"] is not None:
        lines.append(("test", run.result["test_accuracy"], run.result["test_rows"]))
    for shift in shifts:
        name = shift["name"]
        lines.append((name, shift["accuracy"], shift["rows"]))
        for group in shift["groups"]:
            worst = ", the worst group" * (group == shift["worst_group"])
            called = f"{name}: {group['name']}{worst}"
            lines.append((called, group["accuracy"], group["rows"]))
    head = ("rows of", "accuracy", "rows")
    rows = [(name, f"{100 * share:.2f} %", f"{count:,}") for name, share, count in lines]
    notes = [note for shift in shifts if (note := _severities(shift))]
    return ["", "On rows of other origins:", "", *_table(head, rows), *notes]


def _severities(shift: Mapping[str, Any]) -> str:
    """A note for groups that are the same pictures at several severities."""
    counts = {group["rows"] for group in shift["groups"]}
    if len(counts) != 1 or not all(g["name"].startswith("severity ") for g in shift["groups"]):
        return ""
    name, (count,) = markdown(shift["name"]), counts
    at = f"at {len(shift['groups'])} severities"
    return f"\n{name}, {shift['rows']:,} rows: the same {count:,} pictures {at}."


def _data(run: Summary) -> list[str]:
    facts = [f"- {markdown(fact)}" for fact in run.model.guarantee.public_facts]
    heading = "These facts are treated as public and released exactly:"
    return ["## Data", "", heading, "", *facts, *_columns(run.model), *_backbones(run)]


def _columns(model: ModelFacts) -> list[str]:
    """The declared facts and private estimates of the columns."""
    encoding = model.preprocessing.encoding
    if encoding is None or (model.encoding is None and not encoding.ranges):  # none, or interrupted
        return []
    if model.encoding is None and len(set(encoding.ranges.values())) == 1 and not encoding.degrees:
        alike = "have similar scales by their private ranges (ranges.json), so they are not scaled"
        return ["", f"The {len(encoding.blocks):,} columns {alike}."]
    rows = [
        (
            name,
            column.kind,
            describe_column(encoding, name),
            str(places.stop - places.start),
        )
        for name, places in list(encoding.blocks.items())[:_COLUMNS]
        if (column := encoding.columns.declared[name])
    ]
    more = len(encoding.blocks) - _COLUMNS
    where = "ranges.json" if model.encoding is None else "run.toml"
    left = ["", f"And {more:,} more, in {where}."] * (more > 0)
    return ["", "Columns:", "", *_table(("column", "kind", "known", "features"), rows), *left]


def _backbones(run: Summary) -> list[str]:
    """The backbones that made the features, if recorded."""
    rows = [
        (
            short_name(backbone["name"]),
            backbone["kind"],
            size_in_words(backbone),
            trained_on(backbone),
            backbone["digest"][:_DIGEST],
        )
        for backbone in (run.model.made_by or {}).get("backbones", ())
    ]
    head = ("backbone", "features", "of", "trained on", "digest begins")
    return ["", "Backbones of the features:", "", *_table(head, rows)] if rows else []


def _guarantee(run: Summary) -> list[str]:
    sections = run.model.guarantee.sections()
    return [
        "## Privacy",
        "",
        *(f"- **{heading}**: {markdown(sentence)}." for heading, sentence in sections),
        "",
        "Noise comes from the operating system's randomness and is not seeded; "
        f"seed = {markdown(str(run.asked['run']['seed']))} in run.toml is for public choices.",
    ]


def _budget(run: Summary, paid_for: Sequence[Slot]) -> list[str]:
    rows = [
        (
            slot.purpose,
            str(slot.count),
            cost(slot.epsilon),
            f"{100 * slot.share_of(run.budget):.1f} %",
        )
        for slot in paid_for
    ]
    head = ("paid for", "runs", "epsilon each", "share of mu squared")
    return ["## How the budget was split", "", *_table(head, rows)]


def _trials(run: Summary, *, sealed: bool) -> list[str]:
    if not run.model.trials:
        why = "None: the method chooses hyperparameters without reading the data."
        if sealed:
            why = "Sealed: the number of trials, and all trials but the winner, stay secret."
        return ["## Trials", "", why]
    head = ("trial", "stage", "learning rate", "steps", "r", "weight noise c", "epsilon", "score")
    rows = [_trial(trial, run) for trial in run.model.trials]
    note = "Scores are in points; in brackets, the standard deviation of the noise paid for."
    return ["## Trials", "", *_table(head, rows), "", note]


def _trial(trial: Trial, run: Summary) -> Sequence[str]:
    score = "lost" if trial.lost else "none"
    if trial.score is not None:
        score = f"{100 * trial.score:+.2f} ({100 * (trial.score_noise or 0.0):.2f})"
    return (
        str(trial.number),
        trial.stage,
        f"{trial.plan.learning_rate:.4g}",
        str(trial.plan.steps),
        f"{trial.plan.total_step_size:.4g}",
        f"{trial.noise:.3g}",
        cost(gdp.epsilon_from_mu(trial.mu, run.budget.delta)),
        score,
    )


def _final(run: Summary) -> list[str]:
    plan, preparation = run.final.plan, run.model.preprocessing
    rate = "every row in every step" if plan.sampling_rate is None else f"{plan.sampling_rate:g}"
    sgd = plan.optimizer == "sgd"  # for other optimizers the noise on the weights is unknown
    rows = [
        ("total step size r", f"{plan.total_step_size:.6g}"),
        ("learning rate", f"{plan.learning_rate:.6g}"),
        ("steps", str(plan.steps)),
        ("noise multiplier, on the sum", f"{plan.noise_multiplier:.6g}"),
        *([("noise on every weight c", f"{plan.weight_noise:.3g}")] * sgd),
        ("clipping norm", f"{plan.clip_norm:g}"),
        ("sampling rate", rate),
        ("optimizer", f"sgd, momentum {plan.momentum:g}" if sgd else plan.optimizer),
        ("features", preparation.in_words()),
        ("objective", run.objective),
    ]
    if ranges := run.asked["preparation"].get("ranges"):
        shown = ", ".join(f"{low:g} to {high:g}" for low, high in ranges[:_SHOWN])
        more = ", ..." if len(ranges) > _SHOWN else ""
        rows.append(("ranges of the columns, as declared", shown + more))
    if sentences := run.result.get("preparation"):  # older runs have none
        rows.append(("preparation", "; ".join(sentences)))
    notes = [f"- {markdown(note)}" for note in run.result["notes"]]
    return [
        "## Final run",
        "",
        *_table(("setting", "value"), rows),
        *([""] if notes else []),
        *notes,
    ]


def _verify(run: Summary) -> list[str]:
    unchecked = run.folder.unchecked
    return [
        "## Check it",
        "",
        "The ledger lists every payment in a chain of hashes. Its owner can show it with",
        "",
        "```",
        f"dptune budget {shlex.quote(printable(run.ledger))}",
        "```",
        *(["", f"Not checked: {markdown(unchecked)}."] if unchecked else []),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *(map(markdown, row) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
