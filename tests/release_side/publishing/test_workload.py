"""A workload: questions as a text, the tables that they ask for, and the errors that a plan predicts for them."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from command_line import curate as call
from file_tools import SCHEMA_TEST, forged, members_of, refused, setting

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import GRID, Measurement
from kmeanalyst.releases.statement import PopulationSize
from release_side.choices.choices import Choices
from release_side.choices.workload import Workload, read_workload
from release_side.door.mechanism import GaussianNoise, PublishError
from release_side.door.private_tables import TableRounds
from release_side.errors import SPENT
from release_side.publishing.methods import METHODS, chosen_method
from release_side.publishing.methods.adaptive import shares_of_rounds as shares_module
from release_side.publishing.methods.adaptive.method import AdaptiveMargins
from release_side.publishing.methods.adaptive.shares_of_rounds import shares_of_rounds
from release_side.publishing.plan import plan
from release_side.publishing.unfinished import Begun

LEVELS = ("a", "b", "c", "d")
DOMAIN = Domain((
    Integer(name="age", lower=0, upper=99), *(Categorical(name=name, levels=LEVELS) for name in "pqrs"),
    Integer(name="hours-per-week", lower=0, upper=99),
))  # fmt: skip
KINDS = Domain((
    Integer(name="n", lower=0, upper=99), Real(name="x", lower=0.0, upper=1.0),
    Date(name="day", lower="2000-01-01", upper="2009-12-31"),
    Integer(name="wage", lower=1, upper=10**6, scale="log"), Categorical(name="c | #", levels=LEVELS),
))  # fmt: skip
WIDE = Domain([
    Categorical(name=name, levels=tuple(map(str, range(600))) if name in "ab" else LEVELS) for name in "abcdefg"
])  # fmt: skip
QUESTIONS = ["p == 'a' and age < 25", "table(r, s)", "age > 60"]
ASKED = ((0, 1), (3, 4))


def table(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    """q repeats p; all else is independent."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.choice(LEVELS, n) for name in "pqrs"})
    frame["q"] = np.where(rng.random(n) < 0.9, frame["p"], frame["q"])
    return frame.assign(age=rng.integers(0, 100, n), **{"hours-per-week": rng.integers(0, 100, n)}).astype(str)


USUAL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "kernel": "adaptive", "rehearsal": 1, "points": 50}


def published(workload: Any = tuple(QUESTIONS), frame: Any = None, domain: Domain = DOMAIN, **choice: Any) -> Release:
    frame = table() if frame is None else frame
    return release_side.publish(frame, domain, workload=workload, **(USUAL | choice))


def measured(release: Release) -> tuple[Measurement, ChosenMargins]:
    measurement = release.measurement
    assert measurement is not None and isinstance(measurement.feature_map.kernel, ChosenMargins)
    return measurement, measurement.feature_map.kernel


def read(*lines: str, domain: Domain = DOMAIN) -> Workload:
    return read_workload(lines, domain)


# ---------------------------------------------------------------------- the text


LINES: list[tuple[Any, ...]] = [
    ("age", "mean", ("age",), None, (0,)),
    ("mean(age)", "mean", ("age",), None, (0,)),
    ("  p == 'a' and age < 25  # young", "mean", ("p == 'a' and age < 25",), None, (0, 1)),
    ("age | p in ['a', 'b']", "mean", ("age",), "p in ['a', 'b']", (0, 1)),
    ("std(age) | q == 'a' and r == 'b'", "std", ("age",), "q == 'a' and r == 'b'", (0, 2, 3)),
    ("corr(`hours-per-week`, age)", "corr", ("`hours-per-week`", "age"), None, (0, 5)),
    ("cov((age + 1) * 2, log1p(age))", "cov", ("(age + 1) * 2", "log1p(age)"), None, (0,)),
    ("quantile(min(age, 50), 0.5)", "quantile", ("min(age, 50)", "0.5"), None, (0,)),
    ("table(s, `r`)", "table", ("s", "`r`"), None, (3, 4)),
    ("var(age)", "var", ("age",), None, (0,)),
]  # fmt: skip


def test_a_line_is_a_question_in_the_grammar_of_expressions():
    for line, statistic, arguments, where, columns in LINES:
        (question,) = read(line).questions
        assert (question.statistic, question.arguments) == (statistic, arguments)
        assert (question.where, question.columns) == (where, columns)
        assert question.text == line.partition("#")[0].strip()


def test_signs_in_quotes_are_no_comments_and_no_conditions():
    (question,) = read("`c | #` == 'a' | n > 3 # x | y", domain=KINDS).questions
    assert (question.arguments, question.where, question.columns) == (("`c | #` == 'a'",), "n > 3", (0, 4))


def test_questions_are_counted_by_columns():
    several = ("p == 'a' and q == 'b'", "p == 'a' and age > 3 and r == 'b'")
    workload = read("age", "age > 3", "corr(age, `hours-per-week`)", *several)
    assert workload.by_columns == {(0,): 2, (0, 5): 1, (1, 2): 1, (0, 1, 3): 1}


CUTS: list[tuple[str, dict[int, tuple[float, ...]]]] = [
    ("n < 25", {0: (24.5,)}), ("n <= 25", {0: (25.5,)}), ("n > 25", {0: (25.5,)}), ("25 < n", {0: (25.5,)}),
    ("n >= 24.5", {0: (24.5,)}),
    ("n <= 25.5", {0: (25.5,)}), ("n == 40", {0: (39.5, 40.5)}), ("n in [40, 41]", {0: (39.5, 40.5, 41.5)}),
    ("10 <= n < 20", {0: (9.5, 19.5)}), ("x <= 0.5", {1: (0.5,)}), ("x == 0.5", {}), ("n < 500", {}), ("n >= 0", {}),
    ("day <= '2003-01-01'", {2: (12053.5,)}), ("day < '2003-01-01'", {2: (12052.5,)}),
    ("wage > 1000", {3: (math.log(1000.5),)}),
    ("wage >= 0 or wage > -7", {}), ("x | n < 25", {0: (24.5,)}), ("n + 1 < 3", {0: (1.5,)}), ("n * n < 3", {}), ("n", {}),
    (" or ".join(f"n < {k}" for k in range(1, 12)), {0: tuple(k - 0.5 for k in range(1, 12))}),
    (" or ".join(f"n < {k}" for k in range(1, 13)), {}),
]  # fmt: skip


def test_ranges_end_where_questions_cut_them():
    for question, cuts in CUTS:
        found = read(question, domain=KINDS).cuts
        assert {j: pytest.approx(own) for j, own in cuts.items()} == dict(found)
        kernel, plain = adaptive_kernel(KINDS, found), adaptive_kernel(KINDS)
        for j in range(len(KINDS)):
            assert set(found.get(j, ())) <= set(kernel.edges[j]) and (j in found or kernel.edges[j] == plain.edges[j])
            assert len(kernel.edges[j]) <= len(plain.edges[j]) + len(found.get(j, ()))
            assert not kernel.fine[j] or set(kernel.edges[j]) <= set(kernel.fine[j])


def test_a_cut_replaces_the_even_edge_that_is_near():
    kernel, plain = (adaptive_kernel(KINDS, cuts) for cuts in (read("n < 27", domain=KINDS).cuts, {}))
    assert len(kernel.edges[0]) == len(plain.edges[0]) and {24.5, 26.5} == set(kernel.edges[0]) ^ set(plain.edges[0])


def test_declared_edges_stay():
    domain = Domain((Integer(name="n", lower=0, upper=99, edges=(20, 50)), Integer(name="m", lower=0, upper=99)))
    assert adaptive_kernel(domain, read("n < 22", domain=domain).cuts).edges[0] == (19.5, 21.5, 49.5)


# ---------------------------------------------------------------------- what is measured


def test_a_workload_asks_for_adaptive_margins():
    few = Domain(DOMAIN.columns[:3])
    for choices in ({}, {"kernel": "adaptive"}, {"target": "p"}):
        method = chosen_method("random-features", Choices(**choices, workload=["age"]), few)
        assert type(method) is METHODS["adaptive"] and isinstance(method.choices.workload, Workload)


def test_pairs_that_a_question_names_are_measured_before_any_score():
    release = published()
    measurement, kernel = measured(release)
    assert len(measurement.scores) == 2 and measurement.beforehand == ASKED and set(ASKED) <= set(kernel.chosen)
    assert (1, 2) in kernel.chosen, "the pair that is related is still chosen"
    assert sum(kernel.squares[1][kernel.chosen.index(pair)] for pair in ASKED) < shares_module._ASKED
    plain = measured(published(None))[0]
    assert plain.beforehand == ()
    assert plain.noise_scale == pytest.approx(measurement.noise_scale, rel=1e-6), "the budget is the same"
    assert any("a workload, the questions" in text for text in release.statement.taken_as_public)  # type: ignore[union-attr]


def test_several_targets_are_measured_with_every_other_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Before any score, in addition to what a workload names; a target that is named twice is one."""
    monkeypatch.setattr(shares_module, "_FEW_LEFT", 0)
    both = published(None, target=["p", "hours-per-week", "p"])
    assert measured(both)[0].beforehand == ((0, 1), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5), (2, 5), (3, 5), (4, 5))
    more = published(["corr(age, `hours-per-week`)", "table(r, s)"], target=("p", "q"))
    assert len(measured(more)[1].chosen) == 15, "where few pairs are left, all are measured"
    once = chosen_method("random-features", Choices(target=["p", "p"]), DOMAIN)
    assert sorted(once.choices.workload.by_columns) == [(0, 1), *((1, j) for j in range(2, 6))]  # type: ignore[attr-defined]
    table().to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "d.toml").write_text(domain_toml(DOMAIN))
    done = call(
        "publish", str(tmp_path / "t.csv"), "--domain", str(tmp_path / "d.toml"), "--epsilon", "1", "--delta", "1e-6",
        "--uncounted", "--output", str(tmp_path / "t.kme"), "--target", "p", "--target", "hours-per-week",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert measured(ka.read_release(tmp_path / "t.kme"))[0].beforehand == measured(both)[0].beforehand


Requests = list[tuple[int, Any, Any]]  # the rounds, with the tables that each measures and their heights


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    seen: Requests = []
    honest = TableRounds.measure

    def measure(self: TableRounds, wanted: Any, heights: Any) -> Any:
        seen.append((self._round, wanted, heights))
        return honest(self, wanted, heights)

    monkeypatch.setattr(TableRounds, "measure", measure)
    return seen


def test_heights_minimise_the_sum_over_questions_of_root_cells_over_height(requests: Requests):
    """h² ∝ (questions · √cells) ** ⅔, so that the derivative questions · √cells / h³ is the same for all of them."""
    questions = ["table(r, s)", "p == 'a' and age < 25", "p == 'b' and age < 25", "q == 'a'"]
    published(questions)
    published(questions, table(seed=5))
    published(["p == 'a' and q == 'a' and age < 25"])  # nothing is fixed of three columns; the range ends at 25
    (wanted, heights), (again, same), (plain, before) = (asked for number, *asked in requests if not number)
    np.testing.assert_array_equal(wanted, again)
    np.testing.assert_array_equal(heights, same)  # whatever the rows are
    squares = (heights / GRID) ** 2
    of_one_way = len(plain)
    np.testing.assert_array_equal(wanted[:of_one_way], plain)
    others = [0, *range(3, of_one_way)]
    taken = squares[others] / (before[others] / GRID) ** 2
    np.testing.assert_allclose(taken, 1 - shares_module._ASKED, rtol=1e-6)
    raised = squares[2] - taken[0] * (before[2] / GRID) ** 2
    asked = np.array([raised, *squares[of_one_way:]])
    np.testing.assert_allclose(asked.sum(), shares_module._ASKED, rtol=1e-5)
    sizes = adaptive_kernel(DOMAIN, read("age < 25").cuts).sizes
    by_index = dict(zip(wanted[of_one_way:] - (wanted[of_one_way:].min()), asked[1:], strict=True))
    assert len(by_index) == 2
    weights = np.array([math.sqrt(4), 2 * math.sqrt(sizes[0] * 4), math.sqrt(16)])
    np.testing.assert_allclose(weights / asked**1.5 / (weights[0] / asked[0] ** 1.5), 1.0, rtol=1e-4)


def test_a_tree_that_the_workload_names_is_not_measured_again(requests: Requests, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shares_module, "_FEW_LEFT", 0)
    published([each for each in ALL_PAIRS if "age" in each])
    one_way, *pairs = ({t for t in wanted.tolist() if 6 <= t < 21} for _, wanted, _ in requests)  # the tables of pairs
    assert len(one_way) == 5 and any(pairs)
    assert not one_way & pairs[0] and not one_way & pairs[1] and not pairs[0] & pairs[1]


ALL_PAIRS = [f"table({a}, {b})" for a, b in combinations(["age", *"pqrs", "`hours-per-week`"], 2)]


MEASURED: list[tuple[list[str], dict[str, Any], int, int]] = [  # rounds, and pairs measured beforehand
    (QUESTIONS, {"epsilon": 0.15}, 1, 2),  # much noise: three further pairs
    (QUESTIONS, {"target": "q"}, 0, 15),  # few are left: all are measured, before larger sets are drawn
    (["q == 'a' and r == 'a' and s == 'b'"], {}, 2, 0),
    ([each for each in ALL_PAIRS if "age" in each], {}, 0, 15),  # all that age is related to: all are measured
    (ALL_PAIRS[1:9], {}, 2, 8), (ALL_PAIRS[:10], {}, 0, 15),  # fewer than six are left: all are measured
]  # fmt: skip


def test_every_workload_can_be_measured(tmp_path: Path):
    for workload, choice, rounds, beforehand in MEASURED:
        release = published(workload, output=tmp_path / "r.kme", force=True, **choice)
        measurement, kernel = measured(release)
        assert (len(measurement.scores) + len(measurement.choices), len(measurement.beforehand)) == (rounds, beforehand)
        assert rounds or kernel.n_pairs == 15
        assert ka.validate_release(tmp_path / "r.kme", allow_rehearsal=True) == []
        assert math.fsum(map(math.fsum, kernel.squares)) == pytest.approx(1.0, abs=1e-12)


def test_where_all_pairs_are_measured_those_of_the_workload_are_measured_best(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shares_module, "_MOST_IN_SET", 8)  # no larger set has so few cells
    domain = Domain(DOMAIN.columns[1:4])

    def squares(workload: list[str] | None) -> tuple[float, ...]:
        kernel = measured(published(workload, table()[list("pqr")], domain))[1]
        return (*kernel.squares[0], *kernel.squares[1])

    plain = squares(None)
    np.testing.assert_allclose(plain, [1 / 6] * 6)
    asked = squares(["q == 'a' and r == 'b'", "p == 'a'"])
    np.testing.assert_allclose(np.array(asked)[[1, 2, 3, 4]], 0.7 / 6, rtol=1e-6)
    worth = np.array([math.sqrt(4), math.sqrt(16)]) ** (2 / 3)
    np.testing.assert_allclose(np.array(asked)[[0, 5]] - 0.7 / 6, 0.3 * worth / worth.sum(), rtol=1e-6)


def test_all_pairs_of_a_target_are_in_the_workload():
    found = chosen_method("random-features", Choices(target="hours-per-week"), DOMAIN)
    assert isinstance(found, AdaptiveMargins) and found.choices.target is None
    assert sorted(found.choices.workload.by_columns) == [(j, 5) for j in range(5)]
    measurement, kernel = measured(published(None, target="hours-per-week"))
    assert kernel.n_pairs >= 15 and not measurement.scores and measurement.drawn is not None


def test_tables_of_a_target_that_noise_would_drown_are_left_out():
    """Of 16 cells with q, and of 48 or more with a number."""
    kernel, noise = adaptive_kernel(DOMAIN), GaussianNoise(1.0, 1e-6)
    workload = read(*(f"table({name}, q)" for name in ("age", "p", "r", "s", "`hours-per-week`")))
    for rows, columns, part in ((10**6, (0, 1, 3, 4, 5), 0.5), (550, (1, 3, 4), 0.7), (10, (), 0.0)):
        asked = shares_module.asked_squares(kernel, workload, PopulationSize(rows), noise)
        every = sum(math.sqrt(4 * kernel.sizes[j]) ** (2 / 3) for j in (0, 1, 3, 4, 5))
        kept = sum(math.sqrt(4 * kernel.sizes[j]) ** (2 / 3) for j in columns)
        assert set(asked) == {tuple(sorted((2, j))) for j in columns}
        assert sum(asked.values()) == pytest.approx(part * kept / every)  # what is left out is left to all others


CUT = Domain((
    Real(name="x", lower=0, upper=9, edges=tuple(range(1, 9))), Integer(name="n", lower=0, upper=9, edges=(1, 2, 3, 5, 7)),
    Real(name="free", lower=0, upper=9), Real(name="y", lower=0, upper=90, edges=tuple(range(10, 90, 10)), atoms=(0,)),
    *(Categorical(name=name, levels=LEVELS) for name in "pq"),
))  # fmt: skip


def everything(rows: int, epsilon: float = 1.0, **options: Any) -> Any:
    method = chosen_method("random-features", Choices(**({"target": "y"} | options)), CUT)
    return method.prepare(CUT, PopulationSize(rows), GaussianNoise(epsilon, 1e-6)).kernel  # type: ignore[attr-defined]


def test_declared_ranges_are_merged_where_there_is_a_target_as_far_as_noise_asks_for_it():
    """Evenly by their count, from the domain, N and the budget alone; never below four ranges, and no atom, level or even range."""
    whole = adaptive_kernel(CUT)
    sizes = [everything(rows).sizes for rows in (10**6, 9000, 6000, 100)]
    assert sizes[0] == whole.sizes and sizes[-1] == (4, 4, 12, 5, 4, 4)
    assert (np.diff(sizes, axis=0) <= 0).all()
    assert len(set(sizes)) > 2
    assert everything(10**5, 0.01).sizes == sizes[-1]
    assert everything(100).edges[0] == (2.0, 4.0, 7.0) and everything(100).edges[3] == (20.0, 40.0, 70.0)
    asked = everything(100, workload=["x < 1"])
    assert asked.edges[0] == (1.0, 2.0, 4.0, 7.0)
    assert everything(100, target="p").edges == everything(100).edges
    assert everything(100, target=None, kernel="adaptive").edges[0] == whole.edges[0]


def test_the_declared_ranges_of_merged_columns_have_a_finer_table_of_their_own():
    kernel, whole = everything(100), adaptive_kernel(CUT)
    for j in (0, 1, 3):
        tables = [edges for own, edges in kernel.finer_tables if own == j]
        assert tables[0] == whole.edges[j] and tables[1:] == [whole.fine[j]] and set(kernel.edges[j]) < set(tables[0])


def test_the_table_of_declared_ranges_is_no_worse_measured_than_that_of_merged_ones():
    rng = np.random.default_rng(0)
    levels = {name: rng.choice(LEVELS, 400) for name in "pq"}
    frame = pd.DataFrame({name: 9 * rng.random(400) for name in ("x", "free")} | levels)
    frame = frame.assign(n=rng.integers(0, 10, 400), y=10 * frame["x"])
    release = release_side.publish(frame, CUT, epsilon=1, delta=1e-6, target="y", uncounted=True)
    kernel = release.measurement.feature_map.kernel  # type: ignore[union-attr]
    alone, finer = kernel.squares[0], kernel.squares[2]
    for t, (j, edges) in enumerate(kernel.finer_tables):
        if edges == adaptive_kernel(CUT).edges[j]:
            assert finer[t] > 0.9 * alone[j]
        else:
            assert finer[t] < 0.3 * alone[j]
    assert kernel.sizes == (4, 4, 12, 5, 4, 4)


def test_the_rounds_spend_the_same_with_a_workload():
    for rows, parts in ((10**6, 8), (10**4, 8), (540, 3), (300, 1)):
        kernel, noise = adaptive_kernel(DOMAIN), GaussianNoise(1.0, 1e-6)
        plain = shares_of_rounds(kernel, PopulationSize(rows), noise)
        asked = shares_of_rounds(kernel, PopulationSize(rows), noise, {(0,): 0.1, (0, 1): 0.2})
        assert len(plain.parts) == len(asked.parts) == parts and plain.scores == asked.scores
        assert math.hypot(*asked.allowances()) == pytest.approx(math.hypot(*plain.allowances()), rel=1e-12)
        for r in plain.scores:
            assert asked.allowances()[r] == plain.allowances()[r]
        assert plain.allowances() == [math.sqrt(2 * part / plain.of_tables) * GRID for part in plain.parts]


# ---------------------------------------------------------------------- what tests and files make of it


def test_a_two_sample_test_sees_a_pair_that_the_workload_names():
    """r and s are related in one sample alone. Single columns say nothing of it."""
    plain = table(1500, seed=7).astype({"age": int, "hours-per-week": int})
    related = plain.assign(s=np.where(np.arange(1500) % 2 == 0, plain["r"], plain["s"]))
    release = published(QUESTIONS, points=None)
    assert ka.mmd_test(release, related).pvalue < 1e-6 and ka.mmd_test(release, plain).pvalue > 1e-3


@pytest.fixture(scope="module")
def asked_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "asked.kme"
    published(output=path)
    return path


def test_a_file_says_which_pairs_were_measured_before_any_score(asked_path: Path, tmp_path: Path):
    header = json.loads(members_of(asked_path)["release.json"])
    SCHEMA_TEST.validate(header)
    assert header["measurement"]["beforehand"] == [list(pair) for pair in ASKED]
    release = ka.read_release(asked_path, allow_rehearsal=True)
    assert measured(release)[0].beforehand == ASKED
    release.write(tmp_path / "again.kme")
    assert (tmp_path / "again.kme").read_bytes() == asked_path.read_bytes()
    assert ka.validate_release(asked_path, allow_rehearsal=True) == []


def without_scores(header: dict[str, Any], members: Any) -> None:
    del header["measurement"]["drawn"]
    for number in range(1, 2 + len(header["measurement"].pop("scores"))):
        members.pop(f"measurement/scores_{number}.npy")


PAIRS, A_LIST = "measurement, field beforehand", "a list of pairs of columns' numbers, at least one"


def test_other_pairs_than_those_of_the_kernel_are_refused(asked_path: Path, tmp_path: Path):
    refused(forged(asked_path, without_scores), tmp_path, PAIRS, "it goes with scores")
    for pairs, why in (
        ([[0, 99]], "different pairs of those that"), ([[0, 1], [0, 1]], "different pairs of those that"),
        ([], A_LIST), ([[0, 1, 2]], A_LIST), ([["age", "p"]], A_LIST), (None, A_LIST),
    ):  # fmt: skip
        refused(forged(asked_path, setting("measurement", "beforehand", to=pairs)), tmp_path, PAIRS, why)


# ---------------------------------------------------------------------- privacy


def test_a_workload_that_is_the_private_table_is_refused_and_not_quoted(tmp_path: Path):
    (tmp_path / "private.csv").write_text(table(50).to_csv(index=False))
    (tmp_path / "copy.txt").write_bytes((tmp_path / "private.csv").read_bytes())
    (tmp_path / "d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    for name in ("private.csv", "copy.txt"):
        found = call(
            "publish", tmp_path / "private.csv", "--domain", tmp_path / "d.toml", "--epsilon", 1, "--delta", 1e-6, "--uncounted",
            "--output", tmp_path / "r.kme", "--workload", tmp_path / name,
        )  # fmt: skip
        assert found.exit_code == 1 and "the workload is the private table itself" in found.stderr
        assert "line 1" not in found.stderr and not (tmp_path / "r.kme").exists()


def test_a_wrong_workload_is_refused_before_a_private_row_is_read(asked_path, tmp_path, monkeypatch):
    """refusals_workload.txt. A plan refuses what publish refuses."""
    monkeypatch.setattr("release_side.publishing.publish.counted_rows", lambda *_: pytest.fail("a row could be read"))
    (tmp_path / "q.txt").write_text("age > 3\n")
    measurement = measured(ka.read_release(asked_path, allow_rehearsal=True))[0]

    def otherwise(**choices: Any) -> Any:
        return published(**({"kernel": None, "points": None} | choices))

    def planned(domain: Domain = DOMAIN, **choices: Any) -> Any:
        return plan(domain, rows=10_000, **({"delta": 1e-6, "workload": QUESTIONS} | choices))

    def without(**parts: Any) -> Any:
        return dataclasses.replace(measurement, **parts)

    names = globals() | {key: value for key, value in locals().items() if key != "monkeypatch"}
    refusals.check(Path(__file__).parent / "refusals_workload.txt", lambda text: eval(text, names))
    assert (tmp_path / "q.txt").read_text() == "age > 3\n"


def test_more_pairs_than_a_file_can_name_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("release_side.publishing.methods.adaptive.method._MOST_NAMED", 2)
    with pytest.raises(PublishError, match=r"the 3 pairs of columns .* of 2 pairs are measured before .*Ask of fewer"):
        published(["table(p, q)", "table(p, r)", "table(q, s)"])


# ---------------------------------------------------------------------- plans


EVERY_KIND = [
    "age", "var(age)", "std(age) | p == 'a'", "cov(age, `hours-per-week`)", "corr(age, `hours-per-week`)", "quantile(age, 0.5)",
    "table(p, q)", "table(`hours-per-week`)", "p == 'a' and q == 'a' and r == 'a'",
]  # fmt: skip


def test_a_plan_has_the_errors_that_an_analyst_of_the_simulated_release_would_see(monkeypatch: pytest.MonkeyPatch):
    seen: list[Release] = []
    honest = Begun.release

    def release_of(*args: Any) -> Release:
        seen.append(honest(*args))
        return seen[-1]

    monkeypatch.setattr(Begun, "release", release_of)
    found = plan(DOMAIN, rows=5000, delta=1e-6, epsilon=[0.1, 1.0], workload=EVERY_KIND)
    for questions, release in zip(found["questions"], seen, strict=True):
        assert [asked["question"] for asked in questions] == EVERY_KIND
        by_name = {asked["question"]: asked for asked in questions}
        corr = release.corr(["age", "hours-per-week"])["age", "hours-per-week"]
        cells = release.table("p", "q")
        for estimate, asked in (
            (release.mean("age"), by_name["age"]), (release.std("age", where="p == 'a'"), by_name["std(age) | p == 'a'"]),
            (corr, by_name["corr(age, `hours-per-week`)"]), (release.quantile("age", 0.5), by_name["quantile(age, 0.5)"]),
        ):  # fmt: skip
            wanted = {"standard_error": estimate.standard_error, **estimate.parts}
            assert {name: asked[name] for name in wanted} == pytest.approx(wanted)
        assert by_name["table(p, q)"]["privacy"] == pytest.approx(cells["privacy"].median())
        assert all(math.isfinite(asked["standard_error"]) for asked in questions)
        assert by_name["age"]["measured"] == "one-way tables of age"
        assert by_name["corr(age, `hours-per-week`)"]["measured"] == "table of age × `hours-per-week`, in any case"
        assert by_name[EVERY_KIND[-1]]["measured"] == "not measured jointly: depends on the choice made from scores"
    assert found["questions"][0][0]["privacy"] > 2 * found["questions"][1][0]["privacy"]


def test_a_question_without_an_answer_in_the_simulated_release_has_none():
    rare = "age | p == 'a' and q == 'a' and r == 'a' and s == 'a' and age == 7 and `hours-per-week` == 3"
    (asked,) = plan(DOMAIN, rows=1000, delta=1e-6, epsilon=1.0, workload=[rare])["questions"][0]
    assert math.isnan(asked["standard_error"]) and math.isnan(asked["privacy"])
    assert "has probability" in asked["refused"]


def test_the_command_prints_a_line_for_each_question_and_budget(tmp_path: Path):
    (tmp_path / "d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    (tmp_path / "q.txt").write_text("age > 50\ntable(p, q)  # all cells\n", encoding="utf-8")
    words = ("plan", "--rows", 2000, "--domain", tmp_path / "d.toml", "--delta", 1e-6, "--epsilon", "0.1", "1")
    found = call(*words, "--workload", tmp_path / "q.txt")
    assert found.exit_code == 0
    head, *lines = found.stdout.split("\n\n")[1].splitlines()
    heads = "question, epsilon, ± error, privacy, sampling, resolution, measured"
    assert re.split(r"\s{2,}", head) == heads.split(", ")
    cells = [re.split(r"\s{2,}", line) for line in lines]
    assert [row[:2] for row in cells] == [[q, e] for q in ("age > 50", "table(p, q)") for e in ("0.1", "1")]
    assert cells[0][-1] == "one-way tables of age" and cells[2][-1] == "table of p × q, in any case"
    (as_json,) = json.loads(call(*words[:-1], "--workload", tmp_path / "q.txt", "--json").stdout)["plans"]
    assert [f"{row['standard_error']:.2g}" for row in as_json["questions"]] == [cells[0][2], cells[2][2]]


def test_tables_that_are_too_large_are_refused_before_the_spend_or_left_out():
    """All pairs; what a workload leaves; so few rows that no pair is measured."""

    def release_of(sizes: tuple[int, ...], n: int, workload: list[str] | None = None) -> Release:
        levels = [tuple(f"v{i}" for i in range(m)) for m in sizes]
        domain = Domain([Categorical(name=f"c{j}", levels=own) for j, own in enumerate(levels)])
        return published(workload, pd.DataFrame({name: "v0" for name in domain.names}, index=range(n)), domain)

    for case in (((1100, 1100, 2), 150), ((1010, 1001, 70, 70), 2000, ["table(c2, c3)"])):
        with pytest.raises(PublishError, match="too many cells to be measured") as caught:
            release_of(*case)  # type: ignore[arg-type]
        assert SPENT not in str(caught.value)
    assert measured(release_of((1100, 1100, 2, 2), 300))[1].chosen == ()  # noise exceeds any relation
