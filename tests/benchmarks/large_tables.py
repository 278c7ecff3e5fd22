"""Publishing long and wide tables from disk: seconds, rows per second and peak memory, each in a process of its own.

    python tests/benchmarks/large_tables.py [--rows 1000000] [--columns 20] [--wide-rows 20000] [--wide-columns 100]

A made-up table (half of its columns numbers, some with a spike and some cells missing, the others levels, one of them the
target) is written as CSV to a temporary folder and published at ε = 1 with default settings and the target. "read" is
reading and encoding the rows alone, "door" the exact sums of encoded rows, and "ratio" the door's time over that of
counting the same cells without a bound enforced (one thread both). Some 190 MB of the peak are imports.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from door_throughput import NoNoise, bare_loop
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side import publish
from release_side.door.private_mean import private_mean
from release_side.private_rows.rows import open_private

PIECE = 50_000  # rows written at a time


def domain_of(columns: int) -> Domain:
    """Numbers and levels in turn; the last column, of two levels, is the target."""
    made: list[Column] = []
    for i in range(columns - 1):
        if i % 2:
            made.append(Categorical(name=f"level {i}", levels=tuple("abcdefghij"[: 2 + i % 9])))
        elif i % 4:
            made.append(Integer(name=f"count {i}", lower=0, upper=500, atoms=(0,), missing=True))
        else:
            made.append(Real(name=f"number {i}", lower=0, upper=1))
    return Domain((*made, Categorical(name="target", levels=("no", "yes"))))


def write_table(path: Path, domain: Domain, rows: int, rng: np.random.Generator) -> None:
    """Columns that lean on two hidden numbers of each row."""
    for start in range(0, rows, PIECE):
        n = min(PIECE, rows - start)
        hidden = rng.normal(size=(n, 2))
        frame = {}
        for j, column in enumerate(domain.columns):
            score = 1 / (1 + np.exp(-hidden[:, j % 2] - rng.normal(size=n)))
            if isinstance(column, Categorical):
                frame[column.name] = np.array(column.levels)[(score * len(column.levels)).astype(int)]
            elif column.kind == "integer":
                counts = np.where(rng.random(n) < 0.4, 0, np.rint(500 * score**3)).astype(int).astype(str)
                frame[column.name] = np.where(rng.random(n) < 0.05, "", counts)
            else:
                frame[column.name] = np.round(score, 5)
        pd.DataFrame(frame).to_csv(path, mode="w" if start == 0 else "a", header=start == 0, index=False)


def published(path: Path, domain: Domain) -> tuple[float, float]:
    """Seconds, and the peak memory in MB of this process."""
    started = time.perf_counter()
    publish(path, domain, epsilon=1.0, delta=1e-7, target="target", output=path.with_suffix(".kme"), force=True)
    seconds = time.perf_counter() - started
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def door_and_bare(path: Path, domain: Domain, rows: int) -> tuple[float, float, float]:
    """Seconds of reading, of the door, and of counting alone."""
    feature_map = MarginFeatures(margin_kernel(domain, "target"))
    reading = door = bare = 0.0
    started = time.perf_counter()
    with threadpool_limits(1):
        for piece in open_private(path).encoded(domain):
            reading += time.perf_counter() - started
            started = time.perf_counter()
            private_mean([piece], feature_map, NoNoise(), n_rows=len(piece))  # type: ignore[arg-type]
            door += time.perf_counter() - started
            started = time.perf_counter()
            bare_loop(piece, feature_map)
            bare += time.perf_counter() - started
            started = time.perf_counter()
    return reading, door, bare


def report(folder: Path, rows: int, columns: int) -> None:
    domain, path = domain_of(columns), folder / f"{columns}.csv"
    write_table(path, domain, rows, np.random.default_rng(0))
    features = MarginFeatures(margin_kernel(domain, "target")).dimension
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as pool:
        seconds, peak = pool.submit(published, path, domain).result()
        reading, door, bare = pool.submit(door_and_bare, path, domain, rows).result()
    print(
        f"{rows:9,} rows × {columns:3} columns, {path.stat().st_size / 1e6:.0f} MB, {features:,} features: published in "
        f"{seconds:.0f} s, peak {peak:.0f} MB; read {reading:.1f} s, door {door:.1f} s ({rows / door:,.0f} rows/s, one "
        f"thread), ratio {door / bare:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in (("rows", 1_000_000), ("columns", 20), ("wide-rows", 20_000), ("wide-columns", 100)):
        parser.add_argument(f"--{name}", type=int, default=size)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder), asked.rows, asked.columns)
        report(Path(folder), asked.wide_rows, asked.wide_columns)


if __name__ == "__main__":
    main()
