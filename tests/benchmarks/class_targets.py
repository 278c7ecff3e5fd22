"""Classes as targets, two and more, and rare ones: models on real rows, on a tenth of them, and on a release.

    python tests/benchmarks/class_targets.py [--tables adult housing acs seven many rare] [--epsilon 1] [--draws 1] [--models ...]
        [--labels smoothed released]

Releases (δ = 1e-5) have default settings and the target named. Each model has its defaults, through `kmeanalyst.fit`, and is
scored on real rows that it has not seen: ROC-AUC (one against the rest, mean over classes) and log loss. Reads
../shared for adult, housing and acs, and says so when it is not there.

adult    income of Adult.                     acs     marital status of the ACS excerpt, seven levels.
housing  high house values.                   seven, many   7 and 23 simulated classes, of columns that act together.
rare     a simulated class of .5 %.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import synthesis
from harness import DATA, command_line, is_there, read_text, show
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import kmeanalyst as ka
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Real
from release_side import publish, read_domain

ROWS, TEST_ROWS = 20_000, 10_000
EDGES = (-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2)
MODELS: dict[str, Callable[[], Any]] = {
    "LR": lambda: LogisticRegression(max_iter=1000),
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "RF": lambda: RandomForestClassifier(random_state=0),
    "HGB": lambda: HistGradientBoostingClassifier(random_state=0),
}
Split = tuple[Domain, pd.DataFrame, pd.DataFrame, str]


def acs() -> Split:
    """A quarter of the rows to test with."""
    domain = read_domain(DATA / "acs" / "domain.toml")
    train, test = train_test_split(read_text("acs/ma2019.csv.gz"), test_size=0.25, random_state=0)
    return domain, train, test, "MSP"


def of_synthesis(table: synthesis.Table) -> Split:
    return table.domain, table.train, table.test, table.target


def simulated(classes: int, rare: bool = False) -> Split:
    """Seven columns; logits have products, steps and interactions."""
    rng, slopes = np.random.default_rng(1), np.random.default_rng(5).normal(size=(classes, 7))
    domain = Domain((
        *(Real(name=f"x{i}", lower=-4, upper=4, edges=EDGES) for i in range(4)),
        Categorical(name="g", levels=tuple("abcde")), Categorical(name="h", levels=tuple("uvw")), Boolean(name="b"),
        Categorical(name="y", levels=tuple(f"c{k:02d}" for k in range(classes))),
    ))  # fmt: skip
    x = rng.normal(size=(ROWS + TEST_ROWS, 4))
    x[:, 1] = 0.6 * x[:, 0] + 0.8 * x[:, 1]
    g, h, b = rng.choice(5, len(x), p=[0.35, 0.25, 0.2, 0.15, 0.05]), rng.choice(3, len(x)), rng.random(len(x)) < 0.4
    shapes = np.column_stack([
        x[:, 0], 0.6 * x[:, 2], 1.2 * x[:, 0] * x[:, 1], 1.5 * b * np.sign(x[:, 2]), (g == 1) * h, np.abs(x[:, 3]),
        1.2 * (h == 2) * x[:, 3],
    ])  # fmt: skip
    logits = shapes @ slopes.T - np.where(np.arange(classes) > 0, 0.5 + 11.5 * rare, 0.0)
    y = (logits * np.where(np.arange(classes) > 0, 1, 0) + rng.gumbel(size=logits.shape)).argmax(axis=1)
    frame = pd.DataFrame({f"x{i}": x[:, i].clip(-4, 4) for i in range(4)})
    frame = frame.assign(g=np.array(list("abcde"))[g], h=np.array(list("uvw"))[h], b=b, y=[f"c{k:02d}" for k in y])
    return domain, frame.iloc[:ROWS], frame.iloc[ROWS:], "y"


TABLES: dict[str, Callable[[], Split]] = {
    "adult": lambda: of_synthesis(synthesis.adult()), "housing": lambda: of_synthesis(synthesis.housing()), "acs": acs,
    "seven": lambda: simulated(7), "many": lambda: simulated(23), "rare": lambda: simulated(2, rare=True),
}  # fmt: skip
REAL = ("adult", "housing", "acs")


def scores(model: Any, test: pd.DataFrame, target: str) -> dict[str, float]:
    said, classes = np.clip(model.predict_proba(test), 1e-6, 1), model.classes_
    said = said / said.sum(axis=1, keepdims=True)
    truth = np.searchsorted(classes, test[target].to_numpy())
    present = np.unique(truth)
    areas = [roc_auc_score(truth == k, said[:, k]) for k in (present if len(classes) > 2 else [1])]
    return {"roc_auc": float(np.mean(areas)), "log_loss": float(-np.log(said[np.arange(len(truth)), truth]).mean())}


def lines(name: str, epsilon: float, draws: int, models: list[str], labels: list[str]) -> Iterator[dict[str, Any]]:
    """A line for each model: its scores on real rows, on a tenth of them, and on releases."""
    domain, train, test, target = TABLES[name]()
    test = domain.decode(domain.encode(test))
    rows = domain.decode(domain.encode(train)).assign(weight=1.0)
    parts = {"real rows": rows, "a tenth": rows.sample(frac=0.1, random_state=0)}
    settings = {setting: ka.from_frame(part, domain=domain) for setting, part in parts.items()} | {
        f"release {draw}": publish(train, domain, epsilon=epsilon, delta=1e-5, target=target, uncounted=True)
        for draw in range(draws)
    }
    for (setting, release), model in product(settings.items(), models):
        encoding: Any = "cells" if model == "LR" else None
        for source in labels if "release" in setting else [None]:
            fitted = ka.fit(MODELS[model](), release, target, encoding=encoding, labels=source)  # type: ignore[arg-type]
            made = {"table": name, "ε": epsilon, "rows": setting, "labels": source, "model": model}
            yield made | scores(fitted, test, target)


def main() -> None:
    asked = command_line(
        __doc__, tables=TABLES, epsilon=(1.0,), draws=1, models=MODELS, labels=("smoothed", "released")
    )
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    for name, epsilon in product((name for name in asked.tables if name not in REAL or is_there(DATA)), asked.epsilon):
        show(lines(name, epsilon, asked.draws, asked.models, asked.labels))


if __name__ == "__main__":
    main()
