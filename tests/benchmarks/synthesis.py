"""Synthesis: how well models train on a released table, and how near its margins are.

    python tests/benchmarks/synthesis.py [--data adult cervical housing] [--epsilon 1 0.1] [--draws 3] [--no-target]
        [--option kernel=table method=generator ...]

Reads ../shared (data, and the protocol of anchors/adult_protocol.json) and says so when it is not there. Each release
(δ = 1e-5, noise from the operating system) is expanded to as many rows as the real training rows; the protocol's nine
classifiers learn from those and are scored on the real test rows. A line for each setting, means over draws:

    ROC, PR       ROC-AUC and average precision, over the classifiers; at the end of the line for each one
    1-way to 3-way  total-variation distance to the private rows' tables of binned columns: all tables of one and of
                  two columns, 100 drawn ones of three
    query         absolute error of the share of rows that meet three conditions, over 500 drawn from private rows
    s, MB         of a publication alone: its seconds, and the peak memory of its own process (some 190 MB are imports)

Releases have default settings and the label as their target, where the method and kernel asked for know one.
For Adult, the figures that the anchors file has of others (measured elsewhere) stand below. --option: of publish.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import forkserver
from typing import Any

import numpy as np
import pandas as pd
from harness import ANCHORS, DATA, command_line, peak, read_text, require
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
from release_side import publish

PROTOCOL = ANCHORS / "adult_protocol.json"
DELTA = 1e-5
TRIPLES = 100
QUERIES = 500
CONDITIONS = 3  # conditions of a query
MODELS: dict[str, Callable[[], Any]] = {
    "LR": lambda: LogisticRegression(max_iter=2000, random_state=0),
    "GNB": GaussianNB,
    "SVC": lambda: LinearSVC(random_state=0),
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "LDA": LinearDiscriminantAnalysis,
    "Ada": lambda: AdaBoostClassifier(random_state=0),
    "RF": lambda: RandomForestClassifier(100, random_state=0, n_jobs=-1),
    "HGB": lambda: HistGradientBoostingClassifier(random_state=0),
    "MLP": lambda: MLPClassifier(max_iter=15, random_state=0),
}
SUMMARY = {  # figure → heading and format; the anchors file has the same names
    "roc": ("ROC", ".4f"), "pr": ("PR", ".4f"), "tv_1way": ("1-way", ".4f"), "tv_2way": ("2-way", ".4f"),
    "tv_3way": ("3-way", ".4f"), "query": ("query", ".5f"), "seconds": ("s", ".1f"), "peak_MB": ("MB", ".0f"),
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


# ---------------------------------------------------------------------- the tables and their public domains


def adult() -> Table:
    """Census income of 1994: bounds and bins of the protocol, levels of both files, the files' own split."""
    bins = json.loads(PROTOCOL.read_text())["margin_bins_lower_edges_last_exclusive"]
    train, test = (read_text(f"adult/adult_{part}.csv.gz").drop(columns="education") for part in ("train", "test"))
    test["income"] = test["income"].str.rstrip(".")
    levels = {name: set(train[name]) | set(test[name]) for name in train if name not in bins}

    def column(name: str) -> Column:
        if name not in bins:
            return Categorical(
                name=name, levels=tuple(sorted(levels[name], key=int if name == "education-num" else None))
            )
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
    frame = read_text("cervical/kag_risk_factors_cervical_cancer.csv.gz").replace(
        {r"^\?$": "", r"\.0$": ""}, regex=True
    )
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
    domain = Domain(
        tuple(known[name] if name in known else Boolean(name=name, missing=name not in answered) for name in frame)
    )
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
    return Table(
        domain, train, test, "high_value", logged=("total_rooms", "total_bedrooms", "population", "households")
    )


TABLES: dict[str, Callable[[], Table]] = {"adult": adult, "cervical": cervical, "housing": housing}


# ---------------------------------------------------------------------- rows as the scores need them


def natural_rows(domain: Domain, frame: pd.DataFrame) -> Any:
    """(n, d) float: numbers in their own units, levels as codes, NaN where missing."""
    rows = domain.encode(frame)
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            rows[:, j] = column.decode(rows[:, j]).to_numpy(dtype=float, na_value=np.nan)
    return rows


def binned(column: Column, values: Any) -> tuple[Any, int]:
    """Codes (n,) of bins or levels, and how many there are; an atom and a missing cell have codes of their own."""
    missing = np.isnan(values)
    if isinstance(column, Number):
        codes, size = np.searchsorted(column.edges, values, side="right"), len(column.edges) + 1
        for atom in column.atoms:
            codes[values == atom] = size
            size += 1
    else:
        assert isinstance(column, Categorical)
        codes, size = np.where(missing, 0, values).astype(int), len(column.levels)
    codes[missing] = size
    return codes, size + column.missing


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


# ---------------------------------------------------------------------- the scores


def model_scores(table: Table, rows: Any) -> Scores:
    """ROC-AUC and average precision on the test rows of each classifier trained on these rows, and their means.

    Where all rows have one label nothing can be learned: 1/2, and the share of positive test rows.
    """
    target = table.domain.position(table.target)
    test = natural_rows(table.domain, table.test)
    seen, label, unseen, truth = (
        features(table, rows),
        rows[:, target] == 1,
        features(table, test),
        test[:, target] == 1,
    )
    found: Scores = {}
    for name, make in MODELS.items():
        score = np.zeros(len(test)) if label.all() or not label.any() else trained(make(), seen, label, unseen)
        found[f"roc {name}"] = float(roc_auc_score(truth, score))
        found[f"pr {name}"] = float(average_precision_score(truth, score))
    return {kind: float(np.mean([found[f"{kind} {name}"] for name in MODELS])) for kind in ("roc", "pr")} | found


def trained(model: Any, seen: Any, label: Any, unseen: Any) -> Any:
    """The trained model's scores of rows it has not seen, (n,)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations that the protocol cuts short
        model.fit(seen, label)
        if hasattr(model, "predict_proba"):
            return model.predict_proba(unseen)[:, 1]
        return model.decision_function(unseen)


def margin_scores(table: Table, rows: Any) -> Scores:
    """Distances of tables of one, two and three columns, and the error of queries, to the private rows."""
    private = natural_rows(table.domain, table.train)
    pairs = [
        (binned(column, ours), binned(column, theirs)[0])
        for column, ours, theirs in zip(table.domain.columns, rows.T, private.T, strict=True)
    ]
    codes, sizes = np.column_stack([ours[0] for ours, _ in pairs]), [ours[1] for ours, _ in pairs]
    private_codes = np.column_stack([theirs for _, theirs in pairs])
    indices = range(len(sizes))
    triples = np.array(list(itertools.combinations(indices, 3)))
    chosen = np.random.default_rng(0).choice(len(triples), min(TRIPLES, len(triples)), replace=False)
    groups: dict[str, Any] = {
        "tv_1way": itertools.combinations(indices, 1),
        "tv_2way": itertools.combinations(indices, 2),
        "tv_3way": triples[chosen],
    }
    distances = {
        name: float(
            np.mean([total_variation(codes[:, js], private_codes[:, js], sizes, js) for js in map(list, group)])
        )
        for name, group in groups.items()
    }
    return distances | {"query": query_error(codes, private_codes)}


def total_variation(codes: Any, private_codes: Any, sizes: list[int], columns: list[int]) -> float:
    """Between the shares of rows in each cell of the table of these columns."""
    shape = [sizes[j] for j in columns]
    ours, theirs = (
        np.bincount(np.ravel_multi_index(tuple(c.T), shape), minlength=np.prod(shape)) / len(c)
        for c in (codes, private_codes)
    )
    return float(np.abs(ours - theirs).sum() / 2)


def query_error(codes: Any, private_codes: Any) -> float:
    """Mean absolute error of the share of rows that agree with a drawn private row in three drawn columns."""
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(QUERIES):
        columns = rng.choice(codes.shape[1], CONDITIONS, replace=False)
        wanted = private_codes[rng.integers(len(private_codes)), columns]
        ours, theirs = ((c[:, columns] == wanted).all(axis=1).mean() for c in (codes, private_codes))
        errors.append(abs(ours - theirs))
    return float(np.mean(errors))


def scores(table: Table, frame: pd.DataFrame) -> Scores:
    """All scores of rows to learn from."""
    rows = natural_rows(table.domain, frame)
    return model_scores(table, rows) | margin_scores(table, rows)


# ---------------------------------------------------------------------- the releases


def released(
    train: pd.DataFrame, domain: Domain, epsilon: float, draw: int, options: dict[str, Any]
) -> tuple[pd.DataFrame, float, float]:
    """As many rows as the table has, drawn from its release; the seconds of publishing and this process's peak MB."""
    logging.disable()
    started = time.perf_counter()
    release = publish(train, domain, epsilon=epsilon, delta=DELTA, **options)
    seconds = time.perf_counter() - started
    return release.resample(len(train), rng=draw), seconds, peak()


def release_scores(table: Table, epsilon: float, draw: int, options: dict[str, Any]) -> Scores:
    """Scores of one release, published in a process of its own so that its memory can be measured."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as pool:
        frame, seconds, megabytes = pool.submit(released, table.train, table.domain, epsilon, draw, options).result()
    return scores(table, frame) | {"seconds": seconds, "peak_MB": megabytes}


def settings(
    table: Table, epsilons: list[float], draws: int, options: dict[str, Any]
) -> Iterator[tuple[str, list[Scores]]]:
    """Name and draws of the real rows, then of a release at each ε."""
    yield "real rows", [scores(table, table.train)]
    for epsilon in epsilons:
        yield f"epsilon {epsilon:g}", [release_scores(table, epsilon, draw, options) for draw in range(draws)]


# ---------------------------------------------------------------------- in print


def heading(name: str, table: Table) -> str:
    """Two lines above a table's settings."""
    cells = "".join(f"{title:>9}" for title, _ in SUMMARY.values())
    models = "  ".join(f"{model:^11}" for model in MODELS)
    sizes = f"{len(table.train):,} training rows, {len(table.test):,} test rows, {len(table.domain)} columns"
    return f"\n{name}: {sizes}\n{'':24}{cells}  {models}  (ROC/PR)"


def line(label: str, found: dict[str, Any], rest: str) -> str:
    """The figures there are, in their columns."""
    texts = (format(found[key], form) if found.get(key) is not None else "-" for key, (_, form) in SUMMARY.items())
    return f"{label:24}" + "".join(f"{text:>9}" for text in texts) + f"  {rest}"


def setting_line(setting: str, draws: list[Scores]) -> str:
    """Means over the draws, and each model's."""
    mean = {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
    models = "  ".join(f"{mean[f'roc {model}']:.3f}/{mean[f'pr {model}']:.3f}" for model in MODELS)
    label = setting if setting == "real rows" else f"{setting}, {len(draws)} draw{'s' * (len(draws) > 1)}"
    return line(label, mean, models)


def anchor_lines(measured: dict[str, Any], epsilons: list[float]) -> Iterator[str]:
    """What the anchors file has: without privacy, then others' releases at these ε."""
    blocks = {"anchors": {name: row for name, row in measured.items() if name != "columns" and isinstance(row, list)}}
    for epsilon in epsilons:
        blocks[f"anchors, epsilon {epsilon:g}"] = measured.get(f"epsilon {epsilon:g}", {})
    for setting, rows in blocks.items():
        for name, row in rows.items():
            yield line(setting, dict(zip(measured["columns"], row, strict=True)), name)


def option(text: str) -> tuple[str, Any]:
    """name=value, the value as an int, float, bool or text, whichever it reads as first."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        sys.exit(f"an option must be name=value, got {text!r}. Write e.g. features=2000.")
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, {"true": True, "false": False}.get(value.lower(), value)


def main() -> None:
    """The tables asked for, one after the other."""
    arguments = command_line(__doc__, data=TABLES, epsilon=(1.0, 0.1), draws=3, no_target=False, option=())
    require(DATA, PROTOCOL)
    multiprocessing.set_forkserver_preload([])
    forkserver.ensure_running()  # while this process is small: a new program's peak memory begins at its parent's
    options = dict(map(option, arguments.option))
    untargeted = options.get("kernel", "margins") != "margins" or options.get("method") == "subspace"
    for name in arguments.data:
        table = TABLES[name]()
        print(heading(name, table), flush=True)
        target = {} if arguments.no_target or untargeted else {"target": table.target}
        for setting, draws in settings(table, arguments.epsilon, arguments.draws, target | options):
            print(setting_line(setting, draws), flush=True)
        if name == "adult":
            print(*anchor_lines(json.loads(PROTOCOL.read_text())["measured"], arguments.epsilon), sep="\n", flush=True)


if __name__ == "__main__":
    main()
