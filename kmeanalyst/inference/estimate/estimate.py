"""The answer to a question: an estimate with its error in parts.

An estimate carries its influence function on each release. Arithmetic with estimates is arithmetic with these, to first order
(the delta method), so correlation is kept: errors that two estimates share cancel, and e - e is 0 ± 0. Intervals of ratios are
Fieller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from scipy.special import ndtri

from kmeanalyst.inference.estimate.error_model import PARTS, ErrorModel, Terms, joint_parts, total
from kmeanalyst.inference.estimate.heterogeneity import Heterogeneity
from kmeanalyst.inference.estimate.statistic import RULES, Differentiable, IntervalRule, OfRatio
from kmeanalyst.kernels.base import Array
from kmeanalyst.lazy import instead_of
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.texts import Printed

_PRINTED = ("standard_error", "low", "high", "view", "note")
SAMPLE = "sample"  # the view of estimates on real rows, which have no other
INDEPENDENT = "of different releases: they are taken as independent, which two releases of one table are not quite"


def _combined(value: float, question: str, operands: list[tuple[Estimate, float]]) -> Estimate:
    if not np.isfinite([value, *(slope for _, slope in operands)]).all():
        raise ValueError(
            f"{question} is undefined at {', '.join(f'{e.value:.4g}' for e, _ in operands)}, or its first-order error "
            "is: a root or logarithm of what is not positive, or a division by zero. Calculate with other estimates, "
            'or ask for them with view="probability".'
        )
    view, terms = _common_view(operands), _joined(operands)
    parts = {name: None if part is None else float(part) for name, part in joint_parts(terms).items()}
    notes = dict.fromkeys(note for estimate, _ in operands for note in estimate.notes)
    if sum(model.release is not None for model, _ in terms) > 1:
        notes[INDEPENDENT] = None
    return replace(
        operands[0][0], view=view, value=value, standard_error=float(total(parts)), parts=parts,
        question=question, notes=tuple(notes), terms=terms, interval_by=None, possible=None, heterogeneity=None,
    )  # fmt: skip


def _joined(operands: list[tuple[Estimate, float]]) -> Terms:
    """The influence of Σ slope · estimate on each release; ValueError where releases cannot go together."""
    joint: list[tuple[ErrorModel, Array]] = []
    for estimate, slope in operands:
        for model, influence in estimate.terms:
            _add(joint, model, slope * influence)
    return tuple(joint)


def _common_view(operands: list[tuple[Estimate, float]]) -> str:
    """The one view of all operands; a sample of rows may be combined with any. ValueError if there are several, or no influence."""
    for estimate, _ in operands:
        if not estimate.terms:
            raise ValueError(
                f"{estimate.question} has no known dependence on a release, so its error cannot be carried on: it was "
                "written by hand, or its value or error is undefined. Calculate with estimates that a release gave."
            )
    first, *others = dict.fromkeys(estimate.view for estimate, _ in operands if estimate.view != SAMPLE) or [SAMPLE]
    if others:
        raise ValueError(
            f"one estimate is of the {first} view and the other of the {others[0]} view: their difference would be the "
            f'views\', not the population\'s. Ask for both with view="{first}", or both with view="{others[0]}".'
        )
    return first


def _add(joint: list[tuple[ErrorModel, Array]], model: ErrorModel, influence: Array) -> None:
    for index, (other, known) in enumerate(joint):
        if other is model:
            n = max(len(known), len(influence))  # one of them may end in a bias
            padded = [np.append(part, np.zeros(n - len(part))) for part in (known, influence)]
            joint[index] = (model, padded[0] + padded[1])
            return
        if other.release is None or model.release is None:
            continue
        if other.release is model.release or one_measurement(other.release, model.release):
            raise shared_measurement("estimates")
    joint.append((model, influence))


def z_of(level: float) -> float:
    """How many standard errors an interval of this coverage reaches to each side, of the normal distribution."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}: it is a coverage. Pass e.g. 0.95.")
    return float(ndtri((1 + level) / 2))


def least_change(terms: Terms, level: float) -> float:
    """The first-order change to the least value that populations compatible at `level` give."""
    return sum(model.least_change(influence, level) for model, influence in terms)


def largest_change(terms: Terms, level: float) -> float:
    return -sum(model.least_change(-influence, level) for model, influence in terms)


def one_measurement(a: ReleaseData, b: ReleaseData) -> bool:
    ours, theirs = a.measurement, b.measurement
    return ours is not None and theirs is not None and np.array_equal(ours.vector, theirs.vector)


def shared_measurement(what: str) -> ValueError:
    return ValueError(
        f"these {what} rest on one measurement through two releases (a file read twice, or thinned), so they are "
        "not independent and their correlation is not known. Ask one Release object for both."
    )


_LONG, _SHORT = 1e15, 1e-11  # numbers of more digits are written by their exponents


_INSTEAD = {
    **dict.fromkeys(("ci", "conf_int", "confidence_interval"), ".interval(level=0.95) is the confidence interval"),
    **dict.fromkeys(("se", "std", "std_error", "stderr", "bse", "error"), ".standard_error is it"),
    **dict.fromkeys(("estimate", "mean", "item"), ".value is the number"),
}


@dataclass(frozen=True, kw_only=True)
class Estimate(Differentiable, Printed):
    """An estimated number with its standard error, in parts that are always kept separate.

    value           the estimate, in the units of the question.
    standard_error  root of the sum of the squared parts.
    parts           "privacy": the noise added for privacy. "sampling": the table is itself a sample.
                    "resolution": what the release's features cannot see of the question.
                    A part that is not known (points from elsewhere) is None, and counts as zero.
    view            the weights it was computed with: "signed", "probability" or "fitted"; "sample": of real rows, whose
                    error has no other part than sampling.
    question        what was asked, as text.
    notes           what a reader should know in addition to the number.
    terms           error models with the estimate's influence function at the rows of each; none if it is unknown.
    interval_by     the interval, if it is not value ± error; None for the normal distribution.
    possible        (least, largest) value that any population can give; intervals end there. None where it is not known.
    heterogeneity   of an answer that combines several: how far these differ beyond their errors. None else.

    Estimates and numbers can be added, subtracted, multiplied and divided, raised to a number, and handed to np.sqrt, np.log and
    np.exp: the error follows to first order; the interval of a ratio is Fieller's (1954). Those of one release keep their
    correlation and must share one view; those of different releases count as independent, and a note says so.

    >>> e = Estimate(value=0.3124, standard_error=0.0113, question="age > 50", view="probability",
    ...              parts={"privacy": 0.0061, "sampling": 0.0026, "resolution": 0.0092})
    >>> e
    age > 50: 0.312 ± 0.011 (95 %: 0.290 to 0.335; privacy 0.006, sampling 0.003, resolution 0.009)
    """

    value: float
    standard_error: float
    parts: dict[str, float | None]
    view: str
    question: str
    notes: tuple[str, ...] = ()
    terms: Terms = field(default=(), repr=False, compare=False)
    interval_by: IntervalRule | None = field(default=None, repr=False, compare=False)
    possible: tuple[float, float] | None = field(default=None, repr=False, compare=False)
    heterogeneity: Heterogeneity | None = field(default=None, repr=False, compare=False)

    if not TYPE_CHECKING:  # for which every name would be an attribute
        __getattr__ = instead_of("an estimate", _INSTEAD)

    def _derived(self, rule: str, operands: tuple[Any, ...], value: Any, slopes: list[Any]) -> Estimate:
        shown = [f"[{x.question}]" if isinstance(x, Estimate) else f"{x:g}" for x in operands]
        text = f" {rule} ".join(shown) if len(shown) > 1 else f"{'-' if rule == 'negative' else rule}{shown[0]}"
        terms = [(x, float(slope)) for x, slope in zip(operands, slopes, strict=False) if isinstance(x, Estimate)]
        found = _combined(float(value), text, terms)
        if rule == "/" and isinstance(operands[1], Estimate):
            return _ratio(found, *operands)
        if len(terms) > 1 or rule not in _RISING_OR_FALLING or not terms[0][1]:
            return found
        moved = _Moved(of := terms[0][0], rule, operands)
        possible = None if of.possible is None else moved.at(of.possible)
        return replace(found, interval_by=None if of.interval_by is None else moved, possible=possible)

    def interval(self, level: float = 0.95, kind: str = "default") -> tuple[float, float]:
        """(low, high) of coverage `level` in (0, 1).

        kind   "default": value ± z·standard_error, normal distribution, or by `interval_by`. "robust": the range over all
               populations, smooth or not, that agree with the measurement, to first order, and no less than the default
               (the first of a release takes some seconds). "noise": without the sampling part, for the value in the
               private table itself. ValueError where an interval is not known (no measurement).

        >>> release.mean("age").interval(0.9)
        (37.8696..., 39.3263...)
        >>> release.mean("age").interval(0.9, kind="robust")  # over all populations that agree with the measurement
        (31.4362..., 46.7885...)
        >>> release.mean("age").interval(0.9, kind="noise")  # for the mean of the table's own rows
        (37.9328..., 39.2631...)
        """
        if kind not in ("default", "robust", "noise"):
            raise ValueError(
                f'kind must be "default", "robust" or "noise", got {kind!r}: the intervals are from the standard error, over all '
                "populations that agree with the measurement, and without sampling, for the table itself. Pass one of them."
            )
        z = z_of(level) * (self._share_without_sampling if kind == "noise" else 1.0)
        low, high = self.value - z * self.standard_error, self.value + z * self.standard_error
        if self.interval_by is not None:
            low, high = self.interval_by.interval(z)
        if kind != "robust":
            return self._possible_part(low, high)
        if not self.terms:
            raise ValueError(
                f"{self.question} has no robust interval: it follows from an influence function, which a number made by "
                'hand, or one whose error is not known, has not. Ask kind="default".'
            )
        own = None if self.interval_by is None else self.interval_by.robust(level)
        least, largest = own or [self.value + change(self.terms, level) for change in (least_change, largest_change)]
        return self._possible_part(min(low, least), max(high, largest))

    def moe(self, level: float = 0.90) -> float:
        """The margin of error as statistical agencies print it: z standard errors, at 90 % by default.

        >>> release.mean("age").moe()
        0.7283...
        """
        return z_of(level) * self.standard_error

    def _possible_part(self, low: float, high: float) -> tuple[float, float]:
        """An interval's intersection with what is possible; where that is nothing, the nearest possible one of its width."""
        if self.possible is None:
            return low, high
        (least, largest), width = self.possible, high - low
        if high < least:
            low, high = least, least + width
        elif low > largest:
            low, high = largest - width, largest
        return max(low, least), min(high, largest)

    @property
    def _share_without_sampling(self) -> float:
        privacy, resolution = (self.parts.get(name) for name in ("privacy", "resolution"))
        if privacy is None or resolution is None or any(model.release is None for model, _ in self.terms):
            raise ValueError(
                f"{self.question} has no noise interval: without a measurement the error of the privacy noise is not known, and a "
                'sample is not the table. Ask kind="default", or a release with its measurement.'
            )
        return float(np.hypot(privacy, resolution) / self.standard_error) if self.standard_error > 0 else 1.0

    @property
    def digits(self) -> int:
        """Decimals that show two digits of the standard error.

        >>> release.mean("age").digits
        2
        """
        return _digits(self.standard_error)

    def written(self, number: float, separator: str = "") -> str:
        """A number of this estimate with these decimals; by its exponent where it would be long, or all zeros.

        separator   of thousands: "," or none.

        >>> release.mean("age").written(38.2468)
        '38.25'
        """
        return _written(number, self.value, self.standard_error, separator)

    def written_parts(self) -> list[str]:
        """The parts of the error as texts.

        >>> release.mean("age").written_parts()
        ['0.26', '0.18', '0.30']
        """
        return ["unknown" if part is None else self.written(part) for part in self.parts.values()]

    def to_dict(self, level: float = 0.95, kind: str = "default") -> dict[str, Any]:
        """The estimate as plain numbers, as `expect --json` prints it; `kind` is that of its interval.

        >>> release.mean("age").to_dict()["parts"]
        {'privacy': 0.2631..., 'sampling': 0.1803..., 'resolution': 0.3070...}
        """
        differ = {} if self.heterogeneity is None else {"heterogeneity": self.heterogeneity.to_dict()}
        return {
            "expression": self.question, "value": self.value, "standard_error": self.standard_error,
            "interval": list(self.interval(level, kind)), "level": level, "interval_kind": kind, "view": self.view,
            "parts": dict(self.parts), "notes": list(self.notes), **differ,
        }  # fmt: skip

    def _numbers(self) -> str:
        low, high = self.interval()
        known = {name: part for name, part in self.parts.items() if part is not None or self.view != SAMPLE}
        parts = ", ".join(f"{name} {'unknown' if v is None else self.written(v)}" for name, v in known.items())
        return (
            f"{self.written(self.value)} ± {self.written(self.standard_error)} "
            f"(95 %: {self.written(low)} to {self.written(high)}; {parts})"
        )

    def __repr__(self) -> str:
        count = len(self.notes)
        return self._line() + f" [{count} note{'s' * (count > 1)}]" * bool(count)

    def _line(self) -> str:
        return f"{self.question}: {self._numbers()}"

    def __str__(self) -> str:
        return "\n".join([self._line(), *list_of_notes((), [self])])

    def __format__(self, spec: str) -> str:
        """Value and standard error in a number's format; without one, what `print` shows.

        >>> f"{release.mean('age'):.1f} years"
        '38.2 ± 0.4 years'
        """
        return f"{self.value:{spec}} ± {self.standard_error:{spec}}" if spec else str(self)


_RISING_OR_FALLING = ("+", "-", "*", "/", "negative", "sqrt", "log", "exp")


@dataclass(frozen=True, eq=False)
class _Moved(IntervalRule):
    """The interval of a rising or falling function of one estimate whose interval is not value ± z·error: that of its ends."""

    of: Estimate
    rule: str
    operands: tuple[Any, ...]  # the estimate, and a number or none

    def at(self, ends: tuple[float, float]) -> tuple[float, float]:
        least = 0.0 if self.rule in ("sqrt", "log") else -np.inf
        with np.errstate(all="ignore"):
            found = [RULES[self.rule](*(max(end, least) if x is self.of else x for x in self.operands))[0] for end in ends]
        return float(min(found)), float(max(found))

    def interval(self, z: float) -> tuple[float, float]:
        return self.at(cast(IntervalRule, self.of.interval_by).interval(z))


def _ratio(found: Estimate, numerator: Any, denominator: Estimate) -> Estimate:
    over, least = (numerator.standard_error, numerator.possible) if isinstance(numerator, Estimate) else (0.0, (numerator,))
    positive = all(possible is not None and possible[0] >= 0 for possible in (least, denominator.possible))
    sides = over / abs(denominator.value), denominator.standard_error / abs(denominator.value)
    by = OfRatio(found.value, found.standard_error, sides, positive)
    return replace(found, interval_by=by, possible=(0.0, np.inf) if positive else None)


class Estimates(Printed, tuple[Estimate, ...]):
    """Several estimates, in the order they were asked for; `to_frame()` is a table of them.

    >>> release.expectations(["age > 30", "age > 50"])
    age > 30: 0.661 ± 0.018 (95 %: 0.625 to 0.697; privacy 0.008, sampling 0.006, resolution 0.015) [1 note]
    age > 50: 0.202 ± 0.020 (95 %: 0.164 to 0.241; privacy 0.008, sampling 0.005, resolution 0.018) [1 note]
    """

    def to_frame(self, level: float = 0.95) -> EstimateTable:
        """One row for each estimate, indexed by its question.

        Columns   value, standard_error, low, high (the interval at `level`), privacy, sampling, resolution (NaN where
                  unknown), view, note.

        >>> release.expectations(["age > 30", "age > 50"]).to_frame()[["value", "low", "high"]]
                     value       low      high
        question
        age > 30  0.661157  0.625373  0.696941
        age > 50  0.202469  0.163706  0.241233
        """
        index = pd.Index([estimate.question for estimate in self], name="question")
        return EstimateTable([_row(estimate, level) for estimate in self], index=index)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def __str__(self) -> str:
        return "\n".join([repr(self), *list_of_notes((), self)])


class EstimateTable(pd.DataFrame):
    """A DataFrame with a row for each estimate. It prints values with errors and intervals, and each note once below.

    All columns are there and are used as those of any DataFrame; `pd.DataFrame(table)` prints them all.

    >>> release.table("sex")
           probability ± error     low    high
    sex
    Female      0.3316  0.0077  0.3166  0.3466
    Male        0.6684  0.0077  0.6534  0.6834
    (fitted weights; also: privacy, sampling, resolution, view, note)
    """

    @property
    def _constructor(self) -> type[EstimateTable]:
        return EstimateTable

    def __repr__(self) -> str:
        if not set(_PRINTED) <= set(self.columns):
            return super().__repr__()
        with pd.option_context("display.max_columns", None, "display.width", None):
            return "\n".join([repr(self._printed()), *self._below()])

    def _repr_html_(self) -> str:
        if not set(_PRINTED) <= set(self.columns):
            return str(super()._repr_html_())
        below = "<br>".join(f"<small>{escape(line)}</small>" for line in self._below())
        value = self.columns[self.columns.get_loc("standard_error") - 1]
        return pictured(self._printed(), self[[value, "low", "high"]].to_numpy(float)) + below

    @property
    def parts(self) -> pd.DataFrame:
        """Values with the parts of their errors, and the coefficient of variation with the flag that agencies print.

        >>> release.table("sex").parts
               probability ± error privacy sampling resolution   CV
        sex
        Female      0.3316  0.0077  0.0035   0.0061     0.0031  2 %
        Male        0.6684  0.0077  0.0035   0.0061     0.0031  1 %
        """
        numbers = self[[self.columns[self.columns.get_loc("standard_error") - 1], "standard_error"]].to_numpy(float)
        return self._printed(PARTS).assign(CV=[flagged(*row) for row in numbers])

    def _printed(self, further: Sequence[str] = ("low", "high")) -> pd.DataFrame:
        shown = [self.columns[self.columns.get_loc("standard_error") - 1], "standard_error", *further]
        rows = [[_written(number, row[0], row[1]) for number in row] for row in self[shown].to_numpy(float)]
        return pd.DataFrame(rows, index=self.index, columns=[shown[0], "± error", *further])

    def _below(self) -> list[str]:
        views, also = ", ".join(dict.fromkeys(self["view"])), list(self.columns[self.columns.get_loc("high") + 1 :])
        notes = dict.fromkeys(note for some in self["note"] for note in some.split("; ") if note)
        return [f"({views} weights; also: {', '.join(also)})", *(f"note: {note}" for note in notes)]


def pictured(frame: pd.DataFrame, numbers: Array, *, index: bool = True) -> str:
    """The HTML of a table with one more column: each row's value as a dot, its interval as a line, and a line at zero if near.

    numbers   (k, 3): value, low and high of each row. Infinite ends are drawn to the edge; a row with a NaN has no picture.
    """
    marks, known = [f"picture {k}" for k in range(len(frame))], numbers[np.isfinite(numbers)]
    html = (frame.assign(interval=marks) if len(known) else frame).to_html(notebook=True, index=index, max_rows=60)
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    low, high = (min(low, 0.0) if low < high - low else low), (max(high, 0.0) if -high < high - low else high)
    at = 4 + 142 * (np.clip([*numbers, [0.0] * 3], low, high) - low) / ((high - low) or 1.0)
    zero = f'<path d="M{at[-1, 0]:.1f} 0V14" stroke="#888"/>' if low <= 0 <= high else ""
    for mark, (value, left, right) in zip(marks, at[:-1], strict=True):
        line = f'<path d="M{left:.1f} 7H{right:.1f}" stroke="#0072B2" stroke-width="2"/>'
        dot = f'<circle cx="{value:.1f}" cy="7" r="3.5" fill="#0072B2"/>'
        picture = (
            "" if np.isnan(value + left + right) else f'<svg width="150" height="14" aria-hidden="true">{zero}{line}{dot}</svg>'
        )
        html = html.replace(f"<td>{mark}</td>", f"<td>{picture}</td>", 1)
    return html


def list_of_notes(notes: Sequence[str], estimates: Sequence[Estimate]) -> list[str]:
    every = dict.fromkeys((*notes, *(note for estimate in estimates for note in estimate.notes)))
    return [f"note: {note}" for note in every]


def flagged(value: float, error: float) -> str:
    """The coefficient of variation, with E (use with caution) from 16.5 % and F (too unreliable to publish) from 33.3 % on.

    Source   Statistics Canada's guidelines on the release of survey estimates, whose cut-offs and symbols these are.

    >>> flagged(50, 2), flagged(-5, 1), flagged(0, 1)
    ('4 %', '20 % E', 'F')
    """
    cv = error / abs(value) if value else np.nan
    return f"{100 * cv:.0f} %{' F' if cv >= 0.333 else ' E' if cv >= 0.165 else ''}" if np.isfinite(cv) else "F"


def _digits(error: float) -> int:
    return int(np.clip(1 - np.floor(np.log10(error)), 0, 12)) if np.isfinite(error) and error > 0 else 6


def _written(number: float, value: float, error: float, separator: str = "") -> str:
    """See `Estimate.written`."""
    long = max(abs(value), error if np.isfinite(error) else 0.0) >= _LONG
    lost = 0 < error < _SHORT and abs(value) < _SHORT * 1e3
    return f"{number:.4g}" if long or lost else f"{number:{separator}.{_digits(error)}f}"


def _row(estimate: Estimate, level: float) -> dict[str, Any]:
    low, high = estimate.interval(level)
    parts = {name: np.nan if part is None else part for name, part in estimate.parts.items()}
    numbers = {"value": estimate.value, "standard_error": estimate.standard_error, "low": low, "high": high}
    return numbers | parts | {"view": estimate.view, "note": "; ".join(estimate.notes)}
