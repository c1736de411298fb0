"""The page for contributors says what the import contract says, and the contract covers all."""

from collections import Counter
from pathlib import Path

from PIL import Image

from docs.pictures import layers

ROOT = Path(__file__).parent.parent
FACE = {"__init__", "__main__"}  # of the package: they stand above all floors
AGAIN = "write it again: python docs/pictures/layers.py"


def test_every_module_of_the_package_is_on_one_floor() -> None:
    package = ROOT / "src" / "dptune"
    there = {path.stem for path in package.glob("*.py")} - FACE
    there |= {path.parent.name for path in package.glob("*/__init__.py")}
    placed = Counter(room.name for floor in layers.floors() for room in floor)
    assert placed == Counter(there)
    assert len(layers.floors()) <= 10


def test_every_room_says_what_it_holds_in_a_line() -> None:
    for floor in layers.floors():
        for room in floor:
            assert 10 < len(room.about) < 100, room


def test_the_page_shows_the_layers_of_the_contract() -> None:
    shown = layers.PAGE.read_text().partition(layers.BEGIN)[2].partition(layers.END)[0]
    assert shown == layers.in_letters(layers.floors()), AGAIN


def test_the_picture_was_drawn_from_the_same_layers() -> None:
    with Image.open(layers.PICTURE) as picture:
        described = picture.info["Description"]
    assert described == layers.in_letters(layers.floors()), AGAIN


def test_letters_have_a_line_for_every_room_and_an_arrow_between_floors() -> None:
    house = [
        [layers.Room("top", "What is on top.")],
        [layers.Room("left", "The one."), layers.Room("right", "The other.")],
    ]
    assert layers.in_letters(house) == (
        "┌────────────────────────┐\n"
        "│ top    What is on top. │\n"
        "├────────────▼───────────┤\n"
        "│ left   The one.        │\n"
        "│ right  The other.      │\n"
        "└────────────────────────┘\n"
    )


def test_every_room_is_in_the_picture_and_fits_its_box() -> None:
    axes = layers.draw(layers.floors()).axes[0]
    assert {room.name for floor in layers.floors() for room in floor} <= {
        text.get_text() for text in axes.texts
    }
    boxes = [patch.get_window_extent() for patch in axes.patches]
    for text in axes.texts[2:]:  # after the title and the sentence below it
        place = text.get_window_extent()
        if text.get_text():  # not an arrow
            assert any(
                box.x0 < place.x0 < place.x1 < box.x1 - 10 and box.y0 < place.y0 < place.y1 < box.y1
                for box in boxes
            ), text.get_text()
