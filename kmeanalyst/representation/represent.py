"""Points and weights of a release from its measurement, where the points are not given (Algorithm 2).

Random Fourier features are denoised (`denoise`), and points of the estimated mixture weighted, and moved if they are too few
(`reduced_set`). Margins become rows of equal weight, which keep
the rules of the domain: their tables are smoothed (`estimates`), cells drawn from a tree of pairs and moved until they fit all
tables (`even_rows`), and filled with values (`within_cells`, `values_kept`). Points for all other features
are thinned from a pool. `REPRESENT` says how each release method turns its measurement into points, after the door.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.representation.generator.generator import generated_rows
from kmeanalyst.representation.mixture.denoise import Denoised, denoise_measurement
from kmeanalyst.representation.mixture.reduced_set import reduced_set
from kmeanalyst.representation.progress import Progress, between, silent
from kmeanalyst.representation.tables.allowed_cells import allowed_cells
from kmeanalyst.representation.tables.estimates import Observed, estimate_tables, estimated_sets, is_smoothed
from kmeanalyst.representation.tables.even_rows import draw_cells, move_cells, rake_cells
from kmeanalyst.representation.tables.values_kept import rows_that_keep_rules, without_broken
from kmeanalyst.representation.tables.within_cells import fine_ranges, rows_in_cells
from kmeanalyst.representation.thinning import thinned
from kmeanalyst.representation.wanted import Points, Wanted
from kmeanalyst.representation.weights import convex_fit
from kmeanalyst.representation.weights.reweight import gap_tolerance, raked_weights, weights_for

Represent: TypeAlias = Callable[[Measurement, Domain, Wanted, Progress | None], Points]

VIEWS = ("probability", "bounded", "signed", "uniform")
_STEP = 0.25  # of candidates near others, as a share of a column's range
_FRESH = 0.2  # share of fresh draws among candidates, and among the cells of a moved one
_MOST_NUMBERS = 30_000_000  # features of a pool
_CANDIDATES = (600, 2000)  # of a pool, at least and at most
_POOL_STEPS = 300
_TOLERATED = 0.3  # distance between the estimate and its points, in posterior standard deviations


def represent(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None = None) -> Points:
    """Encoded points (M, d) and weights (M,) whose mean feature is an estimate of the table's.

    Errors   ValueError for an unknown view, for a measurement in a subspace, whose points are given, and for rules with other
             features than margins.
    """
    if wanted.view not in VIEWS:
        raise ValueError(f"weights must be {', '.join(VIEWS[:-1])} or {VIEWS[-1]}, got {wanted.view!r}. Name one of these.")
    rng, report = np.random.default_rng(wanted.rng), progress or silent
    wanted = replace(wanted, rng=rng)  # one stream for all steps
    features, M = measurement.feature_map, wanted.n_points
    if isinstance(features, MarginFeatures):
        points = rows_from_tables(measurement, domain, wanted, between(0.0, 0.9, report))
        report("placing points", 1.0)
        total = 1.0 if wanted.bound is None else min(1.0, wanted.bound)
        points = domain.encode(domain.decode(points, float32=wanted.float32))
        kept = without_broken(points, domain, rng)
        crossed = any(len(own) > 1 for own in features.kernel.finer_sets)
        return kept, total * raked_weights(kept, measurement) if crossed else np.full(M, total / M)
    if domain.rules:
        raise ValueError(
            "points that are placed freely do not keep rules. Draw rows from margins, the default with rules, or leave the rules "
            "out of the domain."
        )
    if not isinstance(features, RandomFourier | Nystroem):
        return _searched(measurement, domain, wanted, report)
    estimate = denoise_measurement(
        measurement, domain, public=wanted.public, rng=rng, effort=wanted.effort, progress=between(0.0, 0.8, report)
    )
    return place_points(estimate, measurement, domain, wanted, between(0.8, 1.0, report))


def place_points(estimate: Denoised, measurement: Measurement, domain: Domain, wanted: Wanted, report: Progress = silent) -> Points:
    rng, view, bound = np.random.default_rng(wanted.rng), wanted.view, wanted.bound
    start = _starting_points(estimate, wanted.public, wanted.n_points, rng)
    if wanted.float32:
        start = domain.encode(domain.decode(start, float32=True))
    weights = weights_towards(estimate, view, start, measurement, bound)
    enough = _TOLERATED * estimate.posterior_sd
    if np.linalg.norm(feature_mean(measurement.feature_map, start, weights) - estimate.mean) <= enough:
        report("placing points", 1.0)
        return start, weights
    points, _ = reduced_set(
        measurement.feature_map, estimate.mean, domain,  # type: ignore[arg-type]
        replace(wanted, n_points=len(start), public=start, rng=rng),
        enough=enough, ridge=_evenness(estimate, len(start)), progress=report,
    )  # fmt: skip
    if wanted.float32:
        points = domain.encode(domain.decode(points, float32=True))
    return points, weights_towards(estimate, view, points, measurement, bound)


def _starting_points(estimate: Denoised, public: Array | None, n_points: int, rng: np.random.Generator) -> Array:
    drawn = estimate.mixture.draw(n_points, rng)
    if public is None:
        return drawn
    count = min(len(public), round(estimate.public * n_points))
    chosen = public[rng.choice(len(public), count, replace=False)]
    return np.vstack([chosen, drawn[: n_points - count]])


def _evenness(estimate: Denoised, n_points: int) -> float:
    """The ridge at which deviations of 1/M from equal weights cost as much as the tolerated distance."""
    return (_TOLERATED * estimate.posterior_sd) ** 2 * n_points


def weights_towards(estimate: Denoised, view: str, points: Array, measurement: Measurement, bound: float | None) -> Array:
    """Weights (M,) on encoded points whose mean feature is near the estimate, as even as possible.

    view   "uniform", "probability", "bounded" (Σ|w| ≤ bound, 1 by default) or "signed" (2 by default).
    """
    M = len(points)
    if view == "uniform":
        return np.full(M, 1 / M)
    features, ridge = measurement.feature_map(points), _evenness(estimate, M)
    return convex_fit.solve_quadratic(
        convex_fit.ridged_gram(features, ridge), features @ estimate.mean + ridge / M, convex_fit.default_set(view, bound),
        tolerance=(0.1 * _TOLERATED * estimate.posterior_sd) ** 2,
    )  # fmt: skip


def _searched(measurement: Measurement, domain: Domain, wanted: Wanted, report: Progress) -> Points:
    """Points (M, d) and weights (M,) whose mean feature is near a measurement of any features.

    The best probability weights on draws from the domain and public rows say where candidates help; those of positive weight,
    points near them and fresh draws are a second pool, which is thinned: two thirds of the error of the first alone.
    """
    rng, M = np.random.default_rng(wanted.rng), wanted.n_points
    size = wanted.effort.of(int(np.clip(_MOST_NUMBERS // measurement.feature_map.dimension, *_CANDIDATES)))
    pool = _rounded(domain.draw(size, rng), domain, wanted)
    if wanted.public is not None:
        pool = np.vstack([wanted.public[rng.permutation(len(wanted.public))[: size // 2]], pool])
    weights = _pool_weights(pool, measurement)
    report("placing points", 0.4)
    kept = pool[np.argsort(-weights, kind="stable")[: min(int((weights > 0).sum()), size // 2)]]
    fresh = int(_FRESH * size)
    near = _near(pool, weights, size - len(kept) - fresh, _STEP, domain, rng)
    others = np.vstack([near, domain.draw(fresh, rng)])
    pool = np.vstack([kept, _rounded(others, domain, wanted)])
    weights = _pool_weights(pool, measurement)
    report("placing points", 0.8)
    few = min(M, len(pool))
    indices, _, _ = thinned(measurement.feature_map.kernel, pool, weights, few, "uniform")
    points = np.vstack([pool[indices], _rounded(_near(pool, weights, M - few, _STEP / 8, domain, rng), domain, wanted)])
    report("placing points", 1.0)
    if wanted.view == "uniform":
        return points, np.full(M, 1 / M)
    return points, weights_for(wanted.view, points, measurement, bound=wanted.bound)


def _rounded(rows: Array, domain: Domain, wanted: Wanted) -> Array:
    return domain.encode(domain.decode(rows, float32=wanted.float32))


def _pool_weights(pool: Array, measurement: Measurement) -> Array:
    features = measurement.feature_map.compact(pool)
    G = features @ features.T
    G = np.asarray(G.toarray() if hasattr(G, "toarray") else G)
    b, tolerance = features @ measurement.vector, gap_tolerance(measurement)
    return convex_fit.minimise_quadratic(G, b, convex_fit.PROBABILITIES, tolerance=tolerance, most_steps=_POOL_STEPS)


def _near(pool: Array, weights: Array, n: int, step: float, domain: Domain, rng: np.random.Generator) -> Array:
    rows = pool[rng.choice(len(pool), n, p=weights / weights.sum())]
    moved = rows.copy()
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            values = rows[:, j] + step * (high - low) * rng.standard_normal(n)
            moved[:, j] = np.where(np.isnan(rows[:, j]), np.nan, column.wrap(values))
    return np.where(rng.random(rows.shape) < _FRESH, domain.draw(n, rng), moved)


def weigh(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    assert wanted.given is not None
    weights = weights_for(wanted.view, wanted.given, measurement, bound=wanted.bound, n_public=wanted.n_public)
    return wanted.given, weights


def generate(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """Rows from a network trained on the measurement, with weights 1/M."""
    size, effort = wanted.n_points, wanted.effort
    rows = generated_rows(measurement, domain, n_points=size, effort=effort, progress=progress or silent)
    encoded = domain.encode(domain.decode(rows, float32=wanted.float32))
    return encoded, np.full(wanted.n_points, 1 / wanted.n_points)


REPRESENT: dict[str, Represent] = {"random-features": represent, "subspace": weigh, "generator": generate}
KEEPS_POINTS = frozenset({"subspace"})  # methods whose points do not depend on the measurement


_SWEEPS, _SWEEPS_SMALL = 120, 240  # where noise is small, rows come nearer to their tables


def rows_from_tables(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress = silent) -> Array:
    """As many encoded rows (n, d) of equal weight as are wanted, that fit a measurement of MarginFeatures.

    Errors   ValueError unless it has the one-way tables that `publish` always measures.
    """
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    kernel = features.kernel
    _check_tables(kernel)
    allowed = allowed_cells(domain, kernel)
    estimates = estimate_tables(measurement, allowed, domain)
    rng, observed = np.random.default_rng(wanted.rng), Observed.of(measurement)  # one stream for all steps
    estimates = replace(estimates, sets=estimated_sets(observed, estimates.pairs, allowed))
    cells = draw_cells(estimates, wanted.n_points, rng, allowed)
    if allowed is not None:
        estimates, cells = rake_cells(estimates, cells, allowed, rng)
        estimates = replace(estimates, sets=estimated_sets(observed, estimates.pairs, allowed))
    sweeps = wanted.effort.of(_SWEEPS if is_smoothed(measurement) else _SWEEPS_SMALL)
    cells = move_cells(estimates, cells, rng, sweeps=sweeps, allowed=allowed, progress=progress)
    fine = fine_ranges(measurement, domain, np.concatenate(estimates.ones))
    rows = rows_in_cells(kernel, domain, cells, fine, rng)
    return rows if allowed is None else rows_that_keep_rules(rows, kernel, domain, cells, fine, rng)


def _check_tables(kernel: Margins) -> None:
    if not kernel.shares[0]:
        raise ValueError(
            "rows are drawn from one-way tables and from pairs, and this measurement has no one-way tables: no release of "
            "release_side is like that. Ask questions of the release as it is; for new rows, ask its maker for the tables of "
            "single columns."
        )
