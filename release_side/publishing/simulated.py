"""The door as a plan sees it: synthetic rows behind it, and the noise of a rehearsal. No private row is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.releases.measurement import GRID, Measurement, feature_mean, grid_sensitivity, mean_unit
from kmeanalyst.releases.population_size import PopulationSize
from release_side.door.mechanism import RehearsalNoise
from release_side.door.private_tables import TableRounds


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

    def mean(self, feature_map: FeatureMap, share: float = 1.0) -> Measurement:
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
