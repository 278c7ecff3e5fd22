"""Two dates, or two numbers, that are near each other: tables cut both much coarser than they differ, so the draft has a derived
column of their difference, which is measured like any other and answers questions that compare the two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.derived import named_expressions
from kmeanalyst.releases.domain.cells import text_of
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.draft import Draft, draft_number
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.rules.rule import DERIVE, Rule

_FEWEST_BOTH, _MOST_COMPARED, _NEAR = 50, 5000, 0.25  # rows; spread of a difference relative to that of the columns
_DECIMALS, _SAME = 9, 1e-6  # of a difference, and within which another column holds it
_MARGIN = 0.1  # of the farther bound, by which a difference may have the other sign


def with_differences(draft: Draft, sample: pd.DataFrame) -> Draft:
    """The draft with a rule for each date or number that is near one before it: their difference is a column, new or there."""
    sample = sample.set_axis([str(name) for name in sample.columns], axis=1)
    columns = {column.name: column for column in draft.domain.columns}
    values = _values(sample.iloc[:_MOST_COMPARED], draft.domain.columns)
    rules, notes, used = list(draft.domain.rules), dict(draft.notes), set[str]()
    for two in values:
        if (one := _nearest(two, values, columns)) is None:
            continue
        text, apart = f"{words.column(two)} - {words.column(one)}", (values[two] - values[one]).round(_DECIMALS)
        present = apart[np.isfinite(apart)]
        ((new, _),) = named_expressions([text]).items()
        there = [
            name
            for name in _equal_to(apart, values)
            if name not in used | {one, two} and not isinstance(columns[name], Date)
        ]
        there = [name for name in there if _is_difference(sample, [columns[each] for each in (name, two, one)])][:1]
        if present.min() == present.max() or (new in columns and not there) or used & {one, two}:
            continue
        if there:
            name, kept = there[0], list(notes.get(there[0], ()))
            why = (
                f"it is {text} in every row of the sample, and is computed so. Remove the rule if other rows may differ"
            )
            column = columns[name]
        else:
            name, kept = new, list[str]()
            low, high = np.quantile(present, [0.05, 0.95])
            why = (
                f"{text} is mostly from {low:g} to {high:g}, and tables cut both much coarser. Remove it with its rule if no "
                "question will compare them"
            )
            column = draft_number(name, present, columns[one].missing or columns[two].missing, kept)
        columns[name] = _with_both_signs(column)
        notes[name] = [f"CHECK difference: {why}", *kept]
        rules.append(Rule(DERIVE, text, (name,)))
        used |= {name} if not there else {name, one, two}  # no column has two rules, and none is derived in a circle
    return Draft(replace(draft.domain, columns=tuple(columns.values()), rules=tuple(rules)), notes)


def _equal_to(apart: Array, values: Mapping[str, Array]) -> list[str]:
    return [name for name, own in values.items() if np.allclose(own, apart, rtol=0, atol=_SAME, equal_nan=True)]


def _is_difference(sample: pd.DataFrame, columns: Sequence[Column]) -> bool:
    """Whether the first of these columns is the second less the third in every row of the sample."""
    found, two, one = _values(sample, columns).values()
    return bool(_equal_to((two - one).round(_DECIMALS), {"": found}))


def _values(sample: pd.DataFrame, columns: Sequence[Column]) -> dict[str, Array]:
    """The cells of dates and numbers, NaN where there is none within the bounds."""
    found = {}
    for column in columns:
        if isinstance(column, Date | Integer | Real):
            low, high = column.natural_bounds
            cells = (column.parse(text_of(cell) or "") for cell in sample[column.name].astype(object))
            values = np.array([math.nan if value is None else value for value in cells])
            found[column.name] = np.where((values >= low) & (values <= high), values, math.nan)
    return found


def _nearest(two: str, values: Mapping[str, Array], columns: Mapping[str, Column]) -> str | None:
    """The column before this one that it is nearest to, if that is much nearer than each is to its own middle."""
    near: dict[str, float] = {}
    for one in values:
        if one == two:
            break
        x, y = values[one], values[two]
        both = np.isfinite(x) & np.isfinite(y)
        if isinstance(columns[one], Date) is isinstance(columns[two], Date) and both.sum() >= _FEWEST_BOTH:
            apart, *own = (float(np.ptp(np.quantile(each[both], [0.05, 0.95]))) for each in (y - x, x, y))
            near |= {one: apart / min(own)} if apart < _NEAR * min(own) else {}
    return min(near, key=lambda name: near[name], default=None)


def _with_both_signs(column: Column) -> Column:
    """With room for the other sign, and cells that say which of the two is larger and whether they are equal."""
    assert isinstance(column, Integer | Real)
    number, step = type(column.lower), 1 if isinstance(column, Integer) else column.step or 0.0
    margin = number(max(step, _MARGIN * max(-column.lower, column.upper)))
    lower, upper = min(column.lower, -margin), max(column.upper, margin)
    edges = {*column.edges, *(number(end) for end in (0, step) if lower < end < upper)}
    return replace(column, lower=lower, upper=upper, edges=tuple(sorted(edges)), scale="linear")
