"""Killed while publishing: no partly written file, and no noise that the ledger does not count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import paths
import pytest

PROGRAM = paths.SUPPORT / "publishing_processes.py"


def killed(folder: Path, *, lines: int, times: int, program: Path = PROGRAM) -> subprocess.CompletedProcess[str]:
    one_thread = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return subprocess.run(
        [sys.executable, "-W", "error", str(program), str(folder), str(lines), str(times)],
        capture_output=True, text=True, env=os.environ | one_thread, timeout=1800,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills children that are forked")
def test_a_kill_at_any_line_or_time_leaves_a_whole_file_and_a_counted_spend(tmp_path: Path):
    result = killed(tmp_path, lines=50, times=30)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert sum(found["left"].values()) >= 80
    assert min(found["left"].get(word, 0) for word in ("nothing", "drawn", "published")) > 2  # kills at every stage


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills children that are forked")
def test_the_check_above_detects_a_spend_that_is_recorded_too_late(tmp_path: Path):
    """Its power: if the door draws first and records afterwards, a kill in between leaves uncounted noise."""
    late = PROGRAM.read_text().replace(
        "    def marked(",
        """    honest_mean = DOOR.private_mean

    def late(*facts: Any, record_spend: Any, **options: Any) -> Any:
        measurement = honest_mean(*facts, **options)
        record_spend()
        return measurement

    door.private_mean = late

    def marked(""",
    )
    program = tmp_path / "late.py"
    program.write_text(late)
    (tmp_path / "cases").mkdir()
    result = killed(tmp_path / "cases", lines=60, times=0, program=program)
    assert result.returncode == 1 and "noise was drawn and not counted" in result.stderr
