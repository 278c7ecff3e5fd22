"""Columns of finitely many public levels: categorical, ordinal and boolean."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import BAD, text_of
from kmeanalyst.releases.domain.column import KEPT, REPLACED, Column, DomainError, check_name, listed

WHOLE = re.compile(r"(-?\d{1,15})\.0+")  # of more digits float64 has not all


@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of finitely many public levels, in no order.

    >>> ka.Categorical(name="city", levels=("Basel", "Genf"), default="Genf").encode(["Basel", "Bern"])[0]
    array([0., 1.])
    """

    levels: tuple[str, ...]
    kind: ClassVar[str] = "categorical"
    ordered: ClassVar[bool] = False
    has_levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = tuple(text_of(level) for level in listed(self.name, "levels", self.levels))
        if not levels or any(not level for level in levels) or len(set(levels)) != len(levels):
            raise DomainError(
                f"column {self.name}: levels must be distinct texts, at least one and none empty (an empty cell is "
                f"missing), got {list(self.levels)!r:.200}. List each level once."
            )
        for level in levels:
            check_name(f"column {self.name}: a level", level)
        object.__setattr__(self, "levels", levels)
        self._check_default()

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, float(len(self.levels) - 1)

    def parse(self, text: str) -> float | None:
        """The code of a text; spaces around it do not count, nor, if it is not a level, the ".0" that pandas writes behind 1."""
        stripped = text.strip()
        whole = WHOLE.fullmatch(stripped)
        return self._lookup.get(text, self._lookup.get(stripped, self._lookup.get(whole[1], BAD) if whole else BAD))

    @cached_property
    def _lookup(self) -> dict[str, float]:
        return {level: float(code) for code, level in enumerate(self.levels)}

    def encode(self, cells: Any) -> tuple[Array, Array]:
        if not (isinstance(cells, pd.Series) and isinstance(cells.dtype, pd.CategoricalDtype)):
            return super().encode(cells)
        categories = cells.dtype.categories.tolist()
        if categories != list(self.levels) or any(type(each) is not str for each in categories):
            return super().encode(cells)
        codes = cells.cat.codes.to_numpy().astype(np.float64)  # the column's own levels: each cell has its code
        absent = codes < 0
        codes[absent] = math.nan if self.missing else self.default_code
        return codes, np.where(absent & (not self.missing), REPLACED, KEPT)

    def decode(self, encoded: Array) -> pd.Series:
        codes = np.where(np.isnan(encoded), -1, encoded).astype(int)
        values = pd.Categorical.from_codes(codes, categories=list(self.levels), ordered=self.ordered)
        return pd.Series(values, name=self.name)

    def cut_at(self, cuts: Sequence[float]) -> tuple[float, ...]:
        return tuple((np.arange(len(self.levels) - 1) + 0.5).tolist())

    def grid(self, size: int, rng: np.random.Generator) -> Array:
        codes = np.arange(len(self.levels), dtype=float)
        return codes if len(codes) <= size else np.sort(rng.choice(codes, size, replace=False))

    def _every_present(self, most: int) -> Array | None:
        return np.arange(len(self.levels), dtype=float) if len(self.levels) <= most else None

    def _draw_present(self, n: int, rng: np.random.Generator) -> Array:
        return rng.integers(0, len(self.levels), n).astype(float)

    def _extent(self) -> str:
        shown = ", ".join(self.levels[:6])
        return shown + (f", ... ({len(self.levels)} levels)" if len(self.levels) > 6 else "")


@dataclass(frozen=True, kw_only=True)
class Ordinal(Categorical):
    """One of finitely many public levels, in the order they are listed.

    >>> school = ka.Ordinal(name="school", levels=("none", "some", "degree"))
    >>> school.encode(["degree", "none"])[0], school.bounds
    (array([2., 0.]), (0.0, 2.0))
    """

    kind: ClassVar[str] = "ordinal"
    ordered: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Boolean(Categorical):
    """True or false; read from true/false, yes/no, t/f, y/n and 1/0, in either case.

    >>> ka.Boolean(name="ill").encode(["yes", "0", "TRUE"])[0]
    array([1., 0., 1.])
    """

    levels: tuple[str, ...] = ("False", "True")
    kind: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels != ("False", "True"):
            raise DomainError(
                f"column {self.name}: the levels of a boolean are fixed, got {list(self.levels)!r:.80}. Remove levels, or use "
                "categorical."
            )

    @cached_property
    def _lookup(self) -> dict[str, float]:
        words = dict.fromkeys(("false", "no", "f", "n", "0"), 0.0) | dict.fromkeys(("true", "yes", "t", "y", "1"), 1.0)
        return words | {w.upper(): v for w, v in words.items()} | {w.capitalize(): v for w, v in words.items()}

    def decode(self, encoded: Array) -> pd.Series:
        values = pd.array(np.where(np.isnan(encoded), 0, encoded) > 0, dtype="boolean")
        values[np.isnan(encoded)] = pd.NA
        return pd.Series(values if self.missing else values.astype(bool), name=self.name)
