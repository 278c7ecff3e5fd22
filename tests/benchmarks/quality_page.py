"""`release-side quality` as it is called: its scores against the ACS scorer's on the released rows, and its time and memory.

    python tests/benchmarks/quality_page.py [--rows 1000000]

Reads ../shared/data/acs, and says so when it is not there.

1. A release at ε = 1, its page with --group PUMA, and ../shared/anchors/acs_score.py on the
   rows of the same file: k-marginal, worst group and mean distances of both.
2. So many rows of 20 columns in a CSV file (rows of the same data, three tenths of their cells exchanged): seconds of the
   command on the clock and of the processor, and its largest memory.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness import ANCHORS, DATA, command_line, read_text, require

import release_side
from kmeanalyst.releases.domain.domain import Domain, read_domain

ACS = DATA / "acs"
COLUMNS = 20


def run_command(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "release_side", "quality", *map(str, words)], check=True)


def compare_with_scorer(folder: Path) -> None:
    spec = importlib.util.spec_from_file_location("acs_score", ANCHORS / "acs_score.py")
    assert spec is not None and spec.loader is not None
    scorer: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    release = release_side.publish(
        ACS / "ma2019.csv.gz", ACS / "domain.toml", epsilon=1, delta=1e-6, rehearsal=1, output=folder / "acs.kme"
    )
    names = "acs.kme", "acs.internal.html", "acs.internal.json"
    file, page, numbers = (folder / name for name in names)
    run_command(
        file, ACS / "ma2019.csv.gz", "--output", page, "--json", numbers, "--group", "PUMA", "--allow-rehearsal"
    )
    found = json.loads(numbers.read_text(encoding="utf-8"))
    release.to_frame().drop(columns="weight").to_csv(folder / "rows.csv", index=False)
    real, rows = read_text("acs/ma2019.csv.gz"), read_text(str(folder / "rows.csv"))
    theirs = scorer.score(ACS / "domain.toml", real, rows, "PUMA")
    for name in ("k_marginal", "worst_group", "one_way", "two_way"):
        print(f"{name:12} {found['tables'][name]:.5f}, the scorer's {theirs[name]:.5f}")
    print(f"{len(release):,} rows, {found['questions']['held']} intervals held")


def large_table(n_rows: int) -> tuple[pd.DataFrame, Domain]:
    """Rows with their columns tied to each other, as text."""
    rng, frame = np.random.default_rng(0), read_text("acs/ma2019.csv.gz")
    domain = Domain(read_domain(ACS / "domain.toml").columns[:COLUMNS])
    own = np.arange(n_rows) % len(frame)
    exchanged = {
        name: frame[name].to_numpy()[np.where(rng.random(n_rows) < 0.3, rng.integers(0, len(frame), n_rows), own)]
        for name in domain.names
    }
    return pd.DataFrame(exchanged), domain


def measure(n_rows: int, folder: Path) -> None:
    frame, domain = large_table(n_rows)
    frame.to_csv(folder / "large.csv", index=False)
    release_side.publish(folder / "large.csv", domain, epsilon=1, delta=1e-8, rehearsal=1, output=folder / "large.kme")
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run_command(
        folder / "large.kme", folder / "large.csv", "--output", folder / "large.internal.html", "--group", domain.names[0],
        "--allow-rehearsal",
    )  # fmt: skip
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{n_rows:,} rows × {len(domain)} columns: {seconds:.0f} s on the clock, {busy:.0f} s of a processor, "
          f"{after.ru_maxrss / 1e3:,.0f} MB at most (of this command and those before it)")  # fmt: skip


if __name__ == "__main__":
    arguments = command_line(__doc__, rows=10**6)
    require(ACS)
    with tempfile.TemporaryDirectory() as made:
        compare_with_scorer(Path(made))
        measure(arguments.rows, Path(made))
