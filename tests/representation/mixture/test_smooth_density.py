"""Values within wide ranges lie where those of their neighbours say, not evenly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.mixture.smooth_density import smooth_shares
from kmeanalyst.representation.mixture.within_cells import fine_ranges

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


def test_values_in_cells_follow_the_density():
    """Fine shares are all noise here: without the density the variance is that of even values, 1.25."""
    inner = (-2.0, -1.0, 0.0, 1.0, 2.0)
    kernel = Margins((inner,), ((),), (False,), (0.8, 0, 0, 0, 0.2, 0), fine=(tuple(ENDS[1:-1]),))
    features = MarginFeatures(kernel)
    measurement = Measurement(
        vector=np.concatenate([SHARES, TRUTH]) * np.repeat(features.heights, [6, 80]), noise_scale=5.0, noise_law="gaussian",
        n_rows=1000, feature_map=features, noisy_sum=np.zeros(86, dtype=np.int64),
    )  # fmt: skip
    domain = Domain((Real(name="x", lower=-4, upper=4, edges=inner),))
    (found,) = fine_ranges(measurement, domain, SHARES[None]).values()
    middles = (found.ends[:-1] + found.ends[1:]) / 2
    assert (SHARES[found.cell] * found.probabilities[0]) @ middles**2 == pytest.approx(1.0, abs=0.1)
