"""THE DOOR: private rows + feature map + noise → a noisy mean. The first of three mechanisms (see `release_side.door`).

Every row becomes, from itself alone, integers of Euclidean norm at most GRID. Where units are protected, the integers of
each unit's rows are averaged, and the averages take the place of the rows. The integers are summed exactly and noise is
drawn once; the sum and the rows are not used after that. What the code does never depends on a private value: bad
features are clamped, never raised, warned about, counted or logged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.measurement import GRID, SHRINK, Measurement, grid_sensitivity, whole_heights
from release_side.door.exact_sums import PrivateRows, SumOfBlock, sum_over_rows
from release_side.door.mechanism import Noise, PublishError, RehearsalNoise, check_int64_range
from release_side.door.turns import turns_of
from release_side.private_rows.unit_rows import UnitRows

_BLOCK_ENTRIES = 2**17  # rows × features at a time, for each worker: a megabyte, which stays near the processor
_MOST_KEYS = 2**22  # cells of units that are held while their rows are counted


def private_mean(
    private_rows: PrivateRows, feature_map: FeatureMap, mechanism: Noise | RehearsalNoise, *, n_rows: int, workers: int = 1,
    record_spend: Callable[[], None] | None = None, progress: Callable[[str, float], None] | None = None,
) -> Measurement:  # fmt: skip
    """Release the mean feature vector of the private rows; of UnitRows, the mean over units of their rows' average.

    private_rows  pieces (n_i, d) of the table, encoded and clamped by a Domain; their boundaries depend on
                  public facts alone; or UnitRows; or Parts, which an executor's workers read. n_rows, their total, is taken
                  as public; of units it counts units.
    feature_map   (n, d) → (n, F); every image has Euclidean norm at most feature_map.norm_bound.
    mechanism     the noise; its name says in which distance (L2 or L1) the sensitivity is.
    workers       threads that turn rows into features where no executor does; no bit of the sum depends on how many.
    record_spend  called once, just before noise is drawn; an error there means that none is.
    Returns       Measurement: vector (F,), noise_scale in units of one feature coordinate.

    Guarantee     (epsilon, delta)-differential privacy under replace-one, for every table of n_rows rows (of UnitRows
                  under the replacement of all rows of one unit by any others, for every table of n_rows units):
                  the integer sums of two neighbours differ by at most diameter · GRID, by construction
                  (in L1 by at most ⌈√F · diameter · GRID⌉, or 2 Σ heights for cells). PROOF.md has the argument.
    Edge cases    a non-finite image counts as the zero vector; n_rows = 0 raises PublishError (n is public).
    Source        Balog, Tolstikhin & Schölkopf 2018, Algorithm 1 lines 2-4 and Algorithm 2 lines 3-4.
    """
    check_int64_range(n_rows=n_rows, dimension=feature_map.dimension, grid=GRID)
    sums = ExactSums(feature_map, integer_heights(feature_map) if isinstance(feature_map, CellFeatures) else None)
    sensitivity = grid_sensitivity(feature_map, mechanism.name)  # of cells after their heights have been checked
    grid_scale = mechanism.deviation(sensitivity)
    exact_sum = sum_over_rows(private_rows, sums, n_rows=n_rows, workers=workers, progress=progress)
    if record_spend:
        record_spend()
    noisy_sum = mechanism.add_to(exact_sum, sensitivity=sensitivity)
    return Measurement.from_sum(noisy_sum, grid_scale=grid_scale, n_rows=n_rows, feature_map=feature_map, noise_law=mechanism.name)


@dataclass(frozen=True, eq=False, repr=False)
class ExactSums:
    """Which whole numbers are added: those of the features of each row, or unit; of cells, a height for each that is counted.

    heights   (T,) int64: what a row adds to its cell of each table; None for features that are no cells.
    """

    feature_map: FeatureMap
    heights: Array | None = None

    @property
    def dimension(self) -> int:
        return self.feature_map.dimension

    @property
    def step(self) -> int:
        return _step(self.feature_map)

    def of_block(self) -> SumOfBlock:
        if self.heights is None:
            return _summed_features(self.feature_map)
        assert isinstance(self.feature_map, CellFeatures)
        return counted_sums(self.feature_map, self.heights)


def _summed_features(feature_map: FeatureMap) -> SumOfBlock:
    turns = turns_of(feature_map) if _has_turns(feature_map) else None

    def summed(rows: Array | UnitRows) -> Array:
        if isinstance(rows, UnitRows):
            return unit_averages(rows, feature_map).sum(axis=0).astype(np.int64)
        if turns is not None:
            return turns.sum(rows)
        return integer_features(rows, feature_map).sum(axis=0).astype(np.int64)

    return summed


def unit_averages(units: UnitRows, feature_map: FeatureMap) -> Array:
    """The average of each unit's integer features, towards zero: whole numbers as float64 (P, F), Σz² ≤ GRID² for each.

    An average is no longer than the longest of what it averages, and rounding towards zero makes no coordinate
    larger; the norm is enforced again nevertheless, as a row's is. Sums in 64 bits are exact in any order: a unit
    has at most 2^34 rows. A unit of one row has that row's integers.
    """
    totals, sizes = np.zeros((len(units), feature_map.dimension), dtype=np.int64), units.sizes
    for owners, rows in units.chunks(_step(feature_map)):
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        totals[owners[first]] += np.add.reduceat(integer_features(rows, feature_map), first).astype(np.int64)
    several = sizes > 1
    totals[several] = np.sign(totals[several]) * (np.abs(totals[several]) // sizes[several, None])
    return _enforce_norm(totals.astype(np.float64), feature_map)


def counted_sums(feature_map: CellFeatures, heights: Array) -> SumOfBlock:
    """The same sums, by counting the rows in each cell: a row is in one cell of each table, whatever `cell_indices` returns.

    heights   (T,) int64: what a row adds to its cell of each table.
    """
    starts = feature_map.starts
    first, last = starts[:-1, None], starts[1:, None] - 1
    by_feature = np.repeat(heights, np.diff(starts))

    def places_of(rows: Array) -> Array:
        with np.errstate(all="ignore"):  # a warning by the value of a private row would be a release
            places = feature_map.cell_indices(rows)
        if places.shape != (len(heights), len(rows)):  # one index in each table for each row, whatever the map returns
            places = np.zeros((len(heights), len(rows)), dtype=np.int64)
        if len(rows) and (places.min(axis=1) >= first[:, 0]).all() and (places.max(axis=1) <= last[:, 0]).all():
            return places  # as from every map that keeps to its tables: then to clip costs as much as to count
        return np.clip(places, first, last)

    def counted(rows: Array | UnitRows) -> Array:
        if isinstance(rows, UnitRows):
            return _averaged_counts(rows, places_of, by_feature, _step(feature_map))
        return np.bincount(places_of(rows).ravel(), minlength=len(by_feature)) * by_feature

    return counted


def _averaged_counts(units: UnitRows, places_of: Callable[[Array], Array], by_feature: Array, step: int) -> Array:
    """Σ over units of ⌊c·h/m⌋ at each index: h its height, c how many of the unit's m rows are there. (F,) int64, exact.

    These are `unit_averages` of the same map, computed only at the few indices where a unit has rows.
    """
    F, found, held = len(by_feature), list[tuple[Array, Array]](), 0
    for owners, rows in units.chunks(step):
        found.append(np.unique(owners * F + places_of(rows), return_counts=True))
        held += len(found[-1][0])
        if held > _MOST_KEYS:  # a unit of very many rows
            found = [_together(found)]
            held = len(found[0][0])
    keys, counts = _together(found)
    owners, places = np.divmod(keys, F)
    total = np.zeros(F, dtype=np.int64)
    np.add.at(total, places, counts * by_feature[places] // units.sizes[owners])
    return total


def _together(found: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Each key once, and how often it was counted in all."""
    keys, back = np.unique(np.concatenate([keys for keys, _ in found]), return_inverse=True)
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, back, np.concatenate([times for _, times in found]))
    return keys, counts


def integer_heights(feature_map: CellFeatures) -> Array:
    """Heights of the tables on the integer grid, (T,) int64, Σz² ≤ GRID² exactly: the norm of every row's image."""
    starts, z = feature_map.starts, whole_heights(feature_map)
    in_order = starts[0] == 0 and (np.diff(starts) >= 1).all()
    if not (in_order and (z >= 0).all() and (z <= GRID).all() and sum(int(a) ** 2 for a in z) <= GRID**2):
        raise PublishError("the feature map's tables overlap or exceed its bound, so nothing is released. Correct the map.")
    return z.astype(np.int64)


def _step(feature_map: FeatureMap) -> int:
    """Rows few enough, with their features, to stay near the processor; enough to be worth a sum of F numbers."""
    return max(1, _BLOCK_ENTRIES // feature_map.width, 2 * feature_map.dimension // feature_map.width)


def integer_features(rows: Array, feature_map: FeatureMap) -> Array:
    """Features on the integer grid, whole numbers as float64 (n, F), Σz² ≤ GRID² for each row, proven.

    Of cosines they are computed as whole numbers (`turns`). Features of other maps are rounded, and their norm is enforced.
    Whole float64 numbers up to 2^28 add exactly in any order for up to 2^25 rows a piece.
    """
    if _has_turns(feature_map):
        return turns_of(feature_map)(rows)
    with np.errstate(all="ignore"):  # a warning by the value of a private row would be a release
        return _integer_features(rows, feature_map)


def _has_turns(feature_map: FeatureMap) -> TypeGuard[RandomFourier]:
    return type(feature_map) is RandomFourier  # a derived class may compute anything


def _integer_features(rows: Array, feature_map: FeatureMap) -> Array:
    z = feature_map(rows)
    if z.shape != (len(rows), feature_map.dimension):  # one image for each row, whatever the map returns
        z = np.zeros((len(rows), feature_map.dimension))
    z *= GRID * SHRINK / feature_map.norm_bound
    np.rint(z, out=z)
    return _enforce_norm(z, feature_map)


def _enforce_norm(z: Array, feature_map: FeatureMap) -> Array:
    """Bring each row within the bound, by itself and in place: shorten it if need be, or set it to zero for a `pairwise` map.

    A `pairwise` map guarantees a distance of at most its diameter between any two images, and shortening one could increase its
    distance from another. Zero keeps the guarantee: it is at most B from every image, and B is at most the diameter.
    """
    nonnegative = feature_map.nonnegative
    for i in np.flatnonzero(~within_norm(z, nonnegative=nonnegative)):  # never for a map that keeps its bound
        z[i] = 0.0 if feature_map.pairwise else _shrink_to_bound(z[i : i + 1], nonnegative=nonnegative)[0]
    return z


def within_norm(z: Array, *, nonnegative: bool) -> Array:
    """Whether each row of whole numbers (n, F) is finite and surely has Σz² ≤ GRID² (and z ≥ 0 if so asked).

    A float64 sum of F squares is off by a factor of at most 1 + F·2^-52, which the margin covers.
    """
    inside = _squared_norms(z) <= GRID**2 * (1 - z.shape[1] * 2.0**-52)  # false for NaN and inf
    return inside & (z.min(axis=1) >= 0) if nonnegative else inside


def _squared_norms(z: Array) -> Array:
    """Σz² of each row, summed in an order that depends on the width alone (einsum's depends on the height too)."""
    total = np.zeros(len(z))
    for start in range(0, z.shape[1], 512):  # small pieces: a second array of this size costs more than the squares
        total += np.square(z[:, start : start + 512]).sum(axis=1)
    return total


def _shrink_to_bound(z: Array, *, nonnegative: bool) -> Array:
    """Rows shrunk towards zero until they fit; a row that still does not becomes zero."""
    z = np.where(np.isfinite(z).all(axis=1, keepdims=True), z, 0.0)
    z = np.clip(z, 0.0 if nonnegative else -float(GRID), float(GRID))  # no square can overflow after this
    norm = np.maximum(np.sqrt(_squared_norms(z)), 1.0)
    z = np.trunc(z * np.minimum(1.0, GRID * SHRINK / norm)[:, None])
    z[~within_norm(z, nonnegative=nonnegative)] = 0.0
    return z
