"""The curator's package: the only code that sees private rows.

import release_side
domain = release_side.read_domain("domain.toml")
release = release_side.publish("private.csv", domain, epsilon=1.0, delta=1e-6, ledger="budget.ledger", table="census")
release.write("table.kme")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmeanalyst.releases.columns import Boolean, Categorical, Date, DomainError, Integer, Ordinal, Real
    from kmeanalyst.releases.cyclic_column import Cyclic
    from kmeanalyst.releases.domain import Domain, read_domain
    from kmeanalyst.releases.text_column import Text
    from release_side.composition import Spend
    from release_side.drafting import draft_domain
    from release_side.extending import extend_function
    from release_side.functions import publish_function
    from release_side.ledger import Ledger
    from release_side.mechanism import GaussianNoise, LaplaceNoise, PublishError
    from release_side.planning import plan
    from release_side.publishing import LedgerWarning, publish

_HOMES = {
    "Boolean": "kmeanalyst.releases.columns",
    "Categorical": "kmeanalyst.releases.columns",
    "Cyclic": "kmeanalyst.releases.cyclic_column",
    "Date": "kmeanalyst.releases.columns",
    "Integer": "kmeanalyst.releases.columns",
    "Ordinal": "kmeanalyst.releases.columns",
    "Real": "kmeanalyst.releases.columns",
    "Text": "kmeanalyst.releases.text_column",
    "Domain": "kmeanalyst.releases.domain",
    "DomainError": "kmeanalyst.releases.columns",
    "read_domain": "kmeanalyst.releases.domain",
    "extend_function": "release_side.extending",
    "draft_domain": "release_side.drafting",
    "GaussianNoise": "release_side.mechanism",
    "LaplaceNoise": "release_side.mechanism",
    "Ledger": "release_side.ledger",
    "LedgerWarning": "release_side.publishing",
    "Spend": "release_side.composition",
    "PublishError": "release_side.mechanism",
    "plan": "release_side.planning",
    "publish": "release_side.publishing",
    "publish_function": "release_side.functions",
}
__all__ = [
    "Boolean", "Categorical", "Cyclic", "Date", "Domain", "DomainError", "GaussianNoise", "Integer", "LaplaceNoise",
    "Ledger", "LedgerWarning", "Ordinal", "PublishError", "Real", "Spend", "Text", "draft_domain", "extend_function", "plan",
    "publish", "publish_function", "read_domain",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `release-side --help` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'release_side' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_HOMES[name]), name)
    return value
