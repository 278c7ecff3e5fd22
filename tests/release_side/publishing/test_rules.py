"""Which methods keep the rules of a domain, and which say before anything is read that they do not."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ruled_tables import HOSPITAL, hospital, share_broken

from kmeanalyst.kernels.margins import ChosenMargins, Margins
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel, margin_kernel, table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file.kernel import diameter_over, listed_rows
from kmeanalyst.releases.file.validating import validate_release
from kmeanalyst.releases.rules.rule import Rule
from release_side import PublishError, publish
from release_side.budget.ledger import Ledger
from release_side.door.exponential_mechanism import small_databases

GRID = Domain(
    (Integer(name="age", lower=0, upper=9), Boolean(name="works"), Categorical(name="home", levels=("a", "b"))),
    rules=(Rule("never", "works and age < 3"),),
)
NUMBERS = Domain((Real(name="x", lower=0.0, upper=1.0), Real(name="y", lower=0.0, upper=1.0)), rules=(Rule("always", "x <= y"),))


REHEARSAL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "rehearsal": 1}
DRAWN: dict[str, Any] = {"epsilon": 5.0, "delta": 0.0, "rehearsal": 1, "method": "exponential"}


def grid(n: int, rng: np.random.Generator) -> pd.DataFrame:
    age = rng.integers(0, 10, n)
    return pd.DataFrame({"age": age, "works": (age > 4) & (rng.random(n) < 0.7), "home": rng.choice(["a", "b"], n)})


def test_methods_that_place_points_refuse_rules_before_the_table_is_opened():
    placed = "points of random features are placed freely"
    for options, why in (
        ({"kernel": "table"}, placed), ({"features": 100}, placed), ({"weights": "signed"}, placed),
        ({"method": "generator"}, "rows of a generator are drawn freely"),
    ):  # fmt: skip
        if options.get("method") == "generator":
            pytest.importorskip("torch")
        message = rf"^{why}, and do not keep the 7 rules of the domain\. .*leave out kernel.*Or leave the rules out"
        with pytest.raises(PublishError, match=message):
            publish("no-such-table.csv", HOSPITAL, **REHEARSAL, **options)


def test_a_few_numbers_with_rules_are_measured_by_adaptive_margins():
    rows = pd.DataFrame(np.sort(np.random.default_rng(0).random((2000, 2)), axis=1), columns=["x", "y"])
    for choice, kind in (({}, ChosenMargins), ({"delta": 0.0, "noise": "laplace"}, Margins)):
        release = publish(rows, NUMBERS, points=500, **REHEARSAL | choice)
        assert type(release.kernel) is kind and (release.frame["x"] <= release.frame["y"]).all()


def test_measured_ranges_end_where_rules_change():
    for kernel in (margin_kernel, adaptive_kernel):
        assert 14.5 in kernel(HOSPITAL).edges[HOSPITAL.position("age")]
        assert 14.5 not in kernel(replace(HOSPITAL, rules=())).edges[0]


def test_points_of_a_subspace_keep_the_rules_and_public_ones_must():
    frame = grid(500, np.random.default_rng(1))
    release = publish(frame, GRID, method="subspace", points=40, **REHEARSAL)
    assert len(release) == 40 and share_broken(GRID, release.frame) == 0
    public = grid(30, np.random.default_rng(2)).assign(works=True)
    message = r"of the 30 public points break a rule, .*rule 1 \(never works.*Remove these rows"
    with pytest.raises(PublishError, match=message):
        publish(frame, GRID, method="subspace", public_points=public, **REHEARSAL)


def test_points_of_a_subspace_are_refused_where_hardly_any_row_keeps_the_rules():
    narrow = replace(NUMBERS, rules=(Rule("always", "x == y"),))
    with pytest.raises(PublishError, match=r"hardly any row .* keeps its 1 rules.*Pass public points that keep them"):
        publish(pd.DataFrame({"x": [0.5] * 50, "y": [0.5] * 50}), narrow, method="subspace", **REHEARSAL)


def test_the_exponential_mechanism_draws_rows_that_keep_the_rules(tmp_path: Path):
    release = publish(grid(300, np.random.default_rng(3)), GRID, points=3, output=tmp_path / "x.kme", **DRAWN)
    assert share_broken(GRID, release.frame) == 0
    assert release.statement is not None and release.statement.public_points == 0
    assert validate_release(tmp_path / "x.kme", allow_rehearsal=True) == []


def test_private_rows_count_as_themselves_or_as_the_nearest_row_that_keeps_the_rules():
    kernel = table_kernel(GRID)
    databases = small_databases(kernel, GRID, None, 2, n_rows=300, epsilon=5.0)
    assert np.array_equal(databases.indices(databases.rows), np.arange(34))
    (at,) = databases.indices(np.array([[1.0, 1.0, 0.0]]))  # a child who works
    distances = 2 - 2 * kernel.gram(np.array([[1.0, 1.0, 0.0]]), databases.rows)[0]
    assert distances[at] == distances.min()


def test_a_private_row_that_breaks_a_rule_counts_in_the_sensitivity_of_a_draw():
    """Δ is a maximum over all rows of the domain: a private row may be any of them."""
    kernel = publish(grid(300, np.random.default_rng(3)), GRID, points=2, **DRAWN).kernel
    listed = listed_rows(GRID, kernel)
    assert listed is not None and len(listed) == 34
    assert diameter_over(kernel, GRID) == diameter_over(kernel, replace(GRID, rules=()))


def test_private_rows_that_break_rules_are_measured_like_any_other():
    """The measurement of the same rows is the same with a rule whose cuts are there already, kept or not."""
    frame = hospital(2000, breaking=0.1)[["age", "education", "employed"]]
    rule = Rule("never", "education == 'none' and employed == 'yes'")
    ruled = replace(HOSPITAL, columns=HOSPITAL.columns[:3], rules=(rule,))
    both = (ruled, replace(ruled, rules=()))
    first, second = (publish(frame, domain, kernel="margins", points=200, **REHEARSAL) for domain in both)
    assert first.measurement is not None and second.measurement is not None
    assert np.array_equal(first.measurement.vector, second.measurement.vector)


HOLES = tuple(Integer(name=f"c{i}", lower=0, upper=9) for i in range(11))


def pigeons(count: int, where: str = "t") -> Domain:
    """Where t is true, no two of `count` numbers of ten values are equal: of eleven, no row with t keeps that."""
    pairs = combinations(range(count), 2)
    rules = tuple(Rule("never", f"{where} and c{i} == c{j}") for i, j in pairs)
    return Domain((Boolean(name="t"), *HOLES), rules=rules)


def test_rules_that_no_row_keeps_are_refused_within_seconds_and_nothing_is_spent(tmp_path: Path):
    ledger = tmp_path / "budget.ledger"
    Ledger(ledger).init("people", epsilon=2.0, delta=1e-5)
    before, start = ledger.read_bytes(), time.process_time()
    message = r"no row that keeps all 55 rules .*search.*Correct or remove a rule"
    with pytest.raises(DomainError, match=message):
        publish("no-such-table.csv", pigeons(11, "c0 >= 0"), epsilon=1.0, delta=1e-6, ledger=ledger, table="people")
    assert ledger.read_bytes() == before
    assert time.process_time() - start < 20


def test_rules_that_some_row_keeps_are_published():
    """Also where only rows with t false do."""
    for count, target in ((6, "t"), (11, None)):
        domain = pigeons(count)
        rows = pd.DataFrame(domain.draw(300, 0)[:, 1:].astype(int), columns=domain.names[1:]).assign(t=False)
        release = publish(rows, domain, points=200, target=target, **REHEARSAL)
        assert share_broken(domain, release.frame) == 0
