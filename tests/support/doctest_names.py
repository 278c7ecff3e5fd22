"""What the examples in docstrings start from: a folder of files, and a few names, each made when an example uses it.

`adult.kme` and `survey.kme`, which is smaller, are releases of the demo's private table (`tests/golden/make_examples.py`),
so that answers are the same everywhere; everything else is made of data that ships with the package.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import paths

import kmeanalyst as ka
import release_side
from kmeanalyst.releases.domain.domain import domain_toml

_GOLDEN = paths.TESTS / "golden"
_RELEASE, _SURVEY = _GOLDEN / "examples" / "adult.kme", _GOLDEN / "examples" / "survey.kme"
_TABLES = {"private.csv": ("demo_private", 1000), "public_sample.csv": ("demo_public_sample", 500),
           "my_sample.csv": ("demo_sample", 1500)}  # fmt: skip


def ready_folder(folder: Path) -> None:
    """Fill a folder with the files that examples name."""
    for release in (_RELEASE, _SURVEY):
        shutil.copy(release, folder)
    for kind in ("density", "logistic", "ridge", "svm"):
        shutil.copy(_GOLDEN / "function_v1" / f"{kind}.kme", folder)
    for name, (shipped, most) in _TABLES.items():
        _shipped(shipped).head(most).to_csv(folder / name, index=False)
    (folder / "domain.toml").write_text(domain_toml(_release().domain), encoding="utf-8")


@functools.cache
def _shipped(name: str) -> pd.DataFrame:
    with (files("kmeanalyst") / "data" / f"{name}.csv.gz").open("rb") as source:
        return pd.read_csv(source, compression="gzip")


@functools.cache
def _release() -> ka.Release:
    return ka.read_release(_RELEASE)


@functools.cache
def _model() -> ka.TrainedPipeline:
    from sklearn.linear_model import LogisticRegression

    return ka.fit(LogisticRegression(max_iter=1000), _release(), target="income")


@functools.cache
def _refits() -> Any:
    from sklearn.linear_model import LogisticRegression

    survey = ka.read_release(_SURVEY)
    return ka.refit(ka.fit(LogisticRegression(max_iter=1000), survey, target="income"), survey, redraws=3)


@functools.cache
def _comparison() -> ka.Comparison:
    sample = _shipped("demo_sample")
    return ka.compare(_release(), sample.assign(age=sample["age"] + 5))


MAKERS: dict[str, Callable[[], Any]] = {
    "ka": lambda: ka,
    "release_side": lambda: release_side,
    "np": lambda: np,
    "pd": lambda: pd,
    "release": _release,
    "domain": lambda: _release().domain,
    "sample": lambda: _shipped("demo_sample").copy(),
    "model": _model,
    "refits": _refits,
    "spend": lambda: release_side.Spend(1.0, 1e-6, "discrete gaussian", "analytic", 4.2247, 1000, "random-features"),
    "age_model": functools.cache(lambda: ka.fit_embedding(ka.read_release(_SURVEY), "age")),
    "comparison": _comparison,
    "function": functools.cache(lambda: ka.read_function(_GOLDEN / "function_v1" / "density.kme")),
}


def ready_names(sources: Iterable[str]) -> dict[str, Any]:
    """The names that examples may use without making them, those of them that these sources have."""
    used = {word for source in sources for word in re.findall(r"\w+", source)}
    return {name: make() for name, make in MAKERS.items() if name in used}
