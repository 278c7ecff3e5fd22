"""A process that reads, validates or prints .kme files and says what that took, a line of JSON for each.

    python reader_costs.py FILE.kme ... read|validate|info ... [--large]

See releases/file/test_limits.py; worst_files_made.py makes files at the reader's limits.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd

READERS = ("read", "validate", "info")
MOST_SECONDS, MOST_MEGABYTES = 5, 300  # what a file at a limit may take on a free machine


def peak_megabytes() -> int:
    """The most memory that this process has held."""
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) // 1024


_before = 0  # megabytes of an interpreter that has imported what readers need


def measured(path: Path, reader: str, *, large: bool = False) -> dict[str, Any]:
    """What reading, validating or printing a file takes: seconds, the most megabytes until now, characters printed."""
    from click.testing import CliRunner

    from kmeanalyst.cli import main as cli
    from kmeanalyst.release import read_release
    from kmeanalyst.releases.file import read_function, validate_release
    from kmeanalyst.releases.file.limits import FileRefused, HoldsFunction

    began, printed, outcome = time.process_time(), 0, "sound"
    options = ["--large"] if large else []
    if reader == "info":
        result = CliRunner().invoke(cli.main, ["info", str(path), *options])
        printed, outcome = len(result.output), "sound" if result.exit_code == 0 else result.output
    elif reader == "validate":
        outcome = "; ".join(validate_release(path, large=large)) or "sound"
    else:
        try:
            read_release(path, large=large)
        except HoldsFunction:
            read_function(path, large=large)
        except FileRefused as refused:
            outcome = str(refused)
    seconds = time.process_time() - began
    return {
        "file": path.stem, "reader": reader, "bytes": path.stat().st_size, "seconds": round(seconds, 2),
        "megabytes": peak_megabytes() - _before, "printed": printed, "outcome": outcome[:300],
    }  # fmt: skip


def warmed_up(folder: Path) -> None:
    """Import whatever a reader imports, so that it counts for no file."""
    import pyarrow.csv  # noqa: F401

    import kmeanalyst

    frame = pd.DataFrame({"x": [0.0, 1.0], "w": [0.5, 0.5], "c": ["a", "b"]})
    release = kmeanalyst.from_frame(frame, weight="w")
    release.write(folder / "warm.tmp")
    measured(folder / "warm.tmp", "info")
    (folder / "warm.tmp").unlink()
    global _before
    _before = peak_megabytes()


def main(paths: list[Path], readers: list[str], large: bool) -> None:
    with redirect_stdout(io.StringIO()):
        warmed_up(paths[0].parent)
    if not large:  # several times what is allowed, on a busy machine
        resource.setrlimit(resource.RLIMIT_CPU, (60 * len(paths), 60 * len(paths)))
        resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
    for path in paths:
        for reader in readers:
            print(json.dumps(measured(path, reader, large=large)), flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    main([Path(word) for word in words if word.endswith(".kme")], [w for w in words if w in READERS], "--large" in words)
