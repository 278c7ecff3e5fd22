"""What a model file may hold, checked independently of skops: before any object is made, and again on the objects made.

skops names the types that a file would make. Versions before 0.15 could show one name and make or call another thing
(CVE-2025-54412 and 54413, closed in 0.12; the names of random generators, closed in 0.15). These checks do not rely on
its names: any call, and any attribute that could replace a method, is refused unless the reader trusts it by name.
"""

from __future__ import annotations

import json
import re
import types
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set, ValuesView
from typing import Any

import numpy as np

from kmeanalyst.releases.texts import flaw_of

OLDEST_SKOPS = (0, 15)
OURS = (
    "kmeanalyst.learning.rows.encoder.DomainEncoder",
    "kmeanalyst.learning.training.pipeline.TrainedPipeline",
    "kmeanalyst.learning.training.pipeline.TrainingReport",
)
_LIBRARIES = ("builtins", "collections", "numpy", "scipy", "sklearn")
_CALLING = ("ConstructorFromReduceNode", "FunctionNode", "MethodNode", "OperatorFuncNode", "PartialNode")
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def check_skops(version: str) -> None:
    """ImportError for a version of skops with known vulnerabilities."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST_SKOPS:
        oldest = ".".join(map(str, OLDEST_SKOPS))
        raise ImportError(
            f"skops {version} has known holes (CVE-2025-54412 among them): a model file could run code that it does not name. "
            f"Nothing was read. Upgrade it: pip install 'skops>={oldest}'."
        )


def bytes_referred_to(schema: Any, sizes: Mapping[str, int]) -> int:
    """The number of bytes skops would read from the archive: a member counts once for each part that refers to it."""
    return sum(sizes.get(str(part.get("file")), 0) for part in _parts(schema) if "file" in part)


def check_schema(schema: Any, trusted: Collection[str]) -> None:
    """ValueError for a schema with parts that are of other libraries or call something and are not trusted by name."""
    for part in _parts(schema):
        if "__loader__" not in part:
            continue
        name, loader = f"{part['__module__']}.{part['__class__']}", part["__loader__"]
        if loader in _CALLING:
            name = _called_name(part, loader)
            called = getattr(np, name.removeprefix("numpy."), None) if name.startswith("numpy.") else None
            known = loader == "FunctionNode" and isinstance(called, np.ufunc)
        elif loader == "RandomGeneratorNode":
            known = json.loads(part["content"]["bit_generator"]["content"]["bit_generator"]["content"]) in _BIT_GENERATORS
        else:
            known = name.split(".")[0] in _LIBRARIES or name in OURS
        if not known and name not in trusted:
            raise ValueError(f"its part {name!r:.80} ({loader!r:.40}) is of no kind that a model needs")


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _called_name(part: dict[str, Any], loader: str) -> str:
    if loader == "OperatorFuncNode":
        return f"operator.{part['__class__']}"
    if loader == "MethodNode":
        owner = part["content"]["obj"]
        return f"{owner['__module__']}.{owner['__class__']}.{part['content']['func']}"
    return f"{part['__module__']}.{part['__class__']}"


def check_made(model: Any, trusted: Collection[str]) -> None:
    """ValueError for a model with a function, a type of another library, or an attribute that replaces a method."""
    waiting, seen = [model], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        name = _name_of(value)
        if isinstance(value, np.ufunc) or name in trusted:
            continue
        if name.split(".")[0] not in (*_LIBRARIES, "kmeanalyst") or _is_function(value):
            raise ValueError(f"it holds {name!r:.80}, which is of no kind that a model needs")
        attributes = vars(value) if hasattr(value, "__dict__") and not isinstance(value, type) else {}
        for key in attributes:
            if key == "input":
                _check_input(value, attributes[key])
            if key.startswith("__") or callable(getattr(type(value), key, None)):
                raise ValueError(f"its {type(value).__name__} has an attribute {key!r:.80} in the place of a method")
        waiting += [*attributes.values(), *_items(value)]


def _check_input(vectorizer: Any, kind: Any) -> None:
    if not (isinstance(kind, str) and kind == "content"):
        raise ValueError(
            f"its {type(vectorizer).__name__} takes names of files or open files as input, and would read them; a vectorizer "
            "needs input='content'"
        )


def _is_function(value: Any) -> bool:
    """Whether a value can be called and is neither a class nor an object of scikit-learn, such as a kernel or a loss."""
    return callable(value) and not isinstance(value, type) and type(value).__module__.split(".")[0] != "sklearn"


def _name_of(value: Any) -> str:
    if isinstance(value, types.MethodType):
        return f"{_name_of(value.__self__)}.{value.__name__}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [*value, *value.values(), *([value.default_factory] if isinstance(value, defaultdict) else [])]
    if isinstance(value, np.ndarray | np.void):
        return np.ravel(value).tolist() if value.dtype.hasobject else []
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    if isinstance(value, Sequence | Set | ValuesView) and not isinstance(value, str | bytes | bytearray | range):
        return list(value)
    return []


def check_texts(report: Any) -> None:
    """ValueError for a report with a text that could deceive where it is shown."""
    waiting = [vars(report)]
    while waiting:
        value = waiting.pop()
        flaw = flaw_of(value) if isinstance(value, str) else None
        if flaw is not None:
            raise ValueError(f"the report of its training has a text with {flaw}, which could deceive where it is shown")
        waiting += _items(value)
