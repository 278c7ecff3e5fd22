"""An analyst's own rows, drawn over a release; and a column of numbers, from which curves are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.population import Population, population_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import Question, ReleaseData, View
from kmeanalyst.sources.tables import table_of


def as_release(release: ReleaseData, sample: Any) -> tuple[ReleaseData, list[str]]:
    """A sample's rows as points of equal weight, with the release's columns; and notes on its cells.

    sample   a DataFrame in natural units, or a table of any other source (see `table_of`).
    """
    source = table_of(sample)
    table = sample if source is None else source.frame(release.domain)
    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            f"a sample is drawn by its columns' names, and a {type(table).__name__} has none. Pass a DataFrame, "
            "or the path of a table."
        )
    encoded, counts = release.domain.encode_counted(table)
    rows = ReleaseData(
        points=release.domain.decode(encoded), weights=np.full(len(encoded), 1 / max(len(encoded), 1)), measurement=None,
        kernel=release.kernel, domain=release.domain, statement=None,
    )  # fmt: skip
    if release.derived:
        rows = rows.transform({one.column.name: one.expression for one in release.derived})
    derived = {one.column.name for one in release.derived}
    return rows, [note for note in counts.notes() if not set(counts.ignored) <= derived or "ignored" not in note]


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers in a population, for the rows where it is not missing.

    codes   (n,) encoded cells at the rows that statistics are made from; NaN where missing.
    """

    population: Population
    column: Number
    codes: Array

    @property
    def at_points(self) -> Array:
        """The codes of the points, (M,)."""
        return self.codes[: len(self.population.weights)]

    @property
    def probabilities(self) -> Array:
        """The points' weights, (M,), without negative ones."""
        positive = np.where(np.isfinite(self.at_points), np.maximum(self.population.weights, 0.0), 0.0)
        return positive / positive.sum()


def numbers_of(release: ReleaseData, name: str, *, where: Question | None, view: View | None) -> Numbers:
    """A column of numbers or dates under a view's weights; given that it is not missing, where it can be."""
    column = release.columns[name]
    if not isinstance(column, Number):
        raise ValueError(
            f"{name} is {column.kind}: a curve is drawn over numbers or dates, which have an order and distances. Draw its "
            "histogram."
        )
    conditions = [] if where is None else [where]
    if column.missing:
        conditions.append(f"not missing({words.column(name)})")
    population = population_of(release, where=conditions or None, view=view)
    return Numbers(population, column, column.encode(population.model.frame[name])[0])
