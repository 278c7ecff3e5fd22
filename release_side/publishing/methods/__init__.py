"""The release methods, a file for each. Adding one means a file here, its representation, and its line in METHODS.

random_features   a fit to noisy random features (Algorithm 2)
margins           rows drawn to fit noisy tables: random features' sibling, chosen by `--kernel margins` or a target
subspace          weights on given points (Algorithm 1)
generator         rows of a trained network (DP-MERF)
exponential       a small database, drawn as a whole
"""

from __future__ import annotations

from typing import Any

from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from release_side.choices.choices import METHOD_NAMES, Choices
from release_side.errors import PublishError
from release_side.publishing.methods.base import MeanMethod, Measured, ReleaseMethod
from release_side.publishing.methods.exponential import Exponential
from release_side.publishing.methods.generator import Generator
from release_side.publishing.methods.margins import Margins
from release_side.publishing.methods.random_features import RandomFeatures
from release_side.publishing.methods.subspace import Subspace

METHODS: dict[str, type[ReleaseMethod]] = {
    "random-features": RandomFeatures,
    "margins": Margins,
    "subspace": Subspace,
    "generator": Generator,
    "exponential": Exponential,
}


def method_class(method: str) -> type[ReleaseMethod]:
    """The method of this name; PublishError if `--method` has none such."""
    if method not in METHOD_NAMES:
        raise PublishError(f"method must be one of {', '.join(METHOD_NAMES)}, got {method!r}. Name one of these.")
    return METHODS[method]


def chosen_method(method: str, choices: Choices, domain: Domain, public: Array | None = None) -> Any:
    """The method with its choices: margins where random features are asked for under a kernel that is one of margins."""
    kind = method_class(method)
    spec = kind.spec(choices, domain)
    if kind is RandomFeatures and isinstance(kernel_from_spec(spec, domain, choices.target), MarginsKernel):
        kind = METHODS["margins"]
    return kind(choices, public)


__all__ = ["METHODS", "MeanMethod", "Measured", "ReleaseMethod", "chosen_method", "method_class"]
