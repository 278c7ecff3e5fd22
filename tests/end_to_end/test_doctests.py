"""Every public name has an example, and every example does what it says.

An example may use the names and files of `public_names`, which are what a reader has at hand: a release `release`, its
`domain`, rows `sample` of their own, and `ka`, `release_side`, `np` and `pd`.
"""

from __future__ import annotations

import doctest
import importlib
import shutil
import warnings
from pathlib import Path

import pytest
from public_names import MAKERS, PublicName, held_classes, public_names, ready_folder, ready_names

import kmeanalyst
from tutorials import alike

_OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
_SOURCES = Path(kmeanalyst.__file__).parents[1]


class _Checker(doctest.OutputChecker):
    """Numbers may differ by 2 % or two units of a fraction's last digit, as in the tutorials: processors round differently."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got, optionflags) or ("..." not in want and alike(want, got, "approx"))


def _modules_with_examples() -> list[str]:
    files = [file for package in ("kmeanalyst", "release_side") for file in (_SOURCES / package).rglob("*.py")]
    named = [file.relative_to(_SOURCES).with_suffix("") for file in files if ">>>" in file.read_text(encoding="utf-8")]
    return sorted(".".join(name.parts).removesuffix(".__init__") for name in named)


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Path:
    """The files that examples name, made once."""
    folder = tmp_path_factory.mktemp("files")
    ready_folder(folder)
    return folder


@pytest.mark.usefixtures("rough_representation")
@pytest.mark.parametrize("module", _modules_with_examples())
def test_the_examples_of_a_module_say_what_happens(module, files, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(files, tmp_path / "files"))
    output: list[str] = []
    runner = doctest.DocTestRunner(_Checker(), optionflags=_OPTIONS)
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    for test in found:
        test.globs.update(ready_names(example.source for example in test.examples))
        with warnings.catch_warnings():
            runner.run(test, out=output.append)
    assert sum(len(test.examples) for test in found) > 0
    assert not output, "".join(output)


def test_every_exported_name_and_every_method_of_what_users_hold_has_an_example():
    names = public_names()
    assert len([name for name in names if name.owner is None]) > 80
    assert not [name.name for name in names if not name.has_example], "no >>> example in a docstring"


def test_examples_are_compared_word_by_word_and_number_by_number():
    for want, got, same in (
        ("age 10.39 0.36", "age  10.40 0.36", True), ("age 10.39", "age 10.70", False), ("age 10.39", "sex 10.39", False),
        ("(300, 7)", "(300, 8)", False), ("0.011800", "0.011835", True), ("True", "False", False),
    ):  # fmt: skip
        assert _Checker().check_output(f"{want}\n", f"{got}\n", _OPTIONS) is same, (want, got)


class _Shown:
    """A class.

    >>> _Shown().seen
    1
    """

    @property
    def seen(self) -> int:
        """Shown above."""
        return 1

    @property
    def unseen(self) -> int:
        """Shown nowhere."""
        return 2

    def method(self) -> int:
        """Shown nowhere.

        A line that talks of .method is not an example.
        """
        return 3


class _Heir(_Shown):
    def method(self) -> int:
        return 4


def test_a_name_without_an_example_is_found():
    for name, shown in {"seen": True, "unseen": False, "method": False}.items():
        assert PublicName(f"here._Shown.{name}", vars(_Shown)[name], _Shown).has_example is shown
    assert not PublicName("here._Heir.method", vars(_Heir)["method"], _Heir).has_example


def test_held_classes_are_followed_from_what_functions_return():
    held = {cls.__name__ for cls in held_classes()}
    assert held >= {"Estimates", "TrainingData", "TableAccount", "Draft", "SampleCounts"}


def test_names_are_made_only_when_an_example_uses_them():
    assert set(ready_names(["release.mean('age')", "ka.score"])) == {"release", "ka"}
    assert "model" in MAKERS
