"""Made the files in v1/ on 2026-11-21, those with an expectation of their own on 2026-11-22. It changes no file that is there.

    python tests/golden/make_v1.py

A reader of format 1 must read these files for ever, with the values in v1/expected.json; those of files that were added
later are in v1/expected_<name>.json. Files may be added, with a name of their own; none is changed or removed. (On 2026-11-23,
before the first version, their sums were put on the grid of 2^28.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import release_side
from kmeanalyst.kernels import Gaussian, Indicator, Laplacian, OnColumns
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.cyclic_column import Cyclic
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.measurement import feature_mean

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
NUMBERS = Domain((Real(name="x", lower=-1, upper=1), Real(name="y", lower=0, upper=10, missing=True)))
FAMILIES = {
    "random-binning": ("binning", "laplacian:lengthscale=2"),
    "maclaurin": ("maclaurin", "polynomial:degree=3,offset=1"),
}
STRINGS = Domain((
    Text(name="code", length=6, alphabet="ACGT-", unknown="-", missing=True),
    Text(name="naïve 😀", length=40, alphabet="ab 😀", unknown="b", default="a"), Boolean(name="b"),
))  # fmt: skip
CIRCLES = Domain((
    Cyclic(name="hour", lower=0, upper=24, atoms=(0,), edges=(8, 18)),
    Cyclic(name="bearing", lower=-180.0, upper=180.0, missing=True),
    Date(name="day", lower="2000-01-01", upper="2024-12-31", seasonal=True),
))  # fmt: skip
MIDDLE = {f"m{k}": f"t{k % 3}" for k in range(63)}  # more than a depth of pairs has, so that there are two finer tables
CODES = Domain((
    Tree(name="code", parents=MIDDLE | {f"c{k}": f"m{k % 63}" for k in range(70)}, inner=True, missing=True),
    Integer(name="n", lower=0, upper=9), Boolean(name="b"),
))  # fmt: skip
SMALL = Domain((Integer(name="n", lower=0, upper=3), Categorical(name="c", levels=("a", "b"))))
DERIVED = {
    "ratio": "x / (n + 1)", "twice": "2 * n", "both": "x > 0.5 and c == 'a'", "log of `ratio`": "log(1 + `ratio`)",
}  # fmt: skip
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
    yield ("foreign", from_frame(mixed[:7].assign(weight=rng.normal(size=7)), domain=MIXED))
    column_of = [f"{number % 60}" for number in range(len(mixed))]
    yield "persons", release_side.publish(mixed.assign(owner=column_of), MIXED, unit="owner", **small, **usual)
    yield from releases_of_other_parts(mixed, rng)


def releases_of_other_parts(mixed: pd.DataFrame, rng: np.random.Generator) -> Iterator[tuple[str, Release]]:
    """Features, columns and fields that the format gained after the first files."""
    usual, small = {"epsilon": 1.0, "delta": 1e-6}, {"points": 12, "features": 40}
    drawn, numbers, circles = (domain.decode(domain.draw(200, rng)) for domain in (SMALL, NUMBERS, CIRCLES))
    codes = ["".join(rng.choice(list("ACGT"), size)) for size in rng.integers(0, 7, 200)]
    words = ["".join(rng.choice(list("ab 😀"), size)) for size in rng.integers(1, 12, 200)]
    strings = pd.DataFrame({"code": codes, "naïve 😀": words, "b": rng.random(200) < 0.5})
    yield "draw", release_side.publish(drawn, SMALL, epsilon=1.0, delta=0, method="exponential", points=3)
    yield "margins", release_side.publish(mixed, MIXED, kernel="margins", points=20, **usual)
    for name, (family, kernel) in FAMILIES.items():
        yield name, release_side.publish(numbers, NUMBERS, family=family, kernel=kernel, **small, **usual)
    yield (
        "strings",
        release_side.publish(strings, STRINGS, method="subspace", public_points=strings[:9], weights="signed", **usual),
    )
    yield "cyclic", release_side.publish(circles, CIRCLES, **small, **usual)
    coded = CODES.decode(CODES.draw(200, rng))
    yield "tree", release_side.publish(coded, CODES, points=20, **usual)
    yield "derived", release_side.publish(mixed, MIXED, **small, **usual).transform(DERIVED)
    if not (FOLDER / "generator.kme").exists():  # needs PyTorch, which reading does not
        yield "generator", release_side.publish(mixed, MIXED, method="generator", target="c", **small, **usual)


def values(release: Release) -> dict[str, object]:
    """What a reader must find, in numbers that do not depend on how it is written."""
    points = release.encoded_points
    found: dict[str, object] = {
        "columns": release.domain.to_dict(),
        "encoded_points": np.where(np.isnan(points), None, points).tolist(),
        "weights": release.weights.tolist(),
        "gram_of_first_points": release.kernel.gram(points[:3], points[:3]).tolist(),
    }
    if release.statement is not None:
        found["statement"] = release.statement.to_dict()
    if release.derived:
        found["derived"] = [one.to_dict() for one in release.derived]
        frame = release.to_frame()[[one.column.name for one in release.derived]].astype(float)
        found["derived_cells"] = np.where(np.isnan(frame), None, frame).tolist()
    if release.measurement is not None:
        feature_map = release.measurement.feature_map
        found |= {
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
        path = FOLDER / f"expected_{name}.json"
        path.write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
