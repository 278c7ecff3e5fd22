"""The method generator: features of soft rows in PyTorch, class shares, rows, and what is refused before the door."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from every import every
from file_tools import SCHEMA_TEST, members_of
from kernel_cases import CELL, LABELLED, PEOPLE, drawn
from representation_cases import measured as measured_rows

import kmeanalyst as ka
import release_side
from kmeanalyst import kernels
from kmeanalyst.kernels import Gaussian, Kernel, OnColumns, Product, Scaled, Sum
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.composed import Concatenation, TensorProduct
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import generator_kernel, margin_kernel, table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.generator.generator import class_shares, generated_rows, label_of
from kmeanalyst.representation.generator.soft_rows import Choices, SoftRows, choices_of, expected_features
from kmeanalyst.representation.wanted import QUICK, Effort
from release_side.choices.choices import Choices as PublicChoices
from release_side.door import door
from release_side.door.mechanism import PublishError
from release_side.publishing import publish as publishing
from release_side.publishing.methods import generator as method_module
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets
from release_side.publishing.methods.generator import Generator
from release_side.publishing.plan import plan

SMALL: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "method": "generator", "features": 60}


@pytest.fixture
def no_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row may meet noise; PyTorch is not needed before that."""
    monkeypatch.setattr(method_module, "check_torch", lambda: None)
    monkeypatch.setattr(door, "private_mean", lambda *arguments, **options: pytest.fail("the door was opened"))


def frame(n: int, seed: int = 0) -> pd.DataFrame:
    """x depends on rich, a third of n is 0, and some x are missing."""
    rng = np.random.default_rng(seed)
    rich = rng.random(n) < 0.2
    x = np.clip(rng.normal(np.where(rich, 1.2, -0.5), 0.3), -2, 2).round(3).astype(str)
    return pd.DataFrame({
        "x": np.where(rng.random(n) < 0.1, "", x), "n": np.where(rng.random(n) < 1 / 3, 0, rng.integers(1, 10, n)).astype(str),
        "city": rng.choice(["Basel", "Genf", "Zug"], n, p=[0.6, 0.3, 0.1]), "rich": np.where(rich, "yes", "no"),
    })  # fmt: skip


KERNELS: dict[str, Kernel] = {
    "labelled": LABELLED,
    "default": generator_kernel(PEOPLE, "rich"),
    "default without label": generator_kernel(PEOPLE),
    "table": table_kernel(PEOPLE),
    "margins": margin_kernel(PEOPLE, finer=False),
    "margins of sets": with_sets(margin_kernel(PEOPLE, finer=False), [(0, 2, 3)]),
    "pairs in a product": Product(
        (OnColumns(CELL, (3,)), OnColumns(margin_kernel(Domain(PEOPLE.columns[:3]), finer=False), (0, 1, 2)))
    ),
}


def soft(probabilities: list[Array], numbers: Array) -> SoftRows:
    torch = pytest.importorskip("torch")
    return SoftRows([torch.tensor(p) for p in probabilities], torch.tensor(numbers))


def with_values(columns: tuple[Choices, ...], most: int) -> tuple[Choices, ...]:
    """Choices with at most this many values in a range, so that all combinations can be listed."""
    return tuple(Choices(c.column, tuple(v[:most] for v in c.values), c.ranges, c.free) for c in columns)


@every("name", KERNELS)
def test_rows_that_are_certain_have_the_features_of_the_numpy_map(name: str):
    """In float64, to 1e-10: one cell of probability one in each column, and free numbers."""
    torch = pytest.importorskip("torch")
    features, rng = drawn(KERNELS[name], PEOPLE), np.random.default_rng(0)
    columns = with_values(choices_of(KERNELS[name], PEOPLE), 1)
    picked = [rng.integers(0, len(each), 50) for each in columns]
    numbers = rng.uniform(-1, 1, (50, len(PEOPLE)))
    rows = np.column_stack([
        [
            each.centre + each.radius * number if each.free and i == 0 else each.values[i][0]
            for i, number in zip(at, own, strict=True)
        ]
        for each, at, own in zip(columns, picked, numbers.T, strict=True)
    ])  # fmt: skip
    given = soft([np.eye(len(each))[at] for each, at in zip(columns, picked, strict=True)], numbers)
    found = expected_features(features, columns, dtype=torch.float64)
    np.testing.assert_allclose(found.rows(given).numpy(), features(rows), atol=1e-10)
    weights = rng.random(50)
    np.testing.assert_allclose(found.mean(given, torch.tensor(weights)).numpy(), weights @ found.rows(given).numpy(), atol=1e-12)


@every("name", KERNELS)
def test_features_of_soft_rows_are_the_mean_over_all_rows_that_can_be_drawn(name: str):
    """Every combination of choices and of the values that represent them, weighted by its probability."""
    torch = pytest.importorskip("torch")
    features, rng = drawn(KERNELS[name], PEOPLE), np.random.default_rng(1)
    columns = with_values(choices_of(KERNELS[name], PEOPLE), 2)
    probabilities = [rng.dirichlet(np.ones(len(each)), 2) for each in columns]
    numbers = rng.uniform(-1, 1, (2, len(PEOPLE)))
    for b in range(2):
        cells = []
        for j, each in enumerate(columns):
            own = [
                (each.centre + each.radius * numbers[b, j] if each.free and i == 0 else value, probabilities[j][b, i] / len(v))
                for i, v in enumerate(each.values) for value in v
            ]  # fmt: skip
            cells.append(own)
        rows = np.array([[value for value, _ in row] for row in product(*cells)])
        weights = np.array([np.prod([p for _, p in row]) for row in product(*cells)])
        assert weights.sum() == pytest.approx(1.0)
        found = expected_features(features, columns, dtype=torch.float64).rows(soft(probabilities, numbers))
        np.testing.assert_allclose(found.numpy()[b], weights @ features(rows), atol=1e-10)


def test_the_default_kernel_has_a_bound_of_one_and_shares_of_it():
    for target in (None, "rich", "city"):
        kernel = generator_kernel(PEOPLE, target)
        assert kernel.bound == pytest.approx(1.0, rel=1e-12)
        rows = PEOPLE.draw(30, 0)
        np.testing.assert_allclose(kernel.diagonal(rows), 1.0, rtol=1e-12)
        assert label_of(kernel) == (None if target is None else PEOPLE.position(target))
    numbers = Domain((Real(name="a", lower=0, upper=1), Real(name="b", lower=0, upper=10), Real(name="c", lower=-5, upper=5)))
    wide = Domain(tuple(Real(name=f"x{j}", lower=0, upper=2) for j in range(101)))
    kernel = generator_kernel(wide)  # one Gaussian for columns of one range; no ranges of so many
    assert isinstance(kernel, OnColumns) and kernel.kernel == Gaussian(float(2 * np.sqrt(101 / 6)))
    assert isinstance(generator_kernel(numbers), Sum)
    levels = Domain((Categorical(name="a", levels=("x", "y")),))
    assert isinstance(generator_kernel(levels, "a"), OnColumns)  # a label alone is crossed with nothing


def measured(kernel: Kernel, rows: Array, *, noise: float = 1e-9) -> Measurement:
    return measured_rows(drawn(kernel, PEOPLE), rows, noise_scale=noise)


@every("kernel", [generator_kernel(PEOPLE, "city"), margin_kernel(PEOPLE, finer=False)])
def test_shares_of_classes_are_read_off_the_measurement(kernel: Kernel):
    rows = PEOPLE.encode(frame(500))
    truth = np.bincount(rows[:, 2].astype(int)) / 500
    np.testing.assert_allclose(class_shares(measured(kernel, rows), 2, 3), truth, atol=1e-6)
    noisy = class_shares(measured(kernel, rows, noise=0.1), 2, 3)  # still probabilities
    assert noisy.min() >= 0 and noisy.sum() == pytest.approx(1.0) and not np.allclose(noisy, truth, atol=0.02)


def test_the_label_is_the_column_crossed_with_all_others():
    label, number = OnColumns(CELL, (3,)), OnColumns(Gaussian(1.0), (0,))
    assert label_of(LABELLED) == label_of(Product((number, label))) == label_of(Product((label, number))) == 3
    assert label_of(margin_kernel(PEOPLE)) is None
    assert label_of(table_kernel(PEOPLE)) is None and label_of(Gaussian(1.0) * Gaussian(2.0)) is None
    assert label_of(OnColumns(Scaled(2.0, Product((OnColumns(CELL, (1,)), OnColumns(Gaussian(1.0), (0,))))), (0, 3))) == 3


def test_without_torch_it_is_refused_before_a_row_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No ledger is written and nothing is spent."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(publishing, "counted_rows", lambda *_: pytest.fail("a row was read"))
    message = r"with PyTorch, which is not installed\. Install it with pip install 'kmeanalyst\[generator\]'"
    with pytest.raises(PublishError, match=message):
        release_side.publish(frame(20), PEOPLE, **SMALL, ledger=tmp_path / "ledger", table="people")
    assert not list(tmp_path.iterdir())
    with pytest.raises(PublishError, match=message):
        plan(PEOPLE, rows=100, **(SMALL | {"epsilon": [1.0]}))


def test_torch_is_imported_by_nothing_else(monkeypatch: pytest.MonkeyPatch):
    """Kernels, features, shares of classes and choices need none of it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    kernel = generator_kernel(PEOPLE, "rich")
    rows = PEOPLE.encode(frame(50))
    assert class_shares(measured(kernel, rows), 3, 2).sum() == pytest.approx(1.0)
    features = Generator(PublicChoices(features=40)).features(kernel, PEOPLE)
    assert isinstance(features, Concatenation) and isinstance(features.maps[1], TensorProduct)
    assert len(choices_of(kernel, PEOPLE)) == 4
    with pytest.raises(ImportError, match="pip install"):
        generated_rows(measured(kernel, rows), PEOPLE, n_points=5)


def nested(inner: Kernel, depth: int) -> dict[str, Any]:
    """A kernel of a label and another part within `depth` scalings."""
    kernel: Kernel = Sum((OnColumns(CELL, (3,)), inner))
    for _ in range(depth):
        kernel = Scaled(1.0, kernel)
    return {"kernel": kernel}


def test_impossible_kernels_and_choices_are_refused_before_the_door(no_door: None):
    refusals.check(
        Path(__file__).parent / "refusals_generator.txt",
        lambda text: release_side.publish(frame(50), PEOPLE, **(SMALL | eval(text, vars(kernels) | globals()))),
    )


@pytest.mark.parametrize("target", [None, "rich"])
def test_a_release_is_read_back_with_its_measurement(target: str | None, tmp_path: Path, rough_representation: None):
    pytest.importorskip("torch")
    reports: list[tuple[str, float]] = []
    written = release_side.publish(
        frame(1500), PEOPLE, **SMALL, target=target, output=tmp_path / "r.kme",
        progress=lambda what, share: reports.append((what, share)),
    )  # fmt: skip
    release = ka.read_release(tmp_path / "r.kme")
    SCHEMA_TEST.validate(json.loads(members_of(tmp_path / "r.kme")["release.json"]))
    assert release.kernel == written.kernel == generator_kernel(PEOPLE, target)
    np.testing.assert_array_equal(release.measurement.vector, written.measurement.vector)  # type: ignore[union-attr]
    assert (release.method, release.weight_view, len(release)) == ("generator", "probability", 1500)
    np.testing.assert_array_equal(release.weights, 1 / 1500)
    assert "the frequencies, drawn from a public seed" in release.statement.taken_as_public  # type: ignore[union-attr]
    shares = [share for what, share in reports if what == "training a generator"]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert ka.mmd_test(release, frame(200, 1)).noise_aware
    assert release.probability("rich == 'yes'").standard_error > 0


def test_the_same_measurement_gives_the_same_rows_whatever_was_drawn_before():
    torch = pytest.importorskip("torch")
    measurement = measured(generator_kernel(PEOPLE, "rich"), PEOPLE.encode(frame(300)))
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = generated_rows(measurement, PEOPLE, n_points=40, effort=QUICK)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.randn(7)
    np.testing.assert_array_equal(generated_rows(measurement, PEOPLE, n_points=40, effort=QUICK), first)


def test_without_privacy_a_generator_learns_what_is_measured():
    """Hardly any noise: shares of classes, levels, atoms and missing cells, and x given the label."""
    pytest.importorskip("torch")
    private = frame(3000)
    measurement = measured(generator_kernel(PEOPLE, "rich"), PEOPLE.encode(private))
    made = PEOPLE.decode(generated_rows(measurement, PEOPLE, n_points=3000, effort=Effort(1 / 3)))
    rich, truly = made["rich"] == "yes", private["rich"] == "yes"
    assert abs(rich.mean() - truly.mean()) < 0.001
    assert abs((made["n"] == 0).mean() - (private["n"] == "0").mean()) < 0.03
    assert abs(made["x"].isna().mean() - (private["x"] == "").mean()) < 0.03
    for city in ("Basel", "Genf", "Zug"):
        assert abs((made["city"] == city).mean() - (private["city"] == city).mean()) < 0.03
    x = pd.to_numeric(private["x"])
    for one, other in ((rich, truly), (~rich, ~truly)):
        assert abs(made["x"][one].mean() - x[other].mean()) < 0.1
        assert abs(made["x"][one].std() - x[other].std()) < 0.2  # ranges are a third wide; uniform rows have 1.2


@every("make", [table_kernel, lambda domain: Gaussian(1.5)])
def test_free_numbers_are_learned_too(make: Callable[[Domain], Kernel]):
    """Numbers without margins: a free output, with an atom or missing cells."""
    pytest.importorskip("torch")
    domain = Domain((Real(name="x", lower=-2.0, upper=2.0, missing=True), Real(name="z", lower=0, upper=4, atoms=(0,))))
    rng = np.random.default_rng(0)
    x = np.where(rng.random(2000) < 0.2, np.nan, np.clip(rng.normal(0.5, 0.4, 2000), -2, 2))
    z = np.where(rng.random(2000) < 0.5, 0.0, np.clip(2 + np.nan_to_num(x), 0, 4))
    kernel, rows = make(domain), np.column_stack([x, z])
    features = RandomFourier.draw(kernel, n_columns=2, dimension=200, missing_columns=[0], rng=0)
    measurement = measured_rows(features, rows, noise_scale=1e-6)
    made = generated_rows(measurement, domain, n_points=2000, effort=Effort(1 / 3))
    assert np.linalg.norm(features(made).mean(axis=0) - measurement.vector) < 0.05
    assert abs(np.isnan(made[:, 0]).mean() - 0.2) < 0.05 and abs(np.nanmean(made[:, 0]) - 0.5) < 0.1
