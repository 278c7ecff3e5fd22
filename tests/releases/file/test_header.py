"""Refusals of the .kme file's header: its JSON, its fields, its privacy statement, and the members it declares."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from file_tools import (
    CORRECT,
    SCHEMA,
    SCHEMA_TEST,
    Edit,
    Members,
    all_of,
    check_refusals,
    dropping,
    forged,
    members_of,
    opened,
    refused,
    scaling,
    setting,
    with_verdict_of_schema,
    zipped,
)  # fmt: skip
from simulated_releases import statement_of

from kmeanalyst.release import read_release
from kmeanalyst.releases.file import FileRefused, archive, write_release
from kmeanalyst.releases.file.reading import release_of
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import zcdp_rho
from release_side.door.mechanism import GaussianNoise, LaplaceNoise
from release_side.door.private_mean import private_mean

# ---------------------------------------------------------------------- the text


def with_header(path: Path, text: str) -> bytes:
    return zipped(list((members_of(path) | {"release.json": text.encode("utf-8", "surrogatepass")}).items()))


def header_text(path: Path) -> str:
    return members_of(path)["release.json"].decode()


def test_a_header_that_is_not_plain_json_is_refused(mixed_path, tmp_path):
    text = header_text(mixed_path)
    check_refusals("json", lambda forge: opened(with_header(mixed_path, forge(text)), tmp_path))


# a statement and a measurement that agree on less noise than the claim needs
QUIETER = all_of(
    *(scaling(*keys, "noise_scale", by=0.9) for keys in (("statement",), ("measurement",))),
    scaling("measurement", "grid_noise_scale", by=0.9), scaling("statement", "rho", by=0.9**-2),
)  # fmt: skip
# a statement whose own arithmetic is right, about a smaller sensitivity than the feature map has
LESS_SENSITIVE = all_of(scaling("statement", "sensitivity", by=1 / 2), scaling("statement", "rho", by=1 / 4))


def scaled(times: int) -> dict[str, Any]:
    """A kernel whose bound is about 1e50 to the power of `times`."""
    inner = scaled(times - 1) if times > 1 else {"name": "gaussian", "lengthscale": 1}
    return {"name": "scaled", "factor": 9e99, "kernel": inner}


def test_a_header_with_missing_unknown_or_senseless_fields_is_refused(mixed_path, tmp_path):
    """Each says whether the schema refuses it too, which cannot compute."""
    check_refusals("header", lambda edit: with_verdict_of_schema(forged(mixed_path, edit), tmp_path, SCHEMA_TEST), **globals())


CLAIM = "the guarantee is not about these numbers"
# name → edit, what, why, whether the schema refuses it too


def test_a_refusal_never_repeats_a_character_that_a_terminal_obeys(mixed_path, tmp_path):
    for edit in [setting("columns", 0, "\x1b[2J", to=1), setting("columns", 0, to={"name": "\x1b[2J\u202e", "kind": "odd"})]:
        (tmp_path / "a.kme").write_bytes(forged(mixed_path, edit))
        with pytest.raises(FileRefused, match=r"\\x1b\[2J") as caught:
            read_release(tmp_path / "a.kme")
        assert str(caught.value).isprintable()


def test_a_statement_or_a_measurement_of_another_release_is_refused(mixed_path, mixed_release, tmp_path):
    """Another noise, or (the last) another number of rows: what the one file says is not about the other's numbers."""
    for noise in [GaussianNoise(0.5, 1e-6), LaplaceNoise(1.0, 0), GaussianNoise(1.0, 1e-6)]:
        n_rows = 1999 if noise == GaussianNoise(1.0, 1e-6) else 2000
        feature_map, domain = mixed_release.measurement.feature_map, mixed_release.domain
        other = private_mean([domain.draw(n_rows, 5)], feature_map, noise, n_rows=n_rows)
        statement = statement_of(other, noise)
        statement = replace(statement, rho=zcdp_rho(noise.name, noise_multiplier=statement.noise_multiplier))
        write_release(mixed_release.replaced(measurement=other, statement=statement), tmp_path / "other.kme")
        header = json.loads(members_of(tmp_path / "other.kme")["release.json"])
        for part in ("statement", "measurement"):
            data = forged(mixed_path, setting(part, to=header[part]))
            refused(data, tmp_path, r"the privacy statement claims \w+ .*, the measurement has another", CLAIM, CORRECT)


def test_a_slightly_generous_statement_is_read(mixed_path, mixed_release):
    mixed_path.write_bytes(forged(mixed_path, scaling("statement", "delta", by=1.5)))
    assert read_release(mixed_path).statement.delta == 1.5 * mixed_release.statement.delta


def test_a_distance_to_no_measurement_is_refused(foreign_release, tmp_path):
    write_release(foreign_release, tmp_path / "a.kme")
    data = forged(tmp_path / "a.kme", setting("fit_distance", to=0.1))
    refused(data, tmp_path, "fit_distance", "there is no measurement")


OTHERS: list[Any] = [None, True, -1, 0.5, "x", {"x": 0}]  # fuzz.py knows more
GAUSSIAN = {"name": "gaussian", "lengthscale": 1.0}
KERNELS_IN_FILES = [
    GAUSSIAN, {"name": "laplacian", "lengthscale": 2}, {"name": "multi-scale", "lengthscales": [1, 2.0]},
    {"name": "indicator", "levels": 3}, {"name": "softened-product", "inclusion": 0.5, "kernels": [GAUSSIAN] * 10},
    {"name": "sum", "terms": [GAUSSIAN] * 2}, {"name": "product", "factors": [GAUSSIAN] * 2},
    {"name": "scaled", "factor": 2, "kernel": GAUSSIAN}, {"name": "on-columns", "on": [1, 0], "kernel": GAUSSIAN},
]  # fmt: skip


def single_changes(value: Any) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """(where, edit) for each change of one field within: left out, of another kind or size, or one too many.

    Of a list only the first and the last entry are changed.
    """
    keys = list(value) if isinstance(value, dict) else sorted({0, len(value) - 1} & set(range(len(value))))
    for key in keys:
        yield f"{key} left out", dropping(key)
        for other in OTHERS:
            yield f"{key} = {other!r}", setting(key, to=other)
        if isinstance(value[key], dict | list):
            for where, edit in single_changes(value[key]):
                yield f"{key}.{where}", lambda v, key=key, edit=edit: edit(v[key])
    if isinstance(value, dict):
        yield "one too many", setting("surplus", to=1)


def check_reader_is_as_strict(path: Path, part: str, value: Any, *, wrap: Callable[[Any], Any] = lambda v: v) -> int:
    """Every single change of a part that its own schema refuses, its reader refuses; returns how many there were."""
    members = members_of(path)
    header = json.loads(members["release.json"])
    definitions = {"": SCHEMA} | {name: {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]} for name in SCHEMA["$defs"]}
    schema = jsonschema.Draft202012Validator(definitions[part.removesuffix("s")])
    assert schema.is_valid(value)
    broken = 0
    for where, edit in single_changes(value):
        changed = copy.deepcopy(value)
        edit(changed)
        if schema.is_valid(changed):
            continue
        broken += 1
        text = json.dumps(header | {part: wrap(changed)} if part else changed)
        with pytest.raises(FileRefused):
            release_of(archive.members_in(archive.zipped(members | {"release.json": text.encode()})), ReleaseData)
            pytest.fail(f"{part}.{where} breaks the schema, and was read")
    return broken


def test_a_header_that_the_schema_refuses_is_refused(mixed_path, foreign_release, tmp_path):
    """Of every single change of a field; conversely a reader checks more than a schema can."""
    header = json.loads(members_of(mixed_path)["release.json"])
    assert check_reader_is_as_strict(mixed_path, "statement", header["statement"]) > 100
    assert check_reader_is_as_strict(mixed_path, "measurement", header["measurement"]) > 100
    write_release(foreign_release, tmp_path / "foreign.kme")
    header = json.loads(members_of(tmp_path / "foreign.kme")["release.json"])
    columns, header["columns"] = header["columns"], header["columns"][:1]  # the others are next
    header["kernel"] = GAUSSIAN
    assert check_reader_is_as_strict(tmp_path / "foreign.kme", "", header) > 100
    for i, column in enumerate(columns):
        count = check_reader_is_as_strict(
            tmp_path / "foreign.kme", "columns", column, wrap=lambda c, i=i: [*columns[:i], c, *columns[i + 1 :]]
        )
        assert count > 8
    for kernel in KERNELS_IN_FILES:
        assert check_reader_is_as_strict(tmp_path / "foreign.kme", "kernel", kernel) > 10


def points(make: Callable[[bytes], bytes]) -> Edit:
    return lambda header, members: members.update({"points.csv": make(members["points.csv"])})


def undeclared(header: dict[str, Any], members: Members) -> None:
    members["measurement/table_77.npy"] = b""


def test_members_other_than_declared_are_refused(mixed_path, tmp_path):
    listed = "members"
    check_refusals(listed, lambda edit: opened(forged(mixed_path, edit, resealed=False), tmp_path), **globals())
    what, why = "the members differ from the declared ones", r"declared \[.*table_77"
    refused(forged(mixed_path, undeclared), tmp_path, what, why)  # sealed, and not needed
