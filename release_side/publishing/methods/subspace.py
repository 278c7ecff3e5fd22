"""Subspace: the noisy mean in the span of points that are given or drawn beforehand, and weights on them (Algorithm 1).

Two bases can measure the mean: one with a certificate and √2·B of noise, and one without and 2·B. The certificate needs a
jitter, which damps directions that are small against it. `better_basis` compares both errors from public facts alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kmeanalyst.kernels import Kernel, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.rules.kept_rows import draw_kept
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.wanted import Wanted
from release_side.choices import options as defaults
from release_side.choices.choices import Choices
from release_side.choices.options import NO_PROTECTION, public_generator
from release_side.door.mechanism import Noise, RehearsalNoise
from release_side.errors import PublishError
from release_side.publishing.methods.base import SIZES, MeanMethod, expected_deviation

_MOST_COMPARED = 3000  # public points for which the unseen part of the mean is computed


@dataclass(frozen=True, kw_only=True, eq=False)
class SubspaceChoices(Choices):
    """No features, no family, and nothing that moves points."""

    def check_method(self) -> None:
        if self.weights == "uniform" or self.float32:
            raise PublishError(
                f"{'float32' if self.float32 else 'uniform weights'} is for points that are placed, and a subspace's points "
                'are given. Use method "random-features", or leave it out.'
            )
        if self.features is not None:
            raise PublishError("a subspace has as many features as it has points. Pass points, not features.")
        self.refuse_family("subspace")


class Subspace(MeanMethod):
    """Nyström coordinates of a kernel, and weights on the points that span them."""

    name = "subspace"
    options = SubspaceChoices
    places_points = False
    follows_noise = False

    def __init__(self, choices: Choices, public: Array | None = None) -> None:
        super().__init__(choices, public)
        self._certified: dict[int, CertifiedNystroem | None] = {}  # by the id of a map, which this method keeps

    def spanning(self, kernel: Kernel, domain: Domain) -> Array:
        """The points (M, d), encoded: the first of the public rows, or rows that are drawn from the domain."""
        most = max(2, math.isqrt(USUAL.basis_work // kernel_work(kernel, domain.width)))  # that readers accept
        if self.public is not None:
            return self.public[: self.choices.points or min(defaults.MOST_PUBLIC_POINTS, most)]
        size = self.choices.points or min(defaults.DEFAULT_POINTS, most)
        return _drawn(domain, size, public_generator("points", kernel, domain, size))

    def features(self, kernel: Kernel, domain: Domain) -> Nystroem:
        """The basis; for published weights as in the papers' code: points in their order, near-dependent ones left out."""
        printed: dict[str, Any] = {"tolerance": defaults.PAPER_TOLERANCE, "in_given_order": True}
        basis = printed if self.choices.weights == "published" else {}
        return Nystroem.fit(kernel, self.spanning(kernel, domain), **basis)

    def most_points(self, kernel: Kernel, domain: Domain) -> int:
        return len(self.spanning(kernel, domain))

    def by_noise(self, feature_map: FeatureMap, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> FeatureMap:
        """The basis with a certificate where that has the smaller expected error."""
        assert isinstance(feature_map, Nystroem)
        if id(feature_map) not in self._certified:
            self._certified[id(feature_map)] = CertifiedNystroem.of(feature_map)
        spanning = self.spanning(feature_map.kernel, domain)
        return better_basis(feature_map, self._certified[id(feature_map)], spanning, noise, size)

    def wanted(self, measurement: Measurement, domain: Domain) -> Wanted:
        """Weights on the points as the file will hold them: public rows were decoded and encoded again."""
        given = self.spanning(measurement.feature_map.kernel, domain)
        return Wanted(
            n_points=len(given), view=self.choices.weights, bound=self.choices.bound, given=given,
            n_public=self.n_public(len(given)),
        )  # fmt: skip

    def n_public(self, n_points: int) -> int:
        """All points, or none."""
        return 0 if self.public is None else n_points

    def taken_as_public(self, measured: Measurement, n_points: int) -> tuple[str, ...]:
        given = f"{n_points} rows given as public points; {NO_PROTECTION}"
        return ("the points of the subspace", SIZES, *(() if self.public is None else (given,)))


def _drawn(domain: Domain, size: int, rng: np.random.Generator) -> Array:
    """Rows (size, d) of the domain, drawn evenly from those that keep its rules; PublishError where hardly any do."""
    found = draw_kept(domain, size, rng)
    if len(found) < size:
        raise PublishError(
            f"hardly any row that is drawn from the domain keeps its {len(domain.rules)} rules, and so no points of a subspace "
            "were found. Pass public points that keep them, or choose adaptive margins, the default: leave method out."
        )
    return found


def better_basis(
    plain: Nystroem, certified: CertifiedNystroem | None, public: Array, noise: Noise | RehearsalNoise,
    size: PopulationSize,
) -> FeatureMap:  # fmt: skip
    """The basis with the smaller expected error in the kernel's space; `plain` where there is no certificate."""
    if certified is None:
        return plain
    rows = public[:_MOST_COMPARED]
    of_certified, of_plain = (_expected_square(basis, rows, noise, size) for basis in (certified, plain))
    return certified if of_certified <= of_plain else plain


def _expected_square(feature_map: FeatureMap, public: Array, noise: Noise | RehearsalNoise, size: PopulationSize) -> float:
    """F σ² + the squared norm of the part of the public rows' mean embedding that the map does not see.

    A table of the same population has the same unseen part, up to sampling. This is the error of the noisy coordinates
    themselves; weights that are fitted to them have less of the noise.
    """
    mean = feature_mean(feature_map, public)
    unseen = KernelMean(feature_map.kernel, public).squared_norm() - float(mean @ mean)
    return feature_map.dimension * expected_deviation(feature_map, noise, size) ** 2 + max(0.0, unseen)
