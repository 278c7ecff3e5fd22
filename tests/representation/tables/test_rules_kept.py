"""Rules of a table: no released row breaks one, whatever the measurement was, and tables fit as well as without them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from every import every
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from representation_cases import measured
from ruled_tables import CHILDREN, HOSPITAL, HOURS, NEVER, ORDER, PLACES, RULES, STAY, WAGE, hospital, share_broken, with_rules

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel, margin_kernel, one_way_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import check_kept
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.tables.allowed_cells import AllowedCells, allowed_cells
from kmeanalyst.representation.tables.estimates import TableEstimates, estimate_tables
from kmeanalyst.representation.tables.even_rows import draw_cells, move_cells, rake_cells
from kmeanalyst.representation.tables.values_kept import without_broken
from kmeanalyst.representation.wanted import QUICK, Effort, Wanted
from release_side import publish

SHORT = Effort(0.1)
ROWS = hospital(2000)


def rows_of(domain: Domain, noise: float = 0.002, *, effort: Effort = SHORT) -> Array:
    """Encoded rows that fit all margins of a table, measured with this noise."""
    measurement = measured(MarginFeatures(margin_kernel(domain)), domain.encode(ROWS), noise_scale=noise)
    return represent(measurement, domain, Wanted(n_points=1500, effort=effort))[0]


def mean_distance(domain: Domain, rows: Array, others: Array) -> float:
    """Mean total variation distance of the tables of all pairs of columns."""
    kernel = one_way_kernel(domain, tuple(range(len(domain))), ranged=True).kernel
    assert isinstance(kernel, Margins)
    first, second, sizes = kernel.cells(rows), kernel.cells(others), kernel.sizes
    found = []
    for i, j in combinations(range(len(domain)), 2):
        cells = sizes[i] * sizes[j]
        p, q = (np.bincount(c[:, i] * sizes[j] + c[:, j], minlength=cells) / len(c) for c in (first, second))
        found.append(0.5 * np.abs(p - q).sum())
    return float(np.mean(found))


@every(("rules", "noise"), [((ORDER,), 0.05), ((PLACES,), 0.05), ((ORDER, STAY), 0.001), (RULES, 0.001), (RULES, 0.05)])
def test_rows_of_all_margins_keep_every_kind_of_rule(rules: tuple[Rule, ...], noise: float):
    domain = with_rules(*rules)
    rows = rows_of(domain, noise, effort=QUICK)
    assert not rules_of(domain).broken(rows).any()
    assert share_broken(domain, domain.decode(rows)) == 0


def test_without_rules_rows_of_this_measurement_break_all_of_them():
    broken = rules_of(HOSPITAL).broken_by(rows_of(replace(HOSPITAL, rules=()), 0.002))
    assert (broken.mean(axis=0) > 0.005).all()


@every(
    "options",
    [{"float32": True, "target": "employed"}, {"kernel": "margins", "noise": "laplace", "delta": 0.0},
     {"workload": ["age | employed == 'yes'", "table(city, education)", "stay > 7"]}],
)  # fmt: skip
def test_published_rows_keep_the_rules(options: dict[str, object], rough_representation: None):
    release = publish(ROWS, HOSPITAL, **({"epsilon": 1.0, "delta": 1e-6, "rehearsal": 1, "points": 300} | options))  # type: ignore[arg-type]
    assert share_broken(HOSPITAL, release.frame) == 0
    assert share_broken(HOSPITAL, release.resample(500, rng=0)) == share_broken(HOSPITAL, release.thin(10).frame) == 0


def test_releases_of_units_keep_the_rules(rough_representation: None):
    owners = ROWS.assign(patient=np.arange(len(ROWS)) // 3)
    release = publish(owners, HOSPITAL, epsilon=1.0, delta=1e-6, rehearsal=2, points=300, unit="patient")
    assert share_broken(HOSPITAL, release.frame) == 0


@every("noise", [0.003, 0.02])
def test_tables_fit_no_worse_with_rules(noise: float):
    plain, truth = with_rules(), with_rules().encode(ROWS)
    ruled = with_rules(NEVER, CHILDREN, HOURS, ORDER, WAGE, PLACES)
    without, having = (mean_distance(plain, rows_of(domain, noise), truth) for domain in (plain, ruled))
    assert having < without


def test_a_derived_value_lies_in_the_cell_that_was_drawn_for_it():
    rows = rows_of(HOSPITAL, 0.001)
    truth = HOSPITAL.encode(ROWS)
    j = HOSPITAL.position("stay")
    ends = [1, 3, 7, 14, 30]
    for end in ends:
        assert abs((rows[:, j] < end).mean() - (truth[:, j] < end).mean()) < 0.03
    assert (rows[:, j] == rows[:, j + -1] - rows[:, j - 2]).all()


CHAIN = Domain(
    (
        Categorical(name="a", levels=("p", "q", "r")),
        Categorical(name="b", levels=("p", "q", "r")),
        Categorical(name="c", levels=("p", "q", "r")),
        Integer(name="d", lower=0, upper=9),
    ),
    rules=(
        Rule("always", "(a == 'p') == (b == 'q')"),
        Rule("always", "(b == 'q') == (c == 'r')"),
        Rule("never", "c == 'r' and d > 3"),
    ),
)


def test_the_sides_of_a_narrow_difference_are_drawn_from_each_other():
    """Half of the pays stay: of draws in ranges of thousands hardly any are equal, and a third of the rows were, not half."""
    rng = np.random.default_rng(0)
    old = np.exp(rng.normal(10, 0.6, 4000)).clip(1000, 90_000).round()
    new = old + np.where(rng.random(4000) < 0.5, 0, rng.integers(1, 900, 4000))
    edges = (5_000, 10_000, 20_000, 30_000, 40_000, 60_000)
    sides = [Integer(name=name, lower=500, upper=100_000, scale="log", edges=edges) for name in ("old", "new")]
    rise = Integer(name="rise", lower=-100, upper=1000, edges=(0, 1, 300, 600))
    domain = Domain((*sides, rise), rules=(Rule("derive", "new - old", ("rise",)),))
    table = domain.encode(pd.DataFrame({"old": old, "new": new}))
    measurement = measured(MarginFeatures(margin_kernel(domain)), table, noise_scale=0.001)
    found = domain.decode(represent(measurement, domain, Wanted(n_points=1500, effort=SHORT))[0])
    same = found[found.new == found.old]
    assert 0.47 < len(same) / len(found) < 0.53 and same.old.nunique() > 500
    assert ((found.new - found.old).clip(-100, 1000) == found.rise).all()


def test_a_chain_of_rules_ties_columns_that_no_rule_names_together():
    kernel = margin_kernel(CHAIN)
    allowed = allowed_cells(CHAIN, kernel)
    assert allowed is not None
    together = allowed.together(0, 3)
    assert not together[0, 4:].any() and together[1:].all() and together[0, :4].all()


def chain(n: int, rng: np.random.Generator) -> Array:
    first = rng.random(n) < 0.4
    a = np.where(first, 0, rng.integers(1, 3, n))
    b = np.where(first, 1, rng.choice([0, 2], n))
    c = np.where(first, 2, rng.integers(0, 2, n))
    d = np.where(first, rng.integers(0, 4, n), rng.integers(0, 10, n))
    return np.column_stack([a, b, c, d]).astype(float)


def test_noisy_shares_of_tied_columns_are_made_to_agree():
    rng = np.random.default_rng(0)
    truth = chain(20_000, rng)
    measurement = measured(MarginFeatures(margin_kernel(CHAIN)), truth, noise_scale=0.02)
    allowed = allowed_cells(CHAIN, margin_kernel(CHAIN))
    assert allowed is not None
    before = estimate_tables(measurement, allowed)
    cells = draw_cells(before, 4000, rng, allowed)
    after, cells = rake_cells(before, cells, allowed, rng)
    noisy, tied = ([each.ones[j][j] for j in range(3)] for each in (before, after))
    assert np.ptp(noisy) > 0.003 and np.ptp(tied) < 1e-9
    assert min(noisy) < tied[0] < max(noisy)
    moved = move_cells(after, cells, rng, sweeps=30, allowed=allowed)
    assert allowed.keeps(moved).all()
    assert abs((moved[:, 0] == 0).mean() - tied[0]) < 0.02


def test_tied_columns_move_together_to_their_estimated_share():
    """Rows that start with half of the share can only reach it by moves of three columns at once."""
    rng = np.random.default_rng(1)
    estimates = estimate_tables(measured(MarginFeatures(margin_kernel(CHAIN)), chain(20_000, rng), noise_scale=1e-4))
    allowed = allowed_cells(CHAIN, margin_kernel(CHAIN))
    start = chain(4000, rng)
    start = np.vstack([start[start[:, 0] == 0][:500], start[start[:, 0] != 0][:2000]]).astype(np.intp)
    moved = move_cells(estimates, start, rng, sweeps=100, allowed=allowed)
    assert (start[:, 0] == 0).mean() == 0.2
    assert abs((moved[:, 0] == 0).mean() - 0.4) < 0.04


def test_a_level_that_rules_exclude_has_no_mass_whatever_its_noisy_share():
    domain = replace(CHAIN, rules=(Rule("never", "a == 'q'"),))
    rows = np.random.default_rng(0).integers(0, 3, (2000, 4)).astype(float)
    rows[:, 0] = np.where(rows[:, 0] == 1, 1, rows[:, 0])  # a third of the private rows break the rule
    features = MarginFeatures(margin_kernel(domain))
    found, _ = represent(measured(features, rows, noise_scale=0.01), domain, Wanted(n_points=900, effort=SHORT))
    assert not (found[:, 0] == 1).any()
    assert abs((found[:, 0] == 0).mean() - 0.5) < 0.05


def test_a_range_is_not_allowed_for_its_end_alone():
    """Of [33, 100) x == 33 alone goes with u: no row is drawn there, and no heap of rows at 33 comes about."""
    domain = Domain(
        (Real(name="x", lower=0.0, upper=100.0), Categorical(name="y", levels=("u", "v"))),
        rules=(Rule("never", "x > 33 and y == 'u'"),),
    )
    kernel = margin_kernel(domain)
    allowed = allowed_cells(domain, kernel)
    assert allowed is not None
    below = np.searchsorted(kernel.edges[0], 32.0, side="right")
    assert allowed.together(0, 1)[: below + 1].all() and not allowed.together(0, 1)[below + 1 :, 0].any()
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 100, 4000)
    rows = np.column_stack([x, (x > 33) | (rng.random(4000) < 0.5)]).astype(float)
    measurement = measured(MarginFeatures(kernel), rows, noise_scale=0.01)
    found, _ = represent(measurement, domain, Wanted(n_points=2000, effort=SHORT))
    assert not rules_of(domain).broken(found).any()
    assert np.unique(found[:, 0], return_counts=True)[1].max() < 10


def test_a_row_for_which_no_values_were_found_takes_those_of_another():
    rows = CHAIN.draw(200, 0)
    broken = rules_of(CHAIN).broken(rows)
    kept = without_broken(rows, CHAIN, np.random.default_rng(0))
    assert broken.any() and not rules_of(CHAIN).broken(kept).any()
    assert np.array_equal(kept[~broken], rows[~broken])
    assert not rules_of(CHAIN).broken(without_broken(rows[broken], CHAIN, np.random.default_rng(0))).any()


def estimates_of(*rules: Rule) -> tuple[AllowedCells, TableEstimates]:
    """Of the chain's domain with other rules, drawn from rows that keep none of them."""
    domain = replace(CHAIN, rules=rules)
    kernel = margin_kernel(domain)
    allowed = allowed_cells(domain, kernel)
    assert allowed is not None and allowed.any_left
    return allowed, estimate_tables(measured(MarginFeatures(kernel), domain.draw(500, 0), noise_scale=0.01))


def test_drawn_rows_that_are_stuck_take_the_row_that_was_found_before_and_without_one_rules_are_refused():
    """No row is drawn with a == 'q', c == 'q' and d == 9: the private rows are even, and tables do not know the rule."""
    allowed, estimates = estimates_of(Rule("always", "a == 'q' and b == 'q' and c == 'q' and d == 9"))
    stuck = replace(allowed, tables=tuple((columns, table & False) for columns, table in allowed.tables))
    cells = draw_cells(estimates, 50, np.random.default_rng(0), stuck)
    assert allowed.keeps(cells).all() and (cells == [1, 1, 1, 9]).all()
    assert not stuck.any_left
    with pytest.raises(DomainError, match=r"no row keeps all rules .* exclude everything\. Leave one out"):
        draw_cells(estimates, 50, np.random.default_rng(0), replace(stuck, row=lambda: None))


def test_rows_that_are_stuck_take_the_cells_of_others_that_keep_the_rules():
    allowed, estimates = estimates_of(Rule("never", "a == 'r'"), Rule("never", "b == 'p' and c == 'p' and d == 0"))
    cells = draw_cells(estimates, 50, np.random.default_rng(0), allowed)
    assert allowed.keeps(cells).all() and set(cells[:, 0]) == {0, 1}


@st.composite
def ruled_domains(draw: st.DrawFn) -> tuple[Domain, int]:
    """Three columns of levels and two of numbers, with up to five rules that some row keeps; and a seed."""
    numbers = (Integer(name="m", lower=0, upper=20, missing=True), Integer(name="n", lower=0, upper=20))
    levels = tuple(Categorical(name=name, levels=("u", "v", "w")) for name in "abc")
    level = st.builds("{} == '{}'".format, st.sampled_from("abc"), st.sampled_from("uvw"))
    number = st.builds("{} {} {}".format, st.sampled_from("mn"), st.sampled_from(["<", ">=", "=="]), st.integers(1, 19))
    atom = st.one_of(level, number, st.just("missing(m)"), st.just("m > n"), st.just("n >= m"))
    condition = st.builds("({}) {} ({})".format, atom, st.sampled_from(["and", "or"]), atom)
    pairs = st.lists(st.tuples(st.sampled_from("uvw"), st.sampled_from("uvw")), min_size=2, max_size=6, unique=True)
    rule = st.one_of(
        st.builds(Rule, st.just("never"), condition),
        st.builds(Rule, st.just("always"), condition),
        st.builds(lambda text: Rule("missing", text, ("m",)), level),
        st.builds(lambda rows: Rule("combinations", columns=("a", "b"), rows=tuple(rows)), pairs),
    )
    rules = draw(st.lists(rule, min_size=1, max_size=5))
    domain = Domain((*levels, *numbers))
    try:
        domain = replace(domain, rules=tuple(rules))
        check_kept(domain)
    except DomainError:
        assume(False)  # refused before a table is opened
    return domain, draw(st.integers(0, 100))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(ruled_domains())
def test_no_row_breaks_a_rule_whatever_the_rules(case: tuple[Domain, int]):
    domain, seed = case
    rows = domain.draw(300, seed)
    features = MarginFeatures(adaptive_kernel(domain))
    found, _ = represent(measured(features, rows, noise_scale=0.01), domain, Wanted(n_points=200, effort=Effort(0.02), rng=seed))
    assert not rules_of(domain).broken(found).any()
