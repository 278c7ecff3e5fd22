"""What a reader of an exported folder computes in R equals what the release answers.

R's formulas are written out here, from the documentation and source of survey 4.1 (`svrepdesign`, `svrVar`) and of mice 3.13
(`pool`, `barnard.rubin`). Each is also computed wrongly, to show that the comparison would notice. Where R, survey and mice are
installed, the lines of README.txt run as they are printed, and R's numbers are those of the formulas.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from drawn_cases import OF_TABLES, N, of_tables

import kmeanalyst as ka
from kmeanalyst.inference.draws.folder import write_draws, write_replicates
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer
from kmeanalyst.releases.expressions import parse

QUESTIONS = tuple(question for question in OF_TABLES if "gain" not in question)
MODEL = "(sex == 'F') ~ age + (job == 'b')"
COLUMNS = ("age", "job", "sex")


def barnard_rubin(m: int, between: np.ndarray, total: np.ndarray, complete: float) -> np.ndarray:
    """Degrees of freedom of `mice::pool`: λ = (1 + 1/m) B/T, at least .0001; (1/ν_old + 1/ν_observed)⁻¹."""
    share = np.maximum((1 + 1 / m) * between / total, 1e-4)
    old = (m - 1) / share**2
    observed = (complete + 1) / (complete + 3) * complete * (1 - share)
    return old * observed / (old + observed)


def svr_variance(thetas: np.ndarray, scale: float, rscales: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The diagonal of `survey:::svrVar` with mse = TRUE: scale Σ rscales_r (θ_r − θ)²."""
    return scale * rscales @ (thetas - at) ** 2


def means_and_slopes(frame: pd.DataFrame, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Answers and their usual squared standard errors: means of the questions, then a linear probability model by least squares."""
    w = np.ones(len(frame)) if weights is None else weights
    values = np.column_stack([np.asarray(parse(q).evaluate(frame, of_tables().columns), dtype=float) for q in QUESTIONS])
    means = w @ values / w.sum()
    X = sm.add_constant(np.column_stack([frame["age"], frame["job"] == "b"]).astype(float))
    fitted = sm.WLS((frame["sex"] == "F").astype(float), X, weights=w).fit()
    usual = w @ (values - means) ** 2 / w.sum() / (w.sum() - 1)
    return np.append(means, fitted.params[1:]), np.append(usual, fitted.bse[1:] ** 2)


@cache
def answered() -> tuple[np.ndarray, np.ndarray]:
    ours = of_tables().expectations(list(QUESTIONS))
    slopes = of_tables().glm(MODEL).to_frame().iloc[1:]
    values, errors = ([getattr(one, name) for one in ours] for name in ("value", "standard_error"))
    return np.append(values, slopes["value"]), np.append(errors, slopes["standard_error"])


def test_pooled_draws_have_the_errors_of_the_release(tmp_path):
    """40 tables, each analysed as if it were the table: B is known to 23 %, an error to 11 %."""
    m = 40
    write_draws(of_tables(), tmp_path, of_tables().draws(m, columns=COLUMNS, rng=5))
    rule = json.loads((tmp_path / "rule.json").read_text())
    assert rule["m"] == m and f'sprintf("rows_%d.csv", 1:{m})' in rule["code"]["R"] and "mice::pool(fits)" in rule["code"]["R"]
    tables = [pd.read_csv(tmp_path / f"rows_{i + 1}.csv") for i in range(m)]
    values, usual = (np.array(part) for part in zip(*map(means_and_slopes, tables), strict=True))
    within, between = usual.mean(axis=0), values.var(axis=0, ddof=1)
    total = within + (1 + 1 / m) * between
    value, error = answered()
    assert all(set(table) == {*COLUMNS, "NOT_PRIVATE"} and len(table) == N for table in tables)
    assert np.all(np.abs(values.mean(axis=0) - value) < error)
    ratio = np.sqrt(total) / error
    assert np.all((ratio > 0.7) & (ratio < 1.45)) and 0.85 < ratio.mean() < 1.25, ratio
    assert (np.sqrt(within + between / m) / error).mean() < 0.8  # pool.syn
    assert (np.sqrt(within) / error).mean() < 0.8  # lm.synds


def test_replicate_weights_have_the_errors_of_the_release(tmp_path):
    """100 replicates: an error is known to 7 %."""
    R = 100
    write_replicates(of_tables(), tmp_path, of_tables().replicates(R, columns=COLUMNS, rng=6))
    code = json.loads((tmp_path / "rule.json").read_text())["code"]["R"]
    scale, rscales = re.search(r"scale = 1/(\d+), rscales = rep\(1, (\d+)\)", code).groups()  # type: ignore[union-attr]
    assert int(scale) == int(rscales) == R
    for option in ('type = "other"', "combined.weights = TRUE", "mse = TRUE", "weights = ~weight"):
        assert option in code
    frame = pd.read_csv(tmp_path / "rows.csv")
    pattern = re.search(r'repweights = "([^"]+)"', code).group(1)  # type: ignore[union-attr]
    names = [name for name in frame if re.search(pattern, name)]
    weights = frame[["weight", *names]].to_numpy()
    assert len(names) == R and weights.sum(axis=0) == pytest.approx(N) and weights.min() >= 0
    assert np.all(weights[:, 1:] == np.rint(weights[:, 1:]))
    at = means_and_slopes(frame, frame["weight"].to_numpy())[0]
    thetas = np.array([means_and_slopes(frame, frame[name].to_numpy())[0] for name in names])
    found = np.sqrt(svr_variance(thetas, 1 / R, np.ones(R), at))
    value, error = answered()
    assert np.all(np.abs(at - value) < error)
    assert np.all((found / error > 0.75) & (found / error < 1.4)) and 0.85 < (found / error).mean() < 1.25, found / error
    alone = np.sqrt(means_and_slopes(frame, frame["weight"].to_numpy())[1])
    assert (alone / error).mean() < 0.8  # rows and one weight, as if they were the table


ODDS = "(sex == 'F') ~ age + (job == 'b')"


@cache
def why_no_r() -> str:
    """Why R's own numbers cannot be had here; empty where they can."""
    if shutil.which("Rscript") is None:
        return "Rscript is not installed (apt-get install r-base-core r-cran-survey r-cran-mice)"
    found = run_r(Path.cwd(), "for (name in c('survey', 'mice')) if (!requireNamespace(name, quietly = TRUE)) stop(name)")
    return "" if found.returncode == 0 else "R has not both of the packages survey and mice (r-cran-survey, r-cran-mice)"


def run_r(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["Rscript", "-e", code], cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture
def needs_r() -> None:
    if reason := why_no_r():
        pytest.skip(reason)


def printed_r(folder: Path) -> str:
    """The lines of R in README.txt, as a reader copies them, with a model of the first column."""
    text = (folder / "README.txt").read_text(encoding="utf-8")
    printed = re.search(r"^R \(.*?\):\n(.*?)^Stata", text, re.M | re.S).group(1)  # type: ignore[union-attr]
    first = next(folder.glob("rows*.csv")).read_text(encoding="utf-8").partition(",")[0].strip('"')
    return re.sub("COLUMN|OUTCOME", f"as.numeric(`{first}`)", printed).replace("PREDICTOR", "1")


def numbers_of_r(folder: Path, code: str) -> np.ndarray:
    """What R prints by `show(...)`, a row for each call, after the printed lines; these must run without an error."""
    show = "show <- function(...) cat('ROW', sprintf('%.17g', c(...)), '\\n')"
    found = run_r(folder, "\n".join([printed_r(folder), show, code]))
    assert found.returncode == 0, found.stderr
    return np.array([line.split()[1:] for line in found.stdout.splitlines() if line.startswith("ROW")], dtype=float)


def of_r(question: str) -> str:
    return f"as.numeric({question.replace(' and ', ' & ')})"


@pytest.mark.slow
def test_mice_pools_exported_draws_to_the_errors_of_the_release(tmp_path, needs_r):
    m = 60
    write_draws(of_tables(), tmp_path, of_tables().draws(m, columns=COLUMNS, rng=5))
    means = [f"pooled(lm({of_r(question)} ~ 1, data = table), 1)" for question in QUESTIONS]
    slopes = [f"pooled(lm({of_r(MODEL.split(' ~ ')[0])} ~ age + (job == 'b'), data = table), {j})" for j in (2, 3)]
    odds = [f"pooled(glm({ODDS}, family = binomial, data = table), {j})" for j in (2, 3)]
    pooled = (
        "pooled <- function(call, j) { fits <- lapply(tables, function(table) eval(call, list(table = table)))\n"
        "own <- summary(mice::pool(fits)); syn <- summary(mice::pool.syn(fits))\n"
        "show(own$estimate[j], own$std.error[j], own$df[j], syn$std.error[j]) }"
    )
    calls = [re.sub(r"pooled\((.*), (\d)\)$", r"pooled(quote(\1), \2)", call) for call in (*means, *slopes, *odds)]
    found = numbers_of_r(tmp_path, "\n".join([pooled, *calls]))
    tables = [pd.read_csv(tmp_path / f"rows_{i + 1}.csv") for i in range(m)]
    values, usual = (np.array(part) for part in zip(*map(means_and_slopes, tables), strict=True))
    within, between = usual.mean(axis=0), values.var(axis=0, ddof=1)
    total = within + (1 + 1 / m) * between
    complete = len(tables[0]) - np.repeat([1, 3], [len(QUESTIONS), 2])
    freedom = barnard_rubin(m, between, total, complete)
    expected = np.column_stack([values.mean(axis=0), np.sqrt(total), freedom, np.sqrt(within + between / m)])
    np.testing.assert_allclose(found[:-2], expected, rtol=1e-7)
    check_logistic(found[-2:])
    assert (found[:-2, 1] / answered()[1]).mean() > 0.85 and (found[:-2, 3] / answered()[1]).mean() < 0.8  # pool.syn


@pytest.mark.slow
def test_survey_has_the_errors_of_the_release_by_exported_replicates(tmp_path, needs_r):
    R = 150
    write_replicates(of_tables(), tmp_path, of_tables().replicates(R, columns=COLUMNS, rng=6))
    means = [f"one <- survey::svymean(~{of_r(question)}, design); show(coef(one), survey::SE(one))" for question in QUESTIONS]
    fit = "one <- survey::svyglm({}, design = design); for (j in 2:3) show(coef(one)[j], survey::SE(one)[j])"
    linear = fit.format(f"{of_r(MODEL.split(' ~ ')[0])} ~ age + (job == 'b')")
    logistic = fit.format(f"{ODDS}, family = quasibinomial")
    found = numbers_of_r(tmp_path, "\n".join([*means, linear, logistic]))
    frame = pd.read_csv(tmp_path / "rows.csv")
    at = means_and_slopes(frame, frame["weight"].to_numpy())[0]
    names = [f"replicate_{r + 1}" for r in range(R)]
    thetas = np.array([means_and_slopes(frame, frame[name].to_numpy())[0] for name in names])
    errors = np.sqrt(svr_variance(thetas, 1 / R, np.ones(R), at))
    np.testing.assert_allclose(found[:-2], np.column_stack([at, errors]), rtol=1e-7)
    check_logistic(found[-2:])


def check_logistic(found: np.ndarray) -> None:
    """R's slopes of a logistic regression are those of `release.glm` within its errors; theirs are as large, or larger up to twice.

    Draws of named columns leave relations more open than the fit does (tutorials/measured.md). Those of `pool.syn` are .3 and .5.
    """
    ours = of_tables().glm(ODDS, "binomial").to_frame().iloc[1:]
    assert np.all(np.abs(found[:, 0] - ours["value"]) < ours["standard_error"])
    ratio = found[:, 1] / ours["standard_error"].to_numpy()
    assert np.all((ratio > 0.7) & (ratio < 2.0)), ratio
    if found.shape[1] > 3:  # the same draws by pool.syn
        assert np.all(found[:, 3] / ours["standard_error"].to_numpy() < 0.7)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [None, ("job", "city"), ("city",), ("gain", "job"), ("age",)])
@pytest.mark.parametrize("rule", ["draws", "replicates"])
def test_the_printed_lines_run_for_any_columns(tmp_path, needs_r, columns, rule):
    of, write = (of_tables().draws, write_draws) if rule == "draws" else (of_tables().replicates, write_replicates)
    write(of_tables(), tmp_path, of(100 if rule == "replicates" else 3, columns=columns, rng=1))
    numbers_of_r(tmp_path, "")


ODD = Domain((
    Integer(name="hours-per-week", lower=0, upper=80, missing=True), Categorical(name="zip `code`", levels=("01", "02", "1e3")),
    Categorical(name="if", levels=("T", "NA")), Date(name="day", lower="2000-01-01", upper="2001-01-01"), Boolean(name="ill"),
))  # fmt: skip


@pytest.mark.slow
def test_r_reads_names_levels_and_missing_cells_as_they_are(tmp_path, needs_r):
    """Names that are none in R, levels that look like numbers, truth values or missing cells, and dates."""
    frame = ODD.decode(ODD.draw(60, 3)).assign(weight=1 / 60)
    frame.loc[:4, "hours-per-week"] = None
    release = ka.from_frame(frame, domain=ODD)
    rows = release.to_frame("signed").drop(columns="weight")
    write_draws(release, tmp_path, [rows, rows.iloc[::-1].reset_index(drop=True)])
    code = (
        "one <- tables[[1]]; show(sum(is.na(one)), mean(one[['hours-per-week']], na.rm = TRUE), sum(one$`zip \\`code\\`` == '01'),"
        "sum(one$`if` == 'NA'), as.numeric(one$day[1]), sum(one$ill), is.factor(one[[2]]), is.factor(one[['if']]))"
    )
    days = (pd.to_datetime(rows["day"]) - pd.Timestamp("1970-01-01")).dt.days
    expected = [
        rows["hours-per-week"].isna().sum(), rows["hours-per-week"].mean(), (rows["zip `code`"] == "01").sum(),
        (rows["if"] == "NA").sum(), days.iloc[0], rows["ill"].sum(), 1, 1,
    ]  # fmt: skip
    np.testing.assert_allclose(numbers_of_r(tmp_path, code)[0], np.array(expected, dtype=float))
