"""Curves of rejection rates over a setting, with their intervals: what the benchmarks draw."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.stats import binomtest

from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.style import RELEASE, RULE, SAMPLE, axes_of, caption, plain


def power(frame: pd.DataFrame, x: str, *, by: str, level: float = 0.05, ax: Axes | None = None) -> Axes:
    """How often tests rejected, over a setting: their power where the hypothesis is false, their level where it is true.

    frame    a row for each point, with the columns
             x             its position on the logarithmic axis,
             rejections    how many tests rejected,
             repetitions   of how many independent ones,
             by            whose line the point belongs to: there are two.
    level    of the tests, drawn as a line.
    Whiskers 95 % intervals of each rate (Clopper & Pearson 1934).
    """
    ax = axes_of(ax)
    for (name, rows), style in zip(frame.sort_values(x).groupby(by, sort=False), (RELEASE, SAMPLE), strict=True):
        hits, n = rows["rejections"].to_numpy(), rows["repetitions"].to_numpy()
        low, high = rate_intervals(hits, n)
        ax.errorbar(
            rows[x], hits / n, [hits / n - low, high - hits / n], color=style.colour, linestyle=style.line,
            marker=style.marker, markersize=5, markerfacecolor="white", linewidth=1.4, elinewidth=1, capsize=2,
            label=plain(name, 60),
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks(np.unique(frame[x]), [f"{value:,g}" for value in np.unique(frame[x])])
    ax.minorticks_off()
    ax.set_ylim(-0.03, 1.03)
    ax.legend(frameon=False, fontsize=8)
    ax.axhline(level, color=RULE, linewidth=1, linestyle=(0, (1, 1)), zorder=0)
    caption(ax, f"{frame['repetitions'].iloc[0]:,} repetitions of each · whiskers: 95 % intervals (Clopper & Pearson)")
    ax.set_xlabel(plain(x, 60))
    ax.set_ylabel(f"rejections\n(nominal level: {level:g})")
    return ax


def rate_intervals(hits: Array, repetitions: Array) -> tuple[Array, Array]:
    """(low, high) of the 95 % interval of each rate (Clopper & Pearson 1934)."""
    intervals = [
        binomtest(int(k), int(n)).proportion_ci(method="exact") for k, n in zip(hits, repetitions, strict=True)
    ]
    return np.array([one.low for one in intervals]), np.array([one.high for one in intervals])
