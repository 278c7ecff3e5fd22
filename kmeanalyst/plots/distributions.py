"""Histograms of one column, with whiskers of the estimates' own intervals; signed weights can make a bar go below 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from kmeanalyst.inference.combination import as_release
from kmeanalyst.inference.questions import tables
from kmeanalyst.inference.questions.expectation import expectations
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.inference.variables.random_variable import RandomVariable
from kmeanalyst.kernels.base import Array
from kmeanalyst.plots import style
from kmeanalyst.plots.axes import Positions, are_long, axis_label, cut, positions_of
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.release import Question, ReleaseData, View

_MOST_LEVELS, _FEW_LEVELS, _NARROW = 20, 6, 4.0  # of Axes of at least, and of less than, so many inches
_ROW_HEIGHT = 0.24  # inches, of a level that has a line of its own
_FILL = 0.4  # opacity of bars: whiskers are seen through them
_HEADROOM = 0.12  # share of the axis added above for the legend
_OFFSET = 0.25  # distance from a bar's middle to the mark of a sample, in bar widths


def histogram(
    release: ReleaseData | RandomVariable, column: str | None = None, *, bins: int | Sequence[float] | None = None,
    where: Question | None = None, view: View | None = None, level: float = 0.95, sample: Any = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Bars of the probabilities of a column's groups, with whiskers of their intervals.

    release  or a random variable, such as release["age"] - other["age"]: it is drawn with `bins` and `level` alone.
    bins, where, view, level  as `Release.histogram` takes them.
    sample   your own rows to draw over it: a DataFrame in natural units, or a table of any other source, as of `mmd_test`.
             Their shares are drawn as squares, with the error of sampling.
    ax       of less than four inches has the six most probable levels, and else twenty; the caption mentions the others.
    Draws    numbers and dates on their own scale, a public atom as a stem, missing cells next to them. Where ranges have
             different widths, heights are probabilities per unit, and stems have a scale on the right. Columns of texts are
             refused.

    >>> axes = ka.plots.histogram(release, "age", where="sex == 'Female'", sample=sample)
    >>> axes.figure.savefig("age.png")
    >>> axes = ka.plots.histogram(release["age"] * 2, bins=5)
    """
    if not isinstance(release, ReleaseData):
        if (column, where, view, sample) != (None, None, None, None):
            raise ValueError(
                "a random variable is drawn with bins, level and ax alone: it is one column, and has its own condition and "
                "view. Leave the others out; .given(...) states a condition."
            )
        return _of_variable(release, bins=bins, level=level, ax=ax)
    if column is None:
        raise ValueError(f"a release has {len(release.columns)} columns, and one is drawn. Name it: histogram(release, NAME).")
    kind = release.columns[column]
    frame = tables.histogram(release, column, bins=bins, where=where, view=view, level=level)
    narrow = ax is not None and ax.bbox.width / ax.figure.dpi < _NARROW
    most = _FEW_LEVELS if narrow else _MOST_LEVELS
    kept, notes = cut(frame["probability"].to_numpy(), most if isinstance(kind, Categorical) else len(frame))
    frame = frame.iloc[kept]
    ax, positions = bars(frame, kind, column, ax)
    if sample is not None:
        rows, counted = as_release(release, sample)
        asked = [group.condition for group in groups_of(release.columns, column, bins)]
        shares = expectations(rows, asked, where=where, view="signed").to_frame(level)
        _marks(ax, positions, shares.iloc[kept], len(rows))
        notes += [note for note in counted if note.startswith(f"{column}: ")]
    _explain(ax, [release], frame, level, style.condition_and_notes(where, notes))
    return ax


def _explain(ax: Axes, releases: Sequence[ReleaseData], frame: pd.DataFrame, level: float, notes: list[str]) -> None:
    style.explain(ax, releases, str(frame["view"].iloc[0]), f"whiskers: {style.percent(level)} intervals", notes)


def size_of_bars(labels: Sequence[str]) -> tuple[float, float]:
    """The size of a figure of bars with these labels, in inches: each has its own line where they are long."""
    return (style.SIZE[0], max(style.SIZE[1], 1.3 + _ROW_HEIGHT * len(labels))) if are_long(labels) else style.SIZE


def size_of_histogram(column: Column) -> tuple[float, float]:
    levels = [style.plain(level) for level in column.levels] if isinstance(column, Categorical) else []
    return size_of_bars(levels[:_MOST_LEVELS])


def _of_variable(variable: RandomVariable, *, bins: int | Sequence[float] | None, level: float, ax: Axes | None) -> Axes:
    frame, name = variable.histogram(bins=bins, level=level), variable.names[0]
    of_column, releases = variable.nodes[0].column, variable.releases
    kind = releases[0].columns[of_column] if of_column is not None and len(releases) == 1 else None
    ax, positions = bars(frame, kind, name, ax)
    if kind is not None:
        ax.set(**{f"{'y' if positions.labels_are_long else 'x'}label": axis_label(None, name)})
    conditions = " and ".join(condition.text for condition in variable.conditions)
    _explain(ax, releases, frame, level, style.condition_and_notes(conditions or None))
    return ax


def bars(frame: pd.DataFrame, column: Column | None, name: str, ax: Axes | None) -> tuple[Axes, Positions]:
    """Draw a histogram's probabilities and intervals, as horizontal bars where labels are long. Returns the positions."""
    positions = positions_of(frame, column)
    ax = style.axes_of(ax, size_of_bars(positions.labels or ()))
    down = bars_at(ax, positions, *map(positions.heights, values_and_errors(frame)))
    labels = (axis_label(column, name), positions.height)
    ax.set(xlabel=labels[down], ylabel=labels[not down])
    return ax, positions


def values_and_errors(frame: pd.DataFrame, of: str = "probability") -> tuple[Array, Array]:
    """(k,) values of a table of estimates, and (2, k) how far their intervals reach below and above."""
    values, low, high = (frame[name].to_numpy(dtype=float) for name in (of, "low", "high"))
    return values, np.array([values - low, high - values])


def bars_at(ax: Axes, positions: Positions, values: Array, errors: Array) -> bool:
    """Draw bars, stems and whiskers (2, k) at these positions, and mark the axis; returns whether they run downwards."""
    down = positions.labels_are_long
    draw = ax.barh if down else ax.bar
    solid = np.flatnonzero(~positions.stems)
    drawn = draw(
        positions.lefts[solid], values[solid], (positions.rights - positions.lefts)[solid], align="edge", label="release",
        color=(style.RELEASE.colour, _FILL), edgecolor=style.RELEASE.colour, linewidth=0.8,
    )  # fmt: skip
    if positions.missing is not None:
        drawn.patches[solid.tolist().index(positions.missing)].set(hatch="///", facecolor="white")
    if positions.stems.any():  # public atoms among ranges
        at, heights = positions.middles[positions.stems], values[positions.stems]
        ax.vlines(at, 0, heights, color=style.RELEASE.colour, linewidth=2)
        ax.plot(
            at, heights, linestyle="", marker="D", color=style.RELEASE.colour, markersize=6,
            label=f"a single value{'' if positions.per is None else ' (right)'}",
        )  # fmt: skip
        if positions.per is not None:
            of_one = float(positions.per[positions.stems][0])
            right = ax.secondary_yaxis("right", functions=(lambda y: np.multiply(y, of_one), lambda p: np.divide(p, of_one)))
            right.set_ylabel("probability of a single value")
    style.whiskers(ax, positions.middles, values, errors, down=down, fmt="none", ecolor=style.INK, elinewidth=1, capsize=2)
    (ax.axvline if down else ax.axhline)(0, color=style.RULE, linewidth=0.8)
    positions.mark(ax, "y" if down else "x")
    if positions.stems.any():
        _legend(ax, down)
    if down:
        ax.invert_yaxis()
    return down


def _marks(ax: Axes, positions: Positions, shares: pd.DataFrame, n_rows: int) -> None:
    down = positions.labels_are_long
    style.whiskers(
        ax, positions.offset(_OFFSET), *map(positions.heights, values_and_errors(shares, "value")), down=down,
        linestyle="", marker=style.SAMPLE.marker, markersize=4.5,
        color=style.SAMPLE.colour, markerfacecolor="white", elinewidth=1, label=f"your {n_rows:,} rows",
    )  # fmt: skip
    _legend(ax, down)


def _legend(ax: Axes, down: bool) -> None:
    if down:
        ax.legend(frameon=False, fontsize=8)
        return
    ax.autoscale(axis="y")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + _HEADROOM * (high - low))
    ax.legend(frameon=False, fontsize=8, loc="upper right", ncols=3)
