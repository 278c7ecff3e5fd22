"""Room 4: are two populations alike? The one door to the tests: which sides there are decides which test it is."""

from __future__ import annotations

import numpy as np

from kmeanalyst.inference.distance import Sample, mmd, mmd_squared
from kmeanalyst.inference.fixed_points import fixed_against_sample
from kmeanalyst.inference.noise_aware import release_against_sample
from kmeanalyst.inference.permutation import permutation_test
from kmeanalyst.inference.results import TestResult
from kmeanalyst.inference.samples import SampleRows
from kmeanalyst.inference.two_releases import release_against_release
from kmeanalyst.kernels import Kernel
from kmeanalyst.releases.release import Release


def mmd_test(
    a: Release | Sample,
    b: Release | Sample,
    *,
    kernel: Kernel | None = None,
    permutations: int = 999,
    rng: np.random.Generator | int | None = None,
) -> TestResult:
    """Test whether two sides have one population.

    a, b           a release and a sample (DataFrame in natural units, encoded rows (L, d), or rows in blocks: the path
                   of a .csv, .csv.gz or .parquet file, or an iterable of DataFrames), two releases of one feature map,
                   or two plain samples (arrays, DataFrames of numbers).
    kernel         for plain samples only: Gaussian at the pooled median distance by default.
    permutations   for plain samples only.
    rng            None, an int or a Generator; for plain samples only (the other tests draw nothing).
    Returns        TestResult. With a measurement the law includes the privacy noise; weighted points without
                   one are tested as a fixed distribution, and the result says so.
    Assumes        that the sample is independent of the table's rows and of public rows used as points.
    """
    if isinstance(b, Release) and not isinstance(a, Release):
        a, b = b, a
    if not isinstance(a, Release):
        return permutation_test(a, b, kernel, permutations, rng)
    if kernel is not None:
        raise ValueError(
            "kernel goes with plain samples: a release is tested in the space it was measured in. Leave it out."
        )
    if isinstance(b, Release):
        return release_against_release(a, b)
    sample = SampleRows(a, b)
    if a.measurement is None:
        return fixed_against_sample(a, sample)
    return release_against_sample(a, a.measurement, sample)


__all__ = ["TestResult", "mmd", "mmd_squared", "mmd_test"]
