"""Are two populations alike? Both sides are read, and then tested with the noise of what was measured, or without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmeanalyst.inference.two_sample.differences import differences_of
from kmeanalyst.inference.two_sample.distance import Sample, is_weighted, typed
from kmeanalyst.inference.two_sample.noise_aware import test_with_noise
from kmeanalyst.inference.two_sample.result import TestResult, result_about
from kmeanalyst.inference.two_sample.sides import SampleRows, side_and_sample
from kmeanalyst.inference.two_sample.without_noise import KernelChoice, test_of_fixed, test_without_noise
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.marginal import marginal
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.sources.tables import Recode, Rename, translated


def mmd_test(
    a: ReleaseData | Sample, b: ReleaseData | Sample, *, kernel: KernelChoice = None,
    columns: Sequence[str] | None = None, rename: Rename = None, recode: Recode = None, permutations: int = 999,
    rng: np.random.Generator | int | None = None,
) -> TestResult:  # fmt: skip
    """Test whether two sides have one population.

    a, b           a release and a sample (DataFrame in natural units, encoded rows (L, d), or rows in blocks: files by path,
                   folder, glob or URL (.csv, .csv.gz, .parquet, .feather), tables of polars, pyarrow, DuckDB or
                   `kmeanalyst.sql(…)`, an iterable of DataFrames), two releases, two plain samples (arrays or tables,
                   compared by the names of their columns), or a (points, weights) pair and a plain sample.
    kernel         for plain samples only. Default: Gaussian at the pooled median distance of columns that are divided by their
                   standard deviation over both; for DataFrames with
                   text, dates or missing cells, the table kernel of a domain drafted from both. "aggregated": Gaussians
                   from twice the median distance down to a 32nd of it. A sequence: several kernels, one test: the
                   largest of their standardised statistics; mmd_squared is that of the first (of the median distance).
    columns        to test, all others left out; None for all. A release of tables has those of these columns alone.
    rename, recode   how b is written as a is: {"hours_per_week": "hours-per-week"}, {"sex": {"M": "Male", "F": "Female"}}.
    permutations, rng   for plain samples only (other tests draw from a fixed seed); rng is None, an int or a Generator.
    Returns        TestResult. With a measurement the distribution includes the privacy noise, and rows spread as the sample and the
                   released points do; weighted points without one are tested as a fixed distribution, and the result says so.
                   Of tables, and of two releases, all columns together are tested, each alone, and each set of columns that was
                   counted together, p corrected for their number; the statistic is that of all together.
    Errors         ValueError for a sample that lacks a column, or has no value of the domain in more than a twentieth of a column.
    Assumes        that the sample is independent of the table's rows and of public rows used as points.

    >>> ka.mmd_test(release, sample).pvalue  # is my sample from the released population?
    0.1499...
    >>> ka.mmd_test(release, "my_sample.csv").pvalue  # a file is read in blocks
    0.1499...
    >>> ka.mmd_test([[0.0], [1.0], [2.0]], [[5.0], [6.0], [7.0]], rng=0).pvalue  # two plain samples
    0.103
    """
    if isinstance(b, ReleaseData) and not isinstance(a, ReleaseData):
        a, b = b, a
    if not isinstance(a, ReleaseData):
        a, b = translated(typed(a), None, None, columns), translated(typed(b), rename, recode, columns)
        return test_without_noise(a, b, kernel, permutations, rng)
    b = translated(b, rename, recode)
    if kernel is not None:
        raise ValueError("kernel goes with plain samples: a release is tested in the space it was measured in. Leave it out.")
    if is_weighted(b):
        raise ValueError(
            "a release is tested against rows, and these have weights: the distribution of a weighted sample is unknown. Give the "
            "rows without weights, or ask for the distance alone with mmd."
        )
    ignored, a = a.columns.names, marginal(a, columns)
    if isinstance(b, ReleaseData):
        return differences_of(a, marginal(b, columns)).result(a, alone(a, columns))
    sample = b if isinstance(b, SampleRows) else SampleRows(a, b, ignored)
    if a.measurement is None:
        fields = test_of_fixed(a.embedding, np.vstack(list(sample.blocks())), [])
    elif counts_tables(a):
        found = differences_of(a, sample)
        return found.result(a, (*alone(a, columns), *sample.notes))
    else:
        fields = test_with_noise(*side_and_sample(a, sample))
    return result_about(a, notes=(*fields.pop("notes", ()), *alone(a, columns), *sample.notes), **fields)


def counts_tables(release: ReleaseData) -> bool:
    return release.measurement is not None and isinstance(release.measurement.feature_map, MarginFeatures)


def alone(release: ReleaseData, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The note on columns that are left out."""
    return () if columns is None else (f"compared in these columns alone: {', '.join(release.domain.names)}",)
