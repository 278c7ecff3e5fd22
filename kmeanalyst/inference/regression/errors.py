"""Errors of coefficients, whose relations are asked for because they are expected.

A measurement leaves more open of such a relation than of usual questions (`expected_relation`): the resolution of coefficients,
of effects and of predictions is the larger of the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmeanalyst.inference.estimate.error_model import Parts
from kmeanalyst.inference.estimate.estimate import Estimates
from kmeanalyst.inference.estimate.population import Population, estimates
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.kernels.base import Array


def joint_covariance(population: Population, influence: Array) -> Parts:
    """Joint covariances (k, k) by source of statistics with influences (n, k); resolution is scaled to that of relations."""
    covariance = population.model.covariance(influence)
    if covariance["resolution"] is None:
        return covariance
    usual = np.sqrt(np.maximum(np.diag(covariance["resolution"]), 0.0))
    larger = np.maximum(population.model.parts(influence, expected=True)["resolution"], usual)
    factor = np.divide(larger, usual, out=np.ones_like(usual), where=usual > 0)
    return covariance | {"resolution": covariance["resolution"] * np.outer(factor, factor)}


def usual_errors(population: Population, influence: Array) -> Array:
    """(k,) standard errors of statistics with influences (n, k), whatever relation is expected."""
    parts = population.model.parts(influence).values()
    return np.sqrt(np.sum([part**2 for part in parts if part is not None], axis=0))


def answers(population: Population, values: Array, derivatives: Array, questions: Sequence[str]) -> Estimates:
    """Estimates of statistics (k,), from their derivatives (n, k) by the rows' weights; what relations add counts as a bias."""
    influence = population.influence(derivatives)
    usual = population.model.parts(influence)["resolution"]
    if usual is not None:
        larger = population.model.parts(influence, expected=True)["resolution"]
        influence = np.vstack([influence, np.sqrt(np.maximum(larger**2 - usual**2, 0.0))])
    asked = zip(values, influence.T, questions, strict=True)
    return estimates(population, [Statistic(float(value), own, population.text(text)) for value, own, text in asked])
