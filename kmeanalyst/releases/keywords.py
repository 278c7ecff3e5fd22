"""Keywords that belong together: a TypedDict, which functions take as `**options` and callers write as any other keywords."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


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
