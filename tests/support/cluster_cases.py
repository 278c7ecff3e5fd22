"""Tables for executors: of people with odd identifiers, in parts; and a part that fails, or that kills the worker that reads it.

Workers import this file, so that it imports no cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side.executors.executor import Executor
from release_side.private_rows.table import PrivateTable
from release_side.publishing.publish import publish

DOMAIN = Domain((
    Integer(name="age", lower=17, upper=90),
    Real(name="capital.gain", lower=0, upper=1e5, missing=True),
    Categorical(name="city", levels=("Zürich", "Basel", "13")),
))  # fmt: skip
N = 230
MARKER = "Jane-Doe-4711"
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "points": 5, "features": 64, "rehearsal": 1}
ODD: tuple[Any, ...] = (None, "", float("nan"), 13, "13", 13.0)  # two persons


def people() -> pd.DataFrame:
    """Rows with identifiers of several types: None, "" and NaN are one person, 13, 13.0 and "13" another."""
    rng = np.random.default_rng(3)
    identifiers = [ODD[i] if i < len(ODD) else f"Doe, {i}" for i in rng.integers(0, 40, N)]
    return pd.DataFrame({
        "who": pd.Series(identifiers, dtype=object),
        "age": rng.integers(10, 100, N).astype(str),
        "capital.gain": [None if i % 5 == 0 else f"{x:.2f}" for i, x in enumerate(rng.normal(5e4, 3e4, N))],
        "city": rng.choice(["Zürich", "Basel", "13", "Bern", ""], N),
    })  # fmt: skip


def in_files(folder: Path, parts: int) -> Path:
    """The table in so many CSV files; its first row has the marker."""
    frame = people()
    frame.loc[0, ["who", "city"]] = MARKER
    for i, rows in enumerate(np.array_split(np.arange(N), parts)):
        frame.iloc[rows].to_csv(folder / f"{i:02}.csv", index=False)
    return folder


def noisy_integers(source: Any, executor: Executor | None = None, **options: Any) -> list[int]:
    """What is published of a table, under one rehearsal seed."""
    return integers_of(publish(source, DOMAIN, executor=executor, **(SMALL | options)))


def integers_of(release: Release) -> list[int]:
    assert release.measurement is not None
    return [int(each) for each in release.measurement.noisy_sum] + [release.measurement.n_rows]


@dataclass(frozen=True, eq=False, repr=False)
class HostilePart(PrivateTable):
    """A table whose first part raises by the value of a cell, with another error as its context, where it is read; and that is no
    Exception, as polars' may be. With `ends` it ends its process; with `once`, a file, only before that file exists.
    """

    part: PrivateTable
    ends: bool = False
    once: Path | None = None

    @property
    def header(self) -> list[str]:
        return self.part.header

    def count(self) -> int:
        return self.part.count()

    def divided(self, n_rows: int) -> list[PrivateTable]:
        first, *others = self.part.divided(n_rows)
        return [HostilePart(first, self.ends, self.once), *others]

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        for piece in self.part._pieces(names):
            if self.once is None or not self.once.exists():
                if self.once is not None:
                    self.once.touch()
                if self.ends:
                    os._exit(1)
                try:
                    raise_cell(MARKER)
                except ValueError as error:
                    raise BaseException(f"not {MARKER} at all") from error
            yield piece


def raise_cell(cell: Any) -> None:
    try:
        raise KeyError(cell)
    except KeyError as error:
        raise ValueError(f"cannot read {cell}") from error


def raise_first_cell(path: str) -> None:
    """What a worker would do that did not mind."""
    raise_cell(pd.read_csv(path, dtype=str)["city"][0])
