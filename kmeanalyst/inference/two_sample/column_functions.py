"""Functions of a few columns alone: principal functions of a kernel on one column, the smoothest first, and products of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import principal_components
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel

_ROWS = 300  # rows from which the principal functions are computed
_LEAST_VARIANCE = 1e-3  # smallest variance of a function, as a share of the first one's
_ROUNDING = 1e-9  # a variance below is a rounding error
_PRODUCTS, _FEWEST_PRODUCTS, _ALL_PRODUCTS = 12, 4, 1500  # most of a set, fewest, about all


@dataclass(frozen=True, eq=False)
class ColumnFunctions:
    """u_1, ..., u_k: of mean 0 and variance 1 over the reference, uncorrelated there.

    columns     positions of the columns they depend on, in encoded rows.
    points      (n, |columns|) reference rows, in these columns.
    coefficients, offsets   (n, k), (k,): u(x) = k(x, points) · coefficients − offsets.
    variances   (k,) of the kernel mean along them, relative to the first.
    """

    columns: tuple[int, ...]
    kernel: Kernel
    points: Array
    coefficients: Array
    offsets: Array
    variances: Array

    def __call__(self, X: Array) -> Array:
        """Their values (n, k) at encoded rows of all columns."""
        own, places = np.unique(X[:, list(self.columns)], axis=0, return_inverse=True)  # few values in many rows
        return (self.kernel.gram(own, self.points) @ self.coefficients - self.offsets)[places.ravel()]

    def __len__(self) -> int:
        return len(self.variances)


def column_functions(domain: Domain, columns: Sequence[int], reference: Array, most: int) -> ColumnFunctions:
    """At most that many principal functions of these columns: fewer for few levels, none for a column of one value.

    The kernel is the table kernel of the columns: multi-scale for numbers, the indicator for levels, missing cells by themselves.
    """
    some = Domain(tuple(domain.columns[j] for j in columns))
    indices = domain.indices_of(columns)
    points = reference[:: max(1, len(reference) // _ROWS)][:, indices]
    n, kernel = len(points), table_kernel(some)
    K = kernel.gram(points, points)
    found = principal_components(K.copy(), most=most, negligible=_LEAST_VARIANCE)
    keep = found.variances > _ROUNDING
    eigenvalues, vectors = found.variances[keep], found.vectors[:, keep]
    # u(x) = Σ k(x, z_i) e_i / (√n λ) has the values √n e_i at the reference, but for a constant (e has mean 0)
    coefficients = vectors / (np.sqrt(n) * eigenvalues)
    variances = eigenvalues / eigenvalues.max() if len(eigenvalues) else np.zeros(0)
    return ColumnFunctions(tuple(indices), kernel, points, coefficients, (K @ coefficients).mean(axis=0), variances)


def leading_products(functions: Sequence[ColumnFunctions], most: int) -> tuple[tuple[Array, ...], Array]:
    """The products of a function of each that lead: its position among the functions of each, and the kernels' variances (k,)."""
    variances = functions[0].variances
    for each in functions[1:]:
        variances = np.multiply.outer(variances, each.variances)
    order = np.argsort(-variances, axis=None, kind="stable")[:most]
    return np.unravel_index(order, variances.shape), variances.ravel()[order]


def most_products(sets: int) -> int:
    """How many products of functions are tested of each of so many sets of columns."""
    return int(np.clip(_ALL_PRODUCTS / max(sets, 1), _FEWEST_PRODUCTS, _PRODUCTS))


def products(values: Sequence[Array], chosen: Sequence[Array]) -> Array:
    """(n, k) of centred functions' values, an array (n, ·) for each column, at the chosen positions."""
    found = values[0][:, chosen[0]]
    for each, positions in zip(values[1:], chosen[1:], strict=True):
        found = found * each[:, positions]
    return found
