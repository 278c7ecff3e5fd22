"""Refusals of the .kme file's header: its JSON, its fields, its privacy statement, and the members it declares."""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from file_tools import (
    SCHEMA,
    SCHEMA_TEST,
    SENSELESS,
    Edit,
    Members,
    all_of,
    dropping,
    forged,
    members_of,
    refused,
    scaling,
    setting,
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


TEXTS: dict[str, tuple[Callable[[str], str], str, str]] = {
    "not JSON": (lambda t: t[:-1], r"release\.json: ", SENSELESS),
    "a byte-order mark": (lambda t: "\ufeff" + t, r"release\.json: ", "BOM"),
    "a list": (lambda t: "[1, 2]", r"release\.json: ", "it is no table of fields"),
    "a key twice": (
        lambda t: t.replace('"method":', '"method":"x","method":'), r"has the keys \['method'\] twice", "disagree",
    ),
    "an inner key twice": (
        lambda t: t.replace('"delta":', '"delta":0.5,"delta":'), r"has the keys \['delta'\] twice", "disagree",
    ),
    "NaN": (lambda t: re.sub(r'"fit_distance":[^,]+', '"fit_distance":NaN', t), "contains NaN", "no such number"),
    "Infinity": (lambda t: re.sub(r'"delta":[^,]+', '"delta":-Infinity', t), "contains -Infinity", "no such number"),
    "1e999": (lambda t: re.sub(r'"epsilon":[^,]+', '"epsilon":1e999', t), "contains the number inf", "64 bits"),
    "a huge whole number": (
        lambda t: re.sub(r'"n_points":[^,]+', '"n_points":' + "9" * 30, t), "contains the number 9+", "64 bits",
    ),
    "a number of 5000 digits": (
        lambda t: re.sub(r'"n_points":[^,]+', '"n_points":' + "9" * 5000, t), r"release\.json: ", SENSELESS,
    ),
    "half a surrogate pair": (
        lambda t: t.replace('"random-features"', '"\\ud800"'), r"a text with half of a surrogate pair", "could pass for",
    ),
    "bytes that are no UTF-8": (
        lambda t: t.replace('"random-features"', '"\ud800"'), r"release\.json: ", "can't decode",
    ),
    "40 levels of lists": (
        lambda t: t.replace('"method":', f'"method":{"[" * 40}{"]" * 40},"more":'), "nested more than 32 deep",
        "no release",
    ),
    "a hundred thousand levels of lists": (lambda t: "[" * 100_000, r"release\.json: ", SENSELESS),
    "a million levels of lists": (
        lambda t: "[" * 1_100_000, r"release\.json has 1100000 commas and brackets", "at most 262144 are read",
    ),
    "a million numbers": (
        lambda t: t.replace('"method":', f'"more":[{"1," * 2**20}1],"method":'), "has 1048[0-9]* commas", "at most 262144 are read",
    ),
    "a number of a million digits": (
        lambda t: re.sub(r'"n_points":[^,]+', '"n_points":' + "9" * 10**6, t), r"release\.json: ", SENSELESS,
    ),
    "minus 1e999 within a list": (
        lambda t: t.replace('"edges":[', '"edges":[-1e999,'), "contains the number -inf", "64 bits",
    ),
    "half a pair as a key": (
        lambda t: t.replace('"versions":{', '"versions":{"\\udfff":"",', 1), "a text with half of a surrogate pair",
        "could pass for",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_a_header_that_is_not_plain_json_is_refused(case, mixed_path, tmp_path):
    forge, what, why = TEXTS[case]
    text = header_text(mixed_path)
    assert forge(text) != text
    refused(with_header(mixed_path, forge(text)), tmp_path, what, why)


def test_a_header_over_the_limit_is_refused_before_it_is_parsed(mixed_path, tmp_path):
    data = with_header(mixed_path, header_text(mixed_path) + " " * 2**24)
    refused(data, tmp_path, r"release\.json has \d+ bytes", "at most 4194304 are read")


def test_another_major_version_is_refused_whatever_else_it_holds(mixed_path, tmp_path):
    data = with_header(mixed_path, '{"format": "kmeanalyst release", "schema_major": 2}')
    what, why = "the file is format 2, this kmeanalyst reads format 1", "may have changed what a weight means"
    refused(data, tmp_path, what, why, "Upgrade kmeanalyst.")


# ---------------------------------------------------------------------- the fields


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


FIELD = r"release\.json, field "
CLAIM = "the guarantee is not about these numbers"
CORRECT = "Do not rely on it; ask its maker for a correct file."
# name → edit, what, why, whether the schema refuses it too
HEADERS: dict[str, tuple[Edit, str, str, bool]] = {
    "another format": (setting("format", to="zip"), FIELD + "format", "one of kmeanalyst release, got 'zip'", True),
    "a major version that is true": (
        setting("schema_major", to=True), FIELD + "schema_major", "must be one of 1", True,
    ),
    "a negative minor version": (setting("schema_minor", to=-1), FIELD + "schema_minor", "at least 0, got -1", True),
    "a missing field": (dropping("method"), r"release\.json", r"missing fields \['method'\]", True),
    "an unknown field": (setting("run", to="rm"), r"release\.json", r"unknown fields \['run'\]", True),
    "an empty method": (setting("method", to=""), FIELD + "method", "1 to 60 lower-case letters, digits and hyphens, got ''", True),
    "a long method": (setting("method", to="x" * 61), FIELD + "method", "1 to 60 lower-case", True),
    "an unknown weight view": (setting("weight_view", to="odd"), FIELD + "weight_view", "one of probability", True),
    "a weight view that is a list": (setting("weight_view", to=[]), FIELD + "weight_view", "one of", True),
    "a negative distance": (setting("fit_distance", to=-1.0), FIELD + "fit_distance", "at least 0, got -1", True),
    "no points": (setting("n_points", to=0), FIELD + "n_points", "whole number of at least 1, got 0", True),
    "points that are a float": (setting("n_points", to=60.5), FIELD + "n_points", "whole number", True),
    "points that are true": (setting("n_points", to=True), FIELD + "n_points", "whole number", True),
    "versions of numbers": (setting("versions", to={"numpy": 2}), FIELD + "versions", "a table of names and version numbers", True),
    "columns that are a table": (setting("columns", to={}), FIELD + "columns", "a list with at least one", True),
    "no columns": (setting("columns", to=[]), FIELD + "columns", "a list with at least one", True),
    "a column that is a number": (setting("columns", 0, to=3), "the columns", "a column must be a table", True),
    "an unknown kind": (setting("columns", 0, "kind", to="sentence"), "the columns", "kind must be one of", True),
    "a kind that is a list": (setting("columns", 0, "kind", to=[]), "the columns", SENSELESS, True),
    "an unknown column field": (setting("columns", 0, "code", to="x"), "the columns", "unknown here: code", True),
    "bounds the wrong way": (setting("columns", 0, "lower", to=99), "the columns", "lower must be below upper", False),
    "a bound that is a table": (setting("columns", 0, "lower", to={}), "the columns", "must be a finite", True),
    "levels that are numbers": (
        setting("columns", 4, "levels", to=[1, 2, 3, 4]), "the columns", "as a domain writes", True,
    ),
    "a level twice": (setting("columns", 4, "levels", to=["a", "a"]), "the columns", "levels must be distinct", True),
    "a column twice": (setting("columns", 1, "name", to="age"), "the columns", "names must be distinct", False),
    "a column named weight": (setting("columns", 1, "name", to="weight"), "the columns", '"weight" is refused', True),
    "a name that clears the terminal": (
        setting("columns", 0, "name", to="\x1b[2J"),
        r"has a text with a control character \(U\+001B\): '\\x1b\[2J'", "could pass for", True,
    ),
    "a level that clears the terminal": (
        setting("columns", 4, "levels", 0, to="\x9b2J"), r"a control character \(U\+009B\): '\\x9b2J'", "could pass for", True,
    ),
    "missing that is a text": (setting("columns", 0, "missing", to="no"), "the columns", "true or false", True),
    "missing that is false": (setting("columns", 0, "missing", to=False), "the columns", "as a domain writes", True),
    "a kernel that is a text": (setting("kernel", to="os.system"), FIELD + "kernel", "it must be a table", True),
    "an unknown kernel": (setting("kernel", to={"name": "os.system"}), "the kernel", "unknown kernel", True),
    "a kernel whose name is a list": (setting("kernel", "name", to=[]), "the kernel", SENSELESS, True),
    "a kernel without parameters": (setting("kernel", to={"name": "gaussian"}), "the kernel", "wrong parameters", True),
    "a kernel of other things": (setting("kernel", "kernels", to=[1, "x"]), "the kernel", SENSELESS, True),
    "a lengthscale below zero": (
        setting("kernel", to={"name": "gaussian", "lengthscale": -1}), "the kernel", "must be a positive finite", True,
    ),
    "a kernel for fewer columns": (
        dropping("kernel", "kernels", 0), "the kernel", "one part for each of 9 columns", False,
    ),
    "a kernel of absent columns": (
        setting("kernel", to={"name": "on-columns", "kernel": {"name": "gaussian", "lengthscale": 1}, "on": [77]}),
        "the kernel", SENSELESS, False,
    ),
    "a kernel of no kernel": (
        setting("kernel", to={"name": "on-columns", "kernel": 1, "on": [0]}), "the kernel", SENSELESS, True,
    ),
    "a kernel of nan": (
        setting("kernel", to=scaled(7)), "the kernel", "not bounded, or does not keep its bound", False,
    ),
    "a kernel nested 20 deep": (setting("kernel", to=scaled(20)), "the kernel", "nested more than 8 deep", False),
    "an inclusion that is true": (
        setting("kernel", "inclusion", to=True), "the kernel", "inclusion must be a probability", True,
    ),
    "an indicator of too few levels": (
        setting("kernel", "kernels", 4, "levels", to=3), "the kernel", "3 levels in column city, which has 4", False,
    ),
    "no measurement": (setting("measurement", to=None), "measurement and statement", "alone is a guarantee about nothing", True),
    "an unknown noise law": (
        setting("measurement", "noise_law", to="none"), "measurement, field noise_law",
        "one of discrete gaussian", True,
    ),
    "noise of zero": (setting("measurement", "noise_scale", to=0), "field noise_scale", "positive number, got 0", True),
    "an unknown measurement field": (
        setting("measurement", "seed", to=1), "measurement: ", r"unknown fields \['seed'\]", True,
    ),
    "an unknown feature map": (
        setting("measurement", "feature_map", "name", to="pickle"), "feature_map, field name",
        "one of random-fourier", True,
    ),
    "another dimension": (
        setting("measurement", "feature_map", "dimension", to=100), "feature_map, field dimension",
        "make 200 features", False,
    ),
    "shapes that are texts": (
        setting("measurement", "feature_map", "arrays", to={"linear": "all"}), "field arrays",
        "a table of shapes", True,
    ),
    "shapes of three axes": (
        setting("measurement", "feature_map", "arrays", "linear", to=[1, 10, 100]), "field arrays", "shapes", True,
    ),
    "another shape": (
        setting("measurement", "feature_map", "arrays", "linear", to=[10, 99]),
        r"measurement/linear\.npy", r"<f8 of shape \[10, 99\] and nothing else, got <f8 of shape \[10, 100\]", False,
    ),
    "grid noise of another scale": (
        scaling("measurement", "grid_noise_scale", by=1.1), "grid_noise_scale", "one of the two is wrong", False,
    ),
    "a delta better than the arithmetic": (
        scaling("statement", "delta", by=0.9), "the privacy statement", "claim is better than the arithmetic", False,
    ),
    "an epsilon better than the arithmetic": (
        scaling("statement", "epsilon", by=0.9), "the privacy statement", "claim is better than the arithmetic", False,
    ),
    "less noise than claimed for": (QUIETER, "the privacy statement", "claim is better than the arithmetic", False),
    "another rho": (scaling("statement", "rho", by=1.1), "the privacy statement", "the file claims ρ", False),
    "delta of one": (setting("statement", "delta", to=1), "the privacy statement", r"delta must be in \[0, 1\)", True),
    "an epsilon that is true": (
        setting("statement", "epsilon", to=True), "statement", "epsilon must be a positive", True,
    ),
    "a tiny sensitivity": (
        setting("statement", "sensitivity", to=1e-310), "the privacy statement", SENSELESS, False,
    ),
    "an unknown neighbour": (
        setting("statement", "neighbouring", to="none"), "the privacy statement", "neighbouring must be one of", True,
    ),
    "neighbours of two kinds": (
        setting("statement", "neighbouring", to=["replace-one", "replace-one-unit"]), "the privacy statement",
        "neighbouring must be one of", True,
    ),
    "a statement without epsilon": (
        dropping("statement", "epsilon"), "the privacy statement", r"not complete or has unknown fields", True,
    ),
    "an unknown claim": (setting("statement", "safe", to=True), "the privacy statement", "unknown fields", True),
    "public points that are a text": (
        setting("statement", "public_points", to="all"), "the privacy statement", "public_points must be a whole", True,
    ),
    "public facts that are a text": (
        setting("statement", "taken_as_public", to="all"), "the privacy statement", "must be a list of texts", True,
    ),
    "maker's versions of numbers": (
        setting("statement", "versions", to={"numpy": 2}), "the privacy statement", "map names to texts", True,
    ),
}  # fmt: skip
CONTRADICTIONS: dict[str, tuple[Edit, str]] = {
    "more rows than measured": (setting("statement", "n_rows", to=20_000), "claims n_rows 20000, the measurement"),
    "another sensitivity": (LESS_SENSITIVE, r"claims sensitivity 0\.\d+, the measurement"),
    "more noise than measured": (
        all_of(scaling("statement", "noise_scale", by=2), scaling("statement", "rho", by=0.25)),
        r"claims noise_scale 0\.\d+, the measurement",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_with_missing_unknown_or_senseless_fields_is_refused(case, mixed_path, tmp_path):
    edit, what, why, by_schema = HEADERS[case]
    data = forged(mixed_path, edit)
    refused(data, tmp_path, what, why)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert SCHEMA_TEST.is_valid(json.loads(archive.read("release.json"))) != by_schema


@pytest.mark.parametrize(
    "edit", [setting("columns", 0, "\x1b[2J", to=1), setting("columns", 0, to={"name": "\x1b[2J\u202e", "kind": "odd"})]
)
def test_a_refusal_never_repeats_a_character_that_a_terminal_obeys(edit, mixed_path, tmp_path):
    (tmp_path / "a.kme").write_bytes(forged(mixed_path, edit))
    with pytest.raises(FileRefused, match=r"\\x1b\[2J") as caught:
        read_release(tmp_path / "a.kme")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_statement_about_another_measurement_is_refused(case, mixed_path, tmp_path):
    edit, what = CONTRADICTIONS[case]
    refused(forged(mixed_path, edit), tmp_path, what, CLAIM, CORRECT)


@pytest.mark.parametrize("noise", [GaussianNoise(0.5, 1e-6), LaplaceNoise(1.0, 0), GaussianNoise(1.0, 1e-6)])
def test_a_statement_or_a_measurement_of_another_release_is_refused(noise, mixed_path, mixed_release, tmp_path):
    """Another noise, or (the last) another number of rows: what the one file says is not about the other's numbers."""
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


OTHERS: list[Any] = [None, True, -1, 0.5, 2**62, "x", [], {}, [0], {"x": 0}]
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
    definitions = {"": SCHEMA} | {
        name: {"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]} for name in SCHEMA["$defs"]
    }
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
        assert count > 15
    for kernel in KERNELS_IN_FILES:
        assert check_reader_is_as_strict(tmp_path / "foreign.kme", "kernel", kernel) > 10


# ---------------------------------------------------------------------- refusals: members against their declaration


def points(make: Callable[[bytes], bytes]) -> Edit:
    return lambda header, members: members.update({"points.csv": make(members["points.csv"])})


def undeclared(header: dict[str, Any], members: Members) -> None:
    members["measurement/table_77.npy"] = b""


MEMBERS: dict[str, tuple[Edit, str, str]] = {
    "an undeclared member": (undeclared, "the members differ from the declared ones", r"present \[.*table_77"),
    "an absent member": (
        lambda header, members: members.pop("measurement/linear.npy"), "the members differ from the declared ones",
        r"needed \[.*linear",
    ),
    "an altered member": (
        points(lambda data: data[:-9] + b"x" + data[-8:]), r"member points\.csv does not have the declared SHA-256",
        "damaged or altered",
    ),
    "a shortened member": (points(lambda data: data[:-1]), r"member points\.csv has \d+ bytes", r"the header declares \d+"),
    "a declared path": (setting("members", "../x", to={"bytes": 0, "sha256": "0" * 64}), "the members differ", r"'\.\./x'"),
    "a digest that is none": (setting("members", "points.csv", to={"bytes": 1, "sha256": "x"}), "field sha256", "64 hexadecimal"),
    "a length that is a text": (setting("members", "points.csv", to={"bytes": "1", "sha256": "0" * 64}), "field bytes", "whole"),
    "an entry that is a list": (setting("members", "points.csv", to=[]), r"member 'points\.csv'", "should be a table of bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", MEMBERS)
def test_members_other_than_declared_are_refused(case, mixed_path, tmp_path):
    edit, what, why = MEMBERS[case]
    refused(forged(mixed_path, edit, resealed=False), tmp_path, what, why)


def test_a_member_that_is_sealed_but_not_needed_is_refused(mixed_path, tmp_path):
    what, why = "the members differ from the declared ones", r"declared \[.*table_77"
    refused(forged(mixed_path, undeclared), tmp_path, what, why)
