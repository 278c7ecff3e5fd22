"""Odds ratios, survival curves and standardised rates: what they equal on plain rows, and how often their errors hold the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from statsmodels.duration.survfunc import SurvfuncRight
from statsmodels.stats.contingency_tables import StratifiedTable

import kmeanalyst as ka
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.representation import wanted
from release_side import publish

DOMAIN = Domain((
    Integer(name="time", lower=1, upper=12), Boolean(name="died"), Categorical(name="arm", levels=("old", "new")),
    Categorical(name="site", levels=("north", "south", "east")), Real(name="dose", lower=0, upper=1),
))  # fmt: skip


def rows(n: int, seed: int) -> pd.DataFrame:
    """Events at geometric times, later in the new arm, watched for a while; the sites have different arms."""
    rng = np.random.default_rng(seed)
    site = rng.integers(0, 3, n)
    new = rng.random(n) < 0.3 + 0.2 * site
    event, end = rng.geometric(np.where(new, 0.1, 0.2)), rng.integers(1, 14, n)
    return pd.DataFrame({
        "time": np.minimum(np.minimum(event, end), 12), "died": (event <= end) & (event <= 12),
        "arm": np.where(new, "new", "old"), "site": np.array(["north", "south", "east"])[site], "dose": rng.random(n),
    })  # fmt: skip


def plain(n: int, seed: int) -> Release:
    return ka.from_frame(rows(n, seed).assign(weight=1 / n), domain=DOMAIN)


@pytest.fixture(scope="module")
def private() -> Release:
    table = rows(6000, 1).astype(str)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", wanted.QUICK)
        return publish(table, DOMAIN, epsilon=1, delta=1e-6, kernel="margins", target="died", rehearsal=1, uncounted=True)


def tables(frame: pd.DataFrame) -> list[np.ndarray]:
    return [
        np.array([[((own["died"] == d) & (own["arm"] == arm)).sum() for arm in ("new", "old")] for d in (True, False)])
        for _, own in frame.groupby("site")
    ]


def test_on_plain_rows_the_common_odds_ratio_is_mantels_and_haenszels():
    """Their standard error of the logarithm is that of Robins, Breslow & Greenland 1986: the delta method's to a few percent."""
    frame = rows(3000, 2)
    found = plain(3000, 2).odds_ratio("died", "arm == 'new'", given="site")
    expected = StratifiedTable(tables(frame))
    assert found.value == pytest.approx(expected.oddsratio_pooled)
    assert found.standard_error == pytest.approx(found.value * expected.logodds_pooled_se, rel=0.03)
    np.testing.assert_allclose(found.interval(), expected.oddsratio_pooled_confint(), rtol=0.02)


def test_without_a_column_it_is_the_tables_own_and_its_error_is_woolfs():
    own = np.sum(tables(rows(3000, 3)), axis=0)
    found = plain(3000, 3).odds_ratio("died", "arm == 'new'")
    assert found.value == pytest.approx(own[0, 0] * own[1, 1] / own[0, 1] / own[1, 0])
    assert found.standard_error / found.value == pytest.approx(np.sqrt((1 / own).sum()))
    assert found.question == "odds ratio of died by arm == 'new'" and found.interval(0.9)[0] > 0


def test_of_a_release_its_error_has_all_parts(private):
    found = private.odds_ratio("died", "arm == 'new'", given="site")
    truth = StratifiedTable(tables(rows(200_000, 5))).oddsratio_pooled
    low, high = found.interval()
    assert low < truth < high and min(found.parts.values()) > 0
    assert found.parts["sampling"] < found.standard_error < 0.5


def test_a_combination_that_may_be_empty_leaves_odds_of_0_or_without_an_end():
    """Fieller's interval by hand: of means of rows n = 60, one of which has the combination; with 3,000 rows Woolf's is wider."""
    values = {"died": [True] * 20 + [False] * 40, "arm": ["new"] * 1 + ["old"] * 19 + ["new"] * 25 + ["old"] * 15}
    few = ka.from_frame(pd.DataFrame(values | {"site": "north", "dose": 0.5, "time": 1, "weight": 1 / 60}), domain=DOMAIN)
    found = few.odds_ratio("died", "arm == 'new'")
    assert found.interval()[0] == 0 and found.interval()[1] == pytest.approx(found.value * np.exp(
        1.96 * np.sqrt(1 + 1 / 19 + 1 / 25 + 1 / 15)), rel=1e-3)  # fmt: skip
    other = few.odds_ratio("not (died)", "arm == 'new'")
    assert other.interval()[1] == np.inf and other.to_dict()["interval"][0] == pytest.approx(1 / found.interval()[1])


def test_on_plain_rows_the_curve_is_kaplans_and_meiers():
    frame = rows(800, 6)
    expected = SurvfuncRight(frame["time"], frame["died"].astype(int))
    found = plain(800, 6).survival("time", "died").curve
    np.testing.assert_allclose(found["survival"].loc[expected.surv_times], expected.surv_prob)
    np.testing.assert_allclose(found["standard_error"].loc[expected.surv_times], expected.surv_prob_se, rtol=1e-6)
    assert found["at_risk"].iloc[0] == pytest.approx(1.0)


def test_wide_ranges_of_time_count_half_of_those_that_leave():
    """The life table of Cutler & Ederer, by hand: ten rows in two ranges, one event and two ends in the first."""
    domain = Domain((Real(name="time", lower=0, upper=10, edges=(5,)), Boolean(name="died")))
    frame = pd.DataFrame({"time": [1.0, 2, 3] + [7] * 7, "died": [True, False, False] + [True] * 3 + [False] * 4})
    release = ka.from_frame(frame.assign(weight=0.1), domain=domain)
    curve = release.survival("time", "died").curve
    np.testing.assert_allclose(curve["survival"].loc[[5, 10]], [8 / 9, 8 / 9 * (1 - 3 / 5)])
    first, second = (1 / 8 - 1 / 10) / 2, (1 - 3 / 7) / 2  # half of what it matters when they leave
    np.testing.assert_allclose(curve["resolution"].loc[[5, 10]], [first, np.hypot(first * 2 / 5, second * 8 / 9)])
    with pytest.raises(ValueError, match="too few rows are at risk for a survival curve"):
        release.survival("time", "died", where="time == 1")


def test_the_band_holds_the_whole_curve_and_the_intervals_each_time():
    """25 samples of 400: a band of 90 % misses the curve in more than 8 with probability .001."""
    truth = plain(50_000, 7).survival("time", "died").curve["survival"]
    missed, pointwise = 0, []
    for seed in range(25):
        found = plain(400, 100 + seed).survival("time", "died", level=0.9).curve
        own = truth.loc[found.index]
        missed += not ((found["band_low"] <= own) & (own <= found["band_high"])).all()
        pointwise.append(((found["low"] <= own) & (own <= found["high"])).mean())
    assert 1 <= missed <= 8
    assert 0.84 <= np.mean(pointwise) <= 0.96


def test_of_a_release_the_curve_ends_where_noise_hides_who_is_at_risk(private):
    truth = plain(50_000, 7).survival("time", "died").curve["survival"]
    found = private.survival("time", "died")
    curve = found.curve
    assert (np.diff(curve["survival"]) <= 0).all() and curve[["low", "band_low"]].min().min() >= 0
    own = truth.loc[curve.index]
    assert ((curve["band_low"] <= own) & (own <= curve["band_high"])).all() and (curve["privacy"] > 0).all()
    assert not any("no table" in note for note in found.notes)
    middle = curve.iloc[3]
    assert middle["survival"] - middle["band_low"] > 1.2 * (middle["survival"] - middle["low"])
    assert middle["band_high"] - middle["survival"] > 1.2 * (middle["high"] - middle["survival"])
    among = private.survival("time", "died", where="arm == 'new'")
    assert among.curve["survival"].iloc[3] > curve["survival"].iloc[3] and among.median() > found.median()
    few = private.survival("time", "died", where="arm == 'new' and dose < 0.04")
    assert any("too few are at risk" in note for note in few.notes) and len(few.curve) < len(curve)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_values_that_are_counted_by_themselves_are_times(scale):
    time = Integer(name="time", lower=1, upper=12, scale=scale, edges=(6,), atoms=(2, 3))
    release = publish(
        rows(2000, 1)[["time", "died"]].astype(str), Domain((time, DOMAIN["died"])), epsilon=5, delta=1e-6, kernel="margins",
        rehearsal=1, uncounted=True,
    )  # fmt: skip
    assert list(release.survival("time", "died").curve.index) == [1, 2, 3, 5, 12]


def test_a_pair_that_was_not_measured_is_said(private):
    assert any("no table of arm × dose × time was measured" in note
               for note in private.survival("time", "arm == 'new' and dose > 0.5").notes)  # fmt: skip


def test_a_standardised_rate_is_the_mean_of_the_groups_in_these_shares():
    release = plain(2000, 9)
    by_site = release.groupby("site").probability("died")
    shares = {"north": 1.0, "south": 2.0, "east": 1.0}
    found = release.standardised("died", by="site", population=shares)
    assert found.value == pytest.approx(by_site["value"] @ np.array([0.25, 0.5, 0.25]))
    assert found.standard_error == pytest.approx(np.sqrt(by_site["standard_error"] ** 2 @ np.array([0.25, 0.5, 0.25]) ** 2))
    conditions = {"site == 'north'": 0.25, "site == 'south'": 0.5, "site == 'east'": 0.25}
    assert release.standardised("died", population=conditions).value == pytest.approx(found.value)
    assert found.question == "died standardised by site"


def test_in_its_own_shares_the_rate_is_the_crude_one(private):
    own = dict(private.histogram("site")["probability"])
    found, crude = private.standardised("died", by="site", population=own), private.probability("died")
    assert found.value == pytest.approx(crude.value, rel=1e-6)


def test_what_has_no_rate_is_refused():
    domain = Domain((*DOMAIN.columns, Date(name="day", lower="2020-01-01", upper="2021-01-01")))
    release = ka.from_frame(rows(300, 8).assign(day="2020-05-05", weight=1 / 300), domain=domain)
    refusals.check(Path(__file__).parent / "refusals_rates.txt", lambda text: eval(text, globals(), {"r": release}))
