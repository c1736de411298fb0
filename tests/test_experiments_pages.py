"""Public sets as files, and pages whose words stand in them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dptune.errors import InvalidInput
from experiments import figures, lines, pages
from experiments.default import adult_magic, against, directions, drawn_page, gains
from experiments.language import page as language_page
from experiments.law import unseen
from experiments.modules import page as modules_page
from experiments.sets import files
from experiments.sets.public import PublicSet, public_sets, set_of
from experiments.sets.readers import READY, TABLES
from experiments.tables import page as tables_page
from experiments.vision import page as vision_page
from support.commands import called

TABLE = pd.DataFrame(
    {
        "size": [0.0, 5.0, np.nan, 20.0, 10.0],
        "kind": ["a", "b", "a", None, "b"],
        "rownames": range(5),
        "told": ["yes", "no", "yes", "no", "else"],
    }
)


@pytest.fixture
def some_set(monkeypatch: pytest.MonkeyPatch) -> PublicSet:
    monkeypatch.setitem(TABLES, "csv", lambda folder, name: TABLE)
    return PublicSet(
        "some",
        "fit",
        "nowhere",
        "a task",
        "csv some",
        label="told",
        classes=("no", "yes"),
        ranges=(("size", 0, 10),),
        categories=(("kind", "a", "b"),),
        gaps=("size",),
    )


def rows_in(arrays: dict[str, Any]) -> list[list[float]]:
    rows = np.concatenate([arrays["X_train"], arrays["X_test"]]) * arrays["scale"]
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    return sorted([*row, label] for row, label in zip(rows.round(2).tolist(), labels, strict=True))


def test_every_declared_set_has_a_reader_and_a_row_of_the_page() -> None:
    page = (pages.BENCHMARKS / "SETS.md").read_text()
    for name, each in public_sets().items():
        assert each.read.split()[0] in TABLES.keys() | READY.keys(), name
        assert f"| {name} | {each.source} | {each.task} | " in page
        assert f"| {name} | {each.declared()} |" in page
    assert set_of("digits").role == "fit"
    with pytest.raises(InvalidInput, match="no set called 'roses'"):
        set_of("roses")


def test_declared_ranges_are_mapped_clipped_and_marked(some_set: PublicSet) -> None:
    assert rows_in(some_set.build(Path())) == [
        [-1, 0, 1, 0, 1],
        [0, 0, 0, 1, 0],
        [0, 1, 1, 0, 1],  # a gap lies in the middle
        [1, 0, 0, 0, 0],  # clipped, and of no category
    ]
    assert some_set.declared() == "size 0 to 10; kind (2 values); marks for missing size"


def test_a_table_as_it_comes_leaves_out_gaps_and_what_is_dropped(some_set: PublicSet) -> None:
    plain = replace(some_set, ranges=(), categories=(), gaps=(), drop=("size",))
    assert rows_in(plain.build(Path())) == [[0, 1], [0, 1], [1, 0]]
    over = replace(plain, label="size", over=4.0, classes=(), drop=("told",))
    assert rows_in(over.build(Path())) == [[0, 0], [1, 1], [1, 1]]


def test_a_small_table_keeps_its_numbers(some_set: PublicSet) -> None:
    arrays = some_set.small(Path(), 2)
    assert arrays is not None and len(arrays["X_train"]) == 2
    assert [row[0] for row in rows_in(arrays)] == [0, 5, 5, 20]  # a gap is the median
    assert some_set.small(Path(), 4) is None


def test_sets_are_built_and_split_anew_by_verbs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ["sets", "build", str(tmp_path), str(tmp_path / "sets"), "digits"]
    assert called(sets, capsys, monkeypatch)[0] == 0
    file = tmp_path / "sets" / "fit" / "digits.npz"
    built = files.load(file)
    assert built["X_train"].shape == (1438, 64) and built["scale"][0] == np.float32(1 / 16)
    verb = ["sets", "resplit", str(file), str(tmp_path / "splits"), "2"]
    assert called(verb, capsys, monkeypatch)[0] == 0
    one, other = (files.load(tmp_path / "splits" / f"digits-{n}.npz") for n in (0, 1))
    assert not (one["y_test"] == other["y_test"]).all()
    assert sorted(rows_in(one)) == sorted(rows_in(built))
    code, _, said = called([*sets[:-1], "roses"], capsys, monkeypatch)
    assert code == 2 and "no set called 'roses'" in said


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stored pages, which pictures are not drawn for."""
    for file in pages.COMPARED.iterdir():
        if file.suffix in (".json", ".md"):
            shutil.copy(file, tmp_path)
    monkeypatch.setattr(figures, "png", lambda picture: b"")
    monkeypatch.setattr(gains, "COMPARED", tmp_path)
    for module, name in (
        (drawn_page, "PAGE"),
        (unseen, "PAGE"),
        (against, "FIGURES"),
        (adult_magic, "FIGURES"),
    ):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).name)
    return tmp_path


@pytest.mark.parametrize("name", [*gains.PAGES, "drawn", "unseen", "against", "adult-magic"])
def test_stored_pages_say_what_is_stored(compared: Path, name: str) -> None:
    if name in gains.PAGES:
        gains.write_page(name, [], [])
    elif name == "against":
        against.write_figures(against.read_figures())
    elif name == "adult-magic":
        adult_magic.write_figures(adult_magic.read_figures())
    else:
        (unseen.write_page([]) if name == "unseen" else drawn_page.write(None))
    for file in (f"{name}.md", f"{name}.json"):
        assert (compared / file).read_text() == (pages.COMPARED / file).read_text()


@pytest.mark.parametrize("name", ["language", "modules", "tables", "vision"])
def test_stored_pages_of_cells_say_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(figures, "png", lambda picture: b"drawn")
    folder = shutil.copytree(pages.BENCHMARKS / name, tmp_path / name)
    written = {
        "language": language_page.write_page,
        "modules": modules_page.write_page,
        "tables": tables_page.write_page,
        "vision": lambda out: vision_page.write_page(out, lambda _: None),
    }[name](folder)
    assert written.read_text() == (pages.BENCHMARKS / name / f"{name}.md").read_text()


def test_figures_take_the_place_of_older_ones_and_words_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Words\n\n")
    for figures_now in ("one\n", "two\n"):
        pages.write_below(page, figures_now)
    assert page.read_text().startswith("# Words\n\n<!--")
    assert page.read_text().endswith("-->\n\ntwo\n") and "one" not in page.read_text()


def test_directions_are_measured_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {"default": (60.0, 62.0), "without": (59.0, 61.0)}
    monkeypatch.setattr(directions, "measure", lambda cell, *_: made)
    asked = ["directions", "some.npz", "--out", str(tmp_path), "--repeats", "2"]
    code, page, said = called(asked, capsys, monkeypatch)
    assert code == 0 and "3 of 3: some" in said
    assert "| some | 0.1 | 61.00 | 60.00 | +1.00 ± 1.41 |" in page
    monkeypatch.setattr(directions, "measure", lambda *_: pytest.fail("measured again"))
    assert called(asked, capsys, monkeypatch)[:2] == (0, page)
    (line, *_) = (tmp_path / "directions.jsonl").read_text().splitlines()
    assert json.loads(line)["cell"]["file"] == "some.npz"
    assert len(lines.read(tmp_path, directions.VERB, directions.Cell)) == 3
