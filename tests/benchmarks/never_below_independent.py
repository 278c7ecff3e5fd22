"""Adaptive margins against independent columns that are measured with the whole budget.

    python tests/benchmarks/never_below_independent.py [--tables adult housing excerpt pums simulated] [--epsilon 0.1 1 10]
        [--draws 3] [--draws-at-tenth 10] [--kernel adaptive]

Five tables: Adult (32,561 rows) and Californian housing (16,512), with the domains of synthesis.py; the census excerpt of
../shared/data/acs (7,634 rows, 21 columns) with its own; the PUMS sample (1,000 rows, 6 columns) with a domain from its code
book; and 10,000 simulated rows of ten columns without any dependence. The real ones are read from ../shared; those that are not
there are left out with a line that says so.

Each release (replace-one; δ = 1e-5 on Adult and housing, 1e-6 elsewhere; noise of the right distribution from a seed) is compared
with independent columns: one-way tables alone, at the same (ε, δ), no finer ones, heights as in the first round of adaptive
margins, smoothed and drawn evenly by the code of releases, in as many rows. So they have more budget for these tables
than the release, which also pays for pairs.

    points   k-marginal, 1000 · (1 − mean total variation over all pairs of columns), of tables of ranges, levels, atoms and missing
             cells; on the excerpt every pair is crossed with PUMA, as in NIST's SDNist report
    1-way    mean total variation of single columns
    wins     releases with more points than the independent columns of the same draw
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import synthesis
from harness import DATA, command_line, is_there, margins_apart, read_text, show
from simulated_releases import measurement_of

from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation.represent import rows_from_tables
from kmeanalyst.representation.wanted import Wanted
from release_side import publish
from release_side.door.mechanism import noise_for

SIMULATED_ROWS = 10_000
_POWER = 2 / 3  # squared heights of one-way tables ∝ cells ** ⅔, as in the first round of adaptive margins


@dataclass(frozen=True)
class Table:
    """A table to publish, and δ; `group` is the column that every pair is crossed with."""

    domain: Domain
    rows: pd.DataFrame
    delta: float = 1e-6
    group: str | None = None


def of_synthesis(name: str) -> Table:
    table = synthesis.TABLES[name]()
    return Table(table.domain, table.train, synthesis.DELTA)


def excerpt() -> Table:
    return Table(read_domain(DATA / "acs/domain.toml"), read_text("acs/ma2019.csv.gz"), group="PUMA")


def pums() -> Table:
    """A sample of the American Community Survey: bounds and levels of its code book."""
    domain = Domain((
        Integer(name="age", lower=18, upper=95, edges=(25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80)),
        Boolean(name="sex"),
        Categorical(name="educ", levels=tuple(map(str, range(1, 17)))),
        Categorical(name="race", levels=tuple(map(str, range(1, 7)))),
        Real(name="income", lower=0, upper=500_000, atoms=(0,), edges=(5e3, 1e4, 2e4, 3e4, 4e4, 5e4, 75e3, 1e5, 2e5)),
        Boolean(name="married"),
    ))  # fmt: skip
    return Table(domain, read_text("pums/PUMS.csv"))


def simulated() -> Table:
    """Ten columns that are independent: numbers of three shapes, one with a spike, and levels, even and not."""
    rng, n = np.random.default_rng(0), SIMULATED_ROWS
    levels = {"pair": 2, "few": 4, "some": 7, "many": 15, "rare": 5}
    numbers = {
        "normal": rng.normal(50, 12, n), "skewed": rng.exponential(15, n), "even": rng.uniform(0, 100, n),
        "spiked": np.where(rng.random(n) < 0.6, 0, rng.gamma(3, 8, n)), "two": rng.normal(rng.choice([30, 70], n), 8),
    }  # fmt: skip
    frame = pd.DataFrame({name: np.clip(np.rint(values), 0, 100).astype(int) for name, values in numbers.items()})
    for name, size in levels.items():
        frame[name] = rng.choice(size, n, p=rng.dirichlet(np.full(size, 0.3 if name == "rare" else 2.0)))
    bounds: dict[str, Any] = {"lower": 0, "upper": 100, "edges": tuple(range(10, 100, 10))}
    domain = Domain((
        *(Integer(name=name, atoms=(0,) if name == "spiked" else (), **bounds) for name in numbers),
        *(Categorical(name=name, levels=tuple(map(str, range(size)))) for name, size in levels.items()),
    ))  # fmt: skip
    return Table(domain, frame.astype(str))


TABLES: dict[str, Callable[[], Table]] = {
    "adult": lambda: of_synthesis("adult"), "housing": lambda: of_synthesis("housing"), "excerpt": excerpt, "pums": pums,
    "simulated": simulated,
}  # fmt: skip


def independent_rows(table: Table, epsilon: float, n_rows: int, seed: int) -> pd.DataFrame:
    """Rows from one-way tables with the whole budget: normal noise, estimates and even drawing as releases have them."""
    kernel = adaptive_kernel(table.domain)
    powers = np.array(kernel.sizes) ** _POWER
    alone = tuple((powers / powers.sum()).tolist())
    features = MarginFeatures(
        ChosenMargins(
            edges=kernel.edges, atoms=kernel.atoms, missing=kernel.missing, shares=(math.fsum(alone), 0, 0),
            squares=(alone, (), ()),
        )
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    scale = math.sqrt(2) * noise_for("gaussian", epsilon, table.delta).deviation(1.0) / len(table.rows)
    vector = features.mean(table.domain.encode(table.rows), np.full(len(table.rows), 1 / len(table.rows)))
    vector = vector + scale * rng.standard_normal(len(vector))
    measurement = measurement_of(features, vector, scale, len(table.rows))
    return table.domain.decode(rows_from_tables(measurement, table.domain, Wanted(n_points=n_rows, rng=rng)))


def points(table: Table, frame: pd.DataFrame) -> tuple[float, float]:
    """k-marginal (0 to 1000), and the total variation of single columns."""
    group = None if table.group is None else table.domain.position(table.group)
    one, two = margins_apart(table.domain, frame, table.rows, group)
    return 1000 * (1 - two), one


def compared(table: Table, epsilon: float, seed: int, options: dict[str, Any]) -> Array:
    """(2, 2): points and one-way error of a release, and of independent columns."""
    release = publish(table.rows, table.domain, epsilon=epsilon, delta=table.delta, rehearsal=seed, **options)
    alone = independent_rows(table, epsilon, len(release), seed)
    return np.array([points(table, release.to_frame().drop(columns="weight")), points(table, alone)])


def main() -> None:
    logging.disable()
    arguments = command_line(__doc__, tables=TABLES, epsilon=(0.1, 1.0, 10.0), draws=3, draws_at_tenth=10, kernel="adaptive")
    options = {} if arguments.kernel == "default" else {"kernel": arguments.kernel}
    there = is_there(DATA) and is_there(synthesis.PROTOCOL)
    for name in (name for name in arguments.tables if there or name == "simulated"):
        table = TABLES[name]()
        for epsilon in arguments.epsilon:
            draws = range(arguments.draws if epsilon > 0.1 else arguments.draws_at_tenth)
            found = np.array([compared(table, epsilon, seed, options) for seed in draws])
            (ours, one), (alone, one_alone) = found.mean(axis=0)
            spread, others = found[:, :, 0].std(axis=0)
            show([{
                "table": name, "ε": epsilon, "points": ours, "sd": spread, "independent": alone, "sd of independent": others,
                "1-way": one, "1-way independent": one_alone,
                "wins": f"{(found[:, 0, 0] > found[:, 1, 0]).sum()}/{len(draws)}",
            }])  # fmt: skip


if __name__ == "__main__":
    main()
