"""Pictures of other origins: found by name, labelled as what was trained on, or corrupted."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dptune.errors import InvalidInput
from dptune.pictures.corruptions import corrupted
from dptune.pictures.decode import BadPicture, decode
from dptune.pictures.find import find_pictures
from dptune.pictures.known.class_names import CIFAR10, STL10
from dptune.pictures.pictures import Pictures, PictureSet
from dptune.pictures.shifts import find_shift
from dptune.pictures.stored import PiecePictures, RowPictures

SIDE = 8


def pixels(count: int, seed: int = 0, side: int = SIDE) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), np.uint8)


def rows(classes: tuple[str, ...], seed: int) -> Pictures:
    labels = np.arange(20, dtype=np.int64) % len(classes)
    return RowPictures(classes=classes, labels=labels, pixels=pixels(20, seed))


def trained_on(*classes: str, name: str = "own") -> PictureSet:
    classes = classes or CIFAR10
    return PictureSet(name, {"train": partial(rows, classes, 1), "test": partial(rows, classes, 2)})


def save(path: Path, classes: tuple[str, ...], part: str = "test", **more: Any) -> Path:
    labels = np.arange(30) % len(classes)
    arrays = {f"x_{part}": pixels(30, 5), f"y_{part}": labels, "classes": np.array(classes)}
    np.savez(path, **arrays, **more)  # type: ignore[arg-type]
    return path


def names_of(pictures: Pictures) -> list[str]:
    return [pictures.classes[label] for label in pictures.labels]


def test_classes_are_matched_by_name_and_others_left_out(tmp_path: Path) -> None:
    shift = find_shift(str(save(tmp_path / "far.npz", STL10)), trained_on())
    assert shift.classes == CIFAR10 and len(shift) == 27 == len(shift.group_numbers)
    wanted = [number for number in range(30) if STL10[number % 10] != "monkey"]
    same = {"car": "automobile"}
    assert names_of(shift) == [same.get(STL10[n % 10], STL10[n % 10]) for n in wanted]
    for number, theirs in enumerate(wanted):
        assert (shift.content(number) == pixels(30, 5)[theirs]).all()
        assert shift.name(number) == str(theirs)
    (remark,) = shift.remarks
    assert (remark.picture, remark.left_out) == ("monkey", True)
    assert remark.what == "not among the classes trained on: 3 pictures"


@pytest.mark.parametrize(
    ("ours", "theirs", "matched"),
    [
        (("car", "ship"), ("automobile", "ship"), ["car", "ship"]),
        (("aeroplane", "TV"), ("airplane", "television"), ["aeroplane", "TV"]),
        (("Maple_Tree", "oak tree"), ("maple tree", "Oak-Tree"), ["Maple_Tree", "oak tree"]),
        (("0", "1"), ("1", "0"), ["1", "0"]),
        (("car", "automobile"), ("automobile", "car"), ["automobile", "car"]),  # exact names win
        (("car", "automobile", "cat"), ("auto", "cat"), ["cat"]),  # which one is meant?
        (("crane", "crane", "cat"), ("crane", "cat"), ["cat"]),
    ],
)
def test_names_may_be_spelt_differently(
    tmp_path: Path, ours: tuple[str, ...], theirs: tuple[str, ...], matched: list[str]
) -> None:
    shift = find_shift(str(save(tmp_path / "far.npz", theirs)), trained_on(*ours))
    assert list(dict.fromkeys(names_of(shift))) == matched


def test_no_class_in_common_is_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "far.npz", ("sea", "land"))
    with pytest.raises(InvalidInput, match=r"no pictures of the classes .*airplane.*only of sea"):
        find_shift(str(source), trained_on())


def test_what_is_kept_for_a_shift_goes_before_test_and_that_before_train(tmp_path: Path) -> None:
    source = save(tmp_path / "far.npz", CIFAR10, x_train=pixels(2, 9), y_train=np.array([0, 1]))
    assert len(find_shift(str(source), trained_on())) == 30
    only = save(tmp_path / "only.npz", CIFAR10, part="train")
    assert len(find_shift(str(only), trained_on())) == 30


def test_a_folder_of_classes_is_a_shift(tmp_path: Path) -> None:
    for number, name in enumerate(("car", "ship", "moon")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        Image.fromarray(pixels(1, number)[0]).save(tmp_path / "mine" / name / "a.png")
    shift = find_shift(str(tmp_path / "mine"), trained_on())
    assert names_of(shift) == ["automobile", "ship"]
    assert (decode(shift.content(1))[0] == pixels(1, 1)[0]).all()
    assert [remark.picture for remark in shift.remarks] == ["moon"]


def test_groups_of_other_pictures_stay_with_them(tmp_path: Path) -> None:
    folder = tmp_path / "waterbirds"
    folder.mkdir()
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for number in range(8):
        Image.fromarray(pixels(1, number)[0]).save(folder / f"{number}.png")
        lines.append(f"{number},{number}.png,{number % 2},2,{number // 4},")
    (folder / "metadata.csv").write_text("\n".join(lines))
    shift = find_shift("waterbirds", trained_on("waterbird", "fish"), tmp_path)
    assert names_of(shift) == ["waterbird"] * 4
    groups = [shift.groups[number] for number in shift.group_numbers]
    assert groups == ["waterbird on land"] * 2 + ["waterbird on water"] * 2


# Corrupted pictures


@pytest.mark.parametrize("name", ["corrupted:fog", "corrupted:gaussian_blur", "corrupted"])
def test_test_pictures_are_corrupted_at_five_severities(name: str) -> None:
    shift, clean = find_shift(name, trained_on()), pixels(20, 2)
    corruption = name.partition(":")[2] or "gaussian_blur"
    assert len(shift) == 100 and shift.groups == tuple(f"severity {n}" for n in range(1, 6))
    assert shift.group_numbers.tolist() == sorted(list(range(5)) * 20)
    assert shift.labels.tolist() == (np.arange(20) % 10).tolist() * 5
    for number in (0, 19, 20, 99):
        severity, picture = number // 20 + 1, number % 20
        expected = corrupted(clean[picture], corruption, severity, picture)
        assert (shift.content(number) == expected).all()
    assert shift.name(99) == f"19 ({corruption}, severity 5)"
    assert shift.remarks == ()


def test_a_bad_picture_stays_a_bad_picture() -> None:
    def broken() -> Pictures:
        return PiecePictures(
            classes=("a", "b"),
            labels=np.array([0, 1]),
            data=np.frombuffer(b"no picture", np.uint8),
            offsets=np.array([0, 4, 10]),
        )

    shift = find_shift("corrupted:fog", PictureSet("own", {"train": broken, "test": broken}))
    with pytest.raises(BadPicture):
        decode(shift.content(3))


def test_grey_pictures_are_corrupted_too() -> None:
    def grey() -> Pictures:
        return RowPictures(classes=("a", "b"), labels=np.array([0, 1]), pixels=pixels(2)[..., 0])

    shift = find_shift("corrupted:contrast", PictureSet("own", {"train": grey, "test": grey}))
    assert decode(shift.content(9))[0].shape == (SIDE, SIDE, 3)


def test_corrupting_needs_test_pictures_and_a_corruption_that_is_known() -> None:
    no_test = PictureSet("own", {"train": partial(rows, CIFAR10, 1)})
    with pytest.raises(InvalidInput, match="own has no test pictures"):
        find_shift("corrupted:fog", no_test)
    with pytest.raises(InvalidInput, match=r"gaussian_blur.*got 'blur'"):
        find_shift("corrupted:blur", trained_on())


def save_corrupted(root: Path, *corruptions: str) -> None:
    (root / "CIFAR-10-C").mkdir()
    np.save(root / "CIFAR-10-C" / "labels.npy", np.tile(np.arange(10, dtype=np.uint8), 5))
    for corruption in corruptions:
        np.save(root / "CIFAR-10-C" / f"{corruption}.npy", pixels(50, 7, 32))


@pytest.mark.parametrize("name", ["cifar10-c", "CIFAR-10-C:gaussian_blur"])
def test_the_published_set_is_read_where_it_is_at_hand(tmp_path: Path, name: str) -> None:
    save_corrupted(tmp_path, "gaussian_blur", "frost")
    shift = find_shift(name, trained_on(), tmp_path)
    assert len(shift) == 50 and shift.groups[4] == "severity 5" and shift.remarks == ()
    assert (shift.content(49) == pixels(50, 7, 32)[49]).all()
    assert len(find_shift("cifar10-c:frost", trained_on(), tmp_path)) == 50


@pytest.mark.parametrize("name", ["cifar10-c", "cifar10-c:fog"])
def test_the_published_set_is_computed_where_it_is_not_and_that_is_told(
    tmp_path: Path, name: str
) -> None:
    shift = find_shift(name, trained_on(name="cifar10"), tmp_path)
    corruption = name.partition(":")[2] or "gaussian_blur"
    assert (shift.content(25) == corrupted(pixels(20, 2)[5], corruption, 2, 5)).all()
    (remark,) = shift.remarks
    assert remark.picture == f"cifar10-c:{corruption}" and not remark.left_out
    assert remark.what == "not at hand: computed from the test pictures of cifar10"


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("cifar10-c:frost", trained_on()),  # which cannot be computed
        ("cifar10-c:blur", trained_on()),
        ("cifar10-c", trained_on("cat", "dog")),
        ("cifar100-c", trained_on()),
    ],
)
def test_what_cannot_be_computed_says_how_to_get_it(
    tmp_path: Path, name: str, trained: PictureSet
) -> None:
    with pytest.raises(InvalidInput, match=r"zenodo.*these can be computed: gaussian_noise"):
        find_shift(name, trained, tmp_path)


def test_shifts_can_be_sent_to_processes(tmp_path: Path) -> None:
    source = save(tmp_path / "far.npz", STL10)
    for name in (str(source), "corrupted:fog"):
        shift = find_shift(name, trained_on())
        again = pickle.loads(pickle.dumps(shift))
        assert (decode(again.content(3))[0] == decode(shift.content(3))[0]).all()


def test_a_shift_of_a_set_with_a_name_is_found_in_the_root_folder(tmp_path: Path) -> None:
    save(tmp_path / "stl10.npz", STL10)
    assert len(find_pictures("stl10", tmp_path).part("test")) == 30
    assert len(find_shift("stl10", trained_on(), tmp_path)) == 27
