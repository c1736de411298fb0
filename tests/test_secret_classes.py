"""Names of classes that nobody declared are bought: a mistyped label is not published."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import own_networks
from dptune.accounting import Budget
from dptune.bench.tasks import load_task
from dptune.data import Data, Origin, load_data
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import CLASSES_UNTIL_BOUGHT
from dptune.data.shift import Shift
from dptune.engines import TorchModule
from dptune.errors import FolderProblem, InvalidInput
from dptune.estimator import DPLinearClassifier
from dptune.ledger import Ledger
from dptune.report.record import Record
from dptune.search.linear_scaling import LinearScaling
from dptune.search.private_selection import PrivateSelection
from dptune.search.score import HeldOutScore
from dptune.study import planning
from dptune.study.config import Config, Preparation
from dptune.study.study import resume
from support.spy import Spied
from support.studies import BUDGET, PLAIN, a_config, stop_after, study

Run = Callable[..., tuple[int, str, str]]
ROWS, SECRET = 3000, "zzsikc"
AUTO = replace(PLAIN, class_share="auto")


def rows(count: int = ROWS, *, names: tuple[str, ...] = ("sick", "well"), seed: int = 0) -> Any:
    """Features, and names of classes that differ much in them."""
    rng = np.random.default_rng(seed)
    which = rng.integers(len(names), size=count)
    features = rng.normal(size=(count, 4)) + 2 * np.eye(4)[which % 4]
    return features, np.array(names, dtype="U9")[which]


def mistyped(count: int = ROWS, typos: int = 1) -> Any:
    features, labels = rows(count)
    labels[5 : 5 + typos] = SECRET
    return features, labels


def everything_in(folder: Path) -> bytes:
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".db")
    return b"".join(file.read_bytes() for file in files)


# -- what is published, and what it costs


@pytest.mark.usefixtures("same_noise")
def test_mistyped_label_of_one_row_is_nowhere_in_the_run_folder(
    tmp_path: Path, spied: Spied
) -> None:
    result = study(tmp_path / "run", Data(*mistyped(), name="people"))
    assert result.model.classes == ("sick", "well")
    stored = json.loads((tmp_path / "run" / "classes.json").read_text())
    assert stored["classes"] == ["sick", "well"]
    written = everything_in(tmp_path / "run")
    assert b"well" in written and SECRET.encode() not in written
    # Its row counts as empty: public numbers are of all rows, and what is trained on is less.
    assert {(plan.rows, seen.count) for plan, seen in spied.runs} == {(ROWS, ROWS - 1)}
    assert result.rows == ROWS


@pytest.mark.usefixtures("same_noise")
def test_names_of_classes_are_paid_for_within_the_budget_and_named_as_released(
    tmp_path: Path,
) -> None:
    result = study(tmp_path / "run", Data(*mistyped()))
    paid = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    first, *rest = paid.counted
    assert first.label == "names of classes" and first.state == "committed"
    assert first.price.mu_squared == pytest.approx(0.006 * BUDGET.mu_squared(), rel=1e-3)
    assert first.price.slack == pytest.approx(1e-3 * BUDGET.delta)
    assert paid.spent_epsilon <= BUDGET.epsilon and len(rest) > 4
    promise = result.guarantee
    assert promise.epsilon <= BUDGET.epsilon and promise.slack > 0
    assert "names of classes that many rows have" in promise.releases
    assert not any("classes" in fact for fact in promise.public_facts)
    (said,) = (line for line in result.preparation if "classes: names" in line)
    assert said.startswith("classes: names that about 146 rows") and "0.6 % of the budget" in said


def test_declared_and_public_classes_cost_nothing_and_are_taken_as_public(tmp_path: Path) -> None:
    for classes, origin in ((["sick", "well"], "as declared"), ("public", "taken from the data")):
        out = tmp_path / origin
        result = study(out, Data(*rows(300), classes=classes))
        assert result.model.classes == ("sick", "well")
        assert f"the classes (2), {origin}" in result.guarantee.public_facts
        labels = [p.label for p in Ledger.open(str(out / "ledger.db")).state().counted]
        assert "names of classes" not in labels and not (out / "classes.json").exists()


def test_whole_numbers_are_public_unless_they_are_to_be_bought() -> None:
    features, names = rows()
    numbers = (names == "well").astype(int)
    assert Data(features, numbers).classes == (0, 1)
    numbers[7] = 11
    assert Data(features, numbers).classes == (0, 1, 11)
    data = Data(features, numbers, classes="paid")
    assert data.has_secret_classes and not data.classes
    assert study(None, data).model.classes == (0, 1)


def test_plan_is_the_same_whatever_the_names_are() -> None:
    """Also of a study that may not know how many there are."""
    config = a_config(preparation=AUTO)
    shown = []
    for data in (Data(*rows()), Data(*mistyped()), Data(*rows(names=("a", "b", "c", "d")))):
        planned, promise = planning.foresee(data, config)
        shown.append((planned.payments, promise))
        assert data.outputs == CLASSES_UNTIL_BOUGHT
    assert shown[0] == shown[1] == shown[2]
    caveat = f"planned as for {CLASSES_UNTIL_BOUGHT} classes, until their names are estimated"
    assert caveat in shown[0][1].caveats


@pytest.mark.usefixtures("same_noise")
def test_five_bought_classes_are_trained_counted_and_shown(tmp_path: Path) -> None:
    names = ("amber", "blue", "coral", "green", "teal")
    test = rows(300, names=names, seed=1)
    result = study(tmp_path / "run", Data(*rows(6000, names=names), test=test))
    assert result.model.classes == names and result.model.model.weights.shape[0] == 5
    assert result.census is not None and len(result.census.classes) == 5
    assert result.test_accuracy is not None and result.test_accuracy > 0.5
    outline = Record.read(tmp_path / "run").outline
    paid = Ledger.open(str(tmp_path / "run" / "ledger.db")).state().counted
    held = {label: outline.price_of(event).mu_squared for label, event in outline.payments}
    assert held == pytest.approx({p.label: p.price.mu_squared for p in paid}, rel=1e-3)


@pytest.mark.usefixtures("same_noise")
def test_rows_beside_with_other_labels_are_left_out_and_said() -> None:
    test, moved = rows(50, seed=1), rows(40, seed=2)
    test[1][:2], moved[1][3] = "neither", SECRET
    shift = Shift(*moved, np.arange(40) % 2, ("even", "odd"))
    result = study(None, Data(*mistyped(), test=test, shifts={"later": shift}))
    assert result.test_rows == 48 and result.test_accuracy is not None
    notes = [note for note in result.notes if "left out" in note]
    assert notes[0] == "2 test rows are left out: their labels are none of the classes"
    (later,) = result.shifts
    assert [group.rows for group in later.groups] == [20, 19]


def test_held_out_rows_stay_the_same_where_a_label_is_not_named() -> None:
    """By the number of a row, not by its place among those that are left."""
    data = Data(*mistyped())
    named = data.with_classes(("sick", "well"))
    _, held = named.held_out(10)
    _, as_before = Data(*rows(), classes=["sick", "well"]).held_out(10)
    assert held.count == as_before.count
    ours, theirs = (part._parts["train"].features for part in (held, as_before))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.usefixtures("same_noise")
def test_fewer_or_more_rows_may_be_declared_than_there_are() -> None:
    for count in (ROWS - 100, ROWS + 100):
        result = study(None, Data(*mistyped(), rows=count))
        assert result.model.classes == ("sick", "well") and result.final.plan.rows == count


@pytest.mark.usefixtures("same_noise")
def test_bought_classes_go_with_held_out_scores_and_balance() -> None:
    for asked in ({"score": HeldOutScore(every=5)}, {"balance": "classes"}):
        assert study(None, Data(*mistyped()), **asked).model.classes == ("sick", "well")


def test_rows_of_secret_classes_open_once_these_are_named() -> None:
    data, plain = Data(*mistyped(60), test=rows(20, seed=1)), Preprocessing(unit_rows=False)
    for opened in (data.unprotected_rows, data.test_rows):
        with pytest.raises(InvalidInput, match="the names of these classes are not estimated yet"):
            opened(plain)
    assert data.with_classes(("sick", "well")).unprotected_rows(plain).count == 59


# -- what is refused, and when


@pytest.mark.parametrize(
    ("data", "asked", "why"),
    [
        (lambda: Data(*mistyped(60)), {}, "60 rows are too few at this budget"),
        (lambda: Data(*mistyped()), {"preparation": replace(PLAIN, class_share=0)}, "share is 0"),
        (lambda: Data(*mistyped()), {"search": PrivateSelection()}, "only where it is alone"),
        (
            lambda: Data(*mistyped()),
            {"engine": TorchModule(own_networks.small), "preparation": Preparation(curves=1)},
            "must know how many classes there are",
        ),
        (
            lambda: Data(*mistyped()),
            {"recipe": {"class_weights": (1.0, 0.5)}},
            "weighs classes by their place",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_that_cannot_be_bought_are_refused_before_anything_is_paid(
    data: Callable[[], Data], asked: dict[str, Any], why: str, tmp_path: Path
) -> None:
    rows, address = data(), str(tmp_path / "ledger.db")
    ledger = Ledger.create(address, BUDGET, dataset="data", fingerprint=rows.fingerprint)
    with pytest.raises(InvalidInput, match=f'{why}.*Nothing was spent.*--classes.*"public"') as no:
        study(tmp_path / "run", rows, ledger=address, **asked)
    assert SECRET not in str(no.value)
    assert not ledger.state().payments and not (tmp_path / "run").exists()


def test_class_share_without_secret_classes_is_refused() -> None:
    data = Data(*rows(300), classes=["sick", "well"])
    with pytest.raises(InvalidInput, match=r"class_share is 0.01, and the classes are declared"):
        study(None, data, preparation=replace(PLAIN, class_share=0.01))


def test_labels_of_one_class_or_all_different_are_refused_as_before() -> None:
    features, names = rows(100)
    with pytest.raises(InvalidInput, match="all rows have the same label"):
        Data(features, np.full(100, "sick"))
    with pytest.raises(InvalidInput, match="the labels are almost all different"):
        Data(features, np.arange(100).astype(str))
    with pytest.raises(InvalidInput, match="the test labels are numbers, and those of the private"):
        Data(features, names, test=(features + 9, np.arange(100) % 2))
    with pytest.raises(InvalidInput, match=r"classes must be a list of labels.*got 'nobody'"):
        Data(features, names, classes="nobody")


def test_classes_too_few_to_learn_are_paid_for_and_the_rest_is_given_back(tmp_path: Path) -> None:
    data, address = Data(*mistyped(typos=ROWS - 6)), str(tmp_path / "ledger.db")
    ledger = Ledger.create(address, BUDGET, dataset="data", fingerprint=data.fingerprint)
    said = r"are 1 \(zzsikc\), since a name needs about \d+ rows.*[\d.]+ % of the budget was spent"
    for begin in (
        lambda: study(tmp_path / "run", data, ledger=address),
        lambda: resume(tmp_path / "run", data),
    ):
        with pytest.raises(InvalidInput, match=said):
            begin()
        (paid,) = ledger.state().counted
        assert (paid.label, paid.state) == ("names of classes", "committed")


# -- crashes, older runs, and reuse


@pytest.mark.usefixtures("same_noise")
def test_resumed_study_goes_on_with_the_names_that_were_bought(tmp_path: Path) -> None:
    out, data = tmp_path / "run", Data(*mistyped())
    stop_after(out, data, "counting rows")
    names = (out / "classes.json").read_bytes()
    assert resume(out, data).model.classes == ("sick", "well")
    assert (out / "classes.json").read_bytes() == names
    paid = Ledger.open(str(out / "ledger.db")).state().counted
    assert [payment.label for payment in paid].count("names of classes") == 1
    assert resume(out, data).model.classes == ("sick", "well")  # a finished one


def test_names_that_were_lost_are_never_bought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, data = tmp_path / "run", Data(*mistyped())

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dptune.study.runner.private_categories", killed)
        with pytest.raises(KeyboardInterrupt):
            study(out, data)
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"were lost when the study was interrupted"):
            resume(out, data)
        (paid,) = Ledger.open(str(out / "ledger.db")).state().counted
        assert (paid.label, paid.state) == ("names of classes", "started")


def test_result_without_its_payment_is_refused(tmp_path: Path) -> None:
    out, data = tmp_path / "run", Data(*mistyped())
    stop_after(out, data, "names of classes")
    ledger = out / "ledger.db"
    ledger.unlink()
    Ledger.create(str(ledger), BUDGET, dataset="data", fingerprint=data.fingerprint)
    (out / "classes.json").write_text('{"classes": ["sick", "well"]}')
    with pytest.raises(FolderProblem, match="there is a result of 'names of classes'"):
        resume(out, data)


def test_run_of_an_older_version_goes_on_with_the_classes_that_occur(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(self: Config, now: Any = Config.to_toml) -> str:
        lines = now(self).splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("class_share"))

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Config, "to_toml", as_before)
        stop_after(out, Data(*mistyped(), classes="public"), "final run")
    assert "class_share" not in (out / "run.toml").read_text()
    result = resume(out, Data(*mistyped()))
    assert result.model.classes == ("sick", "well", SECRET)
    assert "the classes (3), taken from the data" in result.guarantee.public_facts


def test_search_is_reused_for_declared_classes_only(tmp_path: Path) -> None:
    data, address = Data(*mistyped()), str(tmp_path / "ledger.db")
    Ledger.create(address, Budget(8.0, 1e-5), dataset="data", fingerprint=data.fingerprint)
    study(tmp_path / "first", data, ledger=address)
    same = Origin(fingerprint=data.fingerprint)
    declared = Data.from_table(*rows(), classes=["sick", "well"], origin=same)
    for again in (data, declared):
        with pytest.raises(InvalidInput, match="search is reused"):
            study(None, again, ledger=address, reuse=tmp_path / "first", search=LinearScaling())


# -- files, the command line, estimators, benchmarks


def write_table(path: Path, features: Any, labels: Any) -> Path:
    lines = (",".join([*map(str, row), label]) for row, label in zip(features, labels, strict=True))
    path.write_text("\n".join(["a,b,c,d,state", *lines, ""]))
    return path


@pytest.mark.usefixtures("same_noise")
def test_command_line_buys_or_takes_declared_classes(
    tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "people.csv", *mistyped())
    verb = ("tune", "--data", "people.csv", "--label", "state", "--epsilon", "2", "--dry-run")
    code, out, said = command(*verb, "--json")
    assert not code, said
    assert json.loads(out)["slots"][0]["purpose"] == "names of classes"
    code, out, said = command(*verb, "--classes", "sick, well", "--json")
    assert code and "the labels hold others, not among the classes ('sick', 'well')" in said
    assert SECRET not in said
    code, out, said = command(*verb, "--classes", f"sick,{SECRET},well", "--json")
    assert not code, said
    assert "the classes (3), as declared" in json.loads(out)["guarantee"]["public_facts"]
    (tmp_path / "asked.toml").write_text('[data]\nclasses = "public"\n')
    code, out, said = command(*verb, "--config", "asked.toml", "--json")
    assert "the classes (3), taken from the data" in json.loads(out)["guarantee"]["public_facts"]
    code, out, said = command(*verb, "--config", "asked.toml", "--classes", "paid", "--json")
    assert json.loads(out)["slots"][0]["purpose"] == "names of classes"


def test_declared_numbers_and_booleans_are_read_as_such() -> None:
    from dptune.cli.options import parse_classes

    assert parse_classes("0, 1,11") == [0, 1, 11]
    assert parse_classes("false,True") == [False, True]
    assert parse_classes("1,2b") == ["1", "2b"]
    assert [parse_classes(word) for word in (None, "paid", "public")] == [None, "paid", "public"]


@pytest.mark.usefixtures("same_noise")
def test_estimator_buys_names_unless_they_are_declared() -> None:
    features, labels = mistyped()
    bought = DPLinearClassifier(epsilon=2.0).fit(features, labels)
    assert bought.classes_.tolist() == ["sick", "well"]
    assert "names of classes that many rows have" in bought.guarantee_.releases
    public = DPLinearClassifier(epsilon=2.0, classes="public").fit(features, labels)
    assert SECRET in public.classes_.tolist()


def test_benchmarks_take_all_classes_of_public_rows(tmp_path: Path) -> None:
    data = load_data(write_table(tmp_path / "rows.csv", *mistyped(400)), label="state")
    assert data.has_secret_classes and "to be bought" in repr(data)
    assert data.with_public_classes().classes == ("sick", "well", SECRET)
    (x, y), (tx, ty) = mistyped(400), rows(50, seed=3)
    np.savez(tmp_path / "rows.npz", X_train=x, y_train=y, X_test=tx, y_test=ty)
    assert load_task(str(tmp_path / "rows.npz")).outputs == 3
