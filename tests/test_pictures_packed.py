"""Pictures in an .npz, and in Hugging Face data sets."""

import sys
import zipfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from dptune.errors import InvalidInput, MissingExtra
from dptune.pictures.decode import BadPicture, decode
from dptune.pictures.find import find_pictures
from support.pictures import as_processes_see_them, decoded, encoded, pixels

ROWS = np.stack([pixels(seed=seed) for seed in range(5)])
LABELS = np.array([0, 2, 1, 1, 2], np.uint8)


def jpegs(*contents: bytes) -> dict[str, Any]:
    lengths = [len(content) for content in contents]
    return {
        "jpeg": np.frombuffer(b"".join(contents), np.uint8),
        "offsets": np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
    }


def part(name: str, **arrays: Any) -> dict[str, Any]:
    return {f"{key}_{name}": array for key, array in arrays.items()}


def save(folder: Path, **arrays: Any) -> Path:
    path = folder / "own.npz"
    np.savez_compressed(path, **arrays)
    return path


# .npz


def test_pixels_in_an_npz(tmp_path: Path) -> None:
    path = save(
        tmp_path, **part("train", x=ROWS, y=LABELS), **part("test", x=ROWS[:2], y=LABELS[:2])
    )
    found = find_pictures(path)
    train = as_processes_see_them(found.part("train"))
    assert found.name == "own" and list(found.parts) == ["train", "test"]
    assert train.labels.tolist() == LABELS.tolist() and train.classes == ("0", "1", "2")
    assert np.array_equal(decoded(train, 3), ROWS[3]) and train.name(3) == "3"
    assert len(found.part("test")) == 2 and found.part("test").classes == ("0", "1", "2")


def test_grey_pixels_in_an_npz(tmp_path: Path) -> None:
    path = save(tmp_path, **part("train", x=ROWS[..., 0], y=LABELS), classes=["a", "b", "c"])
    train = find_pictures(path).part("train")
    assert train.classes == ("a", "b", "c")
    assert np.array_equal(decoded(train, 1), np.repeat(ROWS[1, :, :, :1], 3, axis=2))


def test_whole_files_in_an_npz(tmp_path: Path) -> None:
    contents = [encoded(row) for row in ROWS]
    path = save(
        tmp_path,
        **part("train", **jpegs(*contents), y=LABELS),
        **part("test", **jpegs(contents[2], b"", b"broken"), y=np.array([1, 0, 2])),
        classes=np.array(["a", "b", "c"]),
    )
    train = as_processes_see_them(find_pictures(str(path)).part("train"))
    assert [train.content(number) for number in range(5)] == contents
    assert train.classes == ("a", "b", "c") and train.labels.tolist() == LABELS.tolist()
    test = find_pictures(path).part("test")
    assert np.array_equal(decoded(test, 0), ROWS[2])
    for bad in (1, 2):
        with pytest.raises(BadPicture):
            decode(test.content(bad))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "x_train, y_train.*found nothing"),
        ({"X_train": ROWS, "y_train": LABELS}, "found X_train, y_train"),
        (part("train", x=ROWS), "found x_train"),
        (part("train", x=ROWS / 255, y=LABELS), "uint8.*5 rows as there are labels; found float"),
        (part("train", x=ROWS[:4], y=LABELS), "5 rows as there are labels"),
        (part("train", x=ROWS, y=LABELS.astype(str)), "row of whole numbers"),
        (part("train", x=ROWS, y=LABELS.astype(int) - 1), "numbers of the 2 classes, from 0"),
        (part("train", x=ROWS, y=LABELS) | {"classes": ["a", "b"]}, "of the 2 classes"),
        (part("train", x=ROWS, y=LABELS.astype(int) << 40), "need names, in an array classes"),
        (part("train", **jpegs(b"a", b"b"), y=LABELS), "one more than the labels"),
        (part("train", jpeg=ROWS, offsets=np.arange(6), y=LABELS), "one row of bytes"),
        (
            part("train", jpeg=np.zeros(4, np.uint8), offsets=np.arange(6), y=LABELS),
            "growing from 0 to the length",
        ),
    ],
)
def test_an_npz_of_something_else_is_refused(
    tmp_path: Path, arrays: dict[str, Any], words: str
) -> None:
    path = save(tmp_path, **arrays)
    with pytest.raises(InvalidInput, match=words):
        find_pictures(path).part("train")


@pytest.mark.parametrize("name", ["x_train", "x_train.npy"])
def test_members_that_are_no_arrays_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, b"\x93NUMPY\x01\x00\x10\x00" + b"{" * 15 + b"(")
        file.writestr("y_train", b"no array")
    with pytest.raises(InvalidInput, match=r"own.npz' cannot be read"):
        find_pictures(path).part("train")


def test_a_torn_npz_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, **part("train", x=ROWS, y=LABELS))
    whole = path.read_bytes()
    path.write_bytes(b"no zip")
    with pytest.raises(InvalidInput, match=r"not a file that numpy.savez wrote.*write it again"):
        find_pictures(path)
    middle = len(whole) // 3
    path.write_bytes(whole[:middle] + b"torn" + whole[middle + 4 :])
    with pytest.raises(InvalidInput, match="cannot be read"):
        find_pictures(path).part("train")


# Hugging Face


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def rows(image: str = "image", label: str = "label", names: Any = ("a", "b", "c")) -> Any:
    columns = {
        image: [{"bytes": encoded(row), "path": None} for row in ROWS],
        label: LABELS.tolist(),
    }
    kinds = datasets.Features({image: datasets.Image(), label: datasets.ClassLabel(names=names)})
    return datasets.Dataset.from_dict(columns, features=kinds)


def test_a_saved_data_set(tmp_path: Path) -> None:
    whole = datasets.DatasetDict({"train": rows(), "validation": rows().select([4, 0])})
    whole.save_to_disk(tmp_path / "saved")
    found = find_pictures(tmp_path / "saved")
    train = as_processes_see_them(found.part("train"))
    assert train.classes == ("a", "b", "c") and train.labels.tolist() == LABELS.tolist()
    assert train.content(2) == encoded(ROWS[2])
    test = found.part("test")
    assert test.labels.tolist() == [2, 0] and np.array_equal(decoded(test, 0), ROWS[4])


def test_a_saved_data_set_without_splits_is_for_training(tmp_path: Path) -> None:
    rows("img", "fine_label").save_to_disk(tmp_path / "saved")
    found = find_pictures(tmp_path / "saved")
    assert list(found.parts) == ["train"] and found.part("train").labels[1] == 2


def test_pictures_that_a_data_set_only_points_to(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(ROWS[0]))
    columns = {"image": [str(tmp_path / "a.png"), None], "label": [0, 1]}
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(tmp_path / "saved")
    train = find_pictures(tmp_path / "saved").part("train")
    assert np.array_equal(decoded(train, 0), ROWS[0])
    assert train.content(1) == b""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda stored: stored.remove_columns("image"), "one column of pictures.*found .* label"),
        (lambda stored: stored.remove_columns("label"), "one column of labels.*found .* image"),
        (
            lambda stored: stored.rename_columns({"label": "x"}).add_column(
                "y", LABELS.tolist(), feature=datasets.ClassLabel(names=["a", "b", "c"])
            ),
            "called label or labels or fine_label if there are several",
        ),
    ],
)
def test_columns_that_are_not_clear_are_refused(tmp_path: Path, change: Any, words: str) -> None:
    change(rows()).save_to_disk(tmp_path / "saved")
    with pytest.raises(InvalidInput, match=words):
        find_pictures(tmp_path / "saved").part("train")


def test_rows_without_a_label_are_refused(tmp_path: Path) -> None:
    columns = {"image": [None, None], "label": [-1, 0]}
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(tmp_path / "saved")
    with pytest.raises(InvalidInput, match="numbers of the 2 classes"):
        find_pictures(tmp_path / "saved").part("train")


def test_a_data_set_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str, config: str | None) -> Any:
        asked.append((name, config))
        return datasets.DatasetDict({"train": rows(), "test": rows()})

    monkeypatch.setattr(datasets, "load_dataset", load)
    found = find_pictures("hub:someone/pictures")
    assert asked == [("someone/pictures", None)]
    assert np.array_equal(decoded(found.part("test"), 4), ROWS[4])


def test_a_hub_out_of_reach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, config: str | None) -> Any:
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(InvalidInput, match=r"from the hub: no route\. Check the name"):
        find_pictures("hub:someone/pictures")


def test_the_hub_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"dptune\[hub\]"):
        find_pictures("hub:someone/pictures")
