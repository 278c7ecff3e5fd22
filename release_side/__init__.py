"""The curator's package: the only code that sees private rows.

    import release_side
    domain = release_side.read_domain("domain.toml")
    release = release_side.publish("private.csv", domain, epsilon=1.0, delta=1e-6)
    release.write("table.kme")
"""

from kmeanalyst.releases.domain import Domain, read_domain
from kmeanalyst.releases.draft import draft_domain
from release_side.mechanism import GaussianNoise, PublishError
from release_side.private_mean import private_mean
from release_side.publish import publish

__all__ = ["Domain", "GaussianNoise", "PublishError", "draft_domain", "private_mean", "publish", "read_domain"]
