"""No command of the analyst replaces a file that it reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import paths
import pytest
from click.testing import CliRunner

from kmeanalyst.cli.main import main

GOLDEN = paths.TESTS / "golden" / "examples" / "adult.kme"
COMMANDS = {
    "report": ("report", "a.kme", "--output", "a.kme"),
    "export": ("export", "a.kme", "a.csv"),
    "plot": ("plot", "a.kme", "age", "--output", "a.png"),
    "plot over its sample": ("plot", "a.kme", "age", "--kind", "density", "--sample", "s.csv", "--output", "s.png"),
    "train": ("train", "a.kme", "--target", "income", "--output", "a.skops"),
    "train over its test": ("train", "a.kme", "--target", "income", "--test", "s.csv", "--output", "s.skops"),
    "thin": ("thin", "a.kme", "10", "--output", "a.kme"),
    "transform": ("transform", "a.kme", "double = age * 2", "--output", "a.kme"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_that_is_a_source_is_refused_and_the_source_stays(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(GOLDEN, "a.kme")
    Path("s.csv").write_text("age\n40\n", encoding="utf-8")
    arguments = COMMANDS[name]
    output = Path(arguments[-1])
    source = Path("s.csv" if output.stem == "s" else "a.kme")
    if output != source:
        output.hardlink_to(source)  # the same file by the name that the command wants
    before = source.read_bytes()
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1, result.output
    assert "is a file that is read, and writing would replace it. Name a new file." in result.stderr
    assert source.read_bytes() == before and output.read_bytes() == before
