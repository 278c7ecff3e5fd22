"""Private rows → counts of every table that a round may ask for; rounds of noisy tables and scores from these counts.

The rows are read once. Each round then asks for a vector of whole numbers, in a form that may depend on what earlier rounds
gave: some of the tables, each times a height, or scores of some tables, their L1 distances from public guesses. Or it asks which
tables have the largest scores, and the exponential mechanism draws them. How far one row may move the vector of each round (its
allowance) is declared before the rows are read, and enforced here for every request; a draw is as flat as its allowance demands.
All rounds have noise of one deviation, the multiplier of the budget times the root of the sum of squared allowances, so that
together they cost what one round with this sensitivity does (PROOF.md §12). The spend is recorded before the first noise.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures
from kmeanalyst.releases.measurement import GRID, choice_constant, score_sensitivity
from kmeanalyst.releases.statement import is_pure
from release_side.door.exact_sums import PrivateRows, sum_over_rows
from release_side.door.mechanism import Noise, PublishError, RehearsalNoise, check_int64_range
from release_side.door.private_mean import ExactSums

_MOST_IN_SCORES = 2**60  # step · n_rows: a score is at most a little more than twice as large
_ROUNDED = 1 + 2.0**-30  # room for rounding


def count_tables(
    private_rows: PrivateRows, tables: CellFeatures, *, n_rows: int, workers: int = 1,
    progress: Callable[[str, float], None] | None = None,
) -> Array:  # fmt: skip
    """GRID times the share of each row, or unit, in each cell, summed: (F,) int64. Private."""
    check_int64_range(n_rows=n_rows, dimension=1, grid=GRID)
    if tables.starts[0] != 0 or len(tables.starts) != len(tables.heights) + 1 or (np.diff(tables.starts) < 1).any():
        raise PublishError("the tables overlap or have no cells, so nothing is counted. Correct the map.")
    ones = np.full(len(tables.heights), GRID, dtype=np.int64)
    return sum_over_rows(private_rows, ExactSums(tables, ones), n_rows=n_rows, workers=workers, progress=progress)


@dataclass(eq=False, repr=False)
class TableRounds:
    """The counts of tables behind noise: a fixed number of rounds, each with its allowance.

    tables        every table that a round may ask for.
    counts        (F,) int64 from `count_tables`; private; None after the last round.
    noise         of the whole budget; Gaussian.
    n_rows        N, public.
    allowances    for each round the largest L2 distance, in steps of the grid, of the vectors of two neighbours. One of
                  them at least is √2 · GRID or more: the noise is then so wide that it is nearly continuous (PROOF.md §4).
    record_spend  called once, just before the first noise is drawn; an error there means that none is.
    rounded       whether counts may be sums of fractions, as those of units are: products with them are then rounded.
    """

    tables: CellFeatures
    counts: Array | None
    noise: Noise | RehearsalNoise
    n_rows: int
    allowances: Sequence[float]
    record_spend: Callable[[], None] | None = None
    rounded: bool = True
    _round: int = field(default=0, init=False)
    _drawn: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        if is_pure(self.noise.name):
            raise PublishError("rounds that depend on one another are for Gaussian noise. Choose it, or the kernel margins.")
        self.allowances = tuple(map(float, self.allowances))  # a numpy float32 would compare in single precision
        if not (self.allowances and all(0 < allowance < math.inf for allowance in self.allowances)):
            raise PublishError("each round needs a positive allowance, so nothing is released. Declare it.")
        if self.sensitivity < math.sqrt(2) * GRID * (1 - 1e-9):
            raise PublishError("the rounds' allowances together are too small for discrete noise. Use the whole grid.")
        self.noise.deviation(self.sensitivity)  # PublishError where 64 bits cannot hold the noise

    @property
    def drawn(self) -> int:
        return self._drawn

    @property
    def sensitivity(self) -> float:
        return math.hypot(*self.allowances)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise of every round, in steps of the grid."""
        return self.noise.deviation(self.sensitivity)

    @property
    def made(self) -> int:
        """How many rounds were made: the number of the next one, counted from 0."""
        return self._round

    def measure(self, wanted: Array, heights: Array) -> Array:
        """The noisy cells (int64) of tables, one table after the other.

        wanted    (T,) indices of different tables.
        heights   (T,) int64, at least 0: what a row adds to its cell of each table.
        Errors    PublishError if the round's allowance does not cover √(2 Σ heights²) and the rounding of units.
        """
        wanted, heights = _whole(wanted), _whole(heights)
        cells = self._cells(wanted)
        if heights.shape != wanted.shape or not ((heights >= 0) & (heights <= GRID)).all():
            raise PublishError(f"each table of a round needs a height from 0 to {GRID}, so nothing is released.")
        moved = math.sqrt(2 * sum(int(height) ** 2 for height in heights)) + math.sqrt(len(cells) * self.rounded)
        by_cell = np.repeat(heights, self._sizes()[wanted])
        return self._noisy(moved, lambda counts: _times(counts[cells], by_cell))

    def scores(self, wanted: Array, guesses: Array, step: int) -> Array:
        """For each table the noisy Σ_c |step · n_c − guess_c| (int64), n_c the number of rows in cell c.

        wanted    (T,) indices of different tables.
        guesses   (cells of all of them,) int64, public: step times the number of rows that is guessed for each cell.
        Errors    PublishError if the round's allowance does not cover `score_sensitivity`, or 64 bits do not hold the
                  sums.
        """
        exact, sizes = self._scored(wanted, guesses, step)
        return self._noisy(score_sensitivity(sizes, step), exact)

    def choose(self, wanted: Array, guesses: Array, step: int, *, costs: Array, count: int) -> tuple[Array, float]:
        """`count` of the tables, drawn one after the other by the exponential mechanism, and the scale of its noise.

        Each draw has P(t) ∝ exp((score_t − cost_t)/b) among those that are left. The scale b is the least one that the round's
        allowance covers, so that no request is too much.

        wanted, guesses, step   as in `scores`.
        costs                   (T,) int64, public, at least 0: what is taken off each score, in the same units.
        Returns                 (count,) indices into `wanted`, the first draw first; b.
        Source                  McSherry & Talwar 2007; all at once by Durfee & Rogers 2019; PROOF.md §12.
        """
        exact, sizes = self._scored(wanted, guesses, step)
        costs = _whole(costs)
        if costs.shape != (len(sizes),) or not ((costs >= 0) & (costs <= 2 * _MOST_IN_SCORES)).all():
            raise PublishError("a draw of tables needs a cost for each, from 0 to 2^61. Correct them.")
        if type(count) is not int or not 0 < count <= len(sizes):
            raise PublishError("a draw takes one table at least, and no more than there are. Correct the count.")
        with self._lock:
            scale = choice_constant(self._sizes().tolist(), step, count, self.deviation) / self._allowance() * _ROUNDED
            if not 0 < scale < math.inf:
                raise PublishError("the noise of a draw cannot be held. Raise epsilon.")
            noise, counts = self._next()
            # scores are at most 2^61 and a little, so that no difference wraps
            return noise.largest(exact(counts) - costs, count=count, scale=scale), scale

    def _scored(self, wanted: Array, guesses: Array, step: int) -> tuple[Callable[[Array], Array], list[int]]:
        """Counts → exact scores, and the number of cells of each table; PublishError if 64 bits do not hold them."""
        wanted, guesses = _whole(wanted), _whole(guesses)
        cells, sizes = self._cells(wanted), self._sizes()[wanted]
        starts = np.cumsum(sizes) - sizes
        if type(step) is not int or not 0 < step <= min(GRID, _MOST_IN_SCORES // self.n_rows):
            raise PublishError("a round of scores needs a whole step that 64 bits can hold. Make it smaller.")
        if guesses.shape != cells.shape:
            raise PublishError("a round of scores needs a guess for each cell. Give one.")
        most = step * self.n_rows  # no absolute values before this check: that of the least int64 is negative
        outside = ((guesses < -most) | (guesses > most)).any()
        if outside or (np.add.reduceat(np.abs(guesses.astype(np.float64)), starts) > most * _ROUNDED + sizes).any():
            raise PublishError("the guesses of a table must add up to no more than the table. Correct them.")
        by_cell = np.full(len(cells), step, dtype=np.int64)
        return (
            lambda counts: np.add.reduceat(np.abs(_times(counts[cells], by_cell) - guesses), starts), sizes.tolist()
        )  # fmt: skip

    def _noisy(self, moved: float, exact: Callable[[Array], Array]) -> Array:
        """The next round; of threads that ask at once, one after the other."""
        with self._lock:
            return self._next_round(moved, exact)

    def _next_round(self, moved: float, exact: Callable[[Array], Array]) -> Array:
        """Refused unless its allowance covers how far a row can move it."""
        allowance = self._allowance()
        if not moved <= allowance:
            raise PublishError(
                f"a row can move this round by {moved:.6g}, and {allowance:.6g} was declared. Nothing is released. Ask for less."
            )
        noise, counts = self._next()
        vector = exact(counts)
        self._drawn += len(vector)
        check_int64_range(n_rows=self.n_rows, dimension=self._drawn, grid=GRID)
        return noise.add_to(vector, sensitivity=self.sensitivity)

    def _allowance(self) -> float:
        """Of the next round; PublishError if there is none."""
        if self.counts is None:
            raise PublishError("all rounds were made: one more would be a spend that was not counted.")
        return self.allowances[self._round]

    def _next(self) -> tuple[Noise | RehearsalNoise, Array]:
        """Noise for the next round, and the counts. The round is spent from here on."""
        if self._round == 0 and self.record_spend:
            self.record_spend()
        noise, counts = self.noise.of_round(self._round), self.counts
        assert counts is not None
        self._round += 1  # before noise is drawn: a round that fails is spent
        if self._round == len(self.allowances):
            self.counts = None
        return noise, counts

    def _sizes(self) -> Array:
        return np.diff(self.tables.starts)

    def _cells(self, wanted: Array) -> Array:
        """Indices of the cells of these tables; PublishError unless they are different tables."""
        known = len(self.tables.heights)
        if wanted.ndim != 1 or not len(wanted) or not ((wanted >= 0) & (wanted < known)).all():
            raise PublishError("a round asks for tables that were counted, and for one at least. Name those.")
        if len(np.unique(wanted)) < len(wanted):
            raise PublishError("a round asks for each table once. Name different tables.")
        starts = self.tables.starts
        return np.concatenate([np.arange(starts[t], starts[t + 1]) for t in wanted])


def _whole(numbers: Array) -> Array:
    """As int64; PublishError for anything that is not whole."""
    found = np.asarray(numbers)
    if found.dtype.kind not in "iu" or (found.dtype.kind == "u" and (found > np.uint64(2**63 - 1)).any()):
        raise PublishError("tables, heights and guesses of a round are whole numbers. Round them.")
    return found.astype(np.int64)


def _times(counts: Array, by_cell: Array) -> Array:
    """⌊counts · by_cell / GRID⌋ for counts ≥ 0 and 0 ≤ by_cell ≤ GRID, without overflow: exact where GRID divides counts."""
    return counts // GRID * by_cell + counts % GRID * by_cell // GRID
