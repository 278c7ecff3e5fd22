"""Property-based fuzzing of what strangers and private tables can feed: headers, members, expressions, domains, cells.

`python tests/support/fuzz.py --minutes 5` runs each property for its share of the time. The test suite runs the same properties on
a few hundred examples that are the same every time (test_fuzz.py). The properties use functions that stay whatever the points are
held in: the reader as a whole, `parse`, `read_domain`, `Column.encode`.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import decimal
import json
import logging
import math
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import paths
from file_tools import Members, declared, members_of, zipped
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.column import Column, DomainError
from kmeanalyst.releases.domain.domain import Domain, domain_toml, read_domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.expressions import ExpressionError, parse
from kmeanalyst.releases.file import FileRefused, read_function, validate_release
from kmeanalyst.releases.file.limits import HoldsFunction
from kmeanalyst.releases.texts import is_hidden

GOLDEN = paths.TESTS / "golden"
MOST_SECONDS = 20.0  # processor time for one example; most take milliseconds
PROPERTIES: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {}


def _is_shown(text: str) -> bool:
    """Whether a terminal shows every character of a text, and none changes the text around it."""
    return not any(is_hidden(character) for character in text)


def fuzzed(*inputs: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a property under its name, with what its arguments are drawn from."""

    def registered(check: Callable[..., None]) -> Callable[..., None]:
        PROPERTIES[check.__name__] = check, inputs
        return check

    return registered


def run(name: str, options: settings, *, started_by: int | None = None) -> None:
    """Run a property once with these settings; what it finds is raised."""
    check, inputs = PROPERTIES[name]

    def anew(arguments: tuple[Any, ...]) -> None:
        check(*arguments)

    property_ = options(given(st.tuples(*inputs))(anew))
    (property_ if started_by is None else seed(started_by)(property_))()


@contextmanager
def quietly() -> Iterator[None]:
    """Fail if what happens inside warns, logs or takes long."""
    records: list[logging.LogRecord] = []
    handler, began = logging.Handler(), time.process_time()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        logging.getLogger().removeHandler(handler)
    assert not records, records
    seconds = time.process_time() - began
    assert seconds < MOST_SECONDS, f"{seconds:.1f} s"


# ---------------------------------------------------------------------- values that are out of place

_ODD_NUMBERS = [
    0, -1, 1, 2, 3, 2**31 - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**400, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308,
]  # fmt: skip
_ODD_TEXTS = [
    "", " ", "a", "weight", "x" * 201, "\x1b[2J", "\u202e", "\ud800", "a\x00", "東京", "1e999", "nan", "-0", "0" * 300,
]  # fmt: skip
_GAUSSIAN = {"name": "gaussian", "lengthscale": 1.0}
odd_values = st.one_of(
    st.none(), st.booleans(), st.sampled_from(_ODD_NUMBERS), st.sampled_from(_ODD_TEXTS), st.integers(),
    st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12), st.lists(st.integers(-3, 3), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(-3, 3), max_size=3), st.just(_GAUSSIAN),
    st.just({"name": "sum", "terms": [_GAUSSIAN] * 3}), st.just([[[[[[[[[[]]]]]]]]]]),
)  # fmt: skip


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a header."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ([path] if path else []) + [each for key, inner in below for each in paths_of(inner, (*path, key))]


def changed(header: dict[str, Any], path: tuple[Any, ...], change: str, value: Any) -> None:
    """Set, remove, rename, repeat or move the value at a path."""
    inside: Any = header
    try:
        for key in path[:-1]:
            inside = inside[key]
        old = inside[path[-1]]
    except (LookupError, TypeError):  # an earlier change removed the path
        return
    if not isinstance(inside, dict | list):
        return
    if change == "set":
        inside[path[-1]] = value
    elif change == "remove":
        del inside[path[-1]]
    elif change == "wrap":
        inside[path[-1]] = [old]
    elif change == "twice" and isinstance(inside, list):
        inside.append(copy.deepcopy(old))
    elif change == "twice":
        inside[str(value)[:300]] = copy.deepcopy(old)
    elif change == "number" and isinstance(old, int | float) and not isinstance(old, bool):
        inside[path[-1]] = old * value if isinstance(value, float) else -old


# ---------------------------------------------------------------------- files


@cache
def sound_files() -> list[Members]:
    """The members of the golden files: of every method and feature map that has one."""
    return [members_of(path) for path in sorted(GOLDEN.rglob("*.kme"))]


@cache
def sound_headers() -> list[tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """Their headers, each with the paths of its values."""
    headers = [json.loads(members["release.json"]) for members in sound_files()]
    return [(header, paths_of(header)) for header in headers]


def sealed(header: Any, members: Members) -> bytes:
    """A file whose checksums are right, whatever its header says."""
    if isinstance(header, dict) and isinstance(header.get("members"), dict):
        header["members"] = declared(members)
    text = json.dumps(header).encode()
    others = ((name, data) for name, data in members.items() if name != "release.json")
    return zipped([("release.json", text), *others])


def check_file(data: bytes) -> None:
    """A file is read and validated, or refused in printable words; nothing else happens."""
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = Path(folder) / "a.kme"
        path.write_bytes(data)
        for reader in (read_release, read_function):
            try:
                found = reader(path, allow_rehearsal=True)
            except FileRefused as refused:
                said = str(refused)
                assert isinstance(refused, HoldsFunction) or _is_shown(said), said
                assert len(said) < 3000, len(said)
            else:
                shown = repr(found)
                assert len(shown) < 20_000 + 20 * len(data), len(shown)
        for finding in validate_release(path, allow_rehearsal=True):
            assert _is_shown(finding) and len(finding) < 3000, finding


header_changes = st.tuples(st.integers(0), st.sampled_from(["set"] * 3 + ["remove", "wrap", "twice", "number"]), odd_values)


@fuzzed(st.integers(0, 10_000), st.lists(header_changes, min_size=1, max_size=3))
def headers(which: int, changes: list[tuple[int, str, Any]]) -> None:
    """Any field of a header replaced, removed, repeated or of another kind."""
    which %= len(sound_files())
    header, paths = copy.deepcopy(sound_headers()[which])
    for at, change, value in changes:
        changed(header, paths[at % len(paths)], change, value)
    check_file(sealed(header, dict(sound_files()[which])))


_KINDS = st.sampled_from(["byte", "number", "drop", "add"])
byte_changes = st.lists(st.tuples(st.integers(0), _KINDS, st.integers(0, 255)), min_size=1, max_size=4)
_NUMBERS = [0.0, -0.0, math.nan, math.inf, -1.0, 0.5, 1e300, 5e-324]


@fuzzed(st.integers(0, 10_000), st.integers(0, 100), byte_changes)
def members(which: int, member: int, changes: list[tuple[int, str, int]]) -> None:
    """Bytes and numbers of any member changed."""
    files = sound_files()
    which %= len(files)
    parts = dict(files[which])
    name = sorted(set(parts) - {"release.json"})[member % (len(parts) - 1)]
    data = bytearray(parts[name])
    for at, change, value in changes:
        index = at % max(1, len(data))
        if change == "byte" and data:
            data[index] = value
        elif change == "number" and len(data) >= 8:
            index = len(data) - 8 * (1 + at % (len(data) // 8))
            data[index : index + 8] = struct.pack("<d", _NUMBERS[value % len(_NUMBERS)])
        elif change == "drop":
            del data[index : index + value % 9]
        else:
            data[index:index] = bytes([value])
    parts[name] = bytes(data)
    check_file(sealed(copy.deepcopy(sound_headers()[which][0]), parts))


# ---------------------------------------------------------------------- domains and cells

DOMAIN = Domain(
    (
        Integer(name="age", lower=17, upper=90, missing=True),
        Real(name="wage", lower=0.0, upper=1e6, scale="log1p", atoms=(0,)),
        Real(name="gain", lower=-1e300, upper=1e300, missing=True),
        Categorical(name="city", levels=("Zürich", "東京", "13", "True"), default="13"),
        Ordinal(name="school", levels=("none", "some", "degree"), missing=True),
        Boolean(name="ill"),
        Date(name="joined", lower="1950-01-01", upper="2024-12-31"),
        Cyclic(name="hour", lower=0, upper=24),
        Text(name="code", length=5, alphabet="ABC"),
    )
)


class _Odd(str):
    def __str__(self) -> str:
        raise RuntimeError("by the value of a cell")


class _OddDate(datetime.date):
    def isoformat(self) -> str:
        raise RuntimeError("by the value of a cell")


_dates = st.one_of(st.dates(), st.datetimes(), st.times(), st.timedeltas())
cells = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.decimals(), st.fractions(), st.complex_numbers(), st.text(),
    st.binary(max_size=5), _dates, _dates.map(str), st.floats().map(repr), st.integers().map(str),
    st.sampled_from([*_ODD_TEXTS, "Zürich", "degree", "yes", "ABCA", "2000-01-01", "1_000", "١٢", "0x10", "infinity", "9" * 5000]),
    st.sampled_from([
        pd.NA, pd.NaT, np.nan, np.inf, np.float32(3.4e38), np.int8(-1), np.uint64(2**64 - 1), 10**400, -(10**5000),
        np.datetime64("NaT"), np.datetime64("9999-12-31"), np.datetime64(2**62, "s"), np.datetime64(-(2**62), "ns"),
        np.timedelta64(1, "D"), np.str_("13"), np.bytes_(b"13"), np.array([1.0]), np.array(3), [], {}, object(), _Odd("13"),
        _OddDate(2000, 1, 1), decimal.Decimal("sNaN"), decimal.Decimal("1e999999"), decimal.Decimal("-0"), Ellipsis,
        pd.Timestamp("2000-01-01 12:00", tz="Asia/Tokyo"), pd.Timestamp.max, pd.Period("2000-01"), pd.Interval(0, 1),
        pd.Categorical(["a"]), np.longdouble("1e4000"), np.float16(1), np.complex64(1), np.void(b"1"), range(3), lambda: 1,
    ]),
)  # fmt: skip


@fuzzed(st.sampled_from(DOMAIN.columns), st.lists(cells, min_size=1, max_size=6), cells, st.booleans())
def private_cells(column: Column, rows: list[Any], other: Any, series: bool) -> None:
    """A cell never raises, warns or logs, and another row's cell changes no bit of what it becomes."""

    def encoded(values: list[Any]) -> np.ndarray:
        held: Any = values
        if series:
            held = np.empty(len(values), dtype=object)
            for i, value in enumerate(values):
                held[i] = value
            held = pd.Series(held, dtype=object)
        found, status = column.encode(held)
        assert found.shape[0] == status.shape[0] == len(values) and not np.isinf(found).any()
        return found

    with quietly():
        together = encoded([*rows, other])
        alone = [encoded([row]) for row in [*rows, other]]
        without = encoded(rows)
    assert together.tobytes() == np.concatenate(alone).tobytes()
    assert together[:-1].tobytes() == without.tobytes()
    if isinstance(column, Integer | Real | Date | Cyclic):
        low, high = column.bounds
        assert ((together >= low) & (together <= high) | np.isnan(together)).all()
        assert column.missing or not np.isnan(together).any()


_LINES = domain_toml(DOMAIN).splitlines()
line_changes = st.tuples(
    st.integers(0, len(_LINES) - 1), st.sampled_from(["drop", "twice", "value", "key", "raw"]),
    odd_values.filter(lambda value: value is not None), st.text(max_size=10),
)  # fmt: skip


@fuzzed(st.lists(line_changes, max_size=4))
def domain_files(changes: list[tuple[int, str, Any, str]]) -> None:
    """A domain's TOML with lines changed: a domain that its own text gives back, or a DomainError."""
    lines = list(_LINES)
    for at, change, value, text in changes:
        at %= len(lines)
        key, _, old = lines[at].partition(" = ")
        json_value = json.dumps(value)
        changes_to = {"drop": "", "twice": f"{lines[at]}\n{lines[at]}", "value": f"{key} = {json_value}", "raw": text}
        lines[at] = changes_to.get(change, f"{text or 'x'} = {old}")
    with tempfile.TemporaryDirectory() as folder, quietly():
        path = Path(folder) / "domain.toml"
        path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
        try:
            domain = read_domain(path)
        except DomainError as error:
            assert len(str(error)) < 3000, len(str(error))
        else:
            path.write_text(domain_toml(domain), encoding="utf-8")
            assert read_domain(path) == domain
            domain.decode(domain.draw(5, 0))


# ---------------------------------------------------------------------- expressions

_FRAME = DOMAIN.decode(DOMAIN.draw(20, 0))
_TOKENS = [
    *DOMAIN.names, "`age`", "age", "wage", "1", "0", "2.5", "1e308", "'13'", '"Zürich"', "'2000-01-01'", "true", "false",
    "and", "or", "not", "in", "not in", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "**", "(", ")", "[", "]", ",",
    "abs(", "log(", "log1p(", "exp(", "sqrt(", "floor(", "ceil(", "round(", "min(", "max(", "where(", "missing(", "year(", "month(",
    "number(",
    "\n", "\x1b", "``", "'", "\x00", "\u202e", "_", "lambda", "__import__", ".", "**", "é",
]  # fmt: skip


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["+", "-", "*", "/", "%", "**", "==", "<", "<=", "!=", ">", "and", "or"])
    one = st.sampled_from(["abs", "log", "exp", "sqrt", "floor", "round", "missing", "year", "number", "not ", "-"])
    return st.one_of(
        st.tuples(inner, signs, inner).map(" ".join),
        st.tuples(one, inner).map(lambda pair: f"{pair[0]}({pair[1]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda part: f"{part[0]}({part[1]}, {part[2]})"),
        st.tuples(inner, inner, inner).map(lambda part: f"where({part[0]}, {part[1]}, {part[2]})"),
        st.tuples(inner, st.lists(st.sampled_from(["1", "'13'", "'none'", "true"]), max_size=3)).map(
            lambda pair: f"{pair[0]} in [{', '.join(pair[1])}]"
        ),
    )


_leaves = st.sampled_from([*DOMAIN.names, "1", "0", "2.5", "1e308", "'13'", "'2000-01-01'", "true"])
texts = st.one_of(
    st.recursive(_leaves, _grown, max_leaves=12),
    st.lists(st.sampled_from(_TOKENS), max_size=25).map(" ".join),
    st.lists(st.sampled_from(_TOKENS), max_size=25).map("".join),
    st.text(max_size=60),
    st.tuples(st.sampled_from(["(", "-", "not ", "abs(", "age+", "age**", "[", "age<"]), st.integers(1, 3000)).map(
        lambda pair: pair[0] * pair[1]
    ),
)


@fuzzed(texts)
def expressions(text: str) -> None:
    """An expression has a value at every row, within its extent, or is an ExpressionError."""
    with quietly():
        try:
            expression = parse(text)
            kind = expression.check(DOMAIN)
            values = expression.evaluate(_FRAME, DOMAIN)
            extent = expression.extent(DOMAIN)
        except ExpressionError as error:
            assert _is_shown(str(error).replace("\n", "")) and len(str(error)) < 5000, str(error)
            return
    assert values.shape == (20,) and values.dtype == (bool if kind == "condition" else np.float64)
    if kind == "number" and extent.bounded:
        present = values[~np.isnan(values)]
        room = 1e-9 * max(abs(extent.low), abs(extent.high))
        assert ((present >= extent.low - room) & (present <= extent.high + room)).all(), (extent, values)


def main(arguments: list[str]) -> int:
    """Run properties with new seeds until the time is over; how many failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--only", choices=PROPERTIES)
    options = parser.parse_args(arguments)
    chosen = [name for name in PROPERTIES if options.only in (None, name)]
    lasting = settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    failed = 0
    for name in chosen:
        examples, until, start = 0, time.monotonic() + 60 * options.minutes / len(chosen), int(time.time())
        try:
            while time.monotonic() < until:
                run(name, lasting, started_by=start + examples)
                examples += 200
            print(name, examples, "examples, nothing found", flush=True)
        except Exception:
            failed += 1
            print(f"{name}: {traceback.format_exc()}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
