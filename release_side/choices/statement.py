"""What a release guarantees and what it takes as public: the statement that goes into the file."""

from __future__ import annotations

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.statement import PopulationSize, PrivacyStatement, software_versions, zcdp_rho
from release_side.door.exponential_mechanism import ExponentialMechanism, MultisetSampler, RehearsedExponential
from release_side.door.mechanism import Noise, RehearsalNoise

NO_PROTECTION = "a person whose row is public gets no protection for it"


def taken_as_public(size: PopulationSize, kernel: str, *others: str) -> tuple[str, ...]:
    """What a release treats as public, in words: what every release does, its kernel, and what its method adds."""
    count = (
        "the number of rows N and the names of the columns"
        if size.unit is None
        else f"the number P of {size.counted} (not that of their rows) and the names of the columns, {size.unit!r} included"
    )
    return (count, "the domain: kinds, bounds, levels, scales, steps, defaults, edges and atoms", kernel, *others)


def named_rules(domain: Domain) -> tuple[str, ...]:
    """What a domain's rules add to what a release treats as public, in words; nothing where there are none."""
    return (f"rules of the domain: {len(domain.rules)}",) if domain.rules else ()


_KERNEL = "the kernel and its lengthscales, chosen from the domain or by the curator"


def statement_of_mean(
    noise: Noise | RehearsalNoise,
    measurement: Measurement,
    size: PopulationSize,
    of_the_method: tuple[str, ...],
    *,
    n_public: int,
) -> PrivacyStatement:
    """The guarantee of this measurement.

    of_the_method  what the method takes as public, in words.
    n_public       how many of the points are rows that were given as public.
    """
    return PrivacyStatement(
        epsilon=noise.epsilon,
        delta=noise.delta,
        neighbouring=size.neighbouring,
        unit=size.unit,
        mechanism=noise.name,
        sensitivity=measurement.sensitivity,
        noise_scale=measurement.noise_scale,
        calibration=noise.calibration,
        rho=zcdp_rho(noise.name, noise_multiplier=measurement.noise_scale / measurement.sensitivity),
        n_rows=size.count,
        public_points=n_public,
        taken_as_public=taken_as_public(size, _KERNEL, *of_the_method),
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp", "dp-accounting"),
    )


def statement_of_draw(
    mechanism: ExponentialMechanism | RehearsedExponential,
    databases: MultisetSampler,
    size: PopulationSize,
    of_the_method: tuple[str, ...],
) -> PrivacyStatement:
    """The guarantee of a database that was drawn, P(R) ∝ exp(−ε‖μ_D − μ_R‖/2Δ), Δ = diameter/N."""
    sensitivity, epsilon = databases.diameter / size.count, mechanism.epsilon
    return PrivacyStatement(
        epsilon=epsilon,
        delta=0.0,
        neighbouring=size.neighbouring,
        mechanism=mechanism.name,
        sensitivity=sensitivity,
        score_scale=2 * sensitivity / epsilon,
        n_databases=databases.count,
        calibration="pure",
        rho=epsilon**2 / 8,
        n_rows=size.count,
        public_points=databases.size if databases.is_grid else 0,
        taken_as_public=taken_as_public(size, _KERNEL, *of_the_method),
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp"),
    )
