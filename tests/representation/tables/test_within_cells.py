"""Values of numbers within cells: they follow the relation between cells and the density that ranges show; cells keep theirs."""

from __future__ import annotations

import numpy as np
import pytest
from every import every
from scipy.stats import norm

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables import within_cells

N = 6000


def shuffled(x: Array, ranges: Array, rng: np.random.Generator) -> Array:
    """The values of each column, exchanged at random within each range: what independent draws would give."""
    found = x.copy()
    for j in range(x.shape[1]):
        for cell in np.unique(ranges[:, j]):
            rows = np.flatnonzero(ranges[:, j] == cell)
            found[rows, j] = x[rng.permutation(rows), j]
    return found


def correlated(rho: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Two skewed numbers whose ranks are those of normals with this correlation, and their ranges: three, and two."""
    x = np.exp(rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], N))
    return x, np.column_stack([np.digitize(x[:, 0], [0.6, 1.8]), np.digitize(x[:, 1], [1.0])])


@every("rho", [0.9, -0.7, 0.0])
def test_a_relation_between_ranges_is_continued_within_them(rho: float):
    rng = np.random.default_rng(0)
    x, ranges = correlated(rho, rng)
    drawn = shuffled(x, ranges, rng)
    found = within_cells.with_related_values(drawn, ranges, ranges, rng)
    true, lost, kept = (np.corrcoef(np.log(each).T)[0, 1] for each in (x, drawn, found))
    assert abs(kept - true) < 0.04
    assert rho == 0 or abs(lost - true) > 0.15


def test_every_group_keeps_its_values():
    rng = np.random.default_rng(1)
    x, ranges = correlated(0.8, rng)
    x[:50, 1] = np.nan
    groups = 10 * ranges + rng.integers(0, 2, (N, 2))
    groups[:50, 1] = 99
    found = within_cells.with_related_values(x, ranges, groups, rng)
    for j in range(2):
        for group in np.unique(groups[:, j]):
            own = groups[:, j] == group
            np.testing.assert_array_equal(np.sort(found[own, j]), np.sort(x[own, j]))
    assert np.isnan(found[:50, 1]).all() and np.isfinite(found[50:]).all()


def test_numbers_that_repeat_one_another_are_no_error():
    rng = np.random.default_rng(3)
    x = np.repeat(rng.random((200, 1)), 3, axis=1)
    ranges = np.floor(3 * x).astype(int)
    found = within_cells.with_related_values(shuffled(x, ranges, rng), ranges, ranges, rng)
    assert np.corrcoef(found.T).min() > 0.95
    constant = np.column_stack([x[:, 0], np.full(200, 0.5)])
    assert np.isfinite(within_cells.with_related_values(constant, np.zeros((200, 2), int), np.zeros((200, 2), int), rng)).all()


def test_rows_in_cells_relate_numbers_and_stay_in_their_cells():
    domain = Domain((
        Real(name="x", lower=0, upper=1), Real(name="y", lower=0, upper=1, atoms=(0.5,)), Categorical(name="z", levels=("a", "b")),
    ))  # fmt: skip
    edges = tuple((i + 1) / 4 for i in range(3))
    kernel = Margins((edges, edges, (0.5,)), ((), (0.5,), ()), (False, False, False), (0.5, 0.5, 0))
    rng = np.random.default_rng(4)
    first = rng.integers(0, 4, N)
    cells = np.column_stack([first, np.where(rng.random(N) < 0.1, 4, first), rng.integers(0, 2, N)])
    lower = np.tile([1.0, 0.0], 4)  # of the finer ranges of x, the lower half of each cell
    for probabilities in (np.full(8, 0.5), lower):
        fine = within_cells.FineRanges(
            np.linspace(0, 1, 9), np.repeat(np.arange(4), 2), probabilities, np.zeros(8), np.full(8, np.nan)
        )
        rows = within_cells.rows_in_cells(kernel, domain, cells, {0: fine}, rng)
        np.testing.assert_array_equal(kernel.cells(rows), cells)
        within = np.flatnonzero((first == 0) & (cells[:, 1] == 0))
        assert np.corrcoef(rows[within, :2].T)[0, 1] > 0.5
    assert not ((8 * rows[:, 0]).astype(int) % 2).any()


ENDS = np.linspace(-4, 4, 81)
CELL = np.searchsorted([-2.0, -1.0, 0.0, 1.0, 2.0], (ENDS[:-1] + ENDS[1:]) / 2, side="right")
NORMAL = np.diff(norm.cdf(ENDS))
OF_CELLS = np.bincount(CELL, NORMAL)


def test_a_normal_number_keeps_its_variance_where_only_wide_ranges_are_known():
    """Even within ranges its variance would be 1.25 times as large."""
    middles = (ENDS[:-1] + ENDS[1:]) / 2
    even = OF_CELLS[CELL] / np.bincount(CELL)[CELL]
    found = within_cells.smooth_shares(ENDS, np.ones(80), CELL, OF_CELLS, np.zeros(80), 10.0)
    assert found.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(np.bincount(CELL, found), OF_CELLS, atol=0.01)
    assert even @ middles**2 > 1.2 and found @ middles**2 == pytest.approx(1.0, abs=0.08)


def test_a_rough_density_leaves_the_ranges_at_its_end_their_own():
    """Few rows are next to the last coarse range's lower end; shares elsewhere are far from smooth, and their noise is small."""
    rng = np.random.default_rng(1)
    middle = np.where(CELL == 0, NORMAL, NORMAL * rng.exponential(size=80))
    rough = np.where(CELL == 5, np.where(ENDS[:-1] < 2.3, 0.002, 0.0), middle)
    rough /= rough.sum()
    found = within_cells.smooth_shares(ENDS, np.ones(80), CELL, np.bincount(CELL, rough), rough + 4e-4 * rng.normal(size=80), 4e-4)
    last = CELL == 5
    assert found[last] @ ENDS[:-1][last] / found[last].sum() < 2.5  # 3.8 if a smooth density must follow all of them


def test_an_empty_range_at_the_bound_does_not_turn_the_tail_beside_it():
    """A length of stay from 1 on, of which the domain says 0: without what tails do its mass was at the far end."""
    ends, cell = np.arange(-0.5, 56), np.repeat([0, 1], [7, 49])
    sizes = np.where(np.isin(np.arange(56), np.arange(1, 13)), 0.0, 1.0)  # atoms
    for seed in range(20):
        seen = np.where(sizes > 0, 0.02 * 0.9 ** np.arange(56) / 2.5, 0.0) + 0.0115 * np.random.default_rng(seed).normal(size=56)
        found = within_cells.smooth_shares(ends, sizes, cell, np.array([0.0, 0.021]), seen, 0.0115)
        assert found[40:].sum() < 0.35 and found[13:20].sum() > found[20:27].sum() > found[27:34].sum()


def test_fine_shares_that_are_known_well_are_followed():
    """The top of a bump that ranges do not show."""
    bump = NORMAL + np.where(np.abs(ENDS[:-1] - 1.45) < 0.3, 0.02, 0.0)
    bump /= bump.sum()
    found = [within_cells.smooth_shares(ENDS, np.ones(80), CELL, np.bincount(CELL, bump), bump, noise) for noise in (1e-4, 10.0)]
    known, unknown = (np.abs(shares - bump).sum() for shares in found)
    assert known < 0.7 * unknown


def test_ranges_without_values_have_no_share_and_huge_bounds_are_no_problem():
    sizes = np.where(np.arange(80) == 3, 0.0, 1.0)
    found = within_cells.smooth_shares(ENDS * 4e307, sizes, CELL, OF_CELLS, np.zeros(80), 10.0)
    assert found[3] == 0 and np.isfinite(found).all()
    ends, cell = np.append(ENDS[:-1], [4 - 1e-15, 4]), np.append(CELL, 6)  # a last range of hardly any width
    found = within_cells.smooth_shares(ends, np.diff(ends), cell, np.append(OF_CELLS, 0.0), np.append(NORMAL, 0.0), 0.001)
    assert np.abs(found[:-1] - NORMAL).sum() < 0.05


def test_values_in_cells_follow_the_density():
    """Fine shares are all noise here: without the density the variance is that of even values, 1.25."""
    inner = (-2.0, -1.0, 0.0, 1.0, 2.0)
    kernel = Margins((inner,), ((),), (False,), (0.8, 0, 0.2), fine=(tuple(ENDS[1:-1]),))
    features = MarginFeatures(kernel)
    measurement = Measurement(
        vector=np.concatenate([OF_CELLS, NORMAL]) * np.repeat(features.heights, [6, 80]), noise_scale=5.0, noise_law="gaussian",
        n_rows=1000, feature_map=features, noisy_sum=np.zeros(86, dtype=np.int64),
    )  # fmt: skip
    domain = Domain((Real(name="x", lower=-4, upper=4, edges=inner),))
    (found,) = within_cells.fine_ranges(measurement, domain, OF_CELLS).values()
    middles = (found.ends[:-1] + found.ends[1:]) / 2
    assert (OF_CELLS[found.cell] * found.probabilities) @ middles**2 == pytest.approx(1.0, abs=0.1)


def test_finer_ranges_are_smoothed_as_far_as_they_are_noise():
    """Noise of twice a share is not followed, one that shows spikes is."""
    rng = np.random.default_rng(0)
    spiky = NORMAL * np.where(np.arange(80) % 5 == 0, 4.0, 0.25)
    spiky /= np.bincount(CELL, spiky)[CELL]
    even = NORMAL / OF_CELLS[CELL]
    for truth, noise, most in ((even, 0.025, 0.2), (spiky, 0.001, 0.05)):
        observed = OF_CELLS[CELL] * truth + noise * rng.standard_normal(80)
        found = within_cells._probabilities(observed, noise, OF_CELLS[CELL], CELL, even)
        np.testing.assert_allclose(np.bincount(CELL, found), 1.0)
        assert OF_CELLS[CELL] @ np.abs(found - truth) < most


def test_a_range_stands_out_of_both_neighbours_or_of_the_one_that_it_has():
    shares = np.array([0.3, 0.1, 0.1, 0.35, 0.1, 0.05, 0.0, 0.002])
    np.testing.assert_allclose(within_cells.heaps(np.ones(8), shares, 0.001), [0.2, 0, 0, 0.25, 0, 0, 0, 0])
    assert not within_cells.heaps(np.ones(8), shares, 0.1).any()
    narrow = within_cells.heaps(np.array([1.0, 1, 1, 0.1, 1, 1, 1, 1]), shares, 0.001)
    assert narrow[3] == pytest.approx(0.34)  # of what its neighbours have in a tenth of the width
