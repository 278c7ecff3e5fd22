"""Wide tables: what models lose that learn from a release of forty to sixty columns, and what publishing costs.

    python tests/benchmarks/wide_tables.py [--tables census forest awkward acs] [--epsilon 1 0.1]
        [--settings target none crossed one-way] [--draws 1] [--models LR RF HGB]

Three simulated tables, whose columns follow a few latent numbers as those of real tables do (like a census, like forest cover,
and one of everything that is awkward); of ../shared, if it is there, the census excerpt, redrawn with replacement, with columns
derived from its own. The domain is drafted from 2,000 public rows, with the levels of a code book. A release (replace-one, δ =
1e-6, noise of the right distribution from a seed) is made of the table. Logistic regression, random forest and gradient boosting
learn through `kmeanalyst.fit`, and are scored on 10,000 other rows.

    target    the class is named: `publish(..., target="class")`
    none      it is not
    crossed   one-way tables crossed with the class and nothing else, at the same budget
    one-way   one-way tables and nothing else, at the same budget; models see no relation there
    table     the rows themselves; `tenth` a tenth of them

A line has of each model ROC-AUC and average precision, their means over classes (each against all others) where there are more than
two; points, 1000 · (1 − mean total variation of all pairs of columns in the domain's ranges and levels); and what publishing took
in a process of its own: seconds of processor time, and peak MB.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from harness import DATA, command_line, is_there, margins_apart, publish_alone, read_text, show
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

import kmeanalyst as ka
from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.draft import draft_domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical

PUBLIC_ROWS, TEST_ROWS, DELTA = 2_000, 10_000, 1e-6
SETTINGS = ("target", "none", "crossed", "one-way")
MODELS: dict[str, Callable[[], Any]] = {
    "LR": lambda: LogisticRegression(max_iter=1000),
    "RF": lambda: RandomForestClassifier(100, random_state=0, min_samples_leaf=2),
    "HGB": lambda: HistGradientBoostingClassifier(random_state=0),
}


@dataclass(eq=False)
class _Latent:
    """Latent numbers (n, k) of rows, and columns that follow them."""

    rng: np.random.Generator
    z: Array

    @property
    def n(self) -> int:
        return len(self.z)

    def mixed(self, noise: float = 0.6, seen: int = 2) -> Array:
        """(n,) a number of variance about 1 that follows a few of the latent ones."""
        on = self.rng.choice(self.z.shape[1], seen, replace=False)
        weights = self.rng.normal(size=seen)
        weights *= np.sqrt((1 - noise**2) / (weights**2).sum())
        return np.asarray(self.z[:, on] @ weights + noise * self.rng.standard_normal(self.n))

    def levels(self, count: int, along: Array | None = None, even: float = 0.6) -> Array:
        """(n,) one of so many levels, of which some are rare: by ranges of a number whose order the levels' names do not have."""
        along = self.mixed() if along is None else along
        ends = np.quantile(along, np.clip(np.cumsum(self.rng.dirichlet(np.full(count, even)))[:-1], 0, 1))
        return self.rng.permutation(count)[np.searchsorted(ends, along)]

    def flag(self, share: float, along: Array | None = None) -> Array:
        along = self.mixed() if along is None else along
        return (along > np.quantile(along, 1 - share)).astype(int)

    def amounts(self, share: float, scale: float, along: Array | None = None) -> Array:
        """(n,) whole numbers of heavy tail where the number is large, else 0."""
        along = self.mixed() if along is None else along
        some = along > np.quantile(along, 1 - share)
        sizes = np.exp(np.log(scale) + 0.7 * along + 0.8 * self.rng.standard_normal(self.n))
        return np.where(some, np.rint(sizes), 0).astype(int)


def _named(columns: dict[str, Array], numbers: list[str], kind: Array) -> pd.DataFrame:
    """Columns of texts but for these numbers, and the class."""
    texts = {name: values if name in numbers else np.char.add("v", values.astype(str)) for name, values in columns.items()}
    return pd.DataFrame(texts | {"class": np.char.add("c", kind.astype(str))})


def _classes(scores: Array, shares: list[float]) -> Array:
    """(n,) the class of largest score, after shifts that bring the shares about."""
    shift = np.zeros(len(shares))
    for _ in range(60):
        found = np.bincount((scores + shift).argmax(axis=1), minlength=len(shares)) / len(scores)
        shift += 0.5 * np.log((np.array(shares) + 1e-5) / (found + 1e-5))
    return np.asarray((scores + shift).argmax(axis=1))


def census(n: int, seed: int = 1) -> pd.DataFrame:
    """41 columns: 8 numbers, most of them mostly 0, 32 of up to 52 levels, some of which others determine; 6 % positive."""
    latent = _Latent(rng := np.random.default_rng(seed), np.random.default_rng(seed + 100).standard_normal((n, 7)))
    z = latent.z
    age = np.clip(np.rint(35 + 22 * z[:, 0] + 4 * rng.standard_normal(n)), 0, 90).astype(int)
    works = 0.8 * z[:, 1] - 0.03 * np.abs(age - 42) + 0.5 * rng.standard_normal(n)
    at_work = works > np.quantile(works, 0.5)
    school = np.clip(0.8 * z[:, 2] + 0.04 * np.minimum(age, 25) - 0.9 + 0.4 * rng.standard_normal(n), -3, 3)
    columns: dict[str, Array] = {"age": age}
    industry = np.where(at_work, 1 + latent.levels(51, 0.6 * z[:, 3] + 0.5 * school), 0)
    occupation = np.where(at_work, 1 + latent.levels(46, 0.8 * school + 0.4 * z[:, 3]), 0)
    columns |= {"industry": industry, "occupation": occupation}
    columns["sector"] = np.where(at_work, 1 + rng.integers(0, 23, 52)[industry], 0)
    columns["profession"] = np.where(at_work, 1 + rng.integers(0, 14, 47)[occupation], 0)
    columns["school"] = np.searchsorted(np.linspace(-1.8, 2.2, 16), school)
    columns["sex"] = latent.flag(0.48, z[:, 4] + 0.3 * rng.standard_normal(n))
    columns["weeks"] = np.where(at_work, np.where(rng.random(n) < 0.7, 52, rng.integers(1, 52, n)), 0)
    columns["wage"] = np.where(at_work & (rng.random(n) < 0.11), np.rint(np.exp(6.6 + 0.5 * rng.standard_normal(n))), 0).astype(int)
    rich = 0.9 * school + 0.5 * z[:, 5] + 0.02 * np.minimum(age, 60)
    columns["gains"] = latent.amounts(0.04, 3000, rich + 0.8 * rng.standard_normal(n))
    columns["losses"] = latent.amounts(0.02, 1500, rich + 1.2 * rng.standard_normal(n))
    columns["dividends"] = latent.amounts(0.11, 300, rich + 0.6 * rng.standard_normal(n))
    columns["employers"] = np.where(at_work, np.clip(np.rint(3 + 1.5 * z[:, 3] + rng.standard_normal(n)), 1, 6), 0).astype(int)
    married = latent.levels(7, 0.05 * age + 0.7 * z[:, 6] + 0.5 * rng.standard_normal(n), even=2.0)
    columns |= {"married": married, "household": 8 * (age < 18) + (married + latent.levels(3)) % 8}
    columns["household_short"] = rng.integers(0, 8, 40)[columns["household"]]
    columns["born"] = latent.levels(42, even=0.15)
    columns["father_born"] = np.where(rng.random(n) < 0.85, columns["born"], latent.levels(42, even=0.15))
    columns["mother_born"] = np.where(rng.random(n) < 0.85, columns["father_born"], latent.levels(42, even=0.15))
    columns["state"] = latent.levels(51, even=0.2)
    columns["moved"] = latent.levels(9, even=0.4)
    columns["moved_region"] = rng.integers(0, 8, 9)[columns["moved"]]
    columns["moved_within"] = rng.integers(0, 10, 9)[columns["moved"]]
    columns["year"] = (rng.random(n) < 0.5).astype(int) + 94
    columns["country"] = np.zeros(n, dtype=int)
    for k, count in enumerate((2, 3, 3, 5, 3, 6, 3, 8, 9, 3, 4, 3, 2, 10, 5)):
        along = works + 0.3 * rng.standard_normal(n) if k % 3 == 0 else None
        columns[f"answer_{k}"] = latent.levels(count, along, even=0.4)
    pay = 1.5 * school + 1.0 * z[:, 5] + 0.7 * columns["sex"] + 1.3 * at_work * (columns["weeks"] > 45) - 0.0016 * (age - 48) ** 2
    pay = pay + 1.2 * (columns["dividends"] > 0) + 1.5 * (columns["gains"] > 3000) + 0.5 * school * (occupation % 5 == 0)
    pay = pay + 1.1 * rng.logistic(size=n)
    numbers = ["age", "weeks", "wage", "gains", "losses", "dividends", "employers"]
    return _named(columns, numbers, latent.flag(0.06, pay))


def forest(n: int, seed: int = 2) -> pd.DataFrame:
    """55 columns: 10 numbers, flags of 4 areas and of 40 soils, one each in a row; seven classes, one of half a per cent."""
    latent = _Latent(rng := np.random.default_rng(seed), np.random.default_rng(seed + 100).standard_normal((n, 5)))
    z = latent.z
    area = np.searchsorted(np.quantile(0.9 * z[:, 0] + 0.4 * rng.standard_normal(n), [0.07, 0.12, 0.55]), z[:, 0])
    height = np.rint(2950 + 280 * (0.85 * z[:, 0] + 0.5 * rng.standard_normal(n))).astype(int)
    soil = np.searchsorted(np.cumsum(np.random.default_rng(seed + 7).dirichlet(np.full(40, 0.5)))[:-1],
                           np.argsort(np.argsort(0.7 * z[:, 0] + 0.5 * z[:, 1] + 0.35 * rng.standard_normal(n))) / n)  # fmt: skip
    aspect = (rng.normal(60, 90, n) % 360).astype(int)
    slope = np.clip(np.rint(rng.gamma(4, 3.5, n) + 2 * z[:, 2]), 0, 60).astype(int)
    water = np.maximum(np.rint(rng.gamma(1.4, 190, n) * (rng.random(n) > 0.04)), 0).astype(int)
    columns: dict[str, Array] = {
        "height": height, "aspect": aspect, "slope": slope, "to_water": water,
        "above_water": np.rint(0.16 * water + 30 * rng.standard_normal(n)).astype(int),
        "to_road": np.rint(np.maximum(2350 + 1500 * (0.5 * z[:, 0] + 0.8 * z[:, 3]), 0)).astype(int),
        "morning": np.clip(np.rint(212 + slope * np.cos((aspect - 100) / 57.3) * 1.6 - 0.02 * slope**2), 0, 254).astype(int),
        "noon": np.clip(np.rint(223 + slope * np.cos((aspect - 180) / 57.3) * 0.9 - 0.02 * slope**2), 0, 254).astype(int),
        "afternoon": np.clip(np.rint(142 + slope * np.cos((aspect - 260) / 57.3) * 2.0 - 0.02 * slope**2), 0, 254).astype(int),
        "to_fire": np.rint(np.maximum(1980 + 1300 * (0.3 * z[:, 0] + 0.9 * z[:, 4]), 0)).astype(int),
    }  # fmt: skip
    columns |= {f"area_{k}": (area == k).astype(int) for k in range(4)}
    columns |= {f"soil_{k}": (soil == k).astype(int) for k in range(40)}
    high, tastes = (height - 2950) / 280, np.random.default_rng(seed + 9).normal(size=(40, 7))
    centres = np.array([0.75, 0.05, -1.9, -2.6, -0.5, -1.8, 1.6])
    scores = -2.2 * np.abs(high[:, None] - centres) * 1.6 + 0.8 * tastes[soil] + 0.6 * rng.gumbel(size=(n, 7))
    scores[:, 0] += 0.5 * (water < 150) + 0.4 * z[:, 3]
    scores[:, 6] += 0.5 * (area == 2) * (slope > 12)
    scores[:, 4] += 0.8 * (columns["morning"] > 225)
    kind = _classes(scores, [0.365, 0.487, 0.062, 0.005, 0.016, 0.030, 0.035])
    return _named(columns, list(columns), kind + 1)


def awkward(n: int, seed: int = 4) -> pd.DataFrame:
    """60 columns: two of 500 levels, five constant, ten near-duplicates, numbers of all shapes; two classes, 20 % positive."""
    latent = _Latent(rng := np.random.default_rng(seed), np.random.default_rng(seed + 100).standard_normal((n, 6)))
    columns: dict[str, Array] = {f"code_{k}": latent.levels(500, even=0.3) for k in range(2)}
    columns |= {f"place_{k}": latent.levels(50) for k in range(4)}
    columns |= {f"constant_{k}": np.full(n, k) for k in range(5)}
    columns |= {f"flag_{k}": latent.flag(share) for k, share in enumerate((0.5, 0.3, 0.2, 0.1, 0.03, 0.01, 0.4, 0.002))}
    columns |= {f"few_{k}": latent.levels(3 + k) for k in range(10)}
    columns |= {f"number_{k}": np.round(latent.mixed() * 10**k, 2) for k in range(8)}
    columns |= {f"amount_{k}": latent.amounts(share, 500) for k, share in enumerate((0.9, 0.5, 0.2, 0.1, 0.05, 0.02, 0.6, 0.3))}
    columns |= {f"whole_{k}": np.rint(10 + 4 * latent.mixed()).astype(int) for k in range(4)}
    for k, name in enumerate([*list(columns)[2:6], *list(columns)[19:25]]):
        columns[f"again_{k}"] = np.where(rng.random(n) < 0.97, columns[name], rng.permutation(columns[name]))
    score = latent.z[:, 0] + 0.8 * latent.z[:, 1] * (latent.z[:, 2] > 0) + 0.6 * latent.z[:, 3] + 0.5 * columns["flag_0"]
    numbers = [name for name in columns if name.startswith(("number", "amount", "whole"))]
    return _named(columns, numbers, latent.flag(0.2, score + 0.6 * rng.logistic(size=n)))


WIDE: dict[str, tuple[Callable[[int], pd.DataFrame], int]] = {
    "census": (census, 60_000), "forest": (forest, 50_000), "awkward": (awkward, 50_000),
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows to publish, others to score on, and the public domain; the column "class" is what is learned."""

    domain: Domain
    train: pd.DataFrame
    test: pd.DataFrame


def _table(frame: pd.DataFrame, n_test: int = TEST_ROWS) -> Table:
    """The first rows are public, the next ones for tests."""
    frame = frame.astype(str)
    domain = draft_domain(frame.iloc[:PUBLIC_ROWS], strings=False, collapse_rare=True).domain
    code_book = [
        Categorical(name=column.name, levels=tuple(sorted(set(frame[column.name]))))
        if isinstance(column, Categorical) and len(set(frame[column.name])) <= 600
        else column
        for column in domain.columns
    ]
    rest = frame.iloc[PUBLIC_ROWS:].reset_index(drop=True)
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
    frame = frame.assign(**{f"{name}_again": frame[name] for name in ("MSP", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT", "EDU")})
    frame["class"] = np.where(frame["PINCP_DECILE"].isin(["8", "9"]), "c1", "c0")
    return _table(frame.drop(columns=["PINCP", "PINCP_DECILE"]), len(test))


TABLES: dict[str, Callable[[], Table]] = {
    **{name: (lambda name=name: simulated(name)) for name in WIDE}, "acs": acs,  # type: ignore[misc]
}  # fmt: skip


def options_of(setting: str, table: Table) -> dict[str, Any]:
    """Of `publish`, for a setting; for peers the tables alone."""
    if setting in ("target", "none"):
        return {"target": "class"} if setting == "target" else {}
    kernel, d = replace(margin_kernel(table.domain), shares=(1.0, 0.0, 0.0)), len(table.domain)
    if setting == "one-way":
        return {"kernel": kernel}
    crossed = tuple(pair for pair in kernel.pairs if table.domain.position("class") in pair)
    given = asdict(kernel) | {"shares": (0.3, 0.7, 0.0)}
    return {"kernel": ChosenMargins(**given, chosen=crossed, squares=((0.3 / d,) * d, (0.7 / (d - 1),) * (d - 1), ()))}


def learned(release: Any, table: Table, models: list[str]) -> dict[str, tuple[float, float] | str]:
    """For each model ROC-AUC and average precision, of several classes their means; why not, where it cannot be trained."""
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
        each = ["c1"] if len(set(truth)) == 2 else sorted(set(truth))
        right, score = (np.column_stack([own == one for one in each]) for own in (truth, classes))
        score = shares @ score
        found[name] = float(roc_auc_score(right, score)), float(average_precision_score(right, score))
    return found


def points(table: Table, release: Any) -> float:
    """k-marginal of all pairs, 0 to 1000."""
    return 1000 * (1 - margins_apart(table.domain, release.to_frame().drop(columns="weight"), table.train)[1])


def of_rows(table: Table, share: float) -> Any:
    rows = table.train.sample(frac=share, random_state=0)
    return ka.from_frame(rows.assign(weight=1.0), domain=table.domain)


def line(name: str, setting: str, models: dict[str, tuple[float, float] | str], **more: Any) -> None:
    shown = {model: "/".join(f"{x:.3f}" for x in two) if isinstance(two, tuple) else two for model, two in models.items()}
    show([{"table": name, "setting": setting} | shown | more])


def measured(table: Table, epsilon: float, setting: str, seed: int, models: list[str]) -> dict[str, Any]:
    release, _, seconds, megabytes = publish_alone(
        table.train, table.domain, epsilon=epsilon, delta=DELTA, rehearsal=seed, **options_of(setting, table)
    )
    scores = learned(release, table, models)
    return {"models": scores, "ε": epsilon, "points": points(table, release), "s": seconds, "MB": megabytes}


def main() -> None:
    logging.disable()
    warnings.simplefilter("ignore")
    settings = ("table", "tenth", *SETTINGS)
    asked = command_line(__doc__, tables=TABLES, epsilon=(1.0, 0.1), settings=settings, draws=1, models=MODELS)
    for name in (name for name in asked.tables if name != "acs" or is_there(DATA)):
        table = TABLES[name]()
        for setting, share in (("table", 1.0), ("tenth", 0.1)):
            if setting in asked.settings:
                line(name, setting, learned(of_rows(table, share), table, asked.models))
        for epsilon, setting, seed in product(asked.epsilon, SETTINGS, range(asked.draws)):
            if setting in asked.settings:
                line(name, setting, **measured(table, epsilon, setting, seed, asked.models))


if __name__ == "__main__":
    main()
