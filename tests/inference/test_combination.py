"""A release and a sample asked together: weights, what both sides share, the bound, and how often intervals hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from scipy.stats import norm
from simulated_releases import release_of

import kmeanalyst as ka
from kmeanalyst.inference.combination import _best_weight, _wider
from kmeanalyst.inference.estimate.error_model import SamplingErrors
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer

DOMAIN = Domain((
    Integer(name="age", lower=18, upper=90, edges=(30, 50, 65)), Integer(name="hours", lower=0, upper=80, edges=(20, 40)),
    Categorical(name="sex", levels=("f", "m")), Categorical(name="ill", levels=("no", "yes")),
))  # fmt: skip
CONDITIONS = (
    "age > 50", "hours > 40", "sex == 'm'", "ill == 'yes'", "ill == 'yes' and sex == 'm'", "sex == 'f' and age > 30",
)  # fmt: skip
N = 4000


def people(n: int, seed: int, older: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    male, age = rng.random(n) < 0.45, 18 + 72 * rng.beta(1.5, 2.5, n)
    ill = rng.random(n) < 0.1 + 0.003 * (age - 18) + 0.05 * male
    hours = np.clip(rng.normal(30 + 8 * male - 0.1 * age, 9), 0, 80)
    cells = {"age": np.clip(np.round(age + older), 18, 90).astype(int), "hours": np.round(hours).astype(int)}
    return pd.DataFrame(cells | {"sex": np.where(male, "m", "f"), "ill": np.where(ill, "yes", "no")})


def table_release(seed: int) -> Release:
    features = MarginFeatures(kernel_from_spec("margins", DOMAIN))
    points, rows = DOMAIN.decode(DOMAIN.draw(500, seed)), DOMAIN.encode(people(N, seed))
    return release_of(rows, DOMAIN, features.kernel, features, points, method="random-features", view="probability")


SAMPLE = people(500, 1001)
released = cache(lambda: table_release(1))


def test_the_answer_has_the_least_variance_and_says_what_it_assumes():
    both, ours = ka.combine(released(), SAMPLE), released().mean("hours")
    found, variances = both.mean("hours"), np.array([ours.standard_error**2, SAMPLE["hours"].var() / 500])
    assert found.standard_error**2 == pytest.approx(1 / (1 / variances).sum(), rel=0.03)
    weight = variances[0] / variances.sum()
    assert found.value == pytest.approx((1 - weight) * ours.value + weight * SAMPLE["hours"].mean(), abs=0.02)
    assert found.notes[0].startswith("one population of both is assumed; no person") and found.notes[0] in repr(both)
    assert f"p = {both.check.pvalue:.2g}, differences" in found.notes[1]
    assert float(found.notes[2].split(" a weight of ")[1]) == pytest.approx(weight, abs=0.02)
    older = ka.combine(released(), people(500, 1001, older=10))  # the test sees it, and chooses nothing
    assert older.check.pvalue < 0.01 and older.mean("hours").value == found.value
    men, women = (both.mean("hours", where=f"sex == '{sex}'") for sex in "mf")
    assert (men - men).standard_error == 0 and not any("different releases" in note for note in (men - women).notes)
    assert (both.probability("age > 50") + both.probability("age <= 50")).standard_error == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="a sample is not the table"):
        men.interval(kind="noise")


def test_every_statistic_lies_between_both_sides_and_a_quantile_inverts_the_weighted_distribution():
    r, both = released(), ka.combine(released(), SAMPLE)
    rows = ka.from_frame(SAMPLE.assign(weight=1 / 500), domain=DOMAIN)
    for ask in (
        lambda r: r.var("hours"), lambda r: r.std("age"), lambda r: r.ratio("hours", "age"), lambda r: r.cdf("age", 40),
        lambda r: r.corr(["age", "hours"])["age", "hours"], lambda r: r.expectations(["age + 1", "hours"])[0],
        lambda r: r.expectation(lambda frame: frame["age"] ** 2), lambda r: r.quantile("hours", [0.2, 0.9])[1],
    ):  # fmt: skip
        sides, found = [ask(r), ask(rows)], ask(both)
        assert min(e.value for e in sides) - 1e-9 <= found.value <= max(e.value for e in sides) + 1e-9, found
        assert 0 < found.standard_error <= min(sides[0].standard_error, 1.2 * sides[1].standard_error), found
        assert found.question == sides[0].question and "is assumed" in found.notes[0]
    found = both.quantile("age", 0.3)
    assert both.cdf("age", found.value - 1).value - 0.003 < 0.3 <= both.cdf("age", found.value).value + 0.003
    alone = ka.combine(r, SAMPLE[SAMPLE["age"] < 80]).mean("hours", where="age >= 80")
    assert alone.value == r.mean("hours", where="age >= 80").value and "the release's alone" in alone.notes[0]


def test_persons_in_both_widen_the_error_as_their_covariance_does():
    asked = [ka.combine(released(), SAMPLE, overlap=one).mean("hours") for one in ("disjoint", "contained", "unknown")]
    ours, alone = released().mean("hours").standard_error ** 2, asked[0].standard_error ** 2
    theirs, weights = 1 / (1 / alone - 1 / ours), np.linspace(0, 1, 10_001)
    variances = (1 - weights) ** 2 * ours + weights**2 * theirs + 2 * weights * (1 - weights) * theirs * 500 / N
    assert asked[1].standard_error == pytest.approx(variances.min() ** 0.5, rel=1e-6) == asked[2].standard_error
    assert asked[1].standard_error > 1.005 * asked[0].standard_error and asked[1].notes[0] != asked[2].notes[0]


def test_a_bound_makes_the_shortest_interval_that_holds_under_it():
    for ratio, z in ((0.0, 1.96), (0.3, 0.7), (1.0, 1.96), (4.0, 3.0), (50.0, 1.96)):
        wider = float(_wider(z, np.array(ratio)))
        assert norm.cdf(wider - ratio) - norm.cdf(-wider - ratio) == pytest.approx(2 * norm.cdf(z) - 1, abs=1e-6)
    weights = np.linspace(0, 0.8, 401)
    errors = np.hypot(1 - weights, 0.5 * weights)
    best = weights[np.argmin(errors * _wider(1.96, 0.6 * weights / errors))]
    assert _best_weight(1.0, 0.25, 0.0, 0.6) == pytest.approx(best, abs=0.01) and best < 0.7
    none, some = (ka.combine(released(), SAMPLE, bound=bound) for bound in (0, 0.1))
    ends = [each.mean("age").interval(0.9) for each in (ka.combine(released(), SAMPLE), none, some, released())]
    widths = [high - low for low, high in ends]
    assert ends[0] == pytest.approx(ends[1]) and widths[1] < widths[2] < widths[3]
    assert "by at most 0.1 standard deviations of a row; no person" in some.mean("age").notes[0]
    far = ka.combine(released(), people(500, 1001, older=30), bound=100)
    assert far.mean("age").interval() == pytest.approx(released().mean("age").interval(), rel=1e-3)
    assert far.quantile("age", 0.5).interval() == released().quantile("age", 0.5).interval()
    with pytest.raises(ValueError, match="no known dependence"):
        some.mean("age") - some.mean("hours")


def test_rows_in_which_an_event_is_missing_have_an_error_of_it():
    """By the others' variance, which counts as that of kurtosis rows; where there is much to see, by their own."""
    model = SamplingErrors(pd.DataFrame(index=range(900)), np.full(800, 1 / 800), (), others=np.full(100, 0.01))
    rare, many = np.zeros((900, 1)), np.random.default_rng(0).normal(size=(900, 3))
    rare[800], many[800:] = 1.0, 0.1 * many[800:]
    kurtosis = (0.005 * 0.995**4 + 0.995 * 0.005**4) / (0.005 * 0.995) ** 2
    known = model.parts(np.hstack([rare, many]))["sampling"]
    assert known[0] ** 2 == pytest.approx(kurtosis / (kurtosis + 800) * 0.01 * 0.99 / 800)
    own = SamplingErrors(model.frame[:800], model.probabilities, ())
    assert known[1:] == pytest.approx(own.parts(many[:800])["sampling"])
    assert np.diag(model.covariance(np.hstack([rare, many]))["sampling"]) == pytest.approx(known**2)


def test_two_releases_and_files_in_other_codes_are_combined_and_the_rest_is_refused(tmp_path):
    other = table_release(2)
    errors = np.array([each.mean("age").standard_error for each in (released(), other, ka.combine(released(), other))])
    assert errors[2] == pytest.approx((errors[:2] ** -2.0).sum() ** -0.5)
    SAMPLE.rename(columns={"hours": "h"}).replace({"sex": {"f": "1"}}).to_csv(tmp_path / "mine.csv", index=False)
    read = ka.combine(released(), tmp_path / "mine.csv", rename={"h": "hours"}, recode={"sex": {"1": "f"}})
    assert read.probability("sex == 'f'").value == ka.combine(released(), SAMPLE).probability("sex == 'f'").value
    names = {"ka": ka, "r": released(), "s": SAMPLE, "frame": ka.from_frame(SAMPLE.assign(weight=1), domain=DOMAIN)}
    refusals.check(Path(__file__).parent / "refusals_combination.txt", lambda text: eval(text, dict(names)))


@pytest.mark.slow
def test_intervals_hold_and_are_about_half_as_wide_as_the_samples_alone():
    """Of a sample two years older they hold within a bound that is true; the test finds two years at times, eight always."""
    truth = people(100_000, 0)
    means = [truth.eval(text).mean() for text in CONDITIONS]
    held, found, widths = (
        dict.fromkeys(("same", "contained", "older", "bound"), 0),
        dict.fromkeys(("same", 2, 8), 0),
        [],
    )
    for seed in range(10, 30):
        r, sample, older = table_release(seed), people(500, 1000 + seed), people(500, 1000 + seed, older=2)
        both = {
            "same": ka.combine(r, sample), "contained": ka.combine(r, people(N, seed).head(500), overlap="contained"),
            "older": ka.combine(r, older), "bound": ka.combine(r, older, bound=0.2),
        }  # fmt: skip
        frames = {kind: one.expectations(CONDITIONS).to_frame() for kind, one in both.items()}
        for kind, frame in frames.items():
            held[kind] += ((frame["low"] <= means) & (means <= frame["high"])).sum()
        for kind, one in {
            "same": both["same"],
            2: both["older"],
            8: ka.combine(r, people(500, 1000 + seed, 8)),
        }.items():
            found[kind] += one.check.pvalue < 0.05
        alone = 2 * 1.96 * np.sqrt([sample.eval(text).var() / 500 for text in CONDITIONS])
        widths.append((frames["same"]["high"] - frames["same"]["low"]) / alone)
    print(held, found, np.median(widths, axis=0))
    assert min(held[kind] for kind in ("same", "contained", "bound")) >= 0.93 * 20 * len(CONDITIONS)
    assert np.median(widths, axis=0).max() <= 0.6
    assert found["same"] <= 4 and found[2] >= 2 and found[8] == 20
