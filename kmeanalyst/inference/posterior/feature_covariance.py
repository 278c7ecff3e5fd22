"""Covariances of features of weighted rows; of tables by way of cells that several tables have in common."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import current_thread
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy.linalg.lapack import dtrtri
from scipy.sparse import csr_array, eye_array, get_index_dtype, vstack

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import Directions
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.measurement import Measurement

_ROWS_OF_A_CELL = 10  # for each joint cell, on average at least, before a column is added
_TRIED = 2  # columns that are tried before a group of tables is left as it is
_WORTH_THREADS = 1_000_000  # entries of a matrix whose product two threads share
_PRODUCTS = 16  # of C, at once: five times as fast as alone
_ROUNDING = 1e-9  # of eigenvalues
_NAME = "kmeanalyst of two"  # of threads
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, eq=False)
class FeatureCovariance:
    """C = Cov_p φ of rows as an operator, and its diagonal: features of rows (n, F) are the product of `joint` and `features`.

    joint     (n, K) sparse, of ones: the joint cells of each row, one of each group of tables (of other features the row itself).
    features  (K, F) sparse: of each joint cell; a feature is of the cells of one group. Both are there transposed too.
    """

    joint: Any
    features: Any
    joint_transposed: Any
    features_transposed: Any
    weights: Array  # (n,) p
    mean: Array  # (F,)
    diagonal: Array  # (F,)

    @classmethod
    def of(cls, features: Any, weights: Array, joint: Any = None) -> FeatureCovariance:
        """Of features (n, F) sparse, or (K, F) of joint cells (n, K)."""
        joint = eye_array(len(weights), format="csr") if joint is None else joint
        transposed = joint.T.tocsr()
        transposed.data = joint.data  # ones: once in memory
        shares = transposed @ weights
        mean = features.T @ shares
        return cls(joint, features, transposed, features.T.tocsr(), weights, mean, (features**2).T @ shares - mean**2)

    @classmethod
    def of_tables(cls, measurement: Measurement, rows: Array, weights: Array) -> FeatureCovariance:
        """Of what a measurement of tables sees of rows (n, d), encoded, with even noise."""
        joint, features = joint_cells(measurement, rows)
        return cls.of(features, weights, joint)

    def __matmul__(self, A: Array) -> Array:
        return self.with_features(self._at_rows(A)) - np.outer(self.mean, self.mean @ A)

    def at_rows(self, a: Array) -> Array:
        """aᵀ(φ − E_p φ) at the rows, (n,) or (n, k), of a (F,) or (F, k)."""
        return self._at_rows(a) - self.mean @ a

    def _at_rows(self, a: Array) -> Array:
        return product(self.joint, product(self.features, a))

    def with_features(self, values: Array) -> Array:
        return self.sums(self.weights[:, None] * values)

    def sums(self, values: Array) -> Array:
        """(F, k) Σ φ v over the rows, of values (n, k)."""
        return product(self.features_transposed, product(self.joint_transposed, values))

    def some(self, block: Any) -> Any:
        """(k, n) sparse: some features, by a slice or their numbers, of all rows."""
        return self.features_transposed[block] @ self.joint_transposed

    def within(self, block: Any, features: Any = None) -> Array:
        """(k, k) C of some features (k, n): their numbers, or a slice within one table, of which each row is in one cell."""
        mean = self.mean[block]
        if isinstance(block, slice):
            return np.diag(self.diagonal[block] + mean**2) - np.outer(mean, mean)
        own = self.some(block) if features is None else features
        found = second_moments(own, self.weights)
        found -= np.outer(mean, mean)
        return found

    def leading(self, most: int) -> Directions:
        """Eigenvectors of C of the largest eigenvalues, in descending order, those of 0 left out."""
        size, enough = len(self.mean), max(2 * most, 10 * _PRODUCTS)
        if size <= enough:
            variances, vectors = np.linalg.eigh(self.within(np.arange(size)))
        else:  # nearly, in a Krylov space of blocks (Musco & Musco 2015): any direction may be looked along, by its own variance
            basis, images = np.empty((size, 0)), np.empty((size, 0))
            image = np.random.default_rng(0).standard_normal((size, _PRODUCTS)) * np.sqrt(np.maximum(self.diagonal, 0.0))[:, None]
            while basis.shape[1] < enough:
                for _ in range(2):
                    image = np.linalg.qr(image - basis @ (basis.T @ image))[0]
                basis, image = np.hstack([basis, image]), self @ image
                images = np.hstack([images, image])
            variances, vectors = np.linalg.eigh(basis.T @ images)
            vectors = basis @ vectors
        order = np.argsort(variances)[::-1][:most]
        order = order[variances[order] > _ROUNDING * variances.max()]
        return Directions(vectors[:, order], variances[order])


def joint_cells(measurement: Measurement, rows: Array) -> tuple[csr_array, csr_array]:
    """(n, K) in which joint cells rows are, and (K, F) the features of these, with even noise.

    All tables of some columns are functions of a row's cells in these columns together, of which few occur. So tables are put into
    groups, and a row is in one cell of each group in place of one of each table: a fourth of the work and of the memory.
    """
    feature_map, n = measurement.feature_map, len(rows)
    assert isinstance(feature_map, MarginFeatures)
    indices, groups, features, K = feature_map.cell_indices(rows), list[Array](), list[csr_array](), 0
    for tables, group, size in _groups(feature_map, rows, indices):
        example = np.empty(size, dtype=np.intp)
        example[group[::-1]] = np.arange(n)[::-1]  # the first row in each joint cell
        places = indices[tables][:, example].T
        values = np.broadcast_to(feature_map.heights[tables], places.shape).ravel()
        ends = len(tables) * np.arange(size + 1, dtype=np.int32)
        features.append(csr_array((values, places.ravel(), ends), shape=(size, feature_map.dimension)))
        groups.append(group + K)
        K += size
    kind = get_index_dtype(maxval=max(n * len(groups), K))
    ends = len(groups) * np.arange(n + 1, dtype=kind)
    joint = csr_array((np.ones(n * len(groups)), np.column_stack(groups).ravel().astype(kind), ends), shape=(n, K))
    return joint, measurement.with_even_noise(vstack(features, format="csr"))


def _groups(feature_map: MarginFeatures, rows: Array, indices: Array) -> Iterator[tuple[list[int], Array, int]]:
    """Tables of each group, the joint cell (n,) of each row, and how many occur: beginning with the largest table that is left,
    columns are added that bring in most tables, as long as few joint cells occur.
    """
    kernel = feature_map.kernel
    cells, sizes = np.hstack([kernel.cells(rows), kernel.fine_cells(rows)]), (*kernel.sizes, *kernel.fine_sizes)
    columns_of = [frozenset(table) for group in feature_map.groups for table in group.tables]
    waiting = dict.fromkeys(map(int, np.argsort(-np.diff(feature_map.starts), kind="stable")))
    while waiting:
        columns, refused = set(columns_of[first := next(iter(waiting))]), set[int]()
        group, occur = pd.factorize(indices[first])
        while True:
            lacked = Counter(j for t in waiting if len(more := columns_of[t] - columns) == 1 for j in more - refused)
            for j, _ in lacked.most_common(_TRIED):
                finer, then = pd.factorize(group.astype(np.int64) * sizes[j] + cells[:, j])
                if len(then) * _ROWS_OF_A_CELL <= len(rows):
                    columns.add(j)
                    group, occur = finer, then
                    break
                refused.add(j)
            else:
                break
        tables = [t for t in waiting if columns_of[t] <= columns]
        for t in tables:
            del waiting[t]
        yield tables, group, len(occur)


def inverse_of(matrix: Array) -> Array:
    """Of a positive definite matrix (n, n), symmetric to the last bit. LinAlgError of another one."""
    root = dtrtri(np.linalg.cholesky(matrix), lower=1)[0]
    return np.asarray(root.T @ root)


def second_moments(features: Any, weights: Array) -> Array:
    """(k, k) Σ p φ φᵀ over the rows, of features (k, n) sparse."""
    weighted = csr_array((features.data * weights[features.indices], features.indices, features.indptr), features.shape)
    transposed = features.T.tocsr()
    halves = in_two_threads(lambda part: part @ transposed, _halves(weighted), weighted.nnz)
    return vstack(halves, format="csr").toarray()


def _halves(matrix: Any) -> tuple[Any, ...]:
    """A sparse matrix; where it is large, the two halves of its rows, without a copy: each for a thread."""
    if matrix.nnz < _WORTH_THREADS:
        return (matrix,)
    ends = matrix.indptr
    half = int(np.searchsorted(ends, ends.dtype.type(matrix.nnz // 2)))  # of another type it would copy them
    rows = (slice(0, ends[half]), ends[: half + 1]), (slice(ends[half], None), ends[half:] - ends[half])
    parts = tuple(csr_array((len(starts) - 1, matrix.shape[1])) for _, starts in rows)
    for part, (own, starts) in zip(parts, rows, strict=True):  # csr_array would copy what is less than half of a matrix
        part.data, part.indices, part.indptr = matrix.data[own], matrix.indices[own], starts
    return parts


def product(matrix: Any, A: Array) -> Array:
    found = in_two_threads(lambda part: part @ A, _halves(matrix), matrix.nnz)
    return np.concatenate(found) if len(found) > 1 else np.asarray(found[0])  # each row is summed up as it would be by one


def in_two_threads(function: Callable[[_T], _R], items: Iterable[_T], entries: float = np.inf) -> list[_R]:
    """The function of each item, in their order; where there is little to do, or in one of these threads, by this one alone."""
    if entries < _WORTH_THREADS or current_thread().name.startswith(_NAME):
        return list(map(function, items))
    return list(_two_threads(os.getpid()).map(function, items))


@cache
def _two_threads(process: int) -> ThreadPoolExecutor:
    """Of this process: one that is forked has no threads of its parent."""
    return ThreadPoolExecutor(2, thread_name_prefix=_NAME)
