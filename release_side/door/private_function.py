"""THE SECOND MECHANISM: private rows + a kernel machine + noise → noisy coordinates of a function (Hall et al. 2013).

The minimiser of a regularised risk is not a mean of rows, so `private_mean` cannot release it. All rows are held in
memory, a solver takes a public number of steps, the coordinates are rounded to integers, and noise is drawn once; rows
and function are then deleted. As in `private_mean`, what the code does never depends on a private value. The sensitivity
is bounded in advance: the distance of two neighbours' integers is at most 2·GRID (PROOF.md §11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.releases.function import FunctionForm
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.representation.progress import Progress
from release_side.door.kernel_machines import machine_coordinates, machine_weights, plan_machine, targets_of
from release_side.door.mechanism import Noise, RehearsalNoise, check_int64_range
from release_side.errors import PublishError

_LARGEST = 2.0**61


@dataclass(frozen=True, eq=False)
class NoisyCoordinates:
    """The result of `private_function`: (F,) int64, and the standard deviation of the noise, both in steps of the grid."""

    noisy_sum: Array
    grid_scale: float


def private_function(
    private_rows: Iterable[Array], form: FunctionForm, basis: Pivots, mechanism: Noise | RehearsalNoise, *,
    target: int, n_rows: int, record_spend: Callable[[], None] | None = None, progress: Progress | None = None,
) -> NoisyCoordinates:  # fmt: skip
    """Release the coordinates of a kernel machine that is trained on the private rows.

    private_rows  pieces (n_i, d) of the table, encoded and clamped by a Domain; n_rows, their total, is public.
    form          the machine, with its λ and its target; the target is the encoded column number `target`.
    basis         Pivots on the other columns, in their order.
    mechanism     Gaussian noise.
    record_spend  called once, just before noise is drawn; an error there means that none is.

    Guarantee     (epsilon, delta)-differential privacy under replace-one, for every table of n_rows rows.
    Edge cases    a table whose rows are not n_rows: PublishError (the count is public).
    Source        Hall, Rinaldo & Wasserman 2013, §4.2 and Corollary 9, with the constants of PROOF.md §11.
    """
    check_int64_range(n_rows=n_rows, dimension=basis.dimension, grid=GRID)
    plan = plan_machine(form, basis, n_rows)
    sensitivity = form.grid_sensitivity(basis)
    grid_scale = mechanism.deviation(sensitivity)
    rows = list(private_rows)
    seen = sum(map(len, rows))
    if seen != n_rows:  # the count is public: this says nothing about a row
        raise PublishError(f"the table has {seen} rows, not the {n_rows} that were announced. Count again.")
    with np.errstate(all="ignore"):  # a warning by the value of a private row would be a release
        table = np.concatenate(rows)
        inputs, targets = np.delete(table, target, axis=1), targets_of(form, table[:, target])
        weights = machine_weights(form, basis.kernel.gram(inputs, inputs), targets, basis.kernel.bound, plan, progress)
        whole = whole_coordinates(machine_coordinates(weights, inputs, basis), form, basis, n_rows)
    del rows, table, inputs, targets, weights
    if record_spend:
        record_spend()
    return NoisyCoordinates(mechanism.add_to(whole, sensitivity=sensitivity), grid_scale)


def whole_coordinates(coordinates: Array, form: FunctionForm, basis: Pivots, n_rows: int) -> Array:
    """Coordinates in steps of the grid (F,) int64, of norm at most twice the largest that any table's function has.

    Shortening to a ball increases no distance of two vectors; the solver's own results are never shortened.
    """
    known = np.where(np.isfinite(coordinates), coordinates, 0.0)
    shortened = known * min(1.0, 2 * form.norm(basis.kernel.bound) / max(float(np.linalg.norm(known)), 1e-300))
    steps = np.rint(shortened / form.unit(basis, n_rows))
    return np.clip(steps, -_LARGEST, _LARGEST).astype(np.int64)
