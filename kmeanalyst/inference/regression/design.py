"""The columns of a model: each term of a formula as products of questions.

A factor that is a column of levels becomes a condition for each level (and for missing cells) that occurs. In a term T it lacks
the first of them, which the others are compared with, where T without the factor is in the model as well; else it has all (R's
rule).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product

import numpy as np

from kmeanalyst.inference.estimate.population import Population
from kmeanalyst.inference.questions.groups import groups_of
from kmeanalyst.inference.regression.formula import Formula, Term
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.expressions import parse, words

INTERCEPT = "intercept"
_MOST_COLUMNS = 500


@dataclass(frozen=True)
class Factor:
    """A factor of a formula.

    text        its expression.
    conditions  those of its levels that occur, the reference first; none of a number.
    absent      those of levels that never occur.
    """

    text: str
    conditions: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def questions(self) -> tuple[str, ...]:
        return self.conditions or (self.text,)

    def coded(self, reduced: bool) -> tuple[str, ...]:
        return self.conditions[1:] if reduced and self.conditions else self.questions


@dataclass(frozen=True)
class Design:
    """The columns of a model, each a product of questions.

    factors   by their texts.
    columns   the questions of each column; the intercept has none.

    >>> design = Design({"age": Factor("age")}, ((), ("age",)))
    >>> design.names, design.matrix({"age": np.array([20.0, 30.0])}, 2).tolist()
    (('intercept', 'age'), [[1.0, 20.0], [1.0, 30.0]])
    """

    factors: Mapping[str, Factor]
    columns: tuple[Term, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients: "intercept", "age", "age:sex == 'Male'"."""
        return tuple(":".join(questions) or INTERCEPT for questions in self.columns)

    @property
    def questions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(question for factor in self.factors.values() for question in factor.questions))

    def matrix(self, values: Mapping[str, Array], n: int) -> Array:
        factors = ([values[question] for question in questions] for questions in self.columns)
        return np.column_stack([reduce(np.multiply, parts, np.ones(n)) for parts in factors])


def design_of(population: Population, formula: Formula) -> Design:
    terms, intercept = formula.terms, formula.intercept
    texts = dict.fromkeys(factor for term in terms for factor in term)
    factors = {text: factor_of(population, text, formula.reference) for text in texts}
    of_levels = [name for text, factor in factors.items() if factor.conditions and (name := column_of(text))]
    if unknown := [name for name in formula.reference if name not in of_levels]:
        raise ValueError(
            f"reference names a level for {unknown[0]!r:.80}, and the formula's columns of levels are "
            f"{', '.join(of_levels) or 'none'}. Name one of these, or leave it out."
        )
    known = {frozenset(term) for term in (*terms, *([()] if intercept else []))}
    columns: list[Term] = [()] if intercept else []
    for term in terms:
        columns += product(*(factors[text].coded(frozenset(term) - {text} in known) for text in term))
        if len(term) == 1 and factors[term[0]].conditions:
            known.add(frozenset())  # all levels of a factor add up to the intercept
    if not columns or len(columns) > _MOST_COLUMNS:
        fewer = "Use fewer products, or conditions in place of columns of many levels."
        raise ValueError(
            f"the model has {len(columns)} columns, and from 1 to {_MOST_COLUMNS} are fitted. "
            + (fewer if columns else "Keep a term or the intercept.")
        )
    return Design(factors, tuple(columns))


def factor_of(population: Population, text: str, reference: Mapping[str, str]) -> Factor:
    """A factor with its levels, the reference first; ValueError where the expression does not fit the columns."""
    domain, name = population.release.columns, column_of(text)
    if name is None or name not in domain.names:
        parse(text).check(domain)
        return Factor(text)
    column = domain[name]
    if column.is_text:
        raise ValueError(f'{name} is a column of texts, and no number. Write a condition: "{words.example(column)}".')
    if not isinstance(column, Categorical):
        return Factor(text)
    groups = groups_of(domain, name)
    conditions = [group.condition for group in groups]
    occurs = {condition: bool(population.mean(population.values(condition) != 0) != 0) for condition in conditions}
    if name in reference:
        first = [group.condition for group in groups if group.label == reference[name] and occurs[group.condition]]
        if not first:
            there = ", ".join(group.label for group in groups if occurs[group.condition])
            raise ValueError(f"{name} has no level {reference[name]!r:.80} here: there are {there}. Name one of these.")
        conditions = first + [condition for condition in conditions if condition not in first]
    return Factor(
        text,
        tuple(condition for condition in conditions if occurs[condition]),
        tuple(condition for condition in conditions if not occurs[condition]),
    )


def column_of(text: str) -> str | None:
    names = parse(text).columns
    return names[0] if len(names) == 1 and words.column(names[0]) == text else None
