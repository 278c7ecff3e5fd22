"""What the release cannot show: caveats, derived from its numbers and their errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kmeanalyst.releases.declared_statement import DeclaredStatement
from kmeanalyst.releases.domain.numbers import Cyclic, Number
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.release import MISFIT
from kmeanalyst.releases.rules.violations import contradicted
from kmeanalyst.report.facts import ColumnFacts, ReleaseFacts
from kmeanalyst.report.markup import short

ALARM, CARE, NOTE = "alarm", "care", "note"
_MOST_NAMES = 12
_WEAK_EPSILON = 10.0
_MOST_NOTES = 8


@dataclass(frozen=True)
class Caveat:
    weight: str
    headline: str
    text: str


def warnings_of(facts: ReleaseFacts) -> list[Caveat]:
    found = [*_of_guarantee(facts), *_of_weights(facts), *_of_errors(facts), *_of_columns(facts), *_of_notes(facts)]
    return sorted(found, key=lambda one: (ALARM, CARE, NOTE).index(one.weight))


def _of_guarantee(facts: ReleaseFacts) -> Iterator[Caveat]:
    statement = facts.release.statement
    if statement is None:
        yield Caveat(
            ALARM, "No privacy guarantee is known",
            "These are weighted points from elsewhere, without a measurement: nothing says how they were made. The errors "
            "shown treat the points as the rows of a sample, and leave out the privacy noise, which is not known.",
        )  # fmt: skip
        return
    if isinstance(statement, DeclaredStatement):
        text = "Its noise, and what it protects, are as they say: the file cannot show whether that is so."
        yield Caveat(CARE, statement.claim.capitalize(), text)
        return
    if statement.is_rehearsal:
        yield Caveat(
            ALARM, "NOT PRIVATE: this is a rehearsal",
            "Its noise can be drawn again from a seed. Show the file and this page only to those who may see the private "
            "table itself.",
        )  # fmt: skip
    if statement.epsilon > _WEAK_EPSILON:
        yield Caveat(
            CARE, f"ε = {statement.epsilon:g} is a weak guarantee",
            "Up to 1 is strong; above 10 a release may distinguish one row from another.",
        )  # fmt: skip
    if statement.delta >= 1 / statement.n_rows:
        yield Caveat(
            CARE, f"δ = {statement.delta:g} is not below 1/N",
            f"With N = {statement.n_rows:,}, such a δ allows whole {statement.counted} to be given away. It should be well below "
            f"{1 / statement.n_rows:.2g}.",
        )  # fmt: skip
    if statement.public_points:
        yield Caveat(
            NOTE, "Some points are public rows",
            f"{statement.public_points:,} of the points were given as rows that are public already. These rows have no protection.",
        )  # fmt: skip
    if statement.is_selection:
        yield Caveat(
            CARE, "Errors are incomplete",
            "The exponential mechanism drew these rows and measured nothing: how far they are from the table is known only in "
            f"the kernel’s distance (at most {statement.excess():.3g} beyond the nearest, with probability 95 %), and the errors "
            "shown leave out the privacy part.",
        )  # fmt: skip


def _of_weights(facts: ReleaseFacts) -> Iterator[Caveat]:
    weights, misfit = facts.release.weights, facts.release.residual_over_noise
    negative = float((weights < 0).mean())
    if negative:
        size = float(abs(weights).sum())
        impossible = sum(bar.estimate.value < 0 for column in facts.columns for bar in column.bars)
        below = f" In the view of this page ({facts.view} weights) {impossible} shares are below 0." if impossible else ""
        yield Caveat(
            CARE if size > 1.5 or impossible else NOTE, f"{100 * negative:.3g} % of the weights are negative",
            f"Their absolute values sum to {size:.4g}. Estimates account for that; most other tools misread negative weights: "
            f"export the probability view for them.{below}",
        )  # fmt: skip
    if misfit is not None and misfit > MISFIT:
        yield Caveat(
            CARE, "The points leave out a part of what was measured",
            f"They are {misfit:.3g} times as far from the measurement as its noise is large. Tests and error bars use the "
            "measurement itself; rows that are exported do not.",
        )  # fmt: skip


def _of_errors(facts: ReleaseFacts) -> Iterator[Caveat]:
    measured = facts.release.measurement is not None
    private = [c.name for c in facts.columns if measured and _part_of_error(c, "privacy") > 0.5]
    if private:
        yield Caveat(
            CARE, "Noise outweighs all other errors in some columns",
            "The noise added for privacy is the largest part of the error of the shares of "
            f"{_listed(private)}. Neither more points nor another method reduces it: only a larger ε, or more rows.",
        )  # fmt: skip
    unseen = [c.name for c in facts.columns if measured and _part_of_error(c, "resolution") > 0.5]
    if unseen:
        yield Caveat(
            NOTE, "Some columns are seen only coarsely",
            "What the measured features cannot distinguish is the largest part of the error of the shares of "
            f"{_listed(unseen)}. Ask about wider ranges, or for a release whose domain declares the edges and atoms that matter.",
        )  # fmt: skip
    vague = [column.name for column in facts.columns if _vague(column)]
    if vague:
        yield Caveat(
            CARE, "Some distributions are mostly noise",
            f"Most of the shares of {_listed(vague)} are smaller than twice their own error: read the outline, not the "
            "single bars.",
        )  # fmt: skip
    known = [pair for pair in facts.pairs if math.isfinite(pair.pvalue)]
    hidden = sum(not pair.distinguished for pair in known)
    if hidden:
        yield Caveat(
            NOTE, f"{hidden} of {len(known)} pairs cannot be distinguished from unrelated ones",
            "This does not show that they are unrelated: associations in a release are weaker than in its table, and their "
            "errors are wide.",
        )  # fmt: skip


def _part_of_error(column: ColumnFacts, part: str) -> float:
    errors = [bar.estimate for bar in column.bars if math.isfinite(bar.estimate.standard_error)]
    whole = sum(e.standard_error**2 for e in errors)
    return sum((e.parts.get(part) or 0.0) ** 2 for e in errors) / whole if whole > 0 else 0.0


def _vague(column: ColumnFacts) -> bool:
    """Whether most of a column's mass is in shares smaller than twice their error, or of an unknown one."""
    shares = [bar.estimate for bar in column.bars]
    return sum(max(e.value, 0.0) for e in shares if not abs(e.value) > 2 * e.standard_error) > 0.5


def _of_columns(facts: ReleaseFacts) -> Iterator[Caveat]:
    measured = facts.release.measurement is not None
    smooth = [
        c.name
        for c in facts.columns
        if measured and isinstance(c.column, Number) and not isinstance(c.column, Cyclic) and not c.column.atoms
    ]
    if smooth:
        yield Caveat(
            NOTE, "Spikes that were not declared are smoothed",
            f"{_listed(smooth)}: the domain declares no atoms there. If many rows share one value (working exactly 40 hours), the "
            "release spreads them over the neighbourhood, and intervals around that value can miss.",
        )  # fmt: skip
    texts = [c.name for c in facts.columns if isinstance(c.column, Text)]
    if texts:
        yield Caveat(
            NOTE, "Texts have no distribution here",
            f"{_listed(texts)}: too many values to draw. Ask about one text at a time.",
        )  # fmt: skip
    if broken := contradicted(facts.release.domain, facts.release.measurement):
        named = "; ".join(short(one.describe(), 200) for one in broken[:_MOST_NAMES])
        yield Caveat(
            CARE, "The measurement contradicts a rule",
            f"{named}. Answers are for the table given its rules: against the table as recorded they may be off by as much.",
        )  # fmt: skip
    if facts.release.derived:
        names = [one.column.name for one in facts.release.derived]
        yield Caveat(
            NOTE, "Some columns were computed from others",
            f"{_listed(names)}: whoever wrote the file added them afterwards; the guarantee is unchanged.",
        )  # fmt: skip
    if facts.left_out:
        yield Caveat(
            NOTE, "This page does not show all columns",
            f"{facts.left_out:,} columns of the release are not shown here.",
        )  # fmt: skip


def _of_notes(facts: ReleaseFacts) -> Iterator[Caveat]:
    columns_of: dict[str, list[str]] = {}
    for column in facts.columns:
        for note in column.notes:
            columns_of.setdefault(note, []).append(column.name)
    for note, names in list(columns_of.items())[:_MOST_NOTES]:
        yield Caveat(NOTE, f"Note on {_listed(names, 6)}", note)
    if len(columns_of) > _MOST_NOTES:
        yield Caveat(NOTE, "More notes", f"{len(columns_of) - _MOST_NOTES} more notes are shown with their columns.")


def _listed(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    shown = ", ".join(short(name, 40) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
