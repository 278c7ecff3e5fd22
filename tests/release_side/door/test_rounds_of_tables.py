"""Rounds of tables: what is refused spends nothing, the budget is spent once, and the noise is that of all allowances."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from door_cases import unread  # noqa: F401  (refusals_rounds.txt)
from table_rounds import (
    ALL,
    DOMAIN,
    FIRST,
    HEIGHTS,
    LARGEST,
    LAST,
    NO_GUESS,
    ROOM,
    RoundRecorder,
    Tables,
    allowance_of_tables,
    door_to,
    opened,
    recorder_of,
    some_rounds,
)

import release_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.measurement import GRID, SHRINK
from kmeanalyst.releases.statement import PopulationSize
from release_side.budget.ledger import Ledger
from release_side.door.door import Door
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, Noise, PublishError, RehearsalNoise
from release_side.door.private_tables import TableRounds
from release_side.errors import SPENT
from release_side.publishing.methods.adaptive.shares_of_rounds import shares_of_rounds

# ---------------------------------------------------------------- refusals


def guesses_of(*last: int) -> Array:
    """0 for each cell but the last ones."""
    return np.array([0] * (10 - len(last)) + list(last))


def test_a_refused_request_draws_nothing_spends_nothing_and_uses_up_no_round() -> None:
    def refused(text: str) -> object:
        rounds = some_rounds()
        try:
            return eval(text, globals(), {"rounds": rounds})
        finally:
            noise = recorder_of(rounds)
            assert noise.events == [] and rounds.counts is not None
            rounds.measure(ALL, HEIGHTS)
            assert noise.events == ["spend", "noise"] and noise.numbers == [0]
            with pytest.raises(PublishError, match="a row can move this round"):
                rounds.measure(ALL, HEIGHTS)  # the second allowance is smaller
            rounds.scores(ALL, NO_GUESS + 1, 1000)
            assert noise.events == ["spend", "noise", "noise"] and noise.numbers == [0, 1]

    refusals.check(Path(__file__).parent / "refusals_rounds.txt", refused)


def test_a_step_is_refused_that_64_bits_cannot_hold_for_so_many_rows() -> None:
    """step · N ≤ 2⁶⁰, in a table of 2³³ rows."""
    counts = np.array([2**33, 0]) * GRID
    rounds = TableRounds(Tables(sizes=(2,)), counts, RoundRecorder(), 2**33, [ROOM])  # type: ignore[arg-type]
    with pytest.raises(PublishError, match="a whole step that 64 bits can hold"):
        rounds.scores(np.array([0]), np.array([0, 0]), 2**27 + 1)
    assert rounds.scores(np.array([0]), np.array([0, LARGEST]), 2**27).tolist() == [2**61]


def test_rounds_are_made_as_often_as_was_declared_and_counts_are_gone_after_the_last() -> None:
    """Rounds made in any way count; a further one is refused whatever it asks."""
    rounds = some_rounds()
    rounds.measure(ALL, HEIGHTS)
    rounds.scores(ALL, NO_GUESS, 1000)
    assert rounds.counts is not None
    rounds.scores(ALL, NO_GUESS, 1)
    assert rounds.counts is None
    for ask in (lambda: rounds.measure(ALL, HEIGHTS * 0), lambda: rounds.scores(ALL, NO_GUESS, 1)):
        with pytest.raises(PublishError, match="all rounds were made"):
            ask()
    noise = recorder_of(rounds)
    assert noise.events == ["spend", "noise", "noise", "noise"] and noise.numbers == [0, 1, 2]


def test_threads_that_ask_at_once_get_one_round_each_and_record_one_spend() -> None:
    """Recording takes its time, and the other thread asks meanwhile: each round has noise and an allowance of its own."""
    recorder = RoundRecorder()

    def record_spend() -> None:
        time.sleep(0.1)
        recorder.record_spend()

    rounds = opened(np.vstack([FIRST, LAST]), ROOM, noise=recorder, record_spend=record_spend)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(rounds.measure, ALL, HEIGHTS) for _ in range(4)]
    refusals = [one.exception() for one in asked]
    assert recorder.events == ["spend", "noise", "noise"] and recorder.numbers == [0, 1]
    assert sum(error is None for error in refusals) == 2
    assert all(error is None or "all rounds were made" in str(error) for error in refusals)


LAPLACE = LaplaceNoise(1.0, 0.0)


def test_allowances_of_numpy_are_compared_as_float64() -> None:
    """A height of 42,432 moves a table by 60,007.9, which is 60,000 in 16 bits; a scale in 32 bits may be too small."""
    for kind in [np.float16, np.float32]:
        rounds = opened(FIRST, kind(60_000), 1.6e9)
        with pytest.raises(PublishError, match=r"a row can move this round by 60007\.9"):
            rounds.measure(ALL[:1], np.array([42_432]))
        assert type(rounds.choose(ALL, NO_GUESS, 1000, costs=np.zeros(3, dtype=int), count=1)[1]) is float


def test_a_sensitivity_so_small_that_the_grid_matters_is_refused() -> None:
    """With one allowance of √2 steps and ε = 10, δ = 10⁻⁶, the exact δ of discrete noise is 1.9·10⁻⁶."""
    with pytest.raises(PublishError):
        TableRounds(Tables(), NO_GUESS, GaussianNoise(10.0, 1e-6), 1, [math.sqrt(2)])


def test_allowances_that_a_caller_changes_later_change_nothing() -> None:
    noise, allowances = RoundRecorder(), [allowance_of_tables(HEIGHTS, 10, units=False)]
    rounds = door_to(FIRST, PopulationSize(1), noise).rounds(Tables(), allowances)
    allowances.append(ROOM)
    rounds.measure(ALL, HEIGHTS)
    assert rounds.counts is None and noise.sensitivities == allowances[:1]


def test_the_rows_are_read_once_and_the_door_is_closed() -> None:
    reads = 0

    def rows() -> Iterator[Array]:
        nonlocal reads
        reads += 1
        yield np.vstack([FIRST, LAST])

    door: Door[Any] = Door(rows(), RoundRecorder(), PopulationSize(2))
    rounds = door.rounds(Tables(), [ROOM, ROOM])
    for _ in range(2):
        rounds.measure(ALL, HEIGHTS)
    assert reads == 1 and door.rows is None
    with pytest.raises(ValueError, match="a second spend"):
        door.rounds(Tables(), [ROOM])
    with pytest.raises(ValueError, match="a second spend"):
        door.mean(Tables())


def test_a_table_of_another_size_than_announced_is_refused_and_nothing_is_spent() -> None:
    noise = RoundRecorder()
    door: Door[Any] = Door([FIRST], noise, PopulationSize(2), noise.record_spend)
    with pytest.raises(PublishError, match="the table has 1 rows, not the 2"):
        door.rounds(Tables(), [ROOM])
    assert noise.events == []


# ---------------------------------------------------------------- the spend


def test_the_spend_is_recorded_once_just_before_the_first_noise() -> None:
    rounds = some_rounds()
    assert recorder_of(rounds).events == [], "reading the rows spends nothing"
    rounds.measure(ALL, HEIGHTS)
    rounds.scores(ALL, NO_GUESS, 1000)
    rounds.measure(ALL, HEIGHTS)
    assert recorder_of(rounds).events == ["spend", "noise", "noise", "noise"]


def test_no_noise_is_drawn_where_the_spend_cannot_be_recorded() -> None:
    """Nor by a second attempt, which tries to record it again."""
    attempts = []

    def fails() -> None:
        attempts.append(1)
        raise OSError("the disk is full")

    noise = RoundRecorder()
    rounds = opened(FIRST, ROOM, noise=noise, record_spend=fails)
    for number in (1, 2):
        with pytest.raises(OSError, match="the disk is full"):
            rounds.measure(ALL, HEIGHTS)
        assert len(attempts) == number and noise.events == []


# ---------------------------------------------------------------- the noise

MANY = Tables(sizes=(2,) * 10_000)


def test_all_rounds_have_noise_of_one_deviation_and_independent_of_each_other() -> None:
    """m · 5 GRID for allowances of 3, 4 and a small one.

    The tolerance of 5 % is 7 standard errors of 10,000 numbers, and 6 of a correlation. Noise for a round's own allowance would
    be 20 or 40 % less. False alarm: below 10⁻⁷.
    """
    for seed in [None, 0, 7]:
        fresh = GaussianNoise(1.0, 1e-6)
        noise: Noise | RehearsalNoise = fresh if seed is None else RehearsalNoise(fresh, seed)
        rows, every = np.zeros((3, 10_000)), np.arange(10_000)
        allowances = [3.0 * GRID, 4.0 * GRID, 100.0]
        rounds = Door([rows], noise, PopulationSize(3)).rounds(MANY, allowances)
        heights, step = np.full(10_000, GRID // 50), GRID // 51
        drawn = [
            rounds.measure(every, heights) - np.tile([3 * (GRID // 50), 0], 10_000),
            rounds.scores(every, np.zeros(20_000, dtype=np.int64), step) - 3 * step,
            rounds.measure(every, np.zeros(10_000, dtype=int)),
        ]
        deviation = fresh.multiplier() * math.hypot(*allowances)
        assert rounds.deviation == deviation and rounds.sensitivity == math.hypot(*allowances)
        for own in drawn:
            assert own.std() == pytest.approx(deviation, rel=0.05) and abs(own.mean()) < 7 * deviation / len(own) ** 0.5
        for one, two in combinations(drawn, 2):
            assert abs(np.corrcoef(one[:10_000], two[:10_000])[0, 1]) < 0.06


def test_a_rehearsal_gives_the_same_rounds_again() -> None:
    noise = RehearsalNoise(GaussianNoise(1.0, 1e-6), 3)
    first, second, other = (
        [rounds.measure(ALL, HEIGHTS).tolist(), rounds.measure(ALL, HEIGHTS).tolist()]
        for rounds in (opened(FIRST, ROOM, noise=each) for each in (noise, noise, dataclasses.replace(noise, seed=4)))
    )
    assert first == second and first[0] != first[1]
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_every_round_asks_for_noise_of_the_whole_sensitivity() -> None:
    rounds = opened(FIRST, 1.5 * GRID, 3.0 * GRID)  # and ROOM
    for _ in range(3):
        rounds.measure(ALL[:1], HEIGHTS[:1])
    noise = recorder_of(rounds)
    assert noise.sensitivities == [math.hypot(1.5 * GRID, 3.0 * GRID, ROOM)] * 3 and noise.numbers == [0, 1, 2]


# ---------------------------------------------------------------- whole releases

FRAME = DOMAIN.decode(DOMAIN.draw(600, 1))
UNITS = FRAME.assign(who=[str(i // 2) for i in range(1200)][:600])
WORKLOAD = ["table(a, b)", "c == 'x'"]
RELEASES: dict[str, dict[str, Any]] = {
    "pairs": {}, "target": {"target": "flag"}, "zcdp": {"calibration": "zcdp"}, "units": {"unit": "who", "epsilon": 2.0},
    "workload": {"workload": WORKLOAD}, "workload of units": {"workload": WORKLOAD, "unit": "who", "epsilon": 2.0},
}  # fmt: skip


def published(frame: pd.DataFrame = UNITS, **choice: Any) -> Release:
    usual: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "kernel": "adaptive", "points": 6, "workers": 1}
    return release_side.publish(frame, DOMAIN, **(usual | choice))


def facts(release: Release) -> dict[str, Any]:
    """Everything in a release that comes from the door or follows from it."""
    measurement = release.measurement
    assert measurement is not None and release.statement is not None
    return {
        "statement": dataclasses.asdict(release.statement), "kernel": release.kernel.to_dict(),
        "sum": measurement.noisy_sum.tolist(),
        "scores": [(score.noisy.tolist(), score.step) for score in measurement.scores], "points": release.points.to_dict(),
        "weights": release.weights.tolist(),
    }  # fmt: skip


@cache
def rehearsed(name: str) -> Release:
    return published(rehearsal=1, **RELEASES[name])


def test_a_rehearsal_of_adaptive_margins_is_the_same_release_twice() -> None:
    for name in ("target", "workload of units"):
        one, two = facts(rehearsed(name)), facts(published(rehearsal=1, **RELEASES[name]))
        other = facts(published(rehearsal=2, **RELEASES[name]))
        assert one == two
        assert one["sum"] != other["sum"] and (one["scores"] != other["scores"] or name == "target")


def test_statement_and_file_have_the_noise_that_the_door_drew() -> None:
    """The door's noise is m · √Σ allowances². The file's sensitivity is at most this root, and less by no more than 10⁻⁶."""
    for name in RELEASES:
        choice = RELEASES[name]
        release = rehearsed(name)
        measurement, statement = release.measurement, release.statement
        assert measurement is not None and statement is not None and statement.noise_scale is not None
        noise = GaussianNoise(choice.get("epsilon", 1.0), 1e-6, choice.get("calibration", ""))
        size = PopulationSize(300, "who") if "unit" in choice else PopulationSize(600)
        assert statement.n_rows == size.count and len(measurement.scores) == (0 if "target" in choice else 2)
        kernel, asked = adaptive_kernel(DOMAIN), {}
        if "target" in choice:
            own = DOMAIN.names.index(choice["target"])
            asked = {pair: 0.1 for pair in kernel.pairs if own in pair}
        allowances = shares_of_rounds(kernel, size, noise, asked).allowances()
        drawn = noise.multiplier() * math.hypot(*allowances)
        assert statement.noise_scale * GRID * SHRINK * size.count == pytest.approx(drawn, rel=1e-12)
        assert statement.noise_scale == measurement.noise_scale and statement.sensitivity == measurement.sensitivity
        assert (1 - 1e-6) * math.hypot(*allowances) <= measurement.grid_sensitivity <= (1 + 1e-12) * math.hypot(*allowances)
        ratio = statement.noise_scale / statement.sensitivity
        assert noise.multiplier() * (1 - 1e-12) <= ratio <= noise.multiplier() * (1 + 1e-6)


@pytest.fixture
def counted(tmp_path: Path) -> dict[str, Any]:
    """A ledger in which the table "people" may spend (2, 1e-6)."""
    Ledger(tmp_path / "b.ledger").init("people", 2.0, 1e-6)
    return {"ledger": tmp_path / "b.ledger", "table": "people"}


def releases_in(counted: dict[str, Any]) -> tuple[Any, ...]:
    return Ledger(counted["ledger"]).account("people").releases


def spy_on_noise(patch: pytest.MonkeyPatch, seen: Callable[[], object], *, fails_at: int | None = None) -> list[object]:
    """What `seen` says each time that noise is drawn; the draw of this number fails."""
    drawn: list[object] = []
    honest = GaussianNoise.add_to

    def add_to(self: GaussianNoise, exact_sum: Array, *, sensitivity: float) -> Array:
        drawn.append(seen())
        if len(drawn) == fails_at:
            raise MemoryError
        return honest(self, exact_sum, sensitivity=sensitivity)

    patch.setattr(GaussianNoise, "add_to", add_to)
    return drawn


@pytest.mark.parametrize("unit", [None, "who"])
def test_all_rounds_are_one_entry_in_the_ledger_made_before_the_first(
    unit: str | None, counted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = spy_on_noise(monkeypatch, lambda: len(releases_in(counted)))
    choice = {"epsilon": 2.0} if unit else {}
    release = published(unit=unit, **choice, **counted)
    assert drawn == [1] * 7 and release.statement is not None and release.statement.ledger_head is not None
    (entry,) = releases_in(counted)
    noise = GaussianNoise(choice.get("epsilon", 1.0), 1e-6)
    assert (entry.spend.epsilon, entry.spend.delta) == (noise.epsilon, noise.delta)
    assert entry.spend.noise_multiplier == noise.multiplier()
    with pytest.raises(PublishError, match="does not fit"):
        published(epsilon=1.9, unit=unit, **counted)
    assert len(drawn) == 7 and len(releases_in(counted)) == 1


def test_a_round_that_fails_leaves_the_budget_counted_as_spent(counted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = spy_on_noise(monkeypatch, lambda: len(releases_in(counted)), fails_at=3)
    with pytest.raises(MemoryError) as caught:
        published(**counted)
    assert caught.value.__notes__ == [SPENT] and drawn == [1, 1, 1] and len(releases_in(counted)) == 1
