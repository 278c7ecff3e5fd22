"""Expected scores of samples: against sums over the hypergeometric distribution, against drawn samples, and their inverse."""

from __future__ import annotations

import numpy as np
import pytest
from every import every
from scipy.stats import hypergeom

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.representation.tables.score_tables import ScoreTables, k_marginal, shares_of
from kmeanalyst.representation.tables.sub_sample import SampleScores, mean_absolute_deviation

DOMAIN = Domain(
    tuple(Categorical(name=name, levels=tuple("abcde"[:size])) for name, size in zip("xyz", (3, 4, 5), strict=True))
)
X = np.random.default_rng(0).integers(0, (3, 4, 5), (800, 3)).astype(float)
GROUP = every("group", [None, 0])


def scores_of(group: int | None) -> tuple[ScoreTables, SampleScores]:
    tables = ScoreTables(DOMAIN, group)
    samples = SampleScores.of(tables, tables.counts(X))
    assert samples is not None
    return tables, samples


@every(("N", "n"), [(20, 7), (31, 16), (50, 1), (50, 49), (50, 50)])
def test_the_mean_absolute_deviation_is_that_of_the_hypergeometric_distribution(N: int, n: int):
    k = np.arange(N + 1)
    x = np.arange(n + 1)[:, None]
    expected = (np.abs(x - n * k / N) * hypergeom.pmf(x, N, k, n)).sum(axis=0)
    assert mean_absolute_deviation(N, k, n) == pytest.approx(expected, abs=1e-12)


def test_for_many_rows_it_is_that_of_the_normal_distribution():
    variance = 1e7 * 0.1 * 0.9 * 0.9  # n k/N (1 − k/N) (1 − n/N), all but 1/N
    assert mean_absolute_deviation(10**8, np.array([10**7]), 10**7) == pytest.approx(
        np.sqrt(2 / np.pi * variance), rel=1e-4
    )


@GROUP
@every("n", [5, 80, 700])
def test_the_expected_score_is_the_mean_of_drawn_samples(group: int | None, n: int):
    tables, samples = scores_of(group)
    p, rng = shares_of(tables, tables.counts(X)), np.random.default_rng(n)
    drawn = [
        k_marginal(tables, p, shares_of(tables, tables.counts(X[rng.choice(len(X), n, replace=False)])))
        for _ in range(400)
    ]
    error = float(np.std(drawn)) / 20
    expected = float(samples.score(np.array([n]))[0])
    assert abs(np.mean(drawn) - expected) < 4 * error  # fails once in 16,000 seeds
    assert abs(np.mean(drawn) - float(samples.score(np.array([n * 0.8]))[0])) > 4 * error  # the power of this test


@GROUP
def test_more_rows_are_nearer_and_all_rows_are_the_table(group: int | None):
    scores = scores_of(group)[1].score(np.arange(1, 801))
    assert (np.diff(scores) > -1e-9).all()
    assert scores[-1] == 1000


@GROUP
def test_the_rows_of_a_score_invert_the_score_of_rows(group: int | None):
    samples = scores_of(group)[1]
    for n in (1, 2, 17, 400, 799, 800):
        assert samples.rows_of(float(samples.score(np.array([n]))[0])) == pytest.approx(n, abs=0.01)
    low, high = samples.score(np.array([30, 31]))
    assert samples.rows_of((low + high) / 2) == pytest.approx(30.5, abs=1e-6)
    assert samples.rows_of(0.0) == 0
    assert samples.rows_of(1000.0) == 800


def test_the_number_of_rows_counts_and_not_their_share():
    """Ten times the table: the same score needs nearly as many rows, a tenth of the share."""
    tables, samples = scores_of(None)
    longer = SampleScores.of(tables, 10 * tables.counts(X))
    assert longer is not None
    score = float(samples.score(np.array([40]))[0])
    assert longer.rows_of(score) == pytest.approx(40 * (1 - 40 / 8000) / (1 - 40 / 800), rel=0.01)


def test_without_pairs_or_rows_there_is_nothing_to_compare():
    alone = ScoreTables(Domain((DOMAIN.columns[0],)))
    assert SampleScores.of(alone, alone.counts(X[:, :1])) is None
    assert SampleScores.of(ScoreTables(DOMAIN), ScoreTables(DOMAIN).counts(X[:0])) is None
