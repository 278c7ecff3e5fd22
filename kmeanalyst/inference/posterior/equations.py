"""The equations of a measurement: (κ C + τ²I) A = B, C the covariance of features of weighted rows, solved in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from kmeanalyst.inference.posterior.feature_covariance import FeatureCovariance, in_two_threads, inverse_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures

_LARGEST, _MOST_TOGETHER = 300, 2000  # cells of a part of one table, of any block
_MOST_ENTRIES = 60_000_000  # of all blocks: they are smaller where cells are many
_RELATED = 0.85  # canonical correlation of columns whose tables are one block of the preconditioner
_MOST_SHARED, _EXPLAINED = 60, 1e-6  # functions that tables of a larger block share; share of variance that is rounding
_ROUNDING, _FLAT, _NOTHING = 1e-9, 1e-12, 1e-30  # of eigenvalues; of a constant column's variance; of gains
_MOST_STEPS, PATIENCE = 100, 2  # steps of the solver, and the last ones by which it is seen to end
_LEAST_NOISE = 1e-5  # variance, relative to the largest prior variance: with less the solver would not end
_DRAWN = 1e-3  # draws are solved for to this share
_EXACT, _MOST_STEPS_EXACTLY = 1e-4, 10_000  # noise deviations that are left of the equations of the best answers


class _Block(NamedTuple):
    """Cells (a slice, or numbers); the inverse there of κ (C − S M Sᵀ) + τ²I; the functions, of some that blocks share, which S is
    of, and (cells, s) the inverse times S.
    """

    cells: Any
    inverse: Any
    functions: Any
    explained: Array

    @property
    def size(self) -> int:
        return int(self.inverse.size) + self.explained.size

    @classmethod
    def of(cls, cells: Any, inverse: Any, functions: Any, S: Array) -> tuple[_Block, Array]:
        """The block, and Sᵀ (the inverse) S."""
        return (block := cls(cells, inverse, functions, inverse @ S)), S.T @ block.explained


@dataclass(frozen=True, eq=False)
class _Blocks:
    """An approximate inverse of κ C + τ²I: exact within every block of cells, and in functions that blocks share.

    What a table says of its own columns' cells, S, is taken with the covariances M of all columns' cells; the rest within blocks
    alone. Tables of columns that nearly copy each other say nearly the same, so they are one block; so are a set's table and those
    of its parts, and sets that share a pair. A block that is too large is taken as its tables and functions that they share.

    inner  (c, c) κ M (I + κ W M)⁻¹, W = Sᵀ (the inverses) S over all blocks: by the Woodbury identity.
    """

    blocks: Sequence[_Block]
    inner: Array

    @classmethod
    def of(cls, covariance: FeatureCovariance, feature_map: MarginFeatures, spread: float, noise_variance: float) -> _Blocks:
        most = min(_MOST_TOGETHER, _MOST_ENTRIES // len(covariance.mean))
        largest = max(min(_LARGEST, most), 1)
        columns = _Columns.of(covariance, feature_map)

        def inverse(cells: Any, root: Array, features: Any = None) -> Array:
            size = covariance.within(cells, features)
            size -= root @ root.T
            size *= spread
            size[np.diag_indices_from(size)] += noise_variance
            return inverse_of(size)

        def alone(own: Iterable[int], cells: Any) -> tuple[_Block, Array]:
            functions, coefficients, root = columns.own(own, cells, features := covariance.some(cells))
            return _Block.of(cells, inverse(cells, root, features), functions, coefficients)

        def divided(own: Iterable[int], cells: Array, related: tuple[int, ...], parts: Sequence[slice]) -> tuple[_Block, Array]:
            functions, coefficients, root = columns.own(own, cells, features := covariance.some(cells))
            shared = columns.shared(related, features, functions)
            ends = np.cumsum([0, *(part.stop - part.start for part in parts)])
            within = [
                _Block.of(at, inverse(part, np.hstack([root[at], shared[at]])), slice(None), shared[at])
                for part, at in zip(parts, map(slice, ends, ends[1:]), strict=False)
            ]
            return _Block.of(cells, cls.beyond(within, np.eye(shared.shape[1]), spread), functions, coefficients)

        work = list[tuple[int, Callable[[], tuple[_Block, Array]]]]()
        for related, (tables, own) in _together(columns.related, feature_map, most).items():
            parts = [slice(i, min(i + largest, stop)) for start, stop in tables for i in range(start, stop, largest)]
            cells = np.concatenate([np.arange(*ends) for ends in tables])
            if len(cells) <= most:
                work.append((len(cells), partial(alone, own, slice(*tables[0]) if len(tables) == 1 else cells)))
            elif len(tables) > 1 and len(related) <= 2 and all(len(columns.common.get(j, ((),))[0]) for j in related):
                work.append((len(cells), partial(divided, own, cells, related, parts)))
            else:
                work += [(part.stop - part.start, partial(alone, own, part)) for part in parts]
        work.sort(key=lambda one: one[0], reverse=True)  # the longest first: no thread waits for the other
        return cls.beyond(in_two_threads(lambda one: one[1](), work), columns.joint, spread)

    @classmethod
    def beyond(cls, within: Iterable[tuple[_Block, Array]], joint: Array, spread: float) -> _Blocks:
        """Those of a matrix with these inverses within blocks, and κ S M Sᵀ in addition."""
        blocks, gains = list[_Block](), np.zeros_like(joint)
        for block, gain in within:
            blocks.append(block)
            gains[np.ix_(block.functions, block.functions) if isinstance(block.functions, np.ndarray) else block.functions] += gain
        gains = joint @ gains
        gains *= spread
        gains[np.diag_indices_from(gains)] += 1
        inner = np.linalg.solve(gains, joint)
        inner *= spread / 2
        return cls(blocks, inner + inner.T)

    def __matmul__(self, B: Array) -> Array:
        solved = np.empty_like(B)

        def alone(blocks: Sequence[_Block]) -> Array:
            shared = np.zeros((len(self.inner), B.shape[1]))
            for cells, inverse, functions, explained in blocks:
                solved[cells] = inverse @ (own := B[cells])
                shared[functions] += explained.T @ own
            return shared

        def together(blocks: Sequence[_Block]) -> None:
            for cells, _, functions, explained in blocks:
                solved[cells] -= explained @ shared[functions]

        shared = self.inner @ sum(in_two_threads(alone, self._halves, self.size))
        in_two_threads(together, self._halves, self.size)
        return solved

    @cached_property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    @cached_property
    def _halves(self) -> tuple[Sequence[_Block], Sequence[_Block]]:
        """The blocks for each of two threads."""
        ends = np.cumsum([block.size for block in self.blocks])
        half = int(np.searchsorted(ends, ends[-1] / 2))
        return self.blocks[:half], self.blocks[half:]


@dataclass(frozen=True, eq=False)
class _Columns:
    """Functions of single columns, linear in their cells' indicators (c, n).

    joint        (c, c) covariances of these.
    at           of each column which of the indicators are its own.
    related      for each coarse and finer column a number, the same for those of canonical correlation above `_RELATED`.
    common       of each such number how many columns have a function in common (k,), and these functions (c, k).
    """

    covariance: FeatureCovariance
    indicators: Any
    cells: Array
    joint: Array
    at: dict[int, slice]
    base: tuple[int, ...]
    related: Array
    common: dict[int, tuple[Array, Array]]

    @classmethod
    def of(cls, covariance: FeatureCovariance, feature_map: MarginFeatures) -> _Columns:
        alone = (group for group in feature_map.groups if group.kind == "one-way")
        own = {t[0]: range(*ends) for group in alone for t, ends in zip(group.tables, group.ranges, strict=True)}
        cells = np.concatenate([np.arange(0), *own.values()]).astype(np.intp)
        ends = np.cumsum([0, *map(len, own.values())])
        at = {j: slice(*pair) for j, pair in zip(own, pairwise(ends), strict=True)}
        mean = covariance.mean
        indicators = covariance.some(cells)
        joint, roots = covariance.within(cells, indicators), np.zeros((len(cells), len(cells)))
        for part in at.values():
            root = _inverse_root(joint[part, part], _FLAT * float((mean[cells[part]] ** 2).max()))
            roots[part, part][:, : root.shape[1]] = root
        correlation, related = roots.T @ joint @ roots, np.eye(len(feature_map.kernel.edges))
        for i, j in combinations(at, 2):
            related[i, j] = np.linalg.norm(correlation[at[i], at[j]], 2) > _RELATED
        number, common = connected_components(related, directed=False)[1], {}
        of_cell = np.repeat(number[list(at)], [len(one) for one in own.values()])
        for one in np.unique(of_cell):
            those = np.flatnonzero(of_cell == one)
            values, vectors = np.linalg.eigh(correlation[np.ix_(those, those)])
            used = np.flatnonzero(values > _ROUNDING)[-_MOST_SHARED:]
            common[int(one)] = values[used], roots[:, those] @ (vectors[:, used] / np.sqrt(values[used]))
        base = tuple(feature_map.kernel.columns)
        return cls(covariance, indicators, cells, joint, at, base, number[list(base)], common)

    def at_rows(self, coefficients: Array) -> Array:
        """(n, k) the functions of these coefficients (c, k)."""
        used = np.flatnonzero(coefficients.any(axis=1))
        return np.asarray(self.indicators[used].T @ coefficients[used])

    def own(self, columns: Iterable[int], block: Any, features: Any) -> tuple[Array, Array, Array]:
        """(s,) the indicators of these columns, (cells, s) the coefficients of what they explain of a block's features (cells, n),
        and a root of the covariances (cells, r) that they explain.
        """
        own = sorted({self.base[j] for j in columns} & self.at.keys())
        functions = np.concatenate([np.arange(0), *(np.arange(self.at[j].start, self.at[j].stop) for j in own)]).astype(np.intp)
        inverse = _inverse_root(self.joint[np.ix_(functions, functions)])
        mean, indicators = self.covariance.mean, self.indicators[functions]
        explained = (features @ (indicators * self.covariance.weights).T).toarray()
        root = (explained - np.outer(mean[block], mean[self.cells[functions]])) @ inverse
        return functions, root @ inverse.T, root

    def shared(self, related: tuple[int, ...], features: Any, functions: Array) -> Array:
        """(cells, q) covariances of features (cells, n) with orthonormal products of functions that most columns have in common,
        less what functions of their own columns explain.
        """
        p, one, other = self.covariance.weights, self.common[related[0]], self.common[related[-1]]
        strength = np.outer(one[0], other[0]) if len(related) > 1 else np.triu(np.outer(one[0], one[0]))
        i, j = np.unravel_index(np.argsort(-strength, axis=None)[:_MOST_SHARED], strength.shape)
        first, second = (_centred(self.at_rows(common), p) for _, common in (one, other))
        products = first[:, i]
        products *= second[:, j]
        _centred(products, p)
        least = _EXPLAINED * max(float(np.einsum("i,ij,ij->j", p, products, products).max()), _EXPLAINED)
        inverse, explained = _inverse_root(self.joint[np.ix_(functions, functions)]), np.zeros((len(self.cells), products.shape[1]))
        explained[functions] = inverse @ (inverse.T @ (self.indicators[functions] @ (p[:, None] * products)))
        products -= self.at_rows(explained)
        weighted = p[:, None] * _centred(products, p)
        root = _inverse_root(products.T @ weighted, least)
        return features @ weighted @ root


def _centred(values: Array, weights: Array) -> Array:
    """The values (n, k) less their means, in place."""
    values -= weights @ values
    return values


def _together(
    related: Array, feature_map: MarginFeatures, most: int
) -> dict[tuple[int, ...], tuple[list[tuple[int, int]], set[int]]]:
    """Ranges of the tables of each block, of at most so many cells unless one table has more, and their columns, by what these
    are related to.
    """
    together: dict[tuple[int, ...], tuple[list[tuple[int, int]], set[int]]] = {}
    wide: dict[tuple[int, ...], set[int]] = {}  # columns of the sets of three and more
    for group in feature_map.groups:
        for table, own in zip(group.tables, group.ranges, strict=True):
            ranges, all_columns = together.setdefault(columns := tuple(sorted({int(related[j]) for j in table})), ([], set()))
            ranges.append(own)
            all_columns.update(table)
            wide.setdefault(columns, set()).update(table if len(table) > 2 else ())
    size = {columns: sum(stop - start for start, stop in ranges) for columns, (ranges, _) in together.items()}

    def smallest(columns: tuple[int, ...], others: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
        fit = [c for c in others if c != columns and size[c] + size[columns] <= most]
        return min(fit, key=size.__getitem__, default=None)

    def join(*parts: tuple[int, ...]) -> tuple[int, ...]:
        columns = tuple(sorted(set().union(*parts)))
        merged, own = [together.pop(part) for part in parts], set[int]().union(*(wide.pop(part) for part in parts))
        ranges, all_columns = together.setdefault(columns, ([], set()))
        for more, others in merged:
            ranges += more
            all_columns |= others
        wide.setdefault(columns, set()).update(own)
        size[columns] = sum(stop - start for start, stop in ranges)
        return columns

    for columns in sorted(together, key=len):  # the table of more columns says what theirs says
        if other := smallest(columns, [c for c in together if {*columns} < {*c}]):
            join(columns, other)
    waiting = sorted((c for c in together if wide[c]), key=size.__getitem__, reverse=True)
    while waiting:  # sets that share a pair
        columns = waiting.pop()
        sets = [c for c in together if columns in together and len(wide[c] & wide[columns]) > 1]
        if other := smallest(columns, sets):
            waiting.append(join(columns, other))
    return together


def _inverse_root(covariance: Array, least: float = 0.0) -> Array:
    """(L, r) R of which Rᵀ C R is the identity, on the space where C (L, L) is not 0, and at least this."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > max(least, _ROUNDING * values.max(initial=0.0))
    return vectors[:, kept] / np.sqrt(values[kept])


@dataclass(frozen=True, eq=False)
class Equations:
    """(κ C + τ²I) A = B, solved for several columns at once."""

    covariance: FeatureCovariance
    spread: float
    noise_variance: float
    inverse: Any  # nearly: `_Blocks` or an identity; of few features the inverse itself

    @classmethod
    def of(cls, covariance: FeatureCovariance, feature_map: MarginFeatures, spread: float, noise_variance: float) -> Equations:
        """Those of tables' cells."""
        noise_variance = solvable_noise(noise_variance, covariance, spread)
        return cls(covariance, spread, noise_variance, _Blocks.of(covariance, feature_map, spread, noise_variance))

    def __matmul__(self, A: Array) -> Array:
        return self.spread * (self.covariance @ A) + self.noise_variance * A

    def fitted(self, sums: Array) -> Array:
        """(m, k) the weights p (φ − E_p φ)ᵀ κ (κ C + τ²I)⁻¹ sums that a fit adds for measured sums of features (F, k), nearly."""
        b = self.spread * self.solved(sums, until(_DRAWN, fewest=PATIENCE + 1))
        return self.covariance.weights[:, None] * self.covariance.at_rows(b)

    def solved_exactly(self, b: Array, most: float | None = None) -> Array:
        """a (F,), up to a residual of `_EXACT` noise deviations: answers are off by at most that share of their privacy error.

        most   a larger residual that will do.

        ValueError where `_MOST_STEPS_EXACTLY` steps do not reach it.
        """
        most = max(most or 0.0, _EXACT * np.sqrt(self.noise_variance))
        a = self.solved(b[:, None], most=_MOST_STEPS_EXACTLY, residual=most)
        if not (left := float(np.linalg.norm(b - (self @ a)[:, 0]))) <= 2 * most:  # 2: it is summed up in another order
            raise ValueError(
                f"the equations of the measurement were not solved: after {_MOST_STEPS_EXACTLY} steps {left / most:.3g} times the "
                "tolerance is left. Where errors are not known there is no answer; please report it with the file."
            )
        return a[:, 0]

    def solved(
        self, B: Array, enough: Callable[[Array], Array] = lambda gains: gains[-1] < 0, most: int = _MOST_STEPS,
        residual: float = 0.0,
    ) -> Array:  # fmt: skip
        """A (F, k) by conjugate gradients, each column by itself: it ends when `enough` is true of its gains.

        enough    from what each step so far added to Bᵀ A (steps, k) → (k,).
        most      steps. ValueError where one is not finite.
        residual  norm of what is left of a column with which it ends too.
        """
        A, rest, gains = np.zeros_like(B), B.copy(), np.zeros((most, B.shape[1]))
        step = direction = self.inverse @ rest
        size = (rest * step).sum(axis=0)
        going = np.arange(B.shape[1])
        for i in range(most):
            kept = ~(size <= _NOTHING * gains.sum(axis=0)[going])
            going, rest, direction, size = going[kept], rest[:, kept], direction[:, kept], size[kept]
            if not len(going):
                break
            image = self @ direction
            length = size / (direction * image).sum(axis=0)
            if not (np.isfinite(length) & (length > 0)).all():
                raise ValueError(
                    f"the equations of the measurement were not solved: step {i + 1} has no length. Where errors are not known "
                    "there is no answer; please report it with the file."
                )
            A[:, going] += length * direction
            rest -= length * image
            gains[i, going] = length * size
            left = ~enough(gains[: i + 1])[going] & (np.linalg.norm(rest, axis=0) > residual)
            going, rest, direction, before = going[left], rest[:, left], direction[:, left], size[left]
            step = self.inverse @ rest
            size = (rest * step).sum(axis=0)
            direction = step + size / before * direction
        return A


def solvable_noise(variance: float, covariance: FeatureCovariance, spread: float) -> float:
    """The noise variance, or as much as the solver needs to end: a is then a little shorter than the best one."""
    return max(variance, _LEAST_NOISE * spread * float(covariance.diagonal.max()))


def until(share: float, *, fewest: int = 1) -> Callable[[Array], Array]:
    """Whether none of the last steps, of this many at least, gained more than this share of what all of them did."""
    return lambda gains: (len(gains) >= fewest) & (gains[-PATIENCE:].max(axis=0) < share * gains.sum(axis=0))
