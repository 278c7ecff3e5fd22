"""Room 4: drawings of the witness function along one column. Matplotlib is imported when one is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kmeanalyst.inference.witness import Witness
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.columns import Categorical, Column, Date, Number
from kmeanalyst.releases.text_column import Text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS = 60  # of a column of numbers
_COLOUR = "#1f4e79"
_SIZE = (6.0, 3.5)  # of one drawing, inches


def save_parts(witness: Witness, columns: Sequence[str], path: str | Path) -> None:
    """Write a figure with a drawing for each column."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(2, len(columns))
    down = -(-len(columns) // across)
    figure = Figure(figsize=(_SIZE[0] * across, _SIZE[1] * down), layout="constrained")
    canvas = FigureCanvasAgg(figure)  # no window system, whatever the settings
    for i, column in enumerate(columns):
        plot_part(witness, column, figure.add_subplot(down, across, i + 1))
    with warnings.catch_warnings():  # a font may lack a level's letters: boxes stand for them
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.figure.savefig(path, dpi=150)


def plot_part(witness: Witness, column: str, ax: Axes | None = None) -> Axes:
    """Draw the witness's part on one column with a band of ± 2 standard errors: a line for numbers, bars for levels."""
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=_SIZE, layout="constrained")[1]
    j = witness.domain.position(column)
    kind = witness.domain.columns[j]
    if isinstance(kind, Text):
        raise ValueError(
            f"{column} is a column of texts, which no axis has in order. Name another column, or use the table."
        )
    ax.axhline(0, color="0.4", linewidth=0.8)
    if isinstance(kind, Categorical):
        _bars(ax, [*kind.levels, *["(missing)"] * kind.missing], *witness.part(j, _codes(kind)))
    else:
        _line(ax, witness, j, kind)
    ax.set_xlabel(column)
    ax.set_ylabel("witness\n← sample has more   release has more →")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _codes(kind: Categorical) -> Array:
    return kind.with_missing(np.arange(len(kind.levels), dtype=float))


def _bars(ax: Axes, labels: list[str], f: Array, error: Array) -> None:
    places = np.arange(len(labels))
    ax.bar(places, f, color=_COLOUR, alpha=0.55, width=0.7)
    ax.errorbar(places, f, 2 * error, fmt="none", ecolor="black", capsize=3, linewidth=1)
    ax.set_xticks(places, labels, rotation=0 if sum(map(len, labels)) < 50 else 45)


def _line(ax: Axes, witness: Witness, j: int, kind: Column) -> None:
    """The line over the column's range, in natural units, and a missing cell beside it."""
    assert isinstance(kind, Number)
    low, high = kind.bounds
    values = np.unique(np.concatenate([kind.rounded(np.linspace(low, high, _STEPS)), kind.atom_codes]))
    f, error = witness.part(j, values)
    where = kind.decode(values).to_numpy()
    where = where if isinstance(kind, Date) else where.astype(float)
    ax.fill_between(where, f - 2 * error, f + 2 * error, color=_COLOUR, alpha=0.2, linewidth=0)
    ax.plot(where, f, color=_COLOUR, linewidth=1.5)
    if kind.scale != "linear":
        ax.set_xscale("log" if kind.scale == "log" else "symlog")
    if kind.missing:
        f, error = witness.part(j, np.array([np.nan]))
        beside = where[-1] + (where[-1] - where[-2])
        ax.errorbar([beside], f, 2 * error, fmt="s", color="black", capsize=3, markersize=4)
        ax.annotate("missing", (beside, f[0]), xytext=(-6, 6), textcoords="offset points", ha="right")
