"""The whole flow on one page: a private table and public choices in, a release out.

Everything chosen before the door (kernel, features, points, sizes) follows from the domain, N, ε, δ and
public files. Everything after it is post-processing of the measurement.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features import FeatureMap, Nystroem, RandomFourier
from kmeanalyst.releases.columns import DomainError
from kmeanalyst.releases.domain import Domain, read_domain
from kmeanalyst.releases.kernel_choice import kernel_from_spec
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import Release
from kmeanalyst.releases.statement import PrivacyStatement, software_versions
from kmeanalyst.releases.tables import read_table
from kmeanalyst.representation.reduced_set import reduced_set
from kmeanalyst.representation.reweight import WEIGHT_VIEWS, weights_for
from release_side.mechanism import GaussianNoise, PublishError
from release_side.private_mean import private_mean
from release_side.rows import open_private, refuse_private_as_public

METHODS = ("random-features", "subspace")
_FEATURES = 4000
_POINTS = 1000
_MOST_PUBLIC_POINTS = 3000
_PAPER_TOLERANCE = 1e-5  # on the squared distance to the span, as in the code of Balog et al.

Progress = Callable[[str, float], None]
Table: TypeAlias = str | Path | pd.DataFrame


def publish(
    private: Table,
    domain: Domain | str | Path,
    *,
    epsilon: float,
    delta: float,
    method: str = "random-features",
    public_points: Table | None = None,
    points: int | None = None,
    features: int | None = None,
    kernel: Kernel | str | None = None,
    weights: str = "probability",
    bound: float | None = None,
    progress: Progress | None = None,
) -> Release:
    """Release the kernel mean embedding of a private table, once, with (epsilon, delta)-differential privacy.

    private         path of a CSV (.gz), Parquet, a directory or glob of them, or a DataFrame.
    domain          Domain, or the path of its TOML file: public columns, bounds and levels.
    method          "random-features" (Algorithm 2) or "subspace" (Algorithm 1).
    public_points   rows that are already public: Algorithm 1's points, Algorithm 2's start.
    points          M; by default 1000, or the public rows up to 3000 for a subspace.
    features        F, coordinates measured by random features (cosine and sine count two); 4000 by default.
    kernel          Kernel or its text; "table" by default.
    weights         "probability", "bounded" (Σ|w| ≤ bound, 1 by default), "signed" (2), or "published".
    progress        called with what is being done and the share of it that is.
    Returns         Release; its statement lists everything that was taken as public.
    Errors          PublishError or DomainError, by public facts alone.
    """
    domain = domain if isinstance(domain, Domain) else read_domain(domain)
    mechanism = GaussianNoise(epsilon, delta)
    _check_choices(method, weights, points, features, bound)
    chosen_kernel = kernel_from_spec(kernel, domain)
    refuse_private_as_public(private, public_points)
    public = _public_rows(public_points, domain)
    table = open_private(private)
    table.check_columns(domain)
    n_rows = table.count()
    as_printed = weights == "published"
    feature_map, spanning = _feature_map(method, chosen_kernel, domain, public, points, features, as_printed)
    measurement = private_mean(table.encoded(domain), feature_map, mechanism, n_rows=n_rows, progress=progress)
    del table  # from here on, post-processing
    encoded, n_public = _represent(method, measurement, domain, spanning, public, points, progress)
    frame = domain.decode(encoded)
    encoded = domain.encode(frame)  # weights belong to the points as the file will hold them
    fitted = weights_for(weights, encoded, measurement, bound=bound, n_public=n_public)
    return Release(
        points=frame,
        weights=fitted,
        measurement=measurement,
        kernel=chosen_kernel,
        domain=domain,
        statement=_statement(mechanism, measurement, method, n_public, given=public is not None),
        method=method,
        weight_view=weights,
        fit_distance=float(np.linalg.norm(feature_mean(feature_map, encoded, fitted) - measurement.vector)),
    )


def _check_choices(method: str, weights: str, points: int | None, features: int | None, bound: float | None) -> None:
    if method not in METHODS:
        raise PublishError(f"method must be one of {', '.join(METHODS)}, got {method!r}. Name one of these.")
    if weights not in WEIGHT_VIEWS:
        raise PublishError(f"weights must be one of {', '.join(WEIGHT_VIEWS)}, got {weights!r}. Name one of these.")
    if weights == "published" and method != "subspace":
        raise PublishError(
            'published weights are Algorithm 1\'s: they need method "subspace". Name it, or other weights.'
        )
    if features is not None and method == "subspace":
        raise PublishError("a subspace has as many features as it has points. Pass points, not features.")
    for name, value in (("points", points), ("features", features)):
        if value is not None and (not isinstance(value, int) or value < 2):
            raise PublishError(
                f"{name} must be a whole number of at least 2, got {value!r}. Leave it out for the default."
            )
    if features is not None and features % 2:
        raise PublishError(f"features must be even, got {features}: cosine and sine come in pairs. Add one.")
    if bound is not None and weights not in ("bounded", "signed"):
        raise PublishError(f"bound goes with bounded or signed weights: {weights} weights have none. Leave it out.")
    if bound is not None and not (isinstance(bound, int | float) and 0 < bound < np.inf):
        raise PublishError(f"bound must be a positive finite number, got {bound!r}: it limits Σ|w|. Pass e.g. 1.0.")


def _public_rows(source: Table | None, domain: Domain) -> Array | None:
    """Public rows, encoded as the release will hold them."""
    if source is None:
        return None
    frame = source if isinstance(source, pd.DataFrame) else read_table(source)
    if len(frame) == 0:
        raise PublishError("the file of public points has no rows. Name one that has, or leave it out.")
    domain.check_has_columns(frame, what="the file of public points")
    return domain.encode(domain.decode(domain.encode(frame)))


def _feature_map(
    method: str,
    kernel: Kernel,
    domain: Domain,
    public: Array | None,
    points: int | None,
    features: int | None,
    as_printed: bool,
) -> tuple[FeatureMap, Array | None]:
    """φ, and for a subspace the points it is spanned by; from public facts alone.

    as_printed   the basis the papers' code builds: points in their order, near-dependent ones left out.
    """
    if method == "subspace":
        rng = public_generator("points", kernel, domain, points or _POINTS)
        spanning = domain.draw(points or _POINTS, rng) if public is None else public[: points or _MOST_PUBLIC_POINTS]
        basis = {"tolerance": _PAPER_TOLERANCE, "in_given_order": True} if as_printed else {}
        return Nystroem.fit(kernel, spanning, **basis), spanning  # type: ignore[arg-type]
    dimension = features or _FEATURES
    rng = public_generator("frequencies", kernel, domain, dimension)
    fourier = RandomFourier.draw(
        kernel, n_columns=len(domain), dimension=dimension, missing_columns=domain.missing_columns, rng=rng
    )
    return fourier, None


def public_generator(what: str, kernel: Kernel, domain: Domain, size: int) -> np.random.Generator:
    """A generator seeded by public facts, so that releases of one kernel, domain and size share features."""
    facts = json.dumps([what, kernel.to_dict(), domain.to_dict(), size], sort_keys=True)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(facts.encode()).digest()[:16], "big"))


def _represent(
    method: str,
    measurement: Measurement,
    domain: Domain,
    spanning: Array | None,
    public: Array | None,
    points: int | None,
    progress: Progress | None,
) -> tuple[Array, int]:
    """Encoded points of the release, and how many of them are the given public rows (the first ones)."""
    if method == "subspace":
        assert spanning is not None
        return spanning, len(spanning) if public is not None else 0
    n_points = points or _POINTS
    return reduced_set(measurement, domain, n_points=n_points, start=public, rng=0, progress=progress), 0


def _statement(
    mechanism: GaussianNoise, measurement: Measurement, method: str, n_public: int, *, given: bool
) -> PrivacyStatement:
    return PrivacyStatement(
        epsilon=float(mechanism.epsilon),
        delta=float(mechanism.delta),
        neighbouring="replace-one",
        mechanism=mechanism.name,
        sensitivity=measurement.sensitivity,
        noise_scale=measurement.noise_scale,
        calibration=mechanism.calibration,
        rho=0.5 * (measurement.sensitivity / measurement.noise_scale) ** 2,
        n_rows=measurement.n_rows,
        public_points=n_public,
        taken_as_public=_taken_as_public(method, n_public, given=given),
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp", "dp-accounting"),
    )


def _taken_as_public(method: str, n_public: int, *, given: bool) -> tuple[str, ...]:
    """What the release treats as public, in words; n_public of the points are rows given as public."""
    rows = (
        f"{n_public} rows given as public points"
        if n_public
        else "the rows given as public, from which the points started"
    )
    return (
        "the number of rows N and the names of the columns",
        "the domain: kinds, bounds, levels, scales, defaults, edges and atoms",
        "the kernel and its lengthscales, chosen from the domain or by the curator",
        "the frequencies, drawn from a public seed" if method == "random-features" else "the points of the subspace",
        "the sizes: number of points and of features",
        *((f"{rows}; a person whose row is public gets no protection for it",) if given else ()),
    )


__all__ = ["METHODS", "DomainError", "publish"]
