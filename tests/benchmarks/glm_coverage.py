"""Coverage of the intervals of `release.glm`, next to what synthetic rows and the table itself give.

    python tests/benchmarks/glm_coverage.py [--tables simulated adult acs housing] [--releases 20] [--epsilon 1 0.1]
        [--kernel default|target|SPEC] [--figure FILE.png]

The population is 200,000 simulated rows, or all rows of a real table, most of them from ../shared/data; each release is of N rows
redrawn from it with replacement. The truth is the same model fitted to the population, whether it is true or not. Formulas were
fixed before the first run; Adult's is that of NAPSU-MQ's logistic regression (Räisä et al. 2023: income on age, race, sex; 20
repeats). simulated, adult, acs and housing were there when errors of expected relations were worked on; pums, cervical, diabetes
and wine are small tables, most of them of numbers that are strongly related; of all of these but wine figures were seen before the
last choices of those errors were made.

A line for each table, model and ε: the share of coefficients and draws whose 95 % interval holds the truth, and the median width of
the intervals relative to that of the non-private table, for the release (ours), for the usual standard errors (HC0, which
statsmodels gives; the tests compare) on N rows resampled from it (naive), and for the table without privacy; in how many releases
there was no answer, in how many the answer was the probability view's, and in how many a 95 % interval was infinite. --figure draws
coverage at levels .05, .10, …, .95, the mean over models, a panel for each ε: tutorials/errors.md has that of --tables adult.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from harness import DATA, command_line, is_there, read_text, show
from sklearn import datasets

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.plots.style import new_figure, save
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side import draft_domain, publish

LEVELS = np.linspace(0.05, 0.95, 19)
DELTA = 1e-6


@dataclass(frozen=True)
class Model:
    """A formula, its family and for whom."""

    formula: str
    family: str = "gaussian"
    link: str | None = None
    where: str | None = None
    reference: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Table:
    """A population, its public domain, the rows of a release, and the models."""

    population: pd.DataFrame
    domain: Domain
    rows: int
    models: tuple[Model, ...]
    target: str


def simulated() -> Table:
    """Levels down to 2 %, numbers with skew, a target of each family; no model is quite true."""
    rng, n = np.random.default_rng(7), 200_000
    age = np.clip(rng.gamma(6, 6.5, n) + 8, 17, 90).astype(int)
    sex = np.where(rng.random(n) < 0.5, "F", "M")
    school = rng.choice(["none", "basic", "high", "degree"], n, p=[0.02, 0.28, 0.45, 0.25])
    grade = np.select([school == "degree", school == "high", school == "basic"], [1.0, 0.5, 0.0], -0.4)
    hours = np.clip(rng.normal(38, 9, n) - 4 * (sex == "F") + 2 * grade, 1, 80)
    wage = np.clip(np.exp(2.2 + 0.5 * grade + 0.01 * (age - 40) + 0.004 * hours + rng.normal(0, 0.5, n)), 1, 300)
    rich = rng.random(n) < 1 / (1 + np.exp(3 - 0.03 * age - 0.9 * grade - 0.5 * (sex == "M") - 0.3 * grade * (sex == "M")))
    visits = np.minimum(rng.poisson(np.exp(-0.5 + 0.02 * age + 0.2 * (sex == "F"))), 30)
    frame = pd.DataFrame({
        "age": age, "sex": sex, "school": school, "hours": hours.round(1), "wage": wage.round(2),
        "rich": np.where(rich, "yes", "no"), "visits": visits,
    })  # fmt: skip
    domain = Domain((
        Integer(name="age", lower=17, upper=90, edges=(25, 30, 35, 40, 45, 50, 55, 60, 65, 70)),
        Categorical(name="sex", levels=("F", "M")),
        Categorical(name="school", levels=("none", "basic", "high", "degree")),
        Real(name="hours", lower=1, upper=80, edges=(15, 20, 25, 30, 35, 40, 45, 50, 55)),
        Real(name="wage", lower=1, upper=300, scale="log", edges=(3, 5, 7, 10, 14, 20, 28, 40, 60)),
        Categorical(name="rich", levels=("no", "yes")),
        Integer(name="visits", lower=0, upper=30, edges=(1, 2, 3, 4, 5, 7, 10)),
    ))  # fmt: skip
    models = (
        Model("rich ~ age + sex + school", "binomial"), Model("rich ~ age + sex * school", "binomial"),
        Model("wage ~ age + hours + school"), Model("visits ~ age + sex", "poisson"),
        Model("wage ~ age + school", "gamma", "log"), Model("hours ~ sex + age", where="school != 'none'"),
    )  # fmt: skip
    return Table(frame, domain, 20_000, models, "rich")


def _real(*files: str) -> pd.DataFrame:
    """The files as text, cell by cell."""
    return read_text(*files).apply(lambda column: column.str.rstrip("."))


def adult() -> Table:
    """Census income of 1994: the columns of NAPSU-MQ's experiment."""
    names = ["age", "workclass", "education", "marital-status", "race", "sex", "capital-gain", "capital-loss"]
    frame = _real("adult/adult_train.csv.gz", "adult/adult_test.csv.gz")[[*names, "hours-per-week", "income"]]
    domain = draft_domain(frame, this_sample_is_public=True).domain
    models = (
        Model("income ~ age + race + sex", "binomial"), Model("income ~ age + sex + `hours-per-week`", "binomial"),
        Model("`hours-per-week` ~ age + sex + income"),
    )  # fmt: skip
    return Table(frame, domain, 20_000, models, "income")


def acs() -> Table:
    """The American Community Survey of Massachusetts, those with an income; its own public domain."""
    names = ["AGEP", "SEX", "MSP", "HISP", "RAC1P", "EDU", "PINCP_DECILE", "OWN_RENT", "DVET"]
    frame = _real("acs/ma2019.csv.gz")[names]
    frame = frame[~frame["PINCP_DECILE"].isin(["", "N"]) & ~frame["EDU"].isin(["", "N"])]
    known = ka.read_domain(DATA / "acs" / "domain.toml")
    income, school = Integer(name="PINCP_DECILE", lower=0, upper=9), Integer(name="EDU", lower=1, upper=12)
    domain = Domain(tuple({"PINCP_DECILE": income, "EDU": school}.get(name, known[name]) for name in frame))
    models = (
        Model("PINCP_DECILE ~ EDU + SEX + AGEP"), Model("PINCP_DECILE >= 7 ~ EDU + SEX", "binomial"),
        Model("EDU >= 9 ~ AGEP + SEX", "binomial"),
    )  # fmt: skip
    return Table(frame.reset_index(drop=True), domain, 7_000, models, "SEX")


def housing() -> Table:
    """Californian block groups of 1990."""
    frame = _real("housing/housing.csv.gz")
    frame = frame[frame["total_bedrooms"] != ""].reset_index(drop=True)
    domain = draft_domain(frame, this_sample_is_public=True).domain
    models = (
        Model("median_house_value ~ median_income + housing_median_age"),
        Model("median_house_value > 250000 ~ median_income + housing_median_age", "binomial"),
        Model("median_house_value ~ median_income + ocean_proximity", where="ocean_proximity != 'ISLAND'"),
    )
    return Table(frame, domain, 20_000, models, "ocean_proximity")


def _of_sample(frame: pd.DataFrame, models: tuple[Model, ...], target: str) -> Table:
    """A small table as a population, and its own domain as a public one."""
    frame = frame.astype(str).reset_index(drop=True)
    return Table(frame, draft_domain(frame, this_sample_is_public=True).domain, 20_000, models, target)


def pums() -> Table:
    """A thousand rows of a census."""
    frame = _real("pums/PUMS.csv")
    frame["sex"] = frame["sex"].map({"0": "M", "1": "F"})
    frame["married"] = frame["married"].map({"0": "no", "1": "yes"})
    frame["race"] = "r" + frame["race"]
    models = (
        Model("income ~ age + educ + sex"), Model("married ~ age + educ", "binomial"),
        Model("income > 30000 ~ age + educ + sex", "binomial"), Model("educ ~ age + married"),
    )  # fmt: skip
    return _of_sample(frame, models, "married")


def cervical() -> Table:
    """Risk factors of 726 women."""
    names = {
        "Age": "age", "Number of sexual partners": "partners", "First sexual intercourse": "first",
        "Num of pregnancies": "pregnancies", "Smokes": "smokes", "Smokes (years)": "smoking_years",
        "Hormonal Contraceptives": "hormonal", "Hormonal Contraceptives (years)": "hormonal_years", "IUD": "iud",
        "STDs": "stds", "Biopsy": "biopsy",
    }  # fmt: skip
    frame = _real("cervical/kag_risk_factors_cervical_cancer.csv.gz")[list(names)].rename(columns=names)
    frame = frame[(frame != "?").all(axis=1)].copy()
    for name in ("smokes", "hormonal", "iud", "stds", "biopsy"):
        frame[name] = frame[name].astype(float).map({0.0: "no", 1.0: "yes"})
    models = (
        Model("pregnancies ~ age + first", "poisson"), Model("first ~ age + smokes"),
        Model("smokes ~ age + partners", "binomial"), Model("iud ~ age + pregnancies", "binomial"),
    )  # fmt: skip
    return _of_sample(frame, models, "iud")


def diabetes() -> Table:
    """Eleven columns of 442 patients (scikit-learn's)."""
    frame = datasets.load_diabetes(as_frame=True, scaled=False).frame
    frame["sex"] = frame["sex"].map({1.0: "a", 2.0: "b"})
    models = (
        Model("target ~ bmi + bp + s5"), Model("target > 150 ~ bmi + sex", "binomial"), Model("s1 ~ s2 + age"),
        Model("bp ~ age + sex"),
    )  # fmt: skip
    return _of_sample(frame, models, "target")


def wine() -> Table:
    """Fourteen columns of 178 wines (scikit-learn's)."""
    frame = datasets.load_wine(as_frame=True).frame
    frame["target"] = frame["target"].map({0: "a", 1: "b", 2: "c"})
    models = (
        Model("proline ~ alcohol + color_intensity"), Model("flavanoids ~ total_phenols + hue"),
        Model("target == 'a' ~ alcohol + magnesium", "binomial"),
    )  # fmt: skip
    return _of_sample(frame, models, "target")


# as notes of the model of `adult` say
RACES = Model("income ~ age + race + sex", "binomial", reference={"race": "White"})
TABLES: dict[str, Callable[[], Table]] = {
    "simulated": simulated, "adult": adult, "acs": acs, "housing": housing,
    "adult-reference": lambda: replace(adult(), models=(RACES,)), "pums": pums, "cervical": cervical, "diabetes": diabetes,
    "wine": wine,
}  # fmt: skip


def has_files(name: str) -> bool:
    folder = name.removesuffix("-reference")
    return folder not in ("adult", "acs", "housing", "pums", "cervical") or is_there(DATA / folder)


table_of = cache(lambda name: TABLES[name]())


def fitted(release: ka.Release, model: Model) -> Any:
    return release.glm(model.formula, model.family, link=model.link, where=model.where, reference=model.reference)


def of_rows(table: Table, frame: pd.DataFrame, model: Model) -> Any:
    """The model on plain rows: coefficients and HC0 errors as statsmodels gives them."""
    return fitted(ka.from_frame(frame.assign(weight=1 / len(frame)), domain=table.domain), model)


@cache
def truth(name: str, index: int) -> dict[str, float]:
    table = table_of(name)
    found = of_rows(table, table.population, table.models[index])
    return dict(zip(found.names, (one.value for one in found.coefficients), strict=True))


def ends(found: Any, known: dict[str, float]) -> Array:
    """(k, 2 + 2 · levels) value, error and the intervals of each coefficient; NaN of one that has no answer."""
    rows = np.full((len(known), 2 + 2 * len(LEVELS)), np.nan)
    for row, name in zip(rows, known, strict=True):
        if found is not None and name in found.names:
            one = found[name]
            row[:] = [one.value, one.standard_error, *np.ravel([one.interval(level) for level in LEVELS])]
    return rows


def repeated(name: str, epsilon: float, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """One release: each model on it, on rows resampled from it, and on its table."""
    table = table_of(name)
    drawn = table.population.sample(table.rows, replace=True, random_state=seed).reset_index(drop=True)
    release = publish(drawn.astype(str), table.domain, epsilon=epsilon, delta=DELTA, rehearsal=seed, uncounted=True, **options)
    synthetic = release.resample(table.rows, rng=seed)
    found = []
    for i, model in enumerate(table.models):
        known = truth(name, i)
        tried: dict[str, Any] = {"seed": seed, "model": i, "epsilon": epsilon, "known": known}
        for way, ask in (
            ("ours", lambda model=model: fitted(release, model)),
            ("naive", lambda model=model: of_rows(table, synthetic, model)),
            ("table", lambda model=model: of_rows(table, drawn, model)),
        ):
            start = time.perf_counter()
            try:
                answered = ask()
                tried[way] = ends(answered, known)
                tried[f"{way} fell back"] = way == "ours" and answered.view != "fitted"
            except ValueError as error:
                tried[way], tried[f"{way} refused"] = ends(None, known), str(error).partition("\n")[0]
            tried[f"{way} seconds"] = time.perf_counter() - start
        found.append(tried)
    return found


def held(rows: Array, known: Array) -> Array:
    """(..., k, levels) whether intervals hold the truth; NaN where there is no answer."""
    low, high = rows[..., 2::2], rows[..., 3::2]
    return np.where(np.isnan(low), np.nan, (low <= known[:, None]) & (known[:, None] <= high))


def lines_of(name: str, epsilon: float, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line of results for each model."""
    lines = []
    for i, model in enumerate(table_of(name).models):
        own = [one for one in found if one["model"] == i]
        known = np.array(list(own[0]["known"].values()))
        usual = np.nanmedian([one["table"][:, 1] for one in own], axis=0)
        line: dict[str, Any] = {"table": name, "ε": epsilon, "model": f"{model.family}: {model.formula}"}
        for way in ROUTES:
            rows = np.array([one[way] for one in own])
            hits = held(rows, known)
            line |= {
                f"{way} held": np.nanmean(hits[..., -1]),
                f"{way} width": np.nanmedian((rows[..., -1] - rows[..., -2]) / (2 * 1.96 * usual)),
                f"{way} refused": sum(f"{way} refused" in one for one in own), "curve " + way: np.nanmean(hits, axis=(0, 1)),
            }  # fmt: skip
        line["fell back"] = sum(one.get("ours fell back", False) for one in own)
        line["infinite"] = int(np.isinf([one["ours"][:, -2:] for one in own]).any(axis=(1, 2)).sum())
        lines.append(line | {"s": np.median([one["ours seconds"] for one in own])})
    show({key: value for key, value in line.items() if not key.startswith("curve")} for line in lines)
    return lines


ROUTES = {
    "table": "the private table itself", "ours": "release.glm (kmeanalyst)",
    "naive": "usual errors on synthetic rows",
}  # fmt: skip


def draw(lines: list[dict[str, Any]], output: str) -> None:
    """Coverage against the level that was asked for."""
    epsilons = sorted({line["ε"] for line in lines})
    figure = new_figure((8.0, 3.8))
    panels = figure.subplots(1, len(epsilons), sharey=True, squeeze=False)[0]
    for ax, epsilon in zip(panels, epsilons, strict=True):
        for way, label in ROUTES.items():
            curve = np.mean([line[f"curve {way}"] for line in lines if line["ε"] == epsilon], axis=0)
            ax.plot(LEVELS, curve, label=label, color="0.6" if way == "table" else None)
        ax.plot([0, 1], [0, 1], linestyle=":", color="0.4")
        ax.set_title(f"ε = {epsilon:g}", loc="left", fontsize=10, color="0.15")
        ax.set_xlabel("level of the intervals")
    panels[0].set_ylabel("coefficients held")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=10)
    save(figure, output, dpi=100)


def main() -> None:
    choice = command_line(__doc__, tables=tuple(TABLES)[:4], releases=20, epsilon=(1.0, 0.1), kernel="default", figure=None)
    warnings.simplefilter("ignore")
    lines: list[dict[str, Any]] = []
    for name in filter(has_files, choice.tables):
        kernel, target = {"kernel": choice.kernel}, {"target": table_of(name).target}
        options = {"default": {}, "target": target}.get(choice.kernel, kernel)
        for epsilon in choice.epsilon:
            found = [one for seed in range(choice.releases) for one in repeated(name, epsilon, seed, options)]
            lines += lines_of(name, epsilon, found)
    if choice.figure and lines:
        draw(lines, choice.figure)


if __name__ == "__main__":
    main()
