"""Seconds of the two-sample test of a release (1,000 points, 4,000 features) against a sample of 5,000 rows.

python tests/benchmarks/speed_of_mmd_test.py
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
from harness import show

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real

D = 10


def main() -> None:
    """Print the seconds of the first test, and of one more."""
    domain = Domain(tuple(Real(name=f"x{j}", lower=-4, upper=4) for j in range(D)))
    rng = np.random.default_rng(0)
    table, sample = (pd.DataFrame(rng.normal(size=(n, D)).clip(-4, 4), columns=domain.names) for n in (10_000, 5000))
    kernel = Gaussian(float(np.sqrt(2 * D)))  # about the median distance
    release = release_side.publish(
        table, domain, epsilon=1, delta=1e-6, points=1000, features=4000, rehearsal=1, kernel=kernel
    )
    for which in ("first", "one more"):
        start = time.perf_counter()
        pvalue = ka.mmd_test(release, sample).pvalue
        show([{"test": which, "s": time.perf_counter() - start, "p": pvalue}])


if __name__ == "__main__":
    main()
