"""The table of two columns as a map of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from kmeanalyst.inference.estimate.population import Population, population_of
from kmeanalyst.inference.questions.groups import Group, groups_of
from kmeanalyst.inference.questions.tables import histogram_of_groups, joint_probabilities
from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.axes import Positions, axis_label, cut, positions_of
from kmeanalyst.plots.style import axes_of, condition_and_notes, explain, luminance, percent
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.release import Question, ReleaseData, View

_MOST_LEVELS = 12  # levels on one side of a table
_WRITTEN = 49  # cells that are few enough to have their numbers written into them
_COLOURS = "Blues"  # one hue, from light to dark: its order survives a grey print
SIZE_OF_TABLE = (6.4, 4.6)


def table(
    release: ReleaseData, a: str, b: str, *, where: Question | None = None, view: View | None = None,
    level: float = 0.95, most: int = _MOST_LEVELS, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """The probabilities of pairs of groups of two columns: a across, b upwards (its levels downwards, in their order).

    where, view, level  as `Release.table` takes them.
    most    how many levels are drawn, the most probable ones; the caption mentions the others.
    Draws   darker cells for larger probabilities, with a colour bar; if cells are few, the number and half the width of its
            interval. Hatched cells are those whose interval holds 0: nothing is known but that they are rare.

    >>> axes = ka.plots.table(release, "age", "income")
    >>> axes.figure.savefig("table.png")
    """
    if a == b:
        raise ValueError(f"a table needs two columns, got {a!r} twice: only its diagonal is filled. Draw its histogram.")
    ax = axes_of(ax, SIZE_OF_TABLE)
    population = population_of(release, where=where, view=view)
    sides = [_side(population, name, most) for name in (a, b)]
    drawn = _cells(ax, population, (a, b), sides, level)
    for which, name in (("x", a), ("y", b)):
        getattr(ax, f"set_{which}label")(axis_label(release.columns[name], name))
    bar = ax.figure.colorbar(drawn, ax=ax, label="probability", aspect=30)
    bar.outline.set_visible(False)
    hatched = f"hatched: the {percent(level)} interval holds 0"
    left_out = [f"{name}: {note}" for name, (_, _, notes) in zip((a, b), sides, strict=True) for note in notes]
    explain(ax, [release], population.view, hatched, condition_and_notes(where, left_out))
    return ax


_Side = tuple[list[Group], Positions, list[str]]  # groups, their positions, and notes on those left out


def _side(population: Population, name: str, most: int) -> _Side:
    column = population.release.columns[name]
    groups = groups_of(population.release.columns, name)
    notes: list[str] = []
    if isinstance(column, Categorical) and len(groups) > most:
        kept, notes = cut(histogram_of_groups(population, name, None, 0.95)["probability"].to_numpy(), most)
        groups = [groups[i] for i in kept]
    frame = pd.DataFrame({"left": [g.left for g in groups], "right": [g.right for g in groups]}, [g.label for g in groups])
    return groups, positions_of(frame, column, cells=True), notes


def _cells(ax: Axes, population: Population, names: Sequence[str], sides: Sequence[_Side], level: float) -> PatchCollection:
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
    if len(boxes) <= _WRITTEN:
        middles = np.array([(x.middles[i], y.middles[j]) for i, j in np.ndindex(shape)])
        _write(ax, middles, values, (high - low) / 2, drawn)
    for which, positions in (("x", x), ("y", y)):
        positions.mark(ax, which)
        getattr(ax, f"set_{which}lim")(float(positions.lefts.min()), float(positions.rights.max()))
    if x.labels_are_long:
        ax.tick_params(axis="x", labelrotation=90)
    if y.labels is not None and isinstance(population.release.columns[names[1]], Categorical):
        ax.invert_yaxis()
    return drawn


def _boxes(boxes: Sequence[tuple[Any, ...]], **style: Any) -> PatchCollection:
    return PatchCollection([Rectangle((x, y), width, height) for x, y, width, height in boxes], **style)


def _write(ax: Axes, middles: Array, values: Array, halves: Array, drawn: PatchCollection) -> None:
    colours = drawn.to_rgba(values)
    for (x, y), value, half, colour in zip(middles, values, halves, colours, strict=True):
        ink = "white" if luminance(colour) < 0.35 else "black"
        ax.text(
            x, y, f"{100 * value:.1f} %\n± {100 * half:.1f}", ha="center", va="center", fontsize=7.5, color=ink,
            bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip
