"""Pairs of columns: the table of two as a map of its cells, and a triangle of such maps for all pairs of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.population import Population, population_of
from kmeanalyst.inference.questions.groups import Group, groups_of
from kmeanalyst.inference.questions.tables import histogram_of_groups, joint_probabilities
from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.axes import Positions, axis_label, cut, positions_of
from kmeanalyst.plots.distributions import bars_at, values_and_errors
from kmeanalyst.plots.style import (
    GREY,
    axes_of,
    condition_and_notes,
    explain,
    guarantees,
    luminance,
    percent,
    stamp,
    without_formulas,
)
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.release import Question, ReleaseData, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PatchCollection

_MOST_LEVELS = 12  # levels on one side of a table
_WRITTEN = 49  # cells that are few enough to have their numbers written into them
_COLOURS = "Blues"  # one hue, from light to dark: its order survives a grey print
SIZE_OF_TABLE = (6.4, 4.6)
_PANEL = 2.1  # inches, of one of several panels
_MOST_COLUMNS = 6  # columns in a figure of pairs
_USUAL_COLUMNS = 4


def table(
    release: ReleaseData,
    a: str,
    b: str,
    *,
    where: Question | None = None,
    view: View | None = None,
    level: float = 0.95,
    most: int = _MOST_LEVELS,
    ax: Axes | None = None,
) -> Axes:
    """The probabilities of pairs of groups of two columns: a across, b upwards (its levels downwards, in their order).

    where, view, level  as `Release.table` takes them.
    most    how many levels are drawn, the most probable ones; the caption mentions the others.
    Draws   darker cells for larger probabilities, with a colour bar; if cells are few, the number and half the width of its
            interval. Hatched cells are those whose interval holds 0: nothing is known but that they are rare.

    >>> axes = ka.plots.table(release, "age", "income")
    >>> axes.figure.savefig("table.png")
    """
    if a == b:
        raise ValueError(
            f"a table needs two columns, got {a!r} twice: only its diagonal is filled. Draw its histogram."
        )
    ax = axes_of(ax, SIZE_OF_TABLE)
    population = population_of(release, where=where, view=view)
    sides = [_side(population, name, most) for name in (a, b)]
    drawn = _cells(ax, population, (a, b), sides, level, written=len(sides[0][0]) * len(sides[1][0]) <= _WRITTEN)
    for which, name in (("x", a), ("y", b)):
        getattr(ax, f"set_{which}label")(axis_label(release.columns[name], name))
    bar = ax.figure.colorbar(drawn, ax=ax, label="probability", aspect=30)
    bar.outline.set_visible(False)
    hatched = f"hatched: the {percent(level)} interval holds 0"
    explain(ax, [release], population.view, hatched, condition_and_notes(where, _notes((a, b), sides)))
    return ax


_Side = tuple[list[Group], Positions, list[str]]  # groups, their positions, and notes on those left out


def _notes(names: Sequence[str], sides: Sequence[_Side]) -> list[str]:
    return [f"{name}: {note}" for name, (_, _, notes) in zip(names, sides, strict=True) for note in notes]


def _side(population: Population, name: str, most: int) -> _Side:
    column = population.release.columns[name]
    groups = groups_of(population.release.columns, name)
    notes: list[str] = []
    if isinstance(column, Categorical) and len(groups) > most:
        kept, notes = cut(histogram_of_groups(population, name, None, 0.95)["probability"].to_numpy(), most)
        groups = [groups[i] for i in kept]
    frame = pd.DataFrame(
        {"left": [g.left for g in groups], "right": [g.right for g in groups]}, [g.label for g in groups]
    )
    return groups, positions_of(frame, column, cells=True), notes


def _cells(
    ax: Axes, population: Population, names: Sequence[str], sides: Sequence[_Side], level: float, *, written: bool
) -> PatchCollection:
    """The map of a table's cells, one side across and the other upwards."""
    (across, x, _), (upwards, y, _) = sides
    found = joint_probabilities(population, [across, upwards]).to_frame(level)
    shape = (len(across), len(upwards))  # the latter running first
    values, low, high = (found[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
    boxes = [(x.lefts[i], y.lefts[j], x.rights[i] - x.lefts[i], y.rights[j] - y.lefts[j]) for i, j in np.ndindex(shape)]
    drawn = _boxes(boxes, cmap=_COLOURS, edgecolor="white", linewidth=0.5)
    drawn.set_array(values)
    drawn.set_clim(0.0, max(float(values.max()), 1e-12))
    ax.add_collection(drawn)
    unsure = [box for box, end in zip(boxes, low, strict=True) if end <= 0]
    ax.add_collection(_boxes(unsure, facecolor="none", edgecolor="0.75", hatch="////", linewidth=0))
    if written:
        middles = np.array([(x.middles[i], y.middles[j]) for i, j in np.ndindex(shape)])
        _write(ax, middles, values, (high - low) / 2, drawn)
    for which, positions in (("x", x), ("y", y)):
        positions.mark(ax, which)
        getattr(ax, f"set_{which}lim")(float(positions.lefts.min()), float(positions.rights.max()))
    if x.labels is not None and x.labels_are_long:
        ax.tick_params(axis="x", labelrotation=90)
    if y.labels is not None and isinstance(population.release.columns[names[1]], Categorical):
        ax.invert_yaxis()
    return drawn


def _boxes(boxes: Sequence[tuple[Any, ...]], **style: Any) -> PatchCollection:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    return PatchCollection([Rectangle((x, y), width, height) for x, y, width, height in boxes], **style)


def _write(ax: Axes, middles: Array, values: Array, halves: Array, drawn: PatchCollection) -> None:
    colours = drawn.to_rgba(values)
    for (x, y), value, half, colour in zip(middles, values, halves, colours, strict=True):
        ink = "white" if luminance(colour) < 0.35 else "black"
        ax.text(
            x, y, f"{100 * value:.1f} %\n± {100 * half:.1f}", ha="center", va="center", fontsize=7.5, color=ink,
            bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip


def pairs(
    release: ReleaseData,
    columns: Sequence[str] | None = None,
    *,
    where: Question | None = None,
    view: View | None = None,
    level: float = 0.95,
    axes: Any = None,
) -> np.ndarray:
    """A histogram of each column, and below the diagonal a map of each pair's table, as `histogram` and `table` draw them.

    columns  two to six; the first four by default that are not texts.
    axes     (d, d) array of Axes to draw on; a new figure's by default.
    Returns  the (d, d) array of Axes; those above the diagonal are hidden. The darkest cell of each map is its own largest.

    >>> ka.plots.pairs(release, ["age", "sex", "income"]).shape
    (3, 3)
    """
    names = check_pairs(release, columns)
    d = len(names)
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(d, d, figsize=size_of_pairs(d), layout="constrained", squeeze=False)[1]
    if np.shape(axes) != (d, d):
        raise ValueError(
            f"{d} columns need an array of {d} × {d} Axes, got shape {np.shape(axes)}. Pass pyplot.subplots({d}, {d})[1]."
        )
    population = population_of(release, where=where, view=view)
    sides = [_side(population, name, _MOST_LEVELS) for name in names]
    for i, j in np.ndindex(d, d):
        ax = axes_of(axes[i, j])
        if j > i:
            ax.set_visible(False)
        elif i == j:
            _diagonal(ax, population, names[i], sides[i], level)
        else:
            _cells(ax, population, [names[j], names[i]], [sides[j], sides[i]], level, written=False)
        _outer_labels(ax, release, names, i, j, sides[j][1])
        stamp(ax, release.is_rehearsal and j <= i, size=12)
    errors = f"whiskers: {percent(level)} intervals; hatched: the interval holds 0"
    lines = [guarantees([release], population.view), errors, *condition_and_notes(where, _notes(names, sides))]
    axes[0, 0].figure.suptitle(without_formulas("\n".join(lines)), x=0.99, ha="right", fontsize=8, color=GREY)
    return axes


def size_of_pairs(n_columns: int) -> tuple[float, float]:
    return _PANEL * n_columns, _PANEL * n_columns


def check_pairs(release: ReleaseData, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        columns = [column.name for column in release.columns.columns if not isinstance(column, Text)][:_USUAL_COLUMNS]
    names = [columns] if isinstance(columns, str) else list(columns)
    if not 2 <= len(names) <= _MOST_COLUMNS or len(set(names)) < len(names):
        raise ValueError(
            f"pairs are drawn of two to {_MOST_COLUMNS} different columns, got {', '.join(map(str, names))}: more panels could "
            "not be read. Name some of them."
        )
    return names


def _diagonal(ax: Axes, population: Population, name: str, side: _Side, level: float) -> None:
    groups, positions, _ = side
    found = joint_probabilities(population, [groups]).to_frame(level)
    bars_at(ax, positions, *values_and_errors(found, "value"), down=False)
    ax.set_xlim(float(positions.lefts.min()), float(positions.rights.max()))


def _outer_labels(ax: Axes, release: ReleaseData, names: Sequence[str], i: int, j: int, across: Positions) -> None:
    if i == len(names) - 1:
        ax.set_xlabel(axis_label(release.columns[names[j]], names[j]))
        ax.tick_params(axis="x", labelrotation=0 if across.labels is None and across.missing is None else 90)
    else:
        ax.tick_params(axis="x", labelbottom=False)
    if i == j:
        ax.set_ylabel("probability", fontsize=8, color=GREY)
    elif j == 0:
        ax.set_ylabel(axis_label(release.columns[names[i]], names[i]))
    else:
        ax.tick_params(axis="y", labelleft=False)
    ax.tick_params(labelsize=7.5)
