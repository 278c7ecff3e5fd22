"""The method of adaptive margins: what users choose, and what is refused before private rows are read."""

from __future__ import annotations

import math
from dataclasses import replace

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.measurement import GRID, Measurement, cells_of_all_pairs
from kmeanalyst.releases.statement import PopulationSize, is_pure
from kmeanalyst.representation.wanted import ENOUGH_ROWS
from release_side.choices.options import check_readable, fitting
from release_side.choices.workload import Workload
from release_side.door.door import Door
from release_side.door.mechanism import Noise, RehearsalNoise, check_int64_range
from release_side.errors import PublishError
from release_side.publishing.methods.adaptive import shares_of_rounds as sharing
from release_side.publishing.methods.adaptive.rounds import Rounds
from release_side.publishing.methods.margins import Margins

_MOST_NAMED = 30_000  # of the pairs: no file holds many more tables
# ranges of a number in tables of pairs, where a number is a target, or where all pairs are measured for one: at most so many that
# the noise of a correlation, which is about the ranges times the noise of a share, is no more than this, if all pairs were measured
# alike; and never fewer
_NOISE_OF_RANGES, _FEWEST_RANGES = 0.02, 4


class AdaptiveMargins(Margins):
    """Margins of chosen sets of columns. Files know it as random features, as they do all margins."""

    measures = "adaptive margins"
    fewest = ENOUGH_ROWS  # for error bars

    def kernel(self, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> Kernel:
        """Of every table that a round could ask for; for a target of few enough ranges for the noise."""
        workload = self.choices.workload
        kernel = adaptive_kernel(domain, *([workload.cuts] if workload else []))
        asked = dict.fromkeys(workload.by_columns if workload else (), 1.0)
        numbers = any(domain.columns[j].is_number for j in sharing.targets(kernel, asked))
        if workload is None or not (numbers or sharing.are_few_left(kernel, asked)):
            return kernel
        most = max(_FEWEST_RANGES, math.floor(_NOISE_OF_RANGES / sharing.noise_of_all_pairs(kernel, size, noise)))
        return adaptive_kernel(domain, workload.cuts, most=most)

    def prepare(self, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> FeatureMap:
        """Every table that a round could ask for; PublishError if no release could be made."""
        if is_pure(noise.name):
            raise PublishError(
                "tables that are chosen in rounds have Gaussian noise. Choose it, with a small delta, or the kernel margins."
            )
        check_int64_range(n_rows=size.count, dimension=1, grid=GRID)
        with fitting():
            everything = self.features(self.kernel(domain, size, noise), domain)
        assert isinstance(everything, MarginFeatures)
        shares = _checked_shares(everything.kernel, size, noise, self.choices.workload)
        check_readable(self.most_points(everything.kernel, domain), domain, _largest(everything))
        if not shares.sets:
            return everything
        return MarginFeatures(sharing.with_sets(everything.kernel, shares.sets))

    def measure(self, door: Door[Noise | RehearsalNoise], domain: Domain, size: PopulationSize) -> Measurement:
        everything = self.prepare(domain, size, door.noise)
        assert isinstance(everything, MarginFeatures)
        rounds = Rounds.of(door, everything, domain, size, self.choices.workload)
        rounds.measure_one_way()
        if rounds.n_pairs and len(rounds.shares.parts) > 1:
            rounds.measure_pairs()
        if rounds.shares.sets:
            rounds.measure_sets()
        return rounds.measurement()

    def taken_as_public(self, measured: Measurement, n_points: int) -> tuple[str, ...]:
        """With a workload: that there was one, and what it sets."""
        named = "a workload, the questions that will be asked: it sets ends of ranges, heights, and pairs of columns to measure"
        return (*super().taken_as_public(measured, n_points), *([named] if self.choices.workload else []))


def _checked_shares(
    kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise, workload: Workload | None
) -> sharing.Shares:
    """Of the rounds, from public facts, before anything is spent; PublishError if their tables may have too many cells."""
    asked = sharing.asked_squares(kernel, workload, size, noise)
    named: list[int] = []
    left: list[int] = []
    for pair, cells in zip(kernel.pairs, cells_of_all_pairs(kernel), strict=True):
        (named if pair in asked else left).append(cells)
    if sum(named) > sharing.MOST_CELLS // 4 or len(named) > _MOST_NAMED:
        raise PublishError(
            f"the tables of the {len(named):,} pairs of columns that the workload names have {sum(named):,} cells, and at most "
            f"{sharing.MOST_CELLS // 4:,} of {_MOST_NAMED:,} pairs are measured before all others. Ask of fewer pairs, or name "
            "fewer levels or edges."
        )
    shares = sharing.shares_of_rounds(kernel, size, noise, asked)
    no_pair_fits = not shares.are_all_measured and bool(shares.scores) and min(left) > sharing.most_of_a_pair(kernel)
    if no_pair_fits or (shares.are_all_measured and kernel.n_cells > sharing.MOST_CELLS):
        raise PublishError("the pairs of columns have too many cells to be measured. Name fewer levels or edges.")
    least = min((shares.allowances()[r] for r in shares.scores), default=0.0)
    if shares.are_scored and sharing.score_step(least, [*named, *left], size) < 1:
        raise PublishError("the tables have too many cells to be scored. Name fewer levels or edges.")
    numbers = _most_numbers(kernel, shares, named, left, size)
    if not shares.are_all_measured and sum(numbers) > sharing.MOST_CELLS:
        raise PublishError(
            f"rounds of these tables may need {sum(numbers):,} numbers with noise, and at most {sharing.MOST_CELLS:,} are "
            "measured. Name fewer columns, levels or edges."
        )
    for r, allowance in enumerate(shares.allowances()):
        most = sharing.most_cells(kernel, allowance, size)
        if r not in shares.scores and numbers[r] > most:
            raise PublishError(
                f"a round of these tables may have {numbers[r]:,} cells, and at most {math.floor(most):,} are measured in it "
                "where units are protected, whose averages are rounded. Name fewer columns, levels or edges."
            )
    return shares


def _most_numbers(
    kernel: MarginsKernel, shares: sharing.Shares, named: list[int], left: list[int], size: PopulationSize
) -> list[int]:
    """How many numbers with noise each round can draw at most; `Rounds` keeps to what is left of them.

    named, left   cells of the pairs that a workload names, and of the others.
    """
    alone, columns = kernel.n_cells - sum(named) - sum(left), len(kernel.edges)
    of_sets = [0, sharing.SETS_SCORED, sharing.cells_of_sets(kernel, shares.allowances()[-1], size)] if shares.sets else []
    if shares.are_all_measured:
        return [alone, sum(named) + sum(left), *of_sets]
    small = sorted(cells for cells in left if cells <= sharing.most_of_a_pair(kernel))
    if shares.are_scored:
        repeated = min(alone, sharing.MOST_REPEATED)
        later = [kernel.n_pairs, sum(small[1 - columns :]) + repeated, kernel.n_pairs, repeated, *of_sets]
    elif shares.is_tree_drawn:
        drawn, cheap = sum(small[-sharing.most_drawn(columns) :]), sum(small[-(columns // 2) :])
        later = [*[0] * len(sharing.PARTS_OF_TREE), drawn, 0, cheap]
    else:
        later = [0, sum(small[-sharing.PAIRS_LARGE :])] if shares.scores else []
    return [alone + sum(named), *later]


def _largest(everything: FeatureMap) -> FeatureMap:
    """All one-way tables, and pairs as far as a release may choose them: no release has a larger map."""
    kernel = everything.kernel
    assert isinstance(kernel, MarginsKernel)
    if kernel.n_cells <= sharing.MOST_CELLS:
        return everything
    return MarginFeatures(replace(kernel, shares=(1.0, 0.0, 0.0)))
