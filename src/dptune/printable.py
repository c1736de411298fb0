"""Untrusted text made safe for terminals, messages and Markdown.

Names in a file can contain escape codes that repaint a terminal, marks that reverse the reading
direction, line breaks that imitate a line of ours, and Markdown.
"""

import re

# Signs that a backslash escapes: marks, tags, entities, mentions, formulas.
_MARKS = re.compile(r"[\\`*_\[\]<>|#&~$@]")
# GitHub turns a bare address into a link.
_ADDRESSES = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)


def printable(text: str) -> str:
    r"""One line that shows `text`, with escape sequences for unprintable characters.

    >>> print(printable("caf\u00e9 \x1b[2J \u202e\n"))
    café \x1b[2J \u202e\n
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def printable_lines(text: str) -> str:
    """The same for several lines; line breaks are kept."""
    return "\n".join(map(printable, text.split("\n")))


def markdown(text: str) -> str:
    r"""One line of Markdown that shows `text` literally.

    >>> print(markdown("[link](https://a.b) &amp; <b>"))
    \[link\](https\://a.b) \&amp; \<b\>
    """
    return _ADDRESSES.sub(r"\\\g<0>", _MARKS.sub(r"\\\g<0>", printable(text)))
