"""Later points of a released function: one noisy function in two parts, and no further spend."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.linalg import eigh
from scipy.stats import chi2

import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.pivots import Pivots, stretch_of
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.file import read_function, write_function
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.function import ReleasedFunction, function_of
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.statement import zcdp_rho
from release_side.budget.ledger import Ledger
from release_side.cli.main import main
from release_side.door.kernel_machines import MOST_PARTS
from release_side.door.mechanism import GaussianNoise, PublishError
from release_side.publishing.extending import extend_function
from release_side.publishing.functions import function_digest, publish_function

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
X = Real(name="x", lower=-3.0, upper=3.0)
DOMAINS = {"density": Domain((X,)), "logistic": Domain((X, Boolean(name="y")))}
TARGETS = {"density": None, "logistic": "y"}
NEW = pd.DataFrame({"x": [-2.2, 0.7, 1.4]})
both_kinds = pytest.mark.parametrize("kind", list(DOMAINS))


def table_of(n_rows: int = 80, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows).clip(-3, 3)
    return pd.DataFrame({"x": x, "y": x + rng.normal(size=n_rows) > 0})


def first(kind: str, ledger: Path, table: pd.DataFrame | None = None, **more: Any) -> ReleasedFunction:
    options: Any = {"kind": kind, "target": TARGETS[kind], "kernel": Gaussian(0.9), "grid": 5, **BUDGET} | more
    rows = table_of() if table is None else table
    return publish_function(rows, DOMAINS[kind], ledger=ledger, table="t", **options)


def further(kind: str, ledger: Path, function: Any, table: pd.DataFrame | None = None, **more: Any) -> ReleasedFunction:
    rows = table_of() if table is None else table
    options: Any = {"pivots": NEW, "ledger": ledger, "table": "t"} | more
    return extend_function(rows, DOMAINS[kind], function, **options)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The place of a ledger in which table "t" is unlimited."""
    Ledger(tmp_path / "ledger").init("t", unlimited=True)
    return tmp_path / "ledger"


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole coordinates are released as they are: for tests only."""
    monkeypatch.setattr(GaussianNoise, "add_to", lambda self, exact, *, sensitivity: exact)


# ---------------------------------------------------------------------- one noisy function, in two parts


@both_kinds
def test_what_was_released_stays_and_new_values_are_added(kind: str, ledger: Path):
    old = first(kind, ledger)
    new = further(kind, ledger, old)
    size = old.basis.dimension
    assert new.basis.dimension == size + 3
    np.testing.assert_array_equal(new.noisy_sum[:size], old.noisy_sum)
    np.testing.assert_array_equal(new.basis.points[:size], old.basis.points)
    np.testing.assert_allclose(new.values(old.pivots), old.values(old.pivots), atol=1e-6)
    assert new.statement.ledger_head != old.statement.ledger_head
    same = {"taken_as_public": old.statement.taken_as_public, "ledger_head": old.statement.ledger_head}
    assert replace(new.statement, public_points=0, **same) == old.statement
    assert new.statement.public_points == 3 and "gets no protection" in new.statement.taken_as_public[-1]
    assert (old.evaluate(NEW)["unseen"] > 10 * new.evaluate(NEW)["unseen"] + 1e-3).all()


@both_kinds
def test_two_parts_without_noise_are_one_release_at_all_pivots(kind: str, ledger: Path, no_noise: None):
    old = first(kind, ledger)
    new = further(kind, ledger, old)
    Ledger(ledger.with_name("other")).init("t", unlimited=True)
    together = first(kind, ledger.with_name("other"), grid=None, pivots=new.pivots)
    assert together.basis.dimension == new.basis.dimension
    np.testing.assert_allclose(new.values(new.pivots), together.values(new.pivots), atol=1e-6)


def test_the_noise_of_both_parts_has_the_law_of_one(ledger: Path):
    """Squares of standardised noise on old and new values are χ², of all and in one direction. False alarm 10⁻⁴ each.

    The direction is where the law differs most from independent parts; with those, they are not χ² there.
    """
    errors = []
    for _ in range(60):
        old = first("density", ledger)
        new = further("density", ledger, old)
        exact = new.basis.kernel.gram(new.basis.points, table_of()[["x"]].to_numpy()).mean(axis=1)
        errors.append(new.pivot_values - exact)
    noise, covariance, size = np.array(errors), new.pivot_covariance, old.basis.dimension
    apart = covariance.copy()
    apart[:size, size:] = apart[size:, :size] = 0
    direction = eigh(covariance, apart)[1][:, 0]

    def plausible(covariance: Array) -> tuple[bool, bool]:
        alone = np.sum(noise * np.linalg.solve(covariance, noise.T).T)
        one_way = np.sum((noise @ direction) ** 2) / (direction @ covariance @ direction)
        tails = (chi2.cdf(alone, noise.size), chi2.cdf(one_way, len(noise)))
        return bool(abs(tails[0] - 0.5) < 0.49995), bool(abs(tails[1] - 0.5) < 0.49995)

    assert plausible(covariance) == (True, True)
    assert not plausible(apart)[1]


@both_kinds
def test_old_and_new_coordinates_of_neighbours_are_bounded_together(kind: str, ledger: Path, no_noise: None):
    one, other = table_of(30), table_of(30)
    one.loc[0], other.loc[0] = ([0.7, True], [-3.0, False]) if kind == "density" else ([0.7, True], [0.7, False])
    sums = []
    for table in (one, other):
        old = first(kind, ledger, table)
        sums.append(further(kind, ledger, old, table).noisy_sum.astype(float))
        ledger.unlink()  # of two tables there are two ledgers
        Ledger(ledger).init("t", unlimited=True)
    moved = np.linalg.norm(sums[0] - sums[1])
    alone = np.linalg.norm((sums[0] - sums[1])[: old.basis.dimension])
    bound = old.form.grid_sensitivity(old.basis)
    assert alone < moved <= bound
    assert moved > (0.99 * 2**0.5 if kind == "density" else 0.05) * GRID


def test_coordinates_that_are_stretched_together_are_seen():
    old = Pivots.fit(Gaussian(0.9), np.linspace(-3, 3, 5)[:, None])
    new = old.extended(NEW.to_numpy())
    joint = new.matrix.copy()
    joint[:5, :5] = old.matrix
    assert stretch_of(old.kernel, new.points, joint)[0] < 2**-12
    joint[5:, :5] = 0  # as if the new coordinates were not orthogonal to the old
    assert stretch_of(old.kernel, new.points, joint)[0] > 2**-11


def test_coordinates_of_every_part_are_those_of_the_map_there_was_then():
    grown = [Pivots.fit(Gaussian(0.9), np.linspace(-3, 3, 5)[:, None])]
    for points in (NEW.to_numpy(), np.array([[2.2]])):
        grown.append(grown[-1].extended(points, parts=[each.dimension for each in grown]))
    assert [each.dimension for each in grown] == [5, 8, 9]
    joint = grown[2].in_parts([8, 5, 8])
    for basis, rows in zip(grown, (slice(0, 5), slice(5, 8), slice(8, 9)), strict=True):
        assert joint[rows, : basis.dimension].tobytes() == basis.matrix[rows].tobytes()
        assert (joint[rows, basis.dimension :] == 0).all()


@pytest.mark.parametrize("part", [5, 8])
def test_an_extension_is_proven_with_each_earlier_part_as_it_was(part: int, monkeypatch: pytest.MonkeyPatch):
    """As if a part had been measured by a matrix a little longer than that of today, which would pass for itself."""
    whole = Pivots.fit(Gaussian(0.9), np.linspace(-3, 3, 5)[:, None]).extended(NEW.to_numpy(), parts=())
    matrix = Pivots.__dict__["matrix"].func
    monkeypatch.setattr(
        Pivots, "matrix", property(lambda self: matrix(self) * (1.00016 if self.dimension == part else 1.0))
    )
    assert Pivots(whole.kernel, whole.points[:part]).dimension == part
    with pytest.raises(ValueError, match="the function is known at these points"):
        whole.extended(np.array([[2.2]]), parts=[5, 8])


def test_the_ledger_tells_an_extension_of_all_parts_before_it(ledger: Path, monkeypatch: pytest.MonkeyPatch):
    told, extended = [], Pivots.extended

    def listening(self: Pivots, points: Array, *, parts: Any = ()) -> Pivots:
        told.append(tuple(parts))
        return extended(self, points, parts=parts)

    monkeypatch.setattr(Pivots, "extended", listening)
    function = first("density", ledger)
    first("density", ledger)  # another function's parts are not this one's
    for x in (0.7, 2.2, -2.2):
        function = further("density", ledger, function, pivots=pd.DataFrame({"x": [x]}))
    assert told == [(5,), (5, 6), (5, 6, 7)]


def test_points_near_the_pivots_are_left_out_and_of_them_alone_nothing_is_made(ledger: Path):
    old = first("density", ledger)
    near = pd.DataFrame({"x": [*old.pivots["x"], 0.7, 0.7, 0.7 + 1e-9]})
    assert further("density", ledger, old, pivots=near).basis.dimension == old.basis.dimension + 1
    again = first("density", ledger, grid=5)
    with pytest.raises(PublishError, match=r"nothing to extend: the function is known at these points.*Evaluate"):
        further("density", ledger, again, pivots=again.pivots)


# ---------------------------------------------------------------------- drawn once


@both_kinds
def test_an_extension_spends_nothing_and_is_recorded(kind: str, ledger: Path):
    Ledger(ledger).init("t", 1.0, 1e-6)  # nothing else would fit
    old = first(kind, ledger)
    before = Ledger(ledger).account("t")
    assert before.extensions == () and "extensions" not in before.to_dict()
    new = further(kind, ledger, old)
    after = Ledger(ledger).account("t")
    assert (after.total_epsilon, after.releases) == (before.total_epsilon, before.releases)
    (recorded,) = after.extensions
    assert (recorded.release, recorded.pivots) == (1, new.basis.dimension)
    third = further(kind, ledger, new, pivots=pd.DataFrame({"x": [2.2]}))
    assert [each.pivots for each in Ledger(ledger).account("t").extensions] == [8, 9] and third.basis.dimension == 9
    assert after.to_dict()["extensions"][0]["pivots"] == 8


def test_a_state_is_extended_once_for_else_noise_could_be_averaged_away(ledger: Path):
    old = first("density", ledger)
    further("density", ledger, old)
    with pytest.raises(PublishError, match=r"extended already: once more would show the same values with other noise"):
        further("density", ledger, old)
    with pytest.raises(PublishError, match="extended already"):
        further("density", ledger, old, pivots=pd.DataFrame({"x": [2.2]}))  # other points are correlated with these


def test_a_state_counts_as_extended_before_noise_is_drawn(ledger: Path, monkeypatch: pytest.MonkeyPatch):
    old = first("density", ledger)

    def broken(self: Any, exact: Array, *, sensitivity: float) -> Array:
        raise RuntimeError("the power failed")

    with monkeypatch.context() as patch:
        patch.setattr(GaussianNoise, "add_to", broken)
        with pytest.raises(RuntimeError):
            further("density", ledger, old)
    with pytest.raises(PublishError, match="extended already"):
        further("density", ledger, old)


def test_of_two_at_once_only_one_extends(ledger: Path):
    """Both have checked; the second finds the state taken when it comes to draw."""
    old = first("density", ledger)
    book = Ledger(ledger)
    book.check_extensible("t", function_digest(old), most=16)
    first_one = book.extend("t", function_digest(old), most=16)
    assert first_one == 1
    checked = Ledger.check_extensible
    try:
        Ledger.check_extensible = lambda *args, **options: None  # type: ignore[method-assign]
        with pytest.raises(PublishError, match="extended already"):
            book.extend("t", function_digest(old), most=16)
    finally:
        Ledger.check_extensible = checked  # type: ignore[method-assign]


def test_only_the_ledger_that_counted_it_extends_a_function(ledger: Path, tmp_path: Path):
    old = first("density", ledger)
    other = tmp_path / "other"
    Ledger(other).init("t", 1.0, 1e-6)
    Ledger(ledger).init("u", 1.0, 1e-6)
    for wrong, name in ((other, "t"), (ledger, "u")):
        with pytest.raises(
            PublishError, match=r"knows of no such function of table '[tu]'.*Name the ledger and the table"
        ):
            further("density", wrong, old, table=table_of()) if name == "t" else extend_function(
                table_of(), DOMAINS["density"], old, pivots=NEW, ledger=wrong, table=name
            )
    uncounted = publish_function(table_of(), DOMAINS["density"], kind="density", **BUDGET)
    with pytest.raises(PublishError, match="knows of no such function"):
        further("density", ledger, uncounted)
    with pytest.raises(PublishError, match="there is no ledger"):
        further("density", tmp_path / "nowhere", old)


def weaker(old: ReleasedFunction) -> ReleasedFunction:
    """The same numbers, with a promise a hundred times worse and the noise that belongs to it."""
    noise, said = GaussianNoise(10.0, 1e-3), old.statement
    statement = replace(
        said, epsilon=10.0, delta=1e-3, noise_scale=noise.multiplier() * said.sensitivity,
        rho=zcdp_rho(said.mechanism, noise_multiplier=noise.multiplier()),
    )  # fmt: skip
    return function_of(form=old.form, domain=old.domain, basis=old.basis, noisy_sum=old.noisy_sum, statement=statement)


def of_another_kernel(old: ReleasedFunction) -> ReleasedFunction:
    kernel = replace(old.basis.kernel, kernel=Gaussian(0.6))  # type: ignore[type-var]
    basis = Pivots(kernel, old.basis.points)
    return function_of(form=old.form, domain=old.domain, basis=basis, noisy_sum=old.noisy_sum, statement=old.statement)


def of_a_wider_column(old: ReleasedFunction) -> ReleasedFunction:
    domain = Domain((replace(X, upper=4.0),))
    return function_of(form=old.form, domain=domain, basis=old.basis, noisy_sum=old.noisy_sum, statement=old.statement)


def of_another_regularisation(old: ReleasedFunction) -> ReleasedFunction:
    """Whose sensitivity is ten times smaller, and the noise with it: another function of the table, for nothing."""
    form, said = replace(old.form, regularisation=10 * old.form.penalty), old.statement
    assert said.noise_scale is not None
    statement = replace(said, sensitivity=said.sensitivity / 10, noise_scale=said.noise_scale / 10)
    return function_of(form=form, domain=old.domain, basis=old.basis, noisy_sum=old.noisy_sum, statement=statement)


@pytest.mark.parametrize("forged", [weaker, of_another_kernel, of_a_wider_column, of_another_regularisation])
@pytest.mark.parametrize("written", [True, False], ids=["file", "object"])
def test_a_file_that_says_other_things_of_the_same_numbers_is_not_extended(
    forged: Any, written: bool, ledger: Path, tmp_path: Path
):
    """Its noise, or its function, would be another than what was counted: a second spend, of any size."""
    kind = "logistic" if forged is of_another_regularisation else "density"
    old = first(kind, ledger)
    strange: Any = forged(old)
    if written:
        write_function(strange, tmp_path / "strange.kme")  # no reader finds anything wrong with it
        strange = tmp_path / "strange.kme"
    domain = Domain((replace(X, upper=4.0),)) if forged is of_a_wider_column else DOMAINS[kind]
    with pytest.raises(PublishError, match=r"knows of no such function of table 't'.*the file as it was written"):
        extend_function(table_of(), domain, strange, pivots=NEW, ledger=ledger, table="t")
    write_function(old, tmp_path / "old.kme")
    assert further(kind, ledger, tmp_path / "old.kme").basis.dimension == 8  # the honest file is


def test_whatever_fails_after_the_draw_says_so(ledger: Path, monkeypatch: pytest.MonkeyPatch):
    old = first("density", ledger)

    def broken(self: Any, release: int, state: str, pivots: int) -> None:
        raise PublishError("the disk is full.")

    monkeypatch.setattr(Ledger, "register_function", broken)
    with pytest.raises(PublishError, match=r"the disk is full\. The noise had been drawn, so the old file counts as"):
        further("density", ledger, old)


def test_more_points_than_a_reader_takes_are_refused_before_the_draw(ledger: Path, monkeypatch: pytest.MonkeyPatch):
    old = first("density", ledger)
    monkeypatch.setattr("release_side.publishing.functions.USUAL", dataclasses.replace(USUAL, pivot_work=60))
    with pytest.raises(PublishError, match="8 points are too many: readers allow"):
        further("density", ledger, old)
    monkeypatch.undo()
    further("density", ledger, old)


def test_a_function_has_no_more_parts_than_are_proven_for(ledger: Path):
    function = first("density", ledger)
    Ledger(ledger).register_function(1, "0" * 64, 5)
    with pytest.raises(PublishError, match="has 2 parts, and at most 2 are proven for"):
        Ledger(ledger).check_extensible("t", function_digest(function), most=2)
    assert MOST_PARTS == 16


# ---------------------------------------------------------------------- by public facts alone


def test_a_changed_table_is_not_told_from_the_same(ledger: Path, capfd: Any, caplog: Any):
    """That it is the same is the curator's word; an error would say something of the rows."""
    old = first("density", ledger)
    caplog.clear()
    new = further("density", ledger, old, table_of(seed=9))
    assert new.basis.dimension == old.basis.dimension + 3
    assert caplog.messages == [] and capfd.readouterr() == ("", "")


def test_a_table_of_other_size_or_columns_is_refused(ledger: Path):
    old = first("logistic", ledger)
    with pytest.raises(PublishError, match=r"has 81 rows, and the function is of 80: it is another table"):
        further("logistic", ledger, old, table_of(81))
    with pytest.raises(PublishError, match="the domain is not the one that the function was published with"):
        extend_function(table_of(), DOMAINS["density"], old, pivots=NEW, ledger=ledger, table="t")


def test_further_points_must_be_named_once(ledger: Path):
    old = first("density", ledger)
    for wrong in ({"pivots": None}, {"grid": 9}):
        with pytest.raises(PublishError, match="an extension needs further points: pivots, or a grid, and not both"):
            further("density", ledger, old, **wrong)


def test_a_number_of_threads_that_is_none_is_refused_by_both(ledger: Path):
    with pytest.raises(PublishError, match="workers must be a whole number of at least 1, got -1"):
        first("density", ledger, workers=-1)
    old = first("density", ledger)
    with pytest.raises(PublishError, match="workers must be a whole number of at least 1, got True"):
        further("density", ledger, old, workers=True)
    further("density", ledger, old, workers=2)


def test_other_software_does_not_mix_two_laws_of_noise(ledger: Path, monkeypatch: pytest.MonkeyPatch):
    old = first("density", ledger)
    multiplier = GaussianNoise(1.0, 1e-6).multiplier()
    monkeypatch.setattr(GaussianNoise, "multiplier", lambda self: multiplier * (1 + 1e-6))
    with pytest.raises(PublishError, match=r"this software would draw .*one law has to hold for all of it"):
        further("density", ledger, old)


def test_a_rehearsal_is_not_extended(ledger: Path, monkeypatch: pytest.MonkeyPatch):
    old = publish_function(
        table_of(), DOMAINS["density"], kind="density", kernel=Gaussian(0.9), grid=5, rehearsal=1, **BUDGET
    )
    monkeypatch.setattr(Ledger, "check_extensible", lambda *args, **options: None)
    with pytest.raises(PublishError, match="a rehearsal, which protects nobody and is not extended"):
        further("density", ledger, old)


# ---------------------------------------------------------------------- the command


def test_functions_are_published_extended_and_evaluated_from_the_command_line(tmp_path: Path):
    from kmeanalyst.cli.main import main as analyst

    table_of().to_csv(tmp_path / "private.csv", index=False)
    NEW.to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "domain.toml").write_text(domain_toml(DOMAINS["logistic"]), encoding="utf-8")
    place = {
        name: str(tmp_path / name) for name in ("private.csv", "new.csv", "domain.toml", "ledger", "a.kme", "b.kme")
    }
    Ledger(place["ledger"]).init("t", unlimited=True)
    counted = ["--domain", place["domain.toml"], "--ledger", place["ledger"], "--table", "t"]

    def run(command: Any, *words: str) -> Any:
        result = CliRunner().invoke(command, list(words))
        assert result.exit_code == 0, result.output
        return result

    machine = ["--kind", "logistic", "--target", "y", "--grid", "5", "--epsilon", "1", "--delta", "1e-6"]
    told = run(main, "publish-function", place["private.csv"], *counted, *machine, "--output", place["a.kme"], "--json")
    assert json.loads(told.stdout)["kind"] == "logistic"
    more = ["--pivots", place["new.csv"], "--output", place["b.kme"]]
    shown = run(main, "extend-function", place["private.csv"], place["a.kme"], *counted, *more)
    assert "pivots      8 points" in shown.stdout
    assert "extended to 8 pivots: release 1" in run(main, "ledger", "show", place["ledger"]).stdout
    answers = json.loads(run(analyst, "evaluate", place["b.kme"], place["new.csv"], "--json").stdout)
    assert answers["kind"] == "logistic" and len(answers["points"]) == 3
    first_point = answers["points"][0]
    assert set(first_point) == {"value", "standard_error", "unseen", "prediction", "probability"}
    function = read_function(place["b.kme"])
    assert first_point["value"] == pytest.approx(function.values(NEW)[0])
    assert "standard_error" in run(analyst, "evaluate", place["b.kme"], place["new.csv"]).stdout
    assert json.loads(run(analyst, "info", place["b.kme"], "--json").stdout)["n_pivots"] == 8
    assert "ReleasedLogistic" in run(analyst, "info", place["b.kme"]).stdout
    assert json.loads(run(analyst, "validate", place["b.kme"], "--json").stdout) == {"valid": True, "findings": []}
    density = [
        "--kind",
        "kde",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--kernel",
        "table",
        "--output",
        str(tmp_path / "c.kme"),
    ]
    assert "density" in run(main, "publish-function", place["private.csv"], *counted, *density).stdout
    refused = CliRunner().invoke(main, ["extend-function", place["private.csv"], place["a.kme"], *counted, *more[:2],
                                        "--output", str(tmp_path / "d.kme")])  # fmt: skip
    assert refused.exit_code == 1 and "extended already" in refused.output
    assert release_side.extend_function is extend_function
