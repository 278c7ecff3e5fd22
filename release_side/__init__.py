"""The curator's package: the only code that sees private rows.

import release_side
domain = release_side.read_domain("domain.toml")
release_side.Ledger("budget.ledger").init("census", epsilon=2.0, delta=1e-6)
release = release_side.publish("private.csv", domain, epsilon=1.0, delta=1e-6, ledger="budget.ledger", table="census")
release.write("table.kme")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmeanalyst.lazy import DOMAIN_HOMES, lazy_names

if TYPE_CHECKING:
    from kmeanalyst.releases.domain.column import DomainError
    from kmeanalyst.releases.domain.domain import Domain, read_domain
    from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
    from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Real
    from kmeanalyst.releases.domain.text_column import Text
    from kmeanalyst.releases.domain.tree_column import Tree
    from kmeanalyst.releases.rules.rule import Rule
    from release_side.budget.composition import Spend
    from release_side.budget.ledger import Ledger
    from release_side.budget.spending import LedgerWarning
    from release_side.choices.drafting import draft_domain, new_domain
    from release_side.door.mechanism import GaussianNoise, LaplaceNoise
    from release_side.errors import PublishError
    from release_side.executors.dask import Dask
    from release_side.executors.processes import Processes
    from release_side.private_rows.rows import sql
    from release_side.publishing.functions import publish_function
    from release_side.publishing.plan import plan
    from release_side.publishing.publish import publish
    from release_side.publishing.unfinished import finish

_HOMES: dict[str, tuple[str, ...]] = {
    **DOMAIN_HOMES,
    "release_side.budget.composition": ("Spend",),
    "release_side.budget.ledger": ("Ledger",),
    "release_side.budget.spending": ("LedgerWarning",),
    "release_side.choices.drafting": ("draft_domain", "new_domain"),
    "release_side.door.mechanism": ("GaussianNoise", "LaplaceNoise"),
    "release_side.errors": ("PublishError",),
    "release_side.executors.dask": ("Dask",),
    "release_side.executors.processes": ("Processes",),
    "release_side.private_rows.rows": ("sql",),
    "release_side.publishing.functions": ("publish_function",),
    "release_side.publishing.plan": ("plan",),
    "release_side.publishing.publish": ("publish",),
    "release_side.publishing.unfinished": ("finish",),
}
__all__ = [
    "Boolean",
    "Categorical",
    "Cyclic",
    "Dask",
    "Date",
    "Domain",
    "DomainError",
    "GaussianNoise",
    "Integer",
    "LaplaceNoise",
    "Ledger",
    "LedgerWarning",
    "Ordinal",
    "Processes",
    "PublishError",
    "Real",
    "Rule",
    "Spend",
    "Text",
    "Tree",
    "draft_domain",
    "finish",
    "new_domain",
    "plan",
    "publish",
    "publish_function",
    "read_domain",
    "sql",
]
__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
