"""Values within wide ranges lie where those of their neighbours say, not evenly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from kmeanalyst.representation.mixture.smooth_density import smooth_shares

ENDS = np.linspace(-4, 4, 81)
CELL = np.searchsorted([-2.0, -1.0, 0.0, 1.0, 2.0], (ENDS[:-1] + ENDS[1:]) / 2, side="right")
TRUTH = np.diff(norm.cdf(ENDS))
SHARES = np.bincount(CELL, TRUTH)


def test_a_normal_number_keeps_its_variance_where_only_wide_ranges_are_known():
    """Even within ranges its variance would be 1.25 times as large."""
    middles = (ENDS[:-1] + ENDS[1:]) / 2
    even = SHARES[CELL] / np.bincount(CELL)[CELL]
    found = smooth_shares(ENDS, np.ones(80), CELL, SHARES, np.zeros(80), 10.0)
    assert found.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(np.bincount(CELL, found), SHARES, atol=0.01)
    assert even @ middles**2 > 1.2 and found @ middles**2 == pytest.approx(1.0, abs=0.08)


def test_fine_shares_that_are_known_well_are_followed():
    """The top of a bump that ranges do not show."""
    bump = TRUTH + np.where(np.abs(ENDS[:-1] - 1.45) < 0.3, 0.02, 0.0)
    bump /= bump.sum()
    found = [smooth_shares(ENDS, np.ones(80), CELL, np.bincount(CELL, bump), bump, noise) for noise in (1e-4, 10.0)]
    known, unknown = (np.abs(shares - bump).sum() for shares in found)
    assert known < 0.7 * unknown


def test_ranges_without_values_have_no_share_and_huge_bounds_are_no_problem():
    sizes = np.where(np.arange(80) == 3, 0.0, 1.0)
    found = smooth_shares(ENDS * 4e307, sizes, CELL, SHARES, np.zeros(80), 10.0)
    assert found[3] == 0 and np.isfinite(found).all()
