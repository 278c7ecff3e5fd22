"""One test over several inputs: as `pytest.mark.parametrize`, but one case, whose failure names the inputs it was at.

For inputs of which one failing message is enough, and which need no selection by marker. Fixtures are made once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def every(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that calls a test with each of the values; several nest."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    inputs = [value if len(keys) > 1 else (value,) for value in values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def over_all(**fixtures: Any) -> None:
            for chosen in inputs:
                given = dict(zip(keys, chosen, strict=True))
                try:
                    test(**fixtures, **given)
                except Exception as error:
                    error.add_note(f"at {given!s:.500}")
                    raise

        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        over_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        for attribute in [name for name in vars(over_all) if "hypothesis" in name]:  # of a test that draws its inputs
            delattr(over_all, attribute)
        return over_all

    return decorate
