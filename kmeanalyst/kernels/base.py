"""What a kernel is, and how kernels are built from kernels: small frozen values with a Gram matrix, a diagonal and a bound.

Encoded rows are float64 (n, d), a missing cell NaN; rows missing in different columns are orthogonal, which keeps kernels positive
definite. Shift-invariant kernels draw from their spectral measure (Bochner; Rahimi & Recht 2007).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Spectrum:
    """Frequencies drawn from a kernel's spectral measure: phase(x) = Σ_j x_j W_j + Σ_j table_j[code].

    linear   (d, R) one frequency per column and feature; zero where a feature does not look at it.
    tables   column → (levels + 1, R) phases of the codes, the last row for a missing cell.

    >>> spectrum = ka.kernels.Indicator(3).draw_spectrum(np.random.default_rng(0), 1, 5)
    >>> spectrum.tables[0].shape
    (4, 5)
    """

    linear: Array
    tables: dict[int, Array]

    def __add__(self, other: Spectrum) -> Spectrum:
        tables = dict(self.tables)
        for column, table in other.tables.items():
            tables[column] = tables[column] + table if column in tables else table
        return Spectrum(self.linear + other.linear, tables)

    def masked(self, mask: Array) -> Spectrum:
        """Keep the features where mask (R,) holds; the others become constant (all phases zero).

        >>> spectrum = ka.kernels.Gaussian(1.0).draw_spectrum(np.random.default_rng(0), 1, 2)
        >>> bool(spectrum.masked(np.array([True, False])).linear[0, 1] == 0)
        True
        """
        return Spectrum(self.linear * mask, {j: table * mask for j, table in self.tables.items()})


class Kernel(ABC):
    """A positive-definite kernel k with |k(x, y)| ≤ bound² (abstract; members are frozen dataclasses).

    >>> kernel = ka.kernels.Gaussian(1.0)
    >>> kernel.gram([[0.0]], [[1.0]])
    array([[0.6065...]])
    >>> kernel.bound, kernel.nonnegative, kernel.columns, kernel.width
    (1.0, True, None, 1)
    """

    name: ClassVar[str]

    @abstractmethod
    def gram(self, X: Array, Y: Array) -> Array:
        """Kernel matrix k(x_i, y_j), (n, m) for X (n, d) and Y (m, d).

        >>> ka.kernels.Gaussian(1.0).gram([[0.0], [1.0]], [[0.0]])
        array([[1.        ],
               [0.6065...]])
        """

    def against(self, Y: Array) -> Callable[[Array], Array]:
        """X ↦ gram(X, Y), for many X: what depends on Y alone is computed once where that is faster.

        >>> ka.kernels.Gaussian(1.0).against([[0.0]])([[0.0], [1.0]])
        array([[1.        ],
               [0.6065...]])
        """
        return lambda X: self.gram(X, Y)

    def mean_product(self, X: Array, u: Array, Y: Array, v: Array) -> float | None:
        """Σ_i Σ_j u_i v_j k(x_i, y_j) where the kernel can compute it faster than by its Gram matrix; else None.

        >>> ka.kernels.Gaussian(1.0).mean_product([[0.0]], [1.0], [[1.0]], [1.0]) is None  # only by its Gram matrix
        True
        """
        return None

    @abstractmethod
    def diagonal(self, X: Array) -> Array:
        """k(x_i, x_i), (n,).

        >>> ka.kernels.Gaussian(1.0).diagonal([[0.0], [1.0]])
        array([1., 1.])
        """

    @property
    @abstractmethod
    def bound(self) -> float:
        """sup over x of √k(x, x)."""

    @property
    def nonnegative(self) -> bool:
        """Whether k(x, y) ≥ 0 for all x, y."""
        return False

    @property
    def columns(self) -> tuple[int, ...] | None:
        """The columns the kernel looks at; None for all of them."""
        return None

    @property
    def width(self) -> int:
        """Number of entries of an encoded row that a column of its kind takes: 1, except for strings."""
        return 1

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        """Draw `count` frequencies over `n_columns` columns; ValueError if k is not shift-invariant.

        >>> ka.kernels.Gaussian(1.0).draw_spectrum(np.random.default_rng(0), 2, 5).linear.shape
        (2, 5)
        """
        raise ValueError(
            f"{self.name} has no random Fourier features: it is not a shift-invariant kernel. "
            "Use the method 'subspace', or a kernel such as gaussian, laplacian or table."
        )

    def draw_widths(self, rng: np.random.Generator, n_columns: int, count: int) -> Array:
        """Draw widths (n_columns, count) of random grids: k is the mean of Π_j max(0, 1 − |x_j − y_j|/width_j).

        Source   Rahimi & Recht 2007, §4: of a column's kernel k(δ) the widths have density δ·k''(δ).
        Errors   ValueError if k is not known to be such a mixture of hat functions.

        >>> ka.kernels.Laplacian(1.0).draw_widths(np.random.default_rng(0), 2, 5).shape
        (2, 5)
        """
        raise ValueError(
            f"{self.name} has no random binning features: it is not a product of mixtures of hat functions. "
            "Use a kernel such as laplacian, or another family of features."
        )

    def __add__(self, other: Kernel) -> Sum:
        return Sum(terms=(self, other))

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return Product(factors=(self, other))
        return Scaled(factor=float(other), kernel=self)

    __rmul__ = __mul__

    def to_dict(self) -> dict[str, Any]:
        """The kernel by name and parameters, as the file header stores it.

        >>> ka.kernels.Gaussian(1.0).to_dict()
        {'name': 'gaussian', 'lengthscale': 1.0}
        """
        return {"name": self.name, **{f.name: _plain(getattr(self, f.name)) for f in fields(self)}}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def coordinates_of(widths: Sequence[int]) -> list[list[int]]:
    """The indices of each column's numbers in an encoded row: [1, 3, 1, 2] numbers are [[0], [1, 4, 5], [2], [3, 6]]."""
    coordinates, free = [], len(widths)
    for j, width in enumerate(widths):
        coordinates.append([j, *range(free, free + width - 1)])
        free += width - 1
    return coordinates


def slices(n: int, size: int) -> list[slice]:
    size = max(1, size)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def as_rows(X: Any) -> Array:
    """Rows as float64 (n, d); a one-dimensional input is n rows of one column."""
    if isinstance(X, pd.DataFrame):
        X = X.to_numpy()
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "rows must be numbers, and these are not: a kernel works on encoded rows. Encode them first with Domain.encode(frame)."
        ) from None
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2:
        raise ValueError(f"rows must be a table (n, d), got an array of shape {rows.shape}. Reshape it to two axes.")
    return rows


def checked_pair(X: Any, Y: Any) -> tuple[Array, Array]:
    X, Y = as_rows(X), as_rows(Y)
    if X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"rows to compare must have the same columns, got {X.shape[1]} and {Y.shape[1]}: "
            "a kernel has one value per pair of like rows. Select the same columns on both sides."
        )
    return X, Y


def zero_where_missing_differs(K: Array, X: Array, Y: Array) -> Array:
    missing_x, missing_y = np.isnan(X), np.isnan(Y)
    if not (missing_x.any() or missing_y.any()):
        return K
    for j in range(X.shape[1]):
        K = np.where(missing_x[:, j, None] == missing_y[None, :, j], K, 0.0)
    return K


def filled(X: Array) -> Array:
    """Rows with missing cells set to zero, so that two missing cells are at distance zero."""
    return np.where(np.isnan(X), 0.0, X)


def check_width(X: Array, width: int, need: str) -> None:
    """ValueError unless the rows have this many columns; `need` says what has, or looks at, so many."""
    if X.shape[1] != width:
        raise ValueError(f"{need}, the rows have {X.shape[1]}. Encode the rows with the domain that these are made for.")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_positive(name: str, value: float, why: str, hint: str) -> None:
    """ValueError unless the parameter and its square are positive float64 numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 1e-100 < value < 1e100:
        raise ValueError(f"{name} must be a positive finite number (between 1e-100 and 1e100), got {value!r:.80}: {why} {hint}")


def check_kernel(kernel: Any) -> None:
    if not isinstance(kernel, Kernel):
        raise ValueError(f"expected a kernel, got {kernel!r:.80}: only kernels can be combined. Pass e.g. Gaussian(1.0).")


class Composed(Kernel):
    """A kernel made of kernels, which are fields of it (abstract).

    >>> ka.kernels.Scaled(2.0, ka.kernels.Gaussian(1.0)).parts
    (Gaussian(lengthscale=1.0),)
    """

    @property
    def parts(self) -> tuple[Kernel, ...]:
        values = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        inside = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
        return tuple(part for part in inside if isinstance(part, Kernel))

    @property
    def nonnegative(self) -> bool:
        return all(part.nonnegative for part in self.parts)

    @property
    def columns(self) -> tuple[int, ...] | None:
        seen = [part.columns for part in self.parts]
        if any(columns is None for columns in seen):
            return None
        return tuple(dict.fromkeys(c for columns in seen for c in columns or ()))


@dataclass(frozen=True)
class Scaled(Composed):
    """factor · k, factor > 0.

    >>> (0.5 * ka.kernels.Gaussian(1.0)).gram([[0.0]], [[0.0]])
    array([[0.5]])
    """

    factor: float
    kernel: Kernel
    name: ClassVar[str] = "scaled"

    def __post_init__(self) -> None:
        check_positive("factor", self.factor, "c·k is a kernel only for c > 0.", "Pass a positive number.")
        check_kernel(self.kernel)

    def gram(self, X: Array, Y: Array) -> Array:
        return self.factor * self.kernel.gram(X, Y)

    def diagonal(self, X: Array) -> Array:
        return self.factor * self.kernel.diagonal(X)

    @property
    def bound(self) -> float:
        return float(np.sqrt(self.factor) * self.kernel.bound)

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        return self.kernel.draw_spectrum(rng, n_columns, count)

    def draw_widths(self, rng: np.random.Generator, n_columns: int, count: int) -> Array:
        return self.kernel.draw_widths(rng, n_columns, count)


def _check_parts(name: str, parts: Sequence[Kernel]) -> None:
    if len(parts) == 0 or not all(isinstance(part, Kernel) for part in parts):
        raise ValueError(f"a {name} needs at least one kernel, got {parts!r}. Pass kernels, such as Gaussian(1.0).")


@dataclass(frozen=True)
class Sum(Composed):
    """k₁ + k₂ + ...: rows are similar if they are under any term. bound² is the sum of the squared bounds.

    >>> (ka.kernels.Gaussian(1.0) + ka.kernels.Laplacian(1.0)).parts
    (Gaussian(lengthscale=1.0), Laplacian(lengthscale=1.0))
    """

    terms: tuple[Kernel, ...]
    name: ClassVar[str] = "sum"

    def __post_init__(self) -> None:
        _check_parts("sum", self.terms)

    def gram(self, X: Array, Y: Array) -> Array:
        return sum(term.gram(X, Y) for term in self.terms)  # type: ignore[return-value]

    def diagonal(self, X: Array) -> Array:
        return sum(term.diagonal(X) for term in self.terms)  # type: ignore[return-value]

    @property
    def bound(self) -> float:
        return float(np.sqrt(sum(term.bound**2 for term in self.terms)))

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        """A mixture: each feature belongs to one term, with probability proportional to its k(x, x)."""
        shares = np.array([term.bound**2 for term in self.terms])
        chosen = rng.choice(len(self.terms), size=count, p=shares / shares.sum())
        total = Spectrum(np.zeros((n_columns, count)), {})
        for i, term in enumerate(self.terms):
            total = total + term.draw_spectrum(rng, n_columns, count).masked(chosen == i)
        return total


@dataclass(frozen=True)
class Product(Composed):
    """k₁ · k₂ · ...: rows are similar if they are under every factor.

    >>> (ka.kernels.Gaussian(1.0) * ka.kernels.Laplacian(1.0)).parts
    (Gaussian(lengthscale=1.0), Laplacian(lengthscale=1.0))
    """

    factors: tuple[Kernel, ...]
    name: ClassVar[str] = "product"

    def __post_init__(self) -> None:
        _check_parts("product", self.factors)

    def gram(self, X: Array, Y: Array) -> Array:
        K = self.factors[0].gram(X, Y)
        for factor in self.factors[1:]:
            K = K * factor.gram(X, Y)
        return K

    def diagonal(self, X: Array) -> Array:
        return np.prod([factor.diagonal(X) for factor in self.factors], axis=0)

    @property
    def bound(self) -> float:
        return float(np.prod([factor.bound for factor in self.factors]))

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        """Frequencies add: the spectral measure of a product is the convolution of the factors'."""
        total = Spectrum(np.zeros((n_columns, count)), {})
        for factor in self.factors:
            total = total + factor.draw_spectrum(rng, n_columns, count)
        return total


@dataclass(frozen=True)
class OnColumns(Composed):
    """A kernel that looks at some columns only.

    on   their positions in encoded rows.

    >>> ka.kernels.OnColumns(ka.kernels.Gaussian(1.0), (1,)).gram([[9.0, 0.0]], [[5.0, 0.0]])
    array([[1.]])
    """

    kernel: Kernel
    on: tuple[int, ...]
    name: ClassVar[str] = "on-columns"

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        if not len(self.on) or not all(is_whole(c) and c >= 0 for c in self.on) or len(set(self.on)) != len(self.on):
            raise ValueError(
                f"columns must be distinct positions from 0, and at least one, got {self.on!r:.80}: a column seen twice would "
                "count twice. Name each column once, as (0, 2)."
            )

    def _pick(self, X: Any) -> Array:
        return as_rows(X)[:, list(self.on)]

    def gram(self, X: Array, Y: Array) -> Array:
        return self.kernel.gram(self._pick(X), self._pick(Y))

    def against(self, Y: Array) -> Callable[[Array], Array]:
        picked = self.kernel.against(self._pick(Y))
        return lambda X: picked(self._pick(X))

    def diagonal(self, X: Array) -> Array:
        return self.kernel.diagonal(self._pick(X))

    @property
    def bound(self) -> float:
        return self.kernel.bound

    @property
    def columns(self) -> tuple[int, ...] | None:
        return self.on

    def draw_spectrum(self, rng: np.random.Generator, n_columns: int, count: int) -> Spectrum:
        inner = self.kernel.draw_spectrum(rng, len(self.on), count)
        linear = np.zeros((n_columns, count))
        linear[list(self.on)] = inner.linear
        return Spectrum(linear, {self.on[j]: table for j, table in inner.tables.items()})
