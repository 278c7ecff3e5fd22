"""A release and a sample asked together: weights, what both sides share, the bound, and how often intervals hold."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import paths
import pytest
import refusals
from make_tutorial_files import demo_rows
from scipy.optimize import minimize
from scipy.stats import chi2, norm

import kmeanalyst as ka
from kmeanalyst.inference import combination
from kmeanalyst.inference.combination import _best_weight, _wider
from kmeanalyst.inference.estimate.error_model import SamplingErrors, joined
from kmeanalyst.inference.estimate.heterogeneity import heterogeneity_of
from release_side.publishing.publish import publish

SAMPLE = demo_rows("sample").head(500)
released = cache(lambda: ka.read_release(paths.TESTS / "golden" / "examples" / "counted.kme"))


def test_the_answer_has_the_least_variance_and_says_what_it_assumes():
    both, ours = ka.combine(released(), SAMPLE), released().probability("income == '>50K'")
    found, theirs = both.probability("income == '>50K'"), SAMPLE["income"] == ">50K"
    variances = np.array([ours.standard_error**2, theirs.var() / 500])
    assert found.standard_error**2 == pytest.approx(1 / (1 / variances).sum(), rel=0.02)
    weight = variances[0] / variances.sum()
    assert found.value == pytest.approx((1 - weight) * ours.value + weight * theirs.mean(), abs=1e-3)
    assert found.notes[0].startswith("one population of both is assumed; no person") and found.notes[0] in repr(both)
    assert f"p = {both.check.pvalue:.2g}, differences" in found.notes[1]
    assert float(found.notes[2].split(" a weight of ")[1]) == pytest.approx(weight, abs=0.01)
    older = ka.combine(released(), SAMPLE.assign(age=SAMPLE["age"] + 10))  # the test sees it, and chooses nothing
    assert older.check.pvalue < 0.01 and older.probability("income == '>50K'").value == found.value
    men, women = (both.mean("age", where=f"sex == '{sex}'") for sex in ("Male", "Female"))
    assert (men - men).standard_error == 0 and not any("different releases" in note for note in (men - women).notes)
    assert (both.probability("age > 50") + both.probability("age <= 50")).standard_error == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="a sample is not the table"):
        men.interval(kind="noise")


def test_what_was_measured_of_a_statistic_corrects_the_samples_answer():
    """Its weight is another one than that of the rest: by hand, the least variance of all weighted means and corrections."""
    asked, holds = "age > 50", SAMPLE["age"] > 50
    both, ours = ka.combine(released(), SAMPLE), released().probability(asked)
    ((model, influence),) = ours.terms
    a, seen = model.measured_part(influence), model.posterior.seen  # type: ignore[attr-defined]
    there, here = seen(released().domain.encode(SAMPLE)) @ a, model.features @ a  # type: ignore[attr-defined]
    first = joined(model.covariance(np.column_stack([influence, here])))
    second = np.cov(holds, there, ddof=0) / 500
    apart = np.array([holds.mean() - ours.value, there.mean() - model.weights @ here[: len(model.weights)]])  # type: ignore[attr-defined]

    def variance(v):  # of ours + v · (the sample's − the release's)
        return (np.eye(2)[0] - v) @ first @ (np.eye(2)[0] - v) + v @ second @ v

    ends, few = [(0.0, 1.0), (None, 0.0)], {"xatol": 1e-8, "fatol": 1e-16}  # rest, and the control less this
    best = minimize(variance, (0.5, 0.0), method="Nelder-Mead", bounds=ends, options=few).x
    found = both.probability(asked)
    assert found.standard_error == pytest.approx(variance(best) ** 0.5, rel=0.01)
    assert found.value == pytest.approx(ours.value + best @ apart, abs=0.02 * found.standard_error)
    one = min(variance(np.array([w, 0.0])) for w in np.linspace(0, 1, 1001)) ** 0.5
    assert found.standard_error < 0.9 * one and "for what was measured of it" in found.notes[2]
    assert (found + both.probability(f"not ({asked})")).standard_error == pytest.approx(0, abs=1e-6)
    assert pickle.loads(pickle.dumps(both)).probability(asked).interval() == found.interval()


def test_a_weight_of_its_own_makes_no_error_larger(monkeypatch: pytest.MonkeyPatch):
    """Of events that are rare or absent in a sample, too, whose persons are in the table or not."""
    rare = "`hours-per-week` > 90", "age > 50 and `hours-per-week` > 60", "age == 40", "age == 37 and sex == 'Female'"
    for n, overlap in ((20, "disjoint"), (500, "disjoint"), (500, "contained")):
        both, found = ka.combine(released(), SAMPLE.head(n), overlap=overlap), []
        for much in (combination._MUCH, np.inf):
            monkeypatch.setattr(combination, "_MUCH", much)
            found.append(np.array([both.probability(text).standard_error for text in rare]))
        monkeypatch.undo()
        assert (found[0] <= found[1] * (1 + 1e-9)).all() and found[0].min() > 0, (n, overlap, found)


def test_every_statistic_lies_between_both_sides_and_a_quantile_inverts_the_weighted_distribution():
    both = ka.combine(released(), SAMPLE)
    rows = ka.from_frame(SAMPLE.assign(weight=1 / 500), domain=released().domain)
    for ask in (
        lambda r: r.var("age"), lambda r: r.std("age"), lambda r: r.cdf("age", 40), lambda r: r.quantile("age", [0.2, 0.9])[1],
        lambda r: r.corr(["age", "education-num"])["age", "education-num"], lambda r: r.mean("age") / r.mean("`hours-per-week`"),
        lambda r: r.expectation(lambda frame: frame["age"] ** 2), lambda r: r.expectations(["age + 1", "age"])[0],
    ):  # fmt: skip
        sides, found = [ask(released()), ask(rows)], ask(both)
        corrected = "for what was measured" in found.notes[2]
        assert corrected or min(e.value for e in sides) - 1e-9 <= found.value <= max(e.value for e in sides) + 1e-9, found
        most = min(sides[0].standard_error, 1.2 * sides[1].standard_error)
        assert 0 < found.standard_error <= most * (1 + 1e-9), found
        assert found.question == sides[0].question and "is assumed" in found.notes[0]
    found = both.quantile("age", 0.3)
    assert both.cdf("age", found.value - 1).value - 0.003 < 0.3 <= both.cdf("age", found.value).value + 0.003
    alone = ka.combine(released(), SAMPLE[SAMPLE["age"] < 70]).mean("age", where="age >= 70")
    assert alone.value == released().mean("age", where="age >= 70").value and "the release's alone" in alone.notes[0]


def test_persons_in_both_widen_the_error_as_their_covariance_does():
    asked = [
        ka.combine(released(), SAMPLE, overlap=one).probability("income == '>50K'") for one in ("disjoint", "contained", "unknown")
    ]
    ours, alone = released().probability("income == '>50K'").standard_error ** 2, asked[0].standard_error ** 2
    theirs, weights = 1 / (1 / alone - 1 / ours), np.linspace(0, 1, 10_001)
    variances = (1 - weights) ** 2 * ours + weights**2 * theirs + 2 * weights * (1 - weights) * theirs * 500 / 6000
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
    none, some, far = (ka.combine(released(), SAMPLE, bound=bound) for bound in (0, 0.1, 100))
    ends = [each.mean("age").interval(0.9) for each in (ka.combine(released(), SAMPLE), none, some, released())]
    widths = [high - low for low, high in ends]
    assert ends[0] == pytest.approx(ends[1]) and widths[1] < widths[2] < widths[3]
    assert "by at most 0.1 standard deviations of a row; no person" in some.mean("age").notes[0]
    assert far.mean("age").interval() == pytest.approx(released().mean("age").interval(), rel=1e-3)
    assert far.quantile("age", 0.4).interval() == released().quantile("age", 0.4).interval()
    with pytest.raises(ValueError, match="no known dependence"):
        some.mean("age") - some.mean("hours-per-week")


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
    neither = ka.combine(released(), SAMPLE)
    asked = "`education-num` > 16"  # no row of either side, but of its population
    assert neither.probability(asked).standard_error == released().probability(asked).standard_error > 0


def test_two_releases_and_files_in_other_codes_are_combined_and_the_rest_is_refused(tmp_path):
    other = ka.read_release(paths.TESTS / "golden" / "examples" / "survey.kme")
    *sides, both = (r.mean("age") for r in (released(), other, ka.combine(released(), other)))
    precisions = np.array([[each.standard_error**-2.0] for each in sides])
    weighted = precisions / precisions.sum() * np.array([list(each.parts.values()) for each in sides])
    alike = weighted[:, 2].sum()  # what both do not see
    assert both.standard_error == pytest.approx(np.sqrt((weighted[:, :2] ** 2).sum() + alike**2))
    SAMPLE.rename(columns={"age": "a"}).replace({"sex": {"Male": "1"}}).to_csv(tmp_path / "mine.csv", index=False)
    read = ka.combine(released(), tmp_path / "mine.csv", rename={"a": "age"}, recode={"sex": {"1": "Male"}})
    assert read.probability("sex == 'Male'").value == ka.combine(released(), SAMPLE).probability("sex == 'Male'").value
    assert ka.combine(released(), other).corr().names == released().corr().names
    units = ka.read_release(paths.TESTS / "golden" / "v1" / "persons.kme")
    assert "each unit the same weight" in ka.combine(units, units.frame).mean("x").notes[2]
    with pytest.raises(ValueError, match="none with several releases"):
        ka.combine(released(), [other, units], bound=0.1)
    names = {"ka": ka, "r": released(), "s": SAMPLE, "frame": ka.from_frame(SAMPLE.assign(weight=1))}
    refusals.check(Path(__file__).parent / "refusals_combination.txt", lambda text: eval(text, dict(names)))


SITES = ka.Domain((ka.Boolean(name="ill"), ka.Categorical(name="arm", levels=("u", "v", "w"))))


def site(seed: int, ill: float = 0.4, n: int = 2000) -> ka.Release:
    """A site's noisy table of two columns, a share of whose persons is ill."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, np.outer([1 - ill, ill], [0.5, 0.3, 0.2]).ravel()).reshape(2, 3)
    return ka.from_measurements(SITES, {("ill", "arm"): ka.NoisyTable(counts + rng.normal(0, 5, (2, 3)), scale=5.0)}, n_rows=n)


def test_answers_of_several_sites_say_how_far_they_differ_beyond_their_errors():
    """Q, its p-value and I² by hand; the pooled answer is their weighted mean; it says which sites had no answer."""
    sites = [site(0), site(1), site(2, ill=0.5)]
    both, each = ka.combine(sites[0], sites[1:]), [one.probability("ill") for one in sites]
    found, values, weights = both.probability("ill"), *np.array([(e.value, e.standard_error**-2) for e in each]).T
    mean = float(weights @ values / weights.sum())
    assert (found.value, found.standard_error) == pytest.approx((mean, weights.sum() ** -0.5))
    q = float(weights @ (values - mean) ** 2)
    assert found.heterogeneity.statistic == pytest.approx(q) and found.heterogeneity.df == 2
    assert found.heterogeneity.pvalue == pytest.approx(chi2.sf(q, 2)) and found.heterogeneity.pvalue < 1e-6
    assert found.heterogeneity.i_squared == pytest.approx(1 - 2 / q)
    assert f"which differ ({found.heterogeneity}); the other releases have weights of 0.3" in found.notes[2]
    ps = [ka.mmd_test(sites[0], one).pvalue for one in sites[1:]]
    assert f"p = {ps[0]:.2g} and {ps[1]:.2g}" in repr(both)
    assert "rows and other releases of 2,000 and 2,000" in repr(both)
    assert (found + 0).heterogeneity is None and ka.combine(released(), SAMPLE).mean("age").heterogeneity.df == 1
    assert ka.combine(released(), SAMPLE, overlap="contained").mean("age").heterogeneity is None
    no_arm = ka.from_measurements(ka.Domain(SITES.columns[:1]), {"ill": ka.NoisyTable([1200.0, 800.0], scale=5.0)}, n_rows=2000)
    asked = ka.combine(sites[0], [sites[1], no_arm]).probability("arm == 'u'")
    assert "of 3 releases 1 had no answer" in asked.notes[2]


@pytest.mark.levels
def test_heterogeneity_has_its_level_and_finds_a_site_of_another_population():
    """Forty sets of three sites: rejected at 5 % in .05, with room for three standard errors, and mostly where one differs."""
    same, found = [], []
    for i in range(40):
        asked = [*(site(100 + 3 * i + k) for k in range(3)), site(400 + i, ill=0.46)]
        values, errors = np.array([((own := each.probability("ill")).value, own.standard_error) for each in asked]).T
        same.append(heterogeneity_of(values[:3], errors[:3]).pvalue)
        found.append(heterogeneity_of(values[[0, 1, 3]], errors[[0, 1, 3]]).pvalue)
    assert np.mean(np.array(same) < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 40)
    assert np.mean(np.array(same) < 0.5) > 0.25
    assert np.mean(np.array(found) < 0.05) >= 0.85


@pytest.mark.slow
@pytest.mark.usefixtures("rough_representation")
def test_intervals_hold_and_are_about_half_as_wide_as_the_samples_alone():
    """Of a sample two years older they hold within a bound that is true; the test finds two years at times, eight always."""
    asked = (
        "age > 50", "`hours-per-week` > 40", "sex == 'Male'", "income == '>50K'", "income == '>50K' and sex == 'Male'",
    )  # fmt: skip
    domain = ka.Domain(tuple(released().domain[name] for name in ("age", "sex", "hours-per-week", "income")))
    people = pd.concat([demo_rows(name) for name in ("private", "public_sample", "sample")], ignore_index=True)
    means, n = [people.eval(text).mean() for text in asked], 500
    held, found, widths = dict.fromkeys(("same", "contained", "older", "bound"), 0), dict.fromkeys((0, 2, 8), 0), []
    for seed in range(20):
        table, sample = (people.sample(rows, replace=True, random_state=seed + rows) for rows in (4000, n))
        r = publish(table, domain, epsilon=1, delta=1e-6, uncounted=True)
        shifted = {years: ka.combine(r, sample.assign(age=sample["age"] + years)) for years in found}
        both = {
            "same": shifted[0], "older": shifted[2], "contained": ka.combine(r, table.head(n), overlap="contained"),
            "bound": ka.combine(r, sample.assign(age=sample["age"] + 2), bound=0.2),
        }  # fmt: skip
        frames = {kind: one.expectations(asked).to_frame() for kind, one in both.items()}
        for kind, frame in frames.items():
            held[kind] += ((frame["low"] <= means) & (means <= frame["high"])).sum()
        for years, one in shifted.items():
            found[years] += one.check.pvalue < 0.05
        alone = 2 * 1.96 * np.sqrt([sample.eval(text).var() / n for text in asked])
        widths.append((frames["same"]["high"] - frames["same"]["low"]) / alone)
    print(held, found, np.median(widths, axis=0))
    assert min(held[kind] for kind in ("same", "contained", "bound")) >= 88  # of 100: 95 % less three standard errors
    assert np.median(widths, axis=0).max() <= 0.6
    assert found[0] <= 4 and found[2] >= 2 and found[8] == 20
