"""A population whose embedding is known: a mixture of normals under a Gaussian kernel. For tests of theorems and rates.

X = m_c + s_c Z with probability p_c, Z standard normal in d dimensions, k(x, y) = exp(−‖x − y‖²/2ℓ²). Then, as the
convolution of normal densities is one,

    μ(z) = E k(X, z) = Σ p_c (ℓ²/(ℓ² + s_c²))^(d/2) exp(−‖z − m_c‖²/2(ℓ² + s_c²))
    ‖μ‖² = E k(X, X′) = Σ p_a p_b (ℓ²/(ℓ² + s_a² + s_b²))^(d/2) exp(−‖m_a − m_b‖²/2(ℓ² + s_a² + s_b²)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real


@dataclass(frozen=True)
class Mixture:
    """shares (c,), centres (c, d), spreads (c,); the kernel that it is embedded by; bounds ±reach of every column.

    Draws beyond the bounds are clamped by the domain: let them be out of reach.
    """

    shares: tuple[float, ...]
    centres: tuple[tuple[float, ...], ...]
    spreads: tuple[float, ...]
    lengthscale: float
    reach: float

    @property
    def kernel(self) -> Gaussian:
        return Gaussian(self.lengthscale)

    @property
    def domain(self) -> Domain:
        names = (f"x{j}" for j in range(len(self.centres[0])))
        return Domain(tuple(Real(name=name, lower=-self.reach, upper=self.reach) for name in names))

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) independent rows."""
        part = rng.choice(len(self.shares), n, p=self.shares)
        noise = rng.standard_normal((n, len(self.centres[0])))
        return np.array(self.centres)[part] + np.array(self.spreads)[part, None] * noise

    def table(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        return pd.DataFrame(self.draw(n, rng), columns=list(self.domain.names))

    def embedding(self, points: Array) -> Array:
        """μ(z) at each of the points (M, d)."""
        d = points.shape[1]
        total = np.zeros(len(points))
        for share, centre, spread in zip(self.shares, self.centres, self.spreads, strict=True):
            square = self.lengthscale**2 + spread**2
            distances = ((points - np.array(centre)) ** 2).sum(axis=1)
            total += share * (self.lengthscale**2 / square) ** (d / 2) * np.exp(-distances / (2 * square))
        return total

    @property
    def squared_norm(self) -> float:
        """‖μ‖²: μ at the normal variable of each part, which is that of a kernel so much wider."""
        total = 0.0
        for share, centre, spread in zip(self.shares, self.centres, self.spreads, strict=True):
            for other, centre_of_other, width in zip(self.shares, self.centres, self.spreads, strict=True):
                square = self.lengthscale**2 + spread**2 + width**2
                squared_distance = math.dist(centre, centre_of_other) ** 2
                factor = (self.lengthscale**2 / square) ** (len(centre) / 2)
                total += share * other * factor * math.exp(-squared_distance / (2 * square))
        return total

    def distance(self, points: Array, weights: Array) -> float:
        """‖Σ w_m k(z_m, ·) − μ‖."""
        own = weights @ self.kernel.gram(points, points) @ weights
        return math.sqrt(max(0.0, own - 2 * weights @ self.embedding(points) + self.squared_norm))

    def mean_distance(self, column: int = 0) -> float:
        """E|X_j|, which no function of the kernel's space is: folded normals."""
        found = 0.0
        for share, centre, spread in zip(self.shares, self.centres, self.spreads, strict=True):
            t = centre[column] / spread
            found += share * spread * (math.sqrt(2 / math.pi) * math.exp(-(t**2) / 2) + t * (1 - 2 * ndtr(-t)))
        return found


PLANE = Mixture((0.6, 0.4), ((-1.0, 0.5), (1.5, -1.0)), (0.7, 0.5), lengthscale=1.0, reach=5.0)
