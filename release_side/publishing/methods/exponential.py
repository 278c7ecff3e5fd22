"""Exponential: M rows of a small public domain, drawn as a whole near the table (Balog et al. 2018, §3.4).

This method measures no mean: `measure` returns a draw, which is released unchanged. No noise is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.file.points import cells_of_a_row
from kmeanalyst.releases.statement import PopulationSize, PrivacyStatement, software_versions
from release_side.choices.choices import NOISES, Choices
from release_side.choices.options import KERNEL, NO_PROTECTION, fitting, kernel_as_read, taken_as_public
from release_side.door.door import Door
from release_side.door.exponential_mechanism import ExponentialMechanism, MultisetSampler, RehearsedExponential, small_databases
from release_side.errors import PublishError
from release_side.publishing.methods.base import Drawn, ReleaseMethod


@dataclass(frozen=True, kw_only=True, eq=False)
class ExponentialChoices(Choices):
    """Points, a kernel and a grid: there are no features, and rows of equal weight."""

    least_points = 1

    def check_method(self) -> None:
        for name, chosen in (
            ("features", self.features is not None), ("family", self.family is not None), ("bound", self.bound is not None),
            ("float32", self.float32), ("noise", self.noise not in NOISES), ("calibration", self.calibration is not None),
            (f"{self.weights} weights", self.weights not in ("probability", "uniform")),
        ):  # fmt: skip
            if chosen:
                raise PublishError(
                    f"{name} does not go with the exponential mechanism, which draws rows of equal weight and adds no "
                    "noise. Leave it out, or choose another method."
                )


class Exponential(ReleaseMethod):
    """Draw a database of public rows; the nearer to the private table, the more probable."""

    name = "exponential"
    options = ExponentialChoices
    places_points = False
    no_units = (
        "unit protects units by the average of all their rows, and the exponential mechanism counts single rows. "
        "Leave it out, or choose another method."
    )
    no_plan = (
        "plan simulates noise, and the exponential mechanism adds none. Its release says how far it may be from the "
        "best: try publish with --rehearsal on a public table of that size."
    )

    def __init__(self, choices: Choices, public: Array | None = None) -> None:
        super().__init__(choices, public)
        self._databases: dict[tuple[PopulationSize, float], MultisetSampler] = {}  # their list is long: made once

    def mechanism(self, epsilon: float, delta: float, rehearsal: int | None) -> ExponentialMechanism | RehearsedExponential:
        fresh = ExponentialMechanism(epsilon, delta)
        return fresh if rehearsal is None else RehearsedExponential(fresh, rehearsal)

    def prepare(self, domain: Domain, size: PopulationSize, noise: ExponentialMechanism | RehearsedExponential) -> MultisetSampler:
        """The databases to draw from; PublishError, before a row is read, if the draw or its file would be too large."""
        key = size, noise.epsilon
        if key in self._databases:
            return self._databases[key]
        spec = self.spec(self.choices, domain)
        kernel = kernel_as_read(kernel_from_spec(spec, domain, self.choices.target), domain)
        with fitting():
            databases = small_databases(kernel, domain, self.public, self.choices.points, n_rows=size.count, epsilon=noise.epsilon)
            _ = databases.sensitivity
        if (cells := databases.size * cells_of_a_row(domain)) > USUAL.cells:
            raise PublishError(f"the release would have {cells:,} cells, and readers allow {USUAL.cells:,}. Pass fewer points.")
        self._databases[key] = databases
        return databases

    def measure(self, door: Door[ExponentialMechanism | RehearsedExponential], domain: Domain, size: PopulationSize) -> Drawn:
        """One draw, and no mean."""
        databases = self.prepare(domain, size, door.noise)
        return Drawn(door.draw(databases), databases)

    def taken_as_public(self, measured: Drawn, n_points: int) -> tuple[str, ...]:
        drawn_from = (
            f"the rows given as public, from which the points were drawn; {NO_PROTECTION}"
            if self.public is not None
            else "every row that the domain allows, from which the points were drawn"
        )
        return ("the number of points", drawn_from)

    def statement(
        self, measured: Drawn, noise: ExponentialMechanism | RehearsedExponential, size: PopulationSize, n_points: int
    ) -> PrivacyStatement:
        """Of P(R) ∝ exp(−ε‖μ_D − μ_R‖/2Δ), Δ = diameter/N."""
        databases, epsilon = measured.databases, noise.epsilon
        sensitivity = databases.diameter / size.count
        return PrivacyStatement(
            epsilon=epsilon, delta=0.0, neighbouring=size.neighbouring, mechanism=noise.name, sensitivity=sensitivity,
            score_scale=2 * sensitivity / epsilon, n_databases=databases.count, calibration="pure", rho=epsilon**2 / 8,
            n_rows=size.count, public_points=databases.size if databases.is_grid else 0,
            taken_as_public=taken_as_public(size, KERNEL, *self.taken_as_public(measured, n_points)),
            versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp"),
        )  # fmt: skip
