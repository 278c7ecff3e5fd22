"""What a measurement of tables says of any question, through all its cells at once.

A Gaussian process around the released rows p, of prior covariance κ Cov_p, given the measurement y of noise τ, C = Cov_p φ:
a = κ (κ C + τ²I)⁻¹ Cov_p(φ, h), answer E_p h + aᵀ(y − E_p φ), error τ²‖a‖² + κ Var_p(h − aᵀφ). Any a has a valid error.
Derivation, and how κ is found: tutorials/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

from kmeanalyst.inference.estimate.interactions import Interactions, with_diagonal
from kmeanalyst.inference.estimate.population_fit import LEADING_DIRECTIONS, CompatiblePopulations
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import Directions
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.allowed_cells import allowed_cells
from kmeanalyst.representation.weights.views import systematic_indices

_FEWEST_ROWS = 3000  # on fewer, Var_p(h − aᵀφ) would say little
_PRIOR_COUNT = 3.0  # of the usual κ, for each cell of one-way tables
_INDEPENDENT_ROWS = 5000  # rows of independent columns
_USUAL_SPREAD = 0.04  # κ of usual tables
_PROBES = 4  # random vectors that estimate a trace
_EXCHANGES = 5  # of the values of each column that a rule names
_FIRST_SPREAD = 0.005  # κ at first
_SPREAD_STEPS, _STEPS_OF_PROBES = 8, 15  # most updates of κ, and steps of the solver in each
_CAUTION = 1.2  # factor on κ and its standard error
_STILL_TO_GO = 2.0  # an error of the answers, in units of what a second step would add to them
_MOST_ALONE, _LARGEST, _MOST_TOGETHER = 400, 512, 2000  # cells of single columns, of a block of one table, of any block
_RELATED = 0.85  # canonical correlation of columns whose tables are one block of the preconditioner
_ROUNDING, _NOTHING = 1e-9, 1e-30
_MOST_STEPS, _PATIENCE, _GAIN = 100, 2, 0.01  # the solver stops when 2 steps narrow no interval by more than 1 %
_TOGETHER = 32  # questions that are solved for together: more would not fit into a processor's cache
_LEAST_NOISE = 1e-5  # variance, relative to the largest prior variance: with less the solver would not end
_MORE_CELLS = 1.5  # times as many as rows
_DRAWN, _NEARLY = 1e-3, 1e-4  # draws are solved for to this share, and probes
_LEADING_TO = 1e-2  # of a leading variance: any direction may be looked along, by what its own variance is
_EXACT, _MOST_STEPS_EXACTLY = 1e-6, 10_000  # noise deviations that are left of the equations of the best answers


@dataclass(frozen=True, eq=False)
class FeatureCovariance:
    """C = Cov_p φ of rows, as an operator, and its diagonal; κ C + τ²I is solved with it."""

    features: Any  # (n, F) sparse
    transposed: Any  # (F, n) sparse
    weights: Array  # (n,) p
    mean: Array  # (F,)
    diagonal: Array  # (F,)

    @classmethod
    def of(cls, measurement: Measurement, rows: Array, weights: Array) -> FeatureCovariance:
        features: Any = measurement.feature_map.compact(rows)
        if measurement.relative_noise is not None:
            features = features.multiply(1 / measurement.relative_noise).tocsr()
        transposed = features.T.tocsr()
        mean = transposed @ weights
        return cls(features, transposed, weights, mean, transposed.multiply(transposed) @ weights - mean**2)

    def __matmul__(self, A: Array) -> Array:
        return self.with_features(self.features @ A) - np.outer(self.mean, self.mean @ A)

    def at_rows(self, a: Array) -> Array:
        """aᵀ(φ − E_p φ) at the rows, (n,) or (n, k), of a (F,) or (F, k)."""
        return self.features @ a - self.mean @ a

    def with_features(self, values: Array) -> Array:
        return self.transposed @ (self.weights[:, None] * values)

    def within(self, block: Any) -> Array:
        """(k, k) C of some features: their numbers, or a slice within one table, of which each row is in one cell."""
        mean = self.mean[block]
        if isinstance(block, slice):
            return np.diag(self.diagonal[block] + mean**2) - np.outer(mean, mean)
        own = self.transposed[block]
        return (own.multiply(self.weights) @ own.T).toarray() - np.outer(mean, mean)

    def leading(self, most: int) -> Directions:
        """Eigenvectors of C of the largest eigenvalues, in descending order, those of 0 left out."""
        size = len(self.mean)
        if size <= 2 * most:
            variances, vectors = np.linalg.eigh(self.within(np.arange(size)))
        else:  # Lanczos' method: tens of steps for each
            product = LinearOperator((size, size), matvec=lambda v: (self @ v.reshape(-1, 1))[:, 0], dtype=float)
            variances, vectors = eigsh(product, most, v0=np.sqrt(np.maximum(self.diagonal, 0.0)), tol=_LEADING_TO)
        order = np.argsort(variances)[::-1][:most]
        order = order[variances[order] > _ROUNDING * variances.max()]
        return Directions(vectors[:, order], variances[order])


@dataclass(frozen=True, eq=False)
class _Blocks:
    """An approximate inverse of κ C + τ²I: exact within every block of cells, and in the effects of single columns.

    C is taken as C_A, the covariances that the indicators of single columns' cells explain, and C − C_A within blocks alone. Tables
    of columns that nearly copy each other say nearly the same, so they are one block; so are a set's table and those of its parts.

    inverses     each block's cells (a slice, or numbers), and the inverse (of κ (C − C_A) + τ²I) there.
    explained    (F, r) the blocks' inverses times a root of κ C_A.
    inner        Cholesky factor of the Woodbury identity's (r, r) matrix.
    """

    inverses: tuple[tuple[Any, Array], ...]
    explained: Array
    inner: Any

    @classmethod
    def of(
        cls, covariance: FeatureCovariance, feature_map: MarginFeatures, spread: float, noise_variance: float
    ) -> Any:
        """An identity where cells are so many more than rows that the eigenvalues of C but 0 are alike."""
        if len(covariance.mean) > _MORE_CELLS * len(covariance.weights):
            return eye_array(len(covariance.mean), format="csr")
        root = np.sqrt(spread) * _explained_by_columns(covariance, feature_map)
        inverses, explained = [], np.zeros_like(root)
        for block in _blocks(covariance, feature_map):
            size = spread * covariance.within(block) - root[block] @ root[block].T
            size[np.diag_indices_from(size)] += noise_variance
            inverse = np.linalg.inv(size)
            inverses.append((block, (inverse + inverse.T) / 2))
            explained[block] = inverses[-1][1] @ root[block]
        inner = cho_factor(np.eye(root.shape[1]) + root.T @ explained)
        return cls(tuple(inverses), explained, inner)

    def __matmul__(self, B: Array) -> Array:
        solved = -self.explained @ cho_solve(self.inner, self.explained.T @ B)
        for block, inverse in self.inverses:
            solved[block] += inverse @ B[block]
        return solved


def _explained_by_columns(covariance: FeatureCovariance, feature_map: MarginFeatures) -> Array:
    """(F, r) covariances of the features with orthonormal functions of single columns."""
    alone = [group for group in feature_map.groups if group.kind == "one-way"]
    cells = np.concatenate([np.arange(group.start, group.stop) for group in alone])
    cells = cells[np.argsort(-covariance.diagonal[cells])[:_MOST_ALONE]]
    indicators, mean = covariance.features[:, cells], covariance.mean
    weighted = indicators.multiply(covariance.weights[:, None]).tocsr()
    joint = (covariance.transposed @ weighted).toarray() - np.outer(mean, mean[cells])
    return joint @ _inverse_root(joint[cells])


def _blocks(covariance: FeatureCovariance, feature_map: MarginFeatures) -> Iterator[Any]:
    together: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    related = _related_columns(covariance, feature_map)
    for group in feature_map.groups:
        for table, own in zip(group.tables, group.ranges, strict=True):
            together.setdefault(tuple(sorted({int(related[j]) for j in table})), []).append(own)
    size = {columns: sum(stop - start for start, stop in ranges) for columns, ranges in together.items()}
    for columns in sorted(together, key=len):  # the table of more columns says what theirs says: they join the smallest
        holding = [c for c in together if set(columns) < set(c) and size[c] + size[columns] <= _MOST_TOGETHER]
        if holding:
            smallest = min(holding, key=size.__getitem__)
            together[smallest] += together.pop(columns)
            size[smallest] += size[columns]
    for columns, ranges in together.items():
        if len(ranges) > 1 and size[columns] <= _MOST_TOGETHER:
            yield np.concatenate([np.arange(*own) for own in ranges])
        else:
            for start, stop in ranges:
                step = _LARGEST if stop - start > _MOST_TOGETHER else stop - start
                yield from (slice(part, min(part + step, stop)) for part in range(start, stop, step))


def _related_columns(covariance: FeatureCovariance, feature_map: MarginFeatures) -> Array:
    """A number for each coarse and finer column, the same for those whose cells have a canonical correlation above `_RELATED`."""
    kernel = feature_map.kernel
    columns = [*range(len(kernel.edges)), *kernel.finer]
    ranges = {
        table[0]: own
        for group in feature_map.groups
        for table, own in zip(group.tables, group.ranges, strict=True)
        if group.kind == "one-way"
    }
    if not ranges:
        return np.array(columns)
    cells = np.concatenate([np.arange(*own) for own in ranges.values()])
    starts = np.cumsum([0, *(stop - start for start, stop in ranges.values())])
    own = {j: slice(*ends) for j, ends in zip(ranges, pairwise(starts), strict=True)}
    joint = covariance.within(cells)
    roots = {j: _inverse_root(joint[part, part]) for j, part in own.items()}
    related = np.eye(len(kernel.edges))
    for i, j in combinations([j for j in ranges if roots[j].size], 2):
        related[i, j] = np.linalg.norm(roots[i].T @ joint[own[i], own[j]] @ roots[j], 2) > _RELATED
    return connected_components(related, directed=False)[1][columns]


def _inverse_root(covariance: Array) -> Array:
    """(L, r) R of which Rᵀ C R is the identity, on the space where C (L, L) is not 0."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _ROUNDING * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])


@dataclass(frozen=True, eq=False)
class _System:
    """(κ C + τ²I) A = B, solved for several columns at once."""

    covariance: FeatureCovariance
    spread: float
    noise_variance: float
    inverse: Any  # nearly, `_Blocks` or an identity

    @classmethod
    def of(cls, measurement: Measurement, covariance: FeatureCovariance, spread: float) -> _System:
        noise_variance = _solvable_noise(measurement.noise_scale**2, covariance, spread)
        assert isinstance(measurement.feature_map, MarginFeatures)
        blocks = _Blocks.of(covariance, measurement.feature_map, spread, noise_variance)
        return cls(covariance, spread, noise_variance, blocks)

    def __matmul__(self, A: Array) -> Array:
        return self.spread * (self.covariance @ A) + self.noise_variance * A

    def solved_exactly(self, b: Array) -> Array:
        """a (F,), up to a residual of `_EXACT` noise deviations: answers are off by at most that share of their privacy error.

        ValueError where `_MOST_STEPS_EXACTLY` steps do not reach it.
        """
        most = _EXACT * np.sqrt(self.noise_variance)
        a = self.solved(b[:, None], most=_MOST_STEPS_EXACTLY, residual=most)
        if not (left := float(np.linalg.norm(b - (self @ a)[:, 0]))) <= 2 * most:  # 2: it is summed up in another order
            raise ValueError(
                f"the equations of the measurement were not solved: after {_MOST_STEPS_EXACTLY} steps {left / most:.3g} times the "
                "tolerance is left. Where errors are not known there is no answer; please report it with the file."
            )
        return a[:, 0]

    def solved(
        self, B: Array, enough: Callable[[Array], Array] = lambda gains: gains[-1] < 0, most: int = _MOST_STEPS,
        residual: float = 0.0,
    ) -> Array:  # fmt: skip
        """A (F, k) by conjugate gradients, each column by itself: it ends when `enough` is true of its gains.

        enough    from what each step so far added to Bᵀ A (steps, k) → (k,).
        most      steps. ValueError where one is not finite.
        residual  norm of what is left of a column with which it ends too.
        """
        A, rest, gains = np.zeros_like(B), B.copy(), np.zeros((most, B.shape[1]))
        step = direction = self.inverse @ rest
        size = (rest * step).sum(axis=0)
        going = np.arange(B.shape[1])
        for i in range(most):
            kept = ~(size <= _NOTHING * gains.sum(axis=0)[going])
            going, rest, direction, size = going[kept], rest[:, kept], direction[:, kept], size[kept]
            if not len(going):
                break
            image = self @ direction
            length = size / (direction * image).sum(axis=0)
            if not (np.isfinite(length) & (length > 0)).all():
                raise ValueError(
                    f"the equations of the measurement were not solved: step {i + 1} has no length. Where errors are not known "
                    "there is no answer; please report it with the file."
                )
            A[:, going] += length * direction
            rest -= length * image
            gains[i, going] = length * size
            left = ~enough(gains[: i + 1])[going] & (np.linalg.norm(rest, axis=0) > residual)
            going, rest, direction, before = going[left], rest[:, left], direction[:, left], size[left]
            step = self.inverse @ rest
            size = (rest * step).sum(axis=0)
            direction = step + size / before * direction
        return A


def independent_rows(rows: Array, domain: Domain, kernel: Margins, rng: np.random.Generator) -> Array:
    """Encoded rows (n, d) of independent columns with the same values; as independent as rules allow where there are some."""
    allowed, n = allowed_cells(domain, kernel), len(rows)
    tied = [] if allowed is None else allowed.columns
    found = np.empty_like(rows)
    for j in range(len(domain)):
        own = domain.column_of == j
        found[:, own] = rows[:, own] if j in tied else rows[rng.permutation(n)][:, own]
    if allowed is None:
        return found
    cells = kernel.cells(found)
    for j in tied * _EXCHANGES:  # two rows exchange their values where the rules allow both
        first, second = rng.permutation(n)[: n // 2 * 2].reshape(2, -1)
        moved = cells.copy()
        moved[first, j], moved[second, j] = cells[second, j], cells[first, j]
        kept = allowed.keeps(moved)
        both = kept[first] & kept[second]
        first, second = first[both], second[both]
        for values in (found, cells):
            values[first, j], values[second, j] = values[second, j], values[first, j]
    return found


def spread_from_independence(
    measurement: Measurement, domain: Domain, rows: Array, weights: Array, rng: np.random.Generator
) -> tuple[float, float]:
    """(κ, γ): how far the measurement departs from independent columns, per direction that it determines."""
    n = min(_INDEPENDENT_ROWS, len(rows))
    assert isinstance(measurement.feature_map, MarginFeatures)
    drawn = rows[systematic_indices(weights, n, rng)]
    independent = independent_rows(drawn, domain, measurement.feature_map.kernel, rng)
    covariance = FeatureCovariance.of(measurement, independent, np.full(n, 1 / n))
    probes = rng.choice([-1.0, 1.0], (len(covariance.mean), _PROBES))
    B = np.column_stack([_whitened(measurement) - covariance.mean, probes])
    kappa, variance = _FIRST_SPREAD, measurement.noise_scale**2
    system = _System.of(measurement, covariance, kappa)
    for _ in range(_SPREAD_STEPS):
        system = replace(system, spread=kappa, noise_variance=_solvable_noise(variance, covariance, kappa))
        found = system.solved(B, _until(_NEARLY), most=_STEPS_OF_PROBES)
        image = covariance @ found
        determined = kappa * float((probes * image[:, 1:]).sum(axis=0).mean())
        wanted = kappa**2 * float(found[:, 0] @ image[:, 0]) / max(determined, 1e-9)
        wanted = float(np.clip(wanted, 1e-6, 1.0))
        if abs(wanted / kappa - 1) < 0.05:
            break
        kappa = wanted
    twice = system.solved(image[:, 1:], _until(_NEARLY), most=_STEPS_OF_PROBES)  # S⁻¹ C S⁻¹ z
    information = float((image[:, 1:] * twice).sum(axis=0).mean()) / 2  # tr (S⁻¹ C)² / 2
    return _CAUTION * (wanted + 1 / np.sqrt(max(information, 1e-300))), determined


@dataclass(frozen=True, eq=False)
class CellFit:
    """A measurement of tables and the released rows: the errors of any question, as `MeasuredErrors` needs them.

    rows         (n, d) encoded: the released points.
    weights      (n,) the weights of the best answers; they sum to one, and some may be negative.
    system       κ C + τ²I around the rows.
    determined   γ.
    """

    rows: Array
    weights: Array
    system: _System
    determined: float
    measurement: Measurement

    on_points: ClassVar[bool] = True

    @property
    def probabilities(self) -> Array:
        return self.system.covariance.weights

    @property
    def spread(self) -> float:
        return self.system.spread

    @cached_property
    def interactions(self) -> Interactions:
        return Interactions.of(self.measurement, self.rows, self.probabilities, self.spread)

    def covariance(self, influence: Array) -> dict[str, Array]:
        """Joint covariances (k, k) by source of means of values (n, k) at the rows."""
        a, centred = self._solved(influence)
        rest = centred - self.system.covariance.at_rows(a)
        bias = _STILL_TO_GO * (self.weights - self.probabilities) @ rest  # how far more steps would move the answers
        privacy = self.measurement.noise_scale**2 * a.T @ a
        sampling = (self.probabilities[:, None] * centred).T @ centred / self.measurement.n_rows
        left_open = self.interactions.left_open(rest, np.ptp(influence, axis=0))
        along = self.interactions.of_columns(centred, self._noises)
        least = (along**2).sum(axis=0) - privacy.diagonal()
        resolution = self._validation * left_open + np.outer(bias, bias)
        resolution += with_diagonal(along.T @ along, np.maximum(least - resolution.diagonal(), 0.0))
        return {"privacy": privacy, "sampling": sampling, "resolution": resolution}

    @cached_property
    def _noises(self) -> list[Array]:
        """Of each column the variance of the noise on the share of each of its cells (a,), by all tables that count it."""
        assert isinstance(self.measurement.feature_map, MarginFeatures)
        kernel = self.measurement.feature_map.kernel
        columns, noise = [*range(len(kernel.edges)), *kernel.finer], self.measurement.variances
        precision = [np.full(size, 1e-300) for size in kernel.sizes]
        for group in self.measurement.feature_map.groups:
            for table, square, (start, stop) in zip(group.tables, group.squares, group.ranges, strict=True):
                variances = noise[start:stop].reshape([group.sizes[t] for t in table])
                for axis, j in enumerate(columns[t] for t in table):
                    apart = np.moveaxis(variances, axis, 0).reshape(variances.shape[axis], -1).sum(axis=1)
                    if group.kind == "finer":
                        apart = apart.mean() * len(apart) / kernel.sizes[j]
                    precision[j] += square / apart
        return [1 / each for each in precision]

    def deviations(self, k: int, rng: np.random.Generator) -> Array:
        """See `MeasuredErrors.deviations`: f − fit(A f + noise), f from the prior (Matheron's rule).

        The bound that a noisy score sets to a pair that was not measured has no part in them.
        """
        size = len(self.system.covariance.mean)
        f = np.sqrt(self._validation) * self.interactions.prior_draws(k, rng)
        noise = self.measurement.noise_scale * rng.standard_normal((size, k))
        moved = self.weights - self.probabilities
        bias = _STILL_TO_GO * (moved - self._fitted(self.system.covariance.transposed @ moved[:, None])[:, 0])
        followed = self._fitted(self.system.covariance.transposed @ f + noise)
        return f - followed + np.outer(bias, rng.standard_normal(k))

    def _fitted(self, sums: Array) -> Array:
        """(n, k) the weights p (φ − E_p φ)ᵀ κ (κ C + τ²I)⁻¹ sums that a fit adds for measured sums of features (F, k)."""
        b = self.spread * self.system.solved(sums, _until(_DRAWN, fewest=_PATIENCE + 1))
        return self.probabilities[:, None] * self.system.covariance.at_rows(b)

    @property
    def _validation(self) -> float:
        return 1 / (1 - min(self.determined * float(self.probabilities @ self.probabilities), 0.5)) ** 2

    def _solved(self, influence: Array) -> tuple[Array, Array]:
        """a (F, k), and the centred influence (n, k)."""
        centred = influence - self.probabilities @ influence
        blocks = [centred[:, first : first + _TOGETHER] for first in range(0, centred.shape[1], _TOGETHER)]
        return np.hstack([self._solved_together(block) for block in blocks]), centred

    def _solved_together(self, centred: Array) -> Array:
        variance = self.probabilities @ centred**2
        most = (self.spread + 1 / self.measurement.n_rows) * variance  # the squared error before the first step

        def narrow(gains: Array) -> Array:
            now = most - gains.sum(axis=0)
            return (len(gains) >= _PATIENCE) & (gains[-_PATIENCE:].sum(axis=0) <= 2 * _GAIN * now)

        return self.system.solved(self.spread * self.system.covariance.with_features(centred), narrow)

    @cached_property
    def compatible(self) -> CompatiblePopulations:
        return self._compatible_along(self.system.covariance.leading(LEADING_DIRECTIONS).vectors)

    def _compatible_along(self, vectors: Array) -> CompatiblePopulations:
        seen = np.asarray(self.system.covariance.features @ vectors)
        variances = self.probabilities @ (seen - self.probabilities @ seen) ** 2
        errors = np.sqrt(self.measurement.noise_scale**2 + variances / self.measurement.n_rows)
        return CompatiblePopulations(seen - vectors.T @ _whitened(self.measurement), errors)

    def least(self, values: Array, level: float) -> float:
        a, _ = self._solved(values[:, None])
        own = self._compatible_along(a / max(float(np.linalg.norm(a)), _ROUNDING))
        coordinates = np.hstack([own.coordinates, self.compatible.coordinates])
        return CompatiblePopulations(coordinates, np.append(own.errors, self.compatible.errors)).least(values, level)


def fit_cells(measurement: Measurement, domain: Domain, rows: Array, weights: Array) -> CellFit | None:
    """The fit of a measurement around rows (n, d) of probability weights (n,); deterministic, some seconds.

    None for other features than margins, and for few rows. κ is the average of what is read off the measurement, counted γ times,
    and of usual tables' κ, counted three times for each one-way cell: these show no departure.
    """
    feature_map = measurement.feature_map
    if not isinstance(feature_map, MarginFeatures) or 1 / float(weights @ weights) < _FEWEST_ROWS:
        return None
    rng = np.random.default_rng(0)
    spread, determined = spread_from_independence(measurement, domain, rows, weights, rng)
    usual = _PRIOR_COUNT * sum(feature_map.kernel.sizes)
    spread = (determined * spread + usual * _USUAL_SPREAD) / (determined + usual)
    return _fit_around(measurement, rows, weights, spread, determined)


def _whitened(measurement: Measurement) -> Array:
    """(F,) the vector with noise of the same size on each coordinate."""
    relative = measurement.relative_noise
    return measurement.vector if relative is None else measurement.vector / relative


def _solvable_noise(variance: float, covariance: FeatureCovariance, spread: float) -> float:
    """The noise variance, or as much as the solver needs to end: a is then a little shorter than the best one."""
    return max(variance, _LEAST_NOISE * spread * float(covariance.diagonal.max()))


def _fit_around(measurement: Measurement, rows: Array, weights: Array, spread: float, determined: float) -> CellFit:
    assert isinstance(measurement.feature_map, MarginFeatures)
    covariance = FeatureCovariance.of(measurement, rows, weights)
    system = _System.of(measurement, covariance, spread)
    b = spread * system.solved_exactly(_whitened(measurement) - covariance.mean)
    return CellFit(rows, weights * (1 + covariance.at_rows(b)), system, determined, measurement)


def _until(share: float, *, fewest: int = 1) -> Callable[[Array], Array]:
    """Whether none of the last steps, of this many at least, gained more than this share of what all of them did."""
    return lambda gains: (len(gains) >= fewest) & (gains[-_PATIENCE:].max(axis=0) < share * gains.sum(axis=0))
