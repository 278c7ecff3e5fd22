"""Noise distributions and their calibration: how much noise a guarantee needs, and exact draws of it.

Gaussian noise has the analytic scale (Balle & Wang 2018) from dp_accounting, never the classical √(2 ln(1.25/δ)) Δ/ε
of the papers: that is up to 1.7 times larger at small ε, and too small for its guarantee at large ε. Laplace noise
gives δ = 0. OpenDP draws from the exact discrete distributions on 64-bit integers. The proofs are in PROOF.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases import statement
from release_side.errors import PublishError

NOISES = ("gaussian", "laplace")

# Continuous noise becomes discrete at a cost in ε below 2e-7 and in δ below 1e-7 δ (PROOF.md §4, for every budget
# that check_budget lets pass and F ≤ 10^6). This factor on σ is six times what the dearest needs, and covers rounding.
_DISCRETE_FACTOR = 1 + 1e-9
_LARGEST_SUM = 2**62
_EPSILONS = (1e-5, 1e5)  # outside, the calibration library's solver loses more digits than the factor allows for
_DELTAS = (1e-30, 0.5)  # the proof for discrete noise leaves out a tail of mass e^-99


@dataclass(frozen=True)
class Noise(ABC):
    """Noise that is scaled to a guarantee (abstract).

    epsilon       ε > 0.
    delta         δ in [0, 1).
    calibration   how the scale follows from them; "" for the default of the distribution.

    >>> noise, zeros = release_side.GaussianNoise(1.0, 1e-6), np.zeros(4, dtype=np.int64)
    >>> noise.name, noise.multiplier(), noise.deviation(1e6), noise.of_round(1).name
    ('discrete gaussian', 4.224..., 4224678.8..., 'discrete gaussian')
    >>> noise.add_to(zeros, sensitivity=1e6).shape, noise.largest(np.array([0, 10**9]), count=1, scale=1.0)
    ((4,), array([1]))
    """

    epsilon: float
    delta: float
    calibration: str = ""
    name: ClassVar[str]  # of the distribution, as in statements

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", float(self.epsilon))  # a numpy float32 would calibrate in single precision
        object.__setattr__(self, "delta", float(self.delta) + 0.0)  # −0.0 becomes 0.0
        known = statement.CALIBRATIONS[self.name]
        object.__setattr__(self, "calibration", self.calibration or known[0])
        if self.calibration not in known:
            raise PublishError(f"calibration must be one of {', '.join(known)}, got {self.calibration!r}. Name one of these.")

    @abstractmethod
    def multiplier(self) -> float:
        """Standard deviation / sensitivity."""

    def deviation(self, sensitivity: float) -> float:
        """Standard deviation of the noise in steps of the grid; PublishError if 64 bits cannot hold it.

        sensitivity   of the sum, in L2 for Gaussian noise and in L1 for Laplace noise.
        """
        deviation = self.multiplier() * sensitivity
        if not 0 < deviation < _LARGEST_SUM / 100:  # scale 0 would be accepted, and output saturates silently
            raise PublishError(f"epsilon = {self.epsilon:g} needs noise too large for 64-bit sums. Raise epsilon.")
        return deviation

    def add_to(self, exact_sum: Array, *, sensitivity: float) -> Array:
        """The sum (F,) int64 with noise of this deviation on each coordinate."""
        import opendp.prelude as dp

        self.deviation(sensitivity)
        dp.enable_features("contrib")
        domain = dp.vector_domain(dp.atom_domain(T="i64"), size=len(exact_sum))
        return np.array(self._measurement(dp, domain, sensitivity)(exact_sum.tolist()), dtype=np.int64)

    def largest(self, scores: Array, *, count: int, scale: float) -> Array:
        """The indices of the `count` largest of scores (C,) int64, each with Gumbel noise of this scale: fresh, and exact."""
        return np.array(largest_with_gumbel(count, scale)(scores.tolist()), dtype=np.int64)

    def of_round(self, number: int) -> Noise:
        """The noise of one of several rounds: itself, as every draw is fresh."""
        return self

    @abstractmethod
    def _measurement(self, dp: Any, domain: Any, sensitivity: float) -> Any:
        """OpenDP's measurement: a list of int64 → the list with noise."""

    @abstractmethod
    def _standard(self, rng: np.random.Generator, size: int) -> Array:
        """`size` draws of the continuous distribution with standard deviation 1, for rehearsals."""


@cache
def largest_with_gumbel(count: int, scale: float) -> Any:
    """OpenDP's measurement: a list of int64 → the indices of the largest, each with Gumbel noise of this scale."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    # this measure selects Gumbel noise; with max_divergence the noise, and so the distribution, would be different
    return dp.m.make_noisy_top_k(*space, dp.zero_concentrated_divergence(), k=count, scale=scale)


class GaussianNoise(Noise):
    """Discrete Gaussian noise that gives (epsilon, delta) at a given L2 sensitivity.

    calibration   "analytic", the least noise; or "zcdp", the noise at which (ε, δ) follows from ρ alone.

    >>> release_side.GaussianNoise(epsilon=1.0, delta=1e-6)
    GaussianNoise(epsilon=1.0, delta=1e-06, calibration='analytic')
    """

    name = statement.GAUSSIAN

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta == 0:
            raise PublishError(
                "delta = 0 asks for pure differential privacy, and Gaussian noise cannot give it. "
                'Pass a small delta, such as 1e-6 (well below 1/N), or noise="laplace".'
            )

    def multiplier(self) -> float:
        """σ / sensitivity, with the factor for discrete noise."""
        solve = _analytic_multiplier if self.calibration == "analytic" else _zcdp_multiplier
        multiplier = solve(self.epsilon, self.delta) * _DISCRETE_FACTOR
        kept = statement.gaussian_delta(epsilon=self.epsilon, noise_multiplier=multiplier) <= self.delta
        if not kept or (self.calibration == "zcdp" and self._zcdp_delta(multiplier) > self.delta):
            raise PublishError(
                f"no noise scale could be found that surely gives δ = {self.delta:g} at ε = {self.epsilon:g}. "
                "Pass a usual budget, such as epsilon 1 and delta 1e-6."
            )
        return multiplier

    def _zcdp_delta(self, multiplier: float) -> float:
        return statement.zcdp_delta(epsilon=self.epsilon, rho=0.5 / multiplier**2)

    def _measurement(self, dp: Any, domain: Any, sensitivity: float) -> Any:
        return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=self.deviation(sensitivity))

    def _standard(self, rng: np.random.Generator, size: int) -> Array:
        return rng.standard_normal(size)


@cache
def _analytic_multiplier(epsilon: float, delta: float) -> float:
    from dp_accounting.gaussian_mechanism import get_sigma_gaussian

    return float(get_sigma_gaussian(epsilon, delta))


@cache
def _zcdp_multiplier(epsilon: float, delta: float) -> float:
    """1/√(2ρ), ρ the largest from which (ε, δ) follows."""

    def excess(log_rho: float) -> float:
        return math.log(statement.zcdp_delta(epsilon=epsilon, rho=math.exp(log_rho))) - math.log(delta)

    wanted = math.log(1 / delta)
    enough = (math.sqrt(wanted + epsilon) - math.sqrt(wanted)) ** 2  # ρ + 2√(ρ log 1/δ) = ε (Bun & Steinke 2016)
    log_rho = brentq(excess, math.log(enough) - 1e-6, math.log(enough) + 20, xtol=1e-13, rtol=1e-14)
    return 1 / math.sqrt(2 * math.exp(float(log_rho)))


class LaplaceNoise(Noise):
    """Discrete Laplace noise that gives epsilon with delta = 0 at a given whole L1 sensitivity.

    >>> release_side.LaplaceNoise(epsilon=1.0, delta=0.0)
    LaplaceNoise(epsilon=1.0, delta=0.0, calibration='pure')
    """

    name = statement.LAPLACE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta != 0:
            raise PublishError(
                f"Laplace noise gives pure differential privacy, so delta is 0, got {self.delta!r}. "
                "Pass delta 0, or Gaussian noise."
            )

    def multiplier(self) -> float:
        """√2 / ε: the scale b = sensitivity / ε has the standard deviation √2 b (the grid changes it by 1/24b²)."""
        return math.sqrt(2) / self.epsilon

    def _measurement(self, dp: Any, domain: Any, sensitivity: float) -> Any:
        return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=laplace_scale(self.epsilon, sensitivity))

    def _standard(self, rng: np.random.Generator, size: int) -> Array:
        return rng.laplace(scale=math.sqrt(0.5), size=size)


def laplace_scale(epsilon: float, sensitivity: float) -> float:
    """The least float64 b with b·ε ≥ sensitivity, exactly."""
    scale = sensitivity / epsilon
    while Fraction(scale) * Fraction(epsilon) < Fraction(sensitivity):
        scale = math.nextafter(scale, math.inf)
    return scale


@dataclass(frozen=True)
class RehearsalNoise:
    """Noise distributed as `noise`, but from a seed, so that others can draw it again: NOT PRIVATE."""

    noise: Noise
    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @property
    def name(self) -> str:
        return statement.rehearsed(self.noise.name)

    @property
    def epsilon(self) -> float:
        return self.noise.epsilon

    @property
    def delta(self) -> float:
        return self.noise.delta

    @property
    def calibration(self) -> str:
        return self.noise.calibration

    def deviation(self, sensitivity: float) -> float:
        return self.noise.deviation(sensitivity)

    def of_round(self, number: int) -> RehearsalNoise:
        """The noise of one of several rounds, each from a seed of its own."""
        words = np.random.SeedSequence([self.seed, number]).generate_state(2, np.uint64)
        return RehearsalNoise(self.noise, int(words[0]) if number else self.seed)

    def largest(self, scores: Array, *, count: int, scale: float) -> Array:
        """As `Noise.largest`, from the seed and in float64."""
        gumbel = np.random.default_rng(self.seed).gumbel(size=len(scores))
        return np.argsort(-(scores + scale * gumbel))[:count]

    def add_to(self, exact_sum: Array, *, sensitivity: float) -> Array:
        standard = self.noise._standard(np.random.default_rng(self.seed), len(exact_sum))
        return exact_sum + np.rint(self.deviation(sensitivity) * standard).astype(np.int64)


def noise_for(
    noise: str, epsilon: float, delta: float, *, calibration: str | None = None, rehearsal: int | None = None
) -> Noise | RehearsalNoise:
    """The noise of this name; PublishError if it cannot give the guarantee."""
    if noise not in NOISES:
        raise PublishError(f"noise must be one of {', '.join(NOISES)}, got {noise!r}. Name one of these.")
    if noise == "laplace" and calibration not in (None, "analytic"):
        raise PublishError(f"calibration {calibration!r} is of Gaussian noise, and Laplace noise has one. Leave it out.")
    fresh = LaplaceNoise(epsilon, delta) if noise == "laplace" else GaussianNoise(epsilon, delta, calibration or "")
    return fresh if rehearsal is None else RehearsalNoise(fresh, rehearsal)


def check_seed(seed: object) -> None:
    """PublishError unless this can be the seed of a rehearsal."""
    if isinstance(seed, bool | np.timedelta64) or not isinstance(seed, int | np.integer) or seed < 0:
        raise PublishError(
            f"rehearsal must be a whole number of at least 0, got {seed!r}: it is the seed of the noise. Pass e.g. 1."
        )


def check_budget(epsilon: float, delta: float) -> None:
    """PublishError unless epsilon and delta are numbers in the range for which the calibration is proven."""
    if not _is_number(epsilon) or not _EPSILONS[0] <= float(epsilon) <= _EPSILONS[1]:
        raise PublishError(
            f"epsilon must be a positive number between {_EPSILONS[0]:g} and {_EPSILONS[1]:g}, got {epsilon!r}: the "
            "calibration is proven for these alone. Pass e.g. 1.0."
        )
    if not _is_number(delta) or not 0 <= float(delta) < 1:
        raise PublishError(
            f"delta must be in [0, 1), got {delta!r}: {statement.guarantee()}. With δ of 1 or more this says nothing. Pass 1e-6."
        )
    if float(delta) != 0 and not _DELTAS[0] <= float(delta) <= _DELTAS[1]:
        raise PublishError(
            f"delta must be 0, or between {_DELTAS[0]:g} and {_DELTAS[1]:g}, got {delta!r}: the calibration is not "
            "proven elsewhere. Pass e.g. 1e-6."
        )


def _is_number(value: object) -> bool:
    """Whether `value` is a real number within the range of float64, and of a numeric type."""
    if isinstance(value, bool | np.longdouble | np.timedelta64):
        return False
    return isinstance(value, float | np.floating) or (isinstance(value, int | np.integer) and abs(int(value)) < 2**63)


def check_int64_range(*, n_rows: int, dimension: int, grid: int) -> None:
    """PublishError if sums of n_rows integers bounded by `grid` could leave 64 bits; public numbers only."""
    if n_rows < 1:
        raise PublishError("the table has no rows: nothing can be released. Name a table with at least one row.")
    if n_rows * grid > _LARGEST_SUM:
        raise PublishError(f"{n_rows} rows are more than exact 64-bit sums can hold ({_LARGEST_SUM // grid}). Release a part.")
    if dimension > 10**6:
        raise PublishError(f"{dimension} features are more than the rounding argument covers (10^6). Pass fewer.")
