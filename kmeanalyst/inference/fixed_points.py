"""Room 4: weighted points without a measurement against a sample: only the sample is random."""

from __future__ import annotations

import numpy as np

from kmeanalyst.inference.distance import without_diagonal
from kmeanalyst.inference.results import TestResult
from kmeanalyst.inference.samples import SampleRows, result_about
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf
from kmeanalyst.kernels import KernelMean
from kmeanalyst.releases.release import Release

_MOST_EIGEN_ROWS = 2000


def fixed_against_sample(release: Release, sample_rows: SampleRows) -> TestResult:
    """Weighted points as a fixed distribution: only the sample is random, nΣe χ² with e from its own Gram matrix."""
    rows = np.vstack(list(sample_rows.blocks()))
    fixed, sample = release.embedding, KernelMean(release.kernel, rows)
    statistic = fixed.squared_distance(sample)
    some = rows[np.random.default_rng(0).permutation(len(rows))[:_MOST_EIGEN_ROWS]]
    K = release.kernel.gram(some, some)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    coefficients = np.maximum(np.linalg.eigvalsh(K / (len(some) - 1)), 0.0) / len(rows)
    unbiased = fixed.squared_norm() - 2 * fixed.inner(sample) + without_diagonal(sample)
    told = "no measurement: the weighted points are tested as a fixed distribution, without any noise of their own"
    return result_about(
        release,
        statistic=statistic,
        pvalue=weighted_chi_squared_sf(statistic, coefficients),
        mmd_squared=unbiased,
        method="MMD, fixed weighted points against sample",
        n_sample_rows=len(rows),
        notes=(told, *sample_rows.notes),
    )
