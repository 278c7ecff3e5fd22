"""Questions: what the release answers, with its noise intervals, and what the table answers.

The interval is that of `Estimate.interval(0.95, kind="noise")`: without the part for sampling, since it is compared with the table
itself. How many intervals of one release hold says little about their level: they share the release's noise. The count is given,
and no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kmeanalyst.inference.questions.groups import MOST_ASKED, Group, groups_of
from kmeanalyst.inference.questions.statistics import ask
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.expressions import LONGEST, parse, words
from release_side.choices.workload import Source, WorkloadQuestion, read_workload
from release_side.errors import PublishError

MOST_QUESTIONS = 50
_SEED = 27  # public
_Z = 1.959963984540054
_ROUNDING = 1e-9  # of an answer: that of the table is a sum over its rows in another order
_KINDS = (0.35, 0.3, 0.15, 0.2)  # of the drawn questions: one condition, two, a mean, a mean given a condition
_TRIES = 2000


@dataclass(frozen=True)
class Compared:
    """One question, answered by both.

    question  as text.
    table     the table's own answer; NaN if it has none.
    release   the release's; NaN if it has none.
    low, high  of the 95 % noise interval; NaN where the noise of the answer is not known.
    note      why an answer or interval is not there, from the release alone; "" otherwise.
    """

    question: str
    table: float
    release: float
    low: float
    high: float
    note: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the interval holds the table's answer; None where one of them is not known."""
        if not np.isfinite([self.table, self.low, self.high]).all():
            return None
        slack = _ROUNDING * max(1.0, abs(self.table))
        return bool(self.low - slack <= self.table <= self.high + slack)

    @property
    def distance(self) -> float:
        """Of the answers, in standard errors of the noise (on the side of the table's answer); NaN where these are not known."""
        if self.held is None:
            return math.nan
        side = (self.high - self.release) if self.table > self.release else (self.release - self.low)
        away = abs(self.table - self.release)
        if away <= _ROUNDING * max(1.0, abs(self.table)):
            return 0.0
        return _Z * away / side if side > 0 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON."""
        return {
            "question": self.question, "table": self.table, "release": self.release, "noise_interval": [self.low, self.high],
            "held": self.held, "distance": self.distance, "note": self.note,
        }  # fmt: skip


@dataclass(frozen=True)
class QuestionsCompared:
    """Some questions: those farthest off first.

    source   where they are from, in words.
    """

    source: str
    compared: tuple[Compared, ...]

    @property
    def held(self) -> int:
        """How many intervals hold the table's answer."""
        return sum(each.held is True for each in self.compared)

    @property
    def known(self) -> int:
        """Of how many that is known."""
        return sum(each.held is not None for each in self.compared)

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON."""
        return {
            "source": self.source, "held": self.held, "of": self.known,
            "questions": [each.to_dict() for each in self.compared],
        }  # fmt: skip


def chosen_questions(release: Release, workload: Source | None) -> tuple[str, list[WorkloadQuestion]]:
    """(where from, questions): those of a workload, each cell of its tables one, or 50 drawn from the domain.

    At most 50: of a workload with more, those that a public seed draws. PublishError for a table of texts, say.
    """
    if workload is None:
        return f"drawn from the domain by the public seed {_SEED}", drawn_questions(release.domain)
    asked = [
        each for question in read_workload(workload, release.columns).questions for each in _cells(question, release)
    ]
    if len(asked) <= MOST_QUESTIONS:
        return "those of the workload, each cell of a table one question", asked
    some = np.sort(np.random.default_rng(_SEED).choice(len(asked), MOST_QUESTIONS, replace=False))
    return f"{MOST_QUESTIONS} of the workload's {len(asked):,}, drawn by the public seed {_SEED}", [
        asked[i] for i in some
    ]


def _cells(question: WorkloadQuestion, release: Release) -> list[WorkloadQuestion]:
    """A table as a question for each of its cells; any other question as it is."""
    if question.statistic != "table":
        return [question]
    names = [parse(argument).columns[0] for argument in question.arguments]
    groups = [_groups(release.columns, name) for name in names]
    conditions = [" and ".join(f"({group.condition})" for group in cell) for cell in product(*groups)]
    return [_question(release.columns, "mean", condition, question.where) for condition in conditions]


def _groups(domain: Domain, name: str) -> list[Group]:
    try:
        return groups_of(domain, name)
    except ValueError as error:  # of the domain alone
        raise PublishError(str(error)) from None


def drawn_questions(domain: Domain) -> list[WorkloadQuestion]:
    """At most 50 questions, from the domain alone: probabilities of one condition or two, means, means given a condition."""
    rng, found = np.random.default_rng(_SEED), dict[str, WorkloadQuestion]()
    conditions = {name: made for name in domain.names if (made := _conditions(domain, name))}
    numbers = [column.name for column in domain.columns if isinstance(column, Real | Integer)]
    for _ in range(_TRIES):
        if len(found) == MOST_QUESTIONS:
            break
        if question := _drawn(domain, conditions, numbers, rng):
            found.setdefault(question.text, question)
    return list(found.values())


def _drawn(
    domain: Domain, conditions: dict[str, list[str]], numbers: list[str], rng: np.random.Generator
) -> WorkloadQuestion | None:
    kind = int(rng.choice(len(_KINDS), p=_KINDS))
    names = [str(name) for name in rng.permutation(list(conditions))]
    some = [conditions[name][int(rng.integers(len(conditions[name])))] for name in names[:2]]
    if kind < 2:
        return _question(domain, "mean", " and ".join(some[: kind + 1]), None) if len(some) > kind else None
    if not numbers:
        return None
    number = numbers[int(rng.integers(len(numbers)))]
    present = [f"not missing({words.column(number)})"] if domain[number].missing else []
    given = [each for name, each in zip(names, some, strict=False) if name != number][:1] if kind == 3 else []
    return _question(domain, "mean", words.column(number), " and ".join([*given, *present]) or None)


def _conditions(domain: Domain, name: str) -> list[str]:
    """A condition for each group of a column; none for texts and columns of very many levels."""
    column = domain[name]
    if column.is_text or (column.has_levels and len(column.levels) > MOST_ASKED):  # type: ignore[attr-defined]
        return []
    try:
        return [group.condition for group in groups_of(domain, name) if len(group.condition) < LONGEST // 3]
    except ValueError:  # more than 10,000 ranges, or atoms that no text could list
        return []


def _question(domain: Domain, statistic: str, argument: str, where: str | None) -> WorkloadQuestion:
    names = {*parse(argument).columns, *(parse(where).columns if where else ())}
    columns = tuple(sorted(domain.names.index(name) for name in names))
    text = argument if where is None else f"{argument} | {where}"
    return WorkloadQuestion(text, statistic, (argument,), where, columns, ())


def compare_answers(
    release: Release, source: str, questions: Sequence[WorkloadQuestion], of_table: Sequence[float]
) -> QuestionsCompared:
    """Ask the release the same, and put those farthest off first; those without a distance stand last."""
    compared = list(_compared(release, questions, of_table))
    order = sorted(range(len(compared)), key=lambda i: -compared[i].distance if compared[i].held is not None else 1.0)
    return QuestionsCompared(source, tuple(compared[i] for i in order))


def _compared(release: Release, questions: Sequence[WorkloadQuestion], of_table: Sequence[float]) -> Iterator[Compared]:
    for question, own in zip(questions, of_table, strict=True):
        try:
            estimate = ask(release, question.statistic, question.arguments, where=question.where)
        except ValueError as error:  # of the release alone: no point meets the condition, say
            yield Compared(question.text, own, math.nan, math.nan, math.nan, str(error))
            continue
        low, high, note = noise_interval(estimate)
        yield Compared(question.text, own, estimate.value, low, high, note)


def noise_interval(estimate: Any) -> tuple[float, float, str]:
    """(low, high, "") of 95 %; NaN and the reason where the noise of an answer is not known."""
    try:
        return (*estimate.interval(0.95, kind="noise"), "")
    except ValueError as error:
        return math.nan, math.nan, str(error)
