"""Made the files in v1/ on 2026-11-21 (persons.kme on 2026-11-22). Kept to show how; it changes no file that is there.

    python tests/golden/make_v1.py

A reader of format 1 must read these files for ever, with the values in v1/expected.json; those of files that were added
later are in v1/expected_<name>.json. Files may be added, with a name of their own; none is changed or removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import release_side
from kmeanalyst.kernels import Gaussian, Indicator, Laplacian, OnColumns
from kmeanalyst.releases.columns import Boolean, Categorical, Date, Integer, Ordinal, Real
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.releases.release import Release, from_frame

FOLDER = Path(__file__).parent / "v1"
EVERYTHING = Domain((
    Real(name="real", lower=-2.5, upper=1e3), Real(name="log", lower=1e-3, upper=1e6, scale="log", missing=True),
    Integer(name="log1p, to 10^6", lower=0, upper=10**6, scale="log1p", edges=(10, 100), atoms=(0,)),
    Integer(name="integer", lower=-17, upper=90, default=30, missing=True),
    Categorical(name="levels", levels=("<=50K", ">50K", "13", 'naïve "quoted"\\', "😀"), default="13"),
    Categorical(name="NA is a level", levels=("a", "NA"), missing=True),
    Ordinal(name="school", levels=("none", "some", "degree"), missing=True), Boolean(name="married", missing=True),
    Date(name="joined", lower="1990-01-01", upper="2024-12-31", missing=True),
))  # fmt: skip
MIXED = Domain(
    (Real(name="x", lower=0, upper=1), Integer(name="n", lower=0, upper=9), Categorical(name="c", levels=("a", "b")))
)
KERNEL = 0.5 * OnColumns(Gaussian(0.5), (0,)) * OnColumns(Indicator(2), (2,)) + OnColumns(Laplacian(3.0), (1, 0))


def releases() -> Iterator[tuple[str, Release]]:
    rng = np.random.default_rng(1)
    everything, mixed = (domain.decode(domain.draw(200, rng)) for domain in (EVERYTHING, MIXED))
    usual = {"epsilon": 1.0, "delta": 1e-6}
    small = {"points": 12, "features": 40}
    yield "random-features", release_side.publish(everything, EVERYTHING, **small, **usual)
    yield (
        "subspace",
        release_side.publish(everything, EVERYTHING, method="subspace", points=10, weights="bounded", **usual),
    )
    yield (
        "public-points",
        release_side.publish(mixed, MIXED, method="subspace", public_points=mixed[:9], weights="signed", **usual),
    )
    yield "published", release_side.publish(mixed, MIXED, method="subspace", points=9, weights="published", **usual)
    yield "laplace", release_side.publish(mixed, MIXED, epsilon=2.0, delta=0, noise="laplace", **small)
    yield "zcdp", release_side.publish(mixed, MIXED, calibration="zcdp", **small, **usual)
    yield "rehearsal", release_side.publish(mixed, MIXED, rehearsal=1, **small, **usual)
    yield "kernel-algebra", release_side.publish(mixed, MIXED, kernel=KERNEL, **small, **usual)
    yield (
        "foreign",
        from_frame(mixed[:7].assign(weight=rng.normal(size=7)), domain=MIXED),
    )
    owners = [f"{number % 60}" for number in range(len(mixed))]
    yield "persons", release_side.publish(mixed.assign(owner=owners), MIXED, unit="owner", **small, **usual)


def values(release: Release) -> dict[str, object]:
    """What a reader must find, in mixed that do not depend on how it is written."""
    points = release.encoded_points
    found: dict[str, object] = {
        "columns": release.domain.to_dict(),
        "encoded_points": np.where(np.isnan(points), None, points).tolist(),
        "weights": release.weights.tolist(),
        "gram_of_first_points": release.kernel.gram(points[:3], points[:3]).tolist(),
    }
    if release.measurement is not None and release.statement is not None:
        feature_map = release.measurement.feature_map
        found |= {
            "statement": release.statement.to_dict(),
            "vector": release.measurement.vector.tolist(),
            "feature_mean": feature_mean(feature_map, points, release.weights).tolist(),
        }
    return found


def main() -> None:
    for name, release in releases():
        path = FOLDER / f"{name}.kme"
        if path.exists():  # it is kept for ever
            continue
        release.write(path)
        expected = {name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), **values(release)}}
        told = FOLDER / f"expected_{name}.json"
        told.write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
