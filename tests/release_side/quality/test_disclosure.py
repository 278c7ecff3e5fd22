"""synthpop's measures against its own arithmetic on tables of keys by target, and copies by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kmeanalyst.kernels.base import Array
from release_side.quality.disclosure import copies, synthpop_scores


def as_synthpop_does(table: tuple[Array, Array], release: tuple[Array, Array]) -> dict[str, float]:
    """The tables of `disclosure` (synthpop 1.9): target × keys, of the original (d) and the synthetic rows (s)."""
    keys, values = (np.union1d(one, other) for one, other in zip(table, release, strict=True))

    def crossed(rows: tuple[Array, Array]) -> Array:
        found = pd.crosstab(rows[1], rows[0]).reindex(index=values, columns=keys, fill_value=0)
        return found.to_numpy()

    d, s, N = crossed(table), crossed(release), len(table[0])
    with np.errstate(all="ignore"):
        d_shares, s_shares = np.nan_to_num(d / d.sum(axis=0)), np.nan_to_num(s / s.sum(axis=0))
    once = d.sum(axis=0) == 1
    return {
        "UiO": 100 * d.sum(axis=0)[once].sum() / N,
        "repU": 100 * d.sum(axis=0)[once & (s.sum(axis=0) == 1)].sum() / N,
        "DiSCO": 100 * d[s_shares == 1].sum() / N,
        "Dorig": 100 * d[d_shares == 1].sum() / N,
    }


@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_synthpop(seed: int):
    rng = np.random.default_rng(seed)
    table, release = ((rng.integers(0, 90, n), rng.integers(0, 3, n) ** 2) for n in (80, 60))
    found = synthpop_scores(("key",), "target", table, release)
    expected = as_synthpop_does(table, release)
    assert min(expected.values()) > 0
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, abs=1e-12), name


def test_measures_by_hand():
    """Keys 1 and 2 are unique in the table; the release has 1 once with another value, 3 twice with one value, 9 elsewhere."""
    table = np.array([1, 2, 3, 3]), np.array([0, 0, 1, 0])
    release = np.array([1, 3, 3, 9]), np.array([1, 1, 1, 0])
    found = synthpop_scores(("key",), "target", table, release)
    assert (found.UiO, found.repU) == (50, 25)
    assert found.DiSCO == 25  # one of the two rows of key 3 has the value that the release tells
    assert found.Dorig == 50  # keys 1 and 2; key 3 has both values
    without = synthpop_scores(("key",), None, table, release)
    assert (without.repU, without.DiSCO, without.Dorig) == (25, None, None)


def test_a_release_without_a_key_that_tells_has_no_attribute_disclosure():
    table = np.array([1, 2]), np.array([0, 1])
    assert synthpop_scores(("key",), "t", table, (np.array([1, 1]), np.array([0, 1]))).DiSCO == 0
    empty = np.zeros(0, dtype=np.int64)
    assert synthpop_scores(("key",), "t", table, (empty, empty)).DiSCO == 0


def test_copies_are_counted_for_each_point_and_compared_with_halves_of_the_table():
    table = np.repeat(np.arange(50, dtype=np.uint64), 2)  # each row twice
    found = copies(table, np.array([1, 1, 2, 99, 100, 101], dtype=np.uint64))
    assert (found.points, found.equal) == (6, 3)
    # a row's twin is in the other half with probability 50/99: the mean of 50 rows, of deviation .05 or less
    assert found.expected == pytest.approx(6 * 50 / 99, abs=6 * 0.25)
    assert copies(table, table).equal == 100
    assert copies(np.arange(100, dtype=np.uint64), table).expected == 0
    assert copies(table, table) == copies(table, table)  # the seed is fixed
