"""Propensity score: how well a model tells rows of the table from rows of the release, and what chance alone would give.

pMSE is the mean of (p̂ − c)², p̂ a row's estimated probability to be of the release and c the share of such rows. 0: no difference
is found. By a tree of depth 6 on the cells of all columns, and by logistic regression with main effects. For the latter, where rows
of the release are drawn independently from the table's own distribution, E pMSE = (k − 1)(1 − c)² c / n for k parameters and n
rows, and S_pMSE is the ratio to it. (Another sample of the table's population would have the ratio 1/(1 − c), 2 for as many rows.)

Source   Snoke, Raab, Nowok, Dibben & Slavkovic 2018, General and specific utility measures for synthetic data, eqs. 1 and 4;
         synthpop's utility.gen(method = "logit", maxorder = 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.representation.tables.score_tables import ScoreTables
from release_side.quality.scores import Result

_DEPTH = 6
_MOST_LEVELS = 50  # of a column that becomes main effects
_NULL = (
    "The null is that the release's rows are drawn independently from the table's own distribution; as many new rows of the "
    "population would have a ratio of 2. The rows of a release are placed evenly rather than drawn: S_pMSE is no test here, and "
    "may be below 1."
)


@dataclass(frozen=True)
class Propensity(Result):
    """Two propensity scores of equal numbers of rows, more or less.

    table_rows, release_rows   how many of each.
    tree_pmse                  of a tree of depth 6.
    logistic_pmse              of logistic regression with main effects.
    parameters                 of the latter, k: its intercept and the columns of its design that are not redundant.
    expected_pmse              of the latter under the null.
    S_pMSE                     the ratio of the two.
    notes                      what was left out, and what the ratio is not.
    """

    table_rows: int
    release_rows: int
    tree_pmse: float
    logistic_pmse: float
    parameters: int
    expected_pmse: float
    S_pMSE: float  # the source's name
    notes: tuple[str, ...]


def propensity(domain: Domain, table: Array, release: Array) -> Propensity:
    """Of encoded rows (n, d) of both, of equal weights; NaN where one of them has no rows."""
    X = np.concatenate([table, release])
    of_release = np.arange(len(X)) >= len(table)
    c, n = len(release) / max(len(X), 1), len(X)
    effects, left_out = _main_effects(domain, X)
    notes = (*([f"left out of the main effects: {', '.join(left_out)}"] if left_out else []), _NULL)
    if not 0 < c < 1:
        return Propensity(len(table), len(release), *(math.nan,) * 2, 0, *(math.nan,) * 2, notes)
    k = _rank(effects)
    expected = (k - 1) * (1 - c) ** 2 * c / n
    logistic = _logistic(effects, of_release, c)
    ratio = logistic / expected if expected > 0 else math.nan
    return Propensity(
        len(table),
        len(release),
        _tree(ScoreTables(domain).cells(X), of_release, c),
        logistic,
        k,
        expected,
        ratio,
        notes,
    )


def _tree(cells: Array, of_release: Array, c: float) -> float:
    from sklearn.tree import DecisionTreeClassifier

    if not cells.shape[1]:
        return math.nan
    model = DecisionTreeClassifier(max_depth=_DEPTH, random_state=0).fit(cells, of_release)
    return float(np.mean((model.predict_proba(cells)[:, 1] - c) ** 2))


def _logistic(effects: Array, of_release: Array, c: float) -> float:
    """With next to no penalty: enough for a maximum where a level is seen on one side alone."""
    from sklearn.linear_model import LogisticRegression

    if not effects.shape[1]:
        return 0.0
    model = LogisticRegression(C=1e4, solver="newton-cholesky", max_iter=100).fit(effects, of_release)
    return float(np.mean((model.predict_proba(effects)[:, 1] - c) ** 2))


def _rank(effects: Array) -> int:
    """Of the design with its intercept: effects have mean 0."""
    spectrum = np.linalg.eigvalsh(effects.T @ effects) if effects.shape[1] else np.zeros(0)
    return 1 + int((spectrum > 1e-9 * max(float(spectrum.max(initial=0.0)), 1e-300)).sum())


def _main_effects(domain: Domain, X: Array) -> tuple[Array, list[str]]:
    """(n, k) standardised numbers, and indicators of levels and missing cells; the names of columns without."""
    found, left_out = [], []
    for column, indices in zip(domain.columns, domain.coordinates, strict=True):
        if column.is_text or (isinstance(column, Categorical) and len(column.levels) > _MOST_LEVELS):
            left_out.append(column.name)
            continue
        found += list(_effects(X[:, indices[0]], isinstance(column, Categorical)))
    if not found:
        return np.zeros((len(X), 0)), left_out
    effects = np.column_stack(found)
    effects = effects - effects.mean(axis=0)
    scale = effects.std(axis=0)
    return effects[:, scale > 0] / scale[scale > 0], left_out


def _effects(codes: Array, has_levels: bool) -> Iterator[Array]:
    missing = np.isnan(codes)
    if missing.any():
        yield missing.astype(float)
    if has_levels:
        yield from ((codes == level).astype(float) for level in np.unique(codes[~missing])[1:])
    elif not missing.all():
        yield np.where(missing, np.nanmean(codes), codes)
