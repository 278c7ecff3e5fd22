"""Claims: numbers that are claimed to be positive, and the two rules for lists of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from public_names import ready_names
from scipy.special import ndtr
from statsmodels.stats import multitest

import kmeanalyst as ka
from kmeanalyst.inference.claims import largest_set

RELEASE = ready_names(["release"])["release"]


def test_a_claim_of_a_difference_has_the_error_of_the_difference():
    """The one release's errors are correlated, so that a claim's error is not that of two independent answers."""
    old, all_ages = RELEASE.mean("age", where="income == '>50K'"), RELEASE.mean("age")
    claim, question = RELEASE.claims([old - 1.1 * all_ages, "age - 40"])
    assert claim.estimate.standard_error != pytest.approx(np.hypot(old.standard_error, 1.1 * all_ages.standard_error))
    assert claim.probability == pytest.approx(ndtr(claim.estimate.value / claim.estimate.standard_error))
    assert claim.pvalue == pytest.approx(1 - claim.probability)
    assert question.estimate.value == pytest.approx(RELEASE.expectation("age - 40").value)


def test_what_is_no_list_of_claims_is_refused():
    refusals.check(Path(__file__).parent / "refusals_claims.txt", lambda text: eval(text, globals()))


def test_a_number_without_an_error_is_positive_or_not():
    release = ka.from_frame(pd.DataFrame({"x": [1.0, 1.0], "w": [0.5, 0.5]}), weight="w")
    assert [claim.probability for claim in release.claims(["x - 1", "2 - x"])] == [0.0, 1.0]


def test_the_largest_set_is_the_largest():
    """Four claims of probabilities .99, .97, .92, .60: means of being false .01, .02, .04, .13."""
    kept = largest_set(np.array([0.60, 0.99, 0.92, 0.97]), 0.05)
    assert kept.tolist() == [False, True, True, True]
    assert not largest_set(np.array([0.60, 0.80]), 0.05).any()


def test_the_bayesian_rule_keeps_its_promise_on_correlated_errors():
    """2,000 lists of 20 claims with equicorrelated errors (.5), true numbers from the prior: 3 standard errors above the rate."""
    rng = np.random.default_rng(1)
    rate, false = 0.1, []
    for _ in range(2000):
        errors = np.sqrt(0.5) * rng.standard_normal(20) + np.sqrt(0.5) * rng.standard_normal()
        wide = 100 * rng.standard_normal(20)
        kept = largest_set(ndtr(wide + errors), rate)
        false.append((wide[kept] < 0).sum() / max(kept.sum(), 1))
    assert np.mean(false) <= rate + 3 * np.std(false) / np.sqrt(2000)


def test_the_result_says_by_which_rules_claims_were_kept():
    claims = RELEASE.claims(["age - 30", "age - 38.5"], rate=0.1)
    text = repr(claims)
    assert "1 of 2 kept by a Bayesian rule" in text and "Benjamini–Yekutieli keeps 1 at 0.1" in text
    assert "kept: age - 30 > 0" in text and "not kept: age - 38.5 > 0" in text
    adjusted = multitest.multipletests([claim.pvalue for claim in claims], method="fdr_by")[1]
    frame = claims.to_frame()
    assert frame["adjusted_pvalue"].tolist() == pytest.approx(adjusted.tolist())
    assert frame.index.tolist() == ["age - 30 > 0", "age - 38.5 > 0"]
    assert frame["estimate"].tolist() == [claim.estimate.value for claim in claims]
    assert (frame["low"] < frame["estimate"]).all() and frame["kept"].tolist() == [True, False]
    assert claims.expected_false_share == pytest.approx(1 - claims[0].probability)
