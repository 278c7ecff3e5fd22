"""The member quality.json: scores written and read back, their guarantee computed again, and refused where they are forged."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from file_tools import (
    SCHEMA,
    SCHEMA_TEST,
    all_of,
    dropping,
    forged,
    members_of,
    narrow,
    outcomes_of_damage,
    refused,
    same,
    scaling,
    setting,
)

import kmeanalyst as ka
import release_side
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.statement import gaussian_delta

QUALITY = "quality.json"
DOMAIN = Domain(
    (Categorical(name="g", levels=("u", "v")), Boolean(name="b", missing=True), Integer(name="n", lower=0, upper=9))
)
FRAME = DOMAIN.decode(DOMAIN.draw(2000, 1))
Change = Callable[..., None]  # of the member's table


@pytest.fixture(scope="module")
def release() -> Release:
    return release_side.publish(FRAME, DOMAIN, epsilon=1, delta=1e-6, uncounted=True, points=50, features=80)


def scored(folder: Path, release: Release, **choices: Any) -> Path:
    path = folder / "scored.kme"
    usual = {"epsilon": 1.0, "group": "g", "workload": ["n", "b and n > 3"], "force_wide": True, "uncounted": True}
    release_side.publish_quality(release, FRAME, **(usual | choices), output=path)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Path:
    return scored(tmp_path_factory.mktemp("quality"), release)


@pytest.fixture(scope="module")
def gaussian_path(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Path:
    return scored(tmp_path_factory.mktemp("gaussian"), release, delta=1e-6)


def table_of(path: Path) -> dict[str, Any]:
    found = json.loads(members_of(path)[QUALITY])
    assert isinstance(found, dict)
    return found


def changed(path: Path, *changes: Change) -> bytes:
    """The file with its scores changed, and sealed again."""

    def edit(header: dict[str, Any], members: dict[str, bytes]) -> None:
        table = json.loads(members[QUALITY])
        all_of(*changes)(table)
        members[QUALITY] = json.dumps(table).encode()

    return forged(path, edit)


# ---------------------------------------------------------------------- sound files


@pytest.mark.parametrize(
    "choices",
    [
        {}, {"delta": 1e-6}, {"delta": 1e-6, "calibration": "zcdp"}, {"group": None, "workload": None}, {"parts": ["columns"]},
        {"parts": ["questions", "groups"]}, {"rehearsal": 3, "uncounted": False},
    ],
)  # fmt: skip
def test_scores_read_back_are_the_scores_written(choices: dict[str, Any], release: Release, tmp_path: Path) -> None:
    path = scored(tmp_path, release, **choices)
    again = ka.read_release(path, allow_rehearsal=True)
    same(release, again)
    again.write(tmp_path / "again.kme")
    assert (tmp_path / "again.kme").read_bytes() == path.read_bytes()
    assert ka.validate_release(path, allow_rehearsal=True) == []
    SCHEMA_TEST.validate(json.loads(members_of(path)["release.json"]))
    jsonschema.Draft202012Validator({"$ref": "#/$defs/quality", "$defs": SCHEMA["$defs"]}).validate(table_of(path))


def test_a_file_without_scores_has_none(release: Release, tmp_path: Path) -> None:
    release.write(tmp_path / "bare.kme")
    assert ka.read_release(tmp_path / "bare.kme").quality is None
    assert QUALITY not in members_of(tmp_path / "bare.kme")


@pytest.mark.parametrize("which", ["path", "gaussian_path"])
def test_the_scores_follow_from_the_member_as_the_format_says(which: str, request: pytest.FixtureRequest) -> None:
    """FORMAT.md §5a, with nothing but a zip and a JSON reader."""
    file = request.getfixturevalue(which)
    table, statement = table_of(file), json.loads(members_of(file)["release.json"])["statement"]
    laplace = table["mechanism"] == "discrete laplace"
    A, N, sigma = table["height"], table["n_rows"], table["noise_scale"]
    factor = math.log(20) / math.sqrt(2) if laplace else 1.959964
    steps, moved, noisy = {}, {}, {}
    for part in table["parts"]:
        name, M, P = part["name"], part["multiplier"], part["tables"]
        steps[name] = {"sizes": M * A, "questions": 2**20 * M}.get(name, 2 * M * A * P)
        moved[name] = 2 if name in ("groups", "sizes") else len(part["noisy"])
        noisy[name] = np.array(part["noisy"], dtype=float)
    assert noisy.keys() == {"k-marginal", "columns", "groups", "sizes", "questions"}
    if laplace:
        assert table["sensitivity"] == sum(moved[name] * steps[name] for name in steps)
        assert table["epsilon"] == pytest.approx(math.sqrt(2) * table["sensitivity"] / sigma)
        assert table["total_epsilon"] == statement["epsilon"] + table["epsilon"]
    else:
        assert table["sensitivity"] == math.ceil(math.sqrt(sum(moved[name] * steps[name] ** 2 for name in steps)))
        assert gaussian_delta(epsilon=1, noise_multiplier=sigma / table["sensitivity"]) <= table["delta"]
        assert table["total_epsilon"] < statement["epsilon"] + table["epsilon"]
    for name in ("k-marginal", "columns"):
        value, error = noisy[name] / steps[name] / N, factor * sigma / steps[name] / N
        value = np.clip(value, 0, 1)
        expected = np.clip(np.transpose([value, value - error, value + error]), 0, 1)
        np.testing.assert_allclose(np.array(table["scores"][name]), expected, atol=1e-9)
    D, n = noisy["groups"] / steps["groups"], noisy["sizes"] / steps["sizes"]
    np.testing.assert_allclose([score[0] for score in table["scores"]["groups"]], np.clip(D / n, 0, 1))
    if not laplace:
        for score, d, size in zip(table["scores"]["groups"], D, n, strict=True):
            a, b = sigma / steps["groups"], sigma / steps["sizes"]
            z2 = 1.959963984540054**2
            d = np.clip(d, 0, size)
            roots = sorted(np.roots([size**2 - z2 * b**2, -2 * d * size, d**2 - z2 * a**2]))
            np.testing.assert_allclose(score[1:], np.clip(roots, 0, 1), atol=1e-6)
    for question, number, score in zip(
        table["questions"], noisy["questions"], table["scores"]["questions"], strict=True
    ):
        width = question["high"] - question["low"]
        value, deviation = (
            question["low"] + width * number / steps["questions"] / N,
            width * sigma / steps["questions"] / N,
        )
        assert score[0] == pytest.approx(value)
        assert score[3] == (abs(value - question["answer"]) <= 1.96 * math.hypot(question["standard_error"], deviation))


def test_scores_are_kept_where_the_points_are_and_dropped_where_they_change(path: Path) -> None:
    release = ka.read_release(path)
    assert release.transform({"twice": "2 * n"}).quality == release.quality
    assert release.replaced(weights=release.weights).quality is None
    assert release.thin(10).quality is None


# ---------------------------------------------------------------------- forged files


def test_a_claim_better_than_the_arithmetic_is_refused(path: Path, gaussian_path: Path, tmp_path: Path) -> None:
    better = r"The claim is better than the arithmetic"
    refused(changed(path, scaling("epsilon", by=0.99)), tmp_path, "quality.json", "the scores claim ε = 0.99")
    refused(changed(path, scaling("noise_scale", by=0.99)), tmp_path, "quality.json", better)
    refused(changed(gaussian_path, scaling("delta", by=0.99)), tmp_path, "quality.json", "the scores claim δ")
    refused(changed(gaussian_path, scaling("epsilon", by=0.99)), tmp_path, "quality.json", better)
    refused(changed(gaussian_path, setting("delta", to=0)), tmp_path, "quality.json", "no delta as small as 0")
    refused(changed(path, setting("delta", to=1e-9)), tmp_path, "quality.json", "Laplace noise has delta 0")
    for file in (path, gaussian_path):
        refused(changed(file, scaling("total_epsilon", by=0.999)), tmp_path, "quality.json", "they spend more")
        refused(changed(file, scaling("total_delta", by=0.99)), tmp_path, "quality.json", "they spend more")
        refused(changed(file, setting("total_delta", to=0)), tmp_path, "quality.json", "they spend more")
    refused(
        changed(gaussian_path, setting("total_delta", to=0), setting("total_epsilon", to=1e6)),
        tmp_path, "quality.json", "they spend more",
    )  # fmt: skip


def test_scores_that_the_noisy_numbers_do_not_give_are_refused(path: Path, tmp_path: Path) -> None:
    for name, first in (("k-marginal", 0), ("columns", 1), ("groups", 0), ("questions", 1)):
        for entry in range(3):
            data = changed(path, setting("scores", name, first, entry, to=0.987654))
            refused(data, tmp_path, "quality.json", f"scores, {name}: they are not what the noisy numbers give")
    flipped = not table_of(path)["scores"]["questions"][0][3]
    refused(changed(path, setting("scores", "questions", 0, 3, to=flipped)), tmp_path, "quality.json", "are not what")
    refused(changed(path, setting("scores", "groups", 0, to=None)), tmp_path, "quality.json", "are not what")
    refused(changed(path, setting("scores", "sizes", to=[])), tmp_path, "quality.json", "and of nothing else")
    refused(changed(path, scaling("sensitivity", by=2)), tmp_path, "quality.json", "sensitivity must be")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (setting("n_rows", to=1999), "of another table|are not what the noisy numbers give"),
        (setting("neighbouring", to="replace-one-unit"), "of another table"),
        (setting("unit", to="owner"), "of another table"),
        (setting("height", to=2), "the scores claim|sensitivity must be"),
        (setting("height", to=0), "height must be a positive whole number"),
        (setting("height", to=2**61), "64 bits cannot hold"),
        (setting("noise_scale", to=2**62), "64 bits cannot hold such noise"),
        (setting("noise_scale", to=0), "noise_scale must be a positive finite number"),
        (setting("epsilon", to=True), "epsilon must be"),
        (setting("mechanism", to="exponential over multisets"), "mechanism must be one of"),
        (setting("calibration", to="analytic"), "has no calibration"),
        (setting("ledger_head", to="0"), "64 hexadecimal digits"),
        (setting("versions", to={"a b": "1"}), "versions must map"),
        (setting("versions", to=[]), "versions must map"),
        (setting("format", to="kmeanalyst release"), "format must be"),
        (dropping("epsilon"), "and of nothing else"),
        (setting("more", to=1), "and of nothing else"),
        (setting("parts", to=[]), "the parts must be some of"),
        (setting("parts", 0, "name", to="columns"), "is one number|the parts must be|numbers of"),
        (setting("parts", 0, "name", to=["columns"]), "a part is one of"),
        (setting("parts", 0, "multiplier", to=0), "must be a positive whole number"),
        (setting("parts", 0, "multiplier", to=1.5), "must be a positive whole number"),
        (setting("parts", 0, "tables", to=2), "the same tables|of at most"),
        (setting("parts", 0, "noisy", to=[]), "must be a positive whole number"),
        (setting("parts", 0, "noisy", to="1"), "noisy must be a list"),
        (setting("parts", 1, "noisy", to=[1.0, 2.0, 3.0]), "whole numbers of 64 bits"),
        (setting("parts", 1, "noisy", to=[1, 2]), "2 numbers of 1 tables"),
        (dropping("parts", 3), "groups go with sizes"),
        (setting("parts", to={}), "parts must be a list"),
        (setting("group", to=None), "groups go with sizes|labels"),
        (setting("group", to="h"), "is no column"),
        (setting("group", to=["g"]), "is no column"),
        (setting("labels", to=["u"]), "labels"),
        (setting("labels", to=["u", "v\u202e"]), "text with|printable characters"),
        (setting("labels", to=["u", 1]), "printable characters"),
        (setting("cells", "edges", to=[[], [0.5]]), "make no sense|cells of"),
        (setting("cells", "edges", 2, to=[3.0, 1.0]), "make no sense"),
        (setting("cells", "edges", 0, to=["a"]), "make no sense"),
        (setting("cells", "edges", to="abc"), "must be a list"),
        (setting("cells", "missing", 0, to=1), "make no sense"),
        (setting("cells", to=[]), "must be a table"),
        (setting("questions", to=[]), "numbers of"),
        (setting("questions", 0, "text", to=""), "printable characters"),
        (setting("questions", 0, "high", to=0), "no range"),
        (setting("questions", 0, "standard_error", to=-1), "negative standard error"),
        (setting("questions", 0, "answer", to="x"), "no finite ones"),
        (setting("scores", to=None), "must be a table"),
        (setting("scores", "columns", to=None), "must be a list"),
        (setting("scores", "columns", 0, to="abc"), "are not what"),
    ],
)  # fmt: skip
def test_a_member_that_makes_no_sense_is_refused(change: Change, why: str, path: Path, tmp_path: Path) -> None:
    refused(changed(path, change), tmp_path, r"quality\.json", why)


def raw(path: Path, text: bytes) -> bytes:
    return forged(path, lambda header, members: members.update({QUALITY: text}))


def test_a_member_that_is_no_plain_json_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = members_of(path)[QUALITY]
    refused(raw(path, whole[:-1]), tmp_path, "quality.json", "it does not make sense")
    refused(raw(path, b"[]"), tmp_path, "quality.json", "it is no table of fields")
    refused(raw(path, whole.replace(b'"epsilon"', b'"delta":0,"epsilon"')), tmp_path, "delta", "twice")
    refused(raw(path, whole.replace(b'"epsilon":1', b'"epsilon":NaN')), tmp_path, "NaN", "JSON has no such number")
    refused(
        raw(path, whole.replace(b'"height":1', b'"height":' + b"[" * 40 + b"]" * 40)),
        tmp_path,
        "nested",
        "no release needs",
    )
    refused(
        raw(path, whole.replace(b'"height":1', b'"height":' + b"9" * 30)),
        tmp_path,
        "number",
        "beyond what 64 bits hold",
    )
    header = len(members_of(path)["release.json"])
    narrow(monkeypatch, header_bytes=2 * header)
    refused(raw(path, whole + b" " * 2 * header), tmp_path, r"quality\.json has", "at most")


def test_a_member_that_is_not_declared_or_lacks_its_release_is_refused(path: Path, tmp_path: Path) -> None:
    hidden = forged(path, lambda header, members: header["members"].pop(QUALITY), resealed=False)
    refused(hidden, tmp_path, "the members differ from the declared ones", "present")
    missing = forged(path, lambda header, members: members.pop(QUALITY), resealed=False)
    refused(missing, tmp_path, "the members differ from the declared ones", "declared")
    foreign = ka.from_frame(FRAME.head(20).assign(weight=1.0), domain=DOMAIN)
    foreign.write(tmp_path / "foreign.kme")
    scores = members_of(path)[QUALITY]
    refused(
        forged(tmp_path / "foreign.kme", lambda header, members: members.update({QUALITY: scores})),
        tmp_path, "quality.json", "no statement",
    )  # fmt: skip


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="as the test of all files")
def test_damaged_and_forged_scores_end_in_a_refusal_or_in_a_sound_release(path: Path, tmp_path: Path) -> None:
    """In one process, which a crash would end: a third of the sealed ones have a changed quality.json."""
    (tmp_path / "0.kme").write_bytes(path.read_bytes())
    tally = outcomes_of_damage(tmp_path, 700)
    assert sum(tally.values()) == 700 and tally["sealed refused"] > 150
