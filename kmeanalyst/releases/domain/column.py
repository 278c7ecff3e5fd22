"""A column of a domain: what a cell means, and how it becomes a number and is decoded again.

A cell is read as text, by itself: no cell can change what another one means. (Under type inference one can: a single "?"
turns a column of booleans into text, so that replacing one row would change all.) Encoded numbers keep their units (log
units for log columns), levels become codes 0, 1, ..., dates days since 1970-01-01, and a missing cell NaN. Encoding never
raises and never warns by the value of a cell: it runs on private rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import BAD, NO_CELL, CodedCells, factorised, parse_number, text_of
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of

KEPT, CLAMPED, REPLACED = 0, 1, 2  # what became of a cell: as it was, moved to a bound, or the default
_MOST_CODES = 100  # for a missing cell
LONGEST_TEXT = 200  # characters of a name or a level


class DomainError(ValueError):
    """A domain, or data for it, is invalid; the message says how to fix it.

    >>> ka.Integer(name="age", lower=90, upper=17)
    Traceback (most recent call last):
        ...
    kmeanalyst.releases.domain.column.DomainError: column age: lower must be below upper, got 90 and 17. Swap or widen
        them.
    """


def plain_number(value: Any) -> Any:
    """A numpy number as a Python number, which files can hold; anything else unchanged."""
    return value.item() if isinstance(value, np.integer | np.floating) else value


def listed(column: str, field: str, values: Any) -> Sequence[Any]:
    """The values of a field that is a list; a single text is refused, not read as a list of letters."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise DomainError(f"column {column}: {field} must be a list, got {values!r:.80}. Write it in brackets.")
    return tuple(values)


def check_shown(what: str, text: str | None) -> None:
    """DomainError if a text that will be shown has a character that could mislead the reader: see `texts.flaw_of`."""
    if text and (flaw := flaw_of(text)):
        raise DomainError(
            f"{what} has {flaw}, got {ascii(text)[:80]}: shown on a terminal or in a report, it could change or hide what "
            "else is shown, and no reader takes such a file. Remove it, here and in the table."
        )


def check_text(what: str, text: str | None) -> None:
    """DomainError as `check_shown`, or if a text that appears in every table of answers has more than 200 characters."""
    check_shown(what, text)
    if text and len(text) > LONGEST_TEXT:
        raise DomainError(
            f"{what} must have at most {LONGEST_TEXT} characters, got {len(text)}: it appears in every table and picture. "
            "Shorten it, here and in the table."
        )


def check_name(what: str, text: str | None) -> None:
    """DomainError as `check_text`, or if spaces make a name or a level look like another one, or like a line of output."""
    check_text(what, text)
    if text and (flaw := spacing_flaw_of(text)):
        raise DomainError(
            f"{what} has {flaw}, got {ascii(text)[:80]}: shown on a terminal, it could look like another name or line. "
            "Write it with single spaces between words, here and in the table (cells match whatever spaces are at their ends)."
        )


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One column of a domain (abstract).

    name      as in the table's header.
    missing   whether a missing cell is a value of its own; if not, it becomes the default.
    default   what a bad cell becomes; None for missing if declared, else the first level or lower bound.
    missing_codes   values such as -9 or "NA" that stand for a missing cell in tables; none is a value of the column.
    recode    (text, value): texts of tables that stand for a value of the column, such as ("90+", 90), and are none themselves.

    >>> domain["age"].width, domain["age"].default_code
    (1, 9.0)
    """

    name: str
    missing: bool = False
    default: Any = None
    missing_codes: tuple[Any, ...] = ()
    recode: tuple[tuple[Any, Any], ...] = ()
    kind: ClassVar[str]
    is_number: ClassVar[bool] = False  # it has bounds and a scale: real, integer, date, cyclic
    is_text: ClassVar[bool] = False  # its cells are strings
    has_levels: ClassVar[bool] = False  # it has `levels`: categorical, ordinal, boolean
    _always_written: ClassVar[tuple[str, ...]] = ()  # fields that files have even where they are as by default

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DomainError(f"a column needs a name, got {self.name!r}. Write the name the table's header has.")
        check_name("a column's name", self.name)
        if self.name == "weight":
            raise DomainError('a column named "weight" is refused: release files have a column of that name. Rename yours.')
        self._check_flag("missing")
        codes = tuple(plain_number(code) for code in listed(self.name, "missing_codes", self.missing_codes))
        object.__setattr__(self, "missing_codes", codes)
        pairs = listed(self.name, "recode", self.recode)
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
            raise DomainError(
                f'column {self.name}: recode must be pairs, got {pairs!r:.80}. Write [["90+", 90]]: the text, and its value.'
            )
        object.__setattr__(self, "recode", tuple((text_of(text), plain_number(value)) for text, value in pairs))

    def _check_flag(self, field: str) -> None:
        if not isinstance(value := getattr(self, field), bool):
            raise DomainError(f"column {self.name}: {field} must be true or false, got {value!r:.80}. Write one of the two.")

    def _check_codes(self) -> None:
        """DomainError if a code is empty, or a value of the column, which released rows may have, or stands for no value."""
        if max(len(self.missing_codes), len(self.recode)) > _MOST_CODES:
            raise DomainError(
                f"column {self.name}: missing_codes or recode has more than {_MOST_CODES} codes. Clean the table instead."
            )
        levels = getattr(self, "levels", ()) if self.has_levels else ()
        if read := [level for level in levels if self._is_code(level)]:
            raise DomainError(
                f"column {self.name}: the level {read[0]!r:.80} would be read as one of missing_codes. Leave one of the two out."
            )
        codes = [*(("missing_codes", code) for code in self.missing_codes), *(("recode", text) for text, _ in self.recode)]
        for field, code in codes:
            text = (text_of(code) or "").strip()
            check_text(f"column {self.name}: {field}", text)
            if not text or self._is_value(text):
                raise DomainError(
                    f"column {self.name}: {field} must be of texts or numbers that are not values of the column, got {code!r:.80}: "
                    "a released row with it would be read as another. Leave it out of the levels, or of the bounds."
                )
        if wrong := [value for _, value in self.recode if not self._is_value(text_of(value) or "")]:
            raise DomainError(
                f"column {self.name}: recode gives {wrong[0]!r:.80}, which is not a value of the column. Name a level, or a number "
                "within the bounds."
            )

    def _is_value(self, text: str) -> bool:
        value = self.parse(text) if text else BAD
        return value is not BAD and not self._encode_numbers(np.array([value]))[1][0]

    def without_codes(self, cells: Any) -> Any:
        """Cells of a table in which codes for a missing cell are missing, and those of `recode` are what they stand for.

        Codes for a missing number are compared as numbers, all others as texts without spaces around them.

        >>> column = ka.Integer(name="age", lower=0, upper=90, missing=True, missing_codes=(-9,), recode=(("90+", 90),))
        >>> column.encode(column.without_codes(["41", "-9.0", "-9", "90+"]))[0]
        array([41., nan, nan, 90.])
        """
        if not self.missing_codes and not self.recode:
            return cells
        codes, texts = factorised(cells)
        values = {text.strip(): text_of(value) or "" for text, value in self.recode}

        def meant(text: str) -> str:
            stripped = text.strip()
            return "" if self._is_code(text) else values.get(stripped, values.get(stripped.removesuffix(".0"), text))

        return CodedCells(codes, [NO_CELL if text is None else meant(text) for text in texts])

    def _is_code(self, text: str) -> bool:
        return is_code(text, self.missing_codes, as_number=self.is_number)

    def _check_default(self) -> None:
        self._check_codes()
        if self.default is not None:
            text = text_of(self.default)
            check_text(f"column {self.name}: default", text)
            if not self._is_value(text or ""):
                raise DomainError(
                    f"column {self.name}: default {self.default!r} is not a value of the column, and every bad cell "
                    "would become it. Name a value within the bounds or levels."
                )

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest encoded value; of text of its first number.

        >>> domain["age"].bounds, domain["sex"].bounds
        ((9.0, 98.0), (0.0, 1.0))
        """
        return 0.0, math.inf

    @property
    def width(self) -> int:
        """Number of entries of an encoded row that a cell takes: 1, except for text, whose arrays are (n, width)."""
        return 1

    @abstractmethod
    def parse(self, text: str) -> float | None:
        """The number a cell's text stands for, before clamping; None if there is none.

        >>> domain["sex"].parse("Male"), domain["sex"].parse("none of both")
        (1.0, None)
        """

    def _fallback(self) -> float:
        """The default of a column that names none and has no missing value: the first level, or the empty string."""
        return 0.0

    @property
    def default_code(self) -> float:
        """The encoded default: what a bad cell becomes."""
        if self.default is not None:
            return self._encode_one(self.parse(text_of(self.default) or ""))
        return math.nan if self.missing else self._encode_one(self._fallback())

    def _encode_one(self, value: float | None) -> float:
        return float(self._encode_numbers(np.array([value], dtype=float))[0][0])

    def encode(self, cells: Any) -> tuple[Array, Array]:
        """Encoded values and what became of each cell (KEPT, CLAMPED or REPLACED), both (n,).

        cells   a sequence of anything: text, numbers, dates. Never raises by a cell's value.

        >>> domain["sex"].encode(["Male", "female"])[0]
        array([1., 0.])
        """
        codes, texts = factorised(cells)
        parsed = [self.parse(text) if text else BAD for text in texts]
        bad = np.array([value is BAD for value in parsed], dtype=bool)
        missing = np.array([text == "" for text in texts], dtype=bool) & self.missing
        values = np.array([0.0 if value is BAD else value for value in parsed], dtype=float)
        encoded, clamped = self._encode_numbers(values)
        encoded[bad] = self.default_code
        encoded[missing] = math.nan
        status = np.where(clamped, CLAMPED, KEPT)
        status[bad] = REPLACED
        status[missing] = KEPT
        return encoded[codes], status[codes]

    def _encode_numbers(self, values: Array) -> tuple[Array, Array]:
        return values.copy(), np.zeros(len(values), dtype=bool)

    @abstractmethod
    def decode(self, encoded: Array) -> pd.Series:
        """Encoded values (n,) in natural units and levels, a missing one as pandas has it.

        >>> domain["sex"].decode(np.array([1.0, 0.0])).tolist()
        ['Male', 'Female']
        """

    @abstractmethod
    def grid(self, size: int, rng: np.random.Generator) -> Array:
        """At most `size` encoded values that cover the column: all of them if it has no more.

        >>> domain["sex"].grid(4, np.random.default_rng(0)).shape
        (2,)
        """

    def every_value(self, most: int) -> Array | None:
        """All encoded values a cell can have, NaN for a missing one; None where there are more than `most`, or a continuum.

        >>> domain["sex"].every_value(10)
        array([0., 1.])
        """
        present = self._every_present(most)
        values = None if present is None else self.with_missing(present)
        return None if values is None or len(values) > most else values

    def _every_present(self, most: int) -> Array | None:
        return None  # a continuum, or too many to list

    def to_dict(self) -> dict[str, Any]:
        """The column as TOML and the file header have it, without fields that are as by default.

        >>> domain["sex"].to_dict()
        {'name': 'sex', 'kind': 'categorical', 'levels': ['Female', 'Male']}
        """
        written: dict[str, Any] = {"name": self.name, "kind": self.kind}
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default or each.name in self._always_written:
                written[each.name] = [*map(_as_list, value)] if isinstance(value, tuple) else value
        return written

    def describe(self) -> str:
        """Kind and extent in a few words.

        >>> domain["income"].describe()
        'categorical <=50K, >50K'
        """
        return f"{self.kind} {self._extent()}" + (", may be missing" if self.missing else "")

    @abstractmethod
    def _extent(self) -> str: ...

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n encoded values spread evenly over the column; one in ten missing where that is declared.

        >>> domain["age"].draw(3, np.random.default_rng(0)).shape
        (3,)
        """
        values = self._draw_present(n, rng)
        if self.missing:
            values[rng.random(n) < 0.1] = math.nan
        return values

    @abstractmethod
    def _draw_present(self, n: int, rng: np.random.Generator) -> Array: ...

    def cut_at(self, cuts: Sequence[float]) -> tuple[float, ...]:
        """Inner edges of the column's cells, in encoded units: these cuts; of levels those between all of them.

        >>> ka.Boolean(name="ill").cut_at(())
        (0.5,)
        """
        return tuple(cuts)

    def with_missing(self, values: Array) -> Array:
        """Values, and NaN after them where the column can be missing.

        >>> ka.Boolean(name="ill", missing=True).with_missing(np.array([0.0, 1.0]))
        array([ 0.,  1., nan])
        """
        return np.append(values, math.nan) if self.missing else values


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def is_code(text: str, codes: tuple[Any, ...], *, as_number: bool) -> bool:
    """Whether a cell's text is one of these codes: the same text without spaces around it, or the ".0" that pandas writes.

    as_number   whether the same number in another form is the code too.
    """
    texts, numbers = _known_codes(codes)
    text = text.strip()
    if text in texts or (text.endswith(".0") and text[:-2] in texts):
        return True
    return as_number and parse_number(text) in numbers


@lru_cache(maxsize=1024)
def _known_codes(codes: tuple[Any, ...]) -> tuple[frozenset[str], frozenset[float]]:
    texts = frozenset(text.strip() for code in codes if (text := text_of(code)))
    return texts, frozenset(number for text in texts if (number := parse_number(text)) is not None)


class Columns(Protocol):
    """What expressions and rules need of a domain: its columns, by index and by name."""

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def __getitem__(self, name: str, /) -> Column: ...
