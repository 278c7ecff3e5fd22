"""Choices, tables and workloads that are refused by public facts alone: refusals.txt has them, and what each message says."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals

from kmeanalyst.kernels import Gaussian, Kernel
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.draft import Draft
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.function import FunctionForm
from release_side.choices.drafting import draft_domain
from release_side.choices.workload import read_workload
from release_side.door.kernel_machines import plan_machine
from release_side.errors import PublishError
from release_side.private_rows import rows as rows_module
from release_side.publishing.functions import publish_function
from release_side.publishing.plan import plan
from release_side.publishing.publish import publish

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
DOMAIN = Domain((
    Integer(name="age", lower=17, upper=90, default=77), Real(name="income", lower=1, upper=1e6, missing=True),
    Categorical(name="city", levels=("Basel", "Genf", "Bern", "Bern, Stadt"), default="Genf"),
))  # fmt: skip
FRAME = DOMAIN.decode(DOMAIN.draw(300, np.random.default_rng(1)))
LINES = [b"age,income,city", b"30,100.5,Basel", b"40,2000,Genf", b"50,,Bern"]
TARGETS = {"ridge": Real(name="y", lower=-1.0, upper=3.0), "logistic": Boolean(name="y"), "svm": Boolean(name="y")}
CLASSES = Domain((Real(name="x", lower=-3.0, upper=3.0), TARGETS["svm"]))
LABELLED = pd.DataFrame({"x": np.linspace(-3, 3, 200), "y": np.arange(200) % 3 == 0})
ASKED = Domain((
    Integer(name="age", lower=0, upper=99), *(Categorical(name=name, levels=("a", "b", "c", "d")) for name in "pqrs"),
    Integer(name="hours-per-week", lower=0, upper=99),
))  # fmt: skip


ARRAY, DRAFT = np.zeros((3, 2)), Draft(DOMAIN)


class Own(Kernel):
    """A kernel of the caller's own, without a name."""

    bound, nonnegative = 1.0, True

    def gram(self, X: Any, Y: Any) -> Any:
        return np.exp(-np.abs(X[:, :1] - Y[:, 0]))

    def diagonal(self, X: Any) -> Any:
        return np.ones(len(X))


class _Wide:
    """A feature map that has only a size."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension


def test_every_refusal_says_what_why_and_how_to_fix_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No row of a frame is read, and no feature map is drawn."""
    monkeypatch.setattr(rows_module._Frame, "_pieces", lambda *_: pytest.fail("a row was read"))
    monkeypatch.setattr(RandomFourier, "draw", lambda *_, dimension, **__: _Wide(dimension))
    folders = (tmp_path / str(number) for number in range(1000))
    place = {"f": tmp_path}

    def saved(name: str, content: str | bytes) -> Path:
        (place["f"] / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return place["f"] / name

    def as_parquet(frame: pd.DataFrame, folder: Path) -> Path:
        frame.to_parquet(folder / "t.parquet")
        return folder / "t.parquet"

    def parts_that_differ() -> Path:
        saved("a.csv", b"\n".join(LINES))
        return saved("b.csv", "age,income\n1,2\n").parent

    def cut_gzip() -> bytes:
        rows = b"".join(b"%d,%d,Basel\n" % (17 + i * i % 70, i * 7919 % 10007) for i in range(5000))
        return gzip.compress(LINES[0] + b"\n" + rows)[:-40]

    def choice(**options: Any) -> object:
        return publish(FRAME, DOMAIN, **BUDGET | options)

    def planned(domain: Any = DOMAIN, **options: Any) -> object:
        return plan(domain, rows=100, **BUDGET | options)

    def drafted(sample: Any) -> object:
        return draft_domain(sample, this_sample_is_public=True)

    def table(private: Any) -> object:
        return publish(private, DOMAIN, method="subspace", points=20, **BUDGET)

    def function(**options: Any) -> object:
        return publish_function(LABELLED, CLASSES, **BUDGET | options)

    def function_of_no_rows(**options: Any) -> object:
        return publish_function(LABELLED[:0], CLASSES, **BUDGET | options)

    def machine(kind: str, regularisation: float, n_rows: int) -> object:
        basis = Pivots.fit(Gaussian(0.8), np.linspace(-3, 3, 9)[:, None])
        return plan_machine(FunctionForm(kind, TARGETS[kind], regularisation), basis, n_rows)

    def line(text: str) -> object:
        return read_workload(saved("q.txt", f"# a comment\n\nage > 50\n{text}\n"), ASKED)

    names = globals() | {name: value for name, value in locals().items() if callable(value)}

    def run(text: str) -> object:
        place["f"] = next(folders)
        place["f"].mkdir()
        return eval(text, names | {"f": place["f"]})

    refusals.check(Path(__file__).parent / "refusals.txt", run)


def test_what_is_passed_in_a_wrong_place_is_not_repeated():
    """Arguments that are swapped, or rows as a kernel: cells of the private table must not be in a message."""
    rows = pd.DataFrame({"age": [3712, 4512, 8812]})
    domain = Domain((Integer(name="age", lower=0, upper=9999),))
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "uncounted": True}
    for passed in (rows, rows["age"], rows.to_numpy(), rows.to_dict("list")):
        for ask in (
            lambda passed=passed: publish(domain, passed, **budget),
            lambda passed=passed: publish(rows, passed, **budget),
            lambda passed=passed: publish(rows, domain, kernel=passed, **budget),
        ):
            with pytest.raises((PublishError, DomainError)) as refused:
                ask()
            assert not any(str(cell) in str(refused.value) for cell in rows["age"])
