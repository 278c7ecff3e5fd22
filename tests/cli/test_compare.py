"""`kmeanalyst compare`: its text and its JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from command_line import answer, call

from kmeanalyst.release import Release


def compare(*arguments: object) -> Result:
    return call("kmeanalyst", "compare", *arguments)


@pytest.fixture
def sample_path(mixed_release: Release, tmp_path: Path) -> str:
    """Rows like the release's, but all of one city and much older."""
    rows = mixed_release.resample(300, rng=0).assign(city="東京")
    rows["age"] = np.minimum(rows["age"] + 20, 90)
    rows.to_csv(tmp_path / "sample.csv", index=False)
    return str(tmp_path / "sample.csv")


def test_the_text_has_verdict_columns_pairs_differences_and_rows(mixed_path, sample_path):
    result = compare(mixed_path, sample_path, "--top", "4")
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith("release and sample differ (p = ") and "level 0.05; privacy noise included" in lines[0]
    assert any("of 10 columns differ (p-values adjusted" in line for line in lines)
    assert any("of 45 pairs of columns differ" in line for line in lines)
    differences = lines[lines.index("differences of means and shares, in standard deviations of a row") + 2 :][:4]
    assert differences[0].split()[:2] == ["city", "東京"]
    title = next(i for i, line in enumerate(lines) if line.startswith("where the release has more"))
    assert "witness" in lines[title + 1] and len(lines[title + 2 :]) >= 4
    assert max(map(len, lines)) < 250


def test_the_level_decides_the_verdicts(mixed_path, sample_path):
    found = answer(compare(mixed_path, sample_path, "--level", "1e-9", "--json"))
    verdicts = [row["adjusted"] <= 1e-9 for row in found["columns"]]
    assert found["level"] == 1e-9 and [row["differs"] for row in found["columns"]] == verdicts
    assert found["differs"] == (found["overall"]["pvalue"] <= 1e-9)


def test_json_is_one_object_of_plain_numbers(mixed_path, sample_path, tmp_path):
    plot = tmp_path / "witness.png"
    result = compare(mixed_path, sample_path, "--json", "--plot", plot, "--top", "2")
    found = answer(result)
    assert {"overall", "differs", "columns", "pairs", "differences", "witness", "notes", "plot", "rehearsal"} <= set(
        found
    )
    assert found["differs"] is True and found["rehearsal"] is False
    assert {row["column"] for row in found["columns"] if row["differs"]} >= {"city"}
    assert all(isinstance(row["pvalue"], float) for row in found["pairs"])
    assert plot.read_bytes()[:4] == b"\x89PNG" and f"wrote {plot}" in result.stderr
