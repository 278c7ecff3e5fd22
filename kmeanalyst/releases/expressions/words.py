"""The error of expressions, and the words its messages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.texts import replaced

WORDS = ("and", "or", "not", "in", "true", "false", "True", "False")


class ExpressionError(ValueError):
    """An expression cannot be read or does not fit the domain; the message points at the position of the mistake.

    text      the expression.
    position  where in it the mistake starts, counted in characters from 0.
    """

    def __init__(self, message: str, text: str = "", position: int = 0, end: int = 0) -> None:
        super().__init__(message + (pointed(text, position, end) if text else ""))
        self.text = text
        self.position = position


def short(text: str, most: int = 60) -> str:
    """Text cut to a length, safe to show."""
    return replaced(text if len(text) <= most else text[: most - 3] + "...")


def pointed(text: str, start: int, end: int) -> str:
    """The line of the text with the mistake, cut to a width, and carets under it."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start) if "\n" in text[start:] else len(text)
    left, right = max(line_start, start - 50), min(line_end, start + 70)
    before, after = "..." if left > line_start else "", "..." if right < line_end else ""
    carets = "^" * max(1, min(end, right) - start)
    return f"\n    {before}{replaced(text[left:right])}{after}\n    {' ' * (len(before) + start - left)}{carets}"


def written(name: str) -> str:
    """A column's name as a message shows it: like `column`, but short and safe to show."""
    return column(name, short)


def quoted(text: str) -> str:
    """A text as a message shows it: like `literal`, but short and safe to show."""
    return literal(text, short)


def column(name: str, shown: Callable[[str], str] = str) -> str:
    """A column's name as the grammar reads it back, whatever its length: for expressions."""
    if not isinstance(name, str):
        raise TypeError(f"a column is named by its text, got a {type(name).__name__}. Write its name in quotes.")
    plain = name.isidentifier() and name not in WORDS
    return shown(name) if plain else "`" + shown(name.replace("`", "``")) + "`"


def literal(text: str, shown: Callable[[str], str] = str) -> str:
    """A text as the grammar reads it back, whatever its length: for expressions."""
    quote = '"' if "'" in text and '"' not in text else "'"
    return quote + shown(text.replace(quote, quote * 2)) + quote


def listed(words: Sequence[str], most: int = 12) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def names(names: Iterable[Any]) -> str:
    return listed([written(str(name)) for name in names])


def nearest(word: str, words: Sequence[str]) -> list[str]:
    likeness = difflib.SequenceMatcher(b=word[:100].lower(), autojunk=False)

    def ratio(candidate: str) -> float:
        likeness.set_seq1(candidate[:100].lower())
        return likeness.ratio()

    return sorted(words[:1000], key=ratio, reverse=True) + list(words[1000:])


def close(word: str, words: Sequence[str]) -> str | None:
    """The word most like `word`; None if no word is like it."""
    best = nearest(word, words)[0]
    return best if difflib.get_close_matches(word[:100].lower(), [best[:100].lower()]) else None


def example(column: Column) -> str:
    name = written(column.name)
    if isinstance(column, Date):
        return f"{name} >= '{column.lower}'"
    if isinstance(column, Text):
        return f"{name} == {quoted(column.symbols[: min(3, column.length)])}"
    if isinstance(column, Boolean):
        return f"{name} == true"
    return f"{name} == {quoted(column.levels[0])}" if isinstance(column, Categorical) else f"{name} > 0"
