"""Known data sets, each in small files of its real layout; and what is said of a missing one."""

import gzip
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat

from dptune.errors import InvalidInput
from dptune.hub import ModelPlace
from dptune.pictures.find import find_pictures
from dptune.pictures.known.class_names import CIFAR10, CIFAR100, EMNIST, FASHION, FMOW
from dptune.pictures.known.sets import KNOWN
from dptune.pictures.pictures import Pictures
from support.pictures import as_processes_see_them, decoded, encoded, pixels

Bytes = NDArray[np.uint8]
REAL = os.environ.get("DPTUNE_PICTURES", "")


@pytest.fixture(autouse=True)
def no_hub_and_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*asked: Any) -> Any:
        raise ConnectionError("no hub in tests")

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked: [])  # as if there were a network
    monkeypatch.delenv("DPTUNE_PICTURES", raising=False)


def pictures_of(rows: int, height: int, width: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (rows, height, width, 3), np.uint8)


def check(found: Pictures, expected: Bytes, labels: list[int], classes: tuple[str, ...]) -> None:
    there = as_processes_see_them(found)
    assert there.labels.tolist() == labels and there.classes == classes
    for number, picture in enumerate(expected):
        whole = picture if picture.ndim == 3 else np.repeat(picture[:, :, None], 3, axis=2)
        assert np.array_equal(decoded(there, number), whole)


# CIFAR


def python2_pickle(data: Bytes, **lists: list[int]) -> bytes:
    """A batch as Python 2's cPickle wrote it, with protocol 2 and NumPy of 2009."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + (number(0) + b"\x85" + short(b"b") + b"\x87R(" + number(1))
        + (number(len(data)) + number(data.shape[1]) + b"\x86")
        + (b"cnumpy\ndtype\n" + short(b"u1") + number(0) + number(1) + b"\x87R(" + number(3))
        + (short(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb\x89")
        + (b"T" + struct.pack("<i", data.size) + data.tobytes() + b"tb")
    )
    items = short(b"batch_label") + short(b"training batch 1 of 5")
    for name, values in lists.items():
        items += short(name.encode()) + b"](" + b"".join(map(number, values)) + b"e"
    items += short(b"data") + array
    files = b"".join(short(b"file_%d.png" % row) for row in range(len(data)))
    return b"\x80\x02}(" + items + short(b"filenames") + b"](" + files + b"eu."


def colours_first(rows: Bytes) -> Bytes:
    """Red, green and blue one after the other, as CIFAR stores a row."""
    return rows.transpose(0, 3, 1, 2).reshape(len(rows), -1)


CIFAR_LABELS = [[number, 9 - number] for number in range(6)]
CIFAR_ROWS = [pictures_of(2, 32, 32, seed) for seed in range(6)]
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def cifar10_python(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for name, rows, labels in zip(BATCHES, CIFAR_ROWS, CIFAR_LABELS, strict=True):
        (folder / name).write_bytes(python2_pickle(colours_first(rows), labels=labels))


def cifar10_python3(root: Path) -> None:
    """As others packed it again."""
    folder = root / "cifar10"
    folder.mkdir()
    for name, rows, labels in zip(BATCHES, CIFAR_ROWS, CIFAR_LABELS, strict=True):
        batch = {b"labels": labels, b"data": colours_first(rows), b"filenames": [b"a.png"] * 2}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def cifar10_binary(root: Path) -> None:
    folder = root / "CIFAR-10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, rows, labels in zip(BATCHES, CIFAR_ROWS, CIFAR_LABELS, strict=True):
        records = zip(labels, colours_first(rows), strict=True)
        content = b"".join(bytes([label]) + row.tobytes() for label, row in records)
        (folder / f"{name}.bin").write_bytes(content)


def test_the_made_up_batch_is_what_numpy_understands() -> None:
    rows = colours_first(CIFAR_ROWS[0])
    batch = pickle.loads(python2_pickle(rows, labels=[1, 2]), encoding="latin1")
    assert np.array_equal(batch["data"], rows) and batch["labels"] == [1, 2]
    assert batch["filenames"] == ["file_0.png", "file_1.png"]


@pytest.mark.parametrize("make", [cifar10_python, cifar10_python3, cifar10_binary])
@pytest.mark.parametrize("name", ["cifar10", "CIFAR-10"])
def test_cifar10(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    make(tmp_path)
    found = find_pictures(name, tmp_path)
    rows, labels = np.concatenate(CIFAR_ROWS[:5]), np.concatenate(CIFAR_LABELS[:5]).tolist()
    check(found.part("train"), rows, labels, CIFAR10)
    check(found.part("test"), CIFAR_ROWS[5], CIFAR_LABELS[5], CIFAR10)
    folder = next(path.parent for path in tmp_path.rglob("test_batch*"))
    assert find_pictures(folder).part("train").labels.tolist() == labels


def cifar100_python(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir()
    for name, rows in zip(("train", "test"), CIFAR_ROWS[:2], strict=True):
        batch = python2_pickle(colours_first(rows), coarse_labels=[19, 0], fine_labels=[99, 7])
        (folder / name).write_bytes(batch)


def cifar100_binary(root: Path) -> None:
    folder = root / "cifar-100-binary"
    folder.mkdir()
    for name, rows in zip(("train", "test"), CIFAR_ROWS[:2], strict=True):
        flat = colours_first(rows)
        content = bytes([19, 99]) + flat[0].tobytes() + bytes([0, 7]) + flat[1].tobytes()
        (folder / f"{name}.bin").write_bytes(content)


@pytest.mark.parametrize("make", [cifar100_python, cifar100_binary])
def test_cifar100_has_its_fine_labels(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    found = find_pictures("cifar100", tmp_path)
    check(found.part("train"), CIFAR_ROWS[0], [99, 7], CIFAR100)
    check(found.part("test"), CIFAR_ROWS[1], [99, 7], CIFAR100)
    assert tuple(sorted(CIFAR100)) == CIFAR100 and len(CIFAR100) == 100


class Thief:
    def __reduce__(self) -> Any:
        return os.mkdir, ("stolen",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Thief()),
        pickle.dumps({"data": Thief(), "labels": [0]}),
        pickle.dumps({"data": np.zeros((1, 3072), np.float64), "labels": [0]}),
        pickle.dumps({"data": np.array([os.mkdir]), "labels": [0]}),
        pickle.dumps({"labels": [0]}),
        pickle.dumps([1, 2]),
        pickle.dumps({"data": [1, 2], "labels": [0, 1]}),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [2**70, 1]}),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [[0], [1]]}),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0.5, 1]}),
        python2_pickle(np.zeros((2, 3072), np.uint8), labels=[0, 10]),
        python2_pickle(np.zeros((2, 3072), np.uint8), labels=[0]),
        python2_pickle(np.zeros((2, 3000), np.uint8), labels=[0, 1]),
        python2_pickle(np.zeros((2, 3072), np.uint8), labels=[0, 1])[:-100],
        b"cnumpy\nndarray\n.",
        b"cbuiltins\neval\n(U\x021+tR.",
        b"",
    ],
)
def test_a_pickle_that_holds_more_than_pictures_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    cifar10_python(tmp_path)
    (tmp_path / "cifar-10-batches-py/data_batch_3").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"data_batch_3' cannot be read.*write it again"):
        find_pictures("cifar10", tmp_path).part("train")
    assert not Path("stolen").exists()


def test_torn_records_are_refused(tmp_path: Path) -> None:
    cifar10_binary(tmp_path)
    path = tmp_path / "CIFAR-10/cifar-10-batches-bin/test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInput, match="records of 3073 bytes each; found 6145 bytes"):
        find_pictures("cifar10", tmp_path).part("test")


@pytest.mark.parametrize("version", ["v4", "v6"])
def test_cifar101(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "CIFAR-10.1" / "datasets"
    folder.mkdir(parents=True)
    np.save(folder / f"cifar10.1_{version}_data.npy", CIFAR_ROWS[0])
    np.save(folder / f"cifar10.1_{version}_labels.npy", np.array([3, 0], np.int32))
    found = find_pictures(f"cifar10.1:{version}", tmp_path)
    assert list(found.parts) == ["test"]
    check(found.part("test"), CIFAR_ROWS[0], [3, 0], CIFAR10)
    with pytest.raises(InvalidInput, match="was not found"):
        find_pictures("cifar10.1:v5", tmp_path)


@pytest.mark.parametrize(
    ("name", "classes"), [("cifar10-c", CIFAR10), ("cifar100-c", CIFAR100)], ids=["10", "100"]
)
def test_corrupted_pictures_are_grouped_by_severity(
    tmp_path: Path, name: str, classes: tuple[str, ...]
) -> None:
    folder = tmp_path / name.upper().replace("R10", "R-10")
    folder.mkdir()
    rows = pictures_of(10, 32, 32)
    np.save(folder / "gaussian_blur.npy", rows)
    np.save(folder / "fog.npy", rows[::-1].copy())
    np.save(folder / "labels.npy", np.array([3, 8] * 5, np.uint8))
    found = find_pictures(f"{name}:gaussian_blur", tmp_path).part("test")
    check(found, rows, [3, 8] * 5, classes)
    assert found.groups == tuple(f"severity {number}" for number in range(1, 6))
    assert found.group_numbers.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for source in (name, f"{name}:snow"):
        with pytest.raises(InvalidInput, match=rf"as in {name}:fog; .*fog, gaussian_blur in"):
            find_pictures(source, tmp_path)
    with pytest.raises(InvalidInput, match=rf"{name} needs the name of a corruption"):
        find_pictures(folder)


def test_mapped_pictures_are_sent_by_address(tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "fog.npy", pictures_of(100, 32, 32))
    np.save(folder / "labels.npy", np.zeros(100, np.uint8))
    found = find_pictures("cifar10-c:fog", tmp_path).part("test")
    found.content(7)
    assert len(pickle.dumps(found)) < 10_000


# idx files


def idx(array: Bytes) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


GREY = np.random.default_rng(5).integers(0, 256, (4, 28, 28), np.uint8)


def write_idx(folder: Path, names: dict[str, Bytes], packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in names.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))


def mnist_files(labels: list[int], between: str = "-") -> dict[str, Bytes]:
    numbers = np.array(labels, np.uint8)
    return {
        f"train-images{between}idx3-ubyte": GREY[:3],
        f"train-labels{between}idx1-ubyte": numbers[:3],
        f"t10k-images{between}idx3-ubyte": GREY[3:],
        f"t10k-labels{between}idx1-ubyte": numbers[3:],
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "folder", "classes"),
    [
        ("mnist", "MNIST/raw", tuple("0123456789")),
        ("mnist", "mnist", tuple("0123456789")),
        ("fashion_mnist", "FashionMNIST/raw", FASHION),
        ("fashion-mnist", "fashion-mnist/data/fashion", FASHION),
    ],
)
def test_mnist_and_its_kin(
    tmp_path: Path, name: str, folder: str, classes: tuple[str, ...], packed: bool
) -> None:
    write_idx(tmp_path / folder, mnist_files([7, 0, 9, 4]), packed)
    found = find_pictures(name, tmp_path)
    check(found.part("train"), GREY[:3], [7, 0, 9], classes)
    check(found.part("test"), GREY[3:], [4], classes)
    by_path = find_pictures(tmp_path / folder).part("test")
    check(by_path, GREY[3:], [4], classes)


def test_files_with_a_point_where_the_hyphen_was(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", mnist_files([1, 2, 3, 4], "."), packed=False)
    assert find_pictures("mnist", tmp_path).part("train").labels.tolist() == [1, 2, 3]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("source", "variant", "labels", "shown"),
    [
        ("emnist", "byclass", [61, 10, 36, 0], "zAa0"),
        ("emnist:balanced", "balanced", [46, 36, 38, 12], "tadC"),
        ("emnist:letters", "letters", [1, 26, 2, 13], "azbm"),
    ],
)
def test_emnist_stands_upright_and_is_named(
    tmp_path: Path, source: str, variant: str, labels: list[int], shown: str, packed: bool
) -> None:
    lying = np.ascontiguousarray(GREY.transpose(0, 2, 1))
    numbers = np.array(labels, np.uint8)
    files = {
        f"emnist-{variant}-train-images-idx3-ubyte": lying[:3],
        f"emnist-{variant}-train-labels-idx1-ubyte": numbers[:3],
        f"emnist-{variant}-test-images-idx3-ubyte": lying[3:],
        f"emnist-{variant}-test-labels-idx1-ubyte": numbers[3:],
    }
    write_idx(tmp_path / "gzip", files, packed)
    found = find_pictures(source, tmp_path)
    for part, rows, letters in (("train", GREY[:3], shown[:3]), ("test", GREY[3:], shown[3:])):
        pictures = found.part(part)
        check(pictures, rows, pictures.labels.tolist(), EMNIST[variant])
        assert "".join(pictures.classes[label] for label in pictures.labels) == letters


def test_emnist_has_no_other_variants(tmp_path: Path) -> None:
    (tmp_path / "emnist").mkdir()
    with pytest.raises(InvalidInput, match=r"splits byclass, bymerge.*got 'all'"):
        find_pictures("emnist:all", tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("train-images-idx3-ubyte", idx(GREY[:2]), "2 pictures for 3 labels"),
        ("train-images-idx3-ubyte", idx(GREY[:3])[:-1], "not its length"),
        ("train-images-idx3-ubyte", b"\0\0\x08", "does not begin like an idx file"),
        ("train-images-idx3-ubyte", idx(GREY[0]), "bytes with 3 axes"),
        ("train-labels-idx1-ubyte", idx(np.array([1, 2, 10], np.uint8)), "of the 10 classes"),
        ("train-labels-idx1-ubyte", idx(np.array([1, 2, 3], np.uint8))[:-1], "cannot be read"),
        ("train-labels-idx1-ubyte", b"", "does not begin like an idx file"),
    ],
)
def test_damaged_idx_files_are_refused(
    tmp_path: Path, file: str, content: bytes, words: str
) -> None:
    write_idx(tmp_path / "mnist", mnist_files([1, 2, 3, 4]), packed=False)
    (tmp_path / "mnist" / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        find_pictures("mnist", tmp_path).part("train")


def test_a_torn_gz_is_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", mnist_files([1, 2, 3, 4]), packed=True)
    path = tmp_path / "mnist/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match="cannot be read"):
        find_pictures("mnist", tmp_path).part("train")


# Others that are arrays


@pytest.mark.parametrize("folder", ["", "SVHN"])
def test_svhn_calls_ten_zero(tmp_path: Path, folder: str) -> None:
    rows = pictures_of(3, 32, 32)
    (tmp_path / folder).mkdir(exist_ok=True)
    for part, labels in (("train", [10, 1, 9]), ("test", [2, 10, 3])):
        stored = {"X": rows.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]}
        savemat(tmp_path / folder / f"{part}_32x32.mat", stored, do_compression=True)
    found = find_pictures("svhn", tmp_path)
    check(found.part("train"), rows, [0, 1, 9], tuple("0123456789"))
    check(found.part("test"), rows, [2, 0, 3], tuple("0123456789"))


@pytest.mark.parametrize("content", [b"", bytes(200), b"MATLAB 5.0 MAT-file" + bytes(200)])
def test_a_torn_mat_is_refused(tmp_path: Path, content: bytes) -> None:
    for part in ("train", "test"):
        (tmp_path / f"{part}_32x32.mat").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"train_32x32.mat' cannot be read"):
        find_pictures("svhn", tmp_path).part("train")


STL10 = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")


@pytest.mark.parametrize("named", [True, False])
def test_stl10_goes_by_columns_and_counts_from_one(tmp_path: Path, named: bool) -> None:
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    if named:
        (folder / "class_names.txt").write_text("\n".join(STL10) + "\n")
    rows = pictures_of(2, 96, 96)
    for part in ("train", "test"):
        rows.transpose(0, 3, 2, 1).tofile(folder / f"{part}_X.bin")
        np.array([1, 10], np.uint8).tofile(folder / f"{part}_y.bin")
    found = find_pictures("stl10", tmp_path)
    check(found.part("train"), rows, [0, 9], STL10)
    check(found.part("test"), rows, [0, 9], STL10)


# Pictures in files of their own


def put(folder: Path, path: str, seed: int) -> Bytes:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(encoded(pixels(seed=seed)))
    return pixels(seed=seed)


def imagenet_train(folder: Path) -> Bytes:
    names = ("n01440764/n01440764_10026.JPEG", "n02119789/n02119789_1.JPEG")
    return np.stack([put(folder, f"train/{name}", seed) for seed, name in enumerate(names)])


WORDNET = ("n01440764", "n02119789")


def imagenet_folders(root: Path) -> Path:
    put(root, "val/n02119789/ILSVRC2012_val_00000001.JPEG", 8)
    put(root, "val/n01440764/ILSVRC2012_val_00000002.JPEG", 7)
    return root


def flat_val(folder: Path) -> None:
    put(folder, "val/ILSVRC2012_val_00000001.JPEG", 7)
    put(folder, "val/ILSVRC2012_val_00000002.JPEG", 8)


def imagenet_kaggle(root: Path) -> Path:
    flat_val(root / "ILSVRC/Data/CLS-LOC")
    put(root, "ILSVRC/Data/CLS-LOC/test/ILSVRC2012_test_00000001.JPEG", 9)
    (root / "LOC_val_solution.csv").write_text(
        "ImageId,PredictionString\n"
        "ILSVRC2012_val_00000002,n02119789 111 108 441 193 n02119789 1 2 3 4 \n"
        "ILSVRC2012_val_00000001,n01440764 1 2 3 4 \n"
    )
    return root / "ILSVRC/Data/CLS-LOC"


def imagenet_devkit(root: Path) -> Path:
    flat_val(root)
    kit = root / "ILSVRC2012_devkit_t12/data"
    kit.mkdir(parents=True)
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("2\n1\n")
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    synsets = np.array(
        [
            (1, "n02119789", "kit fox", 0),
            (2, "n01440764", "tench", 0),
            (1001, "n00001740", "entity", 3),
        ],
        kind,
    )
    savemat(kit / "meta.mat", {"synsets": synsets[:, None]})
    return root


@pytest.mark.parametrize("make", [imagenet_folders, imagenet_kaggle, imagenet_devkit])
@pytest.mark.parametrize("source", ["imagenet", "imagenet-1k"])
def test_imagenet(tmp_path: Path, make: Callable[[Path], Path], source: str) -> None:
    train = imagenet_train(make(tmp_path))
    found = find_pictures(source, tmp_path)
    check(found.part("train"), train, [0, 1], WORDNET)
    expected = np.stack([pixels(seed=7), pixels(seed=8)])
    check(found.part("test"), expected, [0, 1], WORDNET)
    assert not found.part("test").remarks


def test_a_picture_that_the_table_does_not_know_is_remarked(tmp_path: Path) -> None:
    folder = imagenet_kaggle(tmp_path)
    imagenet_train(folder)
    put(folder, "val/ILSVRC2012_val_00000003.JPEG", 9)
    found = find_pictures("imagenet", tmp_path).part("test")
    assert len(found) == 2
    assert [(each.picture, each.left_out) for each in found.remarks] == [
        ("ILSVRC2012_val_00000003.JPEG", True)
    ]


def test_a_flat_val_without_labels_is_no_test_part(tmp_path: Path) -> None:
    imagenet_train(tmp_path)
    flat_val(tmp_path)
    assert list(find_pictures("imagenet", tmp_path).parts) == ["train"]


@pytest.mark.parametrize("folder", ["waterbird_complete95_forest2water2", "waterbirds_v1.0"])
def test_waterbirds(tmp_path: Path, folder: str) -> None:
    table = ["img_id,img_filename,y,split,place,place_filename"]
    wanted = [(0, 0, 0), (1, 1, 0), (1, 0, 2), (0, 1, 2), (1, 1, 2), (1, 1, 1)]
    for number, (bird, place, split) in enumerate(wanted):
        path = f"001.Black_footed_Albatross/Bird_{number}.jpg"
        put(tmp_path / folder, path, number)
        table.append(f"{number + 1},{path},{bird},{split},{place},/b/bamboo_forest/00000131.jpg")
    (tmp_path / folder / "metadata.csv").write_text("\n".join(table) + "\n")
    found = find_pictures("waterbirds", tmp_path)
    birds = ("landbird", "waterbird")
    check(found.part("train"), np.stack([pixels(seed=seed) for seed in (0, 1)]), [0, 1], birds)
    test = found.part("test")
    check(test, np.stack([pixels(seed=seed) for seed in (2, 3, 4)]), [1, 0, 1], birds)
    assert [test.groups[group] for group in test.group_numbers] == [
        "waterbird on land",
        "landbird on water",
        "waterbird on water",
    ]


def test_camelyon17_keeps_a_hospital_for_the_shift(tmp_path: Path) -> None:
    folder = tmp_path / "camelyon17_v1.0"
    table = [",patient,node,x_coord,y_coord,tumor,slide,center,split"]
    wanted = [(0, 0, 1), (0, 1, 0), (3, 0, 0), (1, 0, 1), (2, 0, 1), (2, 1, 0), (4, 1, 1)]
    for number, (hospital, split, tumor) in enumerate(wanted):
        where = f"patient_004_node_{number}"
        put(folder, f"patches/{where}/patch_{where}_x_3328_y_21792.png", number)
        table.append(f"{number},004,{number},3328,21792,{tumor},0,{hospital},{split}")
    (folder / "metadata.csv").write_text("\n".join(table) + "\n")
    found = find_pictures("camelyon17", tmp_path)
    expected = {
        "train": ([0, 2], ["hospital 0", "hospital 3"], [1, 0]),
        "test": ([1, 6], ["hospital 0", "hospital 4"], [0, 1]),
        "shift": ([4, 5], ["hospital 2", "hospital 2"], [1, 0]),
    }
    for part, (seeds, hospitals, labels) in expected.items():
        pictures = found.part(part)
        rows = np.stack([pixels(seed=seed) for seed in seeds])
        check(pictures, rows, labels, ("normal", "tumor"))
        assert [pictures.groups[group] for group in pictures.group_numbers] == hospitals


def test_fmow_trains_on_the_americas_and_shifts_to_europe_and_africa(tmp_path: Path) -> None:
    folder = tmp_path / "fmow_v1.1"
    folder.mkdir()
    (folder / "country_code_mapping.csv").write_text(
        "name,alpha-2,alpha-3,country-code,iso_3166-2,region,sub-region\n"
        "Brazil,BR,BRA,076,ISO 3166-2:BR,Americas,Latin America\n"
        "France,FR,FRA,250,ISO 3166-2:FR,Europe,Western Europe\n"
        "Kenya,KE,KEN,404,ISO 3166-2:KE,Africa,Sub-Saharan Africa\n"
        "Japan,JP,JPN,392,ISO 3166-2:JP,Asia,Eastern Asia\n"
        "Antarctica,AQ,ATA,010,ISO 3166-2:AQ,,\n"
    )
    rows = [
        ("train", "zoo", "BRA", 2012),
        ("train", "zoo", "BRA", 2013),
        ("seq", "zoo", "BRA", 2010),
        ("train", "zoo", "FRA", 2010),
        ("test", "airport", "BRA", 2005),
        ("test", "barn", "FRA", 2016),
        ("test", "dam", "KEN", 2017),
        ("test", "dam", "KEN", 2012),
        ("test", "dam", "JPN", 2017),
        ("test", "dam", "ATA", 2017),
        ("test", "dam", "XKX", 2017),
    ]
    table = ["split,img_filename,category,country_code,timestamp"]
    for number, (split, category, country, year) in enumerate(rows):
        table.append(f"{split},a_{number}_rgb.jpg,{category},{country},{year}-12-31T23:59:59Z")
        put(folder, f"images/rgb_img_{number}.png", number)
    (folder / "rgb_metadata.csv").write_text("\n".join(table) + "\n")
    found = find_pictures("fmow", tmp_path)
    for part, seeds in (("train", [0]), ("test", [4]), ("shift", [5, 6])):
        labels = [FMOW.index(rows[seed][1]) for seed in seeds]
        check(found.part(part), np.stack([pixels(seed=seed) for seed in seeds]), labels, FMOW)
    shift = found.part("shift")
    assert [shift.groups[group] for group in shift.group_numbers] == ["Europe", "Africa"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("waterbirds,0", "waterbirds,x"), "cannot be read"),
        (("0,0,0", "5,0,0"), "classes"),
        (("waterbirds", "x" * 200_000), "cannot be read"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    table = "img_filename,y,split,place\nwaterbirds,0,0,0\n".replace(*change)
    (tmp_path / "metadata.csv").write_text(table)
    with pytest.raises(InvalidInput, match=words):
        find_pictures("waterbirds", tmp_path).part("train")


# Where sets are looked for


def test_an_npz_called_like_the_set_is_the_set(tmp_path: Path) -> None:
    arrays = {"x_train": GREY, "y_train": np.array([0, 9, 1, 2]), "x_test": GREY, "y_test": [0] * 4}
    np.savez(tmp_path / "Fashion_MNIST.npz", **arrays)
    assert find_pictures("fashion_mnist", tmp_path).part("train").classes == FASHION
    np.savez(tmp_path / "emnist-letters.npz", **arrays)
    assert find_pictures("emnist:letters", tmp_path).part("train").classes == EMNIST["letters"]
    with pytest.raises(InvalidInput, match="was not found"):
        find_pictures("emnist", tmp_path)


def test_a_folder_of_class_folders_called_like_the_set_is_the_set(tmp_path: Path) -> None:
    for number, name in enumerate(CIFAR10[:9]):
        put(tmp_path, f"cifar10/train/{name}/1.png", number)
    with pytest.raises(InvalidInput, match="cifar10 was not found"):
        find_pictures("cifar10", tmp_path)
    put(tmp_path, "cifar10/train/truck/1.png", 9)
    assert find_pictures("cifar10", tmp_path).part("train").classes == CIFAR10


def test_what_is_left_of_a_set_is_not_taken_for_classes(tmp_path: Path) -> None:
    (tmp_path / "MNIST/processed").mkdir(parents=True)
    files = mnist_files([1, 2, 3, 4])
    del files["train-labels-idx1-ubyte"]
    write_idx(tmp_path / "MNIST/raw", files, packed=False)
    with pytest.raises(InvalidInput, match="mnist was not found"):
        find_pictures("mnist", tmp_path)


def test_a_saved_data_set_called_like_the_set_is_the_set(tmp_path: Path) -> None:
    datasets.disable_progress_bars()
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    columns = {"image": [{"bytes": encoded(pixels()), "path": None}], "label": [1]}
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(tmp_path / "mnist")
    assert find_pictures("mnist", tmp_path).part("train").classes == ("a", "b")


def test_the_root_is_said_or_in_the_environment_or_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / name for name in ("said", "environment", "here")]
    for number, place in enumerate(places):
        write_idx(place / "mnist", mnist_files([number] * 4), packed=False)
    monkeypatch.chdir(places[2])
    assert find_pictures("mnist").part("test").labels.tolist() == [2]
    monkeypatch.setenv("DPTUNE_PICTURES", str(places[1]))
    assert find_pictures("mnist").part("test").labels.tolist() == [1]
    assert find_pictures("mnist", str(places[0])).part("test").labels.tolist() == [0]


def test_a_folder_of_ones_own_can_be_called_like_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "mnist/odd/1.png", 0)
    put(tmp_path, "mnist/even/2.png", 1)
    monkeypatch.chdir(tmp_path)
    assert find_pictures("./mnist").part("train").classes == ("even", "odd")
    assert find_pictures(Path("mnist")).part("train").classes == ("even", "odd")
    with pytest.raises(InvalidInput, match="mnist was not found"):
        find_pictures("mnist")


def test_a_set_of_one_variant_has_no_other(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="mnist has no variants; got 'mnist:letters'"):
        find_pictures("mnist:letters", tmp_path)


@pytest.mark.parametrize("known", KNOWN, ids=[known.name for known in KNOWN])
def test_a_missing_set_is_told_where_to_get_it(tmp_path: Path, known: Any) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InvalidInput) as missing:
            find_pictures(known.name, root)
        said = str(missing.value)
        assert str(root) in said and known.files in said and known.source in said
        assert f"no {known.name}.npz" in said
        assert (known.hub is None) == ("not on the hub" in said)
        assert known.hub is None or (known.hub.name in said and "no hub in tests" in said)


@pytest.mark.parametrize("known", KNOWN, ids=[known.name for known in KNOWN])
def test_the_page_lists_the_set(known: Any) -> None:
    page = (Path(__file__).parent.parent / "docs" / "guide" / "pictures.md").read_text("utf-8")
    variants = f", `{known.name}:VARIANT` ({known.variants})" if known.variants else ""
    hub = f"`{known.hub.name}`" if known.hub else ""
    row = f"| `{known.name}`{variants} | {known.files} | {known.source} | {hub} | {known.licence} |"
    assert row in page.splitlines()


def test_without_a_network_the_hub_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere(*asked: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    for proxy in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(proxy, raising=False)
        monkeypatch.delenv(proxy.upper(), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(InvalidInput, match="uoft-cs/cifar10, but the hub cannot be reached"):
        find_pictures("cifar10", tmp_path)
    model = ModelPlace.of("someone/bert@main")
    assert model.options["local_files_only"], "what was had before is had again"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked: [])
    assert not model.options["local_files_only"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidInput, match="no hub in tests"):
        find_pictures("cifar10", tmp_path)


def test_without_the_package_a_missing_set_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InvalidInput, match=r"was not found.*dptune\[hub\]"):
        find_pictures("cifar10", tmp_path)


def test_a_set_that_is_not_here_comes_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load(name: str, config: str | None) -> Any:
        asked.append((name, config))
        columns = {
            "image": [{"bytes": encoded(pixels()), "path": None}] * 2,
            "bird": [0, 1],
            "place": [1, 0],
            "label": [0, 1],
        }
        kinds = datasets.Features(
            {
                "image": datasets.Image(),
                "bird": datasets.ClassLabel(names=["a", "b"]),
                "place": datasets.ClassLabel(names=["land", "water"]),
                "label": datasets.ClassLabel(names=["land bird", "water bird"]),
            }
        )
        rows = datasets.Dataset.from_dict(columns, features=kinds)
        return datasets.DatasetDict({"train": rows, "validation": rows, "test": rows.select([1])})

    monkeypatch.setattr(datasets, "load_dataset", load)
    found = find_pictures("waterbirds", tmp_path)
    assert asked == [("grodino/waterbirds", None)]
    train, test = found.part("train"), found.part("test")
    assert train.classes == ("landbird", "waterbird") and test.labels.tolist() == [1]
    assert [train.groups[group] for group in train.group_numbers] == [
        "landbird on water",
        "waterbird on land",
    ]
    assert len(find_pictures("imagenet", tmp_path).part("test")) == 2  # its test has no labels
    with pytest.raises(InvalidInput, match="not on the hub"):
        find_pictures("cifar10.1", tmp_path)


# Real files, where the machine has them


@pytest.mark.skipif(not REAL, reason="DPTUNE_PICTURES names no folder")
@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [
        ("cifar10", (50_000, 10_000), CIFAR10),
        ("cifar100", (50_000, 10_000), CIFAR100),
        ("mnist", (60_000, 10_000), tuple("0123456789")),
        ("fashion_mnist", (60_000, 10_000), FASHION),
    ],
)
def test_the_real_set(name: str, rows: tuple[int, int], classes: tuple[str, ...]) -> None:
    found = find_pictures(name, REAL)
    for part, count in zip(("train", "test"), rows, strict=True):
        pictures = found.part(part)
        assert len(pictures) == count and pictures.classes == classes
        assert set(pictures.labels.tolist()) == set(range(len(classes)))
        assert decoded(pictures, count - 1).shape[2] == 3
