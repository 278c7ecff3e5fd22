"""Wide tables: what models lose that learn from a release of forty to sixty columns, and what publishing costs.

    python tests/benchmarks/wide_tables.py [--tables census forest connections awkward acs digits] [--epsilon 1 0.1]
        [--settings target none crossed one-way] [--draws 1] [--models LR RF HGB]

Four simulated tables (`wide_populations.py`); of ../shared, if it is there, the census excerpt with columns derived from its
own; scikit-learn's digits, 65 columns. The last two are redrawn with replacement. The domain is drafted from 2,000 public rows,
with the levels of a code book. A release (replace-one, δ = 1e-6, noise of the right distribution from a seed) is made of the
table. Logistic regression, random forest and gradient boosting learn through `kmeanalyst.fit`, and are scored on 10,000 other rows.

    target    the class is named: `publish(..., target="class")`
    none      it is not
    crossed   one-way tables crossed with the class and nothing else, at the same budget
    one-way   one-way tables and nothing else, at the same budget; models see no relation there
    table     the rows themselves; `tenth` a tenth of them

A line has of each model ROC-AUC and average precision, or accuracy and macro F1 where there are more than two classes; points,
1000 · (1 − mean total variation of all pairs of columns in the domain's ranges and levels); and what publishing took in a process
of its own: seconds of processor time, and peak MB.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from harness import DATA, command_line, is_there, peak, read_text
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score
from wide_populations import WIDE

import kmeanalyst as ka
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.draft import draft_domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from release_side import publish
from release_side.quality.score_tables import ScoreTables, k_marginal, shares_of

PUBLIC_ROWS, TEST_ROWS, DELTA = 2_000, 10_000, 1e-6
SETTINGS = ("target", "none", "crossed", "one-way")
MODELS: dict[str, Callable[[], Any]] = {
    "LR": lambda: LogisticRegression(max_iter=1000),
    "RF": lambda: RandomForestClassifier(100, random_state=0, min_samples_leaf=2),
    "HGB": lambda: HistGradientBoostingClassifier(random_state=0),
}


@dataclass(frozen=True)
class Table:
    """Rows to publish, others to score on, and the public domain; the column "class" is what is learned."""

    domain: Domain
    train: pd.DataFrame
    test: pd.DataFrame


def _table(frame: pd.DataFrame, n_test: int = TEST_ROWS, public: int = PUBLIC_ROWS) -> Table:
    """The first rows are public, the next ones for tests."""
    frame = frame.astype(str)
    domain = draft_domain(frame.iloc[:public], strings=False, collapse_rare=True).domain
    code_book = [
        Categorical(name=column.name, levels=tuple(sorted(set(frame[column.name]))))
        if isinstance(column, Categorical) and len(set(frame[column.name])) <= 600
        else column
        for column in domain.columns
    ]
    rest = frame.iloc[public:].reset_index(drop=True)
    return Table(Domain(tuple(code_book)), rest.iloc[n_test:].reset_index(drop=True), rest.iloc[:n_test])


def simulated(name: str) -> Table:
    make, n = WIDE[name]
    return _table(make(n + TEST_ROWS + PUBLIC_ROWS))


def acs() -> Table:
    """The census excerpt, redrawn with replacement, with columns that follow from its own; whether income is in the upper fifth."""
    rows = read_text("acs/ma2019.csv.gz")
    half = np.random.default_rng(0).permutation(len(rows))
    train, test = (rows.iloc[own].reset_index(drop=True) for own in np.split(half, [5500]))
    drawn = np.random.default_rng(1).integers(0, len(train), 20_000)
    frame = pd.concat([train.iloc[:PUBLIC_ROWS], test, train.iloc[drawn]], ignore_index=True)
    ages = frame["AGEP"].astype(int)
    frame = frame.assign(**{f"over_{age}": (ages > age).map(str) for age in range(10, 90, 10)})
    frame = frame.assign(
        **{f"{name}_again": frame[name] for name in ("MSP", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT", "EDU")}
    )
    frame["class"] = np.where(frame["PINCP_DECILE"].isin(["8", "9"]), "c1", "c0")
    return _table(frame.drop(columns=["PINCP", "PINCP_DECILE"]), len(test))


def digits() -> Table:
    """Images of 64 pixels in ten classes: 1,000 of 1,797, redrawn with replacement; others are the test."""
    data = load_digits(as_frame=True)
    frame = data.frame.rename(columns={"target": "class"}).astype(int)
    frame["class"] = "c" + frame["class"].astype(str)
    order = np.random.default_rng(0).permutation(len(frame))
    train, test = frame.iloc[order[:1000]], frame.iloc[order[1000:]]
    drawn = train.iloc[np.random.default_rng(1).integers(0, len(train), 20_000)]
    return _table(pd.concat([train, test, drawn], ignore_index=True), len(test), len(train))


TABLES: dict[str, Callable[[], Table]] = {
    **{name: (lambda name=name: simulated(name)) for name in WIDE}, "acs": acs, "digits": digits,  # type: ignore[misc]
}  # fmt: skip


# ---------------------------------------------------------------------- releases


def options_of(setting: str, table: Table) -> dict[str, Any]:
    """Of `publish`, for a setting; for peers the tables alone."""
    if setting in ("target", "none"):
        return {"target": "class"} if setting == "target" else {}
    kernel = margin_kernel(table.domain, "class" if setting == "crossed" else None)
    shares = (0.2, 0.7, 0.0, 0.0, 0.0, 0.1) if setting == "crossed" else (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return {"kernel": replace(kernel, shares=shares)}


def published(table: Table, epsilon: float, seed: int, options: dict[str, Any]) -> tuple[Any, float, float]:
    """A release, its seconds of processor time, and the peak MB of this process."""
    logging.disable()
    warnings.simplefilter("ignore")
    before = time.process_time()
    release = publish(table.train, table.domain, epsilon=epsilon, delta=DELTA, rehearsal=seed, **options)
    return release, time.process_time() - before, peak()


def in_a_process(*arguments: Any) -> tuple[Any, float, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(published, *arguments).result()


# ---------------------------------------------------------------------- scores


def learned(release: Any, table: Table, models: list[str]) -> dict[str, tuple[float, float] | str]:
    """For each model ROC-AUC and average precision, or accuracy and macro F1; why not, where it cannot be trained."""
    found: dict[str, tuple[float, float] | str] = {}
    truth = table.test["class"].to_numpy()
    for name in models:
        try:
            model = ka.fit(MODELS[name](), release, target="class")
            shares = model.predict_proba(table.test.drop(columns="class"))
        except Exception as error:  # a line for each model, whatever happens
            found[name] = f"{type(error).__name__}: {error}"[:100]
            continue
        classes = np.asarray(model.classes_)
        if len(set(truth)) == 2:
            positive = truth == "c1"
            score = shares[:, list(classes).index("c1")] if "c1" in classes else np.zeros(len(truth))
            found[name] = (float(roc_auc_score(positive, score)), float(average_precision_score(positive, score)))
        else:
            guess = classes[shares.argmax(axis=1)]
            found[name] = (float(accuracy_score(truth, guess)), float(f1_score(truth, guess, average="macro")))
    return found


def points(table: Table, release: Any) -> float:
    """k-marginal of all pairs, 0 to 1000."""
    tables = ScoreTables(table.domain)
    own, drawn = (
        shares_of(tables, tables.counts(table.domain.encode(frame)))
        for frame in (table.train, release.to_frame().drop(columns="weight"))
    )
    return k_marginal(tables, own, drawn) or 0.0


def of_rows(table: Table, share: float) -> Any:
    rows = table.train.sample(frac=share, random_state=0)
    return ka.from_frame(rows.assign(weight=1.0), domain=table.domain)


def line(name: str, found: dict[str, Any]) -> str:
    def shown(value: Any) -> str:
        return "/".join(f"{each:.3f}" for each in value) if isinstance(value, tuple | list) else f"[{value}]"

    models = "  ".join(f"{model} {shown(value)}" for model, value in found["models"].items())
    rest = (
        f"points {found['points']:5.0f}  {found['seconds']:5.0f} s {found['MB']:5.0f} MB" if "seconds" in found else ""
    )
    return f"{name:12} ε {found.get('epsilon', ''):<4} {found['setting']:8} {models}  {rest}"


def measured(table: Table, epsilon: float, setting: str, seed: int, models: list[str]) -> dict[str, Any]:
    release, seconds, megabytes = in_a_process(table, epsilon, seed, options_of(setting, table))
    scores = learned(release, table, models)
    return {"setting": setting, "epsilon": epsilon, "seed": seed, "models": scores, "points": points(table, release),
            "seconds": seconds, "MB": megabytes}  # fmt: skip


def main() -> None:
    """A line for each release."""
    logging.disable()
    warnings.simplefilter("ignore")
    settings = ("table", "tenth", *SETTINGS)
    arguments = command_line(__doc__, tables=TABLES, epsilon=(1.0, 0.1), settings=settings, draws=1, models=MODELS)
    for name in arguments.tables:
        if name == "acs" and not is_there(DATA):
            continue
        table = TABLES[name]()
        for setting, share in (("table", 1.0), ("tenth", 0.1)):
            if setting in arguments.settings:
                scores = learned(of_rows(table, share), table, arguments.models)
                print(line(name, {"setting": setting, "models": scores}), flush=True)
        for epsilon in arguments.epsilon:
            for setting in (each for each in SETTINGS if each in arguments.settings):
                for seed in range(arguments.draws):
                    print(line(name, measured(table, epsilon, setting, seed, arguments.models)), flush=True)


if __name__ == "__main__":
    main()
