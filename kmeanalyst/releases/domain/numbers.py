"""Columns of numbers between public bounds: real, whole, cyclic (the hour of a day) and dates; and the scales of their codes."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain import column
from kmeanalyst.releases.domain.cells import BAD, parse_day, parse_number, text_of

TO_SCALE: dict[str, Callable[[Array], Array]] = {"linear": lambda v: v, "log": np.log, "log1p": np.log1p}
_ROUNDING = 1e-9  # of a number of steps, relative
FROM_SCALE: dict[str, Callable[[Array], Array]] = {"linear": lambda v: v, "log": np.exp, "log1p": np.expm1}


def _of_digits(values: Array, digits: int) -> Array:
    """Finite numbers, rounded to so many significant digits."""
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.maximum(np.abs(values), 1e-290))))
    return np.rint(values * scale) / scale


@dataclass(frozen=True, kw_only=True)
class Number(column.Column):
    """Base class of numbers and dates: bounds, scale, and public values of interest.

    >>> domain["age"].bounds, domain["age"].spacing, domain["age"].ends, domain["capital-gain"].atom_codes
    ((9.0, 98.0), 1.0, (8.5, 98.5), array([0.]))
    """

    lower: Any
    upper: Any
    scale: str = "linear"
    edges: tuple[Any, ...] = ()
    atoms: tuple[Any, ...] = ()
    is_number: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("lower", "upper", "default"):
            object.__setattr__(self, field, column.plain_number(getattr(self, field)))
        low, high = self.natural_bounds
        if not low < high:
            raise column.DomainError(
                f"column {self.name}: lower must be below upper, got {self.lower} and {self.upper}. Swap or widen them."
            )
        if self.scale not in ("linear", "log", "log1p"):
            raise column.DomainError(
                f'column {self.name}: scale must be "linear", "log" or "log1p", got {self.scale!r}. Name one of them.'
            )
        if (self.scale == "log" and low <= 0) or (self.scale == "log1p" and low <= -1):
            raise column.DomainError(
                f'column {self.name}: scale "{self.scale}" needs lower > {0 if self.scale == "log" else -1}, '
                f'got {self.lower}: the logarithm is undefined there. Raise lower, or use "log1p" if zero occurs.'
            )
        for field in ("edges", "atoms"):
            values = tuple(column.plain_number(value) for value in column.listed(self.name, field, getattr(self, field)))
            for value in values:
                if not low <= self._public_number(field, value) <= high:
                    raise column.DomainError(
                        f"column {self.name}: {field} must lie within the bounds, got {value!r}. Leave it out, or widen the bounds."
                    )
            object.__setattr__(self, field, values)
        self._check_default()
        self._check_steps()

    def _check_linear(self, what: str) -> None:
        if self.scale != "linear":
            raise column.DomainError(
                f'column {self.name}: scale must be "linear", got {self.scale!r}: {what} has no logarithm. Remove scale.'
            )

    def _check_steps(self) -> None:
        """DomainError unless a column with steps has a value within its bounds, and doubles tell its values apart."""
        if self.grain is None:
            return
        (low, high), (least, largest) = self.natural_bounds, self._extremes
        if least > largest or max(abs(low), abs(high)) > 2**53 * self.grain or not np.isfinite(self.ends).all():
            what = "a whole number" if self.grain == 1 else f"a multiple of {self.grain:g}"
            raise column.DomainError(
                f"column {self.name}: the bounds must hold {what} and stay within ±2^53 steps, got {self.lower} and "
                f"{self.upper}: larger numbers are not exact. Move the bounds, or use kind real without a step."
            )

    def _public_number(self, field: str, value: Any) -> float:
        text = text_of(value)
        column.check_text(f"column {self.name}: {field}", text)
        number = self.parse(text) if text else BAD
        if number is BAD or not math.isfinite(number):
            raise column.DomainError(f"column {self.name}: {field} must be a finite {self.kind} value, got {value!r}. Write one.")
        return number

    @property
    def natural_bounds(self) -> tuple[float, float]:
        """(lower, upper) as numbers; of a date in days since 1970-01-01.

        >>> ka.Date(name="day", lower="1970-01-11", upper="1970-02-01").natural_bounds
        (10.0, 31.0)
        """
        return self._public_number("lower", self.lower), self._public_number("upper", self.upper)

    @property
    def bounds(self) -> tuple[float, float]:
        """(lower, upper) in encoded units."""
        low, high = self._scaled(np.array(self.natural_bounds))
        return float(low), float(high)

    @property
    def grain(self) -> float | None:
        """Values are multiples of it, in natural units; None for a continuum.

        >>> domain["age"].grain, ka.Real(name="carat", lower=0, upper=5, step=0.01).grain
        (1.0, 0.01)
        """
        return None

    @property
    def spacing(self) -> float | None:
        """The distance of neighbouring encoded values; None where it varies, or for a continuum."""
        return self.grain if self.scale == "linear" else None

    def multiples(self, values: Array, rounding: Callable[[Array], Array] = np.rint) -> Array:
        """Numbers in natural units, moved to values of the column: to the nearest, or up (np.ceil), or down (np.floor).

        >>> ka.Real(name="carat", lower=0, upper=5, step=0.01).multiples(np.array([0.07, 0.493]), np.ceil)
        array([0.07, 0.5 ])
        """
        if self.grain is None or self.grain == 1:
            return values if self.grain is None else rounding(values)
        per = round(1 / self.grain) if self.grain < 1 else 1 / self.grain
        counts = np.asarray(values) * per
        nearest = np.rint(counts)
        known = np.abs(counts - nearest) <= _ROUNDING * np.maximum(np.abs(nearest), 1.0)
        return np.where(known, nearest, rounding(counts)) / per

    def cuts(self, values: Sequence[Any]) -> Array:
        """Encoded numbers that separate cells below each value from the others; half a step lower where there are steps.

        >>> domain["age"].cuts([30, 50])
        array([29.5, 49.5])
        """
        return self._scaled(self.multiples(self._numbers(values), np.ceil) - self._half)

    def cuts_above(self, values: Sequence[Any]) -> Array:
        """Encoded numbers that separate cells up to and with each value from the others, where there are steps.

        >>> domain["age"].cuts_above([30, 50])
        array([30.5, 50.5])
        """
        return self._scaled(self.multiples(self._numbers(values), np.floor) + self._half)

    @property
    def _half(self) -> float:
        return (self.grain or 0.0) / 2

    def holds(self, below: Array, above: Array) -> Array:
        """(n,) whether some value of the column lies in each range [below, above) of encoded units.

        >>> domain["age"].holds(np.array([30.2, 30.6]), np.array([30.8, 31.4]))
        array([False,  True])
        """
        if self.grain is None:
            return below < above
        first = self.multiples(FROM_SCALE[self.scale](below), np.ceil)
        after = self._scaled(self.multiples(first + self.grain))
        return np.where(self._scaled(first) < below, after, self._scaled(first)) < above

    @property
    def _extremes(self) -> tuple[float, float]:
        """The least and the largest value, in natural units."""
        low, high = (np.asarray(bound) for bound in self.natural_bounds)
        return float(self.multiples(low, np.ceil)), float(self.multiples(high, np.floor))

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds in encoded units, widened by half a step where there are steps, so that rounded uniform draws are uniform."""
        least, largest = self._extremes
        below, above = self._scaled(np.array([least - self._half, largest + self._half]))
        return float(below), float(above)

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
            values = cells.astype(np.float64)  # the same numbers as from their texts, which need not be made
        absent = np.isnan(values)
        encoded, clamped = self._encode_numbers(np.where(absent, 0.0, values))
        encoded[absent] = math.nan if self.missing else self.default_code
        return encoded, np.where(
            absent, column.KEPT if self.missing else column.REPLACED, np.where(clamped, column.CLAMPED, column.KEPT)
        )

    def _encode_numbers(self, values: Array) -> tuple[Array, Array]:
        clamped = self._clamp(values)
        return self._scaled(clamped), ~(np.abs(clamped - values) <= self._half)

    def _clamp(self, values: Array) -> Array:
        return np.clip(self.multiples(np.clip(values, *self.natural_bounds)), *self._extremes)

    def _fallback(self) -> float:
        return self.natural_bounds[0]

    def decode(self, encoded: Array) -> pd.Series:
        return pd.Series(self._natural(encoded), name=self.name)

    def _scaled(self, values: Array) -> Array:
        values = np.asarray(values, dtype=float)
        return TO_SCALE[self.scale](values) + 0.0  # -0.0 is 0.0

    def _natural(self, encoded: Array) -> Array:
        encoded = np.asarray(encoded, dtype=float)
        natural = self._clamp(FROM_SCALE[self.scale](encoded))
        if self.scale == "linear":
            return natural
        for towards in (-np.inf, np.inf):  # exp is rounded: take the neighbour that encodes to the code
            near = natural
            for _ in range(4):
                near = self._clamp(np.nextafter(near, towards))
                natural = np.where((self._scaled(natural) != encoded) & (self._scaled(near) == encoded), near, natural)
        for digits in (15, 13):  # of several that encode to it, the one that people write: 10, not 10.000000000000002
            plain = self._clamp(_of_digits(natural, digits))
            natural = np.where(self._scaled(plain) == encoded, plain, natural)
        return natural

    def rounded(self, encoded: Array) -> Array:
        """Encoded values moved to the nearest ones that decode and encode to themselves.

        >>> domain["age"].rounded(np.array([30.4, 120.0]))
        array([30., 98.])
        """
        return self._scaled(self._natural(encoded))

    def wrap(self, encoded: Array) -> Array:
        """Any encoded numbers, moved to values of the column: those beyond its bounds to the bounds.

        >>> ka.Integer(name="age", lower=17, upper=90).wrap(np.array([3.2, 40.6, 1000.0]))
        array([17., 41., 90.])
        """
        return self.rounded(np.clip(encoded, *self.bounds))

    def grid(self, size: int, rng: np.random.Generator) -> Array:
        if (every := self._every_present(size)) is not None:
            return every
        low, high = self.bounds
        even = np.linspace(low, high, size) + rng.uniform(-0.5, 0.5, size) * (high - low) / (size - 1)
        values = [np.clip(even, low, high), self._codes(self.edges), self.atom_codes]
        return np.unique(self.rounded(np.concatenate(values)))

    def _every_present(self, most: int) -> Array | None:
        if self.grain is None:
            return None
        least, largest = self._extremes
        if (largest - least) / self.grain >= most:
            return None
        return self._scaled(self.multiples(least + self.grain * np.arange(round((largest - least) / self.grain) + 1)))

    def _codes(self, values: Sequence[Any]) -> Array:
        return self._scaled(self._numbers(values))

    def _numbers(self, values: Sequence[Any]) -> Array:
        return np.array([self._public_number("value", v) for v in values], dtype=float)

    @property
    def atom_codes(self) -> Array:
        """The encoded atoms, as cells encode to them; sorted."""
        return np.unique(self.rounded(self._codes(self.atoms)))

    def _draw_present(self, n: int, rng: np.random.Generator) -> Array:
        return self.rounded(rng.uniform(*self.bounds, n))

    def _extent(self) -> str:
        return f"{self.lower} to {self.upper}" + (f" ({self.scale} scale)" if self.scale != "linear" else "")


@dataclass(frozen=True, kw_only=True)
class Real(Number):
    """A number between public bounds: on a continuum, or in steps.

    step   a whole number or one over a whole number, such as 0.01 for two decimals: values are its multiples, and cells are
           rounded to them. Ranges then end between two values, so that `x <= edge` and `x < edge` have an answer each.

    >>> ka.Real(name="wage", lower=0, upper=1e6, scale="log1p", atoms=(0,)).encode(["0", "1e9", "x"])[0]
    array([ 0.        , 13.81...,  0.        ])
    >>> ka.Real(name="carat", lower=0, upper=5, step=0.01).cuts([0.5])
    array([0.495])
    """

    step: float | None = None
    kind: ClassVar[str] = "real"

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", column.plain_number(self.step))
        step: Any = self.step
        if step is not None:
            is_positive = isinstance(step, int | float) and not isinstance(step, bool) and 0 < step < math.inf
            per = (step if step >= 1 else 1 / step) if is_positive else 0.5
            if abs(per - round(per)) > _ROUNDING * per:
                raise column.DomainError(
                    f"column {self.name}: step must be a whole number or one over a whole number, got {step!r:.80}. Write 0.01 "
                    "for numbers with two decimals."
                )
            for field in ("lower", "upper"):
                bound = column.plain_number(getattr(self, field))
                if (
                    isinstance(bound, float)
                    and math.isfinite(bound)
                    and math.isclose(
                        bound, multiple := float(self.multiples(np.array(bound))), rel_tol=_ROUNDING, abs_tol=_ROUNDING * step
                    )
                ):  # so that the multiple is within bounds where arithmetic left a last digit, as in 1 - 0.08
                    object.__setattr__(self, field, multiple)
        super().__post_init__()

    @property
    def grain(self) -> float | None:
        return self.step


@dataclass(frozen=True, kw_only=True)
class _Whole(Number):
    """Numbers that are whole in natural units: integers, and days."""

    @property
    def grain(self) -> float | None:
        return 1.0


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


def _is_form_of_days(form: Any) -> bool:
    """Whether it reads every day that it writes, and none as ISO would read it, so that no column mixes two orders."""
    if not isinstance(form, str) or form != form.strip():
        return False
    named = re.findall("%(.)", form)
    if not ({"d", "m"} <= set(named) <= set("dmYyHMS") and len(set(named) & {"Y", "y"}) == 1 and len(set(named)) == len(named)):
        return False
    day = datetime.datetime(2003, 2, 1, 4, 5, 6)
    text, wanted = day.strftime(form), parse_day(day.date().isoformat())
    return parse_day(text, form) == wanted and parse_day(text) in (BAD, wanted)


@dataclass(frozen=True, kw_only=True)
class Date(_Whole):
    """A day, written YYYY-MM-DD, between public bounds; encoded in days since 1970-01-01.

    format     how cells of tables are written if not so, such as "%d.%m.%Y", of the directives of `time.strptime` that are numbers;
               %y is of 1969 to 2068.
    seasonal   whether the table kernel uses the day of the year too: days one year from each other are then similar.

    >>> ka.Date(name="joined", lower="2000-01-01", upper="2024-12-31").encode(["2000-01-01", "1999-05-05"])[0]
    array([10957., 10957.])
    """

    seasonal: bool = False
    format: str | None = None
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        for field in ("lower", "upper", "default"):
            value = getattr(self, field)
            if isinstance(value, datetime.date):
                object.__setattr__(self, field, value.isoformat())
        for field in ("edges", "atoms"):
            object.__setattr__(self, field, tuple(text_of(v) for v in column.listed(self.name, field, getattr(self, field))))
        if self.format is not None and not _is_form_of_days(self.format):
            raise column.DomainError(
                f"column {self.name}: format must have %d, %m and %Y (or %y), else %H, %M and %S alone, each once, and no form "
                f'that reads like YYYY-MM-DD, got {self.format!r:.80}. Write how days stand in the table, such as "%d.%m.%Y".'
            )
        super().__post_init__()
        self._check_linear("a date")
        self._check_flag("seasonal")

    def parse(self, text: str) -> float | None:
        day = parse_day(text)
        return parse_day(text, self.format) if day is None and self.format is not None else day

    def decode(self, encoded: Array) -> pd.Series:
        days = self._natural(encoded)
        missing = np.isnan(days)
        stamps = np.where(missing, 0, days).astype("datetime64[D]").astype("datetime64[s]")
        stamps[missing] = np.datetime64("NaT", "s")
        return pd.Series(stamps, name=self.name)


@dataclass(frozen=True, kw_only=True)
class Cyclic(Number):
    """A number on a circle: `upper` is `lower` again, and their difference is a public period.

    A value outside is moved into [lower, upper) by whole periods, 25 o'clock to 1; such a cell counts as kept. An infinite
    value is not on the circle and becomes the default. Questions treat it as a number: its mean is that of the numbers.

    >>> hour = Cyclic(name="hour", lower=0, upper=24)
    >>> hour.encode(["23.5", "25", "-1", "24"])[0], hour.period
    (array([23.5,  1. , 23. ,  0. ]), 24.0)
    """

    kind: ClassVar[str] = "cyclic"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_linear("a circle")
        if self.atoms and self.natural_bounds[1] in self._numbers(self.atoms):
            raise column.DomainError(
                f"column {self.name}: the atom {self.upper} is the same point as {self.lower}. Write {self.lower}."
            )
        if not math.isfinite(self.period) or self.period < 1e-100:
            raise column.DomainError(f"column {self.name}: the period must be a number from 1e-100 to 1e300, got {self.period}.")

    @property
    def period(self) -> float:
        """upper − lower."""
        low, high = self.bounds
        return high - low

    def _clamp(self, values: Array) -> Array:
        low, high = self.natural_bounds
        finite = np.where(np.isfinite(values), values, low)
        inside = (finite >= low) & (finite < high)  # these stay as they are, to the last bit
        wrapped = low + np.mod(finite - low, high - low)
        found = np.where(inside, finite, np.where(wrapped < high, wrapped, low))  # a sum may be rounded up to upper
        return np.where(np.isnan(values), np.nan, np.maximum(found, low))

    def _encode_numbers(self, values: Array) -> tuple[Array, Array]:
        infinite = ~np.isfinite(values)
        encoded = self._scaled(self._clamp(values))
        if infinite.any():
            encoded[infinite] = self.default_code
        return encoded, infinite

    def wrap(self, encoded: Array) -> Array:
        """Encoded numbers moved to values of the column: those beyond its bounds by whole periods.

        >>> ka.Cyclic(name="hour", lower=0, upper=24).wrap(np.array([25.0, -1.0, 6.5]))
        array([ 1. , 23. ,  6.5])
        """
        return self.rounded(encoded)
