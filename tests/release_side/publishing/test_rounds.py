"""Rounds of adaptive margins, of every kind: they spend what was declared, and what cannot be finished is refused before the door.

What the rounds ask for follows from public facts and from noisy answers. The same requests are answered again on neighbours, and
the exact answers compared with the allowances; of draws the losses of both neighbours, in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.measurement import GRID, SHRINK, Measurement, cells_of_all_pairs
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.tables.tree import connected_parts
from release_side.choices.choices import Choices
from release_side.door import door as door_module
from release_side.door.door import Door
from release_side.door.mechanism import RehearsalNoise, noise_for
from release_side.door.private_tables import TableRounds, count_tables
from release_side.errors import PublishError
from release_side.private_rows.unit_rows import UnitRows
from release_side.publishing import simulated
from release_side.publishing.methods import chosen_method
from release_side.publishing.methods.adaptive import rounds as rounds_module
from release_side.publishing.methods.adaptive.method import AdaptiveMargins, _most_numbers
from release_side.publishing.methods.adaptive.rounds import Rounds
from release_side.publishing.methods.adaptive.shares_of_rounds import PARTS_OF_TREE, most_cells, most_drawn, shares_of_rounds
from release_side.publishing.simulated import SimulatedDoor, SyntheticRows


def levels(name: str, n: int) -> Categorical:
    return Categorical(name=name, levels=tuple(map(str, range(n))))


def columns(n: int) -> Domain:
    """Columns of 1 to 5 levels and numbers, by turns."""
    kinds = (
        lambda name: levels(name, 3), Boolean, lambda name: levels(name, 1), lambda name: levels(name, 5),
        lambda name: ka.Integer(name=name, lower=0, upper=20, missing=True),
    )  # fmt: skip
    return Domain(tuple(kinds[k % 5](name=f"c{k}") for k in range(n)))  # type: ignore[operator]


def adaptive(domain: Domain, **choice: Any) -> Any:
    return chosen_method("random-features", Choices(**{"kernel": "adaptive", **choice}), domain)


def edged(n: int) -> Domain:
    """Numbers of twenty declared ranges, and levels, by turns."""
    edges = tuple(range(5, 100, 5))
    return Domain(tuple(
        levels(f"c{k}", 4) if k % 2 else ka.Integer(name=f"c{k}", lower=0, upper=99, edges=edges, missing=True)
        for k in range(n)
    ))  # fmt: skip


ALL_PAIRS = [f"table(c{i}, c{j})" for i, j in combinations(range(6), 2)]
KINDS: dict[str, tuple[Domain, int, float, dict[str, Any], int]] = {  # columns, rows, ε, choices, rounds
    "one column": (columns(1), 1000, 1.0, {}, 1),
    "few columns": (columns(3), 1000, 1.0, {}, 2),
    "few columns and a larger set": (Domain(tuple(levels(f"c{k}", k + 2) for k in range(4))), 10_000, 1.0, {"target": "c1"}, 5),
    "no pairs": (columns(8), 100, 0.1, {}, 1),
    "drawn pairs": (columns(9), 400, 1.0, {}, 3),
    "scores": (columns(8), 10_000, 1.0, {}, 8),
    "scores and a target": (columns(20), 10_000, 1.0, {"target": "c3"}, 8),
    "small noise": (columns(8), 10_000, 100.0, {}, 8),
    "two pairs of a workload": (columns(8), 10_000, 1.0, {"workload": ["table(c0, c3)", "table(c1, c4)", "c4 > 7"]}, 8),
    "all pairs of a workload": (columns(6), 10_000, 1.0, {"workload": ALL_PAIRS}, 5),
    "a number as target": (columns(8), 10_000, 1.0, {"target": "c4"}, 5),
    "two targets": (columns(20), 10_000, 1.0, {"target": ("c0", "c4")}, 8),
    "many columns": (columns(31), 10_000, 1.0, {}, 9),
    "many columns and a target": (columns(31), 10_000, 1.0, {"target": "c1"}, 9),
    "many columns and a workload": (columns(31), 10_000, 1.0, {"workload": ["table(c0, c3)", "table(c1, c4)"]}, 9),
    "nine columns of two levels": (Domain(tuple(levels(f"c{k}", 2) for k in range(9))), 10_000, 1.0, {}, 8),
    "scores by zcdp": (columns(8), 10_000, 1.0, {"calibration": "zcdp"}, 8),
    "drawn pairs and a target": (columns(9), 400, 1.0, {"target": "c3"}, 3),
    "drawn pairs and a workload": (columns(9), 400, 1.0, {"workload": ["table(c0, c3)", "c4 > 7"]}, 3),
    "a target and a workload": (columns(8), 10_000, 1.0, {"target": "c3", "workload": ["table(c0, c4)", "c1", "c4 > 7"]}, 5),
    "merged ranges": (edged(20), 10_000, 1.0, {"target": "c0"}, 8),
    "merged ranges of few rows": (edged(9), 400, 1.0, {"target": "c0"}, 3),
    "merged ranges of many columns": (edged(31), 10_000, 1.0, {"target": "c0"}, 9),
    "many columns, a target and a workload": (columns(31), 10**4, 1, {"target": "c1", "workload": ["table(c0, c3)", "c4 > 7"]}, 9),
    "two targets of many columns": (columns(40), 10_000, 1.0, {"target": ("c0", "c4")}, 9),
}  # fmt: skip
LARGE = {  # 20 merged columns, and 31 with a workload, stay in the default tier
    "scores and a target", "two targets", "many columns", "many columns and a target", "merged ranges of many columns",
    "many columns, a target and a workload", "two targets of many columns",
}  # fmt: skip
EVERY_KIND = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in LARGE else []) for kind in KINDS]
)


def prepared(kind: str) -> tuple[AdaptiveMargins, Domain, PopulationSize, RehearsalNoise, MarginFeatures]:
    domain, rows, epsilon, choice, _ = KINDS[kind]
    noise = noise_for("gaussian", epsilon, 1e-6, calibration=choice.get("calibration"), rehearsal=1)
    method = adaptive(domain, **choice)
    assert isinstance(method, AdaptiveMargins) and isinstance(noise, RehearsalNoise)
    everything = method.prepare(domain, PopulationSize(rows), noise)
    assert isinstance(everything, MarginFeatures)
    return method, domain, PopulationSize(rows), noise, everything


def related_rows(domain: Domain, n: int) -> Array:
    """Rows of which each column repeats another in part; the third column of levels is constant."""
    rng = np.random.default_rng(0)
    rows = np.array(domain.draw(n, rng))
    for j in range(1, rows.shape[1]):
        high = domain.columns[j].bounds[1] if domain.columns[j].is_number else len(domain.columns[j].levels) - 1  # type: ignore[attr-defined]
        rows[:, j] = np.where(rng.random(n) < 0.5, rows[:, j], np.minimum(np.nan_to_num(rows[:, j - 1]), high))
    return rows


def grouped(units: Array, rows: Array) -> list[UnitRows]:
    """One piece of the rows of all units."""
    return [UnitRows.grouped(rows, np.asarray(units, dtype=np.int64)[:, None])]


class Watched(TableRounds):
    """Rounds that keep what was asked: the part of each allowance that was used; and functions of counts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.used: list[float] = []
        self.asked: list[tuple[float, Callable[[Array], Array], float, int]] = []  # allowance, exact; of draws b, count

    def _next_round(self, moved: float, exact: Callable[[Array], Array]) -> Array:
        self.used.append(moved / self.allowances[self.made])
        self.asked.append((self.allowances[self.made], exact, 0.0, 0))
        return super()._next_round(moved, exact)

    def choose(self, wanted: Array, guesses: Array, step: int, *, costs: Array, count: int) -> tuple[Array, float]:
        allowance, exact = self.allowances[self.made], self._scored(wanted, guesses, step)[0]
        found = super().choose(wanted, guesses, step, costs=costs, count=count)
        self.used.append(1.0)  # the door takes the least scale that the allowance covers
        self.asked.append((allowance, exact, found[1], count))
        return found


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    made: list[Watched] = []

    class Kept(Watched):
        def __post_init__(self) -> None:
            super().__post_init__()
            made.append(self)

    monkeypatch.setattr(door_module, "TableRounds", Kept)
    monkeypatch.setattr(simulated, "TableRounds", Kept)
    return made


@EVERY_KIND
def test_every_round_uses_its_allowance_of_which_a_replaced_row_takes_no_more_and_the_file_counts_them_all(
    kind: str, watched: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most its allowance, and not less than 98 % of it. And all that rounds estimate knows the order of columns.

    A draw with scale b whose scores move by an interval of length r is √(2π)/4 · r/b-Gaussian differentially private.
    """
    seen, estimated = list[Domain](), rounds_module.estimate_tables
    monkeypatch.setattr(rounds_module, "estimate_tables", lambda *facts: (seen.append(facts[2]), estimated(*facts))[1])
    domain, n, *_, n_rounds = KINDS[kind]
    rows, rng = related_rows(domain, n), np.random.default_rng(1)
    replaced = (([rows[rng.integers(n)][None]], [domain.draw(1, rng)]) for _ in range(10))
    measurement, reached = reached_by(kind, watched, [rows], PopulationSize(n), replaced)
    assert reached.max() <= 1
    assert reached.min() > 0.5, "the neighbours are too near to show anything"
    (rounds,), noise = watched, prepared(kind)[3]
    assert seen == [domain] * len(seen) and (len(seen) == {5: 1, 8: 3, 9: 2}.get(n_rounds, len(seen)))
    assert len(rounds.used) == len(rounds.allowances) == n_rounds
    assert min(rounds.used) > 0.98 and max(rounds.used) <= 1
    assert rounds.deviation == noise.noise.multiplier() * math.hypot(*rounds.allowances)
    assert 0.999 * rounds.sensitivity <= measurement.grid_sensitivity <= (1 + 1e-12) * rounds.sensitivity
    assert rounds.tables.dimension >= measurement.feature_map.dimension


def reached_by(kind: str, watched: list[Watched], pieces: Any, size: PopulationSize, replaced: Any) -> tuple[Measurement, Array]:
    """A measurement of these pieces, and for each round the most that a replacement, (old, new), uses of its allowance."""
    method, domain, _, noise, _ = prepared(kind)
    everything = method.prepare(domain, size, noise)
    measurement = method.measure(Door(pieces, noise, size), domain, size)
    counts, (rounds,) = count_tables(pieces, everything, n_rows=size.count), watched  # type: ignore[arg-type]
    reached = np.zeros(len(rounds.asked))
    for pair in replaced:
        one, other = (count_tables(own, everything, n_rows=1) for own in pair)  # type: ignore[arg-type]
        for r, (allowance, exact, scale, count) in enumerate(rounds.asked):
            moved = (exact(counts - one + other) - exact(counts)).astype(float)
            of_draws = math.sqrt(2 * math.pi * count) / 4 * np.ptp(moved) / scale * rounds.deviation if count else 0.0
            reached[r] = max(reached[r], (of_draws if count else float(np.linalg.norm(moved))) / allowance)
    assert isinstance(measurement, Measurement)
    return measurement, reached


def test_the_requests_move_by_no_more_where_the_table_of_a_larger_set_is_measured(watched: list[Watched]) -> None:
    """The last column says whether the first two agree. A row that is replaced changes both, and all tables."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (10_000, 9)).astype(float)
    rows[:, 8] = rows[:, 0] == rows[:, 1]
    replaced = [([rows[:1]], [1 - rows[:1]]), *(([rows[k][None]], [rng.integers(0, 2, (1, 9)) * 1.0]) for k in range(15))]
    _, reached = reached_by("nine columns of two levels", watched, [rows], PopulationSize(len(rows)), replaced)
    assert reached.max() <= 1
    assert reached.min() > 0.5, "the neighbours are too near to show anything"


@pytest.mark.slow(but="scores and a target")
@pytest.mark.parametrize("kind", ["scores and a target", "merged ranges", "many columns, a target and a workload"])
def test_the_requests_move_by_no_more_when_all_rows_are_alike_and_one_differs_in_every_column(
    kind: str, watched: list[Watched]
) -> None:
    """Nothing is related, so that later rounds measure the tables of the first once more; every table moves, and the same way."""
    domain, n = KINDS[kind][:2]
    first = np.nan_to_num(np.array(domain.draw(1, 0)))
    own = np.array([len(getattr(column, "levels", range(100))) for column in domain.columns])
    other = (first + (own > 1) * np.maximum(own // 2, 1)) % own
    alike = [np.repeat(first, n, axis=0)]
    _, reached = reached_by(kind, watched, alike, PopulationSize(n), [([first], [other])])
    assert reached.max() <= 1
    assert reached[0] > 0.9


@pytest.mark.parametrize("kind", ["scores", "drawn pairs", "a target and a workload", "merged ranges"])
def test_the_requests_move_by_no_more_than_their_allowances_when_a_unit_is_replaced(kind: str, watched: list[Watched]) -> None:
    """400 units of 1 to 7 rows: averages are rounded, each cell by less than 1."""
    domain, rng = KINDS[kind][0], np.random.default_rng(2)
    units = np.repeat(np.arange(400), rng.integers(1, 8, 400))
    rows = related_rows(domain, len(units))
    new = (domain.draw(int(rng.integers(1, 8)), rng) for _ in range(15))
    pairs = ((rows[units == unit], other) for unit, other in enumerate(new))
    replaced = (tuple(grouped(np.zeros(len(own)), own) for own in pair) for pair in pairs)
    _, reached = reached_by(kind, watched, grouped(units, rows), PopulationSize(400, "who"), replaced)
    assert reached.max() <= 1
    assert reached.min() > 0.2, "the neighbours are too near to show anything"


MANY_CELLS = (levels("a", 1930), levels("b", 1930), *(Boolean(name=f"c{k}") for k in range(27)))


def test_rounds_that_could_not_be_finished_are_refused_before_a_row_is_read() -> None:
    """Otherwise the budget would be spent, and nothing released."""
    for own, target, rows, message in (
        (MANY_CELLS, None, 10**6, "too many cells to be scored"),
        ((levels("y", 40), levels("a", 30_000)), "y", 10**6, "1,200,000 cells, and at most 250,000"),
        (tuple(Boolean(name=f"c{k}") for k in range(999)), None, 10**8, "numbers with noise"),  # scores of many pairs
    ):
        method = adaptive(Domain(own), target=target)
        with pytest.raises(PublishError, match=f"{message}.*[Nn]ame fewer"):
            method.prepare(Domain(own), PopulationSize(rows), noise_for("gaussian", 10.0, 1e-6))


def drawn_among_few(n: int) -> list[tuple[int, int]]:
    """Pairs of n columns, in draws that each take those among the fewest columns, which leaves the most columns for later ones."""
    drawn: list[tuple[int, int]] = []
    for part_of_missing in PARTS_OF_TREE:
        part = connected_parts(drawn, n)
        linking = [(i, j) for j in range(n) for i in range(j) if part[i] != part[j]]
        drawn += linking[: max(math.ceil(part_of_missing * (len(set(part)) - 1)), 1)]
    return drawn


def simulated_rounds(domain: Domain, n: int, rows: Array) -> Rounds:
    """The rounds of adaptive margins at a simulated door, before the first one."""
    size, noise = PopulationSize(n), noise_for("gaussian", 1.0, 1e-6, rehearsal=1)
    everything = adaptive(domain).prepare(domain, size, noise)
    door = SimulatedDoor(SyntheticRows(rows), noise, size)  # type: ignore[arg-type]
    return Rounds.of(door, everything, domain, size, None)  # type: ignore[arg-type]


def test_no_order_of_draws_takes_more_pairs_than_are_counted() -> None:
    for n in (30, 31, 60, 100):
        assert 2 * n < len(drawn_among_few(n)) <= most_drawn(n) <= len(drawn_among_few(n)) + 3


@pytest.mark.parametrize("worth_it", [465, 65])
def test_draws_that_connect_few_columns_can_be_finished(worth_it: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the rows are. 13 of 31 columns have large tables; so many pairs are worth their noise, and all of them are drawn."""
    domain = Domain((*(levels(f"a{k}", 20) for k in range(13)), *(Boolean(name=f"c{k}") for k in range(18))))
    honest, drawn = Rounds._choose, list[int]()

    def choose(self: Rounds, pairs: list[int], guesses: list[Array], count: int, costs: Array) -> list[int]:
        honest(self, pairs, guesses, count, costs)
        found = sorted(pairs, key=lambda p: self._pairs()[p][::-1])[:count]
        drawn.extend(found)
        return found

    worth = set(drawn_among_few(31)[:worth_it]) if worth_it < 465 else set(combinations(range(31), 2))
    distances = iter([2.0 * (pair in worth) for pair in combinations(range(31), 2)])
    monkeypatch.setattr(Rounds, "_choose", choose)
    monkeypatch.setattr(rounds_module, "largest_distance", lambda guess: next(distances))
    rounds = simulated_rounds(domain, 10_000, related_rows(domain, 300))
    rounds.measure_one_way()
    rounds.measure_pairs()
    counted = _most_numbers(rounds.kernel, rounds.shares, [], rounds._cells_of_pairs().tolist(), rounds.size)
    assert rounds.door.counts is None and rounds.door.drawn <= sum(counted)
    assert 31 + 5 + 15 < len(drawn) <= most_drawn(31) + 15


def test_where_few_pairs_can_be_drawn_they_are_scored() -> None:
    """Draws would use them up, and the last one would have none to take."""
    sizes = (1, 1, *[89] * 5, *[91] * 24)
    kernel = adaptive_kernel(Domain(tuple(levels(f"c{k}", n) for k, n in enumerate(sizes))))
    small = sum(cells <= 10**6 // 124 for cells in cells_of_all_pairs(kernel))
    assert 2 * 31 <= small == 69 < most_drawn(31)
    shares = shares_of_rounds(kernel, PopulationSize(10_000), noise_for("gaussian", 1.0, 1e-6))
    assert shares.are_scored


@pytest.mark.parametrize(("last", "measured"), [(309, True), (400, False)])
def test_the_rounding_of_units_is_covered_or_refused_before_a_row_is_read(last: int, measured: bool) -> None:
    """What the workload leaves of the second round covers 731,038 cells. Of rows nothing is rounded."""
    domain = Domain(tuple(levels(f"c{k}", n) for k, n in enumerate((600, 600, last))))
    noise = noise_for("gaussian", 1.0, 1e-6, rehearsal=1)
    method = adaptive(domain, workload=["c0 == '1'"])
    population = SyntheticRows(domain.draw(300, 0))
    for unit in ("who", None):
        size = PopulationSize(300, unit)
        if unit and not measured:
            with pytest.raises(PublishError, match=r"840,000 cells, and at most 731,038 .*units.*Name fewer"):
                method.prepare(domain, size, noise)
        else:
            method.measure(SimulatedDoor(population, noise, size), domain, size)  # type: ignore[arg-type]


def test_the_cells_that_units_may_have_leave_room_for_the_rounding_of_heights() -> None:
    """√(2 Σ h²) + √cells, as the door has it, of tables whose heights are all rounded up by half a step."""
    for n_columns in (3, 40):
        kernel, allowance = adaptive_kernel(columns(n_columns)), math.sqrt(2 * 0.2) * GRID
        most = most_cells(kernel, allowance, PopulationSize(100, "who"))
        moved = SHRINK * allowance + math.sqrt(2 * min(kernel.n_tables, most)) / 2 + math.sqrt(most)
        assert moved == pytest.approx(allowance, rel=1e-12)
        assert most_cells(kernel, allowance, PopulationSize(100)) == math.inf


@pytest.mark.parametrize("rows", [2**34 - 1, 2**33 + 2**17 + 7])
@pytest.mark.parametrize("epsilon", [1e-5, 1.0])  # draws, and scores
def test_of_the_most_rows_a_table_of_one_cell_is_scored(rows: int, epsilon: float) -> None:
    """step · N is not a float64: rounded up, the guess of the one cell would be more than the table."""
    domain = Domain(tuple(levels(f"c{k}", n) for k, n in enumerate((1, 1, 1, 2, 3, 2, 4, 3, 5))))
    method = adaptive(domain)
    size, noise = PopulationSize(rows), noise_for("gaussian", epsilon, 1e-6, rehearsal=1)
    door = SimulatedDoor(SyntheticRows(domain.draw(300, 0)), noise, size)  # type: ignore[arg-type]
    measurement = method.measure(door, domain, size)
    assert measurement.chosen_by_rows


def test_small_tables_that_are_added_to_the_last_round_leave_it_within_its_room(monkeypatch) -> None:
    domain = Domain((levels("a", 300), *(Boolean(name=f"c{k}") for k in range(9))))
    rounds = simulated_rounds(domain, 10**6, domain.draw(300, 0))
    pairs, cells = rounds._pairs(), rounds._cells_of_pairs()
    large = [p for p, (i, j) in enumerate(pairs) if i == 0]
    small = [p for p in range(len(pairs)) if p not in large]
    assert {cells[p] for p in large} == {600} and {cells[p] for p in small} == {4}
    assert len(rounds._cheap(large, set())) == 11  # of the 36 small ones, a tenth of what the large ones have
    monkeypatch.setattr(Rounds, "_room", lambda self: 600 * 9 + 21)
    assert len(rounds._cheap(large, set())) == 5
