"""The χ² test of a measured table, within each cell of a third column or not, with its table and residuals.

T = dᵀV⁻d, d a table less the product of its margins, V from the noise and the sampling of the rows; for the right contrasts z
T = Σ z²/(λμ/N + τ²). `weighted_test` adds a score statistic with more power along orders. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import eigh
from scipy.special import chdtrc

from kmeanalyst.inference.contingency.strata import Cells, Strata, strata_of
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.texts import Printed


@dataclass(frozen=True, kw_only=True)
class ContingencyTest(Printed):
    """A test of independence of two columns by their measured table.

    columns     the two names; given, a third within whose cells they were tested, or "".
    table       shares of the rows, with noise: some may be negative. Rows and columns are cells of the two columns, sparse ones
                merged; of a third column an outer index.
    expected    the products of the margins.
    residuals   (table − expected) over its standard deviation under independence.
    statistic   dᵀV⁻d, or the generalised Cochran–Mantel–Haenszel statistic given a column; df its degrees of freedom.
    pvalue      of the statistic, by the χ² distribution.
    notes       what a reader should know.

    >>> found = ka.contingency_test(counted, "sex", "income")
    >>> found.df, found.pvalue < 1e-6
    (1, True)
    """

    columns: tuple[str, str]
    given: str
    table: pd.DataFrame
    expected: pd.DataFrame
    residuals: pd.DataFrame
    statistic: float
    df: int
    pvalue: float
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; of each cell its labels, share, expected share and residual.

        >>> ka.contingency_test(counted, "sex", "income").to_dict()["cells"][0]["cell"]
        ['Female', '<=50K']
        """
        frames = (self.table.stack(), self.expected.stack(), self.residuals.stack())
        cells = [
            {"cell": list(cell), "share": float(share), "expected": float(frames[1][cell]), "residual": float(frames[2][cell])}
            for cell, share in frames[0].items()
        ]  # fmt: skip
        plain = {name: getattr(self, name) for name in ("given", "statistic", "df", "pvalue")}
        lists = {name: list(getattr(self, name)) for name in ("columns", "notes")}
        return {**plain, **lists, "cells": cells}

    def __repr__(self) -> str:
        of = " × ".join(map(words.written, self.columns))
        of += f" given {words.written(self.given)}" if self.given else ""
        notes = "".join(f"\nnote: {note}" for note in self.notes)
        test = f"χ² = {self.statistic:.4g}, df = {self.df}, p = {self.pvalue:.3g}"
        return f"{of}: {test}\n{self.table.round(4).to_string()}{notes}"


def contingency_test(release: ReleaseData, a: str, b: str, *, given: str | None = None) -> ContingencyTest:
    """Test two columns of a release for independence by their measured table, whose noise the test knows.

    How strongly they go together, by Cramér's V with an interval, is said by `associations`.

    given     a third column: independence within each of its cells, by the generalised Cochran–Mantel–Haenszel statistic. It
              looks for an association that the cells have in common; `independence_test` for any.
    Errors    ValueError where no measured table holds the columns; it says what would help.
    Assumes   that the rows are independent draws from the population. Numbers are compared by their ranges. A pair that was
              chosen by scores is tested validly: what is not chosen has no test, and so no false alarm.
    Source    asymptotic χ² (Gaboardi, Lim, Rogers & Vadhan 2016, with the noise in the covariance); Landis, Heyman & Koch 1978.

    >>> ka.contingency_test(counted, "sex", "income").residuals.round(1)
    income  <=50K  >50K
    sex
    Female    7.3  -7.3
    Male     -7.3   7.3
    >>> ka.contingency_test(counted, "sex", "marital-status", given="income").pvalue < 0.001
    True
    """
    strata = measured_strata(release, a, b, given)
    contrasts = Contrasts.of(strata)
    alone = contrasts.statistic, contrasts.degrees, contrasts.pvalue
    statistic, df, pvalue = alone if given is None else mantel_haenszel(contrasts)
    expected = strata.shares[:, None, None] * strata.first[:, :, None] * strata.second[:, None, :]
    d, deviations = departures(contrasts)
    frames = [_frame(values, strata, (a, b), given) for values in (strata.tables, expected, d / deviations)]
    return ContingencyTest(
        columns=(a, b), given=given or "", table=frames[0], expected=frames[1], residuals=frames[2], statistic=statistic,
        df=df, pvalue=pvalue, notes=notes_of(strata, given),
    )  # fmt: skip


def measured_strata(release: ReleaseData, a: str, b: str, given: str | None) -> Strata:
    columns = [name for name in (a, b, given) if name is not None]
    for name in columns:
        if name not in release.domain.names:
            raise ValueError(f"no column {name!r} was measured: there are {', '.join(release.domain.names)}. Name one of these.")
    if len(set(columns)) < len(columns):
        raise ValueError(f"a column is never independent of itself, got {columns}. Name different columns.")
    strata = strata_of(release, a, b, given)
    together = " × ".join(map(words.written, columns))
    if strata is None:
        of_others = release.statement is not None and release.statement.declared_by
        what_helps = _HELP_OTHERS if of_others else _HELP_THREE if given else _HELP_TWO
        raise ValueError(
            f"{together} was not counted together in this release, so that independence cannot be tested by its table. {what_helps}"
        )
    if not len(strata.tables):
        raise ValueError(
            f"no cell of {words.written(columns[-1])} is large enough to be distinguished from the noise of the tables within it. "
            "Leave given out, or publish with more budget."
        )
    return strata


_HELP_OTHERS = "Ask whoever published the tables for one of these columns together."
_HELP_TWO = (
    "Publish with --workload naming the pair, with one of the two as --target, or with --kernel margins, which counts all "
    "pairs; of smooth features independence_test gives an answer."
)
_HELP_THREE = (
    "A release counts three columns together where scores show that their pairs do not tell the relation, first those with a "
    "--target; the kernel ka.kernels.ChosenMargins names them for sure."
)


def notes_of(strata: Strata, given: str | None) -> tuple[str, ...]:
    merged = sum(int((side.merged > 1).any()) for side in strata.sides)
    found = ["sparse cells were merged, by their margins alone"] if merged else []
    if strata.left_out:
        found.append(
            f"left out, as too small to be distinguished from noise: {words.written(str(given))} {', '.join(strata.left_out)}"
        )
    return tuple(found)


def _frame(values: Array, strata: Strata, columns: tuple[str, str], given: str | None) -> pd.DataFrame:
    first, second = (pd.Index(side.labels, name=name) for side, name in zip(strata.sides, columns, strict=True))
    frames = [pd.DataFrame(table, index=first, columns=second) for table in values]
    return frames[0] if given is None else pd.concat(frames, keys=list(strata.labels), names=[given])


_LEADING = 12  # functions of a column in the score statistic
_SMOOTH_OVER = 0.3  # share of the rows over which a density ratio is alike
_ROUNDING = 1e-12
_CONSTANT = "one side has a single value, and a constant is independent of all. Name other columns."


@dataclass(frozen=True, eq=False)
class Contrasts:
    """The contrasts of all strata, whitened: independent with mean 0 and variance 1 if the columns are independent.

    values      (Z, r−1, c−1) z over its standard deviation.
    deviations  of the same shape.
    first       (Z, r, r−1) u, and second (Z, c, c−1) v.
    """

    strata: Strata
    values: Array
    deviations: Array
    first: Array
    second: Array

    @classmethod
    def of(cls, strata: Strata) -> Contrasts:
        if min(strata.tables.shape[1:]) < 2:
            raise ValueError(_CONSTANT)
        first, lam = _eigen(strata.first, strata.sides[0].merged)
        second, mu = _eigen(strata.second, strata.sides[1].merged)
        sampling = strata.shares[:, None, None] * lam[:, :, None] * mu[:, None, :] / strata.n_rows
        deviations = np.sqrt(sampling + strata.noise**2)
        values = np.einsum("zri,zrc,zcj->zij", first, strata.tables, second) / deviations
        return cls(strata, values, deviations, first, second)

    @property
    def degrees(self) -> int:
        return self.values.size

    @property
    def statistic(self) -> float:
        return float((self.values**2).sum())

    @property
    def pvalue(self) -> float:
        return float(chdtrc(self.degrees, self.statistic))

    @cached_property
    def directions(self) -> Array:
        """(Z (r−1)(c−1), k) what each function of a random density ratio adds to the whitened contrasts."""
        pooled = [self.strata.shares @ p / self.strata.shares.sum() for p in (self.strata.first, self.strata.second)]
        roots = [_root(p, side) for p, side in zip(pooled, self.strata.sides, strict=True)]
        first = np.einsum("zri,zr,rk->zik", self.first, self.strata.first, roots[0])
        second = np.einsum("zcj,zc,cl->zjl", self.second, self.strata.second, roots[1])
        scale = self.strata.shares[:, None, None] / self.deviations
        return np.einsum("zij,zik,zjl->zijkl", scale, first, second).reshape(self.degrees, -1)


def _eigen(shares: Array, merged: Array) -> tuple[Array, Array]:
    """u (Z, r, r−1) orthogonal to p (Z, r) with uᵀ diag(merged) u = I and uᵀ diag(p) u = diag(λ), and λ (Z, r−1)."""
    found = []
    for p in shares:
        basis = np.linalg.svd(p[None])[2][1:].T
        values, vectors = eigh(basis.T @ (p[:, None] * basis), basis.T @ (merged[:, None] * basis))
        found.append((basis @ vectors, np.maximum(values, 0.0)))
    return np.array([u for u, _ in found]), np.array([values for _, values in found])


def _root(p: Array, side: Cells) -> Array:
    """(r, k) a root of the covariance of a random function of the cells, the leading functions under shares p.

    Half of its variance is smooth along the cells with an order, the rest independent between cells.
    """
    ordered = np.isfinite(side.positions)
    safe = np.maximum(p, _ROUNDING)
    covariance = np.diag(1 / safe) / len(p)
    if ordered.sum() > 2:
        order = np.argsort(np.argsort(side.positions))
        middle = (np.cumsum(safe[np.argsort(side.positions)]) - safe[np.argsort(side.positions)] / 2)[order]
        smooth = np.exp(-0.5 * (np.subtract.outer(middle, middle) / _SMOOTH_OVER) ** 2)
        alike = np.where(np.outer(ordered, ordered), smooth, np.diag(np.ones(len(p))))
        covariance = (covariance + alike) / 2
    scale = np.sqrt(safe)
    values, vectors = np.linalg.eigh(scale[:, None] * covariance * scale)
    kept = np.argsort(-values)[:_LEADING]
    return vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0)) / scale[:, None]


def weighted_test(contrasts: Contrasts) -> tuple[float, float]:
    """(statistic, p-value) of T and the score statistic together, each over its standard deviation."""
    s, Q = contrasts.values.ravel(), contrasts.directions
    degrees = len(s)
    e = np.sort(np.linalg.eigvalsh(Q.T @ Q if Q.shape[1] < degrees else Q @ Q.T))[::-1]
    e = np.maximum(e[:degrees], 0.0)
    spread = math.sqrt(float((e**2).sum()))
    if spread <= 0:
        return contrasts.statistic, contrasts.pvalue
    even, rest = 1 / math.sqrt(degrees), degrees - len(e)
    statistic = even * contrasts.statistic + float(((Q.T @ s) ** 2).sum()) / spread
    coefficients = np.append(even + e / spread, [even] * bool(rest))
    each = np.append(np.ones(len(e)), [float(rest)] * bool(rest))
    return statistic, weighted_chi_squared_sf(statistic, coefficients, degrees=each)


def mantel_haenszel(contrasts: Contrasts) -> tuple[float, int, float]:
    """(statistic, degrees of freedom, p-value) of the generalised Cochran–Mantel–Haenszel test of a common association.

    The differences d of all strata are added (Landis, Heyman & Koch 1978), with the covariance that sampling and noise give them.
    """
    strata = contrasts.strata
    own = [
        np.kron(differences(u, p)[:-1], differences(v, q)[:-1])
        for u, v, p, q in zip(contrasts.first, contrasts.second, strata.first, strata.second, strict=True)
    ]
    together = np.hstack([L * sd.ravel() for L, sd in zip(own, contrasts.deviations, strict=True)])
    d = together @ contrasts.values.ravel()
    statistic = float(d @ np.linalg.solve(together @ together.T, d))
    return statistic, len(d), float(chdtrc(len(d), statistic))


def departures(contrasts: Contrasts) -> tuple[Array, Array]:
    """(Z, r, c) tables less the products of their margins, to first order, and their standard deviations under independence."""
    strata, z = contrasts.strata, contrasts.values * contrasts.deviations
    d, deviations = np.empty_like(strata.tables), np.empty_like(strata.tables)
    for k, (u, v, p, q) in enumerate(zip(contrasts.first, contrasts.second, strata.first, strata.second, strict=True)):
        first, second = differences(u, p), differences(v, q)
        d[k] = first @ z[k] @ second.T
        deviations[k] = np.sqrt(first**2 @ contrasts.deviations[k] ** 2 @ (second**2).T)
    return d, deviations


def differences(u: Array, p: Array) -> Array:
    """(r, r−1) L with L uᵀ x = x − p Σ x, for every x (r,)."""
    inverse = u @ np.linalg.inv(u.T @ u)
    return inverse - np.outer(p, inverse.sum(axis=0))
