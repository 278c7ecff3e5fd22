"""Algorithm 1 with public strings as points, end to end: a table with strings is published, read, queried and tested."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import file_tools
import numpy as np
import pandas as pd
import pytest
import refusals
from click.testing import CliRunner
from file_tools import SCHEMA_TEST, Edit, Members, forged, members_of, same, setting
from scipy.stats import binom

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import KernelMean
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file import validate_release
from kmeanalyst.releases.file.measurement import check_readable_map
from release_side.cli.main import main
from release_side.door.mechanism import PublishError

DOMAIN = Domain((
    Text(name="code", length=24, alphabet="ACGT", missing=True), Categorical(name="lab", levels=("basel", "bern")),
    Real(name="mass", lower=0, upper=10),
))  # fmt: skip
GUARANTEE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "method": "subspace"}
LETTERS = {False: [0.4, 0.1, 0.1, 0.4], True: [0.15, 0.35, 0.35, 0.15]}


def rows(n: int, seed: int, rich: float = 0.3) -> pd.DataFrame:
    """Rows of made-up sequences: a share `rich` of them has more G and C than A and T."""
    rng = np.random.default_rng(seed)
    kinds = rng.random(n) < rich
    codes = ["".join(rng.choice(list("ACGT"), rng.integers(8, 25), p=LETTERS[bool(kind)])) for kind in kinds]
    codes = [code if there else "" for code, there in zip(codes, rng.random(n) < 0.95, strict=True)]
    labs, masses = rng.choice(["basel", "bern"], n), rng.gamma(4, 1, n).clip(0, 10)
    return pd.DataFrame({"code": codes, "lab": labs, "mass": masses})


TABLE, PUBLIC = rows(4000, 1), rows(100, 2, rich=0.5)


@pytest.fixture(scope="module")
def release() -> ka.Release:
    return release_side.publish(TABLE, DOMAIN, public_points=PUBLIC, **GUARANTEE)


@pytest.fixture(scope="module")
def path(release, tmp_path_factory):
    release.write(path := tmp_path_factory.mktemp("strings") / "strings.kme")
    return path


# ---------------------------------------------------------------- the release


def test_the_release_is_nearer_to_the_private_table_than_its_public_rows(release):
    """Balog et al. 2018, Algorithm 1: the RKHS distance to the embedding of private rows, of the first 1,500."""
    table = KernelMean(release.kernel, DOMAIN.encode(TABLE[:1500]))
    public = KernelMean(release.kernel, DOMAIN.encode(PUBLIC))
    assert release.embedding.distance(table) < 0.8 * public.distance(table)


def test_a_release_of_strings_read_back_is_the_release_written(release, path):
    back = read_release(path)
    same(release, back)
    path.with_name("sound.kme").write_bytes(forged(path, basis(lambda array: None)))  # the power of the forged files
    same(read_release(path.with_name("sound.kme")), back)
    assert list(back.to_frame()["code"].fillna("")) == list(PUBLIC["code"])  # public strings, to the letter
    assert validate_release(path) == [] and SCHEMA_TEST.is_valid(json.loads(members_of(path)["release.json"]))
    back.write(path.with_name("again.kme"))
    assert path.read_bytes() == path.with_name("again.kme").read_bytes()


def test_one_private_string_moves_the_mean_by_no_more_than_the_sensitivity(release):
    """With hostile strings too."""
    hostile = ["", "A" * 10_000, "\x1b[2J", "ACGT" * 6, "\ud800", "?", "é", "CG" * 12]
    others = DOMAIN.encode({"code": hostile, "lab": ["bern"] * 8, "mass": [3.0] * 8})
    features = release.measurement.feature_map(others)
    gaps = np.linalg.norm(features[:, None] - features[None], axis=2)
    assert gaps.max() <= release.statement.sensitivity * len(TABLE) and gaps.max() > 0.3


def test_strings_are_published_from_the_command_line(tmp_path, monkeypatch):
    TABLE.to_csv(tmp_path / "table.csv", index=False)
    PUBLIC.to_csv(tmp_path / "public.csv", index=False)
    (tmp_path / "domain.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = "publish table.csv --domain domain.toml --epsilon 1 --delta 1e-6 --uncounted --output r.kme"
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 1 and 'Use method "subspace" with public points' in done.output
    words += " --method subspace --public-points public.csv --kernel table:length=2"
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 0, done.output
    back = read_release(tmp_path / "r.kme")
    assert back.kernel.kernels[0].length == 2 and not back.kernel.kernels[0].blended
    assert list(back.to_frame()["code"].fillna("")) == list(PUBLIC["code"])


def test_questions_choices_and_forged_files_are_refused(release, path, tmp_path, monkeypatch):
    """refusals_strings.txt. Choices are refused before a row is read."""
    monkeypatch.setattr("release_side.publishing.publish.counted_rows", lambda *_: pytest.fail("a row could be read"))

    def publish(**options: Any) -> ka.Release:
        return release_side.publish(TABLE, DOMAIN, **(GUARANTEE | {"public_points": PUBLIC} | options))

    def forged_by(edit: Edit) -> ka.Release:
        (tmp_path / "strange.kme").write_bytes(forged(path, edit))
        return read_release(tmp_path / "strange.kme")

    names = vars(file_tools) | globals() | {"r": release, "publish": publish, "forged_by": forged_by}
    refusals.check(Path(__file__).parent / "refusals_strings.txt", lambda text: eval(text, names))


def test_a_plan_for_strings_needs_no_table_and_has_every_error():
    found = release_side.plan(DOMAIN, rows=2000, delta=1e-6, epsilon=1.0, method="subspace", public_points=PUBLIC)
    assert found[["rkhs_error", "se_mean", "se_probability"]].notna().all(axis=None)
    with pytest.raises(PublishError, match="Name public points"):
        release_side.plan(DOMAIN, rows=2000, delta=1e-6, epsilon=1.0, method="subspace")


# ---------------------------------------------------------------- tests


def test_mmd_test_of_release_and_sample_keeps_its_level_and_finds_another_composition(release):
    """12 samples of the same population, 2 of one with more G and C; a true level of 5 % passes all but once in 1000."""
    alike = [ka.mmd_test(release, rows(200, 100 + i)).pvalue for i in range(12)]
    assert sum(p < 0.05 for p in alike) <= binom.ppf(0.999, 12, 0.05)
    assert max(ka.mmd_test(release, rows(200, 200 + i, rich=0.8)).pvalue for i in range(2)) < 0.05


def test_mmd_test_of_two_plain_samples_with_strings_keeps_its_level_and_finds_another_composition():
    """The exact permutation test, 12 pairs of alike samples; only the strings differ between the other pairs."""

    def pvalue(i: int, rich: float) -> float:
        result = ka.mmd_test(rows(100, 300 + i), rows(100, 400 + i, rich), permutations=199, rng=i)
        assert "code (text)" in " ".join(result.notes)
        return result.pvalue

    assert sum(pvalue(i, 0.3) < 0.05 for i in range(12)) <= binom.ppf(0.999, 12, 0.05)
    assert max(pvalue(i, 1.0) for i in range(2)) < 0.01


def test_compare_names_the_column_of_strings_and_notes_its_limits(release):
    found = ka.compare(release, rows(600, 7, rich=0.8))
    assert found.columns.index[0] == "code" and found.columns["differs"].iloc[0]
    assert any("strings have neither means nor levels" in note for note in found.notes)
    columns = found.differences["column"].tolist()
    assert "mass" in columns and columns.count("code") == 1  # its missing cells alone


# ---------------------------------------------------------------- questions


def test_the_probability_of_a_released_string_has_a_standard_error(release):
    code = release.to_frame()["code"].dropna().iloc[0]
    found = release.probability(f"code == '{code}'")
    fitted = release.to_frame("fitted")
    assert found.value == pytest.approx(fitted.loc[fitted["code"] == code, "weight"].sum()) and found.standard_error > 0
    assert release.probability(f"code != '{code}' and not missing(code)").standard_error > 0
    assert release.probability(f"code in ['{code}', 'ACGT']").value == pytest.approx(found.value)
    assert release.probability("missing(code)").value == pytest.approx(0.05, abs=0.03)
    assert release.mean("mass", where=f"code != '{code}'").value == pytest.approx(4, abs=0.3)


def test_the_other_methods_of_a_release_with_strings_work(release, tmp_path):
    assert release.to_sklearn("lab").X.columns.tolist() == ["mass"]
    assert release.points["code"].dtype.kind == "U" and "" in release.points["code"].to_numpy()
    release.to_netcdf(tmp_path / "out.nc")
    assert len(release.thin(30)) == 30 and len(release.resample(7)) == 7
    assert 0 <= ka.independence_test(release, "code", "mass").pvalue <= 1
    derived = release.transform({"known": f"code == '{release.to_frame()['code'].dropna().iloc[0]}'"})
    assert derived.mean("known").value >= 0


# ---------------------------------------------------------------- hostile files


def basis(edit: Callable[[np.ndarray], None]) -> Callable[[dict[str, Any], Members], None]:
    def forge(header: dict[str, Any], members: Members) -> None:
        array = np.lib.format.read_array(io.BytesIO(members["measurement/points.npy"]))
        edit(array)
        out = io.BytesIO()
        np.lib.format.write_array(out, np.ascontiguousarray(array), version=(1, 0))
        members["measurement/points.npy"] = out.getvalue()

    return forge


def number(index: int, value: float) -> Callable[[np.ndarray], None]:
    return lambda array: array.__setitem__((int(np.flatnonzero(~np.isnan(array[:, 0]))[0]), index), value)


def field(*keys: Any, to: Any) -> Callable[[dict[str, Any], Members], None]:
    return lambda header, members: setting(*keys, to=to)(header)


LAST = 3  # index of the second number of a code, after the three columns
SPECTRUM = ("kernel", "kernels", 0)


def test_readers_accept_the_published_feature_map(release):
    check_readable_map(release.measurement.feature_map, DOMAIN)
