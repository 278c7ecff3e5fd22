"""One-way tables are tested column by column as well: a difference in one column of many is found, and the level stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from simulated_releases import measured_release, measurement_of

import kmeanalyst as ka
from kmeanalyst.inference.two_sample import noise_aware
from kmeanalyst.inference.two_sample.noise_aware import columns_test, features_of_columns
from kmeanalyst.inference.two_sample.sides import Side
from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.kernels.features.principal import Directions
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.measurement import Measurement

COLUMNS, LEVELS, N, L, TAU = 12, 4, 2000, 400, 0.002
DOMAIN = Domain(tuple(Categorical(name=f"c{j}", levels=tuple("abcd")) for j in range(COLUMNS)))
KERNEL = ChosenMargins(
    ((0.5, 1.5, 2.5),) * COLUMNS, ((),) * COLUMNS, (False,) * COLUMNS, (1.0, 0, 0),
    squares=((1 / COLUMNS,) * COLUMNS, (), ()),
)  # fmt: skip
FEATURES = MarginFeatures(KERNEL)


def rows(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, LEVELS, (n, COLUMNS)).astype(float)


def measured(table: np.ndarray, rng: np.random.Generator) -> Measurement:
    vector = FEATURES(table).mean(axis=0)
    return measurement_of(FEATURES, vector + TAU * rng.normal(size=len(vector)), TAU, len(table))


def release_of(table: np.ndarray, rng: np.random.Generator) -> ka.Release:
    return measured_release(measured(table, rng), DOMAIN, table[:40])


def one_column_moved(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """A seventh of a column's cells has its first level."""
    moved = rows(n, rng)
    moved[: n // 7, 0] = 0
    return DOMAIN.decode(moved)


def test_each_column_has_its_own_features_finer_ones_too_and_pairs_have_none():
    kernel = ChosenMargins(
        ((0.0,), (0.5,)), ((), ()), (False, False), (0.5, 0, 0.5), fine=((-1.0, 0.0, 1.0), ()),
        squares=((0.3, 0.2), (), (0.5,)),
    )  # fmt: skip
    found = features_of_columns(MarginFeatures(kernel))
    assert [block.tolist() for block in found] == [[0, 1, 4, 5, 6, 7], [2, 3]]
    paired = replace(
        kernel, shares=(0.5, 0.5, 0), fine=((), ()), chosen=((0, 1),), squares=((0.3, 0.2), (0.5,), ())
    )  # fmt: skip
    assert features_of_columns(MarginFeatures(paired)) == []


def test_p_is_twice_the_smaller_of_all_together_and_column_by_column(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    release, sample = release_of(rows(N, rng), rng), DOMAIN.decode(rows(L, rng))
    columns, together = [], []
    for name, seen in (("columns_test", columns), ("noise_aware_test", together)):
        own = getattr(noise_aware, name)
        monkeypatch.setattr(noise_aware, name, lambda *given, own=own, seen=seen: seen.append(own(*given)) or seen[-1])
    found = ka.mmd_test(release, sample)
    assert found.pvalue == min(1.0, 2 * min(columns[0], together[0][1])) and found.statistic == together[0][0]


def test_a_difference_in_one_column_is_found_that_is_hidden_among_all():
    rng, found, together = np.random.default_rng(1), 0, 0
    for _ in range(24):
        release, sample = release_of(rows(N, rng), rng), one_column_moved(L, rng)
        result = ka.mmd_test(release, sample)
        found += result.pvalue <= 0.05
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noise_aware, "features_of_columns", lambda _: [])
            together += ka.mmd_test(release, sample).pvalue <= 0.05
    assert found >= 14 and found >= 1.25 * together


def test_the_least_of_many_p_values_is_corrected_for_their_number():
    """Of d ~ N(0, cΣ + τ²I) with Σ known, 100 draws: standard error .022; without the correction most draws are rejected."""
    rng, shrink = np.random.default_rng(2), 1 / N + 1 / L
    covariance = np.cov(FEATURES(rows(20_000, rng)).T)
    variances, vectors = np.linalg.eigh(covariance)
    kept = variances > 1e-9
    directions = Directions(vectors[:, kept], variances[kept])
    moments = Side(DOMAIN, FEATURES, mean=np.zeros(len(variances)), covariance=np.diag(variances[kept]), n_rows=L)
    measurement = measured(rows(N, rng), rng)
    root = vectors * np.sqrt(np.maximum(shrink * variances, 0) + TAU**2)
    p = np.array([
        columns_test(root @ rng.normal(size=len(variances)), directions, moments, shrink, measurement) for _ in range(100)
    ])  # fmt: skip
    assert (p <= 0.05).mean() < 0.12
    assert (p / (2 * COLUMNS) <= 0.05).mean() > 0.3


def test_a_column_of_one_value_counts_as_a_test_and_shows_nothing():
    rng, shrink = np.random.default_rng(3), 1 / N + 1 / L
    vectors = np.eye(COLUMNS * LEVELS)[:, LEVELS:]  # none along the first column
    variances = np.ones(vectors.shape[1])
    moments = Side(DOMAIN, FEATURES, mean=np.zeros(len(vectors)), covariance=np.diag(variances), n_rows=L)
    measurement = measured(rows(N, rng), rng)
    given = (Directions(vectors, variances), moments, shrink, measurement)
    assert columns_test(np.eye(len(vectors))[0], *given) == 1.0
    assert columns_test(np.eye(len(vectors))[-1], *given) < 1e-9
