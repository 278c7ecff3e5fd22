"""Claims: what is read, what is answered, and the two rules for lists of them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import paths
import pytest
from command_line import answer, call
from public_names import ready_names
from scipy.special import ndtr
from statsmodels.stats import multitest

import kmeanalyst as ka
from kmeanalyst.inference.claims.claims import benjamini_yekutieli, largest_set
from kmeanalyst.inference.claims.findings import read_findings
from kmeanalyst.inference.claims.grammar import parse_claim
from kmeanalyst.releases.expressions import ExpressionError

RELEASE = ready_names(["release"])["release"]


def test_a_claim_of_two_statistics_is_the_difference_of_their_estimates():
    """The one release's errors are correlated, so that a claim's error is not that of two independent answers."""
    old, all_ages = RELEASE.mean("age", where="income == '>50K'"), RELEASE.mean("age")
    claim = RELEASE.claims(["mean(age, where = income == '>50K') > 1.1 * mean(age)"])[0]
    expected = old - 1.1 * all_ages
    assert claim.difference.value == pytest.approx(expected.value)
    assert claim.difference.parts == pytest.approx(expected.parts)
    assert claim.difference.standard_error != pytest.approx(np.hypot(old.standard_error, 1.1 * all_ages.standard_error))
    assert claim.probability == pytest.approx(ndtr(expected.value / expected.standard_error))
    assert claim.pvalue == pytest.approx(1 - claim.probability)


@pytest.mark.parametrize(("text", "same"), [
    ("mean(age) < 40", "40 > mean(age)"), ("mean(age) >= 2 + 6 * 6", "mean(age) - 38 > 0"),
    ("sqrt(var(age)) > 14", "std(age) > 14"), ("corr(age, `hours-per-week`) > 0", "0 < corr(`hours-per-week`, age)"),
    ("probability(age > 50 and sex == 'Male') > 0.1", "mean(age > 50 and sex == 'Male') > .1"),
    ("ratio(age, `hours-per-week`) < 1", "mean(age) / mean(`hours-per-week`) < 1"),
    ("-mean(age) < -38", "mean(age) > 38"), ("mean(age) ** 2 > 1600", "exp(2 * log(mean(age))) > 1600"),
])  # fmt: skip
def test_two_ways_to_write_a_claim_have_one_answer(text, same):
    one, other = RELEASE.claims([text, same])
    assert one.difference.value == pytest.approx(other.difference.value, abs=1e-9)
    assert one.difference.standard_error == pytest.approx(other.difference.standard_error, rel=1e-6)
    assert one.probability == pytest.approx(other.probability, abs=1e-9)


def test_a_quantile_is_claimed_with_its_order():
    claim = RELEASE.claims(["quantile(age, 0.5, where=sex == 'Male') <= 45"])[0]
    assert claim.difference.value == 45 - RELEASE.quantile("age", 0.5, where="sex == 'Male'").value


def test_text_within_quotes_is_no_where():
    asked = parse_claim("""mean(age, where=`where=` == 'where=') > 1""").left
    assert asked.arguments == ("age",) and asked.where == "`where=` == 'where='"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("text", "message"), [
    ("mean(age)", r"compares two sides by <.*Write one"),
    ("mean(age) == 38", r"== is no claim: .*Claim a bound"),
    ("1 < mean(age) < 40", r"one comparison, so that .*Write two claims"),
    ("age > 3", r"age is not inside a statistic, and .*Write mean\(age\)"),
    ("mean(age) < mean(age)", r"both sides are the same, so .*Write mean"),
    ("1 < 2", r"both sides are numbers, so .*Write mean"),
    ("meen(age) > 2", r"no statistic meen: .*Did you mean mean\?"),
    ("corr(age) > 1", r"corr takes 2 arguments .*got 1\. Write corr\(a, b\)"),
    ("mean(age, where=age > 3, sex) > 3", r"where= is the last argument\. Put"),
    ("mean(age) % 2 > 1", r"not part of a claim: .*Put conditions"),
    ("mean(age) > 'x'", r"not part of a claim: .*Put conditions"),
    ("2 ** mean(age) > 1", r"an exponent must be a number: .*Write exp"),
    ("quantile(age, age) > 1", r"order of a quantile is a number from 0 to 1, got 'age'\. Write"),
    ("mean(agee) > 1", r"no column agee: .*Did you mean age\?"),
    ("__import__('os') > 1", r"no statistic __import__: .*Write a claim"),
    ("mean(age > 3", r"never closed: .*Add \)"),
    ("mean(age) / 0 > 1", r"undefined at .*division by zero"),
    ("mean(age) > " + "1 + " * 5000 + "1", r"at most 10000 are read, so .*Shorten"),
])  # fmt: skip
def test_what_is_no_claim_is_refused_with_its_place(text, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        RELEASE.claims([text])


def test_a_mistake_is_pointed_at():
    with pytest.raises(ExpressionError) as refused:
        parse_claim("mean(age) > meen(age)")
    assert refused.value.position == 12


@pytest.mark.parametrize(("arguments", "message"), [
    (("mean(age) > 3",), r"a list of at least one text, got 'mean.*Write them in brackets"),
    (([],), r"a list of at least one text"), (([3],), r"a claim must be text, got int\. Write it in quotes"),
])  # fmt: skip
def test_claims_are_a_list_of_texts(arguments, message):
    with pytest.raises(ValueError, match=message):
        RELEASE.claims(*arguments)
    with pytest.raises(ValueError, match=r"rate must lie between 0 and 1, got 0: .*Pass e\.g\."):
        RELEASE.claims(["mean(age) > 3"], rate=0)


def test_a_difference_without_an_error_holds_or_not():
    frame = pd.DataFrame({"x": [1.0, 1.0], "w": [0.5, 0.5]})
    found = ka.from_frame(frame, weight="w").claims(["mean(x) > 1", "mean(x) >= 1", "mean(x) < 2"])
    assert [claim.probability for claim in found] == [0.0, 1.0, 1.0]


# ---------------------------------------------------------------------- rules for lists


def test_the_largest_set_is_the_largest():
    """Four claims of probabilities .99, .97, .92, .60: means of being false .01, .02, .04, .13."""
    kept = largest_set(np.array([0.60, 0.99, 0.92, 0.97]), 0.05)
    assert kept.tolist() == [False, True, True, True]
    assert not largest_set(np.array([0.60, 0.80]), 0.05).any()


def test_adjusted_pvalues_are_those_of_statsmodels():
    p = np.random.default_rng(0).random(30) ** 3
    assert benjamini_yekutieli(p) == pytest.approx(multitest.multipletests(p, method="fdr_by")[1])


def test_both_rules_keep_their_promise_on_correlated_errors():
    """2,000 lists of 20 claims with equicorrelated errors (.5), true differences from the prior; and, for the second, 16 of 20
    just false. Allowed 3 standard errors above the rate; the unadjusted rule p ≤ .05 fails the second."""
    rng = np.random.default_rng(1)
    rate, shares, naive, bayes = 0.1, [], [], []
    for _ in range(2000):
        errors = np.sqrt(0.5) * rng.standard_normal(20) + np.sqrt(0.5) * rng.standard_normal()
        wide = 100 * rng.standard_normal(20)
        kept = largest_set(ndtr(wide + errors), rate)
        bayes.append((wide[kept] < 0).sum() / max(kept.sum(), 1))
        truth = np.where(np.arange(20) < 16, 0.0, 4.0)
        p = ndtr(-(truth + errors))
        shares.append((benjamini_yekutieli(p) <= rate)[:16].sum() / max((benjamini_yekutieli(p) <= rate).sum(), 1))
        naive.append((p <= rate)[:16].sum() / max((p <= rate).sum(), 1))
    for found in (bayes, shares):
        assert np.mean(found) <= rate + 3 * np.std(found) / np.sqrt(2000)
    assert np.mean(naive) > rate + 3 * np.std(naive) / np.sqrt(2000)


# ---------------------------------------------------------------------- results and files


def test_the_result_says_by_which_rules_claims_were_kept():
    found = RELEASE.claims(["mean(age) > 30", "mean(age) > 38.5"], names=["grown up", ""], rate=0.1)
    text = repr(found)
    assert "1 of 2 kept by a Bayesian rule" in text and "Benjamini–Yekutieli keeps 1 at 0.1" in text
    assert "kept: grown up: mean(age) > 30" in text and "not kept: mean(age) > 38.5" in text
    frame = found.to_frame()
    assert frame.index.tolist() == ["mean(age) > 30", "mean(age) > 38.5"]
    assert np.hypot(np.hypot(frame.privacy, frame.sampling), frame.resolution).to_numpy() == pytest.approx(
        frame.standard_error.to_numpy()
    )
    assert found.expected_false_share == pytest.approx(1 - found[0].probability)


@pytest.mark.parametrize(("content", "texts", "names", "rate"), [
    ('claims = ["mean(x) > 1"]', ("mean(x) > 1",), ("",), None),
    ('rate = 0.2\n[[claim]]\nname = "a"\ntext = "mean(x) > 1"\n[[claim]]\ntext = "t"', ("mean(x) > 1", "t"), ("a", ""), 0.2),
])  # fmt: skip
def test_findings_are_read(tmp_path, content, texts, names, rate):
    (tmp_path / "f.toml").write_text(content, encoding="utf-8")
    found = read_findings(tmp_path / "f.toml")
    assert (found.texts, found.names, found.rate) == (texts, names, rate)


def test_the_command_prints_what_python_answers(tmp_path):
    (tmp_path / "f.toml").write_text('rate = 0.2\n[[claim]]\nname = "a"\ntext = "mean(age) > 38"', encoding="utf-8")
    found = answer(
        call("kmeanalyst", "claims", paths.TESTS / "golden" / "examples" / "adult.kme", tmp_path / "f.toml", "--json")
    )
    claim = RELEASE.claims(["mean(age) > 38"], rate=0.2, names=["a"])[0]
    assert found["claims"] == [json.loads(json.dumps(claim.to_dict()))] and found["rate"] == 0.2
    assert found["expected_false_share"] == pytest.approx(1 - claim.probability) and "Bayesian" in found["rule"]


@pytest.mark.parametrize(("content", "message"), [
    ("claims = [", r"f\.toml is not TOML: .*Write"), ("", r"has no claim\. A file has .*Write"),
    ("claims = [3]", r"no list of texts"),
    ('claim = "x"', r"other entries than a text"), ("[[claim]]\nname = 'a'", r"other entries than a text"),
    ("rate = 2\nclaims = ['x']", r"rate must be a number between 0 and 1, got 2\. Write"), ("clams = []", r"it has 'clams'"),
])  # fmt: skip
def test_a_file_that_is_no_list_of_claims_is_refused(tmp_path, content, message):
    (tmp_path / "f.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read_findings(tmp_path / "f.toml")


@pytest.mark.parametrize(("texts", "names", "message"), [
    (None, None, r"claims must be a list of at least one text, got None"),
    (["mean(age) > 1"], ["a", "b"], r"names must be a list with a name for each of the 1 claims"),
    (["mean(age) > 1"], "a", r"names must be a list with a name for each"),
])  # fmt: skip
def test_claims_and_their_names_are_lists(mixed_release, texts, names, message):
    with pytest.raises(ValueError, match=message):
        mixed_release.claims(texts, names=names)
