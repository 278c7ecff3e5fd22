"""`kmeanalyst compare` as a person or a program meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kmeanalyst.cli.main import main
from kmeanalyst.release import Release


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["compare", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def sample_path(mixed_release: Release, tmp_path: Path) -> str:
    """Rows like the release's, but all of one city and much older."""
    rows = mixed_release.resample(300, rng=0).assign(city="東京")
    rows["age"] = np.minimum(rows["age"] + 20, 90)
    rows.to_csv(tmp_path / "sample.csv", index=False)
    return str(tmp_path / "sample.csv")


def test_the_answer_for_people_has_verdict_columns_pairs_differences_and_rows(mixed_path, sample_path):
    result = call(str(mixed_path), sample_path, "--top", "4")
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
    told = json.loads(call(str(mixed_path), sample_path, "--level", "1e-9", "--json").stdout)
    found = [row["adjusted"] <= 1e-9 for row in told["columns"]]
    assert told["level"] == 1e-9 and [row["differs"] for row in told["columns"]] == found
    assert told["differs"] == (told["overall"]["pvalue"] <= 1e-9)


def test_json_is_one_object_of_plain_numbers(mixed_path, sample_path, tmp_path):
    plot = tmp_path / "witness.png"
    result = call(str(mixed_path), sample_path, "--json", "--plot", str(plot), "--top", "2")
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    told = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert {"overall", "differs", "columns", "pairs", "differences", "witness", "notes", "plot", "rehearsal"} <= set(
        told
    )
    assert told["differs"] is True and told["rehearsal"] is False
    assert {row["column"] for row in told["columns"] if row["differs"]} >= {"city"}
    assert all(isinstance(row["pvalue"], float) for row in told["pairs"])
    assert plot.read_bytes()[:4] == b"\x89PNG" and f"wrote {plot}" in result.stderr


def test_another_release_is_no_sample(mixed_path):
    result = call(str(mixed_path), str(mixed_path))
    assert result.exit_code == 1 and result.stdout == ""
    assert "compare needs rows" in result.stderr and "Use mmd-test for two releases" in result.stderr


def test_a_sample_without_a_column_is_refused(mixed_path, tmp_path):
    (tmp_path / "short.csv").write_text("age\n30\n40\n", encoding="utf-8")
    result = call(str(mixed_path), str(tmp_path / "short.csv"))
    assert result.exit_code == 1 and "the sample lacks" in result.stderr


@pytest.mark.parametrize("option", [("--level", "0"), ("--level", "1"), ("--top", "0")])
def test_options_out_of_range_are_wrong_usage(option, mixed_path, sample_path):
    assert call(str(mixed_path), sample_path, *option).exit_code == 2
