"""Few weighted points whose mean random Fourier feature is near a target, for every column kind.

minimise ½‖Σ w_m φ(z_m) − y‖² over points and probability weights, by turns:

1. weights, given the points: a convex problem (`reweight`). Points that do not help get weight zero.
2. points, one column at a time. Each point is offered every value of a grid of the column: all its levels,
   all its integers if they are few, otherwise fresh values at each visit. Features have a fixed norm, so
   moving point m from a to b changes the objective by w_m Re⟨r − w_m φ(a), φ(b) − φ(a)⟩, r the residual: the
   best value is found exactly, for all points at once, with one matrix product, because a phase is a sum
   over columns. A random part of the points that gain then moves; the part shrinks when moving together
   overshoots. Points of weight zero are free, and look for the place where the residual asks for mass most:
   the next atom of a Frank-Wolfe method.
3. columns without a step are polished by L-BFGS.

Levels, spikes and missing cells need no relaxation and no rounding. The rounds end when the target is near
enough, when they no longer help, or after a fixed number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.columns import Column, Number
from kmeanalyst.releases.domain.cyclic_column import Cyclic
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.representation.mixture.component_laws import as_phasors, unit_phasors
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.weights.convex_fit import minimise_quadratic, probability_set

_GRID_SIZE = 96
_LEAST_ROUNDS, _MOST_ROUNDS = 8, 24
_SMALLEST_SHARE = 0.01
_ENOUGH_GAIN = 0.01  # relative, per round, below which the rounds end
_POLISH_STEPS = 60
_WEIGHT_STEPS = 300
_SMALL = 4_000_000  # phasors; below it a second thread waits more than it works (15 times slower on busy cores)


@dataclass
class _State:
    """Points in motion: codes (M, d), weights (M,), unit phasors e^{ip} (M, R), and what they should add up to."""

    features: RandomFourier
    target: Array  # (R,) complex: the measurement as cos + i·sin of unit features
    points: Array
    weights: Array
    phasors: Array
    ridge: float = 0.0
    uniform: bool = False

    def residual(self) -> Array:
        """Σ w e^{ip} − y, (R,)."""
        return self.weights.astype(np.complex64) @ self.phasors - self.target

    def objective(self) -> float:
        """Mean squared residual over the frequencies: ‖Σ w φ − y‖² / k(0)."""
        return float(np.mean(np.abs(self.residual()).astype(np.float64) ** 2))


def reduced_set(
    features: RandomFourier,
    target: Array,
    domain: Domain,
    *,
    n_points: int,
    enough: float,
    start: Array | None = None,
    ridge: float = 0.0,
    uniform: bool = False,
    rng: np.random.Generator | int | None = None,
    progress: Progress | None = None,
) -> tuple[Array, Array]:
    """Points (M, d), encoded, and probability weights (M,) whose mean feature comes close to a target.

    features   random Fourier features.
    target     (F,) the mean feature to come near.
    n_points   M.
    enough     a distance ‖Σ w φ(z) − target‖ that needs no improving.
    start      (m, d) encoded rows to start from; filled up from the domain.
    ridge      adds ridge/2 · ‖w − 1/M‖²: how much even weights are worth.
    uniform    every weight stays 1/M, and the points do all the work.
    progress   called with what is done and the share of it that is.
    Source     Balog, Tolstikhin & Schölkopf 2018, Algorithm 2, line 5 (any reduced-set method).
    """
    rng = np.random.default_rng(rng)
    points = _starting_points(domain, n_points, start, rng)
    R = features.n_frequencies
    phasor_target = as_phasors(target, features).astype(np.complex64)
    weights = np.full(n_points, 1 / n_points)
    state = _State(features, phasor_target, points, weights, unit_phasors(features.phases(points)))
    state.ridge, state.uniform = ridge / features.norm_bound**2, uniform
    one_thread = 1 if n_points * R <= _SMALL else None
    least_rounds = _LEAST_ROUNDS if start is None else 2
    with threadpool_limits(limits=one_thread, user_api="blas"):
        _alternate(
            state, domain, (enough / features.norm_bound) ** 2, least_rounds, rng,
            progress or silent,
        )  # fmt: skip
    return state.points, state.weights


def _starting_points(domain: Domain, n_points: int, start: Array | None, rng: np.random.Generator) -> Array:
    if start is None:
        return domain.draw(n_points, rng)
    return np.vstack([start[:n_points], domain.draw(max(1, n_points - len(start)), rng)])[:n_points]


def _alternate(
    state: _State, domain: Domain, enough: float, least_rounds: int, rng: np.random.Generator, progress: Progress
) -> None:
    """Weights and points by turns until the objective is low enough or a round no longer helps; continua are polished."""
    continua = [j for j, column in enumerate(domain.columns) if isinstance(column, Number) and not column.step]
    share, before = 0.3, np.inf
    for turn in range(_MOST_ROUNDS):
        _refit_weights(state, enough / 4)
        if continua and turn % 4 == 3:
            _polish(state, domain, continua)
            _refit_weights(state, enough / 4)
        now = state.objective()
        progress("placing points", (turn + 1) / _MOST_ROUNDS)
        if now <= enough or (turn >= least_rounds and now > (1 - _ENOUGH_GAIN) * before):
            break
        before = now
        for j in rng.permutation(len(domain)):
            share = _move_column(state, domain.columns[j], int(j), rng, max(share, 0.05))
        state.phasors = unit_phasors(state.features.phases(state.points))  # no drift of single precision
    progress("placing points", 1.0)


def _refit_weights(state: _State, tolerance: float) -> None:
    """Probability weights for the points as they are, to a tolerance that shrinks no further than it matters."""
    if state.uniform:
        return
    R, M = state.features.n_frequencies, len(state.weights)
    G = (state.phasors @ state.phasors.conj().T).real.astype(np.float64) / R
    b = (state.phasors @ state.target.conj()).real.astype(np.float64) / R + state.ridge / M
    G[np.diag_indices(M)] += state.ridge
    state.weights = minimise_quadratic(
        G, b, probability_set(), tolerance=tolerance, start=state.weights, most_steps=_WEIGHT_STEPS
    )


def _move_column(state: _State, column: Column, j: int, rng: np.random.Generator, share: float) -> float:
    """Move points along column j; returns the share of the willing ones to try next."""
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
    state: _State, j: int, willing: Array, move: Callable[[Array], None], rng: np.random.Generator, share: float
) -> float:
    """Move a random share of the willing points if that lowers the objective, else try a smaller share."""
    before = state.objective()
    while len(willing):
        chosen = willing[rng.random(len(willing)) < share]
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
    """For each point the gain of its best value of the column (per unit of its weight), and which value that is.

    table (values, r) and old (M, r) are the column's phasors on the r frequencies that look at it.
    """
    base = np.conj(state.residual()[looks]) * state.phasors[:, looks] * np.conj(old)
    pull = (base @ table.T).real  # Re⟨r, φ(b)⟩ for every value b, (M, values)
    now = np.einsum("mr,mr->m", base, old).real
    own = (np.conj(old) @ table.T).real  # ⟨φ(a), φ(b)⟩ on those frequencies
    change = (pull - now[:, None]) + state.weights[:, None] * (len(looks) - own)
    best = change.argmin(axis=1)
    return -change[np.arange(len(best)), best], best


def _polish(state: _State, domain: Domain, continua: list[int]) -> None:
    """L-BFGS over columns without a step of the points that carry weight, within the bounds; missing cells and atoms stay."""
    used = np.flatnonzero(state.weights > 0)
    bounds = np.array([domain.columns[j].bounds for j in continua])  # type: ignore[attr-defined]
    width = bounds[:, 1] - bounds[:, 0]
    steps = (state.features.linear[continua] * width[:, None]).astype(np.float32)
    weights = state.weights[used]
    codes = state.points[used][:, continua]
    cells = (codes - bounds[:, 0]) / width
    free = ~np.isnan(cells)
    for i, j in enumerate(continua):
        free[:, i] &= ~np.isin(codes[:, i], domain.columns[j].atom_codes)  # type: ignore[attr-defined]
    if not free.any():
        return
    home, still = cells, state.phasors[used]
    ends = np.array([(-1, 2) if isinstance(domain.columns[j], Cyclic) else (0, 1) for j in continua])

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
        options={"maxiter": _POLISH_STEPS},
    )  # fmt: skip
    cells[free] = found.x
    for i, j in enumerate(continua):
        column = domain.columns[j]
        assert isinstance(column, Number)
        state.points[used, j] = column.wrap(bounds[i, 0] + width[i] * cells[:, i])
    state.phasors = unit_phasors(state.features.phases(state.points))
