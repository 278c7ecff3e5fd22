"""Synthesis: how well models train on a released table, and how near its margins are.

    python tests/benchmarks/synthesis.py [--data adult cervical housing] [--epsilon 1 0.1] [--draws 3] [--no-target]
        [--option kernel=table method=generator ...]

Reads ../shared (data, and the protocol of anchors/adult_protocol.json) and says so when it is not there. Each release
(δ = 1e-5, noise from the operating system) is expanded to as many rows as the real training rows; the protocol's nine
classifiers learn from those and are scored on the real test rows. A line for each setting, means over draws:

    ROC, PR       ROC-AUC and average precision, over the classifiers; at the end of the line for each one
    1-way, 2-way  total-variation distance to the private rows' tables of binned columns: all of one and of two columns
    s, MB         of a publication alone: its seconds, and the peak memory of its own process (some 190 MB are imports)

Releases have default settings and the label as their target, where the method and kernel asked for know one.
For Adult, the figures that the anchors file has of others (measured elsewhere) stand below. --option: of publish.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from harness import ANCHORS, DATA, command_line, margins_apart, publish_alone, read_text, require, show
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import AdaBoostClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Number, Real

PROTOCOL = ANCHORS / "adult_protocol.json"
DELTA = 1e-5
MODELS: dict[str, Callable[[], Any]] = {
    "LR": lambda: LogisticRegression(max_iter=2000, random_state=0), "GNB": GaussianNB,
    "SVC": lambda: LinearSVC(random_state=0), "tree": lambda: DecisionTreeClassifier(random_state=0),
    "LDA": LinearDiscriminantAnalysis, "Ada": lambda: AdaBoostClassifier(random_state=0),
    "RF": lambda: RandomForestClassifier(100, random_state=0, n_jobs=-1),
    "HGB": lambda: HistGradientBoostingClassifier(random_state=0),
    "MLP": lambda: MLPClassifier(max_iter=15, random_state=0),
}  # fmt: skip
SUMMARY = {  # figure → heading; the anchors file has the same names
    "roc": "ROC", "pr": "PR", "tv_1way": "1-way", "tv_2way": "2-way", "seconds": "s", "peak_MB": "MB",
}  # fmt: skip
Scores = dict[str, float]  # of one draw: the figures of SUMMARY, and "roc LR", "pr LR" and so on


@dataclass(frozen=True)
class Table:
    """A table to publish and a label to learn.

    train, test   frames of text, "" where a cell is missing; train is what is published.
    target        the label: its second level is the positive one.
    logged        numbers that the classifiers see after log1p.
    ranked        categories of levels 1 to L that the classifiers see as a number, level / L.
    """

    domain: Domain
    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    logged: tuple[str, ...] = ()
    ranked: tuple[str, ...] = ()


def adult() -> Table:
    """Census income of 1994: bounds and bins of the protocol, levels of both files, the files' own split."""
    bins = json.loads(PROTOCOL.read_text())["margin_bins_lower_edges_last_exclusive"]
    train, test = (read_text(f"adult/adult_{part}.csv.gz").drop(columns="education") for part in ("train", "test"))
    test["income"] = test["income"].str.rstrip(".")
    levels = {name: set(train[name]) | set(test[name]) for name in train if name not in bins}

    def column(name: str) -> Column:
        if name not in bins:
            return Categorical(name=name, levels=tuple(sorted(levels[name], key=int if name == "education-num" else None)))
        return Integer(
            name=name, lower=bins[name][0], upper=bins[name][-1] - 1, edges=tuple(bins[name][1:-1]),
            atoms=(0,) if name in ("capital-gain", "capital-loss") else (),
            scale="log1p" if name == "fnlwgt" else "linear",  # its lower bound is 0
        )  # fmt: skip

    return Table(
        Domain(tuple(column(name) for name in train)), train, test, "income",
        logged=("fnlwgt", "capital-gain", "capital-loss"), ranked=("education-num",),
    )  # fmt: skip


def cervical() -> Table:
    """Risk factors of cervical cancer, all 858 rows: stratified halves.

    Bounds and edges are what a physician would write before seeing a row; a cell that the file has as "?" is missing,
    and a whole number loses its ".0", without which a truth value would not be read.
    """
    frame = read_text("cervical/kag_risk_factors_cervical_cancer.csv.gz").replace({r"^\?$": "", r"\.0$": ""}, regex=True)
    asked: dict[str, Any] = {"missing": True}  # a question that patients may leave open
    since: dict[str, Any] = {"lower": 0, "upper": 30, "edges": (2, 4, 6, 10, 15), "missing": True}
    numbers: list[Number] = [
        Integer(name="Age", lower=10, upper=90, edges=(20, 25, 30, 35, 40, 50, 60)),
        Integer(name="Number of sexual partners", lower=0, upper=30, edges=(2, 3, 4, 5, 7, 10), **asked),
        Integer(name="First sexual intercourse", lower=8, upper=40, edges=(14, 15, 16, 17, 18, 19, 20, 25), **asked),
        Integer(name="Num of pregnancies", lower=0, upper=15, edges=(1, 2, 3, 4, 5, 7), **asked),
        Real(name="Smokes (years)", lower=0, upper=50, edges=(2, 5, 10, 20), atoms=(0,), **asked),
        Real(name="Smokes (packs/year)", lower=0, upper=50, edges=(0.5, 1, 2, 5, 10), atoms=(0,), **asked),
        Real(name="Hormonal Contraceptives (years)", lower=0, upper=40, edges=(0.5, 1, 2, 5, 10), atoms=(0,), **asked),
        Real(name="IUD (years)", lower=0, upper=30, edges=(1, 2, 5, 10), atoms=(0,), **asked),
        Integer(name="STDs (number)", lower=0, upper=10, edges=(1, 2, 3), **asked),
        Integer(name="STDs: Number of diagnosis", lower=0, upper=10, edges=(1, 2, 3)),
        Integer(name="STDs: Time since first diagnosis", **since),
        Integer(name="STDs: Time since last diagnosis", **since),
    ]
    known = {number.name: number for number in numbers}
    answered = ("Dx:Cancer", "Dx:CIN", "Dx:HPV", "Dx", "Hinselmann", "Schiller", "Citology", "Biopsy")
    domain = Domain(tuple(known[name] if name in known else Boolean(name=name, missing=name not in answered) for name in frame))
    train, test = train_test_split(frame, test_size=0.5, random_state=0, stratify=frame["Biopsy"])
    return Table(domain, train, test, "Biopsy")


def housing() -> Table:
    """Californian block groups of 1990: is the median house value above its median? Four fifths to learn from.

    Bounds are those of the state and of what a block group can hold; median_income is in tens of thousands of dollars.
    """
    frame = read_text("housing/housing.csv.gz")
    value = frame.pop("median_house_value").astype(float)
    frame["high_value"] = (value > value.median()).map({True: "True", False: "False"})
    frame = frame.replace({r"\.0$": ""}, regex=True)
    counts: dict[str, Any] = {"lower": 1, "scale": "log"}
    domain = Domain((
        Real(name="longitude", lower=-125, upper=-114, edges=(-123, -122, -121, -120, -119, -118.5, -118, -117.5, -117)),
        Real(name="latitude", lower=32, upper=42, edges=(33, 33.5, 34, 34.5, 35, 36, 37, 37.5, 38, 39)),
        Integer(name="housing_median_age", lower=0, upper=60, edges=(5, 10, 15, 20, 25, 30, 35, 40, 45, 50)),
        Integer(name="total_rooms", upper=50_000, edges=(500, 1000, 1500, 2000, 2500, 3000, 4000, 6000), **counts),
        Integer(name="total_bedrooms", upper=10_000, edges=(100, 200, 300, 400, 500, 700, 1000), missing=True, **counts),
        Integer(name="population", upper=50_000, edges=(300, 600, 900, 1200, 1500, 2000, 3000), **counts),
        Integer(name="households", upper=10_000, edges=(100, 200, 300, 400, 500, 700, 1000), **counts),
        Real(name="median_income", lower=0, upper=16, edges=(1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 8)),
        Categorical(name="ocean_proximity", levels=("<1H OCEAN", "INLAND", "ISLAND", "NEAR BAY", "NEAR OCEAN")),
        Boolean(name="high_value"),
    ))  # fmt: skip
    train, test = train_test_split(frame, test_size=0.2, random_state=0)
    return Table(domain, train, test, "high_value", logged=("total_rooms", "total_bedrooms", "population", "households"))


TABLES: dict[str, Callable[[], Table]] = {"adult": adult, "cervical": cervical, "housing": housing}


def natural_rows(domain: Domain, frame: pd.DataFrame) -> Any:
    """(n, d) float: numbers in their own units, levels as codes, NaN where missing."""
    rows = domain.encode(frame)
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            rows[:, j] = column.decode(rows[:, j]).to_numpy(dtype=float, na_value=np.nan)
    return rows


def features(table: Table, rows: Any) -> Any:
    """What the classifiers see, (n, F): numbers within [0, 1], one-hot levels, a mark where a cell may be missing."""
    parts = []
    for column, values in zip(table.domain.columns, rows.T, strict=True):
        missing = np.isnan(values)
        if column.name == table.target:
            continue
        if isinstance(column, Number):
            scale = np.log1p if column.name in table.logged else np.positive
            low, high = scale(float(column.lower)), scale(float(column.upper))
            parts.append(np.where(missing, 0.0, (scale(values) - low) / (high - low))[:, None])
        elif column.name in table.ranked:
            parts.append((values[:, None] + 1) / len(column.levels))  # type: ignore[attr-defined]
        else:
            parts.append(values[:, None] == np.arange(len(column.levels)))  # type: ignore[attr-defined]
        if column.missing:
            parts.append(missing[:, None])
    return np.hstack(parts).astype(float)


def model_scores(table: Table, rows: Any) -> Scores:
    """ROC-AUC and average precision on the test rows of each classifier trained on these rows, and their means.

    Where all rows have one label nothing can be learned: 1/2, and the share of positive test rows.
    """
    target, test = table.domain.position(table.target), natural_rows(table.domain, table.test)
    (seen, label), (unseen, truth) = ((features(table, some), some[:, target] == 1) for some in (rows, test))
    found: Scores = {}
    for name, make in MODELS.items():
        score = np.zeros(len(test))
        if label.any() and not label.all():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of iterations that the protocol cuts short
                model = make().fit(seen, label)
            proba = hasattr(model, "predict_proba")
            score = model.predict_proba(unseen)[:, 1] if proba else model.decision_function(unseen)
        found[f"roc {name}"] = float(roc_auc_score(truth, score))
        found[f"pr {name}"] = float(average_precision_score(truth, score))
    return {kind: float(np.mean([found[f"{kind} {name}"] for name in MODELS])) for kind in ("roc", "pr")} | found


def scores(table: Table, frame: pd.DataFrame) -> Scores:
    margins = zip(("tv_1way", "tv_2way"), margins_apart(table.domain, frame, table.train), strict=True)
    return model_scores(table, natural_rows(table.domain, frame)) | dict(margins)


def release_scores(table: Table, epsilon: float, draw: int, options: dict[str, Any]) -> Scores:
    """Scores of one release, published in a process of its own so that its memory can be measured."""
    release, seconds, _, megabytes = publish_alone(table.train, table.domain, epsilon=epsilon, delta=DELTA, **options)
    frame = release.resample(len(table.train), rng=draw)
    return scores(table, frame) | {"seconds": seconds, "peak_MB": megabytes}


# ---------------------------------------------------------------------- the releases
def line(label: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures there are, and those of each model."""
    models = {model: f"{found[f'roc {model}']:.3f}/{found[f'pr {model}']:.3f}" for model in MODELS if f"roc {model}" in found}
    return {"setting": label} | {title: found.get(key) for key, title in SUMMARY.items()} | models


def anchor_lines(measured: dict[str, Any], epsilons: list[float]) -> Iterator[dict[str, Any]]:
    """What the anchors file has: without privacy, then others' releases at these ε."""
    blocks = {"": {name: row for name, row in measured.items() if name != "columns" and isinstance(row, list)}}
    blocks |= {f", ε = {epsilon:g}": measured.get(f"epsilon {epsilon:g}", {}) for epsilon in epsilons}
    for setting, rows in blocks.items():
        for name, row in rows.items():
            yield line(f"anchors: {name}{setting}", dict(zip(measured["columns"], row, strict=True)))


def option(text: str) -> tuple[str, Any]:
    """name=value, the value as a number, true or false, if it reads as one, else a text."""
    name, _, value = text.partition("=")
    with contextlib.suppress(ValueError):
        return name, json.loads(value)
    return name, value


def main() -> None:
    asked = command_line(__doc__, data=TABLES, epsilon=(1.0, 0.1), draws=3, no_target=False, option=())
    require(DATA, PROTOCOL)
    options = dict(map(option, asked.option))
    untargeted = options.get("kernel", "margins") != "margins" or options.get("method") == "subspace"
    for name in asked.data:
        table = TABLES[name]()
        target = {} if asked.no_target or untargeted else {"target": table.target}
        lines = [line("real rows", scores(table, table.train))]
        for epsilon in asked.epsilon:
            draws = [release_scores(table, epsilon, draw, target | options) for draw in range(asked.draws)]
            lines.append(line(f"ε = {epsilon:g}, {len(draws)} draws", pd.DataFrame(draws).mean()))
        if name == "adult":
            lines += anchor_lines(json.loads(PROTOCOL.read_text())["measured"], asked.epsilon)
        print(f"\n{name}: {len(table.train):,} training rows, {len(table.test):,} test rows, {len(table.domain)} columns")
        show(lines)


if __name__ == "__main__":
    main()
