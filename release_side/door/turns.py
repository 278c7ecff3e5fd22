"""Random Fourier features in whole numbers: phases are turns, and a table has their cosines on the door's grid.

A phase is a whole number of 2^-32 turns, in 32 bits: sums of phases that leave them lose whole turns, which no cosine sees.
Phases of levels are rounded once, they are public. A number's phase is one product of float64 for each frequency, and the
products are added in the order of the columns. A feature follows from its phase by operations on whole numbers alone. So a
row's numbers have the same bits in every block, under every library for matrices and on every processor, and their norm is
within the bound for every phase that there is: the bound is proven from the table, and no row is looked at (PROOF.md §2a).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count
from math import isqrt

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import rows_of
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.measurement import GRID
from release_side.errors import PublishError

TURN = 2**32  # steps of phase in a turn
ENTRIES = 2**16  # of the table of cosines, in a turn; between two of them cosines are corrected to first order
SHRUNK = (GRID - 2**10, GRID)  # SHRINK as a fraction: 2^-18 is 2^10 steps of the grid
_STEPS_IN_RADIAN = TURN / (2 * np.pi)
_QUARTER = ENTRIES // 4
_QUARTER_BITS = 96
_HALF_ENTRY = TURN // ENTRIES // 2
_TABLE_BITS = 30  # entries are less than 2^30, in steps of 2^-extra of the grid
_ANGLE = 25736  # 2π in units of 2^-12
_LARGEST = 1e290  # of any number
_FARTHEST = 2.0**61  # of a phase: beyond it, float64 does not know the fraction of a turn
_MERGED_ENTRIES = 2**18


@dataclass(frozen=True, eq=False, repr=False)
class Turns:
    """The whole numbers of a map of random Fourier features: a row's depend on this row alone, and Σz² ≤ GRID².

    numbers    (d, R) float64: the phase of a unit of each column, in steps of 2^-32 turns.
    farthest   (d,) a number beyond these counts as if it were there: its phase has no known fraction of a turn.
    levels     phases of levels and of missing cells.
    """

    numbers: Array
    farthest: Array
    levels: tuple[Levels, ...]
    cosines: Cosines

    def phases(self, rows: Array) -> Array:
        """(n, R) uint32, in steps of 2^-32 turns."""
        rows = rows_of(rows, len(self.numbers))
        with np.errstate(all="ignore"):  # a warning by the value of a private row would be a release
            return self._phases(rows)

    def _phases(self, rows: Array) -> Array:
        total = np.zeros((len(rows), self.numbers.shape[1]))
        part = np.empty_like(total)
        for j in np.flatnonzero(self.numbers.any(axis=1)):
            values = np.where(np.isnan(rows[:, j]), 0.0, np.clip(rows[:, j], -self.farthest[j], self.farthest[j]))
            total += np.multiply(values[:, None], self.numbers[j], out=part)
        phases = np.rint(total, out=total).astype(np.int64).astype(np.uint32)
        for column in self.levels:
            phases += column.phases(rows)
        return phases

    def __call__(self, rows: Array) -> Array:
        """Encoded rows → whole numbers as float64, (n, F), as the map orders them."""
        return np.hstack(self.cosines(self.phases(rows)), dtype=np.float64)

    def sum(self, rows: Array) -> Array:
        """The exact sum (F,) int64 over the rows."""
        narrow = len(rows) * self.cosines.highest < 2**31
        sums = [wave.sum(axis=0, dtype=np.int32 if narrow else np.int64) for wave in self.cosines(self.phases(rows))]
        return np.concatenate(sums).astype(np.int64)


@lru_cache(maxsize=2)
def turns_of(feature_map: RandomFourier) -> Turns:
    """The whole numbers of a map, made from public facts; PublishError if their bound cannot be proven."""
    numbers = np.clip(feature_map.linear, -_LARGEST, _LARGEST) * _STEPS_IN_RADIAN
    largest = np.maximum(np.abs(numbers).max(axis=1), _FARTHEST / _LARGEST)
    levels = tuple(_levels(j, table) for j, table in feature_map.tables.items())
    return Turns(numbers, _FARTHEST / len(numbers) / largest, levels, cosines_on_grid(feature_map.n_frequencies))


@dataclass(frozen=True, eq=False, repr=False)
class Levels:
    """Phases of the codes of a column, the last one of a missing cell.

    largest   the code that larger ones count as: the last, or 0 for numbers, of which only a missing cell has a phase.
    table     (levels + 1, R) uint32.
    """

    column: int
    largest: int
    table: Array

    def phases(self, rows: Array) -> Array:
        """(n, R) uint32."""
        values, last = rows[:, self.column], len(self.table) - 1
        codes = np.where(np.isnan(values), last, np.clip(values, 0, self.largest))
        return self.table.take(codes.astype(np.intp), axis=0)


def _levels(column: int, phases: Array) -> Levels:
    steps = _in_steps(phases)
    if len(steps) == 1:
        return Levels(column, 0, np.vstack([np.zeros_like(steps), steps]))
    return Levels(column, len(steps) - 1, steps)


def _in_steps(phases: Array) -> Array:
    """Phases in radian → uint32, steps of 2^-32 turns."""
    return np.rint(np.clip(phases * _STEPS_IN_RADIAN, -_FARTHEST, _FARTHEST)).astype(np.int64).astype(np.uint32)


@dataclass(frozen=True, eq=False, repr=False)
class Cosines:
    """h cos and h sin of phases, as whole numbers, h the height of a cosine on the grid: GRID · SHRINK / √R.

    waves   (ENTRIES + ENTRIES/4,) int32: sines of the phases i/ENTRIES of a turn, in steps of 2^-extra of the grid. Those from
            ENTRIES/4 on are the cosines.
    extra   how many bits more than the grid an entry has.
    """

    waves: Array
    extra: int

    @property
    def highest(self) -> int:
        """No cosine or sine is larger than this."""
        return (int(self.waves.max()) >> self.extra) + 2

    def __call__(self, phases: Array) -> tuple[Array, Array]:
        """Phases, (n, R) uint32 → their cosines and sines, two arrays (n, R) int32.

        With a the nearest entry and d the angle from it, they are cos a − d sin a and sin a + d cos a: off by d²/2 < 2^-29 h.
        """
        phases = phases + np.uint32(_HALF_ENTRY)
        nearest = (phases >> np.uint32(16)).astype(np.intp)
        angle = (phases & np.uint32(0xFFFF)).view(np.int32)
        angle *= _ANGLE
        angle -= _HALF_ENTRY * _ANGLE
        angle >>= 14  # in units of 2^-30, less than 2^15 π/2 of them
        sines, cosines = self.waves[:ENTRIES].take(nearest), self.waves[_QUARTER:].take(nearest)
        turned = [wave >> 15 for wave in (sines, cosines)]
        for wave in turned:
            wave *= angle
            wave >>= 15
        cosines -= turned[0]
        sines += turned[1]
        for wave in (cosines, sines):
            wave += 1 << self.extra - 1
            wave >>= self.extra
        return cosines, sines


@lru_cache(maxsize=16)
def cosines_on_grid(n_frequencies: int) -> Cosines:
    """The table for so many frequencies: checked, in Python's integers, to keep every row within GRID."""
    bits = 64
    height = isqrt((SHRUNK[0] << bits) ** 2 // n_frequencies)  # in steps of 2^-bits
    extra = _TABLE_BITS - (height >> bits).bit_length()
    places = bits - extra + _QUARTER_BITS
    rising = [(height * sine + (1 << places - 1)) >> places for sine in reversed(_quarter_of_cosines())]
    half_turn = rising + rising[-2:0:-1]
    turn = half_turn + [-sine for sine in half_turn]
    cosines = Cosines(np.array(turn + turn[:_QUARTER], dtype=np.int32), extra)
    check_norm(cosines, n_frequencies)
    return cosines


def check_norm(cosines: Cosines, n_frequencies: int) -> None:
    """PublishError unless Σz² ≤ GRID² for every row of so many phases, whatever they are (PROOF.md §2a)."""
    waves, extra = cosines.waves.tolist(), cosines.extra
    largest = max(waves[i] ** 2 + waves[i + _QUARTER] ** 2 for i in range(ENTRIES))
    angle = _HALF_ENTRY * _ANGLE >> 14  # in units of 2^-30, as the largest there is
    turned = isqrt((largest * (2**60 + angle**2) >> 60) + 1) + 1  # √(C² + S²) √(1 + d²), rounded up
    each_rounded = (
        1 + (angle >> 15) + 1 + (1 << extra - 1)
    )  # of each product and of the last step, in units of the table's
    both_rounded = isqrt(2 * each_rounded**2) + 1
    if n_frequencies * (turned + both_rounded) ** 2 > (GRID << extra) ** 2 or max(map(abs, waves)) >= 2**_TABLE_BITS:
        raise PublishError(
            f"cosines of {n_frequencies} frequencies do not keep within the bound, so nothing is released. Pass fewer features."
        )


@cache
def _quarter_of_cosines() -> list[int]:
    """cos(2πi/ENTRIES) for i = 0 … ENTRIES/4 in steps of 2^-96, by Python's integers: the same on every machine."""
    one = 1 << _QUARTER_BITS
    pi = 4 * (4 * _arctangent(5, one) - _arctangent(239, one))  # Machin's formula
    step = [0, 0]  # cosine and sine of one entry's angle, by their series
    term, angle = one, 2 * pi // ENTRIES
    for k in count():
        step[k % 2] += -term if k % 4 >= 2 else term
        term = term * angle // (one * (k + 1))
        if not term:
            break
    found, cosine, sine = list[int](), one, 0
    for _ in range(_QUARTER + 1):
        found.append(cosine)
        cosine, sine = (
            cosine * step[0] - sine * step[1] >> _QUARTER_BITS,
            sine * step[0] + cosine * step[1] >> _QUARTER_BITS,
        )
    return found


def _arctangent(x: int, one: int) -> int:
    """arctan(1/x) in steps of 1/one."""
    total, term = 0, one // x
    for k in count():
        if not term:
            return total
        total += (-term if k % 2 else term) // (2 * k + 1)
        term //= x * x
    raise AssertionError
