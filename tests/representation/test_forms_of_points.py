"""Wanted forms of points (Balog, Tolstikhin & Schölkopf 2018, §3.3): uniform weights, single precision, integers, levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from every import every

from kmeanalyst.kernels import KernelMean
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file import validate_release
from release_side.door.mechanism import PublishError
from release_side.publishing.publish import publish

CHOICES: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "points": 40, "features": 200}
DOMAIN = Domain((
    Real(name="wage", lower=1.0, upper=1e5, scale="log"), Real(name="height", lower=100, upper=220),
    Integer(name="age", lower=17, upper=90), Categorical(name="city", levels=("A", "B", "C")),
))  # fmt: skip


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, 3000)
    city = rng.choice(list("ABC"), 3000, p=[0.6, 0.3, 0.1])
    return pd.DataFrame(
        {"wage": np.exp(rng.normal(6 + age / 30, 0.5)), "height": rng.normal(170, 9, 3000), "age": age, "city": city}
    )


@pytest.mark.usefixtures("rough_representation")
def test_uniform_weights_are_equal_and_the_file_calls_them_probabilities(frame, tmp_path):
    release = publish(frame, DOMAIN, weights="uniform", output=tmp_path / "u.kme", **CHOICES)
    assert (release.weights == 1 / 40).all() and release.weight_view == "probability"
    assert read_release(tmp_path / "u.kme").weight_view == "probability"
    assert not validate_release(tmp_path / "u.kme")


@pytest.mark.slow
def test_uniform_weights_cost_little_because_the_points_do_the_work(frame):
    """Within 1.25 times the error of fitted weights, and well below that of as many rows of the table itself."""
    choices = CHOICES | {"features": 1000, "rehearsal": 0}
    fitted, uniform = (publish(frame, DOMAIN, weights=w, **choices) for w in ("probability", "uniform"))
    assert fitted.weights.std() > 0.1 / 40
    rows = KernelMean(fitted.kernel, DOMAIN.encode(frame.sample(40, random_state=0)))
    table = KernelMean(fitted.kernel, DOMAIN.encode(frame))
    assert uniform.embedding.distance(table) < min(1.25 * fitted.embedding.distance(table), 0.8 * rows.distance(table))


@pytest.mark.usefixtures("rough_representation")
def test_single_precision_points_survive_single_precision_and_their_weights_were_fitted_to_them(frame, tmp_path):
    release = publish(frame, DOMAIN, float32=True, output=tmp_path / "s.kme", rehearsal=3, **CHOICES)
    points = read_release(tmp_path / "s.kme", allow_rehearsal=True).to_frame()
    for name in ("wage", "height"):
        values = points[name].to_numpy()
        assert (values.astype(np.float32).astype(np.float64) == values).all()
    plain = publish(frame, DOMAIN, rehearsal=3, **CHOICES)
    assert (plain.to_frame()["height"].to_numpy() != points["height"].to_numpy()).any()
    assert release.fit_distance == pytest.approx(plain.fit_distance, rel=0.3)


@pytest.mark.usefixtures("rough_representation")
def test_integers_and_levels_need_no_rounding_afterwards(frame):
    points = publish(frame, DOMAIN, **CHOICES).to_frame()
    assert points["age"].dtype.kind == "i" and set(points["city"]) <= set("ABC")
    assert points["age"].between(17, 90).all()


@every("choice", [{"weights": "uniform"}, {"float32": True}])
def test_given_points_cannot_take_a_form(choice, frame):
    with pytest.raises(PublishError, match=r"is for points that are placed.*random-features"):
        publish(frame, DOMAIN, epsilon=1.0, delta=1e-6, method="subspace", points=20, **choice)
