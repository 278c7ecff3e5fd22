"""The population fit: the most plausible population under a measurement, and how far the truth may be from it.

A mixture p of clouds of rows minimises ½‖y − Aᵀp‖²_{R⁻¹} + KL(p‖q)/κ: maximum entropy under noise (Dudík, Phillips & Schapire
2007). Ridge regression divides a question h into aᵀφ, which the measurement determines, and a rest, for the errors of privacy,
sampling and resolution. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.optimize import linprog
from scipy.special import logsumexp, ndtri

from kmeanalyst.inference.estimate.interactions import OF_RELATIONS, with_diagonal
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import in_threads, row_blocks
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.principal import principal_directions
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Cyclic, Number
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import draw_kept, kept_or
from kmeanalyst.representation.weights.views import view_weights

LEADING_DIRECTIONS = 80  # of the rows, along which a compatible population agrees with the measurement
_PENALTY = 1e4  # of a standard error further away, in ranges of the question
_ROWS_AT_ONCE, _MOST_ROUNDS, _AGREES = 100, 300, 1e-7  # of linear programs: rows added, rounds, what counts as nothing
_ROWS_KEPT = 200  # of a program's rows in the next one: those that have weight, and those that would lower it soonest


@dataclass(frozen=True, eq=False)
class CompatiblePopulations:
    """All populations on stated rows that agree with the measurement, and the least answer over them: an outer limit.

    A population here is any probability weights p on the rows, smooth or not. It agrees with the measurement y if
    |v_kᵀ(Σ p φ(z) − y)| is within the noise and sampling errors along all of K leading directions v_k at once (normal
    distribution, Bonferroni). The least and the largest Σ p h are two linear programs.

    coordinates  (n, K) features of the rows along leading directions, less the measurement's.
    errors       (K,) standard error of the measurement along them.
    """

    coordinates: Array
    errors: Array

    def least(self, values: Array, level: float) -> float:
        """The least mean of `values` (n,) over the populations compatible at this simultaneous level.

        Where no population on the rows agrees at the level, the nearest ones are taken. ValueError if a program fails.
        """
        K = len(self._seen)
        found, beyond = self._extreme(values, float(ndtri(1 - (1 - level) / (2 * K))))
        if beyond > _AGREES:
            found, _ = self._extreme(values, 1.01 * self._nearest)
        return found

    @cached_property
    def _seen(self) -> Array:
        K = min(LEADING_DIRECTIONS, len(self.errors))
        return (self.coordinates[:, :K] / self.errors[:K]).T

    @cached_property
    def _nearest(self) -> float:
        """The least t such that some population on the rows is within t standard errors along every direction."""
        return self._extreme(np.zeros(self._seen.shape[1]), 0.0)[1]

    def _extreme(self, values: Array, within: float) -> tuple[float, float]:
        """The least mean of `values` over populations this near, and by how much the nearest ones are further away.

        Few rows have weight in a solution of a linear program: those that would lower it are added until there is none (column
        generation; Dantzig & Wolfe 1960).
        """
        K, size = len(self._seen), float(np.ptp(values)) or 1.0
        near = np.argsort(np.abs(self._seen).max(axis=0))[:_ROWS_AT_ONCE]
        chosen = np.unique([*near, *np.argsort(values, kind="stable")[:_ROWS_AT_ONCE]])
        for _ in range(_MOST_ROUNDS):
            seen, further = self._seen[:, chosen], np.full((K, 1), -1.0)
            found = linprog(
                np.append(values[chosen] / size, _PENALTY), np.block([[seen, further], [-seen, further]]), np.full(2 * K, within),
                np.append(np.ones(len(chosen)), 0.0)[None], [1.0], method="highs",
            )  # fmt: skip
            if found.status != 0:
                break
            prices = found.ineqlin.marginals
            lower = values / size - (prices[:K] - prices[K:]) @ self._seen - found.eqlin.marginals[0]
            added = np.setdiff1d(np.argsort(lower, kind="stable")[:_ROWS_AT_ONCE], chosen)
            added = added[lower[added] < -_AGREES]
            if not len(added):
                beyond = float(found.x[-1])
                return float(found.x[:-1] @ values[chosen]), beyond
            soonest = np.argsort(np.where(found.x[:-1] > 0, -np.inf, lower[chosen]), kind="stable")
            chosen = np.append(chosen[soonest[:_ROWS_KEPT]], added)
        raise ValueError(
            f"the range over compatible populations was not found: {found.message} Use kind='default' for this question."
        )


_EVEN, _SHARP, _BROAD = 300, 280, 420  # numbers of rows: anywhere, near the points, near their columns' distributions
_EVERY_ROW = 1000  # domains with at most this many rows are enumerated
_SHARES = (0.2, 0.2, 0.6)  # the reference's mass on these three groups of rows
_KEPT = (0.9, 0.5)  # share of the cells of a near row that come from one point; the others come from a second point
_SPREAD = (0.01, 0.1)  # standard deviation of a near row's numbers about them, in ranges of the column
_BLURS = (0.015, 0.04, 0.1)  # widths of the blurred clouds, in ranges of the column
_AS_IT_IS = 0.01  # the reference's mass on clouds of a single row
_COPIES = 5  # rows of a blurred cloud
_DIRECTIONS = 250
_REPLICATES = 6
_NEWTON_STEPS, _ENOUGH = 100, 1e-6  # a step that would gain less than this ends a fit
_LEADING = 20  # coordinates that show how far refits depart
_DOUBT = 3.0  # standard errors of κ
_LEAST_NOISE = 1e-5  # relative to the bound of the features: with less no population of so few clouds agrees
_OUTSIDE = 0.03  # share of the reference in the mass under which means and variances are taken
_BESIDE_ATOM = 0.002  # in ranges of the column: a fitted cell this near to an atom is moved onto it


@dataclass(frozen=True, eq=False)
class PopulationFit:
    """The most plausible population, and what decides how far the truth may be from it.

    rows        (n, d) encoded: m single rows, then m blurred clouds of _COPIES rows, for each of the widths.
    weights     (n,) p of each row: probabilities.
    replicates  (n_clouds, B) p fitted to measurements drawn from the population.
    """

    rows: Array
    weights: Array
    replicates: Array
    clouds: Array  # (n_clouds,) p
    reference: Array  # (n_clouds,) q
    mass: Array  # (n_clouds,) p with a little of q: where the truth may lie
    coordinates: Array  # (n_clouds, K) A: features of the clouds along the directions, centred under that mass
    error: Array  # (K, K) R: noise and sampling along the directions
    factor: Any  # Cholesky of Cov A + R/κ, under that mass
    noise_scale: float
    n_rows: int
    spread: float  # κ
    prior_variance: Array  # (n_clouds,) κ′ p, and κ times the little of q
    compatible: CompatiblePopulations  # on the first row of each cloud

    on_points: ClassVar[bool] = False

    @property
    def probabilities(self) -> Array:
        return self.weights

    def cloud_means(self, values: Array) -> Array:
        """Values (n, k) at the rows → (n_clouds, k) means over each cloud."""
        m = len(self.clouds) // (1 + len(_BLURS))
        blurred = values[m:].reshape(len(_BLURS), _COPIES, m, -1).mean(axis=1)
        return np.vstack([values[:m], blurred.reshape(len(_BLURS) * m, -1)])

    def least(self, values: Array, level: float) -> float:
        """The least mean of values (n,) at the rows, over populations of the first row of each cloud that are compatible."""
        m = len(self.clouds) // (1 + len(_BLURS))
        first = np.concatenate([values[:m], *(values[m * (1 + i * _COPIES) :][:m] for i in range(len(_BLURS)))])
        return self.compatible.least(first, level)

    def covariance(self, influence: Array) -> dict[str, Array]:
        """Joint covariances (k, k) by source of means of values (n, k) at the rows."""
        centred = influence - self.weights @ influence
        h = self.cloud_means(influence)
        a, rest, refit = self._split(h)
        known, free = a.T @ self.error @ a, (self.prior_variance[:, None] * rest).T @ rest
        away = refit.mean(axis=0)
        excess = (refit - away).T @ (refit - away) / (len(refit) - 1) - known
        bias = np.outer(away, away) + _positive_part(excess)
        larger = self._of_relation(h - self.mass @ h, rest, (known + free).diagonal())
        resolution = with_diagonal(free + bias, np.maximum(free.diagonal(), larger) + bias.diagonal())
        return {
            "privacy": self.noise_scale**2 * a.T @ a,
            "sampling": (self.weights[:, None] * centred).T @ centred / self.n_rows,
            "resolution": resolution,
        }

    def _of_relation(self, h: Array, rest: Array, error: Array) -> Array:
        """(k,) variance of what a relation h (n_clouds, k) leaves open: (1 − s)² Var h/4 as far as it is unknown.

        That is v/(s² Var h/4 + v), s the share of the relation that the answers follow, v the variance of their errors otherwise.
        """
        variance, left = self.mass @ h**2, self.mass @ (h * rest)
        per = OF_RELATIONS * np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
        followed = per * (variance - left) ** 2 + error
        return per * left**2 * np.divide(error, followed, out=np.ones_like(error), where=followed > 0)

    def deviations(self, k: int, rng: np.random.Generator) -> Array:
        """See `MeasuredErrors.deviations`: f − fit(A f + noise), f from the prior (Matheron's rule).

        Refits that depart further than their noise explains do so in the same proportion everywhere.
        """
        f = np.sqrt(self.prior_variance)[:, None] * rng.standard_normal((len(self.clouds), k))
        noise = self._excess * self.noise_scale * rng.standard_normal((self.coordinates.shape[1], k))
        fitted = self.mass[:, None] * (self.coordinates @ cho_solve(self.factor, self.coordinates.T @ f + noise))
        bias = np.outer(self.replicates.mean(axis=1) - self.clouds, rng.standard_normal(k))
        return of_rows(f - self.mass[:, None] * f.sum(axis=0) - fitted + bias)

    @property
    def _excess(self) -> float:
        """By what factor refits of the leading coordinates depart more than their noise explains; at least 1."""
        a, _, refit = self._split(self.coordinates[:, :_LEADING])
        return float(np.sqrt(max(1.0, refit.var(axis=0, ddof=1).sum() / np.einsum("ik,ik->", a, self.error @ a))))

    def _split(self, h: Array) -> tuple[Array, Array, Array]:
        """Of h (n_clouds, k): a (K, k); the rest h − aᵀφ (n_clouds, k); and by how much refitted means depart (B, k)."""
        h = h - self.mass @ h
        a = cho_solve(self.factor, self.coordinates.T @ (self.mass[:, None] * h))
        return a, h - self.coordinates @ a, self.replicates.T @ h - self.clouds @ h


def of_rows(clouds: Array) -> Array:
    m = len(clouds) // (1 + len(_BLURS))
    blurred = clouds[m:].reshape(len(_BLURS), m, -1)
    return np.vstack([clouds[:m], *(np.tile(part / _COPIES, (_COPIES, 1)) for part in blurred)])


def fit_population(release: ReleaseData, measurement: Measurement) -> PopulationFit:
    """The population fit of a release; deterministic, some seconds at most."""
    rng = np.random.default_rng(0)
    singles, reference = _singles(release, rng)
    rows = [
        singles,
        *(np.vstack([_blurred(release.domain, singles, width, rng) for _ in range(_COPIES)]) for width in _BLURS),
    ]
    each_row, target = _coordinates(measurement, rows, reference)
    A = np.vstack([part.reshape(-1, len(singles), part.shape[1]).mean(axis=0) for part in each_row])
    shares = np.array([_AS_IT_IS, *[(1 - _AS_IT_IS) / len(_BLURS)] * len(_BLURS)])
    problem = _Problem(A, target, np.log(np.kron(shares, reference)), _resolved(measurement) ** 2, measurement.n_rows)
    dual, p, kappa = problem.with_spread_from_evidence()
    R = problem.error(p)
    outside = _OUTSIDE * np.exp(problem.log_reference)
    mass = (1 - _OUTSIDE) * p + outside
    drawn = (A.T @ p)[:, None] + np.linalg.cholesky(R) @ rng.standard_normal((A.shape[1], _REPLICATES))
    m = len(singles)
    return PopulationFit(
        rows=np.vstack(rows),
        weights=of_rows(p[:, None])[:, 0],
        replicates=np.column_stack([replace(problem, target=y)._solved(R, kappa, dual)[1] for y in drawn.T]),
        clouds=p,
        reference=np.exp(problem.log_reference),
        mass=mass,
        coordinates=A - mass @ A,
        error=R,
        factor=cho_factor(_covariance(A, mass) + R / kappa),
        noise_scale=measurement.noise_scale,
        n_rows=measurement.n_rows,
        spread=kappa,
        prior_variance=problem.prior_scale_of_unidentified(dual, p, R, kappa) * (mass - outside) + kappa * outside,
        compatible=CompatiblePopulations(
            coordinates=np.vstack([part[:m] for part in each_row]) - target,
            errors=np.sqrt(measurement.noise_scale**2 + np.diag(_covariance(A, p)) / measurement.n_rows),
        ),
    )


# ---------------------------------------------------------------- rows


def _singles(release: ReleaseData, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows (m, d) and the reference's mass (m,) on them: draws of the domain, or all its rows if they are few, and near rows.

    Released points were fitted to the noise: a reference of nothing but them would leave the measurement nothing to say. All rows
    keep the rules of the domain: one that would not is a row as it was before.
    """
    points, p = _on_atoms(release.domain, release.encoded_points), view_weights(release, "probability")
    near = [
        _blurred(release.domain, _exchanged(release.domain, points, p, n, kept, rng), spread, rng)
        for n, kept, spread in zip((_SHARP, _BROAD), _KEPT, _SPREAD, strict=True)
    ]
    every = release.domain.enumerate_rows(_EVERY_ROW)
    anywhere = (
        draw_kept(release.domain, _EVEN, rng) if every is None else every[~rules_of(release.domain).broken(every)]
    )
    parts = [part for part in (anywhere, *near) if len(part)]
    shares = np.array(_SHARES[-len(parts) :])
    mass = [np.full(len(part), share / len(part)) for part, share in zip(parts, shares / shares.sum(), strict=True)]
    return np.vstack(parts), np.concatenate(mass)


def _on_atoms(domain: Domain, rows: Array) -> Array:
    """Cells next to a declared atom moved onto it: the features hardly distinguish the two, and the domain declares mass there."""
    before, rows = rows, rows.copy()
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            for atom in column.atom_codes:
                rows[np.abs(rows[:, j] - atom) < _BESIDE_ATOM * (high - low), j] = atom
    return kept_or(domain, rows, before)


def _exchanged(domain: Domain, points: Array, p: Array, n: int, kept: float, rng: np.random.Generator) -> Array:
    """n rows: each cell of one drawn point with probability `kept`, otherwise of another."""
    home, other = (points[rng.choice(len(p), n, p=p / p.sum())] for _ in range(2))
    return kept_or(domain, np.where((rng.random((n, len(domain))) < kept)[:, domain.column_of], home, other), home)


def _blurred(domain: Domain, rows: Array, width: float, rng: np.random.Generator) -> Array:
    """Numbers moved by a normal of that share of the range, reflected or going around at the bounds; all else and atoms stay."""
    out = rows.copy()
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            moved = rows[:, j] + width * (high - low) * rng.standard_normal(len(rows))
            if not isinstance(column, Cyclic):
                moved = np.abs(moved - low) + low
                moved = np.clip(np.where(moved > high, 2 * high - moved, moved), low, high)
            stay = ~np.isfinite(rows[:, j]) | np.isin(rows[:, j], column.atom_codes)
            out[:, j] = np.where(stay, rows[:, j], column.rounded(moved))
    return kept_or(domain, out, rows)


def _coordinates(measurement: Measurement, rows: list[Array], reference: Array) -> tuple[list[Array], Array]:
    """Features of the rows (n, K) and the measurement (K,), along the reference's directions above the noise."""
    feature_map, singles = measurement.feature_map, rows[0]
    along = principal_directions(feature_map, singles, reference, most=_DIRECTIONS)
    above = max(2, int((along.variances > _resolved(measurement) ** 2 / 2).sum()))
    vectors = along.vectors[:, :above]
    origin = vectors.T @ feature_mean(feature_map, singles, reference)
    return [_projected(feature_map, part, vectors) - origin for part in rows], vectors.T @ measurement.vector - origin


def _resolved(measurement: Measurement) -> float:
    """The noise scale, or as much as a fit can show: tens of millions of rows have less noise."""
    return max(measurement.noise_scale, _LEAST_NOISE * measurement.feature_map.norm_bound)


def _projected(feature_map: FeatureMap, rows: Array, vectors: Array) -> Array:
    blocks = row_blocks(len(rows), feature_map.width)

    def projected(i: int) -> Array:
        features = feature_map.rough(rows[blocks[i]])
        return (features @ vectors.astype(features.dtype)).astype(np.float64)

    return np.vstack(list(in_threads(projected, len(blocks))))


# ---------------------------------------------------------------- the fit


@dataclass(frozen=True, eq=False)
class _Problem:
    """min over p of ½‖y − Aᵀp‖²_{R⁻¹} + KL(p‖q)/κ, solved for its dual β: p ∝ q exp(Aβ)."""

    A: Array
    target: Array
    log_reference: Array
    noise_variance: float
    n_rows: int

    def error(self, p: Array) -> Array:
        return self.noise_variance * np.eye(self.A.shape[1]) + _covariance(self.A, p) / self.n_rows

    def with_spread_from_evidence(self) -> tuple[Array, Array, float]:
        """(β, p, κ), κ three standard errors above the fixed point of κ = 2 KL(p‖q)/γ: too small a κ makes errors too small."""
        p, dual, kappa = np.exp(self.log_reference), np.zeros(self.A.shape[1]), 1.0
        for _ in range(15):
            R = self.error(p)
            dual, p = self._solved(R, kappa, dual)
            C = _covariance(self.A, p)
            settled = float(np.trace(np.linalg.solve(kappa * C + R, kappa * C)))
            entropy = float(p @ (np.log(np.maximum(p, 1e-300)) - self.log_reference))
            wanted = float(np.clip(2 * entropy / max(settled, 1e-9), 1e-6, 1e3))
            if abs(wanted / kappa - 1) < 0.05:
                break
            dual, kappa = dual * wanted / kappa, wanted
        ratios = eigh(C, R, eigvals_only=True)
        cautious = kappa + _DOUBT / np.sqrt(((ratios / (1 + kappa * ratios)) ** 2).sum() / 2)
        return *self._solved(R, cautious, dual * cautious / kappa), cautious

    def prior_scale_of_unidentified(self, dual: Array, p: Array, R: Array, kappa: float) -> float:
        """κ′, the κ of the directions that the measurement determines least: its most likely value and three standard errors.

        What the measurement leaves open is assumed to depart as the finest features that it shows: the directions that are
        determined least, and together have half of γ. Each departs by b ~ N(0, κ′ + r/c), c and r its variances in the
        population and in the measurement. κ′ is at most κ.
        """
        ratios, vectors = eigh(_covariance(self.A, p), R)
        ratios = np.maximum(ratios, 1e-12)
        settled = kappa * ratios / (1 + kappa * ratios)
        squares = ratios * (vectors.T @ (R @ dual)) ** 2 / settled**2
        last = np.cumsum(settled) <= settled.sum() / 2
        errors, squares = 1 / ratios[last], squares[last]
        spreads = kappa * np.geomspace(1e-6, 1, 400)[:, None]
        likelihood = -(np.log(spreads + errors) + squares / (spreads + errors)).sum(axis=1)
        likely = float(spreads[likelihood.argmax(), 0])
        return min(kappa, likely + _DOUBT / np.sqrt((1 / (likely + errors) ** 2).sum() / 2))

    def _solved(self, R: Array, kappa: float, dual: Array) -> tuple[Array, Array]:
        """Newton's method on the dual log Σ q exp(Aβ) − yᵀβ + βᵀRβ/2κ, halving steps that decrease it too little.

        ValueError where it does not end.
        """
        value, p = self._dual(dual, R, kappa)
        for _ in range(_NEWTON_STEPS):
            slope = self.A.T @ p - self.target + R @ dual / kappa
            step = np.linalg.solve(_covariance(self.A, p) + R / kappa, slope)
            decrease, length = float(slope @ step), 1.0
            if decrease < 1e-10:
                break
            tried, at = self._dual(dual - step, R, kappa)
            while tried > value - 1e-4 * length * decrease and length > 1e-6:
                length /= 2
                tried, at = self._dual(dual - length * step, R, kappa)
            dual, value, p = dual - length * step, tried, at
        if decrease > _ENOUGH:
            raise ValueError(
                f"the population that agrees with the measurement was not found: after {_NEWTON_STEPS} steps the next one would "
                f'still gain {decrease:.1e}. Please report it with the file; view="signed" answers without it.'
            )
        return dual, p

    def _dual(self, dual: Array, R: Array, kappa: float) -> tuple[float, Array]:
        exponents = self.log_reference + self.A @ dual
        normaliser = logsumexp(exponents)
        return float(normaliser - self.target @ dual + dual @ R @ dual / (2 * kappa)), np.exp(exponents - normaliser)


def _covariance(A: Array, p: Array) -> Array:
    mean, root = p @ A, A * np.sqrt(p)[:, None]
    return root.T @ root - np.outer(mean, mean)  # a matrix times its own transpose: half of the work


def _positive_part(S: Array) -> Array:
    """A positive semi-definite matrix with the diagonal of S, cut off at 0, from a symmetric S (k, k)."""
    eigenvalues, vectors = np.linalg.eigh(S)
    return with_diagonal((vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T, np.maximum(S.diagonal(), 0.0))
