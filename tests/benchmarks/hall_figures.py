"""Functions released at ε = 1 beside the ones that are not private: a density in one dimension, a boundary of two classes.

    python tests/benchmarks/hall_figures.py [--rows 1000] [--epsilon 1] [--draws 20] [--figure hall.png]

Simulated rows (a mixture of two normals; two half moons). Printed for each kind: the largest error over a fine grid,
median of the draws; what the file predicts for it (the median of sup |σ·G| for its own σ and covariance); how much of the
grid lies within 1.96 standard errors; the bound on what no pivot shows; and for machines their accuracy on other rows.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.columns import Boolean, Real
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.function import ReleasedFunction
from release_side.functions import publish_function
from release_side.kernel_machines import machine_weights, plan_machine, targets_of

DELTA = 1e-6
LINE = Domain((Real(name="x", lower=-4.0, upper=4.0),))
CURVE = Domain((Real(name="x", lower=-4.0, upper=4.0), Real(name="y", lower=-1.0, upper=1.0)))
MOONS = Domain((Real(name="x", lower=-2.0, upper=3.0), Real(name="z", lower=-1.5, upper=2.0), Boolean(name="y")))


def mixture(n_rows: int, rng: np.random.Generator) -> pd.DataFrame:
    first = rng.random(n_rows) < 0.6
    x = np.where(first, rng.normal(-1.2, 0.5, n_rows), rng.normal(1.4, 0.8, n_rows)).clip(-4, 4)
    return pd.DataFrame({"x": x, "y": np.sin(1.5 * x) / 2 + rng.normal(0, 0.1, n_rows)})


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


def measured(kind: str, n_rows: int, epsilon: float, draws: int) -> tuple[dict[str, Any], Any]:
    """The numbers of one kind, and what its picture needs."""
    make, domain, target = CASES[kind]
    table, others = make(n_rows, np.random.default_rng(1)), make(5000, np.random.default_rng(2))
    released = [
        publish_function(table, domain, kind=kind, target=target, epsilon=epsilon, delta=DELTA) for _ in range(draws)
    ]
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


def draw_figure(path: str, pictures: dict[str, Any], epsilon: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    _, grid, truth, answer = pictures["density"]
    x, value, error = (each.to_numpy() for each in (grid["x"], answer["value"], answer["standard_error"]))
    left.fill_between(x, value - 1.96 * error, value + 1.96 * error, color="C0", alpha=0.2, label="± 1.96 s.e.")
    left.plot(x, value, "C0", label=f"released, ε = {epsilon:g}")
    left.plot(x, truth, "k--", label="not private")
    left.set(xlabel="x", title="kernel density estimate")
    left.legend(frameon=False)
    table, grid, truth, answer = pictures["logistic"]
    axes = [np.unique(grid[name]) for name in ("x", "z")]
    shape = tuple(map(len, axes))
    some = table.iloc[:400]
    for told, colour in ((False, "C1"), (True, "C2")):
        right.scatter(*some.loc[some["y"] == told, ["x", "z"]].T.to_numpy(), s=4, c=colour, alpha=0.4)
    right.contour(*axes, answer["value"].to_numpy().reshape(shape).T, levels=[0], colors="C0")
    right.contour(*axes, truth.reshape(shape).T, levels=[0], colors="k", linestyles="--")
    right.set(xlabel="x", ylabel="z", title="boundary of kernel logistic regression")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--figure", default="hall.png")
    options = parser.parse_args()
    logging.getLogger("release_side").setLevel(logging.ERROR)  # rows are simulated, and need no ledger
    lines, pictures = [], {}
    for kind in CASES:
        line, pictures[kind] = measured(kind, options.rows, options.epsilon, options.draws)
        lines.append(line)
    print(f"{options.rows} rows, epsilon {options.epsilon:g}, delta {DELTA:g}, {options.draws} draws")
    print(pd.DataFrame(lines).to_string(index=False, float_format=lambda number: f"{number:.4g}", na_rep=""))
    draw_figure(options.figure, pictures, options.epsilon)
    print(f"wrote {options.figure}")


if __name__ == "__main__":
    main()
