"""What a private row costs before noise: reading, encoding and counting, by source, in microseconds of one core.

    python tests/benchmarks/reading_rates.py [--rows 200000] [--rounds 5]

Adult's 15 columns, rows of both files drawn with replacement, in a domain drafted from the files. "parse" reads the cells of every
column, "encode" turns them into numbers, "door" counts the cells of all tables of the default kernel: one-way ones of all columns
(numbers also in finer ranges) and two-way ones of all pairs. Beside them, in the same run, what other programs need to do less:
pyarrow.csv with every cell as text, and with types inferred (which private rows must never be), and a product of single
precision numbers, rows × 119 by 119 × 2,000. Each figure is the least of some rounds, of the processor's time over all threads, of
which there is one.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from harness import SHARED, command_line, require, show
from populations import population
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from release_side.door.private_tables import count_tables
from release_side.private_rows.rows import open_private

_PIECE = 20_000  # rows of the product at a time


def write_sources(folder: Path, rows: int) -> dict[str, Any]:
    """The same rows in every kind of source: numbers as numbers where a source has types."""
    _, draw, _ = population("adult")
    plain, zipped, parquet = (folder / f"adult.{ending}" for ending in ("csv", "csv.gz", "parquet"))
    draw(rows, np.random.default_rng(0)).to_csv(plain, index=False)
    zipped.write_bytes(gzip.compress(plain.read_bytes(), 6))
    table = pyarrow.csv.read_csv(plain)
    pq.write_table(table, parquet)
    sources = {"CSV": plain, ".csv.gz": zipped, "Parquet": parquet, "pyarrow stream": table}
    try:
        import polars
    except ImportError:
        print("polars is not installed: its frames are left out. Install the extra [sources].")
        return sources
    return sources | {"polars frame": polars.from_arrow(table)}


def microseconds(work: Callable[[], object], rows: int, rounds: int) -> float:
    """Of the processor for each row: the least of some rounds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found) / rows * 1e6


def parse(source: Any, domain: Domain) -> None:
    for _ in open_private(source)._pieces(domain.names):
        pass


def encode(source: Any, domain: Domain) -> list[Array]:
    return list(open_private(source).encoded(domain))


def read_with_pyarrow(path: Path, kinds: dict[str, pa.DataType] | None) -> None:
    options = pyarrow.csv.ConvertOptions(column_types=kinds)
    pyarrow.csv.read_csv(path, read_options=pyarrow.csv.ReadOptions(use_threads=False), convert_options=options)


def product(rows: int) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.random(shape, dtype=np.float32) for shape in ((_PIECE, 119), (119, 2000)))
    out = np.empty((_PIECE, 2000), dtype=np.float32)
    for _ in range(0, rows, _PIECE):
        np.matmul(left, right, out=out)


def report(options: argparse.Namespace, folder: Path) -> None:
    domain, rows, rounds = population("adult")[0], options.rows, options.rounds
    sources = write_sources(folder, rows)
    tables = MarginFeatures(kernel_from_spec("adaptive", domain, None))
    print(f"{rows:,} rows × {len(domain)} columns, microseconds a row of one core", flush=True)
    lines = []
    for name, source in sources.items():
        parsed = microseconds(lambda: parse(source, domain), rows, rounds)  # noqa: B023
        both = microseconds(lambda: encode(source, domain), rows, rounds)  # noqa: B023
        lines.append({"source": name, "parse": parsed, "encode": both - parsed, "both": both})
    show(lines)
    encoded = encode(sources["CSV"], domain)
    as_text = dict.fromkeys(domain.names, pa.string())
    others = {
        f"door: {tables.width} tables, {tables.dimension:,} cells": lambda: count_tables(encoded, tables, n_rows=rows),
        "lines of the CSV file counted": lambda: open_private(sources["CSV"]).count(),
        "pyarrow.csv, all text": lambda: read_with_pyarrow(sources["CSV"], as_text),
        "pyarrow.csv, types inferred": lambda: read_with_pyarrow(sources["CSV"], None),
        "float32 product, 119 by 2,000": lambda: product(rows),
    }
    show({"for comparison": name, "µs": microseconds(work, rows, rounds)} for name, work in others.items())


def main() -> None:
    options = command_line(__doc__, rows=200_000, rounds=5)
    require(SHARED)
    pa.set_cpu_count(1)
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        report(options, Path(folder))


if __name__ == "__main__":
    main()
