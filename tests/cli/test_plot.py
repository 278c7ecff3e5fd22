"""`kmeanalyst plot` as a person or a program meets it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import kmeanalyst.plots
from kmeanalyst.cli.main import main
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side.publishing.publish import publish

SIGNS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {"age": rng.integers(17, 90, n), "hours-per-week": rng.integers(1, 99, n)}
    return pd.DataFrame(
        columns | {"sex": rng.choice(["Female", "Male"], n), "income": rng.choice(["<=50K", ">50K"], n)}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the help names, and a rehearsal."""
    place = tmp_path_factory.mktemp("plots")
    domain = Domain((
        Integer(name="age", lower=17, upper=90), Integer(name="hours-per-week", lower=1, upper=99),
        Categorical(name="sex", levels=("Female", "Male")), Categorical(name="income", levels=("<=50K", ">50K")),
    ))  # fmt: skip
    choices: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6, "method": "subspace", "points": 30}
    publish(people(400, 1), domain, **choices).write(place / "adult.kme")
    publish(people(400, 1), domain, **choices, rehearsal=1).write(place / "rehearsal.kme")
    people(100, 2).assign(note="x").to_csv(place / "my_sample.csv", index=False)
    return place


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(main, ["plot", *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def examples() -> list[list[str]]:
    """The commands that the help shows, as a shell would take them apart."""
    shown = CliRunner().invoke(main, ["plot", "--help"]).stdout.split("Examples:")[1].split("Options:")[0]
    return [shlex.split(line)[2:] for line in shown.splitlines() if line.strip().startswith("kmeanalyst plot")]


@pytest.mark.parametrize("arguments", examples(), ids=" ".join)
def test_the_examples_of_the_help_run_as_printed(arguments, call, folder):
    output = folder / arguments[arguments.index("--output") + 1]
    result = call(*arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "" and f"wrote {output.name}" in result.stderr
    written = output.read_bytes()
    assert written.startswith(SIGNS[output.suffix]) and len(written) > 5000
    assert not list(folder.glob("*.partial"))


def test_the_examples_are_found():
    assert len(examples()) == 5


def test_json_is_one_object_that_says_what_was_drawn(call):
    result = call("adult.kme", "age", "--sample", "my_sample.csv", "--output", "a.svg", "--level", "0.8", "--json")
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    told = json.loads(result.stdout)
    assert (told["output"], told["kind"], told["columns"], told["level"]) == ("a.svg", "histogram", ["age"], 0.8)
    assert (told["n_rows"], told["epsilon"], told["delta"], told["n_sample_rows"]) == (400, 5.0, 1e-6, 100)
    assert told["rehearsal"] is False and told["view"] == "probability"
    assert told["notes"] == ['ignored columns the release does not have: "note"']
    assert "note: ignored columns" in result.stderr
    kinds = {
        json.loads(call("adult.kme", *columns, "--output", "a.png", "--json").stdout)["kind"]
        for columns in (["age"], ["age", "sex"], ["age", "sex", "income"])
    }
    assert kinds == {"histogram", "table", "pairs"}


def test_the_options_reach_the_drawing(call, monkeypatch):
    seen: dict[str, Any] = {}
    drawn = kmeanalyst.plots.histogram

    def record(*arguments: Any, **options: Any) -> Any:
        seen.update(options)
        return drawn(*arguments, **options)

    monkeypatch.setattr(kmeanalyst.plots, "histogram", record)
    options = ("--bins", "7", "--where", "sex == 'Male'", "--view", "signed", "--level", "0.9")
    assert call("adult.kme", "age", "--output", "a.png", *options).exit_code == 0
    del seen["ax"]
    assert seen == {"bins": 7, "where": "sex == 'Male'", "view": "signed", "level": 0.9}


def test_a_rehearsal_is_drawn_only_when_asked_for_and_told_of(call, folder):
    refused = call("rehearsal.kme", "age", "--output", "r.png")
    assert refused.exit_code == 1 and not (folder / "r.png").exists()
    result = call("rehearsal.kme", "age", "--output", "r.svg", "--allow-rehearsal", "--json")
    assert result.exit_code == 0 and "NOT PRIVATE" in result.stderr and json.loads(result.stdout)["rehearsal"] is True


def test_the_command_leaves_pyplot_and_its_settings_alone(folder):
    code = (
        "import sys\nfrom kmeanalyst.cli.main import main\n"
        "main(['plot', 'adult.kme', 'age', '--output', 'alone.png'], standalone_mode=False)\n"
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr


BAD = [
    ("adult.kme agee --output b.png", r"agee.*Did you mean|no column 'agee'", 1),
    ("adult.kme age --output b.xlsx", r"cannot draw to b\.xlsx: .*Name a file", 1),
    ("adult.kme age --output nowhere/b.png", r"no folder .*, so nothing was written\. Create", 1),
    ("adult.kme sex --kind density --output b.png", r"sex is categorical: .*Draw its histogram", 1),
    ("adult.kme sex --bins 5 --output b.png", r"sex has no ranges to bin.*Leave bins out", 1),
    ("adult.kme age age --output b.png", r"two columns, got 'age' twice", 1),
    ("adult.kme age age sex --output b.png", r"two to 6 different columns.*Name some", 1),
    ("adult.kme age --where age>95 --output b.png", r"probability 0.*Ask a wider condition", 1),
    ("adult.kme age --sample nowhere.csv --output b.png", r"no file at .*Check the path", 1),
    ("adult.kme age sex --sample my_sample.csv --output b.png", r"--sample is for the drawing of one column, got 2", 2),
    ("adult.kme age --kind cdf --bins 5 --output b.png", r"--bins is for histograms, and a cdf.*Leave", 2),
    ("adult.kme age", r"Missing option '--output'", 2),
    ("adult.kme --output b.png", r"Missing argument 'COLUMN", 2),
]


@pytest.mark.parametrize(("words", "told", "code"), BAD, ids=[words for words, *_ in BAD])
def test_a_bad_call_ends_in_one_clear_error_and_writes_nothing(words, told, code, call, folder):
    before = sorted(folder.iterdir())
    result = call(*words.split())
    assert (result.exit_code, result.stdout) == (code, "")
    assert re.search(told, result.stderr, re.DOTALL), result.stderr
    assert sorted(folder.iterdir()) == before
