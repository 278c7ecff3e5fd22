"""The margins kernel and its features: complete one-way and two-way tables, cut as the domain says, and their file."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from contracts import COLUMNS, FEATURE_MAPS, FeatureCase, every
from kernel_cases import WORKERS as PEOPLE
from kernel_cases import workers as people

import release_side
from kmeanalyst.kernels import ChosenMargins, Gaussian, KernelMean, Margins, SoftenedProduct, kernel_from_dict
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Number, Real
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.file import FileRefused
from kmeanalyst.releases.file.kernel import check_kernel, kernel_work
from kmeanalyst.releases.file.measurement import FEATURE_MAPS as MAPS_IN_FILES
from kmeanalyst.representation import wanted
from release_side.door import door
from release_side.door.mechanism import PublishError

every_map = every([case for case in FEATURE_MAPS if case.family == "margins"])


@every_map
def test_features_have_one_cell_in_every_table_and_the_kernel_as_their_inner_product(case: FeatureCase):
    rows, features = case.case.rows(np.random.default_rng(0), 60), case.build(0)
    assert isinstance(features, MarginFeatures)
    values, compact = features(rows), features.compact(rows)
    np.testing.assert_allclose(values @ values.T, case.case.kernel.gram(rows, rows), atol=1e-12)
    for group in features.groups:
        own = values[:, group.start : group.stop]
        np.testing.assert_array_equal((own != 0).sum(axis=1), len(group.tables))
        assert set(np.unique(own)) == {0.0, *np.sqrt(group.squares)}
    np.testing.assert_array_equal(compact.toarray(), values)
    assert compact.nnz == 60 * features.width


def test_the_mean_feature_is_the_tables_counts():
    """Against pandas: every cell of every one- and two-way table, and of finer ones."""
    kernel = margin_kernel(PEOPLE)
    features = MarginFeatures(kernel)
    assert [group.kind for group in features.groups] == ["one-way", "pairs", "finer"]
    rows = PEOPLE.encode(people(300, np.random.default_rng(2)))
    cells = pd.DataFrame(np.hstack([kernel.cells(rows), kernel.fine_cells(rows)]))
    sizes = (*kernel.sizes, *kernel.fine_sizes)
    mean = features(rows).mean(axis=0)
    for group in features.groups:
        counts = []
        for table in group.tables:
            for index in product(*(range(sizes[j]) for j in table)):
                counts.append(np.logical_and.reduce([cells[j] == i for j, i in zip(table, index, strict=True)]).sum())
        np.testing.assert_allclose(mean[group.start : group.stop] / group.height * 300, counts, atol=1e-9)


def test_wide_tables_are_cut_more_coarsely_and_too_wide_ones_refused():
    def domain(columns: int) -> Domain:
        numbers = tuple(Real(name=f"x{i}", lower=0, upper=1) for i in range(columns - 1))
        return Domain((*numbers, Categorical(name="class", levels=("a", "b"))))

    assert set(margin_kernel(domain(20)).sizes) == {12, 2}
    wide = margin_kernel(domain(150))
    assert set(wide.sizes) == {9, 2} and sum(wide.fine_sizes) < 22_000
    with pytest.raises(DomainError, match=r"more than 1,000,000 cells.* use the kernel \"table\""):
        margin_kernel(domain(400), noise=1e-6)
    with pytest.raises(DomainError, match="more than 1000 columns"):
        margin_kernel(domain(1002))


def test_noise_raises_the_tables_that_are_few():
    """By whole steps, so that releases of much the same size share a kernel."""
    kernels = [margin_kernel(PEOPLE, noise) for noise in (1e-6, 1.6e-4, 2e-4, 1.3e-3, 5e-3)]
    alone = [kernel.shares[0] / kernel.shares[1] * 6 / 4 for kernel in kernels]
    np.testing.assert_allclose(np.sqrt(alone), [1, 1.5, 1.5, 3, 4])
    assert kernels[1] == kernels[2]


def test_finer_ranges_are_a_value_each_where_there_are_few():
    kernel = margin_kernel(PEOPLE)
    assert kernel.finer == (0, 1) and kernel.fine_sizes == (99 + 1, 300 + 1)  # hours and its atom; gain, missing
    hours = kernel.fine_cells(PEOPLE.encode(people(200, np.random.default_rng(6))))[:, 0]
    assert set(kernel.edges[1]) <= set(kernel.fine[1])
    np.testing.assert_array_equal(np.diff(kernel.fine[0]), 1.0)
    assert hours.max() <= 99
    assert not any(margin_kernel(Domain((Integer(name="few", lower=0, upper=9), PEOPLE["city"]))).fine)


def test_cells_are_ranges_atoms_and_missing_cells():
    kernel = margin_kernel(PEOPLE)
    frame = pd.DataFrame({
        "hours": [1, 19, 20, 39, 40, 41, 99, 40], "gain": [0, 8.3, 8.4, 99.9, 100, None, 50, 0],
        "city": ["Basel", "Genf", "Zug"] * 2 + ["Zug"] * 2, "rich": ["no", "yes"] * 4,
    })  # fmt: skip
    cells = kernel.cells(PEOPLE.encode(frame))
    assert kernel.edges[0] == (19.5, 39.5, 40.5)
    np.testing.assert_array_equal(cells[:, 0], [0, 0, 1, 1, 4, 3, 3, 4])  # 40 is an atom, next to its own range
    np.testing.assert_array_equal(cells[:, 1], [0, 0, 1, 11, 11, 12, 6, 0])
    np.testing.assert_array_equal(cells[:, 2], [0, 1, 2, 0, 1, 2, 2, 2])


def test_a_missing_cell_that_is_not_declared_is_in_the_first_range():
    kernel = Margins(((0.0,), (0.0,)), ((), (1.0,)), (False, False), (1.0, 0, 0))
    assert kernel.cells(np.array([[np.nan, np.nan], [1.0, 1.0]])).tolist() == [[0, 0], [1, 2]]


@pytest.mark.parametrize("column", [c for c in COLUMNS if isinstance(c, Number)], ids=lambda column: column.name)
def test_edges_of_whole_numbers_lie_half_a_step_below_them(column: Number):
    """No value is on an edge, so that rounding moves none across; a real number at an edge is above it."""
    low, high = column.ends
    assert low <= column.bounds[0] < column.bounds[1] <= high
    if column.kind not in ("real", "cyclic"):
        assert low < column.bounds[0] and column.bounds[1] < high
        middle = "2010-01-01" if isinstance(column, Date) else 40
        (edge,), codes = column.cuts([middle]), column.encode(pd.Series([str(middle)]))[0]
        assert edge < codes[0] and edge > low


def test_ranges_chosen_for_a_column_of_steps_end_between_its_values():
    """Ages 9 to 98 in twelve even ranges would be cut at 31 itself: half of that year's range would hold no value."""
    column = Integer(name="age", lower=9, upper=98)
    kernel = margin_kernel(Domain((column,)))
    for edges in (kernel.edges[0], kernel.fine[0]):
        np.testing.assert_array_equal(np.mod(edges, 1.0), 0.5)
    assert len(kernel.edges[0]) == 11
    every_age = np.arange(9.0, 99.0)[:, None]
    assert len(np.unique(kernel.fine_cells(every_age))) == len(every_age) == kernel.fine_sizes[0]


def test_shares_follow_the_heights_and_the_number_of_tables():
    np.testing.assert_allclose(margin_kernel(PEOPLE).shares, np.array([4 * 9, 6, 2]) / 44)
    assert margin_kernel(Domain((PEOPLE["city"],))).shares == (1.0, 0.0, 0.0)


def test_pairs_of_a_target_are_three_tenths_more_of_what_pairs_have():
    even, named = margin_kernel(PEOPLE), kernel_from_spec("margins", PEOPLE, "city")
    assert isinstance(named, ChosenMargins) and named.chosen == even.pairs and named.shares == even.shares
    assert named.squared_heights[0] == even.squared_heights[0] and named.squared_heights[2] == even.squared_heights[2]
    own = np.array([square for pair, square in zip(named.chosen, named.squares[1], strict=True) if 2 in pair])
    np.testing.assert_allclose(own, even.shares[1] * (0.7 / 6 + 0.3 / 3))
    assert kernel_from_spec("margins", Domain(PEOPLE.columns[:2]), "hours") == margin_kernel(Domain(PEOPLE.columns[:2]))
    assert kernel_from_dict(named.to_dict()) == named


PARTS: dict[str, Any] = {
    "edges": ((0.5,), (1.0, 2.0)), "atoms": ((), ()), "missing": (False, True), "shares": (1, 0, 0),
}  # fmt: skip
MANY = {"edges": ((),) * 1001, "atoms": ((),) * 1001, "missing": (False,) * 1001}


def test_what_is_no_margins_kernel_is_refused():
    refusals.check(Path(__file__).parent / "refusals_margins.txt", lambda text: Margins(**(PARTS | eval(text, globals()))))


def publish(frame: pd.DataFrame, **options: Any) -> Any:
    return release_side.publish(
        frame.astype(str).replace("nan", ""), PEOPLE, **({"epsilon": 2.0, "delta": 1e-6, "kernel": "margins"} | options)
    )


SUBSPACE = {"method": "subspace", "points": 20}
DEFAULTS: list[tuple[dict[str, Any], type]] = [
    ({}, ChosenMargins), ({"target": "rich"}, ChosenMargins), ({"features": 50}, SoftenedProduct), (SUBSPACE, SoftenedProduct),
    ({"public_points": people(30, np.random.default_rng(1)), "points": 20}, SoftenedProduct),
    ({"kernel": "table"}, SoftenedProduct), (SUBSPACE | {"kernel": Gaussian(3.0)}, Gaussian),
]  # fmt: skip


@every(DEFAULTS, DEFAULTS[-1:], of="options, kind")
def test_margins_are_the_default_but_for_choices_of_other_features(rough_representation, options: dict[str, Any], kind: type):
    frame = people(200, np.random.default_rng(9))
    assert isinstance(publish(frame, **({"kernel": None} | options)).kernel, kind)


def test_a_kernel_given_as_it_is_stays_so(rough_representation):
    for mine in (margin_kernel(PEOPLE, noise=1e-6), kernel_from_spec("margins", PEOPLE, "city")):
        assert publish(people(200, np.random.default_rng(9)), kernel=mine, points=10).kernel == mine
    assert publish(people(200, np.random.default_rng(9)), points=10).kernel != margin_kernel(PEOPLE, noise=1e-6)


def test_higher_noise_is_met_by_higher_one_way_tables(rough_representation):
    """By ε, and by the noise's distribution: what counts is how much noise there will be."""
    frame = people(2000, np.random.default_rng(9))

    def share(**options: Any) -> float:
        return publish(frame, points=10, weak=True, **options).kernel.shares[0]

    assert share(epsilon=100.0) < share(epsilon=5.0) < share(epsilon=0.01)
    of_laplace = share(epsilon=60.0, noise="laplace", delta=0)  # there is less of it where tables are few
    assert of_laplace < share(epsilon=60.0)


def test_three_way_relations_to_the_target_are_kept(monkeypatch: pytest.MonkeyPatch):
    """Long hours and Zug make rich, neither alone: pairs cannot say so, the table of the three does."""
    monkeypatch.setattr(wanted, "EFFORT", wanted.Effort(0.15))
    frame = people(8000, np.random.default_rng(6))
    release = publish(frame, target="rich", kernel=None, epsilon=4.0, rehearsal=2, points=800)
    where = [f"hours > 40 and city == '{city}'" for city in ("Zug", "Basel")]
    zug, basel = (release.probability("rich == 'yes'", where=condition).value for condition in where)
    assert zug - basel > 0.7  # in truth 0.8


@every([
    ({"kernel": "table", "target": "rich"}, 'target goes with the kernels "adaptive"'),
    ({"kernel": "margins:degree=3"}, "takes no parameters"), ({"features": 100}, "one feature for each cell"),
    ({"public_points": people(5, np.random.default_rng(0))}, "no use for public points"),
    ({"target": "wealth"}, "no column 'wealth'. Name one of"),
], of="options, message")  # fmt: skip
def test_choices_that_mean_nothing_for_margins_are_refused(options: dict[str, Any], message: str):
    with pytest.raises((PublishError, DomainError), match=message):
        publish(people(50, np.random.default_rng(8)), **options)


def test_a_file_whose_margins_are_not_those_of_its_columns_is_refused():
    for kernel, arrays in ((Gaussian(1.0), {}), (margin_kernel(PEOPLE), {"linear": np.zeros((4, 2))})):
        with pytest.raises(FileRefused, match="features of the margins kernel, which have no arrays"):
            MAPS_IN_FILES["margins"](kernel, PEOPLE, arrays)
    with pytest.raises(FileRefused, match="these margins are of 2 columns"):
        check_kernel(margin_kernel(Domain(PEOPLE.columns[:2])), PEOPLE, people(9, np.random.default_rng(9)))


def test_finer_ranges_that_are_none_of_the_columns_are_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch):
    """By the reader's check, which publish makes before it opens the door."""
    monkeypatch.setattr(door, "private_mean", None)
    for j, fine in ((2, (0.5,)), (1, (-3.0, 5.0)), (1, (5.0, 100.0))):
        kernel = replace(margin_kernel(PEOPLE), fine=tuple(fine if k == j else () for k in range(4)))
        what = f"finer ranges of column {PEOPLE.names[j]}"
        with pytest.raises(FileRefused, match=what):
            MAPS_IN_FILES["margins"](kernel, PEOPLE, {})
        with pytest.raises(PublishError, match=what):
            publish(people(50, np.random.default_rng(8)), kernel=kernel, points=10)


def test_deeper_ranges_that_are_none_of_a_tree_are_refused():
    tree = Tree(name="code", parents={"a1": "a", "a2": "a", "b1": "b"})
    deeper = ((1, (0.5, 1.5, 3.0)),)
    kernel = Margins(((0.5,), (1.5,)), ((), ()), (False,) * 2, (0.6, 0, 0.4), fine=((), (0.5, 1.5)), deeper=deeper)
    domain = Domain((Categorical(name="sex", levels=("F", "M")), tree))
    MAPS_IN_FILES["margins"](replace(kernel, deeper=()), domain, {})
    for wrong in (domain, Domain((domain.columns[0], Categorical(name="code", levels=tuple("wxyz"))))):
        with pytest.raises(FileRefused, match="finer ranges of column code that are no ranges of numbers or codes"):
            MAPS_IN_FILES["margins"](kernel, wrong, {})


def test_deeper_tables_are_in_a_header_where_there_are_some():
    kernel = Margins(**(PARTS | {"fine": ((0.5, 0.7), ()), "shares": (0.5, 0, 0.5)}))
    assert "deeper" not in kernel.to_dict() and kernel_from_dict(kernel.to_dict()) == kernel
    deeper = replace(kernel, deeper=((0, (0.5, 0.7, 0.9)), (0, (0.5, 0.6, 0.7, 0.9))))
    assert kernel_from_dict(deeper.to_dict()) == deeper
    assert kernel_work(deeper, 2) == kernel_work(kernel, 2) + 2
    assert deeper.finer == (0, 0, 0) and deeper.fine_sizes == (3, 4, 5) and deeper.n_tables == 5


def test_too_many_cells_are_refused_with_what_the_domain_must_change():
    levels = tuple(map(str, range(60_000)))
    domain = Domain((Categorical(name="id", levels=levels), Categorical(name="other", levels=levels)))
    with pytest.raises(DomainError, match=r"at most 100000 cells.*fewer levels"):
        margin_kernel(domain)


def test_sums_over_pairs_of_rows_are_not_counted_where_the_tables_are_too_many():
    """A small file must not ask for the memory of a large one."""
    ranges = tuple(np.arange(2000.0).tolist())
    kernel = Margins((ranges, ranges), ((), ()), (False, False), (0, 1.0, 0))
    rows, weights = np.random.default_rng(0).uniform(-1, 2001, (6, 2)), np.full(6, 1 / 6)
    assert kernel.n_cells > 10**6 and kernel.mean_product(rows, weights, rows, weights) is None
    assert KernelMean(kernel, rows).squared_norm() == pytest.approx(1 / 6)


def test_finer_ranges_are_lists_or_nothing():
    header = margin_kernel(PEOPLE).to_dict()
    for fine in (None, 0, "", False):
        with pytest.raises((ValueError, TypeError)):
            kernel_from_dict(header | {"fine": fine})
    without = header | {"fine": [], "shares": [1, 0, 0]}  # a kernel without any, of which no list is written
    assert kernel_from_dict(without).fine == ((),) * 4


def test_of_many_columns_every_declared_edge_is_not_kept():
    """Of 60 columns all twelve ranges are; of 150 there would be more than a million cells, and nine of them are left."""
    cuts = tuple(range(5, 60, 5))
    for columns, ranges in ((60, 12), (150, 9)):
        domain = Domain(tuple(Integer(name=f"x{j}", lower=0, upper=99, edges=cuts) for j in range(columns)))
        edges = margin_kernel(domain).edges
        assert len(edges[0]) == ranges - 1 and len(set(edges)) == 1
        assert {edge + 0.5 for edge in edges[0]} <= set(cuts) and {4.5, 54.5} <= set(edges[0])


@pytest.mark.parametrize("step", [None, 0.1])
def test_no_range_of_a_number_without_edges_is_narrower_than_others(step):
    """From -11 to 8.4 twelve widths add up to less than the whole, by rounding."""
    for low, high in [(-11.0, 8.4), (-9.2, 3.1), (0.1, 0.7), (-13.9, 4.2), (1.4, 17.0)]:
        column = Real(name="x", lower=low, upper=high, step=step)
        kernel = margin_kernel(Domain((column,)))
        for edges in (kernel.edges[0], *(own for _, own in kernel.finer_tables)):
            widths = np.diff([column.ends[0], *edges, column.ends[1]])
            assert widths.min() > 0.3 * widths.mean()
