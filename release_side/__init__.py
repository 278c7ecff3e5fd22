"""The curator's package: the only code that sees private rows.

import release_side
domain = release_side.read_domain("domain.toml")
release_side.Ledger("budget.ledger").init("census", epsilon=2.0, delta=1e-6)
release = release_side.publish("private.csv", domain, epsilon=1.0, delta=1e-6, ledger="budget.ledger", table="census")
release.write("table.kme")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmeanalyst.releases.domain.column import DomainError
    from kmeanalyst.releases.domain.cyclic_column import Cyclic
    from kmeanalyst.releases.domain.domain import Domain, read_domain
    from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
    from kmeanalyst.releases.domain.numbers import Date, Integer, Real
    from kmeanalyst.releases.domain.text_column import Text
    from release_side.budget.composition import Spend
    from release_side.budget.ledger import Ledger
    from release_side.budget.spending import LedgerWarning
    from release_side.choices.drafting import draft_domain
    from release_side.door.mechanism import GaussianNoise, LaplaceNoise
    from release_side.errors import PublishError
    from release_side.publishing.functions import publish_function
    from release_side.publishing.plan import plan
    from release_side.publishing.publish import publish

_HOMES = {
    "Boolean": "kmeanalyst.releases.domain.levels",
    "Categorical": "kmeanalyst.releases.domain.levels",
    "Cyclic": "kmeanalyst.releases.domain.cyclic_column",
    "Date": "kmeanalyst.releases.domain.numbers",
    "Integer": "kmeanalyst.releases.domain.numbers",
    "Ordinal": "kmeanalyst.releases.domain.levels",
    "Real": "kmeanalyst.releases.domain.numbers",
    "Text": "kmeanalyst.releases.domain.text_column",
    "Domain": "kmeanalyst.releases.domain.domain",
    "DomainError": "kmeanalyst.releases.domain.column",
    "read_domain": "kmeanalyst.releases.domain.domain",
    "draft_domain": "release_side.choices.drafting",
    "GaussianNoise": "release_side.door.mechanism",
    "LaplaceNoise": "release_side.door.mechanism",
    "Ledger": "release_side.budget.ledger",
    "LedgerWarning": "release_side.budget.spending",
    "Spend": "release_side.budget.composition",
    "PublishError": "release_side.errors",
    "plan": "release_side.publishing.plan",
    "publish": "release_side.publishing.publish",
    "publish_function": "release_side.publishing.functions",
}
__all__ = [
    "Boolean", "Categorical", "Cyclic", "Date", "Domain", "DomainError", "GaussianNoise", "Integer", "LaplaceNoise",
    "Ledger", "LedgerWarning", "Ordinal", "PublishError", "Real", "Spend", "Text", "draft_domain", "plan", "publish",
    "publish_function", "read_domain",
]  # fmt: skip


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `release-side --help` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'release_side' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_HOMES[name]), name)
    return value
