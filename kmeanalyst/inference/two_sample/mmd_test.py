"""Are two populations alike? One function for all tests: the kinds of its two sides decide which test is made."""

from __future__ import annotations

from typing import Any

import numpy as np

from kmeanalyst.inference.two_sample.different_maps import test_of_different_maps
from kmeanalyst.inference.two_sample.distance import Sample
from kmeanalyst.inference.two_sample.noise_aware import test_with_noise
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.sides import (
    MANY_ROWS,
    SAMPLE_ROWS,
    SampleRows,
    directions_of,
    measured_side,
    result_about,
    sample_side,
    tested_side,
)
from kmeanalyst.inference.two_sample.without_noise import (
    KernelChoice,
    permutation_test,
    test_of_fixed,
    weighted_against_sample,
)
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.release import ReleaseData

_METHOD = "noise-aware weighted MMD"
_NO_PERSONS_SHARED = "the two tables are assumed to share no persons"


def mmd_test(
    a: ReleaseData | Sample,
    b: ReleaseData | Sample,
    *,
    kernel: KernelChoice = None,
    permutations: int = 999,
    rng: np.random.Generator | int | None = None,
    estimator: str = "unbiased",
) -> TestResult:
    """Test whether two sides have one population.

    a, b           a release and a sample (DataFrame in natural units, encoded rows (L, d), or rows in blocks: a path,
                   folder, glob or URL of files (.csv, .csv.gz, .parquet, .feather), a
                   DataFrame of polars, a table, dataset or RecordBatchReader of pyarrow, a relation of DuckDB,
                   `kmeanalyst.sql(…)`, or an iterable of DataFrames), two releases, of one feature map or of different
                   ones, two plain samples (arrays, DataFrames or what yields Arrow batches, compared by the names of
                   their columns), or a (points, weights) pair and a plain sample.
    kernel         for plain samples only. Default: Gaussian at the pooled median distance; for DataFrames with
                   text, dates or missing cells, the table kernel of a domain drafted from both. "aggregated": Gaussians
                   from twice the median distance down to a 32nd of it. A sequence: several kernels, one test: the
                   largest of their standardised statistics; mmd_squared is that of the first (of the median distance).
    permutations   for plain samples only.
    rng            None, an int or a Generator; for plain samples only (the other tests draw nothing).
    estimator      for plain samples only: "unbiased" (pairs of a row with itself left out) or "biased".
    Returns        TestResult. With a measurement the distribution includes the privacy noise; weighted points without
                   one are tested as a fixed distribution, and the result says so.
                   Where tables were chosen by scores, the test is of the one-way tables, which were decided before: against a
                   sample all together and column by column, p corrected for both; the statistic is that of all together.
    Assumes        that the sample is independent of the table's rows and of public rows used as points.

    >>> ka.mmd_test(release, sample).pvalue  # is my sample from the released population?
    0.1484...
    >>> ka.mmd_test(release, "my_sample.csv").pvalue  # a file is read in blocks
    0.1484...
    >>> ka.mmd_test([[0.0], [1.0], [2.0]], [[5.0], [6.0], [7.0]], rng=0).pvalue  # two plain samples
    0.103
    """
    if isinstance(b, ReleaseData) and not isinstance(a, ReleaseData):
        a, b = b, a
    if not isinstance(a, ReleaseData):
        if not _weighted(a) and not _weighted(b):
            return permutation_test(a, b, kernel, permutations, rng, estimator)
        if not (_weighted(a) and _weighted(b)):
            return weighted_against_sample(a, b, kernel)  # type: ignore[arg-type]  # it refuses several
        raise ValueError(
            "both sides have weights, so the random variation of neither is known: there is no distribution to test "
            "against. Give one side as plain rows, or ask for the distance alone with mmd."
        )
    _check_options_with_release(b, kernel, estimator)
    if isinstance(b, ReleaseData):
        return _of_two_releases(a, b)
    sample = b if isinstance(b, SampleRows) else SampleRows(a, b)
    if a.measurement is None:
        return result_about(a, **test_of_fixed(a.embedding, np.vstack(list(sample.blocks())), sample.notes))
    return _against_sample(a, sample)


def _against_sample(release: ReleaseData, sample: SampleRows) -> TestResult:
    ours = measured_side(release, beforehand=True)
    some, indices, blocks = sample.split_for_directions(SAMPLE_ROWS)
    along = directions_of(release, ours.feature_map, some)
    left_out = None if isinstance(ours.feature_map, Nystroem) or len(some) < MANY_ROWS else indices
    theirs = sample_side(ours, along, blocks, left_out=left_out)
    fields = test_with_noise(tested_side(release, ours), theirs, along)
    notes = (*sample.notes, *notes_on_choice(release))
    return result_about(release, method=f"{_METHOD}, release against sample", notes=notes, **fields)


def _of_two_releases(a: ReleaseData, b: ReleaseData) -> TestResult:
    if a.measurement is None or b.measurement is None:
        raise ValueError(
            "a release without a measurement cannot be tested against another: its noise is unknown. Use mmd."
        )
    first, second = (measured_side(release, beforehand=True) for release in (a, b))
    method, notes = f"{_METHOD}, release against release", (_NO_PERSONS_SHARED, *notes_on_choice(a, b))
    if _same_map(first.feature_map, second.feature_map):
        along = directions_of(a, first.feature_map)
        fields = test_with_noise(tested_side(a, first, along), tested_side(b, second, along), along)
        return result_about(a, method=method, notes=notes, **fields)
    fields = test_of_different_maps(a, b, (first, second))
    seen = fields.pop("notes")
    return result_about(a, method=f"{method}, along functions that both measure", notes=(*seen, *notes), **fields)


def _same_map(first: FeatureMap, second: FeatureMap) -> bool:
    if type(first) is not type(second) or first.kernel != second.kernel:
        return False
    ours, theirs = first.arrays(), second.arrays()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[k], theirs[k], equal_nan=True) for k in ours)


def notes_on_choice(*releases: ReleaseData) -> tuple[str, ...]:
    """A note where tables were chosen by scores, and the test looks at the others alone."""
    every = [release.measurement for release in releases]
    measurements = [measurement for measurement in every if measurement and measurement.chosen_by_rows]
    if not measurements:
        return ()
    alone = "the one-way tables" + " and pairs of the workload" * any(found.beforehand for found in measurements)
    return (
        f"tables of pairs were chosen by scores of the same rows, so the test is of {alone}; see compare for pairs",
    )


def _weighted(side: Any) -> bool:
    return isinstance(side, tuple) and len(side) == 2


def _check_options_with_release(other: ReleaseData | Sample, kernel: KernelChoice, estimator: str) -> None:
    if kernel is not None:
        raise ValueError(
            "kernel goes with plain samples: a release is tested in the space it was measured in. Leave it out."
        )
    if estimator != "unbiased":
        raise ValueError(
            f"estimator goes with plain samples, got {estimator!r}: a release's noise is subtracted from its square. Leave it out."
        )
    if _weighted(other):
        raise ValueError(
            "a release is tested against rows, and these have weights: the distribution of a weighted sample is unknown. Give the "
            "rows without weights, or ask for the distance alone with mmd."
        )
