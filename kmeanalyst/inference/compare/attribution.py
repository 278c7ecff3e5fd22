"""Which columns, and which pairs of columns, differ between a release and a sample.

Functions of one column, or products of centred functions of two, are read off both sides by their linear functionals
(functionals.py) and tested together; the null distribution includes the noise. The features do not see all of a function.
Through the rest, a difference of the populations elsewhere enters the test; the null distribution includes its likely size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from kmeanalyst.inference.compare.functionals import (
    Functionals,
    RidgeProjector,
    column_functions,
    leading_products,
    whitened_test,
)
from kmeanalyst.inference.two_sample.sides import SampleRows, sample_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import Directions
from kmeanalyst.releases.measurement import Measurement

_FUNCTIONS = 6  # functions of each column
_PRODUCTS, _FEWEST_PRODUCTS, _ALL_PRODUCTS = 12, 4, 1500  # products: most of a pair, fewest, about all
_MOST_PAIRED = 30  # columns whose pairs are all tested
_MOST_NUMBERS = 50_000_000  # numbers in the functionals that are held at a time
_MOST_AT_ONCE = 600  # functionals held at a time


@dataclass(frozen=True)
class GroupTest:
    """p-value of a group of functions (NaN for an empty group), and the share of their variance that the features see."""

    pvalue: float
    seen: float


@dataclass(frozen=True, eq=False)
class Group:
    """Functions that are tested together.

    read        how they are read.
    variances   (k,) prior ones, as a signal.
    expected    (k,) the part of the difference of their means that something else explains.
    elsewhere   the relative variance by which the two populations may differ in the unseen part of the functions.
    """

    read: Functionals
    variances: Array
    expected: Array
    elsewhere: float


def difference_tests(
    groups: Iterable[Group], projector: RidgeProjector, sample: SampleRows
) -> tuple[list[GroupTest], Array]:
    """A test of each group: do its functions have one mean in the release's population and in the sample's?

    Returns   the tests, and the differences of all means (Σk,). One pass over the sample for as many groups as memory
              allows.
    """
    tests: list[GroupTest] = []
    found, evidence = [np.zeros(0)], projector.evidence
    for some in _batches(groups, projector.dimension):
        vectors = np.hstack([projector.vectors(group.read) for group in some])
        moments = sample_side(evidence, Directions(vectors, np.ones(vectors.shape[1])), sample.blocks())
        assert moments.covariance is not None
        differences = vectors.T @ (evidence.mean - moments.mean)
        shrink, stop = evidence.row_variance + moments.row_variance, 0
        for group in some:
            part = slice(stop, stop := stop + len(group.variances))
            missed = group.read.residuals.T @ group.read.residuals / len(group.read.residuals)
            covariance = moments.covariance[part, part] + group.elsewhere / shrink * missed
            signal = (group.read.signal * group.variances) @ group.read.signal.T
            excess = differences[part] - group.expected
            if len(excess):
                _, pvalue = whitened_test(vectors[:, part], excess, signal, covariance, shrink, evidence)
                tests.append(GroupTest(pvalue, group.read.seen))
            else:
                tests.append(GroupTest(np.nan, 0.0))
        found.append(differences)
    return tests, np.concatenate(found)


def _batches(groups: Iterable[Group], dimension: int) -> Iterator[list[Group]]:
    """The groups in batches, each of as many groups as memory allows, at least one."""
    most = max(1, min(_MOST_AT_ONCE, _MOST_NUMBERS // dimension))
    batch: list[Group] = []
    for group in groups:
        if batch and sum(len(each.variances) for each in (*batch, group)) > most:
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


class Columns:
    """A handful of functions of each column, and how they are read.

    functions   of each column.
    read        all of them, one column's after the other's.
    """

    def __init__(self, projector: RidgeProjector) -> None:
        domain = projector.evidence.domain
        self.functions = [column_functions(domain, (j,), projector.rows, _FUNCTIONS) for j in range(len(domain))]
        self.owner = np.repeat(np.arange(len(domain)), [len(each) for each in self.functions])
        self.read = projector.functionals(np.hstack([each(projector.rows) for each in self.functions]))

    def __getitem__(self, j: int) -> Functionals:
        """The functionals of column j."""
        return self.read[self.owner == j]


def column_tests(
    columns: Columns, projector: RidgeProjector, sample: SampleRows, elsewhere: float
) -> tuple[list[GroupTest], list[Array]]:
    """Does each column have the same distribution on both sides? The tests, and the differences of its functions' means.

    elsewhere   the relative variance by which the two populations differ as a whole.
    """
    groups = []
    for j, each in enumerate(columns.functions):
        alone = columns[j].orthogonalised_against(columns.read[columns.owner != j])
        groups.append(Group(alone, each.variances, np.zeros(len(each)), elsewhere))
    tests, differences = difference_tests(groups, projector, sample)
    return tests, [differences[columns.owner == j] for j in range(len(tests))]


def pairs_to_test(pvalues: Array) -> list[tuple[int, int]]:
    """All pairs of columns; of many columns, those of the columns that differ most."""
    first = np.sort(np.argsort(pvalues, kind="stable")[:_MOST_PAIRED])
    return list(combinations((int(j) for j in first), 2))


def pair_tests(
    pairs: Sequence[tuple[int, int]],
    columns: Columns,
    shifts: Sequence[Array],
    projector: RidgeProjector,
    sample: SampleRows,
    elsewhere: float,
    some: Array,
    measurement: Measurement | None = None,
) -> list[GroupTest]:
    """Does each pair of columns have the same association on both sides? Products of functions centred at `some` rows.

    shifts   for each column the differences of its functions' means; 0 if the column is not known to differ. They explain
             the product of the means. Their size also decides how much of the columns' own differences may enter through
             the unseen part of a product.
    measurement   pairs that it did not count together have p = 1.
    """
    tested = [pair for pair in pairs if measurement is None or measurement.counted_together(*pair)]
    centres = [each(some).mean(axis=0) for each in columns.functions]
    most = int(np.clip(_ALL_PRODUCTS / max(len(pairs), 1), _FEWEST_PRODUCTS, _PRODUCTS))

    def groups() -> Iterator[Group]:
        for i, j in tested:
            both = leading_products(columns.functions[i], columns.functions[j], (centres[i], centres[j]), most)
            read = projector.functionals(both.of_values(columns[i].values, columns[j].values))
            a, b = both.chosen
            doubt = elsewhere + _mean_square(shifts[i]) + _mean_square(shifts[j])
            yield Group(read.orthogonalised_against(columns.read), both.variances, shifts[i][a] * shifts[j][b], doubt)

    found = dict(zip(tested, difference_tests(groups(), projector, sample)[0], strict=True))
    return [found.get(pair, GroupTest(1.0, 0.0)) for pair in pairs]


def _mean_square(values: Array) -> float:
    return float(np.square(values).mean()) if len(values) else 0.0


def holm(pvalues: Array) -> Array:
    """p-values adjusted for their number (Holm 1979): at most one false alarm in 1/level families; NaN stays NaN."""
    adjusted = np.full(len(pvalues), np.nan)
    known = np.flatnonzero(~np.isnan(pvalues))
    order = known[np.argsort(pvalues[known], kind="stable")]
    steps = pvalues[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def verdicts(tests: Sequence[GroupTest], level: float) -> pd.DataFrame:
    """pvalue, adjusted (Holm), differs at the level, and the share seen: a row for each test."""
    pvalues = np.array([test.pvalue for test in tests], dtype=float)
    adjusted = holm(pvalues)
    seen = np.array([test.seen for test in tests], dtype=float)
    return pd.DataFrame({"pvalue": pvalues, "adjusted": adjusted, "differs": adjusted <= level, "seen": seen})
