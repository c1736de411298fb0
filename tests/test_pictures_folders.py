"""Folders of pictures: classes, splits, what is odd in them, and what is refused."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dptune.errors import InvalidInput
from dptune.pictures.find import find_pictures
from dptune.pictures.folders import unlabelled
from dptune.pictures.pictures import Pictures, Remark
from support.pictures import as_processes_see_them, encoded, pixels


def fill(folder: Path, *paths: str) -> Path:
    for number, path in enumerate(paths):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encoded(pixels(seed=number)))
    return folder


def listing(pictures: Pictures) -> list[tuple[str, str]]:
    return [
        (pictures.name(number), pictures.classes[label])
        for number, label in enumerate(pictures.labels.tolist())
    ]


def remarks(pictures: Pictures) -> Sequence[tuple[str, bool]]:
    return [(remark.picture, remark.left_out) for remark in pictures.remarks]


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    fill(tmp_path, "dog/b.png", "cat/2.png", "cat/1.jpg", "dog/a.png")
    found = find_pictures(tmp_path)
    assert list(found.parts) == ["train"]
    train = as_processes_see_them(found.part("train"))
    assert train.classes == ("cat", "dog")
    assert listing(train) == [
        ("cat/1.jpg", "cat"),
        ("cat/2.png", "cat"),
        ("dog/a.png", "dog"),
        ("dog/b.png", "dog"),
    ]
    assert train.content(2) == (tmp_path / "dog/a.png").read_bytes()
    assert train.groups == () and train.group_numbers.tolist() == [0] * 4 and not train.remarks


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "cat/1.png", "dog/1.png")
    with pytest.raises(InvalidInput, match="has no test pictures; found train"):
        find_pictures(tmp_path).part("test")


@pytest.mark.parametrize(
    ("train", "test"),
    [("train", "test"), ("train", "val"), ("train", "validation"), ("Training", "Testing")],
)
def test_splits_are_folders_of_class_folders(tmp_path: Path, train: str, test: str) -> None:
    fill(tmp_path, f"{train}/cat/1.png", f"{train}/dog/1.png", f"{test}/dog/9.png")
    found = find_pictures(str(tmp_path))
    assert listing(found.part("train")) == [
        (f"{train}/cat/1.png", "cat"),
        (f"{train}/dog/1.png", "dog"),
    ]
    assert listing(found.part("test")) == [(f"{test}/dog/9.png", "dog")]
    assert found.part("test").classes == ("cat", "dog")


def test_test_comes_before_validation(tmp_path: Path) -> None:
    fill(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/1.png", "test/b/7.png")
    assert listing(find_pictures(tmp_path).part("test")) == [("test/b/7.png", "b")]


def test_a_test_folder_without_classes_does_not_hide_the_one_with(tmp_path: Path) -> None:
    fill(tmp_path, "train/a/1.png", "train/b/1.png", "test/1.png", "valid/b/7.png")
    assert listing(find_pictures(tmp_path).part("test")) == [("valid/b/7.png", "b")]


def test_what_lies_beside_the_splits_is_remarked_once(tmp_path: Path) -> None:
    fill(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png", "val/a/1.png")
    fill(tmp_path, "stray.png", "more/c/1.png", "train/loose.png")
    found = find_pictures(tmp_path)
    assert remarks(found.part("train")) == [
        ("more", True),
        ("stray.png", True),
        ("train/loose.png", True),
    ]
    assert remarks(found.part("test")) == [("test/b", False)]


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "pets/cat/1.png", "pets/dog/1.png")
    monkeypatch.chdir(tmp_path / "pets")
    assert find_pictures(".").name == "pets"


def test_a_class_can_be_called_train(tmp_path: Path) -> None:
    fill(tmp_path, "train/1.png", "plane/1.png")
    assert find_pictures(tmp_path).part("train").classes == ("plane", "train")


def test_a_class_of_one_part_is_a_class_of_the_other(tmp_path: Path) -> None:
    fill(tmp_path, "train/b/1.png", "test/a/1.png")
    found = find_pictures(tmp_path)
    assert found.part("train").classes == found.part("test").classes == ("a", "b")
    assert found.part("train").labels.tolist() == [1] and found.part("test").labels.tolist() == [0]
    assert remarks(found.part("train")) == [("train/a", False)]


def test_folders_in_a_class_belong_to_it(tmp_path: Path) -> None:
    fill(tmp_path, "a/images/1.png", "a/0.png", "b/x/y/z.png")
    assert [name for name, _ in listing(find_pictures(tmp_path).part("train"))] == [
        "a/0.png",
        "a/images/1.png",
        "b/x/y/z.png",
    ]


def test_an_empty_class_stays_a_class_and_is_remarked(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "c/1.png")
    (tmp_path / "b").mkdir()
    train = find_pictures(tmp_path).part("train")
    assert train.classes == ("a", "b", "c") and train.labels.tolist() == [0, 2]
    assert train.remarks == (Remark("b", "a class without pictures", left_out=False),)


def test_files_beside_the_classes_are_remarked_and_hidden_ones_are_not(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "b/1.png", "stray.png", ".hidden", "a/.DS_Store", "__MACOSX/a/._1")
    train = find_pictures(tmp_path).part("train")
    assert len(train) == 2 and train.classes == ("a", "b")
    assert remarks(train) == [("stray.png", True)]


def test_every_other_file_is_a_candidate_whatever_it_holds(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "b/1.png")
    (tmp_path / "a/notes.txt").write_text("no picture")
    (tmp_path / "a/empty.jpg").touch()
    train = find_pictures(tmp_path).part("train")
    assert [name for name, _ in listing(train)] == [
        "a/1.png",
        "a/empty.jpg",
        "a/notes.txt",
        "b/1.png",
    ]
    assert train.content(1) == b"" and not train.remarks


def test_links_are_followed_to_files_and_classes_but_not_in_circles(tmp_path: Path) -> None:
    fill(tmp_path, "set/a/1.png", "set/b/1.png", "elsewhere/2.png")
    (tmp_path / "set/c").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/a/file.png").symlink_to(tmp_path / "elsewhere/2.png")
    (tmp_path / "set/a/circle").symlink_to(tmp_path / "set")
    (tmp_path / "set/a/gone.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "set/a/itself.png").symlink_to(tmp_path / "set/a/itself.png")
    (tmp_path / "set/itself").symlink_to(tmp_path / "set/itself")
    train = find_pictures(tmp_path / "set").part("train")
    # A link to nothing is a picture that cannot be read: how many there are does not tell of it.
    names = ["a/1.png", "a/file.png", "a/gone.png", "a/itself.png", "b/1.png", "c/2.png"]
    assert [name for name, _ in listing(train)] == names
    for number in (2, 3):
        with pytest.raises(OSError):
            train.content(number)
    assert train.classes == ("a", "b", "c")
    assert [(each.picture, each.what) for each in train.remarks] == [
        ("itself", "beside the folders of the classes, so of no class"),
        ("a/circle", "a link to a folder is not followed"),
    ]


def test_what_is_no_file_is_listed_but_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "a/1.png", "b/1.png")
    os.mkfifo(tmp_path / "a/pipe.png")
    monkeypatch.chdir(tmp_path)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("b/socket.png")
        train = find_pictures(".").part("train")
    names = ["a/1.png", "a/pipe.png", "b/1.png", "b/socket.png"]
    assert [name for name, _ in listing(train)] == names
    for number in (1, 3):
        with pytest.raises(OSError, match="neither a file nor a folder"):
            train.content(number)


def test_odd_names_can_be_shown_and_stored(tmp_path: Path) -> None:
    fill(tmp_path, "a/Zürich 1.png", "a/new\nline.png", "b/ok.png")
    raw = os.fsencode(tmp_path) + b"/b/\xff\xfe.png"
    with open(raw, "wb") as file:
        file.write(encoded(pixels()))
    train = as_processes_see_them(find_pictures(tmp_path).part("train"))
    names = [name for name, _ in listing(train)]
    assert names == ["a/Zürich 1.png", r"a/new\nline.png", "b/ok.png", r"b/\xff\xfe.png"]
    assert all(name.encode().decode() == name and name.isprintable() for name in names)
    assert all(train.content(number) for number in range(4))


def test_a_folder_that_cannot_be_read_is_remarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "a/1.png", "a/locked/2.png", "b/1.png")

    def scandir(folder: Any, real: Any = os.scandir) -> Any:
        if Path(folder).name == "locked":
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    train = find_pictures(tmp_path).part("train")
    assert len(train) == 2
    assert train.remarks == (
        Remark("a/locked", "cannot be read: Permission denied", left_out=True),
    )


def test_a_file_that_went_away_is_an_os_error(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "b/1.png")
    train = find_pictures(tmp_path).part("train")
    (tmp_path / "a/1.png").unlink()
    with pytest.raises(OSError):
        train.content(0)


def test_a_file_too_large_to_be_a_picture_is_not_read(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "b/1.png")
    with open(tmp_path / "a/2.png", "wb") as file:
        file.truncate((1 << 30) + 1)
    train = find_pictures(tmp_path).part("train")
    with pytest.raises(OSError, match="too large"):
        train.content(1)


def test_what_is_listed_of_a_file_does_not_depend_on_another(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "a/2.png", "b/1.png")
    before = listing(find_pictures(tmp_path).part("train"))
    (tmp_path / "a/1.png").unlink()
    assert listing(find_pictures(tmp_path).part("train")) == before[1:]


# What is refused


@pytest.mark.parametrize("content", [(), ("1.png", "2.png")])
def test_a_folder_without_classes_is_refused(tmp_path: Path, content: tuple[str, ...]) -> None:
    fill(tmp_path, *content)
    with pytest.raises(InvalidInput, match=r"folder for each class.*found no folders.*CLASS"):
        find_pictures(tmp_path)


def test_one_class_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, "cat/1.png")
    with pytest.raises(InvalidInput, match="at least two of them; found only 'cat'"):
        find_pictures(tmp_path)


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"hub:NAME, or one of cifar10, .*does not exist"):
        find_pictures(tmp_path / "nothing")
    (tmp_path / "a.txt").touch()
    with pytest.raises(InvalidInput, match=r"neither a folder nor an \.npz"):
        find_pictures(tmp_path / "a.txt")


@pytest.mark.parametrize("name", ["x" * 5000, "x/" * 5000])
def test_a_name_too_long_for_the_file_system_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        find_pictures(name)
    with pytest.raises(InvalidInput, match="was not found"):
        find_pictures("cifar10.1", root=name)
    with pytest.raises(InvalidInput, match="there is no folder"):
        unlabelled(Path(name))


# Pictures to predict


def test_every_file_under_a_folder_can_be_predicted(tmp_path: Path) -> None:
    fill(tmp_path, "b.png", "a/1.png", ".hidden.png")
    found = as_processes_see_them(unlabelled(tmp_path))
    assert [found.name(number) for number in range(len(found))] == ["a/1.png", "b.png"]
    assert found.classes == ()


def test_an_empty_folder_has_nothing_to_predict(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no pictures"):
        unlabelled(tmp_path)
    with pytest.raises(InvalidInput, match="there is no folder"):
        unlabelled(tmp_path / "nothing")
