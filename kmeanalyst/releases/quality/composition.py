"""The guarantee of a release and its scores together."""

from __future__ import annotations

import math
from typing import TypeAlias

from kmeanalyst.releases.statement import SMALLEST_DELTA, PrivacyStatement, gaussian_delta, is_pure

Spent: TypeAlias = tuple[float, float, float | None]  # of scores: ε, δ, and the multiplier of Gaussian noise or None
SLACK = 1e-6  # relative tolerance for rounding when a claim is computed again
_CONTINUOUS = 1 + 1e-9  # what a multiplier exceeds that of continuous noise by, for the discrete law (PROOF.md §4, §8)
_STEPS = 60  # of a bisection


def spends_at_most(statement: PrivacyStatement, spent: Spent, epsilon: float, delta: float) -> bool:
    """Whether a release and scores together are (epsilon, delta)-private, by sums or for two Gaussians exactly.

    Source   release_side/PROOF.md §8: Gaussian releases of multipliers m₁ and m₂ are together one of (m₁⁻² + m₂⁻²)^(−1/2).
    """
    room, (epsilon_of_scores, delta_of_scores, _) = 1 + SLACK, spent
    if statement.epsilon + epsilon_of_scores <= epsilon * room and statement.delta + delta_of_scores <= delta * room:
        return True
    multiplier = _joint_multiplier(statement, spent[2])
    if multiplier is None or delta < SMALLEST_DELTA:
        return False
    return gaussian_delta(epsilon=epsilon, noise_multiplier=multiplier) <= delta * room


def _joint_multiplier(statement: PrivacyStatement, of_scores: float | None) -> float | None:
    """Of the one Gaussian release that a release and its scores are together; None unless both are Gaussian."""
    if of_scores is None or statement.is_selection or is_pure(statement.mechanism):
        return None
    return math.hypot(1 / statement.noise_multiplier, 1 / of_scores) ** -1


def summed_guarantee(statement: PrivacyStatement, spent: Spent) -> tuple[float, float]:
    """(ε, δ) of a release together with scores.

    δ is the sum of both; ε is the sum, or for two Gaussian releases the least at this δ, rounded up.

    >>> from types import SimpleNamespace
    >>> facts = {"epsilon": 1.0, "delta": 1e-6, "noise_multiplier": 4.2247, "mechanism": "discrete gaussian"}
    >>> release = SimpleNamespace(**facts, is_selection=False)
    >>> summed_guarantee(release, (0.05, 0.0, None))
    (1.05, 1e-06)
    >>> summed_guarantee(release, (1.0, 1e-6, 4.2247))
    (1.40..., 2e-06)
    """
    epsilon, delta, multiplier = spent
    both = statement.epsilon + epsilon, statement.delta + delta
    joint = _joint_multiplier(statement, multiplier)
    if joint is None:
        return both
    low, high = 0.0, both[0]
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if gaussian_delta(epsilon=middle, noise_multiplier=joint / _CONTINUOUS) <= both[1]:
            high = middle
        else:
            low = middle
    return high, both[1]
