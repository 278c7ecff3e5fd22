"""`publish(like=…)`: the tables of another release are measured, and nothing is chosen by rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import call

import kmeanalyst as ka
from kmeanalyst.kernels.margins import ChosenMargins
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Integer
from release_side.errors import PublishError
from release_side.publishing.publish import publish

DOMAIN = Domain((*(Boolean(name=f"b{j}") for j in range(4)), Integer(name="age", lower=0, upper=79, edges=(20, 40, 60))))
GIVEN: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "uncounted": True}


def people(seed: int, *, odd: float, n: int = 5000) -> pd.DataFrame:
    """b3 is the parity of the others with this probability."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.random((n, 3)) < 0.5, columns=["b0", "b1", "b2"])
    parity = frame.sum(axis=1) % 2 == 1
    return frame.assign(b3=np.where(rng.random(n) < odd, parity, ~parity), age=rng.integers(0, 80, n))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("like") / "first.kme"
    publish(people(0, odd=0.9), DOMAIN, **GIVEN, output=path)
    return path


def test_the_same_tables_are_measured_without_a_choice_and_the_budget_is_all_theirs(first: Path):
    old = ka.read_release(first)
    new = publish(people(1, odd=0.9), DOMAIN, **GIVEN, like=first)
    assert isinstance(old, Release) and old.measurement is not None and new.measurement is not None
    assert isinstance(old.kernel, ChosenMargins) and new.kernel == old.kernel and (0, 1, 2, 3) in old.kernel.chosen
    assert old.measurement.chosen_by_rows and not new.measurement.chosen_by_rows
    assert new.measurement.noise_scale < old.measurement.noise_scale
    assert new.statement is not None
    new.statement.check_arithmetic()
    assert "which tables are measured, as another release has them" in new.statement.taken_as_public


def test_a_relation_that_is_broken_is_found_and_one_that_is_kept_is_not(first: Path):
    """Of three quarters: the tables of the first were chosen by its rows, so that only later ones are compared in all of them."""
    old = ka.read_release(first)
    usual, broken, kept = (
        publish(people(seed, odd=odd), DOMAIN, **GIVEN, like=old) for seed, odd in ((1, 0.9), (2, 0.6), (3, 0.9))
    )
    assert ka.mmd_test(usual, broken, rng=0).pvalue < 0.01 < ka.mmd_test(usual, kept, rng=0).pvalue


def test_what_does_not_go_with_it_is_refused(first: Path, tmp_path: Path):
    frame = people(1, odd=0.9)
    for choice in ({"target": "b3"}, {"kernel": "margins"}, {"workload": ["age"]}, {"method": "subspace"}):
        with pytest.raises(PublishError, match="like takes over what another release measured"):
            publish(frame, DOMAIN, **GIVEN, like=first, **choice)
    with pytest.raises(PublishError, match="other columns, bounds or levels"):
        publish(frame, Domain((*DOMAIN.columns[:4], replace(DOMAIN.columns[4], upper=99))), **GIVEN, like=first)
    with pytest.raises(PublishError, match="measured no tables"):
        publish(frame, DOMAIN, **GIVEN, like=publish(frame, DOMAIN, **GIVEN, features=20, points=5))
    rehearsal = publish(frame, DOMAIN, epsilon=2.0, delta=1e-6, rehearsal=1)
    rehearsal.write(tmp_path / "r.kme")
    for seen_through, said in ((rehearsal, "whose noise can be subtracted"), (tmp_path / "r.kme", "rehearsal")):
        with pytest.raises(PublishError, match=said):
            publish(frame, DOMAIN, **GIVEN, like=seen_through)
    with pytest.raises(PublishError, match="as another"):
        publish(frame, DOMAIN, **GIVEN, like=first, output=first, force=True)
    frame.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    words = (
        "publish", tmp_path / "p.csv", "--domain", tmp_path / "d.toml", "--epsilon", 2, "--delta", 1e-6, "--uncounted",
    )  # fmt: skip
    done = call("release-side", *words, "--like", first, "--output", tmp_path / "new.kme")
    assert done.exit_code == 0, done.output
    assert ka.read_release(tmp_path / "new.kme").kernel == ka.read_release(first).kernel
    wrong = call("release-side", *words, "--like", tmp_path / "p.csv", "--output", tmp_path / "other.kme")
    assert wrong.exit_code == 1 and "p.csv" in wrong.stderr
