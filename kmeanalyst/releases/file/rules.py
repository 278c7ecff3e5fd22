"""The rules in a header, and bounds on what they cost: a text of few characters can ask for much at many rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.file.header import plain
from kmeanalyst.releases.file.limits import limits, refusing, too_large
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import DERIVE, Rule, rules_from

REMAINDER = 49  # more characters that a % counts as: a long division bit by bit, of numbers of very different size
_OF_A_ROW = 40  # characters of an expression that cost as much as making its rows


def length_of(expression: str) -> int:
    """The characters of an expression, or of one that costs as much."""
    return len(expression) + REMAINDER * expression.count("%")


def rules_in(header: dict[str, Any], domain: Domain) -> tuple[Rule, ...]:
    """The rules of a header, not yet on the domain; ValueError where one is not written as a rule is, FileRefused for too many."""
    entries = header.get("rules", [])
    rules = rules_from(entries)
    if plain([rule.to_dict() for rule in rules]) != entries:
        raise ValueError("they are not written as a domain writes them")
    if (work := reading_work(rules, domain, header["n_points"])) > limits().derived_work:
        raise too_large(
            f"the expressions of rules have {sum(length_of(each.text) for each in rules)} characters (% counts as {REMAINDER + 1})",
            f"times 5000, 100 for each column and 50 for each level of the largest column, and {header['n_points']} for those of "
            f"derived columns, that is {work}, and at most {limits().derived_work}",
        )
    return rules


def reading_work(rules: Sequence[Rule], domain: Domain, n_points: int) -> int:
    """What it costs to read these rules on these columns: steps for each character, and for derived columns at each point."""
    levels = max(len(column.levels) if isinstance(column, Categorical) else 0 for column in domain.columns)
    once = sum(length_of(rule.text) for rule in rules) * (5000 + 100 * len(domain) + 50 * levels)
    return once + sum(length_of(rule.text) for rule in rules if rule.kind == DERIVE) * n_points


def trying_work(domain: Domain, n_points: int, feature_map: FeatureMap | None) -> int:
    """What it costs to try the rules at so many points, and at values in the cells of measured tables."""
    rules = rules_of(domain)
    kernel = feature_map.kernel if isinstance(feature_map, MarginFeatures) else None
    return sum(
        (n_points + rules.n_tried(i, kernel)) * (_OF_A_ROW + length_of(one.rule.text))
        for i, one in enumerate(rules.compiled)
    )


def check_trying_work(domain: Domain, n_points: int, feature_map: FeatureMap | None) -> None:
    """FileRefused where this is more than is allowed."""
    with refusing("the rules"):
        work = trying_work(domain, n_points, feature_map)
    if work > limits().rule_work:
        raise too_large(
            f"the rules are not tried at {n_points} points and at values of their columns",
            f"that takes {work:.3g} steps, {_OF_A_ROW} and one for each character at each of them, and at most "
            f"{limits().rule_work:.3g} are taken",
        )
