"""What tests of private sources share: a table with its domain, the integers of a rehearsal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest
from exception_texts import everything_of

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from release_side import Ledger, PublishError, publish

DOMAIN = Domain((
    Integer(name="age", lower=17, upper=90, default=40),
    Real(name="gain", lower=0, upper=1e5, missing=True),
    Categorical(name="city", levels=("Zürich", "Basel, Stadt", "13")),
    Date(name="joined", lower="2000-01-01", upper="2020-12-31"),
))  # fmt: skip
N = 300
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "points": 5, "features": 64, "rehearsal": 1}


def patients(who: pa.DataType | None = None, n: int = N, *, note: str = "note", city: str = "city") -> pa.Table:
    """Typed columns with empty cells, one of them outside the domain, and identifiers of that type.

    Identifiers: None, "", NaN, 13 and "13", where the type allows them.
    """
    rng = np.random.default_rng(3)
    owners = rng.integers(0, 40, n).tolist()
    identifiers: list[Any] = [None if each < 6 else each for each in owners]
    if who == pa.float64():
        identifiers = [float("nan") if each == 7 else cell for each, cell in zip(owners, identifiers, strict=True)]
    if who == pa.string():
        texts = {7: "", 8: "13", 9: "NaN", 10: " 13", 13: 13}
        identifiers = [None if cell is None else str(texts.get(cell, f"Doe, {cell}")) for cell in identifiers]
    return pa.table({
        note: pa.array([f"n{i}" for i in range(n)]),
        "age": pa.array([None if i % 11 == 0 else int(x) for i, x in enumerate(rng.integers(10, 100, n))], pa.int64()),
        "capital.gain": pa.array([None if i % 5 == 0 else float(x) for i, x in enumerate(rng.normal(5e4, 3e4, n))]),
        city: pa.array(rng.choice(["Zürich", "Basel, Stadt", "13", "Bern", ""], n)),
        "joined": pa.array(rng.integers(10_900, 19_000, n).astype("M8[D]")),
        "ill": pa.array([None if i % 11 == 0 else bool(x) for i, x in enumerate(rng.random(n) < 0.3)]),
        "who": pa.array(identifiers, who or pa.int64()),
    })  # fmt: skip


def people(who: pa.DataType | None = None) -> pa.Table:
    """Those of the columns that every format can hold, as DOMAIN names them, and the identifiers."""
    table = patients(who)
    names = ["gain" if name == "capital.gain" else name for name in table.column_names]
    return table.rename_columns(names).select([*DOMAIN.names, "who"])


def domain_of_patients(city: str = "city") -> Domain:
    return Domain((
        DOMAIN["age"], Real(name="capital.gain", lower=0, upper=1e5, missing=True),
        Categorical(name=city, levels=("Zürich", "Basel, Stadt", "13")), DOMAIN["joined"], Boolean(name="ill"),
    ))  # fmt: skip


def empty_for_nan(table: pa.Table) -> pa.Table:
    """The table as a CSV file should hold it: without the text "nan" for an identifier that is not a number."""
    who = table["who"]
    if pa.types.is_floating(who.type):
        who = pc.if_else(pc.is_nan(who), pa.scalar(None, who.type), who)
    return table.set_column(table.schema.names.index("who"), "who", who)


def as_csv(table: pa.Table, path: Path) -> Path:
    """A CSV file of the table: this one, or t.csv of this folder."""
    path = path / "t.csv" if path.is_dir() else path
    pyarrow.csv.write_csv(table, path)
    return path


def integers(source: Any, domain: Domain = DOMAIN, **options: Any) -> list[int]:
    """The noisy integers of a rehearsal, of a method whose points take no time."""
    small = SMALL | {"method": "subspace", "points": 40, "features": None}
    measurement = publish(source, domain, **small, **options).measurement
    assert measurement is not None
    return measurement.noisy_sum.tolist()


MARKER = "HIV+ 4711"  # a cell, without hexadecimal digits, which a ledger holds at random


def fail_with_a_cell(error: Callable[[], BaseException]) -> None:
    """Warn of the cell, and raise this error because of another one with the cell."""
    warnings.warn(f"a cell could not be cast: {MARKER}", stacklevel=1)
    try:
        raise KeyError(MARKER)
    except KeyError as cause:
        raise error() from cause


def refused_and_shown(
    source: Any, domain: Domain, folder: Path, watched: tuple[Any, Any, Any], *, match: str, unit: str | None = None
) -> str:
    """All that can be seen of a publication that is refused: nothing was spent, and no release written.

    watched   capfd, caplog and recwarn.
    """
    capfd, caplog, recwarn = watched
    folder.mkdir(exist_ok=True)
    ledger, output = Ledger(folder / "budget.ledger"), folder / "a.kme"
    ledger.init("people", epsilon=2, delta=1e-5)
    options = SMALL | {"rehearsal": None, "ledger": ledger.path, "table": "people", "output": output}
    caplog.set_level(logging.DEBUG)
    with pytest.raises(PublishError, match=match) as caught:
        publish(source, domain, unit=unit, **options)
    assert ledger.account("people").total_epsilon == 0 and not output.exists()
    records = [repr(vars(record)) for record in caplog.records if not record.name.startswith("hypothesis")]
    written = [path.read_bytes().decode("latin-1") for path in folder.iterdir()]
    warned = [str(warning.message) for warning in recwarn]
    return "\n".join([everything_of(caught.value), *capfd.readouterr(), *records, *warned, *written])
