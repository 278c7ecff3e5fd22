"""What in a public sample a curator should look at twice: identifiers, codes for missing values, rare levels.

Each function returns a note, or None; notes ask and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

FEW = 10  # a level seen fewer times is rare
OTHER = "other"

_Values: TypeAlias = np.ndarray[Any, Any]
_NEARLY_ALL = 0.95  # distinct values, in parts of the cells, of an identifier
_FEWEST_UNIQUE = 20  # cells that must be present before uniqueness says something of numbers
_FEWEST_TEXTS = 10  # the same of texts
_FEWEST_IN_SEQUENCE = 5  # the same of numbers without a gap
_UUID = re.compile(r"\{?[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", flags=re.IGNORECASE)
_CODE = re.compile(r"-?(9*[6-9]|8+|7+)|-1")  # the usual codes for "missing", "refused", "not asked"
_MOST_CODES = 3  # at one end of a column
_SHOWN = 6  # values that a note lists


def identifier_of_numbers(numbers: _Values) -> str | None:
    """A doubt about whole numbers that differ in nearly every row, or follow one another without a gap."""
    distinct = np.unique(numbers)
    if len(distinct) < _NEARLY_ALL * len(numbers) or not (numbers == np.rint(numbers)).all():
        return None
    in_sequence = len(distinct) >= _FEWEST_IN_SEQUENCE and distinct[-1] - distinct[0] == len(distinct) - 1
    return _identifier(len(distinct), len(numbers)) if in_sequence or len(numbers) >= _FEWEST_UNIQUE else None


def identifier_of_texts(counts: Mapping[str, int]) -> str | None:
    """A doubt about texts that differ in nearly every row, or look like UUIDs."""
    n, distinct = sum(counts.values()), len(counts)
    uuids = sum(bool(_UUID.fullmatch(text.strip())) for text in counts)
    unique = n >= _FEWEST_TEXTS and distinct >= _NEARLY_ALL * n
    return _identifier(distinct, n) if unique or uuids > distinct / 2 else None


def _identifier(distinct: int, n: int) -> str:
    return (
        f"CHECK identifier: {distinct} different values in {n} cells: if it identifies rows, remove the column: "
        "a release is of a population, and an identifier says nothing of it"
    )


def codes(numbers: _Values, shown: Callable[[float], str]) -> str | None:
    """A doubt about repeated extreme values that are far from the others, such as 999 or -9.

    shown   how a value is written in the sample.
    """
    values, counts = np.unique(numbers, return_counts=True)
    low = [-v for v in _codes_at_the_end(-values[::-1], counts[::-1], lambda v: shown(-v))]
    found = [*sorted(low), *_codes_at_the_end(values, counts, shown)]
    if not found:
        return None
    times = [int(counts[np.searchsorted(values, value)]) for value in found]
    listed = ", ".join(f"{shown(value)} ({n} times)" for value, n in zip(found, times, strict=True))
    return (
        f"CHECK codes: {listed}, far from all other values: if this is a code for a missing value, write such cells "
        "empty, in the private table too, set missing = true and bounds without it"
    )


def _codes_at_the_end(values: _Values, counts: _Values, shown: Callable[[float], str]) -> list[float]:
    """The largest values, at most three, if they are repeated and far from the others; `values` are distinct and increasing."""
    for k in range(1, min(_MOST_CODES, len(values) - 2) + 1):
        rest, end = values[:-k], values[-k:]
        gap, spacing, extent = end[0] - rest[-1], float(np.median(np.diff(rest))), rest[-1] - rest[0]
        usual = all(_CODE.fullmatch(shown(value)) for value in end)
        negative = all(shown(value).startswith("-") for value in end) and rest[-1] <= 0 < end[0]
        negative &= len(rest) > 2  # -1, 0, 1 are values
        far = k == 1 and gap > 2 * extent
        if counts[-k:].min() >= 2 and (far or (usual and (negative or gap > 4 * spacing))):
            return [float(value) for value in end]
    return []


def rare_levels(rare: Sequence[str]) -> str | None:
    """A doubt about levels that few rows of the sample have: a level is published even if one person has it."""
    if not rare:
        return None
    return (
        f"CHECK rare levels: {_listed(rare)} seen fewer than {FEW} times: is each level itself public, as in a code book? "
        "Remove those that are not, or draft with --collapse-rare"
    )


def collapsed(n: int, other: str) -> str:
    """What became of rare levels."""
    return (
        f"CHECK collapsed: {n} level{'s' * (n > 1)} seen fewer than {FEW} times became {other!r}, which is the default: rare "
        "and unseen levels of private rows become it too"
    )


def free_name(levels: Sequence[str]) -> str:
    """A name for all other levels that none of the levels has, in whatever case."""
    taken = {level.strip().casefold() for level in levels}
    names = (OTHER, *(f"{OTHER}_{number}" for number in range(2, len(levels) + 3)))
    return next(name for name in names if name not in taken)


def constant(what: str, hint: str) -> str:
    """A doubt about a column that is the same in all rows of the sample."""
    return f"CHECK constant: every cell of the sample that has a value is {what}: {hint}, or remove the column"


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(f"{text[:40]!r}" for text in texts[:_SHOWN])
    return shown + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


__all__ = [
    "FEW", "codes", "collapsed", "constant", "free_name", "identifier_of_numbers", "identifier_of_texts", "rare_levels",
]  # fmt: skip
