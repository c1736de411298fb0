"""Pages: links lead somewhere, lines have one width, words are those that we use."""

import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from support import command_line_page

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for folder in (
        ROOT,
        ROOT / "docs",
        ROOT / "benchmarks",
        ROOT / "configs",
        ROOT / "examples",
        ROOT / "experiments",
    )
    for page in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
WIDTH = 100
RETIRED = Path(__file__).parent / "support" / "retired_words.txt"
MADE = {"command-line.md", "table-errors.md"}  # from help and messages
MODULES = sorted((ROOT / "src").rglob("*.py"))
PROSE = [page for page in PAGES if page.is_relative_to(ROOT / "docs") or page.parent == ROOT]


@cache
def headings(page: Path) -> set[str]:
    """As GitHub names them in links."""
    found = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in found]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if link.startswith(("http://", "https://")):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and heading not in headings(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    other, page = tmp_path / "other.md", tmp_path / "page.md"
    other.write_text("# What `it` is, in [short](x.md)\n")
    page.write_text("[a](other.md#what-it-is-in-short) [b](other.md#what) [c](none.md) [d](#me)\n")
    assert dead_links(page) == ["other.md#what", "none.md", "#me"]


def prose(page: Path) -> str:
    """Without the picture of the layers, which is made from docstrings."""
    return re.sub(r"<!-- layers -->.*<!-- /layers -->", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_have_one_width(page: Path) -> None:
    """But for tables and code."""
    lines = re.sub(r"^ *```.*?^ *```", "", prose(page), flags=re.M | re.S).splitlines()
    text = [line for line in lines if not re.match(r" *\||!\[| {4}", line)]
    assert [line for line in text if len(line) > WIDTH] == []


def retired_words(text: str) -> list[str]:
    """The retired phrases that stand in a text."""
    listed = [line for line in RETIRED.read_text().splitlines() if not line.startswith("#")]
    return [
        phrase
        for phrase, _, _ in (line.partition(" -> ") for line in listed)
        if re.search(
            rf"(?<![\w-]){re.escape(phrase).replace(chr(92) + ' ', chr(92) + 's+')}(?![\w-])",
            text,
            re.IGNORECASE,
        )
    ]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_uses_a_retired_word(page: Path) -> None:
    if page.name in MADE:
        pytest.skip("made from help and messages")
    assert retired_words(prose(page)) == []


# Labels of payments and files of earlier versions keep their words, which ledgers hold.
STORED = ("rows of unlike numbers", "final run, leg ", '"legs"')


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_docstring_comment_or_message_uses_a_retired_word(module: Path) -> None:
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None)}
    with module.open("rb") as file:
        text = " ".join(
            token.string for token in tokenize.tokenize(file.readline) if token.type in kinds
        )
    for label in STORED:
        text = text.replace(label, "")
    assert retired_words(text) == []


def test_retired_words_are_found() -> None:
    assert retired_words("It COSTS\nnothing; a leg-like thing.") == ["costs nothing"]


def test_every_page_of_docs_is_listed() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert pages - listed == {index}


def test_the_page_of_the_command_line_is_what_the_help_says() -> None:
    made = "PYTHONPATH=tests python -m support.command_line_page"
    assert command_line_page.PAGE.read_text() == command_line_page.page(), made
