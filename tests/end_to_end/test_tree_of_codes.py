"""A column of codes with a public tree, from the private table to answers about its nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from representation_cases import measured
from scipy.stats import norm
from simulated_releases import measured_release
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.report.page import write_report
from kmeanalyst.representation import wanted
from kmeanalyst.representation.tables.within_cells import fine_ranges

PARENTS = {f"b{k:02}": f"c{k % 3}" for k in range(66)} | {f"d{k:03}": f"b{k % 66:02}" for k in range(330)}
CODE = ka.Tree(name="code", parents=PARENTS, missing=True)
DOMAIN = ka.Domain((CODE, ka.Categorical(name="sex", levels=("F", "M")), ka.Integer(name="age", lower=0, upper=99)))
N = 6000


def table(seed: int) -> pd.DataFrame:
    """Codes of uneven shares; sex and age depend on the chapter."""
    rng = np.random.default_rng(seed)
    shares = np.random.default_rng(0).gamma(0.5, size=len(CODE.levels))
    codes = rng.choice(len(shares), N, p=shares / shares.sum())
    chapter = CODE.group_of(codes.astype(float), 0)
    cells = np.array(CODE.levels, dtype=object)[codes]
    return pd.DataFrame({
        "code": np.where(rng.random(N) < 0.05, "", cells),
        "sex": np.where(rng.random(N) < 0.2 + 0.3 * chapter, "F", "M"),
        "age": np.clip(rng.normal(30 + 15 * chapter, 8), 0, 99).round(),
    })  # fmt: skip


@pytest.fixture(scope="module")
def release() -> ka.Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", wanted.QUICK)
        return release_side.publish(table(1), DOMAIN, epsilon=50.0, delta=1e-6, rehearsal=1, points=2000, uncounted=True)


def test_a_tree_is_measured_by_default_at_every_depth_below_that_of_pairs(release):
    kernel = release.measurement.feature_map.kernel
    assert isinstance(kernel, ChosenMargins)
    assert kernel.sizes[0] == 4 and kernel.finer[:2] == (0, 2) and kernel.fine_sizes[0] == 67
    assert kernel.finer[-1] == 0 and kernel.fine_sizes[-1] == 331 and kernel.n_pairs == 3
    noise = {t: square for group in release.measurement.feature_map.groups if group.kind == "finer"
             for t, square in zip(kernel.finer_tables, group.squares, strict=True)}  # fmt: skip
    blocks, codes = (square for (j, _), square in noise.items() if j == 0)
    assert codes == pytest.approx(blocks * np.sqrt(331 / 67), rel=1e-5)


def test_chapters_blocks_and_codes_are_answered_and_their_sums_agree(release):
    private = DOMAIN.encode(table(1))[:, 0]
    errors = []
    for depth in range(3):
        nodes = CODE.groups(depth)
        found = release.expectations([f"code == '{node}'" for node in nodes])
        for node, answer in zip(nodes, found, strict=True):
            start, stop = CODE.span(node)
            errors.append((answer.value - np.mean((private >= start) & (private < stop))) / answer.standard_error)
    assert np.mean(np.abs(errors) < 1.96) > 0.94  # of the table itself: sampling is part of the error
    for parent, children in (
        ("c1", [b for b, up in CODE.parents if up == "c1"]),
        ("b07", ["d007", "d073", "d139", "d205", "d271"]),
    ):
        total = sum(release.probability(f"code == '{child}'").value for child in children)
        assert total == pytest.approx(release.probability(f"code == '{parent}'").value, abs=1e-9)
        assert release.probability(f"code in {children}").value == pytest.approx(total, abs=1e-9)
    wide, narrow = (release.probability(f"code == '{node}'").parts["privacy"] for node in ("c1", "d007"))
    assert wide < 5 * narrow  # 110 codes: their noise does not add up


def test_relations_of_chapters_are_kept(release):
    frame = table(1)
    chapters = frame["code"].map(
        {code: CODE.groups(0)[int(CODE.group_of(np.array([k]), 0)[0])] for k, code in enumerate(CODE.levels)}
    )
    for node in CODE.groups(0):
        own = frame[chapters == node]
        assert release.mean("age", where=f"code == '{node}'").value == pytest.approx(own["age"].mean(), abs=0.5)
    by_sex = release.groupby("code").mean("age")
    assert list(by_sex.index) == ["c0", "c1", "c2", "(missing)"]


def test_a_file_holds_the_tree_and_reads_back(release, tmp_path: Path):
    release.write(tmp_path / "codes.kme")
    again = ka.read_release(tmp_path / "codes.kme", allow_rehearsal=True)
    assert again.domain == release.domain and again.kernel == release.kernel
    assert ka.validate_release(tmp_path / "codes.kme", allow_rehearsal=True) == []
    pd.testing.assert_frame_equal(again.to_frame(), release.to_frame())
    assert set(release.to_frame()["code"].dropna()) <= set(CODE.levels)
    question = "code == 'b07' and sex == 'F'"
    assert again.probability(question).value == release.probability(question).value


def test_models_reports_and_comparisons_take_a_tree(release, tmp_path: Path):
    rows = table(2)
    for estimator in (LogisticRegression(), RandomForestClassifier(10, random_state=0)):
        model = ka.fit(estimator, release, target="sex")
        assert np.mean(model.predict(rows) == rows["sex"]) > 0.6
    assert {name for name in ka.fit(LogisticRegression(), release, target="sex")[0].get_feature_names_out() if "code" in name} == {
        "code=c0", "code=c1", "code=c2", "code missing"
    }  # fmt: skip
    assert {"c0", "c1", "c2"} & set(release.histogram("code").index)
    assert len(release.histogram("code", bins=100)) == 67
    assert ka.compare(release, rows).columns.index.tolist().count("code") == 1
    assert ka.associations(release) is not None
    write_report(release, tmp_path / "report.html")
    assert "c1" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "options",
    [{"target": "sex"}, {"target": "code"}, {"kernel": "margins"}, {"kernel": "table"}, {"noise": "laplace", "delta": 0.0}],
)
def test_other_methods_take_a_tree(options, rough_representation):
    found = release_side.publish(
        table(3), DOMAIN, **({"epsilon": 1.0, "delta": 1e-6, "rehearsal": 1, "points": 200, "uncounted": True} | options)
    )
    assert set(found.to_frame()["code"].dropna()) <= set(CODE.levels)


def test_finer_shares_follow_each_depth_that_was_measured():
    """With hardly any noise the shares of blocks within chapters and codes within blocks are those of the table."""
    rows = DOMAIN.encode(table(4))
    kernel = adaptive_kernel(DOMAIN)
    measurement = measured(MarginFeatures(kernel), rows, noise_scale=1e-6)
    cells = np.concatenate([np.bincount(kernel.cells(rows)[:, j], minlength=size) / N for j, size in enumerate(kernel.sizes)])
    fine = fine_ranges(measurement, DOMAIN, cells)[0]
    np.testing.assert_array_equal(fine.ends, np.arange(331) - 0.5)
    np.testing.assert_array_equal(fine.cell, CODE.group_of(np.arange(330.0), 0))
    exact = np.bincount(rows[:, 0][~np.isnan(rows[:, 0])].astype(int), minlength=330) / N
    np.testing.assert_allclose(fine.probabilities * cells[fine.cell], exact, atol=2e-4)


def test_a_code_that_no_row_has_may_be_as_frequent_as_its_noisy_count_allows():
    """Of a node at its own depth, a code and a level; a node that rows have is not of this kind."""
    rows = DOMAIN.encode(table(5))
    rows[:, 0][CODE.group_of(rows[:, 0], 1) == 4] = 0
    measurement = measured(MarginFeatures(adaptive_kernel(DOMAIN)), rows, noise_scale=0.001)
    found = measured_release(measurement, DOMAIN, rows[:4000])
    node = CODE.groups(1)[4]
    group = next(group for group in measurement.feature_map.groups if group.kind == "finer")
    noisy = measurement.vector[group.start + 4] / group.height
    deviation = measurement.noise_scale / group.height
    most = noisy + deviation * norm.isf(0.05 * norm.sf(-noisy / deviation))
    answer = found.probability(f"code == '{node}'")
    assert answer.value == 0 and answer.interval() == (0, pytest.approx(most, rel=1e-4))
    assert any("no row of the release has this value" in note for note in answer.notes)
    code = next(code for code, up in CODE.parents if up == node)
    assert found.probability(f"code == '{code}'").standard_error > 0
    two = found.probability(f"code in ['{code}', '{node}']").standard_error
    assert two == pytest.approx(answer.standard_error, rel=1e-6)  # the code is one of the node's
    joined, alone = (found.probability(f"code == '{code}'{more}").standard_error for more in (" and sex == 'F'", ""))
    assert 0 < joined <= alone * (1 + 1e-9)  # no more probable than the code alone
    given = found.probability(f"code == '{node}'", where="sex == 'F'").standard_error
    assert given > answer.standard_error
