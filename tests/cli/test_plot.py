"""`kmeanalyst plot`: what it draws, writes and reports."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import answer, call

import kmeanalyst.plots
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side.publishing.publish import publish

SIGNS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {"age": rng.integers(17, 90, n), "hours-per-week": rng.integers(1, 99, n)}
    return pd.DataFrame(columns | {"sex": rng.choice(["Female", "Male"], n), "income": rng.choice(["<=50K", ">50K"], n)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plots")
    domain = Domain((
        Integer(name="age", lower=17, upper=90), Integer(name="hours-per-week", lower=1, upper=99),
        Categorical(name="sex", levels=("Female", "Male")), Categorical(name="income", levels=("<=50K", ">50K")),
    ))  # fmt: skip
    choices: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6, "method": "subspace", "points": 30}
    publish(rows(400, 1), domain, **choices).write(folder / "adult.kme")
    publish(rows(400, 1), domain, **choices, rehearsal=1).write(folder / "rehearsal.kme")
    rows(100, 2).assign(note="x").to_csv(folder / "my_sample.csv", index=False)
    return folder


@pytest.fixture
def plot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(folder)
    return functools.partial(call, "kmeanalyst", "plot")


def test_every_format_is_written(plot, folder):
    for output in ("age.png", "age.pdf", "age.svg"):
        result = plot("adult.kme", "age", "--output", output)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == "" and f"wrote {output}" in result.stderr
        written = (folder / output).read_bytes()
        assert written.startswith(SIGNS[output[-4:]]) and len(written) > 5000
    assert not list(folder.glob("*.partial"))


def test_json_is_one_object_that_says_what_was_drawn(plot):
    result = plot("adult.kme", "age", "--sample", "my_sample.csv", "--output", "a.svg", "--level", "0.8", "--json")
    found = answer(result)
    assert (found["output"], found["kind"], found["columns"], found["level"]) == ("a.svg", "histogram", ["age"], 0.8)
    assert (found["n_rows"], found["epsilon"], found["delta"], found["n_sample_rows"]) == (400, 5.0, 1e-6, 100)
    assert found["rehearsal"] is False and found["view"] == "fitted"  # as its caption says
    assert found["notes"] == ['ignored columns the release does not have: "note"']
    assert "note: ignored columns" in result.stderr
    drawn = [answer(plot("adult.kme", *columns, "--json")) for columns in (["age"], ["age", "sex"])]
    assert [one["kind"] for one in drawn] == ["histogram", "table"]
    assert [one["output"] for one in drawn] == ["adult-age.png", "adult-age-sex.png"]
    assert all(Path(one["output"]).stat().st_size > 5000 for one in drawn)


def test_the_options_reach_the_drawing(plot, monkeypatch):
    seen: dict[str, Any] = {}
    drawn = kmeanalyst.plots.histogram

    def record(*arguments: Any, **options: Any) -> Any:
        seen.update(options)
        return drawn(*arguments, **options)

    monkeypatch.setattr(kmeanalyst.plots, "histogram", record)
    options = ("--bins", "7", "--where", "sex == 'Male'", "--view", "signed", "--level", "0.9")
    assert plot("adult.kme", "age", "--output", "a.png", *options).exit_code == 0
    del seen["ax"]
    assert seen == {"bins": 7, "where": "sex == 'Male'", "view": "signed", "level": 0.9}


def test_a_rehearsal_is_drawn_only_when_asked_for_and_reported(plot, folder):
    refused = plot("rehearsal.kme", "age", "--output", "r.png")
    assert refused.exit_code == 1 and not (folder / "r.png").exists()
    result = plot("rehearsal.kme", "age", "--output", "r.svg", "--allow-rehearsal", "--json")
    assert "NOT PRIVATE" in result.stderr and answer(result)["rehearsal"] is True


def test_the_command_leaves_pyplot_and_its_settings_alone(folder):
    code = (
        "import sys\nfrom kmeanalyst.cli.main import main\n"
        "main(['plot', 'adult.kme', 'age', '--output', 'alone.png'], standalone_mode=False)\n"
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr
