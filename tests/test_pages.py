"""Every link of every page leads to a file and, where it names one, to a heading there."""

import re
from functools import cache
from pathlib import Path

import pytest

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
