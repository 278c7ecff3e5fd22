"""What a round measures: pairs as far as they are worth their noise, single columns again for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.learning.rows.smoothed_classes import fit_smoothed_classes
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.file.limits import FileRefused
from kmeanalyst.releases.measurement import GRID, score_sensitivity
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.tables.estimates import Observed, implied_by_pairs, over_pair
from kmeanalyst.representation.tables.tree import connected_parts
from release_side import publish
from release_side.choices.choices import Choices
from release_side.door.door import Door
from release_side.door.mechanism import noise_for
from release_side.publishing.methods import chosen_method
from release_side.publishing.methods.adaptive import shares_of_rounds as sharing
from release_side.publishing.methods.adaptive.choice_of_pairs import Distances, Prospect, largest_distance
from release_side.publishing.methods.adaptive.shares_of_rounds import candidate_sets, shares_of_rounds, with_sets, without_sets

LEVELS = ("a", "b", "c", "d")


def of_levels(names: Iterable[str]) -> Domain:
    return Domain(tuple(Categorical(name=name, levels=LEVELS) for name in names))


DOMAIN = of_levels("vwxyz")


def rows(n: int, *, related: bool) -> pd.DataFrame:
    """Five independent columns; y repeats x where they are related."""
    frame = pd.DataFrame(np.random.default_rng(0).choice(LEVELS, (n, 5), p=(0.4, 0.3, 0.2, 0.1)), columns=list("vwxyz"))
    return frame.assign(y=frame["x"]) if related else frame


def released(frame: pd.DataFrame, domain: Domain = DOMAIN, **options: Any) -> ReleaseData:
    return publish(frame, domain, **({"epsilon": 1.0, "delta": 1e-6, "points": 6, "rehearsal": 0, "workers": 1} | options))


def chosen_margins(release: ReleaseData) -> ChosenMargins:
    assert release.measurement is not None
    kernel = release.measurement.feature_map.kernel
    assert isinstance(kernel, ChosenMargins)
    return kernel


def distances(scores: Array, noise: float) -> Distances:
    same = np.ones(len(scores))
    return Distances.of_scores(scores, noise, largest=same, by_chance=0.0 * same, of_guesses=0.0 * same)


def prospect(known: Distances, *, unit: float = 1e-3) -> Prospect:
    """Of four columns whose tables are all of one size."""
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    return Prospect(known, pairs, np.full(6, 10.0), unit, np.full(4, (20 * unit) ** 2), 0.3)


def from_independence(table: Array) -> float:
    return float(np.abs(table - table.sum(axis=2)[:, :, None] * table.sum(axis=1)[:, None, :]).sum())


def test_no_table_is_further_from_independence_than_its_margins_allow_and_one_that_repeats_is_as_far():
    for seed in range(20):
        table = np.random.default_rng(seed).dirichlet(np.full(12, 0.1)).reshape(1, 3, 4)
        assert from_independence(table) <= largest_distance(table) + 1e-12
    table = np.diag([0.5, 0.3, 0.2])[None]
    assert from_independence(table) == pytest.approx(largest_distance(table))


def test_scores_that_are_nothing_but_noise_are_taken_as_such():
    scores = np.random.default_rng(0).normal(scale=0.05, size=200)
    known = distances(scores, 0.05)
    assert known.expected(known.values).max() < 0.03 < scores.max()


def test_one_pair_far_beyond_the_noise_keeps_its_distance_of_which_a_gain_is_a_part_that_falls_with_noise():
    known = distances(np.array([0.6, 0.02, -0.01, 0.0, 0.03, -0.02]), 0.02)
    assert known.expected(known.values)[0] == pytest.approx(0.6, abs=0.05)
    small, large = known.gains(np.full(6, 0.01)), known.gains(np.full(6, 1.0))
    assert (large >= 0).all() and (large <= small).all()
    assert (small <= known.expected(known.values) + 1e-12).all()


def test_a_round_takes_the_related_pairs_alone_and_nothing_without_any():
    related = distances(np.array([0.6, 0.0, 0.0, 0.0, 0.0, 0.5]), 0.01)
    chosen, again = prospect(related).best(list(range(6)), 0.5)
    assert sorted(chosen) == [0, 5]
    assert again < 1
    assert prospect(distances(np.zeros(6), 0.01)).best(list(range(6)), 0.5) == ([], 1.0)
    assert prospect(related).best([], 0.5) == ([], 1.0)
    assert prospect(related).best([1, 2, 5], 0.5)[0] == [5], "the others are not allowed"


def test_without_related_columns_the_budget_goes_to_single_ones():
    kernel = chosen_margins(released(rows(500, related=False), kernel="adaptive"))
    assert kernel.shares[0] > 0.5  # .39 in the first round
    assert sum(kernel.shares) == pytest.approx(1.0)


def test_a_column_that_repeats_another_is_found():
    for n in (1000, 20_000):
        kernel = chosen_margins(released(rows(n, related=True), kernel="adaptive"))
        assert (2, 3) in kernel.pairs and kernel.shares[1] > 0.2


def test_a_table_measured_in_several_rounds_has_the_noise_it_claims():
    """20 releases, 20 cells: the mean of squared standard scores is 1 up to 5 · √(2 / 400)."""
    frame, size = rows(500, related=False), PopulationSize(500)
    truth = np.array([(frame[name] == level).mean() for name in "vwxyz" for level in LEVELS])
    scores, method = [], chosen_method("random-features", Choices(kernel="adaptive"), DOMAIN)
    for seed in range(20):
        noise = noise_for("gaussian", 1.0, 1e-6, rehearsal=seed)
        method.prepare(DOMAIN, size, noise)
        measurement = method.measure(Door([DOMAIN.encode(frame)], noise, size), DOMAIN, size)
        features = measurement.feature_map
        assert isinstance(features, MarginFeatures)
        group = features.groups[0]
        heights = np.sqrt(np.repeat(group.squares, 4))
        shares = measurement.vector[group.start : group.stop] / heights
        scores.append((shares - truth) * heights / measurement.noise_scale)
    found = np.array(scores)
    assert abs(found.mean()) < 5 / np.sqrt(found.size)
    assert abs((found**2).mean() - 1) < 5 * np.sqrt(2 / found.size)


def test_where_noise_exceeds_any_relation_no_pair_is_measured():
    """40 rows: all of the budget is for single columns, and no test sees a pair."""
    domain = Domain([Categorical(name=name, levels=tuple("abcdefgh")) for name in "pqrst"])
    frame = pd.DataFrame({name: ["a"] * 40 for name in "pqrst"})
    release = released(frame, domain, epsilon=0.1, kernel="adaptive", points=50, rehearsal=1)
    measurement = release.measurement
    assert measurement is not None and not measurement.chosen_by_rows and measurement.feature_map.kernel.chosen == ()
    assert measurement.grid_sensitivity == pytest.approx(math.sqrt(2) * GRID, rel=1e-6)
    assert not measurement.counted_together(0, 1) and ka.independence_test(release, ["p"], ["q"]).pvalue == 1.0


def wide_rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """32 columns: 12 repeat one another, and of the others each repeats the one before it in half of the rows."""
    columns = {f"same_{k:02}": np.arange(n) % 4 for k in range(12)}
    last = rng.integers(0, 4, n)
    for k in range(20):
        last = np.where(rng.random(n) < 0.5, last, rng.integers(0, 4, n))
        columns[f"chain_{k:02}"] = last
    return pd.DataFrame({name: np.array(LEVELS)[own] for name, own in columns.items()})


def test_drawn_pairs_of_many_columns_lead_to_nearly_every_column(tmp_path):
    frame = wide_rows(10_000, np.random.default_rng(0))
    domain = of_levels(frame.columns)
    release = released(frame, domain, output=tmp_path / "w.kme")
    chosen, measurement = chosen_margins(release).chosen, release.measurement
    assert measurement is not None and not measurement.scores and len(measurement.choices) == 6
    # 66 pairs of columns that repeat one another are the strongest; drawn by strength alone, 31 pairs would be among them
    assert sum((11 + k, 12 + k) in chosen for k in range(1, 20)) >= 17
    assert len(set(connected_parts(list(chosen), 32))) <= 3
    found = ka.read_release(tmp_path / "w.kme", allow_rehearsal=True)
    assert found.measurement is not None and found.measurement.choices == measurement.choices


def test_many_columns_are_scored_where_noise_is_small_and_drawn_where_it_is_not():
    domain = of_levels(f"c{k}" for k in range(32))
    for n, rounds in ((10**6, (1, 3, 5, 6)), (10_000, (1, 2, 3, 4, 5, 7)), (1_000, (1,))):
        shares = shares_of_rounds(adaptive_kernel(domain), PopulationSize(n), noise_for("gaussian", 1.0, 1e-6))
        assert shares.scores == rounds and math.isclose(sum(shares.parts), 1)


def test_the_last_class_of_many_columns_is_seen_with_every_other_column_and_first_in_larger_sets(monkeypatch):
    monkeypatch.setattr(sharing, "_FEW_LEFT", 0)
    frame = wide_rows(5000, np.random.default_rng(1)).iloc[:, 20:]
    release = released(frame, of_levels(frame.columns), points=50, target="chain_19")
    assert release.measurement is not None and release.measurement.beforehand == tuple((j, 11) for j in range(11))
    assert set(release.measurement.beforehand) < set(chosen_margins(release).chosen)
    assert release.measurement.drawn is not None and all(11 in own for own in release.measurement.drawn.sets)


NAMES = (*(f"x{j}" for j in range(8)), "y")


def binary(names: tuple[str, ...]) -> Domain:
    return Domain(tuple(Categorical(name=name, levels=("0", "1")) for name in names))


def parity(k: int, n: int = 10_000) -> pd.DataFrame:
    """Eight even columns, and whether an odd number of the first k is 1: all smaller sets are independent."""
    rows = np.random.default_rng(k).integers(0, 2, (n, 8))
    return pd.DataFrame(np.column_stack([rows, rows[:, :k].sum(axis=1) % 2]), columns=NAMES).astype(str)


@pytest.fixture(scope="module")
def xor() -> Any:
    return publish(parity(2), binary(NAMES), epsilon=1.0, delta=1e-6, rehearsal=1)


def kernel_of(release: Any) -> Any:
    return release.measurement.feature_map.kernel


@pytest.mark.parametrize(("k", "least"), [(3, 0.97), (4, 0.95)])
@pytest.mark.slow
def test_the_parity_of_more_columns_is_found(k: int, least: float) -> None:
    release = publish(parity(k), binary(NAMES), epsilon=1.0, delta=1e-6, rehearsal=1)
    assert [own for own in kernel_of(release).chosen if len(own) > 2] == [(*range(k), 8)]
    rows = release.frame.astype(int)
    assert (rows[list(NAMES[:k])].sum(axis=1) % 2 == rows.y).mean() > least


def test_the_parity_of_two_columns_is_found_and_the_rows_have_it(xor: Any) -> None:
    assert [own for own in kernel_of(xor).chosen if len(own) > 2] == [(0, 1, 8)]
    assert xor.measurement.counted_together(0, 8) and (0, 1, 8) in xor.measurement.drawn.sets
    rows = xor.frame.astype(int)
    assert (rows.x0 ^ rows.x1 == rows.y).mean() > 0.98


def test_a_label_is_predicted_from_what_was_counted(xor: Any) -> None:
    model, rows = fit_smoothed_classes(xor, "y"), parity(2, 500)
    found = model.classes_[model.predict_proba(rows.drop(columns="y")).argmax(axis=1)]
    assert (found == rows.y).mean() > 0.99


def test_what_was_counted_is_answered_within_its_error(xor: Any) -> None:
    """The truth is 0 and ¼; without the table of three columns the error says that it may be anything near ⅛."""
    for levels, truth in ((("0", "1", "0"), 0.0), (("0", "1", "1"), 0.25)):
        asked = " and ".join(f"{name} == '{level}'" for name, level in zip(("x0", "x1", "y"), levels, strict=True))
        answer = xor.probability(asked)
        assert abs(answer.value - truth) < 1.96 * answer.standard_error + 1e-9 and answer.standard_error < 0.01


def test_nothing_is_counted_where_there_is_nothing_to_find_and_no_round_is_lost() -> None:
    """All tables were then measured once more: their squared heights add up to 1 less what draws and scores had."""
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (10_000, 9)), columns=NAMES).astype(str)
    release: Any = publish(rows, binary(NAMES), epsilon=1.0, delta=1e-6, rehearsal=1)
    kernel, measurement = kernel_of(release), release.measurement
    assert max(map(len, kernel.chosen), default=2) == 2 and len(measurement.drawn.sets) == 24 == 2 * measurement.drawn.draws.count
    assert sum(map(sum, kernel.squares)) == pytest.approx(1)


def test_a_file_holds_the_draws_and_their_scores_which_count_in_its_sensitivity(xor: Any, tmp_path: Path) -> None:
    path = tmp_path / "xor.kme"
    xor.write(path)
    again: Any = ka.read_release(path, allow_rehearsal=True)
    drawn, found = xor.measurement.drawn, again.measurement.drawn
    assert (found.sets, found.largest, found.draws, found.scores.step) == (
        drawn.sets, drawn.largest, drawn.draws, drawn.scores.step,
    )  # fmt: skip
    np.testing.assert_array_equal(found.scores.noisy, drawn.scores.noisy)
    assert again.kernel == xor.kernel and again.measurement.sensitivity == xor.measurement.sensitivity
    scored = score_sensitivity([2 ** len(own) for own in drawn.sets], drawn.scores.step)
    without = replace(xor.measurement, drawn=None).grid_sensitivity
    assert xor.measurement.grid_sensitivity > math.hypot(without, scored) > without


@pytest.mark.parametrize(
    "change", [{"largest": 4}, {"sets": [[8, 1, 0]]}, {"sets": [[0, 1]]}, {"sets": [[0, 1, 9]]}, {"scale": -1.0}, {"score_step": 0},
     {"count": 25}]
)  # fmt: skip
def test_a_file_of_other_draws_is_refused(xor: Any, change: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    """A table with more cells than the largest candidate would make the sensitivity too small."""
    written = type(xor.measurement).to_dict
    monkeypatch.setattr(type(xor.measurement), "to_dict", lambda own: (made := written(own)) | {"drawn": made["drawn"] | change})
    with pytest.raises((FileRefused, ValueError), match=r"drawn|scores"):
        xor.write(tmp_path / "changed.kme")


@pytest.mark.parametrize("score", [2**62, -(2**62)])
@pytest.mark.parametrize("rounds", ["scores", "drawn"])
def test_a_score_that_no_table_and_noise_has_is_refused(xor: Any, rounds: str, score: int) -> None:
    """Error bars of what was not counted rest on scores."""
    measured = xor.measurement
    first, *others = (measured.drawn.scores,) if rounds == "drawn" else measured.scores
    false = replace(first, noisy=np.full_like(first.noisy, score))
    with pytest.raises(ValueError, match="a score is a distance"):
        replace(
            measured, **({"drawn": replace(measured.drawn, scores=false)} if rounds == "drawn" else {"scores": (false, *others)})
        )


def test_a_larger_set_that_was_not_scored_was_not_measured(xor: Any) -> None:
    measured, chosen = xor.measurement, xor.measurement.feature_map.kernel.chosen
    others = iter(own for own in combinations(range(9), 3) if own not in measured.drawn.sets)
    sets = tuple(next(others) if own in chosen else own for own in measured.drawn.sets)
    with pytest.raises(ValueError, match="sets that were drawn"):
        replace(measured, drawn=replace(measured.drawn, sets=sets))


def test_a_set_that_was_scored_and_not_measured_says_so(xor: Any) -> None:
    measured, names = xor.measurement, xor.domain.names
    one = next(
        own
        for own in measured.drawn.sets
        if own not in measured.feature_map.kernel.chosen and all(measured.counted_together(*pair) for pair in combinations(own, 2))
    )
    notes = xor.probability(" and ".join(f"{names[j]} == '0'" for j in one)).notes
    assert any("its score did not outweigh its table's noise beside what pairs say" in note for note in notes)


def test_candidates_are_a_bounded_list_of_small_tables_of_three_columns_or_more() -> None:
    sizes = (2, 1, 3, 200, 2, 8)
    kernel = adaptive_kernel(
        Domain(tuple(Categorical(name=f"c{n}", levels=tuple(map(str, range(size)))) for n, size in enumerate(sizes)))
    )
    sets = candidate_sets(kernel)
    assert sets == ((0, 2, 4), (0, 4, 5), (0, 2, 5), (2, 4, 5), (0, 2, 4, 5))
    assert candidate_sets(kernel, [5]) == ((0, 4, 5), (0, 2, 5), (2, 4, 5), (0, 2, 4, 5))
    assert candidate_sets(kernel, [2, 5]) == ((0, 2, 4), (0, 4, 5), (0, 2, 5), (2, 4, 5), (0, 2, 4, 5))
    assert without_sets(with_sets(kernel, sets)) == kernel
    many = candidate_sets(adaptive_kernel(binary(tuple(f"c{j}" for j in range(60)))))
    assert len(many) == 2000 and many[0] == (0, 1, 2) and {len(own) for own in many} == {3, 4}
    of_one = candidate_sets(adaptive_kernel(binary(tuple(f"c{j}" for j in range(80)))), [70])
    assert len(of_one) == 2000 and all(70 in own for own in of_one) and {len(own) for own in of_one} == {3, 4}


def test_the_table_of_a_set_counts_in_those_of_its_pairs(xor: Any) -> None:
    observed = Observed.of(xor.measurement)
    table, variance = observed.sets[0, 1, 8]
    assert table.shape == (2, 2, 2) and observed.pairs[0, 1][1] <= 2 * variance
    pairs = {pair: np.full((2, 2), 0.25) + 0.1 * np.array([[1, -1], [-1, 1]]) for pair in ((0, 1), (0, 8), (1, 8))}
    found = implied_by_pairs((0, 1, 8), pairs)
    for pair, own in pairs.items():
        np.testing.assert_allclose(over_pair(found, (0, 1, 8), pair), own, atol=1e-3)
    log = np.log(found[0])
    assert abs((log * np.array([1, -1]) * np.array([[1], [-1]]) * np.array([[[1]], [[-1]]])).sum()) < 1e-9


def test_no_set_is_measured_for_what_chance_gives_it_even_where_there_is_hardly_any_noise() -> None:
    for seed in range(3):
        rows = pd.DataFrame(np.random.default_rng(seed).integers(0, 2, (10_000, 9)), columns=NAMES).astype(str)
        release: Any = publish(rows, binary(NAMES), epsilon=50.0, delta=1e-6, rehearsal=seed)
        assert max(map(len, kernel_of(release).chosen)) == 2
