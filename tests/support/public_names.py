"""Every public name of both packages, and what the examples in docstrings start from.

Public names are what `__all__` lists, and the methods and properties of what users hold: the classes in `__all__`, what public
functions and methods of held classes return (found by annotations), and the few that are reached in another way (`_REACHED`).

Examples start in a folder of files (`ready_folder`), with a few names, each made when an example uses it (`ready_names`).
`adult.kme`, and `counted.kme`, of tables, are releases of the demo's private table
(`tests/golden/make_examples.py`), so that answers are the same everywhere.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import paths
from make_tutorial_files import demo_rows
from sklearn.linear_model import LogisticRegression

import kmeanalyst
import kmeanalyst as ka
import kmeanalyst.kernels
import kmeanalyst.plots
import release_side
from kmeanalyst.releases.domain.domain import domain_toml

PACKAGES: tuple[ModuleType, ...] = (kmeanalyst, release_side, kmeanalyst.kernels, kmeanalyst.plots)
_REACHED = (  # an attribute of what is held, or one of several kinds that a function returns
    "Measurement", "TrainingReport", "RecordedRelease", "ReleasedDensity", "ReleasedRegression", "ReleasedLogistic",
    "ReleasedSVM",
)  # fmt: skip
_OURS = ("kmeanalyst", "release_side")


@dataclass(frozen=True)
class PublicName:
    """A name a user can write, its value, and for a method its class."""

    name: str
    value: Any
    owner: type | None = None

    @property
    def has_example(self) -> bool:
        """Whether a docstring shows it at work.

        Its own; for a method also that of a method it overrides, and of a class it is of, where an example has it; for what has
        no docstring that of the package.
        """
        short = self.name.rpartition(".")[2]
        if self.owner is None:
            if inspect.isroutine(self.value) or inspect.isclass(self.value) or inspect.ismodule(self.value):
                return bool(_examples(inspect.getdoc(self.value)))
            return any(f".{short}" in _examples(package.__doc__) for package in PACKAGES)
        ancestors = self.owner.__mro__
        own = any(_examples(_unwrapped(vars(cls)[short]).__doc__) for cls in ancestors if short in vars(cls))
        return own or any(re.search(rf"\.{short}\b", _examples(cls.__doc__)) for cls in ancestors)


def _examples(document: str | None) -> str:
    """The lines of code in a docstring."""
    return "\n".join(line for line in (document or "").splitlines() if line.strip().startswith((">>>", "...")))


def _unwrapped(value: Any) -> Any:
    """The function of a class method, static method or property."""
    for name in ("__func__", "fget", "func"):
        value = getattr(value, name, None) or value
    return value


@functools.cache
def _classes() -> dict[str, type]:
    """Every class of the project by its name; except those of the grammar, which users do not hold."""
    modules = [one.name for p in PACKAGES[:2] for one in pkgutil.walk_packages(p.__path__, f"{p.__name__}.")]
    wanted = [name for name in modules if not name.endswith("__main__") and ".expressions" not in name]
    values = [(value, name) for name in wanted for value in vars(importlib.import_module(name)).values()]
    return {value.__name__: value for value, name in values if inspect.isclass(value) and value.__module__ == name}


def members(cls: type) -> Iterator[tuple[str, Any, type]]:
    """Public methods and properties that a class has from this project, each with the class that defines it."""
    for name in sorted(set(dir(cls))):
        home = next((c for c in cls.__mro__ if name in vars(c)), cls)
        value = vars(home).get(name)
        if name.startswith("_") or not home.__module__.startswith(_OURS):
            continue
        if _unwrapped(value).__class__.__name__ in ("function", "_AvailableIfDescriptor"):
            yield name, value, home


def _returned(function: Any) -> list[type]:
    """Classes of the project in a return annotation, but for those of the inside."""
    text = str(getattr(_unwrapped(function), "__annotations__", {}).get("return", ""))
    words = re.findall(r"\w+", text)
    return [_classes()[word] for word in words if word in _classes() and word not in _INSIDE]


_INSIDE = ("FeatureMap", "ErrorModel", "FunctionForm", "Witness", "Law", "ArrowSource")  # returned, but internal


@functools.cache
def held_classes() -> tuple[type, ...]:
    """Classes of objects that users hold, in the order they are found."""
    exported = [getattr(package, name) for package in PACKAGES for name in package.__all__]
    waiting = [value for value in exported if inspect.isclass(value)] + [_classes()[name] for name in _REACHED]
    waiting += [cls for value in exported if inspect.isroutine(value) for cls in _returned(value)]
    held: dict[type, None] = {}
    while waiting:
        cls = waiting.pop(0)
        if cls not in held and not cls.__name__.startswith("_"):
            held[cls] = None
            waiting += [found for _, value, _ in members(cls) for found in _returned(value)]
    return tuple(held)


@functools.cache
def public_names() -> tuple[PublicName, ...]:
    """All of them, each once."""
    found: dict[Any, PublicName] = {}
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            found.setdefault(id(value), PublicName(f"{package.__name__}.{name}", value))
    for cls in held_classes():
        found.setdefault(id(cls), PublicName(f"{cls.__module__}.{cls.__name__}", cls))
        for name, value, home in members(cls):
            found.setdefault((home, name), PublicName(f"{home.__module__}.{home.__name__}.{name}", value, home))
    return tuple(found.values())


_GOLDEN = paths.TESTS / "golden"
_RELEASE = _GOLDEN / "examples" / "adult.kme"
_COUNTED = _GOLDEN / "examples" / "counted.kme"
_TABLES = {
    "private.csv": ("private", 1000), "public_sample.csv": ("public_sample", 500), "my_sample.csv": ("sample", 1500),
}  # fmt: skip


def ready_folder(folder: Path) -> None:
    """Fill a folder with the files that examples name."""
    for release in (_RELEASE, _COUNTED):
        shutil.copy(release, folder)
    for kind in ("density", "logistic", "ridge", "svm"):
        shutil.copy(_GOLDEN / "function_v1" / f"{kind}.kme", folder)
    for name, (shipped, most) in _TABLES.items():
        _shipped(shipped).head(most).to_csv(folder / name, index=False)
    (folder / "domain.toml").write_text(domain_toml(_release().domain), encoding="utf-8")


_shipped = functools.cache(demo_rows)
_release = functools.cache(lambda: ka.read_release(_RELEASE))


def _fitted(release: Any) -> Any:
    return ka.fit(LogisticRegression(max_iter=1000), release, target="income")


def _comparison() -> ka.Comparison:
    sample = _shipped("sample")
    return ka.compare(_release(), sample.assign(age=sample["age"] + 5))


MAKERS: dict[str, Callable[[], Any]] = {
    "ka": lambda: ka, "release_side": lambda: release_side, "np": lambda: np, "pd": lambda: pd, "release": _release,
    "counted": functools.cache(lambda: ka.read_release(_COUNTED)), "domain": lambda: _release().domain,
    "sample": lambda: _shipped("sample").copy(), "model": functools.cache(lambda: _fitted(_release())),
    "comparison": functools.cache(_comparison),
    "spend": lambda: release_side.Spend(1.0, 1e-6, "discrete gaussian", "analytic", 4.2247, 1000, "random-features"),
    "function": functools.cache(lambda: ka.read_function(_GOLDEN / "function_v1" / "density.kme")),
}  # fmt: skip


def ready_names(sources: Iterable[str]) -> dict[str, Any]:
    """The names that examples may use without making them, those of them that these sources have."""
    used = {word for source in sources for word in re.findall(r"\w+", source)}
    return {name: make() for name, make in MAKERS.items() if name in used}
