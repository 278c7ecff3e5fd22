"""Kernels for numbers: Gaussian, Laplacian, Matérn, rational quadratic, a mixture of Gaussians, and a periodic one.

Distances are summed column by column, with no matrix product: a pair's value depends on that pair alone (PROOF.md §1).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ive

from kmeanalyst.kernels import base

_SMOOTHNESSES = tuple(p + 0.5 for p in range(11))
_FAR = 1e4  # exp(−10⁴) is 0 in float64, and (2·10⁴)^10 is finite
_LENGTHSCALE_HINT = "Pass a positive number, or median_lengthscale(public_points)."


def squared_distances(X: base.Array, Y: base.Array) -> base.Array:
    """‖x_i − y_j‖², (n, m), summed in the order of the columns."""
    total = np.zeros((len(X), len(Y)))
    for j in range(X.shape[1]):
        difference = X[:, j, None] - Y[None, :, j]
        difference *= difference
        total += difference
    return total


def exponential(X: base.Array) -> base.Array:
    """exp(X), in place; 0 below 10⁻²²¹: `exp` takes twice as long beyond e⁻⁵¹², and what is so small adds nothing to a sum."""
    np.maximum(X, -511.0, out=X)
    np.exp(X, out=X)
    X *= X > 1e-221
    return X


def median_lengthscale(X: base.Array, *, most_rows: int = 1000, rng: np.random.Generator | int | None = 0) -> float:
    """Median distance between distinct rows of X (n, d): the usual first guess of a lengthscale.

    X must be public: a lengthscale learned from private rows is itself a release. Of more than
    `most_rows` rows a random subset is taken.

    >>> ka.median_lengthscale([[0.0], [1.0], [3.0]])
    2.0
    """
    X = base.filled(base.as_rows(X))
    if len(X) > most_rows:
        X = X[np.random.default_rng(rng).choice(len(X), most_rows, replace=False)]
    distances = np.sqrt(squared_distances(X, X)[np.triu_indices(len(X), 1)])
    positive = distances[distances > 0]
    if len(positive) == 0:
        raise ValueError("the rows are all alike, so they suggest no lengthscale. Pass lengthscale yourself.")
    return float(np.median(positive))


class UnitDiagonal(base.Kernel):
    """A kernel with k(x, x) = 1 and k ≥ 0 (abstract)."""

    def diagonal(self, X: base.Array) -> base.Array:
        return np.ones(len(base.as_rows(X)))

    @property
    def bound(self) -> float:
        return 1.0

    @property
    def nonnegative(self) -> bool:
        return True


class _OfNumbers(UnitDiagonal):
    """A kernel of numbers (abstract); rows whose missing cells differ are orthogonal."""

    def gram(self, X: base.Array, Y: base.Array) -> base.Array:
        X, Y = base.checked_pair(X, Y)
        return base.zero_where_missing_differs(self._of_numbers(base.filled(X), base.filled(Y)), X, Y)

    @abstractmethod
    def _of_numbers(self, X: base.Array, Y: base.Array) -> base.Array:
        """The Gram matrix (n, m) of rows (n, d) and (m, d) without missing cells."""


@dataclass(frozen=True)
class Gaussian(_OfNumbers):
    """exp(−‖x − y‖² / 2ℓ²), lengthscale ℓ in the units of the columns.

    >>> ka.kernels.Gaussian(2.0).gram([[0.0, 0.0]], [[2.0, 0.0]])
    array([[0.6065...]])
    """

    lengthscale: float
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        base.check_positive("lengthscale", self.lengthscale, "exp(-d²/2ℓ²) is not a kernel otherwise.", _LENGTHSCALE_HINT)

    def _of_numbers(self, X: base.Array, Y: base.Array) -> base.Array:
        K = squared_distances(X, Y)
        K *= -0.5 / self.lengthscale**2
        return np.exp(K, out=K)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        return base.Spectrum(rng.standard_normal((n_columns, count)) / self.lengthscale, {})


@dataclass(frozen=True)
class Laplacian(_OfNumbers):
    """exp(−‖x − y‖₁ / ℓ): a product over the columns (Rahimi & Recht 2007, figure 1).

    >>> ka.kernels.Laplacian(2.0).gram([[0.0, 0.0]], [[2.0, 2.0]])
    array([[0.1353...]])
    """

    lengthscale: float
    name: ClassVar[str] = "laplacian"

    def __post_init__(self) -> None:
        base.check_positive("lengthscale", self.lengthscale, "exp(-d/ℓ) is not a kernel otherwise.", _LENGTHSCALE_HINT)

    def _of_numbers(self, X: base.Array, Y: base.Array) -> base.Array:
        K = np.zeros((len(X), len(Y)))
        for j in range(X.shape[1]):
            K += np.abs(X[:, j, None] - Y[None, :, j])
        K *= -1 / self.lengthscale
        return np.exp(K, out=K)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        return base.Spectrum(rng.standard_cauchy((n_columns, count)) / self.lengthscale, {})

    def draw_widths(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Array:
        """δ·k''(δ) = δ/ℓ² · exp(−δ/ℓ): the Gamma distribution of shape 2."""
        return self.lengthscale * rng.standard_gamma(2.0, (n_columns, count))


def _check_lengthscales(lengthscales: tuple[float, ...]) -> None:
    if len(lengthscales) == 0:
        raise ValueError("lengthscales must name at least one. Pass a tuple such as (1.0, 2.0, 4.0).")
    for lengthscale in lengthscales:
        base.check_positive("lengthscale", lengthscale, "exp(-d²/2ℓ²) is not a kernel otherwise.", _LENGTHSCALE_HINT)


@dataclass(frozen=True)
class MultiScale(_OfNumbers):
    """The mean of Gaussian kernels at several lengthscales: sees fine steps and broad trends at once.

    >>> ka.kernels.MultiScale((0.5, 5.0)).gram([[0.0]], [[2.0]])
    array([[0.4617...]])
    """

    lengthscales: tuple[float, ...]
    name: ClassVar[str] = "multi-scale"

    def __post_init__(self) -> None:
        _check_lengthscales(self.lengthscales)

    def _of_numbers(self, X: base.Array, Y: base.Array) -> base.Array:
        squares = squared_distances(X, Y)
        K = np.zeros_like(squares)
        for lengthscale in self.lengthscales:
            K += exponential(squares * (-0.5 / lengthscale**2))
        return K / len(self.lengthscales)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        lengthscales = rng.choice(np.array(self.lengthscales), size=count)
        return base.Spectrum(rng.standard_normal((n_columns, count)) / lengthscales, {})


@dataclass(frozen=True)
class Matern(_OfNumbers):
    """The Matérn kernel of half-integer smoothness ν = p + ½, r = ‖x − y‖ (Rasmussen & Williams 2006, equation 4.16).

    exp(−s) p!/(2p)! Σ_i (p + i)!/(i! (p − i)!) (2s)^(p−i), s = √(2ν) r/ℓ: exp(−r/ℓ) for ν = ½, smoother as ν grows,
    and near the Gaussian kernel from some ten on. Its spectral measure is a multivariate t distribution with 2ν degrees of freedom.

    nu            ν, one of ½, 3/2, 5/2, ..., 21/2.
    lengthscale   ℓ in the units of the columns.

    >>> ka.kernels.Matern(nu=1.5, lengthscale=2.0).gram([[0.0]], [[2.0]])
    array([[0.4833...]])
    """

    nu: float
    lengthscale: float
    name: ClassVar[str] = "matern"

    def __post_init__(self) -> None:
        if not base.is_number(self.nu) or self.nu not in _SMOOTHNESSES:
            raise ValueError(
                f"nu must be one of 0.5, 1.5, 2.5, ..., {_SMOOTHNESSES[-1]}, got {self.nu!r:.80}: the kernel has a closed "
                "form for these. Pass e.g. 1.5; beyond them the gaussian kernel is nearly the same."
            )
        base.check_positive("lengthscale", self.lengthscale, "exp(-d/ℓ) is not a kernel otherwise.", _LENGTHSCALE_HINT)

    def _of_numbers(self, X: base.Array, Y: base.Array) -> base.Array:
        s = np.sqrt(squared_distances(X, Y))
        s *= math.sqrt(2 * self.nu) / self.lengthscale
        np.minimum(s, _FAR, out=s)  # exp(−s) is 0 there, and its factor must not be infinite
        p = int(self.nu)
        total = np.zeros_like(s)
        for i in range(p + 1):  # Horner's scheme, from the highest power 2s has
            total = total * (2 * s) + math.comb(p, i) * math.factorial(p + i) / math.factorial(2 * p)
        return total * np.exp(-s)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        """Normals over the root of a χ² of 2ν degrees of freedom per degree: t-distributed, as the density says."""
        precision = rng.standard_gamma(self.nu, count) / self.nu
        return base.Spectrum(rng.standard_normal((n_columns, count)) / (self.lengthscale * np.sqrt(precision)), {})

    def draw_widths(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Array:
        """For ν = ½ on one column, where it is the Laplacian kernel; no other case is a mixture of hats."""
        if self.nu != 0.5 or n_columns != 1:
            return super().draw_widths(rng, n_columns, count)
        return self.lengthscale * rng.standard_gamma(2.0, (n_columns, count))


@dataclass(frozen=True)
class RationalQuadratic(_OfNumbers):
    """(1 + r²/2αℓ²)^(−α), r = ‖x − y‖: Gaussians mixed over lengthscales (Rasmussen & Williams 2006, equation 4.19).

    alpha         α > 0: small for a wide mixture; the Gaussian kernel as α grows.
    lengthscale   ℓ in the units of the columns.

    >>> ka.kernels.RationalQuadratic(alpha=1.0, lengthscale=2.0).gram([[0.0]], [[2.0]])
    array([[0.6666...]])
    """

    alpha: float
    lengthscale: float
    name: ClassVar[str] = "rational-quadratic"

    def __post_init__(self) -> None:
        if not base.is_number(self.alpha) or not 0.01 <= self.alpha <= 1e6:
            raise ValueError(
                f"alpha must be between 0.01 and 1e6, got {self.alpha!r:.80}: it says how lengthscales are mixed, and no "
                "distance would count below. Pass e.g. 1.0."
            )
        base.check_positive("lengthscale", self.lengthscale, "it is not a kernel otherwise.", _LENGTHSCALE_HINT)

    def _of_numbers(self, X: base.Array, Y: base.Array) -> base.Array:
        K = squared_distances(X, Y)
        K *= 0.5 / (self.alpha * self.lengthscale**2)
        return np.exp(-self.alpha * np.log1p(K))

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        """Normals times the root of a Gamma-distributed precision of mean 1/ℓ²: exp(−τr²/2) has the mean k."""
        precision = rng.standard_gamma(self.alpha, count) / self.alpha
        return base.Spectrum(rng.standard_normal((n_columns, count)) * np.sqrt(precision) / self.lengthscale, {})


_FINEST = 1e-4  # lengthscale, in periods: harmonics up to some ten thousand
_MASS_LEFT_OUT = 1e-15


@dataclass(frozen=True)
class Periodic(_OfNumbers):
    """The mean over lengthscales ℓ of Πⱼ exp(κ (cos(2π (xⱼ − yⱼ)/T) − 1)), κ = (T/2πℓ)²: von Mises' density, up to scale.

    At small distances it is the Gaussian kernel. exp(κ (cos θ − 1)) = Σ_n e^(−κ) I_n(κ) cos nθ over all whole n, with positive
    coefficients of sum 1 (I_n the modified Bessel functions): random features draw n from them, and so are periodic too.

    period        T, in the units of the column.
    lengthscales  ℓ, in the units of the column.

    >>> K = Periodic(24.0, (3.0,)).gram([[23.5]], [[0.5], [1.0], [12.0]])
    >>> K.round(2)  # an hour across midnight is an hour
    array([[0.95, 0.88, 0.04]])

    Source: Mardia & Jupp 2000, *Directional statistics*, equation 3.5.17 and appendix 1; the kernel of MacKay 1998,
    *Introduction to Gaussian processes*, equation 47.
    """

    period: float
    lengthscales: tuple[float, ...]
    name: ClassVar[str] = "periodic"

    def __post_init__(self) -> None:
        base.check_positive("period", self.period, "x and x + period are one value.", "Pass a positive number, such as 24.0.")
        _check_lengthscales(self.lengthscales)
        if (finest := min(self.lengthscales)) < _FINEST * self.period:
            raise ValueError(
                f"lengthscale must be at least {_FINEST} of the period, got {finest!r} of {self.period!r}: its "
                "Fourier series would have too many terms. Pass a larger one."
            )

    def _concentrations(self) -> base.Array:
        return (self.period / (2 * np.pi * np.array(self.lengthscales, dtype=float))) ** 2

    def _of_numbers(self, X: base.Array, Y: base.Array) -> base.Array:
        # within a period of 0, exactly: however many periods a column spans, sines are of a few turns at most
        x, y = np.fmod(X, self.period), np.fmod(Y, self.period)
        below = np.zeros((len(X), len(Y)))  # Σ (cos − 1) = −2 Σ sin², in the form that does not cancel
        for j in range(X.shape[1]):
            below -= 2 * np.sin(np.pi / self.period * (x[:, j, None] - y[None, :, j])) ** 2
        K = np.zeros_like(below)
        for concentration in self._concentrations():
            K += exponential(concentration * below)
        return K / len(self.lengthscales)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> base.Spectrum:
        """Harmonics n with probability e^(−κ) I_n(κ); a missing cell has phases of its own, at n = 0 too."""
        which, uniforms = rng.choice(len(self.lengthscales), count), rng.random((n_columns, count))
        harmonics = np.empty((n_columns, count))
        for i, concentration in enumerate(self._concentrations()):
            upto = np.cumsum(harmonic_probabilities(concentration))
            mine = np.flatnonzero(which == i)
            harmonics[:, mine] = np.searchsorted(upto[:-1] / upto[-1], uniforms[:, mine], side="right")
        harmonics *= rng.choice([-1.0, 1.0], (n_columns, count))
        missing = {j: rng.uniform(0, 2 * np.pi, (1, count)) for j in range(n_columns)}
        return base.Spectrum(2 * np.pi / self.period * harmonics, missing)


def harmonic_probabilities(concentration: float) -> base.Array:
    """P(|n| = 0, 1, ...): e^(−κ) I_0(κ), then 2 e^(−κ) I_n(κ), as far as they matter."""
    most = int(40 + 12 * np.sqrt(concentration))  # a normal of variance κ, or steeper where κ is small
    probabilities = ive(np.arange(most + 1), concentration) * np.where(np.arange(most + 1) == 0, 1.0, 2.0)
    return probabilities[: 1 + int(np.flatnonzero(probabilities > _MASS_LEFT_OUT).max())]
