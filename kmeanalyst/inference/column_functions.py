"""Room 4: functions of some columns alone, to ask what a release says of those columns and no others.

The principal functions of a kernel on those columns, over reference rows: the smoothest, most telling ones first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.kernel_choice import table_kernel

_ROWS = 300  # that functions are the principal ones over
_LEAST_VARIANCE = 1e-3  # of the first function's


@dataclass(frozen=True, eq=False)
class ColumnFunctions:
    """u_1, ..., u_k: of mean 0 and variance 1 over the reference, uncorrelated there.

    columns     positions of the columns they look at, in encoded rows.
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
        return self.kernel.gram(X[:, list(self.columns)], self.points) @ self.coefficients - self.offsets

    def __len__(self) -> int:
        return len(self.variances)


def column_functions(domain: Domain, columns: Sequence[int], reference: Array, most: int) -> ColumnFunctions:
    """At most that many principal functions of these columns: fewer for few levels, none for a column of one value.

    The kernel is the table kernel of the columns: multi-scale for numbers, the indicator for levels, missing apart.
    """
    some = Domain(tuple(domain.columns[j] for j in columns))
    places = domain.places_of(columns)
    points = reference[:: max(1, len(reference) // _ROWS)][:, places]
    n, kernel = len(points), table_kernel(some)
    K = kernel.gram(points, points)
    centred = K - K.mean(axis=0)
    centred -= centred.mean(axis=1)[:, None]
    eigenvalues, vectors = np.linalg.eigh(centred / n)
    keep = np.argsort(eigenvalues)[::-1][:most]
    keep = keep[eigenvalues[keep] > max(1e-9, _LEAST_VARIANCE * float(eigenvalues.max()))]
    # u(x) = Σ k(x, z_i) e_i / (√n λ) has the values √n e_i at the reference, but for a constant (e has mean 0)
    coefficients = vectors[:, keep] / (np.sqrt(n) * eigenvalues[keep])
    variances = eigenvalues[keep] / eigenvalues.max() if len(keep) else np.zeros(0)
    return ColumnFunctions(tuple(places), kernel, points, coefficients, (K @ coefficients).mean(axis=0), variances)


@dataclass(frozen=True, eq=False)
class Products:
    """g_i = (u_a − m_a)(v_b − m_b) for the leading pairs (a, b) of functions.

    centres    m of each side, (k,) each.
    chosen     positions (a, b) of each product, two arrays (k,).
    """

    first: ColumnFunctions
    second: ColumnFunctions
    centres: tuple[Array, Array]
    chosen: tuple[Array, Array]

    def __call__(self, X: Array) -> Array:
        """Their values (n, k)."""
        return self.of_values(self.first(X), self.second(X))

    def of_values(self, u: Array, v: Array) -> Array:
        """The products of values (n, ·) of both sides' functions."""
        (a, b), (m, w) = self.chosen, self.centres
        return (u - m)[:, a] * (v - w)[:, b]

    @property
    def variances(self) -> Array:
        """(k,) of the kernels' product along them, relative to the first."""
        a, b = self.chosen
        return self.first.variances[a] * self.second.variances[b]


def leading_products(
    first: ColumnFunctions, second: ColumnFunctions, centres: tuple[Array, Array], most: int
) -> Products:
    """At most that many products, of the largest variances."""
    variances = np.outer(first.variances, second.variances)
    order = np.argsort(-variances, axis=None, kind="stable")[:most]
    a, b = np.unravel_index(order, variances.shape)
    return Products(first, second, centres, (a, b))
