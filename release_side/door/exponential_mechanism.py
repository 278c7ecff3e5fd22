"""THE THIRD MECHANISM, the exponential one: private rows + a public list of rows → a small database, drawn exactly.

Balog, Tolstikhin & Schölkopf 2018, §3.4: R, M rows of a public list, is drawn with P(R) ∝ exp(−ε‖μ_D − μ_R‖/2Δ). All R are scored
in whole numbers and one is drawn: a chain that is stopped has no proven ε. Each *multiset* of M rows counts once, and not each of
the n^M sequences in the paper's density: a release has no order of rows, and among fewer candidates the draw is closer to the best.
The proof is in PROOF.md §9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations_with_replacement, takewhile
from typing import Any

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.kernel import MOST_ROWS, MOST_SIZE, diameter_over, distances, listed_rows, n_databases
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.statement import EXPONENTIAL, MOST_DATABASES, rehearsed
from release_side.door.mechanism import check_budget, check_int64_range, check_seed, laplace_scale, largest_with_gumbel
from release_side.errors import PublishError

_STEPS = 2**20  # the largest distance between two rows, in steps of the grid of images
_WIDEST = _STEPS + 2**10  # the same of whole images: rounding adds √F, F < 2,000
_MOST_CELLS = 2**24  # databases × M
_LEAST_DIAMETER = 1e-3  # relative to B: below this, rounding dominates the distances of rows
_BLOCK = 2**16  # databases scored at a time
_NO_KERNEL = "the kernel is not a kernel on the rows to draw from. Choose another."


@dataclass(frozen=True)
class ExponentialMechanism:
    """A draw that gives epsilon with delta = 0: P(r) ∝ exp(−score(r)/b), b = 2 · sensitivity / epsilon."""

    epsilon: float
    delta: float = 0.0
    name = EXPONENTIAL
    calibration = "pure"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", float(self.epsilon))
        if self.delta != 0:
            raise PublishError(f"the exponential mechanism is purely private, and delta is {self.delta!r}. Pass delta 0.")

    def multiplier(self) -> float:
        return 2 / self.epsilon

    def draw(self, scores: Array, *, sensitivity: int) -> int:
        """The index of one of the scores (C,) int64, P(i) ∝ exp(−ε · scores_i / 2 · sensitivity) or flatter.

        Exact: the index of the largest of −scores_i/b + G_i has that distribution with the least float64
        b ≥ 2 · sensitivity / ε. OpenDP draws the Gumbel variables G_i bit by bit until one sum is surely the largest.
        """
        below = math.nextafter(self.epsilon, 0.0)  # not above the decimal that was typed, which ledgers add up
        return int(largest_with_gumbel(1, laplace_scale(below, 2 * sensitivity))((-scores).tolist())[0])


@dataclass(frozen=True)
class RehearsedExponential:
    """The same distribution, but from a seed, so that others can draw it again: NOT PRIVATE."""

    mechanism: ExponentialMechanism
    seed: int
    calibration = "pure"

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @property
    def name(self) -> str:
        return rehearsed(self.mechanism.name)

    @property
    def epsilon(self) -> float:
        return self.mechanism.epsilon

    def draw(self, scores: Array, *, sensitivity: int) -> int:
        """As `ExponentialMechanism.draw`, from the seed and in float64."""
        gumbel = np.random.default_rng(self.seed).gumbel(size=len(scores))
        return int(np.argmax(gumbel - scores * (self.epsilon / (2 * sensitivity))))


@dataclass(frozen=True, eq=False)
class MultisetSampler:
    """All databases of `size` rows from a public list, and the integer geometry of the list. Public facts alone.

    kernel, domain  the kernel of the embedding, and the domain that encodes the rows.
    rows            (n, d) encoded, all different: every row of the domain, those that keep its rules, or a grid that is public.
    size            M.
    is_grid         whether the rows are a grid: a private row then counts as the nearest one, and so where rules leave rows out.
    diameter        sup ‖k(x, ·) − k(x′, ·)‖ over the domain, as readers compute it.
    """

    kernel: Kernel
    domain: Domain
    rows: Array
    size: int
    is_grid: bool
    diameter: float

    @property
    def count(self) -> int:
        return n_databases(len(self.rows), self.size)

    @cached_property
    def members(self) -> Array:
        """(C, M) uint16: which rows each database has, in the order of the list."""
        flat = chain.from_iterable(combinations_with_replacement(range(len(self.rows)), self.size))
        return np.fromiter(flat, dtype=np.uint16, count=self.count * self.size).reshape(self.count, self.size)

    @cached_property
    def products(self) -> Array:
        """A = Z Zᵀ (n, n) int64, exactly, of whole images Z whose distances are those of the kernel · _STEPS / widest.

        A is positive semidefinite whatever Z is, so that √(vᵀAv) is a seminorm: the guarantee does not depend on
        how well the images keep the kernel's distances.
        """
        images = _whole_images(self.kernel, self.rows)
        if not (np.isfinite(images).all() and np.abs(images).max(initial=0.0) ** 2 * images.shape[1] < 2.0**52):
            raise PublishError(_NO_KERNEL)
        return np.rint(images @ images.T).astype(np.int64)  # whole numbers below 2^53: no sum rounds

    @cached_property
    def squared_diameter(self) -> int:
        """max_ij ‖Z_i − Z_j‖², exactly; at most _WIDEST², so that `scores` of N rows are at most N · M · _WIDEST."""
        A = self.products
        squared = int((np.diag(A)[:, None] + np.diag(A)[None, :] - 2 * A).max())
        if squared > _WIDEST**2:
            raise PublishError(_NO_KERNEL)
        return squared

    @cached_property
    def sensitivity(self) -> int:
        """The largest change of `scores` when one row of the table is replaced.

        The norm changes by at most M·‖Z_i − Z_j‖ (triangle inequality), and its whole part by at most this, rounded up.
        Never less than the statement's Δ on this grid, so that the draw is as flat as the statement says.
        """
        proven = math.isqrt(self.size**2 * self.squared_diameter - 1) + 1
        ratio = Fraction(self.diameter) / Fraction(float(distances(self.kernel, self.rows).max()))
        return max(proven, math.ceil(self.size * _STEPS * ratio))

    def indices(self, rows: Array) -> Array:
        """The index (n,) in the list of the row that each encoded row counts as, from that row alone; never an error."""
        with np.errstate(all="ignore"):  # a warning by the value of a private row would be a release
            return self._nearest(rows) if self.is_grid or self.domain.rules else self._numbers(rows)

    def _numbers(self, rows: Array) -> Array:
        """Rows of the domain are numbered as arrays are: the last column counts fastest."""
        number = np.zeros(len(rows), dtype=np.int64)
        for column, cells in zip(self.domain.columns, rows.T, strict=True):
            values = column.every_value(MOST_ROWS)
            assert values is not None
            present = values[~np.isnan(values)]
            code = np.searchsorted((present[:-1] + present[1:]) / 2, cells)
            code = np.where(np.isnan(cells), len(values) - 1, np.minimum(code, len(present) - 1))
            number = number * len(values) + code
        return number

    def _nearest(self, rows: Array) -> Array:
        """One row at a time, so that no bit of the answer depends on the other rows."""
        norms = self.kernel.diagonal(self.rows)
        products = (self.kernel.gram(row[None, :], self.rows)[0] for row in rows)
        return np.array([np.argmin(norms - 2 * product) for product in products], dtype=int)

    def scores(self, counts: Array) -> Array:
        """⌊√q⌋ (C,) int64, q = ‖Σ_i (M·counts_i − N·r_i) Z_i‖² for each database r: N·M·_STEPS times its distance, nearly.

        counts   (n,) how many rows of the table are at each row of the list. Exact, in Python's integers.
        """
        c, A, total, size = counts.astype(object), self.products, int(counts.sum()), self.size
        towards = A.astype(object) @ c
        own = int(c @ towards) * size**2
        blocks = (self.members[start : start + _BLOCK] for start in range(0, self.count, _BLOCK))
        squares = (
            own - 2 * total * size * _totals(block, towards) + total**2 * _squared(block, A).astype(object) for block in blocks
        )
        return np.fromiter((math.isqrt(q) for block in squares for q in block), dtype=np.int64, count=self.count)


def _whole_images(kernel: Kernel, rows: Array) -> Array:
    """Z (n, F): whole numbers whose distances are the kernel's, the widest of them _STEPS; the first row is the origin."""
    with np.errstate(all="ignore"):
        K = kernel.gram(rows, rows)
        centred = K - K[:, :1] - K[:1, :] + K[0, 0]
        values, vectors = np.linalg.eigh((centred + centred.T) / 2)
        kept = values > 1e-14 * values[-1]
        return np.rint(vectors[:, kept] * np.sqrt(values[kept]) * (_STEPS / distances(kernel, rows).max()))


def _member_counts(block: Array, n: int) -> Array:
    """How often each of n rows is in each database, (c, n) int64."""
    indices = block + n * np.arange(len(block))[:, None]
    return np.bincount(indices.ravel(), minlength=n * len(block)).reshape(len(block), n)


def _totals(block: Array, towards: Array) -> Array:
    """Σ_m towards[r_m] for each database, (c,) of Python's integers."""
    if block.shape[1] > len(towards):
        return _member_counts(block, len(towards)).astype(object) @ towards
    return sum(towards[block[:, m]] for m in range(block.shape[1]))  # type: ignore[return-value]


def _squared(block: Array, A: Array) -> Array:
    """‖Σ_m Z_{r_m}‖² for each database, (c,) int64: at most (1000 · 2^20)² and a little, so that nothing wraps."""
    if block.shape[1] > len(A):
        counts = _member_counts(block, len(A))
        return ((counts @ A) * counts).sum(axis=1)
    return sum(A[block[:, i], block[:, j]] for i in range(block.shape[1]) for j in range(block.shape[1]))  # type: ignore[return-value]


def small_databases(
    kernel: Kernel, domain: Domain, grid: Array | None, size: int | None, *, n_rows: int, epsilon: float
) -> MultisetSampler:
    """The databases to draw from, by public facts alone; PublishError if there are too many for an exact draw.

    grid   encoded public rows to draw from; every row of the domain that keeps its rules by default.
    size   M; by default `default_size`.
    """
    rows = _listed(kernel, domain, grid)
    diameter = diameter_over(kernel, domain)
    widest = float(distances(kernel, rows).max())
    if not widest > _LEAST_DIAMETER * kernel.bound:
        raise PublishError(
            "under this kernel the rows to draw from are nearly equal, and so all databases would be equally likely. Choose a "
            "smaller lengthscale, or rows that differ."
        )
    size = default_size(len(rows), n_rows, epsilon) if size is None else size
    _check_size(len(rows), size)
    check_int64_range(n_rows=n_rows, dimension=1, grid=max(GRID, size * _WIDEST))
    return MultisetSampler(kernel, domain, rows, size, grid is not None, diameter)


def _listed(kernel: Kernel, domain: Domain, grid: Array | None) -> Array:
    if grid is not None:
        rows = np.unique(grid, axis=0)
        if not 2 <= len(rows) <= MOST_ROWS:
            raise PublishError(
                f"the public points have {len(rows)} different rows, and databases are drawn from 2 to {MOST_ROWS}. "
                "Pass a grid of that many."
            )
        return rows
    every = listed_rows(domain, kernel)
    if every is None or len(every) < 2:
        raise PublishError(
            f"the exponential mechanism draws from every row that the domain allows, which must be 2 to {MOST_ROWS} rows, "
            "and this domain has fewer, more or a continuum. Publish fewer columns, levels or whole numbers; or pass public "
            "points, a grid to draw from."
        )
    return every


def _check_size(n: int, size: int) -> None:
    if not _can_be_scored(n, size):
        number = f"{n_databases(n, size):,}" if size <= MOST_SIZE else "too many"
        raise PublishError(
            f"there are {number} databases of {size} of the {n} rows, and at most {MOST_DATABASES:,} ({_MOST_CELLS:,} cells, "
            f"{MOST_SIZE} rows) are scored one by one. A draw from some of them has another distribution, and its "
            "privacy is not proven: nothing was read. Pass fewer points, publish a smaller domain, or choose another method."
        )


def default_size(n: int, n_rows: int, epsilon: float) -> int:
    """The M with the least sum of two errors, relative to the diameter: 1/2√M of the best M rows, (2/Nε) ln C of the draw.

    Depends on N, ε and the number n of rows alone; at least 1, and a size that can be drawn.
    """

    def error(size: int) -> float:
        return 0.5 / math.sqrt(size) + 2 * math.log(n_databases(n, size)) / (n_rows * epsilon)

    larger = takewhile(lambda size: _can_be_scored(n, size), range(2, MOST_SIZE + 1))
    return min([1, *larger], key=error)


def _can_be_scored(n: int, size: int) -> bool:
    if size > MOST_SIZE:
        return False
    count = n_databases(n, size)
    return count <= MOST_DATABASES and count * size <= _MOST_CELLS


def sample_database(
    private_rows: Iterable[Array], databases: MultisetSampler,
    mechanism: ExponentialMechanism | RehearsedExponential, *, n_rows: int,
    record_spend: Callable[[], None] | None = None, progress: Callable[[str, float], None] | None = None,
) -> Array:  # fmt: skip
    """Draw a database of M public rows, close to the private table in the distance of mean embeddings.

    private_rows  pieces (n_i, d) of the table, encoded and clamped by a Domain; n_rows, their total, is public.
    record_spend  called once, just before the draw; an error there means that nothing is drawn.
    Returns       encoded rows (M, d) of the list, in its order.

    Guarantee     epsilon-differential privacy under replace-one, for every table of n_rows rows: P(R) ∝ exp(−s(R)/b) with
                  whole s(R), b ≥ 2·sensitivity/ε. PROOF.md §9.
    Source        Balog, Tolstikhin & Schölkopf 2018, §3.4; McSherry & Talwar 2007.
    """
    sensitivity, _ = databases.sensitivity, databases.members  # computed from public facts before a row is read
    counts, seen = np.zeros(len(databases.rows), dtype=np.int64), 0
    for indices in _indices(private_rows, databases):
        counts += np.bincount(indices, minlength=len(counts))
        seen += len(indices)
        if progress:
            progress("reading rows", min(1.0, seen / n_rows))
    if seen != n_rows:  # the count is public: this says nothing about a row
        raise PublishError(f"the table has {seen} rows, not the {n_rows} that were announced. Count again.")
    scores = databases.scores(counts)
    if record_spend:
        record_spend()
    drawn = mechanism.draw(scores, sensitivity=sensitivity)
    return databases.rows[databases.members[drawn]]


def _indices(private_rows: Iterable[Array], databases: MultisetSampler) -> Iterator[Array]:
    """One index in the list for each row, whatever `MultisetSampler.indices` returns."""
    for rows in private_rows:
        indices: Any = databases.indices(rows)
        if indices.shape != (len(rows),):
            indices = np.zeros(len(rows), dtype=np.int64)
        yield np.clip(indices, 0, len(databases.rows) - 1)
