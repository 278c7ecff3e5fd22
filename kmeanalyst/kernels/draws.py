"""Sources of random numbers for the frequencies of kernels: dependent over the R values of a call, each with its distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_MOST_DIMENSIONS = 21_201  # dimensions in the Sobol sequence's table of direction numbers
_LEAST = 2.0**-53  # inverse distribution functions are infinite at 0 and 1


class OrthogonalDraws(np.random.Generator):
    """A generator whose normals (d, R) are orthogonal vectors of χ_d-distributed lengths, in blocks of d.

    Source   Yu, Suresh, Choromanski, Holtmann-Rice & Kumar 2016, Orthogonal random features, §3: W = SQ/σ, Q Haar.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng.bit_generator)
        self.made_blocks = False  # whether some call had more than one column, whose vectors are orthogonal

    def standard_normal(self, size: tuple[int, int]) -> Array:  # type: ignore[override]
        """(d, R) standard normal vectors, orthogonal within each block of d; each alone is N(0, I)."""
        d, R = size
        if d == 1:
            return super().standard_normal(size)
        self.made_blocks = True
        blocks = -(-R // d)
        Q, T = np.linalg.qr(super().standard_normal((blocks, d, d)))
        Q *= np.sign(np.diagonal(T, axis1=1, axis2=2))[:, None, :]  # Haar needs the factor's diagonal positive
        directions = Q.transpose(1, 0, 2).reshape(d, blocks * d)[:, :R]
        return directions * np.sqrt(2 * self.standard_gamma(d / 2, R))


class QuasiRandom:
    """`count` points of a randomly shifted Sobol sequence, with a coordinate of it for each row of each call.

    count   R. A call for another number of values (in a rejection step) gives independent ones.
    Errors  ValueError where the frequencies need more coordinates than the sequence has.
    """

    def __init__(self, rng: np.random.Generator, count: int, n_dimensions: int) -> None:
        from scipy.stats.qmc import Sobol

        if n_dimensions > _MOST_DIMENSIONS:
            raise ValueError(
                f"quasi-random frequencies of this kernel need {n_dimensions:,} coordinates, and the Sobol sequence has "
                f"{_MOST_DIMENSIONS:,}. Use independent ones, or fewer levels."
            )
        self._rng, self._count, self.used = rng, count, 0
        size = max(0, (count - 1).bit_length())  # whole nets only: a part of one is not balanced
        points = Sobol(max(1, n_dimensions), scramble=False).random_base2(size)[:count].T
        self._points = (points + rng.random((len(points), 1))) % 1.0

    @classmethod
    def for_calls(cls, draw: Callable[[Draws], object], rng: np.random.Generator, count: int) -> QuasiRandom:
        """A sequence with as many coordinates as `draw` will ask for."""
        counter = _Counter(np.random.default_rng(0), count)
        draw(counter)
        return cls(rng, count, counter.used)

    def _uniforms(self, size: Any) -> Array:
        shape = (size,) if isinstance(size, int | np.integer) else tuple(size)
        uniforms = self._rng.random(shape) if shape[-1] != self._count else self._taken(shape)
        return np.clip(uniforms, _LEAST, 1 - _LEAST)

    def _taken(self, shape: tuple[int, ...]) -> Array:
        first, self.used = self.used, self.used + int(np.prod(shape[:-1]))
        return self._points[first : self.used].reshape(shape)

    def random(self, size: Any) -> Array:
        return self._uniforms(size)

    def uniform(self, low: float, high: float, size: Any) -> Array:
        return low + (high - low) * self._uniforms(size)

    def standard_normal(self, size: Any) -> Array:
        from scipy.special import ndtri

        return ndtri(self._uniforms(size))

    def standard_cauchy(self, size: Any) -> Array:
        return np.tan(np.pi * (self._uniforms(size) - 0.5))

    def standard_gamma(self, shape: float, size: Any) -> Array:
        from scipy.special import gammaincinv

        return np.maximum(gammaincinv(shape, self._uniforms(size)), 1e-300)

    def choice(self, a: Any, size: Any = None, *, p: Any = None) -> Array:
        values = np.arange(a) if isinstance(a, int | np.integer) else np.asarray(a)
        shares = np.full(len(values), 1 / len(values)) if p is None else np.asarray(p)
        indices = np.searchsorted(np.cumsum(shares)[:-1], self._uniforms(size), side="right")
        return values[indices]


class _Counter(QuasiRandom):
    """Answers like an endless sequence, and counts the coordinates that are used."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self._rng, self._count, self.used = rng, count, 0

    def _taken(self, shape: tuple[int, ...]) -> Array:
        self.used += int(np.prod(shape[:-1]))
        return self._rng.random(shape)


Draws: TypeAlias = np.random.Generator | QuasiRandom  # what kernels draw from
