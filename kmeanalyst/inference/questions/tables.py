"""Histograms, tables and statistics by group: DataFrames with an error bar on every number.

A row's columns are its value, standard_error, low and high (the interval at `level`), the parts privacy, sampling and resolution
(NaN where unknown), the view and a note. Cells of a histogram or table are probabilities. Signed weights can make them negative;
they are shown as they are, with a note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import PARTS
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
from kmeanalyst.inference.estimate.population import Population, estimates, feasible_view, population_of
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.questions.expectation import mean_of, probability_of, statistic_of
from kmeanalyst.inference.questions.groups import MOST_ASKED, Group, check_groups, groups_of
from kmeanalyst.inference.questions.moments import deviation_of, variance_of
from kmeanalyst.inference.questions.quantiles import quantiles_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.lazy import instead_of
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.expressions.arrays import codes_of
from kmeanalyst.releases.release import Condition, Question, ReleaseData, View

MOST_CELLS = 10_000  # cells of a table
MOST_NUMBERS = 100_000_000  # cells × rows: an error bar needs to know each cell's condition at every row
MOST_WORK = 2**30  # characters of conditions × (rows + 5000), of groups that are no levels


def histogram(
    release: ReleaseData, column: str, *, bins: int | Sequence[float] | None = None, where: Condition = None,
    view: View | None = None, level: float = 0.95,
) -> pd.DataFrame:  # fmt: skip
    """The probability of each group of a column's values, one row for each, indexed by its label.

    bins      how numbers are grouped: see `groups_of`. By default atoms, and ranges between public edges.
    Columns   left and right of numbers and dates, then "probability" and the other columns of this module.

    >>> release.histogram("sex")[["probability", "standard_error"]]
            probability  standard_error
    sex
    Female     0.331615        0.007664
    Male       0.668385        0.007664
    """
    return histogram_of_groups(population_of(release, where=where, view=view), column, bins, level)


def histogram_of_groups(population: Population, column: str, bins: int | Sequence[float] | None, level: float) -> pd.DataFrame:
    groups = groups_of(population.release.columns, column, bins)
    return histogram_frame(joint_probabilities(population, [groups]), groups, column, level)


def histogram_frame(found: Estimates, groups: Sequence[Group], name: str, level: float) -> pd.DataFrame:
    frame = _frame(found, level).set_axis(_labels(groups, name))
    if any(group.left is not None for group in groups):
        frame.insert(0, "left", [group.left for group in groups])
        frame.insert(1, "right", [group.right for group in groups])
    return frame


def table(
    release: ReleaseData, a: str, b: str | None = None, *more: str, where: Condition = None, view: View | None = None,
    level: float = 0.95,
) -> pd.DataFrame:  # fmt: skip
    """The probability of each combination of groups of columns (or of each group of one), in long form.

    Groups are levels, atoms and ranges as `histogram` has them. The index has a level for each column,
    so that table(a, b)["probability"].unstack() is the crosstab. TypeError where a column is not a name.

    >>> release.table("sex", "income")["probability"].unstack()
    income     <=50K      >50K
    sex
    Female  0.287440  0.044176
    Male    0.474199  0.194186
    """
    names = [a, *([] if b is None else [b]), *more]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"a table needs names of columns, one after the other, got {names!r:.80}. Ask table('sex', 'income').")
    found = contingency(release, names, where=where, view=view)
    labels = [_labels(groups_of(release.columns, name), name) for name in names]
    index = labels[0] if len(names) == 1 else pd.MultiIndex.from_product(labels)
    return _frame(Estimates(estimate for _, estimate in found), level).set_axis(index)


def contingency(
    release: ReleaseData, columns: Sequence[str], *, where: Condition = None, view: View | None = None, tables: int = 1
) -> list[tuple[dict[str, str], Estimate]]:
    """The cells of a table: for each combination of groups, the last column's varying fastest: labels and probability.

    tables   how many such tables are asked for in all: the limits are those of all of them.
    """
    if len(set(columns)) < len(columns):
        raise ValueError(f"a table needs different columns, got {list(columns)}: only its diagonal is filled. Name one.")
    groups = [groups_of(release.columns, name) for name in columns]
    check_table(groups, len(release), tables)
    found = joint_probabilities(population_of(release, where=where, view=view), groups, tables)
    labels = product(*([group.label for group in some] for some in groups))
    return [(dict(zip(columns, some, strict=True)), cell) for some, cell in zip(labels, found, strict=True)]


def joint_probabilities(population: Population, groups: Sequence[Sequence[Group]], tables: int = 1) -> Estimates:
    """The probability of each combination of groups, the last column's varying fastest; within the limits of `check_table`."""
    check_table(groups, len(population.model.frame), tables)
    held = [list(zip(_held(population, some), [group.condition for group in some], strict=True)) for some in groups]
    cells = (
        (np.logical_and.reduce([holds for holds, _ in some]), " and ".join(text for _, text in some)) for some in product(*held)
    )
    return estimates(population, [statistic_of(population, holds.astype(float), text) for holds, text in cells])


def check_table(groups: Sequence[Sequence[Group]], n_rows: int, tables: int = 1) -> None:
    """ValueError where the cells, or the work for them, are more than a table may have; before any condition is evaluated.

    n_rows   at which each cell's condition is known: the released points, and the rows that error bars are computed from.
    """
    cells = tables * math.prod(len(some) for some in groups)
    characters = tables * sum(len(group.condition) for some in groups for group in some if group.code is None)
    if cells <= MOST_CELLS and cells * n_rows <= MOST_NUMBERS and characters * (n_rows + 5000) <= MOST_WORK:
        return
    few = min(MOST_CELLS, MOST_NUMBERS // n_rows)
    too_many = f"{characters:,} characters of conditions, too many to be"
    what = f"{cells:,} cells, and at most {few:,} are" if cells > few else too_many
    raise ValueError(
        f"the table has {what} answered at once with {n_rows:,} rows: each cell has an error of its own, computed from all rows. "
        "Name fewer columns, pass fewer bins, or ask for single cells with probability(...) or `kmeanalyst expect`."
    )


def _held(population: Population, groups: Sequence[Group]) -> list[Array]:
    """Whether each of one column's groups holds, bool (n,) over model.frame: levels are compared by their codes."""
    codes = np.zeros(0)
    if name := next((group.column for group in groups if group.code is not None), None):
        column = population.release.columns[name]
        assert isinstance(column, Categorical)
        codes = codes_of(population.model.frame[name], column)
        if population.given is not None:
            codes = np.where(population.given, codes, np.nan)
    return [population.values(g.condition) == 1 if g.code is None else codes == g.code for g in groups]


def _labels(groups: Sequence[Group], name: str) -> pd.CategoricalIndex:
    labels = [group.label for group in groups]
    return pd.CategoricalIndex(labels, categories=labels, ordered=True, name=name)


def _frame(found: Estimates, level: float) -> pd.DataFrame:
    return found.to_frame(level).rename(columns={"value": "probability"})


_INSTEAD = {
    **dict.fromkeys(("size", "count", "value_counts"), "release.table(column) has the share of each group"),
    **dict.fromkeys(("agg", "apply", "describe"), "ask one statistic at a time, such as .mean(column)"),
    **dict.fromkeys(("median", "min", "max"), ".quantile(column, q) is one"),
}


@dataclass(frozen=True)
class GroupBy:
    """Statistics of a release for each group of a column's values; made by `Release.groupby`.

    Each method gives a DataFrame with a row for each group, indexed by its label; NaN and a note for one without weight.

    >>> release.groupby("income").mean("age")[["value", "standard_error", "low", "high"]]
                value  standard_error        low       high
    income
    <=50K   36.464868        0.595893  35.296940  37.632797
    >50K    45.413935        1.818027  41.850667  48.977202
    """

    release: ReleaseData = field(repr=False)
    column: str
    where: Condition = None
    view: View | None = None
    level: float = 0.95

    if not TYPE_CHECKING:  # for which every name would be an attribute
        __getattr__ = instead_of("a GroupBy", _INSTEAD)

    def __post_init__(self) -> None:
        if not isinstance(self.column, str):
            raise TypeError(
                f"groups are of one column, got {self.column!r:.80}. Group by one, given a level of the other in where=; the "
                "cells of two are release.table(a, b)."
            )

    def __getitem__(self, column: object) -> NoReturn:
        raise TypeError(f"groups are asked by a statistic of a column. Write release.groupby({self.column!r}).mean({column!r}).")

    def mean(self, column: str) -> pd.DataFrame:
        """The mean of another column of numbers.

        >>> release.groupby("sex").mean("age")["value"].round(1).to_dict()
        {'Female': 37.7, 'Male': 38.5}
        """
        return self._of_groups(lambda population: mean_of(population, population.question(column)))

    def expectation(self, question: Question) -> pd.DataFrame:
        """The expectation of an expression or function.

        >>> release.groupby("sex").expectation("age + 1")["value"].round(1).to_dict()
        {'Female': 38.7, 'Male': 39.5}
        """
        return self._of_groups(lambda population: mean_of(population, question))

    def probability(self, condition: Question) -> pd.DataFrame:
        """The probability of a condition.

        >>> release.groupby("sex").probability("income == '>50K'")["value"].round(2).to_dict()
        {'Female': 0.13, 'Male': 0.29}
        """
        return self._of_groups(lambda population: probability_of(population, condition))

    def var(self, column: Question) -> pd.DataFrame:
        """The variance of a column of numbers, or of an expression.

        >>> release.groupby("sex").var("age")["value"].round().to_dict()
        {'Female': 242.0, 'Male': 171.0}
        """
        return self._of_groups(lambda population: variance_of(population, column))

    def std(self, column: Question) -> pd.DataFrame:
        """The standard deviation of a column of numbers, or of an expression.

        >>> release.groupby("sex").std("age")["value"].round(1).to_dict()
        {'Female': 15.6, 'Male': 13.1}
        """
        return self._of_groups(lambda population: deviation_of(population, column))

    def quantile(self, column: Question, q: float = 0.5) -> pd.DataFrame:
        """The quantile of order q, in the probability view; see `quantile`.

        >>> release.groupby("sex").quantile("age", 0.5)["value"].to_dict()
        {'Female': 35.0, 'Male': 38.0}
        """
        view = feasible_view(self.release, self.view, f'quantiles are of probabilities, got view="{self.view}".')
        order = np.array([q], dtype=float)
        return self._of_groups(lambda population: quantiles_of(population, column, order)[0], view=view)

    def _of_groups(self, statistic: Callable[[Population], Statistic], view: View | None = None) -> pd.DataFrame:
        check_groups(self.release.columns[self.column], None, MOST_ASKED)
        groups = groups_of(self.release.columns, self.column)
        everyone = population_of(self.release, where=self.where, view=view or self.view)
        some = [self._group(group, view or self.view) for group in groups]
        there = [group for group in some if isinstance(group, Population)]
        found = iter(estimates(everyone, [statistic(population) for population in there]))
        answers = Estimates(next(found) if isinstance(group, Population) else group for group in some)
        return answers.to_frame(self.level).set_axis(_labels(groups, self.column))

    def _group(self, group: Group, view: View | None) -> Population | Estimate:
        conditions = [group.condition] if self.where is None else [self.where, group.condition]
        try:
            return population_of(self.release, where=conditions, view=view)
        except ValueError as refusal:
            label = population_of(self.release, view=view).view
            return Estimate(
                value=np.nan, standard_error=np.nan, parts=dict.fromkeys(PARTS, np.nan), view=label,
                question=group.condition, notes=(str(refusal),),
            )  # fmt: skip
