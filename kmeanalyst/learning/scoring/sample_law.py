"""A sample of real rows as the distribution that a model is scored on: equal weights, and the error of independent rows.

Scores of several models on one sample keep their correlation: samples of equal content share one error model for as
long as an estimate of it is alive.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import SamplingErrors
from kmeanalyst.inference.estimate.population import Distribution, Where, check_condition, positive_probability, shown
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import REPLACED, Column
from kmeanalyst.releases.domain.domain import Domain, recode_for
from kmeanalyst.releases.domain.draft import draft_domain
from kmeanalyst.releases.expressions import parse, words
from kmeanalyst.releases.release import Question
from kmeanalyst.sources.tables import frame_of, number_or_text

_KNOWN: WeakValueDictionary[str, SamplingErrors] = WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class SampleLaw(Distribution):
    """A sample's rows with equal weights, given a condition or not."""

    model: SamplingErrors
    weights: Array
    given: Array | None = None
    probability: float = 1.0
    condition: str = ""
    notes: tuple[str, ...] = ()
    view: str = "sample"

    def values(self, question: Any) -> Array:
        return np.asarray(question(self.model.frame), dtype=float)

    def infeasible(self, what: str, value: Callable[[Any], float]) -> str:
        return f"{what}: check the model's answers, since all weights of a sample are positive."


def sample_law(sample: Any, where: Where, domain: Domain | None, target: str) -> SampleLaw:
    """A sample's rows that have a target, given conditions; ValueError where no row satisfies them.

    sample   a DataFrame in natural units, several of them, or a table of any other source (see `table_of`).
    domain   reads the cells, where the model has one; else they are used as they are, and text that is all numbers as numbers.
    """
    if (frame := frame_of(sample, domain)) is None:
        raise TypeError(
            f"a model is scored on a Release, or on a sample: a DataFrame in natural units, several of them, the path "
            f"of a table, or Arrow batches; got a {type(sample).__name__}. Name the columns: pd.DataFrame(rows, columns=...)."
        )
    if target not in frame.columns:
        raise ValueError(
            f"the sample has no column {target!r}, which the model predicts: there is no truth to compare with. It has "
            f"{', '.join(map(str, frame.columns))}. Add the column."
        )
    if len(frame) < 2:
        raise ValueError(f"the sample needs at least two rows to show its own spread, got {len(frame)}. Add rows.")
    absent = (frame[target].isna() | (frame[target].astype(object) == "")).to_numpy(dtype=bool)
    frame, notes = _read(frame, domain, target, absent)
    model, equal = _errors(frame), np.full(len(frame), 1 / len(frame))
    conditions = conditions_of(where)
    met = [_condition(question, frame, domain) for question in conditions]
    texts = [shown(question, "condition") for question in conditions]
    if absent.any():
        met.append(~absent)
        texts.append(f"not missing({words.written(target)})")
        notes = (*notes, f"{int(absent.sum()):,} of {len(frame):,} rows have no {target}, and are left out")
    if not met:
        return SampleLaw(model, equal, notes=notes)
    given = np.logical_and.reduce(met)
    probability = positive_probability(float(given.mean()))
    text = texts[0] if len(texts) == 1 else " and ".join(f"({part})" for part in texts)
    return SampleLaw(model, equal * given / probability, given, probability, text, notes)


def conditions_of(where: Where) -> tuple[Question, ...]:
    return () if where is None else (where,) if isinstance(where, str) or callable(where) else tuple(where)


def _read(frame: pd.DataFrame, domain: Domain | None, target: str, absent: Array) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Cells in natural units, read by the domain, with notes on changed ones; without one, text that is all numbers as numbers.

    absent   (n,) whether a row has no target. A target value outside the domain is refused: its default would be no truth.
    """
    if domain is None:
        return frame.apply(number_or_text), ()
    known = Domain(tuple(column for column in domain.columns if column.name in frame.columns))
    if target in known.names:
        _check_levels(known[target], frame[target], absent)
    encoded, counts = known.encode_counted(frame)
    counts.check(known)
    others = frame.drop(columns=list(known.names))
    notes = replace(counts, ignored=(), replaced=Counter({**counts.replaced, target: 0})).notes()
    return known.decode(encoded).join(others), tuple(notes)


def _check_levels(column: Column, cells: pd.Series, absent: Array) -> None:
    unknown = (column.encode(cells)[1] == REPLACED) & ~absent
    if unknown.any():
        values = pd.unique(cells[unknown].astype(object))
        raise ValueError(
            f"the sample's {words.written(column.name)} has values that the domain does not have ({column.describe()}): "
            f"{words.listed([repr(value) for value in values])}. Whether the model is right about them is "
            "unknown. Correct or remove those rows, or say what they mean: "
            f"recode={ {column.name: recode_for(column, list(map(str, values)))}!r:.1000}."
        )


def _condition(question: Question, frame: pd.DataFrame, domain: Domain | None) -> Array:
    """Whether a condition holds (n,); without a domain one is drafted from the sample."""
    if callable(question):
        values = np.asarray(question(frame), dtype=float)
    else:
        expression = parse(question)
        known = domain or draft_domain(frame[[name for name in expression.columns if name in frame.columns]]).domain
        values = np.asarray(expression.evaluate(frame, known), dtype=float)
    check_condition(values)
    return values == 1


def _errors(frame: pd.DataFrame) -> SamplingErrors:
    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    content = hashlib.sha256(rows.tobytes() + repr(list(frame.columns)).encode()).hexdigest()
    if (known := _KNOWN.get(content)) is None:
        note = f"on a sample of {len(frame):,} rows, taken as independent draws: its error is that of sampling"
        known = _KNOWN[content] = SamplingErrors(frame, np.full(len(frame), 1 / len(frame)), (note,))
    return known
