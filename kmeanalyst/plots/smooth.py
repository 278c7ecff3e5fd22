"""A column of numbers as a curve: a smoothed density, and the distribution function, each with a band.

The density at x is E[k_h(x, X)], an expectation like any other. Mass is reflected at the bounds (Schuster 1985), or wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.population import Population, estimates, population_of
from kmeanalyst.inference.questions.expectation import statistic_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.plots.axes import axis_label, mark_scale, scale_of
from kmeanalyst.plots.style import (
    RELEASE,
    RULE,
    SAMPLE,
    SeriesStyle,
    axes_of,
    condition_and_notes,
    explain,
    percent,
    plain,
)
from kmeanalyst.releases.domain.cyclic_column import Cyclic
from kmeanalyst.releases.domain.numbers import Date, Number
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import Question, ReleaseData, View
from kmeanalyst.sources.tables import table_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVE = 121  # points of a density
_STEPS = 100  # points of a distribution function, in addition to atoms
_BAND = 0.25  # opacity


def density(
    release: ReleaseData,
    column: str,
    *,
    bandwidth: float | None = None,
    where: Question | None = None,
    view: View | None = None,
    level: float = 0.95,
    sample: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """A smoothed density of a column of numbers or dates, with a pointwise band.

    bandwidth  standard deviation of the normal distribution that smooths it, in units of the column's scale (logarithms of a log
               column, days of a date); Silverman's 1986 rule of thumb by default.
    where, view, level  as of other questions; missing cells are left out.
    sample     rows of your own, drawn as a dashed line smoothed alike: a DataFrame, or the path of a table.
    Draws      the density without public atoms; the caption has the probabilities of these.

    >>> axes = ka.plots.density(release, "age", sample=sample)
    >>> axes.get_xlabel()
    'age'
    """
    numbers = _numbers_of(release, column, where=where, view=view)
    h = _bandwidth(numbers) if bandwidth is None else bandwidth
    if not (np.isfinite(h) and h > 0):
        raise ValueError(
            f"bandwidth must be a positive number, got {bandwidth!r}: the distribution is smoothed by it. Leave it out."
        )
    grid = np.linspace(*numbers.column.bounds, _CURVE)
    curve = _Curve(release, numbers, grid, lambda codes: _smoothed(numbers.column, codes, grid, h), stepped=False)
    ax = curve.draw(axes_of(ax), level)
    notes = [] if sample is None else curve.draw_sample(ax, sample, where)
    ax.set(ylabel=f"density per {_unit(numbers.column)}", ylim=(min(0.0, ax.get_ylim()[0]), ax.get_ylim()[1]))
    unit = " days" if isinstance(numbers.column, Date) else ""
    curve.finish(ax, where, level, [*_atoms(numbers), f"bandwidth {float(f'{h:.3g}'):,g}{unit}", *notes])
    return ax


def cdf(
    release: ReleaseData,
    column: str,
    *,
    where: Question | None = None,
    view: View | None = None,
    level: float = 0.95,
    sample: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """P(column <= x) over x, for a column of numbers or dates, with a pointwise band; it jumps at public atoms.

    where, view, level  as `Release.cdf` takes them; missing cells are left out.
    sample   rows of your own, drawn as a dashed line: a DataFrame, or the path of a table.

    >>> axes = ka.plots.cdf(release, "age", sample="my_sample.csv")
    """
    numbers = _numbers_of(release, column, where=where, view=view)
    kind = numbers.column
    low, high = kind.bounds
    points = np.unique(np.concatenate([kind.rounded(np.linspace(low, high, _STEPS)), kind.atom_codes]))
    curve = _Curve(release, numbers, points, lambda codes: (codes[:, None] <= points).astype(float), stepped=True)
    ax = curve.draw(axes_of(ax), level)
    notes = [] if sample is None else curve.draw_sample(ax, sample, where)
    for end in (0, 1):
        ax.axhline(end, color=RULE, linewidth=0.8, zorder=0)
    ax.set_ylabel(f"P({plain(column)} ≤ x)")
    curve.finish(ax, where, level, notes)
    return ax


@dataclass(frozen=True, eq=False)
class _Curve:
    """Expectations of functions of a column, one for each point of a grid.

    grid       (G,) encoded points.
    functions  encoded cells (n,) → (n, G).
    stepped    whether it is constant between points.
    """

    release: ReleaseData
    numbers: _Numbers
    grid: Array
    functions: Callable[[Array], Array]
    stepped: bool

    @property
    def x(self) -> Array:
        """The grid as the axis counts."""
        return scale_of(self.numbers.column)[1](self.grid)

    def draw(self, ax: Axes, level: float) -> Axes:
        """The release's estimates and their intervals."""
        population = self.numbers.population
        functions = self.functions(self.numbers.codes).T
        table = estimates(population, [statistic_of(population, one, "") for one in functions]).to_frame(level)
        style: dict[str, Any] = {"step": "post"} if self.stepped else {}
        ax.fill_between(self.x, table["low"], table["high"], color=RELEASE.colour, alpha=_BAND, linewidth=0, **style)
        self._line(ax, table["value"].to_numpy(), RELEASE, "release")
        return ax

    def draw_sample(self, ax: Axes, sample: Any, where: Question | None) -> list[str]:
        """A sample's means as a dashed line, with a legend; returns notes on its cells."""
        rows, counted = as_release(self.release, sample)
        name = self.numbers.column.name
        theirs = _numbers_of(rows, name, where=where, view="signed")
        used = np.flatnonzero(theirs.population.weights)
        blocks = [used[block] for block in row_blocks(len(used), len(self.grid))]
        means = sum(theirs.population.weights[block] @ self.functions(theirs.at_points[block]) for block in blocks)
        self._line(ax, np.asarray(means), SAMPLE, f"your {len(rows):,} rows")
        ax.legend(frameon=False, fontsize=8)
        return [note for note in counted if note.startswith(f"{name}: ")]

    def _line(self, ax: Axes, values: Array, series: SeriesStyle, label: str) -> None:
        style: dict[str, Any] = {"drawstyle": "steps-post"} if self.stepped else {}
        ax.plot(self.x, values, color=series.colour, linestyle=series.line, linewidth=1.5, label=label, **style)

    def finish(self, ax: Axes, where: Question | None, level: float, notes: Sequence[str]) -> None:
        column = self.numbers.column
        mark_scale(ax, "x", column)
        ax.set_xlim(float(self.x[0]), float(self.x[-1]))
        ax.set_xlabel(axis_label(column, column.name))
        left_out = ["missing cells left out"] * column.missing
        band = f"band: {percent(level)} intervals at each point"
        view = self.numbers.population.view
        explain(ax, [self.release], view, band, condition_and_notes(where, [*left_out, *notes]))


def _smoothed(column: Number, codes: Array, grid: Array, h: float) -> Array:
    """The normal density around each cell, at each point: (n,) → (n, G); 0 for atoms and missing cells."""
    low, high = column.bounds
    if isinstance(column, Cyclic):
        images = [codes, codes - column.period, codes + column.period]
    else:
        images = [codes, 2 * low - codes, 2 * high - codes]
    total = np.zeros((len(codes), len(grid)))
    for image in images:
        total += np.exp(-0.5 * ((grid - image[:, None]) / h) ** 2)
    counted = np.isfinite(codes) & ~np.isin(codes, column.atom_codes)
    return np.where(counted[:, None], total / (h * np.sqrt(2 * np.pi)), 0.0)


def _bandwidth(numbers: _Numbers) -> float:
    """Silverman 1986, (3.31): 0.9 min(s, IQR / 1.34) n^(-1/5), n the effective size (Kish 1965); at least a step."""
    low, high = numbers.column.bounds
    least = max((high - low) / _CURVE, numbers.column.spacing or 0.0)
    p = np.where(np.isin(numbers.at_points, numbers.column.atom_codes), 0.0, numbers.probabilities)
    if p.sum() <= 0:
        return least
    p, x = p[p > 0] / p.sum(), numbers.at_points[p > 0]
    spread = float(np.sqrt(p @ (x - p @ x) ** 2))
    order = np.argsort(x)
    first, third = (x[order][min(np.searchsorted(np.cumsum(p[order]), q), len(x) - 1)] for q in (0.25, 0.75))
    between = float(third - first) / 1.34
    return max(least, 0.9 * (min(spread, between) if between > 0 else spread) * float(p @ p) ** 0.2)


def _atoms(numbers: _Numbers) -> list[str]:
    column, population = numbers.column, numbers.population
    codes = column.atom_codes
    if len(codes) == 0:
        return []
    found = estimates(
        population, [statistic_of(population, (numbers.codes == code).astype(float), "") for code in codes]
    )
    names = [value.date().isoformat() if isinstance(column, Date) else f"{value:g}" for value in column.decode(codes)]
    return [
        f"P({column.name} = {name}) = {e.value:.3g} ± {e.standard_error:.2g}"
        for name, e in zip(names, found, strict=True)
    ]


def _unit(column: Number) -> str:
    if isinstance(column, Date):
        return "day"
    return {"linear": "unit", "log": "unit of the logarithm", "log1p": "unit of log(1 + value)"}[column.scale]


@dataclass(frozen=True, eq=False)
class _Numbers:
    """A column of numbers in a population, for the rows where it is not missing.

    codes   (n,) encoded cells at the rows that statistics are made from; NaN where missing.
    """

    population: Population
    column: Number
    codes: Array

    @property
    def at_points(self) -> Array:
        return self.codes[: len(self.population.weights)]

    @property
    def probabilities(self) -> Array:
        """The points' weights, (M,), without negative ones."""
        positive = np.where(np.isfinite(self.at_points), np.maximum(self.population.weights, 0.0), 0.0)
        return positive / positive.sum()


def _numbers_of(release: ReleaseData, name: str, *, where: Question | None, view: View | None) -> _Numbers:
    """A column of numbers or dates, given that it is not missing."""
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
    return _Numbers(population, column, column.encode(population.model.frame[name])[0])


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
