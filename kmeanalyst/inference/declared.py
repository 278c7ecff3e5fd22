"""What the rules of a domain decide of a question.

An event is impossible if no combination of cells of its columns and of the rules' columns is left when it is one more rule, and
certain if its opposite is impossible. Only questions and rules that compare cells with values, or with each other, take part.
The answer then holds given the rules: with v the share of recorded rows that break one, it may be off by up to v/(1 − v).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.expressions import ExpressionError, any_of, parse
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import CompiledRule, rules_of
from kmeanalyst.releases.rules.rule import ALWAYS, COMBINATIONS, NEVER, Rule
from kmeanalyst.releases.rules.violations import Violation, violations_of
from kmeanalyst.representation.tables.allowed_cells import AllowedCells

_MOST_ASKED = 6  # columns that a question names


@dataclass(frozen=True)
class Declared:
    """What rules decide of a question.

    holds   whether its event is certain; else it is impossible.
    rules   the indices of the rules that decide it.
    """

    holds: bool
    rules: tuple[int, ...]


@lru_cache(maxsize=256)
def declared(domain: Domain, question: str, where: tuple[str, ...] = ()) -> Declared | None:
    """What the rules of a domain decide of a condition, given conditions; None where they leave it open.

    >>> from kmeanalyst.releases.rules.rule import Rule
    >>> columns = ka.Integer(name="age", lower=0, upper=99), ka.Boolean(name="works")
    >>> own = ka.Domain(columns, (Rule("never", "works and age < 15"),))
    >>> declared(own, "age >= 12", ("works",))
    Declared(holds=True, rules=(0,))
    >>> declared(own, "age >= 18", ("works",)) is None
    True
    """
    given = " and ".join(f"({condition})" for condition in where)
    with_given = f"{given} and " if given else ""
    for holds, event in ((False, f"{with_given}({question})"), (True, f"{with_given}not ({question})")):
        if rules := _excluding(domain, event):
            return Declared(holds, rules)
    return None


def declared_by(release: ReleaseData, question: object, where: Sequence[object]) -> Declared | None:
    """The same for a question that was asked of a release: None for one that is not a text, or names a column that was added."""
    conditions = tuple(one for one in where if isinstance(one, str))
    if not release.domain.rules or not isinstance(question, str) or len(conditions) < len(where):
        return None
    try:
        named = {name for text in (question, *conditions) for name in parse(text).columns}
    except ExpressionError:
        return None
    return declared(release.domain, question, conditions) if named <= set(release.domain.names) else None


def note_of(release: ReleaseData, found: Declared) -> str:
    seen = [violation for violation in violations(release) if violation.rule in found.rules]
    broken = "; ".join(violation.describe() for violation in seen) or "the measurement does not show how many do"
    return (
        f"by declaration ({_names(release, found)}): exact given the rules. Against the table as recorded it may be off by "
        "v/(1 - v), v the share of its rows (of those that meet the condition, if there is one) that break them: " + broken
    )


def impossible_condition(release: ReleaseData, where: Sequence[object]) -> str:
    """Which rules exclude conditions together, as part of a message; "" where they do not."""
    found = declared_by(release, where[0], where[1:])
    return "" if found is None or found.holds else _names(release, found)


def _names(release: ReleaseData, found: Declared) -> str:
    rules = rules_of(release.domain)
    return "; ".join(rules.compiled[i].rule.named(i + 1) for i in found.rules)


def contradiction_notes(release: ReleaseData) -> tuple[str, ...]:
    found = "; ".join(violation.describe() for violation in violations(release) if violation.is_contradicted)
    return (f"the measurement contradicts a rule that the answer assumes: {found}",) if found else ()


def violations(release: ReleaseData) -> tuple[Violation, ...]:
    return kept(release, "violations", lambda: violations_of(release.domain, release.measurement))


def _excluding(domain: Domain, event: str) -> tuple[int, ...]:
    """The rules that exclude an event, as few as removing one after the other finds; () if they do not."""
    try:
        expression, otherwise = parse(event), parse(f"not ({event})")
    except ExpressionError:  # too long, together
        return ()
    if not expression.is_plain or not 0 < len(expression.columns) <= _MOST_ASKED:
        return ()
    columns = [domain.position(name) for name in expression.columns]
    if any(domain.columns[j].is_text for j in columns):
        return ()
    rules = rules_of(domain)
    asked = CompiledRule(Rule(NEVER, event), tuple(sorted(columns)), otherwise)
    plain = [
        i
        for i, one in enumerate(rules.compiled)
        if one.rule.kind == COMBINATIONS or (one.expression is not None and one.expression.is_plain)
    ]
    together = replace(rules, compiled=(*(rules.compiled[i] for i in plain), asked))
    cells = together.cells
    try:
        tables = [(own, together.cells_allowed(cells, i)) for i, own in enumerate(together.columns)]
    except DomainError:  # too many values to try
        return ()

    def impossible(some: Sequence[int]) -> bool:
        # conditions on the event's columns alone: in a cell, both may have rows, and none in common
        own = [one for one in (together.compiled[i] for i in some) if set(one.columns) <= set(asked.columns)]
        inside = [one.expression for one in own if one.rule.kind in (NEVER, ALWAYS) and one.expression is not None]
        joint = replace(asked, expression=any_of(otherwise, *inside))
        left = replace(together, compiled=(joint,)).cells_allowed(cells, 0) if inside else tables[-1][1]
        return not AllowedCells.of([*(tables[i] for i in some), (asked.columns, left)], cells).any_left

    excluding = list(range(len(plain)))
    if impossible([]) or not impossible(excluding):  # the event is impossible by itself, or possible
        return ()
    for i in range(len(plain)):
        if impossible(fewer := [k for k in excluding if k != i]):
            excluding = fewer
    return tuple(plain[i] for i in excluding)
