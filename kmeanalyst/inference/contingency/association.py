"""How strongly pairs of columns go together, one measure for numbers and levels alike, with its error.

With D = S_a^(-1/2) Cov(a, b) S_b^(-1/2), S the variance of a number or the probability of a level, ‖D‖² is the squared correlation
of two numbers, the correlation ratio of a number and levels, and φ² of levels. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.contingency.contingency_test import Contrasts, weighted_test
from kmeanalyst.inference.contingency.strata import strata_of
from kmeanalyst.inference.estimate.error_model import joined
from kmeanalyst.inference.estimate.estimate import EstimateTable
from kmeanalyst.inference.estimate.population import Population, feasible_view, mean_statistic, population_of
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.expressions.arrays import numbers_of
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.releases.texts import Printed

MOST_GROUPS = 8  # groups that the levels form: the rarest are taken together
DISTINGUISHED = 0.01  # p-value below which an association is distinguished from none
LEAST_SHARE = 0.02  # least share of a level that forms a group of its own
_Z = 1.959964
_ROUNDING = 1e-12  # a variance below is a rounding error
Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class Association(Printed):
    """How strongly two columns go together.

    columns         their names.
    measure         "correlation" of numbers and booleans (in [-1, 1]), "correlation ratio" of a number and levels, or
                    "Cramér's V" of levels (in [0, 1]).
    value           NaN where a column does not vary.
    standard_error  half the width of the 68 % interval.
    interval        (low, high) at 95 %, within the measure's range.
    pvalue          of the hypothesis that the columns are independent, by their measured table (`independence_test`); where no
                    table holds them, that the value is 0, by the normal distribution of the error model.
    note            what a reader should know, or "".
    view            the weights it was computed with.

    >>> found = ka.associations(release, ["age", "income"])[0]
    >>> found.measure, round(found.value, 2), [round(end, 2) for end in found.interval]
    ('correlation ratio', 0.27, [0.0, 0.39])
    """

    columns: tuple[str, str]
    measure: str = ""
    value: float = np.nan
    standard_error: float = np.nan
    interval: tuple[float, float] = (np.nan, np.nan)
    pvalue: float = np.nan
    note: str = ""
    view: str = ""

    @property
    def distinguished(self) -> bool:
        """Whether the errors of the release distinguish the columns from independent ones: a p-value below .01.

        >>> ka.associations(release, ["age", "income"])[0].distinguished
        True
        """
        return bool(self.pvalue < DISTINGUISHED)

    def __str__(self) -> str:
        low, high = self.interval
        numbers = f"{self.value:.2f} ± {self.standard_error:.2f} (95 %: {low:.2f} to {high:.2f}; p = {self.pvalue:.2g})"
        return f"{' × '.join(self.columns)}: {self.measure} {numbers}" + (f"\nnote: {self.note}" if self.note else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON.

        >>> ka.associations(release, ["age", "income"])[0].to_dict()["columns"]
        ['age', 'income']
        """
        return {**vars(self), "columns": list(self.columns), "interval": list(self.interval)}


class Associations(Printed, list[Association]):
    """Associations in their order, which print as a table, with each note once.

    >>> len(ka.associations(release, ["age", "income", "sex"]))
    3
    """

    def to_frame(self) -> EstimateTable:
        """One row for each pair: value, standard_error, low, high (at 95 %), pvalue, view, note.

        >>> ka.associations(release, ["age", "income", "sex"]).to_frame()["pvalue"].round(2).tolist()
        [0.0, 0.53, 0.0]
        """
        index = [(*one.columns, one.measure) for one in self]
        rows = [(one.value, one.standard_error, *one.interval, one.pvalue, one.view, one.note) for one in self]
        columns = ["value", "standard_error", "low", "high", "pvalue", "view", "note"]
        names = ["column", "and column", "measure"]
        return EstimateTable(rows, columns=columns, index=pd.MultiIndex.from_tuples(index, names=names))

    def __repr__(self) -> str:
        return repr(self.to_frame())

    def _repr_html_(self) -> str:
        return self.to_frame()._repr_html_()


def associations(
    release: ReleaseData, columns: Sequence[str] | None = None, *, view: View | None = None,
    progress: Progress | None = None,
) -> Associations:  # fmt: skip
    """The association of every pair of columns, in their order; columns of texts are left out.

    columns   names; all by default, derived ones too.
    view      "fitted" (the default where something was measured) or "probability".
    progress  called after each pair.
    A missing cell of levels is a level of its own; rows with a missing number are left out of its pairs. Levels rarer than
    2 %, or beyond the eight most frequent, are taken together.

    >>> for one in ka.associations(release, ["age", "income", "sex"]):
    ...     print(*one.columns, one.measure, f"{one.value:.2f} ± {one.standard_error:.2f}")
    age income correlation ratio 0.25 ± 0.05
    age sex correlation ratio 0.03 ± 0.03
    income sex Cramér's V 0.18 ± 0.03
    """
    refused = f'associations are of probabilities, got view="{view}": signed weights can give negative variances.'
    names = [name for name in columns or release.columns.names if not release.columns[name].is_text]
    pairs = list(combinations(names, 2))
    asked = _Pairs(release, feasible_view(release, view, refused))
    found = Associations()
    for k, (a, b) in enumerate(pairs, start=1):
        found.append(replace(asked.association(a, b), view=asked.view))
        if progress is not None:
            progress("pairs", k / len(pairs))
    return found


class _Pairs:
    def __init__(self, release: ReleaseData, view: View) -> None:
        self.release = release
        self.view = view
        self._populations: dict[tuple[str, ...], Population] = {}
        self._groups: dict[str, Array] = {}

    def association(self, a: str, b: str) -> Association:
        try:
            population = self._population(a, b)
            x, y = self._side(population, a), self._side(population, b)
        except ValueError as refusal:
            return Association(columns=(a, b), note=str(refusal))
        for name, side in ((a, x), (b, y)):
            if side.rank < 1:
                return Association(columns=(a, b), note=f"{words.written(name)} does not vary in the release")
        d, covariance = _standardised(population, x, y)
        if x.is_number and y.is_number:
            found = _signed(a, b, float(d[0]), float(covariance[0, 0]))
        else:
            measure = "correlation ratio" if x.is_number or y.is_number else "Cramér's V"
            found = _unsigned(a, b, measure, d, covariance, min(x.rank, y.rank))
        return self._tested(found)

    def _tested(self, found: Association) -> Association:
        """With the p-value of the pair's measured table, where it has one."""
        (a, b), names, measurement = found.columns, self.release.domain.names, self.release.measurement
        if measurement is None or a not in names or b not in names:
            return found
        if not measurement.counted_together(names.index(a), names.index(b)):
            of_others = self.release.statement is not None and self.release.statement.declared_by
            why = "it is in none of the tables" if of_others else "its score did not outweigh its table's noise"
            return replace(found, pvalue=1.0, note=f"this pair was not counted: {why}")
        strata = strata_of(self.release, a, b)
        if strata is None or min(strata.tables.shape[1:]) < 2:
            return found
        return replace(found, pvalue=weighted_test(Contrasts.of(strata))[1])

    def _population(self, *names: str) -> Population:
        domain = self.release.columns
        gaps = tuple(name for name in names if domain[name].missing and is_number(domain[name]))
        if gaps not in self._populations:
            where = [f"not missing({words.column(name)})" for name in gaps]
            self._populations[gaps] = population_of(self.release, where=where or None, view=self.view)
        return self._populations[gaps]

    def _side(self, population: Population, name: str) -> _Side:
        column = self.release.columns[name]
        if is_number(column):
            x = population.values(lambda rows: numbers_of(rows[name]))
            x = (x - population.mean(x))[:, None]
            variance = mean_statistic(population, x**2)
            least = _ROUNDING * float(np.max(x[: len(population.weights)] ** 2, initial=0.0))
            return _Side(x, variance, int(variance.value[0] > least), True)
        if name not in self._groups:
            everyone = self._population()
            column, levels = everyone.release.columns[name], np.asarray(everyone.model.frame[name].cat.codes)
            if isinstance(column, Tree):
                levels = np.where(levels < 0, -1, column.group_of(levels, column.deepest())).astype(int)
            self._groups[name] = _grouped(levels, everyone.weights)
        indicators = np.equal.outer(self._groups[name], np.unique(self._groups[name])).astype(float)
        share = mean_statistic(population, indicators)
        present = share.value > _ROUNDING
        share = share[present]
        return _Side(indicators[:, present] - share.value, share, len(share.value) - 1, False)


@dataclass(frozen=True, eq=False)
class _Side:
    """One column of a pair.

    features  (n, k) at the rows of population.model.frame, centred.
    scale     (k,) S, the diagonal: positive.
    rank      of the covariance: how many dimensions the column varies in; 0 where it does not.
    """

    features: Array
    scale: Statistic
    rank: int
    is_number: bool


def is_number(column: Column) -> bool:
    return column.is_number or isinstance(column, Boolean)


def _grouped(levels: Array, weights: Array) -> Array:
    """Levels (n,) with the rare ones as one, numbered -2; weights are those of the first rows."""
    names, which = np.unique(levels, return_inverse=True)
    share = np.bincount(which[: len(weights)], weights, minlength=len(names))
    most = np.sort(np.argsort(-share, kind="stable")[: MOST_GROUPS - 1])
    kept = names[most[share[most] >= LEAST_SHARE]]
    return np.where(np.isin(levels, kept), levels, -2)


def _standardised(population: Population, x: _Side, y: _Side) -> tuple[Array, Array]:
    """D row by row (k,), and its covariance (k, k)."""
    products = (x.features[:, :, None] * y.features[:, None, :]).reshape(len(x.features), -1)
    row, column = np.indices((x.features.shape[1], y.features.shape[1])).reshape(2, -1)
    d = mean_statistic(population, products) / np.sqrt(x.scale[row] * y.scale[column])
    assert d.influence is not None
    return d.value, joined(population.model.covariance(population.influence(d.influence)))


def _signed(a: str, b: str, value: float, variance: float) -> Association:
    error = float(np.sqrt(max(variance, 0.0)))
    low, high = (float(np.clip(value + sign * _Z * error, -1.0, 1.0)) for sign in (-1, 1))
    return Association(
        columns=(a, b), measure="correlation", value=value, standard_error=error, interval=(low, high),
        pvalue=_pvalue(value**2, np.array([[variance]])),
    )  # fmt: skip


def _unsigned(a: str, b: str, measure: str, d: Array, covariance: Array, rank: int) -> Association:
    """√(‖D‖²/rank), by the distribution of a quadratic form of normal variables to second order."""
    squared = float(d @ d)
    error = float(np.sqrt(max(4 * d @ covariance @ d + 2 * np.sum(covariance**2), 0.0)))

    def root(z: float) -> float:
        return float(np.sqrt(min(max(squared + z * error, 0.0) / rank, 1.0)))

    return Association(
        columns=(a, b), measure=measure, value=root(0.0), standard_error=(root(1.0) - root(-1.0)) / 2,
        interval=(root(-_Z), root(_Z)), pvalue=_pvalue(squared, covariance),
    )  # fmt: skip


def _pvalue(squared: float, covariance: Array) -> float:
    form = NormalQuadraticForm(covariance)
    if not form.coefficients.max() > _ROUNDING**2 * squared:  # no error at all, as of a number and itself
        return 0.0 if squared > 0 else float("nan")
    return form.sf(squared)
