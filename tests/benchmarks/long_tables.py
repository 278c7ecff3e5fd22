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
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from harness import SHARED, command_line, is_there, peak
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
        yield pa.table(
            {name: pa.array(part) for name, part in cells.items()} | {UNIT: rng.integers(0, rows // 3, GROUP)}
        )


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


def read(source: str, domain_path: str, unit: str, processes: int) -> None:
    """What a child process does: the exact sum, without noise. Its figures are printed."""
    domain = release_side.read_domain(domain_path)
    features = MarginFeatures(kernel_from_spec("margins", domain))
    sums = ExactSums(features, integer_heights(features))
    private: Any = release_side.sql("postgresql:", source.removeprefix("postgresql:")) if ":" in source else source
    executor: Executor = release_side.Processes(processes) if processes else Here()
    before, clock, work = peak(), time.perf_counter(), time.process_time()
    with counted_rows(open_private(private), domain, unit or None, executor) as (rows, size):
        sum_over_rows(rows, sums, n_rows=size.count)
    spent = time.process_time() - work
    print(f"{size.count:11,} {time.perf_counter() - clock:9.1f} {spent:9.1f} {peak() - before:9.0f}")


def child(*words: object) -> str:
    """The figures that a process of its own prints."""
    command = [sys.executable, __file__, "--child", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.rstrip()


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


def publish(source: str, domain_path: str, output: str) -> None:
    """What a child process does: a whole publication. Its figures are printed."""
    words = ["postgresql:", "--from", source.removeprefix("postgresql:")] if ":" in source else [source]
    options = [
        "--epsilon",
        "1",
        "--delta",
        "1e-9",
        "--domain",
        domain_path,
        "--output",
        output,
        "--force",
        "--uncounted",
    ]
    clock, work = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        curator(["publish", *words, *options], standalone_mode=False)
    print(f"{'':11} {time.perf_counter() - clock:9.1f} {time.process_time() - work:9.1f} {peak():9.0f}")


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        what, source, domain_path, *words = sys.argv[2:]
        if what == "publish":
            publish(source, domain_path, *words)
        else:
            read(source, domain_path, words[0], int(words[1]))
        return
    parts = ("read", "units", "processes", "publish")
    choice = command_line(__doc__, parts=parts, rows=(100_000, 1_000_000, 10_000_000))
    found = "adult" if is_there(SHARED) else "simulated"
    domain, draw, _ = population(found)
    with tempfile.TemporaryDirectory() as kept, ExitStack() as servers:
        folder = Path(kept)
        domain_path = folder / "domain.toml"
        domain_path.write_text(domain_toml(domain), encoding="utf-8")
        for rows in choice.rows:
            write(folder, domain, draw, rows)
        with_database = servers.enter_context(database(folder, choice.rows))
        head = f"{'':28}{'count':>11} {'clock, s':>9} {'work, s':>9} {'over, MB':>9}"
        for part in [each for each in ("read", "units") if each in choice.parts]:
            print(f"\n{part}\n{head}")
            for rows in choice.rows:
                paths = [folder / f"{rows}.csv", folder / f"{rows}.parquet"]
                sources = [str(path) for path in paths if path.exists()] + [f"postgresql:t{rows}"] * with_database
                for source in sources:
                    unit = UNIT if part == "units" else ""
                    print(f"{Path(source).name:28}{child('read', source, domain_path, unit, 0)}", flush=True)
        if "processes" in choice.parts:
            print(f"\nprocesses\n{head}")
            for processes in (1, 2, 1, 2):
                found = child("read", folder / f"{choice.rows[-1]}.parquet", domain_path, "", processes)
                print(f"{processes:<28}{found}", flush=True)
        if "publish" in choice.parts:
            print(f"\npublish\n{'':40}{'clock, s':>9} {'work, s':>9} {'peak, MB':>9}")
            for rows in choice.rows:
                for source in [str(folder / f"{rows}.parquet"), f"postgresql:t{rows}"][: 1 + with_database]:
                    found = child("publish", source, domain_path, folder / "out.kme")
                    print(f"{Path(source).name:28}{found}", flush=True)


if __name__ == "__main__":
    main()
