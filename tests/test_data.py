"""Data: rows behind a receipt, public facts named one by one, bad input refused for free."""

import gc
import pickle
import re
import weakref
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn.datasets
import torch

from dptune.data import Data, Origin
from dptune.data.fingerprint import fingerprint_arrays
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Subtract, UnitLength
from dptune.engines.linear import LinearEngine
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.privacy import Price
from support.ledgers import PAID, table_of

AS_GIVEN = Preprocessing(unit_rows=False)
FEATURES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
LABELS = np.array([0, 1, 0])


def make(labels: Any = LABELS, features: Any = FEATURES, **facts: Any) -> Data:
    return Data(features, labels, **facts)


def make_of(**origin: Any) -> Data:
    return Data.from_table(FEATURES, LABELS, origin=Origin(**origin))


def targets(data: Data) -> list[Any]:
    found: list[Any] = data.open(PAID, AS_GIVEN).targets.tolist()
    return found


# What can be given


@pytest.mark.parametrize(
    "features",
    [
        FEATURES,
        FEATURES.astype(np.float32),
        FEATURES.astype(np.uint8),
        FEATURES.tolist(),
        torch.tensor(FEATURES),
        torch.tensor(FEATURES, requires_grad=True),
        torch.tensor(FEATURES).bfloat16(),
        pd.DataFrame(FEATURES),
        pd.DataFrame({"a": [1, 3, 5], "b": [2.0, 4.0, 6.0]}),
        np.array([[1, Decimal(2)], [3.0, 4], [5, 6]], dtype=object),
        np.ma.masked_array(FEATURES),
    ],
    ids=lambda given: type(given).__name__,
)
def test_features_come_in_many_forms(features: Any) -> None:
    data = make(features=features)
    assert (data.count, data.columns) == (3, 2)
    np.testing.assert_array_equal(data.open(PAID, AS_GIVEN).features[:, 0], FEATURES)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 1, 0], (0, 1)),
        ([7, -2, 7], (-2, 7)),
        (np.array([3, 5, 3], dtype=np.uint8), (3, 5)),
        ([1.0, 2.0, 1.0], (1.0, 2.0)),
        ([1, 2.0, 1], (1.0, 2.0)),
        (torch.tensor([1.0, 0.0, 1.0]), (0.0, 1.0)),
        (pd.Series([4.0, 5.0, 4.0]), (4.0, 5.0)),
        (["no", "yes", "no"], ("no", "yes")),
        (np.array(["b", "a", "b"]), ("a", "b")),
        ([True, False, True], (False, True)),
        (torch.tensor([0, 1, 0]), (0, 1)),
        (torch.tensor([False, True, False]), (False, True)),
        (pd.Series(["x", "y", "x"]), ("x", "y")),
        (pd.Series(["x", "y", "x"], dtype="category"), ("x", "y")),
        (pd.Series([4, 5, 4], dtype="Int64"), (4, 5)),
        (np.array([[0], [1], [0]]), (0, 1)),
    ],
)
def test_labels_come_in_many_forms(labels: Any, classes: tuple[Any, ...]) -> None:
    data = make(labels, classes="public")
    assert data.classes == classes
    assert [type(found) for found in data.classes] == [type(found) for found in classes]
    plain = np.asarray(labels).ravel().tolist()
    assert [classes[number] for number in targets(data)] == plain
    assert (data.outputs, data.loss) == (2, "softmax")


def test_declared_classes_keep_their_order_and_may_be_more_than_the_rows_show() -> None:
    data = make(["b", "a", "b"], classes=["c", "b", "a"])
    assert (data.classes, data.outputs, targets(data)) == (("c", "b", "a"), 3, [1, 2, 1])
    assert make([1, 1, 1], classes=range(3)).outputs == 3
    assert make([True, False, True], classes=[0, 1]).classes == (0, 1)


def test_large_features_are_not_copied_or_widened() -> None:
    features = np.ones((100, 4), dtype=np.float32)
    data = make(np.arange(100) % 2, features)
    assert np.shares_memory(data._parts["train"].features, features)


# Public facts


def test_every_public_fact_says_where_it_comes_from() -> None:
    assert make().public_facts == (
        "the number of rows (3), taken from the data",
        "the number of columns (2), taken from the data",
        "the classes (2), taken from the data",
    )
    assert make(rows=50_000, classes=[0, 1, 2]).public_facts == (
        "the number of rows (50,000), as declared",
        "the number of columns (2), taken from the data",
        "the classes (3), as declared",
    )
    values = make([1.5, 2, 8], task="values", target_range=(0, 10))
    assert values.public_facts[-1] == "the range of the target (0 to 10), as declared"


@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
def test_the_public_count_may_differ_from_the_rows(rows: int) -> None:
    data = make(rows=rows)
    assert data.count == rows
    assert data.open(PAID, AS_GIVEN).count == 3


def test_the_fingerprint_is_that_of_the_arrays_or_the_one_given() -> None:
    assert make().fingerprint == fingerprint_arrays(FEATURES, LABELS)
    words = pd.Series(["no", "yes", "no"])
    assert make(words).fingerprint == fingerprint_arrays(FEATURES, np.array(["no", "yes", "no"]))
    assert make_of(fingerprint="abc").fingerprint == "abc"
    assert make(features=FEATURES + 1).fingerprint != make().fingerprint
    assert make([0, 1, 1]).fingerprint != make().fingerprint
    assert make([0.0, 1.0, 0.0]).fingerprint == make().fingerprint  # as ledgers have known them


def test_repr_shows_public_facts_only() -> None:
    assert repr(make(name="mine", rows=1234)) == "Data('mine', 1,234 rows, 2 columns, 2 classes)"
    values = make([1.5, 2.5, 9.25], task="values", target_range=(0, 10))
    assert repr(values) == "Data('data', 3 rows, 2 columns)"
    parts = repr(make()._parts)
    assert "[" not in parts and "array" not in parts


# Private rows


@pytest.mark.parametrize("key", [None, True, "receipt", Price(1.0), PAID.event])
def test_private_rows_open_with_a_receipt_only(key: Any) -> None:
    data = make()
    with pytest.raises(InvalidInput, match="Receipt"):
        data.open(key, AS_GIVEN)
    with pytest.raises(InvalidInput, match="Receipt"):
        data.tables_for(key)
    assert data.open(PAID, AS_GIVEN).count == 3


def test_no_public_attribute_holds_rows() -> None:
    public = {name: value for name, value in vars(make()).items() if not name.startswith("_")}
    assert not any(isinstance(value, np.ndarray | torch.Tensor) for value in public.values())
    assert sorted(public) == [
        "as_given",
        "classes",
        "column_names",
        "columns",
        "copies",
        "count",
        "declared",
        "encoding",
        "fingerprint",
        "left_out",
        "loss",
        "made_by",
        "name",
        "outputs",
        "public_facts",
        "shape",
        "shifts",
        "target_range",
        "unused_test_rows",
    ]


def test_rows_are_preprocessed_and_of_the_precision_asked_for() -> None:
    rows = make().open(
        PAID, Preprocessing([UnitLength(), Subtract(np.array([1.0, 0.0]))]), precision="float64"
    )
    assert rows.dtype == torch.float64
    unit = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)
    np.testing.assert_allclose(rows.features[:, 0], unit - [1, 0], atol=1e-6)


def test_opening_again_builds_nothing_and_other_ways_of_opening_do() -> None:
    data, other = make(test=(-FEATURES, LABELS)), Preprocessing(unit_rows=False)
    rows = data.open(PAID, AS_GIVEN)
    assert data.open(PAID, AS_GIVEN) is rows
    assert data.open(PAID, AS_GIVEN, precision="float64") is not rows
    assert data.open(PAID, other) is not rows
    assert data.test_rows(AS_GIVEN) is not rows
    assert data.test_rows(AS_GIVEN) is data.test_rows(AS_GIVEN)


def test_built_rows_are_forgotten_with_their_preprocessing() -> None:
    data, made = make(), Preprocessing()
    built = weakref.ref(data.open(PAID, made))
    assert built() is not None
    del made
    gc.collect()
    assert built() is None


def test_data_can_be_sent_to_another_process_without_what_was_built() -> None:
    data = make(["a", "b", "a"], test=(-FEATURES, ["b", "b", "b"]), classes="public")
    data.open(PAID, AS_GIVEN)
    again = pickle.loads(pickle.dumps(data))
    assert len(again._built) == 0
    assert (again.fingerprint, targets(again)) == (data.fingerprint, targets(data))


def test_features_for_a_mean_are_raw_and_cannot_be_changed() -> None:
    features = FEATURES.astype(np.float32)
    (table,) = make(features=features).tables_for(PAID)
    np.testing.assert_array_equal(table, FEATURES)
    (wide,) = make().tables_for(PAID)
    with pytest.raises(ValueError, match="read-only"):
        wide[0, 0] = 9
    assert FEATURES.flags.writeable


def test_preprocessing_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Preprocessing"):
        make().open(PAID, None)  # type: ignore[arg-type]


# Test and public rows


def test_test_and_public_rows_need_no_receipt_and_may_be_absent() -> None:
    beside = {"test": (FEATURES[:1], ["b"]), "public": (FEATURES[:2] * 2, ["a", "b"])}
    data = make(["a", "b", "a"], classes=["a", "b"], **beside)
    test, public = data.test_rows(AS_GIVEN), data.public_rows(AS_GIVEN, precision="float64")
    assert test is not None and public is not None
    assert test.targets.tolist() == [1]
    np.testing.assert_array_equal(public.features[:, 0], FEATURES[:2] * 2)
    assert public.dtype == torch.float64
    assert make().test_rows(AS_GIVEN) is None
    assert make().public_rows(AS_GIVEN) is None


@pytest.mark.parametrize("which", ["test", "public"])
@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((np.ones((2, 3)), [0, 1]), "3 columns, the private ones 2"),
        ((FEATURES, [0, 1, 5]), "labels hold 5, not among the classes"),
        ((FEATURES, ["a", "b", "a"]), "labels hold 'a', 'b', not among"),
        ((FEATURES, [0, 1]), "2 for 3 rows"),
        ((FEATURES * np.nan, LABELS), "not finite"),
        ((FEATURES, None), "missing"),
        (FEATURES, "pair"),
        ((FEATURES,), "pair"),
    ],
)
def test_other_rows_that_do_not_fit_are_refused(which: str, pair: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        make(**{which: pair})
    assert which in str(caught.value)


# Names of columns


def test_a_frame_brings_the_names_of_its_columns() -> None:
    frame = pd.DataFrame(FEATURES, columns=["age", "dose"])
    data = make(features=frame)
    assert data.column_names == ("age", "dose")
    assert data.public_facts[2] == "the names of the columns, taken from the data"
    assert [part.column_names for part in data.held_out(2)] == [("age", "dose")] * 2
    named = Data.from_table(frame, LABELS, column_names=["x", "y"])
    assert named.column_names == ("x", "y")


@pytest.mark.parametrize("columns", [[0, 1], ["a", 1], ["a", "a"], [("a", "b"), ("a", "c")]])
def test_names_that_find_no_column_are_none(columns: Any) -> None:
    assert make(features=pd.DataFrame(FEATURES, columns=columns)).column_names == ()
    assert make().column_names == ()


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", 1], "ab"])
def test_declared_names_must_be_one_a_column(names: Any) -> None:
    with pytest.raises(InvalidInput, match="column_names must be 2 different names"):
        Data.from_table(FEATURES, LABELS, column_names=names)


@pytest.mark.parametrize("which", ["test", "public"])
def test_other_frames_are_matched_by_name(which: str) -> None:
    frame = pd.DataFrame(FEATURES, columns=["a", "b"])
    data = make(features=frame, **{which: (frame[["b", "a"]] * 2, LABELS)})
    np.testing.assert_array_equal(data._parts[which].features, FEATURES * 2)
    with pytest.raises(InvalidInput, match=f"the table of {which} rows lacks the columns b and"):
        make(features=frame, **{which: (frame.rename(columns={"b": "c"}), LABELS)})


# Values


def test_values_are_clipped_to_their_range_and_scaled() -> None:
    data = make([-100.0, 5.0, 100.0], task="values", target_range=(0, 20))
    assert targets(data) == [-1.0, -0.5, 1.0]
    assert (data.classes, data.outputs, data.loss) == ((), 1, "squared")
    assert data.target_range == (0.0, 20.0)


@pytest.mark.parametrize(
    ("labels", "facts", "message"),
    [
        (["a", "b", "c"], {}, "must be numbers for task='values'"),
        ([True, False, True], {}, "must be numbers for task='values'"),
        ([1.0, np.nan, 2.0], {}, "missing"),
        ([1.0, np.inf, 2.0], {}, "missing"),
        ([1, 2, 3], {"target_range": (3, 1)}, "low < high"),
        ([1, 2, 3], {"target_range": (1, np.inf)}, "low < high"),
        ([1, 2, 3], {"target_range": (np.nan, 1)}, "low < high"),
        ([1, 2, 3], {"target_range": 4}, "target_range"),
        ([1, 2, 3], {"target_range": (1, 2, 3)}, "target_range"),
        ([1, 2, 3], {"classes": [1, 2, 3]}, "classes does not go with task='values'"),
    ],
)
def test_values_that_cannot_be_scaled_are_refused(
    labels: Any, facts: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(labels, task="values", **{"target_range": (0, 5)} | facts)


def test_a_target_s_range_is_declared_and_never_taken_from_the_rows() -> None:
    with pytest.raises(InvalidInput) as caught:
        make([31_000.0, 52_000.0, 987_654.0], task="values")
    message = str(caught.value)
    assert not re.search(r"\d", message)  # no value of anybody
    for way in ("[LOW, HIGH] in [data]", "--config", "target_range=(low, high) in Python"):
        assert way in message
    assert "never from the rows" in message


# What is refused


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (None, "missing"),
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((0, 2)), r"shape \(0, 2\)"),
        (np.ones((3, 0)), r"shape \(3, 0\)"),
        ([], "shape"),
        ([[1, 2], [3], [4, 5]], "different lengths"),
        (np.ones((4, 2)), "3 for 4 rows"),
        (FEATURES * np.inf, "not finite"),
        ([[1, None], [3, 4], [5, 6]], "not finite"),
        ([["a", "b"], ["c", "d"], ["e", "f"]], "must be numbers"),
        ([[1, "2"], [3, "4"], [5, "6"]], "must be numbers"),
        (pd.DataFrame({"a": [1, 2, 3], "b": ["1", "2", "3"]}), "must be numbers"),
        (pd.DataFrame({"a": [1, 2, 3], "b": pd.Series([1, None, 3], dtype="Int64")}), "missing"),
        (FEATURES.astype(complex), "must be numbers"),
        (FEATURES.astype(np.longdouble), "64 bits"),
        (FEATURES.astype("datetime64[s]"), "must be numbers"),
        (scipy.sparse.csr_matrix(FEATURES), "sparse"),
        (scipy.sparse.csr_array(FEATURES), "sparse"),
        (torch.tensor(FEATURES).to_sparse(), "sparse"),
        (np.ma.masked_array(FEATURES, FEATURES > 4), "masked"),
        ("train.csv", "shape"),
    ],
)
def test_features_that_are_no_table_of_numbers_are_refused(features: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(features=features)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "missing"),
        ([0, 1], "2 for 3 rows"),
        ([], "one a row"),
        (np.eye(3), "one a row"),
        ([[0], [1], [0]], "found list"),
        ([0.5, 1.0, 2.0], "task='values'"),
        ([1e300, 0.0, 1.0], "task='values'"),
        ([0, 1, None], "missing"),
        ([0, 1, np.nan], "missing"),
        (["a", "b", None], "missing"),
        (["a", "b", np.nan], "missing"),
        (["a", "b", ""], "missing"),
        (pd.Series(["a", None, "b"]), "missing"),
        (pd.Series([1, None, 2], dtype="Int64"), "missing"),
        (pd.Series([1, pd.NA, 2], dtype=object), "missing"),
        (np.array([1.0, np.nan, 2.0]), "missing"),
        ([1, "1", 2], "found int and text"),
        ([True, 1, 0], "found bool and int"),
        ([b"a", b"b", b"a"], "found bytes"),
        (np.array([b"a", b"b", b"a"]), "whole numbers, text or booleans"),
        ([2**70, 1, 0], "found int"),
        (np.array([1, 2, 3], dtype="datetime64[s]"), "whole numbers, text or booleans"),
        ([1j, 2j, 3j], "complex"),
        ([4, 4, 4], r"same label.* with --classes \(classes= in Python, classes in \[data\] of"),
    ],
)
def test_labels_that_name_no_classes_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(labels)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"classes": [0, 2]}, r"the labels hold others, not among the classes \(0, 2\)"),
        ({"classes": ["0", "1"]}, "not among the classes"),
        ({"classes": [0, 1, 1]}, "different"),
        ({"classes": [0]}, "two or more"),
        ({"classes": []}, "one a row"),
        ({"classes": "01"}, "list of labels"),
        ({"classes": {0, 1}}, "list of labels"),
        ({"classes": 2}, "list of labels"),
        ({"rows": 0}, "rows"),
        ({"rows": 2.5}, "rows"),
        ({"rows": True}, "rows"),
        ({"name": " "}, "name"),
        ({"task": "regression"}, "task"),
        ({"target_range": (0, 1)}, "target_range does not go with task='classes'"),
    ],
)
def test_facts_that_cannot_be_are_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(**facts)


def test_an_empty_fingerprint_is_refused() -> None:
    with pytest.raises(InvalidInput, match="fingerprint"):
        make_of(fingerprint="")


@pytest.mark.parametrize(
    ("moved", "constructor"),
    [
        ({"columns": {}}, "Data.from_columns"),
        ({"column_names": ["a", "b"]}, "Data.from_table"),
        ({"augmented": True}, "Data.from_table"),
        ({"fingerprint": "abc"}, "origin=Origin"),
        ({"made_by": {"name": "it"}}, "origin=Origin"),
        ({"task": "words"}, "Data.from_texts"),
    ],
)
def test_what_only_some_rows_have_is_refused_with_their_constructor(
    moved: dict[str, Any], constructor: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(constructor)):
        make(**moved)


def test_unknown_arguments_of_data_are_refused() -> None:
    with pytest.raises(TypeError, match="'clases'"):
        make(clases=[0, 1])


# Held out


@pytest.mark.parametrize(("rows", "every"), [(10, 3), (10, 2), (9, 3), (3, 7), (2, 2)])
def test_every_row_is_in_one_part_by_its_number(rows: int, every: int) -> None:
    features = np.arange(rows, dtype=float)[:, None]
    data = Data(features, np.arange(rows) % 2, classes=[0, 1])
    rest, held = data.held_out(every)
    numbers = table_of(held)[:, 0].tolist()
    assert numbers == [number for number in range(rows) if number % every == 0]
    assert sorted(numbers + table_of(rest)[:, 0].tolist()) == list(range(rows))
    for part in (rest, held):
        assert part.count == part.open(PAID, AS_GIVEN).count
        assert targets(part) == [number % 2 for number in table_of(part)[:, 0]]


def test_an_empty_row_puts_no_other_row_in_another_part() -> None:
    features, labels = np.arange(10.0)[:, None], np.arange(10) % 2
    whole = Data(features, labels, classes=[0, 1], rows=10)
    there = [0, 1, 3, 4, 5, 6, 7, 8]  # rows 2 and 9 are empty
    origin = Origin(numbers=there)
    some = Data.from_table(features[there], labels[there], classes=[0, 1], rows=10, origin=origin)
    assert some.public_facts == whole.public_facts
    for mine, theirs in zip(some.held_out(3), whole.held_out(3), strict=True):
        assert mine.count == theirs.count
        assert set(table_of(mine)[:, 0]) == set(table_of(theirs)[:, 0]) - {2, 9}


@pytest.mark.parametrize("numbers", [[0, 1], [0, 2, 2], [1, 0, 2], [-1, 0, 1], [0.0, 1.0, 2.0]])
def test_numbers_that_tell_no_rows_apart_are_refused(numbers: list[float]) -> None:
    with pytest.raises(InvalidInput, match="numbers must be 3 whole numbers"):
        make_of(numbers=numbers)


def test_the_counts_of_parts_follow_from_the_public_count_alone() -> None:
    rest, held = make(rows=1001).held_out(10)
    assert (rest.count, held.count) == (900, 101)
    assert (rest.open(PAID, AS_GIVEN).count, held.open(PAID, AS_GIVEN).count) == (2, 1)


def test_parts_keep_what_is_known_of_the_whole() -> None:
    test = -FEATURES, ["b", "a", "a"]
    data = make(["a", "b", "a"], name="mine", test=test, rows=3, classes=["a", "b"])
    rows = data.open(PAID, AS_GIVEN)
    for part in data.held_out(2):
        assert (part.name, part.classes, part.outputs) == ("mine", ("a", "b"), 2)
        assert part.fingerprint == data.fingerprint
        assert part.public_facts == (*data.public_facts, "which rows are held out (one in 2)")
        assert part.open(PAID, AS_GIVEN).count < 3
        assert part.test_rows(AS_GIVEN) is not None
    assert data.open(PAID, AS_GIVEN) is rows
    assert data.count == 3


@pytest.mark.parametrize("every", [1, 0, 2.5])
def test_a_rule_that_holds_out_everything_is_refused(every: Any) -> None:
    with pytest.raises(InvalidInput, match="every"):
        make().held_out(every)


def test_one_row_cannot_be_divided() -> None:
    for data in (make(rows=1), make([1], FEATURES[:1], classes=[0, 1], rows=9)):
        with pytest.raises(InvalidInput, match="held out"):
            data.held_out(2)


# scikit-learn


def test_a_bunch_with_names_gives_names_as_labels() -> None:
    iris = sklearn.datasets.load_iris()
    data = Data.of(iris, name="iris", test=(iris.data[:2], iris.target[:2]))
    assert data.classes == ("setosa", "versicolor", "virginica")
    assert data.public_facts[-1] == "the classes (3), as declared"
    assert (data.name, data.count, data.columns) == ("iris", 150, 4)
    assert targets(data) == iris.target.tolist()
    test = data.test_rows(AS_GIVEN)
    assert test is not None and test.targets.tolist() == [0, 0]


def test_declared_classes_go_before_a_bunch_s_names() -> None:
    assert Data.of(sklearn.datasets.load_iris(), classes=[0, 1, 2]).classes == (0, 1, 2)


def test_a_bunch_without_names_or_with_values_is_taken_too() -> None:
    diabetes = sklearn.datasets.load_diabetes()
    data = Data.of(diabetes, task="values", target_range=(0, 400))
    assert data.loss == "squared"
    column_name = SimpleNamespace(data=FEATURES, target=LABELS, target_names=["kind"])
    assert Data.of(column_name).classes == (0, 1)


def test_a_bunch_must_have_data_and_labels_that_its_names_know() -> None:
    with pytest.raises(InvalidInput, match="Bunch"):
        Data.of(FEATURES)
    for target in ([0, 1, 2], [-1, 0, 1], ["a", "b", "a"]):
        bunch = SimpleNamespace(data=FEATURES, target=target, target_names=["a", "b"])
        with pytest.raises(InvalidInput, match="numbers from 0 to 1"):
            Data.of(bunch)


# Together with the engine


@pytest.mark.parametrize("task", ["classes", "values"])
def test_an_engine_trains_on_opened_rows(task: str) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3))
    score = features @ [1.0, -1.0, 0.5]
    labels: Any = score
    # Roughly what four deviations of the score are: nothing about these rows.
    facts: dict[str, Any] = {"target_range": (-6, 6)}
    if task == "classes":
        labels, facts = np.where(score > 0, "up", "down"), {"classes": ["down", "up"]}
    data = Data(features, labels, task=task, **facts)
    plan = TrainPlan(
        rows=data.count, steps=200, learning_rate=1.0, noise_multiplier=0.0, clip_norm=None
    )
    engine = LinearEngine(outputs=data.outputs, loss=data.loss)
    rows = data.open(PAID, AS_GIVEN, precision="float64")
    (model,) = engine.fit_many([plan], rows, [Randomness()])
    predicted = model.predict(torch.tensor(features)).numpy()
    if task == "classes":
        assert (np.asarray(data.classes)[predicted] == labels).mean() > 0.95
    else:
        assert np.corrcoef(predicted.ravel(), score)[0, 1] > 0.95


def test_the_page_on_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parent.parent / "docs" / "guide" / "data.md"
    names: dict[str, Any] = {}
    for text in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(text, str(page), "exec"), names)
    assert names["own"].public_facts[-1] == "the classes (2), as declared"


def test_labels_that_are_almost_all_different_are_not_taken_for_classes() -> None:
    """Salaries as classes would be released one by one."""
    labels = np.arange(30_000, 30_400)
    with pytest.raises(InvalidInput, match="task='values'") as refused:
        Data(np.ones((400, 2)), labels)
    assert "30" not in str(refused.value)
    assert len(Data(np.ones((400, 2)), labels % 40).classes) == 40
    assert len(Data(np.ones((400, 2)), labels, classes=labels).classes) == 400
