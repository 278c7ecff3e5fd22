"""Rows around released points: where the table's own rows may be, for measurements that are smooth.

Clouds of rows stand for a population: single rows, and the same blurred by widths that smooth features do not see.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Cyclic, Number
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import draw_kept, kept_or

_EVEN, _SHARP, _BROAD = 300, 280, 420  # numbers of rows: anywhere, near the points, near their columns' distributions
_EVERY_ROW = 1000  # domains with at most this many rows are enumerated
_SHARES = (0.2, 0.2, 0.6)  # the reference's mass on these three groups of rows
_KEPT = (0.9, 0.5)  # share of the cells of a near row that come from one point; the others come from a second point
_SPREAD = (0.01, 0.1)  # standard deviation of a near row's numbers about them, in ranges of the column
_BLURS = (0.015, 0.04, 0.1)  # widths of the blurred clouds, in ranges of the column
_AS_IT_IS = 0.01  # the reference's mass on clouds of a single row
_COPIES = 5  # rows of a blurred cloud
_BESIDE_ATOM = 0.002  # in ranges of the column: a fitted cell this near to an atom is moved onto it


def clouds_around(domain: Domain, points: Array, probabilities: Array, rng: np.random.Generator) -> tuple[Array, csr_array, Array]:
    """Rows (n, d) encoded; clouds (m, n) of them, each a mean over some; and the mass (m,) of each before anything is measured."""
    singles, mass = _singles(domain, points, probabilities, rng)
    rows, size = [singles], len(singles)
    rows += [_blurred(domain, singles, width, rng) for width in _BLURS for _ in range(_COPIES)]
    place = np.arange(size)
    clouds = np.concatenate([place, *(np.tile(place + size * (1 + i), _COPIES) for i in range(len(_BLURS)))])
    within = np.where(clouds < size, 1.0, 1 / _COPIES)
    shape = (size * (1 + len(_BLURS)), len(clouds))
    shares = [_AS_IT_IS, *[(1 - _AS_IT_IS) / len(_BLURS)] * len(_BLURS)]
    return np.vstack(rows), csr_array((within, (clouds, np.arange(len(clouds)))), shape), np.kron(shares, mass)


def _singles(domain: Domain, points: Array, p: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows (m, d) and the reference's mass (m,) on them: draws of the domain, or all its rows if they are few, and near rows.

    Released points were fitted to the noise: a reference of nothing but them would leave the measurement nothing to say. All rows
    keep the rules of the domain: one that would not is a row as it was before.
    """
    points = _on_atoms(domain, points)
    near = [
        _blurred(domain, _exchanged(domain, points, p, n, kept, rng), spread, rng)
        for n, kept, spread in zip((_SHARP, _BROAD), _KEPT, _SPREAD, strict=True)
    ]
    every = domain.enumerate_rows(_EVERY_ROW)
    anywhere = draw_kept(domain, _EVEN, rng) if every is None else every[~rules_of(domain).broken(every)]
    parts = [part for part in (anywhere, *near) if len(part)]
    shares = np.array(_SHARES[-len(parts) :])
    mass = [np.full(len(part), share / len(part)) for part, share in zip(parts, shares / shares.sum(), strict=True)]
    return np.vstack(parts), np.concatenate(mass)


def _on_atoms(domain: Domain, rows: Array) -> Array:
    """Cells next to a declared atom moved onto it: the features hardly distinguish the two, and the domain declares mass there."""
    before, rows = rows, rows.copy()
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            for atom in column.atom_codes:
                rows[np.abs(rows[:, j] - atom) < _BESIDE_ATOM * (high - low), j] = atom
    return kept_or(domain, rows, before)


def _exchanged(domain: Domain, points: Array, p: Array, n: int, kept: float, rng: np.random.Generator) -> Array:
    """n rows: each cell of one drawn point with probability `kept`, otherwise of another."""
    home, other = (points[rng.choice(len(p), n, p=p / p.sum())] for _ in range(2))
    return kept_or(domain, np.where((rng.random((n, len(domain))) < kept)[:, domain.column_of], home, other), home)


def _blurred(domain: Domain, rows: Array, width: float, rng: np.random.Generator) -> Array:
    """Numbers moved by a normal of that share of the range, reflected or going around at the bounds; all else and atoms stay."""
    out = rows.copy()
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            moved = rows[:, j] + width * (high - low) * rng.standard_normal(len(rows))
            if not isinstance(column, Cyclic):
                moved = np.abs(moved - low) + low
                moved = np.clip(np.where(moved > high, 2 * high - moved, moved), low, high)
            stay = ~np.isfinite(rows[:, j]) | np.isin(rows[:, j], column.atom_codes)
            out[:, j] = np.where(stay, rows[:, j], column.rounded(moved))
    return kept_or(domain, out, rows)
