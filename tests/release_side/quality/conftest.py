"""A private table with its release and domain, and what `release-side quality` makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from quality_cases import DOMAIN, people

from kmeanalyst.releases.domain.domain import domain_toml
from release_side.publishing.publish import publish
from release_side.quality import models, questions


class Compared(NamedTuple):
    """A folder with private.csv, domain.toml and table.kme, a rehearsal of it."""

    folder: Path
    private: Path
    release: Path


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    folder = tmp_path_factory.mktemp("compared")
    private, release = folder / "private.csv", folder / "table.kme"
    people(1500).to_csv(private, index=False)
    (folder / "domain.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    publish(private, DOMAIN, epsilon=2, delta=1e-6, rehearsal=1, output=release)
    return Compared(folder, private, release)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """One small estimator in place of three, and at most 12 questions in place of 50."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    fixed = {"max_depth": 3, "random_state": 0}
    small = {True: DecisionTreeClassifier(**fixed), False: DecisionTreeRegressor(**fixed)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "estimators_of", lambda is_class: [small[is_class]])
        patch.setattr(questions, "MOST_QUESTIONS", 12)
        yield
