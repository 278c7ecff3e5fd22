"""Coverage of the intervals of `release.glm`, next to what synthetic rows and the table itself give.

    python tests/benchmarks/glm_coverage.py [--tables simulated adult acs housing] [--releases 20] [--epsilon 1 0.1]
        [--kernel default|target|SPEC] [--figure FILE.png]

The population is one of `glm_tables.py`: 200,000 simulated rows, or all rows of a real table, most of them from ../shared/data.
Each release is of N rows redrawn from it with replacement, so that sampling varies as it does in a table from a large population.
The truth is the same model fitted to the population, whether it is true or not. Formulas were fixed before the first run; Adult's
is that of NAPSU-MQ's logistic regression (Räisä et al. 2023: income on age, race, sex; 20 repeats).

A line for each table, model and ε: the share of coefficients and draws whose 95 % interval holds the truth, and the median width of
the intervals relative to that of the non-private table, for the release, for the usual standard errors (HC0, which statsmodels
gives; the tests compare) on N rows resampled from it, and for the table without privacy; in how many releases there was no answer,
in how many the answer was the probability view's, and in how many a 95 % interval was infinite. --figure draws coverage at levels
.05, .10, …,
.95, the mean over models, a panel for each ε: README has that of --tables adult.
"""

from __future__ import annotations

import time
import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from glm_tables import TABLES, Model, Table, is_there, table_of
from harness import command_line

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.style import new_figure, save
from release_side import publish

LEVELS = np.linspace(0.05, 0.95, 19)
DELTA = 1e-6


def fitted(release: ka.Release, model: Model) -> Any:
    """The model on a release."""
    return release.glm(model.formula, model.family, link=model.link, where=model.where, reference=model.reference)


def of_rows(table: Table, frame: pd.DataFrame, model: Model) -> Any:
    """The model on plain rows: coefficients and HC0 errors as statsmodels gives them."""
    return fitted(ka.from_frame(frame.assign(weight=1 / len(frame)), domain=table.domain), model)


@cache
def truth(name: str, index: int) -> dict[str, float]:
    """The coefficients in the population."""
    table = table_of(name)
    found = of_rows(table, table.population, table.models[index])
    return dict(zip(found.names, (one.value for one in found.coefficients), strict=True))


def ends(found: Any, known: dict[str, float]) -> Array:
    """(k, 2 + 2 · levels) value, error and the intervals of each coefficient; NaN of one that has no answer."""
    rows = np.full((len(known), 2 + 2 * len(LEVELS)), np.nan)
    for row, name in zip(rows, known, strict=True):
        if found is not None and name in found.names:
            one = found[name]
            row[:] = [one.value, one.standard_error, *np.ravel([one.interval(level) for level in LEVELS])]
    return rows


def repeated(name: str, epsilon: float, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """One release: each model on it, on rows resampled from it, and on its table."""
    table = table_of(name)
    drawn = table.population.sample(table.rows, replace=True, random_state=seed).reset_index(drop=True)
    release = publish(
        drawn.astype(str), table.domain, epsilon=epsilon, delta=DELTA, rehearsal=seed, uncounted=True, **options
    )
    synthetic = release.resample(table.rows, rng=seed)
    found = []
    for i, model in enumerate(table.models):
        known = truth(name, i)
        tried: dict[str, Any] = {"seed": seed, "model": i, "epsilon": epsilon, "known": known}
        for way, ask in (
            ("ours", lambda model=model: fitted(release, model)),
            ("naive", lambda model=model: of_rows(table, synthetic, model)),
            ("table", lambda model=model: of_rows(table, drawn, model)),
        ):
            start = time.perf_counter()
            try:
                answered = ask()
                tried[way] = ends(answered, known)
                tried[f"{way} fell back"] = way == "ours" and answered.view != "fitted"
            except ValueError as error:
                tried[way], tried[f"{way} refused"] = ends(None, known), str(error).partition("\n")[0]
            tried[f"{way} seconds"] = time.perf_counter() - start
        found.append(tried)
    return found


def held(rows: Array, known: Array) -> Array:
    """(..., k, levels) whether intervals hold the truth; NaN where there is no answer."""
    low, high = rows[..., 2::2], rows[..., 3::2]
    return np.where(np.isnan(low), np.nan, (low <= known[:, None]) & (known[:, None] <= high))


def show(name: str, epsilon: float, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = []
    for i, model in enumerate(table_of(name).models):
        own = [one for one in found if one["model"] == i]
        known = np.array(list(own[0]["known"].values()))
        usual = np.nanmedian([one["table"][:, 1] for one in own], axis=0)
        line: dict[str, Any] = {"table": name, "epsilon": epsilon, "formula": model.formula, "family": model.family}
        for way in ("ours", "naive", "table"):
            rows = np.array([one[way] for one in own])
            hits = held(rows, known)
            width = (rows[..., -1] - rows[..., -2]) / (2 * 1.96 * usual)
            line |= {
                f"{way} held": float(np.nanmean(hits[..., -1])), f"{way} width": float(np.nanmedian(width)),
                f"{way} curve": np.nanmean(hits, axis=(0, 1)).tolist(),
                f"{way} refused": sum(f"{way} refused" in one for one in own),
                f"{way} infinite": int(np.isinf(rows[..., -2:]).any(axis=(1, 2)).sum()),
            }  # fmt: skip
        seconds = np.median([one["ours seconds"] for one in own])
        back = sum(one.get("ours fell back", False) for one in own)
        refused = f"{line['ours refused']}/{line['naive refused']} {back:4} {line['ours infinite']:4}"
        print(
            f"{name:10} {epsilon:4g}  {line['ours held']:.3f} {line['ours width']:6.2f}   {line['naive held']:.3f} "
            f"{line['naive width']:6.2f}   {line['table held']:.3f}   {refused:>15}  {seconds:5.1f}  "
            f"{model.family}: {model.formula}",
            flush=True,
        )
        lines.append(line)
    return lines


ROUTES = {
    "table": "the private table itself", "ours": "release.glm (kmeanalyst)",
    "naive": "usual errors on synthetic rows",
}  # fmt: skip


def draw(lines: list[dict[str, Any]], output: str) -> None:
    """Coverage against the level that was asked for."""
    epsilons = sorted({line["epsilon"] for line in lines})
    figure = new_figure((8.0, 3.8))
    panels = figure.subplots(1, len(epsilons), sharey=True, squeeze=False)[0]
    for ax, epsilon in zip(panels, epsilons, strict=True):
        for way, label in ROUTES.items():
            curve = np.mean([line[f"{way} curve"] for line in lines if line["epsilon"] == epsilon], axis=0)
            ax.plot(LEVELS, curve, label=label, color="0.6" if way == "table" else None)
        ax.plot([0, 1], [0, 1], linestyle=":", color="0.4")
        ax.set_title(f"ε = {epsilon:g}", loc="left", fontsize=10, color="0.15")
        ax.set_xlabel("level of the intervals")
    panels[0].set_ylabel("coefficients held")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=10)
    save(figure, output, dpi=100)


def main() -> None:
    """Print the lines."""
    choice = command_line(
        __doc__, tables=tuple(TABLES)[:4], releases=20, epsilon=(1.0, 0.1), kernel="default", figure=None
    )
    warnings.simplefilter("ignore")
    print("table         ε   held  width   naive  width   table   refused fell inf    s     model")
    lines: list[dict[str, Any]] = []
    for name in filter(is_there, choice.tables):
        kernel, target = {"kernel": choice.kernel}, {"target": table_of(name).target}
        options = {"default": {}, "target": target}.get(choice.kernel, kernel)
        for epsilon in choice.epsilon:
            seeds = range(choice.releases)
            lines += show(name, epsilon, [one for seed in seeds for one in repeated(name, epsilon, seed, options)])
    if choice.figure and lines:
        draw(lines, choice.figure)


if __name__ == "__main__":
    main()
