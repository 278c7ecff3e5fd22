"""Functions released at ε = 1 compared with those that are not private: a density in one dimension, a boundary of two classes.

    python tests/benchmarks/hall_figures.py [--rows 1000] [--epsilon 1] [--draws 20] [--folder FOLDER]

Simulated rows (a mixture of two normals; two half moons). Printed for each kind: the largest error over a fine grid,
median of the draws; what the file predicts for it (the median of sup |σ·G| for its own σ and covariance); how much of the
grid lies within 1.96 standard errors; the bound on what no pivot shows; and for machines their accuracy on other rows.
With --folder the first draws are pictured there, function_density.png and function_boundary.png: those in tutorials/figures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show
from matplotlib.figure import Figure
from scipy.stats import norm

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.function import ReleasedFunction
from release_side.door.kernel_machines import machine_weights, plan_machine, targets_of
from release_side.publishing.functions import publish_function

DELTA = 1e-6
LINE = Domain((Real(name="x", lower=-4.0, upper=4.0),))
CURVE = Domain((Real(name="x", lower=-4.0, upper=4.0), Real(name="y", lower=-1.0, upper=1.0)))
Picture = tuple[pd.DataFrame, pd.DataFrame, Array, pd.DataFrame]  # rows, grid, and there the exact function and answers
MOONS = Domain((Real(name="x", lower=-2.0, upper=3.0), Real(name="z", lower=-1.5, upper=2.0), Boolean(name="y")))


def mixture(n_rows: int, rng: np.random.Generator) -> pd.DataFrame:
    first = rng.random(n_rows) < 0.6
    x = np.where(first, rng.normal(-1.2, 0.5, n_rows), rng.normal(1.4, 0.8, n_rows)).clip(-4, 4)
    return pd.DataFrame({"x": x, "y": np.sin(1.5 * x) / 2 + rng.normal(0, 0.1, n_rows)})


def population_density(x: Array) -> Array:
    parts = ((0.6, -1.2, 0.5), (0.4, 1.4, 0.8))
    return sum(share * norm.pdf(x, centre, scale) for share, centre, scale in parts)


def moons(n_rows: int, rng: np.random.Generator) -> pd.DataFrame:
    angle, second = rng.uniform(0, np.pi, n_rows), rng.random(n_rows) < 0.5
    x = np.where(second, 1 - np.cos(angle), np.cos(angle)) + rng.normal(0, 0.2, n_rows)
    z = np.where(second, 0.5 - np.sin(angle), np.sin(angle)) + rng.normal(0, 0.2, n_rows)
    return pd.DataFrame({"x": x, "z": z, "y": second})


CASES: dict[str, tuple[Callable[[int, np.random.Generator], pd.DataFrame], Domain, str | None]] = {
    "density": (mixture, LINE, None), "ridge": (mixture, CURVE, "y"), "logistic": (moons, MOONS, "y"),
    "svm": (moons, MOONS, "y"),
}  # fmt: skip


def exact(function: ReleasedFunction, table: pd.DataFrame, grid: pd.DataFrame) -> Array:
    """The function that was not made private, on the grid: nothing of it is in a release."""
    form, kernel, inputs = function.form, function.basis.kernel, function.domain
    rows, weights = inputs.encode(table), np.full(len(table), 1 / len(table))
    if form.target is not None:
        targets = targets_of(form, form.target.encode(table[form.target.name])[0])
        plan = plan_machine(form, function.basis, len(rows))
        weights = machine_weights(form, kernel.gram(rows, rows), targets, kernel.bound, plan)
    return kernel.gram(inputs.encode(grid), rows) @ weights + (form.centre if form.kind == "ridge" else 0.0)


def fine_grid(inputs: Domain) -> pd.DataFrame:
    ends = [column.bounds for column in inputs.columns]  # type: ignore[attr-defined]
    axes = [np.linspace(*pair, 400 if len(ends) == 1 else 60) for pair in ends]
    return inputs.decode(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(ends)))


def predicted(function: ReleasedFunction, grid: pd.DataFrame, rng: np.random.Generator) -> float:
    """The median of the largest error, from the file alone."""
    features = function.basis(function.domain.encode(grid))
    noise = function.noise_scale * rng.standard_normal((function.basis.dimension, 200))
    return float(np.median(np.abs(features @ noise).max(axis=0)))


def measured(kind: str, n_rows: int, epsilon: float, draws: int) -> tuple[dict[str, Any], Picture]:
    """The numbers of one kind, and what its picture needs."""
    make, domain, target = CASES[kind]
    table, others = make(n_rows, np.random.default_rng(1)), make(5000, np.random.default_rng(2))
    released = [publish_function(table, domain, kind=kind, target=target, epsilon=epsilon, delta=DELTA) for _ in range(draws)]
    first = released[0]
    grid = fine_grid(first.domain)
    truth, answers = exact(first, table, grid), [each.evaluate(grid) for each in released]
    errors = np.array([answer["value"] - truth for answer in answers])
    within = np.abs(errors) <= 1.96 * answers[0]["standard_error"].to_numpy()
    line = {
        "kind": kind, "pivots": first.basis.dimension, "range": float(np.ptp(truth)),
        "sup error": float(np.median(np.abs(errors).max(axis=1))),
        "predicted": predicted(first, grid, np.random.default_rng(3)), "within": float(within.mean()),
        "unseen": float(answers[0]["unseen"].max()),
    }  # fmt: skip
    if first.form.is_classifier:
        plain = exact(first, table, others) > 0
        line["accuracy, not private"] = float((plain == others["y"]).mean())
        line["accuracy"] = float(np.median([(each.predict(others) == others["y"]).mean() for each in released]))
    return line, (table, grid, truth, answers[0])


def draw_density(path: Path, picture: Picture, epsilon: float, n_rows: int) -> None:
    """The released density with its error, the one that was not made private, and the population's."""
    axes, figure = _axes((6.4, 3.8))
    _, grid, truth, answer = picture
    x, value, error = (each.to_numpy() for each in (grid["x"], answer["value"], answer["standard_error"]))
    axes.fill_between(x, value - 1.96 * error, value + 1.96 * error, color="C0", alpha=0.2, label="± 1.96 s.e. of noise")
    axes.plot(x, value, "C0", label=f"released, ε = {epsilon:g}, δ = {DELTA:g}")
    axes.plot(x, truth, "k--", label="not private")
    axes.plot(x, population_density(x), "k:", lw=1, label="population")
    axes.set(xlabel="x", ylabel="density", title=f"kernel density estimate of {n_rows:,} rows")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)


def draw_boundary(path: Path, picture: Picture, epsilon: float, n_rows: int) -> None:
    """Where the released machine decides otherwise, where the one that was not made private does, and some of the rows."""
    axes, figure = _axes((6.4, 4.2))
    table, grid, truth, answer = picture
    ticks = [np.unique(grid[name]) for name in ("x", "z")]
    shape = tuple(map(len, ticks))
    value, error = (answer[name].to_numpy().reshape(shape).T for name in ("value", "standard_error"))
    axes.contourf(*ticks, np.abs(value) <= 1.96 * error, levels=[0.5, 1.5], colors=["C0"], alpha=0.15)
    for ill, mark in ((False, "o"), (True, "^")):
        some = table[table["y"] == ill].iloc[:200]
        axes.scatter(some["x"], some["z"], s=8, marker=mark, c="C2" if ill else "C1", alpha=0.5, lw=0)
    axes.contour(*ticks, value, levels=[0], colors="C0")
    axes.contour(*ticks, truth.reshape(shape).T, levels=[0], colors="k", linestyles="--")
    axes.plot([], [], "C0", label=f"released, ε = {epsilon:g}, δ = {DELTA:g}")
    axes.plot([], [], "k--", label="not private")
    axes.fill([np.nan], [np.nan], color="C0", alpha=0.15, label="within 1.96 s.e. of the boundary")
    axes.set(xlabel="x", ylabel="z", title=f"kernel logistic regression of {n_rows:,} rows, 400 of them shown")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    figure.savefig(path, dpi=100)


def _axes(size: tuple[float, float]) -> tuple[Any, Any]:
    figure = Figure(figsize=size, layout="constrained")
    return figure.subplots(), figure


def main() -> None:
    options = command_line(__doc__, rows=1000, epsilon=1.0, draws=20, folder=None)
    logging.getLogger("release_side").setLevel(logging.ERROR)  # rows are simulated, and need no ledger
    lines, pictures = [], {}
    for kind in CASES:
        line, pictures[kind] = measured(kind, options.rows, options.epsilon, options.draws)
        lines.append(line)
    print(f"{options.rows} rows, epsilon {options.epsilon:g}, delta {DELTA:g}, {options.draws} draws")
    show(lines)
    if options.folder:
        folder = Path(options.folder)
        folder.mkdir(parents=True, exist_ok=True)
        draw_density(folder / "function_density.png", pictures["density"], options.epsilon, options.rows)
        draw_boundary(folder / "function_boundary.png", pictures["logistic"], options.epsilon, options.rows)


if __name__ == "__main__":
    main()
