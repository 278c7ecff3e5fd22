"""Choices that do not go with the rules of a domain: found before a row is read."""

from __future__ import annotations

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.rules.compiled import rules_of
from release_side.errors import PublishError


def refuse_rules(domain: Domain, why: str) -> None:
    """PublishError where the domain has rules, which are kept by rows of margins alone."""
    if domain.rules:
        raise PublishError(
            f"{why}, and do not keep the {len(domain.rules)} rules of the domain. Rows of adaptive margins do, the default where "
            "columns have few enough levels: leave out kernel, features, family, public points, weights and bound, and method. Or "
            'leave the rules out of the domain; the method "subspace" keeps them where the points are given, strings too.'
        )


def refuse_broken(public: Array, domain: Domain) -> None:
    """PublishError where public rows break a rule of the domain: they may not be points of the release."""
    rules = rules_of(domain)
    broken = rules.broken_by(public)
    if broken.any():
        first = int(broken.any(axis=0).argmax())
        raise PublishError(
            f"{int(broken.any(axis=1).sum())} of the {len(public)} public points break a rule, which no row of the release may, "
            f"such as {rules.compiled[first].rule.named(first + 1)}. Remove these rows, or the rule."
        )
