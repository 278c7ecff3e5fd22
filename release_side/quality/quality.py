"""The comparison of a release with its private table: everything that the internal page shows.

Nothing here is private in the sense of a guarantee: the numbers are exact. Errors name public facts only; of what fails while or
after rows are read, no text is kept.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kmeanalyst import __version__
from kmeanalyst.release import Release
from kmeanalyst.representation.progress import Progress, between, silent
from release_side.choices.internal_files import STAMP
from release_side.choices.public_inputs import refuse_private_as_workload
from release_side.choices.workload import Source
from release_side.errors import PublishError
from release_side.private_rows.rows import PrivateSource, open_private
from release_side.private_rows.table import guarded
from release_side.quality.cells_read import CellsRead, cells_read
from release_side.quality.models import ModelScores, chosen_target, compare_models
from release_side.quality.questions import QuestionsCompared, TableAnswers, chosen_questions, compare_answers
from release_side.quality.reading import read_once
from release_side.quality.score_tables import ScoreTables
from release_side.quality.table_scores import CountedRows, TableScores, table_scores

_FAILED = (
    "the release could not be compared with the private table. What failed is withheld because it may hold a private value, and "
    "nothing was written. Try the same with a public sample in place of the table, or with fewer options."
)


@dataclass(frozen=True, eq=False)
class Quality:
    """A release compared with its private table, in exact numbers: not for publication.

    source      name of the release's file; None if it is not in one.
    release     what was compared.
    counted     what the table has `tables.n_rows` of: "rows", or units of a column.
    sampled     rows of the table that models are from.
    cells       what became of each column's cells when they were read; None for a table whose rows can be read once only.
    notes       what a reader should know as well.
    """

    source: str | None
    release: Release
    counted: str
    sampled: int
    tables: TableScores
    questions: QuestionsCompared
    models: ModelScores
    cells: list[CellsRead] | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The page's numbers as JSON has them; the stamp first."""
        statement = self.release.statement
        return {
            "not_for_publication": STAMP, "made_with": f"kmeanalyst {__version__}", "release": self.source,
            "statement": None if statement is None else statement.to_dict(), "counted": self.counted,
            "sampled_rows": self.sampled, "tables": asdict(self.tables) | {"worst_group": self.tables.worst_group},
            "questions": self.questions.to_dict(), "models": asdict(self.models),
            "cells": None if self.cells is None else [own.to_dict() for own in self.cells], "notes": list(self.notes),
        }  # fmt: skip


def quality(
    release: Release, private: PrivateSource, *, group: str | None = None, target: str | None = None,
    workload: Source | None = None, source: str | Path | None = None, progress: Progress | None = None,
) -> Quality:  # fmt: skip
    """Compare a release with the private table that it was made of. The table is read twice, after its rows are counted.

    release     Release; with units, those of its statement are found in the table, and every unit weighs the same.
    private     the table, as `publish` takes it.
    group       a column to divide the rows by.
    target      what models predict; see `chosen_target` for the default.
    workload    questions, as `publish` takes them; by default 50 that are drawn from the domain.
    source      name of the release's file, for the page.
    Returns     Quality: exact numbers of private rows, for the curator alone. What is decided from them is covered by no ε.
    Errors      PublishError or DomainError, by public facts alone.
    """
    table = open_private(private)
    if isinstance(workload, str | Path):
        refuse_private_as_workload(table, workload)
    domain, unit = release.domain, None if release.statement is None else release.statement.unit
    predicted = chosen_target(release, target)
    try:
        where_from, questions = chosen_questions(release, workload)
        counted = CountedRows(ScoreTables(domain, None if group is None else domain.position(group)))
    except (KeyError, ValueError) as error:
        raise PublishError(str(error.args[0] if error.args else error)) from None
    table.check_columns(domain, unit)
    report = progress or silent

    def compare() -> Quality:
        answers = TableAnswers(questions, release.columns, release.decode)
        cells = None if table.read_once else cells_read(table, domain)
        size, rows = read_once(table, domain, unit, [counted.add, answers.add], between(0.0, 0.4, report))
        report("comparing rows", 0.4)
        scores = table_scores(release, counted)
        models = compare_models(release, predicted, release.decode(rows), between(0.5, 0.7, report))
        report("asking questions", 0.7)  # last: it keeps much in memory
        asked = compare_answers(release, where_from, questions, answers.answers())
        name, notes = None if source is None else Path(source).name, tuple(_notes(release, size.count))
        return Quality(name, release, size.counted, len(rows), scores, asked, models, cells, notes)

    return guarded(compare, _FAILED)


def _notes(release: Release, count: int) -> list[str]:
    stated = release.statement
    notes = []
    if stated is not None and stated.n_rows != count:
        notes.append(
            f"the release was made of {stated.n_rows:,} {stated.counted}, and this table has {count:,}: it is another table, or "
            "another edition of it"
        )
    if release.measurement is None:
        notes.append("the release has no measurement, so that the noise of its answers is not known")
    return notes
