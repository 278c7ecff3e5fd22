"""Column kinds: what a cell of each kind means, and how it becomes a number and returns.

A cell is read as text, cell by cell: no cell can change what its neighbours mean (METHODS §1). Encoded
numbers keep their units (log units for log columns), levels become codes 0, 1, ..., dates days since
1970-01-01, and a missing cell NaN. Encoding never raises and never warns by the value of a cell: it runs
on private rows.
"""

from __future__ import annotations

import datetime
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import BAD, factorised, parse_day, parse_number, text_of
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of

KEPT, CLAMPED, REPLACED = 0, 1, 2  # what became of a cell: as it was, moved to a bound, or the default
LONGEST_TEXT = 200  # characters of a name or a level


class DomainError(ValueError):
    """A domain, or data that should fit it, is not as it must be; the message has the mend.

    >>> ka.Integer(name="age", lower=90, upper=17)
    Traceback (most recent call last):
        ...
    kmeanalyst.releases.domain.columns.DomainError: column age: lower must be below upper, got 90 and 17. Swap or widen
        them.
    """


def _plain_number(value: Any) -> Any:
    """A numpy number as Python's own, which files can hold; anything else as it is."""
    return value.item() if isinstance(value, np.integer | np.floating) else value


def listed(column: str, field: str, values: Any) -> Sequence[Any]:
    """The values of a field that is a list; a single text is not the list of its letters."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise DomainError(f"column {column}: {field} must be a list, got {values!r:.80}. Write it in brackets.")
    return tuple(values)


def check_shown(what: str, text: str | None) -> None:
    """DomainError if a text that will be shown has a character that could deceive there: see `texts.flaw_of`."""
    flaw = flaw_of(text) if text else None
    if flaw is not None:
        raise DomainError(
            f"{what} has {flaw}, got {ascii(text)[:80]}: shown on a terminal or in a report, it could change or hide what "
            "else is shown, and no reader takes such a file. Remove it, here and in the table."
        )


def check_spacing(what: str, text: str | None) -> None:
    """DomainError if a name or a level could pass for another one, or for a line of ours, by its spaces."""
    flaw = spacing_flaw_of(text) if text else None
    if flaw is not None:
        raise DomainError(
            f"{what} has {flaw}, got {ascii(text)[:80]}: shown on a terminal, it could not be told from another name or line. "
            "Write it with single spaces between words, here and in the table (cells match whatever spaces are at their ends)."
        )


def check_short(what: str, text: str | None) -> None:
    """DomainError if a text that stands in every table of answers is longer than 200 characters."""
    if text and len(text) > LONGEST_TEXT:
        raise DomainError(
            f"{what} must have at most {LONGEST_TEXT} characters, got {len(text)}: it stands in every table and picture. "
            "Shorten it, here and in the table."
        )


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """One column of a domain (abstract).

    name      as in the table's header.
    missing   whether a missing cell is a value of its own; if not, it becomes the default.
    default   what a bad cell becomes; None for missing if declared, else the first level or lower bound.
    """

    name: str
    missing: bool = False
    default: Any = None
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DomainError(f"a column needs a name, got {self.name!r}. Write the name the table's header has.")
        check_shown("a column's name", self.name)
        check_short("a column's name", self.name)
        check_spacing("a column's name", self.name)
        if self.name == "weight":
            raise DomainError('a column named "weight" is refused: the file\'s own column. Rename yours.')
        if not isinstance(self.missing, bool):
            raise DomainError(
                f"column {self.name}: missing must be true or false, got {self.missing!r}. Write one of the two."
            )

    def _check_default(self) -> None:
        if self.default is not None:
            text = text_of(self.default)
            check_shown(f"column {self.name}: default", text)
            check_short(f"column {self.name}: default", text)
            value = self.parse(text) if text else BAD
            if value is BAD or self._encode_numbers(np.array([value]))[1][0]:
                raise DomainError(
                    f"column {self.name}: default {self.default!r} is not a value of the column, and every bad cell "
                    "would become it. Name a value within the bounds or levels."
                )

    @property
    def width(self) -> int:
        """How many numbers of an encoded row a cell takes: 1, but for text, whose arrays are (n, width) where others are (n,).

        >>> domain["age"].width
        1
        """
        return 1

    @abstractmethod
    def parse(self, text: str) -> float | None:
        """The number a cell's text stands for, before clamping; None if it stands for none.

        >>> domain["sex"].parse("Male"), domain["sex"].parse("none of both")
        (1.0, None)
        """

    @abstractmethod
    def _fallback(self) -> float:
        """The default of a column that names none and has no missing value."""

    @property
    def default_code(self) -> float:
        """The encoded default: what a bad cell becomes.

        >>> ka.Integer(name="age", lower=17, upper=90, default=30).default_code
        30.0
        """
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
        """Clamped and scaled numbers, and which of them were moved to a bound."""
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

    @abstractmethod
    def _every_present(self, most: int) -> Array | None: ...

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The column as TOML and the file header have it.

        >>> domain["sex"].to_dict()
        {'name': 'sex', 'kind': 'categorical', 'levels': ['Female', 'Male']}
        """

    def describe(self) -> str:
        """Kind and extent in a few words, for people.

        >>> domain["income"].describe()
        'categorical <=50K, >50K'
        """
        return f"{self.kind} {self._extent()}" + (", may be missing" if self.missing else "")

    @abstractmethod
    def _extent(self) -> str: ...

    def _common_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.missing:
            out["missing"] = True
        if self.default is not None:
            out["default"] = self.default
        return out

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

    def with_missing(self, values: Array) -> Array:
        """Values, and NaN after them where the column can be missing.

        >>> ka.Boolean(name="ill", missing=True).with_missing(np.array([0.0, 1.0]))
        array([ 0.,  1., nan])
        """
        return np.append(values, math.nan) if self.missing else values


_TO_SCALE: dict[str, Callable[[Array], Array]] = {"linear": lambda v: v, "log": np.log, "log1p": np.log1p}
_FROM_SCALE: dict[str, Callable[[Array], Array]] = {"linear": lambda v: v, "log": np.exp, "log1p": np.expm1}


@dataclass(frozen=True, kw_only=True)
class Number(Column):
    """What numbers and dates share: bounds, scale, and public values of interest."""

    lower: Any
    upper: Any
    scale: str = "linear"
    edges: tuple[Any, ...] = ()
    atoms: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("lower", "upper", "default"):
            object.__setattr__(self, field, _plain_number(getattr(self, field)))
        low, high = (self._public_number(field, getattr(self, field)) for field in ("lower", "upper"))
        if not low < high:
            raise DomainError(
                f"column {self.name}: lower must be below upper, got {self.lower} and {self.upper}. Swap or widen them."
            )
        if self.scale not in ("linear", "log", "log1p"):
            raise DomainError(
                f'column {self.name}: scale must be "linear", "log" or "log1p", got {self.scale!r}. Name one of them.'
            )
        if (self.scale == "log" and low <= 0) or (self.scale == "log1p" and low <= -1):
            raise DomainError(
                f'column {self.name}: scale "{self.scale}" needs lower > {0 if self.scale == "log" else -1}, '
                f'got {self.lower}: the logarithm is undefined there. Raise lower, or use "log1p" if zero occurs.'
            )
        for field in ("edges", "atoms"):
            values = tuple(_plain_number(value) for value in listed(self.name, field, getattr(self, field)))
            for value in values:
                if not low <= self._public_number(field, value) <= high:
                    raise DomainError(
                        f"column {self.name}: {field} must lie within the bounds, got {value!r}. Leave it out, or widen "
                        "the bounds."
                    )
            object.__setattr__(self, field, values)
        self._check_default()

    def _public_number(self, field: str, value: Any) -> float:
        text = text_of(value)
        check_shown(f"column {self.name}: {field}", text)
        check_short(f"column {self.name}: {field}", text)
        number = self.parse(text) if text else BAD
        if number is BAD or not math.isfinite(number):
            raise DomainError(
                f"column {self.name}: {field} must be a finite {self.kind} value, got {value!r}. Write one."
            )
        return number

    @property
    def bounds(self) -> tuple[float, float]:
        """(lower, upper) in encoded units.

        >>> domain["age"].bounds
        (9.0, 98.0)
        """
        low, high = self._scaled(np.array([self._public_number("bound", v) for v in (self.lower, self.upper)]))
        return float(low), float(high)

    @property
    def step(self) -> float | None:
        """The smallest difference between encoded values; None for a continuum.

        >>> domain["age"].step
        1.0
        """
        return None

    def cuts(self, values: Sequence[Any]) -> Array:
        """Encoded numbers that part the cells below each value from those at it and above; half a step lower for whole ones.

        >>> domain["age"].cuts([30, 50])
        array([29.5, 49.5])
        """
        return self._scaled(self._numbers(values))

    def holds(self, below: Array, above: Array) -> Array:
        """(n,) whether some value of the column lies in each range [below, above) of encoded units.

        >>> domain["age"].holds(np.array([30.2, 30.6]), np.array([30.8, 31.4]))
        array([False,  True])
        """
        return below < above

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds in encoded units, with half a step beside them for whole numbers: evenly drawn, rounding is even.

        >>> domain["age"].ends
        (8.5, 98.5)
        """
        return self.bounds

    def parse(self, text: str) -> float | None:
        return parse_number(text)

    def encode(self, cells: Any) -> tuple[Array, Array]:
        if isinstance(cells, pd.Series) and isinstance(cells.dtype, pd.Int64Dtype):
            cells = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        if isinstance(cells, pd.Series) and not isinstance(cells.dtype, pd.api.extensions.ExtensionDtype):
            cells = cells.to_numpy()
        if not (isinstance(cells, np.ndarray) and cells.dtype.kind in "fiu" and self.kind != "date"):
            return super().encode(cells)
        with np.errstate(over="ignore"):  # a wider number than float64 becomes infinite, and is clamped
            values = cells.astype(np.float64)  # the same numbers their texts would give, without the texts
        absent = np.isnan(values)
        encoded, clamped = self._encode_numbers(np.where(absent, 0.0, values))
        encoded[absent] = math.nan if self.missing else self.default_code
        return encoded, np.where(absent, KEPT if self.missing else REPLACED, np.where(clamped, CLAMPED, KEPT))

    def _encode_numbers(self, values: Array) -> tuple[Array, Array]:
        clamped = self._clamp(values)
        return self._scaled(clamped), ~self._near(clamped, values)

    def _near(self, clamped: Array, values: Array) -> Array:
        return clamped == values

    def _clamp(self, values: Array) -> Array:
        """Values moved to the nearest one the column allows."""
        return np.clip(values, self._public_number("lower", self.lower), self._public_number("upper", self.upper))

    def _fallback(self) -> float:
        return self._public_number("lower", self.lower)

    def _scaled(self, values: Array) -> Array:
        values = np.asarray(values, dtype=float)
        return _TO_SCALE[self.scale](values) + 0.0  # -0.0 is 0.0

    def _natural(self, encoded: Array) -> Array:
        encoded = np.asarray(encoded, dtype=float)
        natural = self._clamp(_FROM_SCALE[self.scale](encoded))
        if self.scale == "linear":
            return natural
        for towards in (-np.inf, np.inf):  # exp is rounded: take the neighbour that encodes to the code
            near = natural
            for _ in range(4):
                near = self._clamp(np.nextafter(near, towards))
                natural = np.where((self._scaled(natural) != encoded) & (self._scaled(near) == encoded), near, natural)
        return natural

    def rounded(self, encoded: Array) -> Array:
        """Encoded values moved to the nearest ones that decode and encode to themselves.

        >>> domain["age"].rounded(np.array([30.4, 120.0]))
        array([30., 98.])
        """
        return self._scaled(self._natural(encoded))

    def wrap(self, encoded: Array) -> Array:
        """Encoded numbers, wherever they lie, moved to values of the column: those beyond its bounds to them.

        >>> ka.Integer(name="age", lower=17, upper=90).wrap(np.array([3.2, 40.6, 1000.0]))
        array([17., 41., 90.])
        """
        return self.rounded(np.clip(encoded, *self.bounds))

    def grid(self, size: int, rng: np.random.Generator) -> Array:
        low, high = self.bounds
        even = np.linspace(low, high, size) + rng.uniform(-0.5, 0.5, size) * (high - low) / (size - 1)
        return np.unique(
            self.rounded(np.concatenate([np.clip(even, low, high), self._codes(self.edges), self.atom_codes]))
        )

    def _every_present(self, most: int) -> Array | None:
        return None

    def _codes(self, values: Sequence[Any]) -> Array:
        return self._scaled(self._numbers(values))

    def _numbers(self, values: Sequence[Any]) -> Array:
        return np.array([self._public_number("value", v) for v in values], dtype=float)

    @property
    def atom_codes(self) -> Array:
        """The encoded atoms, as cells encode to them; sorted.

        >>> domain["capital-gain"].atom_codes
        array([0.])
        """
        return np.unique(self.rounded(self._codes(self.atoms)))

    def _draw_present(self, n: int, rng: np.random.Generator) -> Array:
        return self.rounded(rng.uniform(*self.bounds, n))

    def _extent(self) -> str:
        return f"{self.lower} to {self.upper}" + (f" ({self.scale} scale)" if self.scale != "linear" else "")

    def to_dict(self) -> dict[str, Any]:
        out = self._common_dict() | {"lower": self.lower, "upper": self.upper}
        if self.scale != "linear":
            out["scale"] = self.scale
        for field in ("edges", "atoms"):
            if getattr(self, field):
                out[field] = list(getattr(self, field))
        return out


@dataclass(frozen=True, kw_only=True)
class Real(Number):
    """A number on a continuum, between public bounds.

    >>> ka.Real(name="wage", lower=0, upper=1e6, scale="log1p", atoms=(0,)).encode(["0", "1e9", "x"])[0]
    array([ 0.        , 13.81...,  0.        ])
    """

    kind: ClassVar[str] = "real"

    def decode(self, encoded: Array) -> pd.Series:
        return pd.Series(self._natural(encoded), name=self.name)


@dataclass(frozen=True, kw_only=True)
class _Whole(Number):
    """Numbers that are whole in natural units: integers, and days."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = (self._public_number(field, getattr(self, field)) for field in ("lower", "upper"))
        if math.ceil(low) > math.floor(high) or max(abs(low), abs(high)) > 2**53:
            raise DomainError(
                f"column {self.name}: the bounds must hold a whole number and stay within ±2^53, got {self.lower} and "
                f"{self.upper}: further numbers are not exact. Move the bounds, or use kind real."
            )

    @property
    def step(self) -> float | None:
        return 1.0 if self.scale == "linear" else None

    def cuts(self, values: Sequence[Any]) -> Array:
        return self._scaled(np.ceil(self._numbers(values)) - 0.5)

    def holds(self, below: Array, above: Array) -> Array:
        first = np.ceil(_FROM_SCALE[self.scale](below))
        return np.where(self._scaled(first) < below, self._scaled(first + 1), self._scaled(first)) < above

    @property
    def ends(self) -> tuple[float, float]:
        low, high = (self._public_number(field, getattr(self, field)) for field in ("lower", "upper"))
        below, above = self._scaled(np.array([math.ceil(low) - 0.5, math.floor(high) + 0.5]))
        return float(below), float(above)

    def _clamp(self, values: Array) -> Array:
        low, high = (self._public_number(field, getattr(self, field)) for field in ("lower", "upper"))
        return np.clip(np.rint(np.clip(values, low, high)), math.ceil(low), math.floor(high))

    def _near(self, clamped: Array, values: Array) -> Array:
        return np.abs(clamped - values) <= 0.5

    def grid(self, size: int, rng: np.random.Generator) -> Array:
        every = self._every_present(size)
        return super().grid(size, rng) if every is None else every

    def _every_present(self, most: int) -> Array | None:
        low, high = (self._public_number(field, getattr(self, field)) for field in ("lower", "upper"))
        first, last = math.ceil(low), math.floor(high)
        return self._scaled(np.arange(first, last + 1, dtype=float)) if last - first < most else None


@dataclass(frozen=True, kw_only=True)
class Integer(_Whole):
    """A whole number between public bounds; a cell such as 13.4 is rounded.

    >>> ka.Integer(name="age", lower=17, upper=90).encode(["41", "13.4", "200"])[0]
    array([41., 17., 90.])
    """

    kind: ClassVar[str] = "integer"

    def decode(self, encoded: Array) -> pd.Series:
        natural = self._natural(encoded)
        return pd.Series(natural, name=self.name).astype("Int64" if self.missing else "int64")


@dataclass(frozen=True, kw_only=True)
class Date(_Whole):
    """A day, written YYYY-MM-DD, between public bounds; encoded in days since 1970-01-01.

    seasonal   whether the table kernel sees the day of the year too: days a year apart are then much alike.

    >>> ka.Date(name="joined", lower="2000-01-01", upper="2024-12-31").encode(["2000-01-01", "1999-05-05"])[0]
    array([10957., 10957.])
    """

    seasonal: bool = False
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        for field in ("lower", "upper", "default"):
            value = getattr(self, field)
            if isinstance(value, datetime.date):
                object.__setattr__(self, field, value.isoformat())
        for field in ("edges", "atoms"):
            object.__setattr__(self, field, tuple(text_of(v) for v in listed(self.name, field, getattr(self, field))))
        super().__post_init__()
        if self.scale != "linear":
            raise DomainError(f"column {self.name}: a date has no logarithm. Remove scale.")
        if not isinstance(self.seasonal, bool):
            raise DomainError(f"column {self.name}: seasonal must be true or false, got {self.seasonal!r:.80}.")

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | ({"seasonal": True} if self.seasonal else {})

    def parse(self, text: str) -> float | None:
        return parse_day(text)

    def decode(self, encoded: Array) -> pd.Series:
        days = self._natural(encoded)
        missing = np.isnan(days)
        stamps = np.where(missing, 0, days).astype("datetime64[D]").astype("datetime64[s]")
        stamps[missing] = np.datetime64("NaT", "s")
        return pd.Series(stamps, name=self.name)


@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of finitely many public levels, in no order.

    >>> ka.Categorical(name="city", levels=("Basel", "Genf"), default="Genf").encode(["Basel", "Bern"])[0]
    array([0., 1.])
    """

    levels: tuple[str, ...]
    kind: ClassVar[str] = "categorical"
    ordered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = tuple(text_of(level) for level in listed(self.name, "levels", self.levels))
        if not levels or any(not level for level in levels) or len(set(levels)) != len(levels):
            raise DomainError(
                f"column {self.name}: levels must be distinct texts, at least one and none empty (an empty cell is "
                f"missing), got {list(self.levels)!r:.200}. List each level once."
            )
        for level in levels:
            check_shown(f"column {self.name}: a level", level)
            check_short(f"column {self.name}: a level", level)
            check_spacing(f"column {self.name}: a level", level)
        object.__setattr__(self, "levels", levels)
        self._check_default()

    def parse(self, text: str) -> float | None:
        return self._lookup.get(text, self._lookup.get(text.strip(), BAD))

    @cached_property
    def _lookup(self) -> dict[str, float]:
        return {level: float(code) for code, level in enumerate(self.levels)}

    def encode(self, cells: Any) -> tuple[Array, Array]:
        if not (isinstance(cells, pd.Series) and isinstance(cells.dtype, pd.CategoricalDtype)):
            return super().encode(cells)
        categories = cells.dtype.categories.tolist()
        if categories != list(self.levels) or any(type(each) is not str for each in categories):
            return super().encode(cells)
        codes = cells.cat.codes.to_numpy().astype(np.float64)  # the levels themselves: each cell has its code
        absent = codes < 0
        codes[absent] = math.nan if self.missing else self.default_code
        return codes, np.where(absent & (not self.missing), REPLACED, KEPT)

    def _fallback(self) -> float:
        return 0.0

    def decode(self, encoded: Array) -> pd.Series:
        codes = np.where(np.isnan(encoded), -1, encoded).astype(int)
        values = pd.Categorical.from_codes(codes, categories=list(self.levels), ordered=self.ordered)
        return pd.Series(values, name=self.name)

    def grid(self, size: int, rng: np.random.Generator) -> Array:
        codes = np.arange(len(self.levels), dtype=float)
        return codes if len(codes) <= size else np.sort(rng.choice(codes, size, replace=False))

    def _every_present(self, most: int) -> Array | None:
        return np.arange(len(self.levels), dtype=float) if len(self.levels) <= most else None

    def _draw_present(self, n: int, rng: np.random.Generator) -> Array:
        return rng.integers(0, len(self.levels), n).astype(float)

    def _extent(self) -> str:
        shown = ", ".join(self.levels[:6])
        return shown + (f", ... ({len(self.levels)} levels)" if len(self.levels) > 6 else "")

    def to_dict(self) -> dict[str, Any]:
        return self._common_dict() | {"levels": list(self.levels)}


@dataclass(frozen=True, kw_only=True)
class Ordinal(Categorical):
    """One of finitely many public levels, in the order they are listed.

    >>> ka.Ordinal(name="school", levels=("none", "some", "degree")).encode(["degree", "none"])[0]
    array([2., 0.])
    """

    kind: ClassVar[str] = "ordinal"
    ordered: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[float, float]:
        """(first code, last code).

        >>> ka.Ordinal(name="school", levels=("none", "some", "degree")).bounds
        (0.0, 2.0)
        """
        return 0.0, float(len(self.levels) - 1)


@dataclass(frozen=True, kw_only=True)
class Boolean(Categorical):
    """True or false; read from true/false, yes/no, t/f, y/n and 1/0, in either case.

    >>> ka.Boolean(name="ill").encode(["yes", "0", "TRUE"])[0]
    array([1., 0., 1.])
    """

    levels: tuple[str, ...] = ("False", "True")
    kind: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels != ("False", "True"):
            raise DomainError(
                f"column {self.name}: a boolean has no levels of its own. Remove levels, or use categorical."
            )

    @cached_property
    def _lookup(self) -> dict[str, float]:
        words = dict.fromkeys(("false", "no", "f", "n", "0"), 0.0) | dict.fromkeys(("true", "yes", "t", "y", "1"), 1.0)
        return words | {w.upper(): v for w, v in words.items()} | {w.capitalize(): v for w, v in words.items()}

    def decode(self, encoded: Array) -> pd.Series:
        values = pd.array(np.where(np.isnan(encoded), 0, encoded) > 0, dtype="boolean")
        values[np.isnan(encoded)] = pd.NA
        return pd.Series(values if self.missing else values.astype(bool), name=self.name)

    def to_dict(self) -> dict[str, Any]:
        return self._common_dict()
