"""Publishing long and wide tables from disk: seconds, rows per second and peak memory, each in a process of its own.

    python tests/benchmarks/large_tables.py [--parts long fine wide adult]

long    1,000,000 rows × 20 columns
fine    50,000 rows × 60 columns of 30 cells each, 1.6 million counts
wide    20,000 rows × 100 columns, with a target
adult   the training half of the protocol of synthesis.py, where ../shared has it

A made-up table (half of its columns numbers, some with a spike and some cells missing, the others levels) is written as CSV to
a temporary folder and published at ε = 1 with default settings. "processor" adds up the time of all threads; "read" is reading
and encoding the rows alone, "door" the exact counts of encoded rows, and "ratio" the door's time over that of counting the
same cells without a bound enforced (one thread both). Some 190 MB of the peak are imports.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import synthesis
from harness import SHARED, command_line, is_there, publish_alone, show
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side.door.private_mean import ExactSums
from release_side.door.private_tables import count_tables
from release_side.private_rows.rows import open_private

PIECE = 50_000  # rows written at a time


@dataclass(frozen=True)
class Size:
    """Of a made-up table; cells of each column, None for a mix; the column that is named as target, if any."""

    rows: int
    columns: int
    cells: int | None = None
    target: str | None = None


PARTS = {"long": Size(1_000_000, 20), "fine": Size(50_000, 60, cells=30), "wide": Size(20_000, 100, target="target")}


def bare_loop(rows: Array, feature_map: MarginFeatures) -> Array:
    """The same cells counted in the same blocks, with no bound enforced."""
    step = ExactSums(feature_map).step
    parts = [feature_map.cell_indices(rows[at : at + step]).ravel() for at in range(0, len(rows), step)]
    return np.sum([np.bincount(part, minlength=feature_map.dimension) for part in parts], axis=0)


def domain_of(size: Size) -> Domain:
    """Numbers and levels in turn; in a mix the last column has two levels."""
    if size.cells:
        levels, edges = tuple(f"{i:02}" for i in range(size.cells)), tuple(np.arange(1, size.cells) / size.cells)
        return Domain(tuple(
            Categorical(name=f"level {i}", levels=levels) if i % 2 else Real(name=f"number {i}", lower=0, upper=1, edges=edges)
            for i in range(size.columns)
        ))  # fmt: skip
    made: list[Column] = []
    for i in range(size.columns - 1):
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


def door_and_bare(path: Path, domain: Domain, feature_map: MarginFeatures) -> tuple[float, float, float]:
    """Seconds of reading, of the door, and of counting alone."""
    reading = door = bare = 0.0
    started = time.perf_counter()
    with threadpool_limits(1):
        for piece in open_private(path).encoded(domain):
            reading += time.perf_counter() - started
            started = time.perf_counter()
            count_tables([piece], feature_map, n_rows=len(piece))
            door += time.perf_counter() - started
            started = time.perf_counter()
            bare_loop(piece, feature_map)
            bare += time.perf_counter() - started
            started = time.perf_counter()
    return reading, door, bare


def report(path: Path, domain: Domain, rows: int, target: str | None = None) -> None:
    feature_map = MarginFeatures(kernel_from_spec("adaptive", domain))  # type: ignore[arg-type]
    _, seconds, busy, megabytes = publish_alone(
        path, domain, epsilon=1.0, delta=1e-7, target=target, output=path.with_suffix(".kme"), uncounted=True
    )
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        reading, door, bare = pool.submit(door_and_bare, path, domain, feature_map).result()
    show([{
        "rows": rows, "columns": len(domain), "file, MB": path.stat().st_size / 1e6, "cells": feature_map.dimension,
        "published, s": seconds, "processor, s": busy, "peak, MB": megabytes, "read, s": reading, "door, s": door,
        "rows/s": rows / door, "ratio": door / bare,
    }])  # fmt: skip


def main() -> None:
    for part in command_line(__doc__, parts=(*PARTS, "adult")).parts:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{part}.csv"
            if part != "adult":
                size = PARTS[part]
                domain = domain_of(size)
                write_table(path, domain, size.rows, np.random.default_rng(0))
                report(path, domain, size.rows, size.target)
            elif is_there(SHARED):
                table = synthesis.adult()
                table.train.to_csv(path, index=False)
                report(path, table.domain, len(table.train))


if __name__ == "__main__":
    main()
