"""Distribution functions and quantiles, with their errors.

The quantile of order q is the smallest value of a row at which the distribution function of the view reaches q: numpy's
"inverted_cdf" with weights. It increases in q and lies among the values of the view's rows. Its interval inverts that of the
distribution function (Woodruff 1952, *Confidence intervals for medians and other position measures*), so that it never leaves
the column's bounds; there is no normal distribution for it, and no symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from kmeanalyst.inference.estimate.error_model import Terms, total
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, largest_change, least_change
from kmeanalyst.inference.estimate.population import Distribution, Population, estimates, feasible_view, population_of, shown
from kmeanalyst.inference.estimate.statistic import IntervalRule, Statistic
from kmeanalyst.inference.estimate.unresolved import finest_ranges
from kmeanalyst.inference.questions.expectation import statistic_of
from kmeanalyst.inference.questions.within_ranges import FewRows, with_heaps_in_conditions
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import Condition, Question, ReleaseData, View

_WIDE, _GRID = 0.1, 41  # an error of the distribution function from which it is computed at so many further values
_ROUNDING = 1e-12  # added to the distribution function, so that 0.1 + 0.2 reaches 0.3
_Z = 1.96
_WIDENINGS, _AS_WIDE = 4, 1.05  # rounds of looking up the error where the interval ends, until it is no larger there


def cdf(
    release: ReleaseData, column: Question, x: float | Sequence[float], *, where: Condition = None,
    view: View | None = None,
) -> Estimate | Estimates:  # fmt: skip
    """P(column <= x), for a number or for several at once.

    column   a column of numbers, or an expression.
    x        in the column's units; a sequence gives Estimates.

    >>> release.cdf("age", [30, 50])
    age <= 30: 0.339 ± 0.018 (95 %: 0.303 to 0.375; privacy 0.008, sampling 0.006, resolution 0.015) [1 note]
    age <= 50: 0.798 ± 0.020 (95 %: 0.759 to 0.836; privacy 0.008, sampling 0.005, resolution 0.018) [1 note]
    """
    return cdf_of(population_of(release, where=where, view=view), column, x)


def cdf_of(population: Distribution, column: Any, x: float | Sequence[float]) -> Estimate | Estimates:
    asked = np.atleast_1d(np.asarray(x, dtype=float))
    if asked.ndim > 1 or np.isnan(asked).any():
        raise ValueError(f"x must be a number or a list of numbers, got {x!r:.80}. Pass where to read the function.")
    values = population.values(population.question(column))
    texts = [f"{shown(column)} <= {at:g}" for at in asked]
    found = [statistic_of(population, _at_most(values, at), text) for at, text in zip(asked, texts, strict=True)]
    answers = estimates(population, found)
    return answers[0] if np.ndim(x) == 0 else answers


def quantile(
    release: ReleaseData, column: Question, q: float | Sequence[float], *, where: Condition = None,
    view: View | None = None,
) -> Estimate | Estimates:  # fmt: skip
    """The quantile of order q, for a number or for several at once; see this module for its definition.

    column   a column of numbers, or an expression.
    q        in [0, 1]; a sequence gives Estimates.
    view     "fitted" (the default where something was measured) or "probability"; "signed" is refused.
    Returns  an Estimate, or Estimates. standard_error is the width of the 95 % interval divided by 2 · 1.96. Arithmetic with
             a quantile propagates its error to first order.

    >>> release.quantile("age", [0.25, 0.5, 0.75])
    quantile(age, 0.25): 28.00 ± 0.77 (95 %: 26.00 to 29.00; privacy 0.29, sampling 0.22, resolution 0.68) [1 note]
    quantile(age, 0.5): 37.0 ± 1.0 (95 %: 35.0 to 39.0; privacy 0.4, sampling 0.3, resolution 0.9) [1 note]
    quantile(age, 0.75): 47.0 ± 1.3 (95 %: 45.0 to 50.0; privacy 0.5, sampling 0.3, resolution 1.1) [1 note]
    """
    refused = (
        f'quantiles are of probabilities, got view="{view}": under signed weights the distribution function falls as well as '
        "rises, so an order has several quantiles or none."
    )
    return quantile_of(population_of(release, where=where, view=feasible_view(release, view, refused)), column, q)


def quantile_of(population: Distribution, column: Any, q: float | Sequence[float]) -> Estimate | Estimates:
    answers = estimates(population, quantiles_of(population, column, np.atleast_1d(np.asarray(q, dtype=float))))
    return answers[0] if np.ndim(q) == 0 else answers


def median(release: ReleaseData, column: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """The quantile of order 0.5.

    >>> release.median("age")
    quantile(age, 0.5): 37.0 ± 1.0 (95 %: 35.0 to 39.0; privacy 0.4, sampling 0.3, resolution 0.9) [1 note]
    """
    found = quantile(release, column, 0.5, where=where, view=view)
    assert isinstance(found, Estimate)  # of a single order
    return found


def quantiles_of(population: Distribution, column: Any, orders: Array) -> list[Statistic]:
    """The quantiles of several orders (k,) of a population, and their influences."""
    if orders.ndim > 1 or not ((orders >= 0) & (orders <= 1)).all():
        raise ValueError(f"q must lie between 0 and 1, got {orders.tolist()!r:.80}: it is a probability. Pass e.g. 0.5.")
    asked = population.question(column)
    x = population.values(asked)
    support, cumulative = _steps(x[: len(population.weights)], population.weights)
    bounds = population.bounds(asked) or (float(support[0]), float(support[-1]))

    def elsewhere() -> Array:
        return np.unique(x[np.isfinite(x) & (True if population.given is None else population.given)])

    def terms_at(at: float) -> Terms:
        return population.terms(population.influence(_at_most(x, at)))

    n = len(population.weights)
    ranges = finest_ranges(population.release, asked, x[:n], population.weights) if isinstance(population, Population) else None
    curve = InverseCdf(support, cumulative, 0.5, 0.0, bounds, elsewhere, terms_at, ranges)
    known, few = dict[float, float](), FewRows(population, asked)

    def errors_at(points: Sequence[float]) -> Array:
        if new := sorted({*points} - known.keys()):
            several = population.influence(np.column_stack([_at_most(x, value) for value in new]))
            errors = np.hypot(total(population.model.parts(several)), list(map(few.error_of_step, new)))
            known.update(zip(new, errors.tolist(), strict=True))
        return np.array([known[value] for value in points])

    inverse = [replace(curve, q=float(q)) for q in orders]
    found = [one.at(one.q) for one in inverse]
    own, below = errors_at([*found, *map(curve.before, found)]).reshape(2, -1)
    if own.max() > _WIDE:  # a heap may be here: where the cell that holds it ends, the function is known again
        errors_at([curve.at(share) for share in np.linspace(0, 1, _GRID)[1:-1]])
    errors = np.maximum(own, below)
    for _ in range(_WIDENINGS):
        ends = [replace(one, standard_error=float(e)).interval(_Z) for one, e in zip(inverse, errors, strict=True)]
        beyond = [curve.before(low) for low, _ in ends] + [high for _, high in ends]
        wider = np.maximum(errors, errors_at(beyond).reshape(2, -1).max(axis=0))
        if (wider <= _AS_WIDE * errors).all():
            break
        errors = wider
    values = np.array(sorted(value for value in known if value < support[-1]))  # no row may be beyond, and some of the population
    also = values, curve.known(values), np.array([known[value] for value in values])
    others = with_heaps_in_conditions(population) if isinstance(population, Population) else ()
    theirs = [[one.interval_by for one in quantiles_of(other, column, orders)] for other in others]
    inverse = [replace(one, also=also, beside=tuple(own[k] for own in theirs)) for k, one in enumerate(inverse)]
    answers = []
    for k, one in enumerate(inverse):
        by = replace(one, standard_error=float(errors[k]))
        text = population.text(f"quantile({shown(column)}, {one.q:g})")
        widest = next((at for at in known if known[at] == errors[k]), found[k])
        value, influence = by.at(by.q), -by.slope * population.influence(_at_most(x, widest))
        answers.append(Statistic(value, influence, question=text, interval_by=by))
    return answers


@dataclass(frozen=True, eq=False)
class InverseCdf(IntervalRule):
    """An interval for a quantile: the quantiles at q ± z·standard_error of the distribution function (Woodruff 1952).

    values          (m,) increasing, where the distribution function steps.
    cumulative      (m,) its values there; the last is 1.
    q               the order of the quantile.
    standard_error  of the distribution function at the quantile.
    bounds          what the quantile cannot leave: its interval there where q ± z·standard_error leaves (0, 1).
    elsewhere       (k,) increasing, the values that the quantile of another population may have.
    terms_at        x → the terms of the distribution function at x, as an Estimate has them.
    ranges          (c, 3) see `finest_ranges`: one that has more mass than the error may have all of it at either end.
    beside          those of the same order where values heap in ranges that conditions cut: its interval reaches theirs.
    also            values (k,), the function there and its errors there: where q ± z of these errors is passed, the quantile is not
                    further away.
    """

    values: Array
    cumulative: Array
    q: float
    standard_error: float
    bounds: tuple[float, float]
    elsewhere: Callable[[], Array]
    terms_at: Callable[[float], Terms]
    ranges: Array | None = None
    also: tuple[Array, Array, Array] | None = None
    beside: tuple[Any, ...] = ()

    def before(self, x: float) -> float:
        """The last value below another at which the function steps; the first of all where there is none."""
        return float(self.values[max(int(np.searchsorted(self.values, x)) - 1, 0)])

    def at(self, q: float) -> float:
        return float(self.values[min(int(np.searchsorted(self.cumulative, q)), len(self.values) - 1)])

    def interval(self, z: float) -> tuple[float, float]:
        low, high = self.q - z * self.standard_error, self.q + z * self.standard_error
        low, high = (self.bounds[0] if low <= 0 else self.at(low)), (self.bounds[1] if high >= 1 else self.at(high))
        if self.also is not None:
            values, known, errors = self.also
            below, above = values[known + z * errors < self.q], values[known - z * errors >= self.q]
            low, high = max([low, *below]), min([high, *above])
        others = [one.interval(z) for one in self.beside]
        ends = (low, self._end_of_range(low, 0)), (high, self._end_of_range(high, 1))
        return min(*ends[0], *(low for low, _ in others)), max(*ends[1], *(high for _, high in others))

    def _end_of_range(self, x: float, end: int) -> float:
        """The first or last value of the range that holds a value, if all of its mass may be there; else the value."""
        if self.ranges is None:
            return x
        own = self.ranges[max(int(np.searchsorted(self.ranges[:, 0], x, side="right")) - 1, 0)]
        return float(own[end]) if own[2] > self.standard_error else x

    @property
    def slope(self) -> float:
        """dx/dF over the 95 % interval; 0 where the distribution function has no error."""
        z = float(ndtri(0.975))
        low, high = self.interval(z)
        return (high - low) / (2 * z * self.standard_error) if self.standard_error > 0 else 0.0

    def robust(self, level: float) -> tuple[float, float]:
        """Least and largest quantile over all populations that agree with the measurement, found by bisection."""
        candidates = self.elsewhere()
        low = self._first(candidates, lambda x: self.known(x) + largest_change(self.terms_at(x), level))
        high = self._first(candidates, lambda x: self.known(x) + least_change(self.terms_at(x), level))
        return low, high

    def _first(self, candidates: Array, reached: Callable[[float], float]) -> float:
        below, above = -1, len(candidates)
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (below, middle) if reached(float(candidates[middle])) >= self.q else (middle, above)
        return float(candidates[above]) if above < len(candidates) else self.bounds[1]

    def known(self, x: Any) -> Any:
        """The distribution function at a value, or at several."""
        return np.append(0.0, self.cumulative)[np.searchsorted(self.values, x, side="right")]


def _at_most(values: Array, x: float) -> Array:
    return np.where(np.isnan(values), np.nan, values <= x)


def _steps(x: Array, weights: Array) -> tuple[Array, Array]:
    """The values (m,) at which the distribution function of x jumps, increasing, and the function there.

    Where best answers fall, as they may between two values, the function stays at the largest of those before.
    """
    used = weights != 0
    support, which = np.unique(x[used], return_inverse=True)
    cumulative = np.maximum.accumulate(np.cumsum(np.bincount(which, weights[used])))
    return support, cumulative / cumulative[-1] + _ROUNDING
