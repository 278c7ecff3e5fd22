"""Lines of R for an exported folder that run as they are printed: how its files are read, and a model of its own columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kmeanalyst.releases.domain.column import Column, Columns
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date

_SYNTACTIC = re.compile(r"(?:[A-Za-z]|\.(?![0-9]))[A-Za-z0-9._]*")
_RESERVED = frozenset(
    [
        "if",
        "else",
        "repeat",
        "while",
        "function",
        "for",
        "next",
        "break",
        "in",
        "TRUE",
        "FALSE",
        "NULL",
        "Inf",
        "NaN",
        "NA",
    ]
)
_NO_TEXT = re.compile(  # what read.csv reads as a number or a logical value
    r"\s*(?:T|F|TRUE|FALSE|true|false|True|False|NA|NaN|[+-]?(?:inf(?:inity)?|0x[0-9a-f.]+(?:p[+-]?\d+)?|"
    r"(?:\d+\.?\d*|\.\d+)(?:[ed][+-]?\d+)?)L?)\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RCall:
    """What the lines of a folder have of its columns.

    reading    arguments of read.csv, with which names, levels and missing cells are as in the file.
    outcome    an expression of R: a column of numbers, or whether a column has its most frequent level.
    formula    "outcome ~ predictor".
    is_binary  whether the outcome is a condition.
    """

    reading: str
    outcome: str
    formula: str
    is_binary: bool

    def model(self, data: str) -> str:
        """The call that fits the formula to a data frame.

        >>> RCall("", "age", "age ~ sex", False).model("table")
        'lm(age ~ sex, data = table)'
        """
        if self.is_binary:
            return f"glm({self.formula}, family = binomial, data = {data})"
        return f"lm({self.formula}, data = {data})"


def r_call(columns: Columns, frame: pd.DataFrame) -> RCall:
    """How R reads a file with these rows, and an example of a model that all draws have: no rare level is in it."""
    chosen = [columns[name] for name in frame if name in columns.names]
    numbers = [column for column in chosen if column.is_number and not isinstance(column, Date)]
    levels = [column for column in chosen if isinstance(column, Categorical)]
    outcome: Column = [*numbers, *sorted(levels, key=lambda column: len(column.levels)), *chosen][0]
    text = r_name(outcome.name) if numbers else _condition(outcome, frame)
    return RCall(_reading(chosen), text, f"{text} ~ {_predictor(outcome, numbers, levels, frame)}", not numbers)


def _predictor(outcome: Column, numbers: list[Column], levels: list[Categorical], frame: pd.DataFrame) -> str:
    """A column of two levels, or else a number, or the most frequent level of another column; 1 where there is no other."""
    two: list[Column] = [column for column in levels if len(column.levels) == 2 and column is not outcome]
    plain = two or [column for column in numbers if column is not outcome]
    if plain:
        return r_name(plain[0].name)
    others = [column for column in levels if column is not outcome]
    return _condition(others[0], frame) if others else "1"


def _condition(column: Column, frame: pd.DataFrame) -> str:
    """That a column has its most frequent value."""
    value = frame[column.name].mode()[0]
    text = (
        "TRUE" if value is True or value is np.True_ else "FALSE" if isinstance(column, Boolean) else r_text(str(value))
    )
    return f"I({r_name(column.name)} == {text})"


def r_name(name: str) -> str:
    """A column's name in R, in backticks where it needs them.

    >>> r_name("age"), r_name("hours-per-week"), r_name("if")
    ('age', '`hours-per-week`', '`if`')
    """
    if _SYNTACTIC.fullmatch(name) and name not in _RESERVED:
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def r_text(text: str) -> str:
    """A text in R's quotes.

    >>> print(r_text('a "b"'))
    "a \\"b\\""
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _reading(chosen: Sequence[Column]) -> str:
    """Arguments of read.csv: texts are levels, also those that look like numbers, and only empty cells are missing."""
    kinds = {column.name: kind for column in chosen if (kind := _class_of(column))}
    each = ", ".join(f"{r_text(name)} = {r_text(kind)}" for name, kind in kinds.items())
    classes = f", colClasses = c({each})" if each else ""
    return f'check.names = FALSE, na.strings = "", stringsAsFactors = TRUE{classes}'


def _class_of(column: Column) -> str | None:
    """The class that R must be told; None where it finds the right one."""
    if isinstance(column, Date):
        return "Date"
    if column.is_text:
        return "character"
    if isinstance(column, Boolean):
        return "logical"
    if isinstance(column, Categorical):
        return "factor" if any(_NO_TEXT.fullmatch(level) for level in column.levels) else None
    return None
