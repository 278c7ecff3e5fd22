"""A kernel for cyclic quantities: the hour of the day, the direction of the wind, the day of the year."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ive

from kmeanalyst.kernels.base import (
    Array,
    Spectrum,
    check_positive,
    checked_pair,
    filled,
    zero_where_missing_differs,
)
from kmeanalyst.kernels.continuous import _LENGTHSCALE_MEND, _UnitDiagonal, exponential

if TYPE_CHECKING:
    from kmeanalyst.kernels.draws import Draws

_FINEST = 1e-4  # lengthscale, in periods: harmonics up to some ten thousand
_MASS_LEFT_OUT = 1e-15


@dataclass(frozen=True)
class Periodic(_UnitDiagonal):
    """The mean over lengthscales ℓ of Πⱼ exp(κ (cos(2π (xⱼ − yⱼ)/T) − 1)), κ = (T/2πℓ)²: von Mises' density, up to scale.

    Near by it is the Gaussian kernel, as κ (1 − cos 2πd/T) ≈ d²/2ℓ²; x and x + T are one value. On a circle it is its
    Fourier series, exp(κ (cos θ − 1)) = Σ_n e^(−κ) I_n(κ) cos nθ over all whole n, with coefficients that are positive
    and add up to 1 (I_n the modified Bessel functions): random features draw n from them, and are as periodic.

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
        check_positive(
            "period", self.period, "x and x + period are one value.", "Pass a positive number, such as 24.0."
        )
        if len(self.lengthscales) == 0:
            raise ValueError("lengthscales must name at least one. Pass a tuple such as (1.0, 3.0).")
        for lengthscale in self.lengthscales:
            check_positive("lengthscale", lengthscale, "exp(-d²/2ℓ²) is not a kernel otherwise.", _LENGTHSCALE_MEND)
            if lengthscale < _FINEST * self.period:
                raise ValueError(
                    f"lengthscale must be at least {_FINEST} of the period, got {lengthscale!r} of {self.period!r}: its "
                    "Fourier series would have too many terms. Pass a larger one."
                )

    def _concentrations(self) -> Array:
        return (self.period / (2 * np.pi * np.array(self.lengthscales, dtype=float))) ** 2

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        # within a period of 0, exactly: however many periods a column spans, sines are of a few turns at most
        x, y = np.fmod(filled(X), self.period), np.fmod(filled(Y), self.period)
        below = np.zeros((len(X), len(Y)))  # Σ (cos − 1) = −2 Σ sin², in the form that does not cancel
        for j in range(X.shape[1]):
            below -= 2 * np.sin(np.pi / self.period * (x[:, j, None] - y[None, :, j])) ** 2
        K = np.zeros_like(below)
        for concentration in self._concentrations():
            K += exponential(concentration * below)
        return zero_where_missing_differs(K / len(self.lengthscales), X, Y)

    def draw_spectrum(self, rng: Draws, n_columns: int, count: int) -> Spectrum:
        """Harmonics n with probability e^(−κ) I_n(κ); a missing cell has phases of its own, at n = 0 too."""
        which, places = rng.choice(len(self.lengthscales), count), rng.random((n_columns, count))
        harmonics = np.empty((n_columns, count))
        for i, concentration in enumerate(self._concentrations()):
            upto = np.cumsum(harmonic_chances(concentration))
            mine = np.flatnonzero(which == i)
            harmonics[:, mine] = np.searchsorted(upto[:-1] / upto[-1], places[:, mine], side="right")
        harmonics *= rng.choice([-1.0, 1.0], (n_columns, count))
        missing = {j: rng.uniform(0, 2 * np.pi, (1, count)) for j in range(n_columns)}
        return Spectrum(2 * np.pi / self.period * harmonics, missing)


def harmonic_chances(concentration: float) -> Array:
    """P(|n| = 0, 1, ...): e^(−κ) I_0(κ), then 2 e^(−κ) I_n(κ), as far as they matter."""
    most = int(40 + 12 * np.sqrt(concentration))  # a normal of variance κ, or steeper where κ is small
    chances = ive(np.arange(most + 1), concentration) * np.where(np.arange(most + 1) == 0, 1.0, 2.0)
    return chances[: 1 + int(np.flatnonzero(chances > _MASS_LEFT_OUT).max())]
