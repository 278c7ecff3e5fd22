"""Noise laws and their calibration: how much noise a promise costs, and exact draws of it.

The scale is the analytic Gaussian one (Balle & Wang 2018) from dp_accounting, never the classical
√(2 ln(1.25/δ)) Δ/ε of the papers: that is up to 1.7 times larger at small ε and breaks its promise at
large ε. Draws are OpenDP's exact discrete Gaussian on 64-bit integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.statement import gaussian_delta

# The discrete law on a grid costs at most (F + T)/(24 s²) in ε, T = (√F + √200)², s = σ in grid steps; with
# S = 2^30 that is below 1e-13 for F ≤ 10^6 and ε ≤ 10. This factor on σ pays for it many times over.
_DISCRETE_FACTOR = 1 + 1e-9
_LARGEST_SUM = 2**62
_EPSILONS = (1e-5, 1e5)  # beyond, the calibration library's solver loses more digits than the factor pays for
_SMALLEST_DELTA = 1e-30  # the argument for the discrete law leaves out a tail of mass e^-100


class PublishError(ValueError):
    """A publication that cannot go on; the message names public facts only, and the mend."""


@dataclass(frozen=True)
class GaussianNoise:
    """Discrete Gaussian noise that gives (epsilon, delta) at a given L2 sensitivity.

    epsilon   > 0.
    delta     in (0, 1).
    """

    epsilon: float
    delta: float
    name = "discrete gaussian"
    calibration = "analytic"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", float(self.epsilon))  # a numpy float32 would calibrate in single precision
        object.__setattr__(self, "delta", float(self.delta))
        if self.delta == 0:
            raise PublishError(
                "delta = 0 asks for a promise without exceptions, and Gaussian noise cannot give one. "
                "Pass a small delta, such as 1e-6 (well below 1/N)."
            )

    def multiplier(self) -> float:
        """σ / sensitivity, the factor for the discrete law included."""
        from dp_accounting.gaussian_mechanism import get_sigma_gaussian

        multiplier = float(get_sigma_gaussian(self.epsilon, self.delta)) * _DISCRETE_FACTOR
        if gaussian_delta(epsilon=self.epsilon, noise_multiplier=multiplier) > self.delta:
            raise PublishError(
                f"no noise scale could be found that surely gives δ = {self.delta:g} at ε = {self.epsilon:g}. "
                "Pass a usual budget, such as epsilon 1 and delta 1e-6."
            )
        return multiplier

    def add_to(self, exact_sum: Array, *, sensitivity: float) -> tuple[Array, float]:
        """The sum (F,) int64 with noise, and the noise's standard deviation, both in steps of the grid."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        scale = self.multiplier() * sensitivity
        if not 0 < scale < _LARGEST_SUM / 100:  # scale 0 would be accepted, and output saturates silently
            raise PublishError(f"epsilon = {self.epsilon:g} needs noise too large for 64-bit sums. Raise epsilon.")
        domain = dp.vector_domain(dp.atom_domain(T="i64"), size=len(exact_sum))
        values = exact_sum.tolist()
        noisy = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)(values)
        return np.array(noisy, dtype=np.int64), scale


def check_budget(epsilon: float, delta: float) -> None:
    """PublishError unless epsilon and delta are numbers in the range for which the calibration is proven."""
    if not _is_number(epsilon) or not _EPSILONS[0] <= float(epsilon) <= _EPSILONS[1]:
        raise PublishError(
            f"epsilon must be a positive number between {_EPSILONS[0]:g} and {_EPSILONS[1]:g}, got {epsilon!r}: it bounds "
            "the privacy loss. Pass e.g. 1.0."
        )
    if not _is_number(delta) or not 0 <= float(delta) < 1:
        raise PublishError(
            f"delta must be in [0, 1), got {delta!r}: it is the chance that the bound fails. Pass e.g. 1e-6."
        )
    if 0 < float(delta) < _SMALLEST_DELTA:
        raise PublishError(
            f"delta must be at least {_SMALLEST_DELTA:g}, got {delta!r}: the calibration is not proven below."
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.longdouble)


def check_room(*, n_rows: int, dimension: int, grid: int) -> None:
    """PublishError if sums of n_rows integers bounded by `grid` could leave 64 bits; public numbers only."""
    if n_rows < 1:
        raise PublishError("the table has no rows: nothing can be released. Name a table with at least one row.")
    if n_rows * grid > _LARGEST_SUM:
        raise PublishError(
            f"{n_rows} rows are more than exact 64-bit sums can hold ({_LARGEST_SUM // grid}). Release a part."
        )
    if dimension > 10**6:
        raise PublishError(f"{dimension} features are more than the rounding argument covers (10^6). Pass fewer.")
