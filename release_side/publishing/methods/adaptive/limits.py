"""How many numbers with noise rounds may draw.

Three things limit them. A file holds at most a million cells of tables. Scores are sums of 64 bits, and a row may not move them
by more than their round's allowance. Where units are protected, the allowance has to cover the rounding of averages as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.releases.measurement import GRID, SHRINK
from kmeanalyst.releases.statement import PopulationSize

MOST_CELLS = 10**6  # of the tables that are measured
MOST_REPEATED = MOST_CELLS // 8  # of the tables that a later round measures again


def most_of_a_pair(kernel: MarginsKernel) -> float:
    """The largest number of cells of a pair in the tree, so that a file can hold all of them."""
    return MOST_CELLS / (4 * len(kernel.edges))


def most_cells(kernel: MarginsKernel, allowance: float, size: PopulationSize) -> float:
    """How many cells a round of tables may have, so that its allowance covers their rounding, as it must where units are protected.

    Replacing a unit moves each cell by less than 1 more, and a height is off by half a step: √cells + √(tables/2) in all.
    """
    if size.unit is None:
        return math.inf
    room = (1 - SHRINK) * allowance
    tables_at_most = max(room - math.sqrt(kernel.n_tables / 2), 0.0)
    return max(tables_at_most, room / (1 + math.sqrt(0.5))) ** 2  # a table has one cell at least


def score_step(allowance: float, cells: Sequence[int], size: PopulationSize) -> int:
    """What a row adds to scores of tables with so many cells: the most that their allowance and 64 bits let it; 0 if nothing."""
    within = math.floor((allowance / math.sqrt(len(cells)) - max(cells)) / 2)
    return min(max(within, 0), largest_step(size))


def largest_step(size: PopulationSize) -> int:
    """Of scores, so that 64 bits hold them."""
    return min(GRID, 2**60 // size.count)
