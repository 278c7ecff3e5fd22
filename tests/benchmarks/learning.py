"""Learning: every classifier and regressor of scikit-learn trained on releases, compared with the same trained on the private rows.

    python tests/benchmarks/learning.py [--parts models adult draws] [--epsilon 1] [--only NAME ...]
        [--task classification|regression] [--settings "target named" "random features" signed] [--draws 1]

models  a simulated table of 20,000 rows and six columns (numbers, counts, levels, a boolean, and a label or a cost to
        predict), released at δ = 1e-6 in three ways: with the target named (margins, rows of equal weight), by random
        features with probability weights, and with signed ones. Each estimator with its defaults through `kmeanalyst.fit`;
        ROC-AUC (one against the rest) or R² on 10,000 new rows, and what it loses against the private rows.
        Those that take quadratic time or memory see 2,000 private rows and as many of the release. Neighbours within a radius
        predict nothing where there are none: there the mean of all their predictions counts, on private rows too. With several
        draws each setting is released as often, and its score is the mean.
adult   the models of the Adult protocol and k-NN on releases at δ = 1e-5 (a target named, and not), next to the real
        rows; ROC-AUC and average precision on the real test rows. Reads ../shared, and says so when it is not there.
draws   does the spread over models of `Release.draws` estimate the spread over releases of one table? Standard deviations of
        predicted probabilities, root mean square over 300 rows: 6 releases, and 8 draws of each of two of them.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import synthesis
from harness import DATA, command_line, is_there, show
from learning_cases import NOT_ALONE
from sklearn.base import is_classifier
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, r2_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import all_estimators

import kmeanalyst as ka
from kmeanalyst.learning.training.training import _CODES
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side import publish

ROWS, TEST_ROWS, FEW = 20_000, 10_000, 2_000
COLUMNS = ("age", "score", "visits", "city", "smokes")
DOMAIN = Domain((
    Real(name="age", lower=0, upper=100, edges=(20, 30, 40, 50, 60, 70)),
    Real(name="score", lower=-4, upper=4, edges=(-2, -1, -0.5, 0, 0.5, 1, 2)),
    Integer(name="visits", lower=0, upper=20, edges=(1, 2, 3, 5, 8)),
    Categorical(name="city", levels=("Basel", "Bern", "Genf", "Zug")),
    Boolean(name="smokes"),
    Categorical(name="risk", levels=("low", "high")),
    Real(name="cost", lower=0, upper=100, edges=(10, 20, 30, 40, 50, 60, 80)),
))  # fmt: skip
QUADRATIC = (
    "GaussianProcess", "LabelPropagation", "LabelSpreading", "KernelRidge", "NuSVC", "NuSVR", "SVC", "SVR", "TheilSen",
    "RadiusNeighbors",
)  # fmt: skip
MORE = {"LogisticRegression": {"max_iter": 1000}, "RadiusNeighborsClassifier": {"radius": 2.0, "outlier_label": "most_frequent"}}


def simulated(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """n rows in which label and cost depend on the others by slopes, steps and two interactions."""
    age, city = np.clip(rng.gamma(9, 5, n), 0, 100), rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    score = np.clip(0.8 * rng.normal(size=n) + 0.8 * (city == 2) - (age - 45) / 60, -4, 4)
    smokes = rng.random(n) < np.where(city == 1, 0.4, 0.2)
    visits = np.clip(rng.poisson(1 + age / 25 + 2 * smokes), 0, 20)
    z = 1.1 * score + 0.05 * (age - 45) + 0.8 * smokes - 0.6 * (city == 3) + 0.15 * visits + 0.8 * (score > 1) - 1
    risk = rng.random(n) < 1 / (1 + np.exp(-z))
    cost = 10 + 0.4 * age + 6 * score + 8 * smokes + 2 * visits + 3 * (city == 0) + 7 * rng.normal(size=n)
    return pd.DataFrame({
        "age": age, "score": score, "visits": visits, "city": np.array(["Basel", "Bern", "Genf", "Zug"])[city],
        "smokes": smokes, "risk": np.where(risk, "high", "low"), "cost": np.clip(cost, 0, 100),
    })  # fmt: skip


def private_rows(rows: pd.DataFrame, domain: Domain) -> Any:
    """Rows as what they are: points of equal weight, without noise."""
    return ka.from_frame(rows.assign(weight=1.0), domain=domain)


def estimators(only: list[str] | None, task: str | None = None) -> Iterator[tuple[str, Any]]:
    """scikit-learn's classifiers and regressors that stand alone, or those of one task, by name."""
    kinds = {"classification": ["classifier"], "regression": ["regressor"]}.get(task or "", ["classifier", "regressor"])
    for name, kind in all_estimators(type_filter=kinds):
        if name in NOT_ALONE or (only and name not in only):
            continue
        estimator = kind(**MORE.get(name, {}))
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=0)
        yield name, estimator


def models(epsilon: float, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A line for each estimator: what it reaches on private rows and on each release, or why it is refused."""
    rng = np.random.default_rng(0)
    table, test = simulated(ROWS, rng), simulated(TEST_ROWS, rng)
    targets = {"classification": ["risk"], "regression": ["cost"]}.get(arguments.task or "", ["risk", "cost"])
    releases = {
        target: [released(table, target, epsilon, arguments.settings) for _ in range(arguments.draws)] for target in targets
    }
    for name, estimator in estimators(arguments.only, arguments.task):
        target, few = "risk" if is_classifier(estimator) else "cost", FEW if name.startswith(QUADRATIC) else None
        ways = {setting: [release[setting] for release in releases[target]] for setting in arguments.settings}
        found: dict[str, Any] = {"model": name}
        for setting, drawn in ({"private": [private_rows(table.iloc[:few], DOMAIN)]} | ways).items():
            scores = [reached(estimator, release, target, test, few) for release in drawn]
            refusals = [score for score in scores if isinstance(score, str)]
            found[setting] = refusals[0] if refusals else float(np.mean(scores))
        yield found


def released(table: pd.DataFrame, target: str, epsilon: float, wanted: Sequence[str]) -> dict[str, Any]:
    """The table's columns and one target, released in those of three ways that are wanted."""
    domain = Domain(tuple(DOMAIN[name] for name in (*COLUMNS, target)))
    options: dict[str, dict[str, Any]] = {
        "target named": {"target": target}, "random features": {}, "signed": {"weights": "signed", "points": 3000},
    }  # fmt: skip
    return {
        setting: publish(table[list(domain.names)], domain, epsilon=epsilon, delta=1e-6, **options[setting]) for setting in wanted
    }


def reached(estimator: Any, release: Any, target: str, test: pd.DataFrame, most: int | None) -> float | str:
    """The score on the test rows, with the view it came from; or why there is none."""
    columns = [name for name in COLUMNS if type(estimator).__name__ != "CategoricalNB" or name in ("city", "smokes")]
    resampled = {"view": "resampled", "effective_rows": most} if most and len(release) > most else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = ka.fit(estimator, release, target, columns=columns, **resampled)
            return score_of(model, test, target)
        except (ValueError, TypeError, AttributeError, np.linalg.LinAlgError) as error:
            return f"refused: {str(error).splitlines()[0]:.150}"


def score_of(model: Any, test: pd.DataFrame, target: str) -> float:
    """ROC-AUC or R² on real rows."""
    if model.levels_ is None:
        found = np.ravel(model.predict(test))
        return float(r2_score(test[target], np.where(np.isnan(found), np.nanmean(found), found)))
    positive = test[target] == model.classes_[1]
    if hasattr(model, "predict_proba"):
        return float(roc_auc_score(positive, model.predict_proba(test)[:, 1]))
    if hasattr(model, "decision_function"):
        return float(roc_auc_score(positive, model.decision_function(test)))
    return float(roc_auc_score(positive, model.predict(test) == model.classes_[1]))


SETTINGS = ("target named", "random features", "signed")


def show_losses(lines: list[dict[str, Any]], settings: Sequence[str]) -> None:
    """How many lose at most 0.05, by release."""
    for setting in settings:
        both = [(line["private"], line[setting]) for line in lines if not isinstance(line["private"], str)]
        losses = np.array([private - score for private, score in both if not isinstance(score, str)])
        print(
            f"{setting}: {(losses <= 0.05).sum()} of {len(losses)} lose at most .05, median {np.median(losses):.3f}; "
            f"{len(both) - len(losses)} refused"
        )


def adult(epsilons: list[float]) -> Iterator[dict[str, Any]]:
    """A line for each setting: ROC-AUC and average precision of each model on the real test rows, and their means."""
    table = synthesis.adult()
    made = synthesis.MODELS | {"GB": lambda: GradientBoostingClassifier(random_state=0), "kNN": lambda: KNeighborsClassifier(20)}
    settings: dict[str, Any] = {"real rows": private_rows(table.train, table.domain)}
    for epsilon in epsilons:
        common = {"epsilon": epsilon, "delta": 1e-5}
        settings[f"{epsilon:g}, target named"] = publish(table.train, table.domain, target=table.target, **common)
        settings[f"{epsilon:g}, random features"] = publish(table.train, table.domain, **common)
    for setting, release in settings.items():
        encoding: Any = "cells" if setting == "real rows" else None  # as releases with a target named have them
        scores = {name: adult_scores(make(), release, table, encoding) for name, make in made.items()}
        scores["mean"] = tuple(np.mean([*scores.values()], axis=0))
        yield {"setting": setting} | {name: f"{roc:.4f}/{pr:.4f}" for name, (roc, pr) in scores.items()}


def adult_scores(estimator: Any, release: Any, table: synthesis.Table, encoding: Any) -> tuple[float, float]:
    name = type(estimator).__name__
    if encoding and (_CODES.search(name) or name.startswith("AdaBoost")):
        encoding = "codes"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ka.fit(estimator, release, table.target, encoding=encoding)
        proba = hasattr(model, "predict_proba")
        said = model.predict_proba(table.test)[:, 1] if proba else model.decision_function(table.test)
    truth = table.test[table.target] == ">50K"
    return float(roc_auc_score(truth, said)), float(average_precision_score(truth, said))


def spreads(epsilon: float) -> Iterator[dict[str, Any]]:
    """Spread of predictions over releases of one table, and over models of draws of two of them."""
    rng = np.random.default_rng(0)
    table, test = simulated(ROWS, rng), simulated(300, rng)
    domain = Domain(tuple(DOMAIN[name] for name in (*COLUMNS, "risk")))
    releases = [publish(table[list(domain.names)], domain, epsilon=epsilon, delta=1e-6) for _ in range(6)]
    tables = [[private_rows(rows, domain) for rows in releases[k].draws(8, rng=k)] for k in (0, 1)]
    for estimator in (LogisticRegression(max_iter=1000), RandomForestClassifier(random_state=0)):
        encoding: Any = ka.fit(estimator, releases[0], "risk", columns=list(COLUMNS)).report.encoding  # type: ignore[union-attr]
        found: dict[str, Any] = {"model": type(estimator).__name__}
        for name, learned in zip(("over releases", "draws of one", "of another"), (releases, *tables), strict=True):
            fitted = [ka.fit(estimator, one, "risk", columns=list(COLUMNS), encoding=encoding) for one in learned]
            said = [model.predict_proba(test)[:, 1] for model in fitted]
            found[name] = np.sqrt(np.var(said, axis=0, ddof=1).mean())
        yield found


def main() -> None:
    arguments = command_line(
        __doc__, parts=("models", "adult", "draws"), epsilon=(1.0,), only=(), task=None, settings=SETTINGS, draws=1
    )
    logging.disable(logging.WARNING)
    if "models" in arguments.parts:
        lines = list(models(arguments.epsilon[0], arguments))
        show(lines)
        show_losses(lines, arguments.settings)
    if "adult" in arguments.parts and is_there(DATA):
        show(adult(arguments.epsilon))
    if "draws" in arguments.parts:
        show(spreads(arguments.epsilon[0]))


if __name__ == "__main__":
    main()
