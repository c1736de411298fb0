"""Pictures, model cards and the live view: what they say, on tiny studies."""

import io
import itertools
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import dptune
from dptune import (
    Budget,
    Data,
    HeldOutScore,
    LinearScaling,
    PaperLine,
    Preparation,
    PrivateSelection,
    PublicScore,
    RandomSearch,
    Space,
    UnitNoise,
)
from dptune.accounting.guarantees import ONE_PERSON
from dptune.cli import progress_view, study_screen
from dptune.cli.text_plot import text_plot
from dptune.errors import FolderProblem, InvalidInput
from dptune.report import model_card, search_picture
from dptune.report.plots import draw
from dptune.report.record import Record
from dptune.report.words import promise, readable, verdict
from dptune.search.base import Schedule, Situation, Stage
from dptune.search.linear_scaling import carry_over_share, r_at
from dptune.search.picture import CurvePicture, LinePicture, Point
from dptune.search.trial import scored_trials
from dptune.study.runner import Progress
from dptune.study.split import slots
from support.noise import repeated_noise
from support.rows import make_data

pytestmark = pytest.mark.usefixtures("same_noise")

STUDIES: dict[str, dict[str, Any]] = {
    "linear-scaling": {"search": LinearScaling()},
    "public score": {"search": LinearScaling(), "score": PublicScore()},
    "held out": {"search": LinearScaling(), "score": HeldOutScore()},
    "paper-line": {"search": PaperLine()},
    "unit-noise": {"search": UnitNoise()},
    "random-search": {"search": RandomSearch()},
}


def rows(seed: int, count: int) -> tuple[Any, Any]:
    features = np.random.default_rng(seed).normal(size=(count, 6))
    return features, np.where(features[:, 0] > 0, "up", "down")


@pytest.fixture(scope="module")
def seen() -> list[Progress]:
    """What was told while the first study ran."""
    return []


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, seen: list[Progress]) -> dict[str, Path]:
    """One finished run of each kind."""
    facts = {"name": "up_*$down", "classes": ["down", "up"]}
    data = Data(*rows(0, 400), test=rows(1, 100), public=rows(2, 100), **facts)
    made = {name: tmp_path_factory.mktemp("run") / "r" for name in STUDIES}
    for name, asked in STUDIES.items():
        watch = seen.append if name == "linear-scaling" else None
        space = Space(steps=(5, 10))
        with repeated_noise():
            dptune.tune(
                data, budget=Budget(2.0, 1e-4), space=space, out=made[name], watch=watch,
                **asked,
            )  # fmt: skip
    return made


def texts(figure: Figure) -> str:
    words = [figure.get_suptitle(), *(text.get_text() for text in figure.legends[0].get_texts())]
    for axes in figure.axes:
        words += [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        words += [text.get_text() for text in axes.texts]
        words += [label.get_text() for label in axes.get_yticklabels()]
        words += [axis.get_xlabel() for axis in axes.child_axes if hasattr(axis, "get_xlabel")]
    return "\n".join(words)


@pytest.mark.parametrize("name", STUDIES)
def test_a_picture_is_drawn_into_the_folder(name: str, folders: dict[str, Path]) -> None:
    picture = search_picture(folders[name])
    assert picture == folders[name] / "search.png"
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 20_000
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1650, 720)


def test_the_landscape_is_labelled(folders: dict[str, Path]) -> None:
    shown = texts(draw(Record.read(folders["linear-scaling"])))
    for text in (
        "linear-scaling, ",
        "%\nepsilon 2.0000 at delta 0.0001 for everything shown",
        "total step size r (learning rate × steps), at the price of the final run",
        "noise c on every weight",
        "noisy score\n(points above the mean of the sweep)",
        "fitted curve (scores and law)",
        "top expected by the law (±1 sd)",
        "top after the scores (±1 sd)",
        "score of a trial (±1 sd: paid noise and chance)",
        "final run: r = ",
        "share of the budget (% of mu squared)",
        "3 × sweep",
        "scores of sweep",
        "0.5 %, epsilon",
    ):
        assert text in shown, text


def test_the_picture_of_values_tells_how_far_they_were_off(tmp_path: Path) -> None:
    (features, _), (others, _) = rows(0, 400), rows(1, 100)
    data = Data(
        features, features[:, 0], task="values", target_range=(-3, 3), test=(others, others[:, 0])
    )
    result = dptune.tune(data, budget=Budget(2.0, 1e-4), out=tmp_path / "r")
    shown = texts(draw(Record.read(tmp_path / "r")))
    assert f"linear-scaling, RMSE {result.test_figures['RMSE']:,.4g} on the test rows\n" in shown
    assert "noisy score 1 - loss / 0.5\n(points above the mean of the sweep)" in shown
    assert "test accuracy" not in shown


def test_each_kind_of_study_has_its_own_words(folders: dict[str, Path]) -> None:
    shown = {name: texts(draw(Record.read(folder))) for name, folder in folders.items()}
    assert "score on public rows (points)" in shown["public score"]
    assert "sweep and its scores" in shown["held out"]
    assert "epsilon of one run, at the budget's delta" in shown["paper-line"]
    assert "best of its sweep" in shown["paper-line"]
    for name in ("unit-noise", "random-search"):
        assert "no trials: what was chosen" in shown[name] and "sweep" not in shown[name]


def test_a_method_of_ones_own_may_show_a_picture_of_its_own(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record.read(folders["random-search"])
    r = record.final.plan.total_step_size
    curve = CurvePicture(
        points=(Point(1, r, 2.0, 0.1), Point(2, 2 * r, 1.0, 0.1)),
        curve=((r / 2, 1.0), (r, 2.0), (2 * r, 1.0)),
        top=r,
        law=3 * r,
        prior=(r / 3, 3 * r),
        posterior=(r / 2, 2 * r),
    )
    monkeypatch.setattr(RandomSearch, "picture", lambda self, situation, mu: curve)
    shown = texts(draw(record))
    assert "fitted curve" in shown and "top after the scores" in shown
    line = LinePicture(((0.1, r / 2), (2.0, r)))
    monkeypatch.setattr(RandomSearch, "picture", lambda self, situation, mu: line)
    assert "line through the best" in texts(draw(record))


def cut_off(out: Path, doing: str, **asked: Any) -> Path:
    """A study that was killed when it said that it was `doing` this, and resumed."""
    data = Data(*rows(0, 400))

    def watch(progress: Progress) -> None:
        if progress.doing.startswith(doing):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dptune.tune(data, budget=Budget(2.0, 1e-4), out=out, watch=watch, **asked)
    dptune.resume(out, data)
    return out


@pytest.mark.parametrize("doing", ["sweep: training", "sweep: comparing"])
def test_where_no_trial_was_scored_the_picture_says_so(doing: str, tmp_path: Path) -> None:
    record = Record.read(cut_off(tmp_path / "run", doing))
    figure = draw(record)
    said = texts(figure).replace("\n", " ")
    law = readable(r_at(0.0, record.outline.schedule.final.mu, record.situation))
    assert f"no trial was scored; the unit-noise law alone says r = {law}" in said
    assert "score of a trial" not in said
    low, high = figure.axes[0].get_xlim()
    assert low < record.final.plan.total_step_size < high
    assert len(figure.axes[0].get_xticks()) > 1 and not len(figure.axes[0].get_yticks())


@pytest.mark.parametrize(
    "space", [Space(), Space(steps=(5, 10)), Space(learning_rate=(1.0, 1.0), steps=(5, 5))]
)
@pytest.mark.parametrize("search", [LinearScaling(), RandomSearch()])
def test_labels_of_ticks_do_not_run_together(search: Any, space: Space, tmp_path: Path) -> None:
    data, out = Data(*rows(0, 400)), tmp_path / "run"
    dptune.tune(data, budget=Budget(2.0, 1e-4), search=search, space=space, out=out)
    figure = draw(Record.read(out))
    figure.savefig(io.BytesIO(), format="png")  # lays everything out
    left = figure.axes[0]
    for axis in (left.xaxis, *(above.xaxis for above in left.child_axes)):  # type: ignore[attr-defined]
        boxes = sorted(
            (label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()),
            key=lambda box: box.x0,
        )
        assert boxes
        for one, next_one in pairwise(boxes):
            assert one.x1 < next_one.x0


@pytest.mark.usefixtures("same_noise")
def test_the_top_of_the_landscape_is_where_the_final_run_went(tmp_path: Path) -> None:
    dptune.tune(Data(*rows(0, 400)), budget=Budget(2.0, 1e-4), out=tmp_path / "run")
    record = Record.read(tmp_path / "run")
    seen = record.picture
    assert isinstance(seen, CurvePicture)
    assert seen.top == pytest.approx(record.final.plan.total_step_size)
    assert seen.posterior[0] < seen.top < seen.posterior[1]
    assert max(seen.curve, key=lambda place: place[1])[0] == pytest.approx(seen.top, rel=0.05)
    # At the final price a trial is as far from the law as it tells about such a run.
    told = carry_over_share(record.outline.schedule.final.mu, record.situation)
    apart = np.diff(np.log([point.r for point in seen.points]))
    tried = np.diff(np.log([trial.plan.total_step_size for trial in record.model.trials]))
    assert apart == pytest.approx(told * tried, rel=0.1) and 0.4 < told < 0.8


def rare_rows(count: int) -> Data:
    """Ten rows of one class to one of the other."""
    features, _ = rows(0, count)
    return Data(features, np.where(features[:, 0] > 1.34, "up", "down"))


def test_with_rare_classes_the_landscape_has_the_r_of_the_runs(tmp_path: Path) -> None:
    dptune.tune(rare_rows(4000), budget=Budget(2.0, 1e-4), out=tmp_path / "run")
    record = Record.read(tmp_path / "run")
    assert record.situation.census is not None and record.situation.census.imbalance > 1.0
    seen = record.picture
    assert isinstance(seen, CurvePicture)
    assert seen.top == pytest.approx(record.final.plan.total_step_size, rel=1e-9)
    # At the price of the trials, every point is the r that its trial had.
    (sweep,) = record.outline.schedule.sweeps
    at_trials = LinearScaling().picture(record.situation, sweep.mu)
    asked = [trial.plan.total_step_size for trial in scored_trials(record.model.trials)]
    assert [point.r for point in at_trials.points] == pytest.approx(asked, rel=1e-6)


def test_with_rare_classes_no_two_noises_stand_at_the_end_of_the_space(tmp_path: Path) -> None:
    space, out = Space(learning_rate=(0.01, 100.0)), tmp_path / "run"
    dptune.tune(rare_rows(4000), budget=Budget(2.0, 1e-4), space=space, out=out)
    left = draw(Record.read(out)).axes[0]
    (above,) = left.child_axes
    places = list(above.get_xticks())
    assert len(places) == len(set(places)) > 1
    assert max(places) < 100.0 * 200


@pytest.mark.parametrize(("unit_rows", "error"), [(True, 0.6), (False, 0.8)])
def test_without_trials_the_picture_trusts_the_law_as_far_as_the_search_does(
    unit_rows: bool, error: float, tmp_path: Path
) -> None:
    data, out = Data(*rows(0, 400)), tmp_path / "run"
    prepared = Preparation(unit_rows=unit_rows)
    dptune.tune(data, budget=Budget(2.0, 1e-4), search=UnitNoise(), preparation=prepared, out=out)
    left = draw(Record.read(out)).axes[0]
    (band,) = left.patches
    low, high = band.get_extents().transformed(left.transData.inverted()).intervalx
    assert high / low == pytest.approx(np.exp(2 * error), rel=0.01)


def test_shares_add_up_and_are_what_the_ledger_says(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        record = Record.read(folder)
        budget = record.outline.config.budget
        shares = [slot.share_of(budget) for slot in slots(record.outline)]
        assert sum(shares) == pytest.approx(1.0)
        spent = dptune.Ledger.open(record.summary.ledger).spent()
        assert sum(shares) * budget.mu_squared() == pytest.approx(spent.mu_squared, rel=1e-6)


def test_a_card_tells_data_trials_settings_and_promise(folders: dict[str, Path]) -> None:
    card = model_card(folders["paper-line"])
    assert card.startswith(r"# up\_\*\$down: a differentially private linear model")
    assert len(re.findall(r"^\| \d \| sweep \d \|", card, re.MULTILINE)) == 6
    for heading in ("Data", "Privacy", "Trials", "Final run", "Check it"):
        assert f"## {heading}\n" in card
    assert "- the number of rows (400), taken from the data" in card
    card = model_card(folders["unit-noise"])
    assert "None: the method chooses hyperparameters without reading" in card


def test_a_card_names_classes_and_where_noise_comes_from(folders: dict[str, Path]) -> None:
    card = model_card(folders["unit-noise"])
    assert "\nClasses: down, up.\n" in card
    assert "is not seeded; seed = 0 in run.toml is for public choices." in card


def test_a_card_names_the_first_of_many_classes(tmp_path: Path) -> None:
    features, _ = rows(0, 400)
    data = Data(features, np.arange(400) % 21, classes=list(range(21)))
    dptune.tune(data, budget=Budget(2.0, 1e-4), search=UnitNoise(), out=tmp_path / "run")
    assert ", 18, 19, ... (21 in all).\n" in model_card(tmp_path / "run")


def test_a_card_says_how_features_were_prepared(folders: dict[str, Path], tmp_path: Path) -> None:
    usual = model_card(folders["unit-noise"])
    assert (
        "a private mean subtracted, rows scaled to unit length, rows whitened by a private second "
        "moment, a constant column of 0.25 appended, rows scaled to unit length |"
    ) in usual
    bought = (
        r"\| preparation \| not scaled by private ranges of 6 columns, which are of one scale: "
        r"12 % of the budget; .*centred with a private mean, .* long: 1 % of the budget; whitened "
        r"with a private second moment, .* row: 2 % of the budget; gradients clipped well below"
    )
    assert re.search(bought, usual)
    assert "a noisy mean of the rows; a noisy second moment of the rows" in usual
    data = Data(*rows(0, 400), public=rows(2, 100))
    asked = Preparation(standardize=True, center_share=0.1, whiten_share=0)
    out = tmp_path / "run"
    dptune.tune(data, budget=Budget(2.0, 1e-4), search=UnitNoise(), preparation=asked, out=out)
    card = model_card(out)
    assert (
        "| features | columns shifted and scaled by public numbers, rows scaled to unit length, a "
        "private mean subtracted, rows scaled to unit length, a constant column of 0.25 appended, "
        "rows scaled to unit length |"
    ) in card
    assert "- the rows that standardise the columns" in card and "as declared |" not in card


def test_a_card_never_tells_the_ledger_s_password(folders: dict[str, Path], tmp_path: Path) -> None:
    record = Record.read(folders["unit-noise"])
    named = "postgresql://me:secret@host/db"
    record.summary.asked["run"]["ledger"] = named
    assert record.summary.ledger == "postgresql://me:***@host/db"


def test_a_run_that_is_not_finished_has_no_picture(folders: dict[str, Path]) -> None:
    folder = folders["random-search"]
    result = folder / "result.json"
    kept = result.read_text()
    result.write_text("{}")
    with pytest.raises(FolderProblem, match="dptune resume"):
        search_picture(folder)
    result.write_text(kept)
    with pytest.raises(InvalidInput, match="holds no run"):
        search_picture(folder.parent)


def test_the_live_view_shows_budget_trials_and_scores(
    folders: dict[str, Path],
    seen: list[Progress],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with progress_view.live_view(LinearScaling()) as watch:
        for progress in seen:
            watch(progress)
    out, err = capsys.readouterr()
    assert out == ""
    plain = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", err)
    last = plain[plain.rindex("done") :]
    assert "100.0 % of mu squared" in last and "final run" in last
    assert "learning rate" in last and "noisy score" in last
    assert "the top is at" in last and last.count("·") > 10
    assert max(map(len, last.splitlines())) <= 80


def test_elsewhere_progress_is_one_line_a_stage(
    folders: dict[str, Path], seen: list[Progress], capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = itertools.count(0, 1)
    with progress_view.live_view(LinearScaling(), lambda: float(next(ticks))) as watch:
        for progress in seen:
            watch(progress)
    lines = capsys.readouterr().err.replace("\n  ", " ").splitlines()
    assert lines[0] == (
        "preparing: ranges of columns 12 %, row lengths 0.1 %, private mean 1 %, second moment 2 % "
        "of the budget"
    )
    assert [line.split(" (")[0] for line in lines[1:]] == [
        "sweep: training 3 trials",
        "final run: segment 1 of 5",
        "checking the final model",
        "done",
    ]
    assert re.fullmatch(r"done \(100\.0 % of the budget is used, after \d+ s\)", lines[-1])


def segments(search: Any, seconds: list[float], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is said when the segments of a final run begin at these moments."""
    now = [0.0]
    with progress_view.live_view(search, lambda: now[0]) as watch:
        for number, at in enumerate(seconds, start=2):
            now[0] = at
            watch(FakeProgress(f"final run: segment {number} of 5"))  # type: ignore[arg-type]
    return capsys.readouterr().err.replace("\n  ", " ").splitlines()


FOUR_RUNS = Schedule(None, (Stage("sweep", 3, 0.01),), Stage("final", 1, 0.1))


@dataclass
class FakeProgress:
    doing: str
    spent: float = 0.5
    steps: str = ""
    schedule: Schedule = FOUR_RUNS


def test_lines_tell_how_long_it_took_and_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    begun, second, third = segments(LinearScaling(), [100, 190, 250], capsys)
    used = "50.0 % of the budget is used"
    assert begun == f"final run: segment 2 of 5 ({used}, after 1 min 40 s)"
    assert second == f"final run: segment 3 of 5 ({used}, after 3 min 10 s, about 4 min 30 s left)"
    assert third == f"final run: segment 4 of 5 ({used}, after 4 min 10 s, about 2 min 30 s left)"


def test_a_run_that_tells_its_steps_tells_how_long_they_will_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    with progress_view.live_view(LinearScaling(), lambda: now[0]) as watch:
        for seconds, steps in (
            (30, "trial 1, step 1 of 40"),  # how long it was prepared for says nothing
            (40, "trial 1, step 2 of 40"),
            (100, "trial 1, step 6 of 40"),
            (170, "trial 2, step 1 of 40"),  # another run
            (270, "trial 2, step 21 of 40"),
        ):
            now[0] = seconds
            watch(FakeProgress("sweep", steps=steps))  # type: ignore[arg-type]
    lines = capsys.readouterr().err.replace("\n  ", " ").splitlines()
    assert [line.rpartition("used, ")[2] for line in lines] == [
        "after 30 s)",
        "after 1 min 40 s, about 7 min 56 s of this run left, one of 4)",
        "after 2 min 50 s)",
        "after 4 min 30 s, about 1 min 35 s of this run left, one of 4)",
    ]


def test_the_clock_of_a_sealed_search_stays_secret(capsys: pytest.CaptureFixture[str]) -> None:
    for line in segments(PrivateSelection(), [100, 190, 250], capsys):
        assert line.endswith("(50.0 % of the budget is used)")


def rescored(record: Record, scores: list[float]) -> Situation:
    """What the search would have known had its trials had these scores, with a noise of 0.01."""
    trials = [
        trial.with_score(score, 0.01)
        for trial, score in zip(record.model.trials, scores, strict=True)
    ]
    return replace(record.situation, history=trials)


@pytest.mark.parametrize(("name", "count"), [("linear-scaling", 3), ("paper-line", 6)])
def test_scores_that_do_not_differ_are_said_to_have_decided_little(
    name: str, count: int, folders: dict[str, Path]
) -> None:
    record = Record.read(folders[name])
    search, mu = record.outline.config.search, record.outline.schedule.final.mu

    def said(scores: list[float]) -> str:
        situation = rescored(record, scores)
        return verdict(search.picture(situation, mu), situation.history)

    alike = said([0.001 * n for n in range(count)])
    assert alike.startswith("the scores differ by no more than their noise, so ")
    law = readable(r_at(0.0, mu, record.situation))
    assert alike.endswith(
        f"the unit-noise law alone says r = {law}"
        if name == "linear-scaling"
        else "is mostly chance"
    )
    assert said([0.5 * n for n in range(count)]) == ""
    if name == "linear-scaling":
        torn = said([0.5, 0.0, 0.5])
        assert torn.startswith("the scores fall and rise again, so ") and torn.endswith(law)
        assert said([0.0, 0.5, 0.0]) == ""


def test_screen_live_view_and_picture_say_that_scores_decided_little(
    folders: dict[str, Path], seen: list[Progress], capsys: pytest.CaptureFixture[str]
) -> None:
    record = Record.read(folders["linear-scaling"])
    situation = rescored(record, [0.0, 0.001, 0.002])
    record = replace(record, situation=situation)
    said = "the scores differ by no more than their noise"
    assert said in texts(draw(record)).replace("\n", " ")
    study_screen.show_result(record, Path("search.png"), delta_chosen=False, verbose=True)
    assert said[1:] in " ".join(capsys.readouterr().out.split())
    shown = progress_view.draw_progress(replace(seen[-1], situation=situation), LinearScaling())
    assert said in str(shown[-1]) and max(map(len, str(shown[-1]).splitlines())) < 80


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "Differential privacy with epsilon = 1 and delta = 1e-05 for one row, the search "
            "included. Replacing any one row by an empty one, or back, changes the probability of "
            "any outcome of this study by at most a factor of 2.72, plus 0.00001. Facts taken as "
            "public are not protected.",
        ),
        ({"epsilon": 1e-10}, "with epsilon = 0.0000000001 and"),
        ({"epsilon": 10.0}, "with epsilon = 10 and"),
        (
            {"unit": ONE_PERSON},
            "Replacing all texts of any one person by empty ones, or back, changes",
        ),
        ({"covers_selection": False}, "No privacy is promised: trials were chosen by scores"),
        ({"epsilon": 21.0}, "So large an epsilon protects nobody in any provable way."),
    ],
)
def test_the_promise_is_the_definition_in_numbers_or_why_there_is_none(
    changes: dict[str, Any], said: str, folders: dict[str, Path]
) -> None:
    made = replace(dptune.load(folders["unit-noise"]).guarantee, epsilon=1.0, delta=1e-5)
    words = promise(replace(made, **changes))
    assert (words == said) if not changes else (said in words)
    assert ("factor" in words) == (said[0].islower() or "Replacing" in said or not changes)


def test_a_text_plot_puts_the_highest_score_on_top() -> None:
    drawn = text_plot([], [(1.0, -1.0, "1"), (10.0, 2.0, "2"), (100.0, 0.5, "3")]).splitlines()
    assert "2" in drawn[0].split("│")[1] and "1" in drawn[7].split("│")[1]
    assert drawn[0].startswith("+2.00") and drawn[7].startswith("-1.00")
    one = text_plot([], [(5.0, 1.0, "1")])
    assert one.count("│") == 8


def test_a_record_knows_what_the_ledger_set_aside(tmp_path: Path) -> None:
    """The split that is shown and published is the one that was run."""
    data, budget = make_data(), Budget(1.0, 1e-5)
    opened = {"dataset": "people", "fingerprint": data.fingerprint, "slack": 5e-6}
    dptune.Ledger.create(str(tmp_path / "l.db"), budget, **opened)
    result = dptune.tune(
        data,
        budget=budget,
        space=Space(steps=(5, 10)),
        ledger=str(tmp_path / "l.db"),
        out=tmp_path / "run",
    )
    final = Record.read(tmp_path / "run").outline.schedule.final
    assert final.mu == pytest.approx(result.final.mu, rel=1e-12)
    assert "is kept by the ledger" in result.guarantee.in_words()
