"""The witness function along one column, or along several, with a band of its standard error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.axes import Positions, axis_label, mark_missing, mark_scale, scale_of, ticks_of
from kmeanalyst.plots.distributions import bars_at, size_of_bars
from kmeanalyst.plots.style import INK, RELEASE, RULE, SIZE, axes_of, caption, guarantee, new_figure, plain, save, stamp
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.text_column import Text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kmeanalyst.inference.compare.comparison import Comparison
    from kmeanalyst.inference.compare.witness import Witness

_STEPS = 60  # values at which a column of numbers is drawn
_MOST_LEVELS = 20
_ERRORS = 2  # standard errors to each side of the band
_WITNESS = "witness"
_SIDES = "← sample has more   release has more →"


def witness(comparison: Comparison, column: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Where a release and a sample differ along one column: a line for numbers and dates, bars for levels.

    column   the one with the smallest p-value that has an axis, by default; columns of texts have none.
    Draws    f, averaged over the other columns, above 0 where the release has more; ± 2 standard errors, as if both had one
             population; missing cells next to the line. If there are too many levels, those of the largest |f|.

    >>> axes = ka.plots.witness(comparison, "age")
    """
    if column is None:
        column = drawable(comparison)[0]
    found = _function(comparison)
    kind = found.domain[column]
    if isinstance(kind, Text):
        raise ValueError(
            f"{column} is a column of texts, which have no order on an axis. Name another column, or use the table."
        )
    if isinstance(kind, Categorical):
        ax, note = _bars(ax, found, kind)
    else:
        assert isinstance(kind, Number)
        ax, note = _line(axes_of(ax), found, kind), ""
    counts = f"{guarantee(found.statement)} · against {comparison.overall.n_sample_rows:,} rows"
    caption(ax, counts, f"± {_ERRORS} standard errors" + (f" · {note}" if note else ""))
    stamp(ax, found.statement is not None and found.statement.is_rehearsal)
    return ax


def _function(comparison: Comparison) -> Witness:
    if comparison.function is None:
        raise ValueError(
            "two releases were compared, and a witness is drawn at rows, which of neither are known. Compare a release with rows,"
            " or use the table of comparison.differences."
        )
    return comparison.function


def drawable(comparison: Comparison) -> list[str]:
    """The columns that have an axis, of the smallest p-values first; ValueError where there is none."""
    order = comparison.columns["pvalue"].fillna(1.0).sort_values(kind="stable").index
    domain = _function(comparison).domain
    names = [str(name) for name in order if not isinstance(domain[str(name)], Text)]
    if not names:
        raise ValueError("every column is of texts, which have no order on an axis. Use the table of the witness.")
    return names


def save_witness(comparison: Comparison, path: str | Path, *, most: int = 6) -> None:
    """Write a figure of the witness along the columns of the smallest p-values, at most this many.

    >>> ka.plots.save_witness(comparison, "witness.png", most=2)
    """
    names = drawable(comparison)[:most]
    across = min(2, len(names))
    figure = new_figure((SIZE[0] * across, SIZE[1] * -(-len(names) // across)))
    for i, name in enumerate(names):
        witness(comparison, name, ax=figure.add_subplot(-(-len(names) // across), across, i + 1))
    save(figure, path)


def _bars(ax: Axes | None, found: Witness, kind: Categorical) -> tuple[Axes, str]:
    """Draw a bar for each level, horizontal where labels are long; returns a note on those left out."""
    codes = kind.with_missing(np.arange(len(kind.levels), dtype=float))
    f, error = found.part(found.domain.position(kind.name), codes)
    kept = np.sort(np.argsort(-np.abs(f), kind="stable")[:_MOST_LEVELS])
    labels = [*map(plain, kind.levels), *["missing"] * kind.missing]
    middles = np.arange(len(kept), dtype=float)
    positions = Positions(middles - 0.35, middles + 0.35, tuple(labels[i] for i in kept))
    ax = axes_of(ax, size_of_bars(positions.labels or ()))
    if down := bars_at(ax, positions, f[kept], np.tile(_ERRORS * error[kept], (2, 1))):
        ax.locator_params(axis="x", nbins=5)
    names = (axis_label(kind, kind.name), f"{_WITNESS}\n{_SIDES}")
    ax.set(xlabel=names[down], ylabel=names[not down])
    left_out = f"the {_MOST_LEVELS} levels of the largest |f|, of {len(codes)}" if len(kept) < len(codes) else ""
    return ax, left_out


def _line(ax: Axes, found: Witness, kind: Number) -> Axes:
    j, back = found.domain.position(kind.name), scale_of(kind)[1]
    low, high = kind.bounds
    values = np.unique(np.concatenate([kind.rounded(np.linspace(low, high, _STEPS)), kind.atom_codes]))
    f, error = found.part(j, values)
    x = back(values)
    ax.fill_between(x, f - _ERRORS * error, f + _ERRORS * error, color=RELEASE.colour, alpha=0.25, linewidth=0)
    ax.axhline(0, color=RULE, linewidth=0.8)
    ax.plot(x, f, color=RELEASE.colour, linewidth=1.5)
    mark_scale(ax, "x", kind)
    ends = values[[0, -1]]
    if kind.missing:
        beyond = values[-1] + 0.08 * (values[-1] - values[0])
        ends = np.array([values[0], beyond + 0.04 * (values[-1] - values[0])])
        _missing(ax, kind, back(values), float(back(beyond)), *found.part(j, np.array([np.nan])))
    ax.set_xlim(*back(ends))
    ax.set_xlabel(axis_label(kind, kind.name))
    ax.set_ylabel(f"{_WITNESS}\n{_SIDES}")
    return ax


def _missing(ax: Axes, kind: Number, x: Array, beyond: float, f: Array, error: Array) -> None:
    ax.errorbar([beyond], f, _ERRORS * error, fmt="s", color=INK, markerfacecolor="white", capsize=2, markersize=5)
    ticks = ticks_of(kind, float(x[0]), float(x[-1]))
    mark_missing(ax, "x", kind, ticks, beyond)
