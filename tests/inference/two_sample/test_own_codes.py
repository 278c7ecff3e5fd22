"""A sample of the analyst's own that has other codes, names or columns: refused in plain words, translated, or tested in part."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from simulated_releases import measured_release, measurement_of

import kmeanalyst as ka
from kmeanalyst.cli.main import main
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.marginal import marginal
from kmeanalyst.releases.measurement import Scores
from release_side import publish

DOMAIN = Domain((
    Categorical(name="sex", levels=("Female", "Male")), Integer(name="age", lower=0, upper=79, edges=(20, 40, 60)),
    Categorical(name="income", levels=("<=50K", ">50K")), Integer(name="hours-per-week", lower=0, upper=99),
))  # fmt: skip
RECODE = {"sex": {"M": "Male", "F": "Female"}}
CELLS = (((0.5,), (20.0, 40.0, 60.0), (0.5,), (30.0, 50.0)), ((),) * 4, (False,) * 4)
FINE = ((), (10.0, 20.0, 40.0, 60.0), (), ())
KERNELS: dict[str, Margins] = {
    "one-way": Margins(*CELLS, (1.0, 0, 0)),
    "all": Margins(*CELLS, (0.4, 0.4, 0.2), FINE, deeper=((1, (10.0, 20.0, 30.0, 40.0, 60.0)),)),
    "chosen": ChosenMargins(
        *CELLS, (0.5, 0.5, 0.0), chosen=((0, 1), (1, 3), (0, 1, 3)), squares=((0.2, 0.1, 0.1, 0.1), (0.1, 0.1, 0.3), ())
    ),
}  # fmt: skip
N, L, TAU = 2000, 300, 0.003


def frame(n: int, rng: np.random.Generator, *, older: float = 0.0) -> pd.DataFrame:
    age = rng.integers(0, 60, n)
    return pd.DataFrame({
        "sex": rng.choice(["Female", "Male"], n), "age": np.minimum(age + np.rint(older).astype(int), 79),
        "income": np.where(rng.random(n) < 0.1 + age / 150, ">50K", "<=50K"), "hours-per-week": rng.integers(20, 60, n),
    })  # fmt: skip


def release_of(name: str, rng: np.random.Generator, n: int = N) -> ka.Release:
    features, rows = MarginFeatures(KERNELS[name]), DOMAIN.encode(frame(n, rng))
    vector = features.mean(rows, np.full(n, 1 / n)) + TAU * rng.normal(size=features.dimension)
    measurement = measurement_of(features, vector, TAU, n)
    if name == "chosen":
        scores = Scores(np.arange(6), 1)
        measurement = type(measurement)(**(vars(measurement) | {"scores": (scores,), "beforehand": ((0, 1),)}))
    return measured_release(measurement, DOMAIN, rows[:60])


@pytest.fixture(scope="module")
def release() -> ka.Release:
    return release_of("one-way", np.random.default_rng(0))


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    return frame(L, np.random.default_rng(1))


@pytest.fixture(scope="module")
def coded(sample: pd.DataFrame) -> pd.DataFrame:
    return sample.replace({"sex": {"Male": "M", "Female": "F"}}).rename(columns={"hours-per-week": "hours_per_week"})


def test_a_sample_coded_otherwise_is_refused_with_its_values_and_the_nearest_levels(release, sample, tmp_path):
    coded = sample.assign(sex=sample["sex"].str[0], income=sample["income"].str.lower())
    coded.to_csv(tmp_path / "a.csv", index=False)
    said = (
        r"sex \(categorical Female, Male\): 300 of 300 cells, such as '[MF]' \(\d+\), '[MF]'.*income.*300 of 300 cells.*"
        r"Did you mean recode=\{'sex': \{.*'M': 'Male'.*'income': \{.*'<=50k': '<=50K'.*rename=.*columns="
    )
    for asked in (coded, tmp_path / "a.csv", [coded[:100], coded[100:]]):
        for ask in (ka.mmd_test, ka.mmd, ka.compare):
            if ask is ka.mmd_test or isinstance(asked, pd.DataFrame):
                with pytest.raises(ka.DomainError, match=said):
                    ask(release, asked)
    with pytest.raises(ka.DomainError, match=said):
        ka.plots.histogram(release, "age", sample=coded)
    with pytest.raises(ka.DomainError, match=r"'sex': \{'[01]': '\.\.\.', '[01]': '\.\.\.'\}"):
        ka.mmd_test(release, sample.assign(sex=(sample["sex"] == "Male").astype(int)))


@pytest.mark.parametrize("dtype", [int, float])
def test_codes_that_lost_their_zeros_are_proposed_with_them(dtype):
    domain = Domain((Categorical(name="ward", levels=("10", "02", "01", "00")),))
    counts = domain.encode_counted(pd.DataFrame({"ward": np.array([1, 1, 1, 2, 2, 0, 10], dtype)}))[1]
    with pytest.raises(ka.DomainError, match=r"recode=\{'ward': \{'1(\.0)?': '01', '2(\.0)?': '02', '0(\.0)?': '00'\}\}"):
        counts.check(domain)


def test_a_twentieth_of_the_cells_is_noted_and_one_more_refused_and_half_where_a_default_is_declared(release, sample):
    few = sample.assign(sex=["X"] * 15 + sample["sex"].tolist()[15:])
    assert "sex: 15 of 300 cells had no value" in ka.mmd_test(release, few).notes[0]
    with pytest.raises(ka.DomainError, match="16 of 300"):
        ka.mmd_test(release, few.assign(sex=["X"] * 16 + few["sex"].tolist()[16:]))
    other = Domain((Categorical(name="sex", levels=("Female", "Male"), default="Male"),))
    cells, counted = pd.DataFrame({"sex": ["X"] * 3 + ["Male"] * 3}), other.encode_counted
    counted(cells)[1].check(other)
    with pytest.raises(ka.DomainError, match="3 of 5"):
        counted(cells[:5])[1].check(other)


def test_a_missing_column_is_named_with_the_nearest_of_the_sample(release, coded):
    said = r"lacks \"hours-per-week\".*rename=\{'hours_per_week': 'hours-per-week'\}, or columns="
    with pytest.raises(ka.DomainError, match=said):
        ka.mmd_test(release, coded)


def test_a_translated_sample_has_the_answer_of_the_sample(release, sample, coded, tmp_path):
    own: dict[str, Any] = {"rename": {"hours_per_week": "hours-per-week"}, "recode": RECODE}
    coded.to_csv(tmp_path / "a.csv", index=False)
    truth = ka.mmd_test(release, sample)
    for given in (coded, tmp_path / "a.csv", [coded[:100], coded[100:]]):
        found = ka.mmd_test(release, given, **own)
        assert (found.statistic, found.pvalue, found.notes) == (truth.statistic, truth.pvalue, truth.notes)
    assert ka.compare(release, coded, **own).columns.equals(ka.compare(release, sample).columns)
    codes = sample.assign(sex=(sample["sex"] == "Male").astype(int))
    assert ka.mmd_test(release, codes, recode={"sex": {0: "Female", 1: "Male"}}).pvalue == truth.pvalue
    for wrong in ({"rename": {"x": "age"}}, {"recode": {"y": {}}}):
        with pytest.raises(ValueError, match=r"[xy]: rename, recode and columns name columns of a table of your own"):
            ka.mmd_test(release, coded, **wrong)
    with pytest.raises(ValueError, match="none, in a release or an array"):
        ka.mmd_test(release, release, recode=RECODE)


def test_the_commands_take_columns_names_and_codes(coded, tmp_path, rough_representation):
    rows = frame(500, np.random.default_rng(4))
    publish(rows, DOMAIN, epsilon=1.0, delta=1e-6, uncounted=True, points=100, output=tmp_path / "r.kme")
    coded.replace({"income": {"<=50K": "<=50K."}}).to_csv(tmp_path / "a.csv", index=False)
    options = "--rename hours_per_week=hours-per-week --recode sex:M=Male --recode sex:F=Female --recode income:<=50K.=<=50K"
    for command in ("mmd-test", "compare"):
        called = [command, str(tmp_path / "r.kme"), str(tmp_path / "a.csv")]
        for good in (options.split(), ["--columns", "age"]):
            result = CliRunner().invoke(main, [*called, *good])
            assert result.exit_code == 0, result.output
        assert "compared in these columns alone: age" in result.output
        for bad, code in (([], 1), (["--recode", "sex"], 2), (["--rename", "sex"], 2), (["--columns", "agee"], 1)):
            assert CliRunner().invoke(main, [*called, *bad]).exit_code == code


@pytest.mark.parametrize("name", KERNELS)
def test_what_was_measured_of_some_columns_is_what_a_release_of_them_would_have_measured(name):
    rng = np.random.default_rng(2)
    whole = release_of(name, rng)
    for chosen in [each for k in (1, 2, 3, 4) for each in combinations(range(4), k)]:
        names = [DOMAIN.names[j] for j in chosen]
        part = marginal(whole, names[::-1])
        own, rows = part.measurement, DOMAIN.encode(frame(400, rng))
        assert part.domain.names == tuple(names) and own is not None and own.feature_map.norm_bound == pytest.approx(1)
        # each coordinate is one of the whole, value and features, in units of its noise
        seen, of_all = (
            np.vstack([one.vector, one.feature_map(given)]) / one.noise_scale
            for one, given in ((own, rows[:, chosen]), (whole.measurement, rows))
        )
        assert all(np.isclose(of_all, each[:, None], rtol=1e-9).all(axis=0).any() for each in seen.T)
        kernel = own.feature_map.kernel
        assert own.chosen_by_rows == (name == "chosen" and {1, 3} <= set(chosen))
        assert len(kernel.pairs if kernel.shares[1] else ()) == {
            "one-way": 0, "all": len(chosen) * (len(chosen) - 1) // 2,
            "chosen": sum(set(each) <= set(chosen) for each in ((0, 1), (1, 3), (0, 1, 3))),
        }[name]  # fmt: skip


def test_a_test_of_some_columns_keeps_its_level_and_finds_what_is_there():
    """16 draws: 5 % are 0.8, more than 4 come with probability 1e-3; of the other columns one differs and two are not there."""
    rng, alarms, found = np.random.default_rng(3), 0, 0
    for _ in range(16):
        one = release_of("chosen", rng)
        alone = frame(L, rng)[["age"]].assign(sex="nobody's")
        alarms += ka.mmd_test(one, alone, columns=["age"]).pvalue <= 0.05
        found += ka.mmd_test(one, frame(L, rng, older=6)[["age"]], columns=["age"]).pvalue <= 0.05
    assert alarms <= 4 and found >= 11


def test_some_columns_of_a_release_of_features_of_all_columns_cannot_be_tested(numeric_release, foreign_release):
    with pytest.raises(ValueError, match=r"no table is of these columns alone.*nystroem|subspace"):
        ka.mmd_test(numeric_release, pd.DataFrame({"x": [0.0, 1.0]}), columns=["x"])
    ages = pd.DataFrame({"age": range(20, 80)})
    assert "compared in these columns alone: age" in ka.mmd_test(foreign_release, ages, columns=["age"]).notes
    with pytest.raises(KeyError, match=r"no column 'agee'.*Did you mean age"):
        ka.mmd_test(foreign_release, ages, columns=["agee"])


def test_two_tables_have_one_type_a_column_in_python_and_on_the_command_line(tmp_path):
    """A ward A among numbers in one file makes the wards of both levels; a blank cell turned the other's into 1.0."""
    with_a, numbers = (pd.DataFrame({"ward": ["1", "2", "3", "A"] * 40}), pd.DataFrame({"ward": ["1", "2", "3", "3"] * 40}))
    numbers.astype(float).to_csv(tmp_path / "floats.csv", index=False)
    for name, table in (("a", with_a), ("numbers", numbers)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    paths = [str(tmp_path / f"{name}.csv") for name in ("a", "numbers", "floats")]
    plain, floats = (ka.mmd_test(paths[0], path, permutations=99, rng=0) for path in paths[1:])
    assert plain.notes == ("columns read from both samples: ward (categorical)",) and plain.pvalue == 0.01
    assert floats == plain
    for options, code in (([], 0), (["--columns", "ward"], 0), (["--columns", "wrad"], 1), (["--columns", ","], 1)):
        assert CliRunner().invoke(main, ["mmd-test", *paths[:2], *options]).exit_code == code
    with pytest.raises(ValueError, match=r"wrad: .*Did you mean ward\?"):
        ka.mmd_test(*paths[:2], columns=["wrad"])
    for command in ("compare", "expect"):
        asked = CliRunner().invoke(main, [command, *paths[:2]])
        assert asked.exit_code == 1 and "two tables are tested by mmd-test, and" in asked.output


def test_codes_with_leading_zeros_are_compared_as_texts(tmp_path):
    """300 of them are too many for levels; as numbers they would be compared by their size."""
    codes = [f"{n:05d}" for n in range(300)] * 2
    tables = [pd.DataFrame({"zip": codes}), pd.DataFrame({"zip": codes[::-1]})]
    for number, table in enumerate(tables):
        table.to_csv(tmp_path / f"{number}.csv", index=False)
    for a, b in (tables, [tmp_path / "0.csv", str(tmp_path / "1.csv")]):
        result = ka.mmd_test(a, b, permutations=19, rng=0)
        assert result.pvalue > 0.05 and any("zip (text)" in note for note in result.notes)
