"""Noisy scores of a release: what they say, what they cost, and what is refused before anything is spent."""

from __future__ import annotations

import json
import math
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from curator_calls import call
from score_draws import draws_of

import kmeanalyst as ka
import release_side
from kmeanalyst.cli.main import main
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.cyclic_column import Cyclic
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.quality.composition import summed_guarantee
from kmeanalyst.releases.quality.intervals import laplace_tail, ratio_interval
from kmeanalyst.releases.quality.parts import COLUMNS, GROUPS, K_MARGINAL, QUESTIONS, SIZES
from kmeanalyst.releases.quality.scores import PublishedScores
from kmeanalyst.releases.statement import gaussian_delta
from kmeanalyst.representation.tables.score_tables import ScoreTables, k_marginal, shares_of
from release_side.budget.ledger import Ledger
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, Noise, PublishError
from release_side.publishing.scores import WIDEST, plan_quality, publish_quality

DOMAIN = Domain((
    Categorical(name="region", levels=("north", "south", "east")), Boolean(name="ill"),
    Integer(name="age", lower=0, upper=80, edges=(0, 20, 40, 60, 80)),
    Real(name="wage", lower=0.0, upper=100.0, missing=True, edges=(0, 30, 70, 100)),
))  # fmt: skip
WORKLOAD = ["age", "ill and age > 40", "missing(wage)", "wage", "age | ill", "quantile(age, 0.5)", "corr(age, wage)"]
MEANS = ["age", "ill and age > 40", "missing(wage)"]  # of which the range is public and no value is missing
N = 3000


def table(n_rows: int = N, seed: int = 0) -> pd.DataFrame:
    """A table whose columns depend on each other, with three rows for each owner."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 81, n_rows)
    region = np.where(rng.random(n_rows) < age / 100, "south", rng.choice(["north", "east"], n_rows, p=[0.9, 0.1]))
    ill = rng.random(n_rows) < np.where(region == "south", 0.5, 0.1)
    wage = np.where(rng.random(n_rows) < 0.2, np.nan, np.clip(age + rng.normal(0, 10, n_rows), 0, 100).round(1))
    frame = pd.DataFrame({"region": region, "age": age, "ill": ill, "wage": wage}).astype(str).replace("nan", "")
    return frame.assign(owner=[str(k // 3) for k in range(n_rows)])


FRAME = table()
ENCODED = DOMAIN.encode(FRAME[list(DOMAIN.names)])


def released(**choices: Any) -> Release:
    return release_side.publish(
        FRAME, DOMAIN, **({"epsilon": 1, "delta": 1e-6, "rehearsal": 1, "points": 300} | choices)
    )


@pytest.fixture(scope="module")
def release() -> Release:
    """A release that is no rehearsal."""
    return released(rehearsal=None)


@pytest.fixture(scope="module")
def of_units() -> Release:
    return released(rehearsal=None, unit="owner")


@pytest.fixture
def counted(tmp_path: Path) -> dict[str, Any]:
    Ledger(tmp_path / "ledger").init("people", 3.0, 1e-5)
    return {"ledger": tmp_path / "ledger", "table": "people"}


def shares(release: Release, group: str | None) -> tuple[ScoreTables, Array, Array]:
    """The tables with the shares of the private table and of the release."""
    tables = ScoreTables(DOMAIN, None if group is None else DOMAIN.position(group))
    of_release = tables.counts(release.encoded_points, release.view_weights("probability"))
    return tables, shares_of(tables, tables.counts(ENCODED)), shares_of(tables, of_release)


def truth(release: Release, group: str | None) -> dict[str, list[float]]:
    """What the scores would be without noise, from plain counting."""
    tables, p, q = shares(release, group)
    tv = [abs(tables.table(p, i) - tables.table(q, i)).sum() / 2 for i in range(len(tables.shapes))]
    found = {K_MARGINAL: [1 - k_marginal(tables, p, q) / 1000], COLUMNS: tv[tables.one_way]}
    if group is not None:
        within = []
        for i in range(tables.by_group.start, tables.by_group.stop):
            a, b = (tables.table(own, i).reshape(tables.sizes[tables.group], -1) for own in (p, q))
            within.append(np.abs(a / a.sum(axis=1, keepdims=True) - b / b.sum(axis=1, keepdims=True)).sum(axis=1) / 2)
        found[GROUPS] = np.mean(within, axis=0).tolist()
    frame = DOMAIN.decode(ENCODED)
    age, ill = frame["age"].to_numpy(float), frame["ill"].to_numpy(bool)
    found[QUESTIONS] = [age.mean(), (ill & (age > 40)).mean(), frame["wage"].isna().mean()]
    return found


# ---------------------------------------------------------------------- what they say


def same(quality: PublishedScores, name: str, values: list[float], **tolerance: float) -> None:
    """The scores of a part are these, but for groups that are too small to have one."""
    found = [score.value for score in quality.scores_of(name)]
    given = [k for k, value in enumerate(found) if value is not None]
    assert len(given) == len(found) if name != GROUPS else len(given) > 1
    np.testing.assert_allclose([found[k] for k in given], [values[k] for k in given], **tolerance)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("group", [None, "region", "age"])
def test_without_noise_the_scores_are_those_of_plain_counting(group: str | None, release: Release) -> None:
    quality = publish_quality(
        release, FRAME, epsilon=1, delta=1e-6, group=group, workload=WORKLOAD, uncounted=True, force_wide=True
    )
    expected = truth(release, group)
    assert [score.name for score in quality.scores_of(QUESTIONS)] == MEANS
    assert {part.name for part in quality.parts} - {SIZES} == set(expected)
    for name, values in expected.items():
        same(quality, name, values, rtol=1e-5, atol=1e-6)
    if group == "region":
        assert [round(size) for size, _ in quality.group_sizes()] == FRAME["region"].value_counts()[
            ["north", "south", "east"]
        ].tolist()
        assert [score.name for score in quality.scores_of(GROUPS)] == ["north", "south", "east"]


@pytest.mark.usefixtures("no_noise")
def test_under_units_every_unit_counts_once(of_units: Release) -> None:
    """Units of equal size: the shares are those of the rows, but for rounding down by 2^-13."""
    quality = publish_quality(
        of_units, FRAME, epsilon=1, delta=1e-6, group="region", workload=MEANS, uncounted=True, force_wide=True
    )
    assert (quality.n_rows, quality.unit, quality.neighbouring) == (N // 3, "owner", "replace-one-unit")
    for name, values in truth(of_units, "region").items():
        same(quality, name, values, rtol=2e-3, atol=5e-4)


def test_a_question_is_held_if_both_noises_explain_the_difference(release: Release) -> None:
    quality = publish_quality(release, FRAME, epsilon=1, workload=MEANS, uncounted=True)
    for score, question in zip(quality.scores_of(QUESTIONS), quality.questions, strict=True):
        noise = quality.deviation(QUESTIONS) * (question.high - question.low)
        answer = release.expectation(question.text)
        low, high = answer.interval(0.95, kind="noise")
        assert question.answer == answer.value and question.standard_error == pytest.approx((high - low) / 2 / 1.959964)
        assert score.held == (abs(score.value - answer.value) <= 1.96 * math.hypot(question.standard_error, noise))


def test_a_release_by_the_exponential_mechanism_has_scores_too() -> None:
    """Its answers have no known error, so that nothing is said to hold."""
    small = Domain((Boolean(name="a"), Boolean(name="b")))
    frame = small.decode(small.draw(400, 1))
    drawn = release_side.publish(frame, small, epsilon=1, delta=0, method="exponential", points=4, uncounted=True)
    quality = publish_quality(drawn, frame, epsilon=1, workload=["a", "a and b"], uncounted=True, force_wide=True)
    assert quality.total_epsilon == 2 and quality.total_delta == 0
    assert {score.held for score in quality.scores_of(QUESTIONS)} == {None} or all(
        question.standard_error is not None for question in quality.questions
    )


def test_texts_have_no_cells_and_are_left_out() -> None:
    domain = Domain((*DOMAIN.columns, Text(name="note", length=4, alphabet="ab", unknown="b")))
    frame = FRAME.assign(note="ab")
    public = domain.decode(domain.draw(50, 3))
    release = release_side.publish(
        frame, domain, epsilon=1, delta=1e-6, method="subspace", public_points=public, uncounted=True
    )
    quality = publish_quality(release, frame, epsilon=1, uncounted=True, workload=["age", "note == 'ab'"])
    assert quality.names == DOMAIN.names and [question.text for question in quality.questions] == ["age"]


EVERY_KIND = Domain((
    Integer(name="i", lower=0, upper=9, missing=True), Real(name="r", lower=1, upper=100, scale="log", missing=True),
    Date(name="d", lower="2000-01-01", upper="2020-12-31", missing=True), Boolean(name="b", missing=True),
    Ordinal(name="o", levels=("a", "b", "c"), missing=True), Cyclic(name="c", lower=0, upper=24),
    Tree(name="t", parents={"a1": "a", "a2": "a", "b1": "b"}), Categorical(name="k", levels=("1", "2", "x")),
))  # fmt: skip
EVERY_QUESTION = [
    "missing(i)", "where(missing(i), 0, i)", "log(where(missing(r), 1, r))", "o >= 'b'", "b", "not b", "where(c > 12, c, 0)",
    "t == 'a'", "k == 'x'", "1 / (1 + where(missing(i), 0, i))", "o == 'c' and d > '2010-01-01'",
]  # fmt: skip


@pytest.mark.parametrize("group", [None, "o", "c", "t", "d"])
def test_no_cell_of_any_column_raises_or_warns(group: str | None) -> None:
    """Warnings are errors in these tests."""
    rng = np.random.default_rng(0)
    frame = EVERY_KIND.decode(EVERY_KIND.draw(300, 0)).astype(object)
    hostile = ["", "NaN", "1e400", "-inf", "\x00", "ä", "9" * 20, "nan", "2000-02-30"]
    for name in EVERY_KIND.names:
        frame.loc[rng.integers(0, 300, 60), name] = rng.choice(hostile, 60)
    release = release_side.publish(
        frame.astype(str), EVERY_KIND, epsilon=1, delta=1e-6, kernel="table", features=60, points=30, uncounted=True
    )
    found = publish_quality(
        release, frame.astype(str), epsilon=1, group=group, workload=EVERY_QUESTION, uncounted=True, force_wide=True
    )
    assert [question.text for question in found.questions] == EVERY_QUESTION


# ---------------------------------------------------------------------- intervals


def test_fiellers_interval_is_the_textbooks_and_never_leaves_nought_to_one() -> None:
    """(D − r n)² = z²(σ_D² + r² σ_n²), solved for r."""
    d, n, a, b, z = 250.0, 1000.0, 40.0, 30.0, 1.959963984540054
    roots = np.roots([n**2 - z**2 * b**2, -2 * d * n, d**2 - z**2 * a**2])
    np.testing.assert_allclose(ratio_interval("discrete gaussian", d, n, a, b), sorted(roots), rtol=1e-9)
    below, above = (ratio_interval("discrete gaussian", d, 1000.0, 40.0, 30.0) for d in (-500.0, 2000.0))
    assert below[0] == 0.0 and 0.07 < below[1] < 0.09  # what the noise leaves of the nearest ratio: never no length
    assert 0.89 < above[0] < 0.92 and above[1] == 1.0
    low, high = ratio_interval("discrete laplace", 10.0, 1000.0, 40.0, 30.0)
    assert low == 0.0 and 0.05 < high < 0.12


@pytest.mark.parametrize(("first", "second"), [(1.0, 1.0), (1.0, 0.3), (0.2, 3.0), (1.0, 1.0000001)])
def test_the_tail_of_two_laplace_variables_is_that_of_draws(first: float, second: float) -> None:
    """A million draws: ± .0015 (3 standard errors)."""
    rng = np.random.default_rng(4)
    total = rng.laplace(scale=first / 2**0.5, size=10**6) + rng.laplace(scale=second / 2**0.5, size=10**6)
    for distance in (0.1, 1.0, 4.0):
        assert laplace_tail(distance, first, second) == pytest.approx((np.abs(total) > distance).mean(), abs=1.5e-3)


@pytest.mark.levels
@pytest.mark.parametrize("noise", [GaussianNoise(0.5, 1e-6), LaplaceNoise(0.5, 0.0)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("seed", [0, 1])
def test_intervals_hold_the_exact_scores_in_95_of_100_draws(noise: Noise, seed: int, release: Release) -> None:
    """500 draws on two tables: each rate is .95 ± .035 (3.6 standard errors; 13 of them here, false alarm below 1 %)."""
    frame = table(20_000, seed)
    encoded = DOMAIN.encode(frame[list(DOMAIN.names)])
    big = release.replaced(
        statement=replace(release.statement, n_rows=20_000), measurement=replace(release.measurement, n_rows=20_000)
    )
    exact, drawn = draws_of(big, encoded, noise, group="region", workload=MEANS, draws=500)
    held = np.zeros(len(exact))
    for found in drawn:
        held += [score.low <= truth.value <= score.high for score, truth in zip(found, exact, strict=True)]
    assert (held / 500 > 0.95 - 0.035).all() and (held / 500 < 0.95 + 0.035).all(), held / 500


# ---------------------------------------------------------------------- what they cost


def test_the_spend_is_in_the_ledger_before_the_noise_and_the_file_has_its_head(
    counted: dict[str, Any], release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    honest = LaplaceNoise.add_to

    def watched(self: Noise, vector: Array, *, sensitivity: float) -> Array:
        drawn.append(len(Ledger(counted["ledger"]).account("people").releases))
        return honest(self, vector, sensitivity=sensitivity)

    monkeypatch.setattr(LaplaceNoise, "add_to", watched)
    quality = publish_quality(release, FRAME, epsilon=0.5, **counted, output=tmp_path / "scored.kme")
    recorded = Ledger(counted["ledger"]).account("people").releases
    assert drawn == [1] and len(recorded) == 1
    spend = recorded[0].spend
    assert (spend.epsilon, spend.delta, spend.method, spend.n_rows) == (0.5, 0.0, "scores", N)
    assert spend.noise_multiplier == pytest.approx(quality.noise_multiplier)
    assert quality.ledger_head == recorded[0].digest and recorded[0].output == str(tmp_path / "scored.kme")
    assert ka.read_release(tmp_path / "scored.kme").quality == quality


class Unread(pd.DataFrame):
    """A table that fails when a row is read."""

    def set_axis(self, *facts: Any, **options: Any) -> Any:
        raise AssertionError("a row was read")


def test_what_does_not_fit_the_budget_is_refused_before_a_row_is_read(
    counted: dict[str, Any], release: Release
) -> None:
    with pytest.raises(AssertionError, match="a row was read"):
        publish_quality(release, Unread(FRAME), epsilon=0.5, **counted)
    with pytest.raises(PublishError, match="does not fit"):
        publish_quality(release, Unread(FRAME), epsilon=3.5, **counted)
    with pytest.raises(PublishError, match="weak guarantee"):
        publish_quality(release, Unread(FRAME), epsilon=11, **counted)
    assert Ledger(counted["ledger"]).account("people").releases == ()


def test_units_and_rows_do_not_share_a_ledger_of_one_table(
    counted: dict[str, Any], release: Release, of_units: Release
) -> None:
    publish_quality(release, FRAME, epsilon=0.5, **counted)
    with pytest.raises(PublishError, match="owner"):
        publish_quality(of_units, FRAME, epsilon=0.5, **counted, force_wide=True)


def test_the_file_that_cannot_be_written_after_the_draw_counts(
    counted: dict[str, Any], release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("device is gone")))
    with pytest.raises(
        PublishError, match=r"was not written: device is gone.*had been drawn: count this release as spent"
    ):
        publish_quality(release, FRAME, epsilon=0.5, **counted, output=tmp_path / "scored.kme")
    assert len(Ledger(counted["ledger"]).account("people").releases) == 1


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-6), (0.3, 0.0), (2.0, 1e-7)])
def test_the_summed_guarantee_is_that_of_both_together(epsilon: float, delta: float, release: Release) -> None:
    quality = publish_quality(release, FRAME, epsilon=epsilon, delta=delta, uncounted=True, force_wide=True)
    total = quality.total_epsilon, quality.total_delta
    if delta == 0:
        assert total == (1 + epsilon, 1e-6)
        return
    joint = math.hypot(1 / release.statement.noise_multiplier, 1 / quality.noise_multiplier) ** -1
    assert total[1] == 1e-6 + delta and max(1, epsilon) < total[0] < 1 + epsilon
    assert gaussian_delta(epsilon=total[0], noise_multiplier=joint) == pytest.approx(total[1], rel=1e-6)
    spent = release_side.Spend(epsilon, delta, "discrete gaussian", "analytic", quality.noise_multiplier, N, "scores")
    assert summed_guarantee(release.statement, (spent.epsilon, spent.delta, spent.noise_multiplier)) == total


def test_a_rehearsal_of_scores_is_stamped_and_repeats_itself(release: Release, tmp_path: Path) -> None:
    """Its noise can be subtracted: the whole file is NOT PRIVATE, although the release in it is."""
    path = tmp_path / "rehearsed.kme"
    first, second = (
        publish_quality(release, FRAME, epsilon=0.5, rehearsal=5, output=path, force=True) for _ in range(2)
    )
    assert first == second and first.is_rehearsal and "NOT PRIVATE" in first.summary()["quality"]
    with pytest.raises(ValueError, match="stamped NOT PRIVATE"):
        ka.read_release(path)
    assert ka.read_release(path, allow_rehearsal=True).is_rehearsal
    with pytest.raises(PublishError, match="a ledger has nothing to count"):
        publish_quality(release, FRAME, epsilon=0.5, rehearsal=5, ledger="x", table="y")


# ---------------------------------------------------------------------- what is refused


def test_another_table_is_refused_by_its_public_size_alone(
    counted: dict[str, Any], release: Release, of_units: Release
) -> None:
    with pytest.raises(
        PublishError,
        match=r"the table has 2,999 rows, and the release was made of 3,000: it is another table\. Nothing",
    ):
        publish_quality(release, FRAME[1:], epsilon=0.5, **counted)
    with pytest.raises(PublishError, match=r"the table has 999 units of 'owner', and the release was made of 1,000"):
        publish_quality(of_units, FRAME[3:], epsilon=0.5, **counted, force_wide=True)
    with pytest.raises(PublishError, match="no column 'owner'"):
        publish_quality(of_units, FRAME[list(DOMAIN.names)], epsilon=0.5, **counted, force_wide=True)
    assert Ledger(counted["ledger"]).account("people").releases == ()


def test_scores_are_of_a_release_that_was_published_and_has_none(release: Release, tmp_path: Path) -> None:
    publish_quality(release, FRAME, epsilon=0.5, uncounted=True, output=tmp_path / "scored.kme")
    cases = {
        "has scores already": tmp_path / "scored.kme",
        "no privacy statement": ka.from_frame(FRAME[["age"]].astype(float).assign(weight=1.0)),
        "is a rehearsal": released(),
        "there is no such file": tmp_path / "none.kme",
    }
    for message, case in cases.items():
        with pytest.raises(PublishError, match=message):
            publish_quality(case, Unread(FRAME), epsilon=0.5, uncounted=True)
        with nullcontext() if message == "is a rehearsal" else pytest.raises(PublishError, match=message):
            plan_quality(case, epsilon=0.5)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"group": "regio"}, "'regio' is no column: they are region, ill, age, wage"),
        ({"parts": ["k-margins"]}, "parts are k-marginal, columns, groups, questions, got 'k-margins'"),
        ({"parts": ["groups"]}, r"need the column of the group\. Name it \(--group\)"),
        ({"parts": ["questions"]}, r"need questions\. Name a workload"),
        ({"workload": ["wage", "corr(age, wage)"]}, "the workload has 0 means without a condition"),
        ({"workload": ["agee"]}, "line 1 of the workload: no column agee"),
        ({"delta": 1e-6, "calibration": "pure"}, "calibration must be one of"),
        ({"epsilon": -1}, "epsilon must be a positive number"),
        ({"workers": 0}, "workers"),
    ],
)
def test_choices_that_cannot_be_are_refused_before_a_row_is_read(
    choices: dict[str, Any], message: str, release: Release
) -> None:
    with pytest.raises(PublishError, match=message):
        publish_quality(release, Unread(FRAME), **({"epsilon": 0.5, "uncounted": True} | choices))


# ---------------------------------------------------------------------- how wide


def test_scores_that_would_say_nothing_are_refused_unless_asked_for(release: Release) -> None:
    wide = {"epsilon": 0.05, "uncounted": True}
    for choices in ({"group": "region"}, {"workload": MEANS}):
        with pytest.raises(
            PublishError, match=r"would come to ± .*says nothing\. Nothing was spent\. Spend more, leave out"
        ):
            publish_quality(release, Unread(FRAME), **wide, **choices)
        assert publish_quality(release, FRAME, **wide, **choices, force_wide=True).scores()
    named = publish_quality(release, FRAME, **wide, group="region", parts=["groups"])
    assert [part.name for part in named.parts] == [GROUPS, SIZES]
    with pytest.raises(PublishError, match=r"the mean TV of pairs would come to"):
        publish_quality(release, Unread(FRAME), epsilon=0.005, uncounted=True)


def test_columns_are_left_out_where_they_would_say_nothing(release: Release) -> None:
    """Nobody named them: their share of the budget goes to the k-marginal."""
    found = publish_quality(release, FRAME, epsilon=0.1, uncounted=True)
    assert [part.name for part in found.parts] == [K_MARGINAL]
    both = publish_quality(release, FRAME, epsilon=0.1, uncounted=True, parts=["columns", "k-marginal"])
    assert [part.name for part in both.parts] == [K_MARGINAL, COLUMNS]
    assert both.deviation(K_MARGINAL) == pytest.approx(2 * found.deviation(K_MARGINAL), rel=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_plan_foretells_the_intervals_from_public_facts(delta: float, release: Release) -> None:
    choices = {"epsilon": 1.0, "delta": delta, "group": "region", "workload": MEANS}
    plan = plan_quality(release, **choices).set_index("part")
    quality = publish_quality(release, FRAME, **choices, uncounted=True, force_wide=True)
    assert plan.index.tolist() == [K_MARGINAL, COLUMNS, GROUPS, QUESTIONS]
    assert plan["limit"].to_dict() == WIDEST and (plan["published"] == (plan["half_width"] <= plan["limit"])).all()
    factor = 1.959964 if delta else math.log(20) / 2**0.5
    for name in (K_MARGINAL, COLUMNS, QUESTIONS):
        assert plan["half_width"][name] == pytest.approx(factor * quality.deviation(name), rel=1e-5)
    spread = math.hypot(quality.deviation(GROUPS), 0.25 * quality.deviation(SIZES))
    assert plan["half_width"][GROUPS] == pytest.approx(
        factor * spread / (N / 3), rel=1e-5
    )  # of a group of average size


def test_shares_of_the_budget_are_as_they_are_said_to_be(release: Release) -> None:
    """2 : 2 : 3 : 1 : 2 of squared sensitivities for Gaussian noise, of sensitivities for Laplace."""
    for delta, power in ((1e-6, 2), (0.0, 1)):
        quality = publish_quality(
            release, FRAME, epsilon=1, delta=delta, group="region", workload=MEANS, uncounted=True, force_wide=True
        )
        moved = np.array([part.moved * part.step(quality.height) ** power for part in quality.parts], dtype=float)
        np.testing.assert_allclose(moved / moved.sum(), np.array([2, 2, 3, 1, 2]) / 10, rtol=1e-4)


# ---------------------------------------------------------------------- the command


@pytest.fixture
def files(release: Release, tmp_path: Path) -> dict[str, Path]:
    release.write(tmp_path / "t.kme")
    FRAME.to_csv(tmp_path / "private.csv", index=False)
    (tmp_path / "questions.txt").write_text("\n".join(WORKLOAD), encoding="utf-8")
    return {"release": tmp_path / "t.kme", "private": tmp_path / "private.csv", "questions": tmp_path / "questions.txt"}


def test_the_command_publishes_scores_and_attaches_them(
    files: dict[str, Path], counted: dict[str, Any], tmp_path: Path
) -> None:
    words = [
        "quality",
        files["release"],
        files["private"],
        "--spend",
        1,
        "--group",
        "region",
        "--workload",
        files["questions"],
    ]
    ledger = ["--ledger", counted["ledger"], "--table", "people"]
    result = call(*words, *ledger, "--attach", tmp_path / "s.kme")
    assert result.exit_code == 0, result.output
    assert "k-marginal" in result.stdout and "of 1000" in result.stdout and "held" in result.stdout
    assert "the release and these scores together: ε = 2, δ = 1e-06" in result.stdout
    assert "which has spent epsilon 1 of 3" in result.stderr
    found = ka.read_release(tmp_path / "s.kme").quality
    assert found is not None and f"{found.scores_of(K_MARGINAL)[0].points[0]:.0f}" in result.stdout
    assert ka.validate_release(tmp_path / "s.kme") == []


def test_a_dry_run_opens_no_private_file(files: dict[str, Path]) -> None:
    result = call(
        "quality",
        files["release"],
        files["private"].with_name("none.csv"),
        "--spend",
        0.2,
        "--dry-run",
        "--group",
        "region",
    )
    assert result.exit_code == 0 and "published by default" in result.stdout
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:4]] == ["yes", "no", "yes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--spend", 0.5], "no ledger is named: releases of one table add up, and nothing would count these scores"),
        (["--attach", "s.kme"], r"--attach goes with --spend\. Add it, or leave this out"),
        (["--part", "columns"], "--part goes with --spend"),
        ([], r"no page is named\. Name --output X\.internal\.html"),
        (["--spend", 0.01, "--uncounted"], "says nothing"),
    ],
)
def test_the_command_refuses_with_what_why_and_how(words: list[Any], message: str, files: dict[str, Path]) -> None:
    result = call("quality", files["release"], files["private"], *words)
    assert result.exit_code == 1
    assert re.search(message, result.stderr), result.stderr


def test_info_and_report_show_the_scores(files: dict[str, Path], tmp_path: Path) -> None:
    scored = tmp_path / "s.kme"
    publish_quality(
        files["release"], files["private"], epsilon=1, group="region", uncounted=True, output=scored, force_wide=True
    )
    shown = CliRunner().invoke(main, ["info", str(scored)]).stdout
    assert "k-marginal" in shown and "ε = 2, δ = 1e-06: the release and these scores together" in shown
    as_json = json.loads(CliRunner().invoke(main, ["info", str(scored), "--json"]).stdout)
    assert as_json["quality"]["total_epsilon"] == 2
    assert json.loads(CliRunner().invoke(main, ["info", str(files["release"]), "--json"]).stdout)["quality"] is None
    ka.read_release(scored).report(tmp_path / "s.html")
    page = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert "How near it is to its table" in page and "e^ε = 7.39" in page  # the guarantee of both together
    ka.read_release(files["release"]).report(tmp_path / "t.html")
    assert "How near it is to its table" not in (tmp_path / "t.html").read_text(encoding="utf-8")
