"""Two tables of rows, without noise: tests of every column and of every pair, by the same relabellings of their rows.

The statistic of a set of columns is Σ λ_k d_k², d_k the difference of both tables' means of a function of variance 1, or of a
product of two around the middle of both sides (as in `differences`), λ_k the variances of a kernel along them. Rows of one
population can be relabelled: the largest of all statistics, each on a scale on which it is about normal (Wilson & Hilferty 1931),
gives p-values that are adjusted for their number, exactly, however tests depend on each other (Westfall & Young 1993, algorithm
4.1: step-down maxT).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from kmeanalyst.inference.two_sample.column_functions import column_functions, leading_products, most_products, products
from kmeanalyst.inference.two_sample.without_noise import relabelled_rows
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain

RELABELLED = 999
_OF_A_COLUMN = 12  # functions
_TIE = 1e-4  # differences up to this may be rounding errors of float32


def relabelled_sets(x: Array, y: Array, domain: Domain) -> dict[tuple[int, ...], tuple[float, float]]:
    """Of each column (j,) and pair (i, j): the p-value of its test, and that adjusted for all tests.

    x, y   encoded rows (n, d) and (m, d).
    """
    rows, n, m, d = np.vstack([x, y]), len(x), len(y), len(domain)
    reference = rows[np.lexsort(rows.T)]  # sorted: whose rows they are has no part in what is compared
    functions = [column_functions(domain, (j,), reference, _OF_A_COLUMN) for j in range(d)]
    values = [_standard(each(rows)) for each in functions]
    pairs, parts = list(combinations(range(d), 2)), []
    chosen = [leading_products([functions[j] for j in pair], most_products(len(pairs))) for pair in pairs]
    for labels in relabelled_rows(n, n + m, RELABELLED, np.random.default_rng(0)):
        signs = labels.astype(np.float32) / n - (~labels).astype(np.float32) / m
        moved = [own.T @ signs for own in values]
        found = [each.variances @ own**2 for each, own in zip(functions, moved, strict=True)]
        for (i, j), (which, variances) in zip(pairs, chosen, strict=True):
            own = products([values[i], values[j]], which).T @ signs
            own -= (m - n) / (n + m) * moved[i][which[0]] * moved[j][which[1]]
            found.append(variances @ own**2)
        parts.append(np.array(found))
    scaled = _about_normal(np.hstack(parts))  # (sets, 1 + relabellings), the observed one first
    order = np.argsort(-scaled[:, 0], kind="stable")
    largest = np.maximum.accumulate(scaled[order[::-1]], axis=0)[::-1]
    own, adjusted = ((each >= each[:, :1] - _TIE).mean(axis=1) for each in (scaled[order], largest))
    pvalues = np.column_stack([own, np.maximum.accumulate(adjusted)])[np.argsort(order)]
    return dict(zip([*((j,) for j in range(d)), *pairs], map(tuple, pvalues.tolist()), strict=True))


def _standard(values: Array) -> Array:
    return ((values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-9)).astype(np.float32)


def _about_normal(statistics: Array) -> Array:
    """Each row's on the scale on which a χ² of its mean and variance is about normal; 0 where it does not vary."""
    mean, spread = statistics.mean(axis=1, keepdims=True), statistics.std(axis=1, keepdims=True)
    varies = spread > 1e-6 * mean
    part = np.where(varies, spread / np.where(varies, mean, 1.0), 1.0) ** 2 / 9
    return np.where(varies, (np.cbrt(statistics / np.where(varies, mean, 1.0)) - 1 + part) / np.sqrt(part), 0.0)
