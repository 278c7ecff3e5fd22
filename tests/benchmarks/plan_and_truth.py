"""How near a plan comes: realised over predicted error in the kernel's space, on tables that no plan has seen.

    python tests/benchmarks/plan_and_truth.py [--epsilon 0.1 1] [--public 100 1000]

Seven tables: two simulated ones, uniform rows, rows all in one small cluster, the demo's census rows and, where
../shared/anchors is there, the published mixtures of Balog, Tolstikhin & Schölkopf (2018). With --public, the first so
many rows of each are public as well, for the plan and for the release.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import figure_1
import numpy as np
import pandas as pd
from harness import command_line
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
    rng = np.random.default_rng(0)
    yield "three clusters in five columns", NUMERIC, numeric_rows(ROWS, rng), Gaussian(3.0)
    yield "mixed columns", MIXED, mixed_rows(ROWS, rng), None
    uniform = NUMERIC.decode(rng.uniform(-6, 6, (ROWS, len(NUMERIC))))
    yield "uniform rows", NUMERIC, uniform, Gaussian(3.0)
    narrow = NUMERIC.decode(rng.normal(1, 0.2, (ROWS, len(NUMERIC))))
    yield "one small cluster", NUMERIC, narrow, Gaussian(3.0)
    data = files("kmeanalyst") / "data"
    census, sample = (pd.read_csv(str(data / f"demo_{name}.csv.gz"), dtype=str, keep_default_na=False)
                      for name in ("private", "public_sample"))  # fmt: skip
    yield "census", draft_domain(sample).domain, census, None
    for dimension in (2, 5):
        if figure_1.ANCHORS.is_dir():
            rows = np.load(figure_1.ANCHORS / f"mixture_of_Gaussians_N100000_D{dimension}.npz")["X_private"]
            names = [f"x{j}" for j in range(dimension)]
            bounds = {"lower": -figure_1.BOUND, "upper": figure_1.BOUND}
            domain = Domain(tuple(Real(name=name, **bounds) for name in names))
            kernel = Gaussian(float(np.sqrt(1e4 * dimension / 2)))
            yield f"published, D = {dimension}", domain, pd.DataFrame(rows[:ROWS], columns=names), kernel
        else:
            print(f"the published data are not at {figure_1.ANCHORS}: left out.")


def realised(domain: Domain, table: pd.DataFrame, kernel: Kernel | str | None, **options: Any) -> float:
    """The RKHS distance of a release from its table."""
    release = publish(table, domain, kernel=kernel, delta=DELTA, **options)
    chosen = kernel_from_spec(kernel, domain)
    ours = KernelMean(chosen, domain.encode(release.points.to_dataframe()), release.weights)
    theirs = KernelMean(chosen, domain.encode(table))
    return float(ours.distance(theirs))


def main() -> None:
    """One line for each table and number of public rows."""
    logging.disable()
    arguments = command_line(__doc__, epsilon=(0.1, 1.0), public=(0,))
    for name, domain, table, kernel in tables():
        for n_public in arguments.public:
            public = table[:n_public] if n_public else None
            predicted = plan(
                domain, rows=len(table), epsilon=arguments.epsilon, delta=DELTA, kernel=kernel, public_points=public
            ).rkhs_error
            cells = [
                f"ε {epsilon:g}: {error / expected:.2f} ({error:.4f} / {expected:.4f})"
                for epsilon, expected in zip(arguments.epsilon, predicted, strict=True)
                for error in [realised(domain, table, kernel, epsilon=epsilon, public_points=public)]
            ]
            print(f"{name}, {n_public} public rows: " + "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
