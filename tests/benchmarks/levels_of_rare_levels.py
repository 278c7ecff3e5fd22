"""Level of the tests of a release against a sample of its own population, where a level of a column is rare.

    python tests/benchmarks/levels_of_rare_levels.py [--tables boolean mixed] [--shares .005 .02 .1 .5]
                        [--sizes 2 10 30 100 300 1000] [--epsilon .1 1 10]
                        [--releases 20] [--samples 400] [--compared 100] [--rows 20000] [--shift 0]

Tables are one boolean column of that share, and a mixed one: age, a job that has a level of that share, and the boolean column.
Each cell has the rejections at 5 % of mmd_test, over so many samples, and of compare as a whole and of any of its columns, over
`--compared` of them: a release is an independent unit, and its samples are drawn anew. A `--shift` of age, in years, shows power.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
from harness import command_line, show

import kmeanalyst as ka
import release_side
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer

LEVEL = 0.05
FLAG = Boolean(name="flag")
JOBS = Categorical(name="job", levels=("clerk", "farmer", "miner", "nurse"))
DOMAINS = {"boolean": Domain((FLAG,)), "mixed": Domain((Integer(name="age", lower=0, upper=100), JOBS, FLAG))}


def rows(table: str, share: float, n: int, rng: np.random.Generator, shift: float = 0.0) -> pd.DataFrame:
    """Rows of a population: the flag, and the first job, have this share; age depends on the job."""
    flag = rng.random(n) < share
    if table == "boolean":
        return pd.DataFrame({"flag": flag})
    job = rng.choice(4, n, p=[share, 0.3, 0.3, 0.4 - share]) if share < 0.4 else rng.integers(4, size=n)
    age = np.clip(rng.normal(40 + 5 * job + shift, 12), 0, 100).round().astype(int)
    return pd.DataFrame({"age": age, "job": np.array(JOBS.levels)[job], "flag": flag})


def rejections(release: ka.Release, sample: pd.DataFrame, compared: bool) -> list[float]:
    """Of mmd_test; of compare as a whole, the same, and of any of its columns; NaN where it is not compared."""
    if not compared:
        return [float(ka.mmd_test(release, sample).pvalue <= LEVEL), np.nan]
    found = ka.compare(release, sample, level=LEVEL)
    return [float(found.overall.pvalue <= LEVEL), float(found.columns["differs"].any())]


def main() -> None:
    choice = command_line(
        __doc__, tables=("boolean", "mixed"), shares=(0.005, 0.02, 0.1, 0.5), sizes=(2, 10, 30, 100, 300, 1000),
        epsilon=(0.1, 1.0, 10.0), releases=20, samples=400, compared=100, rows=20_000, shift=0.0,
    )  # fmt: skip
    for table, share, epsilon in product(choice.tables, choice.shares, choice.epsilon):
        found = np.empty((choice.releases, len(choice.sizes), choice.samples // choice.releases, 2))
        for i in range(choice.releases):
            rng = np.random.default_rng([i, int(1000 * share), int(10 * epsilon)])
            release = release_side.publish(
                rows(table, share, choice.rows, rng), DOMAINS[table], epsilon=epsilon, delta=1e-6, uncounted=True,
                rehearsal=i, workers=1,
            )  # fmt: skip
            for j, n in enumerate(choice.sizes):
                for k in range(found.shape[2]):
                    sample = rows(table, share, n, rng, choice.shift)
                    found[i, j, k] = rejections(release, sample, k < choice.compared // choice.releases)
        show(
            {"table": table, "share": share, "ε": epsilon, "n": n, "mmd_test": of_all, "columns": of_columns}
            for n, (of_all, of_columns) in zip(choice.sizes, np.nanmean(found, axis=(0, 2)), strict=True)
        )


if __name__ == "__main__":
    main()
