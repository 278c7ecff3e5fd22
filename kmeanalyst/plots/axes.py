"""The positions of a column's groups on an axis, and the axis' ticks and labels.

Ranges are drawn on the column's own scale, in natural units: as densities where their widths differ, so that areas are
probabilities. All other groups stand side by side, with labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date
from matplotlib.ticker import MaxNLocator

from kmeanalyst.inference.questions.groups import MISSING
from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.style import plain
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Number

_ALIKE = 1.7  # ratio of widths up to which bars may be read by their height alone
_WIDTH = 0.8  # width of a bar that stands for a single value or a level
_BEYOND = 0.5  # gap between the bounds and the bars of missing cells, in bar widths
_SHORT = 44  # characters of all labels that fit side by side
_LEVEL, _CELL = 28, 16  # characters of a level, and of one next to a table
_NEAR = 0.14  # share of the axis: a tick this near to that of missing cells would run into its label
_MOST_TICKS = 7

_SCALES: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "linear": (lambda v: v, lambda v: v),
    "log": (np.log, np.exp),
    "log1p": (np.log1p, np.expm1),
}


@dataclass(frozen=True, eq=False)
class Positions:
    """The positions of groups on an axis: the left and right end of each, in the axis' units.

    labels    of groups that are drawn side by side; None on the column's own scale.
    column    whose scale it is; None for a random variable's numbers, and for groups side by side.
    missing   which group is of missing cells; None where none is.
    single    (k,) whether a group is a public atom among ranges: drawn as a stem, not as a bar.
    per       (k,) what probabilities are divided by to be heights: the widths of ranges, and for stems one number, by which
              the highest of them is as high as the highest bar. None where heights are probabilities.
    """

    lefts: Array
    rights: Array
    labels: tuple[str, ...] | None = None
    column: Number | None = None
    missing: int | None = None
    single: Array | None = None
    per: Array | None = None

    @cached_property
    def middles(self) -> Array:
        """(k,) the middles on the axis' scale."""
        there, back = scale_of(self.column)
        return back((there(self.lefts) + there(self.rights)) / 2)

    def offset(self, share: float) -> Array:
        """(k,) positions next to the middles, at this share of a bar's width (of the usual width for stems)."""
        there, back = scale_of(self.column)
        width = there(self.rights) - there(self.lefts)
        width = np.where(self.stems, np.median(width[~self.stems]), width)
        return back(there(self.middles) + share * width)

    @property
    def stems(self) -> Array:
        """(k,) whether a group is drawn as a stem."""
        return np.zeros(len(self.lefts), dtype=bool) if self.single is None else self.single

    def heights(self, probabilities: Array) -> Array:
        """Of probabilities, or lengths of whiskers, (..., k): densities where widths differ."""
        return probabilities if self.per is None else probabilities / self.per

    @property
    def height(self) -> str:
        """What a height is, in words."""
        if self.per is None:
            return "probability"
        per = "day" if isinstance(self.column, Date) else "unit"
        logs = self.column is not None and self.column.scale != "linear"
        return f"probability per {'unit of the logarithm' if logs else per}"

    @property
    def labels_are_long(self) -> bool:
        return self.labels is not None and are_long(self.labels)

    def mark(self, ax: Axes, which: str) -> None:
        ends = (float(self.lefts.min()), float(self.rights.max()))
        if self.labels is not None:
            getattr(ax, f"set_{which}ticks")(self.middles, self.labels)
        else:
            mark_scale(ax, which, self.column)
            if self.missing is not None:
                others = np.arange(len(self.lefts)) != self.missing
                ticks = ticks_of(self.column, float(self.lefts[others].min()), float(self.rights[others].max()))
                mark_missing(ax, which, self.column, ticks, float(self.middles[self.missing]))
        getattr(ax, f"set_{which}lim")(*_with_room(self.column, *ends))


def are_long(labels: Sequence[str]) -> bool:
    return sum(map(len, labels)) > _SHORT


def scale_of(column: Number | None) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """From the natural units of an axis to those of its scale, and back."""
    return _SCALES["linear" if column is None else column.scale]


def _with_room(column: Number | None, low: float, high: float) -> tuple[float, float]:
    there, back = scale_of(column)
    a, b = (float(there(np.array(end))) for end in (low, high))
    return tuple(float(back(np.array(end))) for end in (a - 0.02 * (b - a), b + 0.02 * (b - a)))  # type: ignore[return-value]


def positions_of(frame: pd.DataFrame, column: Column | None, *, cells: bool = False) -> Positions:
    """The positions of the groups of a histogram, or of a table's side.

    frame   as `Release.histogram` gives it; the index has the labels.
    column  whose histogram it is; None for a random variable's.
    cells   whether they are sides of cells: these touch. If there are atoms among ranges, which have no width, all groups
            are drawn side by side.
    """
    number = column if isinstance(column, Number) else None
    if "left" in frame and (own := _on_its_scale(frame, number, cells)) is not None:
        return own
    middles, half = np.arange(len(frame), dtype=float), 0.5 if cells else _WIDTH / 2
    missing = [i for i, label in enumerate(frame.index) if str(label) == MISSING]
    most = _CELL if cells else _LEVEL
    labels = tuple("missing" if i in missing else plain(label, most) for i, label in enumerate(frame.index))
    return Positions(middles - half, middles + half, labels, missing=missing[0] if missing else None)


def _on_its_scale(frame: pd.DataFrame, column: Number | None, cells: bool) -> Positions | None:
    """None where there is no scale."""
    there, back = scale_of(column)
    absent = frame["left"].isna().to_numpy()
    if absent[:-1].any() or absent.all():
        return None
    left, right = _closed(*(there(_numbers(frame.loc[~absent, side], column)) for side in ("left", "right")))
    single = left == right
    if single.all():  # each value by itself
        step = np.diff(np.unique(left)).min() if len(left) > 1 else 1.0
        half = step / 2 if cells else step * _WIDTH / 2
        left, right, single = left - half, right + half, np.zeros(len(left), dtype=bool)
    elif single.any() and cells:
        return None
    width, missing = (right - left)[~single], len(left) if absent[-1] else None
    if missing is not None:
        end, usual = right.max(), float(np.median(width))
        left, right = np.append(left, end + _BEYOND * usual), np.append(right, end + (1 + _BEYOND) * usual)
        single = np.append(single, False)
    per = None
    if width.max() > _ALIKE * width.min():
        if cells:
            return None
        per, share = right - left, frame["probability"].to_numpy(dtype=float)
        if single.any():
            highest = share[single].max() / (share[~single] / per[~single]).max()
            per[single] = highest if 0 < highest < np.inf else 1.0
    return Positions(back(left), back(right), None, column, missing, single, per)


def _closed(left: Array, right: Array) -> tuple[Array, Array]:
    """Unbounded ranges, made as wide as the others."""
    width = right - left
    usual = float(np.median(width[np.isfinite(width)])) if np.isfinite(width).any() else 1.0
    left = np.where(np.isfinite(left), left, right - usual)
    return left, np.where(np.isfinite(right), right, left + usual)


def _numbers(values: pd.Series, column: Number | None) -> Array:
    """Bounds of ranges as the axis counts them: a date's days since 1970-01-01."""
    if isinstance(column, Date):
        return column.encode([str(value) for value in values])[0]
    return values.to_numpy(dtype=float)


def mark_scale(ax: Axes, which: str, column: Number | None) -> None:
    axis = getattr(ax, f"{which}axis")
    if isinstance(column, Date):
        axis.set_major_locator(locator := AutoDateLocator(minticks=3, maxticks=_MOST_TICKS))
        axis.set_major_formatter(ConciseDateFormatter(locator))
    elif column is not None and column.scale != "linear":
        there, back = scale_of(column)
        quiet = np.errstate(divide="ignore", invalid="ignore")(there)  # matplotlib asks beyond the scale's end
        getattr(ax, f"set_{which}scale")("function", functions=(quiet, back))
        ticks = ticks_of(column, float(column.lower), float(column.upper))
        getattr(ax, f"set_{which}ticks")([at for at, _ in ticks], [text for _, text in ticks])


def mark_missing(ax: Axes, which: str, column: Number | None, ticks: list[tuple[float, str]], position: float) -> None:
    """Ticks, without those that would be too near, and one for missing cells beyond them."""
    there, _ = scale_of(column)
    ends = [float(there(np.array(end))) for end in (ticks[0][0] if ticks else position, position)]
    far = [tick for tick in ticks if ends[1] - float(there(np.array(tick[0]))) >= _NEAR * (ends[1] - ends[0])]
    getattr(ax, f"set_{which}ticks")([*[at for at, _ in far], position], [*[text for _, text in far], "missing"])


def ticks_of(column: Number | None, low: float, high: float) -> list[tuple[float, str]]:
    """(position, text) of ticks within a range of a column's natural units."""
    if isinstance(column, Date):
        locator = AutoDateLocator(minticks=3, maxticks=_MOST_TICKS)
        positions = [float(at) for at in locator.tick_values(num2date(low), num2date(high)) if low <= at <= high]
        return list(zip(positions, ConciseDateFormatter(locator).format_ticks(positions), strict=True))
    if column is not None and column.scale != "linear":
        return [(at, _short(at)) for at in _powers(low, high)]
    found = MaxNLocator(_MOST_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [(float(at), _short(float(at))) for at in found if low <= at <= high]


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten within a range, and 0: not all if they are many, with their multiples by 2 and 5 if they are few."""
    first, last = (int(np.floor(np.log10(max(end, 1e-12)))) for end in (low if low > 0 else min(1.0, high / 10), high))
    powers = [10.0**k for k in range(first, last + 1, 1 + (last - first) // _MOST_TICKS)]
    many = powers if last - first >= 2 else [unit * power for power in powers for unit in (1, 2, 5)]
    return [at for at in ([0.0] if low <= 0 else []) + many if low <= at <= high]


def _short(value: float) -> str:
    """A number in few characters.

    >>> [_short(value) for value in (0.0, 0.25, 40.0, 2500.0, 1e6)]
    ['0', '0.25', '40', '2.5k', '1M']
    """
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < unit * 1e3:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def axis_label(column: Column | None, name: str) -> str:
    """A column's name for its axis; on a circle also which value is the first one again."""
    if isinstance(column, Cyclic):
        return f"{plain(name, 40)}  ({_short(float(column.upper))} is {_short(float(column.lower))} again)"
    return plain(name, 40)


def cut(probabilities: Array, most: int) -> tuple[Array, list[str]]:
    """Indices of the groups to draw, in order: the most probable if there are too many; and a note on the others."""
    n = len(probabilities)
    if n <= most:
        return np.arange(n), []
    kept = np.sort(np.argsort(-probabilities, kind="stable")[:most])
    others = float(probabilities.sum() - probabilities[kept].sum())
    return kept, [f"the {most} most probable of {n} levels; the others together: {others:.3g}"]
