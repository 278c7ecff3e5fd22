"""The first round measures all one-way tables: this file says which part of the round each of them has.

There are coarse tables; with a target the same tables crossed with it, and the target's own; and finer tables. Those of numbers
have a small part, and those of a tree one that depends on how many nodes it has at their depth. Where tables of pairs have merged
some of a number's declared ranges, the table of the declared ranges has as much as if it were a coarse one.
"""

from __future__ import annotations

import math

from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.tree_column import Tree
from release_side.publishing.methods.adaptive.shares_of_rounds import Shares

_FINER, _FINER_SMALL = 0.05, 0.20  # of a finer table, relative to the power of its cells; where noise is small
# of a tree's table at a depth below that of pairs, with squared heights ∝ √nodes, relative to that depth's
_NODES = 0.5
_MOST_FINER = 0.06  # of the one-way round for finer tables, unless noise is small
_ALONE = 0.2  # of one-way tables where they are crossed with the target as well
_OF_TARGET = 0.07  # the target's own table, relative to the other one-way tables
_TINY = 1e-15


def one_way_tables(everything: MarginFeatures, domain: Domain, shares: Shares) -> list[tuple[str, int, float]]:
    """Each one-way table by its kind and its number there, with its part of the round."""
    groups = [group for group in everything.groups if not group.kind.startswith("pairs")]
    cells = {group.kind: [stop - start for start, stop in group.ranges] for group in groups}
    worth = {kind: [each**shares.power for each in own] for kind, own in cells.items()}
    if "finer" in worth:
        worth["finer"] = _worth_of_finer(cells["finer"], everything.kernel, domain, shares)
    if "target" in worth:
        worth["one-way"] = [_ALONE * each for each in worth["one-way"]]
        worth["target"] = [_OF_TARGET * sum(sum(each) for kind, each in worth.items() if kind != "target")]
    if "finer" in worth and not shares.noise_is_small:
        worth["finer"] = _limited(worth["finer"], sum(map(sum, worth.values())), everything.kernel, domain)
    total = sum(map(sum, worth.values()))
    return [(kind, t, each / total) for kind, own in worth.items() for t, each in enumerate(own)]


def _worth_of_finer(cells: list[int], kernel: MarginsKernel, domain: Domain, shares: Shares) -> list[float]:
    """The squared heights of finer tables, relative to others': of a depth of a tree, as nodes are asked for."""
    finer, power = _FINER_SMALL if shares.noise_is_small else _FINER, shares.power
    worth = []
    for t, (j, own) in enumerate(zip(kernel.finer, cells, strict=True)):
        if _is_of_declared_ranges(t, kernel, domain):
            worth.append(own**power)
        elif isinstance(domain.columns[j], Tree):
            coarse = kernel.sizes[j]
            worth.append(_NODES * coarse**power * math.sqrt(own / coarse))
        else:
            worth.append(finer * own**power)
    return worth


def _is_of_declared_ranges(t: int, kernel: MarginsKernel, domain: Domain) -> bool:
    """Whether a finer table is that of a number's declared ranges, of which other tables have merged some."""
    j = kernel.finer[t]
    column = domain.columns[j]
    merged = isinstance(column, Number) and not set(column.cuts(column.edges)) <= {*kernel.edges[j], *column.ends}
    return merged and j not in kernel.finer[:t]


def _limited(finer: list[float], total: float, kernel: MarginsKernel, domain: Domain) -> list[float]:
    """The worth of finer tables, at most a fixed part of the round for those of numbers that are finer than declared."""
    kept = [
        isinstance(domain.columns[j], Tree) or _is_of_declared_ranges(t, kernel, domain)
        for t, j in enumerate(kernel.finer)
    ]
    limited = sum(own for stays, own in zip(kept, finer, strict=True) if not stays)
    scale = min(1.0, _MOST_FINER / (1 - _MOST_FINER) * (total - limited) / max(limited, _TINY))
    return [own if stays else scale * own for stays, own in zip(kept, finer, strict=True)]
