"""The picture of README: how often two-sample tests reject a true hypothesis, with and without the privacy noise in the null.

    python tests/benchmarks/readme_picture.py [--repetitions 200] [--rows 10000] [--workers 2] [--output level.png]

Runs from the repository alone, in about six minutes on two idle cores, and writes tutorials/figures/level.png. Fresh mixed
tables (numbers, levels, missing cells) go through `release_side.publish` at ε = 0.1 and 1 (rehearsals: the same noise,
but from a seed), and each release is tested against fresh samples of the same population, at 5 %: by `ka.mmd_test`, and by the
same statistic that ignores the noise, as tests for rows do. Every repetition has a table and a noise of its own;
the samples of one repetition share them, so that the points of a line are not independent of each other. Prints the numbers
that it draws.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from harness import command_line
from level_of_mmd_test import Setting, all_pvalues
from matplotlib.axes import Axes
from scipy.stats import binomtest

from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.style import RELEASE, RULE, SAMPLE, axes_of, new_figure, save

EPSILONS = (0.1, 1.0)
SAMPLES = (30, 100, 300, 1000, 3000)
LEVEL, DELTA = 0.05, 1e-6
X, BY = "rows of the analyst's sample", "test"
ROUTES = ("privacy noise in the law (kmeanalyst)", "privacy noise ignored")
_WIDTH, _HEIGHT, _DPI = 8.0, 3.8, 100  # inches and dots: 800 pixels across
_MOST_BYTES = 80_000
OUTPUT = Path(__file__).resolve().parents[2] / "tutorials" / "figures" / "level.png"


def rejections(epsilon: float, rows: int, repetitions: int, pool: ProcessPoolExecutor) -> pd.DataFrame:
    """A row for each sample size and route: rejections of so many repetitions."""
    setting = Setting("mixed", "random-features", epsilon, rows, SAMPLES, repetitions)
    pvalues = all_pvalues(setting, repetitions, pool)  # (repetitions, sizes, routes)
    assert np.isfinite(pvalues).all()
    counts = (pvalues <= LEVEL).sum(axis=0)
    return pd.DataFrame([
        {"epsilon": epsilon, X: size, BY: route, "rejections": int(counts[i, j]), "repetitions": repetitions}
        for j, route in enumerate(ROUTES)
        for i, size in enumerate(SAMPLES)
    ])  # fmt: skip


def draw_rates(ax: Axes, frame: pd.DataFrame) -> None:
    """A line for each test over the sizes of samples, with 95 % intervals, and the level that was asked for."""
    for (name, rows), style in zip(frame.sort_values(X).groupby(BY, sort=False), (RELEASE, SAMPLE), strict=True):
        hits, n = rows["rejections"].to_numpy(), rows["repetitions"].to_numpy()
        low, high = rate_intervals(hits, n)
        ax.errorbar(
            rows[X], hits / n, [hits / n - low, high - hits / n], color=style.colour, linestyle=style.line,
            marker=style.marker, markersize=5, markerfacecolor="white", linewidth=1.4, elinewidth=1, capsize=2, label=name,
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks(np.unique(frame[X]), [f"{value:,g}" for value in np.unique(frame[X])])
    ax.minorticks_off()
    ax.set_ylim(-0.03, 1.03)
    ax.axhline(LEVEL, color=RULE, linewidth=1, linestyle=(0, (1, 1)), zorder=0)
    ax.set_xlabel(X)


def rate_intervals(hits: Array, repetitions: Array) -> tuple[Array, Array]:
    """(low, high) of the 95 % interval of each rate (Clopper & Pearson 1934)."""
    tests = (binomtest(int(k), int(n)) for k, n in zip(hits, repetitions, strict=True))
    intervals = [test.proportion_ci(method="exact") for test in tests]
    return np.array([one.low for one in intervals]), np.array([one.high for one in intervals])


def draw(frame: pd.DataFrame, rows: int, output: Path) -> None:
    """A panel for each ε, side by side; the rates with their intervals."""
    figure = new_figure((_WIDTH, _HEIGHT))
    panels = figure.subplots(1, len(EPSILONS), sharey=True)
    for ax, (epsilon, found) in zip(panels, frame.groupby("epsilon"), strict=True):
        draw_rates(axes_of(ax), found)
        ax.set_title(f"release of {rows:,} rows at ε = {epsilon:g}", loc="left", fontsize=10, color="0.15")
    panels[0].set_ylabel("true hypotheses rejected at 5 %")
    panels[1].set_ylabel("")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2, frameon=False, fontsize=10)
    repetitions = int(frame["repetitions"].iloc[0])
    figure.supxlabel(
        f"dotted: the 5 % that was asked for · whiskers: 95 % intervals of {repetitions} repetitions · δ = {DELTA:g}",
        fontsize=8, color="0.4",
    )  # fmt: skip
    output.parent.mkdir(parents=True, exist_ok=True)
    save(figure, output, dpi=_DPI)
    if (size := output.stat().st_size) > _MOST_BYTES:
        raise SystemExit(f"{output} has {size:,} bytes, more than {_MOST_BYTES:,}: draw it smaller.")


def main() -> None:
    choice = command_line(__doc__, repetitions=200, rows=10_000, workers=2, output=OUTPUT)
    started = time.monotonic()
    with ProcessPoolExecutor(choice.workers) as pool:
        frame = pd.concat([rejections(e, choice.rows, choice.repetitions, pool) for e in EPSILONS], ignore_index=True)
    low, high = rate_intervals(frame["rejections"].to_numpy(), frame["repetitions"].to_numpy())
    rate = frame["rejections"] / frame["repetitions"]
    print(frame.assign(rate=rate, low=low.round(3), high=high.round(3)).to_string(index=False))
    draw(frame, choice.rows, choice.output)
    print(f"wrote {choice.output} ({choice.output.stat().st_size:,} bytes) after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
