"""The release of scores on one page: a release, its private table and public choices in, noisy scores of the release out.

What is asked follows from the release, which is public, and from public choices. The scores' noise is chosen before the table is
opened, and how wide their intervals will be is known by then: what would say nothing is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import one_way_kernel
from kmeanalyst.releases.expressions import parse
from kmeanalyst.releases.file.quality import check_readable
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.releases.quality.composition import summed_guarantee
from kmeanalyst.releases.quality.intervals import half_width
from kmeanalyst.releases.quality.parts import (
    COLUMNS,
    GROUPS,
    K_MARGINAL,
    MOST_GROUPS,
    MOST_QUESTIONS,
    QUESTIONS,
    SIZES,
    AskedQuestion,
    ScorePart,
    score_sensitivity_of,
)
from kmeanalyst.releases.quality.scores import PublishedScores
from kmeanalyst.releases.statement import PrivacyStatement, is_pure, software_versions
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.tables.score_tables import ScoreTables, names_of_cells
from release_side.budget.spending import Counting
from release_side.choices.choices import check_whole
from release_side.choices.options import processors
from release_side.choices.workload import Source, read_workload
from release_side.door.mechanism import Noise, RehearsalNoise, noise_for
from release_side.door.private_scores import MOST_IN_SUMS, QuestionValues, ScoreCells, ScoreQuery, private_scores
from release_side.errors import PublishError
from release_side.executors.executor import Here
from release_side.private_rows.reading import counted_rows
from release_side.private_rows.rows import PrivateSource, open_private

_ASKED_FOR = (K_MARGINAL, COLUMNS, GROUPS, QUESTIONS)  # sizes go with groups

# Shares of the budget, fixed and public. The k-marginal is one number of the least sensitivity, precise with a small share. Of
# groups a quarter goes to their sizes: the variance of D/n is (σ_D² + TV² σ_n²)/n², least where sizes have TV/(1 + TV) of it,
# and TV is near a third. Columns and questions are many numbers of one use each.
_WEIGHTS = {K_MARGINAL: 2, COLUMNS: 2, GROUPS: 3, SIZES: 1, QUESTIONS: 2}

# Half of a 95 % interval above which a score says nothing: a TV, a TV within an average group, a question as a share of its range.
# For comparison: k-marginals of good and poor releases differ by 100 of 1000 points, which are a TV of .1.
WIDEST = {K_MARGINAL: 0.05, COLUMNS: 0.05, GROUPS: 0.1, QUESTIONS: 0.03}

_USUAL_DISTANCE = 0.25  # TV within a group for which its interval is foretold
_UNIT_STEPS = 2**13  # what the rows of a unit count in all, so that each one's share is known to 1/8192
_LARGEST_SENSITIVITY = 2**44
_LARGEST_NOISE = 2**54


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is asked, from public facts: tables, questions, and the parts by name."""

    tables: ScoreTables
    cells: ScoreCells
    questions: tuple[AskedQuestion, ...]
    names: tuple[str, ...]
    statement: PrivacyStatement

    @property
    def size(self) -> PopulationSize:
        return PopulationSize(self.statement.n_rows, self.statement.unit)

    @property
    def height(self) -> int:
        return 1 if self.statement.unit is None else _UNIT_STEPS

    @property
    def values(self) -> QuestionValues | None:
        """The questions as the door asks them."""
        if QUESTIONS not in self.names:
            return None
        return QuestionValues(self.tables.domain, tuple((q.text, q.low, q.high) for q in self.questions))

    def parts(self, noise: Noise | RehearsalNoise) -> tuple[ScorePart, ...]:
        """The parts with their multipliers: each moves by its share of one sensitivity, as large as 64 bits allow."""
        fresh = noise.noise if isinstance(noise, RehearsalNoise) else noise
        largest = min(
            _LARGEST_SENSITIVITY, MOST_IN_SUMS // 2 // self.size.count, int(_LARGEST_NOISE / fresh.multiplier())
        )
        if largest < 2**30:
            raise PublishError(
                f"scores of {self.size.count:,} {self.size.counted} at epsilon {noise.epsilon:g} need more than 64 bits. Raise "
                "epsilon."
            )
        total = sum(_WEIGHTS[name] for name in self.names)
        found = []
        for name in self.names:
            one = self._part(name, 1)
            share, moved = _WEIGHTS[name] / total, one.moved
            allowed = share / moved if is_pure(noise.name) else math.sqrt(share / moved)
            multiplier = int(allowed * 2 ** int(math.log2(largest))) // one.step(self.height)
            if multiplier < 1:
                raise PublishError(f"the part {name} has too many numbers for one query. Ask for less.")
            found.append(self._part(name, multiplier))
        return tuple(found)

    def _part(self, name: str, multiplier: int) -> ScorePart:
        counts = {COLUMNS: self.cells.n_columns, QUESTIONS: len(self.questions), K_MARGINAL: 1}
        tables = len(self.cells.pairs) if name in (K_MARGINAL, GROUPS) else 1
        return ScorePart(name, multiplier, counts.get(name, self.cells.n_groups), tables)

    def half_widths(self, noise: Noise | RehearsalNoise) -> dict[str, float]:
        """Half of the 95 % interval that each part's scores will have, as `WIDEST` counts it."""
        parts = {part.name: part for part in self.parts(noise)}
        deviation = noise.deviation(score_sensitivity_of(tuple(parts.values()), self.height, noise.name))
        rows = {name: deviation / part.step(self.height) for name, part in parts.items()}
        found = {n: half_width(noise.name, rows[n] / self.size.count) for n in self.names if n not in (GROUPS, SIZES)}
        if GROUPS in rows:
            average = self.size.count / self.cells.n_groups
            spread = math.hypot(rows[GROUPS], _USUAL_DISTANCE * rows[SIZES])
            found[GROUPS] = 1.0 if average < 5 * rows[SIZES] else min(half_width(noise.name, spread) / average, 1.0)
        return found


def publish_quality(
    release: Release | str | Path,
    private: PrivateSource,
    *,
    epsilon: float,
    delta: float = 0.0,
    group: str | None = None,
    workload: Source | None = None,
    parts: Sequence[str] | None = None,
    force_wide: bool = False,
    calibration: str | None = None,
    ledger: str | Path | None = None,
    table: str | None = None,
    uncounted: bool = False,
    weak: bool = False,
    n_rows: int | None = None,
    rehearsal: int | None = None,
    workers: int | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> PublishedScores:
    """Publish noisy scores of a release against its own table, once, with (epsilon, delta)-differential privacy.

    release         the release or its file. What is protected, rows or units, and N are the release's.
    private, n_rows as in `publish`: the table that the release was made of.
    delta           0 for Laplace noise (the default), or that of Gaussian noise.
    group           a column: pairs of the others are scored within each of its cells too.
    workload        questions, as in `publish`. Of these the means without a condition, whose values have a public range, are
                    never missing and name no texts, are asked of the table with noise.
    parts           some of "k-marginal", "columns", "groups", "questions". By default what the other arguments ask for, without
                    columns where these would be too wide. Parts that are named here are published however wide they are.
    force_wide      publish all of them however wide their intervals will be (`WIDEST` has the limits).
    output          file to write the release to with these scores in it. A release that has scores gets no second ones.
    Others          as in `publish`.
    Returns         PublishedScores: `scores()` has every score with its interval; `total_epsilon` counts the release too.
    Errors          PublishError, by public facts alone.

    The probability view of the release's points is scored. `held` of a question follows from its noisy answer.

    >>> ages = ka.Domain((ka.Integer(name="age", lower=17, upper=90),))
    >>> published = release_side.publish("private.csv", ages, epsilon=1, delta=1e-6, points=20, uncounted=True)
    >>> quality = release_side.publish_quality(published, "private.csv", epsilon=0.5, parts=["columns"], uncounted=True)
    >>> [score.name for score in quality.scores()], quality.total_epsilon, quality.total_delta
    (['age'], 1.5, 1e-06)
    """
    path, release = release, _release_of(release, rehearsal)
    noise = _noise_of_scores(epsilon, delta, calibration, rehearsal)
    check_whole("workers", workers, 1)
    check_whole("n_rows", n_rows, 1)
    asked = _asked(release, noise, group, workload, parts, force_wide)
    counting = Counting(
        ledger=ledger, table=table, uncounted=uncounted, weak=weak, rehearsal=rehearsal, output=output, force=force
    )
    domain = release.domain
    counting.check_before_opening(private, None, domain, domain, (path,), workload)
    query = _query(asked, release, noise)
    draft = _draft(asked, query, noise)
    rows = open_private(private, n_rows)
    rows.check_columns(domain)
    with counted_rows(rows, domain, asked.size.unit, Here()) as (encoded, size):
        del rows
        _check_same_size(size, asked.size)
        spending = counting.spending(noise, size, "scores")
        with spending.note_budget_spent():
            found = private_scores(
                encoded, query, noise, workers=workers or processors(), record_spend=spending.record, progress=progress
            )
            del encoded  # from here on, post-processing
    with spending.note_budget_spent():
        quality = replace(draft, noisy=found.noisy, ledger_head=spending.head)
        spending.write(release.replaced(quality=quality).write)
    spending.published()
    return quality


def plan_quality(
    release: Release | str | Path,
    *,
    epsilon: float,
    delta: float = 0.0,
    group: str | None = None,
    workload: Source | None = None,
    parts: Sequence[str] | None = None,
    calibration: str | None = None,
) -> pd.DataFrame:
    """How wide the intervals of `publish_quality` will be, from public facts alone: no private file is opened.

    Arguments   as in `publish_quality`.
    Returns     a row for each part: part; numbers, how many; half_width, half of a 95 % interval, of a TV (1000 points of
                k-marginal are a TV of 1; of groups it is of one of average size), of a question as a share of its range;
                limit; and whether it would be published without being asked for by name.

    >>> release_side.plan_quality("adult.kme", epsilon=0.5).round(4)
             part  numbers  half_width  limit  published
    0  k-marginal        1      0.0020   0.05       True
    1     columns        7      0.0140   0.05       True
    """
    noise = _noise_of_scores(epsilon, delta, calibration, None)
    asked = _asked(_release_of(release, 0), noise, group, workload, parts or _default_parts(group, workload), True)
    widths = asked.half_widths(noise)
    counts = {part.name: part.count for part in asked.parts(noise)}
    lines = [
        {
            "part": name,
            "numbers": counts[name],
            "half_width": width,
            "limit": WIDEST[name],
            "published": width <= WIDEST[name],
        }
        for name, width in widths.items()
    ]
    return pd.DataFrame(sorted(lines, key=lambda line: _ASKED_FOR.index(str(line["part"]))))


def _noise_of_scores(
    epsilon: float, delta: float, calibration: str | None, rehearsal: int | None
) -> Noise | RehearsalNoise:
    """Laplace noise where delta is 0, else Gaussian noise."""
    name = "laplace" if isinstance(delta, int | float) and delta == 0 else "gaussian"
    return noise_for(name, epsilon, delta, calibration=calibration, rehearsal=rehearsal)


def _check_same_size(found: PopulationSize, wanted: PopulationSize) -> None:
    """PublishError unless the private table has as many rows, or units, as the release was made of; both are public."""
    if found.count != wanted.count:
        raise PublishError(
            f"the table has {found.count:,} {found.counted}, and the release was made of {wanted.count:,}: it is another table. "
            "Nothing was spent. Name the table that was published."
        )


# ---------------------------------------------------------------------- what is asked


def _release_of(release: Release | str | Path, rehearsal: int | None) -> Release:
    """The release; PublishError where scores of it cannot be published."""
    if not isinstance(release, Release):
        try:
            release = read_release(release, allow_rehearsal=True)
        except (ValueError, OSError) as error:
            raise PublishError(str(error)) from None
    if release.statement is None:
        raise PublishError(
            "the release has no privacy statement: it says neither what is protected nor how many rows there were. Name a "
            "release that was published."
        )
    if release.quality is not None:
        raise PublishError(
            "the release has scores already, and a file has those of one publication. Name the file without them; the ledger "
            "counts both."
        )
    if release.is_rehearsal and rehearsal is None:
        raise PublishError(
            "the release is a rehearsal, which is NOT PRIVATE. Score it in a rehearsal too (--rehearsal SEED)."
        )
    return release


def _default_parts(group: str | None, workload: Source | None) -> list[str]:
    return [K_MARGINAL, COLUMNS, *([] if group is None else [GROUPS]), *([] if workload is None else [QUESTIONS])]


def _asked(
    release: Release,
    noise: Noise | RehearsalNoise,
    group: str | None,
    workload: Source | None,
    parts: Sequence[str] | None,
    force_wide: bool,
) -> _Asked:
    """What to ask; PublishError for a part that cannot be, or that would say nothing and was not asked for by name."""
    domain, statement = release.domain, release.statement
    assert statement is not None
    names = list(_default_parts(group, workload) if parts is None else parts)
    if unknown := [name for name in names if name not in _ASKED_FOR]:
        raise PublishError(f"parts are {', '.join(_ASKED_FOR)}, got {unknown[0]!r:.80}. Name some of these.")
    if GROUPS in names and group is None:
        raise PublishError("scores by group need the column of the group. Name it (--group).")
    if QUESTIONS in names and workload is None:
        raise PublishError("noisy answers need questions. Name a workload (--workload).")
    tables = _score_tables_of(domain, group)
    if not ScoreCells(tables).pairs:
        if parts is not None and {K_MARGINAL, GROUPS} & set(names):
            raise PublishError("there is no pair of columns that is scored. Leave out the k-marginal and the groups.")
        names = [name for name in names if name not in (K_MARGINAL, GROUPS)]
    asked = _Asked(
        tables=tables, cells=ScoreCells(tables), statement=statement, names=_in_order(names),
        questions=_questions(release, workload) if QUESTIONS in names and workload is not None else (),
    )  # fmt: skip
    return asked if force_wide or parts is not None else _narrow_enough(asked, noise)


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    """The parts in the order of a file, with the sizes of groups."""
    every = {*names, *([SIZES] if GROUPS in names else [])}
    return tuple(name for name in _WEIGHTS if name in every)


def _narrow_enough(asked: _Asked, noise: Noise | RehearsalNoise) -> _Asked:
    """The parts without columns, if these would be too wide; PublishError if another would be."""
    widths = asked.half_widths(noise)
    if widths.get(COLUMNS, 0.0) > WIDEST[COLUMNS] and len(asked.names) > 1:
        asked = _Asked(
            tables=asked.tables, cells=asked.cells, statement=asked.statement, questions=asked.questions,
            names=tuple(name for name in asked.names if name != COLUMNS),
        )  # fmt: skip
        widths = asked.half_widths(noise)
    for name, width in widths.items():
        if width > WIDEST[name]:
            raise PublishError(
                f"{_SHOWN[name]} would come to ± {width:.2g}, and above {WIDEST[name]:g} this says nothing. Nothing was spent. "
                f"Spend more, leave out {_LEAVE_OUT[name]}, or publish it all the same (--force-wide, or --part {name})."
            )
    return asked


_SHOWN = {
    K_MARGINAL: "the mean TV of pairs", COLUMNS: "the TV of a column", GROUPS: "the mean TV within a group of average size",
    QUESTIONS: "the answer to a question, as a share of its range,",
}  # fmt: skip
_LEAVE_OUT = {
    K_MARGINAL: "other parts",
    COLUMNS: "the columns",
    GROUPS: "--group",
    QUESTIONS: "questions of the workload",
}


def _score_tables_of(domain: Domain, group: str | None) -> ScoreTables:
    """The tables that are scored; PublishError if the group is no column with cells, or there are no cells."""
    if group is not None and group not in domain.names:
        raise PublishError(f"{group!r:.80} is no column: they are {', '.join(domain.names)}. Name one of these.")
    try:
        tables = ScoreTables(domain, None if group is None else domain.position(group))
    except ValueError as error:
        raise PublishError(str(error)) from None
    if not tables.columns:
        raise PublishError("all columns hold texts, which have no cells, so that there is nothing to score.")
    if tables.group is not None and tables.sizes[tables.group] > MOST_GROUPS:
        raise PublishError(f"{group!r:.80} has more than {MOST_GROUPS:,} cells. Name a column with fewer.")
    return tables


def _questions(release: Release, workload: Source) -> tuple[AskedQuestion, ...]:
    """The means of a workload with the release's answers; PublishError if there is none, or too many."""
    domain, found = release.domain, list[AskedQuestion]()
    for question in read_workload(workload, domain).questions:
        if question.statistic != "mean" or question.where is not None:
            continue
        text = question.arguments[0]
        expression = parse(text)
        if any(domain[name].is_text for name in expression.columns):
            continue
        low, high = 0.0, 1.0
        if expression.check(domain) == "number":
            extent = expression.extent(domain)
            if not extent.bounded or extent.missing or not extent.low < extent.high:
                continue
            low, high = extent.low, extent.high
        try:
            answer = release.expectation(text)
        except ValueError as error:
            raise PublishError(f"the release has no answer to {text!r:.80}: {error}") from None
        found.append(AskedQuestion(text, low, high, float(answer.value), _error_of_table(answer)))
    if not 0 < len(found) <= MOST_QUESTIONS:
        raise PublishError(
            f"the workload has {len(found)} means without a condition, of values that have a public range, are never missing and "
            f"name no texts, and 1 to {MOST_QUESTIONS} can be asked with noise. Write some, such as age > 50."
        )
    return tuple(found)


def _error_of_table(answer: object) -> float | None:
    """The standard error of an answer as one about the table itself; None where it is not known."""
    try:
        low, high = answer.interval(0.95, kind="noise")  # type: ignore[attr-defined]
    except ValueError:
        return None
    error = (high - low) / 2 / half_width("discrete gaussian", 1.0)
    return float(error) if math.isfinite(error) else None


# ---------------------------------------------------------------------- before and after the door


def _query(asked: _Asked, release: Release, noise: Noise | RehearsalNoise) -> ScoreQuery:
    """What the door is asked: the release's shares in whole numbers."""
    cells, parts = asked.cells, asked.parts(noise)
    shares = cells.mean(release.encoded_points, release.view_weights("probability"))
    shares = np.clip(shares, 0.0, None)
    of_pairs = int(cells.starts[cells.n_columns])
    multiplier = {part.name: part.multiplier for part in parts}
    guesses: dict[str, Array] = {}
    for name, own in ((K_MARGINAL, shares[of_pairs:]), (COLUMNS, shares[:of_pairs])):
        if name in multiplier:
            guesses[name] = np.rint(own * float(multiplier[name] * asked.height * asked.size.count)).astype(np.int64)
    if GROUPS in multiplier:
        within = [whole_shares(own, multiplier[GROUPS]).ravel() for own in cells.by_group(shares)]
        guesses[GROUPS] = np.concatenate(within)
    return ScoreQuery(cells, asked.height, parts, guesses, asked.size.count, asked.values)


def whole_shares(table: Array, steps: int) -> Array:
    """Each row of a table (G, cells) as shares of its sum, in whole steps that add up to `steps`; zeros for a row without mass.

    >>> whole_shares(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]), 10)
    array([[4, 3, 3],
           [0, 0, 0]])
    """
    sums = table.sum(axis=1, keepdims=True)
    shares = np.where(sums > 0, table / np.where(sums > 0, sums, 1.0), 0.0) * steps
    whole = np.floor(shares).astype(np.int64)
    left = np.where(sums[:, 0] > 0, steps - whole.sum(axis=1), 0)  # those of the largest remainders are rounded up
    rank = np.argsort(np.argsort(whole - shares, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(whole + (rank < left[:, None]))


def _draft(asked: _Asked, query: ScoreQuery, noise: Noise | RehearsalNoise) -> PublishedScores:
    """All but the noisy numbers, which are 0; PublishError, before anything is spent, if no file could hold such scores."""
    tables, statement = asked.tables, asked.statement
    domain = tables.domain
    sensitivity = query.sensitivity(noise.name)
    noise_scale = noise.deviation(sensitivity)
    multiplier = None if is_pure(noise.name) else noise_scale / sensitivity
    total_epsilon, total_delta = summed_guarantee(statement, (noise.epsilon, noise.delta, multiplier))
    kernel = one_way_kernel(domain, tables.columns, ranged=True).kernel
    assert isinstance(kernel, Margins)
    draft = PublishedScores(
        epsilon=noise.epsilon, delta=noise.delta, mechanism=noise.name, calibration=noise.calibration,
        neighbouring=statement.neighbouring, unit=statement.unit, n_rows=statement.n_rows, height=query.height,
        parts=query.parts, noisy={part.name: (0,) * part.count for part in query.parts}, noise_scale=noise_scale,
        edges=kernel.edges, atoms=kernel.atoms, missing=kernel.missing,
        names=tuple(domain.columns[j].name for j in tables.columns),
        group=None if tables.group is None else domain.columns[tables.group].name,
        labels=() if tables.group is None else tuple(names_of_cells(domain, tables.group)),
        questions=asked.questions, total_epsilon=total_epsilon, total_delta=total_delta,
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp", "dp-accounting"),
    )  # fmt: skip
    try:
        check_readable(draft, domain, statement)
    except ValueError as error:
        raise PublishError(f"no file could hold these scores: {error}") from None
    return draft
