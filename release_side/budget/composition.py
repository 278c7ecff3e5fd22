"""The total guarantee of several releases of one table, from public numbers alone. PROOF.md §8 has the proofs.

Gaussian releases add exactly: 1/m² = Σ 1/mᵢ² of their multipliers. A mixture with releases of δ = 0 has δ(ε) = E[δ_m(ε − L)], L the
sum of their losses ±ε. Neighbours replace one row, and sensitivities are those of a replacement: a multiplier goes into the formula
as it is. The totals hold if every ε was chosen before the first release was seen; see `holds_if_adaptive` for later choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import expit, log_ndtr

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.statement import (
    EXPONENTIAL,
    GAUSSIAN,
    LAPLACE,
    NEIGHBOURS,
    REPLACE_ROW,
    REPLACE_UNIT,
    counted_as,
    gaussian_delta,
    is_unit_name,
)
from kmeanalyst.releases.texts import flaw_of
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, check_budget
from release_side.errors import PublishError

_SLACK = 1e-6  # relative room for rounding when a claim is recomputed, as in a release's statement
_CONTINUOUS = 1 + 5e-10  # half of the factor by which each multiplier exceeds that of continuous noise
_ROUNDING = 1e-12  # rounding error of sums of privacy losses, relative to ε
_MOST_OUTCOMES = 2**10  # outcomes of randomised responses that are listed one by one; more go onto a grid
_CELLS = 2**17  # cells of that grid: k releases are counted at most k/2^17 of Σε too high
_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-5, 1e5  # range of ε for which noise can be calibrated
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class Spend:
    """What one release costs: a guarantee and the noise that gives it.

    epsilon, delta     the guarantee; delta is 0 for Laplace noise and for the exponential mechanism.
    mechanism          the noise: "discrete gaussian" or "discrete laplace"; or "exponential over multisets".
    calibration        how the noise follows from the guarantee, as statements name it.
    noise_multiplier   standard deviation / sensitivity under replace-one: L2 for Gaussian noise, L1 for Laplace.
                       Of the exponential mechanism: the scale of its scores / sensitivity.
    n_rows             rows of the table, taken as public; units where units are protected.
    method             how the release represents what was measured.
    neighbouring       what is protected: a row ("replace-one") or a unit with all its rows ("replace-one-unit").
    unit               the column that identifies the units; None where rows are protected.

    >>> spend = release_side.Spend(1.0, 1e-6, "discrete gaussian", "analytic", 4.2247, 1000, "random-features")
    >>> spend.is_pure
    False
    """

    epsilon: float
    delta: float
    mechanism: str
    calibration: str
    noise_multiplier: float
    n_rows: int
    method: str
    neighbouring: str = REPLACE_ROW
    unit: str | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.mechanism not in (GAUSSIAN, LAPLACE, EXPONENTIAL):
            raise PublishError(
                f"mechanism must be {GAUSSIAN!r}, {LAPLACE!r} or {EXPONENTIAL!r}, got {self.mechanism!r:.80}: the total of "
                "other noise is not known. Name one of these."
            )
        multiplier = self.noise_multiplier
        if isinstance(multiplier, bool) or not isinstance(multiplier, int | float) or not 0 < multiplier < math.inf:
            raise PublishError(
                f"noise_multiplier must be a positive finite number, got {multiplier!r}: it is standard deviation / "
                "sensitivity. Pass what the noise was drawn with."
            )
        if isinstance(self.n_rows, bool) or not isinstance(self.n_rows, int) or not 0 < self.n_rows < 2**63:
            raise PublishError(f"n_rows must be a positive whole number, got {self.n_rows!r:.80}. Pass the public N.")
        if self.neighbouring not in NEIGHBOURS:
            raise PublishError(
                f"neighbouring must be one of {', '.join(NEIGHBOURS)}, got {self.neighbouring!r:.80}: the "
                "total of other guarantees is not known. Name one of these."
            )
        if self.unit is not None if self.neighbouring == REPLACE_ROW else not is_unit_name(self.unit):
            raise PublishError(
                f"unit is {self.unit!r:.80} and neighbouring {self.neighbouring!r}: units need the name of the column that "
                f"identifies them, in printable characters, and rows have none. Pass unit with {REPLACE_UNIT!r} alone."
            )
        for name in ("calibration", "method"):
            check_text(name, getattr(self, name))
        for name in ("epsilon", "delta", "noise_multiplier"):
            object.__setattr__(self, name, float(getattr(self, name)))
        self._check_arithmetic()

    def _check_arithmetic(self) -> None:
        if self.is_pure:
            if self.delta != 0:
                name = "Laplace noise" if self.mechanism == LAPLACE else "the exponential mechanism"
                raise PublishError(f"{name} spends no delta, got {self.delta!r}. Pass delta 0.")
            return
        given = gaussian_delta(epsilon=self.epsilon, noise_multiplier=self.noise_multiplier)
        if self.delta == 0 or given > self.delta * (1 + _SLACK):
            raise PublishError(
                f"Gaussian noise of {self.noise_multiplier:.6g} times the sensitivity gives delta {given:.3g} at "
                f"epsilon {self.epsilon:g}, not {self.delta:g}: the claim is better than the arithmetic. Pass the "
                "noise that belongs to it."
            )

    @property
    def is_pure(self) -> bool:
        """Whether the release spends ε alone."""
        return self.mechanism != GAUSSIAN

    @property
    def protects(self) -> str:
        """What the guarantee protects: "rows", or the units that a column identifies.

        >>> spend.protects
        'rows'
        """
        return counted_as(self.unit)


def check_text(name: str, text: object) -> None:
    """PublishError unless `text` is short and printable, so that it can stand in a message."""
    if not isinstance(text, str) or not text.strip():
        raise PublishError(f"{name} must be a text that is not empty, got {text!r:.80}. Pass one.")
    if len(text) > _LONGEST_TEXT or flaw_of(text) or text != text.strip():
        raise PublishError(
            f"{name} must have at most {_LONGEST_TEXT} printable characters, and no space at either end, got "
            f"{text!a:.80}: in print it could look like another text. Pass a plain one."
        )


# ---------------------------------------------------------------------- budget and total


def fits(spends: Sequence[Spend], epsilon: float, delta: float) -> bool:
    """Whether the releases together are (epsilon, delta)-differentially private.

    Adding up ε and δ as they were typed suffices (0.1 + 0.2 is 0.3); for delta > 0 so does the exact δ(ε).
    """
    if _sums_fit(spends, epsilon, delta):
        return True
    return delta > 0 and delta_curve(spends)(epsilon * (1 - _ROUNDING)) <= delta


def holds_if_adaptive(spends: Sequence[Spend], epsilon: float, delta: float) -> bool:
    """Whether releases that fit (epsilon, delta) also fit if the choice of each depended on the earlier ones.

    Gaussian releases alone do, and so do all for which Σε and Σδ are enough; a mixture that only the exact δ(ε) admits
    does not: its releases must have been chosen before the first one was seen (PROOF.md §8).
    """
    return len(spends) < 2 or _sums_fit(spends, epsilon, delta) or not any(spend.is_pure for spend in spends)


def _sums_fit(spends: Sequence[Spend], epsilon: float, delta: float) -> bool:
    added_epsilon, added_delta = _added(spends)
    return added_epsilon <= _typed(epsilon) and added_delta <= _typed(delta)


def total_epsilon(spends: Sequence[Spend], delta: float) -> float:
    """The smallest ε known at which the releases together are (ε, delta)-differentially private.

    Edge cases   0 without releases; infinite for Gaussian releases at delta = 0.
    """
    added_epsilon, added_delta = _added(spends)
    added = float(added_epsilon) if added_delta <= _typed(delta) else math.inf
    return added if delta == 0 or not spends else min(added, _smallest_epsilon(delta_curve(spends), delta))


def largest_epsilon_left(
    spends: Sequence[Spend], budget_epsilon: float, budget_delta: float, *, mechanism: str = GAUSSIAN, delta: float
) -> float:
    """The largest ε of one more release with this noise and this delta that fits the budget with the others.

    Guarantee    a release of the ε returned fits, and so does any of less.
    Edge cases   0 if nothing fits.
    """

    def still_fits(epsilon: float) -> bool:
        try:
            return fits([*spends, one_more(epsilon, delta, mechanism)], budget_epsilon, budget_delta)
        except PublishError:  # no noise gives this guarantee
            return False

    remainder = float(max(Fraction(0), _typed(budget_epsilon) - _added(spends)[0]))  # by sums alone
    found = _last_where(still_fits)
    return remainder if found <= remainder * (1 + 1e-6) and still_fits(remainder) else found


def _last_where(still_fits: Callable[[float], bool]) -> float:
    """The largest ε where it holds, to a relative precision of 1e-7; 0 if there is none.

    The search starts at the largest ε, because for the smallest ones no noise may be known.
    """
    high = _LARGEST_EPSILON
    while not still_fits(high):
        if high == _SMALLEST_EPSILON:
            return 0.0
        high = max(high / 10, _SMALLEST_EPSILON)
    return _bisect(still_fits, high, 10 * high, precision=1e-7)


def one_more(epsilon: float, delta: float, mechanism: str) -> Spend:
    """A release that could be made next, with the noise that its guarantee needs."""
    if mechanism == EXPONENTIAL:
        check_budget(epsilon, delta)
        return Spend(epsilon, delta, mechanism, "pure", 2 / epsilon, 1, "any")
    noise = (LaplaceNoise if mechanism == LAPLACE else GaussianNoise)(epsilon, delta)
    return Spend(epsilon, delta, noise.name, noise.calibration, noise.multiplier(), 1, "any")


# ---------------------------------------------------------------------- adding up


def _typed(number: float) -> Fraction:
    """The decimal that was typed for a float."""
    return Fraction(repr(float(number)))


def _added(spends: Sequence[Spend]) -> tuple[Fraction, Fraction]:
    return sum((_typed(s.epsilon) for s in spends), Fraction()), sum((_typed(s.delta) for s in spends), Fraction())


def effective_multiplier(spends: Sequence[Spend]) -> float:
    """The multiplier of one Gaussian release that is equivalent to all Gaussian ones here; infinite if there is none."""
    precision = math.fsum(s.noise_multiplier**-2 for s in spends if not s.is_pure)
    return precision**-0.5 if precision else math.inf


def delta_curve(spends: Sequence[Spend]) -> Callable[[float], float]:
    """ε ↦ δ, the smallest δ at which the releases together are surely (ε, δ)-differentially private.

    Exact up to rounding for few releases with δ = 0, else a little too large.
    """
    multiplier = effective_multiplier(spends) / _CONTINUOUS
    losses, masses = pure_losses([s.epsilon for s in spends if s.is_pure])
    return lambda epsilon: float(masses @ _gaussian_deltas(epsilon - losses, multiplier))


def _gaussian_deltas(epsilons: Array, multiplier: float) -> Array:
    """`gaussian_delta` for many ε, negative ones too; an infinite multiplier stands for no Gaussian release: (1 − e^ε)₊."""
    if multiplier == math.inf:
        return -np.expm1(np.minimum(0.0, epsilons))
    half, shifts = 0.5 / multiplier, epsilons * multiplier
    log_first, log_second = log_ndtr(half - shifts), epsilons + log_ndtr(-half - shifts)
    return np.exp(log_first) * -np.expm1(np.minimum(0.0, log_second - log_first))


def pure_losses(epsilons: Sequence[float]) -> tuple[Array, Array]:
    """The summed privacy loss of randomised responses: outcomes (A,) and their probabilities (A,).

    A response is true, with loss +ε, with probability e^ε/(1 + e^ε), and otherwise false, with loss −ε.
    """
    if 2 ** len(epsilons) > _MOST_OUTCOMES:
        return _pure_losses_on_a_grid(epsilons)
    losses, masses = np.zeros(1), np.ones(1)
    for epsilon in epsilons:
        losses = np.concatenate((losses + epsilon, losses - epsilon))
        masses = np.concatenate((masses * expit(epsilon), masses * expit(-epsilon)))
    return losses, masses


def _pure_losses_on_a_grid(epsilons: Sequence[float]) -> tuple[Array, Array]:
    """The same with every ε rounded up to a whole number of cells: a larger ε is a weaker guarantee, so this is safe.

    Losses may exceed Σε and are not cut off there: with less loss at the same probabilities the total would be too low.
    """
    cell = _cell(min(epsilons), math.fsum(epsilons) / _CELLS)
    masses = np.ones(1)  # of the losses −N, −N + 2, …, N cells
    for steps in (math.ceil(epsilon / cell - 1e-9) for epsilon in epsilons):
        true, false = np.pad(masses, (steps, 0)), np.pad(masses, (0, steps))
        masses = true * expit(steps * cell) + false * expit(-steps * cell)
    most = len(masses) - 1
    losses = (2.0 * np.arange(most + 1) - most) * cell
    return losses, masses


def _cell(smallest: float, least: float) -> float:
    """A cell of at least `least` such that the smallest ε and its multiples are whole numbers of cells."""
    parts = smallest // least
    return smallest / parts if parts else least


# ---------------------------------------------------------------------- searching


def _smallest_epsilon(curve: Callable[[float], float], delta: float) -> float:
    """The ε at which a falling curve reaches delta, rounded up."""
    if curve(0.0) <= delta:
        return 0.0
    high = 1.0
    while curve(high) > delta:
        high *= 2
    return _bisect(lambda epsilon: curve(epsilon) <= delta, high, 0.0, precision=1e-12)


def _bisect(holds: Callable[[float], bool], good: float, bad: float, *, precision: float) -> float:
    """The last number from `good` towards `bad` at which it holds, to a relative precision."""
    while abs(good - bad) > precision * max(good, bad):
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def rounded(number: float, *, up: bool, digits: int = 4) -> str:
    """A few digits of a number for a message, rounded up or down as asked."""
    if number in (0, math.inf):
        return f"{number:g}"
    quantum = Fraction(10) ** (math.floor(math.log10(number)) + 1 - digits)
    steps = _typed(number) / quantum
    return f"{float((math.ceil(steps) if up else math.floor(steps)) * quantum):.{digits + 1}g}"
