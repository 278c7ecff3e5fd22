"""What a reader of an exported folder computes in R equals what the release answers.

R is not needed: its formulas are written out here, from the documentation and source of survey 4.1 (`svrepdesign`, `svrVar`) and of
mice 3.13 (`pool`, `barnard.rubin`). Each is also computed wrongly, to show that the comparison would notice.
"""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from drawn_cases import OF_TABLES, of_tables
from scipy.stats import t

from kmeanalyst.inference.draws.folder import write_draws, write_replicates
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


def test_barnard_rubin_by_hand():
    """λ = .5, m = 5, complete data with 9 degrees of freedom: 16 and 10/12 · 9/2 = 3.75, together 60/19.75."""
    assert barnard_rubin(5, np.array([1.0]), np.array([2.4]), 9) == pytest.approx([60 / 19.75])


def means_and_slopes(frame: pd.DataFrame, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Answers and their usual squared standard errors: means of the questions, then a linear probability model by least squares."""
    w = np.ones(len(frame)) if weights is None else weights
    values = np.column_stack(
        [np.asarray(parse(q).evaluate(frame, of_tables().columns), dtype=float) for q in QUESTIONS]
    )
    means = w @ values / w.sum()
    X = sm.add_constant(np.column_stack([frame["age"], frame["job"] == "b"]).astype(float))
    fitted = sm.WLS((frame["sex"] == "F").astype(float), X, weights=w).fit()
    usual = w @ (values - means) ** 2 / w.sum() / (w.sum() - 1)
    return np.append(means, fitted.params[1:]), np.append(usual, fitted.bse[1:] ** 2)


@cache
def answered() -> tuple[np.ndarray, np.ndarray]:
    """The release's own answers and their errors."""
    ours = of_tables().expectations(list(QUESTIONS))
    slopes = of_tables().glm(MODEL).to_frame().iloc[1:]
    values, errors = ([getattr(one, name) for one in ours] for name in ("value", "standard_error"))
    return np.append(values, slopes["value"]), np.append(errors, slopes["standard_error"])


def test_pooled_draws_have_the_errors_of_the_release(tmp_path):
    """60 tables, each analysed as if it were the table: B is known to 18 %, an error to 9 %."""
    m = 60
    write_draws(of_tables(), tmp_path, of_tables().draws(m, columns=COLUMNS, rng=5))
    rule = json.loads((tmp_path / "rule.json").read_text())
    assert rule["m"] == m and f"lapply(1:{m}, " in rule["code"]["R"] and "mice::pool(fits)" in rule["code"]["R"]
    tables = [pd.read_csv(tmp_path / f"rows_{i + 1}.csv") for i in range(m)]
    values, usual = (np.array(part) for part in zip(*map(means_and_slopes, tables), strict=True))
    within, between = usual.mean(axis=0), values.var(axis=0, ddof=1)
    total = within + (1 + 1 / m) * between
    value, error = answered()
    assert np.all(np.abs(values.mean(axis=0) - value) < error)
    ratio = np.sqrt(total) / error
    assert np.all((ratio > 0.7) & (ratio < 1.45)) and 0.85 < ratio.mean() < 1.25, ratio
    freedom = barnard_rubin(m, between, total, len(tables[0]) - 3)
    assert np.all((freedom > 30) & (freedom < len(tables[0])))
    half = t.ppf(0.975, freedom) * np.sqrt(total)
    assert np.all(np.abs(values.mean(axis=0) - value) < half)
    assert (np.sqrt(within + between / m) / error).mean() < 0.8  # pool.syn
    assert (np.sqrt(within) / error).mean() < 0.8  # lm.synds


def test_replicate_weights_have_the_errors_of_the_release(tmp_path):
    """150 replicates: an error is known to 6 %."""
    R = 150
    write_replicates(of_tables(), tmp_path, of_tables().replicates(R, columns=COLUMNS, rng=6))
    code = json.loads((tmp_path / "rule.json").read_text())["code"]["R"]
    scale, rscales = re.search(r"scale = 1/(\d+), rscales = rep\(1, (\d+)\)", code).groups()  # type: ignore[union-attr]
    assert int(scale) == int(rscales) == R
    for option in ('type = "other"', "combined.weights = TRUE", "mse = TRUE", "weights = ~weight"):
        assert option in code
    frame = pd.read_csv(tmp_path / "rows.csv")
    pattern = re.search(r'repweights = "([^"]+)"', code).group(1)  # type: ignore[union-attr]
    names = [name for name in frame if re.search(pattern, name)]
    assert len(names) == R
    at = means_and_slopes(frame, frame["weight"].to_numpy())[0]
    thetas = np.array([means_and_slopes(frame, frame[name].to_numpy())[0] for name in names])
    found = np.sqrt(svr_variance(thetas, 1 / R, np.ones(R), at))
    value, error = answered()
    assert np.all(np.abs(at - value) < error)
    assert np.all((found / error > 0.75) & (found / error < 1.4)) and 0.85 < (found / error).mean() < 1.25, (
        found / error
    )
    alone = np.sqrt(means_and_slopes(frame, frame["weight"].to_numpy())[1])
    assert (alone / error).mean() < 0.8  # rows and one weight, as if they were the table
