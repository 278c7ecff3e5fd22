"""The paragraph for papers: every fact in it is the file's."""

from __future__ import annotations

import hashlib

import paths
import pytest
from command_line import answer, call

import kmeanalyst as ka
from kmeanalyst.report import methods

GOLDEN = paths.TESTS / "golden"


def test_the_paragraph_has_the_facts_of_the_file(tmp_path):
    path = GOLDEN / "examples" / "counted.kme"
    release = ka.read_release(path)
    found = answer(call("kmeanalyst", "methods", path, "--json"))
    text, statement = found["text"], release.statement
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for fact in (
        digest, "counted.kme", "6,000 rows", "education-num", "(ε = 1, δ = 1e-06)-differentially private", "replacing one row",
        f"μ = {statement.mu:.3g}", "discrete gaussian noise of standard deviation 0.0009958", "7 of single columns, 21 of 2",
        "cannot be asked about", "resolution",
    ):  # fmt: skip
        assert fact in text, fact
    assert text == release.methods_text(path) and found["sha256"] == digest and found["mu"] == statement.mu
    assert found["statement"] == statement.to_dict() and any(paper.startswith("Balog") for paper in found["papers"])
    assert call("kmeanalyst", "methods", path).stdout.splitlines() == [text, "", *found["papers"]]
    assert digest not in release.methods_text()


@pytest.mark.parametrize(("name", "facts"), [
    ("persons", ("60 units of 'owner'", "replacing one unit of 'owner'")), ("draw", ("exponential mechanism", "is not known. ")),
    ("laplace", ("(ε = 2, δ = 0)-differentially private for", "discrete laplace")), ("rehearsal", ("NOT PRIVATE", "would be")),
    ("random-features", ("details finer than the smooth features",)),
])  # fmt: skip
def test_other_releases_are_described_as_what_they_are(name, facts):
    found = methods(ka.read_release(GOLDEN / "v1" / f"{name}.kme", allow_rehearsal=True))
    assert all(fact in found["text"] for fact in facts), found["text"]


def test_pairs_that_were_not_counted_are_named_and_points_of_unknown_origin_are_refused(foreign_release, monkeypatch):
    counted = ka.read_release(GOLDEN / "examples" / "counted.kme")
    assert "not counted together" not in methods(counted)["not_answered"]
    monkeypatch.setattr(type(counted.measurement), "counted_together", lambda self, i, j: (i, j) != (0, 3))
    assert " pairs of columns that were not counted together (age × sex), " in methods(counted)["not_answered"]
    with pytest.raises(ValueError, match=r"nothing is known of how .* source of the points yourself"):
        methods(foreign_release)
