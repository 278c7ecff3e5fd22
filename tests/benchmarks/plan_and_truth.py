"""How near a plan comes: realised over predicted error in the kernel's space, on tables that no plan has seen.

    python tests/benchmarks/plan_and_truth.py [--epsilon 0.1 1]

Seven tables: two simulated ones, uniform rows, rows all in one small cluster, the demo's census rows and, where
../shared/anchors is there, the published mixtures of Balog, Tolstikhin & Schölkopf (2018).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.resources import files

import numpy as np
import pandas as pd
from figure_1 import BOUND
from harness import ANCHORS, command_line, is_there, show
from populations import MIXED, NUMERIC, mixed_rows, numeric_rows

from kmeanalyst.kernels import Gaussian, Kernel, KernelMean
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.draft import draft_domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.domain.numbers import Real
from release_side import plan, publish

DELTA = 1e-6
ROWS = 10_000


def tables() -> Iterator[tuple[str, Domain, pd.DataFrame, Kernel | str | None]]:
    """Name, domain, private rows and kernel of each."""
    rng, kernel = np.random.default_rng(0), Gaussian(3.0)
    yield "three clusters in five columns", NUMERIC, numeric_rows(ROWS, rng), kernel
    yield "mixed columns", MIXED, mixed_rows(ROWS, rng), None
    yield "uniform rows", NUMERIC, NUMERIC.decode(rng.uniform(-6, 6, (ROWS, len(NUMERIC)))), kernel
    yield "one small cluster", NUMERIC, NUMERIC.decode(rng.normal(1, 0.2, (ROWS, len(NUMERIC)))), kernel
    data = files("kmeanalyst") / "data"
    census, sample = (pd.read_csv(str(data / f"demo_{name}.csv.gz"), dtype=str, keep_default_na=False)
                      for name in ("private", "public_sample"))  # fmt: skip
    yield "census", draft_domain(sample).domain, census, None
    for dimension in (2, 5):
        if is_there(ANCHORS):
            rows = np.load(ANCHORS / f"mixture_of_Gaussians_N100000_D{dimension}.npz")["X_private"]
            domain = Domain(tuple(Real(name=f"x{j}", lower=-BOUND, upper=BOUND) for j in range(dimension)))
            kernel = Gaussian(float(np.sqrt(1e4 * dimension / 2)))
            yield f"published, D = {dimension}", domain, pd.DataFrame(rows[:ROWS], columns=list(domain.names)), kernel


def realised(domain: Domain, table: pd.DataFrame, kernel: Kernel | str | None, epsilon: float) -> float:
    """The RKHS distance of a release from its table."""
    release = publish(table, domain, kernel=kernel, epsilon=epsilon, delta=DELTA)
    chosen = kernel_from_spec(kernel, domain)
    ours = KernelMean(chosen, domain.encode(release.points.to_dataframe()), release.weights)
    theirs = KernelMean(chosen, domain.encode(table))
    return float(ours.distance(theirs))


def main() -> None:
    logging.disable()
    asked = command_line(__doc__, epsilon=(0.1, 1.0))
    for name, domain, table, kernel in tables():
        predicted = plan(domain, rows=len(table), epsilon=asked.epsilon, delta=DELTA, kernel=kernel).rkhs_error
        lines = []
        for epsilon, expected in zip(asked.epsilon, predicted, strict=True):
            error = realised(domain, table, kernel, epsilon=epsilon)
            lines.append({"ε": epsilon, "ratio": error / expected, "realised": error, "predicted": expected})
        show({"table": name} | line for line in lines)


if __name__ == "__main__":
    main()
