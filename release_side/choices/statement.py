"""What a release promises and what it takes as public: the statement that goes into the file."""

from __future__ import annotations

from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.statement import PrivacyStatement, counted_as, neighbouring_of, software_versions, zcdp_rho
from release_side.door.mechanism import Noise, RehearsalNoise

_FREQUENCIES = "the frequencies, drawn from a public seed"
_FEATURES = {
    "random-binning": "the grids of the features, drawn from a public seed",
    "random-maclaurin": "the degrees and projections of the features, drawn from a public seed",
}


def statement_for(
    mechanism: Noise | RehearsalNoise,
    measurement: Measurement,
    method: str,
    n_public: int,
    *,
    given: bool,
    unit: str | None = None,
    ledger_head: str | None = None,
) -> PrivacyStatement:
    """The promise of this measurement.

    n_public      how many of the points are rows that were given as public; given: whether any were given at all.
    unit          the column that identifies the units, where not rows but units are protected.
    ledger_head   digest of the ledger's entry that counted the release.
    """
    return PrivacyStatement(
        epsilon=mechanism.epsilon,
        delta=mechanism.delta,
        neighbouring=neighbouring_of(unit),
        unit=unit,
        mechanism=mechanism.name,
        sensitivity=measurement.sensitivity,
        noise_scale=measurement.noise_scale,
        calibration=mechanism.calibration,
        rho=zcdp_rho(mechanism.name, noise_multiplier=measurement.noise_scale / measurement.sensitivity),
        n_rows=measurement.n_rows,
        public_points=n_public,
        taken_as_public=_taken_as_public(method, measurement.feature_map, n_public, given=given, unit=unit),
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp", "dp-accounting"),
        ledger_head=ledger_head,
    )


def _taken_as_public(
    method: str, feature_map: FeatureMap, n_public: int, *, given: bool, unit: str | None
) -> tuple[str, ...]:
    """What the release treats as public, in words; n_public of the points are rows given as public."""
    rows = (
        f"{n_public} rows given as public points"
        if n_public
        else "the rows given as public, from which the points started"
    )
    count = (
        "the number of rows N and the names of the columns"
        if unit is None
        else f"the number P of {counted_as(unit)} (not that of their rows) and the names of the columns, {unit!r} included"
    )
    return (
        count,
        "the domain: kinds, bounds, levels, scales, defaults, edges and atoms",
        "the kernel and its lengthscales, chosen from the domain or by the curator",
        "the points of the subspace" if method == "subspace" else _FEATURES.get(feature_map.name, _FREQUENCIES),
        "the sizes: number of points and of features",
        *((f"{rows}; a person whose row is public gets no protection for it",) if given else ()),
    )


def statement_of_draw(
    *,
    epsilon: float,
    name: str,
    diameter: float,
    n_rows: int,
    n_databases: int,
    n_public: int,
    ledger_head: str | None = None,
) -> PrivacyStatement:
    """The promise of a database that the exponential mechanism drew, P(R) ∝ exp(−ε‖μ_D − μ_R‖/2Δ), Δ = diameter/N.

    n_public   how many of its rows were given as public: all of them if it was drawn from a grid.
    """
    sensitivity = diameter / n_rows
    return PrivacyStatement(
        epsilon=epsilon,
        delta=0.0,
        neighbouring="replace-one",
        mechanism=name,
        sensitivity=sensitivity,
        score_scale=2 * sensitivity / epsilon,
        n_databases=n_databases,
        calibration="pure",
        rho=epsilon**2 / 8,
        n_rows=n_rows,
        public_points=n_public,
        taken_as_public=(
            "the number of rows N and the names of the columns",
            "the domain: kinds, bounds, levels, scales, defaults, edges and atoms",
            "the kernel and its lengthscales, chosen from the domain or by the curator",
            "the number of points",
            "the rows given as public, from which the points were drawn; a person whose row is public gets no protection "
            "for it"
            if n_public
            else "every row that the domain allows, from which the points were drawn",
        ),
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp"),
        ledger_head=ledger_head,
    )
