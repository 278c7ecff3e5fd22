"""Columns of a domain as numbers for scikit-learn's estimators. Nothing is learned from rows."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.derived import Derived, with_derived
from kmeanalyst.releases.domain.cells import with_columns
from kmeanalyst.releases.domain.column import Column, DomainError
from kmeanalyst.releases.domain.domain import Domain, column_from_dict
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import words
from kmeanalyst.sources.tables import as_frame

Encoding = Literal["onehot", "cells", "codes", "natural"]
ENCODINGS: tuple[Encoding, ...] = ("onehot", "cells", "codes", "natural")
Missing = Literal["mark", "nan"]
MISSING: tuple[Missing, ...] = ("mark", "nan")

_MIDDLE = 0.5  # middle of a range: the value of a missing cell, which has an indicator too


class DomainEncoder(TransformerMixin, BaseEstimator):
    """A scikit-learn transformer from frames in natural units to features; it uses a public domain alone.

    Numbers and dates are scaled by their public bounds to [0, 1], on the scale that the domain declares (logarithms). Ordered
    levels are evenly spaced in [0, 1], a boolean is 0 or 1.

    columns   the columns' tables, from `Domain.to_dict`: plain data, so that a file of the model holds no code.
    derived   tables of derived columns that are computed where a frame lacks them, from `Derived.to_dict`.
    base      tables of the columns that these are computed from.
    encoding  "onehot": an indicator for each level, a single one for two. "cells": also for each range between the public
              edges of a number, and for each of its atoms, so that a linear model can follow steps and spikes. "codes": a
              level's number, from 0. "natural": all columns in natural units, clamped to the domain, for pipelines that
              encode columns themselves.
    missing   "mark": a missing number becomes the middle of its range plus an indicator, a missing level one more level.
              "nan": both stay NaN, for estimators that can handle them.

    Columns of text cannot be encoded as features and raise DomainError: derive a condition from them, or use "natural".

    A cell that is not a value of its column becomes the column's default, with a warning that counts such cells.
    """

    def __init__(
        self, columns: Sequence[Mapping[str, Any]], *, derived: Sequence[Mapping[str, Any]] = (),
        base: Sequence[Mapping[str, Any]] = (), encoding: Encoding = "onehot", missing: Missing = "mark",
    ) -> None:  # fmt: skip
        self.columns = columns
        self.derived = derived
        self.base = base
        self.encoding = encoding
        self.missing = missing

    @property
    def domain(self) -> Domain:
        return Domain.from_dict(self.columns)

    def __sklearn_is_fitted__(self) -> bool:
        return True  # there is nothing to fit

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        tags.requires_fit = False
        return tags

    def fit(self, X: Any, y: Any = None) -> DomainEncoder:
        return self

    def transform(self, X: pd.DataFrame | Mapping[str, Any]) -> pd.DataFrame:
        """Features (n, F) of a frame that has the columns, in any order and among others; DomainError if it lacks one."""
        domain, frame = self.domain, self._with_derived(pd.DataFrame(as_frame(X)))
        rows, counts = domain.encode_counted(frame)
        notes = [note for note in counts.notes() if not note.startswith("ignored")]
        if notes:
            warnings.warn("of the rows to predict: " + "; ".join(notes), UserWarning, stacklevel=2)
        if self.encoding == "natural":
            return domain.decode(rows).set_axis(frame.index)
        return pd.DataFrame(self._all_features(rows), index=frame.index, dtype=np.float64)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """(F,) names: "age", "city=Basel", "age missing"."""
        if self.encoding == "natural":
            return np.array(self.domain.names, dtype=object)
        return np.array(list(self._all_features(np.zeros((0, len(self.columns))))), dtype=object)

    @property
    def feature_names_in_(self) -> Array:
        """(d,) the columns it reads; AttributeError where some are derived: a frame can have them or their base columns."""
        if self.derived:
            raise AttributeError("a frame may have derived columns or lack them: see `columns`, `derived` and `base`")
        return np.array(self.domain.names, dtype=object)

    def _with_derived(self, frame: pd.DataFrame) -> pd.DataFrame:
        wanted = [str(one["column"]["name"]) for one in self.derived]
        if all(name in frame.columns for name in wanted):
            return frame
        base = Domain.from_dict(self.base)
        clean = base.decode(base.encode(frame)).set_axis(frame.index)
        derived = [Derived(column=column_from_dict(dict(one["column"])), expression=str(one["expression"])) for one in self.derived]
        found, _ = with_derived(clean, base, derived)
        return with_columns(frame, {name: found[name] for name in wanted if name not in frame.columns})

    def _all_features(self, rows: Array) -> dict[str, Array]:
        refuse_texts(self.domain.columns)
        features: dict[str, Array] = {}
        for column, codes in zip(self.domain.columns, rows.T, strict=True):
            for name, values in self._features(column, codes).items():
                features[_free(name, features)] = values
        return features

    def _features(self, column: Column, codes: Array) -> dict[str, Array]:
        known: Any = column
        if column.has_levels and (self.encoding == "codes" or not isinstance(column, Ordinal | Boolean)):
            return self._of_levels(known, codes)
        absent = np.isnan(codes)
        low, high = known.bounds if column.is_number else (0.0, max(len(known.levels) - 1.0, 1.0))
        scaled = (codes - low) / (high - low)
        cells = _cells(known, codes) if self.encoding == "cells" and column.is_number else {}
        if self.missing == "nan":
            return {column.name: scaled} | cells
        marks = {f"{column.name} missing": absent} if column.missing else {}
        return {column.name: np.where(absent, _MIDDLE, scaled)} | cells | marks

    def _of_levels(self, column: Categorical, codes: Array) -> dict[str, Array]:
        """An indicator for each level, of the second alone for two, and for missing cells; or the level's number.

        Of a tree for each node of a depth with at most 60; numbers of its codes are in the tree's order.
        """
        if self.encoding == "codes":
            known = codes if self.missing == "nan" else np.where(np.isnan(codes), len(column.levels), codes)
            return {column.name: known}
        if isinstance(column, Tree):
            nodes = column.groups(column.deepest())
            groups = column.group_of(codes, column.deepest())
            features = {f"{column.name}={node}": groups == k for k, node in enumerate(nodes)}
        else:
            first = 1 if len(column.levels) == 2 else 0
            features = {f"{column.name}={column.levels[k]}": codes == k for k in range(first, len(column.levels))}
        return features | ({f"{column.name} missing": np.isnan(codes)} if column.missing else {})


def refuse_texts(columns: Sequence[Column]) -> None:
    if texts := [column for column in columns if column.is_text]:
        raise DomainError(
            f"{words.written(texts[0].name)} is a column of texts, which no feature is made of. Leave it out, or derive a "
            f'condition first: release.transform({{"is_so": "{words.example(texts[0])}"}}).'
        )


def _cells(column: Number, codes: Array) -> dict[str, Array]:
    atoms = {
        f"{column.name}={_short(atom)}": codes == code
        for atom, code in zip(column.decode(column.atom_codes), column.atom_codes, strict=True)
    }
    if not column.edges:
        return atoms
    in_no_range = np.isnan(codes) | np.isin(codes, column.atom_codes)
    ends = [column.lower, *column.edges, column.upper]
    index = np.where(in_no_range, -1, np.searchsorted(column.cuts(column.edges), codes, side="right"))
    names = [f"{column.name} in {_short(low)}..{_short(high)}" for low, high in pairwise(ends)]
    return {name: index == k for k, name in enumerate(names)} | atoms


def _short(value: Any) -> str:
    """A number with all its digits, since edges can be near each other; or a date."""
    return repr(float(value)).removesuffix(".0") if isinstance(value, float | int) else str(value)[:10]


def _free(name: str, taken: Container[str]) -> str:
    while name in taken:
        name += "'"
    return name
