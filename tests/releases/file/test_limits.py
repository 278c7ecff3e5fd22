"""Small valid files cannot occupy a reader: each file at a limit is read, validated and printed within bounds.

On a free machine the bounds are 5 seconds and 300 megabytes besides the file's own bytes. Here they are wider: processor time
counts, and a machine may be busy. A reader without the limit, or with a slower algorithm, takes ten times as long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import paths
import pytest
from click.testing import CliRunner
from reader_costs import MOST_MEGABYTES, MOST_SECONDS
from worst_files_made import FILES

from kmeanalyst.cli.main import main
from kmeanalyst.cli.questions import estimate_table
from kmeanalyst.release import from_frame, read_release
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.file import FileRefused, read_function, validate_release
from kmeanalyst.releases.file import limits as refusal
from kmeanalyst.releases.file.limits import LARGE, USUAL

HERE = paths.TESTS
NOT_RECOMPUTED = ("margins_of_many_columns", "subspace_of_strings")  # validate would take too many steps
BUSY = 5  # times as slow as a free machine
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory as Linux reports it")


QUICK = ("long_texts", "draw", "levels")
# each of these, and each reader, in a process of its own: what was read there before would count for it
LARGEST = ("numbers", "logarithms", "wide", "long_numbers", "long_levels", "levels_of_points", "margins_of_points")
OTHERS = tuple(name for name in FILES if name not in QUICK + LARGEST)


@LINUX
@pytest.mark.parametrize(
    "names", [QUICK, *(pytest.param(names, marks=pytest.mark.slow) for names in (*((name,) for name in LARGEST), OTHERS))]
)
def test_files_at_the_limits_take_seconds_and_megabytes(names: tuple[str, ...], tmp_path: Path):
    files = [tmp_path / f"{name}.kme" for name in names]
    for name, path in zip(names, files, strict=True):
        FILES[name](path)
    results = []
    for readers in [["validate"], ["info"]] if names[0] in LARGEST else [["validate", "info"]]:
        run = subprocess.run(
            [sys.executable, "-W", "error", str(paths.SUPPORT / "reader_costs.py"), *map(str, files), *readers],
            capture_output=True, text=True, timeout=1200, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        assert run.returncode == 0, (run.stdout[-300:], run.stderr[-1000:])
        results += [json.loads(line) for line in run.stdout.splitlines()]
    assert [took["file"] for took in results] == [name for name in names for _ in range(2)]
    for took in results:
        held = took["megabytes"] - took["bytes"] / 1e6  # besides the file itself
        assert took["seconds"] < BUSY * MOST_SECONDS and held < MOST_MEGABYTES, took
        assert took["printed"] < 3000 + 2 * took["bytes"], took
        assert took["reader"] == "validate" or took["outcome"] == "sound", took
        assert "--large" not in took["outcome"] or took["file"] in NOT_RECOMPUTED, took


def test_every_usual_limit_is_within_the_one_that_large_lifts_it_to():
    assert all(asdict(USUAL)[name] <= most for name, most in asdict(LARGE).items())


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usual limits that a file of sixty points is beyond."""
    monkeypatch.setattr(refusal, "USUAL", replace(USUAL, points=10, pivots=2))


@pytest.mark.usefixtures("narrow")
def test_large_reads_what_is_beyond_the_usual_limits(mixed_path: Path):
    message = r"60 points: at most 10 are read\. If you trust its maker, read it with --large"
    with pytest.raises(FileRefused, match=message):
        read_release(mixed_path)
    assert len(read_release(mixed_path, large=True)) == 60
    assert "at most 10" in validate_release(mixed_path)[0] and validate_release(mixed_path, large=True) == []
    command = CliRunner()
    assert command.invoke(main, ["info", str(mixed_path)]).exit_code == 1
    for arguments in (["info"], ["validate"], ["expect", "age"]):
        asked = [arguments[0], str(mixed_path), *arguments[1:], "--large"]
        assert command.invoke(main, asked).exit_code == 0, asked


@pytest.mark.usefixtures("narrow")
def test_large_reads_functions_too():
    path = sorted((HERE / "golden/function_v1").glob("*.kme"))[0]
    with pytest.raises(FileRefused, match=r"pivots: at most 2 are read\. .* --large"):
        read_function(path)
    assert read_function(path, large=True).basis.dimension > 2
    assert CliRunner().invoke(main, ["info", str(path), "--large"]).exit_code == 0


@pytest.mark.usefixtures("narrow")
def test_what_was_read_with_large_can_be_written_again(mixed_path: Path, tmp_path: Path):
    read_release(mixed_path, large=True).write(tmp_path / "again.kme")
    assert (tmp_path / "again.kme").read_bytes() == mixed_path.read_bytes()


def test_names_and_levels_have_at_most_two_hundred_characters():
    for make in [lambda text: Real(name=text, lower=0, upper=1), lambda text: Categorical(name="c", levels=("a", text))]:
        make("x" * 200)
        message = r"must have at most 200 characters, got 201: it appears in every .* Shorten"
        with pytest.raises(DomainError, match=message):
            make("x" * 201)


def test_a_long_name_makes_only_its_own_line_long():
    domain = Domain((Real(name="x" * 200, lower=0, upper=1), Real(name="y", lower=0, upper=1)))
    release = from_frame(domain.decode(domain.draw(3, 0)).assign(weight=1 / 3), domain=domain)
    lines = {line.split()[0]: line for line in repr(release).splitlines()}
    assert len(lines["y"]) < 80 and len(lines["x" * 59 + "…"]) < 100  # a line that wraps could pass for two
    table = estimate_table(list(release.expectations(["y", "y + " * 60 + "y"])), 0.95)
    assert [len(line) > 250 for line in table.splitlines()[1:3]] == [False, True]
