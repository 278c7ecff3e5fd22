"""release.json, the header: JSON to plain values, each field checked against its rule and each member against its digest.

`schema_v1.json` says the same in JSON Schema. The rules are written out here so that reading a file needs no
validator and every refusal names its field.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file import archive
from kmeanalyst.releases.file.limits import MOST_HEADER_DEPTH, HoldsFunction, limits, refusal, refusing, too_large
from kmeanalyst.releases.file.measurement import FEATURE_MAPS
from kmeanalyst.releases.function import KINDS
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.statement import (
    METHOD,
    NOISE_LAWS,
    VERSION,
    is_digest,
    is_number,
    is_pure,
    is_selection,
    is_whole,
    software_versions,
)
from kmeanalyst.releases.texts import flaw_of

FORMAT = "kmeanalyst release"
FUNCTION_FORMAT = "kmeanalyst function"  # `format` of a file that holds a function of a table, and no points
SCHEMA_MAJOR, SCHEMA_MINOR = 1, 2
FUNCTION_MINOR = 0
PLAIN_MINOR, DERIVED_MINOR = 0, 1  # minor version of a file without derived columns and rules, and without rules
WEIGHT_VIEWS = ("probability", "bounded", "signed", "published", "given")

_MOST_SCORES = 9  # rounds of scores; of choices

_Rule = tuple[str, Callable[[Any], bool]]


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 2 and all(is_whole(size) and size >= 1 for size in value)


def _holds(rules: dict[str, _Rule], value: Any) -> bool:
    return isinstance(value, dict) and set(value) == set(rules) and all(rules[name][1](value[name]) for name in rules)


def _are_columns(value: Any, fewest: int, most: float = math.inf) -> bool:
    return isinstance(value, list) and fewest <= len(value) <= most and all(map(is_whole, value))


def _rounds(what: str, holds: Callable[[Any], bool]) -> _Rule:
    return (
        f"a list of 1 to {_MOST_SCORES} {what}",
        lambda value: isinstance(value, list) and 1 <= len(value) <= _MOST_SCORES and all(map(holds, value)),
    )


def _one_of(*values: Any) -> _Rule:
    return f"one of {', '.join(map(str, values))}", lambda value: type(value) in (str, int) and value in values


_METHOD: _Rule = (
    "1 to 60 lower-case letters, digits and hyphens",
    lambda value: isinstance(value, str) and METHOD.fullmatch(value) is not None,
)
_VERSIONS: _Rule = (
    "a table of names and version numbers",
    lambda value: (
        isinstance(value, dict)
        and all(isinstance(text, str) and VERSION.fullmatch(text) for pair in value.items() for text in pair)
    ),
)
_COUNT: _Rule = ("a whole number of at least 1", lambda value: is_whole(value) and value >= 1)
_SIZE: _Rule = ("a whole number of at least 0", lambda value: is_whole(value) and value >= 0)
_STEP: _Rule = ("a whole number from 1 to 2^28", lambda value: is_whole(value) and 1 <= value <= GRID)
_POSITIVE: _Rule = ("a positive number", lambda value: is_number(value) and value > 0)
_DISTANCE: _Rule = ("null or a number of at least 0", lambda value: value is None or (is_number(value) and value >= 0))
_TABLE: _Rule = ("a table", lambda value: isinstance(value, dict))
_TABLE_OR_NULL: _Rule = ("a table or null", lambda value: value is None or isinstance(value, dict))
_LIST: _Rule = ("a list with at least one entry", lambda value: isinstance(value, list) and bool(value))
_SHAPES: _Rule = ("a table of shapes", lambda value: isinstance(value, dict) and all(map(_is_shape, value.values())))

_SHARED_RULES = {
    "schema_major": _one_of(SCHEMA_MAJOR), "schema_minor": _SIZE, "columns": _LIST, "kernel": _TABLE, "versions": _VERSIONS,
    "members": _TABLE,
}  # fmt: skip
_RELEASE_RULES = {"format": _one_of(FORMAT)} | _SHARED_RULES | {
    "method": _METHOD, "weight_view": _one_of(*WEIGHT_VIEWS), "fit_distance": _DISTANCE, "n_points": _COUNT,
    "statement": _TABLE_OR_NULL, "measurement": _TABLE_OR_NULL,
}  # fmt: skip
_FUNCTION_FILE_RULES = {"format": _one_of(FUNCTION_FORMAT)} | _SHARED_RULES | {
    "function": _TABLE,
    "statement": _TABLE,
    "measurement": _TABLE,
}  # fmt: skip
_DERIVED_RULE, _RULES_RULE = {"derived": _LIST}, {"rules": _LIST}
_NOISE_RULES = {"noise_scale": _POSITIVE, "grid_noise_scale": _POSITIVE, "n_rows": _COUNT}
_MEASUREMENT_RULES = {"noise_law": _one_of(*NOISE_LAWS), "feature_map": _TABLE} | _NOISE_RULES
_CHOICE_RULES = {"count": _COUNT, "step": _STEP, "scale": _POSITIVE}
_SETS: _Rule = ("sets", lambda value: isinstance(value, list) and bool(value) and all(_are_columns(own, 3) for own in value))
_DRAWN_RULES = {"sets": _SETS, "count": _STEP, "largest": _STEP, "step": _STEP, "scale": _POSITIVE, "score_step": _STEP}
_OPTIONAL_RULES: dict[str, _Rule] = {
    "relative_noise": ("true", lambda value: value is True),
    "scores": _rounds("whole numbers, from 1 to 2^28", _STEP[1]),
    "choices": _rounds("tables of count, step (from 1 to 2^28) and scale, positive numbers", partial(_holds, _CHOICE_RULES)),
    "beforehand": (
        "a list of pairs of columns' numbers, at least one",
        lambda value: isinstance(value, list) and bool(value) and all(_are_columns(pair, 2, 2) for pair in value),
    ),
    "drawn": (
        "a table of sets, at least one, count, largest, step and score_step (from 1 to 2^28) and scale",
        partial(_holds, _DRAWN_RULES),
    ),
}
_FUNCTION_MEASUREMENT_RULES = {
    "noise_law": _one_of(*(law for law in NOISE_LAWS if not is_pure(law))),
    "n_pivots": _COUNT,
} | _NOISE_RULES
_FEATURE_MAP_RULES = {"name": _one_of(*FEATURE_MAPS), "dimension": _COUNT, "arrays": _SHAPES}
_FUNCTION_RULES = {
    "kind": _one_of(*KINDS),
    "regularisation": ("null or a positive number", lambda value: value is None or (is_number(value) and value > 0)),
    "target": _TABLE_OR_NULL,
}
_MEMBER_RULES = {"bytes": _SIZE, "sha256": ("64 hexadecimal digits", is_digest)}


def parsed(data: memoryview, what: str = archive.HEADER) -> dict[str, Any]:
    """The header, or another member of JSON, as plain values: all numbers finite, nesting of bounded depth, no key twice."""
    if len(data) > limits().header_bytes:
        raise too_large(f"{what} has {len(data)} bytes", f"at most {limits().header_bytes} are read")
    raw = bytes(data)
    marks = sum(map(raw.count, (b",", b"[", b"{")))  # before parsing: two bytes could become a table of a hundred
    if marks > limits().header_marks:
        raise too_large(f"{what} has {marks} commas and brackets", f"at most {limits().header_marks} are read")
    with refusing(what):
        header = json.loads(raw.decode(), object_pairs_hook=_without_twins, parse_constant=_no_constant)
    _check_values(header, what, depth=1)
    if not isinstance(header, dict):
        raise refusal(what, "it is not a table of fields")
    return header


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = sorted(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise refusal(f"a table has the keys {twice!r:.80} twice", "readers would disagree on which of them counts")
    return table


def _no_constant(name: str) -> None:
    raise refusal(f"a table contains {name}", "JSON has no such number, and no field of a release means one")


def _check_values(value: Any, what: str, *, depth: int) -> None:
    if depth > MOST_HEADER_DEPTH:
        raise refusal(f"{what} is nested more than {MOST_HEADER_DEPTH} deep", "no release needs that")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(key, what, depth=depth)
            _check_values(item, what, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_values(item, what, depth=depth + 1)
    elif isinstance(value, str):
        if flaw := flaw_of(value):  # whichever field or key it is
            raise refusal(
                f"{what} has a text with {flaw}: {value!a:.80}",
                "shown on a terminal or in a report, it could pass for what kmeanalyst says itself",
            )
    elif isinstance(value, float | int) and not abs(value) < (math.inf if isinstance(value, float) else 2**63):
        raise refusal(f"{what} contains the number {value!r:.40}", "it is beyond what 64 bits hold")


def check_header(header: dict[str, Any]) -> None:
    """FileRefused unless the header has every field it must have, of the right kind, and no other.

    A newer minor version may add fields, which are ignored.
    """
    if header.get("format") == FUNCTION_FORMAT:
        raise HoldsFunction(
            "the file holds a function of a table: it has no weighted points to ask about. Read it with "
            "kmeanalyst.read_function, or kmeanalyst evaluate."
        )
    newer = _is_newer(header, SCHEMA_MINOR)
    minor, may_have = header.get("schema_minor"), newer or header.get("schema_minor") == SCHEMA_MINOR
    derived = minor == DERIVED_MINOR or (may_have and "derived" in header)
    rules = minor == SCHEMA_MINOR or (newer and "rules" in header)
    also = (_DERIVED_RULE if derived else {}) | (_RULES_RULE if rules else {})
    _check_outline(header, FORMAT, _RELEASE_RULES | also, newer=newer)
    measurement, statement = header["measurement"], header["statement"]
    drawn = statement is not None and is_selection(statement.get("mechanism"))
    if (measurement is None) != (statement is None or drawn):
        raise refusal("measurement and statement", "one of them alone is a guarantee about nothing")
    if measurement is None and header["fit_distance"] is not None:
        raise refusal("fit_distance", "there is no measurement that the points could be at a distance from")
    if measurement is not None:
        optional = {name: rule for name, rule in _OPTIONAL_RULES.items() if name in measurement}
        _check_fields("measurement", measurement, _MEASUREMENT_RULES | optional)
        _check_fields("feature_map", measurement["feature_map"], _FEATURE_MAP_RULES)


def check_function_header(header: dict[str, Any]) -> None:
    """As `check_header`, for the header of a released function."""
    if header.get("format") == FORMAT:
        raise refusal("the file holds weighted points", "it is not a function of a table", "Read it with kmeanalyst.read_release")
    _check_outline(header, FUNCTION_FORMAT, _FUNCTION_FILE_RULES, newer=_is_newer(header, FUNCTION_MINOR))
    _check_fields("measurement", header["measurement"], _FUNCTION_MEASUREMENT_RULES)
    _check_fields("function", header["function"], _FUNCTION_RULES)


def _is_newer(header: dict[str, Any], known: int) -> bool:
    minor = header.get("schema_minor")
    return isinstance(minor, int) and minor > known


def _check_outline(header: dict[str, Any], form: str, rules: dict[str, _Rule], *, newer: bool) -> None:
    """What the headers of both formats share: version, fields, number of columns, entries of the members."""
    major = header.get("schema_major")
    if header.get("format") == form and is_whole(major) and major != SCHEMA_MAJOR:
        raise refusal(
            f"the file is format {major}, this kmeanalyst reads format {SCHEMA_MAJOR}",
            "nothing was read, because another format may have changed what a weight means",
            "Upgrade kmeanalyst",
        )
    _check_fields(archive.HEADER, header, rules, more_allowed=newer)
    if len(header["columns"]) > limits().columns:
        raise too_large(f"{archive.HEADER} has {len(header['columns'])} columns", f"at most {limits().columns} are read")
    for name, entry in header["members"].items():
        _check_fields(f"the entry of member {name!r:.80}", entry, _MEMBER_RULES)


def _check_fields(what: str, table: Any, rules: dict[str, _Rule], *, more_allowed: bool = False) -> None:
    if not isinstance(table, dict):
        raise refusal(what, f"it should be a table of {', '.join(rules)}")
    absent, unknown = sorted(set(rules) - set(table)), sorted(set(table) - set(rules))
    if absent or (unknown and not more_allowed):
        raise refusal(what, f"missing fields {absent}, unknown fields {unknown!r:.200}; their meaning cannot be guessed")
    for name, (wanted, holds) in rules.items():
        if not holds(table[name]):
            raise refusal(f"{what}, field {name}", f"it must be {wanted}, got {table[name]!r:.80}")


def check_members(header: dict[str, Any], members: archive.Members) -> None:
    """FileRefused unless the members are exactly the declared ones, byte for byte."""
    wanted = {archive.NOISY_SUM, archive.PIVOTS} if header["format"] == FUNCTION_FORMAT else _members_of_release(header)
    if archive.POINTS in wanted and archive.POINTS not in members:
        raise archive.without_points()
    declared, present = set(header["members"]), set(members) - {archive.HEADER}
    if not wanted == declared == present:
        raise refusal(
            "the members differ from the declared ones",
            f"needed {sorted(wanted)!r:.300}, declared {sorted(declared)!r:.300}, present {sorted(present)!r:.300}",
        )
    for name, entry in header["members"].items():
        member = members[name]
        if member.size != entry["bytes"]:
            raise refusal(f"member {name} has {member.size} bytes", f"the header declares {entry['bytes']}")
        if member.sha256 != entry["sha256"]:
            raise refusal(f"member {name} does not have the declared SHA-256", "the file was damaged or altered")


def _members_of_release(header: dict[str, Any]) -> set[str]:
    if header["measurement"] is None:
        return {archive.POINTS}
    arrays = header["measurement"]["feature_map"]["arrays"]
    rounds = len(header["measurement"].get("scores", ())) + ("drawn" in header["measurement"])
    scores = {archive.scores_name(number) for number in range(1, 1 + rounds)}
    by_cell = {archive.RELATIVE_NOISE} if "relative_noise" in header["measurement"] else set()
    return {archive.POINTS, archive.NOISY_SUM} | scores | by_cell | {f"measurement/{name}.npy" for name in arrays}


def plain(value: Any) -> Any:
    """The value as JSON knows it: numpy's numbers as Python's, tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def declaration(members: dict[str, bytes]) -> dict[str, Any]:
    """What a header declares of the other members: length and SHA-256 of each."""
    return {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in members.items()}


def outline(form: str, minor: int, domain: Domain, kernel: Kernel, members: dict[str, bytes]) -> dict[str, Any]:
    """What the headers of both formats say alike."""
    return {
        "format": form, "schema_major": SCHEMA_MAJOR, "schema_minor": minor, "columns": domain.to_dict(),
        "kernel": kernel.to_dict(), "versions": software_versions("kmeanalyst", "numpy"), "members": declaration(members),
    }  # fmt: skip
