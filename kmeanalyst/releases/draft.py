"""Draft a domain from a PUBLIC sample: kinds guessed, bounds given room, doubts marked for the curator.

Never from the private table: bounds and levels learned from private rows are themselves a release.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.strings import MOST_SYMBOLS
from kmeanalyst.releases.cells import text_of
from kmeanalyst.releases.columns import (
    Boolean,
    Categorical,
    Column,
    Date,
    DomainError,
    Integer,
    Real,
)
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.text_column import MOST_CHARACTERS, Text

_MOST_LEVELS = 200
_FEWEST_STRINGS, _OFTEN_NEW = 20, 0.5  # different texts, and their share of the rows, that make a column of strings
_ROOM = 0.1  # of the sample's range, added at each end before rounding outward
_HEAVY = 0.05  # a value of a number column that carries this share of the rows is suggested as an atom
_LARGEST = 1e300  # a number beyond it, infinity too, is a code for something else
_MOST_BAD = 0.5  # a column with a smaller share of cells that are not numbers is still one of numbers


@dataclass(frozen=True)
class Draft:
    """A drafted domain, and for each column the notes on what the curator should check.

    >>> draft = release_side.draft_domain(pd.read_csv("public_sample.csv"))
    >>> draft.notes["age"]
    ['CHECK bounds: the sample runs from 17 to 80; values outside are clamped']
    """

    domain: Domain
    notes: dict[str, list[str]] = field(default_factory=dict)


def draft_domain(sample: pd.DataFrame, *, strings: bool = False) -> Draft:
    """Guess a domain from a public sample; DomainError if a column suggests nothing.

    strings   whether a column of many different texts is one of strings, and no error.

    >>> release_side.draft_domain(pd.read_csv("public_sample.csv")).domain["age"]
    Integer(name='age', missing=False, default=None, lower=10, upper=87, scale='linear', edges=(), atoms=())
    """
    if len(sample) == 0 or len(sample.columns) == 0:
        raise DomainError("the sample has no rows or no columns, so it suggests nothing. Name a file with both.")
    notes: dict[str, list[str]] = {}
    columns = [
        _draft_column(str(name), sample[name], notes.setdefault(str(name), []), strings) for name in sample.columns
    ]
    return Draft(Domain(tuple(columns)), notes)


def _draft_column(name: str, cells: pd.Series, notes: list[str], strings: bool) -> Column:
    texts = [text_of(cell) or "" for cell in cells.astype(object)]
    present = [text for text in texts if text]
    missing = len(present) < len(texts)
    if missing:
        notes.append(
            f"CHECK missing: {len(texts) - len(present)} of {len(texts)} cells are empty; kept as a value of its own"
        )
    if not present:
        raise DomainError(f"column {name} is empty in the whole sample, so it suggests nothing. Remove it or fill it.")
    distinct = sorted(set(present))
    if _is_boolean(distinct):
        return Boolean(name=name, missing=missing)
    dates = _days(distinct)
    if dates is not None:
        notes.append("CHECK bounds: drafted a tenth of the sample's range wider at each end")
        room = max(1, math.ceil((dates[1] - dates[0]) * _ROOM))
        low, high = (np.datetime64(int(d), "D") for d in (dates[0] - room, dates[1] + room))
        return Date(name=name, missing=missing, lower=str(low), upper=str(high))
    numbers = _numbers(present)
    if numbers is not None:
        return _draft_number(name, present, numbers, missing, notes)
    if strings and (len(distinct) > _MOST_LEVELS or len(distinct) > max(_FEWEST_STRINGS, _OFTEN_NEW * len(present))):
        return _drafted_text(name, distinct, missing)
    if len(distinct) > _MOST_LEVELS:
        raise DomainError(
            f"column {name} has {len(distinct)} different texts in {len(texts)} rows: it looks like a name or an "
            "identifier, which a release cannot carry. Remove the column from the sample; if strings are meant to be compared "
            'by what they share, write kind = "text", length and alphabet in the domain yourself.'
        )
    notes.append(
        "CHECK levels: the sample's only; a level it lacks becomes "
        + ("missing" if missing else "the default (the first)")
        + " on the private side"
    )
    return Categorical(name=name, missing=missing, levels=tuple(distinct))


def _drafted_text(name: str, distinct: Sequence[str], missing: bool) -> Text:
    """Strings of the characters that occur, the most frequent ones of very many; others become an unknown one."""
    often = Counter(character for text in distinct for character in text if character.isprintable())
    alphabet = "".join(sorted(character for character, _ in often.most_common(MOST_SYMBOLS - 2)))
    length = min(max(map(len, distinct)), MOST_CHARACTERS)
    return Text(name=name, missing=missing, length=length, alphabet=alphabet or "?", unknown="?")


def _is_boolean(distinct: Sequence[str]) -> bool:
    return len(distinct) == 2 and {text.lower() for text in distinct} in (
        {"true", "false"}, {"yes", "no"}, {"0", "1"}, {"t", "f"}, {"y", "n"},
    )  # fmt: skip


def _days(distinct: Sequence[str]) -> tuple[float, float] | None:
    probe = Date(name="probe", lower="1900-01-01", upper="2100-01-01")
    days = [probe.parse(text) if len(text) >= 10 and text[4] == "-" else None for text in distinct]
    if any(day is None for day in days):
        return None
    known = [day for day in days if day is not None]
    return min(known), max(known)


def _numbers(present: Sequence[str]) -> np.ndarray[Any, Any] | None:
    probe = Real(name="probe", lower=-1, upper=1)
    values = [probe.parse(text) for text in present]
    numbers = np.array([v for v in values if v is not None and abs(v) < _LARGEST], dtype=float)
    return numbers if len(numbers) > _MOST_BAD * len(present) else None


def _draft_number(
    name: str, present: Sequence[str], numbers: np.ndarray[Any, Any], missing: bool, notes: list[str]
) -> Column:
    bad = len(present) - len(numbers)
    if bad:
        notes.append(f"CHECK {bad} cells were not numbers (such as {_odd_text(present)!r}); they count as missing")
    low, high = _with_room(float(numbers.min()), float(numbers.max()))
    whole = bool((numbers == np.rint(numbers)).all()) and max(-low, high) <= 2**53
    notes.append(
        f"CHECK bounds: the sample runs from {numbers.min():g} to {numbers.max():g}; values outside are clamped"
    )
    values, counts = np.unique(numbers, return_counts=True)
    heavy = values[counts > _HEAVY * len(numbers)]
    spread = len(values) > 20 and high - low > 200  # spikes matter where the grid is coarse
    kind = Integer if whole else Real
    number = int if whole else float
    options: dict[str, Any] = {"atoms": tuple(number(v) for v in heavy)} if spread and len(heavy) else {}
    scale = _suggested_scale(numbers, low)
    if scale != "linear":
        notes.append(f"CHECK scale: {scale}, because the sample is heavily skewed")
        options["scale"] = scale
        if scale == "log":
            low = max(low, _round_out(float(numbers.min()) / 2, math.floor), 1.0 if whole else 0.0)
    return kind(name=name, missing=missing or bad > 0, lower=number(low), upper=number(high), **options)


def _odd_text(present: Sequence[str]) -> str:
    probe = Real(name="probe", lower=-1, upper=1)
    return next(text for text in present if (v := probe.parse(text)) is None or not abs(v) < _LARGEST)


def _suggested_scale(numbers: np.ndarray[Any, Any], low: float) -> str:
    """A logarithm where it takes most of a strong skew away and the column cannot be negative."""
    if low < 0 or numbers.max() < 1000 or len(numbers) < 30:
        return "linear"
    scale = "log" if numbers.min() > 0 else "log1p"
    logged = np.log(numbers) if scale == "log" else np.log1p(numbers)
    return scale if _skew(numbers) > 1.2 and abs(_skew(logged)) < _skew(numbers) / 1.5 else "linear"


def _skew(values: np.ndarray[Any, Any]) -> float:
    centred = values - values.mean()
    spread = centred.std()
    return 0.0 if spread == 0 else float((centred**3).mean() / spread**3)


def _with_room(low: float, high: float) -> tuple[float, float]:
    """Bounds a tenth of the range beyond the extremes, rounded outward; not below zero if the sample is not."""
    room = max((high - low) * _ROOM, abs(high) * 1e-3, 1e-9)
    lower, upper = _round_out(low - room, math.floor), _round_out(high + room, math.ceil)
    return (max(0.0, lower) if low >= 0 else lower), upper


def _round_out(value: float, direction: Any) -> float:
    """Two significant digits, rounded in the given direction."""
    if value == 0:
        return 0.0
    exponent = math.floor(math.log10(abs(value))) - 1
    return float(f"{direction(value / 10.0**exponent)}e{exponent}")
