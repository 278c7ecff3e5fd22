"""Which texts may be shown: one rule for the texts of files and domains, and one function for every output.

A text of unknown origin is shown next to what this program says, on a terminal, in a report or in a drawing. A line break in
it could add a line that looks like the program's own; an escape sequence could erase one; a bidirectional control could
reorder one; a character without a shape could make two different names look the same. The rule refuses such texts on
input (`flaw_of`). What cannot be refused, such as a column's name in an analyst's own sample, is escaped on output
(`one_line`, `escaped`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

JOINERS = "\u200c\u200d"  # which Persian, Indic scripts and emoji need within words
_SELECTORS = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"  # variants of a character: of emoji and Han ideographs
_BLANK = re.compile(  # without a shape, and of no category that says so: fillers and marks that nothing shows
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00016fe4\U0001d159\U000e0000-\U000e0fff]"
)
_SPACES = re.compile(r"^\s|\s$|\s\s|[\u1680\u2000-\u200a\u205f]")  # that cannot be seen, or could move a line
_UNSHOWN = {
    "Cc": "a control character", "Cf": "an invisible format character", "Cs": "half of a surrogate pair",
    "Co": "a private-use character", "Cn": "an unassigned character", "Zl": "a line separator",
    "Zp": "a paragraph separator",
}  # fmt: skip
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# letters that joiners and selectors may follow
_LETTER = "[^\x00-\u058f\u180b-\u180f\u1e00-\u206f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
_NEEDED = re.compile(f"(?<={_LETTER})(?:{_SELECTORS}?[{JOINERS}](?={_LETTER})|{_SELECTORS})")
# user@ or user:password@, whose password may have a slash; the query of a signed URL; settings as libpq, ODBC and DuckDB take them
SECRET = re.compile(
    r":/+[^/]*@|:/+.*:.*@|^[^/\\]+:[^/\\]+@|[?&;#][^/]*=|^\s*\w+\s*=\s*\S+\s+\w+\s*=|(pass|pwd|token|secret)\w*\s*=", re.IGNORECASE
)


def flaw_of(text: str) -> str | None:
    """Why a text must not be shown as it is, in words; None for a text that may be.

    A text may have every character that has a shape, and spaces. It may not have control characters, line or paragraph
    separators, bidirectional controls, other invisible characters, half surrogate pairs, or private-use and unassigned
    characters. Zero-width joiners and variation selectors are allowed where scripts need them (Persian, Indic scripts, Han,
    emoji): after one of their characters, and a joiner before another one. Within Latin, Greek or Cyrillic words they would make
    two names that look the same.

    >>> flaw_of("naïve 東京 می\\u200cخواهم"), flaw_of("age\\nprivacy"), flaw_of("in\\u200bcome")
    (None, 'a control character (U+000A)', 'an invisible format character (U+200B)')
    """
    if text.isascii():
        hidden = None if text.isprintable() else next(c for c in text if not c.isprintable())
    else:
        hidden = next((c for c in _NEEDED.sub("", text) if _is_unshown(c)), None)
    return None if hidden is None else f"{_kind(hidden)} (U+{ord(hidden):04X})"


def spacing_flaw_of(text: str) -> str | None:
    """Why a name or level cannot be distinguished in print, in words; None if single spaces separate the words.

    A run of spaces could move the end of a name to the start of a terminal's next line, where it would look like a line of
    ours; a space at an end, or a space of unusual width, could make two names that look the same.

    >>> spacing_flaw_of("hours per week"), spacing_flaw_of("age "), spacing_flaw_of("age  privacy")
    (None, 'a space at an end, two spaces in a row, or a space of unusual width', 'a space at an end, two ...')
    """
    found = _SPACES.search(text)
    return None if found is None else "a space at an end, two spaces in a row, or a space of unusual width"


def shortened(text: str, most: int) -> str:
    """At most this many characters of a text, the last of them an ellipsis where some are left out.

    >>> shortened("hours-per-week", 8)
    'hours-p…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: object) -> str:
    r"""The text of anything, on one line, each character that has no shape written as its escape.

    For names from strangers or a file system that were not checked. Joiners and selectors stay where scripts need them.

    >>> print(one_line("age\nprivacy \x1b[2J"))
    age\nprivacy \x1b[2J
    """
    line = escaped(str(text)).replace("\n", "\\n")
    return line if flaw_of(line) is None else line.translate({ord(c): _escape(c) for c in set(line) if flaw_of(c)})


def shown(source: object) -> str:
    """What a message says of a source: its name, unless that is not a file and looks like an address with a secret."""
    is_secret = SECRET.search(str(source)) and not os.path.exists(str(source))  # False for a name that is too long
    return "the address, which seems to hold a password and is not repeated here" if is_secret else str(source)


def escaped(text: str) -> str:
    r"""Text of several lines, each character but a line break that has no shape written as its escape.

    The last function on every output: whatever the text is, a terminal shows it and obeys nothing in it.

    >>> print(escaped("a line\nand \x9b2J another"))
    a line
    and \x9b2J another
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return text.translate({ord(c): _escape(c) for c in set(text) - {"\n"} if is_hidden(c)})


def replaced(text: str) -> str:
    """Text of as many characters, white space as spaces and others without a shape as U+FFFD; joiners and selectors stay.

    >>> replaced("a\\u202eb\\tc")
    'a�b c'
    """
    return text.translate({ord(c): " " if c in "\t\r\n" else "\ufffd" for c in set(text) if is_hidden(c)})


def is_hidden(character: str) -> bool:
    """Whether a character has no shape, or changes its surroundings; joiners and variation selectors do not count.

    >>> [is_hidden(c) for c in "a\\u00a0\\u200d\\u202e\\x1b"]
    [False, False, False, True, True]
    """
    return _is_unshown(character) and character not in JOINERS and re.match(_SELECTORS, character) is None


def _is_unshown(character: str) -> bool:
    return unicodedata.category(character) in _UNSHOWN or _BLANK.match(character) is not None


def _kind(character: str) -> str:
    if character in _BIDIRECTIONAL:
        return "a bidirectional control"
    return _UNSHOWN.get(unicodedata.category(character), "an invisible character")


def _escape(character: str) -> str:
    return ascii(character)[1:-1]


def other_separator(header: Sequence[Any]) -> str | None:
    """The semicolon or tab in the one name of a header that was read with commas; None where there is no such name."""
    return next((mark for mark in (";", "\t") if len(header) == 1 and mark in str(header[0])), None)


class Printed:
    """Of a result that IPython and notebooks show as `print` does, notes included."""

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{escape(str(self))}</pre>'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,), widest: int = 1000) -> list[str]:
    """Lines of a table of texts, columns to the right or, these, to the left; a text beyond `widest` moves its own line alone."""
    widths = [min(max(map(len, column)), widest) for column in zip(*rows, strict=True)]
    form = "  ".join(f"{{:{'<' if i in left else '>'}{width}}}" for i, width in enumerate(widths))
    return [form.format(*row).rstrip() for row in rows]


def on_screen(rows: Sequence[Sequence[str]], least: int, **layout: Any) -> tuple[list[str], str]:
    """Lines of `aligned`, and ""; of the first `least` columns, and which are left out, where a terminal would break the lines."""
    lines = aligned(rows, **layout)
    if not sys.stdout.isatty() or max(map(len, lines)) <= shutil.get_terminal_size().columns:
        return lines, ""
    narrow = aligned([row[:least] for row in rows], **layout)
    return narrow, f"; a wider terminal also shows {', '.join(rows[0][least:])}"
