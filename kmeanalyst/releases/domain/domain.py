"""The public description of a table: its columns with their bounds and levels, and nothing private.

A domain turns tables into encoded rows and back. `encode` serves both sides: on the private side its
result is all that is kept; on the analyst's side `encode_counted` adds counts, and notes, about the analyst's own rows.
`KINDS` lists the kinds of column by the name that a domain file or a header gives them.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array, coordinates_of
from kmeanalyst.releases.domain.cells import texts_of, with_columns
from kmeanalyst.releases.domain.column import CLAMPED, KEPT, REPLACED, Column, DomainError
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Real
from kmeanalyst.releases.domain.sample_digest import SampleDigest, digests_of
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree, parents_by_prefixes, parents_in
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.memo import Memoised
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import check_kept
from kmeanalyst.releases.rules.rule import DERIVE, Rule, rules_from
from kmeanalyst.releases.texts import Printed, one_line, other_separator, shown

SAMPLE = "the sample"  # what messages call an analyst's own table
KINDS: dict[str, type[Column]] = {
    column.kind: column for column in (Real, Integer, Categorical, Ordinal, Boolean, Date, Cyclic, Text, Tree)
}


def column_from_dict(table: Any) -> Column:
    """A column from its TOML table or header entry; DomainError says what is wrong with it."""
    if not isinstance(table, dict):
        raise DomainError(f"a column must be a table of name, kind and so on, got {table!r:.80}.")
    name, kind = table.get("name", "(unnamed)"), table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise DomainError(f"column {name}: kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    given = {key: value for key, value in table.items() if key != "kind"}
    arguments: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    try:
        return KINDS[kind](**arguments)
    except TypeError:
        known = [field.name for field in fields(KINDS[kind])]
        unknown = sorted(set(arguments) - set(known))
        absent = [each.name for each in fields(KINDS[kind]) if each.default is MISSING and each.name not in arguments]
        raise DomainError(
            f"column {name}: a {kind} column has {', '.join(known)}; "
            + (f"unknown here: {', '.join(unknown)}. " if unknown else "")
            + (f"Add {', '.join(absent)}." if absent else "Remove what is unknown.")
        ) from None


@dataclass(frozen=True)
class SampleCounts:
    """What became of the cells of an analyst's own sample; counts of two blocks add up to those of both.

    n_rows    rows counted.
    ignored   names of columns that the domain does not have, in the order they were met.
    clamped   column → values that were moved to a bound.
    replaced  column → cells that became the column's default.
    odd       (column, text) → how many of these cells have that text; of very many texts those that are most frequent.
    names     the domain's columns, in order.

    >>> some = SampleCounts(3, ("id",), Counter(age=1), Counter(), ("age", "sex"))
    >>> (some + some).notes()
    ['ignored columns the release does not have: "id"', 'age: 2 of 6 values were outside the bounds and were clamped']
    """

    n_rows: int = 0
    ignored: tuple[str, ...] = ()
    clamped: Counter[str] = field(default_factory=Counter)
    replaced: Counter[str] = field(default_factory=Counter)
    names: tuple[str, ...] = ()
    odd: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)

    def __add__(self, other: SampleCounts) -> SampleCounts:
        return SampleCounts(
            n_rows=self.n_rows + other.n_rows, ignored=tuple(dict.fromkeys((*self.ignored, *other.ignored))),
            clamped=self.clamped + other.clamped, replaced=self.replaced + other.replaced, names=self.names or other.names,
            odd=Counter(dict((self.odd + other.odd).most_common(_MOST_ODD))),
        )  # fmt: skip

    def notes(self) -> list[str]:
        """Notes on the encoding for the reader, column by column.

        >>> domain.encode_counted(sample)[1].notes()
        []
        """
        notes = [f"ignored columns the release does not have: {_quoted(self.ignored)}"] if self.ignored else []
        for name in self.names:
            if clamped := self.clamped[name]:
                notes.append(f"{name}: {clamped} of {self.n_rows} values were outside the bounds and were clamped")
            if replaced := self.replaced[name]:
                notes.append(f"{name}: {replaced} of {self.n_rows} cells had no value of the domain and became its default")
        return notes

    def check(self, domain: Domain) -> None:
        """DomainError for columns of which over a twentieth of the cells have no value; with a declared default, half of them.

        >>> domain.encode_counted(sample)[1].check(domain)
        """
        recode, told = dict[str, dict[str, str]](), list[str]()
        for name in self.names:
            column, replaced = domain[name], self.replaced[name]
            if replaced > (0.05 if column.default is None else 0.5) * self.n_rows:
                texts = [(text, n) for (of, text), n in self.odd.most_common() if of == name]
                recode[name] = recode_for(column, [text for text, _ in texts])
                shown = ", ".join(f"{text!r:.60} ({n})" for text, n in texts[:_SHOWN_ODD])
                told.append(f"{words.written(name)} ({column.describe()}): {replaced} of {self.n_rows} cells, such as {shown}")
        if told:
            raise DomainError(
                f"the sample is coded otherwise than the release. These cells have no value of their column: {'; '.join(told)}. As "
                f"its default they would differ for that alone. Did you mean recode={recode!r:.1000}? Pass recode= (on the command "
                "line --recode COLUMN:THEIRS=OURS), rename= for another column, or columns=[...] without these; or correct cells."
            )


_MOST_ODD, _SHOWN_ODD = 200, 4  # texts of cells without a value: those that are counted, and those that are shown
_RECODED = 20  # of these texts, those that a recode is proposed for


def recode_for(column: Column, texts: Sequence[str]) -> dict[str, str]:
    """What a recode of texts that are no values of a column may say: each one's level, "..." where none is like it.

    >>> recode_for(domain["sex"], ["f", "0"])
    {'f': 'Female', '0': '...'}
    """
    return {text: _meant(text, getattr(column, "levels", ())) or "..." for text in texts[:_RECODED]}


def _meant(text: str, levels: Sequence[str]) -> str | None:
    """The one level that is a text but for leading zeros, or begins with it, or one that is like it, whatever the case."""
    if not levels or not text:
        return None
    same = [level for level in levels if level.lstrip("0") == text.removesuffix(".0").lstrip("0")]
    begun = [level for level in levels if level.lower().startswith(text.lower())]
    return next((found[0] for found in (same, begun) if len(found) == 1), None) or words.close(text, levels)


@dataclass(frozen=True)
class Domain(Memoised, Printed):
    """The columns of a table with their public bounds and levels.

    columns   in the order of encoded rows.
    rules     public facts (`Rule`) that every released row keeps; a derived column is computed from a row's other cells, and a
              table need not have it.
    samples   digests of what the domain was drafted from, for `publish` to compare; no release holds them.

    >>> domain = Domain((Integer(name="age", lower=0, upper=120), Categorical(name="sex", levels=("F", "M"))))
    >>> domain.encode({"age": ["41", "700"], "sex": ["M", "F"]})
    array([[ 41.,   1.],
           [120.,   0.]])
    >>> domain.names, domain.names_read, domain.width, domain.missing_columns
    (('age', 'sex'), ('age', 'sex'), 2, [])
    >>> domain.coordinates, domain.column_of
    ([[0], [1]], array([0, 1]))
    """

    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    samples: tuple[SampleDigest, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.columns:
            raise DomainError("a domain needs at least one column, got none. Describe the table's columns.")
        if len(set(self.names)) != len(self.columns):
            raise DomainError(f"column names must be distinct, got {list(self.names)!r:.300}. Rename or remove a column.")
        if self.rules:
            object.__setattr__(self, "rules", tuple(self.rules))
            rules_of(self)  # each must fit the columns
            if len(self.names_read) == 0:
                raise DomainError("every column is derived, so there is nothing to read. Leave a derive rule out.")

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in the order of encoded rows."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def names_read(self) -> tuple[str, ...]:
        """The columns that a table must have: all but derived ones, which are computed from a row's other cells."""
        derived = {rule.columns[0] for rule in self.rules if rule.kind == DERIVE}
        return tuple(name for name in self.names if name not in derived)

    def __repr__(self) -> str:
        lines = (f"\n  {column.name!r}: {column.describe()}" for column in self.columns)
        rules = (f"\n  {rule.named(number)}" for number, rule in enumerate(self.rules, 1))
        return f"Domain of {len(self)} columns:{''.join((*lines, *rules))}"

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[str]:
        """The columns' names, as those of a DataFrame."""
        return iter(self.names)

    def __getitem__(self, name: str) -> Column:
        """The column of that name; KeyError that lists the columns."""
        return self.columns[self.position(name)]

    def position(self, name: str) -> int:
        """The index of a column; KeyError that lists the columns.

        >>> domain.position("sex")
        3
        """
        if name not in self.names:
            near = words.close(name, self.names) if isinstance(name, str) else None
            hint = f"Did you mean {near}?" if near else "Name one of these."
            raise KeyError(f"no column {name!r:.250}; the columns are {words.listed(self.names, 50)}. {hint}")
        return self.names.index(name)

    @cached_property
    def coordinates(self) -> list[list[int]]:
        """The indices of the numbers of each column in an encoded row; see `coordinates_of`."""
        return coordinates_of([column.width for column in self.columns])

    @property
    def width(self) -> int:
        """Length of an encoded row: one number for each column, more for text."""
        return sum(column.width for column in self.columns)

    @property
    def column_of(self) -> Array:
        """(width,) the column that each number of an encoded row belongs to."""
        column_of = np.empty(self.width, dtype=np.intp)
        for j, indices in enumerate(self.coordinates):
            column_of[indices] = j
        return column_of

    def indices_of(self, columns: Sequence[int]) -> list[int]:
        """The indices of some columns' numbers in an encoded row, in the order of rows of these columns alone.

        >>> domain.indices_of([3, 0])
        [3, 0]
        """
        chosen = [self.coordinates[j] for j in columns]
        return [*(indices[0] for indices in chosen), *(index for indices in chosen for index in indices[1:])]

    def _side_by_side(self, parts: Sequence[Array]) -> Array:
        first = [part if part.ndim == 1 else part[:, 0] for part in parts]
        return np.column_stack([*first, *(part[:, 1:] for part in parts if part.ndim == 2)])

    def encode(self, table: Mapping[str, Any] | pd.DataFrame) -> Array:
        """Encoded rows (n, d) float64, clamped to the bounds; an absent column is an error, never a cell.

        >>> domain.encode(sample).shape
        (1500, 7)
        """
        return self._encode(table)[0]

    def _encode(self, table: Mapping[str, Any] | pd.DataFrame) -> tuple[Array, Array]:
        self.check_has_columns(table)
        if hasattr(table, "to_dataframe"):  # points of a release: cells of an xarray column would be arrays, not cells
            table = table.to_dataframe()
        read = {name: self[name].encode(self[name].without_codes(table[name])) for name in self.names_read}
        n = len(next(iter(read.values()))[0])
        pairs = [read.get(name) or (np.zeros(n), np.full(n, KEPT)) for name in self.names]
        rows = self._side_by_side([p[0] for p in pairs])
        return self._with_derived(rows), np.column_stack([p[1] for p in pairs])

    def _with_derived(self, rows: Array) -> Array:
        return rules_of(self).with_derived(rows) if len(self.names_read) < len(self) else rows

    def completed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A frame of cells with its derived columns computed from the others; the frame itself where none is derived.

        >>> domain.completed(sample) is sample
        True
        """
        derived = [name for name in self.names if name not in self.names_read]
        if not derived:
            return frame
        rows = self.encode(frame)
        cells = {name: self[name].decode(rows[:, self.position(name)]).set_axis(frame.index) for name in derived}
        return with_columns(frame, cells)

    def check_has_columns(self, table: Any, *, what: str = "the table") -> list[str]:
        """DomainError if `what` lacks a column; returns the names of its other columns, which are ignored.

        >>> domain.check_has_columns(sample.assign(city="Basel"))
        ['city']
        """
        if isinstance(table, np.ndarray):
            named = f"pd.DataFrame(X, columns={list(self.names)!r:.80})"
            raise DomainError(f"{what} is an array, without names of columns. Pass {named}.")
        present = Counter(list(table))
        absent = [name for name in self.names_read if name not in present]
        if absent:
            mark = other_separator(list(present))
            hint = f"Is the separator {mark!r}? Write the table with commas" if mark else "Add the column"
            others = [str(name) for name in present if name not in self.names]
            near = {near: name for name in absent if others and (near := words.close(name, others))}
            own = f" Did you mean rename={near or {'theirs': absent[0]}!r:.300}, or columns=[...] without it (--rename, --columns)?"
            raise DomainError(
                f"{what} lacks {_quoted(absent)}: the domain names {len(self)} columns and every one is needed. It has "
                f"{_quoted(list(present))}. {hint}, or write a domain without it.{own if what == SAMPLE and not mark else ''}"
            )
        repeated = sorted(name for name in self.names_read if present[name] > 1)
        if repeated:
            raise DomainError(f"{what} has {_quoted(repeated)} more than once: it is unclear which is meant. Rename or remove one.")
        known = set(self.names)
        return [str(name) for name in present if name not in known]

    def encode_counted(self, table: Mapping[str, Any] | pd.DataFrame) -> tuple[Array, SampleCounts]:
        """Encoded rows of a block of an analyst's own sample, and what became of its cells; counts of blocks add up.

        >>> rows, counts = domain.encode_counted(sample.assign(age=sample["age"] + 20))
        >>> counts.clamped["age"]
        4
        """
        extra = self.check_has_columns(table, what=SAMPLE)
        encoded, status = self._encode(table)
        clamped, replaced = (
            {name: int(count) for name, count in zip(self.names, (status == code).sum(axis=0), strict=True) if count}
            for code in (CLAMPED, REPLACED)
        )
        odd = Counter[tuple[str, str]]()
        for name in replaced:
            texts = texts_of(table[name], status[:, self.position(name)] == REPLACED)
            odd.update({(name, text): cells for text, cells in texts.most_common(_MOST_ODD)})
        return encoded, SampleCounts(len(encoded), tuple(extra), Counter(clamped), Counter(replaced), self.names, odd)

    def decode(self, rows: Array, *, float32: bool = False) -> pd.DataFrame:
        """Encoded rows in natural units and levels; float32: real columns as the nearest single precision numbers.

        >>> domain.decode(domain.encode(sample.head(2)))[["age", "income"]]
           age income
        0   53  <=50K
        1   41  <=50K
        """
        cells = [rows[:, indices[0] if len(indices) == 1 else indices] for indices in self.coordinates]
        frame = pd.DataFrame({own.name: own.decode(part) for own, part in zip(self.columns, cells, strict=True)})
        for column in self.columns:
            if float32 and column.kind == "real":
                values = frame[column.name].to_numpy()
                frame[column.name] = _single_precision_within(values, column.lower, column.upper)  # type: ignore[attr-defined]
        return self.completed(frame)

    def draw(self, n: int, rng: np.random.Generator | int) -> Array:
        """n encoded rows spread evenly over the domain, each column by itself: a public reference sample.

        >>> domain.draw(100, 0).shape
        (100, 7)
        """
        rng = np.random.default_rng(rng)
        return self._with_derived(self._side_by_side([column.draw(n, rng) for column in self.columns]))

    def enumerate_rows(self, most: int) -> Array | None:
        """All encoded rows (n, d) that the domain allows; None where there are more than `most`, or a continuum.

        >>> Domain((Integer(name="age", lower=0, upper=2), Categorical(name="sex", levels=("F", "M")))).enumerate_rows(6).T
        array([[0., 0., 1., 1., 2., 2.],
               [0., 1., 0., 1., 0., 1.]])
        """
        values = [column.every_value(most) for column in self.columns]
        known = [each for each in values if each is not None]
        if len(known) < len(self) or math.prod(len(each) for each in known) > most:
            return None
        return np.stack(np.meshgrid(*known, indexing="ij"), axis=-1).reshape(-1, len(self))

    @property
    def missing_columns(self) -> list[int]:
        """Indices of the columns where a cell may be missing."""
        return [j for j, column in enumerate(self.columns) if column.missing]

    def to_dict(self) -> list[dict[str, Any]]:
        """The columns as the file header has them.

        >>> domain.to_dict()[0]
        {'name': 'age', 'kind': 'integer', 'lower': 9, 'upper': 98}
        """
        return [column.to_dict() for column in self.columns]

    @classmethod
    def from_dict(cls, tables: Sequence[Any]) -> Domain:
        """A domain from its columns' tables.

        >>> ka.Domain.from_dict([{"name": "age", "kind": "integer", "lower": 0, "upper": 120}]).names
        ('age',)
        """
        if not isinstance(tables, Sequence) or isinstance(tables, str):
            raise DomainError("a domain is a list of columns: write one [[column]] table for each.")
        return cls(tuple(map(column_from_dict, tables)))


def _single_precision_within(values: Array, lower: float, upper: float) -> Array:
    with np.errstate(over="ignore"):  # beyond the largest of them: infinite, and stepped back below
        single = values.astype(np.float32)
        single = np.where(single.astype(np.float64) > upper, np.nextafter(single, np.float32(-np.inf)), single)
        single = np.where(single.astype(np.float64) < lower, np.nextafter(single, np.float32(np.inf)), single)
    return single.astype(np.float64)


def read_domain(path: str | Path) -> Domain:
    """Read a domain from its TOML file; DomainError says what to correct.

    >>> ka.read_domain("domain.toml")["age"]
    Integer(name='age', missing=False, default=None, missing_codes=(), recode=(), lower=9, upper=98, scale='linear', edges=(),
        atoms=())
    """
    try:
        parsed = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DomainError(f"no domain file at {shown(path)}. Draft one from a public sample: release-side draft-domain.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DomainError(f"{path} could not be read as text: {error}. Name a TOML file.") from None
    except tomllib.TOMLDecodeError as error:
        raise DomainError(f"{path} is not TOML: {error}. Correct that line.") from None
    unknown = sorted(set(parsed) - {"column", "rule", "sample"})
    if unknown:
        raise DomainError(
            f"{path} has unknown entries {unknown}: a domain file has [[column]], [[rule]] and [[sample]] tables only. Remove them."
        )
    folder = Path(path).parent
    columns = Domain.from_dict(_plain_dates(_with_trees(parsed.get("column", []), folder))).columns
    rules, samples = rules_from(parsed.get("rule", []), folder), digests_of(parsed.get("sample", []))
    domain = Domain(columns, rules=rules, samples=samples)
    check_kept(domain)
    return domain


def _with_trees(tables: Any, folder: Path) -> Any:
    """Columns whose trees are written out: `parents` that name a file next to the domain's, `prefixes` of `levels`."""
    if not isinstance(tables, list):
        return tables
    found = []
    for table in tables:
        if isinstance(table, dict) and table.get("kind") == "tree":
            table = dict(table)
            if isinstance(table.get("parents"), str):
                table["parents"] = parents_in(folder / table["parents"])
            elif "prefixes" in table:
                table["parents"] = parents_by_prefixes(table.get("name", ""), table.pop("levels", None), table.pop("prefixes"))
        found.append(table)
    return found


def _plain_dates(table: Any) -> Any:
    if isinstance(table, dict):
        return {key: _plain_dates(value) for key, value in table.items()}
    if isinstance(table, list):
        return [_plain_dates(value) for value in table]
    return table.isoformat() if hasattr(table, "isoformat") else table


def domain_toml(domain: Domain, comments: Mapping[str, Sequence[str]] | None = None) -> str:
    """The domain as TOML, a comment line above a column for each of its entries in `comments`."""
    blocks = []
    for column in domain.to_dict():
        notes = [f"# {note}" for note in (comments or {}).get(column["name"], [])]
        blocks.append("\n".join([*notes, toml_table("column", column)]))
    blocks += [toml_table("rule", rule.to_dict()) for rule in domain.rules]
    samples = "\n".join(toml_table("sample", sample.to_dict()) for sample in domain.samples)
    if samples:
        blocks.append(f"{_SAMPLE_COMMENT}\n{samples}")
    return "\n\n".join(blocks) + "\n"


_SAMPLE_COMMENT = "# What this was drafted from. Keep it: publish refuses a private table with the same content."


def toml_table(name: str, entries: Mapping[str, Any]) -> str:
    """One table of an array of tables, as TOML."""
    return "\n".join([f"[[{name}]]", *(f"{key} = {_toml_value(value)}" for key, value in entries.items())])


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for pairs of surrogates and the delete character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _quoted(names: Sequence[Any]) -> str:
    """Names in quotes, escaped: they are of a table of any origin."""
    return words.listed([f'"{one_line(name)}"' for name in names])
