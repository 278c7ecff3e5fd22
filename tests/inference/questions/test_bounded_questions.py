"""A small valid file cannot occupy `table`, `groupby`, `--by` or `thin`: work is counted, and refused before it is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from simulated_releases import weighted_points

from kmeanalyst.cli.main import main
from kmeanalyst.inference.estimate.population import Population, population_of
from kmeanalyst.inference.questions import groups
from kmeanalyst.inference.questions import tables as tabulation
from kmeanalyst.inference.questions.expectation import conditions_by
from kmeanalyst.inference.questions.tables import check_table, contingency, histogram, table
from kmeanalyst.kernels import Gaussian
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.representation import thinning
from kmeanalyst.representation.thinning import THIN_WEIGHTS, thinned


def of(*columns: Column, n: int = 100, weights: Any = None) -> Release:
    domain = Domain(columns)
    return weighted_points(domain.decode(domain.draw(n, 0)), domain, weights)


def levels(n: int, name: str = "c", **more: Any) -> Categorical:
    return Categorical(name=name, levels=tuple(f"{j:06}" for j in range(n)), **more)


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The questions that populations evaluate."""
    asked: list[Any] = []
    values = Population.values
    monkeypatch.setattr(Population, "values", lambda self, question: asked.append(question) or values(self, question))
    return asked


def test_a_level_costs_no_condition(evaluated: list[Any]):
    assert len(table(of(levels(2000, missing=True)), "c")) == 2001
    assert evaluated == ["missing(c)"]


def test_levels_by_their_codes_are_what_their_conditions_say():
    for where in [None, "x > 0.5"]:
        for name in ["c", "b"]:
            weights = np.random.default_rng(1).normal(0.01, 0.02, 100)
            columns = levels(5, missing=True), Boolean(name="b", missing=True), Real(name="x", lower=0, upper=1)
            release = of(*columns, weights=weights)
            for labels, cell in contingency(release, [name], where=where):
                population = population_of(release, where=where)
                conditions = {group.label: group.condition for group in groups.groups_of(release.columns, name)}
                condition = conditions[labels[name]]
                expected = release.probability(condition, where=where)
                assert (cell.value, cell.question) == (expected.value, expected.question)
                assert cell.parts["sampling"] == pytest.approx(expected.parts["sampling"], rel=1e-12)
                assert cell.notes == expected.notes[-len(cell.notes) :]  # it may begin with one on missing cells
                assert np.array_equal(cell.terms[0][1], expected.terms[0][1]) and population.view == cell.view


def test_500_levels_by_10_are_a_table():
    release = of(levels(500), levels(10, "d"))
    check_table([groups.groups_of(release.columns, name) for name in "cd"], 16_000)
    assert len(table(of(levels(50), levels(10, "d")), "c", "d")) == 500


def test_too_many_cells_are_refused_before_the_work(evaluated: list[Any]):
    for ask in [lambda r: table(r, "c"), lambda r: table(r, "d", "e"), lambda r: histogram(r, "c")]:
        release = of(levels(10_001), levels(200, "d"), levels(51, "e"))
        with pytest.raises(ValueError, match=r"1\d,\d01? |10,200 cells, and at most 10,000 are answered at once"):
            ask(release)
        assert evaluated == []


def test_cells_times_rows_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tabulation, "MOST_NUMBERS", 999)
    with pytest.raises(ValueError, match=r"10 cells, and at most 9 are answered at once with 100 rows: .* Name fewer"):
        table(of(levels(10)), "c")


def test_conditions_of_many_atoms_are_bounded(evaluated: list[Any]):
    atoms = tuple(np.linspace(0.01, 0.99, 900).round(6))
    release = of(Real(name="x", lower=0, upper=1, atoms=atoms, edges=tuple(np.linspace(0.015, 0.985, 900).round(6))))
    with pytest.raises(ValueError, match=r"characters of conditions|atoms, too many"):
        table(release, "x")
    assert evaluated == []
    assert len(histogram(release, "x", bins=7)) == 7


def test_groups_that_are_asked_one_by_one_are_at_most_500(evaluated: list[Any]):
    release = of(levels(501), Real(name="x", lower=0, upper=1))
    for ask in (lambda: release.groupby("c").mean("x"), lambda: conditions_by(release, "c")):
        with pytest.raises(ValueError, match="c has 501 groups, and at most 500 are answered at once"):
            ask()
    assert evaluated == []
    assert len(conditions_by(of(levels(500)), "c")) == 500


def test_tables_by_another_column_are_bounded_together(tmp_path):
    of(levels(300), levels(300, "d"), levels(40, "e")).write(tmp_path / "a.kme")
    refused = CliRunner().invoke(main, ["table", str(tmp_path / "a.kme"), "e", "--by", "c"])
    assert refused.exit_code != 0 and "12,000 cells, and at most 10,000" in refused.stderr


def test_errors_in_blocks_are_those_at_once(mixed_release, monkeypatch: pytest.MonkeyPatch):
    at_once = table(mixed_release, "city", "married")
    monkeypatch.setattr("kmeanalyst.inference.estimate.population._TOGETHER", 1)
    pd.testing.assert_frame_equal(table(mixed_release, "city", "married"), at_once, rtol=1e-9)


GRAM = Gaussian.gram


def counting(most: list[int]) -> Any:
    """The Gaussian's Gram matrix, which notes the larger number of its rows."""
    return lambda self, X, Y: most.append(max(len(X), len(Y))) or GRAM(self, X, Y)


def copied(n: int) -> Release:
    """20 different points, n copies of each in turn."""
    some = of(Real(name="x", lower=0, upper=1), Real(name="y", lower=0, upper=1), n=20)
    weights = np.random.default_rng(2).dirichlet(np.ones(20 * n))
    points = pd.concat([some.to_frame().drop(columns="weight")] * n, ignore_index=True)
    return weighted_points(points, some.domain, weights)


def test_copies_of_points_cost_nothing(monkeypatch: pytest.MonkeyPatch):
    for kind in THIN_WEIGHTS:
        release, most = copied(5), list[int]()
        monkeypatch.setattr(Gaussian, "gram", counting(most))
        for n in (7, 40):
            small = release.thin(n, weights=kind)
            assert len(small) == n and max(most) <= (max(n, 20) if kind == "uniform" else 20)
        most.clear()
        _, _, error = thinned(release.kernel, release.encoded_points, release.weights, 7, kind)
        assert release.thin(7, weights=kind).thinning_error <= 1.2 * error


def test_thinning_beyond_its_limit_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch):
    for limit in ["MOST_STEPS", "MOST_NUMBERS"]:
        release = of(Real(name="x", lower=0, upper=1))
        monkeypatch.setattr(thinning, limit, 500)
        monkeypatch.setattr(Gaussian, "gram", lambda *_: pytest.fail("the kernel was evaluated"))
        refused = r"thinning 100 different points to 50 .* at most 5e\+02 are .* Thin a sample"
        with pytest.raises(ValueError, match=refused):
            release.thin(50)


def test_fifty_thousand_points_of_twenty_columns_are_within_the_limits():
    domain = Domain(tuple(Real(name=f"x{j}", lower=0, upper=1) for j in range(20)))
    kernel = from_frame(domain.decode(domain.draw(50, 0)).assign(weight=0.02)).kernel
    thinning._check_work(kernel, 50_000, 20, 1000)
