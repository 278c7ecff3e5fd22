"""Forecast the scores of a release before anything is spent: on tables from public facts, or like a public sample.

What `release-side quality` would show is the release's k-marginal score against the private table, and the share of the table's
rows whose simple random sample scores as much. Noise, drawing and pairs that are not measured cost the more, the less even the
table's cells are and the more its columns depend on each other, which only the table knows. So the forecast is a range over tables
of weak to strong dependence; with a public sample of a like population it is a range over draws of the noise.

Three things save time. Of rows that are drawn from chosen pairs only the cells are made, and latent classes do not smooth tables
that are seen well: with a sample the difference is measured once for each ε and added. Tables and releases have at most 20,000
rows, while the noise is that of N. Points of other methods are fitted with a tenth of the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import ChosenMargins
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.representation.by_method import KEEPS_POINTS, REPRESENT
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.tables.score_tables import ScoreTables, k_marginal, shares_of
from kmeanalyst.representation.tables.sub_sample import SampleScores
from kmeanalyst.representation.wanted import Effort
from kmeanalyst.representation.weights.reweight import nearest_probability_weights
from release_side.door.mechanism import RehearsalNoise
from release_side.errors import PublishError
from release_side.publishing.made_tables import made_rows
from release_side.publishing.methods import MeanMethod
from release_side.publishing.simulated import SimulatedDoor, SyntheticRows

TABLES = (8, 32)  # fewest and most that are made and published for each ε; draws of rows and noise with a public sample
FEWEST_ROWS = 100  # of a public sample
MOST_ROWS = 20_000  # of a table, and of a release, that is scored
_RANGE = (0.1, 0.9)
_PART = 4  # a public sample smaller than the table is scored once more with this part of its rows
_EFFORT = 0.1
_CELLS = 2 * 10**6  # rows times pairs of columns, of all tables: about a second a table where the fewest are made


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Publishes synthetic tables by rehearsal and scores them.

    method      the release method with its choices.
    mechanism   ε and a seed → the noise of a rehearsal.
    tables      which tables of cells a score compares.
    size        of the private table.
    sample      encoded rows (m, width) of a public sample of a like population; None: tables from public facts.
    Errors      PublishError for a sample of fewer than 100 rows.
    """

    method: MeanMethod
    mechanism: Callable[[float, int], RehearsalNoise]
    tables: ScoreTables
    size: PopulationSize
    sample: Array | None = None

    def __post_init__(self) -> None:
        if self.sample is not None and len(self.sample) < FEWEST_ROWS:
            raise PublishError(
                f"the public sample has {len(self.sample)} rows, and a forecast needs at least {FEWEST_ROWS}: fewer say too "
                "little of how columns depend on each other. Pass more rows, or leave the sample out."
            )

    def forecast(self, epsilons: Sequence[float], on_progress: Progress) -> list[dict[str, float]]:
        """For each ε low (10 %), mean and high (90 %) of both scores; NaN where no two columns can be compared.

        Keys   k_marginal_low, k_marginal, k_marginal_high (0 to 1000); sample_share_low, sample_share, sample_share_high (0 to 1).
        """
        compared = self.tables.compared
        if compared.start == compared.stop:
            return [_range([]) for _ in epsilons]
        found: list[list[tuple[float, float]]] = [[] for _ in epsilons]
        corrections = [0.0] * len(epsilons)
        runs = self._runs()
        for number in range(runs):
            rows = self._rows(number, runs)
            for e, epsilon in enumerate(epsilons):
                noise = self.mechanism(epsilon, number)
                measurement = self._measured(rows, noise)
                score = self._score(rows, measurement)
                if self.sample is not None:
                    if not number:
                        corrections[e] = self._smoothed(rows, measurement, score)
                    score += corrections[e] + self._beyond(rows, noise, score)
                found[e].append((score, self._sample_share(rows, score)))
                on_progress("forecasting scores", (number + (e + 1) / len(epsilons)) / runs)
        return [_range(each) for each in found]

    def _runs(self) -> int:
        """How many tables: more where each takes less time, as noise differs most between releases of small tables."""
        fewest, most = TABLES
        pairs = max(len(self.tables.pairs), 1)
        return int(np.clip(_CELLS // (pairs * min(self.size.count, MOST_ROWS)), fewest, most))

    def _rows(self, number: int, of: int) -> SyntheticRows:
        """A table from public facts; or as many of the sample's rows as the private table has, or all of them."""
        n, rng = min(self.size.count, MOST_ROWS), np.random.default_rng(number)
        if self.sample is None:
            return SyntheticRows(made_rows(self.tables.domain, n, number, of, rng, self.method.public))
        return SyntheticRows(self.sample[rng.permutation(len(self.sample))[:n]])

    def _measured(self, rows: SyntheticRows, noise: RehearsalNoise) -> Measurement:
        """The measurement of a table of N rows with these rows' shares."""
        door: Any = SimulatedDoor(rows, noise, self.size)
        return self.method.measure(door, self.tables.domain, self.size).rounds[-1]

    def _score(self, rows: SyntheticRows, measurement: Measurement, *, cells_only: bool = True) -> float:
        """The k-marginal of a release with this measurement against the rows, its points weighing what they would weigh there."""
        domain, method, tables = self.tables.domain, self.method, self.tables
        wanted = method.wanted(measurement, domain)
        if method.name not in KEEPS_POINTS:
            wanted = replace(wanted, n_points=min(wanted.n_points, MOST_ROWS), cells_only=cells_only)
        if not _of_chosen_pairs(measurement):
            wanted = replace(wanted, effort=Effort(_EFFORT * wanted.effort.share))
        points, weights = REPRESENT[method.name](measurement, domain, wanted, None)
        weights = nearest_probability_weights(measurement.feature_map.kernel, points, weights).clip(0)
        score = k_marginal(
            tables, shares_of(tables, tables.counts(rows.rows)), shares_of(tables, tables.counts(points, weights))
        )
        assert score is not None
        return score

    def _smoothed(self, rows: SyntheticRows, measurement: Measurement, score: float) -> float:
        """What smoothing by latent classes, which `publish` does, adds to the score."""
        if not _of_chosen_pairs(measurement):
            return 0.0
        return self._score(rows, measurement, cells_only=False) - score

    def _beyond(self, rows: SyntheticRows, noise: RehearsalNoise, score: float) -> float:
        """What would be added to the score if the sample had as many rows as the private table.

        Cells of fewer rows are rougher, by c/√m in a score: c/√m is the difference to the score of a fourth of the rows.
        """
        m = len(rows.rows)
        if m >= min(self.size.count, MOST_ROWS):
            return 0.0
        part = SyntheticRows(rows.rows[: m // _PART])
        return (score - self._score(part, self._measured(part, noise))) * (1 - math.sqrt(m / self.size.count))

    def _sample_share(self, rows: SyntheticRows, score: float) -> float:
        """The share of the table's rows whose simple random sample has this expected score."""
        scale = self.size.count / len(rows.rows)
        samples = SampleScores.of(self.tables, np.rint(self.tables.counts(rows.rows) * scale).astype(np.int64))
        assert samples is not None
        return samples.rows_of(score) / samples.n_rows


def _of_chosen_pairs(measurement: Measurement) -> bool:
    return isinstance(measurement.feature_map.kernel, ChosenMargins)


def _range(scores: list[tuple[float, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for k, name in enumerate(("k_marginal", "sample_share")):
        values = [each[k] for each in scores] or [math.nan]
        low, high = np.quantile(values, _RANGE).tolist()
        found |= {f"{name}_low": low, name: float(np.mean(values)), f"{name}_high": high}
    return found
