"""Where the labels of training rows come from: the rows' own, or every label that a row can have.

released  the rows' own labels: one drawn label of the many that a row can have, and a model also learns this accident.
smoothed  on releases of margins: every label that a row can have, by models of the rows that the measurement stops, of classes
          (`smoothed_classes`) or of numbers (`smoothed_numbers`). Reasons: tutorials/derivations.md.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from kmeanalyst.learning.rows.smoothed_classes import SmoothedClasses, fit_smoothed_classes
from kmeanalyst.learning.rows.smoothed_numbers import SmoothedNumbers, fit_smoothed_numbers
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData

Labels = Literal["released", "smoothed"]
LABELS: tuple[Labels, ...] = ("released", "smoothed")
LabelModel: TypeAlias = SmoothedClasses | SmoothedNumbers


def find_labels(
    name: Labels | None, release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]
) -> LabelModel | None:
    """The model of labels of that name, None of released ones.

    name     None: smoothed where a release has them for this target, else released.
    Errors   ValueError with the reason where "smoothed" was named and a release has none.
    """
    if name == "released":
        return None
    regressed, target, models = task == "regression", column.name, memo(release)
    key = ("smoothed", target, tuple(sorted(predictors)) if regressed else None)
    try:
        if key not in models:
            if regressed:
                models[key] = fit_smoothed_numbers(release, target, predictors)
            else:
                models[key] = fit_smoothed_classes(release, target)
        found: LabelModel = models[key]
        return found
    except ValueError as reason:
        if name is None:
            return None
        raise ValueError(
            f'labels of {words.written(target)} cannot be "smoothed" here: {reason}. Leave labels out, or take "released".'
        ) from None
