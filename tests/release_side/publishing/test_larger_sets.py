"""Larger sets of columns than pairs: a relation that no pair shows is found, counted, and in rows, answers and labels."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kmeanalyst as ka
from kmeanalyst.learning.rows.smoothed_classes import fit_smoothed_classes
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.file.limits import FileRefused
from kmeanalyst.releases.measurement import score_sensitivity
from kmeanalyst.representation.tables.estimates import Observed, implied_by_pairs, over_pair
from release_side import publish
from release_side.publishing.methods.adaptive.shares_of_rounds import candidate_sets, with_sets, without_sets

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
    assert (
        max(map(len, kernel.chosen), default=2) == 2
        and len(measurement.drawn.sets) == 24 == 2 * measurement.drawn.draws.count
    )
    assert sum(map(sum, kernel.squares)) == pytest.approx(1)
    assert measurement.decided_beforehand.feature_map.kernel.chosen == ()


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
    monkeypatch.setattr(
        type(xor.measurement), "to_dict", lambda own: (made := written(own)) | {"drawn": made["drawn"] | change}
    )
    with pytest.raises((FileRefused, ValueError), match=r"drawn|scores"):
        xor.write(tmp_path / "changed.kme")


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
