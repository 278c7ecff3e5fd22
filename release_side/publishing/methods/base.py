"""What a release method is: a feature map with a proven norm bound, a private mean, and a representation.

A method is made of the curator's choices. Before the door it decides everything from public facts (`prepare`); at the door
it asks for noisy means (`measure`); after it, it turns them into weighted points (`represent`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.file.measurement import check_readable_map
from kmeanalyst.releases.measurement import GRID, Measurement, grid_sensitivity, mean_unit
from kmeanalyst.releases.statement import PopulationSize, PrivacyStatement, software_versions, zcdp_rho
from kmeanalyst.representation.wanted import Wanted
from release_side.choices.choices import Choices
from release_side.choices.options import KERNEL, check_readable, fitting, taken_as_public
from release_side.door.door import Door
from release_side.door.exponential_mechanism import MultisetSampler
from release_side.door.mechanism import Noise, RehearsalNoise, check_int64_range, noise_for

SIZES = "the sizes: number of points and of features"


@dataclass(frozen=True, eq=False)
class Drawn:
    """A database that was drawn instead of measured: encoded rows (M, d), and what they were drawn from."""

    rows: Array
    databases: MultisetSampler


class ReleaseMethod(ABC):
    """A way to release a table (abstract). `publish`, `plan` and the command line know no more of a method than this.

    name            its name for the curator and the file; margins are random features to both.
    measures        what the ledger calls it, if not by its name.
    options         the class of its choices, which validates itself.
    places_points   whether it invents points, which is impossible for strings.
    no_units        why it cannot protect units, for an error; None if it can.
    no_plan         why it cannot be simulated on a synthetic table, for an error; None if it can.
    no_rules        why its rows do not keep the rules of a domain, for an error; None if they do.
    default_kernel  the kernel where none is named; None for "table", or "margins" with a target.
    choices         what the curator chose.
    public          encoded public rows (m, d), if the curator gave any.
    """

    name: ClassVar[str]
    options: ClassVar[type[Choices]] = Choices
    measures: ClassVar[str | None] = None
    places_points: ClassVar[bool] = True
    no_units: ClassVar[str | None] = None
    no_plan: ClassVar[str | None] = None
    no_rules: ClassVar[str | None] = None
    default_kernel: ClassVar[str | None] = None

    def __init__(self, choices: Choices, public: Array | None = None) -> None:
        self.choices, self.public = choices, public

    @classmethod
    def spec(cls, choices: Choices, domain: Domain) -> Kernel | str:
        """The kernel asked for or the default, as text or kernel; DomainError if it does not fit the domain.

        A target asks for margins, a workload for adaptive ones, and so does a target where these can be measured (`chosen_method`).
        """
        of_target = choices.target and choices.workload is None and not cls.default_kernel
        spec = choices.kernel or ("margins" if of_target else cls.usual_kernel(choices, domain))
        kernel_from_spec(spec, domain, choices.target)
        return spec

    @classmethod
    def usual_kernel(cls, choices: Choices, domain: Domain) -> str:
        """The kernel where neither one nor a target is named."""
        return cls.default_kernel or "table"

    @abstractmethod
    def mechanism(self, epsilon: float, delta: float, rehearsal: int | None) -> Any:
        """The noise, or the draw, with this guarantee; PublishError if there is none."""

    @abstractmethod
    def prepare(self, domain: Domain, size: PopulationSize, noise: Any) -> Any:
        """What `measure` will ask the door for, from public facts alone; PublishError if no release could be made."""

    @abstractmethod
    def measure(self, door: Any, domain: Domain, size: PopulationSize) -> Measurement | Drawn:
        """Meet the rows: one `door.mean`, the rounds of one `door.rounds`, or one `door.draw`."""

    @abstractmethod
    def taken_as_public(self, measured: Any, n_points: int) -> tuple[str, ...]:
        """What this method treats as public for a release of n_points, in words, in addition to what all releases do."""

    @abstractmethod
    def statement(self, measured: Any, noise: Any, size: PopulationSize, n_points: int) -> PrivacyStatement:
        """The guarantee that goes into the file."""


class MeanMethod(ReleaseMethod):
    """A method that measures one mean, in one round (abstract).

    finer           whether margins may have finer one-way tables where the noise allows them.
    follows_noise   whether the tables of margins are chosen by the noise.
    """

    finer: ClassVar[bool] = True
    follows_noise: ClassVar[bool] = True

    def __init__(self, choices: Choices, public: Array | None = None) -> None:
        super().__init__(choices, public)
        self._maps: dict[str, FeatureMap] = {}  # by kernel: a plan of several epsilons draws each once

    # ------------------------------------------------------------------ before the door

    def mechanism(self, epsilon: float, delta: float, rehearsal: int | None) -> Noise | RehearsalNoise:
        return noise_for(self.choices.noise, epsilon, delta, calibration=self.choices.calibration, rehearsal=rehearsal)

    def kernel(self, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> Kernel:
        """The kernel in which a table of this size is measured, from public facts alone."""
        spec, target = self.spec(self.choices, domain), self.choices.target
        kernel = kernel_from_spec(spec, domain, target, finer=self.finer)
        if isinstance(spec, Kernel) or not isinstance(kernel, MarginsKernel) or not self.follows_noise:
            return kernel
        features = MarginFeatures(kernel)
        check_int64_range(n_rows=size.count, dimension=features.dimension, grid=GRID)
        return kernel_from_spec(spec, domain, target, expected_deviation(features, noise, size), finer=self.finer)

    @abstractmethod
    def features(self, kernel: Kernel, domain: Domain) -> FeatureMap:
        """φ of this kernel, drawn from public facts alone; ValueError if the kernel has none."""

    @abstractmethod
    def most_points(self, kernel: Kernel, domain: Domain) -> int:
        """The largest number of points that the release can have."""

    def prepare(self, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> FeatureMap:
        """The feature map that will be measured; the map of each kernel is drawn once."""
        kernel = self.kernel(domain, size, noise)
        key = json.dumps(kernel.to_dict(), sort_keys=True)
        if key not in self._maps:
            self._maps[key] = self.checked_features(kernel, domain, size)
        return self.by_noise(self._maps[key], domain, size, noise)

    def checked_features(self, kernel: Kernel, domain: Domain, size: PopulationSize) -> FeatureMap:
        """φ of this kernel; PublishError if sums or files could not hold the release."""
        with fitting():
            feature_map = self.features(kernel, domain)
        check_int64_range(n_rows=size.count, dimension=feature_map.dimension, grid=GRID)
        check_readable(self.most_points(kernel, domain), domain, feature_map)
        with fitting():
            feature_map(domain.draw(2, 0))
            check_readable_map(feature_map, domain)
        return feature_map

    def by_noise(self, feature_map: FeatureMap, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> FeatureMap:
        """The map itself, or one of the same kernel that suits this noise better."""
        return feature_map

    # ------------------------------------------------------------------ at the door, and after it

    def measure(self, door: Door[Noise | RehearsalNoise], domain: Domain, size: PopulationSize) -> Measurement:
        """One mean, which spends the whole budget."""
        return door.mean(self.prepare(domain, size, door.noise))

    @abstractmethod
    def wanted(self, measurement: Measurement, domain: Domain) -> Wanted:
        """The points and weights that the representation should make."""

    def n_public(self, n_points: int) -> int:
        """How many of the points are rows that were given as public."""
        return 0

    def statement(
        self, measured: Measurement, noise: Noise | RehearsalNoise, size: PopulationSize, n_points: int
    ) -> PrivacyStatement:
        return PrivacyStatement(
            epsilon=noise.epsilon,
            delta=noise.delta,
            neighbouring=size.neighbouring,
            unit=size.unit,
            mechanism=noise.name,
            sensitivity=measured.sensitivity,
            noise_scale=measured.noise_scale,
            calibration=noise.calibration,
            rho=zcdp_rho(noise.name, noise_multiplier=measured.noise_scale / measured.sensitivity),
            n_rows=size.count,
            public_points=self.n_public(n_points),
            taken_as_public=taken_as_public(size, KERNEL, *self.taken_as_public(measured, n_points)),
            versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp", "dp-accounting"),
        )


def expected_deviation(feature_map: FeatureMap, noise: Noise | RehearsalNoise, size: PopulationSize) -> float:
    """Standard deviation of the noise on each coordinate of the mean of a table of this size."""
    unit = mean_unit(n_rows=size.count, feature_map=feature_map)
    return noise.deviation(grid_sensitivity(feature_map, noise.name)) * unit
