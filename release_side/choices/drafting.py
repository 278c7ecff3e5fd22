"""Draft a domain for the curator from a sample that the curator declares public; the draft keeps the sample's digest."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.derived import named_expressions
from kmeanalyst.releases.domain.cells import parse_number, text_of
from kmeanalyst.releases.domain.column import Column, DomainError, check_name
from kmeanalyst.releases.domain.domain import KINDS, column_from_dict, toml_table
from kmeanalyst.releases.domain.draft import Draft, draft_number
from kmeanalyst.releases.domain.draft import draft_domain as drafted_from
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.expressions import parse, words
from kmeanalyst.releases.rules.rule import DERIVE, Rule
from kmeanalyst.sources.files import is_csv
from release_side.choices.output_file import is_same_file
from release_side.choices.public_inputs import open_public, public_files, samples_of
from release_side.private_rows.csv_file import CsvFile
from release_side.private_rows.rows import Table
from release_side.private_rows.table import PrivateTable

NOT_DECLARED = (
    "a domain is drafted from a public sample only: its levels, and bounds near the sample's extremes, are published with "
    "every release, without noise. If everybody may see every row of this sample, say "
)
_FEWEST_BOTH, _FIRST_COMPARED, _MOST_COMPARED, _FEWEST_DIFFERENT = 50, 300, 5000, 10  # rows, and values of a column
_NEAR, _OFTEN_SAME = 0.25, 0.5  # spread of a difference relative to that of the columns; share of rows in which they are equal
_MOST_SUMMED = 60  # numbers of which sums are looked for: 10 s
_DECIMALS, _SAME = 9, 1e-6  # of a difference, and within which another column holds it
_MARGIN = 0.1  # of the farther bound, by which a difference may have the other sign


def draft_domain(
    sample: Table, *, this_sample_is_public: bool = False, collapse_rare: bool = False, strings: bool = False,
    without: Sequence[str] = (), unit: str | None = None, missing_codes: Mapping[str, Sequence[Any]] | None = None,
) -> Draft:  # fmt: skip
    """Guess a domain from a public sample; DomainError if it is not declared public, or a column suggests nothing.

    sample                  path of a table, or a DataFrame; never the private table.
    this_sample_is_public   must be True: the curator declares that everybody may see every row.
    collapse_rare           whether levels seen fewer than ten times become one level, "other", the column's default.
    strings                 whether a column of many different texts becomes a column of strings instead of an error.
    missing_codes           of a column, the codes that stand for a missing cell: {"bmi": [-9]}.
    without                 columns that are left out, such as identifiers.
    unit                    the column that `publish(unit=...)` will protect: left out too.
    Returns                 Draft; its domain keeps the sample's digest, so that `publish` refuses this file as private table.

    >>> draft = release_side.draft_domain("public_sample.csv", this_sample_is_public=True)
    >>> draft.domain["age"].edges
    (20, 25, 30, 35, 38, 40, 45, 50, 55, 60, 70)
    """
    if this_sample_is_public is not True:
        raise DomainError(f"{NOT_DECLARED}this_sample_is_public=True.")
    frame = sample if isinstance(sample, pd.DataFrame) else open_public(sample).frame()
    sample = sample if isinstance(sample, str | Path) else frame  # an Arrow stream may be read once
    without = [*([without] if isinstance(without, str) else without), *([] if unit is None else [unit])]
    if unknown := [name for name in without if name not in frame.columns]:
        raise DomainError(f"the sample has no column {unknown[0]!r} to leave out. Name one that is in its header.")
    frame = frame.drop(columns=list(without))
    if unknown := [name for name in missing_codes or {} if name not in frame.columns]:
        raise DomainError(f"the sample has no column {unknown[0]!r} with codes for missing cells. Name one that is in its header.")
    draft = drafted_from(frame, strings=strings, collapse_rare=collapse_rare, missing_codes=missing_codes)
    draft = with_sums(with_differences(draft, frame), frame)
    files = public_files(sample) if isinstance(sample, str | Path) else []
    lines = sum(CsvFile(file).count() for file in files if is_csv(file.name))
    if lines > len(frame):
        note = f"CHECK lines: the sample has {len(frame)} rows on {lines} lines: publish reads each line of a CSV file as a row"
        where = "blank ones, and each line of a cell with line breaks. Write the private table without them"
        next(iter(draft.notes.values())).insert(0, f"{note}, {where}")
    return replace(draft, domain=replace(draft.domain, samples=samples_of(sample)))


_HINTS = {  # what a curator writes for a key, from a code book or a law, never from the private rows
    "lower": "0  # the lowest value that can occur; values below are moved to it",
    "upper": "100  # the highest value that can occur",
    "levels": '["a", "b"]  # every level, in order if it has one; another cell becomes the default',
    "parents": '[["leaf", "group"], ["group", ""]]  # each code with the code above it, "" for the top',
    "length": "20  # the most characters of a string",
    "alphabet": '"abcdefghijklmnopqrstuvwxyz"  # its characters; others become the unknown one',
    "unknown": '"?"',
    "missing": "true  # if a missing cell is a value of its own; else it becomes the default",
    "missing_codes": "[-9, 999]  # codes that stand for a missing cell",
    "default": "# what a cell becomes that has no value",
    "scale": '"log1p"  # for skewed amounts with zeros',
    "edges": "[18, 65]  # ends of ranges that questions will name",
    "atoms": "[0]  # values that many rows have",
    "format": '"%d.%m.%Y"  # how days are written, if not as 2024-05-18',
}
_HINTS_OF = {  # of kinds that are otherwise: "" for a key that such a column does not take
    "boolean": {"levels": ""}, "tree": {"levels": ""}, "text": {"missing_codes": ""}, "cyclic": {"scale": "", "missing_codes": ""},
    "date": {"lower": "2020-01-01  # the first day that can occur", "upper": "2024-12-31  # the last one", "scale": "",
             "edges": "[2021-01-01, 2022-01-01]  # days that questions will name", "atoms": "[2020-01-01]  # days of many rows"},
}  # fmt: skip
_KINDS_OF_TYPES = {"int": "integer", "uint": "integer", "float": "real", "double": "real", "decimal": "real", "bool": "boolean",
                   "date": "date", "timestamp": "date", "string": "categorical", "large_string": "categorical"}  # fmt: skip


def new_domain(columns: Sequence[str | tuple[str, str]]) -> str:
    """The TOML of a domain to fill in, for a curator without a public sample: what is not said is a comment with an example.

    columns   "NAME", "NAME:KIND", or with what its kind needs: "age:integer:0..120", "sex:categorical:F,M"; or
              (name, kind), with "" for a kind that is not known.
    Errors    DomainError for an unknown kind, or bounds and levels that the kind does not take.

    >>> print(release_side.new_domain(["sex:categorical:F,M"]).split("\\n\\n")[1])
    [[column]]
    name = "sex"
    kind = "categorical"
    levels = ["F", "M"]
    # missing = true  # if a missing cell is a value of its own; else it becomes the default
    # default = # what a cell becomes that has no value
    # missing_codes = [-9, 999]  # codes that stand for a missing cell
    """
    head = "# Fill in from a code book or a law, never from the private rows: everything here is published with the release."
    return "\n\n".join([head, *map(_new_column, columns)]) + "\n"


def _new_column(said: str | tuple[str, str]) -> str:
    name, kind, values = (*said, "") if isinstance(said, tuple) else (*said.split(":", 2), "", "")[:3]
    check_name("a column's name", name)
    if kind and kind not in KINDS:
        raise DomainError(f"column {name}: kind must be one of {', '.join(KINDS)}, got {kind!r:.80}. Write NAME:KIND.")
    known: dict[str, Any] = {}
    if values and kind:
        fields_of = [field.name for field in fields(KINDS[kind])]
        low, dots, high = values.partition("..")
        bounds = dots and "lower" in fields_of
        if not bounds and "levels" not in fields_of:
            raise DomainError(f"column {name}: a {kind} column has LOWER..UPPER, or levels A,B,C; got {values!r:.80}.")
        known = {"lower": _bound(low), "upper": _bound(high)} if bounds else {"levels": values.split(",")}
        column_from_dict({"name": name, "kind": kind, **known})
    if not kind:
        return "\n".join([toml_table("column", {"name": name}), f'# kind = "real"  # or one of {", ".join(KINDS)}'])
    hints = _HINTS | _HINTS_OF.get(kind, {})
    left = [field for field in fields(KINDS[kind]) if hints.get(field.name) and field.name not in known]
    left.sort(key=lambda field: field.default is not MISSING)
    written = toml_table("column", {"name": name, "kind": kind, **known})
    return "\n".join([written, *(f"# {field.name} = {hints[field.name]}" for field in left)])


def _bound(text: str) -> float | int | str:
    value = parse_number(text)
    return text if value is None else int(value) if value.is_integer() else value


def columns_of(table: PrivateTable) -> list[tuple[str, str]]:
    """What `new_domain` takes, by the names and declared types of a table's columns; no row is read.

    >>> from release_side.private_rows.rows import open_private
    >>> from release_side.choices.drafting import columns_of
    >>> columns_of(open_private("private.csv"))[0]
    ('age', '')
    """
    kinds = {name: _KINDS_OF_TYPES.get(re.split(r"[\d(\[]", table.type_of(name))[0]) for name in table.header}
    return [(name, kind or "") for name, kind in kinds.items()]


def check_not_the_sample(output: str | Path | None, sample: str | Path) -> None:
    """DomainError if the drafted file would replace a file of its sample."""
    if output is None:
        return
    path = Path(output)
    for file in public_files(sample):
        if isinstance(file, Path) and is_same_file(path, file):
            raise DomainError(
                f"{output} is a file of the sample, which the domain would replace: the sample would be lost. "
                "Name another file, such as domain.toml."
            )


def with_differences(draft: Draft, sample: pd.DataFrame) -> Draft:
    """The draft with a rule for each date or number that is near one before it: their difference is a column, new or there.

    Tables cut both much coarser than they differ; a column of their difference is measured like any other.
    """
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
        there = [name for name in _equal_to(apart, values) if name not in used | {one, two} and not isinstance(columns[name], Date)]
        there = [name for name in there if _is_difference(sample, [columns[each] for each in (name, two, one)])][:1]
        if present.min() == present.max() or (new in columns and not there) or used & {one, two}:
            continue
        if there:
            name, kept = there[0], list(notes.get(there[0], ()))
            why = f"it is {text} in every row of the sample, and is computed so. Remove the rule if other rows may differ"
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


def with_sums(draft: Draft, sample: pd.DataFrame) -> Draft:
    """The draft with a rule for each number that is the sum of two others in every row, and a note where it is near it.

    Tables of two columns do not show how three go together: a total may be far from its parts. (Columns of the sum and of what it
    differs by would say so, and move the means and tails of the others.)
    """
    sample = sample.set_axis([str(name) for name in sample.columns], axis=1)
    columns = {column.name: column for column in draft.domain.columns}
    free = [own for own in columns.values() if isinstance(own, Integer | Real) and own.name in draft.domain.names_read]
    values = _values(sample.iloc[:_MOST_COMPARED], free if len(free) <= _MOST_SUMMED else [])
    rules, notes, used = list(draft.domain.rules), dict(draft.notes), set[str]()
    compared = [{*parse(rule.text).columns} for rule in rules]
    for total in values:
        near = {pair: _apart(values, total, pair) for pair in combinations([name for name in values if name != total], 2)}
        pair = min(near, key=lambda pair: near[pair], default=(total, total))
        three = {total, *pair}
        if near.get(pair, math.inf) >= _NEAR or used & three or any(len(own & three) > 1 for own in compared):
            continue
        used |= three
        whole, one, two = _values(sample, [columns[name] for name in (total, *pair)]).values()
        text, apart = " + ".join(map(words.column, pair)), (whole - one - two).round(_DECIMALS)
        low, gap, high = np.nanquantile(apart, [0.05, 0.5, 0.95])
        if _equal_to(one + two + gap, {"": whole}):
            text += f" {'-' if gap < 0 else '+'} {abs(gap):.9g}" if gap else ""
            note = f"it is {text} in every row of the sample, and is computed so. Remove the rule if other rows may differ"
            rules.append(Rule(DERIVE, text, (total,)))
        else:
            note = (
                f"it is {text}, but for {low:g} to {high:g} mostly, which tables of two columns do not show. If questions will "
                f"compare them, put what it differs by into the table as a column in its place: it is then {text} and that"
            )
        notes[total] = [f"CHECK sum: {note}", *notes.get(total, ())]
    return Draft(replace(draft.domain, rules=tuple(rules)), notes)


def _apart(values: Mapping[str, Array], total: str, pair: Sequence[str]) -> float:
    """How far a column is from the sum of two, in spreads of the narrowest of the three."""
    three = np.array([values[name] for name in (total, *pair)])
    three = three[:, np.isfinite(three).all(axis=0)]
    for some in (three[:, :_FIRST_COMPARED], three):  # most are seen to be far apart by few rows
        if some.shape[1] < _FEWEST_BOTH:
            return math.inf
        spreads = np.ptp(np.quantile([*some, some[0] - some[1] - some[2]], [0.05, 0.95], axis=1), axis=0)
        if spreads[3] >= _NEAR * spreads[:3].min():
            return math.inf
    return float(spreads[3] / spreads[:3].min())


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
            different, counts = np.unique(x[both], return_counts=True)
            rarer = both & (x != different[counts.argmax()])  # two columns that are mostly 0 are not near each other
            same = len(different) >= _FEWEST_DIFFERENT and rarer.any() and float((x == y)[rarer].mean()) > _OFTEN_SAME
            near |= {one: apart / max(min(own), _SAME)} if apart < _NEAR * min(own) or same else {}
    return min(near, key=lambda name: near[name], default=None)


def _with_both_signs(column: Column) -> Column:
    """With room for the other sign, and cells that say which of the two is larger and whether they are equal."""
    assert isinstance(column, Integer | Real)
    number, step = type(column.lower), 1 if isinstance(column, Integer) else column.step or 0.0
    margin = number(max(step, _MARGIN * max(-column.lower, column.upper)))
    lower, upper = min(column.lower, -margin), max(column.upper, margin)
    edges = {*column.edges, *(number(end) for end in (0, step) if lower < end < upper)}
    return replace(column, lower=lower, upper=upper, edges=tuple(sorted(edges)), scale="linear")
