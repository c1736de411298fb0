"""Studies on rows that stay on disk are studies on the same rows in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dptune
from dptune.cli.app import app
from dptune.data import Data, DiskRows, load_data, write_chunks
from dptune.data.preprocess import Preprocessing
from dptune.errors import InvalidInput
from dptune.search.score import HeldOutScore
from support.noise import repeated_noise
from support.rows import make_rows
from support.studies import BUDGET, SPACE, study


def on_disk(folder: Path, features: Any, labels: Any, chunks: int = 3, **kind: Any) -> DiskRows:
    parts = zip(np.array_split(features, chunks), np.array_split(labels, chunks), strict=True)
    write_chunks(folder, parts, **kind)
    return DiskRows(folder)


def weights(result: Any) -> Any:
    return result.model.model.weights.numpy()


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"preparation": dptune.Preparation(unit_rows=False)},
        {"preparation": dptune.Preparation(ranges=((-3, 3),) * 4, center_share=0.05)},
        {"preparation": dptune.Preparation()},
        {"recipe": {"sampling_rate": 0.3}},
        {"score": HeldOutScore(every=4)},
    ],
    ids=["plain", "as given", "prepared", "whitened", "sampled", "held out"],
)
def test_rows_on_disk_give_the_model_that_rows_in_memory_give(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    features, labels = make_rows()
    chunks = on_disk(tmp_path / "rows", features, labels, precision="float64")
    results = []
    for number, data in enumerate((Data(features, labels), Data.from_disk(chunks))):
        with repeated_noise():
            results.append(study(tmp_path / f"run{number}", data, **asked))
    memory, disk = results
    assert memory.final.plan == disk.final.plan
    np.testing.assert_allclose(weights(disk), weights(memory), rtol=1e-3, atol=1e-4)
    assert disk.guarantee.epsilon == memory.guarantee.epsilon


def test_values_on_disk_are_scaled_to_the_declared_range(tmp_path: Path) -> None:
    features, labels = make_rows()
    values = 10.0 + 5.0 * labels + 100.0 * (np.arange(400) == 7)  # one far outside
    chunks = on_disk(tmp_path / "rows", features, values)
    facts: dict[str, Any] = {"task": "values", "target_range": (10.0, 15.0)}
    results = []
    for data in (Data(features, values, **facts), Data.from_disk(chunks, **facts)):
        with repeated_noise():
            results.append(study(None, data))
    np.testing.assert_allclose(weights(results[1]), weights(results[0]), rtol=1e-3, atol=1e-4)
    learned = results[1].model.predict(features)
    assert np.corrcoef(learned, labels)[0, 1] > 0.5  # or nothing was learned in either


def test_a_sealed_search_takes_its_secret_sample_from_disk(tmp_path: Path) -> None:
    chunks = on_disk(tmp_path / "rows", *make_rows())
    result = study(tmp_path / "run", Data.from_disk(chunks), search=dptune.search.SubsetSelection())
    assert result.guarantee.epsilon <= BUDGET.epsilon


def test_what_is_public_about_rows_on_disk(tmp_path: Path) -> None:
    features, labels = make_rows()
    chunks = on_disk(tmp_path / "rows", features, labels)
    data = Data.from_disk(chunks, classes=["no", "yes"], rows=500)
    assert data.public_facts == (
        "the number of rows (500), as declared",
        "the number of columns (4), taken from the data",
        "the classes (2), as declared",
    )
    assert Data.from_disk(chunks).classes == (0, 1)
    assert data.facts.shape == (4,) and data.count == 500


def test_the_fingerprint_is_that_of_what_the_chunks_hold(tmp_path: Path) -> None:
    features, labels = make_rows()
    same = [Data.from_disk(on_disk(tmp_path / n, features, labels)).fingerprint for n in "ab"]
    other = Data.from_disk(on_disk(tmp_path / "c", features + 1, labels)).fingerprint
    assert same[0] == same[1] != other


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda rows: Data(rows, [0, 1]), "taken by Data.from_disk"),
        (lambda rows: Data.from_disk(rows, classes=["only", "two"]), "class numbers from 0 to 1"),
        (lambda rows: Data.from_disk(rows, task="values"), "needs a target_range"),
        (
            lambda rows: Data.from_disk(rows, test=(np.zeros((5, 3)), [0] * 5)),
            "3 columns, the private ones 4",
        ),
        (lambda rows: Data.from_disk(rows, test=rows), "some test rows are private rows"),
    ],
)
def test_bad_input_is_named(make: Any, message: str, tmp_path: Path) -> None:
    features, labels = make_rows()
    rows = on_disk(tmp_path / "rows", features, labels + 1)  # the classes are 0, 1 and 2
    with pytest.raises(InvalidInput, match=message):
        make(rows)


def test_labels_that_are_no_numbers_of_classes_are_refused(tmp_path: Path) -> None:
    features, labels = make_rows()
    halves = on_disk(tmp_path / "halves", features, labels / 2)
    with pytest.raises(InvalidInput, match="class numbers"):
        Data.from_disk(halves, classes=[0, 1])
    alike = on_disk(tmp_path / "alike", features, labels * 0)
    with pytest.raises(InvalidInput, match="all rows have the same label"):
        Data.from_disk(alike)


def test_class_numbers_stored_as_floats_are_class_numbers(tmp_path: Path) -> None:
    features, labels = make_rows()
    chunks = on_disk(tmp_path / "rows", features, labels.astype(float))
    assert study(None, Data.from_disk(chunks)).model.classes == (0, 1)


def test_two_values_a_row_are_refused(tmp_path: Path) -> None:
    features, _ = make_rows()
    chunks = on_disk(tmp_path / "rows", features, features[:, :2])
    with pytest.raises(InvalidInput, match="are 2 a row, and one is learned"):
        Data.from_disk(chunks, task="values", target_range=(-1, 1))


def test_chunks_that_were_written_again_are_not_those_that_were_checked(tmp_path: Path) -> None:
    features, labels = make_rows()
    data = Data.from_disk(on_disk(tmp_path / "rows", features, labels))
    on_disk(tmp_path / "rows", features + 1, labels)
    with pytest.raises(InvalidInput, match="were changed after they were opened"):
        study(tmp_path / "run", data)


@pytest.mark.parametrize("kept", ["memory", "disk"])
def test_a_private_row_is_found_among_public_ones_whichever_copy_it_is(
    kept: str, tmp_path: Path
) -> None:
    features, labels = make_rows()
    copies = np.stack([-features, features], 1)
    public = features, labels
    chunks = on_disk(tmp_path / "rows", copies, labels)
    with pytest.raises(InvalidInput, match="some public rows are private rows"):
        if kept == "disk":
            Data.from_disk(chunks, public=public)
        else:
            Data.from_table(copies, labels, augmented=True, public=public)


def test_a_folder_of_chunks_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    on_disk(Path("rows"), *make_rows())
    on_disk(Path("tests"), *make_rows(60, 1))
    data = load_data("rows", test="tests")
    assert (data.name, data.count) == ("rows", 400)
    with pytest.raises(InvalidInput, match="leave out --label"):
        load_data("rows", label="y")
    asked = ["tune", "--data", "rows", "--test", "tests", "--out", "run", "--epsilon", "4"]
    done = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert done.exit_code == 0
    loaded = dptune.load("run")
    assert loaded.predict(make_rows(10, 3)[0]).shape == (10,)
    again = CliRunner().invoke(app, ["resume", "run", "--json"], catch_exceptions=False)
    assert again.exit_code == 0


def test_numbers_too_large_for_the_precision_do_not_end_a_paid_run(tmp_path: Path) -> None:
    features, labels = make_rows()
    features[3] = 1e300
    chunks = on_disk(tmp_path / "rows", features, labels, precision="float64")
    as_given = Preprocessing(unit_rows=False)
    rows = Data.from_disk(chunks).unprotected_rows(as_given, precision="bfloat16")
    assert all(bool(chunk.features.isfinite().all()) for chunk in rows.chunks())
    study(None, Data.from_disk(chunks), precision="bfloat16", budget=BUDGET, space=SPACE)
