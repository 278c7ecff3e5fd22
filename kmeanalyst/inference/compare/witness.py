"""The witness function, where a release and a sample differ most (Gretton et al. 2012, section 2.3).

f(x) = ⟨μ_release − μ_sample, φ(x)⟩ is above 0 where the release has more mass than the sample. Most of the features of
a release are noise, so f is taken along public directions v_k, each shrunk by s_k, the share of its variance that is
signal if populations differ by a usual amount: f(x) = Σ s_k (v_kᵀd)(v_kᵀφ(x)). As the s_k are public, the variance of
f(x) is exact where both have one population: aᵀ(cΣ + τ²I)a, a_k = s_k v_kᵀφ(x).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kmeanalyst.inference.two_sample.differences import USUAL_DIFFERENCE
from kmeanalyst.inference.two_sample.sides import SampleRows, Side, directions_of, sample_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.principal import Directions
from kmeanalyst.releases.declared_statement import Statement
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.release import ReleaseData

_MOST_CANDIDATES = 2000  # rows of each side that are considered
_SHOWN = 20  # rows on each side of 0
_ALIKE = 0.8  # cosine above which two rows count as alike
_AROUND = 200  # rows that a column's part is averaged over


@dataclass(frozen=True, eq=False)
class Witness:
    """f(x) with its standard error.

    directions   v_k (F, K), public.
    shrinkage    s_k (K,), public.
    differences  v_kᵀd (K,).
    covariance   (K, K) of the differences where both sides have one population.
    spread       the variance of φ(x) over rows x along all directions together.
    around       (m, d) rows of the sample, which a column's part is averaged over.
    statement    the release's privacy statement; None if it has none.
    """

    domain: Domain
    feature_map: FeatureMap
    directions: Array
    shrinkage: Array
    differences: Array
    covariance: Array
    spread: float
    around: Array
    statement: Statement | None

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """(f, standard error), (n,) each, at encoded rows."""
        return self._read(self.coordinates(X))

    def coordinates(self, X: Array) -> Array:
        """a_k = s_k v_kᵀφ(x), (n, K), in blocks."""
        blocks = row_blocks(len(X), self.feature_map.width)
        return np.vstack([self.feature_map.compact(X[b]) @ self.directions for b in blocks]) * self.shrinkage

    def _read(self, coordinates: Array) -> tuple[Array, Array]:
        variance = np.einsum("ij,ij->i", coordinates @ self.covariance, coordinates)
        return coordinates @ self.differences, np.sqrt(np.maximum(variance, 0.0))

    def part(self, j: int, values: Array) -> tuple[Array, Array]:
        """(f, standard error) at values of column j, averaged over the other columns (partial dependence, Friedman 2001)."""
        means = []
        for value in values:
            rows = self.around.copy()
            rows[:, j] = value
            means.append(self.coordinates(rows).mean(axis=0))
        return self._read(np.array(means))

    def table(self, release_rows: Array, sample_rows: Array) -> pd.DataFrame:
        rows = np.vstack([release_rows, sample_rows])
        side = np.repeat(["release", "sample"], [len(release_rows), len(sample_rows)])
        coordinates = self.coordinates(rows)
        f, error = self._read(coordinates)
        shown = [*_distinct(f, coordinates), *_distinct(-f, coordinates)]
        shown = sorted(shown, key=lambda i: -f[i])
        frame = self.domain.decode(rows[shown])
        z = np.divide(f, error, out=np.zeros_like(f), where=error > 0)
        return frame.assign(side=side[shown], witness=f[shown], standard_error=error[shown], z=z[shown])


def _distinct(f: Array, coordinates: Array) -> list[int]:
    """Rows of the largest f > 0, each unlike those before it."""
    length = np.sqrt(np.einsum("ij,ij->i", coordinates, coordinates))
    unit = coordinates / np.maximum(length, 1e-300)[:, None]
    left, chosen = np.where(f > 0, f, -np.inf), list[int]()
    while len(chosen) < _SHOWN and (best := int(left.argmax())) >= 0 and left[best] > 0:
        chosen.append(best)
        left[unit @ unit[best] > _ALIKE] = -np.inf
        left[best] = -np.inf
    return chosen


def witness_of(release: ReleaseData, evidence: Side, sample: SampleRows, some: Array) -> Witness:
    """The witness of a release and a sample; one pass over the sample.

    some   rows of the sample.
    """
    along = Directions(np.eye(size := evidence.feature_map.dimension), np.ones(size))  # all, if there is no noise
    if evidence.measurement is not None:
        along = directions_of(release, evidence.feature_map, some)
    moments = sample_side(evidence, along, sample.blocks())
    assert moments.draws is not None
    shrink = evidence.row_variance + moments.row_variance
    variance = shrink * along.variances + evidence.noise_variance
    signal = USUAL_DIFFERENCE * along.variances
    return Witness(
        domain=release.domain,
        feature_map=evidence.feature_map,
        directions=along.vectors,
        shrinkage=signal / (signal + variance),
        differences=along.vectors.T @ (evidence.mean - moments.mean),
        covariance=shrink * moments.draws.of_a_row + evidence.noise_variance * np.eye(len(variance)),
        spread=float(moments.mean_square - moments.mean @ moments.mean),
        around=some[:_AROUND],
        statement=release.statement,
    )


def witness_rows(witness: Witness, release: ReleaseData, some: Array) -> pd.DataFrame:
    """The witness's table over released points and rows of the sample, some thousands of them at most."""
    points = release.encoded_points
    points = points[np.random.default_rng(0).permutation(len(points))[:_MOST_CANDIDATES]]
    return witness.table(points, some[:_MOST_CANDIDATES])
