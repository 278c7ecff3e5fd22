"""Points as other libraries write Parquet without compression, to see that they are read: golden/parquet/*.parquet.

python make_parquet.py     (needs duckdb, fastparquet, polars and pyarrow; written with DuckDB 2.0, 2026.9 and 2.1)
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real

N_POINTS = 60
DOMAIN = Domain(
    (
        Integer(name="whole", lower=-50, upper=50),
        Integer(name="whole_or_none", lower=0, upper=9, missing=True),
        Real(name="real", lower=-9, upper=9),
        Real(name="real_or_none", lower=-9, upper=9, missing=True),
        Categorical(name="level", levels=("a", "ä", "東京")),
        Categorical(name="level_or_none", levels=("a", "b"), missing=True),
        Boolean(name="truth"),
        Boolean(name="truth_or_none", missing=True),
        Date(name="day", lower="1950-01-01", upper="2030-01-01"),
        Date(name="day_or_none", lower="1950-01-01", upper="2030-01-01", missing=True),
    )
)


def cells() -> dict[str, list[Any]]:
    """The same 60 rows for every writer; every column in pairs, without and with nulls."""
    days = [datetime.date(1969, 12, 1) + datetime.timedelta(97 * i) for i in range(N_POINTS)]
    plain: dict[str, list[Any]] = {
        "whole": [i * 37 % 101 - 50 for i in range(N_POINTS)], "real": [(i * 37 % 101) / 7 - 7 for i in range(N_POINTS)],
        "level": ["aä東"[i * i % 3].replace("東", "東京") for i in range(N_POINTS)],
        "truth": [i % 3 == 0 for i in range(N_POINTS)], "day": days,
    }  # fmt: skip
    nulls: dict[str, list[Any]] = {
        "whole_or_none": [None if i % 7 == 0 else i % 10 for i in range(N_POINTS)],
        "real_or_none": [None if i % 5 == 0 else i / 8 for i in range(N_POINTS)],
        "level_or_none": [None if i % 4 == 0 else "ab"[i % 2] for i in range(N_POINTS)],
        "truth_or_none": [None if i % 6 == 0 else i % 2 == 0 for i in range(N_POINTS)],
        "day_or_none": [None if i % 9 == 0 else day for i, day in enumerate(days)],
    }
    return {name: (plain | nulls)[name] for name in DOMAIN.names} | {"weight": [1 / N_POINTS] * N_POINTS}


def main(folder: Path) -> None:
    import duckdb
    import fastparquet
    import pandas as pd
    import polars

    frame = polars.DataFrame(cells())
    frame.write_parquet(folder / "polars.parquet", compression="uncompressed")
    duckdb.sql(f"copy frame to '{folder}/duckdb.parquet' (format parquet, compression uncompressed)")
    without_days = pd.DataFrame(cells()).drop(columns=["day", "day_or_none"])  # fastparquet knows none
    without_days = without_days.astype({"whole_or_none": "Int64", "truth_or_none": "boolean"})
    fastparquet.write(folder / "fastparquet.parquet", without_days, compression=None)


if __name__ == "__main__":
    main(Path(__file__).parent / "parquet")
