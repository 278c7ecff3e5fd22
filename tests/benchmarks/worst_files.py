"""Seconds, memory and printed characters of the worst valid file at each limit of the reader.

    python tests/benchmarks/worst_files.py [NAME ...] [--large]

One line for each file and reader; a file takes at most 5 seconds and 300 megabytes on a free machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1] / "support"
sys.path.insert(0, str(SUPPORT))

from reader_costs import READERS  # noqa: E402
from worst_files_made import FILES  # noqa: E402


def line_of(path: Path, reader: str, options: list[str]) -> str:
    """What one reader took for one file."""
    command = [sys.executable, str(SUPPORT / "reader_costs.py"), str(path), reader, *options]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    if run.returncode:
        return f"{path.stem:24} {reader:9} ended with {run.returncode}"
    took = json.loads(run.stdout)
    return (
        f"{path.stem:24} {reader:9} {took['bytes']:>10,} bytes {took['seconds']:7.2f} s {took['megabytes']:5} MB "
        f"{took['printed']:>10,} printed  {took['outcome'][:60]}"
    )


def main(arguments: list[str]) -> None:
    options = [each for each in arguments if each.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        for name in [each for each in arguments if each not in options] or FILES:
            path = Path(folder) / f"{name}.kme"
            FILES[name](path)
            for reader in READERS:
                print(line_of(path, reader, options), flush=True)
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
