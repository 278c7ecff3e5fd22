"""The door as methods see it: private rows behind three calls, one of which may be made once.

A method gets a `Door` and no rows. `mean` passes them to `private_mean`, `rounds` to `private_tables`, `draw` to
`sample_database`; each call closes the door and removes its rows, so that a method cannot spend a second time what was
counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.progress import Progress
from release_side.door.exact_sums import PrivateRows
from release_side.door.exponential_mechanism import ExponentialMechanism, MultisetSampler, RehearsedExponential, sample_database
from release_side.door.mechanism import Noise, RehearsalNoise
from release_side.door.private_mean import private_mean
from release_side.door.private_tables import TableRounds, count_tables

N = TypeVar("N", Noise | RehearsalNoise, ExponentialMechanism | RehearsedExponential)


@dataclass(eq=False, repr=False)
class Door(Generic[N]):
    """Private rows, the noise for them, and what to do just before it is drawn.

    rows          pieces (n_i, d) of the table, encoded and clamped by a Domain, or its units, or parts that workers read;
                  None once the door is closed.
    noise         the noise of the whole release.
    size          how many rows or units there are; public.
    record_spend  called once, just before noise is drawn; an error there means that none is.
    """

    rows: PrivateRows | None
    noise: N
    size: PopulationSize
    record_spend: Callable[[], None] | None = None
    workers: int = 1
    progress: Progress | None = None

    def mean(self: Door[Noise | RehearsalNoise], feature_map: FeatureMap) -> Measurement:
        """The noisy mean feature vector of the rows, by `private_mean`; it spends the whole budget."""
        return private_mean(
            self._take_rows(), feature_map, self.noise, n_rows=self.size.count, workers=self.workers,
            record_spend=self.record_spend, progress=self.progress,
        )  # fmt: skip

    def rounds(self: Door[Noise | RehearsalNoise], tables: CellFeatures, allowances: Sequence[float]) -> TableRounds:
        """Rounds of noisy tables and scores, from one reading of the rows; see `private_tables`.

        tables       every table that a round may ask for.
        allowances   how far a row may move each round, in steps of the grid; they share the whole budget.
        """
        rounds = TableRounds(
            tables, None, self.noise, self.size.count, allowances, self.record_spend, rounded=self.size.unit is not None
        )  # fmt: skip
        rounds.counts = count_tables(
            self._take_rows(), tables, n_rows=self.size.count, workers=self.workers, progress=self.progress
        )  # fmt: skip
        return rounds

    def draw(self: Door[ExponentialMechanism | RehearsedExponential], databases: MultisetSampler) -> Array:
        """Encoded rows (M, d) of a small database near the table, by `sample_database`."""
        return sample_database(
            self._take_rows(), databases,  # type: ignore[arg-type]  # pieces of rows: units are refused for draws
            self.noise, n_rows=self.size.count,
            record_spend=self.record_spend, progress=self.progress,
        )  # fmt: skip

    def _take_rows(self) -> PrivateRows:
        if self.rows is None:
            raise ValueError("the door was used: reading the rows again would be a second spend. Measure once.")
        rows, self.rows = self.rows, None
        return rows
