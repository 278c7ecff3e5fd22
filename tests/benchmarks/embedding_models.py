"""Models straight from the measurement against models trained on released rows.

    python tests/benchmarks/embedding_models.py [--epsilon 1 0.1] [--draws 2] [--data adult simulated] [--keep FOLDER]

Tables: Adult (the protocol of synthesis.py: real test rows; skipped with a word where ../shared is not there), and
simulated ones of four numbers and a label or a number, 20,000 rows to release and as many to test on. Releases have
default settings, δ = 1e-5: random features without a target, margins with one. Row-wise models learn from as many rows as
the table has, drawn from the release. A line for each model, means over draws: ROC-AUC and average precision, or R²; then
how often 95 % intervals hold the simulation's own probability or mean, where the model has them.

--keep reads releases from a folder, and writes to it those that are not there.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import synthesis  # in the folder of this script
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kmeanalyst.inference.questions.conditional_embedding import smoother
from kmeanalyst.learning.column_law.embedding_models import EmbeddingRegressor, fit_embedding
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Real
from release_side import publish

DELTA = 1e-5
N = 20_000
NUMBERS = list("abcd")


@dataclass(frozen=True)
class Task:
    """A table to publish and what is predicted from it; features are what row-wise models see."""

    name: str
    domain: Domain
    train: Callable[[int], pd.DataFrame]  # of a draw
    test: pd.DataFrame
    target: str
    features: Callable[[pd.DataFrame], Any]
    positive: str | None  # level; None for a regression
    truth: Any = None  # the simulation's own probability or mean


def simulated(n: int, seed: int) -> tuple[pd.DataFrame, Any, Any, Any]:
    """Four numbers (two related, one of two clusters), a number of known mean given them, and a label."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 4))
    cluster = np.where(rng.random(n) < 0.5, -1.2, 1.2)
    columns = (z[:, 0], 0.6 * z[:, 0] + 0.8 * z[:, 1], cluster + 0.6 * z[:, 2], rng.uniform(-2, 2, n))
    x = np.clip(np.column_stack(columns), -4, 4)
    mean = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] - 0.4 * x[:, 2] * (x[:, 3] > 0) + 0.25 * x[:, 3] ** 2
    number = np.clip(mean + 0.5 * rng.normal(size=n), -5, 5)
    label = rng.random(n) < 1 / (1 + np.exp(-2 * (mean - 0.4)))
    return pd.DataFrame(x, columns=NUMBERS), number, label, mean


def simulated_task(name: str) -> Task:
    regression = name == "sim_reg"

    def table(seed: int) -> pd.DataFrame:
        frame, number, label, _ = simulated(N, seed)
        return frame.assign(y=number if regression else np.where(label, "True", "False"))

    own: Column = Real(name="y", lower=-5, upper=5) if regression else Boolean(name="y")
    domain = Domain((*(Real(name=each, lower=-4, upper=4) for each in NUMBERS), own))
    mean = simulated(N, 7)[3]
    truth = mean if regression else 1 / (1 + np.exp(-2 * (mean - 0.4)))
    return Task(
        name, domain, lambda draw: table(100 + draw), table(7), "y", lambda frame: frame[NUMBERS].to_numpy(float),
        None if regression else "True", truth,
    )  # fmt: skip


def adult_task() -> Task:
    table = synthesis.adult()
    return Task(
        "adult", table.domain, lambda draw: table.train, table.test, table.target,
        lambda frame: synthesis.features(table, synthesis.natural_rows(table.domain, frame)), ">50K",
    )  # fmt: skip


def kernel_features(width: int) -> tuple[Any, Any]:
    """Standardised columns, then 300 coordinates of a Gaussian kernel."""
    return StandardScaler(), Nystroem(gamma=0.5 / width, n_components=300, random_state=0)


def row_wise(regression: bool, width: int) -> dict[str, Any]:
    """Models that learn from rows, penalties on a grid so that the best is seen."""
    if regression:
        return {
            "ridge": Ridge(), "forest": RandomForestRegressor(50, min_samples_leaf=5, random_state=0),
            "HGB": HistGradientBoostingRegressor(random_state=0),
            "MLP": make_pipeline(StandardScaler(), MLPRegressor(max_iter=15, random_state=0)),
            **{f"kernel ridge {a:g}": make_pipeline(*kernel_features(width), Ridge(alpha=a)) for a in (3, 30, 300)},
        }  # fmt: skip
    logistic = {f"logistic C={C:g}": LogisticRegression(C=C, max_iter=1000) for C in (0.001, 0.01, 0.1, 1)}
    return logistic | {
        "forest": RandomForestClassifier(100, random_state=0), "HGB": HistGradientBoostingClassifier(random_state=0),
        "MLP": make_pipeline(StandardScaler(), MLPClassifier(max_iter=15, random_state=0)),
        **{
            f"kernel logistic C={C:g}": make_pipeline(*kernel_features(width), LogisticRegression(C=C, max_iter=500))
            for C in (0.01, 0.1, 1)
        },
    }  # fmt: skip


def released(task: Task, kind: str, epsilon: float, draw: int, folder: Path | None) -> Release:
    """A release of default settings, kind "r" without and "t" with the target; kept in the folder, or read from it."""
    path = None if folder is None else folder / f"{task.name}_{kind}_{epsilon}_{draw}.kme"
    if path is not None and path.exists():
        return read_release(path)
    options: dict[str, Any] = {"target": task.target} if kind == "t" else {}
    return publish(task.train(draw), task.domain, epsilon=epsilon, delta=DELTA, output=path, **options)


def row_wise_predictions(task: Task, release: Release) -> Iterator[tuple[str, Any]]:
    rows = release.resample(len(task.train(0)), rng=0)
    seen, unseen = task.features(rows), task.features(task.test)
    learned = rows[task.target] if task.positive is None else rows[task.target].astype(str) == task.positive
    for name, model in row_wise(task.positive is None, seen.shape[1]).items():
        model.fit(seen, learned.to_numpy())
        yield name, model.predict(unseen) if task.positive is None else model.predict_proba(unseen)[:, 1]


def direct_predictions(task: Task, release: Release) -> Iterator[tuple[str, Any, Any]]:
    """Name, predictions and their standard errors (None where there are none)."""
    model: Any = fit_embedding(release, task.target)
    if isinstance(model, EmbeddingRegressor):
        yield "DIRECT law", model.predict(task.test), model.standard_errors(task.test)
        if len(release) < 5000:
            smooth = smoother(release, NUMBERS, where=None, view=None, kernel=None)
            theta = smooth.fitted(smooth.population.values("y"))[1]
            yield "conditional mean, points", smooth.at(smooth.conditioning.encode(task.test[NUMBERS])) @ theta, None
        return
    index = [str(level) for level in model.classes_].index(str(task.positive))
    yield "DIRECT law", model.predict_proba(task.test)[:, index], model.standard_errors(task.test)[:, index]


def figures(task: Task, predicted: Any) -> tuple[float, ...]:
    """ROC-AUC and average precision, or R², on the test rows."""
    if task.positive is None:
        return (float(r2_score(task.test[task.target], predicted)),)
    truth = task.test[task.target].astype(str) == task.positive
    return float(roc_auc_score(truth, predicted)), float(average_precision_score(truth, predicted))


def measured(task: Task, kind: str, epsilon: float, draws: int, folder: Path | None) -> Iterator[str]:
    """A line for each model, the mean over draws."""
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    held: dict[str, list[float]] = defaultdict(list)
    for draw in range(draws):
        release = released(task, kind, epsilon, draw, folder)
        for name, predicted in row_wise_predictions(task, release):
            found[name].append(figures(task, predicted))
        for name, predicted, errors in direct_predictions(task, release):
            found[name].append(figures(task, predicted))
            if errors is not None and task.truth is not None:
                held[name].append(float((np.abs(predicted - task.truth) < 1.96 * errors).mean()))
    for name, each in found.items():
        coverage = f"   intervals hold {np.mean(held[name]):.2f}" if name in held else ""
        yield f"  {name:28}" + "  ".join(f"{mean:.4f}" for mean in np.mean(each, axis=0)) + coverage


def main() -> None:
    """The tables asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=["adult", "simulated"], default=["adult", "simulated"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=["r", "t"], default=["r", "t"])
    parser.add_argument("--keep", type=Path, help="folder of releases to read, and to write those that are not there")
    arguments = parser.parse_args()
    tasks = [simulated_task(name) for name in ("sim_cls", "sim_reg")] if "simulated" in arguments.data else []
    if "adult" in arguments.data:
        if synthesis.DATA.is_dir() and synthesis.PROTOCOL.is_file():
            tasks.append(adult_task())
        else:
            print(f"the data and the protocol are not at {synthesis.SHARED}: Adult is skipped.")
    warnings.simplefilter("ignore")  # of iterations that are cut short
    for task in tasks:
        for kind in arguments.kinds:
            for epsilon in arguments.epsilon:
                shown = "random features" if kind == "r" else "margins with the target"
                print(f"\n{task.name}, {shown}, epsilon {epsilon:g}, {arguments.draws} draws", flush=True)
                for line in measured(task, kind, epsilon, arguments.draws, arguments.keep):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
