"""Notes of infinite intervals name the level that is too rare, and what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kmeanalyst.inference.regression.intervals import notes_of_infinite
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side import publish

RACES, WORKS = ("few", "some", "most"), ("rare", "private", "public")
DOMAIN = Domain((
    Categorical(name="race", levels=RACES), Categorical(name="work", levels=WORKS),
    Categorical(name="rich", levels=("no", "yes")), Integer(name="age", lower=18, upper=90),
))  # fmt: skip
SHARES = (0.02, 0.18, 0.8)


def table(n: int) -> pd.DataFrame:
    """Columns of exactly these shares, in independent orders."""
    rng = np.random.default_rng(5)
    counts = np.array(SHARES) * n
    race, work = (rng.permutation(np.repeat(names, counts.round().astype(int))) for names in (RACES, WORKS))
    rich = np.where(rng.random(n) < 0.2, "yes", "no")
    return pd.DataFrame({"race": race, "work": work, "rich": rich, "age": rng.integers(18, 90, n)})


@pytest.fixture(scope="module")
def plain() -> Release:
    return from_frame(table(2000).assign(weight=1 / 2000), domain=DOMAIN)


@pytest.fixture(scope="module")
def measured() -> Release:
    rows = table(4000).astype(str)
    return publish(rows, DOMAIN, epsilon=0.5, delta=1e-6, rehearsal=1, uncounted=True)


def notes(found, *infinite: str) -> list[str]:
    """The notes where these coefficients have infinite intervals."""
    return list(notes_of_infinite(found.fit, found.target, np.isin(found.names, infinite)))


def test_finite_intervals_have_no_note(plain):
    assert notes(plain.glm("rich ~ race", "binomial")) == []


def test_a_rare_level_that_others_are_compared_with_is_named_with_the_one_to_take(plain):
    found = plain.glm("rich ~ race", "binomial")
    for affected in (("race == 'most'",), ("intercept", "race == 'some'")):
        (note,) = notes(found, *affected)
        assert "compared with race == 'few' (2 %" in note and "reference={'race': 'most'} (80 %" in note


def test_a_level_that_is_rare_itself_is_named_and_no_other(plain):
    found = plain.glm("rich ~ race", "binomial", reference={"race": "most"})
    (note,) = notes(found, "race == 'few'")
    assert "infinite of race == 'few': 2 %" in note and "reference" not in note and "where" in note


def test_a_rare_outcome_is_named_and_the_others_are_said_to_hold(plain):
    found = plain.glm("work ~ age", "multinomial", reference={"work": "public"})
    (note,) = notes(found, "rare: age")
    assert note.startswith("intervals of the outcomes rare: 2 %") and "Other outcomes' intervals hold" in note


def test_a_rare_outcome_that_others_are_compared_with_is_named_with_the_one_to_take(plain):
    found = plain.glm("work ~ age", "multinomial")
    (note,) = notes(found, *found.names)
    assert "compared with rare (2 %" in note and "reference={'work': 'public'} (80 %" in note


def test_thresholds_are_named_with_the_levels_shares(plain):
    found = plain.glm("work ~ age", "ordinal")
    (note,) = notes(found, "rare|private")
    assert note.startswith("the intervals of rare|private are infinite") and "rare: 2 %" in note


def test_what_is_due_to_no_level_has_a_general_note(plain):
    (note,) = notes(plain.glm("rich ~ age", "binomial"), "age")
    assert "join rare levels in a condition" in note


def test_the_reference_that_the_note_names_gives_finite_intervals(measured):
    found = measured.glm("rich ~ race + age", "binomial")
    assert np.isinf(found["race == 'most'"].interval()).any()
    assert "reference={'race': 'most'}" in found.summary() and "reference={'race': 'most'}" in " ".join(
        found.to_dict()["notes"]
    )
    other = measured.glm("rich ~ race + age", "binomial", reference={"race": "most"})
    assert np.isfinite([other[name].interval() for name in ("intercept", "race == 'some'", "age")]).all()
