"""Draws of the table and replicate weights: spread as answers say, rows as the table has them, one rule for each folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from command_line import answer, call
from drawn_cases import OF_TABLES, of_tables
from public_names import ready_names

import kmeanalyst as ka
from kmeanalyst.inference.draws.draws import PositiveWeights, column_shares, draws, products_of_scores, replicates  # noqa: F401
from kmeanalyst.inference.draws.folder import write_draws
from kmeanalyst.inference.estimate.error_model import fitted_model
from kmeanalyst.releases.expressions import parse
from release_side import publish

SMOOTH = ready_names(["release"])["release"]
OF_SMOOTH = ("age", "sex == 'Female'", "income == '>50K'", "age > 50", "age > 40 and sex == 'Male'")


def asked(release: ka.Release, questions: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Values of the questions at the rows of the fit, and their errors of privacy and resolution."""
    frame = fitted_model(release).frame
    values = np.column_stack([np.asarray(parse(q).evaluate(frame, release.columns), dtype=float) for q in questions])
    found = release.expectations(list(questions))
    return values, np.array([np.hypot(e.parts["privacy"], e.parts["resolution"]) for e in found])


@pytest.mark.parametrize(("release", "questions", "least"), [
    (of_tables, OF_TABLES, 0.85), (lambda: SMOOTH, OF_SMOOTH, 0.6),
], ids=["tables", "smooth"])  # fmt: skip
def test_deviations_are_as_wide_as_privacy_and_resolution(release, questions, least):
    """200 draws: a standard deviation is known to 5 %. Refits of smooth features depart further than draws in some questions."""
    values, expected = asked(release(), questions)
    drawn = fitted_model(release()).deviations(200, np.random.default_rng(0))
    ratio = (values.T @ drawn).std(axis=1) / expected
    assert np.all((least < ratio) & (ratio < 1.2)), ratio
    assert np.abs(drawn.sum(axis=0)).max() < 1e-9
    assert np.abs((values.T @ drawn).mean(axis=1) / expected).max() < 4 / np.sqrt(200)


@pytest.mark.parametrize(("release", "questions"), [
    (of_tables, OF_TABLES), pytest.param(lambda: SMOOTH, OF_SMOOTH, marks=pytest.mark.slow),
], ids=["tables", "smooth"])  # fmt: skip
def test_answers_of_draws_are_spread_by_privacy_and_resolution_around_the_release(release, questions):
    """40 tables: a standard deviation is known to 11 %."""
    release = release()
    _, expected = asked(release, questions)
    tables = release.draws(40, rng=1)
    n = release.measurement.n_rows
    assert all(len(table) == n and list(table) == list(release.columns.names) for table in tables)
    found = np.array([[np.mean(parse(q).evaluate(table, release.columns)) for q in questions] for table in tables])
    ratio = found.std(axis=0, ddof=1) / expected
    assert np.all((ratio > 0.5) & (ratio < 1.5)) and 0.75 < ratio.mean() < 1.25, ratio
    off = (found.mean(axis=0) - [e.value for e in release.expectations(list(questions))]) / expected
    assert np.abs(off).max() < 1.0, off


def test_draws_are_told_by_their_seed():
    one, same, other = (of_tables().draws(2, rows=50, rng=seed)[1] for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, same)
    assert len(one) == 50 and not one.equals(other)


def test_few_replicates_are_warned_of():
    with pytest.warns(UserWarning, match=r"off by ± 16 %, and .* t distribution with 19 degrees of freedom\. Take R = 100"):
        of_tables().replicates(20, rng=0)


def test_what_cannot_be_drawn_is_refused():
    names = {**globals(), "release": of_tables()}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))


def test_positive_weights_by_hand():
    """Two rows of 1/2 and one function, 1 at the first: targets of .8 and of 1.5, with a small ridge.

    w = (.8, .2) meets the first; no weights meet the second, and the nearest are (1, 0). A large ridge leaves them as they are.
    """
    positive = PositiveWeights(np.full(2, 0.5), np.array([[1.0], [0.0]]), np.array([1e-4]))
    found = positive.nearest(np.array([[0.8, 1.5], [0.2, -0.5]]))
    assert found == pytest.approx(np.array([[0.8, 1.0], [0.2, 0.0]]), abs=1e-3)
    held = PositiveWeights(np.full(2, 0.5), np.array([[1.0], [0.0]]), np.array([1e6]))
    assert held.nearest(np.array([[0.8], [0.2]])) == pytest.approx(np.full((2, 1), 0.5), abs=1e-4)


def test_what_a_row_cannot_have_is_no_other_rows_loss():
    """Three rows of 1/3, targets -.2 and .4 of the first two: (0, .4, .6) is nearest, not (-.2, .4, .8) cut off and scaled."""
    positive = PositiveWeights(np.full(3, 1 / 3), np.eye(3)[:, :2], np.full(2, 1e-4))
    found = positive.nearest(np.array([[-0.2], [0.4], [0.8]]))
    assert found[:, 0] == pytest.approx([0.0, 0.4, 0.6], abs=3e-3)


def test_functions_are_shares_of_columns_and_products_of_scores():
    """Three levels by two, a frequent number with a range of its own, missing cells as a group; a constant has no product."""
    frame = pd.DataFrame({
        "a": ["x", "y", "z", "x"] * 25, "b": [True, False] * 50, "n": np.where(np.arange(100) < 30, 7.0, np.arange(100)),
        "m": [np.nan, 1.0] * 50, "d": pd.to_datetime(["2020-01-01", None] * 50), "c": ["one"] * 100,
    })  # fmt: skip
    p = np.full(100, 0.01)
    shares, (products, none) = column_shares(frame, p), products_of_scores(frame[["a", "n"]], p, p)
    for where in (frame["a"] == "y", frame["n"] == 7, frame["m"].isna()):
        share = where.mean()
        assert np.abs(shares - ((where - share) / np.sqrt(share)).to_numpy()[:, None]).max(axis=0).min() < 1e-12
    for functions in (shares, products):
        assert np.abs(p @ functions).max() < 1e-12 and np.isfinite(functions).all()
    assert p @ products**2 == pytest.approx(np.ones(products.shape[1]))
    x, n = (frame["a"] == "x") - 0.5, frame["n"] - frame["n"].mean()
    own = (x * n - (x * n).mean()) / (x * n).std(ddof=0)
    assert np.abs(products - own.to_numpy()[:, None]).max(axis=0).min() < 1e-9
    assert (
        none.shape
        == products_of_scores(frame[["a"]], p, p)[0].shape
        == products_of_scores(frame[["c", "m"]], p, p)[0].shape
        == (100, 0)
    )
    two = pd.DataFrame({"a": [0, 1] * 50, "b": [0, 1] * 50})
    assert np.abs(products_of_scores(two, p, p)[0]).max() == 0  # a product that is constant is not a function
    three = products_of_scores(pd.DataFrame({name: np.arange(1000) // size % 2 for name, size in (("a", 1), ("b", 2), ("c", 4))}),
                               np.full(1000, 0.001), np.full(1000, 0.001))  # fmt: skip
    assert np.abs(np.abs(three[1]) - 1).max() < 1e-9 and np.abs(three[1].T @ three[0]).max() < 1e-9


def test_products_are_at_most_a_tenth_of_the_rows_and_those_of_related_columns():
    """30 columns of two levels have 1,740 products; 80 % of the cells of the last column are those of the one before."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{j}": rng.random(600) < 0.4 for j in range(29)})
    frame["x29"] = np.where(rng.random(600) < 0.8, frame["x28"], rng.random(600) < 0.4)
    p = np.full(600, 1 / 600)
    products, of_three = products_of_scores(frame, p, p)
    assert products.shape == (600, 60) and of_three.shape == (600, 0)
    own = (frame["x28"] - frame["x28"].mean()) * (frame["x29"] - frame["x29"].mean())
    assert np.corrcoef(products.T, own)[-1, :-1].max() > 1 - 1e-9


def test_pairs_of_columns_keep_their_error_in_a_table_of_many_columns():
    """12 columns and deviations of κ = .015 in every direction of 4,000 rows: 60 times as much as rows of weights 0 or more allow.

    Standard deviations over 40 draws (known to 11 %) of shares and of pairs of levels; weights cut off at 0 and scaled have half.
    """
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"x{j}": rng.choice(list("abc"), 4000, p=[0.5, 0.3, 0.2]) for j in range(12)})
    p = np.full(4000, 1 / 4000)
    drawn = np.sqrt(0.015 * p)[:, None] * rng.standard_normal((4000, 40))
    drawn -= p[:, None] * drawn.sum(axis=0)
    a, b = frame == "a", frame == "b"
    asked = [a["x0"], frame["x5"] == "c", a["x1"] & b["x2"], a["x3"] & a["x9"]]
    values = np.column_stack(asked).astype(float)
    wanted = np.sqrt(0.015 * values.var(axis=0))
    ratio = (values.T @ PositiveWeights.of(frame, p, p).nearest(p[:, None] + drawn)).std(axis=1) / wanted
    assert np.all((ratio > 0.7) & (ratio < 1.3)) and ratio.mean() > 0.85, ratio
    cut = np.maximum(p[:, None] + drawn, 0.0)
    assert ((values.T @ (cut / cut.sum(axis=0))).std(axis=1) / wanted).mean() < 0.7


def test_a_folder_of_draws_names_its_rule(tmp_path):
    release = of_tables()
    options = ("--draws", 2, "--rows", 30, "--seed", 1, "--allow-rehearsal", "--json")
    found = answer(call("kmeanalyst", "export", _written(release, tmp_path), tmp_path / "out", *options))
    assert (found["draws"], found["rows"], found["rule"]) == (2, 30, "Rubin")
    table = pd.read_csv(tmp_path / "out" / "rows_2.csv")
    assert len(table) == 30 and set(table["NOT_PRIVATE"]) == {"rehearsal"}
    text, rule = (tmp_path / "out" / "README.txt").read_text(), json.loads((tmp_path / "out" / "rule.json").read_text())
    assert rule["rule"] == "Rubin" and rule["m"] == 2 and "mice::pool" in rule["code"]["R"]
    assert "U + (1 + 1/2) B" in text and "pool.syn" in text and "too narrow" in text and "mi estimate" in text


def test_a_folder_of_replicates_names_its_rule(tmp_path):
    result = call("kmeanalyst", "export", _written(of_tables(), tmp_path), tmp_path / "out", "--replicates", 4,
                  "--allow-rehearsal", "--json")  # fmt: skip
    assert "R = 4 replicates" in result.stderr
    assert answer(result)["rule"] == "replicate weights"
    rule = json.loads((tmp_path / "out" / "rule.json").read_text())
    assert rule["scale"] == 0.25 and 'type = "other"' in rule["code"]["R"] and "mse = TRUE" in rule["code"]["R"]
    assert "weight" in pd.read_csv(tmp_path / "out" / "rows.csv")


def test_a_folder_of_named_columns_says_so(tmp_path):
    path = _written(of_tables(), tmp_path)
    for rule, number in (("--draws", 2), ("--replicates", 100)):
        options = (rule, number, "--columns", "sex, job", "--allow-rehearsal", "--json")
        answer(call("kmeanalyst", "export", path, tmp_path / rule, *options))
        assert "of the columns job, sex alone" in (tmp_path / rule / "README.txt").read_text()
    assert set(pd.read_csv(tmp_path / "--draws" / "rows_1.csv")) == {"job", "sex", "NOT_PRIVATE"}
    result = call("kmeanalyst", "export", path, tmp_path / "rows.csv", "--columns", "sex", "--allow-rehearsal")
    assert result.exit_code == 2 and "--columns goes with --draws or --replicates" in result.stderr


def test_a_folder_has_one_rule(tmp_path):
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(ValueError, match=r"is not empty, and a folder has one rule .*Name a new folder"):
        write_draws(of_tables(), tmp_path, of_tables().draws(2, rows=5, rng=0))
    for options in (("--draws", 2, "--replicates", 3), ("--draws", 2, "--view", "fitted"), ("--replicates", 3, "--rows", 5)):
        assert call("kmeanalyst", "export", "x.kme", tmp_path / "new", *options).exit_code == 2


def _written(release: ka.Release, folder) -> str:
    release.write(folder / "r.kme")
    return str(folder / "r.kme")


def test_an_interaction_of_named_columns_has_the_value_and_the_error_that_it_has_in_the_release():
    """Where their table was counted, draws were drawn to no interaction, with a third of the error."""
    rng, n = np.random.default_rng(2), 10_000
    f, p = rng.random(n) < 0.5, rng.random(n)
    p = p < np.where(f, 0.45, 0.12)
    u = rng.random(n) < np.where(f & p, 0.45, np.where(f | p, 0.2, 0.35))
    domain = ka.Domain(tuple(ka.Boolean(name=name) for name in ("f", "p", "u")))
    release = publish(pd.DataFrame({"f": f, "p": p, "u": u}), domain, epsilon=1.0, delta=1e-6, uncounted=True, rehearsal=2)
    direct = release.probability("f and p and u")
    error = np.hypot(direct.parts["privacy"], direct.parts["resolution"])
    shares = np.array([(table["f"] & table["p"] & table["u"]).mean() for table in release.draws(40, rng=0)])
    assert shares.mean() == pytest.approx(direct.value, abs=error)
    assert shares.std(ddof=1) == pytest.approx(error, rel=0.4)
    rates = np.array([table.groupby(["f", "p"])["u"].mean().to_numpy() for table in release.draws(10, rng=0)])
    odds = np.log(rates / (1 - rates)) @ [1, -1, -1, 1]
    assert odds.mean() == pytest.approx(release.glm("u ~ f * p", family="binomial").coefficients[-1].value, abs=0.2)
