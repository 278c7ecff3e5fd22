"""Public names that are imported when they are first used: importing a package, and `--help`, stay quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

DOMAIN_HOMES: dict[str, tuple[str, ...]] = {  # what describes a table's columns: analysts and curators use it alike
    "kmeanalyst.releases.domain.column": ("DomainError",),
    "kmeanalyst.releases.domain.cyclic_column": ("Cyclic",),
    "kmeanalyst.releases.domain.domain": ("Domain", "read_domain"),
    "kmeanalyst.releases.domain.levels": ("Boolean", "Categorical", "Ordinal"),
    "kmeanalyst.releases.domain.numbers": ("Date", "Integer", "Real"),
    "kmeanalyst.releases.domain.text_column": ("Text",),
    "kmeanalyst.releases.domain.tree_column": ("Tree",),
    "kmeanalyst.releases.rules.rule": ("Rule",),
}


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names live in other modules.

    homes   module → its public names; the package's own rooms among these modules can be used by their names too.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if f"{package}.{name}" in homes:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)  # the next use finds it without this function
        return value

    return find
