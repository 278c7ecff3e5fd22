"""Public names: imported when they are first used, so that importing a package stays quick, and shown with all their options.

Options that belong together are a TypedDict, which functions take as `**options` and callers write as any other keywords.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
DOMAIN_HOMES: dict[str, tuple[str, ...]] = {  # what describes a table's columns: analysts and curators use it alike
    "kmeanalyst.releases.domain.column": ("DomainError",),
    "kmeanalyst.releases.domain.domain": ("Domain", "read_domain"),
    "kmeanalyst.releases.domain.levels": ("Boolean", "Categorical", "Ordinal"),
    "kmeanalyst.releases.domain.numbers": ("Cyclic", "Date", "Integer", "Real"),
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


def spelled_out(keywords: Any, **defaults: Any) -> Callable[[F], F]:
    """Let help() and completion show the keywords of a TypedDict that a function takes as `**options`.

    defaults   of keywords that have one; None for the others.
    """

    def with_signature(function: F) -> F:
        own = signature(function)
        named = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        more = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind.__forward_arg__)
            for name, kind in keywords.__annotations__.items()
        ]
        function.__signature__ = own.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
        return function

    return with_signature


def refuse_unknown(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """TypeError for an option that the function does not take, as Python has it, with those that it takes."""
    known = [one.name for one in signature(function).parameters.values() if one.default is not Parameter.empty]
    if unknown := [name for name in options if name not in known]:
        raise TypeError(
            f"{function.__qualname__}() got an unexpected keyword argument {unknown[0]!r}. Its options are {', '.join(known)}."
        )


def instead_of(what: str, instead: Mapping[str, str]) -> Any:
    """A `__getattr__` whose AttributeError says what to use in place of names that other libraries have."""

    def absent(self: object, name: str) -> Any:
        if hasattr(type(self), name):  # a property of which an error comes
            return object.__getattribute__(self, name)
        use = f": {instead[name]}." if name in instead else "."
        raise AttributeError(f"{what} has no {name!r}{use}", name=name, obj=self)

    return absent
