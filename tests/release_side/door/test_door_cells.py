"""The door for maps to cells of tables: rows are counted, each in one cell of each table, whatever the map returns."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from contracts import FeatureCase
from door_cases import HOSTILE, Recorder, every_map, measured, recorded, unread
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kmeanalyst.kernels import Gaussian, Margins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.measurement import GRID, grid_sensitivity
from kmeanalyst.releases.statement import LAPLACE
from release_side.door.mechanism import LaplaceNoise, PublishError
from release_side.door.private_mean import integer_heights, private_mean

STARTS, HEIGHTS = np.array([0, 3, 4, 9]), np.array([0.6, 0.48, 0.64])


@dataclass(frozen=True, eq=False)
class Hostile(CellFeatures):
    """Returns the indices that a function of the rows gives, whatever they are."""

    first: Array
    tall: Array
    says: Callable[[Array], Array]
    name = "hostile"
    kernel = Gaussian(1.0)

    @cached_property
    def starts(self) -> Array:
        return self.first

    @cached_property
    def heights(self) -> Array:
        return self.tall

    @property
    def norm_bound(self) -> float:
        return 1.0

    def arrays(self) -> dict[str, Array]:
        return {}

    def cell_indices(self, X: Array) -> Array:
        return self.says(X)


def where_asked(X: Array) -> Array:
    return np.ascontiguousarray(X.T).astype(np.int64)


def features(**changes: Any) -> Hostile:
    return Hostile(**({"first": STARTS, "tall": HEIGHTS, "says": where_asked} | changes))


@given(arrays(np.int64, (2, 3), elements=st.integers(-(2**62), 2**62)))
@example(np.array([[3, 4, 8], [0, 3, 4]]))
@example(np.array([[0, 2, 4], [0, 3, 3]]))
def test_the_distance_of_neighbours_is_at_most_root_two_wherever_a_map_puts_them(asked: Array):
    """Indices below, above and in the others' runs, the same one twice: one cell of each run is counted."""
    sums = [recorded(row[None].astype(float), features()).exact_sum.astype(object) for row in asked]  # type: ignore[union-attr]
    heights = integer_heights(features()).tolist()
    for one in sums:
        parts = [one[a:b] for a, b in itertools.pairwise(STARTS)]
        assert [sorted(part)[-1] for part in parts] == heights and sum(x != 0 for x in one) == 3
    assert sum(int(d) ** 2 for d in sums[0] - sums[1]) <= 2 * GRID**2


def test_a_map_that_returns_too_many_indices_adds_one_in_each_table_for_each_row():
    for says in [
        lambda X: np.zeros((3, 2 * len(X)), dtype=np.int64),
        lambda X: np.zeros((3, 1000 * len(X)), dtype=np.int64),
        lambda X: np.zeros((3, 3, 5), dtype=np.int64),
        lambda X: np.zeros((2, len(X)), dtype=np.int64),
        lambda X: np.zeros(3, dtype=np.int64),
    ]:
        total = recorded(np.ones((2, 3)), features(says=says)).exact_sum
        heights = integer_heights(features())
        np.testing.assert_array_equal(total[STARTS[:-1]], 2 * heights)
        assert np.count_nonzero(total) == 3


def test_a_map_that_gives_more_images_than_rows_gives_none():
    """The same for a map that computes features."""

    @dataclass(frozen=True, eq=False)
    class Many(RandomFourier):
        def __call__(self, X: Array) -> Array:
            return np.vstack([super().__call__(X)] * 1000)

    honest = RandomFourier.draw(Gaussian(1.0), n_columns=2, dimension=6, rng=0)
    assert not recorded(np.ones((3, 2)), Many(honest.kernel, honest.linear, honest.tables)).exact_sum.any()


def test_a_map_whose_tables_could_exceed_its_bound_is_refused_before_a_row_is_read():
    for changes in [
        {"tall": np.array([0.6, 0.6, 0.64])},
        {"tall": np.array([0.6, -0.48, 0.64])},
        {"first": np.array([0, 3, 3, 9])},
        {"first": np.array([0, 4, 3, 9])},
        {"first": np.array([1, 3, 4, 9])},
        {"tall": np.array([1e12, 0.48, 0.64])},
    ]:
        with pytest.raises(PublishError, match="overlap or exceed its bound"):
            private_mean(unread(), features(**changes), Recorder(), n_rows=1)  # type: ignore[arg-type]


def test_every_row_has_the_norm_that_was_checked():
    heights = integer_heights(features()).astype(object)
    assert (GRID * (1 - 2.0**-17)) ** 2 < sum(z**2 for z in heights) <= GRID**2
    row = recorded(np.zeros((1, 3)), features()).exact_sum.astype(object)  # type: ignore[union-attr]
    assert sum(z**2 for z in row) == sum(z**2 for z in heights)


def l1_distance(a: Array, b: Array) -> int:
    return sum(abs(int(x) - int(y)) for x, y in zip(a, b, strict=True))


def test_the_l1_sensitivity_of_cells_is_reached_and_never_exceeded():
    """Every pair of rows of a small table of cells, in whole numbers: 2 Σ heights, where Cauchy–Schwarz allows √F √2 GRID."""
    heights = [int(height) for height in integer_heights(features())]
    sensitivity = grid_sensitivity(features(), LAPLACE)
    assert sensitivity == 2 * sum(heights) < math.isqrt(2 * 9) * GRID
    enumerate_rows = np.array(list(itertools.product(range(3), [3], range(4, 9))), dtype=float)
    # the second table has one cell: the bound is reached except for it
    images = [recorded(row[None], features()).exact_sum for row in enumerate_rows]
    largest = max(l1_distance(a, b) for a in images for b in images)  # type: ignore[arg-type]
    assert largest == sensitivity - 2 * heights[1]
    two = features(first=np.array([0, 3, 5, 10]))
    images = [recorded(np.array([row], dtype=float), two).exact_sum for row in ([0, 3, 5], [2, 4, 9])]
    assert l1_distance(*images) == grid_sensitivity(two, LAPLACE)  # type: ignore[arg-type]


@every_map
def test_no_neighbour_or_unit_is_further_in_l1_than_twice_the_heights(maps: list[FeatureCase]):
    for case in maps:
        if case.family not in ("margins", "random-binning"):
            continue
        rng, feature_map = np.random.default_rng(4), case.build(40)
        assert isinstance(feature_map, CellFeatures)
        sensitivity = grid_sensitivity(feature_map, LAPLACE)
        assert sensitivity <= 2 * int(integer_heights(feature_map).sum())
        rows = case.case.rows(rng, 60)
        rows[rng.random(rows.shape) < 0.2] = rng.choice(HOSTILE)
        images = [recorded(row[None], feature_map).exact_sum for row in rows]
        assert max(l1_distance(a, b) for a in images for b in images) <= sensitivity  # type: ignore[arg-type]
        for many in (1, 3, 2000):
            one, other = (
                measured([0] * many + [1], np.vstack([rows[rng.integers(0, 60, many)], rows[:1]]), feature_map) for _ in range(2)
            )
            assert l1_distance(one.exact_sum, other.exact_sum) <= sensitivity  # type: ignore[arg-type]


def test_a_table_of_one_cell_does_not_make_the_bound_larger_than_that_of_the_norms():
    """Ten tables of one cell each: Σ heights is √10, and the root of F = 10 coordinates times √2 is less than twice that."""
    feature_map = features(first=np.arange(11), tall=np.full(10, 0.1**0.5))
    assert grid_sensitivity(feature_map, LAPLACE) == math.isqrt(math.ceil(10 * Fraction(2**0.5 * GRID) ** 2) - 1) + 1


def test_pure_noise_on_margins_is_as_large_as_the_exact_sensitivity_says():
    """√2 · 2 Σh/ε instead of √2 · √(2F)/ε, less than a quarter of it here."""
    domain = Domain((Integer(name="age", lower=0, upper=90), Categorical(name="city", levels=("a", "b", "c"))))
    feature_map = MarginFeatures(margin_kernel(domain))
    measurement = private_mean([domain.draw(50, 1)], feature_map, LaplaceNoise(0.5, 0), n_rows=50)
    heights = feature_map.heights.sum()
    assert measurement.noise_scale == pytest.approx(math.sqrt(2) * 2 * heights / (0.5 * 50), rel=1e-8)
    before = math.sqrt(2) * math.sqrt(2 * feature_map.dimension) / (0.5 * 50)
    assert measurement.noise_scale < before / 4


def test_memory_does_not_grow_with_rows_times_features():
    """Half a million features of 2,000 rows would take 8 GB."""
    ranges = tuple(np.arange(100.0).tolist())
    kernel = Margins((ranges,) * 10, ((),) * 10, (False,) * 10, (0.5, 0.5, 0))
    feature_map = MarginFeatures(kernel)
    assert feature_map.dimension > 450_000
    rows = np.random.default_rng(0).uniform(-1, 101, (2000, 10))
    tracemalloc.start()
    recorded(rows, feature_map)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
