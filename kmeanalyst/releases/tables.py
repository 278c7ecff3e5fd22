"""Tables that are the reader's own or public: samples to test, public points, samples to draft from."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pandas as pd

from kmeanalyst.releases.columns import DomainError


def read_table(path: str | Path) -> pd.DataFrame:
    """A .csv, .csv.gz or .parquet file as a DataFrame; CSV cells stay text, so that the domain reads them.

    Not for private rows: those go through release_side. DomainError says what is wrong with the file.
    """
    path = Path(path)
    if not path.exists():
        raise DomainError(f"no file at {path}. Check the path.")
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            table = pd.read_parquet(path)
        elif name.endswith((".csv", ".csv.gz")):
            table = _read_csv(path)
        else:
            raise DomainError(f"{path} is neither .csv, .csv.gz nor .parquet. Convert it to one of these.")
    except pd.errors.EmptyDataError:
        raise DomainError(
            f"{path} is empty: it has no header line. Name a table whose first line names its columns."
        ) from None
    except (OSError, ValueError, EOFError, zlib.error) as error:  # the last two: a .gz file that is cut off or damaged
        if isinstance(error, DomainError):
            raise
        told = " ".join(str(error).split()).rstrip(".")
        raise DomainError(f"{path} could not be read as a table: {told}. Write it again.") from None
    if len(table) == 0:
        raise DomainError(f"{path} has a header and no rows. Name a table with rows.")
    return table


def _read_csv(path: Path) -> pd.DataFrame:
    """Cells as text. A row's superfluous cells are ignored, as on the private side: they never shift the others."""
    how: dict[str, Any] = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
    width = len(pd.read_csv(path, nrows=0, index_col=False, **how).columns)
    return pd.read_csv(path, usecols=range(width), **how)
