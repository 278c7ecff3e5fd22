"""Curves over settings: coverage of intervals, power and level of tests, and error against ε from a plan.

These take DataFrames, one row for each point, and know nothing of how they were come by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.style import INK, LOOKS, RULE, axes_of, caption, check_number_of_series, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 20.0  # ratio of the largest place to the smallest from which an axis is logarithmic
_CONFIDENCE = 0.95  # of the interval of each rate
_ERRORS = {
    "rkhs_error": ("release from its table", "RKHS distance"),
    "sampling_error": ("table from its population", "RKHS distance"),
    "se_mean": ("± mean, in parts of the range", "standard error"),
    "se_probability": ("± probability", "standard error"),
    "noise_scale": ("noise on one coordinate", "standard deviation"),
}


def coverage(
    frame: pd.DataFrame, x: str, *, by: str | None = None, level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """How often intervals held the truth, over a setting: a line for each method, beside the level they claim.

    frame    a row for each point, with the columns
             x             its place on the axis, as ε or N; on a logarithmic axis where that spans a factor of 20.
             held          how many intervals held the truth,
             repetitions   of how many independent ones.
             by            optional: whose line the point belongs to, six lines at most.
    level    what the intervals claim.
    Whiskers 95 % intervals of each rate (Clopper & Pearson 1934).

    >>> rates = pd.DataFrame({"rows": [1000, 10_000], "held": [94, 96], "repetitions": 100})
    >>> axes = ka.plots.coverage(rates, "rows")
    """
    ax = _rates(frame, x, "held", by, axes_of(ax))
    ax.axhline(level, color=RULE, linewidth=1, linestyle=(0, (1, 1)), zorder=0)
    ax.set_ylim(max(0.0, min(level, _lowest(frame, "held")) - 0.1), 1.02)
    return _labelled(ax, x, f"intervals that held the truth\n(claimed: {level:g})")


def power(frame: pd.DataFrame, x: str, *, by: str | None = None, level: float = 0.05, ax: Axes | None = None) -> Axes:
    """How often tests rejected, over a setting: their power where the hypothesis is false, their level where it is true.

    frame    as `coverage` takes it, with the column "rejections" in place of "held".
    level    of the tests, drawn as a line.

    >>> rates = pd.DataFrame({"shift": [0.0, 0.1, 0.3], "rejections": [6, 41, 100], "repetitions": 100})
    >>> axes = ka.plots.power(rates, "shift")
    """
    ax = _rates(frame, x, "rejections", by, axes_of(ax))
    ax.axhline(level, color=RULE, linewidth=1, linestyle=(0, (1, 1)), zorder=0)
    return _labelled(ax, x, f"rejections\n(nominal level: {level:g})")


def rate_intervals(hits: Array, repetitions: Array, confidence: float = _CONFIDENCE) -> tuple[Array, Array]:
    """(low, high) of Clopper & Pearson 1934 for each rate: the probabilities that do not make its count too rare.

    >>> low, high = rate_intervals(np.array([0]), np.array([100]))
    >>> float(low[0]), round(float(high[0]), 4)
    (0.0, 0.0362)
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    misses = repetitions - hits
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), misses + 1, tail))
    high = np.where(misses == 0, 1.0, betaincinv(hits + 1, np.maximum(misses, 1), 1 - tail))
    return low, high


def _rates(frame: pd.DataFrame, x: str, hits: str, by: str | None, ax: Axes) -> Axes:
    _check_columns(frame, [x, hits, "repetitions", *([by] if by else [])])
    n, k = (frame[name].to_numpy(dtype=float) for name in ("repetitions", hits))
    if not (np.isfinite(n) & (n >= 1) & (k >= 0) & (k <= n) & (k % 1 == 0) & (n % 1 == 0)).all():
        raise ValueError(
            f'"{hits}" must be whole numbers from 0 to "repetitions", and those at least 1: rates are drawn with the interval '
            "that follows from their counts. Pass counts, not shares."
        )
    places = _places(frame, x)
    for name, rows, style in _lines(frame, by):
        order = rows[np.argsort(places[rows], kind="stable")]
        rate = k[order] / n[order]
        low, high = rate_intervals(k[order], n[order])
        ax.errorbar(
            places[order], rate, [rate - low, high - rate], color=style.colour, linestyle=style.line, marker=style.marker,
            markersize=5, markerfacecolor="white", linewidth=1.4, elinewidth=1, capsize=2, label=name,
        )  # fmt: skip
    _scale(ax, places)
    ax.set_ylim(-0.03, 1.03)
    if by is not None:
        ax.legend(frameon=False, fontsize=8)
    counts = f"{int(n.min()):,}" if n.min() == n.max() else f"{int(n.min()):,} to {int(n.max()):,}"
    caption(ax, f"{counts} repetitions of each · whiskers: {percent(_CONFIDENCE)} intervals (Clopper & Pearson)")
    return ax


def _lowest(frame: pd.DataFrame, hits: str) -> float:
    """Where the lowest whisker ends."""
    return float(rate_intervals(*(frame[name].to_numpy(dtype=float) for name in (hits, "repetitions")))[0].min())


def _lines(frame: pd.DataFrame, by: str | None) -> list[tuple[Any, Array, Any]]:
    """(name, rows, look) of each series, in the order they are met."""
    if by is None:
        return [(None, np.arange(len(frame)), LOOKS[0])]
    codes, names = pd.factorize(frame[by])
    check_number_of_series(len(names))
    return [
        (plain(name, 60), np.flatnonzero(codes == i), style)
        for i, (name, style) in enumerate(zip(names, LOOKS, strict=False))
    ]


def _check_columns(frame: pd.DataFrame, names: Sequence[str]) -> None:
    lacking = [name for name in names if name not in frame.columns]
    if lacking or len(frame) == 0:
        told = f"it lacks {', '.join(map(repr, lacking))}" if lacking else "it has no rows"
        raise ValueError(
            f"the frame needs a row for each point with the columns {', '.join(map(repr, names))}, and {told}. Rename its "
            "columns, or name others."
        )


def _places(frame: pd.DataFrame, x: str) -> Array:
    try:
        places = frame[x].to_numpy(dtype=float)
    except (TypeError, ValueError):
        places = np.array([np.nan])
    if not np.isfinite(places).all():
        raise ValueError(
            f"{x!r} must be finite numbers: they are places on an axis. Name a column of numbers, and what it has beside "
            "them as `by`."
        )
    return places


def _scale(ax: Axes, places: Array) -> None:
    """A logarithmic axis for places that span a factor; each place has a tick where they are few."""
    distinct = np.unique(places)
    if distinct[0] > 0 and distinct[-1] >= _WIDE * distinct[0]:
        ax.set_xscale("log")
    if len(distinct) <= 8:
        ax.set_xticks(distinct, [f"{place:,g}" if abs(place) < 1e6 else f"{place:g}" for place in distinct])
        ax.minorticks_off()


def _labelled(ax: Axes, x: str, y: str) -> Axes:
    ax.set_xlabel(plain(x, 60))
    ax.set_ylabel(y)
    return ax


def error_against_epsilon(
    plans: pd.DataFrame,
    *,
    errors: Sequence[str] = ("rkhs_error", "sampling_error"),
    rows: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What a budget would buy: predicted errors over ε, on logarithmic axes.

    plans    the DataFrame that `release_side.plan` returns, or read from `release-side plan --json`: a row for each ε.
    errors   which of its columns to draw, of one unit: "rkhs_error" and "sampling_error" (distances in the kernel's
             space), "se_mean" and "se_probability" (standard errors an analyst will read), or "noise_scale".
    rows     N, for the caption.

    >>> plan = pd.DataFrame({"epsilon": [0.1, 1.0], "delta": 1e-6, "rkhs_error": [0.098, 0.021], "sampling_error": 0.012})
    >>> axes = ka.plots.error_against_epsilon(plan, rows=6000)
    """
    chosen = [errors] if isinstance(errors, str) else list(errors)
    units = {_ERRORS[name][1] for name in chosen if name in _ERRORS}
    if len(units) != 1 or not set(chosen) <= set(_ERRORS):
        raise ValueError(
            f"errors must be columns of a plan that have one unit, got {chosen}. Name rkhs_error and sampling_error, se_mean "
            "and se_probability, or noise_scale."
        )
    _check_columns(plans, ["epsilon", *chosen])
    epsilon = _places(plans, "epsilon")
    values = {name: _places(plans, name) for name in chosen}
    if not all((some > 0).all() for some in [epsilon, *values.values()]):
        raise ValueError(
            "epsilon and errors must be positive: the axes are logarithmic. Leave other rows out of the frame."
        )
    ax, order = axes_of(ax), np.argsort(epsilon, kind="stable")
    for (name, value), style in zip(values.items(), LOOKS, strict=False):
        reference = name == "sampling_error"
        ax.plot(
            epsilon[order], value[order], color=INK if reference else style.colour, linestyle=style.line,
            marker=style.marker, markersize=5, markerfacecolor="white", linewidth=1.4, label=_ERRORS[name][0],
        )  # fmt: skip
    _logarithmic(ax, epsilon)
    ax.legend(frameon=False, fontsize=8)
    caption(ax, _of_plans(plans, rows), "predicted on a made-up table: a real one's errors may be ⅓ to 2½ times these")
    return _labelled(ax, "ε", units.pop())


def _logarithmic(ax: Axes, places: Array) -> None:
    """Both axes, with a tick at each place and at 1, 2 and 5 times the powers of ten."""
    from matplotlib.ticker import LogLocator

    ax.set_yscale("log")
    ax.set_xscale("log")
    ax.set_xticks(np.unique(places), [f"{place:g}" for place in np.unique(places)])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()


def _of_plans(plans: pd.DataFrame, rows: int | None) -> str:
    """What is the same for all rows of a plan."""
    told = [] if rows is None else [f"N = {rows:,} rows"]
    for name, written in (
        ("delta", "δ = {:g}"),
        ("method", "{}"),
        ("points", "{:,} points"),
        ("features", "{:,} features"),
    ):
        if name in plans and plans[name].nunique() == 1:
            told.append(written.format(plans[name].iloc[0]))
    return " · ".join(told)
