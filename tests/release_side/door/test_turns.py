"""Cosines in whole numbers: their bound for every phase, the same bits everywhere, and how near they are to φ."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import paths
import pytest
from door_cases import HOSTILE, Recorder, assert_integers_fit, recorded

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import GRID, SHRINK
from release_side.door import private_mean as _  # noqa: F401  (the package's own name is the function's)
from release_side.door import turns
from release_side.door.mechanism import GaussianNoise, PublishError, RehearsalNoise
from release_side.door.private_mean import integer_features, private_mean
from release_side.door.turns import ENTRIES, TURN, cosines_on_grid, turns_of

door = sys.modules["release_side.door.private_mean"]
DOMAIN = Domain((
    Integer(name="age", lower=0, upper=120, missing=True), Real(name="income", lower=1, upper=1e6, scale="log"),
    Date(name="day", lower="2000-01-01", upper="2030-01-01"),
    Categorical(name="city", levels=("A", "B", "C"), missing=True), Categorical(name="flag", levels=("no", "yes")),
))  # fmt: skip


def drawn(dimension: int, seed: int = 0) -> RandomFourier:
    return RandomFourier.draw(
        table_kernel(DOMAIN), n_columns=len(DOMAIN), dimension=dimension, missing_columns=DOMAIN.missing_columns, rng=seed,
    )  # fmt: skip


def rows_of_everything(n: int) -> Array:
    """Rows of the domain, and others with a hostile value in one cell or in all of them."""
    rows = DOMAIN.draw(n, 1)
    for i, value in enumerate(HOSTILE):
        rows[2 * i] = value
        rows[2 * i + 1, i % len(DOMAIN)] = value
    return rows


def steps_of(phases: Array, n_frequencies: int) -> Array:
    """Cosines and sines of phases (m,) in steps of the grid, (2, m)."""
    return np.stack(cosines_on_grid(n_frequencies)(phases.astype(np.uint32)[None]))[:, 0]


@pytest.fixture(autouse=True)
def in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference, wherever the compiled loop is installed."""
    monkeypatch.setattr(turns, "compiled", None)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled loop of this tree, built here with the options that pyproject.toml gives."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    header = Path(sysconfig.get_path("include"), "Python.h")
    if sys.platform == "win32" or shutil.which(compiler[0]) is None or not header.exists():
        pytest.skip("there is no C compiler, or no Python.h")
    built = tmp_path_factory.mktemp("built") / "_turns.so"
    (extension,) = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    options = [*extension["extra-compile-args"], "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    link = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    sources = [str(paths.ROOT / source) for source in extension["sources"]]
    subprocess.run([*compiler, *options, f"-I{header.parent}", *sources, "-o", str(built), *link], check=True)
    spec = importlib.util.spec_from_file_location("_turns", built)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- the bound


def test_every_entry_of_the_table_keeps_the_bound_at_every_offset():
    """In Python's integers: R (c² + s²) ≤ GRID² at each entry, at its two ends and between them."""
    for n_frequencies in [1, 2, 3, 16, 17, 2000, 500_000]:
        for offset in (-(2**15), -12_345, 0, 1, 2**15 - 1):
            phases = np.arange(ENTRIES, dtype=np.int64) * (TURN // ENTRIES) + offset
            cosines, sines = steps_of(phases % TURN, n_frequencies).tolist()
            longest = max(c * c + s * s for c, s in zip(cosines, sines, strict=True))
            assert GRID**2 * (1 - 2.0**-16) < n_frequencies * longest <= GRID**2 or n_frequencies > 10**5
            assert n_frequencies * longest <= GRID**2


def test_the_bound_is_proven_for_as_many_features_as_the_door_takes():
    for n_frequencies in (1, 10, 1000, 10**5, 5 * 10**5):
        turns.check_norm(cosines_on_grid(n_frequencies), n_frequencies)


def test_a_table_with_one_entry_too_long_is_refused():
    """A cosine that is 2^-17 too long, at any place; and SHRINK leaves no room to round ten times as many features as are taken."""
    for place in [0, 1, 12_345, ENTRIES - 1]:
        honest = cosines_on_grid(2000)
        waves = honest.waves.copy()
        for i in (place, place + ENTRIES // 4):
            waves[i] = round(int(waves[i]) * (1 + 2.0**-17))
        message = r"do not keep within the bound, so nothing is released\. Pass fewer features"
        with pytest.raises(PublishError, match=message):
            turns.check_norm(replace(honest, waves=waves), 2000)
        with pytest.raises(PublishError, match="do not keep within the bound"):
            cosines_on_grid(5 * 10**6)


@pytest.mark.slow
def test_all_phases_that_there_are_keep_the_bound():
    """2^32 of them, at the default number of features; a cosine's square and a sine's add up below 2^53 / R."""
    cosines = cosines_on_grid(2000)
    most = 0.0
    for start in range(0, TURN, 2**20):
        c, s = (wave.astype(np.float64) for wave in cosines(np.arange(start, start + 2**20).astype(np.uint32)))
        most = max(most, float((c * c + s * s).max()))
    assert 2000 * int(most) <= GRID**2


def test_hostile_rows_keep_the_bound_and_never_warn():
    """Whatever the frequencies: so small or large that products leave float64, or zero."""
    rows = rows_of_everything(60)
    for scale in (0.0, 5e-324, 1.0, 1e5, 1e300):
        feature_map = drawn(64)
        feature_map = replace(feature_map, linear=np.clip(feature_map.linear * scale, -1e308, 1e308))
        z = integer_features(rows, feature_map)
        assert_integers_fit(z)
        assert (np.square(z).sum(axis=1) > GRID**2 * (1 - 2.0**-15)).all()  # every row has its full length


# ---------------------------------------------------------------- the same bits


def by_hand(row: Array, feature_map: RandomFourier) -> list[int]:
    """A row's numbers by Python's floats and integers, one frequency at a time."""
    found = turns_of(feature_map)
    waves, extra = found.cosines.waves.tolist(), found.cosines.extra
    cosines, sines = [], []
    for r in range(feature_map.n_frequencies):
        total = 0.0
        for k, j in enumerate(found.columns):
            value = 0.0 if math.isnan(row[j]) else min(max(float(row[j]), -found.farthest[k]), found.farthest[k])
            total += float(found.numbers[k, r]) * value
        phase = round(total)
        for j, table in feature_map.tables.items():
            if len(table) == 1:
                code = 0 if math.isnan(row[j]) else None
            else:
                code = len(table) - 1 if math.isnan(row[j]) else int(min(max(row[j], 0), len(table) - 1))
            phase += 0 if code is None else round(float(table[code, r]) * (TURN / (2 * math.pi)))
        nearest, angle = divmod(phase + 2**15, 2**16)
        nearest, angle = nearest % ENTRIES, (angle - 2**15) * 25736 >> 14
        sine, cosine = waves[nearest], waves[nearest + ENTRIES // 4]
        half = 1 << extra - 1
        cosines.append(cosine - ((sine >> 15) * angle >> 15) + half >> extra)
        sines.append(sine + ((cosine >> 15) * angle >> 15) + half >> extra)
    return cosines + sines


def test_numbers_of_any_row_are_those_that_python_computes_one_by_one():
    feature_map, rows = drawn(40), rows_of_everything(40)
    z = integer_features(rows, feature_map)
    for i, row in enumerate(rows):
        assert [int(each) for each in z[i]] == by_hand(row, feature_map)


def test_bits_do_not_depend_on_block_order_or_workers():
    """Sums in 32 bits where they suffice (600 features) and in 64 (2), of rows alone, in blocks and all together."""
    for dimension in [2, 600]:
        feature_map, rows = drawn(dimension), rows_of_everything(200)
        exact = [sum(int(each) for each in column) for column in integer_features(rows, feature_map).T]
        found = turns_of(feature_map)
        assert found.sum(rows).tolist() == exact
        for size in (1, 7, 64):
            assert sum(found.sum(rows[i : i + size]) for i in range(0, 200, size)).tolist() == exact
        for workers in (1, 3):
            assert recorded(rows[::-1], feature_map, workers=workers).exact_sum.tolist() == exact  # type: ignore[union-attr]


def test_bits_do_not_depend_on_the_vector_units_of_the_processor():
    program = """
import sys
from test_turns import drawn, integer_features, rows_of_everything
sys.stdout.buffer.write(integer_features(rows_of_everything(50), drawn(400)).tobytes())
"""
    plain = {
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX2 FMA3 AVX512F ASIMDHP",
        "PYTHONPATH": os.pathsep.join([str(paths.SUPPORT), os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]),
    }
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=os.environ | plain, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == integer_features(rows_of_everything(50), drawn(400)).tobytes()


def test_the_table_is_the_rounded_cosine():
    """By 40 digits; R = 2000: an entry is h cos in steps of 2^-7 of the grid."""
    found = cosines_on_grid(2000)
    assert found.extra == 7
    with mpmath.workdps(40):
        height = mpmath.mpf(GRID) * (1 - mpmath.mpf(2) ** -18) / mpmath.sqrt(2000) * 2**7
        for i in (0, 1, 2, 777, ENTRIES // 8, ENTRIES // 4, ENTRIES // 2 + 3, ENTRIES - 1):
            assert found.waves[i] == int(mpmath.nint(height * mpmath.sin(2 * mpmath.pi * i / ENTRIES)))


# ---------------------------------------------------------------- the compiled loop


def test_the_compiled_loop_gives_the_same_sums(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """Of any rows, of none, with a map without numbers or levels, and with arrays column after column; by several workers."""
    for dimension in [2, 600, 4000]:
        rows = rows_of_everything(150)
        full = drawn(dimension)
        transposed = replace(
            full, linear=np.asfortranarray(full.linear),
            tables={j: np.asfortranarray(table) for j, table in full.tables.items()},
        )  # fmt: skip
        maps = [full, replace(full, linear=np.zeros_like(full.linear)), replace(full, tables={}), transposed]
        expected = [(turns_of(each).sum(rows), turns_of(each).sum(rows[:0])) for each in maps]
        monkeypatch.setattr(turns, "compiled", compiled)
        for feature_map, (some, none) in zip(maps, expected, strict=True):
            assert turns_of(feature_map).sum(rows).tolist() == some.tolist()
            assert turns_of(feature_map).sum(rows[:0]).tolist() == none.tolist() == [0] * dimension
            assert recorded(rows, feature_map, workers=3).exact_sum.tolist() == some.tolist()  # type: ignore[union-attr]


def test_the_compiled_loop_gives_the_same_bits_for_a_million_phases_and_a_million_rows(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    """Each cosine and sine by itself: one row, with as many frequencies; and their sums over rows."""
    phases = np.random.default_rng(0).integers(0, TURN, 10**6).astype(np.float64)
    phases[:8] = [0, 1, 2**15 - 1, 2**15, 2**31, TURN - 1, TURN - 2**15, TURN - 2**15 - 1]
    found, sums = cosines_on_grid(2000), np.zeros(2 * 10**6, dtype=np.int64)
    no_codes = np.zeros((0, 1), dtype=np.intp)
    compiled.add_rows(1, 10**6, np.ones((1, 1)), phases, no_codes, [], found.waves, found.extra, sums)
    np.testing.assert_array_equal(sums, np.hstack(found(phases.astype(np.uint32))))
    rows, of_rows = DOMAIN.draw(10**6, 4), turns_of(drawn(20))
    pieces = [rows[i : i + 5000] for i in range(0, 10**6, 5000)]
    in_numpy = sum(of_rows.sum(piece) for piece in pieces)
    monkeypatch.setattr(turns, "compiled", compiled)
    np.testing.assert_array_equal(sum(of_rows.sum(piece) for piece in pieces), in_numpy)


def test_the_compiled_loop_refuses_arrays_that_do_not_fit(compiled: ModuleType):
    """It would read beyond them."""
    found = cosines_on_grid(3)

    def add(**other: Any) -> None:
        fitting = {
            "n_rows": 2, "n_frequencies": 3, "values": np.ones((1, 2)), "numbers": np.ones((1, 3)),
            "codes": np.zeros((1, 2), dtype=np.intp), "tables": [np.zeros((4, 3), dtype=np.uint32)],
            "waves": found.waves, "extra": found.extra, "sums": np.zeros(6, dtype=np.int64),
        }  # fmt: skip
        compiled.add_rows(*(fitting | other).values())

    add()
    for name, wrong in {
        "n_rows": 3, "n_frequencies": 2, "values": np.ones((1, 3)), "numbers": np.ones((2, 3)), "tables": [],
        "codes": np.array([[0, 4]]), "waves": found.waves[1:], "extra": 31, "sums": np.zeros(5, dtype=np.int64),
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match="arrays do not fit each other"):
            add(**{name: wrong})
    with pytest.raises(ValueError, match="arrays do not fit each other"):
        add(codes=np.array([[-1, 0]]))


# ---------------------------------------------------------------- and φ


def test_numbers_are_features_rounded_to_a_little_more_than_half_a_step():
    """PROOF.md's ½ + (6.3 + .8 T) 2^-extra steps, T = 3: at 4,000 features .57, 99 of 100 numbers the rounded feature itself."""
    for dimension in [2, 10, 200, 4000]:
        feature_map = drawn(dimension)
        rows = DOMAIN.draw(300, 2)
        exact = feature_map(rows) * (GRID * SHRINK / feature_map.norm_bound)
        z, extra = integer_features(rows, feature_map), turns_of(feature_map).cosines.extra
        assert np.abs(z - exact).max() < 0.5 + (6.3 + 0.8 * 3) / 2**extra
        if dimension == 4000:
            assert np.abs(z - exact).max() < 0.55 and (z == np.rint(exact)).mean() > 0.98
            assert abs((z - exact).mean()) < 0.01  # half a step of it is not in one direction


def test_a_derived_class_of_the_map_has_its_own_features_rounded():
    class Halved(RandomFourier):
        def __call__(self, X: Array) -> Array:
            return super().__call__(X) / 2

    honest = drawn(20)
    halved = Halved(honest.kernel, honest.linear, honest.tables)
    assert (np.square(integer_features(DOMAIN.draw(5, 0), halved)).sum(axis=1) < GRID**2 / 3.9).all()


def test_a_release_is_the_one_of_rounded_features_but_for_less_than_a_ten_thousandth_of_its_noise(monkeypatch: pytest.MonkeyPatch):
    """The same seed of a rehearsal, at ε = 10: files are read as before, and no analysis can see the difference."""
    feature_map, rows = drawn(1000), DOMAIN.draw(1000, 3)

    def released() -> Array:
        noise = RehearsalNoise(GaussianNoise(10.0, 1e-6), 1)
        found = private_mean([rows], feature_map, noise, n_rows=len(rows))
        return found.vector / found.noise_scale

    whole = released()
    monkeypatch.setattr(door, "_has_turns", lambda feature_map: False)
    rounded = released()
    assert 0 < np.abs(whole - rounded).max() < 1e-5
    exact = private_mean([rows], feature_map, Recorder(), n_rows=len(rows)).vector  # type: ignore[arg-type]
    assert np.linalg.norm(exact - feature_map(rows).mean(axis=0)) < 1e-8 * feature_map.norm_bound
