"""Scores of a release compared with its private table: against the ACS scorer on the same rows, and their time and memory.

    python tests/benchmarks/quality_scores.py [--rows 1000000]

1. ../shared/data/acs, and rows that are near it: a sample of 3,000 rows whose ages were exchanged. Both scores are printed,
   ours and those of ../shared/anchors/acs_score.py, with the sub-sample that is as near and the mean score of twenty
   such samples, drawn. Where the data are not there, that is said.
2. A made-up table of so many rows and 20 columns in a Parquet file, 12 of levels and 8 of numbers, grouped by a column of 12
   levels: seconds for reading, for counting, and for everything after the last row; the process's largest memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation.tables.score_tables import k_marginal, shares_of
from release_side.private_rows.rows import open_private
from release_side.quality.summary import TableSummary
from release_side.quality.table_scores import table_scores

SHARED = Path(__file__).resolve().parents[3] / "shared"
SAMPLE_ROWS = 20_000


def compare_with_scorer() -> None:
    """Print our scores of ACS, and the scorer's."""
    scorer, data = SHARED / "anchors" / "acs_score.py", SHARED / "data" / "acs"
    if not (scorer.is_file() and data.is_dir()):
        print(f"the ACS data or their scorer are not at {SHARED}: left out.")
        return
    spec = importlib.util.spec_from_file_location("acs_score", scorer)
    assert spec is not None
    assert spec.loader is not None
    acs_score: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(acs_score)
    real = pd.read_csv(data / "ma2019.csv.gz", dtype=str, keep_default_na=False)
    synthetic = real.sample(3000, random_state=1)
    synthetic["AGEP"] = synthetic["AGEP"].sample(frac=1, random_state=0).to_numpy()
    domain = read_domain(data / "domain.toml")
    expected = acs_score.score(data / "domain.toml", real, synthetic, "PUMA")
    summary, rows = TableSummary(domain, group="PUMA"), domain.encode(real)
    summary.add(rows)
    release = ka.from_frame(synthetic.assign(weight=1.0), domain=domain)
    found = table_scores(release, summary, rows)
    ours = {
        "one_way": found.one_way,
        "two_way": found.two_way,
        "k_marginal_2way": found.two_way_score,
        "k_marginal": found.k_marginal,
        "worst_group": found.worst_group,
    }
    for name, value in ours.items():
        print(f"{name:16} ours {value:10.5f}   acs_score.py {expected[name]:10.5f}")
    assert found.sub_sample is not None
    n, tables, rng = round(found.sub_sample.rows), summary.tables, np.random.default_rng(0)
    p = shares_of(tables, summary.counts)
    samples = (rows[rng.choice(len(rows), n, replace=False)] for _ in range(20))
    drawn = [k_marginal(tables, p, shares_of(tables, tables.counts(sample))) for sample in samples]
    print(
        f"as near as a sample of {found.sub_sample.text} ({n} rows); twenty such samples, drawn, have "
        f"{np.mean(drawn):.1f} ± {np.std(drawn, ddof=1) / np.sqrt(20):.1f}"
    )


SIZES = (12, 2, 2, 3, 3, 4, 5, 6, 8, 10, 20, 30)
DOMAIN = Domain(
    (
        *(Categorical(name=f"c{j}", levels=tuple(f"level {k}" for k in range(size))) for j, size in enumerate(SIZES)),
        *(Integer(name=f"n{j}", lower=0, upper=99, missing=j == 0) for j in range(4)),
        *(Real(name=f"x{j}", lower=-10, upper=10) for j in range(4)),
    )
)


def made_up(n: int, seed: int) -> Array:
    """Encoded rows whose columns all depend on one number."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    levels = [np.clip((z + rng.normal(size=n)) * size / 6 + size / 2, 0, size - 1).astype(int) for size in SIZES]
    numbers = [np.clip(np.rint(50 + 15 * (z + rng.normal(size=n))), 0, 99) for _ in range(4)]
    return np.column_stack([*levels, *numbers, *(np.clip(2 * (z + rng.normal(size=n)), -10, 10) for _ in range(4))])


def write_table(path: Path, n: int) -> None:
    """Rows in natural units, 100,000 at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for start in range(0, n, 100_000):
        frame = DOMAIN.decode(made_up(min(100_000, n - start), start))
        piece = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(path, piece.schema)
        writer.write_table(piece)
    assert writer is not None
    writer.close()


def time_and_memory(n: int) -> None:
    """Print seconds, and the process's largest memory."""
    points = DOMAIN.decode(made_up(5000, -1 % 2**32)).assign(weight=1.0)
    release = ka.from_frame(points, domain=DOMAIN)
    summary = TableSummary(DOMAIN, group="c0")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write_table(path, n)
        before = _memory()
        reading = counting = 0.0
        sample: list[Array] = []
        pieces = _timed(open_private(path).encoded(DOMAIN))
        for seconds, piece in pieces:
            reading += seconds
            start = time.perf_counter()
            summary.add(piece)
            counting += time.perf_counter() - start
            sample += [piece[: max(1, len(piece) * SAMPLE_ROWS // n)]]
        start = time.perf_counter()
        found = table_scores(release, summary, np.concatenate(sample)[:SAMPLE_ROWS])
        rest = time.perf_counter() - start
    print(
        f"{n:,} rows × {len(DOMAIN)} columns: reading {reading:.1f} s, counting {counting:.1f} s, the rest {rest:.1f} s; "
        f"memory {_memory():.0f} MB, of which {before:.0f} MB before the first row; k-marginal {found.k_marginal:.1f}"
    )


def _timed(pieces: Iterator[Array]) -> Iterator[tuple[float, Array]]:
    start = time.perf_counter()
    for piece in pieces:
        yield time.perf_counter() - start, piece
        start = time.perf_counter()


def _memory() -> float:
    """The largest memory of this process until now, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    compare_with_scorer()
    time_and_memory(options.rows)
