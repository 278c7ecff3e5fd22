"""What a measurement says of populations, and with which errors: the answers to all questions at once.

Around rows of weights p a population departs with prior covariance κ Cov_p at most, and y is its mean of features φ with noise τ:
a = κ (κ C + τ²I)⁻¹ Cov_p(φ, h), C = Cov_p φ, answer E_p h + aᵀ(y − E_p φ), error τ²‖a‖² + what is left open of h − aᵀφ. Any a
has a valid error. Derivation, and how κ is found: tutorials/derivations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kmeanalyst.inference.posterior.column_sums import ColumnSums
from kmeanalyst.inference.posterior.compatible import LEADING_DIRECTIONS, CompatiblePopulations
from kmeanalyst.inference.posterior.equations import PATIENCE, Equations
from kmeanalyst.inference.posterior.interactions import Interactions, with_diagonal
from kmeanalyst.inference.posterior.pair_sums import PairSums
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import on_one_thread

_STILL_TO_GO = 2.0  # an error of the answers, in units of what a second step would add to them
_GAIN = 0.001  # the solver stops when 2 steps narrow no interval by more than this share
_ROUNDING = 1e-9
_TOGETHER = 32  # questions that are solved for together: more would not fit into a processor's cache


def validation(determined: float, probabilities: Array) -> float:
    """Generalised cross-validation (Golub, Heath & Wahba 1979), of γ directions that rows (n,) determine."""
    return float(1 / (1 - min(determined * float(probabilities @ probabilities), 0.5)) ** 2)


@dataclass(frozen=True, eq=False)
class EvenDepartures:
    """A prior of populations p (1 + g) for smooth features: g has the variance κ′ in every direction.

    weights  (m,) p; spread κ′, of the finest features that are shown.
    apart    (m,) how far the mass before anything is measured is from p: what features do not see follows it, one more error.
    """

    weights: Array
    spread: float
    apart: Array

    def left_open(self, rest: Array, ranges: Array) -> Array:
        followed = self.apart @ rest
        return self.spread * (self.weights[:, None] * rest).T @ rest + np.outer(followed, followed)

    def draws(self, k: int, rng: np.random.Generator) -> Array:
        drawn = np.sqrt(self.spread * self.weights)[:, None] * rng.standard_normal((len(self.weights), k))
        return drawn - np.outer(self.weights, drawn.sum(axis=0)) + np.outer(self.apart, rng.standard_normal(k))


@dataclass(frozen=True, eq=False)
class Posterior:
    """A measurement and rows of a population: the errors of any question, as `MeasuredErrors` needs them.

    rows        (n, d) encoded.
    seen        (k, d) → (k, F) features of rows, of tables sparse; target (F,) what was measured of their mean, with even noise on
                each.
    answers     (m,) the weights of the best answers; they sum to one, and some may be negative.
    second      (m,) what a second step would add to them.
    equations   κ C + τ²I around the rows, or around clouds of them.
    prior       how far a population may depart from these.
    validation  factor on the prior's variances: answers were fitted to what they are measured against (see `validation`).
    sums        of tables over cells of single columns, and over values of pairs, which the answers follow; None of smooth features.
    clouds      (m, n) means over the rows of each cloud; None where rows are the released points, each a cloud by itself.
    """

    rows: Array
    seen: Callable[[Array], Any]
    target: Array
    answers: Array
    second: Array
    equations: Equations
    prior: Interactions | EvenDepartures
    validation: float
    noise_scale: float
    n_rows: int
    clouds: Any = None
    sums: ColumnSums | PairSums | None = None

    @property
    def on_points(self) -> bool:
        return self.clouds is None

    @property
    def spread(self) -> float:
        return self.equations.spread

    @property
    def weights(self) -> Array:
        """(n,) of the rows, under which means are the best answers."""
        return self._of_rows(self.answers)

    @cached_property
    def probabilities(self) -> Array:
        """(n,) probability weights of the rows; of clouds, those of the answers."""
        return self._p if self.clouds is None else self.weights

    @property
    def _p(self) -> Array:
        return self.equations.covariance.weights

    def _of_rows(self, weights: Array) -> Array:
        return weights if self.clouds is None else self.clouds.T @ weights

    def _centred(self, influence: Array) -> Array:
        """(m, k) means over clouds of an influence (n, k), less its mean."""
        means = influence if self.clouds is None else self.clouds @ influence
        return means - self._p @ means

    @on_one_thread
    def covariance(self, influence: Array) -> dict[str, Array]:
        """Joint covariances (k, k) by source of means of values (n, k) at the rows."""
        centred, at_rows = self._centred(influence), influence - self.probabilities @ influence
        a = self._solved(centred)
        rest = centred - self.equations.covariance.at_rows(a)
        bias = _STILL_TO_GO * self.second @ centred
        privacy = self.noise_scale**2 * a.T @ a
        sampling = (self.probabilities[:, None] * at_rows).T @ at_rows / self.n_rows
        resolution = self.validation * self.prior.left_open(rest, np.ptp(influence, axis=0)) + np.outer(bias, bias)
        if self.sums is not None:  # privacy's and this are one variance: that which is larger
            along = self.sums.drowned(centred)
            least = (along**2).sum(axis=0) - privacy.diagonal() - resolution.diagonal()
            resolution += with_diagonal(along.T @ along, np.maximum(least, 0.0))
        return {"privacy": privacy, "sampling": sampling, "resolution": resolution}

    @on_one_thread
    def deviations(self, k: int, rng: np.random.Generator) -> Array:
        """See `MeasuredErrors.deviations`: f − fit(A f + noise), f from the prior (Matheron's rule).

        The bound that a noisy score sets to a pair that was not measured has no part in them.
        """
        f = np.sqrt(self.validation) * self.prior.draws(k, rng)
        noise = self.noise_scale * rng.standard_normal((len(self.target), k))
        means = self.equations.covariance.sums(f) + noise
        followed = self.equations.fitted(means)
        if self.sums is not None:
            followed = self.sums.calibrated(followed, self.sums.shares(means, 0.0))
        return self._of_rows(f - followed + np.outer(_STILL_TO_GO * self.second, rng.standard_normal(k)))

    @on_one_thread
    def _solved(self, centred: Array) -> Array:
        """a (F, k) of centred means (m, k): of the sums of columns and pairs, and of what these leave."""
        alone, of_sums = (0.0, 0.0) if self.sums is None else self.sums.part(centred)
        rest = centred - alone
        most = self.spread * (self._p @ rest**2) + self._p @ centred**2 / self.n_rows  # the squared error before the first step
        blocks = [slice(first, first + _TOGETHER) for first in range(0, centred.shape[1], _TOGETHER)]
        return np.hstack([self._solved_together(rest[:, block], most[block]) for block in blocks]) + of_sums

    def _solved_together(self, rest: Array, most: Array) -> Array:

        def narrow(gains: Array) -> Array:
            now = most - gains.sum(axis=0)
            return (len(gains) >= PATIENCE) & (gains[-PATIENCE:].sum(axis=0) <= 2 * _GAIN * now)

        return self.equations.solved(self.spread * self.equations.covariance.with_features(rest), narrow)

    def measured_part(self, values: Array) -> Array:
        """a (F,) of values (n,) at the rows: aᵀφ is what the measurement shows of them."""
        return self._solved(self._centred(values[:, None]))[:, 0]

    @cached_property
    @on_one_thread
    def compatible(self) -> CompatiblePopulations:
        return self._compatible_along(self.equations.covariance.leading(LEADING_DIRECTIONS).vectors)

    def _compatible_along(self, vectors: Array) -> CompatiblePopulations:
        covariance = self.equations.covariance
        seen = covariance.at_rows(vectors) + covariance.mean @ vectors if self.clouds is None else self.seen(self.rows) @ vectors
        variances = self.probabilities @ (seen - self.probabilities @ seen) ** 2
        errors = np.sqrt(self.noise_scale**2 + variances / self.n_rows)
        return CompatiblePopulations(seen - vectors.T @ self.target, errors)

    @on_one_thread
    def least(self, values: Array, level: float) -> float:
        """The least mean of values (n,) at the rows, over populations on these that are compatible at the level."""
        a = self._solved(self._centred(values[:, None]))
        own = self._compatible_along(a / max(float(np.linalg.norm(a)), _ROUNDING))
        coordinates = np.hstack([own.coordinates, self.compatible.coordinates])
        return CompatiblePopulations(coordinates, np.append(own.errors, self.compatible.errors)).least(values, level)
