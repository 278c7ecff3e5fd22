"""Why intervals of coefficients are infinite: which level is too rare for the noise, and what a reader can do.

An interval that inverts the score is infinite where noise leaves it open whether a rate is 0. Most often one level is the cause:
that which the others of a column are compared with, that of the coefficient itself, or a level of the target. Notes name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.inference.regression.design import Factor, column_of
from kmeanalyst.inference.regression.equations import LevelEquations
from kmeanalyst.inference.regression.fit import Fit, percent, values_at
from kmeanalyst.inference.regression.multinomial import MultinomialEquations
from kmeanalyst.kernels.base import Array

_GENERAL = (
    "an interval is infinite where the noise leaves it open whether the rate of a level is 0, or whether the target is determined "
    "by the predictors. Leave out a term, or join rare levels in a condition such as x in ['a', 'b']"
)


def notes_of_infinite(fit: Fit, target: str, infinite: Array) -> tuple[str, ...]:
    """Why intervals are infinite, and what may help: a note for each cause.

    target     what was explained, as text.
    infinite   (k,) whether an end of each coefficient's interval is.
    """
    if not infinite.any():
        return ()
    found = (*_of_outcomes(fit, target, infinite), *_of_factors(fit, infinite))
    return found or (_GENERAL,)


def _of_outcomes(fit: Fit, target: str, infinite: Array) -> Iterator[str]:
    """Notes of levels of the target."""
    equations = fit.equations
    if not isinstance(equations, LevelEquations):
        return
    shares = equations.shares(fit.population.weights)
    if isinstance(equations, MultinomialEquations):
        yield from _of_equations(equations.levels, shares, infinite.reshape(len(shares) - 1, -1), column_of(target))
    elif cuts := [name for name, own in zip(fit.names, infinite & (equations.columns < 0), strict=True) if own]:
        yield (
            f"the intervals of {', '.join(cuts)} are infinite: too few rows for this noise are on one side of these thresholds "
            f"({_with_shares(equations.levels, shares)}). Leave out the rarest levels at that end with where"
        )


def _of_equations(levels: Sequence[str], shares: Array, infinite: Array, name: str | None) -> Iterator[str]:
    """Notes of the equations (c − 1, k) of a multinomial model: of the level that others are compared with, or of their own."""
    most = int(shares.argmax())
    if most > 0 and infinite[most - 1].all():
        yield (
            f"all intervals are infinite as other levels of {name} are compared with {levels[0]} ({percent(shares[0])}), too few "
            f"for this noise. Compare with the level that has the most rows: reference={{{name!r}: {levels[most]!r}}} "
            f"({percent(shares[most])}), or leave {levels[0]} out with where"
        )
    elif rare := [c for c in range(1, len(levels)) if infinite[c - 1].any() and shares[c] < shares[1:].max()]:
        which = _with_shares([levels[c] for c in rare], shares[rare])
        yield (
            f"intervals of the outcomes {which}, are infinite: too few rows for this noise. Other outcomes' intervals hold as they "
            "are; where can leave these out"
        )


def _with_shares(levels: Sequence[str], shares: Array) -> str:
    return ", ".join(f"{level}: {percent(share)}" for level, share in zip(levels, shares, strict=True))


def _of_factors(fit: Fit, infinite: Array) -> Iterator[str]:
    """Notes of levels of the columns that the target is explained by."""
    judged = np.flatnonzero(infinite & _of_most_frequent_outcome(fit)).tolist()
    for text, factor in fit.design.factors.items():
        known = {one: float(fit.population.mean(values_at(fit.population, one))) for one in factor.conditions}
        affected = {one: known[one] for j in judged for one in _conditions(fit, j, factor)}
        first = None if not known or factor.conditions[0] in _coded(fit) else factor.conditions[0]
        if first is not None and any(share > known[first] for share in affected.values()):
            yield _of_reference(fit, text, first, known)
        elif affected:
            rare = ", ".join(f"{one}: {percent(share)}" for one, share in affected.items())
            yield (
                f"intervals are infinite of {rare}: too few for this noise to tell a rate from 0. Join rare levels in a condition "
                "such as x in ['a', 'b'], or leave such rows out with where"
            )


def _of_reference(fit: Fit, text: str, first: str, shares: Mapping[str, float]) -> str:
    """The note of a level of a factor that others are compared with: which to name in its place."""
    name = column_of(text) or text
    most = max(shares, key=lambda one: shares[one])
    label = next(group.label for group in groups_of(fit.population.release.columns, name) if group.condition == most)
    return (
        f"intervals are infinite as other levels of {text} are compared with {first} ({percent(shares[first])}), too few for this "
        "noise to tell their rate from 0. Compare with the level that has the most rows: "
        f"reference={{{name!r}: {label!r}}} ({percent(shares[most])})"
    )


def _of_most_frequent_outcome(fit: Fit) -> Array:
    """(k,) the coefficients that tell of a factor's levels: all, but of several equations those of the most frequent outcome."""
    if not isinstance(fit.equations, MultinomialEquations):
        return np.ones(len(fit.names), dtype=bool)
    shares = fit.equations.shares(fit.population.weights)
    k = fit.equations.X.shape[1]
    return np.arange(len(fit.names)) // k == shares[1:].argmax()


def _conditions(fit: Fit, j: int, factor: Factor) -> list[str]:
    """The conditions of a factor that coefficient j is of."""
    column = int(fit.equations.columns[j])
    return [one for one in fit.design.columns[column] if one in factor.conditions] if column >= 0 else []


def _coded(fit: Fit) -> set[str]:
    """All conditions that have a coefficient of their own."""
    return {one for questions in fit.design.columns for one in questions}
