"""A rule as plain data: its kind and its texts, as a domain file and the header of a release hold them.

Five kinds: a condition that no row has (never), one that every row has (always), a column that is missing exactly where a
condition holds (missing), columns that have the values of a public list together (combinations), and a column that is computed
from others (derive). What a rule means on a domain is in `compiled`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmeanalyst.releases.domain.column import DomainError, check_shown
from kmeanalyst.releases.texts import shortened

MOST_RULES = 200
LONGEST_RULE = 2000  # characters of an expression
MOST_ROWS = 20_000  # combinations of a rule
MOST_COUPLED = 4  # columns of a rule
NEVER, ALWAYS, MISSING, COMBINATIONS, DERIVE = "never", "always", "missing", "combinations", "derive"
_SECOND = {MISSING: "where", DERIVE: "as", COMBINATIONS: "rows"}  # the second entry of a rule's table
_FORMS = (
    'never = "...", always = "...", missing = "column" with where = "...", combinations = ["a", "b"] with file = "pairs.csv" '
    'or rows = [["x", "y"]], or derive = "column" with as = "..."'
)
_SHOWN = 120  # characters of a rule in a message


@dataclass(frozen=True)
class Rule:
    """A public fact of a table.

    kind     never, always, missing, combinations or derive.
    text     the condition (of never, always and missing) or the expression (of derive); "" of combinations.
    columns  the column that is missing or derived, or the columns of combinations; () of never and always.
    rows     the combinations that there are, a text for each column, "" for a missing cell.

    >>> Rule("never", "age < 15 and married")
    Rule(kind='never', text='age < 15 and married', columns=(), rows=())
    >>> Rule.from_dict({"derive": "stay", "as": "left - came"}).describe()
    'stay = left - came'
    """

    kind: str
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The rule as its TOML table and the file header have it.

        >>> Rule("missing", "not works", ("wage",)).to_dict()
        {'missing': 'wage', 'where': 'not works'}
        """
        if self.kind in (NEVER, ALWAYS):
            return {self.kind: self.text}
        if self.kind == COMBINATIONS:
            return {self.kind: list(self.columns), "rows": [list(row) for row in self.rows]}
        return {self.kind: self.columns[0], _SECOND[self.kind]: self.text}

    @classmethod
    def from_dict(cls, table: Any, folder: Path | None = None) -> Rule:
        """A rule from its table; DomainError if it is not one.

        folder   where the file of combinations is; None: such a rule names its rows itself.

        >>> Rule.from_dict({"always": "hours == 0 or employed"}).kind
        'always'
        """
        known = (NEVER, ALWAYS, MISSING, COMBINATIONS, DERIVE)
        kinds = [kind for kind in known if isinstance(table, dict) and kind in table]
        if len(kinds) != 1:
            raise DomainError(f"a [[rule]] table must be of one of five kinds, got {table!r:.200}. Write {_FORMS}.")
        kind = kinds[0]
        second = "file" if kind == COMBINATIONS and folder is not None and "file" in table else _SECOND.get(kind)
        if set(table) != {kind} | ({second} if second else set()):
            wanted = f"{kind} and {second}" if second else f"{kind} alone"
            raise DomainError(f"a rule of this kind has the entries {wanted}, got {sorted(table)!r:.200}. Write {_FORMS}.")
        if kind == COMBINATIONS:
            names = _names(table[kind])
            rows = _rows_in(folder / _text(table["file"], "file"), names) if second == "file" and folder else table["rows"]
            return cls(kind, columns=names, rows=_rows(rows, len(names)))
        if second is None:
            return cls(kind, _text(table[kind], kind))
        return cls(kind, _text(table[second], second), (_text(table[kind], kind),))

    def describe(self) -> str:
        """The rule in a line.

        >>> Rule("combinations", columns=("city", "state"), rows=(("Basel", "BS"),)).describe()
        'city, state: one of 1 combinations'
        """
        if self.kind in (NEVER, ALWAYS):
            return f"{self.kind} {self.text}"
        if self.kind == MISSING:
            return f"{self.columns[0]} is missing exactly where {self.text}"
        if self.kind == COMBINATIONS:
            return f"{', '.join(self.columns)}: one of {len(self.rows)} combinations"
        return f"{self.columns[0]} = {self.text}"

    def named(self, number: int) -> str:
        """The rule as messages name it, by its number in the file, from 1, and its text.

        >>> Rule("never", "age < 15 and married").named(3)
        'rule 3 (never age < 15 and married)'
        """
        return f"rule {number} ({shortened(self.describe(), _SHOWN)})"


def rules_from(tables: Any, folder: Path | None = None) -> tuple[Rule, ...]:
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise DomainError(f"rules must be a list of tables, got {tables!r:.80}. Write a [[rule]] table for each.")
    if len(tables) > MOST_RULES:
        raise DomainError(f"a domain has at most {MOST_RULES} rules, got {len(tables)}. Join some by or, or leave some out.")
    return tuple(Rule.from_dict(table, folder) for table in tables)


def _text(value: Any, entry: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DomainError(f"the entry {entry} of a rule must be a text, got {value!r:.80}. Write it in quotes.")
    if len(value) > LONGEST_RULE:
        raise DomainError(
            f"the entry {entry} of a rule has {len(value)} characters, and at most {LONGEST_RULE} are read. Write several rules."
        )
    check_shown(f"the entry {entry} of a rule", value)
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise DomainError(f"combinations must be a list of columns, got {value!r:.80}. Write the names in brackets.")
    if not 2 <= len(set(value)) == len(value) <= MOST_COUPLED:
        raise DomainError(
            f"combinations are of 2 to {MOST_COUPLED} different columns, got {list(value)!r:.200}: more cannot be kept in the fit. "
            "Name fewer, or write two rules."
        )
    return tuple(value)


def _rows(value: Any, width: int) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= MOST_ROWS:
        what = f"{len(value)} rows" if isinstance(value, list | tuple) else f"{value!r:.80}"
        raise DomainError(f"combinations need 1 to {MOST_ROWS:,} rows, got {what}. List the values that there are together.")
    for row in value:
        if not isinstance(row, list | tuple) or len(row) != width or not all(isinstance(cell, str) for cell in row):
            raise DomainError(
                f"each row of combinations must be a list of {width} texts, got {row!r:.80}. Write a text for each column."
            )
        for cell in row:
            check_shown("a value of combinations", cell)
    return tuple(dict.fromkeys(map(tuple, value)))


def _rows_in(path: Path, names: Sequence[str]) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            lines = [line for line in csv.reader(handle) if any(cell.strip() for cell in line)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DomainError(
            f"the combinations of {', '.join(names)} could not be read from {path}: {error}. Name a CSV file next to the domain's, "
            "whose first line has these names."
        ) from None
    header = [cell.strip() for cell in lines[0]] if lines else []
    if any(header.count(name) != 1 for name in names) or any(len(line) != len(header) for line in lines):
        raise DomainError(
            f"{path} must have a first line that names {', '.join(names)} once each, and as many cells in each line, got "
            f"{header!r:.200}. Correct the file."
        )
    indices = [header.index(name) for name in names]
    return [[line[index].strip() for index in indices] for line in lines[1:]]
