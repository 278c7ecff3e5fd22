"""Testing long samples from disk against a release: seconds, rows per second and peak memory, each in its own process.

    python tests/benchmarks/streamed_samples.py [--rows 10000 1000000] [--features 1000]

A rehearsal of a small made-up table of six columns is published, with few points (only its measurement is tested), and
samples of each size are tested as CSV and as Parquet. "read" is reading and encoding the rows alone. Memory should be
nearly the same for all sizes; some 250 MB of it are imports.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import kmeanalyst as ka
from kmeanalyst.inference.two_sample.samples import SampleRows
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from release_side import publish

DOMAIN = Domain(
    (
        Integer(name="age", lower=0, upper=100),
        Real(name="wage", lower=1, upper=1e5, scale="log", missing=True),
        Real(name="height", lower=0.5, upper=2.5),
        Categorical(name="job", levels=("a", "b", "c", "d")),
        Categorical(name="sex", levels=("F", "M")),
        Date(name="joined", lower="2000-01-01", upper="2020-12-31"),
    )
)
PIECE = 50_000  # rows written at a time


def rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    age = rng.integers(18, 101, n)
    wage = np.exp(rng.normal(7, 1, n) + age / 80).round(2)
    wage[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "wage": wage,
            "height": rng.normal(1.7, 0.1, n).round(3),
            "job": np.array(list("abcd"))[np.minimum(rng.poisson(age / 40), 3)],
            "sex": np.where(rng.random(n) < 0.5, "F", "M"),
            "joined": np.datetime64("2000-01-01") + rng.integers(0, 7600, n),
        }
    )


def write_samples(n: int, folder: Path) -> list[Path]:
    """The same rows as CSV and as Parquet, in one row group of at most a million rows."""
    rng, csv, parquet = np.random.default_rng(n), folder / f"{n}.csv", folder / f"{n}.parquet"
    pieces = [rows(min(PIECE, n - start), rng) for start in range(0, n, PIECE)]
    for i, piece in enumerate(pieces):
        piece.to_csv(csv, index=False, header=i == 0, mode="a")
    pq.write_table(pa.Table.from_pandas(pd.concat(pieces), preserve_index=False), parquet, row_group_size=2**20)
    return [csv, parquet]


def measured(release_path: Path, sample_path: Path) -> str:
    """One line about one sample, measured in this process."""
    with threadpool_limits(limits=1):
        release = ka.read_release(release_path, allow_rehearsal=True)
        start = time.perf_counter()
        n = SampleRows(release, sample_path).n_rows
        read = time.perf_counter() - start
        result = ka.mmd_test(release, sample_path)
        seconds = time.perf_counter() - start - read
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{n:>9,} rows  {sample_path.suffix:<8}  read {read:6.1f} s  test {seconds:6.1f} s  {n / seconds:>9,.0f} rows/s  "
        f"peak {peak:5.0f} MB  p {result.pvalue:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--features", type=int, default=1000)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        release = Path(folder) / "r.kme"
        table = rows(20_000, np.random.default_rng(1))
        publish(
            table, DOMAIN, epsilon=1.0, delta=1e-6, rehearsal=1, features=arguments.features, points=100, output=release
        )
        for n in arguments.rows:
            with ProcessPoolExecutor(1, context) as writer:
                paths = writer.submit(write_samples, n, Path(folder)).result()
            for path in paths:
                with ProcessPoolExecutor(1, context) as process:
                    print(process.submit(measured, release, path).result(), flush=True)


if __name__ == "__main__":
    main()
