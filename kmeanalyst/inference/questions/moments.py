"""Variances, standard deviations, covariances and correlations, with their errors.

Central moments are Σ v (x - m_x)(y - m_y), m = Σ v x, in the view's weights v; a release's weights are never divided by their
sum, and there is no correction for lost degrees of freedom. Under probability weights the matrices are positive semi-definite.
Their errors follow from the formulas (see `Statistic`), signed weights included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, EstimateTable, list_of_notes
from kmeanalyst.inference.estimate.population import (
    Distribution,
    Population,
    answer,
    estimate,
    estimates,
    mean_statistic,
    population_of,
    shown,
)
from kmeanalyst.inference.estimate.statistic import IntervalRule, Statistic
from kmeanalyst.inference.questions.within_ranges import FewRows, Z, most_apart, with_bias
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.release import Condition, Question, ReleaseData, View
from kmeanalyst.releases.texts import Printed

_ROUNDING = 1e-24  # share of the largest square: a variance below it counts as 0


@dataclass(frozen=True, eq=False)
class MatrixEstimate(Printed):
    """A covariance or correlation matrix with an error for each entry.

    names      (d,) what rows and columns stand for.
    estimates  the d(d+1)/2 entries on and above the diagonal, row by row.
    notes      what a reader should know in addition to the numbers.

    >>> found = release.corr(["age", "education-num"])
    >>> found.value
                        age  education-num
    age            1.000000       0.052068
    education-num  0.052068       1.000000
    >>> found["age", "education-num"].standard_error, found.standard_error.shape, found.view
    (0.1346..., (2, 2), 'fitted')
    """

    names: tuple[str, ...]
    estimates: Estimates
    notes: tuple[str, ...] = ()

    @property
    def view(self) -> str:
        """The weights it was computed with."""
        return self.estimates[0].view

    @property
    def value(self) -> pd.DataFrame:
        """(d, d) values."""
        return self._matrix(lambda entry: entry.value)

    @property
    def standard_error(self) -> pd.DataFrame:
        """(d, d) standard errors."""
        return self._matrix(lambda entry: entry.standard_error)

    def part(self, name: str) -> pd.DataFrame:
        """(d, d) one part of the standard errors: "privacy", "sampling" or "resolution"; NaN where unknown.

        >>> float(release.cov(["age", "education-num"]).part("privacy").loc["age", "age"])
        10.390443
        """
        return self._matrix(lambda entry: np.nan if entry.parts[name] is None else entry.parts[name])

    def __getitem__(self, pair: tuple[str, str]) -> Estimate:
        """The entry of two names, in either order."""
        for name in pair:
            if name not in self.names:
                raise KeyError(f"no column {name!r:.80} in this matrix, which has {', '.join(self.names):.300}. Name two of them.")
        i, j = sorted(self.names.index(name) for name in pair)
        return self.estimates[_pairs(len(self.names)).index((i, j))]

    def _matrix(self, number: Callable[[Estimate], float | None]) -> pd.DataFrame:
        matrix = np.empty((len(self.names), len(self.names)))
        for (i, j), entry in zip(_pairs(len(self.names)), self.estimates, strict=True):
            matrix[i, j] = matrix[j, i] = number(entry)
        return pd.DataFrame(matrix, index=list(self.names), columns=list(self.names))

    def to_frame(self, level: float = 0.95) -> EstimateTable:
        """One row for each pair of names, with its interval; a correlation of a column with itself has none.

        >>> release.cov(["age", "education-num"]).to_frame()["value"].round(1).tolist()
        [195.2, 1.9, 7.1]
        """
        pairs = list(combinations_with_replacement(self.names, 2))
        frame = self.estimates.to_frame(level).set_axis(pd.MultiIndex.from_tuples(pairs))
        return frame[[a != b or error > 0 for (a, b), error in zip(pairs, frame["standard_error"], strict=True)]]

    def __repr__(self) -> str:
        return "\n".join([str(self.to_frame()), *list_of_notes(self.notes, ())])


def var(release: ReleaseData, column: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """The variance of a column of numbers, or of an expression; negative under some signed weights, and a note says so.

    >>> release.var("age")
    var(age): 195 ± 17 (95 %: 161 to 229; privacy 10, sampling 4, resolution 13) [1 note]
    """
    population = population_of(release, where=where, view=view)
    return estimate(population, variance_of(population, column))


def std(release: ReleaseData, column: Question, *, where: Condition = None, view: View | None = None) -> Estimate:
    """The standard deviation of a column of numbers, or of an expression.

    Edge cases   where noise makes the variance negative 0, with the root of its interval, of weights as they are (`view`) NaN; an
                 error of NaN where it is 0: a root has no first order there.

    >>> release.std("age")
    std(age): 13.97 ± 0.62 (95 %: 12.71 to 15.13; privacy 0.37, sampling 0.13, resolution 0.47) [1 note]
    """
    population = population_of(release, where=where, view=view)
    return estimate(population, deviation_of(population, column))


def cov(
    release: ReleaseData, columns: Sequence[str] | str | None = None, *others: str,
    where: Condition = None, view: View | None = None,
) -> MatrixEstimate:  # fmt: skip
    """Covariances of columns, or of expressions; of all numbers and booleans that cannot be missing by default.

    columns, others  a list, or one name after another.

    >>> release.cov("age", "hours-per-week").value
                           age  hours-per-week
    age             195.178282       23.982532
    hours-per-week   23.982532      154.335544
    """
    return _matrix(release, [str(columns), *others] if others else columns, where, view, correlations=False)


def corr(
    release: ReleaseData, columns: Sequence[str] | str | None = None, *others: str,
    where: Condition = None, view: View | None = None,
) -> MatrixEstimate:  # fmt: skip
    """Pearson correlations of columns, or of expressions; see `cov`.

    Edge cases   NaN where a variance is not positive; beyond ±1 under some signed weights, and a note says so.

    >>> release.corr(["age", "hours-per-week"])["age", "hours-per-week"]
    corr(age, `hours-per-week`): 0.14 ± 0.21 (95 %: -0.26 to 0.54; privacy 0.07, sampling 0.02, resolution 0.19) [1 note]
    """
    return _matrix(release, [str(columns), *others] if others else columns, where, view, correlations=True)


def variance_of(population: Distribution, column: Any) -> Statistic:
    x = population.values(population.question(column))[:, None]
    variance, notes = _central_moments(population, x, [(0, 0)])[0], tuple[str, ...]()
    if variance.value < -_least(population, x)[0]:
        what = f"{variance.value:.4g} is not a variance"
        notes = (population.infeasible(what, lambda same: variance_of(same, column).value),)
    found = answer(population, variance, f"var({shown(column)})", notes, possible=(0.0, _most_deviation(population, column) ** 2))
    found = with_bias(population, found, _of_few_rows(population, column, x))
    return _with_heaps(population, found, lambda other: variance_of(other, column))


def _most_deviation(population: Distribution, column: Any) -> float:
    """The largest standard deviation within a column's bounds: half of their distance (Popoviciu 1935)."""
    low, high = population.bounds(population.question(column)) or (-np.inf, np.inf)
    return (high - low) / 2


def _of_few_rows(population: Distribution, column: Any, x: Array) -> float:
    mean = population.mean(x)
    return FewRows(population, population.question(column)).error(lambda values: (values - mean) ** 2)


def _with_heaps(population: Distribution, found: Statistic, statistic: Callable[[Distribution], Statistic]) -> Statistic:
    """The same with an error for values that heap where a condition cuts their range."""
    if not isinstance(population, Population) or found.influence is None:
        return found
    apart = most_apart(population, float(found.value), statistic)
    return with_bias(population, found, apart / Z)


def deviation_of(population: Distribution, column: Any) -> Statistic:
    x, text = population.values(population.question(column))[:, None], f"std({shown(column)})"
    variance, least = _central_moments(population, x, [(0, 0)])[0], float(_least(population, x)[0])
    few, possible = _of_few_rows(population, column, x), (0.0, _most_deviation(population, column))
    if variance.value > least:
        root = replace(answer(population, np.sqrt(variance), text, possible=possible), interval_by=_Root.of_root)
        root = with_bias(population, root, few / (2 * root.value))
        return _with_heaps(population, root, lambda other: deviation_of(other, column))
    if variance.value >= -least and not few:
        note = "the released points do not vary here, and a root has no first-order error at 0: the error is not known"
        return answer(population, Statistic(0.0, None), text, (note,))
    if variance.influence is not None and (population.view == "fitted" or variance.value >= -least):
        error = float(np.hypot(estimate(population, answer(population, variance, text)).standard_error, few))
        note = f"the variance is {variance.value:.4g} ± {error:.2g} by noise: the interval is the root of its"
        root = replace(variance, value=0.0, influence=variance.influence / (2 * np.sqrt(error)))
        root = replace(answer(population, root, text, (note,), possible=possible), interval_by=_Root(variance.value, error))
        return with_bias(population, root, few / (2 * np.sqrt(error)))
    note = population.infeasible(
        f"no standard deviation: the variance is {variance.value:.4g}", lambda same: deviation_of(same, column).value
    )
    return answer(population, Statistic(np.nan, None), text, (note,))


@dataclass(frozen=True)
class _Root(IntervalRule):
    """The roots of the ends of a variance's interval: where noise is large, a root is far from its first order. A negative
    variance counts as 0 for the upper one.
    """

    variance: float
    error: float

    @classmethod
    def of_root(cls, value: float, error: float) -> _Root:
        return cls(value**2, 2 * value * error)

    def interval(self, z: float) -> tuple[float, float]:
        low, high = np.sqrt([max(self.variance - z * self.error, 0.0), max(self.variance, 0.0) + z * self.error])
        return float(low), float(high)


def _matrix(
    release: ReleaseData, columns: Sequence[str] | None, where: Condition, view: View | None, *, correlations: bool
) -> MatrixEstimate:
    names, notes = _chosen(release, columns)
    population = population_of(release, where=where, view=view)
    entries = _entries(population, names, correlations)
    return MatrixEstimate(names, estimates(population, entries), notes)


def _chosen(release: ReleaseData, columns: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(columns, str) or (columns is not None and not len(columns)):
        raise ValueError(
            f"columns must be a list of at least one name, got {columns!r}: a matrix has a row for each. Write them in "
            'brackets, such as ["age", "income"].'
        )
    if columns is not None:
        return tuple(columns), ()
    columns_of = [column for column in release.columns.columns if not isinstance(column, Date)]
    numbers = [column for column in columns_of if column.is_number or isinstance(column, Boolean)]
    whole = tuple(column.name for column in numbers if not column.missing)
    left_out = [column.name for column in numbers if column.missing]
    if not whole:
        raise ValueError("no column of numbers without missing cells: name columns, and exclude missing ones with where.")
    note = f"left out, as their cells may be missing: {', '.join(left_out)}; name them, and exclude those with where"
    return whole, (note,) if left_out else ()


def _pairs(d: int) -> list[tuple[int, int]]:
    return list(combinations_with_replacement(range(d), 2))


def _least(population: Distribution, X: Array) -> Array:
    """(d,) variances that are rounding errors of 0."""
    return _ROUNDING * np.max(X[: len(population.weights)] ** 2, axis=0)


def _central_moments(population: Distribution, X: Array, pairs: Sequence[tuple[int, int]]) -> Statistic:
    """Σ v (x_i - m_i)(x_j - m_j) (k,) for each pair, m = Σ v x; X is (n, d) at the rows of the distribution."""
    mean = mean_statistic(population, X)
    centred = X - mean.value  # before it is squared: nothing cancels
    shift, rest = mean - mean.value, mean_statistic(population, centred)  # 0, and 0 where the weights sum to one
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    products = mean_statistic(population, centred[:, first] * centred[:, second])
    return products - shift[first] * rest[second] - shift[second] * rest[first]  # shift² is of second order


def _entries(population: Population, names: Sequence[str], correlations: bool) -> list[Statistic]:
    X, pairs = np.column_stack([population.values(population.question(name)) for name in names]), _pairs(len(names))
    moments, least = _central_moments(population, X, pairs), _least(population, X)
    variances = [moments[pairs.index((i, i))] for i in range(len(names))]
    feasible = cache(lambda same: [entry.value for entry in _entries(same, names, correlations)])
    entries, few = [], FewRows(population, population.question(names[0])).relative
    for k, (i, j) in enumerate(pairs):
        entry, notes, name = moments[k], tuple[str, ...](), "corr" if correlations else "cov"
        constant = [names[c] for c in (i, j) if variances[c].value <= least[c]]
        if correlations and constant:
            entry = Statistic(np.nan, None)
            notes = (f"no correlation: {constant[0]} has no positive variance under these weights",)
        elif correlations:
            # 1 whatever the weights, on the diagonal: no rounding error in its place
            one = Statistic(1.0, np.zeros(len(X)))
            entry = one if i == j else moments[k] / np.sqrt(variances[i] * variances[j])
        beyond = abs(entry.value) > 1 + 1e-9 if correlations else i == j and entry.value < -least[i]
        if beyond:
            what = f"{entry.value:.4g} is not a {'correlation' if correlations else 'variance'}"
            notes = (population.infeasible(what, lambda same, k=k: feasible(same)[k]),)  # type: ignore[misc]
        possible = (-1.0, 1.0) if correlations else (0.0, np.inf) if i == j else None
        text = f"{name}({shown(population.question(names[i]))}, {shown(population.question(names[j]))})"
        found = answer(population, entry, text, notes, possible)
        entries.append(with_bias(population, found, few if correlations and i != j else 0.0))
    return entries
