"""A noisy mean with the distribution of its noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import issparse

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.cells import summed_in
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures, Margins
from kmeanalyst.releases.statement import GAUSSIAN, is_pure

GRID = 2**28  # one unit of a feature bounded by 1, in steps of the integer grid: 64 bits hold sums of 2^34 rows
SHRINK = 1 - 2.0**-18  # features are shrunk by this before rounding, so that rounding cannot exceed the bound
_MOST_DEVIATIONS = 40.0  # of noise, beyond what a score can be without it: none has ever been drawn so far out
_LEAST_NOISE = 1e-9  # of a cell, relative to the largest: less is beyond what a solver can tell from none


@dataclass(frozen=True, eq=False)
class Scores:
    """How far the tables of all pairs of columns were from public guesses: noisy L1 distances, which choose what is measured.

    noisy   (P,) int64: Σ_c |step · n_c − guess_c| + noise, n_c the rows in cell c. Pairs (i, j), i < j, in the order
            of i and then of j.
    step    what a row adds to its cell.
    """

    noisy: Array
    step: int


def score_sensitivity(cells: Sequence[int], step: int) -> float:
    """The most that replacing one row, or unit, changes scores, in L2 and in steps of the grid.

    The score of a table moves by at most 2 · step, and where units' averages are rounded by 1 more for each of its cells.

    >>> score_sensitivity([4, 4], step=1000)
    2834.0839...
    """
    return math.sqrt(math.fsum((2 * step + size) ** 2 for size in cells))


@dataclass(frozen=True)
class Choice:
    """A round in which the exponential mechanism drew the pairs of columns to measure, by their exact scores.

    count   how many pairs were drawn, one after the other.
    step    of the scores, as in `Scores`.
    scale   of the Gumbel noise on a score, in the same units: each draw has P(pair) ∝ exp(score/scale), less a public cost.
    """

    count: int
    step: int
    scale: float


@dataclass(frozen=True, eq=False)
class DrawnSets:
    """Larger sets of columns than pairs: the exponential mechanism drew some, and noisy scores said which to measure.

    sets     those that were scored, each i < j < …: the drawn ones, the first draw first, then others whatever the rows are, which
             show what usual sets are like; those that were measured are in the kernel.
    largest  cells of the largest table that could be drawn.
    draws    the round of draws.
    scores   the round after it: a number for each of the sets.
    """

    sets: tuple[tuple[int, ...], ...]
    largest: int
    draws: Choice
    scores: Scores

    def fits(self, kernel: ChosenMargins) -> bool:
        """Whether these are different sets of the kernel's columns, of tables no larger than the largest, its own among them."""
        columns, sets = range(len(kernel.edges)), set(self.sets)
        if not {own for own in kernel.chosen if len(own) > 2} <= sets:
            return False
        return len(sets) == len(self.sets) >= self.draws.count > 0 and all(
            len(own) > 2 and list(own) == sorted(set(own) & set(columns)) and cells <= self.largest
            for own, cells in zip(self.sets, self.cells(kernel), strict=True)
        )

    def cells(self, kernel: Margins) -> list[int]:
        """Of the table of each of the sets."""
        return [math.prod(kernel.sizes[j] for j in own if 0 <= j < len(kernel.sizes)) for own in self.sets]


def choice_constant(cells: Sequence[int], step: int, count: int, deviation: float) -> float:
    """c such that a choice of `count` tables with noise of scale b is worth a vector that moves by c / b, behind Gaussian noise.

    A draw whose scores move by at most Δ has privacy losses in an interval of length η = 2Δ/b. It is then μ-Gaussian
    differentially private with μ = √(2π)/4 · η, and so are `count` draws with √count times as much.

    cells       of each table that could be drawn, or of more.
    deviation   standard deviation of that Gaussian noise, in steps of the grid; c / b has the same unit.
    Source      PROOF.md §12.

    >>> choice_constant([4, 4], step=1000, count=1, deviation=1.0)
    2511.6...
    """
    return math.sqrt(2 * math.pi * count) / 2 * (2 * step + max(cells)) * deviation


def cells_of_all_pairs(kernel: Margins) -> list[int]:
    """The number of cells of each pair's table, in the order of `Scores`."""
    return [a * b for a, b in combinations(kernel.sizes, 2)]


class MeasuredTable(NamedTuple):
    """Noisy shares (a, b, …) of cells of some columns, and the variances of their noise.

    >>> next(counted.measurement.tables())._fields
    ('columns', 'shares', 'variances')
    """

    columns: tuple[int, ...]
    shares: Array
    variances: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """The private mean: mean of φ over the table's rows (or over units), plus noise of a known distribution on each coordinate.

    vector        (F,) float64, in units of the mean.
    noise_scale   standard deviation of the noise on each coordinate, in the same units.
    noise_law     one of statement.NOISE_LAWS, "discrete gaussian" or "discrete laplace": independent on each coordinate,
                  indistinguishable from the continuous distribution at this scale.
    n_rows        N, the number of rows averaged; of units where the statement protects units, each with its rows' average.
    feature_map   φ, of dimension F.
    noisy_sum     (F,) int64: the released integers, of which `vector` is the rescaled reading.
    scores        rounds of scores by which the tables of φ were chosen, with noise of the same deviation on the grid.
    choices       rounds in which the exponential mechanism drew pairs of columns, whose tables are in φ.
    beforehand    pairs of columns whose tables were measured before any score, because a public workload names them.
    drawn         the last rounds but one, in which larger sets of columns were drawn and scored; None without.
    relative_noise   (F,) of tables that others measured with noise by cell, its standard deviations over `noise_scale`: at most 1.

    >>> measurement = release.measurement
    >>> measurement.vector.shape, measurement.noise_law, measurement.sensitivity
    ((1000,), 'discrete gaussian', 0.0003333...)
    >>> round(measurement.grid_sensitivity / 2**28, 3), round(measurement.grid_steps / 2**28, 3), sorted(measurement.to_dict())
    (2.0, 1.0, ['n_rows', 'noise_law', 'noise_scale'])
    >>> measurement.chosen_by_rows, measurement.counted_together(0, 1), measurement.variances.shape
    (False, True, (1000,))
    >>> public = {"n_rows": 6000, "feature_map": measurement.feature_map, "noise_law": measurement.noise_law}
    >>> type(measurement).from_sum(measurement.noisy_sum, grid_scale=1e6, **public).vector.shape
    (1000,)
    """

    vector: Array
    noise_scale: float
    noise_law: str
    n_rows: int
    feature_map: FeatureMap
    noisy_sum: Array
    scores: tuple[Scores, ...] = ()
    choices: tuple[Choice, ...] = ()
    beforehand: tuple[tuple[int, int], ...] = ()
    drawn: DrawnSets | None = None
    relative_noise: Array | None = None

    def __post_init__(self) -> None:
        if self.vector.shape != (self.feature_map.dimension,) or self.noisy_sum.shape != self.vector.shape:
            raise ValueError(
                f"a measurement has one number per feature: {self.feature_map.dimension} features, "
                f"vector {self.vector.shape}, sum {self.noisy_sum.shape}."
            )
        if self.chosen_by_rows or self.beforehand:
            self._check_chosen()
        if not 0 < self.noise_scale < np.inf:
            raise ValueError(f"noise_scale must be positive and finite, got {self.noise_scale!r}.")
        own = self.relative_noise
        if own is not None and not (own.shape == self.vector.shape and (own >= _LEAST_NOISE).all() and (own <= 1).all()):
            raise ValueError("the relative noise has a number from 1e-9 to 1 for each feature. Correct it.")

    def _check_chosen(self) -> None:
        kernel = self.feature_map.kernel
        if not isinstance(kernel, ChosenMargins) or is_pure(self.noise_law):
            raise ValueError("scores and choices go with margins of chosen sets, under Gaussian noise. Leave them out.")
        columns = len(kernel.edges)
        for score in self.scores:
            if score.noisy.shape != (math.comb(columns, 2),) or not 0 < score.step <= GRID:
                raise ValueError("scores have a number for each pair of columns, and a step from 1 to 2^28.")
        for choice in self.choices:
            if not (0 < choice.count <= len(kernel.chosen) and 0 < choice.step <= GRID and 0 < choice.scale < math.inf):
                raise ValueError("a choice is of chosen pairs, with a step from 1 to 2^28 and a positive finite scale.")
        if self.drawn is not None and not self.drawn.fits(kernel):
            raise ValueError(
                "sets that were drawn are different sets of three or more columns, i < j < …, as many as there were draws or "
                "more, in tables with no more cells than the largest. Correct them."
            )
        scores = [(one, cells_of_all_pairs(kernel)) for one in self.scores]
        scores += [(self.drawn.scores, self.drawn.cells(kernel))] if self.drawn is not None else []
        reach = _MOST_DEVIATIONS * self.noise_scale * self.n_rows * self.grid_steps
        for score, cells in scores:
            most = 2 * score.step * self.n_rows + np.array(cells) + reach
            if score.noisy.shape != most.shape or not ((score.noisy > -reach) & (score.noisy < most)).all():
                raise ValueError(
                    "a score is a distance from 0 to twice the step for each row, and noise: one for each table. Correct it."
                )
        if self.beforehand and not (self.chosen_by_rows and set(self.beforehand) <= set(kernel.chosen)):
            raise ValueError(
                "pairs of columns measured before any score are chosen ones, and go with scores or choices. Leave them out."
            )

    @classmethod
    def from_sum(cls, noisy_sum: Array, *, grid_scale: float, n_rows: int, feature_map: FeatureMap, noise_law: str) -> Measurement:
        """Read the released integers in units of the mean.

        noisy_sum    (F,) int64: noisy sum over rows of the shrunk features in steps of the grid.
        grid_scale   standard deviation of the noise in steps of the grid.
        """
        unit = mean_unit(n_rows=n_rows, feature_map=feature_map)
        return cls(
            vector=noisy_sum.astype(np.float64) * unit, noise_scale=grid_scale * unit, noise_law=noise_law, n_rows=n_rows,
            feature_map=feature_map, noisy_sum=noisy_sum,
        )  # fmt: skip

    @property
    def variances(self) -> Array:
        """(F,) variance of the noise on each coordinate."""
        relative = np.ones(len(self.vector)) if self.relative_noise is None else self.relative_noise
        return (self.noise_scale * relative) ** 2

    def with_even_noise(self, values: Any) -> Any:
        """The vector (F,), or features (n, F), with units in which the noise on each coordinate has the deviation `noise_scale`.

        >>> release.measurement.with_even_noise(release.measurement.vector) is release.measurement.vector  # it has that already
        True
        """
        if self.relative_noise is None:
            return values
        return values.multiply(1 / self.relative_noise).tocsr() if issparse(values) else values / self.relative_noise

    def even_features(self, rows: Array) -> Any:
        """Features (n, F) of rows (n, d), encoded, with even noise; of tables sparse.

        >>> release.measurement.even_features(release.encoded_points[:2]).shape
        (2, 1000)
        """
        return self.with_even_noise(self.feature_map.compact(rows))

    def tables(self) -> Iterator[MeasuredTable]:
        """The measured tables of margins but finer ones of one column; sums of crossed finer cells in their columns' own.

        >>> columns, shares, variances = next(counted.measurement.tables())
        >>> columns, shares.shape == variances.shape
        ((0,), True)
        """
        features = self.feature_map
        assert isinstance(features, MarginFeatures)
        kernel, d = features.kernel, len(features.kernel.edges)
        for group in features.groups:
            for table, square, own in zip(group.tables, group.squares, group.ranges, strict=True):
                if len(table) == 1 and table[0] >= d:
                    continue
                both = [v[slice(*own)] / scale for v, scale in ((self.vector, math.sqrt(square)), (self.variances, square))]
                both = [each.reshape([group.sizes[t] for t in table]) for each in both]
                for axis, (t, j) in enumerate(zip(table, columns := kernel.named(table), strict=True)):
                    if t >= d:
                        finer = kernel.finer_tables[t - d][1]
                        both = [summed_in(each, axis, finer, kernel.edges[j]) for each in both]
                yield MeasuredTable(columns, both[0], both[1])

    @property
    def sensitivity(self) -> float:
        """The most that replacing one row (or unit) changes the noiseless vector, in units of the mean: L2, or L1 for Laplace."""
        return self.grid_sensitivity * mean_unit(n_rows=self.n_rows, feature_map=self.feature_map)

    @property
    def grid_sensitivity(self) -> float:
        """The same in steps of the grid: rounds of scores, and choices, add their squares."""
        of_features = grid_sensitivity(self.feature_map, self.noise_law)
        if not self.chosen_by_rows:
            return of_features
        kernel = self.feature_map.kernel
        assert isinstance(kernel, Margins)
        cells = cells_of_all_pairs(kernel)
        deviation = self.noise_scale / mean_unit(n_rows=self.n_rows, feature_map=self.feature_map)
        return math.hypot(
            of_features, *(score_sensitivity(cells, score.step) for score in self.scores),
            *(choice_constant(cells, own.step, own.count, deviation) / own.scale for own in self.choices),
            *self._of_drawn(kernel, deviation),
        )  # fmt: skip

    def _of_drawn(self, kernel: Margins, deviation: float) -> list[float]:
        if self.drawn is None:
            return []
        of, draws = self.drawn, self.drawn.draws
        scored = score_sensitivity(of.cells(kernel), of.scores.step)
        return [scored, choice_constant([of.largest], draws.step, draws.count, deviation) / draws.scale]

    @property
    def chosen_by_rows(self) -> bool:
        """Whether the rows decided which tables were measured, through scores or choices."""
        return bool(self.scores or self.choices or self.drawn)

    def counted_together(self, i: int, j: int) -> bool:
        """Whether features see columns i and j jointly; of margins of chosen sets, whether one with both was chosen."""
        kernel = self.feature_map.kernel
        return not isinstance(kernel, ChosenMargins) or (any({i, j} <= set(each) for each in kernel.counted))

    @property
    def grid_steps(self) -> float:
        """Steps of the grid in 1 / N: the mean's unit is their inverse over N."""
        return 1 / (self.n_rows * mean_unit(n_rows=self.n_rows, feature_map=self.feature_map))

    def to_dict(self) -> dict[str, Any]:
        """The measurement's header entries; its arrays are stored as files of their own."""
        fields: dict[str, Any] = {"noise_law": self.noise_law, "noise_scale": self.noise_scale, "n_rows": self.n_rows}
        if self.relative_noise is not None:
            fields["relative_noise"] = True
        if self.scores:
            fields["scores"] = [score.step for score in self.scores]
        if self.choices:
            fields["choices"] = [asdict(choice) for choice in self.choices]
        if self.beforehand:
            fields["beforehand"] = [list(pair) for pair in self.beforehand]
        if self.drawn is not None:
            fields["drawn"] = {
                "sets": [list(own) for own in self.drawn.sets], "count": self.drawn.draws.count, "largest": self.drawn.largest,
                "step": self.drawn.draws.step, "scale": self.drawn.draws.scale, "score_step": self.drawn.scores.step,
            }  # fmt: skip
        return fields


def of_tables(measurement: Measurement, columns: Sequence[int]) -> Measurement:
    """The tables of margins of some columns with their noise, in units of a kernel of these columns alone.

    columns   increasing.
    Errors    ValueError where each feature is of all columns.
    """
    features, kernel = measurement.feature_map, cast(Any, measurement.feature_map.kernel)
    of, new = kernel.columns if isinstance(kernel, Margins) else (), {j: i for i, j in enumerate(columns)}
    tables = [
        (group.kind if len(table) == 1 or group.is_of_sets else "crossed", table, square, np.arange(*ends))
        for group in (features.groups if isinstance(features, MarginFeatures) else ())
        for table, square, ends in zip(group.tables, group.squares, group.ranges, strict=True)
        if {of[j] for j in table} <= new.keys()
    ]
    if not tables:
        raise ValueError(
            f"no table is of these columns alone: the release measured {features.name} features of others with them, from "
            "which nothing of these can be read. Leave columns out, or name more."
        )
    kinds, total = ((["one-way"], ["pairs", "sets"], ["finer", "crossed"]), math.fsum(square for _, _, square, _ in tables))
    squares = tuple(tuple(square / total for kind, _, square, _ in tables if kind in own) for own in kinds)
    numbers = [t for kind, (t, *_), *_ in tables if kind == "finer"]
    finer = [(new[of[t]], kernel.finer_tables[t - len(kernel.edges)][1]) for t in numbers]
    new |= {t: len(columns) + i for i, t in enumerate(numbers)}
    fine = dict(reversed(finer))  # the first of a column's tables; deeper ones follow it
    shares: Any = tuple(map(math.fsum, squares))
    of_chosen = (tuple(each[j] for j in columns) for each in (kernel.edges, kernel.atoms, kernel.missing))
    edges, atoms, missing = cast(Any, of_chosen)
    chosen, crossed = (
        tuple(tuple(new[j] for j in table) for kind, table, *_ in tables if kind in own) for own in (kinds[1], ["crossed"])
    )
    alone = ChosenMargins(
        edges, atoms, missing, shares, tuple(fine.get(i, ()) for i in range(len(columns))), squares=squares, chosen=chosen,
        deeper=tuple(each for each in finer if each[1] != fine[each[0]]), crossed=crossed,
    )  # fmt: skip
    indices, scale = np.concatenate([each for *_, each in tables]), 1 / math.sqrt(total)
    return Measurement(
        vector=measurement.vector[indices] * scale, noise_scale=measurement.noise_scale * scale, noise_law=measurement.noise_law,
        n_rows=measurement.n_rows, feature_map=MarginFeatures(alone), noisy_sum=measurement.noisy_sum[indices],
        relative_noise=None if measurement.relative_noise is None else measurement.relative_noise[indices],
    )  # fmt: skip


def grid_sensitivity(feature_map: FeatureMap, noise_law: str = GAUSSIAN) -> float:
    """The largest distance between two integer images on the grid, in the norm that the noise is calibrated to.

    Euclidean: diameter · GRID, in units where the bound is GRID. L1: ⌈√F · diameter · GRID⌉ (Cauchy–Schwarz), whole
    because distances between whole numbers are. Of a map of cells 2 Σ heights, if that is less: two rows differ in at
    most two cells of each table, and each holds the table's height.
    """
    euclidean = feature_map.diameter / feature_map.norm_bound * GRID
    if not is_pure(noise_law):
        return euclidean
    squared = math.ceil(feature_map.dimension * Fraction(euclidean) ** 2)
    bound = math.isqrt(squared - 1) + 1  # the root of a whole number, rounded up
    if isinstance(feature_map, CellFeatures):
        bound = min(bound, 2 * sum(int(height) for height in whole_heights(feature_map)))
    return float(bound)


def whole_heights(feature_map: CellFeatures) -> Array:
    """Heights of the tables in steps of the grid, rounded to whole numbers: (T,) float64."""
    return np.rint(feature_map.heights * (GRID * SHRINK / feature_map.norm_bound))


def mean_unit(*, n_rows: int, feature_map: FeatureMap) -> float:
    """One step of the integer grid, in units of the mean: B / (GRID · SHRINK · N)."""
    return feature_map.norm_bound / (GRID * SHRINK * n_rows)


def feature_mean(feature_map: FeatureMap, X: Array, weights: Array | None = None) -> Array:
    """Σ w_i φ(x_i) (F,), in blocks; equal weights 1/n by default."""
    return feature_map.mean(X, np.full(len(X), 1 / len(X)) if weights is None else weights)
