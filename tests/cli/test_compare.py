"""`kmeanalyst compare`: its text and its JSON."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import ANY

import pandas as pd
import pytest
from command_line import CITIES, Files, answer, call

import kmeanalyst as ka
from release_side import publish


@pytest.fixture(scope="module")
def sample_path(files: Files, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Much older rows, all of one city."""
    path = tmp_path_factory.mktemp("compared") / "sample.csv"
    pd.read_csv(files.older).assign(city="Genf").to_csv(path, index=False)
    return str(path)


def test_the_text_has_verdict_columns_pairs_differences_and_rows(files, sample_path):
    result = call("kmeanalyst", "compare", files.release, sample_path, "--top", "4")
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith("release and sample differ (p = ") and "level 0.05; privacy noise included" in lines[0]
    assert any("of 4 columns differ (p-values adjusted" in line for line in lines)
    assert any("of 6 pairs of columns differ" in line for line in lines)
    differences = lines[lines.index("differences of means and shares, in standard deviations of a row") + 2 :][:4]
    assert sorted(line.split()[0] for line in differences[:2]) == ["age", "city"]
    assert max(map(len, lines)) < 250


def test_json_is_one_object_of_plain_numbers_with_verdicts_at_the_level(files, sample_path, tmp_path: Path):
    options = ("--json", "--top", "2", "--level", "1e-9")
    result = call("kmeanalyst", "compare", files.release, sample_path, *options)
    facts = answer(result)
    assert {"overall", "differences", "notes"} <= facts.keys()
    assert (facts["rehearsal"], facts["level"]) == (False, 1e-9)
    assert facts["differs"] == (facts["overall"]["pvalue"] <= 1e-9)
    for row in facts["columns"] + facts["pairs"]:
        assert isinstance(row["pvalue"], float) and row["differs"] == (row["adjusted"] <= 1e-9)
    assert {row["differs"] for row in facts["columns"]} == {True, False}


def test_combine_prints_and_writes_what_python_answers(files, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("kmeanalyst.inference.two_sample.column_functions._ROWS", 100)  # quicker
    asked = ("combine", files.release, files.sample, "age", "wage > 40", "nothing")
    shown = call("kmeanalyst", *asked, "--overlap", "unknown", "--where", "city == 'Basel'")
    assert shown.exit_code == 1 and "no answer to nothing: no column nothing" in shown.stderr
    both = ka.combine(ka.read_release(files.release), files.sample, overlap="unknown")
    expected = both.mean("age", where="city == 'Basel'")
    lines = shown.stdout.splitlines()
    assert expected.written(expected.value) in lines[1]
    assert lines[4:7] == [f"note: {note}" for note in expected.notes[:3]]
    found = answer(call("kmeanalyst", *asked[:-1], "--bound", "0.1", "--json"))
    bounded = ka.combine(ka.read_release(files.release), files.sample, bound=0.1)
    assert found["estimates"][1] == bounded.probability("wage > 40").to_dict() | {"notes": ANY}
    assert found["estimates"][1]["heterogeneity"]["df"] == 1
    assert found["check"]["pvalue"] == both.check.pvalue and (found["bound"], found["overlap"]) == (0.1, "disjoint")
    assert "by the second release, which" in call("kmeanalyst", "combine", files.release, files.signed, "age").stdout
    third = publish(files.private, CITIES, method="subspace", points=30, epsilon=5.0, delta=1e-6)
    third.write(tmp_path / "third.kme")
    sites = call("kmeanalyst", "combine", files.release, files.signed, "age", "--with", str(tmp_path / "third.kme"))
    three = ka.combine(ka.read_release(files.release), [ka.read_release(files.signed), third]).mean("age")
    assert f"note: {three.notes[2]}" in sites.stdout and "on 2 df" in sites.stdout
    refused = call("kmeanalyst", *asked[:3], "age", "--with", files.signed)
    assert refused.exit_code == 1 and "--with names further releases, and SAMPLE is a table." in refused.stderr
