"""The layers of dptune, drawn from the import contract and from the first line of every room.

    python docs/pictures/layers.py

writes layers.png and the same in letters into architecture.md. Tests fail where they are not what
this would write.
"""

import ast
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "design" / "architecture.md"
PICTURE = Path(__file__).with_name("layers.png")
PACKAGE = "dptune"
BEGIN, END = "<!-- layers -->\n```\n", "```\n<!-- /layers -->"

_WIDTH, _DOTS_PER_INCH = 11.5, 150
_LETTERS_AN_INCH = 14.0
_INK, _FAINT, _EDGE = "#1f2933", "#52606d", "#9aa5b1"
# From what people touch down to the words that everything is written in.
_COLORS = (
    *("#e3f0fb", "#d5ebf5", "#ffe3b8", "#e2f3e4", "#dcefd6"),
    *("#f1ecf9", "#ece6f5", "#e8e3f0", "#e7e4ed", "#e6e6ea"),
)


class Room(NamedTuple):
    """A module or folder of the package, and what it says of itself."""

    name: str
    about: str


def floors() -> list[list[Room]]:
    """The rooms of every layer, the highest first."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (
        one["layers"]
        for one in contract["contracts"]
        if one["type"] == "layers" and PACKAGE not in one["layers"]
    )
    return [
        [_room(name.strip().removeprefix(f"{PACKAGE}.")) for name in layer.split("|")]
        for layer in layers
    ]


def _room(name: str) -> Room:
    folder = ROOT / "src" / PACKAGE / name
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    about = ast.get_docstring(ast.parse(file.read_text())) or ""
    return Room(name, " ".join(about.partition("\n\n")[0].replace("`", "").split()))


def in_letters(house: Sequence[Sequence[Room]]) -> str:
    """The layers as text, one line a room."""
    rooms = [room for floor in house for room in floor]
    name, about = (max(len(room[place]) for room in rooms) for place in (0, 1))
    inside = name + about + 4
    middle = inside // 2
    between = f"├{'─' * middle}▼{'─' * (inside - middle - 1)}┤\n"
    blocks = [
        "".join(f"│ {room.name:{name}}  {room.about:{about}} │\n" for room in floor)
        for floor in house
    ]
    return f"┌{'─' * inside}┐\n{between.join(blocks)}└{'─' * inside}┘\n"


def draw(house: Sequence[Sequence[Room]]) -> Figure:
    """The layers as a picture."""
    gap, heights = 0.34, [_height(floor) for floor in house]
    tall = sum(heights) + gap * (len(house) - 1) + 1.35
    figure = Figure(figsize=(_WIDTH, tall), dpi=_DOTS_PER_INCH)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, _WIDTH), ylim=(0, tall))
    axes.axis("off")
    axes.text(
        0.4,
        tall - 0.42,
        "The layers of dptune",
        fontsize=17,
        weight="bold",
        color=_INK,
        va="center",
    )
    axes.text(
        0.4,
        tall - 0.76,
        "A room imports from the floors below it only, never from its neighbours.",
        fontsize=10.5,
        color=_FAINT,
        va="center",
    )
    top = tall - 1.05
    for number, (floor, height) in enumerate(zip(house, heights, strict=True)):
        _floor(axes, floor, top, height, _COLORS[number % len(_COLORS)])
        if number < len(house) - 1:
            axes.annotate(
                "",
                xy=(_WIDTH / 2, top - height - gap + 0.03),
                xytext=(_WIDTH / 2, top - height - 0.03),
                arrowprops={"arrowstyle": "-|>", "color": _EDGE, "linewidth": 1.6},
            )
        top -= height + gap
    return figure


def _width(floor: Sequence[Room]) -> float:
    """Of one room."""
    return (_WIDTH - 0.8 - 0.22 * (len(floor) - 1)) / len(floor)


def _lines(room: Room, width: float) -> list[str]:
    """As few as fit, and of about one length."""
    widest = int(_LETTERS_AN_INCH * (width - 0.34))
    fewest = len(textwrap.wrap(room.about, widest))
    narrow = (textwrap.wrap(room.about, letters) for letters in range(20, widest + 1))
    return next(lines for lines in narrow if len(lines) == fewest)


def _height(floor: Sequence[Room]) -> float:
    return 0.58 + 0.2 * max(len(_lines(room, _width(floor))) for room in floor)


def _floor(axes: Axes, floor: Sequence[Room], top: float, height: float, color: str) -> None:
    width, left = _width(floor), 0.4
    for room in floor:
        axes.add_patch(
            FancyBboxPatch(
                (left, top - height),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=0.1",
                facecolor=color,
                edgecolor=_EDGE,
                linewidth=1.1,
            )
        )
        axes.text(
            left + 0.17, top - 0.27, room.name, fontsize=13, weight="bold", color=_INK, va="center"
        )
        axes.text(
            left + 0.17,
            top - 0.46,
            "\n".join(_lines(room, width)),
            fontsize=9.5,
            color=_FAINT,
            va="top",
            linespacing=1.35,
        )
        left += width + 0.22


def main() -> None:
    house = floors()
    text = in_letters(house)
    # Tests read this back: the picture cannot fall behind unseen.
    draw(house).savefig(PICTURE, metadata={"Description": text})
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{text}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
