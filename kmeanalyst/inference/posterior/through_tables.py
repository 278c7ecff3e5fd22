"""A posterior around the released rows of a measurement of tables: κ by how far these depart from independent columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import eye_array

from kmeanalyst.inference.posterior.column_sums import ColumnSums
from kmeanalyst.inference.posterior.equations import Equations, solvable_noise, until
from kmeanalyst.inference.posterior.feature_covariance import FeatureCovariance
from kmeanalyst.inference.posterior.interactions import Interactions
from kmeanalyst.inference.posterior.pair_sums import with_pairs
from kmeanalyst.inference.posterior.posterior import Posterior, validation
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import on_one_thread
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.allowed_cells import AllowedCells, allowed_cells, independent_rows
from kmeanalyst.representation.weights.views import systematic_indices

_FEWEST_ROWS, _FEWEST_EVEN = 3000, 500  # on fewer, or so uneven ones, Var_p(h − aᵀφ) would say little
_PRIOR_COUNT = 3.0  # of the usual κ, for each cell of one-way tables
_INDEPENDENT_ROWS = 5000  # rows of independent columns
_USUAL_SPREAD = 0.04  # κ of usual tables
_PROBES = 4  # random vectors that estimate a trace
_FIRST_SPREAD = 0.005  # κ at first
_SPREAD_STEPS, _STEPS_OF_PROBES = 8, 15  # most updates of κ, and steps of the solver in each
_CAUTION = 1.2  # factor on κ and its standard error
_LEFT = 1e-2  # of what a first step adds, to which a second one is solved for
_MORE_CELLS = 1.5  # times as many as rows
_NEARLY = 1e-4  # probes are solved for to this share


def spread_from_independence(
    measurement: Measurement, domain: Domain, rows: Array, weights: Array, rng: np.random.Generator
) -> tuple[float, float]:
    """(κ, γ): how far the measurement departs from independent columns, per direction that it determines."""
    n = min(_INDEPENDENT_ROWS, len(rows))
    assert isinstance(measurement.feature_map, MarginFeatures)
    drawn = rows[systematic_indices(weights, n, rng)]
    independent = independent_rows(drawn, domain, measurement.feature_map.kernel, rng)
    covariance = FeatureCovariance.of_tables(measurement, independent, np.full(n, 1 / n))
    probes = rng.choice([-1.0, 1.0], (len(covariance.mean), _PROBES))
    B = np.column_stack([measurement.with_even_noise(measurement.vector) - covariance.mean, probes])
    kappa, variance = _FIRST_SPREAD, measurement.noise_scale**2
    system = Equations(covariance, kappa, variance, eye_array(len(covariance.mean), format="csr"))
    if len(covariance.mean) <= _MORE_CELLS * n:  # of more, blocks cost more than the few steps that they save
        system = Equations.of(covariance, measurement.feature_map, kappa, variance)
    for _ in range(_SPREAD_STEPS):
        system = replace(system, spread=kappa, noise_variance=solvable_noise(variance, covariance, kappa))
        found = system.solved(B, until(_NEARLY), most=_STEPS_OF_PROBES)
        image = covariance @ found
        determined = kappa * float((probes * image[:, 1:]).sum(axis=0).mean())
        wanted = kappa**2 * float(found[:, 0] @ image[:, 0]) / max(determined, 1e-9)
        wanted = float(np.clip(wanted, 1e-6, 1.0))
        if abs(wanted / kappa - 1) < 0.05:
            break
        kappa = wanted
    twice = system.solved(image[:, 1:], until(_NEARLY), most=_STEPS_OF_PROBES)  # S⁻¹ C S⁻¹ z
    information = float((image[:, 1:] * twice).sum(axis=0).mean()) / 2  # tr (S⁻¹ C)² / 2
    return _CAUTION * (wanted + 1 / np.sqrt(max(information, 1e-300))), determined


@on_one_thread
def around_points(measurement: Measurement, domain: Domain, rows: Array, weights: Array) -> Posterior | None:
    """The posterior around rows (n, d) of probability weights (n,); deterministic, some seconds.

    None for other features than margins, and for few rows. κ is the average of what is read off the measurement, counted γ times,
    and of usual tables' κ, counted three times for each one-way cell: these show no departure.
    """
    feature_map = measurement.feature_map
    few = np.count_nonzero(weights) < _FEWEST_ROWS or 1 / float(weights @ weights) < _FEWEST_EVEN
    if few or not isinstance(feature_map, MarginFeatures):
        return None
    rng = np.random.default_rng(0)
    spread, determined = spread_from_independence(measurement, domain, rows, weights, rng)
    usual = _PRIOR_COUNT * sum(feature_map.kernel.sizes)
    spread = (determined * spread + usual * _USUAL_SPREAD) / (determined + usual)
    allowed = allowed_cells(domain, feature_map.kernel)
    return posterior_around(measurement, rows, weights, spread, determined, allowed)


def posterior_around(
    measurement: Measurement, rows: Array, weights: Array, spread: float, determined: float, allowed: AllowedCells | None = None
) -> Posterior:
    covariance = FeatureCovariance.of_tables(measurement, rows, weights)
    target = measurement.with_even_noise(measurement.vector)
    assert isinstance(measurement.feature_map, MarginFeatures)
    equations = Equations.of(covariance, measurement.feature_map, spread, measurement.noise_scale**2)
    b = spread * equations.solved_exactly(target - covariance.mean)
    # what a second step would add to b
    left = equations.noise_variance * equations.solved_exactly(b, _LEFT * float(np.linalg.norm(b)))
    sums = with_pairs(ColumnSums.of(measurement, rows, weights, allowed), measurement, rows, covariance.mean)
    found = weights[:, None] * np.column_stack([1 + covariance.at_rows(b), covariance.at_rows(left)])
    shares = sums.shares(target[:, None], 1.0)
    answers, second = sums.calibrated(found, shares * np.array([1.0, 0.0])).T
    return Posterior(
        rows, measurement.even_features, target, answers, second, equations,
        Interactions.of(measurement, rows, weights, spread), validation(determined, weights), measurement.noise_scale,
        measurement.n_rows, sums=sums,
    )  # fmt: skip
