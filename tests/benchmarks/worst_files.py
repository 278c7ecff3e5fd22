"""Seconds, memory and printed characters of the worst valid file at each limit of the reader.

    python tests/benchmarks/worst_files.py [--names NAME ...] [--large]

One line for each file and reader; a file takes at most 5 seconds and 300 megabytes on a free machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import SUPPORT, command_line, show
from reader_costs import READERS
from worst_files_made import FILES


def cost(path: Path, reader: str, options: list[str]) -> dict[str, Any]:
    """What one reader took for one file, in a process of its own."""
    command = [sys.executable, str(SUPPORT / "reader_costs.py"), str(path), reader, *options]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    failed = {"file": path.stem, "reader": reader, "outcome": f"ended with {run.returncode}"}
    return failed if run.returncode else json.loads(run.stdout)


def main() -> None:
    asked = command_line(__doc__, names=FILES, large=False)
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.names:
            path = Path(folder) / f"{name}.kme"
            FILES[name](path)
            show(cost(path, reader, ["--large"] * asked.large) for reader in READERS)
            path.unlink()


if __name__ == "__main__":
    main()
