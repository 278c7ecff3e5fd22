"""Tables of up to ten million rows from each source: time, memory that must not grow with the rows, and two processes against one.

    python tests/benchmarks/long_tables.py [--parts read units processes publish] [--rows 100000 1000000 10000000]

read        one process reads, encodes and counts one-way and two-way tables of all columns: seconds of the clock and of the
            processor, and the peak of memory over what imports need, by source and number of rows
units       the same with rows of persons, three each, brought together
processes   a Parquet file with one process and with two
publish     `release-side publish` with default settings, end to end: seconds of the clock and peak memory

Adult's rows, drawn with replacement, where ../shared has them; elsewhere those of a simulated population. PostgreSQL is started
here if it is installed. CSV is left out beyond a million rows. Each figure is one run of a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from harness import SHARED, command_line, is_there, peak, show
from populations import population
from postgres import binaries, started

import release_side
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from release_side.cli.main import main as curator
from release_side.door.exact_sums import sum_over_rows
from release_side.door.private_mean import ExactSums, integer_heights
from release_side.executors.executor import Executor, Here
from release_side.private_rows.reading import counted_rows
from release_side.private_rows.rows import open_private

GROUP = 100_000  # rows written at a time
MOST_CSV = 1_000_000
UNIT = "person"


def batches(domain: Domain, draw: Any, rows: int) -> Iterator[pa.Table]:
    """Numbers as numbers, levels as texts, and the person of each row."""
    rng = np.random.default_rng(0)
    numbers = {column.name for column in domain.columns if column.is_number}
    for _ in range(rows // GROUP):
        frame = draw(GROUP, rng)
        cells: dict[str, Any] = {
            name: pd.to_numeric(frame[name]) if name in numbers else frame[name].astype(str) for name in domain.names
        }
        yield pa.table({name: pa.array(part) for name, part in cells.items()} | {UNIT: rng.integers(0, rows // 3, GROUP)})


def write(folder: Path, domain: Domain, draw: Any, rows: int) -> None:
    with ExitStack() as files:
        parquet = csv = None
        for table in batches(domain, draw, rows):
            if parquet is None:
                parquet = files.enter_context(pq.ParquetWriter(folder / f"{rows}.parquet", table.schema))
                if rows <= MOST_CSV:
                    csv = files.enter_context(pyarrow.csv.CSVWriter(folder / f"{rows}.csv", table.schema))
            parquet.write_table(table)
            if csv is not None:
                csv.write_table(table)


def read(source: str, domain_path: Path, unit: str, processes: int) -> dict[str, Any]:
    """What a child process does: the exact sum, without noise; its figures."""
    domain = release_side.read_domain(domain_path)
    features = MarginFeatures(kernel_from_spec("margins", domain))
    sums = ExactSums(features, integer_heights(features))
    private: Any = release_side.sql("postgresql:", source.removeprefix("postgresql:")) if ":" in source else source
    executor: Executor = release_side.Processes(processes) if processes else Here()
    before, clock, work = peak(), time.perf_counter(), time.process_time()
    with counted_rows(open_private(private), domain, unit or None, executor) as (rows, size):
        sum_over_rows(rows, sums, n_rows=size.count)
    spent = {"count": size.count, "clock, s": time.perf_counter() - clock, "work, s": time.process_time() - work}
    return spent | {"over, MB": peak() - before}


def publish(source: str, domain_path: Path, output: Path) -> dict[str, Any]:
    """What a child process does: a whole publication; its figures."""
    words = ["postgresql:", "--from", source.removeprefix("postgresql:")] if ":" in source else [source]
    words += ["--domain", str(domain_path), "--output", str(output)]
    clock, work = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        options = ["--epsilon", "1", "--delta", "1e-9", "--force", "--uncounted"]
        curator(["publish", *words, *options], standalone_mode=False)
    return {"clock, s": time.perf_counter() - clock, "work, s": time.process_time() - work, "peak, MB": peak()}


def alone(work: Callable[..., dict[str, Any]], source: str, *more: Any) -> dict[str, Any]:
    """The figures that a process of its own gives."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return {"source": Path(source).name} | pool.submit(work, source, *more).result()


@contextmanager
def database(folder: Path, sizes: list[int]) -> Iterator[bool]:
    """Whether PostgreSQL runs, with a table for each number of rows; the environment then says where."""
    if binaries() is None:
        print("PostgreSQL is not installed: it is left out.")
        yield False
        return
    with started() as server:
        os.environ |= {"PGHOST": str(server.folder), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        for rows in sizes:
            path = folder / f"{rows}.parquet"
            with server.connect() as connection, connection.cursor() as cursor, pq.ParquetFile(path) as file:
                reader = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
                cursor.adbc_ingest(f"t{rows}", reader, mode="create")
        yield True


def main() -> None:
    choice = command_line(__doc__, parts=("read", "units", "processes", "publish"), rows=(100_000, 1_000_000, 10_000_000))
    domain, draw, _ = population("adult" if is_there(SHARED) else "simulated")
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as kept, ExitStack() as servers:
        folder = Path(kept)
        domain_path = folder / "domain.toml"
        domain_path.write_text(domain_toml(domain), encoding="utf-8")
        for rows in choice.rows:
            write(folder, domain, draw, rows)
        in_database = servers.enter_context(database(folder, choice.rows))
        sources = [
            source for rows in choice.rows
            for source in [*map(str, folder.glob(f"{rows}.*")), *[f"postgresql:t{rows}"] * in_database]
        ]  # fmt: skip
        figures = {
            "read": lambda: (alone(read, source, domain_path, "", 0) for source in sources),
            "units": lambda: (alone(read, source, domain_path, UNIT, 0) for source in sources),
            "processes": lambda: (
                {"processes": n} | alone(read, str(folder / f"{choice.rows[-1]}.parquet"), domain_path, "", n) for n in (1, 2, 1, 2)
            ),
            "publish": lambda: (
                alone(publish, source, domain_path, folder / "out.kme") for source in sources if not source.endswith(".csv")
            ),
        }  # fmt: skip
        for part in choice.parts:
            print(f"\n{part}")
            show(figures[part]())


if __name__ == "__main__":
    main()
