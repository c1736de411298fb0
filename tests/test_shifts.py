"""Rows of other origins: refused where they must be, reported exactly, never chosen by."""

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import dptune
from dptune.data import Data, DiskRows, Origin, Shift, load_data, write_chunks
from dptune.data.preprocess import Preprocessing
from dptune.errors import InvalidInput
from dptune.report import model_card, search_picture
from dptune.report.plots import draw_shifts
from dptune.report.record import Record
from dptune.search.private_selection import PrivateSelection
from dptune.search.score import PublicScore
from dptune.study.result import StudyResult
from dptune.study.shifted import GroupResult, ShiftResult
from dptune.study.study import resume
from dptune.study.trained_model import load
from support.old_folders import without_digests
from support.rows import make_data, make_rows
from support.spy import Spied
from support.studies import contents, stop_after, study

AS_GIVEN = Preprocessing(unit_rows=False)
GROUPS = np.arange(60) % 3
NAMES = ("sunny", "foggy", "never seen", "snowy")  # the third has no rows


def grouped(**changed: Any) -> Shift:
    features, labels = make_rows(60, 3)
    usual = {"groups": np.where(GROUPS == 2, 3, GROUPS), "group_names": NAMES}
    return Shift(features, labels, **{**usual, **changed})


def plain() -> Shift:
    return Shift(*make_rows(40, 4))


def tried(**more: Any) -> Data:
    return make_data(shifts={"far": plain(), "weather": grouped()}, **more)


def test_a_shift_opens_without_a_receipt_by_group() -> None:
    data = tried()
    assert data.shifts == ("far", "weather")
    (rows,) = data.shifted_rows("far", AS_GIVEN).values()
    np.testing.assert_array_equal(rows.features[:, 0], plain().features.astype(np.float32))
    by_group = data.shifted_rows("weather", AS_GIVEN)
    assert {name: rows.count for name, rows in by_group.items()} == {
        "sunny": 20,
        "foggy": 20,
        "snowy": 20,
    }
    features, labels = make_rows(60, 3)
    snowy = by_group["snowy"]
    np.testing.assert_array_equal(snowy.features[:, 0], features[GROUPS == 2].astype(np.float32))
    assert snowy.targets.tolist() == labels[GROUPS == 2].tolist()
    assert make_data().shifts == ()


def test_groups_without_names_are_called_by_their_numbers() -> None:
    data = make_data(shifts={"weather": grouped(groups=GROUPS, group_names=())})
    assert list(data.shifted_rows("weather", AS_GIVEN)) == ["0", "1", "2"]


def test_a_held_out_part_keeps_its_shifts_and_another_process_gets_them() -> None:
    rest, _ = tried().held_out(10)
    for data in (rest, pickle.loads(pickle.dumps(tried()))):
        assert len(data.shifted_rows("weather", AS_GIVEN)) == 3


@pytest.mark.parametrize(
    ("shifts", "message"),
    [
        ({"far": Shift(np.ones((2, 3)), [0, 1])}, "shifted far features have 3 columns"),
        (
            {"far": Shift(make_rows(3, 4)[0], [0, 1, 7])},
            r"labels hold 7, not among the classes \(0, 1\), in 1 row \(3, .* or declare all",
        ),
        ({"far": Shift(make_rows(3, 4)[0], ["a", "b", "a"])}, "labels hold 'a', 'b', not among"),
        ({"far": Shift(make_rows(3, 4)[0], [0, 1])}, "2 for 3 rows"),
        ({"far": Shift(make_rows(3, 4)[0])}, "shifted far labels are missing"),
        ({"far": make_rows(3, 4)}, "the shift far must be a Shift"),
        ({"": plain()}, "shifts must be a text that is not empty"),
        ({3: plain()}, "shifts must be a text"),
        ([plain()], "shifts must be a mapping of names"),
        ({"w": grouped(groups=None)}, "group_names name the groups of a shift, and none"),
        ({"w": grouped(groups=GROUPS[:50])}, "one a row; got 50 of type int64 for 60 rows"),
        ({"w": grouped(groups=["a"] * 60)}, "whole numbers, one a row; got 60 of type <U1"),
        ({"w": grouped(groups=GROUPS + 0.5)}, "the groups of a shift must name"),
        ({"w": grouped(groups=GROUPS + 2)}, "4 groups have names, .* 0 to 3; found 2 to 4"),
        ({"w": grouped(groups=GROUPS - 1)}, "found -1 to 1"),
        ({"w": grouped(groups=GROUPS - 1, group_names=())}, "found -1 to 1"),
        ({"w": grouped(group_names=("a", "b", "c", "a"))}, "different texts, one a group"),
        ({"w": grouped(group_names="abcd")}, "a list of different texts"),
        ({"w": grouped(group_names=("a", "b", "", "d"))}, "group_names must be a text"),
    ],
)
def test_what_is_no_shift_is_refused(shifts: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_data(shifts=shifts)


def test_values_have_no_accuracy_to_report() -> None:
    features = make_rows(60, 3)[0]
    with pytest.raises(InvalidInput, match="shifts report accuracies, and task='values' has none"):
        make_data(
            task="values",
            target_range=(0, 1),
            shifts={"far": Shift(features, features[:, 0])},
        )


def test_private_rows_are_refused_and_nothing_is_paid(tmp_path: Path) -> None:
    features, labels = make_rows()
    with pytest.raises(InvalidInput, match="some shifted far rows are private rows") as caught:
        study(tmp_path / "run", make_data(shifts={"far": Shift(features[50:90], labels[50:90])}))
    assert not any(letter.isdigit() for letter in str(caught.value))
    assert not (tmp_path / "run").exists()


def test_trials_are_not_compared_on_the_rows_of_a_shift(tmp_path: Path) -> None:
    data = make_data(public=make_rows(40, 4), shifts={"weather": grouped(), "far": plain()})
    with pytest.raises(InvalidInput, match="some public rows are shifted far rows"):
        study(tmp_path / "run", data, score=PublicScore())
    assert not (tmp_path / "run").exists()


def test_a_bunch_names_the_labels_of_its_shifts() -> None:
    class Bunch:
        data, target = make_rows()
        target_names = ("no", "yes")

    data = Data.of(Bunch, shifts={"far": plain()})
    (rows,) = data.shifted_rows("far", AS_GIVEN).values()
    assert rows.targets.tolist() == plain().labels.tolist()


def test_a_shift_may_be_on_disk(tmp_path: Path) -> None:
    shift = grouped()
    write_chunks(tmp_path / "c", [(shift.features[:40], shift.labels[:40]),
                                  (shift.features[40:], shift.labels[40:])])  # fmt: skip
    on_disk = replace(shift, features=DiskRows(tmp_path / "c"), labels=None)
    with pytest.raises(InvalidInput, match="hold their labels"):
        make_data(shifts={"weather": replace(on_disk, labels=shift.labels)})
    rows = make_data(shifts={"weather": on_disk}).shifted_rows("weather", AS_GIVEN)
    for name, expected in tried().shifted_rows("weather", AS_GIVEN).items():
        found = [label for chunk in rows[name].chunks() for label in chunk.targets.tolist()]
        assert found == expected.targets.tolist()


def right(result: StudyResult, features: Any, labels: Any) -> float:
    return float((result.model.predict(features) == labels).mean())


def test_a_study_reports_every_shift_and_its_worst_group(tmp_path: Path) -> None:
    result = study(tmp_path / "run", tried())
    far, weather = result.shifts
    assert (far.name, far.rows, far.groups, far.worst) == ("far", 40, (), None)
    assert far.accuracy == pytest.approx(right(result, *make_rows(40, 4)))
    features, labels = make_rows(60, 3)
    assert weather.accuracy == pytest.approx(right(result, features, labels))
    assert [(group.name, group.rows) for group in weather.groups] == [
        ("sunny", 20),
        ("foggy", 20),
        ("snowy", 20),
    ]
    by_hand = [right(result, features[n::3], labels[n::3]) for n in range(3)]
    assert [group.accuracy for group in weather.groups] == pytest.approx(by_hand)
    assert weather.worst is not None and weather.worst.accuracy == pytest.approx(min(by_hand))
    told = json.loads((tmp_path / "run" / "result.json").read_text())["shifts"]
    assert told == json.loads(json.dumps(result.to_dict()["shifts"]))
    assert told[0]["worst_group"] is None and told[1]["worst_group"]["rows"] == 20
    facts = result.guarantee.public_facts
    assert "the shifted weather rows, whose accuracy is shown exactly" in facts


def test_the_first_of_equally_bad_groups_is_the_worst() -> None:
    groups = tuple(GroupResult(name, share, 10) for name, share in [("a", 1), ("b", 0), ("c", 0)])
    worst = ShiftResult("s", 1 / 3, 30, groups).worst
    assert worst is not None and worst.name == "b"


def test_shifts_are_looked_at_after_everything(tmp_path: Path, spied: Spied) -> None:
    study(tmp_path / "run", tried())
    # Trials, the final model, test rows, and each group of each shift.
    assert [rows.count for rows, _ in spied.evaluations] == [400, 400, 50, 40, 20, 20, 20]


def test_shifts_cost_nothing(tmp_path: Path) -> None:
    with_shifts, without = study(tmp_path / "a", tried()), study(tmp_path / "b")
    assert with_shifts.guarantee.mu == without.guarantee.mu
    assert with_shifts.guarantee.releases == without.guarantee.releases


def test_a_study_that_was_cut_off_reports_its_shifts(tmp_path: Path) -> None:
    out, data = tmp_path / "run", tried()
    assert stop_after(out, data, "sweep: compared")
    result = resume(out, data)
    assert [shift.name for shift in result.shifts] == ["far", "weather"]
    before = contents(out)
    assert resume(out, data).shifts == result.shifts
    assert contents(out) == before


def test_a_sealed_search_reports_its_shifts_and_dates_their_picture_alike(tmp_path: Path) -> None:
    result = study(tmp_path / "run", tried(), search=PrivateSelection())
    far, _ = result.shifts
    assert far.accuracy == pytest.approx(right(result, *make_rows(40, 4)))
    picture = search_picture(tmp_path / "run").with_name("shifts.png")
    assert picture.stat().st_mtime == (tmp_path / "run" / "run.toml").stat().st_mtime


# What made the features


def test_what_made_the_features_is_public_and_stored_with_the_model(tmp_path: Path) -> None:
    made_by = {"name": "resnet20", "digests": ("ab", "cd"), "size": 32}
    result = study(tmp_path / "run", make_data(origin=Origin(made_by=made_by)))
    stored = {"name": "resnet20", "digests": ["ab", "cd"], "size": 32}
    assert result.model.made_by == load(tmp_path / "run").made_by == stored
    words = (
        "the features were made by resnet20, whose weights are taken as public: nothing is "
        "promised about pictures that they were trained on"
    )
    assert words in result.guarantee.public_facts
    assert result.guarantee.unit == "one picture"
    assert "the number of pictures (400), taken from the data" in result.guarantee.public_facts
    assert words in (tmp_path / "run" / "guarantee.txt").read_text().replace("\n", " ")
    assert study(tmp_path / "other").model.made_by is None
    assert load(tmp_path / "other").made_by is None


def test_a_run_goes_on_with_features_of_the_same_making_only(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data(origin=Origin(made_by={"name": "resnet20"}))
    assert stop_after(out, data, "sweep: compared")
    with pytest.raises(InvalidInput, match="other public facts"):
        resume(out, make_data())
    assert resume(out, data).model.made_by is not None


@pytest.mark.parametrize(
    ("made_by", "message"),
    [
        ("resnet20", 'a mapping with a "name"'),
        ({"digest": "ab"}, 'a mapping with a "name"'),
        ({"name": ""}, "made_by must be a text"),
        ({"name": "a", "weights": np.ones(2)}, "plain texts, numbers, lists and mappings"),
        ({"name": "a", "size": float("nan")}, "plain texts, numbers"),
    ],
)
def test_what_tells_nothing_of_the_making_is_refused(made_by: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_data(origin=Origin(made_by=made_by))


# Files


def save(path: Path, part: str, seed: int, count: int = 60, **more: Any) -> Path:
    features, labels = make_rows(count, seed)
    np.savez(path, **{f"X_{part}": features, f"y_{part}": labels}, **more)  # type: ignore[arg-type]
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(tmp_path / "own.npz", "train", 0, 400)


def test_files_are_read_with_their_groups_and_called_as_they_are(
    tmp_path: Path, source: Path
) -> None:
    far = save(tmp_path / "far.npz", "train", 4, group_names=["of", "others"])
    weather = tmp_path / "weather.npz"
    features, labels = make_rows(60, 3)
    np.savez(weather, X_train=-features, y_train=labels, X_test=features, y_test=labels,
             groups_test=GROUPS, group_names=["a", "b", "c"])  # fmt: skip
    data = load_data(source, shifts=[far, str(weather)])
    assert data.shifts == ("far", "weather") and not data.has_test_rows
    assert list(data.shifted_rows("far", AS_GIVEN)) == [""]
    by_group = data.shifted_rows("weather", AS_GIVEN)
    np.testing.assert_array_equal(
        by_group["b"].features[:, 0], features[GROUPS == 1].astype(np.float32)
    )


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    own = save(tmp_path / "own.npz", "train", 0, 400, classes=["car", "ship"])
    turned = save(tmp_path / "turned.npz", "test", 4, classes=["ship", "car"])
    (rows,) = load_data(own, shifts=[turned]).shifted_rows("turned", AS_GIVEN).values()
    assert rows.targets.tolist() == (1 - make_rows(60, 4)[1]).tolist()
    strange = save(tmp_path / "strange.npz", "test", 4, classes=["ship", "monkey"])
    with pytest.raises(InvalidInput, match="shifted strange labels hold 'monkey', not among"):
        load_data(own, shifts=[strange])


def test_files_that_are_no_shift_are_refused(tmp_path: Path, source: Path) -> None:
    far = save(tmp_path / "far.npz", "train", 4)
    (tmp_path / "other").mkdir()
    twin = save(tmp_path / "other" / "far.npz", "train", 5)
    copied = save(tmp_path / "copied.npz", "test", 0, 400)
    for shifts, message in (
        ([far, twin], "two shifts are called far"),
        (str(far), "shifts must be a list of sources"),
        ([3], "a shift is a path"),
        ([tmp_path / "none.npz"], "there is no file or folder"),
        ([source], "is the private data itself, and holds no test rows"),
        ([copied], "some shifted copied rows are private rows"),
    ):
        with pytest.raises(InvalidInput, match=message):
            load_data(source, shifts=shifts)  # type: ignore[arg-type]


def test_chunks_of_rows_are_a_shift_of_their_class_numbers(tmp_path: Path, source: Path) -> None:
    features, labels = make_rows(60, 3)
    write_chunks(tmp_path / "near", [(features, labels)])
    write_chunks(tmp_path / "strange", [(features, labels + 1)])
    (rows,) = load_data(source, shifts=[tmp_path / "near"]).shifted_rows("near", AS_GIVEN).values()
    assert rows.count == 60
    with pytest.raises(InvalidInput, match=r"shifted strange labels in .* class numbers from 0 to"):
        load_data(source, shifts=[tmp_path / "strange"])


def test_columns_of_a_shift_are_those_of_the_private_rows(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,b,label\n1,2,0\n3,4,1\n5,7,1\n")
    (tmp_path / "far.csv").write_text("a,c,label\n9,2,0\n8,4,1\n")
    with pytest.raises(InvalidInput, match="the shifted far rows have the columns a, c"):
        load_data(tmp_path / "own.csv", shifts=[tmp_path / "far.csv"])


# The command line, and what it leaves

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    save(Path("own.npz"), "train", 0, 400)
    save(Path("test.npz"), "test", 1)
    save(Path("far_$1.npz"), "train", 4)
    save(Path("weather.npz"), "test", 3, groups_test=GROUPS, group_names=["sunny", "[b]*", "snowy"])
    Path("quick.toml").write_text("[space]\nsteps = [5, 10]\n")
    return command


TUNE = ("tune", "--data", "own.npz", "--config", "quick.toml", "--out", "r")
SHIFTS = ("--shift", "far_$1.npz", "--shift", "weather.npz")


def test_the_screen_shows_test_rows_first_and_the_worst_group(run: Run) -> None:
    code, out, err = run(*TUNE, "--test", "test.npz", *SHIFTS, "--verbose")
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    at = lines.index(["rows", "of", "accuracy", "rows", "worst", "group"])
    told = json.loads(Path("r/result.json").read_text())
    test, far, weather = lines[at + 1 : at + 4]
    assert test == ["test", f"{100 * told['test_accuracy']:.2f}", "%", "60"]
    assert far == ["far_$1", f"{100 * told['shifts'][0]['accuracy']:.2f}", "%", "60"]
    worst = told["shifts"][1]["worst_group"]
    assert weather[4:] == [f"{100 * worst['accuracy']:.2f}", "%", "of", "20:", worst["name"]]
    assert "r/search.png and shifts.png" in out and Path("r/shifts.png").exists()
    assert max(map(len, out.splitlines())) <= 80
    short = " ".join(run("resume", "r")[1].split())
    lowest = min(told["shifts"], key=lambda shift: shift["accuracy"])
    assert f"shifted accuracy {100 * lowest['accuracy']:.2f} % on {lowest['name']}" in short


def test_a_run_with_shifts_is_resumed_from_elsewhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(*TUNE, *SHIFTS, "--json")
    assert code == 0, err
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = json.loads(run("resume", str(tmp_path / "r"), "--json")[1])
    assert again["shifts"] == json.loads(out)["shifts"] and len(again["shifts"]) == 2


def test_shifts_of_a_file_give_way_to_options(run: Run) -> None:
    Path("quick.toml").write_text('[data]\nshifts = ["weather.npz"]\n[space]\nsteps = [5, 10]\n')
    code, out, err = run(*TUNE, "--json")
    assert code == 0, err
    assert [shift["name"] for shift in json.loads(out)["shifts"]] == ["weather"]
    told = run(*TUNE[:-1], "other", "--shift", "far_$1.npz", "--json")[1]
    assert [shift["name"] for shift in json.loads(told)["shifts"]] == ["far_$1"]
    Path("quick.toml").write_text('[data]\nshifts = "weather.npz"\n')
    code, _, err = run(*TUNE[:-1], "third")
    assert code == 2 and "shifts must be a list" in " ".join(err.split())
    assert not Path("third").exists()


def texts(figure: Figure) -> list[str]:
    figure.canvas.draw()  # type: ignore[no-untyped-call]
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    return [*labels, *(text.get_text() for text in axes.texts)]


def test_card_and_picture_name_every_shift(run: Run) -> None:
    code, _, err = run(*TUNE, "--test", "test.npz", *SHIFTS)
    assert code == 0, err
    record = Record.read("r")
    weather = record.result["shifts"][1]
    worst = weather["worst_group"]
    card = model_card("r")
    assert f"| weather | {100 * weather['accuracy']:.2f} % | 60 |" in card
    assert card.count("the worst group") == 1 and r"| weather: \[b\]\*" in card
    assert card.index("| test |") < card.index(r"| far\_\$1 |") < card.index("| weather |")
    shown = texts(draw_shifts(record))
    assert shown[:3] == ["test", r"far_\$1", "weather"]
    assert f"worst group {100 * worst['accuracy']:.1f} %: {worst['name']}" in shown[5]
    without_test = replace(
        record,
        summary=replace(record.summary, result={**record.result, "test_accuracy": None}),
    )
    assert texts(draw_shifts(without_test))[:2] == [r"far_\$1", "weather"]


def test_a_card_says_that_severities_are_the_same_pictures(run: Run) -> None:
    for seed, name, group in ((3, "fog", "severity"), (4, "snow", "hour")):
        names = [f"{group} {number}" for number in (1, 2, 3)]
        save(Path(f"{name}.npz"), "test", seed, groups_test=GROUPS, group_names=names)
    code, _, err = run(*TUNE, "--shift", "fog.npz", "--shift", "snow.npz")
    assert code == 0, err
    card = model_card("r")
    assert "\nfog, 60 rows: the same 20 pictures at 3 severities.\n" in card
    assert card.count("severities") == 1


def test_what_stands_beside_the_bars_keeps_off_the_edge(run: Run) -> None:
    code, _, err = run(*TUNE, "--test", "test.npz", *SHIFTS)
    assert code == 0, err
    figure = draw_shifts(Record.read("r"))
    assert "epsilon 1.0000 at delta " in figure.get_suptitle()
    figure.savefig(io.BytesIO(), format="png")  # lays everything out
    (axes,) = figure.axes
    right = max(text.get_window_extent().x1 for text in axes.texts)
    assert right < figure.bbox.x1 - 0.1 * figure.dpi


def test_a_run_without_shifts_or_of_an_older_version_has_nothing_to_say_of_them(
    tmp_path: Path,
) -> None:
    study(tmp_path / "run")
    without_digests(tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result.pop("shifts") == []
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    picture = search_picture(tmp_path / "run")
    assert not picture.with_name("shifts.png").exists()
    assert "other origins" not in model_card(tmp_path / "run")
    assert dptune.load(tmp_path / "run").made_by is None
