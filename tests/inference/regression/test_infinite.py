"""Notes of infinite intervals name the level that is too rare, and what to do."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from kmeanalyst.inference.regression.intervals import notes_of_infinite
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side import publish

RACES, SHARES = ("few", "some", "most"), (0.02, 0.18, 0.8)
DOMAIN = Domain((
    Categorical(name="race", levels=RACES), Categorical(name="rich", levels=("no", "yes")), Integer(name="age", lower=18, upper=90),
))  # fmt: skip


def table(n: int) -> pd.DataFrame:
    """A column of exactly these shares, and others that are independent of it."""
    rng = np.random.default_rng(5)
    race = rng.permutation(np.repeat(RACES, (np.array(SHARES) * n).round().astype(int)))
    rich = np.where(rng.random(n) < 0.2, "yes", "no")
    return pd.DataFrame({"race": race, "rich": rich, "age": rng.integers(18, 90, n)})


@pytest.fixture(scope="module")
def plain() -> Release:
    return from_frame(table(2000).assign(weight=1 / 2000), domain=DOMAIN)


@pytest.fixture(scope="module")
def measured() -> Release:
    rows = table(4000).astype(str)
    return publish(rows, DOMAIN, epsilon=0.5, delta=1e-6, rehearsal=1, uncounted=True)


def notes(found, *infinite: str) -> list[str]:
    """The notes where these coefficients have infinite intervals."""
    return list(notes_of_infinite(found.fit, np.isin(found.names, infinite)))


def test_notes_name_the_rare_level_and_what_to_do(plain):
    """Formula, family, reference; the coefficients of infinite intervals; what the note says, in order."""
    for asked, infinite, said in [
        (("rich ~ race", "binomial", None), ("race == 'most'",), "compared with race == 'few' (2 %…'most'} (80 %"),
        (("rich ~ race", "binomial", None), ("intercept", "race == 'some'"), "compared with race == 'few' (2 %…reference={'race'"),
        (("rich ~ race", "binomial", {"race": "most"}), ("race == 'few'",), "infinite of race == 'few': 2 %…where"),
        (("rich ~ age", "binomial", None), ("age",), "join rare levels in a condition"),
    ]:  # fmt: skip
        found = plain.glm(asked[0], asked[1], reference=asked[2])
        (note,) = notes(found, *infinite)
        assert re.search(".*".join(map(re.escape, said.split("…"))), note), (asked, note)
        assert ("reference=" in note) == ("…reference=" in said or "'most'}" in said), (asked, note)
    assert notes(plain.glm("rich ~ race", "binomial")) == []


def test_the_reference_that_the_note_names_gives_finite_intervals(measured):
    found = measured.glm("rich ~ race + age", "binomial")
    assert np.isinf(found["race == 'most'"].interval()).any()
    for text in (found.summary(), " ".join(found.to_dict()["notes"])):
        assert "reference={'race': 'most'}" in text
    other = measured.glm("rich ~ race + age", "binomial", reference={"race": "most"})
    assert np.isfinite([other[name].interval() for name in ("intercept", "race == 'some'", "age")]).all()
