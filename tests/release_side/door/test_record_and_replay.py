"""Record and replay: publish a table and its hostile neighbours with the same noise, and compare everything visible.

The noise of a rehearsal is the same for the same seed. So two publications of neighbouring tables must go through
the same lines of `release_side`, in the same order, print, log and record the same, and give releases that differ in
the noisy sums (by at most the sensitivity) and in what is computed from them, and in nothing else.
"""

from __future__ import annotations

import dataclasses
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from door_cases import record_lines

import release_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import grid_sensitivity
from release_side.choices import options
from release_side.door import mechanism, turns
from release_side.private_rows import rows
from release_side.publishing import publish as publishing

DOMAIN = Domain((
    Integer(name="age", lower=0, upper=120), Real(name="income", lower=1, upper=1e6, scale="log", missing=True),
    Categorical(name="city", levels=("A", "B", "C")), Boolean(name="flag"),
    Date(name="day", lower="2000-01-01", upper="2030-01-01"),
))  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "random-features": {"points": 6, "features": 32}, "margins": {"points": 6, "kernel": "margins", "target": "flag"},
    "subspace": {"method": "subspace", "points": 8, "weights": "published"},
}  # fmt: skip
if find_spec("torch"):
    SIZES["generator"] = {"method": "generator", "points": 6, "features": 32, "target": "flag"}
TRACED = {
    module.__file__ for module in (rows, options, mechanism, publishing, turns, sys.modules["release_side.door.private_mean"])
}
HOSTILE = [
    "nan", "inf", "-inf", "1e308", "-1e308", "-0.0", "5e-324", "", " ", "unseen", "TRUE", "2001-13-45", "9" * 400,
    "\\x00", "\ud800", "ａｇｅ", "0x10", "1_0", "1e999", "NaT", "None",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def fill_caches(rough_points: None) -> None:
    """Cached values (a calibration, the versions of libraries) are computed before a line is recorded."""
    for size in SIZES.values():
        release_side.publish(DOMAIN.decode(DOMAIN.draw(9, 1)), DOMAIN, epsilon=1.0, delta=1e-6, rehearsal=1, **size)


def table(tmp_path: Path, cells: dict[int, str]) -> Path:
    """Twenty rows as CSV; `cells` replaces those of row 7, by column."""
    lines = DOMAIN.decode(DOMAIN.draw(20, 1)).to_csv(index=False).splitlines()
    if cells:
        row = lines[8].split(",")
        lines[8] = ",".join(cells.get(j, cell) for j, cell in enumerate(row))
    path = tmp_path / "private.csv"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return path


def seen(path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, **choice: Any) -> tuple[Any, ...]:
    """The release, the lines that ran, what was printed and logged, and the progress."""
    progress: list[tuple[str, float]] = []
    caplog.clear()
    with record_lines(TRACED) as lines:
        release = release_side.publish(
            path, DOMAIN, epsilon=1.0, delta=1e-6, rehearsal=1, workers=1,
            progress=lambda what, share: progress.append((what, share)), **choice,
        )  # fmt: skip
    reading = [step for step in progress if step[0] == "reading rows"]
    return release, lines, capfd.readouterr(), caplog.text, reading


def public_part(release: Release) -> tuple[Any, ...]:
    assert release.measurement is not None
    facts = dataclasses.asdict(release.statement)  # type: ignore[call-overload]
    arrays = {name: array.tobytes() for name, array in release.measurement.feature_map.arrays().items()}
    return facts, arrays, release.method, release.weight_view, len(release), release.measurement.noise_scale


@pytest.mark.parametrize("method", SIZES)
@pytest.mark.parametrize("cell", HOSTILE, ids=lambda cell: repr(cell)[:20])
@pytest.mark.slow(but="'inf'-subspace")
def test_a_hostile_neighbour_takes_the_same_path_and_shows_the_same(method, cell, tmp_path, capfd, caplog):
    one = seen(table(tmp_path, {}), capfd, caplog, **SIZES[method])
    for columns in ([0], [1], [2, 3, 4], range(5)):
        other = seen(table(tmp_path, dict.fromkeys(columns, cell)), capfd, caplog, **SIZES[method])
        assert other[1] == one[1], "another path through the code"
        assert other[2:] == one[2:] and public_part(other[0]) == public_part(one[0])
        first, second = one[0].measurement, other[0].measurement
        distance = sum((int(a) - int(b)) ** 2 for a, b in zip(first.noisy_sum, second.noisy_sum, strict=True))
        assert distance <= grid_sensitivity(first.feature_map) ** 2


def test_a_moved_row_changes_nothing(tmp_path, capfd, caplog):
    path = table(tmp_path, {})
    one = seen(path, capfd, caplog, **SIZES["random-features"])
    header, *lines = path.read_text().split("\n")
    path.write_text("\n".join([header, *lines[7:], *lines[:7]]))
    other = seen(path, capfd, caplog, **SIZES["random-features"])
    np.testing.assert_array_equal(one[0].measurement.noisy_sum, other[0].measurement.noisy_sum)
    np.testing.assert_array_equal(one[0].weights, other[0].weights)
    assert one[1:] == other[1:]


def test_the_replay_sees_a_branch_on_a_private_value(tmp_path, capfd, caplog, monkeypatch):
    """Its power: a door that reads a value takes another path, even if it shows nothing."""
    honest = turns.Turns._cells

    def mutant(self: turns.Turns, rows: Array) -> tuple[Array, Array]:
        if len(rows) == 20 and rows[7, 0] > 50:
            honest(self, rows[:0])
        return honest(self, rows)

    monkeypatch.setattr(turns.Turns, "_cells", mutant)
    one = seen(table(tmp_path, {}), capfd, caplog, **SIZES["random-features"])
    others = [seen(table(tmp_path, {0: age}), capfd, caplog, **SIZES["random-features"]) for age in ("0", "33", "60", "99")]
    assert any(other[1] != one[1] for other in others)
