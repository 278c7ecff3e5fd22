"""The laws of noise a release can have, and of choice without noise, and the arithmetic of what each promises.

Gaussian noise is calibrated to the Euclidean distance between the vectors of two neighbours and gives (ε, δ);
Laplace noise to their L1 distance and gives ε alone. The noise of a rehearsal is drawn from a seed: it has the
same law and protects nobody.

The exponential mechanism adds no noise: it draws one of finitely many things, P(r) ∝ exp(−score(r)/b), each of them
counted once (its base measure), and gives ε = 2Δ/b alone, Δ the sensitivity of the score (McSherry & Talwar 2007).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

GAUSSIAN, LAPLACE = "discrete gaussian", "discrete laplace"
EXPONENTIAL = "exponential over multisets"  # of rows: a small database is drawn, in which rows have no order
_REHEARSAL = "rehearsal of "
NOISE_LAWS = (GAUSSIAN, LAPLACE, _REHEARSAL + GAUSSIAN, _REHEARSAL + LAPLACE)
SELECTIONS = (EXPONENTIAL, _REHEARSAL + EXPONENTIAL)
CALIBRATIONS = {GAUSSIAN: ("analytic", "zcdp"), LAPLACE: ("pure",), EXPONENTIAL: ("pure",)}


def rehearsed(law: str) -> str:
    """The name of a law whose noise can be drawn again from a seed."""
    return _REHEARSAL + law


def is_rehearsal(law: str) -> bool:
    """Whether noise of this law protects nobody, because a seed gives it back."""
    return law.startswith(_REHEARSAL)


def is_pure(law: str) -> bool:
    """Whether the law gives ε with δ = 0, and so measures neighbours by their L1 distance."""
    return law.removeprefix(_REHEARSAL) == LAPLACE


def is_selection(law: object) -> bool:
    """Whether the law draws one of finitely many things, so that there is a scale of scores and no noise."""
    return isinstance(law, str) and law in SELECTIONS


def calibrations_of(law: str) -> tuple[str, ...]:
    """The ways in which noise of this law can have been scaled."""
    return CALIBRATIONS[law.removeprefix(_REHEARSAL)]


def gaussian_delta(*, epsilon: float, noise_multiplier: float) -> float:
    """The smallest δ at which Gaussian noise of σ = noise_multiplier · sensitivity is (ε, δ)-private.

    δ = Φ(1/2s − εs) − e^ε Φ(−1/2s − εs), s the multiplier (Balle & Wang 2018, Theorem 8), in logarithms
    so that e^ε does not overflow.
    """
    half, shift = 0.5 / noise_multiplier, epsilon * noise_multiplier
    log_first, log_second = float(log_ndtr(half - shift)), epsilon + float(log_ndtr(-half - shift))
    return float(np.exp(log_first) * -np.expm1(min(0.0, log_second - log_first)))


def loss_above_epsilon(*, epsilon: float, noise_multiplier: float) -> float:
    """The probability that the privacy loss of Gaussian noise exceeds ε, for the worst pair of neighbours.

    Φ(1/2s − εs), s the multiplier: the loss ln P(x)/P′(x) is normal with mean 1/2s² and standard deviation 1/s. It is
    larger than δ, which is this less e^ε times the same event's probability under the neighbour (`gaussian_delta`).
    """
    return float(np.exp(log_ndtr(0.5 / noise_multiplier - epsilon * noise_multiplier)))


def zcdp_delta(*, epsilon: float, rho: float) -> float:
    """A δ at which every ρ-zCDP mechanism is (ε, δ)-private, the best that Rényi divergences give.

    δ = min_α exp((α − 1)(αρ − ε)) (1 − 1/α)^α / (α − 1) (Canonne, Kamath & Steinke 2020, Corollary 13); any
    α > 1 gives a true bound, so a search that stops early is still right.
    """

    def log_bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α − 1
        power = (1 + excess) * (log_excess - math.log1p(excess))  # log (1 − 1/α)^α
        return excess * ((1 + excess) * rho - epsilon) + power - log_excess

    best = math.log(max(1e-3, (epsilon / rho - 1) / 2))  # of the leading term; the minimum is near
    found = minimize_scalar(log_bound, bounds=(best - 5, best + 5), method="bounded", options={"xatol": 1e-10})
    return math.exp(min(0.0, found.fun))


def pure_epsilon(*, noise_multiplier: float) -> float:
    """ε of Laplace noise whose standard deviation is noise_multiplier · L1 sensitivity: √2 / multiplier.

    The discrete law of scale b has standard deviation √2 b (1 − 1/24b² + …): no difference at b > 10⁶.
    """
    return math.sqrt(2) / noise_multiplier


def selection_epsilon(*, scale_multiplier: float) -> float:
    """ε of a draw with P(r) ∝ exp(−score(r)/b), b = scale_multiplier · sensitivity: 2 / multiplier."""
    return 2 / scale_multiplier


def selection_excess(*, score_scale: float, choices: int, chance: float) -> float:
    """How far, with this chance, the score of what was drawn is at most above the best: b (ln choices + ln 1/(1 − chance)).

    All choices that score worse by that much weigh, together, at most choices · e^(−excess/b) times the best one
    (McSherry & Talwar 2007, Theorem 8).
    """
    return score_scale * (math.log(choices) - math.log1p(-chance))


def zcdp_rho(law: str, *, noise_multiplier: float) -> float:
    """ρ of zero-concentrated differential privacy: 1/2s² for Gaussian noise, ε²/2 for Laplace (Bun & Steinke 2016).

    ε²/8 for a selection, s its scale multiplier: its privacy losses lie in a range of length ε (Cesar & Rogers 2021).
    """
    if is_selection(law):
        return selection_epsilon(scale_multiplier=noise_multiplier) ** 2 / 8
    return 0.5 * pure_epsilon(noise_multiplier=noise_multiplier) ** 2 if is_pure(law) else 0.5 / noise_multiplier**2
