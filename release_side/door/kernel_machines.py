"""Kernel machines by a fixed number of steps: regularised empirical risk minimisers in an RKHS, each with a proven error.

f = Σ α_i k(x_i, ·) minimises J(f) = 1/N Σ ℓ(f(x_i), y_i) + λ‖f‖². J is μ = 2λ strongly convex and M = sκ² + μ smooth (s the
curvature of ℓ), so that a gradient step of length 2/(M + μ) reduces the distance to the minimiser f* by the factor
(M − μ)/(M + μ), from every f and for every table. The number of steps follows from public facts; the solver never stops
earlier. PROOF.md §11 bounds the rounding. Nothing here draws noise, and no result may be shown before noise is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.pivots import STRETCH, Pivots, kernel_error
from kmeanalyst.releases.function import HINGE_WIDTH, SLACK, FunctionForm
from kmeanalyst.representation.progress import Progress
from release_side.errors import PublishError

_ROUNDING = 2.0**-53
_SOLVED = 2.0**-13  # distance from the minimiser after the planned steps, relative to the sensitivity
_SUMMED = 128  # rows at a time
_MOST_ROWS = 20_000  # their Gram matrix is in memory
_MOST_WORK = 4e12  # steps × N²: about an hour
_FEW_ROWS = 1000  # below this a step takes the same time, whatever N


@dataclass(frozen=True)
class Plan:
    """How a machine is solved, from public facts alone.

    steps    how many gradient steps.
    length   of each, in the RKHS.
    error    how much the distance of two neighbours' coordinates may exceed Lκ/(Nλ), rounding to the grid included.
    """

    steps: int
    length: float
    error: float


def plan_machine(form: FunctionForm, basis: Pivots, n_rows: int) -> Plan:
    """The steps to take; PublishError, from public facts, for a table or a λ that the solver cannot handle."""
    bound = basis.kernel.bound
    convexity, sensitivity = 2 * form.penalty, form.machine_sensitivity(bound, n_rows)
    smoothness = form.curvature * bound**2 + convexity
    factor = form.curvature * bound**2 / (smoothness + convexity)  # (M − μ)/(M + μ), which is never rounded to 0
    solved = _SOLVED * sensitivity
    steps = max(1, math.ceil(math.log(max(2.0, form.norm(bound) / solved)) / -math.log(factor)))
    length = 2 / (smoothness + convexity)
    rounded = solved + _float_error(form, basis, n_rows, length)
    off = rounded + _coordinate_error(form, basis, n_rows)
    excess = STRETCH / 2 * (sensitivity + 2 * rounded) + 2 * off
    error = excess + math.sqrt(basis.dimension) * form.unit(basis, n_rows)
    _check_plan(form, basis, n_rows, steps, error / sensitivity)
    return Plan(steps=steps, length=length, error=error)


def _check_plan(form: FunctionForm, basis: Pivots, n_rows: int, steps: int, relative_error: float) -> None:
    if n_rows > _MOST_ROWS:
        raise PublishError(
            f"a kernel machine holds a number for each pair of rows, and {n_rows} rows are more than {_MOST_ROWS}. Publish a "
            "density, or a part of the table that is chosen by public facts."
        )
    if not relative_error <= SLACK * (1 - 1e-6):
        raise PublishError(
            f"regularisation {form.penalty:g} is too small for {n_rows} rows in float64: rounding could move the function by "
            f"{relative_error:.2g} of its sensitivity. Raise it."
        )
    if steps * max(n_rows, _FEW_ROWS) ** 2 > _MOST_WORK:
        raise PublishError(
            f"{steps} steps on {n_rows} rows would take more than an hour: the regularisation "
            f"{form.penalty:g} is too small. Raise it."
        )
    if 2 * form.norm(basis.kernel.bound) / form.unit(basis, n_rows) > 2.0**61:
        raise PublishError(f"{n_rows} rows are more than exact 64-bit numbers can hold. Raise the regularisation.")


def _mass(form: FunctionForm, bound: float) -> float:
    """Σ|α| of every step: each α_i is an average of slopes, times 1/2λN; a little more for rounding."""
    return form.slope(bound) / (2 * form.penalty) * (1 + 2.0**-20)


def _float_error(form: FunctionForm, basis: Pivots, n_rows: int, length: float) -> float:
    """How far the last f may be from that of exact steps, in the RKHS: the sum of a geometric series."""
    bound, convexity = basis.kernel.bound, 2 * form.penalty
    mass, slope = _mass(form, bound), form.slope(bound)
    entry = kernel_error(basis.kernel, basis.points.shape[1])
    value = (entry + 4 * n_rows * _ROUNDING * bound**2) * mass  # of a computed f(x_i)
    gradient = bound * (form.curvature * value + 16 * _ROUNDING * slope)
    return (gradient + 16 * _ROUNDING * bound * (mass / length + slope)) / convexity


def _coordinate_error(form: FunctionForm, basis: Pivots, n_rows: int) -> float:
    """How far computed coordinates may be from A f(Z), in Euclidean norm: that of the values f(Z), and of the product."""
    mass, bound, size = _mass(form, basis.kernel.bound), basis.kernel.bound**2, basis.dimension
    additions = _SUMMED + n_rows / _SUMMED + size + 16
    entry = kernel_error(basis.kernel, basis.points.shape[1]) + 4 * additions * _ROUNDING * bound
    return mass * basis.magnification * math.sqrt(size) * entry


def machine_weights(
    form: FunctionForm, gram: Array, targets: Array, bound: float, plan: Plan, progress: Progress | None = None
) -> Array:
    """α (N,) after the planned steps from 0.

    gram     (N, N) k(x_i, x_j).
    targets  (N,) within ±B: −1 and 1 of classifiers, numbers less their public centre for ridge.
    bound    κ, of the kernel and not of these rows.
    """
    slope_at = slopes_of(form, bound)
    n_rows, alpha = len(targets), np.zeros(len(targets))
    shrink, step = 1 - plan.length * 2 * form.penalty, plan.length / n_rows
    for i in range(plan.steps):
        alpha = shrink * alpha - step * slope_at(gram @ alpha, targets)
        if progress and i % 16 == 0:
            progress("fitting the function", i / plan.steps)
    return alpha


def slopes_of(form: FunctionForm, bound: float) -> Callable[[Array, Array], Array]:
    """∂ℓ/∂f (n,) at values and targets, never beyond ±L: the clipped square has the same minimiser (PROOF.md §11)."""
    if form.kind == "ridge":
        steepest = form.slope(bound)
        return lambda values, targets: np.clip(2 * (values - targets), -steepest, steepest)
    if form.kind == "logistic":
        return lambda values, targets: -targets * expit(-targets * values)
    return lambda values, targets: -targets * np.clip((1 + HINGE_WIDTH - targets * values) / (2 * HINGE_WIDTH), 0, 1)


def machine_coordinates(weights: Array, rows: Array, basis: Pivots) -> Array:
    """A f(Z) (F,) of f = Σ α_i k(x_i, ·); from the values f(Z), which float64 sums more precisely than the features of rows.

    Sums over few rows, and then sums of these: rounding grows with these two numbers, not with that of all rows.
    """
    values = np.zeros(basis.dimension)
    for start in range(0, len(rows), _SUMMED):
        few = slice(start, start + _SUMMED)
        values += weights[few] @ basis.kernel.gram(rows[few], basis.points)
    return basis.matrix @ values


def targets_of(form: FunctionForm, encoded: Array) -> Array:
    """Targets (n,) within ±B of encoded cells, whatever those are."""
    low, high = form.centre - form.reach, form.centre + form.reach
    known = np.where(np.isfinite(encoded), encoded, 0.0)
    if form.is_classifier:
        return np.where(known > 0.5, 1.0, -1.0)
    return np.clip(np.clip(known, low, high) - form.centre, -form.reach, form.reach)
