"""The two sides of a test, each read into what the test needs: a mean of features, its noise, its rows and their spread.

`measured_side` reads a release, `sample_side` rows of the analyst, which `SampleRows` encodes by its domain, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from kmeanalyst.inference.two_sample.resampled import Draws
from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.features.principal import Directions, principal_directions
from kmeanalyst.releases.domain.domain import Domain, SampleCounts
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.memo import kept, memo
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.reweight import tilted_weights
from kmeanalyst.representation.weights.views import distinct_rows, view_weights
from kmeanalyst.sources.tables import table_of

_REFERENCE_ROWS = 1000
_SAMPLE_ROWS = 400  # most rows of a sample from which directions are computed
_SOME_ROWS = 25  # with fewer, directions come from the domain alone: two rows were rejected .08
_DRAWS, _DRAWS_COUNT_AS = 200, 200  # draws of the domain added to them (more for fewer rows); their weight in rows
_MANY_ROWS = 100  # from so many rows on, those behind directions are left out; from 50 on, 100 rows rejected .09
_BASIS_ROWS = 150  # drawn from the domain, and as many of the points, for weighted points without a measurement


@dataclass(frozen=True, eq=False)
class Side:
    """What a test knows of one side's population.

    mean          y (F,), a mean of features.
    n_rows        behind it; None for a fixed distribution, which has no sampling error.
    measurement   with its noise; None for rows and for a fixed distribution.
    mean_square   E ‖φ‖²; NaN where it was not asked for.
    variance      trace of the rows' covariance in all of feature space; None where the other side's is used.
    draws         of a sample: samples of as many rows from the release's points, along the test's directions, in which its rows'
                  covariance is too.
    release       that was read; None for rows.
    """

    domain: Domain
    feature_map: FeatureMap
    mean: Array
    n_rows: int | None
    measurement: Measurement | None = None
    mean_square: float = np.nan
    variance: float | None = None
    draws: Draws | None = None
    release: ReleaseData | None = None

    @property
    def row_variance(self) -> float:
        """1/n: what part of a row's variance the mean has; 0 for a fixed distribution."""
        return 0.0 if self.n_rows is None else 1 / self.n_rows

    @property
    def noise_variance(self) -> float:
        """τ², of the noise on each coordinate of y."""
        return 0.0 if self.measurement is None else self.measurement.noise_scale**2

    @property
    def squared_norm(self) -> float:
        """Unbiased estimate of ‖E φ‖²: E‖y‖² = ‖E φ‖² (1 − 1/n) + E‖φ‖²/n + Fτ², so noise and diagonal are subtracted."""
        without_noise = float(self.mean @ self.mean) - len(self.mean) * self.noise_variance
        n = self.n_rows or 1
        return (n * without_noise - self.mean_square) / (n - 1) if n > 1 else without_noise


def measured_side(release: ReleaseData) -> Side:
    """What the release's measurement says; of one without, what its points do, a fixed distribution.

    Weighted points are seen through features of their own kernel; then only the sample is random.
    """
    if (read := release.measurement) is not None:
        return Side(release.domain, read.feature_map, read.vector, read.n_rows, read, release=release)
    drawn = release.domain.draw(_BASIS_ROWS, 0)
    basis = np.vstack([drawn, release.encoded_points[:: max(1, len(release) // _BASIS_ROWS)]])
    feature_map = Nystroem.fit(release.kernel, basis)
    mean = feature_mean(feature_map, release.encoded_points, release.weights)
    return Side(release.domain, feature_map, mean, None, release=release)


def side_and_sample(release: ReleaseData, sample: SampleRows) -> tuple[Side, Side, Directions]:
    ours = measured_side(release)
    some, indices, blocks = sample.split_for_directions(_SAMPLE_ROWS)
    along = directions_of(release, ours.feature_map, some if len(some) >= _SOME_ROWS else None)
    left_out = None if isinstance(ours.feature_map, Nystroem) or len(some) < _MANY_ROWS else indices
    theirs = sample_side(ours, along, blocks, left_out=left_out)
    return replace(ours, mean_square=_mean_square(release, ours.feature_map)), theirs, along


def _mean_square(release: ReleaseData, feature_map: FeatureMap) -> float:
    """E ‖φ‖²: constant for random Fourier features and margins; for a subspace that of the released points."""
    if not isinstance(feature_map, Nystroem):
        return feature_map.norm_bound**2
    features = feature_map(release.encoded_points)
    return float(view_weights(release, "probability") @ np.einsum("ij,ij->i", features, features))


def covariance_of(values: Array, weights: Array) -> Array:
    """The covariance (K, K) of weighted rows (n, K)."""
    centred = values - weights @ values
    return (centred * weights[:, None]).T @ centred


def sample_side(other: Side, directions: Directions, blocks: Iterable[Array], *, left_out: Array | None = None) -> Side:
    """Encoded rows in blocks, in the features of the other side: memory does not grow with their number.

    The spread is a mean of the rows' and of that of the other side's released points, which count as 100 rows: see `Draws`.
    left_out   indices of rows that are left out of the covariance: rows have more variance than others along directions
               that were computed from them, and a null distribution from them is too wide.
    """
    feature_map, vectors, n = other.feature_map, directions.vectors, 0
    left_out = np.empty(0, dtype=int) if left_out is None else left_out
    total, square = np.zeros(feature_map.dimension), 0.0
    along, scatter = np.zeros(vectors.shape[1]), np.zeros((vectors.shape[1], vectors.shape[1]))
    for rows in blocks:
        for block in row_blocks(len(rows), feature_map.width):
            features = feature_map.compact(rows[block])
            total += features.sum(axis=0)
            numbers = features.data if isinstance(features, csr_array) else features
            square += float(np.vdot(numbers, numbers))
            others = ~np.isin(np.arange(n, n := n + features.shape[0]), left_out)
            projected = (features @ vectors)[others]
            along += projected.sum(axis=0)
            scatter += projected.T @ projected
    used, mean, mean_square = n - len(left_out), total / n, square / n
    variance = (mean_square - float(mean @ mean)) * n / (n - 1)
    covariance = (scatter - np.outer(along, along) / used) / (used - 1)
    assert other.release is not None
    points, weights = _population(other.release)
    values, of_points = _points_along(points, weights, feature_map, vectors)
    draws = Draws.of(values, weights, n, len(left_out))
    variance += draws.share * (of_points - variance)
    draws = replace(draws, blended=covariance + draws.share * (draws.covariance - covariance))
    return Side(other.domain, feature_map, mean, n, mean_square=mean_square, variance=variance, draws=draws)


def _population(release: ReleaseData) -> tuple[Array, Array]:
    """The distinct released rows (m, d), and probabilities (m,) that agree with the measurement as far as the noise lets them."""

    def make() -> tuple[Array, Array]:
        side, (rows, weights) = measured_side(release), distinct_rows(release)
        along = directions_of(release, side.feature_map).vectors
        values, _ = _points_along(rows, weights, side.feature_map, along)
        return rows, tilted_weights(values, weights, side.mean @ along, side.noise_variance)

    return kept(release, "population", make)


def _points_along(rows: Array, weights: Array, feature_map: FeatureMap, vectors: Array) -> tuple[Array, float]:
    """Weighted rows along directions (m, K), and their variance in all of feature space."""
    values, mean, square = [], np.zeros(feature_map.dimension), 0.0
    for block in row_blocks(len(rows), feature_map.width):
        features, part = feature_map.compact(rows[block]), weights[block]
        values.append(features @ vectors)
        mean += part @ features
        square += float((part @ (features * features)).sum())  # elementwise, of sparse arrays too
    return np.vstack(values), square - float(mean @ mean)


def directions_of(release: ReleaseData, feature_map: FeatureMap, rows: Array | None = None) -> Directions:
    """The directions of feature space along which rows like these have the largest variance, and those variances.

    rows   encoded rows of a sample; None for rows of the domain alone, and the result is then kept for the next call.

    Of a subspace they are those of its basis points, which are public. Otherwise those of up to 400 of the rows, where the
    population is, and of draws of the domain, without which few rows have more variance along them than their population.
    Never of the released points, fitted to the noise: the test rejected a true hypothesis 35 times in 100 at ε = 0.1.
    """
    if isinstance(feature_map, Nystroem) or rows is None:
        if "directions" not in memo(release):
            domain = release.domain
            public = feature_map.points if isinstance(feature_map, Nystroem) else domain.draw(_REFERENCE_ROWS, 0)
            some = public[:: max(1, len(public) // _REFERENCE_ROWS)]
            memo(release)["directions"] = principal_directions(feature_map, some)
        return memo(release)["directions"]
    some = rows[:: -(-len(rows) // _SAMPLE_ROWS)]
    drawn = release.domain.draw(_DRAWS + _SAMPLE_ROWS - len(some), 0)
    counted = np.repeat([_DRAWS_COUNT_AS / len(drawn), 1.0], [len(drawn), len(some)])
    return principal_directions(feature_map, np.vstack([drawn, some]), counted / counted.sum())


# ---------------------------------------------------------------- an analyst's rows


class SampleRows:
    """An analyst's own rows, encoded by a release's domain.

    sample   a DataFrame, or encoded rows (L, d): held in memory. Or rows that come in blocks, of which one at a time is
             held: a table of any source (see `table_of`), or an iterable of DataFrames. A generator or a RecordBatchReader
             can be read once, which is enough for the test of a release with a measurement.
    unread   names of columns that are known and left out: no note says that they are ignored.
    """

    def __init__(self, release: ReleaseData, sample: Any, unread: Sequence[str] = ()) -> None:
        self._counts: SampleCounts | None = None
        self._domain, self._unread = release.domain, [*unread, *(one.column.name for one in release.derived)]
        table = table_of(sample)
        self.read_once = isinstance(sample, Iterator) if table is None else table.read_once
        self._blocks: Callable[[], Iterator[tuple[Array, SampleCounts]]]
        if table is not None:
            self._blocks = lambda: table.encoded(release.domain)
            if table.read_once:
                self._blocks = _once(table.encoded(release.domain))
        elif (frames := _frames_of(sample)) is not None:
            self._blocks = lambda: (_encoded_frame(release.domain, frame) for frame in frames())
        else:
            block = _encoded(release.domain, sample)
            self._blocks = lambda: iter([block])
            self._count()

    def blocks(self) -> Iterator[Array]:
        """Encoded rows (n, d), n ≥ 1, in blocks; can be repeated. A ValueError at the end if they are too few."""
        total = SampleCounts()
        for rows, counts in self._blocks():
            total += counts
            if len(rows):
                yield rows
        if total.n_rows < 2:
            raise ValueError(f"the sample needs at least two rows to show its own spread, got {total.n_rows}. Add rows.")
        if self._counts not in (None, total):
            raise ValueError(
                f"the sample had {self._counts.n_rows} rows when they were gone through before, and now it has other cells "
                f"or rows ({total.n_rows}): results of the two would not fit together. Pass rows that stay as they are."
            )
        total.check(self._domain)
        self._counts = total

    def some(self, most: int) -> Array:
        """At most that many rows (n, d), drawn evenly in one pass, the same whatever the blocks."""
        return _drawn(self.blocks(), most)[0]

    def split_for_directions(self, most: int) -> tuple[Array, Array, Iterator[Array]]:
        """Half of the rows, at most so many, drawn evenly; their indices (n,); and all rows in blocks.

        A file is read twice for this: if it is sorted, its first rows are not like the others. Of what can be read once the
        first rows are used. A database may give its rows in another order the second time:
        then other rows have these indices, as many.
        """
        if not self.read_once:
            drawn, indices = _drawn(self.blocks(), 2 * most)
            return drawn[::2], indices[::2], self.blocks()
        blocks, first = self.blocks(), list[Array]()
        while sum(map(len, first)) < 2 * most and (block := next(blocks, None)) is not None:
            first.append(block)
        half = np.vstack(first)[: 2 * most : 2]
        return half, 2 * np.arange(len(half)), chain(first, blocks)

    def _count(self) -> SampleCounts:
        """The counts of all blocks, which are read for it if they have not been read yet."""
        if self._counts is None:
            for _ in self.blocks():
                pass
        assert self._counts is not None
        return self._counts

    @property
    def notes(self) -> list[str]:
        counts = self._count()
        ignored = tuple(name for name in counts.ignored if name not in self._unread)
        return replace(counts, ignored=ignored).notes()

    @property
    def n_rows(self) -> int:
        return self._count().n_rows


def _drawn(blocks: Iterable[Array], most: int) -> tuple[Array, Array]:
    """At most that many rows, and their indices, in order."""
    rng = np.random.default_rng(0)
    kept, keys, indices, seen = np.empty((0, 0)), np.empty(0), np.empty(0, dtype=int), 0
    for rows in blocks:
        kept = np.vstack([kept, rows]) if len(kept) else rows
        keys = np.concatenate([keys, rng.random(len(rows))])
        indices = np.concatenate([indices, np.arange(seen, seen := seen + len(rows))])
        lowest = np.sort(np.argsort(keys)[:most])
        kept, keys, indices = kept[lowest], keys[lowest], indices[lowest]
    return kept, indices


def _frames_of(sample: Any) -> Callable[[], Iterator[Any]] | None:
    """A function that iterates over the sample's DataFrames; None for a sample that is one table."""
    if isinstance(sample, Iterator):
        return _once(sample)
    if isinstance(sample, Sequence):
        return (lambda: iter(sample)) if len(sample) and isinstance(sample[0], pd.DataFrame) else None
    if isinstance(sample, Iterable) and not isinstance(sample, pd.DataFrame) and not hasattr(sample, "__array__"):
        return lambda: iter(sample)
    return None


def _once(blocks: Iterator[Any]) -> Callable[[], Iterator[Any]]:
    """An iterator that can be started once: ValueError the second time."""
    left = [blocks]

    def begin() -> Iterator[Any]:
        if not left:
            raise ValueError(
                "the sample is a generator or a reader, which can be gone through only once, and the rows are needed again. "
                "Pass a list of DataFrames, a table, or the path of a file."
            )
        return left.pop()

    return begin


def _encoded(domain: Domain, sample: Any) -> tuple[Array, SampleCounts]:
    """A sample in memory: a DataFrame, or encoded rows (L, d)."""
    if isinstance(sample, pd.DataFrame):
        return domain.encode_counted(sample)
    rows = as_rows(np.asarray(sample) if hasattr(sample, "__array__") else sample)
    if rows.shape[1] != domain.width:
        raise ValueError(
            f"the release has {domain.width} columns, the sample {rows.shape[1]}. "
            f"Pass a DataFrame with the columns {', '.join(domain.names)}."
        )
    if np.isnan(rows).any() and not any(column.missing for column in domain.columns):
        raise ValueError("cells of the sample are NaN, and no column of the release may miss one. Leave these rows out.")
    return rows, SampleCounts(n_rows=len(rows))


def _encoded_frame(domain: Domain, frame: Any) -> tuple[Array, SampleCounts]:
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(
            f"a sample in blocks gives DataFrames, and this one gave {type(frame).__name__}: its columns have no names. "
            "Give each block as a DataFrame, or all rows as one array."
        )
    return domain.encode_counted(frame)
