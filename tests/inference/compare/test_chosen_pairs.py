"""Releases whose pairs of columns were chosen by scores: what tests and intervals make of the choice."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import kmeanalyst as ka
from kmeanalyst.inference.compare import independence
from kmeanalyst.inference.estimate.unresolved import what_would_help
from kmeanalyst.inference.posterior.interactions import Interactions
from kmeanalyst.inference.posterior.through_tables import around_points
from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.measurement import Choice, Measurement
from release_side import publish

DOMAIN = Domain((
    Integer(name="age", lower=0, upper=99), *(Categorical(name=name, levels=("a", "b", "c", "d")) for name in "pqrs"),
    Integer(name="pay", lower=0, upper=99),
))  # fmt: skip


def table(n: int, seed: int) -> pd.DataFrame:
    """q repeats p, and pay follows age; all else is independent."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, n)
    levels = {name: rng.choice(list("abcd"), n) for name in "pqrs"}
    levels["q"] = np.where(rng.random(n) < 0.9, levels["p"], levels["q"])
    return pd.DataFrame({"age": age, **levels, "pay": np.clip(age + rng.integers(-9, 10, n), 0, 99)}).astype(str)


@pytest.fixture(scope="module")
def release() -> Release:
    return publish(table(4000, 0), DOMAIN, epsilon=1, delta=1e-6, kernel="adaptive", rehearsal=1)


def measured(release: Release) -> tuple[Measurement, ChosenMargins]:
    measurement = release.measurement
    assert measurement is not None and isinstance(measurement.feature_map.kernel, ChosenMargins)
    return measurement, measurement.feature_map.kernel


def unchosen(release: Release) -> tuple[int, int]:
    """A pair that was not counted."""
    kernel = measured(release)[1]
    return next((i, j) for i in range(6) for j in range(i + 1, 6) if (i, j) not in kernel.chosen)


@pytest.fixture(scope="module")
def partial(release: Release) -> Release:
    """The release as if its last pairs had not been chosen: of so few columns all may be."""
    measurement, kernel = measured(release)
    kept = tuple(pair for pair in kernel.chosen if pair in {(0, 5), (1, 2)})
    total = sum(kernel.squares[0]) + sum(kernel.squares[2])
    pairs = [kernel.squares[1][kernel.chosen.index(pair)] for pair in kept]
    total += sum(pairs)
    squares = tuple(tuple(square / total for square in (pairs if k == 1 else each)) for k, each in enumerate(kernel.squares))
    fewer = dataclasses.replace(kernel, chosen=kept, squares=squares, shares=tuple(map(sum, squares)))  # type: ignore[arg-type]
    features = type(measurement.feature_map)(fewer)  # type: ignore[call-arg]
    mean = features.mean(release.encoded_points, release.weights)
    noise = measurement.noise_scale / np.sqrt(total)
    whole = np.rint(mean / 1e-9).astype(np.int64)
    lesser = dataclasses.replace(measurement, vector=mean, noise_scale=noise, feature_map=features, noisy_sum=whole)
    return Release(
        points=DOMAIN.decode(release.encoded_points), weights=release.weights, measurement=lesser, kernel=fewer, domain=DOMAIN,
        statement=release.statement, method=release.method, weight_view=release.weight_view,
    )  # fmt: skip


def test_the_related_pairs_are_chosen(release: Release):
    assert {(0, 5), (1, 2)} <= set(measured(release)[1].chosen)


def test_releases_of_different_choices_can_be_compared(release: Release, rough_representation: None):
    other = publish(table(4000, 5), DOMAIN, epsilon=1, delta=1e-6, kernel="adaptive", rehearsal=2)
    found = ka.compare(release, other)
    both = [one.measurement.feature_map.kernel.chosen for one in (release, other)]  # type: ignore[union-attr]
    tested = {(DOMAIN.names[i], DOMAIN.names[j]) for i, j in {*both[0]} & {*both[1]}}
    unknown = found.pairs[found.pairs["seen"] == 0]
    assert found.overall.pvalue > 0.001 and tested and not {*zip(unknown["first"], unknown["second"], strict=True)} & tested
    assert (unknown["pvalue"] == 1).all() and len(found.pairs) == len(DOMAIN) * (len(DOMAIN) - 1) // 2


def test_pairs_that_were_not_counted_have_p_1_and_count_as_tests(partial: Release):
    sample = table(500, 3).astype({"age": int, "pay": int})
    pairs = ka.compare(partial, sample).pairs
    assert len(pairs) == 15  # Holm's correction is for all of them
    chosen = {("age", "pay"), ("p", "q")}
    for row in pairs.itertuples():
        assert (row.pvalue == 1.0 and row.seen == 0) or {(row.first, row.second)} <= chosen


def test_independence_has_p_1_where_the_pair_was_not_counted(release: Release, partial: Release):
    assert ka.independence_test(partial, "p", "q").pvalue < 1e-6
    assert ka.independence_test(partial, "p", "r").pvalue == 1.0
    notes = ka.independence_test(partial, ["p", "age"], ["q", "r"]).notes
    assert any(note.startswith("1 of 4 pairs of these columns were counted together") for note in notes)


def test_nothing_is_computed_where_no_pair_was_counted(partial: Release, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(independence.contingency_test, "weighted_test")
    found = ka.independence_test(partial, "p", ["r", "s"])
    assert (found.statistic, found.pvalue, found.mmd_squared, found.epsilon) == (0.0, 1.0, 0.0, 1.0)
    assert found.notes[-1].startswith("0 of 2 pairs of these columns were counted together")


def test_several_pairs_count_as_several_tests(release: Release):
    pairs = [(a, b) for a in ("p", "age") for b in ("r", "s")]
    alone = min(ka.independence_test(release, a, b).pvalue for a, b in pairs)
    found = ka.independence_test(release, ["p", "age"], ["r", "s"])
    assert alone < 1 and found.pvalue == min(1.0, 4 * alone)


def test_associations_say_which_pairs_were_not_counted(partial: Release):
    found = {one.columns: one for one in ka.associations(partial)}
    assert found["p", "q"].pvalue < 1e-6 and found["p", "q"].note == ""
    assert found["r", "s"].pvalue == 1.0 and "not counted" in found["r", "s"].note


def test_each_pair_that_was_not_counted_may_be_as_far_off_as_its_own_score_says(partial: Release):
    measurement, kernel = dataclasses.replace(measured(partial)[0], drawn=None), measured(partial)[1]
    rows, weights = partial.encoded_points, partial.weights
    found = Interactions.of(measurement, rows, weights, 0.02)
    left = [pair not in kernel.chosen for pair in combinations(range(6), 2)]
    assert found.pairs == tuple(combinations(range(6), 2)) and ((found.spreads != 0.02) == left).all()
    assert ((found.most < 10) == left).all()
    loud = place = found.pairs.index((3, 4))
    last = measurement.scores[-1]
    noisy = last.noisy.copy()
    noisy[place] = 3 * abs(noisy).max()
    louder = dataclasses.replace(measurement, scores=(dataclasses.replace(last, noisy=noisy),))
    other = Interactions.of(louder, rows, weights, 0.0)
    assert other.spreads[loud] > 5 * found.spreads[loud]
    assert other.spreads[loud] > 5 * np.delete(other.spreads, loud).max()  # one strong relation tells little of the others
    shares, before = noisy / (last.step * measurement.n_rows), last.noisy[place] / (last.step * measurement.n_rows)
    assert other.most[loud] - found.most[loud] == pytest.approx(shares[place] - before)
    asked = ((rows[:, 3] == 0) & (rows[:, 4] == 1)).astype(float)[:, None]
    resolutions = []
    for one in (measurement, louder):
        fit = around_points(one, DOMAIN, rows, weights)
        assert fit is not None
        resolutions.append(np.sqrt(fit.covariance(asked)["resolution"][0, 0]))
    assert resolutions[1] > 2 * resolutions[0]
    for rounds, spread in (((Choice(1, 1, 1.0),), 0.05), ((), 0.12)):  # others were drawn by the rows, or nobody looked
        drawn = Interactions.of(dataclasses.replace(measurement, scores=(), choices=rounds), rows, weights, 0.02)
        assert ((drawn.spreads == spread) == left).all() and (np.isinf(drawn.most) == (np.array(left) & (not rounds))).all()


def test_a_pair_that_was_not_counted_has_a_resolution_and_a_note_says_what_would_help(partial: Release):
    seen, unseen = (partial.probability(question) for question in ("p == 'a' and q == 'a'", "r == 'a' and s == 'b'"))
    assert unseen.parts["resolution"] > 2 * seen.parts["resolution"]  # type: ignore[operator]
    assert "r × s was not counted" in what_would_help(partial, "r == 'a' and s == 'b'")
    assert what_would_help(partial, "p == 'a' and q == 'a'") == ""


def test_of_few_columns_all_pairs_are_counted_and_nothing_is_chosen(rough_representation: None):
    for columns in (("p", "q", "r"), ("p", "q")):
        domain = Domain(tuple(DOMAIN[name] for name in columns))
        few = publish(table(3000, 4)[list(columns)], domain, epsilon=1, delta=1e-6, kernel="adaptive", rehearsal=1)
        measurement, kernel = measured(few)
        assert measurement.scores == () and kernel.n_pairs == len(columns) * (len(columns) - 1) // 2
