"""Forecasts of scores need public facts alone, follow what they are given, and come near what releases have."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from curator_calls import call

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.representation import wanted
from kmeanalyst.representation.tables import rows_from_tables
from kmeanalyst.representation.tables.score_tables import ScoreTables, k_marginal, shares_of
from kmeanalyst.representation.tables.sub_sample import SampleScores
from kmeanalyst.representation.wanted import QUICK
from release_side import plan, publish
from release_side.errors import PublishError
from release_side.publishing import forecast as forecasting
from release_side.publishing.forecast import Forecaster
from release_side.publishing.made_tables import made_rows
from release_side.publishing.methods import chosen_method, method_class
from release_side.publishing.simulated import SyntheticRows

BUDGET: dict[str, Any] = {"rows": 3000, "delta": 1e-6, "epsilon": [1.0]}
SCORES = [f"{name}{end}" for name in ("k_marginal", "sample_share") for end in ("_low", "", "_high")]


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain((
        Integer(name="age", lower=0, upper=99, edges=(18, 30, 45, 65), missing=True),
        Categorical(name="city", levels=("Basel", "Genf", "Bern", "Chur")),
        Integer(name="gain", lower=0, upper=500, atoms=(0,)),
        Boolean(name="worker"),
        Categorical(name="school", levels=tuple("abcde")),
    ))  # fmt: skip


@pytest.fixture
def rough_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "EFFORT", QUICK)


@pytest.fixture
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "TABLES", (2, 2))


def forecaster(
    domain: Domain, rows: int, sample: Array | None = None, *, group: int | None = None, **options: Any
) -> Forecaster:
    kind = method_class("random-features")
    choices = kind.options(**options)
    method: Any = chosen_method("random-features", choices, domain)
    tables, size = ScoreTables(domain, group), PopulationSize(rows)
    return Forecaster(method, lambda e, seed: kind(choices).mechanism(e, 1e-6, seed), tables, size, sample)


def silent(what: str, share: float) -> None:
    """Report nothing."""


def people(domain: Domain, n: int, seed: int) -> pd.DataFrame:
    """Rows whose columns depend on a common age."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, n)
    worker = rng.random(n) < np.where((age > 18) & (age < 65), 0.8, 0.05)
    gain = np.where(worker & (rng.random(n) < 0.3), rng.integers(1, 501, n), 0)
    school = np.minimum(rng.poisson(1 + 2 * (age > 18)), 4)
    return domain.decode(np.column_stack([age, rng.integers(0, 4, n), gain, worker, school]).astype(float))


def outcome(domain: Domain, table: pd.DataFrame, seed: int) -> tuple[float, float]:
    """The k-marginal of a release of a table at ε = 1 against that table, and the share of rows with it."""
    release = publish(table, domain, epsilon=1.0, delta=1e-6, rehearsal=seed)
    tables = ScoreTables(domain)
    counts = tables.counts(domain.encode(table))
    of_release = tables.counts(release.encoded_points, release.weights)
    score = k_marginal(tables, shares_of(tables, counts), shares_of(tables, of_release))
    samples = SampleScores.of(tables, counts)
    assert score is not None and samples is not None
    return score, samples.rows_of(score) / samples.n_rows


# ---------------------------------------------------------------------- what a plan says


def test_a_plan_has_a_range_for_each_budget_and_the_range_rises_with_it(domain, few_tables):
    table = plan(domain, **(BUDGET | {"epsilon": [0.1, 10.0]}))
    at = list(table.columns).index("file_bytes")
    assert list(table.columns)[at + 1 :] == SCORES
    low, mean, high = (table[name].to_numpy() for name in SCORES[:3])
    assert (low > 0).all() and (low <= mean).all() and (mean <= high).all() and (high < 1000).all()
    assert (np.diff([low, mean, high]) > 0).all()
    shares = table[SCORES[3:]].to_numpy()
    assert (shares > 0).all() and (shares < 1).all() and (np.diff(shares, axis=1) >= 0).all()
    assert shares[1, 1] > shares[0, 1]


def test_the_same_facts_give_the_same_forecast(domain, few_tables):
    first, second = (forecaster(domain, 3000).forecast([1.0], silent) for _ in range(2))
    assert first == second


def test_scores_are_forecast_where_it_is_quick_and_on_request(domain, few_tables, rough_points):
    features: dict[str, Any] = {"kernel": "table", "features": 60, "points": 20}
    assert "k_marginal" not in plan(domain, **BUDGET, **features)
    assert "k_marginal" not in plan(domain, **BUDGET, score=False)
    assert 0 < plan(domain, **BUDGET, **features, score=True).k_marginal[0] < 1000


def test_signed_weights_are_scored_as_probabilities(domain, few_tables, rough_points):
    signed = plan(domain, **BUDGET, kernel="table", features=60, points=20, weights="signed", score=True)
    assert 0 < signed.k_marginal[0] < 1000  # Σ|p − q| ≤ 2 of probabilities alone


def test_without_two_columns_there_is_nothing_to_forecast(domain):
    alone = Domain((domain["city"],))
    assert plan(alone, **BUDGET)[SCORES].isna().all(axis=None)


def test_a_group_is_that_of_the_score(domain, few_tables):
    pooled, grouped = (plan(domain, **BUDGET, score=True, group=group).k_marginal[0] for group in (None, "city"))
    assert grouped < pooled  # more cells, and three columns that no table holds


def test_progress_of_the_forecast_goes_to_its_end(domain, few_tables):
    seen: list[float] = []
    forecaster(domain, 3000).forecast([0.1, 1.0], lambda what, share: seen.append(share))
    assert seen == [0.25, 0.5, 0.75, 1.0]


# ---------------------------------------------------------------------- tables from public facts


def test_synthetic_tables_lie_in_the_domain_with_its_atoms_and_missing_cells(domain):
    for number in range(4):
        rows = made_rows(domain, 2000, number, 4, np.random.default_rng(number), None)
        np.testing.assert_array_equal(domain.encode(domain.decode(rows)), rows)
    assert np.isnan(rows[:, 0]).any() and 0 < np.mean(rows[:, 2] == 0) < 1


def dependence(domain: Domain, rows: Array) -> float:
    """Mean total variation of pairs from independence."""
    tables = ScoreTables(domain)
    p = shares_of(tables, tables.counts(rows))
    alone = [tables.table(p, index) for index in range(len(domain))]
    pairs = enumerate(tables.pairs, start=len(domain))
    return float(np.mean([np.abs(tables.table(p, k) - np.outer(alone[i], alone[j])).sum() / 2 for k, (i, j) in pairs]))


@pytest.mark.parametrize("kind", [0, 1], ids=["factors", "classes"])
def test_later_synthetic_tables_depend_more(domain, kind):
    def mean(number: int) -> float:
        made = [made_rows(domain, 2000, number, 8, np.random.default_rng(seed), None) for seed in range(12)]
        return float(np.mean([dependence(domain, rows) for rows in made]))

    weak, middle, strong = (mean(kind + 2 * step) for step in (0, 1, 3))
    assert weak < middle < strong and strong > 2 * weak


def test_texts_of_a_synthetic_table_are_those_of_public_rows(domain):
    space = Domain((Text(name="name", length=6), domain["city"], domain["worker"]))
    public = space.encode(
        pd.DataFrame({"name": ["ada", "bob"], "city": ["Basel", "Genf"], "worker": ["True", "False"]})
    )
    rows = made_rows(space, 500, 1, 2, np.random.default_rng(0), public)
    frame = space.decode(rows)
    assert set(frame["name"]) == {"ada", "bob"} and set(frame["city"]) <= {"Basel", "Genf", "Bern", "Chur"}


# ---------------------------------------------------------------------- a public sample


def test_with_a_like_population_the_forecast_is_near_the_outcome(domain):
    """The standard deviation between draws of the noise is about 3 points here."""
    table, sample = (people(domain, 3000, seed) for seed in (1, 2))
    row = plan(domain, **BUDGET, public_sample=sample).iloc[0]
    scores, shares = np.mean([outcome(domain, table, 100 + seed) for seed in range(6)], axis=0)
    assert row.k_marginal == pytest.approx(scores, abs=10)
    assert row.sample_share == pytest.approx(shares, rel=0.25)


def test_a_sample_of_fewer_rows_than_the_table_is_extrapolated_to_its_size(domain, monkeypatch):
    """Where scores are 900 − 1000/√rows, the score of 400 rows becomes that of 1,600: 900 − 1000/40."""
    sample = domain.encode(people(domain, 400, 3))
    monkeypatch.setattr(Forecaster, "_score", lambda self, rows, *_, **__: 900 - 1000 / math.sqrt(len(rows.rows)))
    (found,) = forecaster(domain, 1600, sample).forecast([1.0], silent)
    assert found["k_marginal"] == pytest.approx(875.0)


def test_what_smoothing_adds_is_added_to_the_forecast(domain, monkeypatch):
    sample = domain.encode(people(domain, 2000, 3))
    monkeypatch.setattr(Forecaster, "_score", lambda *_, cells_only=True: 900.0 if cells_only else 893.0)
    (found,) = forecaster(domain, 2000, sample).forecast([1.0], silent)
    assert found["k_marginal_low"] == found["k_marginal_high"] == 893.0


def test_the_share_of_rows_is_that_of_a_table_of_as_many_rows_as_the_private_one(domain):
    rows = SyntheticRows(domain.encode(people(domain, 1000, 4)))
    few, many = (forecaster(domain, n)._sample_share(rows, 950.0) for n in (1000, 100_000))
    tables = ScoreTables(domain)
    samples = SampleScores.of(tables, tables.counts(rows.rows))
    assert samples is not None
    assert few == pytest.approx(samples.rows_of(950.0) / 1000)
    assert many < few / 20  # as many rows have the score, whatever N is, but for samples of most of the table


def test_small_tables_are_published_more_often(domain):
    small, large = (forecaster(domain, n)._runs() for n in (1000, 10**6))
    assert (small, large) == (32, 10)  # 10 pairs of columns


def test_a_large_table_and_its_release_are_scored_on_fewer_rows(domain, monkeypatch):
    monkeypatch.setattr(forecasting, "MOST_ROWS", 500)
    sizes: list[int] = []
    counts = ScoreTables.counts
    monkeypatch.setattr(ScoreTables, "counts", lambda *a: (sizes.append(len(a[1])), counts(*a))[1])
    forecaster(domain, 10**6).forecast([1.0], silent)
    assert set(sizes) == {500}


# ---------------------------------------------------------------------- refusals and the command


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": "town"}, r"group: there is no column 'town'\. Name one of age"),
        ({"score": False, "group": "city"}, r"the forecast of scores, which is left out\. Forecast"),
        ({"public_sample": "few"}, r"has 99 rows, and a forecast needs at least 100: .*\. Pass more"),
        ({"public_sample": "none"}, r"the public sample has no rows\. Name one that has"),
    ],
)
def test_what_cannot_be_forecast_is_refused_before_anything_is_simulated(domain, options, message, monkeypatch):
    samples = {"few": people(domain, 99, 0), "none": people(domain, 99, 0).iloc[:0]}
    monkeypatch.setattr("release_side.publishing.plan._simulate", lambda *_: pytest.fail("simulated"))
    options = {name: samples.get(value, value) if name == "public_sample" else value for name, value in options.items()}
    with pytest.raises(PublishError, match=message):
        plan(domain, **BUDGET, **options)


def test_texts_are_no_group(domain):
    space = Domain((domain["city"], domain["worker"], Text(name="name", length=6)))
    public = pd.DataFrame({"name": ["ada", "bob"], "city": ["Basel", "Genf"], "worker": ["True", "False"]})
    with pytest.raises(PublishError, match=r"name is a column of texts, which has no cells\. Name a column"):
        plan(space, **BUDGET, method="subspace", public_points=public, group="name")


@pytest.fixture
def toml(domain: Domain, tmp_path: Path) -> str:
    (tmp_path / "domain.toml").write_text(domain_toml(domain), encoding="utf-8")
    return str(tmp_path / "domain.toml")


SOUND = ["--rows", "3000", "--delta", "1e-6", "--epsilon", "1"]


def test_the_printed_table_has_both_ranges(domain, toml, few_tables):
    result = call("plan", "--domain", toml, *SOUND)
    head, line, _ = result.stdout.splitlines()
    assert re.split(r"\s{2,}", head.strip())[-2:] == ["k-marginal", "like a sample"]
    row = plan(domain, **BUDGET).iloc[0]
    cells = re.split(r"\s{2,}", line.strip())
    assert cells[-2] == f"{row.k_marginal_low:.0f} to {row.k_marginal_high:.0f}"
    assert cells[-1] == f"{100 * row.sample_share_low:.2g} to {100 * row.sample_share_high:.2g} %"


def test_a_sample_can_be_a_file_and_json_has_numbers(domain, toml, few_tables, tmp_path):
    people(domain, 300, 5).to_csv(tmp_path / "sample.csv", index=False)
    found = call(
        "plan", "--domain", toml, *SOUND, "--public-sample", tmp_path / "sample.csv", "--group", "city", "--json"
    )
    (row,) = json.loads(found.stdout)["plans"]
    assert all(isinstance(row[name], float) for name in SCORES)


def test_the_forecast_can_be_left_out(toml):
    assert "k-marginal" not in call("plan", "--domain", toml, *SOUND, "--no-score").stdout


def test_one_column_has_no_score(domain, tmp_path):
    (tmp_path / "one.toml").write_text(domain_toml(Domain((domain["city"],))), encoding="utf-8")
    assert (
        call("plan", "--domain", tmp_path / "one.toml", *SOUND).stdout.splitlines()[1].endswith("none           none")
    )


def test_of_rows_from_chosen_pairs_only_the_cells_are_made(domain, few_tables, monkeypatch):
    """At ε = 10 tables are seen well, and publishing would smooth them."""
    for step in ("fit_classes_to", "fine_ranges"):
        monkeypatch.setattr(rows_from_tables, step, lambda *_, **__: pytest.fail("more than cells"))
    forecaster(domain, 3000).forecast([10.0], silent)
