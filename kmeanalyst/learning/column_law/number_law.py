"""The distribution of a number given the other columns, fitted to the measurement of random Fourier features.

A conditional exponential family (`exponential_family`). The number's values are divided into bins c with the mixture's
shares q. A bin's phasor is the mean over the mixture's values in it: at high frequencies single points would look like atoms.
Scores t shift the distribution and change its width, and special values (atoms, a missing cell) have scores of their own.
ψ are a constant, polynomials of low degree in each other column, and products of those of two columns. With rows x_i drawn
from the mixture (`denoise`) the mean phasor is, on the frequencies that depend on the number,

    μ_r = Σ_i w_i e^{ip_r(x_i)} Σ_c π(c | x_i) χ_rc,      χ_rc = mean of e^{ip_r(c)} over the bin,

and θ is the posterior mode under the exact noise, the table's own sampling, and the family's priors. ‖μ − y‖² of n rows is
too large by (1/n)·mean‖e_i − μ‖², and this bias depends on π. It is subtracted, or the fitted distributions would be too
wide where rows are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.learning.column_law.exponential_family import ConditionalExponentialFamily, FitRules, fit_family
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.mixture.component_laws import as_phasors, unit_phasors

_BINS = 40
_ENDS = 0.002  # share of the values on either side of the range that is divided evenly
_MOST_PHASORS = 2**23  # rows × frequencies
_MOST_NUMBERS = 900  # numbers in θ
_RICHNESS = ((3, 4), (3, 3), (3, 2), (2, 2), (3, 0), (1, 0))  # degree in one column, and in products of two
_CLIP, _LARGEST = 2.5, 4.0  # the most standard deviations of a number; the largest size of a polynomial
_RAREST = 1e-3  # smallest share of a level that has a function of its own
_RULES = FitRules(
    steps=20, shortest_step=1e-3, change=0.2, gain=0.1, first_precision=1 / 0.1**2,
    constant_precision=None,  # a flat prior of a constant would move the distribution along the noise
)  # fmt: skip
_ALONG = 5  # the error of drawn rows along the few directions that matter, relative to its mean over frequencies


@dataclass(frozen=True, eq=False)
class Bins:
    """A number's values in groups of neighbours.

    members  C arrays of the mixture's encoded values, each sorted; an atom and missing cells have bins of their own.
    shares   (C,) of the values.
    scores   (C, R) t: linear and quadratic in the value, and indicators of special values; of mean 0 and variance 1.
    """

    members: tuple[Array, ...]
    shares: Array
    scores: Array

    @classmethod
    def of(cls, values: Array, column: Number) -> Bins:
        """The bins of values (n,) drawn from a mixture; ValueError where all are the same."""
        missing, special = np.isnan(values), np.isin(values, column.atom_codes)
        ordinary = np.sort(values[~missing & ~special])
        parts = _split(ordinary) if len(ordinary) else []
        atoms = [np.full(int((values == atom).sum()), atom) for atom in column.atom_codes if (values == atom).any()]
        members = parts + atoms + ([values[missing]] if missing.any() else [])
        if len(parts) + len(atoms) < 2:
            raise ValueError(
                f"{column.name!r} has one value as far as measured: there is nothing to predict. Choose another target."
            )
        shares = np.array([len(part) for part in members]) / len(values)
        kinds = np.repeat([0, 1, 2], [len(parts), len(atoms), len(members) - len(parts) - len(atoms)])
        return cls(tuple(members), shares, _scores(np.array([part.mean() for part in members]), shares, kinds))

    def phasors(self, features: RandomFourier, position: int, looks: Array) -> Array:
        """χ (C, r), complex64: mean e^{ip} of each bin, on the frequencies (indices `looks`) that depend on the number."""
        means = []
        for part in self.members:
            values, counts = np.unique(part, return_counts=True)
            phases = features.column_phases(position, values, looks)
            means.append((counts / counts.sum()).astype(np.float32) @ unit_phasors(phases))
        return np.array(means, dtype=np.complex64)


def _split(values: Array) -> list[Array]:
    """Sorted values in at most _BINS groups, halfway between equal in number and equal in width."""
    low, high = np.quantile(values, [_ENDS, 1 - _ENDS])
    distinct, index = np.unique(values, return_inverse=True)
    rank = np.searchsorted(values, distinct) / len(values)
    along = np.clip((distinct - low) / max(high - low, 1e-300), 0, 1)
    group = np.minimum(((rank + along) / 2 * _BINS).astype(int), _BINS - 1)[index]
    return np.split(values, np.flatnonzero(np.diff(group)) + 1)


def _scores(middles: Array, shares: Array, kinds: Array) -> Array:
    """(C, R); kinds are 0 for ordinary bins, 1 for atoms, 2 for missing cells."""
    present = kinds < 2
    z = np.zeros(len(middles))
    z[present] = np.clip(_standard(middles[present], shares[present]), -_LARGEST, _LARGEST)
    columns = [z, np.where(present, z**2, 0.0)] if present.sum() > 2 else [z]
    columns += [(kinds == kind).astype(float) for kind in (1, 2) if 0 < (kinds == kind).sum() < len(kinds)]
    out = np.zeros((len(middles), 0))
    for column in columns:  # Gram–Schmidt under the shares; a linear combination of earlier scores is left out
        column = column - shares @ column - out @ (out.T @ (shares * column))
        size = float(np.sqrt(shares @ column**2))
        if size > 1e-6:
            out = np.column_stack([out, column / size])
    return out


def _standard(values: Array, shares: Array) -> Array:
    mean = shares @ values / shares.sum()
    return (values - mean) / max(float(np.sqrt(shares @ (values - mean) ** 2 / shares.sum())), 1e-300)


# ---------------------------------------------------------------- functions of the other columns


@dataclass(frozen=True, eq=False)
class _Single:
    """Functions of one column, approximately orthonormal on the rows.

    levels   codes with an indicator each; of a number its atoms. missing: an indicator of missing cells.
    centre, scale, basis  of a number: standardised, and (degree + 1, k) from its powers to polynomials.
    means, sizes          of the indicators.
    """

    levels: Array
    missing: bool
    centre: float
    scale: float
    basis: Array
    means: Array
    sizes: Array

    @classmethod
    def of(cls, column: Any, values: Array, degree: int) -> _Single:
        known = values[~np.isnan(values)]
        number = column.is_number
        levels, counts = np.unique(known[np.isin(known, column.atom_codes)] if number else known, return_counts=True)
        if not number:
            levels, counts = np.delete(levels, np.argmax(counts)), np.delete(counts, np.argmax(counts))
        levels = levels[counts > _RAREST * len(values)]
        missing = bool(np.isnan(values).mean() > _RAREST)
        marks = _marks(values, levels, missing)
        means = marks.mean(axis=0)
        ordinary = known[~np.isin(known, levels)] if number else known[:0]
        centre, scale = (float(ordinary.mean()), float(ordinary.std())) if len(ordinary) else (0.0, 0.0)
        basis = _polynomials(ordinary, centre, scale, degree)
        return cls(levels, missing, centre, scale, basis, means, np.sqrt(means * (1 - means)))

    @property
    def degrees(self) -> Array:
        """(k,) of the functions."""
        return np.concatenate([np.arange(self.basis.shape[1]) + 1, np.ones(len(self.means), dtype=int)])

    def __call__(self, values: Array) -> Array:
        """(n, k) functions."""
        marks = _marks(values, self.levels, self.missing)
        ordinary = ~(marks.any(axis=1) | np.isnan(values))
        powers = np.where(
            ordinary[:, None], _powers(values, self.centre, self.scale, len(self.basis)) @ self.basis, 0.0
        )
        return np.hstack([np.clip(powers, -_LARGEST, _LARGEST), (marks - self.means) / self.sizes])


def _marks(values: Array, levels: Array, missing: bool) -> Array:
    marks = values[:, None] == levels
    return (np.column_stack([marks, np.isnan(values)]) if missing else marks).astype(float)


def _powers(values: Array, centre: float, scale: float, count: int) -> Array:
    """(n, count) 1, z, z², ... of the standardised value."""
    z = np.clip((np.nan_to_num(values) - centre) / (scale or 1.0), -_CLIP, _CLIP)
    return z[:, None] ** np.arange(count)


def _polynomials(values: Array, centre: float, scale: float, degree: int) -> Array:
    """(degree + 1, k): coefficients of polynomials without constant part, orthonormal on the values."""
    degree = min(degree, len(np.unique(values)) - 1)
    if degree < 1 or scale < 1e-9:
        return np.zeros((1, 0))
    Q, R = np.linalg.qr(_powers(values, centre, scale, degree + 1))
    rank = int(np.argmin(np.append(np.abs(np.diag(R)) > 1e-6 * np.sqrt(len(Q)), False)))
    inverse = np.linalg.inv(R[:rank, :rank]) * np.sqrt(len(Q))
    return inverse[:, 1:]


class RowFunctions:
    """ψ: (n, d) encoded rows → (n, P), a constant and centred functions of all columns but one.

    blocks   (P,) which block each belongs to; −1 for the constant. A block is a column, or a degree in two columns.
    """

    def __init__(self, singles: dict[int, _Single], X: Array, together: int) -> None:
        self._singles, self._together = singles, together
        functions, names = self._uncentred(X)
        self._means = functions.mean(axis=0)
        self._means[0] = 0.0
        known = {name: i for i, name in enumerate(dict.fromkeys(names[1:]))}
        self.blocks = np.array([-1, *(known[name] for name in names[1:])])

    @classmethod
    def of(cls, domain: Domain, target: int, X: Array, most: int) -> RowFunctions:
        """The richest family of at most `most` functions; ValueError where even the smallest has more."""
        for degree, together in _RICHNESS:
            columns = ((j, column) for j, column in enumerate(domain.columns) if j != target)
            singles = {j: _Single.of(column, X[:, j], degree) for j, column in columns}
            if _count([single.degrees for single in singles.values()], together) <= most:
                return cls(singles, X, together)
        raise ValueError(
            f"the distribution of {domain.names[target]!r} has too many numbers to fit: more than {most} functions of the "
            "other columns, most of them of levels. Train a model on the release's rows instead, or release with fewer levels."
        )

    def __call__(self, X: Array) -> Array:
        return self._uncentred(X)[0] - self._means

    def _uncentred(self, X: Array) -> tuple[Array, list[tuple[int, ...]]]:
        each = [(j, single(X[:, j]), single.degrees) for j, single in self._singles.items()]
        parts: list[Array] = [np.ones((len(X), 1)), *(functions for _, functions, _ in each)]
        names: list[tuple[int, ...]] = [(-1,), *((j,) for j, _, degrees in each for _ in degrees)]
        for i, (a, of_a, degree_a) in enumerate(each):
            for b, of_b, degree_b in each[:i]:
                degrees = np.add.outer(degree_a, degree_b)
                first, second = np.nonzero(degrees <= self._together)
                parts.append(of_a[:, first] * of_b[:, second])
                names += [(a, b, int(degree)) for degree in degrees[first, second]]
        return np.hstack(parts), names


def _count(degrees: list[Array], together: int) -> int:
    """P, without computing the functions."""
    pairs = (int((np.add.outer(a, b) <= together).sum()) for i, a in enumerate(degrees) for b in degrees[:i])
    return 1 + sum(len(own) for own in degrees) + sum(pairs)


# ---------------------------------------------------------------- the distribution


@dataclass(frozen=True, eq=False)
class NumberLaw:
    """The fitted π(c | x) of a number's bins.

    residual   half the squared distance to the measurement in units of its error, per number measured: about ½ for the truth.
    """

    bins: Bins
    family: ConditionalExponentialFamily
    residual: float

    def probabilities(self, X: Array) -> Array:
        """(n, C) given encoded rows (n, d); the number's own values are not used."""
        return self.family.probabilities(X)


def rows_for(features: RandomFourier, target: int, most: int) -> int:
    """The number of rows that a distribution is fitted on, at most `most`: all their phasors are in memory."""
    return int(np.clip(_MOST_PHASORS // max(len(features.looks_at(target)), 1), 200, most))


def fit_number_law(measurement: Measurement, domain: Domain, target: int, X: Array, values: Array) -> NumberLaw:
    """The distribution of the number in column `target` given the others; deterministic.

    X       (n, d) encoded rows of equal weight, drawn from a mixture that fits the whole table.
    values  (m,) of the number, drawn from it too.
    Errors  ValueError where the number has one value, or the other columns too many levels.
    """
    bins = Bins.of(values, domain.columns[target])  # type: ignore[arg-type]
    most = _MOST_NUMBERS // max(bins.scores.shape[1], 1)
    misfit = _PhasorMisfit(measurement, target, X, bins)
    family = fit_family(RowFunctions.of(domain, target, X, most), bins.scores, np.log(bins.shares), X, misfit, _RULES)
    return NumberLaw(bins, family, family.misfit / max(2 * len(misfit.measured), 1))


class _PhasorMisfit:
    """½‖μ − y‖²/error² − ½ (1/n²) Σ‖m_i‖²/error², m_i the mean phasor of row i."""

    def __init__(self, measurement: Measurement, target: int, X: Array, bins: Bins) -> None:
        features: Any = measurement.feature_map
        looks, n = features.looks_at(target), len(X)
        phases = np.zeros((n, len(looks)))
        for j in range(X.shape[1]):
            if j != target:
                phases += features.column_phases(j, X[:, j], looks)
        self.scores = bins.scores
        self.of_rows, self.of_bins = unit_phasors(phases), bins.phasors(features, target, looks)
        self.measured = as_phasors(measurement.vector, features)[looks].astype(np.complex64)
        noise = features.n_frequencies * (measurement.noise_scale / features.norm_bound) ** 2
        rows = _ALONG * (1 / measurement.n_rows + 1 / n) / 2  # the table's, and these
        self.error2 = noise + rows  # of a real part
        self.gram = (self.of_bins @ self.of_bins.conj().T).real.astype(float)

    def value(self, pi: Array) -> tuple[float, Array]:
        by_bin = (pi / len(pi)).astype(np.complex64).T @ self.of_rows
        residual = (by_bin * self.of_bins).sum(axis=0) - self.measured
        square = float((residual.real**2 + residual.imag**2).sum(dtype=float))
        spread = float(((pi @ self.gram) * pi).sum()) / len(pi) ** 2
        return 0.5 * (square - spread) / self.error2, residual

    def linearise(self, pi: Array, psi: Array, residual: Array) -> tuple[Array, Array]:
        n, psi32 = len(pi), psi.astype(np.float32)
        slopes, correction = [], []
        mean_scores = pi @ self.scores
        for r, scores in enumerate(self.scores.T):
            change = pi * (scores - mean_scores[:, [r]]) / n
            by_row = (change.astype(np.complex64) @ self.of_bins) * self.of_rows
            slopes.append(np.hstack([psi32.T @ np.ascontiguousarray(part) for part in (by_row.real, by_row.imag)]))
            correction.append(psi.T @ ((change @ self.gram) * pi).sum(axis=1) / n)
        J = np.vstack(slopes).astype(float) / np.sqrt(self.error2)  # (RP, 2r) of the residual's parts
        parts = np.concatenate([residual.real, residual.imag]).astype(float) / np.sqrt(self.error2)
        return J @ J.T, J @ parts - np.concatenate(correction) / self.error2
