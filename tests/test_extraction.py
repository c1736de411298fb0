"""Pictures to features: nothing lost, nothing made twice, no picture's features depend on
another's."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from dptune.data import Data
from dptune.data.extracted import Extracted, read_groups, read_part
from dptune.data.preprocess import Preprocessing
from dptune.data.sources import fingerprint_source, load_data
from dptune.errors import InvalidInput
from dptune.features import extraction, loading
from dptune.features.extraction import FolderTaken, Progress, write_features
from dptune.features.find import find_backbone
from dptune.features.from_pictures import extract, gather
from dptune.features.in_memory import features_of
from dptune.features.loading import Batch
from dptune.features.network import Networks, found_again
from dptune.pictures.decode import decode
from dptune.pictures.find import find_pictures
from dptune.pictures.pictures import Pictures
from dptune.pictures.shifts import matched

NETWORK = """
import torch
from torch import nn

def factory():
    torch.manual_seed({seed})
    network = nn.Sequential(nn.Conv2d(3, {width}, 5, stride=3), nn.ReLU())
    network.size, network.mean, network.deviation = {size}, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    return network
"""
Folder = Callable[..., Path]


@pytest.fixture
def network(tmp_path: Path) -> Callable[..., Networks]:
    def make(*, seed: int = 0, width: int = 6, size: int = 20) -> Networks:
        path = tmp_path / f"network{seed}_{width}_{size}.py"
        path.write_text(NETWORK.format(seed=seed, width=width, size=size))
        return Networks([find_backbone(f"module:{path}:factory")])

    return make


def noise(number: int, height: int = 24, width: int = 30) -> NDArray[np.uint8]:
    draws = np.random.default_rng(number)
    return draws.integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def make(name: str = "pets", *, each: int = 10) -> Path:
        for kind in range(3):
            place = tmp_path / name / f"class{kind}"
            place.mkdir(parents=True)
            for number in range(each):
                sides = (24, 30) if number % 3 else (12, 9)  # some smaller than the network takes
                picture = noise(100 * kind + number, *sides)
                Image.fromarray(picture).save(place / f"{number:03d}.png")
        return tmp_path / name

    return make


def train(path: Path) -> Pictures:
    return find_pictures(path).part("train")


def run(path: Path, networks: Networks, out: Path, **more: object) -> extraction.Extraction:
    return write_features({"train": train(path)}, networks, out, source="pets", **more)  # type: ignore[arg-type]


def test_features_are_the_networks_own(folder: Folder, network, tmp_path: Path) -> None:
    networks, pictures = network(), train(folder())
    done = write_features({"train": pictures}, networks, tmp_path / "f", source="pets")
    rows, labels = read_part(done.folder, "train")
    assert done.made == len(rows) == 30 and not done.remarks
    assert np.array_equal(labels, np.repeat([0, 1, 2], 10))
    backbone = networks.backbones[0]
    for number in (0, 1, 13, 29):
        pixels, _ = decode(pictures.content(number))
        shrunk = torch.tensor(backbone.transform.shrunk(pixels))[None]
        alone = backbone.module(backbone.transform.normalised(shrunk))
        np.testing.assert_allclose(rows[number], alone[0].numpy(), rtol=1e-4, atol=1e-6)


def test_a_second_time_nothing_is_made(folder: Folder, network, tmp_path: Path) -> None:
    path = folder()
    first = run(path, network(), tmp_path / "f")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "f" / "train").iterdir()}
    second = run(path, network(), tmp_path / "f")
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "f" / "train").iterdir()}
    assert (first.made, second.made) == (30, 0)
    assert after == before and second.parts == first.parts


class _Killed(Exception):
    pass


def test_cut_off_at_any_batch_it_goes_on_where_it_was(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "SMALL_CHUNK", 8)
    monkeypatch.setattr("dptune.features.network._BATCH", {"cpu": 3})
    path, networks = folder(), network()
    whole = run(path, networks, tmp_path / "whole")
    expected, labels = read_part(whole.folder, "train")
    for stop in range(1, 11):
        out = tmp_path / f"cut{stop}"
        told: list[Progress] = []

        def watch(progress: Progress, told=told, stop=stop) -> None:
            told.append(progress)
            if len(told) == stop:
                raise _Killed

        with pytest.raises(_Killed):
            run(path, networks, out, watch=watch)
        with pytest.raises(InvalidInput, match="no finished chunks"):
            read_part(out, "train")
        again = run(path, networks, out)
        finished = sum(progress.done == stop_at for progress in told for stop_at in (8, 16, 24, 30))
        assert again.made <= 30 - 8 * max(finished - 1, 0)
        rows, found = read_part(out, "train")
        np.testing.assert_array_equal(rows, expected)
        np.testing.assert_array_equal(found, labels)
        assert again.parts == whole.parts


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cut_off(path: Path, networks: Networks, out: Path) -> None:
    """All chunks are there, but the part is not finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dptune.features.extraction.write_index", _die)
        with pytest.raises(_Killed):
            run(path, networks, out)


def test_finished_features_stay_whatever_becomes_of_the_pictures(
    folder: Folder, network, tmp_path: Path
) -> None:
    """Runs point to them."""
    path, networks, out = folder(), network(), tmp_path / "f"
    run(path, networks, out)
    before = files_in(out)

    def refused() -> None:
        with pytest.raises(FolderTaken, match="give another folder"):
            run(path, networks, out)
        assert files_in(out) == before

    first = path / "class1" / "003.png"
    whole = first.read_bytes()
    Image.fromarray(noise(777)).save(first)
    refused()
    first.write_bytes(whole)
    (path / "class0" / "more.png").write_bytes(whole)
    refused()
    (path / "class0" / "more.png").unlink()
    first.rename(path / "class1" / "zzz.png")  # rows would stand in another order
    refused()
    (path / "class1" / "zzz.png").rename(first)
    assert run(path, networks, out).made == 0
    grouped = {"train": _Grouped(train(path))}
    with pytest.raises(FolderTaken):
        write_features(grouped, networks, out, source="pets")


def test_changed_groups_are_noticed(folder: Folder, network, tmp_path: Path) -> None:
    path, networks, out = folder(), network(), tmp_path / "f"
    grouped = _Grouped(train(path))
    before = write_features({"train": grouped}, networks, out, source="pets").parts["train"]
    grouped.group_numbers[7] ^= 1
    with pytest.raises(FolderTaken):
        write_features({"train": grouped}, networks, out, source="pets")
    other = write_features({"train": grouped}, networks, tmp_path / "g", source="pets")
    assert other.parts["train"].fingerprint == before.fingerprint  # they are the same people


def test_a_part_of_the_same_name_with_other_pictures_is_refused_before_anything_is_made(
    folder: Folder, network, tmp_path: Path
) -> None:
    path, networks, out = folder(), network(), tmp_path / "f"
    own, other = train(folder("t1", each=2)), train(folder("t2", each=3))
    write_features({"test": own}, networks, out, source="pets")
    before = files_in(out)
    with pytest.raises(FolderTaken, match="give another folder"):
        write_features({"train": train(path), "test": other}, networks, out, source="pets")
    assert files_in(out) == before
    done = write_features({"train": train(path), "test": own}, networks, out, source="pets")
    assert done.made == 30 and {**before, **files_in(out / "test")} == before


def test_of_what_is_not_finished_a_changed_picture_changes_its_chunk_only(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "SMALL_CHUNK", 8)
    path, networks, out = folder(), network(), tmp_path / "f"
    before = run(path, networks, tmp_path / "before")
    old, _ = read_part(before.folder, "train")
    cut_off(path, networks, out)
    Image.fromarray(noise(777)).save(path / "class1" / "003.png")
    after = run(path, networks, out)
    new, _ = read_part(out, "train")
    assert after.made == 8
    assert (new != old).any(axis=1).tolist() == [number == 13 for number in range(30)]
    assert after.parts["train"].fingerprint != before.parts["train"].fingerprint


def test_of_what_is_not_finished_chunks_of_pictures_that_are_gone_are_removed(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "SMALL_CHUNK", 8)
    path, networks, out = folder(), network(), tmp_path / "f"
    cut_off(path, networks, out)
    for file in (path / "class2").iterdir():
        if file.stem > "003":
            file.unlink()
    again = run(path, networks, out)
    rows, _ = read_part(out, "train")
    assert len(rows) == again.parts["train"].rows == 24
    assert not list((out / "train").glob("000003.*"))


def test_few_pictures_have_small_chunks(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (extraction.SMALL_CHUNK, extraction.CHUNK, extraction._FEW) == (128, 1024, 10_000)
    monkeypatch.setattr(extraction, "SMALL_CHUNK", 4)
    monkeypatch.setattr(extraction, "CHUNK", 16)
    path, networks = folder(), network()
    for few, chunks in ((31, 8), (30, 2)):
        monkeypatch.setattr(extraction, "_FEW", few)
        out = run(path, networks, tmp_path / f"f{few}").folder
        assert len(list((out / "train").glob("*.features.npy"))) == chunks


def test_bad_pictures_are_named_and_nobody_elses_features_change(
    folder: Folder, network, tmp_path: Path
) -> None:
    path, networks = folder(), network()
    good = run(path, networks, tmp_path / "good")
    rows, _ = read_part(good.folder, "train")
    (path / "class0" / "004.png").write_bytes(b"no picture")
    torn = (path / "class2" / "001.png").read_bytes()
    (path / "class2" / "001.png").write_bytes(torn[: len(torn) // 2])
    (path / "class3").mkdir()
    found = run(path, networks, tmp_path / "bad")
    left, labels = read_part(found.folder, "train")
    kept = [number for number in range(30) if number not in (4, 21)]
    assert np.array_equal(left, rows[kept])  # to the last bit
    assert np.array_equal(labels, np.repeat([0, 1, 2], 10)[kept])
    named = {remark.picture: remark.left_out for _, remark in found.remarks}
    assert named["class0/004.png"] and named["class2/001.png"]
    assert any("class3" in name for name in named)
    listed = (found.folder / "remarks.csv").read_text()
    assert "class0/004.png" in listed and "class2/001.png" in listed
    assert run(path, networks, tmp_path / "bad").remarks == found.remarks  # and still are, later


def test_a_picture_that_cannot_be_read_is_an_empty_row(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public facts do not tell of it, and nobody else is held out, or not, because of it."""
    monkeypatch.setattr(extraction, "SMALL_CHUNK", 8)
    path, networks = folder(), network()
    run(path, networks, tmp_path / "good")
    (path / "class0" / "004.png").write_bytes(b"no picture")
    run(path, networks, tmp_path / "bad")
    good, bad = (load_data(tmp_path / name) for name in ("good", "bad"))
    assert bad.public_facts == good.public_facts and bad.count == good.count == 30
    as_they_are = Preprocessing(unit_rows=False)

    def features(data: Data) -> set[bytes]:
        chunks = data.unprotected_rows(as_they_are).chunks()
        return {row.numpy().tobytes() for chunk in chunks for row in chunk.features}

    lost = 0
    for whole, some in zip(good.held_out(3), bad.held_out(3), strict=True):
        assert some.count == whole.count and features(some) <= features(whole)
        lost += len(features(whole) - features(some))
    assert lost == 1


@pytest.mark.parametrize("name", ["features", "targets", "norms", "groups", "numbers"])
@pytest.mark.parametrize("torn", [False, True])
def test_files_that_were_removed_or_torn_are_made_again(
    folder: Folder, network, tmp_path: Path, name: str, torn: bool
) -> None:
    path, networks, out = folder(), network(), tmp_path / "f"
    run(path, networks, out)
    file = out / "train" / f"000000.{name}.npy"
    whole = file.read_bytes()
    file.unlink()
    if torn:
        file.write_bytes(whole[:-8])
    assert run(path, networks, out).made == 30
    assert file.read_bytes() == whole


def test_cut_off_before_the_index_new_rows_do_not_pass_for_the_old_pictures(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, networks, out = folder(), network(), tmp_path / "f"
    cut_off(path, networks, out)
    before = json.loads((out / "features.json").read_text())["parts"]["train"]["fingerprint"]
    Image.fromarray(noise(777)).save(path / "class1" / "003.png")
    for step in ("write_index", "Extracted.write"):  # whichever comes first
        with monkeypatch.context() as patch:
            patch.setattr(f"dptune.features.extraction.{step}", _die)
            with pytest.raises(_Killed):
                run(path, networks, out)
        with pytest.raises(InvalidInput, match="no finished train features"):
            fingerprint_source(out)
        with pytest.raises(InvalidInput, match="no rows"):
            load_data(out)
    run(path, networks, out)
    assert fingerprint_source(out) != before


def _die(*_: object, **__: object) -> None:
    raise _Killed


def test_one_process_at_a_time_makes_features_in_a_folder(
    folder: Folder, network, tmp_path: Path
) -> None:
    path, networks, out = folder(), network(), tmp_path / "f"

    def another(_: Progress) -> None:
        with pytest.raises(InvalidInput, match="another process is making features"):
            run(path, networks, out)

    assert run(path, networks, out, watch=another).made == 30
    assert run(path, networks, out).made == 0  # nothing is left of the lock


def test_rows_that_somebody_reads_do_not_change_under_them(
    folder: Folder, network, tmp_path: Path
) -> None:
    path, networks, out = folder(), network(), tmp_path / "f"
    cut_off(path, networks, out)
    mapped = np.load(out / "train" / "000000.features.npy", mmap_mode="r")
    before = np.array(mapped)
    Image.fromarray(noise(777)).save(path / "class1" / "003.png")
    assert run(path, networks, out).made == 30
    assert np.array_equal(mapped, before)


def test_full_disk_is_reported(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path, networks, out = folder(), network(), tmp_path / "f"
    with monkeypatch.context() as patch:
        patch.setattr("dptune.data.disk.save_array", full)
        with pytest.raises(InvalidInput, match=r"No space left.*the same command continues"):
            run(path, networks, out)
    assert run(path, networks, out).made == 30


def test_where_no_picture_can_be_read_the_error_names_one(network, tmp_path: Path) -> None:
    for kind in ("a", "b"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        (tmp_path / "pets" / kind / "x.png").write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match=r"none of the pictures.*a/x\.png"):
        run(tmp_path / "pets", network(), tmp_path / "f")


def test_a_folder_of_other_features_is_left_alone(folder: Folder, network, tmp_path: Path) -> None:
    path, out = folder(), tmp_path / "f"
    run(path, network(), out)
    before = Extracted.read(out)
    with pytest.raises(InvalidInput, match="give another folder"):
        run(path, network(seed=1), out)
    with pytest.raises(InvalidInput, match="give another folder"):
        write_features({"train": train(path)}, network(), out, source="others")
    assert Extracted.read(out) == before
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("all I have")
    with pytest.raises(InvalidInput, match="holds no features"):
        run(path, network(), mine)
    assert [file.name for file in mine.iterdir()] == ["thesis.txt"]


def test_other_features_of_the_same_pictures_are_the_same_peoples(
    folder: Folder, network, tmp_path: Path
) -> None:
    path = folder()
    one = run(path, network(), tmp_path / "one").parts["train"]
    other = run(path, network(width=9), tmp_path / "other").parts["train"]
    assert one.fingerprint == other.fingerprint
    # Whatever files are called, and in whatever order they come.
    (path / "class0" / "000.png").rename(path / "class0" / "zzz.png")
    (path / "class1" / "inner").mkdir()
    (path / "class1" / "005.png").rename(path / "class1" / "inner" / "1.png")
    renamed = run(path, network(), tmp_path / "renamed").parts["train"]
    assert renamed.fingerprint == one.fingerprint
    assert fingerprint_source(tmp_path / "renamed") == fingerprint_source(tmp_path / "one")
    (path / "class0" / "zzz.png").rename(path / "class1" / "zzz.png")  # another label
    moved = run(path, network(), tmp_path / "moved").parts["train"]
    assert moved.fingerprint != one.fingerprint


def test_one_picture_twice_is_not_another_twice(folder: Folder, network, tmp_path: Path) -> None:
    path = folder()
    found = []
    for number in (1, 2):
        copied = (path / "class0" / f"00{number}.png").read_bytes()
        (path / "class0" / "copy.png").write_bytes(copied)
        found.append(run(path, network(), tmp_path / f"f{number}").parts["train"].fingerprint)
    assert found[0] != found[1]


@pytest.mark.parametrize("changed", ["fingerprint", "rows", "pictures", "made_by"])
def test_what_features_json_says_is_not_trusted(
    folder: Folder, network, tmp_path: Path, changed: str
) -> None:
    out = run(folder(), network(), tmp_path / "f").folder
    told = json.loads((out / "features.json").read_text())
    if changed == "made_by":
        told["made_by"]["name"] = "another"
    else:
        told["parts"]["train"][changed] = "0" * 64 if changed == "fingerprint" else 31
    (out / "features.json").write_text(json.dumps(told))
    for read in (load_data, fingerprint_source):
        with pytest.raises(InvalidInput, match="make the features again"):
            read(out)


def test_chunks_that_differ_from_record_are_reported(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "SMALL_CHUNK", 8)
    path, networks, out = folder(), network(), tmp_path / "f"
    run(path, networks, out)
    place = out / "train"
    for name in ("features", "targets", "groups"):
        file = place / f"000001.{name}.npy"
        whole = file.read_bytes()
        array = np.load(file)
        np.save(file, array[::-1])
        if (array[::-1] == array).all():
            np.save(file, array + 1)
        with pytest.raises(InvalidInput, match="a chunk has changed"):
            load_data(out)
        file.write_bytes(whole)
    load_data(out)
    index = (place / "index.json").read_text()
    fewer = json.loads(index)
    (place / "index.json").write_text(
        json.dumps(fewer | {each: fewer[each][:-1] for each in ("numbers", "counts")})
    )
    with pytest.raises(InvalidInput, match="lists other chunks"):
        load_data(out)
    (place / "index.json").write_text(index)
    (place / "000002.json").write_text("{")
    with pytest.raises(InvalidInput, match="of other pictures"):
        load_data(out)
    assert run(path, networks, out).made == 8
    load_data(out)


def test_several_backbones_stand_side_by_side(folder: Folder, network, tmp_path: Path) -> None:
    path = folder()
    first, second = network(), network(seed=3, width=9, size=16)
    both = Networks([*first.backbones, *second.backbones])
    pictures = train(path)
    joined = features_of(pictures, both).rows
    blocks = [features_of(pictures, each).rows for each in (first, second)]
    assert joined.shape == (30, 15)
    np.testing.assert_allclose(np.linalg.norm(joined, axis=1), 1, rtol=1e-5)
    for block, found in zip(blocks, np.split(joined, [6], axis=1), strict=True):
        unit = block / np.linalg.norm(block, axis=1, keepdims=True)
        np.testing.assert_allclose(found * np.sqrt(2), unit, rtol=1e-4, atol=1e-6)


def test_processes_decode_the_same(folder: Folder, network, tmp_path: Path) -> None:
    path, networks = folder(each=600), network()
    done = run(path, networks, tmp_path / "f")
    rows, _ = read_part(done.folder, "train")
    pictures = train(path)
    here = [features_of(pictures, networks, range(at, at + 50)).rows for at in range(0, 1800, 50)]
    np.testing.assert_allclose(rows, np.concatenate(here), rtol=1e-4, atol=1e-6)


def test_groups_are_kept_beside_the_rows(folder: Folder, network, tmp_path: Path) -> None:
    pictures = train(folder())
    grouped = _Grouped(pictures)
    done = write_features({"train": grouped}, network(), tmp_path / "f", source="pets")
    assert done.parts["train"].groups == ("land", "water")
    assert np.array_equal(read_groups(done.folder, "train"), np.arange(30) % 2)


class _Grouped:
    groups = ("land", "water")

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self.group_numbers = np.arange(len(pictures)) % 2

    def __getattr__(self, name: str) -> object:
        return getattr(self._pictures, name)

    def __len__(self) -> int:
        return len(self._pictures)


def test_networks_are_found_again_or_refused(folder: Folder, network, tmp_path: Path) -> None:
    networks = network()
    made_by = json.loads(json.dumps(networks.made_by))
    again = found_again(made_by)
    assert again.made_by == made_by
    path = Path(networks.backbones[0].name.split(":")[1])
    path.write_text(NETWORK.format(seed=5, width=6, size=20))
    with pytest.raises(InvalidInput, match="is not the one"):
        found_again(made_by)


def test_features_that_are_not_finite_are_refused(folder: Folder, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    source = NETWORK.format(seed=0, width=6, size=20)
    path.write_text(source.replace("nn.ReLU()", "nn.Threshold(1e9, float('inf'))"))
    networks = Networks([find_backbone(f"module:{path}:factory")])
    with pytest.raises(InvalidInput, match="not finite"):
        run(folder(), networks, tmp_path / "f")


@pytest.mark.parametrize("name", ["groups", "numbers"])
def test_damaged_files_beside_rows_are_reported(
    folder: Folder, network, tmp_path: Path, name: str
) -> None:
    out = run(folder(), network(), tmp_path / "f").folder
    for content in (b"", b"no array"):
        (out / "train" / f"000000.{name}.npy").write_bytes(content)
        with pytest.raises(InvalidInput, match="make the features again"):
            read_groups(out, "train") if name == "groups" else load_data(out)


def test_features_that_are_not_finite_are_reported(folder: Folder, network, tmp_path: Path) -> None:
    out = run(folder(), network(), tmp_path / "f").folder
    np.save(out / "train" / "000000.features.npy", np.full((30, 1, 6), "a"))
    with pytest.raises(InvalidInput, match=r"chunk 0 of .* cannot be read"):
        load_data(out)


def test_every_batch_has_one_length_so_that_copies_have_the_same_features(
    folder: Folder, network, tmp_path: Path
) -> None:
    networks, lengths = network(), set()
    module = networks._modules[0]
    module.register_forward_pre_hook(lambda _, given: lengths.add(len(given[0])))
    pictures = train(folder(each=30))
    some = matched(pictures, "some", pictures.classes)
    few = replace(some, labels=some.labels[:7], grouped=some.group_numbers[:7], kept=some.kept[:7])
    run_of = {"train": pictures, "public": few}
    out = write_features(run_of, networks, tmp_path / "f", source="pets").folder
    assert lengths == {networks.batch}
    rows, copies = (read_part(out, part)[0] for part in run_of)
    assert np.array_equal(rows[:7], copies)


def test_ended_decoding_process_is_reported(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object, **__: object) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    monkeypatch.setattr("dptune.features.loading._Spans.__getitem__", ended)
    with pytest.raises(InvalidInput, match=r"the system ended.*the same command continues"):
        run(folder(), network(), tmp_path / "f")


def test_network_that_fails_on_batch_is_reported(folder: Folder, network, tmp_path: Path) -> None:
    networks = network()

    def fail(*_: object) -> None:
        raise KeyError("no such layer")

    networks._modules[0].register_forward_pre_hook(fail)
    with pytest.raises(InvalidInput, match="failed on 64 pictures: KeyError: 'no such layer'"):
        run(folder(), networks, tmp_path / "f")


def test_parts_with_the_same_name_or_the_private_pictures_are_refused(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other, third = folder(), folder("x/shift.1", each=2), folder("y/shift.1", each=2)
    with pytest.raises(InvalidInput, match=r"two shifts are called shift\.1"):
        gather(own, shifts=[other, third])
    monkeypatch.chdir(tmp_path)
    for public in ("pets", own):
        with pytest.raises(InvalidInput, match="are the private pictures themselves"):
            gather("./pets", public=public)


def test_a_shift_is_one_folder_whatever_it_is_called(folder: Folder, tmp_path: Path) -> None:
    own = folder()
    odd = folder(os.fsdecode(b"p\xff"), each=2)
    assert list(gather(own, shifts=[odd])) == ["train", "shift-p\\xff"]
    assert list(gather(own, shifts=[folder("shift.1", each=2)])) == ["train", "shift-shift.1"]


def test_what_cannot_be_opened_is_an_empty_row_too(folder: Folder, network, tmp_path: Path) -> None:
    path, networks = folder(), network()
    run(path, networks, tmp_path / "good")
    (path / "class0" / "004.png").unlink()
    (path / "class0" / "004.png").symlink_to(tmp_path / "nowhere")
    found = run(path, networks, tmp_path / "bad")
    assert [remark.picture for _, remark in found.remarks] == ["class0/004.png"]
    good, bad = (load_data(tmp_path / name) for name in ("good", "bad"))
    assert bad.public_facts == good.public_facts and bad.count == good.count == 30


def test_features_among_the_pictures_are_refused(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, name = folder(), folder("other"), network().backbones[0].name
    (tmp_path / "link").symlink_to(path)
    for out in (path, path / "features", path / "class0" / "f", tmp_path / "link" / "f"):
        with pytest.raises(InvalidInput, match="inside the folder of pictures"):
            extract(path, name, out)
    with pytest.raises(InvalidInput, match="inside the folder of pictures"):
        extract(path, name, other / "f", test=other)
    monkeypatch.chdir(path)
    with pytest.raises(InvalidInput, match="inside the folder of pictures"):
        extract(".", name, "features")
    assert len(list(tmp_path.rglob("features*"))) == 0
    assert extract(path, name, tmp_path / "pets-features").made == 30


def test_no_memory_is_not_a_damaged_picture(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    path, networks, out = folder(), network(), tmp_path / "f"
    with monkeypatch.context() as patch:
        patch.setattr("PIL.ImageFile.ImageFile.load", none)
        with pytest.raises(MemoryError):
            decode(train(path).content(0))
        with pytest.raises(InvalidInput, match="not enough memory"):
            run(path, networks, out)
    done = run(path, networks, out)
    assert done.made == done.parts["train"].rows == 30


def test_names_too_long_for_the_file_system_are_refused(folder: Folder, tmp_path: Path) -> None:
    path, name = folder(), "x" * 5000
    for wrong in ({"images": name}, {"test": name}, {"public": name}, {"shifts": [name]}):
        with pytest.raises(InvalidInput, match="does not exist"):
            gather(**{"images": path} | wrong)


def test_few_batches_wait_in_shared_memory(
    folder: Folder, network, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []

    def loader(_: object, **options: object) -> list[Batch]:
        asked.append(options)
        return []

    monkeypatch.setattr(loading, "DataLoader", loader)
    monkeypatch.setattr(loading, "_FEW", 1)
    networks = network()
    list(loading.batches(train(folder()), networks.transforms, [range(30)], "cpu"))
    assert asked[0]["num_workers"] == 1 and asked[0]["prefetch_factor"] == 2


def test_rows_that_stay_on_disk_must_be_of_the_same_pictures_too(
    folder: Folder, network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptune.data.extracted._IN_MEMORY", 0)
    path, networks = folder(), network()
    others, out = folder("others", each=4), tmp_path / "f"
    for number, file in enumerate(sorted(others.rglob("*.png"))):
        Image.fromarray(noise(5000 + number)).save(file)
    parts = {"train": train(path), "test": train(others), "shift-x": train(others)}
    write_features(parts, networks, out, source="pets")
    data = load_data(out, test=out, shifts=[out / "shift-x"])
    assert data.count == 30 and data.classes == ("class0", "class1", "class2")
    assert list(data.shifts) == ["x"]
    Image.fromarray(noise(777)).save(path / "class1" / "003.png")
    other = run(path, networks, tmp_path / "other").folder
    (out / "train" / "000000.json").write_bytes((other / "train" / "000000.json").read_bytes())
    with pytest.raises(InvalidInput, match="of other pictures"):
        load_data(out)
