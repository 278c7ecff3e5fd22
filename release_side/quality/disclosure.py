"""Rows of the release and rows of the table: how many are equal, and the disclosure measures of synthpop.

They are no privacy guarantee, and a release needs none from them: its guarantee is ε. They answer what data custodians ask. The
released points count as rows, one each, whatever their weights: they are what anyone who has the file can look up. (Rows
resampled by weight would repeat points, and a point that is repeated would no longer be unique.)

Source   Raab, Nowok & Dibben 2024, Practical privacy metrics for synthetic data (arXiv 2406.16826), §3; synthpop 1.9, `disclosure`
         with missing values as a value of their own and nothing excluded, which are its defaults.
"""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array
from release_side.quality.scores import Copies, SynthpopScores

_SEED = 27  # of the halves of the table: fixed and public


def synthpop_scores(
    keys: tuple[str, ...], target: str | None, table: tuple[Array, Array], release: tuple[Array, Array]
) -> SynthpopScores:
    """repU, UiO, DiSCO and Dorig from (key, value of the target) of each row of the table and of the release.

    A key stands for a combination of the keys' values. With N rows in the table, of which row r has key k(r) and value t(r):
    UiO = 100/N · #{r: k(r) once in the table}, repU = 100/N · #{r: k(r) once in the table and once in the release},
    DiSCO = 100/N · #{r: k(r) is in the release, with t(r) and no other value}, Dorig the same with the table as the release.
    """
    n, once = max(len(table[0]), 1), _once(table[0])
    return SynthpopScores(
        keys=keys,
        target=target,
        repU=100 * len(np.intersect1d(once, _once(release[0]), assume_unique=True)) / n,
        UiO=100 * len(once) / n,
        DiSCO=None if target is None else 100 * _told(table, release) / n,
        Dorig=None if target is None else 100 * _told(table, table) / n,
    )


def _once(keys: Array) -> Array:
    """The keys that occur once."""
    values, counts = np.unique(keys, return_counts=True)
    return values[counts == 1]


def _told(table: tuple[Array, Array], told_by: tuple[Array, Array]) -> int:
    """How many rows of the table have a key whose rows in `told_by` all have the row's value of the target."""
    keys, values = told_by
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, dtype=np.intp)
    if not len(starts):
        return 0
    one_value = np.minimum.reduceat(values, starts) == np.maximum.reduceat(values, starts)
    keys, values = keys[starts][one_value], values[starts][one_value]
    if not len(keys):
        return 0
    found = np.minimum(np.searchsorted(keys, table[0]), len(keys) - 1)
    return int(np.count_nonzero((keys[found] == table[0]) & (values[found] == table[1])))


def copies(table: Array, release: Array) -> Copies:
    """How many released points (m,) equal a private row (N,), and how many rows of one half of the table equal one of the other.

    The halves are random, with a fixed public seed; the second number is scaled to m rows. It is compared with half as many rows,
    so that it is rather too low where the number of copies grows with the table.
    """
    halves = np.array_split(np.random.default_rng(_SEED).permutation(table), 2)
    again = int(np.count_nonzero(np.isin(halves[1], halves[0])))
    return Copies(
        points=len(release),
        equal=int(np.count_nonzero(np.isin(release, table))),
        expected=len(release) * again / max(len(halves[1]), 1),
    )
