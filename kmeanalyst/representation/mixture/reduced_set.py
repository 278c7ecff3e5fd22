"""Few weighted points whose mean random Fourier feature is near a target, for every column kind: ½‖Σ w_m φ(z_m) − y‖² in rounds of
weights (`convex_fit`), of points, one column at a time from a grid of its values, and of L-BFGS for columns without a step
(tutorials/derivations.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.optimize import minimize

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import blas
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Cyclic, Number
from kmeanalyst.representation.mixture.component_laws import as_phasors, unit_phasors
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.wanted import Wanted
from kmeanalyst.representation.weights.convex_fit import PROBABILITIES, minimise_quadratic

_GRID_SIZE = 96
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 24
_SMALLEST_SHARE = 0.01
_ENOUGH_GAIN = 0.01  # relative, per round; the rounds end below it
_REFINING_STEPS = 60
_WEIGHT_STEPS = 300
_SMALL = 4_000_000  # phasors; below it a second thread only waits (15 times slower on busy cores)


@dataclass
class _State:
    """The current points (M, d), encoded, weights (M,) and unit phasors e^{ip} (M, R), and their target."""

    features: RandomFourier
    target: Array  # (R,) complex: the target mean as cos + i·sin of unit features
    points: Array
    weights: Array
    phasors: Array
    ridge: float
    uniform: bool

    def residual(self) -> Array:
        """Σ w e^{ip} − y, (R,)."""
        return self.weights.astype(np.complex64) @ self.phasors - self.target

    def objective(self) -> float:
        """Mean squared residual over the frequencies: ‖Σ w φ − y‖² / k(0)."""
        return float(np.mean(np.abs(self.residual()).astype(np.float64) ** 2))


def reduced_set(
    features: RandomFourier, target: Array, domain: Domain, wanted: Wanted, *, enough: float, ridge: float = 0.0,
    progress: Progress = silent,
) -> tuple[Array, Array]:  # fmt: skip
    """Encoded points (M, d) and probability weights (M,) whose mean feature is near a target (F,).

    wanted     M, and public rows to start from; random draws from the domain complete them. Of the view "uniform" only points move.
    enough     the search stops at this distance ‖Σ w φ(z) − target‖.
    ridge      adds ridge/2 · ‖w − 1/M‖², which favours even weights.
    Source     Balog, Tolstikhin & Schölkopf 2018, Algorithm 2, line 5 (any reduced-set method).
    """
    rng, n_points, start = wanted.generator, wanted.n_points, wanted.public
    if start is None:
        points = domain.draw(n_points, rng)
    else:
        points = np.vstack([start[:n_points], domain.draw(max(1, n_points - len(start)), rng)])[:n_points]
    state = _State(
        features, as_phasors(target, features).astype(np.complex64), points, weights=np.full(n_points, 1 / n_points),
        phasors=unit_phasors(features.phases(points)), ridge=ridge / features.norm_bound**2, uniform=wanted.view == "uniform",
    )  # fmt: skip
    one_thread = 1 if state.phasors.size <= _SMALL else None
    least_rounds = _LEAST_ROUNDS if start is None else 2
    rounds = least_rounds, wanted.effort.of(_MOST_ROUNDS)
    with blas().limit(limits=one_thread):
        _alternate(state, domain, (enough / features.norm_bound) ** 2, rounds, rng, progress)
    return state.points, state.weights


def _alternate(
    state: _State, domain: Domain, enough: float, rounds: tuple[int, int], rng: np.random.Generator, progress: Progress
) -> None:
    least, most = rounds
    continuous = [j for j, column in enumerate(domain.columns) if isinstance(column, Number) and not column.spacing]
    share, before = 0.3, np.inf
    for turn in range(most):
        _refit_weights(state, enough / 4)
        if continuous and turn % 4 == 3:
            _refine_numbers(state, domain, continuous)
            _refit_weights(state, enough / 4)
        now = state.objective()
        progress("placing points", (turn + 1) / most)
        if now <= enough or (turn >= least and now > (1 - _ENOUGH_GAIN) * before):
            break
        before = now
        for j in rng.permutation(len(domain)):
            share = _move_column(state, domain.columns[j], int(j), rng, max(share, 0.05))
        state.phasors = unit_phasors(state.features.phases(state.points))  # single-precision errors do not accumulate
    progress("placing points", 1.0)


def _refit_weights(state: _State, tolerance: float) -> None:
    if state.uniform:
        return
    R, M = state.features.n_frequencies, len(state.weights)
    G = (state.phasors @ state.phasors.conj().T).real.astype(np.float64) / R
    b = (state.phasors @ state.target.conj()).real.astype(np.float64) / R + state.ridge / M
    G[np.diag_indices(M)] += state.ridge
    state.weights = minimise_quadratic(G, b, PROBABILITIES, tolerance=tolerance, start=state.weights, most_steps=_WEIGHT_STEPS)


def _move_column(state: _State, column: Column, j: int, rng: np.random.Generator, share: float) -> float:
    looks = state.features.looks_at(j)
    if not len(looks):
        return share
    values = column.with_missing(column.grid(_GRID_SIZE, rng))
    table = unit_phasors(state.features.column_phases(j, values, looks))
    old = unit_phasors(state.features.column_phases(j, state.points[:, j], looks))
    gain, best = _best_values(state, table, old, looks)

    def move(chosen: Array) -> None:
        block = np.ix_(chosen, looks)
        state.phasors[block] *= np.conj(old[chosen]) * table[best[chosen]]
        state.points[chosen, j] = values[best[chosen]]

    move(np.flatnonzero((gain > 0) & (state.weights == 0)))
    return _move_together(state, j, np.flatnonzero((gain > 0) & (state.weights > 0)), move, rng, share)


def _move_together(
    state: _State, j: int, gaining: Array, move: Callable[[Array], None], rng: np.random.Generator, share: float
) -> float:
    before = state.objective()
    while len(gaining):
        chosen = gaining[rng.random(len(gaining)) < share]
        kept = state.phasors[chosen], state.points[chosen, j]
        move(chosen)
        if state.objective() <= before:
            return min(0.5, share * 1.2)
        state.phasors[chosen], state.points[chosen, j] = kept
        if share <= _SMALLEST_SHARE:
            break
        share = max(share / 2, _SMALLEST_SHARE)
    return share


def _best_values(state: _State, table: Array, old: Array, looks: Array) -> tuple[Array, Array]:
    """For each point the gain of its best value of the column (per unit of its weight), and the value's index.

    table (values, r) and old (M, r) are the column's phasors on the r frequencies that depend on it.
    """
    base = np.conj(state.residual()[looks]) * state.phasors[:, looks] * np.conj(old)
    pull = (base @ table.T).real  # Re⟨r, φ(b)⟩ for every value b, (M, values)
    now = np.einsum("mr,mr->m", base, old).real
    own = (np.conj(old) @ table.T).real  # ⟨φ(a), φ(b)⟩ on those frequencies
    change = (pull - now[:, None]) + state.weights[:, None] * (len(looks) - own)
    best = change.argmin(axis=1)
    return -change[np.arange(len(best)), best], best


def _refine_numbers(state: _State, domain: Domain, continuous: list[int]) -> None:
    """L-BFGS over the columns without a step, for points of positive weight; missing cells and atoms stay."""
    used = np.flatnonzero(state.weights > 0)
    columns = cast(list[Number], [domain.columns[j] for j in continuous])
    bounds = np.array([column.bounds for column in columns])
    width = bounds[:, 1] - bounds[:, 0]
    steps = (state.features.linear[continuous] * width[:, None]).astype(np.float32)
    weights = state.weights[used]
    codes = state.points[used][:, continuous]
    cells = (codes - bounds[:, 0]) / width
    free = ~np.isnan(cells)
    for i, column in enumerate(columns):
        free[:, i] &= ~np.isin(codes[:, i], column.atom_codes)
    if not free.any():
        return
    home, still = cells, state.phasors[used]
    ends = np.array([(-1, 2) if isinstance(column, Cyclic) else (0, 1) for column in columns])

    def objective(flat: Array) -> tuple[float, Array]:
        moved = np.zeros(free.shape)
        moved[free] = flat - home[free]
        phasors = still * unit_phasors(moved @ steps)
        residual = weights.astype(np.complex64) @ phasors - state.target
        slope = (np.conj(residual) * phasors).imag @ steps.T  # d Re⟨r, e^{ip}⟩ = −Im(conj(r) e^{ip}) dp
        gradient = -2 / len(residual) * weights[:, None] * slope
        return float(np.mean(np.abs(residual).astype(np.float64) ** 2)), gradient[free].astype(np.float64)

    found = minimize(
        objective, home[free], jac=True, method="L-BFGS-B", bounds=ends[free.nonzero()[1]],
        options={"maxiter": _REFINING_STEPS},
    )  # fmt: skip
    cells[free] = found.x
    for i, (j, column) in enumerate(zip(continuous, columns, strict=True)):
        state.points[used, j] = column.wrap(bounds[i, 0] + width[i] * cells[:, i])
    state.phasors = unit_phasors(state.features.phases(state.points))
