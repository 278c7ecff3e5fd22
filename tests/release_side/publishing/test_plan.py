"""Plans agree with publishing, need nothing private, and refuse what publish refuses."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
import refusals
from command_line import curate as call

import release_side
from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel, kernel_from_spec
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.file import FileRefused
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import draw_kept
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation import wanted
from kmeanalyst.representation.wanted import Effort
from release_side.choices.choices import Choices
from release_side.choices.options import public_generator
from release_side.cli.main import main
from release_side.door.mechanism import GaussianNoise, PublishError, RehearsalNoise
from release_side.publishing import plan as planning
from release_side.publishing import simulated as simulating
from release_side.publishing.methods import MeanMethod
from release_side.publishing.plan import EPSILONS, plan
from release_side.publishing.simulated import SyntheticPopulation, bootstrap_like, clustered_rows
from release_side.publishing.unfinished import Begun

SMALL: dict[str, Any] = {"points": 40, "features": 200}
BUDGET: dict[str, Any] = {"rows": 2000, "delta": 1e-6, "epsilon": [1.0]}
COLUMNS = [
    "epsilon", "delta", "rho", "method", "points", "features", "noise_scale", "pairs", "sets",
    "rkhs_error", "sampling_error", "se_mean", "se_probability", "width_1", "width_2", "width_3", "seconds", "file_bytes",
]  # fmt: skip


DOMAIN = Domain((
    Integer(name="age", lower=17, upper=90),
    Real(name="wage", lower=1.0, upper=1000.0, scale="log", missing=True),
    Categorical(name="city", levels=("Basel", "Genf", "O'Higgins")),
))  # fmt: skip
SQUARE = Domain(tuple(Real(name=name, lower=-6.0, upper=6.0) for name in ("x", "y")))


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """A small synthetic population, and a twentieth of the work in plans and publications alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulating, "_SYNTHETIC_ROWS", (500, 1000))
        patch.setattr(wanted, "EFFORT", Effort(0.05))
        yield


def simulated(domain: Domain, **options: Any) -> tuple[Any, list[Release], list[tuple[str, float]]]:
    """A plan's table, the releases that it makes and does not keep, and its progress."""
    kept: list[Release] = []
    seen: list[tuple[str, float]] = []

    honest = Begun.release

    def keep(*arguments: Any) -> Release:
        kept.append(honest(*arguments))
        return kept[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Begun, "release", keep)
        table = plan(domain, **options, progress=lambda what, share: seen.append((what, share)))
    return table, kept, seen


@pytest.fixture
def no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans without the standard errors of an analyst's answers, which cost the most."""
    monkeypatch.setattr(planning, "_errors", lambda release, truth, size: {"rkhs_error": truth.distance(release)})


@pytest.fixture(scope="module")
def planned(quick) -> tuple[Any, list[Release], list[tuple[str, float]]]:
    """A release of 100,000 rows, of bounded weights."""
    return simulated(SQUARE, rows=10**5, delta=1e-6, epsilon=[1.0], weights="bounded", bound=0.5, **SMALL)


# ---------------------------------------------------------------------- what is planned is what would be published


@pytest.mark.parametrize(
    "choices",
    [
        SMALL,
        SMALL | {"noise": "laplace", "delta": 0.0},
        SMALL | {"calibration": "zcdp", "weights": "bounded", "bound": 0.9},
        {"method": "subspace", "points": 30, "kernel": "gaussian:lengthscale=2", "weights": "published"},
        {"method": "subspace", "points": 30, "weights": "signed"},
    ],
    ids=["default", "laplace", "zcdp", "published", "signed"],
)
@pytest.mark.slow(but="signed")
def test_a_plan_has_the_guarantee_noise_and_sizes_of_the_release(choices, tmp_path, no_answers):
    row = plan(SQUARE, **(BUDGET | choices)).iloc[0]
    options = {"epsilon": 1.0, "delta": 1e-6} | choices
    table = SQUARE.decode(SQUARE.draw(2000, 1))
    release = release_side.publish(table, SQUARE, rehearsal=5, output=tmp_path / "r.kme", **options)
    statement = release.statement
    assert (row.epsilon, row.delta, row.rho) == (statement.epsilon, statement.delta, statement.rho)
    assert (row.noise_scale, row.method, row.points) == (statement.noise_scale, release.method, len(release))
    assert row.features == release.measurement.feature_map.dimension
    size = (tmp_path / "r.kme").stat().st_size
    assert row.file_bytes == pytest.approx(size, rel=0.03)  # digits of the header and of other points, deflated


@pytest.mark.slow
def test_the_simulated_noise_has_the_stated_scale():
    (release,) = simulated(SQUARE, **BUDGET, points=20, features=4000)[1]
    measurement = release.measurement
    truth = SyntheticPopulation.of(SQUARE, release.kernel, PopulationSize(2000), public=None)
    deviation = (measurement.vector - truth.mean_feature(measurement.feature_map)).std()
    assert deviation == pytest.approx(measurement.noise_scale, rel=0.06)  # 5 standard errors of 4000 draws


def test_the_simulated_mean_is_that_of_a_table_of_this_many_rows_and_the_bound_holds(planned):
    release = planned[1][0]
    measurement = release.measurement
    truth = SyntheticPopulation.of(SQUARE, release.kernel, PopulationSize(10**5), public=None)
    mean, noise = truth.mean_feature(measurement.feature_map), measurement.noise_scale
    np.testing.assert_allclose(measurement.vector, mean, atol=6 * noise)
    assert (measurement.n_rows, release.statement.n_rows) == (10**5, 10**5)
    assert np.abs(release.weights).sum() <= 0.5 + 1e-9


def test_the_errors_are_those_of_the_simulated_release_and_of_its_population(planned):
    row, release = planned[0].iloc[0], planned[1][0]
    truth = SyntheticPopulation.of(SQUARE, release.kernel, PopulationSize(10**5), public=None)
    assert row.rkhs_error == pytest.approx(release.embedding.distance(KernelMean(release.kernel, truth.rows)), rel=1e-9)
    assert row.se_mean == pytest.approx(np.median([release.mean(name).standard_error / 12 for name in "xy"]))
    questions = [f"{name} > {np.median(truth.rows[:, j])!r}".replace("np.float64", "") for j, name in enumerate("xy")]
    assert row.se_probability == pytest.approx(np.median([release.probability(q).standard_error for q in questions]))


def test_widths_are_errors_over_sampling_of_events_of_so_many_columns(planned):
    row, release = planned[0].iloc[0], planned[1][0]
    truth = SyntheticPopulation.of(SQUARE, release.kernel, PopulationSize(10**5), public=None)
    middle = {name: float(np.median(truth.rows[:, j])) for j, name in enumerate("xy")}
    answers = [release.probability(f"{name} > {middle[name]!r}") for name in "xy"]
    assert row.width_1 == pytest.approx(np.median([one.standard_error / one.parts["sampling"] for one in answers]))
    both = release.probability(f"x > {middle['x']!r} and y > {middle['y']!r}")
    assert row.width_2 == pytest.approx(both.standard_error / both.parts["sampling"])
    assert np.isnan(row.width_3) and (row.pairs, row.sets) == (0, 0)  # two columns, random features


def test_the_pairs_and_sets_are_those_that_the_simulated_release_counted(no_answers):
    bits = Domain(tuple(Boolean(name=name) for name in "abcd"))
    table, (release,), _ = simulated(bits, rows=20_000, delta=1e-6, epsilon=[3.0], points=400)
    sizes = [len(columns) for columns in release.kernel.chosen]
    assert table.pairs[0] == sizes.count(2) > 0
    assert table.sets[0] == len(sizes) - sizes.count(2)
    counted = release.summary()["counted"]
    assert counted.startswith(f"{sizes.count(2)} of 6 pairs of columns, larger sets: {table.sets[0]}; ")
    named = counted.partition("; ")[2].split(", ")
    assert sorted(named) == sorted(" × ".join("abcd"[j] for j in columns) for columns in release.kernel.chosen)


def test_progress_goes_to_its_end(planned):
    for what in ("making a synthetic population", "simulating releases"):
        shares = [share for step, share in planned[2] if step == what]
        assert shares == sorted(shares) and shares[-1] == 1.0 and shares.count(1.0) == 1, shares


def test_the_error_of_a_mean_is_that_over_the_cells_that_are_not_missing():
    table, (release,), _ = simulated(Domain((DOMAIN["wage"],)), **BUDGET, **SMALL)
    read = release.expectation(lambda frame: frame["wage"].fillna(1.0), where="not missing(wage)")
    assert table.se_mean[0] == pytest.approx(read.standard_error / 999)


def test_the_sampling_error_of_two_far_points_is_the_root_of_half_over_n():
    """μ = ½k(0, ·) + ½k(100, ·): k(x, x) = 1 and ‖μ‖² = ½."""
    embedding = KernelMean(Gaussian(1.0), np.array([[0.0], [100.0]]))
    truth = SyntheticPopulation(embedding.points, embedding, embedding.squared_norm())
    assert truth.sampling_error(PopulationSize(50)) == pytest.approx(0.1)


def test_a_question_to_levels_is_the_level_nearest_one_half():
    ask = planning._near_half(Categorical(name="city", levels=("a", "b", "c")), np.array([0, 1, 1, 2, 2, 2, 2, 2, 2.0]))
    assert ask(pd.DataFrame({"city": ["a", "b", "c"]})).tolist() == [False, False, True]


@pytest.mark.slow
def test_every_column_kind_can_be_planned_with_missing_cells_atoms_and_logarithms(mixed_domain):
    row = plan(mixed_domain, **BUDGET, **SMALL).iloc[0]
    assert np.isfinite(row[["rkhs_error", "sampling_error", "se_mean", "se_probability"]].astype(float)).all()


# ---------------------------------------------------------------------- how well it predicts


def clusters(n: int, rng: np.random.Generator) -> pd.DataFrame:
    centres = np.array([[-2.0, -1], [0, 2], [3, -1]])
    return pd.DataFrame(centres[rng.integers(0, 3, n)] + rng.normal(size=(n, 2)), columns=["x", "y"])


def workers(n: int, rng: np.random.Generator) -> pd.DataFrame:
    age = rng.integers(20, 70, n)
    wage = np.exp(rng.normal(3, 0.5, n) + age / 80)
    wage[rng.random(n) < 0.2] = np.nan
    return pd.DataFrame({"age": age, "wage": wage, "city": np.where(age > 40, "Basel", "Genf")})


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize(("space", "make_table", "kernel"), [
    (SQUARE, clusters, "gaussian:lengthscale=1.5"), (DOMAIN, workers, "table"),
])  # fmt: skip
@pytest.mark.slow(but="space0-clusters-gaussian:lengthscale=1.5-0.1")
def test_a_real_error_is_within_about_a_factor_of_two_of_the_predicted(space, make_table, kernel, epsilon, no_answers):
    n = 5000
    options: dict[str, Any] = {"delta": 1e-6, "kernel": kernel, "points": 100, "features": 500}
    predicted = plan(space, rows=n, epsilon=epsilon, **options).rkhs_error[0]
    table = make_table(n, np.random.default_rng(3))
    release = release_side.publish(table, space, epsilon=epsilon, rehearsal=9, **options)
    real = release.embedding.distance(KernelMean(kernel_from_spec(kernel, space), space.encode(table)))
    assert 0.4 < real / predicted < 2.0


@pytest.mark.slow
def test_a_larger_epsilon_gives_less_noise_and_smaller_errors():
    options: dict[str, Any] = {"rows": 20_000, "delta": 1e-6, "kernel": "gaussian:lengthscale=2"}
    table = plan(SQUARE, epsilon=[0.05, 0.5, 5.0], points=100, features=400, **options)
    for name in ("noise_scale", "rkhs_error"):  # an error bar may owe most to resolution, which noise does not decide
        assert (np.diff(table[name]) < 0).all(), table[name]
    assert table.sampling_error.nunique() == 1


# ---------------------------------------------------------------------- public facts alone


def test_a_plan_leaves_no_file_and_readers_refuse_the_file_it_writes_meanwhile(tmp_path, monkeypatch, no_answers):
    written: list[bytes] = []
    write = Release.write

    def record(release: Release, path: Path) -> None:
        write(release, path)
        written.append(Path(path).read_bytes())

    monkeypatch.setattr(Release, "write", record)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    plan(SQUARE, **BUDGET, **SMALL)
    assert list(tmp_path.iterdir()) == [] and len(written) == 1
    (tmp_path / "kept.kme").write_bytes(written[0])
    with pytest.raises(FileRefused, match="rehearsal"):
        read_release(tmp_path / "kept.kme")


@pytest.mark.slow
def test_the_features_and_the_population_are_made_once_for_all_budgets(monkeypatch):
    calls: list[str] = []
    features, of = MeanMethod.checked_features, SyntheticPopulation.of
    monkeypatch.setattr(MeanMethod, "checked_features", lambda *a: (calls.append("features"), features(*a))[1])
    monkeypatch.setattr(SyntheticPopulation, "of", lambda *a, **k: (calls.append("population"), of(*a, **k))[1])
    assert len(plan(SQUARE, **(BUDGET | {"epsilon": [0.5, 1.0, 2.0]}), **SMALL)) == 3
    assert calls == ["features", "population"]


def test_a_synthetic_population_spans_its_domain_with_declared_atoms_and_missing_cells():
    domain = Domain((
        Integer(name="age", lower=17, upper=90),
        Real(name="gain", lower=0.0, upper=1e5, scale="log1p", atoms=(0,), missing=True),
        Categorical(name="city", levels=("a", "b", "c"), missing=True),
    ))  # fmt: skip
    rows = clustered_rows(domain, 4000, np.random.default_rng(1))
    np.testing.assert_array_equal(domain.encode(domain.decode(rows)), rows)
    age, gain, city = rows.T
    assert age.max() - age.min() > 0.6 * (90 - 17)
    assert np.mean(gain == 0) == pytest.approx(0.27, abs=0.05)  # 0.3 of the present, and few at the bound
    assert np.mean(np.isnan(gain)) == pytest.approx(0.1, abs=0.03)
    assert set(city[~np.isnan(city)]) == {0.0, 1.0, 2.0}


RULES = (Rule("never", "sex == 'M' and pregnant"), Rule("always", "left >= came"))


@pytest.mark.parametrize("public", [False, True])
def test_a_synthetic_population_keeps_the_rules_of_its_domain(public: bool) -> None:
    days = [Integer(name=name, lower=0, upper=364) for name in ("came", "left")]
    domain = Domain((Categorical(name="sex", levels=("F", "M")), Boolean(name="pregnant"), *days), rules=RULES)
    kernel, rows = adaptive_kernel(domain), draw_kept(domain, 500, np.random.default_rng(0))
    found = SyntheticPopulation.of(domain, kernel, PopulationSize(2000), public=rows if public else None).rows
    assert len(found) >= 1000 and not rules_of(domain).broken(found).any()
    assert len(np.unique(found, axis=0)) > 0.7 * len(found)


def test_a_population_like_public_rows_is_as_far_from_them_as_a_population_from_a_sample():
    """The mean of M rows of deviation s is s/√M from its population's."""
    rng = np.random.default_rng(2)
    domain, public = Domain((Real(name="x", lower=-9.0, upper=9.0),)), rng.normal(size=(100, 1))
    away = [bootstrap_like(public, domain, Gaussian(0.1), 20_000, rng).mean() - public.mean() for _ in range(300)]
    assert np.std(away) == pytest.approx(public.std() / 10, rel=0.2)


def test_a_population_like_public_rows_lies_in_the_domain_keeps_atoms_and_moves_other_numbers(mixed_domain):
    public = mixed_domain.draw(200, 3)
    gain = mixed_domain.position("capital.gain")
    public[:100, gain] = 0.0
    rows = bootstrap_like(public, mixed_domain, kernel_from_spec(None, mixed_domain), 2000, np.random.default_rng(4))
    np.testing.assert_array_equal(mixed_domain.encode(mixed_domain.decode(rows)), rows)
    assert np.mean(rows[:, gain] == 0) == pytest.approx(0.5, abs=0.15)
    present = rows[~np.isnan(rows[:, gain]) & (rows[:, gain] != 0), gain]
    assert 0.1 < np.isin(present, public[:, gain]).mean() < 0.9  # atoms hold a cell; otherwise it moves


def test_a_release_that_no_reader_would_accept_is_refused(monkeypatch):
    refusal = ValueError("no reader would take it. Fix it")
    monkeypatch.setattr(Release, "write", lambda *_: (_ for _ in ()).throw(refusal))
    with pytest.raises(PublishError, match=r"no reader would take it\. Fix it"):
        plan(SQUARE, **BUDGET, **SMALL)


def test_public_points_are_the_points_of_a_planned_subspace_and_make_its_population(no_answers):
    public = SQUARE.decode(SQUARE.draw(60, public_generator("test", Gaussian(1.0), SQUARE, 0)) / 6 + 3)
    options: dict[str, Any] = {"method": "subspace", "kernel": "gaussian:lengthscale=1", **BUDGET}
    near, far = plan(SQUARE, public_points=public, **options), plan(SQUARE, points=60, **options)
    assert near.points[0] == 60
    assert near.rkhs_error[0] < far.rkhs_error[0] / 2  # a table near the points is easy


# ---------------------------------------------------------------------- refusals


def test_a_plan_refuses_what_publish_refuses_in_the_same_words(monkeypatch):
    """Before anything is simulated or spent."""
    monkeypatch.setattr(Begun, "release", lambda *_: pytest.fail("simulated or published"))
    wrong: list[dict[str, Any]] = [
        {"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": float("nan")}, {"epsilon": 1e-5, "delta": 1e-30, "rows": 2},
        {"delta": 1.0}, {"delta": 0.0}, {"noise": "laplace"}, {"noise": "pink"}, {"calibration": "magic"},
        {"method": "magic"}, {"weights": "magic"}, {"weights": "published"}, {"points": 1}, {"features": 9},
        {"bound": 1.0}, {"method": "subspace", "features": 10}, {"kernel": "magic"},
        {"points": 10**7}, {"features": 10**7},
    ]  # fmt: skip
    for choices in wrong:
        options = {"epsilon": 1.0, "delta": 1e-6, "rows": 100} | choices
        rows = options.pop("rows")
        with pytest.raises(ValueError) as of_publish:
            release_side.publish(SQUARE.decode(SQUARE.draw(rows, 1)), SQUARE, **options)
        with pytest.raises(type(of_publish.value), match=re.escape(str(of_publish.value))):
            plan(SQUARE, rows=rows, **options)


def test_a_wrong_size_or_budget_is_refused_before_anything_is_simulated(monkeypatch):
    monkeypatch.setattr(SyntheticPopulation, "of", lambda *a, **k: pytest.fail("simulated"))
    refusals.check(Path(__file__).parent / "refusals_plan.txt", lambda text: eval(text, globals()))


def test_levels_that_noise_hides_are_named_and_a_weak_guarantee_is_noted(caplog, no_answers):
    """At ε = 20 none is; at 0.1 those of the column of many levels are, but not of two, and not of a tree with as many leaves."""
    code = Categorical(name="code", levels=tuple(f"c{k:03}" for k in range(100)))
    tree = Tree(name="place", parents={f"p{k:03}": f"region {k // 10}" for k in range(100)})
    domain = Domain((code, tree, Categorical(name="sex", levels=("f", "m"))))
    plan(domain, rows=2000, delta=1e-6, epsilon=[20.0, 0.1], points=40)
    weak, hidden = sorted((record.getMessage() for record in caplog.records), key=lambda text: "noise hides" in text)
    assert "epsilon 20 is a weak" in weak and "publish refuses it" in weak
    assert re.match(r"ε = 0\.1: noise hides levels of code \(100 levels, noise of 0\.\d+ on a share\): ", hidden)
    assert 'a tree (kind = "tree")' in hidden


# ---------------------------------------------------------------------- the command


@pytest.fixture
def toml(tmp_path) -> str:
    path = tmp_path / "domain.toml"
    path.write_text(domain_toml(DOMAIN), encoding="utf-8")
    return str(path)


SOUND = ("--rows", "2000", "--delta", "1e-6", "--points", "20", "--features", "64")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that the command passes to plan, which is not run."""
    seen: dict[str, Any] = {}

    def record(domain: Domain, **choices: Any) -> None:
        seen.update(choices)
        raise OSError("enough seen")

    monkeypatch.setattr(planning, "plan", record)
    return seen


def test_epsilon_takes_one_value_several_or_none(toml, asked):
    cases = {
        "--epsilon 0.1 1 10": [0.1, 1, 10], "--epsilon 0.1 --epsilon 1": [0.1, 1], "--epsilon 2": [2],
        "--epsilon=0.1 1 --epsilon 3": [0.1, 1, 3], "--epsilon 0.1 -1 2": [0.1, -1, 2], "": list(EPSILONS),
        "--epsilon -1": [-1], "--epsilon 0.5 1 --method subspace": [0.5, 1],
    }  # fmt: skip
    for words, epsilons in cases.items():
        assert call("plan", "--domain", toml, *SOUND, *words.split()).exit_code == 1
        assert list(asked["epsilon"]) == epsilons, words


def test_the_command_passes_every_choice_on(toml, asked):
    options = {
        "rows": 1234, "delta": 1e-7, "method": "subspace", "public_points": "p.csv", "points": 12, "features": 34,
        "family": "maclaurin", "kernel": "margins", "target": "city", "workload": "q.txt", "weights": "signed", "bound": 1.5,
        "noise": "laplace", "calibration": "zcdp", "unit": "person",
    }  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert call("plan", "--domain", toml, *words, "--epsilon", "2").exit_code == 1
    assert callable(asked["progress"])
    assert asked == options | {"target": ("city",), "epsilon": (2.0,), "float32": False, "progress": asked["progress"]}
    own = {"rows", "delta", "epsilon", "method", "unit", "progress"}
    assert set(asked) == own | {field.name for field in dataclasses.fields(Choices)}


def test_every_choice_of_publish_that_changes_what_a_release_is_worth_is_one_of_plan():
    publish_options = {option.name for option in main.commands["publish"].params}
    other = {"private", "output", "force", "ledger", "table", "uncounted", "weak", "rehearsal", "workers", "from_table"}
    other |= {"processes", "cluster", "like"}
    assert {option.name for option in main.commands["plan"].params} == publish_options - other | {"rows"}


def test_json_is_one_object_of_numbers_with_null_for_nan(tmp_path):
    (tmp_path / "d.toml").write_text(domain_toml(Domain((DOMAIN["city"],))), encoding="utf-8")
    result = call("plan", "--domain", str(tmp_path / "d.toml"), *SOUND, "--epsilon", "1", "2", "--json")
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    found = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (found["rows"], list(found)) == (2000, ["rows", "columns", "plans"])
    assert [column["name"] for column in found["columns"]] == ["city"]
    assert [p["epsilon"] for p in found["plans"]] == [1.0, 2.0]
    for row in found["plans"]:
        assert list(row) == COLUMNS
        unknown = ["se_mean", "width_2", "width_3"]  # of one column of levels
        assert [name for name in COLUMNS if row[name] is None] == unknown
        assert all(isinstance(row[name], int | float) for name in COLUMNS if name not in ("method", *unknown))


@pytest.mark.slow
def test_in_words_a_plan_is_a_table_with_a_note_that_it_is_a_prediction(toml):
    result = call("plan", "--domain", toml, *SOUND, "--epsilon", "1")
    assert result.exit_code == 0
    head, line, facts = result.stdout.splitlines()
    names = ["epsilon", "noise", "± mean", "± share", "1, 2, 3 columns", "pairs", "sets", "seconds", "file"]
    assert re.split(r"\s{2,}", head.strip()) == names
    row = plan(DOMAIN, rows=2000, delta=1e-6, points=20, features=64, epsilon=1.0).iloc[0]
    cells = re.split(r"\s{2,}", line.strip())
    widths = ", ".join("-" if np.isnan(row[name]) else f"{row[name]:.2g}" for name in ("width_1", "width_2", "width_3"))
    errors = [f"{row[name]:.2g}" for name in ("se_mean", "se_probability")]
    assert len(head) <= 80
    assert cells[:7] == ["1", f"{row.noise_scale:.3g}", *errors, widths, f"{row.pairs}", f"{row.sets}"]
    assert len(head) == len(line)
    assert facts == "(2,000 rows, delta 1e-06, random-features, 20 points, 64 features)"
    assert len(result.stderr.splitlines()) == 1 and "one of many possible" in result.stderr


def test_a_bad_call_ends_in_one_clear_error(toml, tmp_path, monkeypatch):
    """refusals_plan_calls.txt. Public facts that are wrong end with 1; words that are no call end with 2."""
    monkeypatch.chdir(tmp_path)

    def run(text: str) -> None:
        result = call("plan", "--domain", toml, *SOUND, *text.split())
        (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        assert result.stdout == ""
        raise {1: PublishError, 2: click.UsageError}[result.exit_code](error)

    refusals.check(Path(__file__).parent / "refusals_plan_calls.txt", run)
    for option in ("--rows", "--domain", "--delta"):
        words = ["--domain", toml, *SOUND]
        start = words.index(option)
        result = call("plan", *words[:start], *words[start + 2 :])
        assert result.exit_code == 2 and f"Missing option '{option}'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["domain.toml"]


def test_all_kernels_have_the_same_population():
    def rows(kernel: str) -> Array:
        return SyntheticPopulation.of(SQUARE, kernel_from_spec(kernel, SQUARE), PopulationSize(500), public=None).rows

    np.testing.assert_array_equal(rows("gaussian:lengthscale=1"), rows("laplacian:lengthscale=2"))


def many_levels() -> Domain:
    wide = [Categorical(name=name, levels=tuple(map(str, range(600)))) for name in "abc"]
    return Domain((*wide, *(Categorical(name=name, levels=("no", "yes")) for name in "xyz")))


def test_more_tables_than_a_mean_may_have_are_timed_by_counting_them():
    """Adaptive margins count up to four million cells, and measure few of them."""
    features = MarginFeatures(kernel_from_spec("adaptive", many_levels(), None))  # type: ignore[arg-type]
    assert features.dimension > 10**6
    noise = RehearsalNoise(GaussianNoise(1.0, 1e-6), 0)
    assert planning._seconds_per_row(many_levels().draw(20, 0), features, noise) > 0


def test_a_plan_for_units_is_of_their_number(monkeypatch: pytest.MonkeyPatch):
    seen: list[PopulationSize] = []
    monkeypatch.setattr(planning, "_simulate", lambda method, domain, mechanisms, size, progress: seen.append(size))
    domain = Domain((Integer(name="age", lower=0, upper=9),))
    release_side.plan(domain, rows=500, epsilon=1, delta=1e-6, unit="person")
    release_side.plan(domain, rows=500, epsilon=1, delta=1e-6)
    assert seen == [PopulationSize(500, "person"), PopulationSize(500, None)]
