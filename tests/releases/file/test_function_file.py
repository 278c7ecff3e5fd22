"""The .kme file of a released function: what is written is read, and whatever was forged is refused."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import file_tools
import jsonschema
import numpy as np
import pandas as pd
import paths
import pytest
from referencing import Registry, Resource

import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.file import FileRefused, read_function, validate_release, write_function
from kmeanalyst.releases.function import ReleasedFunction

HERE = Path(__file__).parent
FUNCTION_SCHEMA = json.loads((paths.TESTS.parent / "kmeanalyst/releases/schema_function_v1.json").read_text(encoding="utf-8"))
REGISTRY = Registry().with_resource(file_tools.SCHEMA["$id"], Resource.from_contents(file_tools.SCHEMA))
SCHEMA_TEST = jsonschema.Draft202012Validator(FUNCTION_SCHEMA, registry=REGISTRY)
GOLDEN = paths.TESTS / "golden" / "function_v1"
X = Real(name="x", lower=-3.0, upper=3.0)
PLANE = Domain((X, Real(name="z", lower=0.0, upper=1.0, missing=True), Boolean(name="y")))


def published(kind: str, **more: Any) -> ReleasedFunction:
    frame = PLANE.decode(PLANE.draw(60, 3))
    target = {"density": None, "ridge": "x"}.get(kind, "y")
    domain = Domain((X,)) if kind == "density" else PLANE
    options = {"epsilon": 1.0, "delta": 1e-6, "kind": kind, "target": target} | more
    return release_side.publish_function(frame, domain, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("functions")
    for kind in ("density", "ridge", "logistic", "svm"):
        write_function(published(kind), folder / f"{kind}.kme")
    return folder


def same(one: ReleasedFunction, other: ReleasedFunction) -> None:
    assert (one.form, one.domain, one.statement, one.basis.kernel) == (
        other.form, other.domain, other.statement, other.basis.kernel,
    )  # fmt: skip
    assert type(one) is type(other)
    assert one.noisy_sum.tobytes() == other.noisy_sum.tobytes()
    assert one.basis.points.tobytes() == other.basis.points.tobytes()


@pytest.mark.parametrize("kind", ["density", "ridge", "logistic", "svm"])
@pytest.mark.parametrize("calibration", ["analytic", "zcdp"])
def test_a_function_read_back_is_the_function_written(kind: str, calibration: str, tmp_path: Path):
    function = published(kind, calibration=calibration)
    write_function(function, tmp_path / "f.kme")
    read = read_function(tmp_path / "f.kme")
    same(function, read)
    table = PLANE.decode(PLANE.draw(20, 5))
    pd.testing.assert_frame_equal(function.evaluate(table), read.evaluate(table), check_exact=True)
    write_function(read, tmp_path / "g.kme")
    assert (tmp_path / "f.kme").read_bytes() == (tmp_path / "g.kme").read_bytes()
    assert validate_release(tmp_path / "f.kme") == []
    SCHEMA_TEST.validate(json.loads(file_tools.members_of(tmp_path / "f.kme")["release.json"]))


def test_neither_reader_takes_the_others_file(folder: Path, mixed_path: Path):
    with pytest.raises(FileRefused, match=r"holds a function of a table: it has no weighted points.*read_function"):
        read_release(folder / "svm.kme")
    message = r"holds weighted points: it is not a function.*Read it with kmeanalyst\.read_release"
    with pytest.raises(FileRefused, match=message):
        read_function(mixed_path)
    assert not jsonschema.Draft202012Validator(file_tools.SCHEMA).is_valid(
        json.loads(file_tools.members_of(folder / "svm.kme")["release.json"])
    )


def test_a_rehearsal_is_refused_unless_asked_for(tmp_path: Path):
    function = published("svm", rehearsal=1)
    write_function(function, tmp_path / "f.kme")
    with pytest.raises(FileRefused, match=r"stamped NOT PRIVATE: it is a rehearsal.*say --allow-rehearsal"):
        read_function(tmp_path / "f.kme")
    assert len(validate_release(tmp_path / "f.kme")) == 1
    same(function, read_function(tmp_path / "f.kme", allow_rehearsal=True))


def test_a_function_whose_guarantee_is_too_good_is_not_written(tmp_path: Path):
    function = published("svm")
    function.statement = replace(function.statement, epsilon=0.5)
    with pytest.raises(ValueError, match=r"cannot be written, because no reader would take it.*claims δ"):
        write_function(function, tmp_path / "f.kme")
    assert not (tmp_path / "f.kme").exists()


def quieter(times: int) -> file_tools.Edit:
    """A tenth less noise in the first so many fields that record it."""
    recorded = [("measurement", "noise_scale"), ("measurement", "grid_noise_scale"), ("statement", "noise_scale")]
    return file_tools.all_of(*(file_tools.scaling(*keys, by=0.9) for keys in recorded[:times]))


def without(name: str) -> file_tools.Edit:
    return lambda header, members: members.pop(name)


def crowded(points: np.ndarray) -> np.ndarray:
    """Pivots so close that their coordinates cannot be trusted."""
    return np.linspace(0, 1e-4, points.size).reshape(points.shape)


BOOLEAN = {"name": "y", "kind": "boolean"}


def test_a_forged_function_is_refused(folder: Path, tmp_path: Path):
    """Some say whether the schema refuses the header too."""

    def run(case: tuple[str, file_tools.Edit]) -> object:
        data = file_tools.forged(folder / f"{case[0]}.kme", case[1])
        try:
            return file_tools.opened(data, tmp_path, read_function)
        except FileRefused as refused:
            assert validate_release(tmp_path / "strange.kme") != []
            verdict = "allows" if SCHEMA_TEST.is_valid(file_tools.header_of(data)) else "refuses"
            raise FileRefused(f"{refused} schema {verdict}") from None

    file_tools.check_refusals("function", run, **globals())
    for kind in ("density", "svm"):
        data = file_tools.forged(folder / f"{kind}.kme", file_tools.array("noisy_sum", lambda s: s + 1), resealed=False)
        with pytest.raises(FileRefused, match=r"noisy_sum\.npy does not have the declared SHA-256"):
            file_tools.opened(data, tmp_path, read_function)


def test_a_newer_minor_version_may_say_more(folder: Path, tmp_path: Path):
    newer = file_tools.all_of(file_tools.setting("schema_minor", to=3), file_tools.setting("remark", to=[1]))
    (tmp_path / "f.kme").write_bytes(file_tools.forged(folder / "svm.kme", newer))
    same(read_function(tmp_path / "f.kme"), read_function(folder / "svm.kme"))


def test_damaged_files_are_refused_or_sound_and_nothing_else(folder: Path, tmp_path: Path):
    """Flipped bits, cut ends, and edited members sealed again: 600 of them."""
    from damaged_files import sealed

    rng, path = np.random.default_rng(21), tmp_path / "f.kme"
    wholes = [(folder / f"{kind}.kme").read_bytes() for kind in ("density", "logistic")]
    parts, read = [file_tools.members_of(folder / f"{kind}.kme") for kind in ("density", "logistic")], 0
    for i in range(600):
        whole = bytearray(wholes[i % 2])
        if i % 3 == 0:
            whole[int(rng.integers(len(whole)))] ^= 1 << int(rng.integers(8))
        elif i % 3 == 1:
            del whole[int(rng.integers(len(whole))) :]
        else:
            whole = bytearray(edited_and_sealed(parts[i % 2], rng, sealed))
        path.write_bytes(whole)
        try:
            function = read_function(path, allow_rehearsal=True)
        except FileRefused:
            continue
        read += 1
        function.statement.check_arithmetic()
        assert np.isfinite(function.coordinates).all() and math.isfinite(function.noise_scale)
    assert 2 < read < 300  # noise that was altered and sealed again looks like noise


def edited_and_sealed(members: dict[str, bytes], rng: np.random.Generator, seal: Any) -> bytes:
    """A member edited and every checksum made good; the helper also edits the points, which a function does not have."""
    while True:
        try:
            return seal(members, rng)
        except KeyError:
            continue


def test_a_function_of_format_1_reads_as_on_the_day_it_was_written():
    expected = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
    assert {path.stem for path in GOLDEN.glob("*.kme")} == set(expected) == {"density", "ridge", "logistic", "svm"}
    for name, wanted in expected.items():
        path = GOLDEN / f"{name}.kme"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == wanted["sha256"], "a golden file was changed"
        assert validate_release(path) == []
        function = read_function(path)
        assert function.statement.to_dict() == wanted["statement"]
        answer = function.evaluate(pd.DataFrame(wanted["table"]))
        for column, values in wanted["answer"].items():
            np.testing.assert_allclose(answer[column], values, atol=1e-6 * (1 + np.abs(values).max()), err_msg=column)


def test_a_fitted_kernel_is_a_value_that_files_keep():
    assert read_function(GOLDEN / "density.kme").basis.kernel.factor > 0  # type: ignore[attr-defined]
    assert published("svm", kernel="gaussian:lengthscale=0.5").basis.kernel == Gaussian(0.5)
