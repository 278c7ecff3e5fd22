"""The door as a plan sees it: a synthetic population behind it, and the noise of a rehearsal. No private row is read.

The population is made from the domain, or from public rows. It is known, so that errors can be computed in the kernel's distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kmeanalyst.kernels import Kernel, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.measurement import GRID, Measurement, feature_mean, grid_sensitivity, mean_unit
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import draw_kept
from kmeanalyst.releases.statement import PopulationSize
from release_side.choices.options import public_generator
from release_side.door.mechanism import RehearsalNoise
from release_side.door.private_tables import TableRounds

_CLUSTERS = 5
_CENTRES = (0.1, 0.9)  # range of cluster centres in a column of numbers, as fractions of the column's range
_SPREADS = (0.02, 0.1)  # range of a cluster's standard deviation, likewise
_ON_ATOMS = 0.3  # share of cells on atoms, in a column that declares atoms
_MISSING = 0.1  # share of missing cells, in a column that allows them
_SYNTHETIC_ROWS = (1000, 20_000)  # fewest and most
_SYNTHETIC_WORK = 1.2e9  # kernel entries times passes for the population's squared norm: a few seconds
_PUBLIC_ROWS = 3000  # most public rows from which a synthetic population is made
_TRIED = 5  # times as many rows are made where a domain has rules
_FEWEST_KEPT = 0.2  # of the rows wanted: how many of those made have to keep the rules
_ALIKE = 0.08  # share of the public rows that count as neighbours of one of them


@dataclass(frozen=True, eq=False)
class SyntheticRows:
    """Rows made from public facts: (S, width) encoded, each of the same mass."""

    rows: Array

    def mean_feature(self, feature_map: FeatureMap) -> Array:
        """(F,) the mean feature vector of the rows; computed once for each map."""
        if feature_map not in self._means:
            self._means[feature_map] = feature_mean(feature_map, self.rows)
        return self._means[feature_map]

    @cached_property
    def _means(self) -> dict[FeatureMap, Array]:
        return {}


@dataclass(frozen=True, eq=False)
class SimulatedDoor:
    """A door for methods with a synthetic population behind it, measured with the noise of a rehearsal."""

    population: SyntheticRows
    noise: RehearsalNoise
    size: PopulationSize

    def mean(self, feature_map: FeatureMap) -> Measurement:
        """The measurement of a table of this size with the population's mean feature, and noise of the same scale."""
        sensitivity = grid_sensitivity(feature_map, self.noise.name)
        unit = mean_unit(n_rows=self.size.count, feature_map=feature_map)
        exact_sum = np.rint(self.population.mean_feature(feature_map) / unit).astype(np.int64)
        return Measurement.from_sum(
            self.noise.add_to(exact_sum, sensitivity=sensitivity), grid_scale=self.noise.deviation(sensitivity),
            n_rows=self.size.count, feature_map=feature_map, noise_law=self.noise.name,
        )  # fmt: skip

    def rounds(self, tables: CellFeatures, allowances: Sequence[float]) -> TableRounds:
        """Rounds from the counts of a table of this size with the population's shares."""
        shares = self.population.mean_feature(tables) / np.repeat(tables.heights, np.diff(tables.starts))
        counts = np.rint(shares * self.size.count).astype(np.int64) * GRID
        return TableRounds(tables, counts, self.noise, self.size.count, allowances, rounded=self.size.unit is not None)


# ---------------------------------------------------------------------- the synthetic population


@dataclass(frozen=True, eq=False)
class SyntheticPopulation(SyntheticRows):
    """A population made from public facts, with its kernel mean.

    embedding      the kernel mean of its rows.
    squared_norm   of the embedding.
    """

    embedding: KernelMean
    squared_norm: float

    @classmethod
    def of(cls, domain: Domain, kernel: Kernel, size: PopulationSize, *, public: Array | None) -> SyntheticPopulation:
        """As many rows as the table has, within limits on the cost of the kernel's double sum over them."""
        fewest, most = _SYNTHETIC_ROWS
        most = int(np.clip(math.sqrt(_SYNTHETIC_WORK / kernel_work(kernel, domain.width)), fewest, most))
        rng = public_generator("stand-in", table_kernel(domain), domain, 0)  # the same for all kernels
        n = int(np.clip(size.count, fewest, most))
        tried = n * (_TRIED if domain.rules else 1)
        rows = clustered_rows(domain, tried, rng) if public is None else bootstrap_like(public, domain, kernel, tried, rng)
        rows = kept_among(domain, rows, n, rng)
        embedding = KernelMean(kernel, rows)
        return cls(rows, embedding, embedding.squared_norm())

    def distance(self, release: Release) -> float:
        """RKHS distance of the release's weighted points from the population."""
        used = release.weights != 0
        points = KernelMean(self.embedding.kernel, release.encoded_points[used], release.weights[used])
        square = points.squared_norm() - 2 * points.inner(self.embedding) + self.squared_norm
        return math.sqrt(max(0.0, square))

    def sampling_error(self, size: PopulationSize) -> float:
        """Root mean square RKHS distance of a table of this size from the population it is drawn from."""
        diagonal = float(self.embedding.kernel.diagonal(self.rows).mean())
        return math.sqrt(max(0.0, diagonal - self.squared_norm) / size.count)


def kept_among(domain: Domain, rows: Array, size: int, rng: np.random.Generator) -> Array:
    """(size, d) of encoded rows those that keep the domain's rules, derived cells computed: some several times where few do.

    Where next to none does, rows drawn evenly from those of the domain that keep them; where none is found, and without rules, the
    rows as they are.
    """
    if not domain.rules:
        return rows
    rules = rules_of(domain)
    rows = rules.with_derived(rows)
    kept = rows[~rules.broken(rows)]
    kept = kept if len(kept) > _FEWEST_KEPT * size else np.concatenate([kept, draw_kept(domain, size, rng)])
    if not len(kept):
        return rows[:size]
    return kept[:size] if len(kept) >= size else kept[rng.choice(len(kept), size)]


def clustered_rows(domain: Domain, size: int, rng: np.random.Generator) -> Array:
    """(size, d) encoded rows in a few clusters, wide and narrow, spread over the whole domain."""
    cluster = rng.choice(_CLUSTERS, size, p=rng.dirichlet(np.full(_CLUSTERS, 2.0)))
    return np.column_stack([_cells(column, cluster, rng) for column in domain.columns])


def _cells(column: Column, cluster: Array, rng: np.random.Generator) -> Array:
    size = len(cluster)
    if isinstance(column, Number):
        low, high = column.bounds
        centres = low + rng.uniform(*_CENTRES, _CLUSTERS) * (high - low)
        spreads = rng.uniform(*_SPREADS, _CLUSTERS) * (high - low)
        cells = column.rounded(np.clip(centres[cluster] + spreads[cluster] * rng.standard_normal(size), low, high))
        if column.atoms:
            cells = np.where(rng.random(size) < _ON_ATOMS, rng.choice(_atoms(column), size), cells)
    else:
        assert isinstance(column, Categorical)
        shares = rng.dirichlet(np.ones(len(column.levels)), _CLUSTERS).cumsum(axis=1)
        drawn, cells = rng.random(size), np.empty(size)
        for own in range(_CLUSTERS):
            cells[cluster == own] = np.searchsorted(shares[own, :-1], drawn[cluster == own])
    return np.where(rng.random(size) < _MISSING, np.nan, cells) if column.missing else cells


def bootstrap_like(public: Array, domain: Domain, kernel: Kernel, size: int, rng: np.random.Generator) -> Array:
    """(size, d) encoded rows of a population that the public rows could be a sample of.

    The Bayesian bootstrap (Rubin 1981): unequal masses on the public rows, as far from equal ones as a population
    is from its sample. Each row then moves towards or away from a similar one, so that the population is not just the
    public rows. A level is taken from either row with probability ½. A number moves by a·(difference), with a uniform on
    (−½, 1): because E a = E a², two independent numbers of one distribution give a third of the same mean and variance.
    """
    if len(public) > _PUBLIC_ROWS:
        public = public[rng.choice(len(public), _PUBLIC_ROWS, replace=False)]
    alike = np.argsort(-kernel.gram(public, public), axis=1)[:, : math.ceil(_ALIKE * len(public))]
    home = rng.choice(len(public), size, p=rng.dirichlet(np.ones(len(public))))
    other = alike[home, rng.integers(0, alike.shape[1], size)]
    rows = np.where((rng.random((size, len(domain))) < 0.5)[:, domain.column_of], public[home], public[other])
    for j, column in enumerate(domain.columns):
        if isinstance(column, Number):
            moved = public[home, j] + rng.uniform(-0.5, 1, size) * (public[other, j] - public[home, j])
            atoms = _atoms(column)
            held = np.isnan(moved) | np.isin(public[home, j], atoms) | np.isin(public[other, j], atoms)
            rows[:, j] = np.where(held, rows[:, j], column.rounded(np.clip(moved, *column.bounds)))
    return rows


def _atoms(column: Number) -> Array:
    return column.encode(list(column.atoms))[0] if column.atoms else np.zeros(0)
