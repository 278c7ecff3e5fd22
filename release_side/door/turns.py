"""Random Fourier features in whole numbers: phases are turns, and a table has their cosines on the door's grid.

A phase is a whole number of 2^-32 turns, in 32 bits: sums of phases that leave them lose whole turns, which no cosine sees.
Phases of levels are rounded once, they are public. A number's phase is one product of float64 for each frequency, and the
products are added in the order of the columns. A feature follows from its phase by operations on whole numbers alone. So a
row's numbers have the same bits in every block, under every library for matrices and on every processor, and their norm is
within the bound for every phase that there is: the bound is proven from the table, and no row is looked at (PROOF.md §2a).

`_turns.c` has the same sum as one compiled loop, with the same bits. It is built where a compiler is found, and never needed.
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
from kmeanalyst.releases.measurement import GRID, SHRINK
from release_side.errors import PublishError

try:
    from release_side.door import _turns as compiled
except ImportError:  # it was installed where there was no compiler
    compiled = None  # type: ignore[assignment]

TURN = 2**32  # steps of phase in a turn
ENTRIES = 2**16  # of the table of cosines, in a turn; between two of them cosines are corrected to first order
_STEPS_IN_RADIAN = TURN / (2 * np.pi)
_QUARTER = ENTRIES // 4
_QUARTER_BITS = 96
_HALF_ENTRY = TURN // ENTRIES // 2
_TABLE_BITS = 30  # entries are less than 2^30, in steps of 2^-extra of the grid
_ANGLE = 25736  # 2π in units of 2^-12
_LARGEST = 1e290  # of any number
_FARTHEST = 2.0**61  # of a phase: beyond it, float64 does not know the fraction of a turn


@dataclass(frozen=True, eq=False, repr=False)
class Turns:
    """The whole numbers of a map of random Fourier features: a row's depend on this row alone, and Σz² ≤ GRID².

    n_columns   d of the rows.
    columns     (k,) those whose numbers have a phase.
    numbers     (k, R) float64: the phase of a unit of each, in steps of 2^-32 turns.
    farthest    (k,) a number beyond these counts as if it were there: its phase has no known fraction of a turn.
    levels      phases of levels and of missing cells.
    """

    n_columns: int
    columns: Array
    numbers: Array
    farthest: Array
    levels: tuple[Levels, ...]
    cosines: Cosines

    def __call__(self, rows: Array) -> Array:
        """Encoded rows → whole numbers as float64, (n, F), as the map orders them."""
        return np.hstack(self.cosines(self._phases(*self._cells(rows))), dtype=np.float64)

    def sum(self, rows: Array) -> Array:
        """The exact sum (F,) int64 over the rows."""
        values, codes = self._cells(rows)
        if compiled is not None:
            sums = np.zeros(2 * self.numbers.shape[1], dtype=np.int64)
            compiled.add_rows(
                len(rows), self.numbers.shape[1], values, self.numbers, codes, [column.table for column in self.levels],
                self.cosines.waves, self.cosines.extra, sums,
            )  # fmt: skip
            return sums
        narrow = len(rows) * self.cosines.highest < 2**31
        kind = np.int32 if narrow else np.int64
        waves = self.cosines(self._phases(values, codes))
        return np.concatenate([wave.sum(axis=0, dtype=kind) for wave in waves]).astype(np.int64)

    def _cells(self, rows: Array) -> tuple[Array, Array]:
        """Numbers (k, n) within their bounds, and the codes (·, n) of levels, each in its table."""
        rows = rows_of(rows, self.n_columns)
        with np.errstate(all="ignore"):  # a warning by the value of a private row would be a release
            values = np.clip(rows[:, self.columns], -self.farthest, self.farthest)
            values = np.where(np.isnan(values), 0.0, values)
            codes = np.empty((len(self.levels), len(rows)), dtype=np.intp)
            for column, found in zip(self.levels, codes, strict=True):
                found[:] = column.codes(rows)
        return values.T.copy(), codes

    def _phases(self, values: Array, codes: Array) -> Array:
        """(n, R) uint32, in steps of 2^-32 turns."""
        total = np.zeros((values.shape[1], self.numbers.shape[1]))
        part = np.empty_like(total)
        for value, number in zip(values, self.numbers, strict=True):
            total += np.multiply(value[:, None], number, out=part)
        phases = np.rint(total, out=total).astype(np.int64).astype(np.uint32)
        for column, code in zip(self.levels, codes, strict=True):
            phases += column.table.take(code, axis=0)
        return phases


@lru_cache(maxsize=2)
def turns_of(feature_map: RandomFourier) -> Turns:
    """The whole numbers of a map, made from public facts; PublishError if their bound cannot be proven."""
    columns = np.flatnonzero(feature_map.linear.any(axis=1))
    numbers = np.clip(feature_map.linear[columns], -_LARGEST, _LARGEST) * _STEPS_IN_RADIAN
    largest = np.maximum(np.abs(numbers).max(axis=1), _FARTHEST / _LARGEST)
    levels = tuple(_levels(j, table) for j, table in feature_map.tables.items())
    return Turns(
        n_columns=len(feature_map.linear), columns=columns, numbers=numbers,
        farthest=_FARTHEST / max(len(columns), 1) / largest, levels=levels,
        cosines=cosines_on_grid(feature_map.n_frequencies),
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Levels:
    """Phases of the codes of a column, the last one of a missing cell.

    largest   the code that larger ones count as: the last, or 0 for numbers, of which only a missing cell has a phase.
    table     (levels + 1, R) uint32.
    """

    column: int
    largest: int
    table: Array

    def codes(self, rows: Array) -> Array:
        """(n,) rows of the table."""
        values = rows[:, self.column]
        return np.where(np.isnan(values), len(self.table) - 1, np.clip(values, 0, self.largest)).astype(np.intp)


def _levels(column: int, phases: Array) -> Levels:
    steps = _in_steps(phases)
    if len(steps) == 1:
        return Levels(column, 0, np.vstack([np.zeros_like(steps), steps]))
    return Levels(column, len(steps) - 1, steps)


def _in_steps(phases: Array) -> Array:
    """Phases in radian → uint32, steps of 2^-32 turns, row after row in memory as the compiled loop reads them."""
    steps = np.rint(np.clip(phases * _STEPS_IN_RADIAN, -_FARTHEST, _FARTHEST)).astype(np.int64)
    return steps.astype(np.uint32, order="C")


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
    height = isqrt((int(GRID * SHRINK) << bits) ** 2 // n_frequencies)  # in steps of 2^-bits of the grid
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
    of_product, of_last = 1 + (angle >> 15) + 1, 1 << extra - 1  # what rounding adds to each, in steps of 2^-extra
    each_rounded = of_product + of_last
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
        cosine, sine = (cosine * step[0] - sine * step[1] >> _QUARTER_BITS, sine * step[0] + cosine * step[1] >> _QUARTER_BITS)
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
