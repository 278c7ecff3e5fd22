"""A mixture of product distributions whose mean random Fourier feature comes close to a noisy one.

The mean feature of a component is a product of characteristic functions, so that L-BFGS has exact gradients. One more component
must lower ‖ψ − y‖² by more than it could by fitting noise. Few parameters follow little noise: on the published mixtures the
fitted mean has half the error of the best probability weights on free points at ε = 0.1, and a quarter at ε = 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from scipy.stats import qmc

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.representation.mixture.component_laws import Law, laws_for, lengthscales
from kmeanalyst.representation.wanted import FULL, Effort

_CANDIDATES = 4000  # candidates for a new component: the criterion charges for choosing the best of them
_FIRST_FIT, _REFIT, _LAST_FIT = 150, 60, 300  # steps of L-BFGS
_TINY = 1e-12
_SMALLEST = 0.2  # first standard deviation of a new component, in lengthscales
_LEAST_MOST = 8  # components that are always allowed
_TRIES, _SETTLED, _SETTLE = 2, 6, 20  # new components: refitted jointly; first fitted alone; steps of that fit


@dataclass
class Mixture:
    """Σ_k w_k Π_j law_kj.

    weights      (K,) probability weights.
    parameters   (K, p) of the laws, one after the other.
    loss         ‖ψ − y‖² of the fit, in units of k(0).
    """

    laws: list[Law]
    n_columns: int
    weights: Array
    parameters: Array
    loss: float = np.inf

    def __len__(self) -> int:
        return len(self.weights)

    def without(self, components: Array) -> Mixture:
        weights = np.delete(self.weights, components)
        return Mixture(self.laws, self.n_columns, weights / weights.sum(), np.delete(self.parameters, components, 0))

    def joined(self, parameters: Array, share: float) -> Mixture:
        weights = np.append((1 - share) * self.weights, share)
        return Mixture(self.laws, self.n_columns, weights, np.vstack([self.parameters, parameters]))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """n encoded rows (n, d) from a scrambled Sobol sequence over components and cells."""
        counts = [law.n_columns for law in self.laws]
        uniforms = qmc.Sobol(1 + 2 * sum(counts), seed=rng).random(1 << (n - 1).bit_length())[:n]
        uniforms = np.clip(uniforms, 1e-9, 1 - 1e-9)
        component = (uniforms[:, :1] > np.cumsum(self.weights)).sum(axis=1)
        chosen = self.parameters[np.minimum(component, len(self) - 1)]
        rows, used = np.empty((n, self.n_columns)), 1
        for law, own, count in zip(self.laws, slices_of(self.laws), counts, strict=True):
            columns, values = law.draw(chosen[:, own], uniforms[:, used : used + 2 * count].reshape(n, 2, count))
            rows[:, columns] = values
            used += 2 * count
        return rows


def slices_of(laws: Sequence[Law]) -> list[slice]:
    ends = np.cumsum([0, *(law.width for law in laws)])
    return [slice(a, b) for a, b in pairwise(ends)]


def slope_in_logits(p: Array, slope: Array) -> Array:
    """The slope in the logits of p (n,) = softmax(logits), from the slope (n,) in p."""
    return p * (slope - p @ slope)


def mean_phasors(mixture: Mixture, n_frequencies: int) -> Array:
    """E e^{ip} of each component, complex (K, R)."""
    total = np.ones((len(mixture), n_frequencies), dtype=np.complex64)
    for law, own in zip(mixture.laws, slices_of(mixture.laws), strict=True):
        total[:, law.looks] *= law.characteristic(mixture.parameters[:, own])
    return total


def square(residual: Array) -> float:
    return float(np.mean(residual.real**2 + residual.imag**2, dtype=np.float64))


class MixtureFit:
    """The search for a mixture whose mean phasor is near y.

    target          (R,) complex: y as cos + i·sin of unit features.
    noise           standard deviation of the noise on its real and imaginary parts, over √R: τ/B.
    effort          of all fits of the search, and of the posterior around its result.
    """

    def __init__(self, features: RandomFourier, domain: Domain, target: Array, noise: float, effort: Effort = FULL) -> None:
        self.effort, self.tries = effort, effort.of(_TRIES)
        self.features, self.domain, self.target, self.noise = features, domain, target.astype(np.complex64), noise
        self.laws = laws_for(features, domain, lengthscales(features.linear))
        self.slices = slices_of(self.laws)
        self.free = 1 + sum(law.free for law in self.laws)  # parameters of one component
        self.most = max(_LEAST_MOST, len(target) // self.free)  # half as many parameters as numbers measured
        self.charge = noise**2 * (2 * np.log(_CANDIDATES) + self.free)

    def criterion(self, mixture: Mixture) -> float:
        return mixture.loss + self.charge * len(mixture)

    def phasors(self, mixture: Mixture) -> Array:
        return mean_phasors(mixture, len(self.target))

    def around(self, points: Array, weights: Array, labels: Array) -> Mixture:
        """One component for each label of weighted points (n, d)."""
        kinds = np.unique(labels)
        shares = np.array([weights[labels == k].sum() for k in kinds])
        parameters = [
            np.concatenate([law.around(points[labels == k], weights[labels == k] / share) for law in self.laws])
            for k, share in zip(kinds, shares, strict=True)
        ]
        return Mixture(self.laws, len(self.domain), shares / shares.sum(), np.array(parameters))

    def fit(self, mixture: Mixture, steps: int) -> Mixture:
        K, p = mixture.parameters.shape
        limits = [limit for law in self.laws for limit in law.bounds]
        low, high = np.array(limits).T
        logits, parameters = np.log(np.maximum(mixture.weights, 1e-6)), np.clip(mixture.parameters, low, high)
        start = np.concatenate([logits, parameters.ravel()])

        def objective(flat: Array) -> tuple[float, Array]:
            weights, parameters = softmax(flat[:K]), flat[K:].reshape(K, p)
            residual, by_weight, by_parameters = self.slopes(weights, parameters)
            slopes = np.concatenate([slope_in_logits(weights, by_weight), by_parameters.ravel()])
            return square(residual) / self.noise**2, slopes / self.noise**2

        found = minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=[(-20.0, 20.0)] * K + limits * K,
            options={"maxiter": self.effort.of(steps), "maxcor": 20},
        )  # fmt: skip
        weights, parameters = softmax(found.x[:K]), found.x[K:].reshape(K, p)
        return Mixture(self.laws, mixture.n_columns, weights, parameters, found.fun * self.noise**2)

    def slopes(self, weights: Array, parameters: Array, held: Array | float = 0.0) -> tuple[Array, Array, Array]:
        """The residual held + Σ w ψ − y (R,), and the slopes of its mean square in weights (K,) and parameters (K, p)."""
        each = [law.characteristic(parameters[:, own]) for law, own in zip(self.laws, self.slices, strict=True)]
        phasors = np.ones((len(weights), len(self.target)), dtype=np.complex64)
        for law, chi in zip(self.laws, each, strict=True):
            phasors[:, law.looks] *= chi
        residual = weights.astype(np.float32) @ phasors - (self.target - held)
        base = np.conj(residual) * phasors
        by_weight = base.real.sum(axis=1, dtype=np.float64) * (2 / len(self.target))
        base *= (weights * (2 / len(self.target))).astype(np.float32)[:, None]
        slopes = [
            law.slopes(parameters[:, own], chi, base[:, law.looks])
            for law, own, chi in zip(self.laws, self.slices, each, strict=True)
        ]
        return residual, by_weight, np.hstack(slopes)

    def prune(self, mixture: Mixture) -> Mixture:
        while len(mixture) > 1:
            order = np.argsort(self._loss_without_each(mixture))
            for k in order[: self.tries]:
                smaller = self.fit(mixture.without(k), _REFIT)
                if self.criterion(smaller) < self.criterion(mixture):
                    mixture = smaller
                    break
            else:
                break
        return mixture

    def _loss_without_each(self, mixture: Mixture) -> Array:
        phasors = self.phasors(mixture)
        total = mixture.weights @ phasors
        rest = np.maximum(1 - mixture.weights, _TINY)[:, None]
        return np.mean(np.abs((total - mixture.weights[:, None] * phasors) / rest - self.target) ** 2, axis=1)

    def grow(self, mixture: Mixture, rng: np.random.Generator) -> Mixture:
        while len(mixture) < self.most:
            for parameters, share in self._newcomers(mixture, rng):
                larger = self.fit(mixture.joined(parameters, share), _REFIT)
                if self.criterion(larger) < self.criterion(mixture):
                    mixture = larger
                    break
            else:
                break
        return mixture

    def _newcomers(self, mixture: Mixture, rng: np.random.Generator) -> list[tuple[Array, float]]:
        """(parameters, share) of the new components that lower the loss most, each fitted with the others fixed."""
        candidates = self._candidates(mixture, rng)
        now = mixture.weights.astype(np.float32) @ self.phasors(mixture)
        step, residual = self.phasors(candidates) - now, self.target - now
        along = (step.real @ residual.real + step.imag @ residual.imag) / len(now)
        length = np.maximum(np.mean(step.real**2 + step.imag**2, axis=1), _TINY)
        gain = np.where(along > 0, along**2 / length, 0.0)
        settled = []
        for i in np.argsort(-gain)[: self.effort.of(_SETTLED)]:
            share = float(np.clip(along[i] / length[i], 1e-3, 0.3))
            settled.append(self.settle(now, candidates.parameters[i], share))
        settled.sort(key=lambda one: one[0])
        return [(parameters, share) for _, parameters, share in settled[: self.tries]]

    def settle(self, now: Array, parameters: Array, share: float) -> tuple[float, Array, float]:
        """(loss, parameters, share) after fitting one new component; `now`, the mean phasor of the others, is fixed."""
        low, high = np.array([limit for law in self.laws for limit in law.bounds]).T

        def objective(flat: Array) -> tuple[float, Array]:
            a = expit(flat[0])
            residual, by_weight, by_parameters = self.slopes(np.array([a]), flat[None, 1:], held=now * np.float32(1 - a))
            slope = by_weight[0] - 2 * float(np.mean((np.conj(residual) * now).real, dtype=np.float64))
            return square(residual) / self.noise**2, np.append(a * (1 - a) * slope, by_parameters[0]) / self.noise**2

        start = np.append(logit(share), np.clip(parameters, low, high))
        limits = [(-9.0, 3.0), *zip(low, high, strict=True)]
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": self.effort.of(_SETTLE)})
        return float(found.fun), found.x[1:], float(expit(found.x[0]))

    def _candidates(self, mixture: Mixture, rng: np.random.Generator) -> Mixture:
        size = self.effort.of(_CANDIDATES)
        rows = np.vstack([self.domain.draw(size // 4, rng), mixture.draw(size // 8, rng)])
        found = self.around(rows, np.full(len(rows), 1 / len(rows)), np.arange(len(rows)))
        for law, own in zip(self.laws, self.slices, strict=True):
            log_sds = found.parameters[:, own][:, law.log_sds]
            largest = np.maximum(law.extents / 6, 4 * _SMALLEST)
            log_sds[:] = rng.uniform(np.log(_SMALLEST), np.log(largest), log_sds.shape)
        return found


def fit_mixture(
    search: MixtureFit, *, points: Array, weights: Array, rng: np.random.Generator,
    progress: Callable[[float], None] = lambda share: None,
) -> Mixture:  # fmt: skip
    """The mixture of the lowest criterion found, starting from clusters of weighted points (n, d)."""
    starts: list[Mixture] = []
    for size in (4, 8, 12, 16, 24, 32, 48):
        if starts and size > len(points):
            break
        if len(starts) > 2 and int(np.argmin([search.criterion(start) for start in starts])) < len(starts) - 2:
            break  # the last two, of increasing size, were no better than an earlier one
        labels = _clusters(points, weights, min(size, len(points)), search.features, rng)
        starts.append(search.fit(search.around(points, weights, labels), _FIRST_FIT))
    starts.sort(key=search.criterion)
    best = starts[0]
    for i, start in enumerate(starts[:2]):
        for _ in range(2):
            start = search.prune(search.grow(start, rng))
        best = min(best, start, key=search.criterion)
        progress((i + 1) / min(2, len(starts)))
    return search.fit(best, _LAST_FIT)


def _clusters(points: Array, weights: Array, size: int, features: RandomFourier, rng: np.random.Generator) -> Array:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    chosen = rng.choice(features.n_frequencies, min(64, features.n_frequencies), replace=False)
    phases = features.phases(points)[:, chosen]
    found = KMeans(size, n_init=1, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():  # fewer distinct points than clusters make fewer clusters
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = found.fit(np.hstack([np.cos(phases), np.sin(phases)]), sample_weight=weights).labels_
    return np.asarray(labels)
