"""Feature maps composed as kernels are: bounds by composition, the order of the parts, and their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import refusals
from contracts import FAMILIES, FEATURE_MAPS, FeatureCase, every
from file_tools import SCHEMA_TEST, forged, members_of, narrow, refused, renamed, same, setting
from kernel_cases import CELL, LABELLED, PEOPLE, drawn

from kmeanalyst.kernels import Gaussian, Kernel, Margins, OnColumns, Product, Scaled, Sum
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.composed import (
    ColumnFeatures,
    Concatenation,
    ScaledFeatures,
    TensorProduct,
    composed_features,
    tables_of,
)
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.file import limits, write_release

every_composed = every([c for c in FEATURE_MAPS if c.make is FAMILIES["sum"]])


def test_a_labelled_row_by_hand():
    """Label 1 of two, one frequency ω = 2 at x = 0.3: (0, ½) and (0, 0, √¾ cos 0.6, √¾ sin 0.6)."""
    label = OnColumns(CELL, (1,))
    rest = Scaled(0.75, OnColumns(Gaussian(1.0), (0,)))
    inner = RandomFourier(rest, np.array([[2.0], [0.0]]))
    own = ColumnFeatures(label, MarginFeatures(CELL))
    features = Concatenation(
        Sum((Scaled(0.25, label), Product((label, rest)))),
        (ScaledFeatures(Scaled(0.25, label), own), TensorProduct(Product((label, rest)), (own, inner))),
    )
    root = np.sqrt(0.75)
    expected = [[0, 0.5, 0, 0, root * np.cos(0.6), root * np.sin(0.6)]]
    np.testing.assert_allclose(features(np.array([[0.3, 1.0]])), expected, atol=1e-15)
    assert features.norm_bound == pytest.approx(1.0, rel=1e-15) and features.dimension == 6


@every_composed
def test_the_bound_is_composed_of_the_parts_bounds_as_the_kernels_is(case: FeatureCase):
    """Never typed in: root of the sum of squares, product, root of the factor."""

    def composed(features: FeatureMap) -> float:
        if isinstance(features, Concatenation):
            return float(np.sqrt(sum(composed(each) ** 2 for each in features.maps)))
        if isinstance(features, TensorProduct):
            return float(np.prod([composed(each) for each in features.maps]))
        if isinstance(features, ScaledFeatures):
            return float(np.sqrt(features.kernel.factor)) * composed(features.map)
        return composed(features.map) if isinstance(features, ColumnFeatures) else features.norm_bound

    features = case.build(10)
    assert features.norm_bound == composed(features) == case.case.kernel.bound


@every_composed
def test_only_maps_without_a_negative_coordinate_claim_the_smaller_diameter(case: FeatureCase):
    features, rows = case.build(24), case.case.rows(np.random.default_rng(0), 500)
    assert features.nonnegative == (features(rows).min() >= 0)


def test_a_part_without_margins_has_random_features_even_if_it_is_a_sum():
    kernel = Sum((Gaussian(1.0) + Gaussian(3.0), CELL))
    features = drawn(kernel, Domain((Categorical(name="c", levels=("a", "b")),)))
    assert isinstance(features, Concatenation)
    assert [type(each) for each in features.maps] == [RandomFourier, MarginFeatures]
    assert isinstance(drawn(Gaussian(1.0) * Gaussian(2.0), PEOPLE), RandomFourier)


def test_a_part_inside_a_part_gets_its_columns_of_the_table_and_the_prefix_of_its_arrays():
    """Columns 3 and 1 of the table, of which the inner part sees the second."""
    seen: list[tuple[tuple[int, ...], str]] = []

    def leaf(part: Kernel, columns: tuple[int, ...], prefix: str) -> FeatureMap:
        seen.append((columns, prefix))
        return RandomFourier.draw(part, n_columns=len(columns), dimension=2, rng=0)

    inner = OnColumns(Sum((Gaussian(1.0), CELL)), (1,))
    composed_features(OnColumns(Sum((OnColumns(CELL, (0,)), inner)), (3, 1)), (0, 1, 2, 3), leaf)
    assert seen == [((1,), "part_1_part_0_")]


LABEL = OnColumns(CELL, (1,))


def test_maps_that_do_not_compose_are_refused():
    refusals.check(Path(__file__).parent / "refusals_composed.txt", lambda text: eval(text, globals()))


def test_tables_are_counted_before_they_are_made():
    pairs = Margins(((),) * 5, ((),) * 5, (False,) * 5, (0.6, 0.4, 0))
    assert tables_of(pairs) == 5 + 10
    assert tables_of(Sum((Scaled(2.0, pairs), Gaussian(1.0), OnColumns(CELL, (0,))))) == 15 + 1
    assert len([t for group in MarginFeatures(pairs).groups for t in group.tables]) == 15


@pytest.fixture(scope="module")
def labelled() -> Release:
    """A measured table with all compositions in its feature map, and points from the domain."""
    from simulated_releases import release_of

    points = PEOPLE.decode(PEOPLE.draw(20, 0))
    features = drawn(LABELLED, PEOPLE)
    assert features.dimension == 2 + 2 * (40 + 5)
    rows = PEOPLE.draw(300, np.random.default_rng(1))
    return release_of(rows, PEOPLE, LABELLED, features, points, method="generator", view="probability")


@pytest.fixture
def labelled_path(labelled: Release, tmp_path: Path) -> Path:
    write_release(labelled, tmp_path / "labelled.kme")
    return tmp_path / "labelled.kme"


def test_a_composed_map_is_read_back_to_the_last_bit(labelled: Release, labelled_path: Path):
    same(read_release(labelled_path), labelled)
    header = json.loads(members_of(labelled_path)["release.json"])
    SCHEMA_TEST.validate(header)
    stored = header["measurement"]["feature_map"]
    assert stored["name"] == "sum"
    assert sorted(stored["arrays"]) == ["part_1_part_1_part_0_linear", "part_1_part_1_part_0_table_0"]


def test_a_name_that_is_not_the_kernels_is_refused(labelled_path: Path, tmp_path: Path):
    for name in ("product", "scaled", "on-columns"):
        edit = setting("measurement", "feature_map", "name", to=name)
        forgery = forged(labelled_path, lambda header, members, edit=edit: edit(header))
        refused(forgery, tmp_path, "feature_map, field name", "the kernel makes it sum")


def test_arrays_with_other_names_are_refused(labelled_path: Path, tmp_path: Path):
    for old, new, why in (
        ("part_1_part_1_part_0_linear", "part_0_linear", "random Fourier features have linear"),
        ("part_1_part_1_part_0_table_0", "part_1_part_1_part_0_table_9", "table_j, j a column"),
        ("part_1_part_1_part_0_table_0", "table_0", "no part of its kernel has the arrays"),
    ):
        refused(forged(labelled_path, renamed(old, new)), tmp_path, "feature_map", why)


def test_margins_of_too_many_tables_are_refused_before_they_are_made(
    labelled_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from kmeanalyst.releases.file import measurement

    assert limits.USUAL.tables >= 600 * 599 // 2 + 600 and limits.LARGE.tables >= 1000 * 999 // 2 + 1000
    narrow(monkeypatch, tables=2)
    monkeypatch.setattr(measurement.composed, "composed_features", None)
    unchanged = forged(labelled_path, lambda header, members: None)
    refused(unchanged, tmp_path, "its kernel has margins of 4 tables", "at most 2 are read")
