"""A release from noisy tables that others published: the same measurement, rows and errors as one of our own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from kmeanalyst.release.release import Release, release_of_points
from kmeanalyst.releases.declared_statement import UNNAMED, DeclaredStatement
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.domain.noisy_tables import NoisyTable, cells_of_table
from kmeanalyst.releases.statement import software_versions
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.tables.tables_of_others import measurement_of_tables
from kmeanalyst.representation.wanted import ENOUGH_ROWS, Wanted, drawn_rows

_OF_FILE = ("domain", "n_rows", "declared_by", "epsilon", "delta", "table")  # of TABLES.toml
_OF_TABLE = ("file", "noise", "scale", "exact")


def from_measurements(
    domain: Domain | str | Path, tables: Sequence[Any] | Mapping[Any, Any], *, n_rows: int | None = None,
    statement: str | Mapping[str, Any] | None = None, progress: Progress | None = None,
) -> Release:  # fmt: skip
    """A release from noisy tables that others measured, which answers every question with errors.

    domain      Domain, or the path of its TOML file: every column is in one of the tables.
    tables      of each a DataFrame, an array or a `NoisyTable`, which has its noise: several orders, overlapping, of different
                precision. A mapping names the columns of each: {("sex", "income"): table, …}.
    n_rows      N, where it is known. Otherwise it follows from the tables' totals, and their noise makes all errors larger.
    statement   who declares the noise, or {"declared_by": …, "epsilon": …, "delta": …}. Nothing of it is verified.
    progress    called with the name of the current step and the share of it that is done.
    Returns     Release; `release.statement.notes` say what was assumed, and whether tables that overlap agree.
    Errors      ValueError for tables that do not cover their columns, or whose noise is not known.

    >>> ages = pd.DataFrame({"age": ["17 to 39", "40 to 90"], "count": [3391.0, 2602.0], "standard_error": 12.0})
    >>> ages_alone = ka.Domain((ka.Integer(name="age", lower=17, upper=90),))
    >>> measured = ka.from_measurements(ages_alone, [ages], n_rows=6000, statement="the census bureau")
    >>> measured.probability("age < 40")
    age < 40: 0.5657 ± 0.0066 (95 %: 0.5529 to 0.5786; privacy 0.0014, sampling 0.0064, resolution 0.0000) [1 note]
    """
    domain = domain if isinstance(domain, Domain) else read_domain(domain)
    given = [cells_of_table(table, domain) for table in _given(tables)]
    if not given:
        raise ValueError("there is no table. Pass at least one.")
    declared = {"declared_by": statement} if isinstance(statement, str) else dict(statement or {})
    if unknown := sorted(set(declared) - {"declared_by", "epsilon", "delta"}):
        raise ValueError(f"statement has declared_by, epsilon and delta, got {unknown!r:.200}. Leave that out.")
    measurement, notes = measurement_of_tables(given, domain, n_rows)
    said = DeclaredStatement(
        **({"declared_by": UNNAMED} | declared), mechanism=measurement.noise_law, noise_scale=measurement.noise_scale,
        n_rows=measurement.n_rows, notes=notes, versions=software_versions("kmeanalyst", "numpy"),
    )  # fmt: skip
    wanted = Wanted(n_points=drawn_rows(measurement.n_rows, domain, fewest=ENOUGH_ROWS))
    points = represent(measurement, domain, wanted, progress)
    return release_of_points(points, measurement, domain, said, method="random-features")


def _given(tables: Sequence[Any] | Mapping[Any, Any]) -> Iterator[NoisyTable]:
    several = [tables] if isinstance(tables, pd.DataFrame | NoisyTable) else tables
    pairs = several.items() if isinstance(several, Mapping) else ((None, table) for table in several)
    for columns, table in pairs:
        names = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
        one = table if isinstance(table, NoisyTable) else NoisyTable(table, names)
        yield replace(one, columns=names) if names and not one.columns else one


def import_tables(path: str | Path, progress: Progress | None = None) -> Release:
    """The release of a file TABLES.toml, which names the domain's file and those of the tables, each with its noise.

    Errors   ValueError for a file that is not TOML or has unknown entries, and as `from_measurements`.
    """
    from kmeanalyst.sources.tables import read_table

    try:
        listed = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} could not be read as TOML: {error}. Correct it, or name another file.") from None
    tables = listed.get("table")
    rows = tables if isinstance(tables, list) and all(isinstance(table, dict) for table in tables) else [{}]
    unknown = sorted({*listed} - {*_OF_FILE} | {name for row in rows for name in {*row} - {*_OF_TABLE}})
    if unknown or not all(isinstance(name, str) for name in (listed.get("domain"), *(row.get("file") for row in rows))):
        raise ValueError(
            f"{path} has {', '.join(_OF_FILE[:-1])}, and [[table]] with {', '.join(_OF_TABLE)}; domain and file are paths that "
            f"must be there{f', and {unknown!r:.200} is unknown' if unknown else ''}. Correct that."
        )
    folder = Path(path).parent
    noisy = [NoisyTable(read_table(str(folder / row.pop("file"))), **row) for row in rows]
    said: dict[str, Any] = {name: listed[name] for name in ("declared_by", "epsilon", "delta") if name in listed}
    return from_measurements(folder / listed["domain"], noisy, n_rows=listed.get("n_rows"), statement=said, progress=progress)
