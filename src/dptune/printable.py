"""Text from outside, made safe to show: on a terminal, in messages and in Markdown.

Names in a file can hold escape codes that repaint a terminal, marks that reverse the direction of
reading, line breaks that fake a line of ours, and Markdown.
"""

import re

# With what a backslash before it makes a plain sign: marks, tags, entities, mentions, formulas.
_MARKS = re.compile(r"[\\`*_\[\]<>|#&~$@]")
# GitHub makes a link of a bare address.
_ADDRESSES = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)


def printable(text: str) -> str:
    r"""One line that shows `text`; what is not printable appears as its escape sequence.

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
    """The same for text of several lines, whose line breaks stay."""
    return "\n".join(map(printable, text.split("\n")))


def markdown(text: str) -> str:
    r"""One line of Markdown that shows `text` as it is.

    >>> print(markdown("[link](https://a.b) &amp; <b>"))
    \[link\](https\://a.b) \&amp; \<b\>
    """
    return _ADDRESSES.sub(r"\\\g<0>", _MARKS.sub(r"\\\g<0>", printable(text)))
