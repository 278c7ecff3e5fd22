"""No command of the analyst replaces a file that it reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import paths
from click.testing import CliRunner

from kmeanalyst.cli.main import main

GOLDEN = paths.TESTS / "golden" / "examples" / "adult.kme"
COMMANDS = [
    "report a.kme --output a.kme", "export a.kme a.csv", "plot a.kme age --output a.png",
    "plot a.kme age --sample s.csv --output s.png", "train a.kme --target income --output a.skops",
    "train a.kme --target income --test s.csv --output s.skops", "transform a.kme double=age*2 --output a.kme",
]  # fmt: skip


def test_an_output_that_is_a_source_is_refused_and_the_source_stays(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(GOLDEN, "a.kme")
    Path("s.csv").write_text("age\n40\n", encoding="utf-8")
    for line in COMMANDS:
        output = Path(line.split()[-1])
        source = Path("s.csv" if output.stem == "s" else "a.kme")
        if not output.exists():
            output.hardlink_to(source)  # the same file by the name that the command wants
        before = source.read_bytes()
        result = CliRunner().invoke(main, line.split())
        assert result.exit_code == 1, (line, result.output)
        assert "is a file that is read, and writing would replace it. Name a new file." in result.stderr
        assert source.read_bytes() == before and output.read_bytes() == before
