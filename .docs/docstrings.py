"""Docstrings as Markdown: their lists of names as tables, their examples as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_ENTRY = re.compile(r"(\w[^\s].{0,28}?|\w+) {2,}(\S.*)")


class AsMarkdown(Extension):
    """Rewrites every docstring once, when it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring whose paragraphs of "name   what it is" are tables, and whose examples are fenced.

    >>> as_markdown("epsilon  of the guarantee;\\n         at most 1.").splitlines()[-1]
    '| `epsilon` | of the guarantee; at most 1. |'
    """
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text.strip()))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if lines[0].lstrip().startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if not _ENTRY.fullmatch(lines[0]):
        return text
    rows: list[list[str]] = []
    for line in lines:
        if entry := _ENTRY.fullmatch(line):
            rows.append([entry[1], entry[2]])
        elif rows:
            rows[-1][1] += " " + line.strip()
    cells = (f"| `{name}` | {what.replace('|', chr(92) + '|')} |" for name, what in rows)
    return "\n".join(["| | |", "|---|---|", *cells])
