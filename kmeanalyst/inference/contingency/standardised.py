"""Direct standardisation: what a mean would be if groups had the shares of another population.

Σ_g s_g E[question | g], s the declared shares. The groups' means are of one measurement, so their errors are joint.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.estimate.population import estimate, population_of, shown
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.questions.expectation import mean_of
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import Question, ReleaseData, View


def standardised(
    release: ReleaseData,
    question: Question,
    *,
    population: Mapping[str, float],
    by: str | None = None,
    where: Question | None = None,
    view: View | None = None,
) -> Estimate:
    """The expectation of a question with the groups of a column in the proportions of a declared population.

    population  group → its share or count, at least 0, which is taken to be exact; a group that is not named counts for nothing.
    by          the column whose groups are meant: levels, or ranges as `table` labels them. Without it they are conditions, which
                should exclude each other.
    Errors      ValueError for a group that there is none of, shares that are negative or all 0, or a group without rows.
    """
    shares = list(population.values()) if isinstance(population, Mapping) else []
    are_numbers = all(isinstance(share, int | float | np.integer | np.floating) for share in shares)
    total = float(sum(shares)) if are_numbers else 0.0
    if not shares or not np.isfinite(total) or total <= 0 or min(shares) < 0:
        raise ValueError(
            f"population must give each group a share or count of at least 0, not all 0, got {population!r:.200}. "
            "Write e.g. {'Female': 0.5, 'Male': 0.5}."
        )
    conditions = _conditions(release, list(population), by)
    terms = [
        mean_of(population_of(release, where=[condition] if where is None else [where, condition], view=view), question)
        * (share / total)
        for condition, share in zip(conditions, population.values(), strict=True)
        if share > 0
    ]
    n = max(len(_known(term)) for term in terms)  # one of them may end in a bias
    influence = sum(np.append(_known(term), np.zeros(n - len(_known(term)))) for term in terms)
    text = f"{shown(question)} standardised by {words.written(by) if by else 'groups'}"
    everyone = population_of(release, where=where, view=view)
    value = float(sum(term.value for term in terms))
    return estimate(everyone, Statistic(value, np.asarray(influence), everyone.text(text)))


def _known(term: Statistic) -> Array:
    assert term.influence is not None  # of a mean
    return term.influence


def _conditions(release: ReleaseData, groups: list[str], by: str | None) -> list[str]:
    if by is None:
        return groups
    known = {group.label: group.condition for group in groups_of(release.columns, by)}
    for name in groups:
        if name not in known:
            raise ValueError(
                f"no group {name!r} of {words.written(by)}: there are {', '.join(known):.300}. Name these, or leave by out and "
                "give conditions."
            )
    return [known[name] for name in groups]
