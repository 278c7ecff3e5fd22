"""Released functions (Hall, Rinaldo & Wasserman 2013): sensitivity to one row, distribution of the noise, predictions.

Hostile neighbouring tables attack the sensitivities; statistical tests state how often they raise a false alarm.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from command_line import call
from contracts import KERNELS, KernelCase, every
from scipy.optimize import minimize
from scipy.stats import chi2

import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.pivots import Pivots, stretch_of
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.file import read_function
from kmeanalyst.releases.function import SLACK, FunctionForm, ReleasedFunction, function_of
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.statement import gaussian_delta
from release_side.budget.ledger import Ledger
from release_side.door import kernel_machines
from release_side.door.mechanism import GaussianNoise, PublishError
from release_side.door.private_function import private_function
from release_side.door.private_mean import integer_features, private_mean
from release_side.publishing.functions import publish_function

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
X = Real(name="x", lower=-3.0, upper=3.0)
NUMBER, CLASS = Real(name="y", lower=-1.0, upper=3.0), Boolean(name="y")
TARGETS = {"ridge": NUMBER, "logistic": CLASS, "svm": CLASS}
MACHINES = tuple(TARGETS)
PLANE = Domain((X, Real(name="z", lower=-3.0, upper=3.0)))
every_machine = pytest.mark.parametrize("kind", MACHINES)


def form_of(kind: str, regularisation: float = 0.05) -> FunctionForm:
    return FunctionForm(kind, TARGETS[kind], regularisation)


def domain_of(kind: str) -> Domain:
    return Domain((X,)) if kind == "density" else Domain((X, TARGETS[kind]))


def table_of(kind: str, n_rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows).clip(-3, 3)
    y = np.sin(2 * x) + 1 if kind == "ridge" else x + rng.normal(size=n_rows) > 0
    return pd.DataFrame({"x": x, "y": y})


def released(kind: str, private: pd.DataFrame | None = None, **options: Any) -> ReleasedFunction:
    """A function of this kind, published from its table and domain."""
    target = None if kind == "density" else "y"
    private = table_of(kind) if private is None else private
    return publish_function(private, domain_of(kind), **({"kind": kind, "target": target} | BUDGET | options))


def pivots(lengthscale: float, size: int) -> Pivots:
    return Pivots.fit(Gaussian(lengthscale), np.linspace(-3, 3, size)[:, None])


def minimiser(form: FunctionForm, X: Array, targets: Array, kernel: Any) -> Array:
    """α (n,) of a machine, by many more steps than any plan asks for."""
    smoothness = form.curvature * kernel.bound**2 + 2 * form.penalty
    steps = int(6 * smoothness / form.penalty) + 20
    plan = kernel_machines.Plan(steps=steps, length=2 / (smoothness + 2 * form.penalty), error=0)
    return kernel_machines.machine_weights(form, kernel.gram(X, X), targets, kernel.bound, plan)


def norm_of(kernel: Any, X: Array, weights: Array) -> float:
    """‖Σ w k(x, ·)‖."""
    return float(np.sqrt(max(0.0, weights @ kernel.gram(X, X) @ weights)))


def machine_sum(form: FunctionForm, basis: Pivots, *pieces: Array) -> Array:
    """What the door releases of a table in these pieces."""
    noise, n_rows = GaussianNoise(1.0, 1e-6), sum(map(len, pieces))
    return private_function(list(pieces), form, basis, noise, target=1, n_rows=n_rows).noisy_sum


# ---------------------------------------------------------------------- the bound of a density


@every([case for case in KERNELS if case.kernel.nonnegative])
def test_two_rows_images_are_never_further_apart_than_the_square_root_of_two(case: KernelCase):
    rng = np.random.default_rng(1)
    basis = Pivots.fit(case.kernel, case.rows(rng, 40))
    z = integer_features(np.vstack([basis.points, case.rows(rng, 400)]), basis)
    squares = (z**2).sum(axis=1)
    distances = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * z @ z.T, 0))
    assert distances.max() <= basis.diameter / basis.norm_bound * GRID == 2**0.5 * GRID


def test_the_bound_of_a_density_is_reached_by_rows_far_apart():
    basis = Pivots.fit(Gaussian(0.1), np.array([[0.0], [1.0]]))
    z = integer_features(np.array([[0.0], [1.0]]), basis)
    assert np.linalg.norm(z[0] - z[1]) > (1 - 2**-9) * 2**0.5 * GRID


def test_no_pair_of_rows_that_an_optimiser_finds_breaks_the_bound():
    basis = Pivots.fit(Gaussian(0.7), PLANE.draw(120, 0))

    def apart(pair: Array) -> float:
        one, other = integer_features(pair.reshape(2, 2), basis)
        return -float(np.linalg.norm(one - other) / GRID)

    starts = (PLANE.draw(2, seed).ravel() for seed in range(6))
    found = [minimize(apart, start, method="Nelder-Mead", options={"maxiter": 150}).fun for start in starts]
    assert 1.3 < -min(found) <= 2**0.5


def test_pivots_that_rounding_could_stretch_are_refused_and_others_are_picked():
    crowded = np.linspace(0, 1, 15)[:, None]
    message = r"stretch distances by .* at most .* Use Pivots\.fit|not linearly independent"
    with pytest.raises(ValueError, match=message):
        Pivots(Gaussian(0.4), crowded)
    kept = Pivots.fit(Gaussian(0.4), crowded)
    assert 3 < kept.dimension < 15
    gram = kept.kernel.gram(kept.points, kept.points)
    exact_excess = np.linalg.norm(kept.matrix @ gram @ kept.matrix.T, 2) ** 0.5 - 1
    assert exact_excess <= stretch_of(kept.kernel, kept.points, kept.matrix)[0] <= 2**-11
    assert stretch_of(kept.kernel, kept.points, 1.001 * kept.matrix)[0] > 2**-11  # the power of this check


def test_images_are_as_far_from_exact_ones_as_is_said():
    basis = pivots(0.5, 40)
    rows = np.random.default_rng(0).uniform(-3, 3, (500, 1))
    exact = basis.kernel.gram(rows, basis.points).astype(np.longdouble) @ basis.matrix.T.astype(np.longdouble)
    error = np.linalg.norm((basis(rows) - exact).astype(float), axis=1).max()
    assert 1e-13 < error <= basis.error


# ---------------------------------------------------------------------- what one row can move a machine


@every_machine
def test_replacing_one_row_moves_a_machine_by_at_most_the_sensitivity(kind: str):
    for regularisation in (0.01, 0.1, 5.0):
        form, kernel, rng = form_of(kind, regularisation), Gaussian(0.8), np.random.default_rng(2)
        for n_rows in (1, 4, 30):
            rows = rng.uniform(-3, 3, (n_rows + 1, 1))
            for spread in (0.0, 1.0):  # equal or different inputs
                inputs = rows * spread
                targets = form.reach * rng.choice([-1.0, 1.0], n_rows + 1)
                pairs = []
                for left_out in (n_rows, 0):
                    kept = np.delete(np.arange(n_rows + 1), left_out)
                    full = np.zeros(n_rows + 1)
                    full[kept] = minimiser(form, inputs[kept], targets[kept], kernel)
                    pairs.append(full)
                moved = norm_of(kernel, inputs, pairs[0] - pairs[1])
                assert moved <= form.machine_sensitivity(kernel.bound, n_rows) * (1 + 1e-9)


def test_the_sensitivity_is_reached_within_a_factor():
    """So that Lκ/(Nλ) cannot be made smaller for the hinge; a bound for half the penalty would be twice too large."""
    cases = (("svm", 100.0, 1, 1.001), ("ridge", 100.0, 1, 1.1), ("logistic", 100.0, 1, 2.05), ("svm", 10.0, 3, 1.001))
    for kind, regularisation, n_rows, within in cases:
        form, kernel, inputs = form_of(kind, regularisation), Gaussian(1.0), np.zeros((n_rows, 1))
        one, other = np.full(n_rows, form.reach), np.full(n_rows, form.reach)
        other[0] = -form.reach
        moved = norm_of(kernel, inputs, minimiser(form, inputs, one, kernel) - minimiser(form, inputs, other, kernel))
        bound = form.machine_sensitivity(1.0, n_rows)
        assert bound / within <= moved <= bound, kind


def test_clipped_targets_alone_bound_no_slope_of_ridge():
    """A row where f is far beyond the targets' bounds has a slope above 2·2B, which clipping targets would give."""
    form, kernel = form_of("ridge", 1e-3), Gaussian(1.0)
    inputs = np.linspace(-1.5, 1.5, 12)[:, None]
    targets = form.reach * np.sign(np.sin(6 * inputs[:, 0]))
    weights = minimiser(form, inputs, targets, kernel)
    largest = np.abs(kernel.gram(np.linspace(-3, 3, 400)[:, None], inputs) @ weights).max()
    assert 1.5 * form.reach < largest <= form.norm(1.0) <= form.slope(1.0) / 2 - form.reach + 1e-9


@every_machine
def test_no_table_has_a_function_above_the_public_norm(kind: str):
    for regularisation in (0.01, 1.0, 30.0):
        form, kernel, rng = form_of(kind, regularisation), Gaussian(0.8), np.random.default_rng(3)
        for spread in (0.0, 0.1, 1.0):
            inputs = spread * rng.uniform(-3, 3, (20, 1))
            for targets in (np.full(20, form.reach), form.reach * rng.choice([-1.0, 1.0], 20)):
                assert norm_of(kernel, inputs, minimiser(form, inputs, targets, kernel)) <= form.norm(1.0) * (1 + 1e-9)


def test_the_norm_of_ridge_is_reached_where_the_penalty_is_that_of_the_rows():
    form, kernel = form_of("ridge", 1.0), Gaussian(1.0)
    weights = minimiser(form, np.zeros((5, 1)), np.full(5, form.reach), kernel)
    assert norm_of(kernel, np.zeros((5, 1)), weights) == pytest.approx(form.norm(1.0), rel=1e-9)


# ---------------------------------------------------------------------- the solver


def tables_for_solver(form: FunctionForm, n_rows: int = 60) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(4)
    spread, inputs = rng.uniform(-3, 3, (n_rows, 1)), np.zeros((n_rows, 1))
    return [
        (spread, form.reach * rng.choice([-1.0, 1.0], n_rows)), (inputs, np.full(n_rows, form.reach)),
        (inputs, np.where(np.arange(n_rows) % 2, 1.0, -1.0) * form.reach),
        (spread.round(), form.reach * np.sign(spread[:, 0])),
    ]  # fmt: skip


@every_machine
def test_the_planned_steps_are_enough_for_every_table(kind: str):
    """Compared with many more steps, within ‖∇J‖/2λ of the minimiser, because J is 2λ-strongly convex."""
    for regularisation in (0.003, 0.1, 10.0):
        form, basis = form_of(kind, regularisation), pivots(1.0, 9)
        for rows, targets in tables_for_solver(form):
            plan, gram = kernel_machines.plan_machine(form, basis, len(rows)), basis.kernel.gram(rows, rows)
            allowed = 2**-13 * form.machine_sensitivity(1.0, len(rows))
            exact = minimiser(form, rows, targets, basis.kernel)
            gradient = kernel_machines.slopes_of(form, 1.0)(gram @ exact, targets) / len(rows) + 2 * regularisation * exact
            assert norm_of(basis.kernel, rows, gradient) / (2 * regularisation) < 1e-3 * allowed
            alpha = kernel_machines.machine_weights(form, gram, targets, 1.0, plan)
            assert norm_of(basis.kernel, rows, alpha - exact) <= allowed
            assert np.abs(alpha).sum() <= form.slope(1.0) / (2 * regularisation) * (1 + 1e-9)


def test_half_the_steps_would_not_be_enough():
    form, basis = form_of("ridge", 0.01), pivots(1.0, 9)
    rows, targets = np.zeros((60, 1)), np.full(60, form.reach)
    plan, gram = kernel_machines.plan_machine(form, basis, 60), basis.kernel.gram(rows, rows)
    exact = np.linalg.solve(gram + 60 * 0.01 * np.eye(60), targets)
    plans = (plan, replace(plan, steps=plan.steps // 2))
    distances = [
        norm_of(basis.kernel, rows, kernel_machines.machine_weights(form, gram, targets, 1.0, each) - exact) for each in plans
    ]
    assert distances[0] <= 2**-13 * form.machine_sensitivity(1.0, 60) < distances[1]


def test_ridge_is_the_usual_kernel_ridge_regression():
    form, basis = form_of("ridge", 0.02), pivots(1.0, 9)
    rows, targets = tables_for_solver(form)[0]
    gram = basis.kernel.gram(rows, rows)
    alpha = kernel_machines.machine_weights(form, gram, targets, 1.0, kernel_machines.plan_machine(form, basis, 60))
    np.testing.assert_allclose(gram @ alpha, gram @ np.linalg.solve(gram + 1.2 * np.eye(60), targets), atol=1e-3)


@every_machine
def test_whole_coordinates_of_neighbours_are_within_the_sensitivity_of_the_grid(kind: str, no_noise: None):
    """The door as a black box: hostile neighbours, the noise taken away."""
    form, rng = form_of(kind, 0.05), np.random.default_rng(5)
    basis = pivots(0.8, 30)
    extreme = TARGETS[kind].encode(np.array(["-1", "3"] if kind == "ridge" else ["false", "true"], dtype=object))[0]
    for n_rows in (1, 2, 25):
        for x in (0.0, 2.9):
            rows = np.column_stack([rng.uniform(-3, 3, n_rows), rng.choice(extreme, n_rows)])
            neighbour = rows.copy()
            rows[0], neighbour[0] = (x, extreme[0]), (x, extreme[1])
            one, other = (machine_sum(form, basis, table) for table in (rows, neighbour))
            assert 0 < np.linalg.norm((one - other).astype(float)) <= form.grid_sensitivity(basis) == 2 * GRID


def test_a_flipped_row_of_an_svm_reaches_the_sensitivity_of_the_grid(no_noise: None):
    form, basis = form_of("svm", 50.0), Pivots.fit(Gaussian(1.0), np.zeros((1, 1)))
    sums = [machine_sum(form, basis, np.array([[0.0, y]])) for y in (0.0, 1.0)]
    assert abs(int(sums[0][0]) - int(sums[1][0])) > 2 * GRID * (1 - 2 * SLACK)


@every_machine
def test_the_claimed_sensitivity_covers_the_error_of_the_solver(kind: str):
    form, basis = form_of(kind, 0.02), pivots(0.8, 40)
    plan = kernel_machines.plan_machine(form, basis, 3000)
    assert 0 < plan.error <= SLACK * form.machine_sensitivity(1.0, 3000)
    paid = form.unit(basis, 3000) * 2 * GRID
    assert form.machine_sensitivity(1.0, 3000) + plan.error <= paid


def test_the_number_of_steps_does_not_depend_on_the_table():
    form, basis = form_of("logistic"), pivots(0.8, 9)
    counts: list[list[float]] = [[], []]
    for seed in (0, 1):
        progress = lambda what, share, shares=counts[seed]: shares.append(share)  # noqa: E731
        released("logistic", table_of("logistic", seed=seed), regularisation=0.05, progress=progress)
    assert counts[0] == counts[1] and kernel_machines.plan_machine(form, basis, 200).steps > 10


# ---------------------------------------------------------------------- Propositions 7 and 8: privacy of values at points


def test_values_at_points_have_the_stated_privacy(no_noise: None):
    """Values f(Z) + N(0, σ²K) of two neighbours have the exact δ of Gaussians at Mahalanobis distance ‖K^-½ v‖/σ."""
    grid = pd.DataFrame({"x": np.linspace(-3, 3, 30)})
    for kind in ("density", *MACHINES):
        table = table_of(kind, 50)
        neighbour = table.copy()
        neighbour.loc[0] = [3.0, -1.0] if kind == "ridge" else [3.0, False]
        table.loc[0] = [3.0, 3.0] if kind == "ridge" else [-3.0 if kind == "density" else 3.0, True]
        one, other = (released(kind, each, pivots=grid, kernel=Gaussian(0.5)) for each in (table, neighbour))
        moved = one.values(one.pivots) - other.values(other.pivots)
        distance = float(np.sqrt(moved @ np.linalg.solve(one.covariance(one.pivots), moved)))
        attained = gaussian_delta(epsilon=1.0, noise_multiplier=1 / distance)
        assert 0 < attained <= 1e-6
        assert distance >= (0.9 if kind == "density" else 0.02) * one.statement.sensitivity / one.noise_scale


def test_noise_on_values_at_pivots_has_the_covariance_of_the_process():
    """Squares of standardised noise are χ², of single values together and of their sum, each to 10⁻⁴ (false alarms).

    They are not where noise is 15 % larger, nor the sum's where noise is independent at the pivots.
    """
    table, draws = table_of("density", 100), 250
    first = released("density", table, kernel=Gaussian(1.0), pivots=pd.DataFrame({"x": np.linspace(-3, 3, 8)}))
    rows, noise = [table[["x"]].to_numpy()], GaussianNoise(1.0, 1e-6)
    others = (again(first, private_mean(rows, first.basis, noise, n_rows=100).noisy_sum) for _ in range(draws - 1))
    exact = first.basis.kernel.gram(first.basis.points, rows[0]).mean(axis=1)
    errors = np.array([each.values(each.pivots) - exact for each in (first, *others)])
    covariance = first.covariance(first.pivots)

    def plausible(covariance: Array) -> tuple[bool, bool]:
        alone = np.sum(errors * np.linalg.solve(covariance, errors.T).T)
        together = np.sum(errors.sum(axis=1) ** 2) / covariance.sum()
        found = [(alone, draws * len(covariance)), (together, draws)]
        return tuple(bool(abs(chi2.cdf(total, size) - 0.5) < 0.49995) for total, size in found)  # type: ignore[return-value]

    assert plausible(covariance) == (True, True)
    assert not plausible(covariance / 1.15**2)[0]
    assert not plausible(np.diag(np.diag(covariance)))[1]


def again(function: ReleasedFunction, noisy_sum: Array) -> ReleasedFunction:
    return function_of(
        form=function.form, domain=function.domain, basis=function.basis, noisy_sum=noisy_sum,
        statement=function.statement,
    )  # fmt: skip


def test_the_standard_error_between_pivots_is_that_of_the_noise(no_noise: None):
    """Squares of standardised errors at points between the pivots are χ². False alarm 10⁻⁴."""
    points, draws = pd.DataFrame({"x": [-1.234, 0.4321, 2.2]}), 500
    exact = released("logistic", table_of("logistic", 60), kernel=Gaussian(1.0), grid=8)
    scale = exact.noise_scale / exact.form.unit(exact.basis, 60)
    noise = scale * np.random.default_rng(8).standard_normal((draws, exact.basis.dimension))  # sampler: with the door
    answers = [again(exact, exact.noisy_sum + each).evaluate(points) for each in np.rint(noise).astype(int)]
    errors = np.array([each["value"] - exact.values(points) for each in answers])
    np.testing.assert_allclose(answers[0]["standard_error"], np.sqrt(np.diag(exact.covariance(points))))
    at_pivots = exact.evaluate(exact.pivots)["standard_error"]
    np.testing.assert_allclose(at_pivots, exact.noise_scale, rtol=1e-6)  # k(x, x) = 1
    total = np.sum(errors * np.linalg.solve(exact.covariance(points), errors.T).T)
    low, high = chi2.ppf([5e-5, 1 - 5e-5], 3 * draws)
    assert low < total < high
    assert not low < total * 1.15**2 < high


def test_the_unseen_part_between_pivots_is_within_its_bound(no_noise: None):
    points = pd.DataFrame({"x": np.linspace(-3, 3, 201)})
    for table, grid in ((table_of("density", 40), 3), (table_of("density", 40), 12), (pd.DataFrame({"x": [1.5]}), 3)):
        function = released("density", table, kernel=Gaussian(0.4), grid=grid)
        exact = function.basis.kernel.gram(points.to_numpy(), table[["x"]].to_numpy()).mean(axis=1)
        answer = function.evaluate(points)
        gap = np.abs(answer["value"] - exact)
        assert (gap <= answer["unseen"] + 1e-6).all()
    assert gap.max() > 0.99 * answer["unseen"].max()  # of one row half-way between two pivots


def test_a_default_density_integrates_to_one_and_is_the_kernel_density_estimate(no_noise: None):
    table, points = table_of("density", 300), pd.DataFrame({"x": np.linspace(-3, 3, 601)})
    function = released("density", table)
    values = function.values(points)
    assert np.trapezoid(values, points["x"]) == pytest.approx(1, abs=0.02)
    width = 0.25 * 6 * 300**-0.2
    exact = np.exp(-0.5 * ((points[["x"]].to_numpy() - table["x"].to_numpy()) / width) ** 2).mean(axis=1)
    np.testing.assert_allclose(values, exact / (width * np.sqrt(2 * np.pi)), atol=0.002)


# ---------------------------------------------------------------------- nothing depends on a private cell


HOSTILE = (["nan", "inf", "-inf", "1e999", "", "x", "\x00", "999999999999", '"', "true"], [""] * 10, ["3"] * 10)


def test_no_cell_shows_in_warnings_logs_or_output(caplog: Any, capfd: Any):
    caplog.set_level(logging.DEBUG, logger="release_side")
    cases = [(kind, HOSTILE[0]) for kind in ("density", *MACHINES)]
    for kind, cells in [*cases, ("logistic", HOSTILE[1]), ("logistic", HOSTILE[2])]:
        table = pd.DataFrame({"x": cells, "y": cells[::-1]}, dtype=str)
        function = released(kind, table, kernel=Gaussian(0.7), grid=9)
        assert np.isfinite(function.coordinates).all()
    assert [said for said in caplog.messages if "ledger" not in said and "is a weak" not in said] == []
    assert capfd.readouterr() == ("", "")


@every_machine
def test_targets_are_within_their_bounds_whatever_the_cells(kind: str):
    form = form_of(kind)
    targets = kernel_machines.targets_of(form, np.array([np.nan, np.inf, -np.inf, 1e300, 0.0, 1.0, 3.0]))
    assert (np.abs(targets) <= form.reach).all()
    assert kind == "ridge" or set(targets) == {-1.0, 1.0}


def test_pieces_and_order_of_the_table_change_a_machine_by_no_more_than_rounding(no_noise: None):
    form, basis = form_of("logistic"), pivots(0.8, 9)
    rows = domain_of("logistic").encode(table_of("logistic"))
    tables = ([rows], [rows[:7], rows[7:]], [rows[::-1]])
    whole, pieces, turned = (machine_sum(form, basis, *each) for each in tables)
    assert (whole == pieces).all()
    assert np.abs(whole - turned).max() < SLACK * GRID


def test_a_regularisation_that_outweighs_the_loss_takes_one_step():
    """(M − μ)/(M + μ) is 10⁻¹⁹ here, of which M − μ in floats would be 0, and the number of steps log 0."""
    basis = Pivots.fit(1e-6 * Gaussian(0.8), np.linspace(-3, 3, 5)[:, None])
    plan = kernel_machines.plan_machine(form_of("logistic", 1e12), basis, 20)
    assert plan.steps == 1 and plan.error <= SLACK * form_of("logistic", 1e12).machine_sensitivity(1e-3, 20)


@dataclass(frozen=True)
class Broken(Gaussian):
    """NaN except at whole numbers: one row could turn the whole sum into NaN."""

    name: ClassVar[str] = "broken"

    def gram(self, X: Array, Y: Array) -> Array:
        return np.where((np.rint(X) != X).any(axis=1)[:, None], np.nan, super().gram(X, Y))


def test_a_kernel_that_no_file_can_name_is_refused_before_anything_is_counted(tmp_path: Any):
    ledger = Ledger(tmp_path / "ledger")
    ledger.init("t", 1.0, 1e-6)
    message = r"no reader would take the kernel .*Broken.*: it is unknown to them.*Name a kernel"
    for kind in ("density", "svm"):
        with pytest.raises(PublishError, match=message):
            released(kind, kernel=Broken(1.0), grid=7, ledger=ledger.path, table="t")
    assert ledger.account("t").releases == ()


# ---------------------------------------------------------------------- the flow


def test_a_function_is_counted_before_it_is_measured(tmp_path: Any):
    for kind in ("density", "svm"):
        ledger, output = Ledger(tmp_path / f"{kind}.ledger"), tmp_path / f"{kind}.kme"
        ledger.init("t", 1.2, 1e-6)
        released(kind, output=output, ledger=ledger.path, table="t")
        with pytest.raises(PublishError, match="does not fit"):
            released(kind, ledger=ledger.path, table="t")
        (counted,) = ledger.account("t").releases
        assert (counted.spend.method, counted.spend.epsilon, counted.output) == (f"function: {kind}", 1.0, str(output))


def test_a_ledger_that_cannot_write_means_that_no_noise_is_drawn(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    drawn = []
    monkeypatch.setattr(GaussianNoise, "add_to", lambda self, exact, *, sensitivity: drawn.append(1))

    def broken(self: Any, table: str, spend: Any) -> int:
        raise PublishError("the disk is full")

    monkeypatch.setattr(Ledger, "record", broken)
    Ledger(tmp_path / "l").init("t", 2.0, 1e-4)
    with pytest.raises(PublishError, match="the disk is full"):
        released("svm", ledger=tmp_path / "l", table="t")
    assert drawn == []


def test_a_rehearsal_is_stamped_and_repeats_itself_and_other_releases_have_fresh_noise():
    one, other = (released("svm", rehearsal=7) for _ in range(2))
    assert one.is_rehearsal and "NOT PRIVATE" in repr(one)
    np.testing.assert_array_equal(one.noisy_sum, other.noisy_sum)
    assert (released("svm").noisy_sum != released("svm").noisy_sum).all()


def test_noise_is_calibrated_as_the_budget_says():
    statement = released("svm").statement
    assert statement.noise_multiplier == pytest.approx(GaussianNoise(1.0, 1e-6).multiplier(), rel=1e-9)
    assert statement.sensitivity == pytest.approx(1 / (200 * 200**-0.5) * (1 + SLACK))
    classical = np.sqrt(2 * np.log(2 / 1e-6))  # of Hall et al., Proposition 3
    assert statement.noise_multiplier < classical
    assert gaussian_delta(epsilon=20.0, noise_multiplier=classical / 20) > 1e-6  # and false where ε is large


def test_a_table_of_every_kind_of_column_gives_a_function_of_them():
    domain = Domain((
        Integer(name="n", lower=0, upper=9, missing=True), Categorical(name="c", levels=("a", "b", "d")),
        Date(name="day", lower="2020-01-01", upper="2021-01-01"), CLASS,
    ))  # fmt: skip
    frame = domain.decode(domain.draw(80, 1))
    function = publish_function(frame, domain, kind="logistic", target="y", **BUDGET)
    assert function.predict_proba(frame).shape == (80, 2) and function.basis.dimension > 20
    with pytest.raises(PublishError, match=r'have levels or missing cells.*"table"'):
        publish_function(frame, domain, kind="density", **BUDGET)
    assert release_side.publish_function(frame, domain, kind="density", kernel="table", **BUDGET).kind == "density"


# ---------------------------------------------------------------------- what is predicted


@pytest.mark.parametrize("kind", ["logistic", "svm"])
def test_a_released_classifier_predicts_as_scikit_learn_does(kind: str):
    from sklearn.metrics import accuracy_score, log_loss

    table = table_of(kind, 1500)
    function = released(kind, table, epsilon=5.0)
    classes = function.classes_
    assert classes.tolist() == [False, True]
    margins, predicted = function.decision_function(table), function.predict(table)
    np.testing.assert_array_equal(predicted, classes[(margins > 0).astype(int)])
    assert accuracy_score(table["y"], predicted) == function.score(table, table["y"]) > 0.65
    if kind == "logistic":
        probabilities = function.predict_proba(table)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-margins)))
        assert log_loss(table["y"], probabilities, labels=classes) < 0.68
    assert hasattr(function, "predict_proba") == (kind == "logistic")


def test_levels_are_predicted_by_their_names():
    domain = Domain((X, Categorical(name="y", levels=("well", "ill"))))
    frame = pd.DataFrame({"x": np.linspace(-3, 3, 900), "y": np.where(np.linspace(-3, 3, 900) > 0, "ill", "well")})
    function = publish_function(frame, domain, kind="svm", target="y", epsilon=5.0, delta=1e-6)
    assert function.predict(pd.DataFrame({"x": [-2.0, 2.0]})).tolist() == ["well", "ill"]


def test_ridge_predicts_within_the_bounds_and_around_their_middle(no_noise: None):
    table = table_of("ridge", 400)
    function = released("ridge", table, regularisation=1e-3)
    predicted = function.predict(table)
    assert np.abs(predicted - table["y"]).mean() < 0.15
    assert predicted.min() >= -1 and predicted.max() <= 3
    far = released("ridge", table, regularisation=1e6)
    np.testing.assert_allclose(far.predict(table), 1.0, atol=1e-5)


def test_coordinates_of_a_machine_are_its_values_at_the_pivots():
    basis = pivots(0.8, 12)
    rows, weights = PLANE.draw(50, 1)[:, :1], np.random.default_rng(0).normal(size=50)
    exact = basis.kernel.gram(basis.points, rows) @ weights
    values = basis.basis_features(np.arange(len(exact))) @ kernel_machines.machine_coordinates(weights, rows, basis)
    np.testing.assert_allclose(values, exact, atol=1e-10)


def test_functions_are_published_and_evaluated_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    asked = pd.DataFrame({"x": [-2.2, 0.7, 1.4]})
    table_of("svm", 80).to_csv("p.csv", index=False)
    asked.to_csv("asked.csv", index=False)
    Path("d.toml").write_text(domain_toml(domain_of("svm")), encoding="utf-8")
    Ledger("ledger").init("t", unlimited=True)

    def run(program: str, words: str) -> str:
        result = call(program, *words.split())
        assert result.exit_code == 0, result.output
        return result.stdout

    def publish(words: str) -> str:
        spent = "--domain d.toml --ledger ledger --table t --epsilon 1 --delta 1e-6"
        return run("release-side", f"publish-function p.csv {spent} {words}")

    machine = "--kind logistic --target y --pivots asked.csv --output a.kme"
    assert json.loads(publish(f"{machine} --json"))["kind"] == "logistic"
    assert "pivots      3 points" in publish(f"{machine} --force")
    answers = json.loads(run("kmeanalyst", "evaluate a.kme asked.csv --json"))
    assert answers["kind"] == "logistic" and len(answers["points"]) == 3
    first_point = answers["points"][0]
    assert set(first_point) == {"value", "standard_error", "unseen", "prediction", "probability"}
    assert first_point["value"] == pytest.approx(read_function("a.kme").values(asked)[0])
    assert "standard_error" in run("kmeanalyst", "evaluate a.kme asked.csv")
    assert json.loads(run("kmeanalyst", "info a.kme --json"))["n_pivots"] == 3
    assert "ReleasedLogistic" in run("kmeanalyst", "info a.kme")
    assert json.loads(run("kmeanalyst", "validate a.kme --json")) == {"valid": True, "findings": []}
    assert "density" in publish("--kind kde --kernel table --output c.kme")
