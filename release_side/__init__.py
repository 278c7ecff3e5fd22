"""The curator's package: the only code that sees private rows.

import release_side
domain = release_side.read_domain("domain.toml")
release = release_side.publish("private.csv", domain, epsilon=1.0, delta=1e-6)
release.write("table.kme")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmeanalyst.releases.columns import DomainError
    from kmeanalyst.releases.domain import Domain, read_domain
    from kmeanalyst.releases.draft import draft_domain
    from release_side.extending import extend_function
    from release_side.functions import publish_function
    from release_side.mechanism import GaussianNoise, PublishError
    from release_side.planning import plan
    from release_side.publishing import publish

_HOMES = {
    "Domain": "kmeanalyst.releases.domain",
    "DomainError": "kmeanalyst.releases.columns",
    "read_domain": "kmeanalyst.releases.domain",
    "extend_function": "release_side.extending",
    "draft_domain": "kmeanalyst.releases.draft",
    "GaussianNoise": "release_side.mechanism",
    "PublishError": "release_side.mechanism",
    "plan": "release_side.planning",
    "publish": "release_side.publishing",
    "publish_function": "release_side.functions",
}
__all__ = [
    "Domain", "DomainError", "GaussianNoise", "PublishError", "draft_domain", "extend_function", "plan", "publish",
    "publish_function", "read_domain",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `release-side --help` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'release_side' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_HOMES[name]), name)
    return value
