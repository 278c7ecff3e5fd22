"""Questions: what the release answers, with its noise intervals, and what the table answers.

The interval is that of `Estimate.interval(0.95, kind="noise")`: without the part for sampling, since it is compared with the table
itself. How many intervals of one release hold says little about their level: they share the release's noise. The count is given,
and no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.questions.groups import MOST_ASKED, groups_of
from kmeanalyst.inference.questions.statistics import ask
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.expressions import LONGEST, parse, words
from release_side.choices.workload import Source, WorkloadQuestion, read_workload

MOST_QUESTIONS = 50
_SEED = 27  # public
_Z = 1.959963984540054
_ROUNDING = 1e-9  # of an answer: that of the table is a sum over its rows in another order
_KINDS = (0.35, 0.3, 0.15, 0.2)  # of the drawn questions: one condition, two, a mean, a mean given a condition
_TRIES = 2000


@dataclass(frozen=True)
class Compared:
    """One question, answered by both.

    table, release  the answers; NaN where there is none.
    low, high       of the 95 % noise interval; NaN where the noise of the answer is not known.
    note            why an answer or interval is not there, from the release alone; "" otherwise.
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
        return sum(question.held is True for question in self.compared)

    @property
    def known(self) -> int:
        """Of how many that is known."""
        return sum(question.held is not None for question in self.compared)

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as in the JSON."""
        asked = [asdict(each) | {"held": each.held, "distance": each.distance} for each in self.compared]
        return {"source": self.source, "held": self.held, "of": self.known, "questions": asked}


def chosen_questions(release: Release, workload: Source | None) -> tuple[str, list[WorkloadQuestion]]:
    """(where from, questions): those of a workload, each cell of its tables one, or 50 drawn from the domain.

    At most 50: of a workload with more, those that a public seed draws. ValueError, by the domain alone, for a table of texts, say.
    """
    if workload is None:
        return f"drawn from the domain by the public seed {_SEED}", drawn_questions(release.domain)
    whole = read_workload(workload, release.columns).questions
    asked = [cell for question in whole for cell in _cells(question, release)]
    if len(asked) <= MOST_QUESTIONS:
        return "those of the workload, each cell of a table one question", asked
    some = np.sort(np.random.default_rng(_SEED).choice(len(asked), MOST_QUESTIONS, replace=False))
    source = f"{MOST_QUESTIONS} of the workload's {len(asked):,}, drawn by the public seed {_SEED}"
    return source, [asked[i] for i in some]


def _cells(question: WorkloadQuestion, release: Release) -> list[WorkloadQuestion]:
    if question.statistic != "table":
        return [question]
    names = [parse(argument).columns[0] for argument in question.arguments]
    groups = [groups_of(release.columns, name) for name in names]
    conditions = [" and ".join(f"({group.condition})" for group in cell) for cell in product(*groups)]
    return [_question(release.columns, "mean", condition, question.where) for condition in conditions]


def drawn_questions(domain: Domain) -> list[WorkloadQuestion]:
    """At most 50 questions, from the domain alone: probabilities of one condition or two, means, means given a condition."""
    rng, drawn = np.random.default_rng(_SEED), dict[str, WorkloadQuestion]()
    conditions = {name: made for name in domain.names if (made := _conditions(domain, name))}
    numbers = [column.name for column in domain.columns if isinstance(column, Real | Integer)]
    for _ in range(_TRIES):
        if len(drawn) == MOST_QUESTIONS:
            break
        if question := _drawn(domain, conditions, numbers, rng):
            drawn.setdefault(question.text, question)
    return list(drawn.values())


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
    compared = [_compared(release, *asked) for asked in zip(questions, of_table, strict=True)]
    return QuestionsCompared(source, tuple(sorted(compared, key=lambda q: -q.distance if q.held is not None else 1.0)))


def _compared(release: Release, question: WorkloadQuestion, of_table: float) -> Compared:
    unknown = math.nan, math.nan
    try:
        estimate = ask(release, question.statistic, question.arguments, where=question.where)
    except ValueError as error:  # of the release alone: no point meets the condition, say
        return Compared(question.text, of_table, math.nan, *unknown, str(error))
    try:
        return Compared(question.text, of_table, estimate.value, *estimate.interval(0.95, kind="noise"))
    except ValueError as error:  # the noise of the answer is not known
        return Compared(question.text, of_table, estimate.value, *unknown, str(error))


# ---------------------------------------------------------------------- the table's answers


class TableAnswers:
    """The table's own answers to some questions, over all its rows, which are added piece by piece.

    Rows are as the domain reads them: clamped, with the defaults, and weighted as in the release. Rows at which a question is
    undefined are left out.

    columns   the domain that the questions are about, with derived columns.
    decode    encoded rows → a frame of these columns, in natural units.
    """

    def __init__(self, questions: Sequence[WorkloadQuestion], columns: Domain, decode: Callable[[Array], pd.DataFrame]) -> None:
        self._columns, self._decode = columns, decode
        self._asked = [(asked, _Values() if asked.statistic == "quantile" else _Moments()) for asked in questions]

    def add(self, rows: Array, weights: Array | None) -> None:
        """Add encoded rows, with their weights; None for equal ones."""
        frame, evaluated = self._decode(rows), dict[str, Array]()
        weights = np.ones(len(frame)) if weights is None else weights

        def value(text: str) -> Array:
            if text not in evaluated:
                evaluated[text] = parse(text).evaluate(frame, self._columns).astype(float)
            return evaluated[text]

        for question, sums in self._asked:
            n_columns = 1 if question.statistic == "quantile" else len(question.arguments)
            values = np.column_stack([value(text) for text in question.arguments[:n_columns]])
            counted = np.isfinite(values).all(axis=1)
            if question.where is not None:
                counted &= value(question.where) == 1
            sums.add(values[counted], weights[counted])

    def answers(self) -> list[float]:
        """One number for each question; NaN where no row has it."""
        return [sums.answer(question) for question, sums in self._asked]


class _Moments:
    """Sums of weights, values and products, of values less those of a first row: sums of squares then lose few digits."""

    def __init__(self) -> None:
        self._shift: Array | None = None
        self._total, self._sums, self._products = 0.0, np.zeros(1), np.zeros((1, 1))

    def add(self, values: Array, weights: Array) -> None:
        if not len(values):
            return
        if self._shift is None:
            self._shift = values[0]
            self._sums, self._products = np.zeros(values.shape[1]), np.zeros((values.shape[1],) * 2)
        shifted = values - self._shift
        self._total += float(weights.sum())
        self._sums += weights @ shifted
        self._products += shifted.T @ (weights[:, None] * shifted)

    def answer(self, question: WorkloadQuestion) -> float:
        if self._shift is None:
            return float("nan")
        mean = self._sums / self._total
        covariance = self._products / self._total - np.outer(mean, mean)
        variances = np.maximum(np.diag(covariance), 0.0)
        if question.statistic == "corr":
            deviations = float(np.sqrt(variances[0] * variances[1]))
            return float(covariance[0, 1]) / deviations if deviations > 0 else float("nan")
        if question.statistic == "cov":
            return float(covariance[0, 1])
        values = {"mean": self._shift[0] + mean[0], "var": variances[0]}
        return float(values.get(question.statistic, variances[0] ** 0.5))


class _Values:
    def __init__(self) -> None:
        self._values, self._weights = [np.zeros(0)], [np.zeros(0)]

    def add(self, values: Array, weights: Array) -> None:
        self._values.append(values[:, 0])
        self._weights.append(weights)

    def answer(self, question: WorkloadQuestion) -> float:
        values, weights = np.concatenate(self._values), np.concatenate(self._weights)
        if not len(values):
            return float("nan")
        order = np.argsort(values, kind="stable")
        cumulative = np.cumsum(weights[order]) / weights.sum()
        index = np.searchsorted(cumulative, float(question.arguments[1]) * (1 - 1e-12))
        return float(values[order[min(int(index), len(order) - 1)]])
