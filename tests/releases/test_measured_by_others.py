"""Releases from noisy tables of others: the answers of a release of our own, errors that hold, and tables that are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import refusals
from command_line import call
from file_tools import SCHEMA_TEST, forged, header_of, npy, opened

import kmeanalyst as ka
from kmeanalyst.inference.contingency.strata import measured_table
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.noisy_tables import NoisyTable, cells_of_table, independent_bound
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file.export import export_mbi
from kmeanalyst.releases.marginal import marginal
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.estimates import Observed
from kmeanalyst.representation.tables.tables_of_others import measurement_of_tables
from kmeanalyst.representation.weights.reweight import raked_weights
from release_side import publish

AGES = (17, 30, 45, 60)
DOMAIN = Domain(
    (
        Integer(name="age", lower=17, upper=90, edges=AGES[1:]), Categorical(name="city", levels=("Basel", "Genf", "Chur")),
        Boolean(name="rich"),
    )
)  # fmt: skip
QUESTIONS = (
    "age", "rich", "city == 'Genf'", "age >= 45", "rich and city == 'Genf'", "age < 30 and rich", "age >= 60 and city == 'Chur'",
)  # fmt: skip
SEXES = Domain((Categorical(name="sex", levels=("F", "M")),))


def people(n: int, seed: int) -> pd.DataFrame:
    """Rows of DOMAIN whose columns are related."""
    rng = np.random.default_rng(seed)
    city, age = rng.choice(3, n, p=[0.6, 0.3, 0.1]), np.minimum(17 + rng.gamma(3, 9, n), 90).astype(int)
    rich = rng.random(n) < 1 / (1 + np.exp(2.0 - 0.7 * city - 0.03 * (age - 40)))
    return pd.DataFrame({"age": age, "city": np.array(DOMAIN["city"].levels)[city], "rich": rich})  # type: ignore[attr-defined]


def group_by(rows: pd.DataFrame, columns: Sequence[str], rng: np.random.Generator, law: str, scale: float) -> NoisyTable:
    """A noisy GROUP BY over all cells of columns, ages by the lower edges of their ranges."""
    cells: dict[str, Any] = {"age": AGES, "city": DOMAIN["city"].levels, "rich": [False, True]}  # type: ignore[attr-defined]
    cut = rows.assign(age=np.array(AGES)[np.searchsorted(AGES, rows["age"], side="right") - 1])
    frame = pd.MultiIndex.from_product([cells[name] for name in columns], names=columns).to_frame(index=False)
    counts = frame.merge(cut.groupby([*columns]).size().rename("count").reset_index(), how="left").fillna({"count": 0})
    noise = rng.normal(0, scale, len(frame)) if law == "gaussian" else rng.laplace(0, scale, len(frame))
    return NoisyTable(frame.assign(count=counts["count"] + noise), noise=law, scale=scale)


def frames_of(measurement: Measurement, domain: Domain) -> list[pd.DataFrame]:
    """The tables of a measurement as others would publish them: shares with their standard error."""
    features, found = measurement.feature_map, []
    assert isinstance(features, MarginFeatures)
    kernel, d = features.kernel, len(domain)
    for group in features.groups:
        for table, square, (start, stop) in zip(group.tables, group.squares, group.ranges, strict=True):
            columns = kernel.named(table)
            edges = [kernel.edges[j] if j < d else kernel.finer_tables[j - d][1] for j in table]
            cells = [_cells(domain, j, own) for j, own in zip(columns, edges, strict=True)]
            frame = pd.MultiIndex.from_product(cells, names=[domain.names[j] for j in columns]).to_frame(index=False)
            height = np.sqrt(square)
            found.append(
                frame.assign(share=measurement.vector[start:stop] / height, standard_error=measurement.noise_scale / height)
            )
    return found


def noisier(value: float) -> dict[str, bytes]:
    """The member of the noise by cell with another number in front."""
    return {"measurement/relative_noise.npy": npy(np.array([value, 1.0]))}


def _cells(domain: Domain, j: int, edges: Sequence[float]) -> list[Any]:
    column: Any = domain.columns[j]
    lows = [column.lower, *np.ceil(edges).astype(int)] if isinstance(column, Integer) else []
    return [f"[{a}, {b})" for a, b in zip(lows, [*lows[1:], "inf"], strict=True)] if lows else list(column.levels)


def counts(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


@pytest.mark.parametrize("seed", [0, 9])
def test_a_measurement_given_as_tables_of_others_answers_as_our_own_file_does(seed: int) -> None:
    """Standard errors to .001: a scale behind them is found by a search, which last bits of the noise scale may end elsewhere."""
    ours = publish(people(5000, 0), DOMAIN, epsilon=1.0, delta=1e-6, rehearsal=seed)
    assert ours.measurement is not None
    theirs = ka.from_measurements(DOMAIN, frames_of(ours.measurement, DOMAIN), n_rows=5000, statement="us")
    on_our_rows = theirs.replaced(points=ours.frame, weights=ours.weights, weight_view="probability")
    for question in QUESTIONS:
        here, same, own = (each.expectation(question) for each in (ours, on_our_rows, theirs))
        assert same.value == pytest.approx(here.value, abs=1e-6 * here.standard_error)
        assert same.standard_error == pytest.approx(here.standard_error, rel=1e-3)
        assert abs(own.value - here.value) <= 0.1 * here.standard_error
        assert own.standard_error == pytest.approx(here.standard_error, rel=0.1)


@pytest.mark.levels
@pytest.mark.parametrize(("law", "known"), [("gaussian", True), ("laplace", False)])
def test_intervals_of_tables_of_others_hold_the_truth(law: str, known: bool) -> None:
    """.95 of 60 × 7 intervals, with room for three standard errors of 60 independent draws; naive errors of N would hold fewer."""
    everybody = people(400_000, 1)
    truths = [everybody.eval(question).mean() for question in QUESTIONS]
    rng, held = np.random.default_rng(2), []
    wanted = [(("age",), 8), (("age", "rich"), 12), (("city", "rich"), 15), (("age", "city"), 20)]
    for _ in range(60):
        rows = everybody.iloc[rng.choice(len(everybody), 3000, replace=False)]
        tables = [group_by(rows, columns, rng, law, scale) for columns, scale in wanted]
        release = ka.from_measurements(DOMAIN, tables, n_rows=3000 if known else None)
        ends = [release.expectation(question).interval(0.95) for question in QUESTIONS]
        held.append([low <= truth <= high for (low, high), truth in zip(ends, truths, strict=True)])
    shares = np.mean(held, axis=0)
    assert np.mean(held) >= 0.93 and shares.min() >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 60), shares


def test_each_cell_has_the_noise_that_is_declared_for_it() -> None:
    """Noise from 2 to 60 rows: errors of cells are no larger than their own noise and their rows' sampling make them (columns' sums
    answer a part, and have their noise); all are held .95 of the time, as rows are: 25 draws of 12 cells, with room
    for three standard errors of independent ones.
    """
    rng, held, found = np.random.default_rng(5), [], []
    domain = Domain((Categorical(name="x", levels=tuple("abcd")), Categorical(name="y", levels=tuple("uvw"))))
    shares, deviations = rng.dirichlet(np.ones(12)).reshape(4, 3), np.geomspace(2, 60, 12).reshape(4, 3)
    questions = [f"x == '{x}' and y == '{y}'" for x in "abcd" for y in "uvw"]
    for _ in range(25):
        noisy = rng.multinomial(4000, shares.ravel()).reshape(4, 3) + rng.normal(0, deviations)
        given = NoisyTable(noisy, ["x", "y"], noise="gaussian", scale=deviations)
        release = ka.from_measurements(domain, [given], n_rows=4000)
        found.append(release.expectations(questions))
        ends = [each.interval(0.95) for each in found[-1]]
        held.append([low <= share <= high for (low, high), share in zip(ends, shares.ravel(), strict=True)])
    privacy = 4000 * np.median([[each.parts["privacy"] for each in one] for one in found], axis=0)
    rows = np.sqrt(4000 * shares * (1 - shares)).ravel()
    assert (np.hypot(privacy, rows) <= 1.02 * np.hypot(deviations.ravel(), rows)).all()
    assert privacy[:6] == pytest.approx(deviations.ravel()[:6], rel=0.2)
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300)
    listed = counts(x=np.repeat([*"abcd"], 3), y=[*"uvw"] * 4, count=noisy.ravel(), variance=deviations.ravel() ** 2)
    same = ka.from_measurements(domain, [listed.iloc[::-1]], n_rows=4000).expectations(questions)
    assert [one.value for one in same] == pytest.approx([one.value for one in found[-1]], rel=1e-9)


def test_tests_and_bounds_read_the_noise_of_the_cells_that_they_use() -> None:
    """A shift in precise cells is found that the largest noise would hide; sums of cells have the sum of their variances."""
    deviations = np.array([[2.0, 2], [2, 2], [200, 200]])
    table = np.array([[900.0, 700], [800, 600], [1600, 1400]])

    def release(counts: Any, scale: Any) -> ka.Release:
        given = NoisyTable(np.array(counts, dtype=float), ["city", "rich"], scale=scale)
        return ka.from_measurements(Domain(DOMAIN.columns[1:]), [given], n_rows=6000)

    shifted = table + np.array([[110.0, -110], [-110, 110], [0, 0]])
    by_cell, at_most = ([release(each, scale) for each in (table, shifted)] for scale in (deviations, np.full((3, 2), 200.0)))
    assert ka.mmd_test(*by_cell).pvalue < 1e-3 < 0.2 < ka.mmd_test(*at_most).pvalue
    measurement = cast(Measurement, by_cell[0].measurement)
    shares, noise = cast(Any, measured_table(measurement, [1]))
    assert noise == pytest.approx(np.sqrt(2 * 4 + 200**2) / 6000, rel=0.01) and shares == pytest.approx([0.55, 0.45])
    counts_now = np.array([[0.0, 1700], [1400, 1400], [1000, 500]])
    asked = [
        release(counts_now, scale).probability("city == 'Basel' and not rich") for scale in (deviations, np.full((3, 2), 200.0))
    ]
    assert asked[0].interval(0.95)[1] < 0.003 and asked[1].interval(0.95)[1] > 0.03


def test_a_pair_in_no_table_may_be_as_related_as_the_strongest_usual_ones() -> None:
    """Even columns with a correlation of .65 have P(both) = .41 or .09: of strong usual pairs an interval would end at .36."""
    domain = Domain((Boolean(name="a"), Boolean(name="b")))
    tables = {name: NoisyTable([2000.0, 2000.0], scale=2.0) for name in ("a", "b")}
    release = ka.from_measurements(domain, tables, n_rows=4000, statement="us")
    both = release.probability("a and b")
    assert both.interval(0.95)[1] >= 0.41 and both.interval(0.95)[0] <= 0.09
    assert "it is in none of the tables" in ka.associations(release)[0].note


def test_a_number_of_rows_that_is_not_known_has_its_error_in_every_cell() -> None:
    """The claimed variance of any sum of cells is at least the one that draws show: without the part of N it is an eighth of it."""
    rng, half, n = np.random.default_rng(0), np.outer([0.91, *[0.01] * 9], [0.5, 0.5]), 2000
    domain, errors = Domain((Categorical(name="x", levels=tuple("abcdefghij")), Boolean(name="y"))), []
    for _ in range(300):
        given = NoisyTable(n * half + rng.normal(0, 10, half.shape), ["x", "y"], scale=10)
        measurement, notes = measurement_of_tables([cells_of_table(given, domain)], domain)
        height = np.sqrt(cast(Any, measurement.feature_map.kernel).squares[1][0])
        errors.append((measurement.vector[-20:] - height * half.ravel()) / measurement.noise_scale)
    assert re.match(r"N = (2,0|1,9)\d\d ± 44.7 follows", notes[-1])
    assert 0.5 < np.var(np.array(errors) @ half.ravel() / np.linalg.norm(half)) < 1.2


def test_ranges_are_the_same_cells_however_they_are_written() -> None:
    domain = Domain((Integer(name="age", lower=0, upper=99, missing=True), Real(name="pay", lower=1, upper=1e6, scale="log")))
    ages: list[list[Any]] = [
        ["[0, 18)", "[18, 65)", "[65, 100)", None], [0, 18, 65, np.nan], ["0 to 17", "18 to 64", "65 to 99", ""],
        [pd.Interval(-1, 17), pd.Interval(17, 64), pd.Interval(64, np.inf), pd.NA],
    ]  # fmt: skip
    for cells in ages:
        shuffled = counts(age=cells, count=[1.0, 2.0, 3.0, 4.0], standard_error=1.0).iloc[::-1]
        read = cells_of_table(NoisyTable(shuffled), domain)
        assert read.edges == ((17.5, 64.5),) and read.values.tolist() == [1, 2, 3, 4]
    (edges,) = cells_of_table(NoisyTable(counts(pay=["(-inf, 10]", "(10, 1e6]"], count=[1, 2]), scale=1), domain).edges
    assert edges == (np.nextafter(np.log(10), np.inf),)


def test_twins_are_averaged_by_precision_and_an_exact_table_fixes_n() -> None:
    small = NoisyTable([610.0, 380.0], ["sex"], scale=10.0)
    twice = [small, NoisyTable([590.0, 420.0], ["sex"], scale=20.0)]
    measurement, _ = measurement_of_tables([cells_of_table(one, SEXES) for one in twice], SEXES, 1000)
    assert measurement.vector == pytest.approx([0.606, 0.388])
    assert measurement.noise_scale == pytest.approx(80**0.5 / 1000)
    exact = NoisyTable([600, 400], ["sex"], exact=True)
    release = ka.from_measurements(SEXES, [small, exact])
    assert release.statement is not None and release.statement.n_rows == 1000
    assert release.probability("sex == 'F'").parts["privacy"] < 1e-3
    assert "exact tables count with a standard deviation of 0.5 rows in each cell" in release.statement.notes


@pytest.mark.parametrize(("n", "scale"), [(2500, 20.0), (1_000_000, 2000.0)])
@pytest.mark.parametrize("total", [{"scale": 0.01}, {"exact": True}])
def test_a_nearly_exact_table_leaves_the_errors_of_noisy_ones_as_they_are(n: int, scale: float, total: dict[str, Any]) -> None:
    """All tables are solved for together, and far less noise in one of them took the solver's precision from the others."""
    sizes, rng = {"a": 3, "s": 2, "p": 4}, np.random.default_rng(0)
    domain = Domain(tuple(Categorical(name=name, levels=tuple("0123"[:size])) for name, size in sizes.items()))
    counts = n * rng.dirichlet(np.full(24, 2.0)).reshape(3, 2, 4)
    noisy = [
        NoisyTable(counts.sum(axis=left) + rng.normal(0, scale, counts.sum(axis=left).shape), pair, scale=scale)
        for left, pair in ((2, ("a", "s")), (1, ("a", "p")), (0, ("s", "p")))
    ]
    usual, errors = (
        ka.from_measurements(domain, [*noisy, NoisyTable(counts.sum(axis=(0, 2)), ["s"], **own)], n_rows=n)
        .probability("a == '0' and s == '1'").standard_error
        for own in ({"scale": scale}, total)
    )  # fmt: skip
    assert errors < 3 * usual  # forty times in the larger table, once


def test_what_others_did_not_count_together_is_said_without_a_way_that_they_do_not_have() -> None:
    release = ka.from_measurements(DOMAIN, [group_by(people(5000, 3), pair, np.random.default_rng(0), "gaussian", 5.0)
                                            for pair in combinations(DOMAIN.names, 2)], n_rows=5000)  # fmt: skip
    notes = release.probability("age < 45 and rich and city == 'Genf'").notes
    assert any("age × rich × city" in note or "in none of the tables together" in note for note in notes)
    assert not any("--target" in note for note in notes)


def test_finer_tables_of_one_column_and_columns_without_a_table_of_their_own() -> None:
    rng, rows = np.random.default_rng(0), people(5000, 3)
    pair = group_by(rows, ("age", "city"), rng, "gaussian", 10.0)
    fine = rows["age"].value_counts().reindex(range(17, 91), fill_value=0)
    alone = NoisyTable(counts(age=fine.index, count=fine + rng.normal(0, 2.0, len(fine))), scale=2.0)
    domain = Domain(DOMAIN.columns[:2])
    release = ka.from_measurements(domain, [pair, alone], n_rows=5000)
    age, city = release.mean("age"), release.probability("city == 'Basel'")
    assert abs(age.value - rows["age"].mean()) < 3 * age.parts["privacy"] + 0.05 and age.standard_error < 0.4
    assert abs(city.value - (rows["city"] == "Basel").mean()) < 3 * city.standard_error and city.standard_error < 0.01


def test_tables_of_several_columns_may_cut_one_of_them_more_or_less_finely(tmp_path: Path) -> None:
    """Both are counted, in a file and in some of its columns too; rows have what the finer one says beyond the other."""
    rng, rows = np.random.default_rng(0), people(5000, 3)
    rows["rich"] = rng.random(5000) < np.where(rows["age"].between(30, 44), 0.8, 0.3)
    coarse = counts(age=["17 to 44", "45 to 90"] * 3, city=np.repeat(["Basel", "Genf", "Chur"], 2), variance=25.0)
    true = rows.groupby(["city", rows["age"] > 44]).size().reindex(["Basel", "Genf", "Chur"], level=0)
    fine = group_by(rows, ("age", "rich"), rng, "gaussian", 5.0)
    release = ka.from_measurements(DOMAIN, [coarse.assign(count=true.to_numpy() + rng.normal(0, 5, 6)), fine], n_rows=5000)
    release.write(tmp_path / "x.kme")
    one, other = "age > 44 and city == 'Genf'", "age >= 30 and age < 45 and rich"
    for each in (release, ka.read_release(tmp_path / "x.kme")):
        for question in (one, other):
            answer = each.probability(question)
            assert abs(answer.value - rows.eval(question).mean()) < 3 * answer.parts["privacy"] + 1e-4
            assert answer.parts["resolution"] < answer.parts["privacy"]
    drawn = float(release.weights @ release.frame.eval(other))
    assert release.residual_over_noise < 2 and drawn == pytest.approx(rows.eval(other).mean(), abs=0.004)
    assert "age × city, age × rich" in str(release)
    observed = Observed.of(release.measurement).pairs[0, 2][0]  # in the coarser ranges of age
    assert observed[:, 1] == pytest.approx(rows["rich"].groupby(rows["age"] > 44).sum() / 5000, abs=0.01)
    even = raked_weights(release.encoded_points, replace(release.measurement, noise_scale=10.0))
    assert even == pytest.approx(1 / len(release), rel=0.01)
    part = marginal(release, ["age", "rich"]).probability(other)
    assert part.value == pytest.approx(release.probability(other).value, abs=1e-3)


@pytest.mark.parametrize("off", [0.0, 300.0])
@pytest.mark.parametrize("columns", [("city",), ("age",)])  # ages in two ranges here, in four there
def test_tables_that_contradict_one_another_beyond_their_noise_are_reported(columns: Sequence[str], off: float) -> None:
    rng, rows = np.random.default_rng(0), people(5000, 4)
    tables = [group_by(rows, own, rng, "laplace", 8.0) for own in (columns, (*columns, "rich"))]
    if columns == ("age",):
        sums = tables[0].table["count"].to_numpy().reshape(2, 2).sum(axis=1)
        tables[0] = NoisyTable(counts(age=AGES[::2], count=sums), noise="laplace", scale=16.0)
    tables[0].table.loc[[0, 1], "count"] += [off, -off]
    used = Domain((DOMAIN[columns[0]], DOMAIN["rich"]))
    _, notes = measurement_of_tables([cells_of_table(one, used) for one in tables], used)
    assert ("contradict one another beyond their noise: χ²" in notes[-1]) is (off > 0), notes


@pytest.fixture(scope="module")
def bureau() -> ka.Release:
    table = counts(sex=["F", "M"], share=[0.61, 0.39], variance=[1e-4, 4e-4])
    return ka.from_measurements(SEXES, [table], n_rows=1000, statement={"declared_by": "the bureau", "epsilon": 0.5})


def test_every_output_says_that_others_declare_the_noise(bureau: ka.Release, tmp_path: Path) -> None:
    claim = "measured by others, as declared by the bureau, ε = 0.5; not verified"
    path = tmp_path / "bureau.kme"
    bureau.write(path)
    again = ka.read_release(path)
    SCHEMA_TEST.validate(header_of(path.read_bytes()))
    assert again.statement == bureau.statement and ka.validate_release(path) == []
    assert again.measurement is not None and again.measurement.relative_noise == pytest.approx([0.5, 1])
    assert "noise       0.01 to 0.02 on each of 2 features (total 0.0224, " in repr(again)  # the roots of 1e-4 and 4e-4
    bureau.report(tmp_path / "page.html")
    ka.thin(bureau, 10).write(tmp_path / "thin.kme")
    shown = [
        repr(again), (tmp_path / "page.html").read_text(encoding="utf-8"), *again.mean("sex == 'F'").notes,
        ka.mmd_test(again, counts(sex=["F", "M"] * 50)).to_text(), repr(ka.read_release(tmp_path / "thin.kme")),
    ]  # fmt: skip
    assert all(claim in text for text in shown)
    asked = json.loads(call("kmeanalyst", "expect", path, "sex == 'F'", "--json").stdout)
    assert asked["declared"] == claim
    told = json.loads(call("kmeanalyst", "info", path, "--json").stdout)["statement"]
    assert (told["declared_by"], told["epsilon"], told["delta"]) == ("the bureau", 0.5, None)


def test_a_file_with_a_declaration_is_read_only_if_it_is_about_its_numbers(bureau: ka.Release, tmp_path: Path) -> None:
    path = tmp_path / "bureau.kme"
    bureau.write(path)

    def changed(**fields: Any) -> ka.Release:
        return opened(forged(path, lambda header, _: header["statement"].update(fields)), tmp_path)

    for fields in ({"n_rows": 999}, {"noise_scale": 1e-3}, {"mechanism": "discrete laplace"}, {"rho": 1.0}):
        with pytest.raises(ka.FileRefused, match="declared statement"):
            changed(**fields)
    assert changed(epsilon=3.0).statement == replace(cast(ka.DeclaredStatement, bureau.statement), epsilon=3.0)
    with pytest.raises(ka.FileRefused, match="noise by cell is of tables that others measured"):
        opened(forged(path, lambda header, _: header["statement"].pop("declared_by")), tmp_path)
    for value in (0.0, 1e-12, 1.5, np.nan):
        with pytest.raises(ka.FileRefused, match="a number from 1e-9 to 1"):
            opened(forged(path, lambda _, members: members.update(noisier(value))), tmp_path)  # noqa: B023
    with pytest.raises(ka.FileRefused, match="members differ from the declared ones"):
        opened(forged(path, lambda header, _: header["measurement"].pop("relative_noise")), tmp_path)
    pair = NoisyTable(np.full((3, 2), 100.0), ["city", "rich"], scale=5)
    ka.from_measurements(Domain(DOMAIN.columns[1:]), [pair]).write(path)
    # one of ours has more fields
    with pytest.raises(ka.FileRefused, match=r"the privacy statement: .*is not complete"):
        opened(forged(path, lambda header, _: header["statement"].pop("declared_by")), tmp_path)
    rounds = [{"count": 1, "step": 1, "scale": 1.0}]
    with pytest.raises(ka.FileRefused, match="were chosen by no scores of ours"):
        opened(forged(path, lambda header, _: header["measurement"].update(choices=rounds)), tmp_path)
    with pytest.raises(ka.FileRefused, match="one of them alone"):
        opened(forged(path, lambda header, _: header.update(measurement=None, fit_distance=None)), tmp_path)


def test_the_command_makes_the_release_that_its_file_of_tables_describes(tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text(domain_toml(SEXES), encoding="utf-8")
    counts(sex=["F", "M"], count=[612.0, 391.0]).to_csv(tmp_path / "a.csv", index=False)
    counts(sex=["F", "M"], count=[600.0, 400.0], variance=[1.0, 4.0]).to_parquet(tmp_path / "b.parquet")
    listed = 'domain = "domain.toml"\nn_rows = 1000\ndeclared_by = "us"\n[[table]]\nfile = "a.csv"\nnoise = "laplace"\nscale = 5\n'
    (tmp_path / "tables.toml").write_text(listed + '[[table]]\nfile = "b.parquet"\n', encoding="utf-8")
    result = call("kmeanalyst", "import", tmp_path / "tables.toml", "--output", tmp_path / "a.kme")
    assert result.exit_code == 0 and "as declared by us; not verified" in result.stderr
    release = ka.read_release(tmp_path / "a.kme")
    assert release.probability("sex == 'F'").value == pytest.approx(0.6003, abs=2e-3)
    # of the Parquet file's rows
    assert release.measurement is not None and release.measurement.relative_noise is not None
    (tmp_path / "tables.toml").write_text(listed + "sigma = 2\n", encoding="utf-8")
    result = call("kmeanalyst", "import", tmp_path / "tables.toml", "--output", tmp_path / "b.kme")
    assert result.exit_code == 1 and "'sigma'] is unknown" in result.stderr and not (tmp_path / "b.kme").exists()


@pytest.mark.parametrize("ending", ["json", "npz"])
@pytest.mark.usefixtures("rough_representation")
def test_what_was_measured_is_written_for_mbi_and_means_the_same_tables(tmp_path: Path, ending: str) -> None:
    """Each measurement's counts over its weights, with its stddev over these, are the tables that were given: the same answers."""
    pair = NoisyTable(np.array([[200.0, 90], [300, 60], [320, 40]]), ["city", "rich"], scale=np.array([[2.0, 4], [8, 4], [2, 2]]))
    release = ka.from_measurements(Domain(DOMAIN.columns[1:]), [pair], n_rows=1000, statement="us")
    release.write(tmp_path / "a.kme")
    told = call("kmeanalyst", "export", tmp_path / "a.kme", "--mbi", tmp_path / f"out.{ending}", "--json")
    assert told.exit_code == 0 and "wrote 3 tables" in told.stderr
    if ending == "json":
        header = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
        arrays = header["measurements"]
    else:
        with np.load(tmp_path / "out.npz") as file:
            header = json.loads(str(file["header"]))
            names = ("noisy_measurement", "weights")
            arrays = [{name: file[f"measurements_{i}_{name}"] for name in names} for i in range(3)]
    assert header["domain"] == {
        "attributes": ["city", "rich"], "shape": [3, 2], "labels": [["Basel", "Genf", "Chur"], ["False", "True"]],
    } and header["total"] == 1000 and header["privacy"].startswith("measured by others")  # fmt: skip
    assert [one["clique"] for one in header["measurements"]] == [["city"], ["rich"], ["city", "rich"]]
    weights, noisy = (np.reshape(arrays[2][name], (3, 2)) for name in ("weights", "noisy_measurement"))
    assert noisy / weights == pytest.approx(pair.table) and header["measurements"][2]["stddev"] == pytest.approx(8)
    assert header["measurements"][2]["stddev"] / weights == pytest.approx(pair.scale)
    smooth = publish(people(500, 0), DOMAIN, epsilon=1.0, delta=1e-6, kernel="table", points=50)
    with pytest.raises(ValueError, match="random-fourier features of all columns"):
        export_mbi(smooth, tmp_path / "b.json")
    with pytest.raises(ValueError, match="this release has no measurement"):
        export_mbi(ka.from_frame(smooth.frame.assign(weight=0.02), domain=DOMAIN), tmp_path / "b.json")
    with pytest.raises(ValueError, match="Name a file with such an ending"):
        export_mbi(release, tmp_path / "b.csv")


def test_correlated_noise_counts_as_independent_noise_that_is_no_smaller_in_any_direction() -> None:
    """Of random covariances; the noise of counts that were made to add up to N, and one that all cells share, by hand."""
    rng = np.random.default_rng(0)
    for n, k in ((2, 1), (5, 3), (12, 12), (40, 60)):
        root = rng.normal(size=(n, k)) * rng.uniform(0.01, 10, n)[:, None]
        covariance = root @ root.T + 1e-3 * np.eye(n)
        least = np.linalg.eigvalsh(np.diag(independent_bound(covariance)) - covariance)[0]
        assert least >= -1e-9 * covariance.max() and least < 0.5 * covariance.diagonal().max()
    centred = 9 * (np.eye(3) - 1 / 3)
    rows = people(5000, 4)
    frame = rows.groupby("city").size().reindex(DOMAIN["city"].levels).rename("count").reset_index()  # type: ignore[attr-defined]
    city, errors = Domain((DOMAIN["city"],)), []
    for covariance in (centred, centred + 9 / 3):
        release = ka.from_measurements(city, [NoisyTable(frame, covariance=covariance)], n_rows=5000)
        assert release.statement is not None and "independent noise that is no smaller" in release.statement.notes[0]  # type: ignore[union-attr]
        errors.append(release.probability("city == 'Genf'").parts["privacy"])
    assert errors == pytest.approx(2 * [6**0.5 / 5000], rel=1e-3)  # that of one of three cells whose sum is known, exactly
    shared = NoisyTable(frame, covariance=np.full((3, 3), 4.0))
    assert cells_of_table(shared, city).deviations == pytest.approx(np.full(3, 12**0.5))


def test_bad_input_is_refused_in_a_sentence() -> None:
    refusals.check(Path(__file__).with_name("refusals_of_others.txt"), lambda text: eval(text, globals()))
