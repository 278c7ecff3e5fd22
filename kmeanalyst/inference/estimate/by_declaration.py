"""Questions that the rules of a table decide: their event is impossible, or certain, in every row that keeps the rules.

An event is impossible if no combination of cells of its columns and of the rules' columns is left when the event is one more
rule; it is certain if its opposite is impossible. Columns are cut where the rules and the question cut them, so that each cell
is decided as a whole. Only questions and rules that compare cells with values, or with each other, take part: of others a few
values are tried, and that is no proof. What no proof finds is answered from the measurement like any other question.

The answer then holds for the population given the rules. The table as recorded may have rows that break one; with v their share,
an answer may be off from it by up to v/(1 − v); under a condition v is their share among the rows that meet it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.expressions import Expression, ExpressionError, any_of, parse
from kmeanalyst.releases.memo import memo
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
    """The same for a question that was asked of a release: None for one that is no text, or names a column that was added."""
    conditions = tuple(one for one in where if isinstance(one, str))
    if not release.domain.rules or not isinstance(question, str) or len(conditions) < len(where):
        return None
    try:
        named = {name for text in (question, *conditions) for name in parse(text).columns}
    except ExpressionError:
        return None
    return declared(release.domain, question, conditions) if named <= set(release.domain.names) else None


def note_of(release: ReleaseData, found: Declared) -> str:
    """What an answer by declaration says of itself."""
    rules = rules_of(release.domain)
    names = "; ".join(rules.compiled[i].rule.named(i + 1) for i in found.rules)
    seen = [violation for violation in violations(release) if violation.rule in found.rules]
    broken = "; ".join(violation.describe() for violation in seen) or "the measurement does not show how many do"
    return (
        f"by declaration ({names}): exact given the rules. Against the table as recorded it may be off by v/(1 - v), v the "
        f"share of its rows (of those that meet the condition, if there is one) that break them: {broken}"
    )


def impossible_condition(release: ReleaseData, where: Sequence[object]) -> str:
    """Which rules exclude conditions together, as part of a message; "" where they do not."""
    found = declared_by(release, where[0], where[1:])
    if found is None or found.holds:
        return ""
    rules = rules_of(release.domain)
    return "; ".join(rules.compiled[i].rule.named(i + 1) for i in found.rules)


def contradiction_notes(release: ReleaseData) -> tuple[str, ...]:
    """A note where the measurement contradicts a rule."""
    found = "; ".join(violation.describe() for violation in violations(release) if violation.is_contradicted)
    return (f"the measurement contradicts a rule that the answer assumes: {found}",) if found else ()


def violations(release: ReleaseData) -> tuple[Violation, ...]:
    """What the measurement says of each rule, found once."""
    kept = memo(release)
    if "violations" not in kept:
        kept["violations"] = violations_of(release.domain, release.measurement)
    found: tuple[Violation, ...] = kept["violations"]
    return found


def _excluding(domain: Domain, event: str) -> tuple[int, ...]:
    """The rules that exclude an event, as few as removing one after the other finds; () if they do not."""
    try:
        expression, otherwise = parse(event), parse(f"not ({event})")
    except ExpressionError:  # too long, together
        return ()
    if not expression.compares_alone or len(expression.columns) > _MOST_ASKED:
        return ()
    columns = [domain.position(name) for name in expression.columns]
    if any(domain.columns[j].is_text for j in columns):
        return ()
    rules = rules_of(domain)
    asked = CompiledRule(Rule(NEVER, event), tuple(sorted(columns)), otherwise)
    plain = [i for i, one in enumerate(rules.compiled) if _compares_alone(one)]
    together = replace(rules, compiled=(*(rules.compiled[i] for i in plain), asked))
    cells = together.cells
    try:
        tables = [(own, together.cells_allowed(cells, i)) for i, own in enumerate(together.columns)]
    except DomainError:  # too many values to try
        return ()

    def broken_inside(one: CompiledRule) -> Expression | None:
        """Where a row breaks a condition on the event's columns: in a cell, both may have rows, and none in common."""
        return one.expression if one.rule.kind in (NEVER, ALWAYS) and set(one.columns) <= set(asked.columns) else None

    def impossible(some: Sequence[int]) -> bool:
        inside = [broken for i in some if (broken := broken_inside(together.compiled[i])) is not None]
        joint = replace(asked, expression=any_of(otherwise, *inside))
        own = replace(together, compiled=(joint,)).cells_allowed(cells, 0) if inside else tables[-1][1]
        return not AllowedCells.of([*(tables[i] for i in some), (asked.columns, own)], cells).any_left

    kept = list(range(len(plain)))
    if impossible([]) or not impossible(kept):  # the event is impossible by itself, or possible
        return ()
    for i in range(len(plain)):
        if impossible(fewer := [k for k in kept if k != i]):
            kept = fewer
    return tuple(plain[i] for i in kept)


def _compares_alone(one: CompiledRule) -> bool:
    return one.rule.kind == COMBINATIONS or (one.expression is not None and one.expression.compares_alone)
