"""Tables from public facts alone, of weak to strong dependence between columns, and tables like a public sample.

How near a release comes to its table depends on what must not be looked at: how even the shares of cells are, and how much the
columns depend on each other. So a score is forecast on several tables that differ in both. Half of them are cut from a few normal
factors, so that ranges of numbers rise and fall together; the other half are mixtures of classes of rows, in which some
combinations hardly occur. Cells are those that scores compare: levels, ranges, atoms and missing cells.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import one_way_kernel
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.representation.mixture.within_cells import rows_in_cells

_EVENNESS = (0.25, 5.0)  # of a table: parameter of the Dirichlet distribution of a column's shares, least and largest
_EVENNESS_OF_COLUMNS = 1.0  # standard deviation of its logarithm between the columns of a table
_DECLARED = 3.0  # times as even where edges are declared: ranges of interest are seldom nearly empty
_FACTORS = (1, 4)  # fewest and most of a table
_CLASSES = (4, 40)
_SPREAD = 4.0  # of the columns' dependence about the table's: the larger, the more alike its columns
_LEAST = 0.1  # so that columns of the first table hardly depend on each other, and those of the last are nearly functions of few
_MOST_DEPENDENT = 0.99
_LEAST_SHARE = 1e-3
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples spread evenly over the unit interval


def made_rows(domain: Domain, n: int, number: int, of: int, rng: np.random.Generator, public: Array | None) -> Array:
    """(n, width) encoded rows of table `number` of `of` (at least 2): the later, the more its columns depend on each other.

    public   encoded public rows (m, width), from which texts are drawn; needed where a column holds texts.
    """
    strength = number / (of - 1)
    least, most = _EVENNESS
    evenness = least * (most / least) ** (number * _GOLDEN % 1)
    columns = [j for j, column in enumerate(domain.columns) if not column.is_text]
    inner = Domain(tuple(domain.columns[j] for j in columns))
    kernel = one_way_kernel(inner, tuple(range(len(inner))), ranged=True).kernel
    assert isinstance(kernel, Margins)
    shares = [_shares(c, size, evenness, rng) for c, size in zip(inner.columns, kernel.sizes, strict=True)]
    cells = (_cells_of_classes if number % 2 else _cells_of_factors)(inner, shares, n, strength, rng)
    rows = rows_in_cells(kernel, inner, cells, np.zeros(n, dtype=np.intp), {}, rng)
    if len(columns) == len(domain):
        return rows
    assert public is not None
    found = public[rng.integers(0, len(public), n)]
    found[:, domain.indices_of(columns)] = rows
    return found


def _shares(column: Column, size: int, evenness: float, rng: np.random.Generator) -> Array:
    """(size,) the shares of a column's cells."""
    of_column = evenness * math.exp(_EVENNESS_OF_COLUMNS * rng.standard_normal())
    declared = isinstance(column, Number) and bool(column.edges)
    return rng.dirichlet(np.full(size, of_column * (_DECLARED if declared else 1.0)))


def _dependence(strength: float, rng: np.random.Generator) -> float:
    """A column's, between 0 and 1, about the table's."""
    own = rng.beta(_LEAST + _SPREAD * strength, _LEAST + _SPREAD * (1 - strength))
    return float(min(own, _MOST_DEPENDENT))


def _cells_of_factors(domain: Domain, shares: list[Array], n: int, strength: float, rng: np.random.Generator) -> Array:
    """(n, d) cells: each column is a normal number, correlated with the factors and cut at quantiles."""
    fewest, most = _FACTORS
    factors = rng.standard_normal((n, rng.integers(fewest, most + 1)))
    found = []
    for column, share in zip(domain.columns, shares, strict=True):
        direction = rng.standard_normal(factors.shape[1])
        common = _dependence(strength, rng)
        score = math.sqrt(common) * (factors @ (direction / np.linalg.norm(direction)))
        score += math.sqrt(1 - common) * rng.standard_normal(n)
        order = np.arange(len(share)) if column.is_number else rng.permutation(len(share))
        ends = ndtri(np.clip(np.cumsum(share[order])[:-1], 0, 1))
        found.append(order[np.searchsorted(ends, score)])
    return np.column_stack(found)


def _cells_of_classes(domain: Domain, shares: list[Array], n: int, strength: float, rng: np.random.Generator) -> Array:
    """(n, d) cells: in each class of rows the columns are independent, with shares of its own."""
    classes = int(rng.integers(*_CLASSES))
    own = rng.choice(classes, n, p=rng.dirichlet(np.full(classes, 2.0)))
    found = []
    for share in shares:
        common = max(_dependence(strength, rng), _LEAST_SHARE)
        alike = len(share) * (1 - common) / common
        each = rng.dirichlet(np.maximum(alike * share, _LEAST_SHARE), classes).cumsum(axis=1)
        found.append((rng.random(n)[:, None] > each[own, :-1]).sum(axis=1))
    return np.column_stack(found)
