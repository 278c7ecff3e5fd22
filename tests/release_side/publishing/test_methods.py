"""The release methods as one type: the registry, what each does for `publish`, and a door that opens once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.statement import CALIBRATIONS, GAUSSIAN, PopulationSize
from kmeanalyst.representation.represent import KEEPS_POINTS, REPRESENT
from release_side.choices.choices import CALIBRATIONS as NAMED_CALIBRATIONS
from release_side.choices.choices import METHOD_NAMES, NOISES, Choices
from release_side.cli.main import main
from release_side.door import mechanism
from release_side.door.door import Door
from release_side.door.mechanism import GaussianNoise
from release_side.errors import PublishError
from release_side.publishing.methods import METHODS, Drawn, MeanMethod, chosen_method, method_class
from release_side.publishing.publish import begun_with

DOMAIN = Domain((Real(name="x", lower=-3.0, upper=3.0), Boolean(name="y")))
SMALL = Domain((Integer(name="n", lower=0, upper=3), Boolean(name="y")))
every_method = pytest.mark.parametrize("name", METHODS)


def door_of(domain: Domain, noise: Any, n_rows: int = 50, **options: Any) -> Door:
    return Door([domain.draw(n_rows, 1)], noise, PopulationSize(n_rows), **options)


def test_the_registry_has_the_names_that_curators_type_and_margins():
    assert {*METHOD_NAMES, "margins", "adaptive"} == set(METHODS)
    assert {method.name for method in METHODS.values()} == set(METHOD_NAMES)
    measured = {method.name for method in METHODS.values() if issubclass(method, MeanMethod)}
    assert measured == set(REPRESENT) and measured > KEEPS_POINTS
    for name in ("margins", "magic"):
        with pytest.raises(PublishError, match=r"method must be one of random-features, .*Name one of these"):
            method_class(name)


METHOD_OF_CHOICES: list[tuple[dict[str, Any], int, str]] = [
    ({}, 1, "adaptive"), ({}, 2, "adaptive"), ({"kernel": "adaptive"}, 2, "adaptive"),
    ({"features": 50}, 2, "random-features"),
    ({"kernel": "adaptive", "target": "y"}, 2, "adaptive"), ({"weights": "signed"}, 2, "random-features"),
    ({"noise": "laplace"}, 2, "random-features"), ({"kernel": "table"}, 2, "random-features"),
    ({"kernel": "margins"}, 2, "margins"), ({"target": "y"}, 2, "adaptive"), ({"target": "y", "kernel": "margins"}, 2, "margins"),
    ({"target": "y", "noise": "laplace"}, 2, "margins"),
    ({"kernel": "rbf:lengthscale=2"}, 1, "random-features"),
]  # fmt: skip


def test_margins_are_random_features_under_a_kernel_of_margins():
    for choices, columns, kind in METHOD_OF_CHOICES:
        chosen = chosen_method("random-features", Choices(**choices), Domain(DOMAIN.columns[:columns]))
        assert type(chosen) is METHODS[kind] and chosen.name == "random-features"


def test_the_options_of_the_command_line_are_the_choices():
    for command in ("publish", "plan"):
        options = {parameter.name: parameter for parameter in main.commands[command].params}
        for field in fields(Choices):
            assert options[field.name].help == field.metadata["help"]
        assert options["weights"].default == Choices().weights and options["float32"].is_flag
    assert NOISES == mechanism.NOISES and set(NAMED_CALIBRATIONS) == set(CALIBRATIONS[GAUSSIAN])


@every_method
def test_every_method_measures_represents_and_states_its_guarantee(name: str):
    if name == "generator":
        pytest.importorskip("torch", reason="a generator trains a network with PyTorch, which is not installed")
    kind, domain = METHODS[name], SMALL if name == "exponential" else DOMAIN
    method = kind(kind.options(points=6, kernel={"margins": "margins", "random-features": "table"}.get(name)))
    noise = method.mechanism(0.5, 0.0 if name == "exponential" else 1e-6, 1)
    door, size = door_of(domain, noise), PopulationSize(50)
    measured = method.measure(door, domain, size)
    assert door.rows is None and isinstance(measured, Drawn if name == "exponential" else Measurement)
    if name != "exponential":  # what is drawn as a whole needs no fit
        begun = begun_with(method, measured, noise, domain, size)
        assert begun is not None
        release = begun.release()
        assert release.encoded_points.shape == (6, domain.width) and release.weights.shape == (6,)
    statement = method.statement(measured, noise, size, 6)
    statement.check_arithmetic()
    assert statement.n_rows == 50 and statement.taken_as_public[-2:] == method.taken_as_public(measured, 6)[-2:]


def features() -> RandomFourier:
    return RandomFourier.draw(Gaussian(1.0), n_columns=2, dimension=20, rng=0)


def test_a_door_opens_once_and_keeps_no_rows():
    spent: list[str] = []
    door = door_of(DOMAIN, GaussianNoise(1.0, 1e-6), record_spend=lambda: spent.append("recorded"))
    assert door.mean(features()).n_rows == 50
    with pytest.raises(ValueError, match=r"the door was used: .* second spend\. Measure once"):
        door.mean(features())
    assert spent == ["recorded"] and door.rows is None


def test_choices_cannot_be_changed_and_refuse_what_their_method_cannot_use():
    with pytest.raises(AttributeError):
        Choices().points = 3  # type: ignore[misc]
    for name, wrong, message in (
        ("subspace", {"family": "fourier"}, "subspace has its own"),
        ("exponential", {"weights": "signed"}, "signed weights does not go with the exponential mechanism"),
        ("margins", {"bound": 2.0}, "probability weights have none"),
    ):  # fmt: skip
        with pytest.raises(PublishError, match=message):
            METHODS[name].options(**wrong)
