"""Encoded rows that keep the rules of a domain: drawn from it, or put in the place of those that break one."""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.rules.compiled import rules_of

_TRIES = 100


def draw_kept(domain: Domain, n: int, rng: np.random.Generator) -> Array:
    """Rows (n or fewer, d) drawn evenly from those of the domain that keep its rules; fewer where hardly any do.

    >>> draw_kept(domain, 100, np.random.default_rng(0)).shape
    (100, 7)
    """
    found = domain.draw(n, rng)
    rules = rules_of(domain)
    broken = rules.broken(found)
    for _ in range(_TRIES if broken.any() else 0):
        found[broken] = domain.draw(int(broken.sum()), rng)
        broken[broken] = rules.broken(found[broken])
    return found[~broken]


def kept_or(domain: Domain, rows: Array, instead: Array) -> Array:
    """The rows (n, d), derived columns computed again; those that break a rule are replaced by the same of `instead` (n, d).

    >>> rows = domain.encode(sample)
    >>> kept_or(domain, rows, rows) is rows
    True
    """
    if not domain.rules:
        return rows
    rules = rules_of(domain)
    rows = rules.with_derived(rows)
    return np.where(rules.broken(rows)[:, None], instead, rows)
