"""The distribution of a column within one component of a mixture, and its characteristic function.

Each has E e^{ip}, the mean of a random Fourier feature's phasor (a complex number for each cosine and sine), in closed form, its
slopes in the parameters, and draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.special import ndtri, softmax

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number


def as_phasors(mean: Array, features: RandomFourier) -> Array:
    """(F,) of a mean feature → (R,) complex, in units of one frequency's norm."""
    R = features.n_frequencies
    return (mean[:R] + 1j * mean[R:]) / features.size


def from_phasors(phasors: Array, features: RandomFourier) -> Array:
    """(R,) complex → (F,): the inverse of `as_phasors`."""
    return np.concatenate([phasors.real, phasors.imag]) * features.size


def unit_phasors(phase: Array, log_size: Array | None = None) -> Array:
    """e^{ip} times e^{log size}, complex64; the phase is reduced in double precision first."""
    reduced = (phase - 2 * np.pi * np.rint(phase / (2 * np.pi))).astype(np.float32)
    out = np.empty(phase.shape, dtype=np.complex64)
    np.cos(reduced, out=out.real)
    np.sin(reduced, out=out.imag)
    if log_size is not None:
        out *= np.exp(log_size.astype(np.float32))
    return out


_FEW_VALUES = 12  # an integer column with at most this many values has a probability for each
_NARROWEST = 0.03  # standard deviation of a component, in lengthscales of the features
_LOGIT = 8.0
_TINY = 1e-12
_FLAT, _ABOUT_HALF = (0.0, np.inf), (-0.5, 1.0)  # priors of a mean; of a log standard deviation, in lengthscales
_NORMAL_MEDIAN = 0.6745  # median absolute value of a standard normal variable

Prior = list[tuple[float, float]]  # centre and standard deviation of each parameter; infinite: flat within the bounds


class Law(ABC):
    """The distribution of some columns within the components (abstract). Parameters are (K, p) for K components."""

    looks: Array  # indices of the frequencies that depend on these columns
    width: int  # p
    n_columns: int = 1
    bounds: list[tuple[float, float]]  # of the p parameters
    prior: Prior  # of the parameters
    free: int  # identifiable parameters
    log_sds: slice = slice(0, 0)  # the parameters that are log standard deviations
    extents: Array = np.zeros(0)  # of the columns those belong to, in lengthscales

    @abstractmethod
    def characteristic(self, parameters: Array) -> Array:
        """E e^{ip} under this distribution, complex (K, r), on the frequencies `looks`."""

    @abstractmethod
    def slopes(self, parameters: Array, chi: Array, base: Array) -> Array:
        """Re Σ_r base · ∂ log χ, (K, p)."""

    @abstractmethod
    def around(self, points: Array, weights: Array) -> Array:
        """Parameters (p,) of one component that fits weighted points (n, d)."""

    @abstractmethod
    def draw(self, parameters: Array, uniforms: Array) -> tuple[list[int], Array]:
        """Columns, and a value of each for every row: parameters (n, p), uniforms (n, 2, columns) → (n, columns)."""


class Normals(Law):
    """Normal columns of numbers that are never missing: mean and log standard deviation of each, in lengthscales."""

    def __init__(self, features: RandomFourier, domain: Domain, columns: list[int], units: Array) -> None:
        self.columns, self.domain = columns, domain
        linear = features.linear[columns]
        self.unit = units[columns]
        self.frequencies = linear * self.unit[:, None]
        self.looks = np.flatnonzero((linear != 0).any(axis=0))
        self.frequencies = self.frequencies[:, self.looks].T
        self.squares = self.frequencies**2
        self._frequencies32, self._squares32 = (a.astype(np.float32) for a in (self.frequencies, self.squares))
        self.width, self.n_columns = 2 * len(columns), len(columns)
        ends = [np.array(domain.columns[j].bounds) / u for j, u in zip(columns, self.unit, strict=True)]
        self.free = self.width
        self.prior = [_FLAT] * len(columns) + [_ABOUT_HALF] * len(columns)
        self.log_sds, self.extents = slice(len(columns), self.width), np.array([high - low for low, high in ends])
        self.bounds = [(low, high) for low, high in ends] + [_log_sd_bounds(high - low) for low, high in ends]

    def _split(self, parameters: Array) -> tuple[Array, Array]:
        n = len(self.columns)
        return parameters[:, :n], np.exp(2 * parameters[:, n:])

    def characteristic(self, parameters: Array) -> Array:
        mean, variance = self._split(parameters)
        return unit_phasors(mean @ self.frequencies.T, -0.5 * (variance @ self.squares.T))

    def slopes(self, parameters: Array, chi: Array, base: Array) -> Array:
        _, variance = self._split(parameters)
        return np.hstack([-(base.imag @ self._frequencies32), -(base.real @ self._squares32) * variance])

    def around(self, points: Array, weights: Array) -> Array:
        cells = points[:, self.columns] / self.unit
        mean = weights @ cells
        return np.concatenate([mean, 0.5 * np.log(weights @ (cells - mean) ** 2 + 0.01)])

    def draw(self, parameters: Array, uniforms: Array) -> tuple[list[int], Array]:
        mean, variance = self._split(parameters)
        values = (mean + np.sqrt(variance) * ndtri(uniforms[:, 0])) * self.unit
        return self.columns, _rounded(self.domain, self.columns, values)


class NormalOrSpecial(Law):
    """A column of numbers with atoms and a missing cell: mean, log standard deviation, and log odds of each special value."""

    def __init__(self, features: RandomFourier, domain: Domain, column: int, unit: float) -> None:
        self.column, self.domain, self.unit = column, domain, unit
        kind = domain.columns[column]
        assert isinstance(kind, Number)
        self.special = kind.with_missing(kind.atom_codes)
        self.looks = features.looks_at(column)
        self.frequencies = features.linear[column, self.looks] * unit
        self.phasors = unit_phasors(features.column_phases(column, self.special, self.looks))
        low, high = np.array(kind.bounds) / unit
        self.width = self.free = 2 + len(self.special)
        self.log_sds, self.extents = slice(1, 2), np.array([high - low])
        self.prior = [_FLAT, _ABOUT_HALF] + [(-1.0, 2.0)] * len(self.special)
        self.bounds = [(low, high), _log_sd_bounds(high - low)] + [(-_LOGIT, _LOGIT)] * len(self.special)

    def _probabilities(self, parameters: Array) -> Array:
        return softmax(np.pad(parameters[:, 2:], ((0, 0), (1, 0))), axis=1)

    def _ordinary(self, parameters: Array) -> Array:
        mean, variance = parameters[:, :1], np.exp(2 * parameters[:, 1:2])
        return unit_phasors(mean * self.frequencies, -0.5 * variance * self.frequencies**2)

    def characteristic(self, parameters: Array) -> Array:
        p = self._probabilities(parameters).astype(np.float32)
        return p[:, :1] * self._ordinary(parameters) + p[:, 1:] @ self.phasors

    def slopes(self, parameters: Array, chi: Array, base: Array) -> Array:
        p, variance = self._probabilities(parameters), np.exp(2 * parameters[:, 1])
        base = base * _inverse(chi)
        ordinary = base * self._ordinary(parameters) * p[:, :1].astype(np.float32)
        total = (base * chi).real.sum(axis=1)
        by_mean = -(ordinary.imag @ self.frequencies)
        by_log_sd = -(ordinary.real @ self.frequencies**2) * variance
        by_log_odds = p[:, 1:] * ((base @ self.phasors.T).real - total[:, None])
        return np.hstack([by_mean[:, None], by_log_sd[:, None], by_log_odds])

    def around(self, points: Array, weights: Array) -> Array:
        cells = points[:, self.column]
        same = (cells[:, None] == self.special) | (np.isnan(cells[:, None]) & np.isnan(self.special))
        shares, ordinary = weights @ same, ~same.any(axis=1)
        rest = float(weights @ ordinary)
        if rest <= 0:
            return np.concatenate([[np.mean(self.bounds[0]), 0.0], np.log(shares + 0.01) - np.log(0.01)])
        mean = weights[ordinary] @ cells[ordinary] / rest / self.unit
        variance = weights[ordinary] @ (cells[ordinary] / self.unit - mean) ** 2 / rest
        return np.concatenate([[mean, 0.5 * np.log(variance + 0.01)], np.log((shares + 0.01) / (rest + 0.01))])

    def draw(self, parameters: Array, uniforms: Array) -> tuple[list[int], Array]:
        values = (parameters[:, 0] + np.exp(parameters[:, 1]) * ndtri(uniforms[:, 0, 0])) * self.unit
        values = _rounded(self.domain, [self.column], values[:, None])
        outcome = (uniforms[:, 1] > np.cumsum(self._probabilities(parameters), axis=1)).sum(axis=1)
        which = np.flatnonzero(outcome)
        values[which, 0] = self.special[np.minimum(outcome[which] - 1, len(self.special) - 1)]
        return [self.column], values


class Probabilities(Law):
    """A probability for each value of a column that has few (levels, a short range of integers), missing included."""

    def __init__(self, features: RandomFourier, column: int, values: Array) -> None:
        self.column, self.values = column, values
        self.looks = features.looks_at(column)
        self.phasors = unit_phasors(features.column_phases(column, values, self.looks))
        self.width, self.free, self.prior = len(values), len(values) - 1, [(0.0, 2.0)] * len(values)
        self.bounds = [(-_LOGIT, _LOGIT)] * self.width

    def characteristic(self, parameters: Array) -> Array:
        return softmax(parameters, axis=1).astype(np.float32) @ self.phasors

    def slopes(self, parameters: Array, chi: Array, base: Array) -> Array:
        p = softmax(parameters, axis=1)
        pull = (base * _inverse(chi) @ self.phasors.T).real
        return p * (pull - (p * pull).sum(axis=1, keepdims=True))

    def around(self, points: Array, weights: Array) -> Array:
        cells = points[:, [self.column]]
        same = (cells == self.values) | (np.isnan(cells) & np.isnan(self.values))
        return np.log(weights @ same + 0.1 / self.width)

    def draw(self, parameters: Array, uniforms: Array) -> tuple[list[int], Array]:
        ends = np.cumsum(softmax(parameters, axis=1), axis=1)
        outcome = (uniforms[:, :1, 0] > ends).sum(axis=1)
        return [self.column], self.values[np.minimum(outcome, self.width - 1)][:, None]


def _inverse(chi: Array) -> Array:
    return np.conj(chi) / (chi.real**2 + chi.imag**2 + _TINY)


def lengthscales(linear: Array) -> Array:
    """(columns,) the lengthscale of the normal frequencies that depend on each column; 1 without any.

    From their median size, which is robust to heavy tails and mixtures of scales.
    """
    sizes = [np.abs(row[row != 0]) for row in linear]
    return np.array([_NORMAL_MEDIAN / np.median(size) if len(size) else 1.0 for size in sizes])


def _log_sd_bounds(extent: float) -> tuple[float, float]:
    low = np.log(min(_NARROWEST, extent / 100))
    return float(low), float(max(np.log(extent / 3), low + 1))


def _rounded(domain: Domain, columns: list[int], values: Array) -> Array:
    for i, j in enumerate(columns):
        values[:, i] = domain.columns[j].wrap(values[:, i])  # type: ignore[attr-defined]
    return values


def _few_values(column: Column) -> Array | None:
    if isinstance(column, Categorical):
        return np.arange(len(column.levels), dtype=float)
    if isinstance(column, Number) and column.spacing and np.ptp(column.bounds) < _FEW_VALUES * column.spacing:
        return column.grid(_FEW_VALUES + 1, np.random.default_rng(0))
    return None


def laws_for(features: RandomFourier, domain: Domain, units: Array) -> list[Law]:
    """The distributions of a component, by the kinds of the columns; units (columns,) are the columns' lengthscales."""
    laws: list[Law] = []
    plain: list[int] = []
    for j, column in enumerate(domain.columns):
        table = features.tables.get(j)
        few = _few_values(column)
        if few is None and table is not None and len(table) > 1:  # codes of numbers, as an indicator kernel reads them
            few = np.arange(len(table) - 1, dtype=float)
            few = np.unique(column.wrap(few))  # type: ignore[attr-defined]
        if few is not None:
            laws.append(Probabilities(features, j, column.with_missing(few)))
        elif column.missing or column.atoms:  # type: ignore[attr-defined]
            laws.append(NormalOrSpecial(features, domain, j, float(units[j])))
        else:
            plain.append(j)
    return [Normals(features, domain, plain, units), *laws] if plain else laws
