"""What noisy scores are computed from: whole numbers of several kinds, and how far one row moves them.

A score is computed from whole numbers that met noise at the door (release_side/door/private_scores.py), and from public facts. Let
n_c be the number of rows in cell c of a table of counts, q the release's shares, A the `height` and M the part's multiplier:

k-marginal   Σ |M A n_c − t_c| over the tables of all pairs of columns, t = rint(M A N q); its mean TV follows. With a group each
             pair's table is crossed with it.
columns      the same of each column's own table.
groups       for each group Σ |M A n_gc − A n_g w_gc| over these tables, w the release's shares within the group in steps of 1/M:
             2 M A P times D_g, the mean over P pairs of ½Σ|n_gc − n_g q_gc|. A row that leaves or joins a group moves D_g by 1.
sizes        M A n_g. TV_g = D_g / n_g follows, by Fieller's interval.
questions    M times the sum over rows of the question's value, taken by its public range to a whole number from 0 to 2²⁰.

One row moves these by the whole numbers of `ScorePart`, whatever the release is (release_side/PROOF.md §13). Under units n is the
sum of the units' shares of rows, in steps of 1/A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kmeanalyst.releases.statement import is_number, is_pure, is_whole
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of

K_MARGINAL, COLUMNS, GROUPS, SIZES, QUESTIONS = PARTS = ("k-marginal", "columns", "groups", "sizes", "questions")
VALUE_STEPS = 2**20  # of a question's range
MOST_QUESTIONS = 1000
MOST_GROUPS = 10_000
LARGEST = 2**62  # of whole numbers and steps


class QualityError(ValueError):
    """Noisy scores that contradict themselves, their own arithmetic, or the release that they are of."""


@dataclass(frozen=True)
class ScorePart:
    """Numbers of one kind, and how far one row moves them.

    name         one of PARTS.
    multiplier   M, at least 1.
    count        how many numbers there are.
    tables       P, the number of pairs whose tables each number adds up; 1 for the other kinds.

    >>> ScorePart("groups", multiplier=1000, count=20, tables=105).step(1)
    210000
    """

    name: str
    multiplier: int
    count: int
    tables: int = 1

    def __post_init__(self) -> None:
        if self.name not in PARTS:
            raise QualityError(f"a part is one of {', '.join(PARTS)}, got {self.name!r:.80}.")
        for name in ("multiplier", "count", "tables"):
            value = getattr(self, name)
            if not (is_whole(value) and 1 <= value < LARGEST):
                raise QualityError(f"{self.name}, {name}: it must be a positive whole number, got {value!r:.80}.")
        if (self.name == K_MARGINAL and self.count != 1) or (
            self.name not in (K_MARGINAL, GROUPS) and self.tables != 1
        ):
            raise QualityError(f"{self.name}: the k-marginal is one number, and only it and groups add up tables.")

    def step(self, height: int) -> int:
        """The number that stands for 1: for a row that is misplaced, a row of a group, or a question's whole range."""
        if self.name == QUESTIONS:
            return self.multiplier * VALUE_STEPS
        return self.multiplier * height * (1 if self.name == SIZES else 2 * self.tables)

    @property
    def moved(self) -> int:
        """How many steps one row can move all numbers together in L1, and the square of how many in L2.

        Each whole margin and each question moves by at most one step. Of groups, one loses the row and one gets it.
        """
        return 2 if self.name in (GROUPS, SIZES) else self.count


def score_sensitivity_of(parts: Sequence[ScorePart], height: int, law: str) -> int:
    """The most that replacing one row, or unit, moves all numbers: in L1 for Laplace noise, else in L2, rounded up.

    >>> parts = [ScorePart("columns", multiplier=1, count=2), ScorePart("sizes", multiplier=2, count=9)]
    >>> score_sensitivity_of(parts, 1, "discrete laplace"), score_sensitivity_of(parts, 1, "discrete gaussian")
    (8, 4)
    """
    if is_pure(law):
        return sum(part.moved * part.step(height) for part in parts)
    squared = sum(part.moved * part.step(height) ** 2 for part in parts)
    return math.isqrt(squared - 1) + 1


@dataclass(frozen=True)
class AskedQuestion:
    """A question that was asked of the table with noise.

    text             an expression of a number or a condition, as `Release.expectation` takes it.
    low, high        the public range of its values.
    answer           of the release, a fact of the file that it was computed from.
    standard_error   of that answer as one about the table itself, without sampling; None where it is not known.
    """

    text: str
    low: float
    high: float
    answer: float
    standard_error: float | None

    def __post_init__(self) -> None:
        check_text("a question", self.text, 10_000)
        numbers = (self.low, self.high, self.answer, *(() if self.standard_error is None else (self.standard_error,)))
        if not all(is_number(number) and math.isfinite(number) for number in numbers):
            raise QualityError(f"the question {self.text!a:.80} has numbers that are no finite ones.")
        if not self.low < self.high or not math.isfinite(self.high - self.low) or (self.standard_error or 0.0) < 0:
            raise QualityError(f"the question {self.text!a:.80} has no range, or a negative standard error.")


def check_text(what: str, text: Any, longest: int) -> None:
    """QualityError unless a text is one line of 1 to `longest` printable characters."""
    if not isinstance(text, str) or not 0 < len(text) <= longest or flaw_of(text) or spacing_flaw_of(text):
        raise QualityError(f"{what} must be a line of 1 to {longest} printable characters, got {text!a:.80}.")
