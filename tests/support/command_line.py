"""Both command lines in this process, and a folder of files to try them on."""

from __future__ import annotations

import json
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pandas as pd
from click.testing import CliRunner, Result

from kmeanalyst.cli.main import main as analyst
from kmeanalyst.release import Release
from kmeanalyst.release import read_release as read_anew
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side.cli.main import main as curator
from release_side.publishing.publish import publish

MAINS: dict[str, click.Group] = {"kmeanalyst": analyst, "release-side": curator}


def call(program: str, *arguments: object) -> Result:
    """The command in this process; an exception that is not an exit is raised here."""
    result = CliRunner().invoke(MAINS[program], [str(argument) for argument in arguments], prog_name=program)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


curate = partial(call, "release-side")


def answer(result: Result) -> dict[str, Any]:
    """The one JSON object that is all of standard output; strict JSON, so NaN and Infinity are refused."""
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1 and result.stdout.endswith("}\n")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(result.stdout, parse_constant=refuse)


@wraps(read_anew)
def read_release(path: Any, **choices: Any) -> Release:
    """The release in a file; files of the same bytes are read once, and keep what their first question computed."""
    if not Path(path).is_file():
        return read_anew(path, **choices)
    key = Path(path).read_bytes(), repr(choices)
    if key not in _READ:
        _READ[key] = read_anew(path, **choices)
    return _READ[key]


_READ: dict[tuple[bytes, str], Release] = {}


class Files(NamedTuple):
    """A folder of sound files, which tests read and never change."""

    folder: Path
    domain: str
    private: str
    sample: str
    older: str
    release: str
    signed: str


CITIES = Domain((
    Integer(name="age", lower=17, upper=90), Real(name="wage", lower=1, upper=1000, scale="log"),
    Categorical(name="city", levels=("Basel", "Genf", "O'Higgins", "Nowhere")),
    Integer(name="hours-per-week", lower=1, upper=99),
))  # fmt: skip


def city_rows(n: int, seed: int, *, older: int = 0) -> pd.DataFrame:
    """Rows in natural units, none of them from Nowhere."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": np.clip(rng.normal(40 + older, 8, n).round(), 17, 90).astype(int),
        "wage": np.exp(rng.normal(3, 0.5, n)).round(2),
        "city": rng.choice(["Basel", "Genf", "O'Higgins"], n, p=[0.5, 0.3, 0.2]),
        "hours-per-week": np.clip(rng.normal(38, 6, n).round(), 1, 99).astype(int),
    })  # fmt: skip


def city_files(folder: Path) -> Files:
    """The folder, filled: a domain, a private table, two samples of which one is 30 years older, and two releases."""
    names = ("domain.toml", "private.csv", "sample.csv", "older.csv", "r.kme", "signed.kme")
    files = Files(folder, *(str(folder / name) for name in names))
    Path(files.domain).write_text(domain_toml(CITIES), encoding="utf-8")
    city_rows(500, 1).assign(extra="x").to_csv(files.private, index=False)
    city_rows(400, 2).assign(extra="x").to_csv(files.sample, index=False)
    city_rows(400, 3, older=30).to_csv(files.older, index=False)
    budget: dict[str, Any] = {"epsilon": 5.0, "delta": 1e-6}
    publish(files.private, CITIES, points=40, features=200, **budget).write(files.release)
    signed = publish(files.private, CITIES, method="subspace", points=30, weights="published", **budget)
    signed.write(files.signed)
    return files
