"""The exponential mechanism: whole scores whose sensitivity holds for every pair of neighbours, and an exact draw.

Balog, Tolstikhin & Schölkopf 2018, §3.4. By hand: two rows at distance √2 (an indicator), N = 2, M = 1. Tables aa, ab, bb
have μ_D at distance 0, 1/√2, √2 from a; Δ = √2/2; so P(a | ab) = 1/2 and P(a | aa)/P(b | aa) = e^{ε√2/2Δ} = e^ε.
"""

from __future__ import annotations

import json
import logging
import math
import zipfile
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import refusals
from click.testing import CliRunner
from file_tools import SCHEMA_TEST, same
from scipy import stats

from kmeanalyst.cli.main import main as analyst
from kmeanalyst.inference.two_sample.mmd_test import mmd_test
from kmeanalyst.kernels import Gaussian, Indicator, Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.file import FileRefused, validate_release
from kmeanalyst.releases.file.kernel import diameter_over, distances, n_databases
from kmeanalyst.releases.statement import MOST_DATABASES
from release_side import publish
from release_side.budget.ledger import Ledger
from release_side.door import mechanism
from release_side.door.exponential_mechanism import (
    ExponentialMechanism,
    MultisetSampler,
    RehearsedExponential,
    _whole_images,
    default_size,
    sample_database,
    small_databases,
)
from release_side.door.mechanism import PublishError
from release_side.private_rows import rows as rows_module
from release_side.publishing.plan import plan

LINE = Domain((Integer(name="x", lower=0, upper=2),))
MIXED = Domain((
    Integer(name="age", lower=0, upper=4, scale="log1p", missing=True),
    Categorical(name="city", levels=("Basel", "Genf", "Bern")),
    Boolean(name="married", missing=True),
))  # fmt: skip
FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class Strange(Gaussian):
    """A kernel that a curator wrote: what it does with a private row is not known."""

    name: ClassVar[str] = "strange"


def databases_of(n: int, size: int, *, n_rows: int, kernel: Kernel | None = None, epsilon: float = 1.0) -> MultisetSampler:
    """Databases over the whole numbers 0 … n − 1."""
    domain = Domain((Integer(name="x", lower=0, upper=n - 1),))
    return small_databases(kernel or Gaussian(1.0), domain, None, size, n_rows=n_rows, epsilon=epsilon)


def tables(n: int, n_rows: int) -> list[tuple[int, ...]]:
    """The counts of every table of n_rows rows."""
    each = combinations_with_replacement(range(n), n_rows)
    return [tuple(np.bincount(rows, minlength=n)) for rows in each]


def probabilities(scores: Array, epsilon: float, sensitivity: int) -> Array:
    """P ∝ exp(−ε s/2t), by enumeration in 50 digits."""
    with localcontext() as context:
        context.prec = 50
        weights = [(-Decimal(epsilon) * int(s) / (2 * sensitivity)).exp() for s in scores]
        return np.array([float(w / sum(weights)) for w in weights])


def test_two_rows_by_hand():
    databases = databases_of(2, 1, n_rows=2, kernel=Indicator(2))
    assert databases.sensitivity == pytest.approx(2**20, abs=2)
    aa, ab = (probabilities(databases.scores(np.array(c)), 1.5, databases.sensitivity) for c in ((2, 0), (1, 1)))
    assert aa[0] / aa[1] == pytest.approx(np.exp(1.5), rel=1e-5) and ab[0] == pytest.approx(0.5, abs=1e-5)


def test_scores_are_the_rounded_norms_of_whole_images():
    for n in [2, 3, 4]:
        for size in [1, 2, 3, 7]:
            databases = databases_of(n, size, n_rows=5)
            images = [[int(z) for z in row] for row in _whole_images(databases.kernel, databases.rows)]
            assert [tuple(r) for r in databases.members] == list(combinations_with_replacement(range(n), size))
            for counts in tables(n, 5):
                for score, members in zip(databases.scores(np.array(counts)), databases.members, strict=True):
                    v = [
                        size * sum(int(c) * z[k] for c, z in zip(counts, images, strict=True))
                        - 5 * sum(images[m][k] for m in members)
                        for k in range(len(images[0]))
                    ]
                    squared = sum(a * a for a in v)
                    assert int(score) ** 2 <= squared < (int(score) + 1) ** 2


def test_scores_are_the_distances_of_mean_embeddings():
    for kernel in [Gaussian(1.0), Gaussian(5.0), Indicator(5)]:
        databases = databases_of(5, 3, n_rows=20, kernel=kernel)
        counts = np.array([9, 1, 0, 7, 3])
        K, unit = kernel.gram(databases.rows, databases.rows), 3 * 20 * 2**20 / databases.diameter
        for score, members in zip(databases.scores(counts), databases.members, strict=True):
            v = counts / 20 - np.bincount(members, minlength=5) / 3
            assert score / unit == pytest.approx(np.sqrt(v @ K @ v), abs=5e-6 * databases.diameter)


def test_scores_of_the_largest_tables_do_not_wrap():
    """N at the limits of the door, the longest databases: compared with Python's integers."""
    for n_rows, size in [(2**32, 1000), (10**10, 255), (2**34, 255)]:
        databases = databases_of(2, size, n_rows=n_rows)
        scores = databases.scores(np.array([n_rows, 0]))
        far = int(databases.products[1, 1])  # of the image of the second row; the first is the origin
        assert scores[0] == 0 and np.diff(scores).min() > 0
        assert scores[-1] == math.isqrt(far * (size * n_rows) ** 2) > 2**61


def wide() -> MultisetSampler:
    """Images that are wider than the kernel says: their scores could leave 64 bits, by the values of rows."""
    databases = databases_of(2, 1000, n_rows=10)
    databases.__dict__["products"] = np.array([[0, 0], [0, (2**20 + 2**10) ** 2 + 1]])
    return databases


ARBITRARY = [np.random.default_rng(seed).integers(-9, 10, (n, 2)) for seed, n in enumerate([2, 3, 4, 5])]
GEOMETRIES: list[Any] = [2, 3, 4, 5, *ARBITRARY]


def test_replacing_one_row_moves_no_score_by_more_than_the_sensitivity():
    """Every table of up to four rows, every neighbour, every database; for arbitrary whole images too."""
    for images in GEOMETRIES:
        for size in [1, 2, 3]:
            n = images if isinstance(images, int) else len(images)
            largest = 0
            for n_rows in (1, 2, 3, 4):
                databases = databases_of(n, size, n_rows=n_rows)
                if not isinstance(images, int):
                    # a sensitivity that the diameter does not enlarge
                    databases.__dict__["products"] = images @ images.T
                proven = -(-size * databases.squared_diameter**0.5 // 1)
                every = {counts: databases.scores(np.array(counts)) for counts in tables(n, n_rows)}
                for counts, scores in every.items():
                    for i, j in product(range(n), repeat=2):
                        if i == j or counts[i] == 0:
                            continue
                        moved = np.array(counts)
                        moved[i] -= 1
                        moved[j] += 1
                        change = int(np.abs(every[tuple(moved)] - scores).max())
                        assert change <= proven <= databases.sensitivity
                        largest = max(largest, change)
            assert largest >= proven - 1  # nothing is given away but the rounding of one step


def test_probabilities_of_neighbours_differ_by_at_most_e_to_the_epsilon():
    """For every database, with the normalising sums, and nearly by that much for some."""
    for epsilon in [0.3, 2.0]:
        worst = 0.0
        for n, n_rows in ((2, 1), (2, 3), (3, 2), (3, 4)):
            databases = databases_of(n, 2, n_rows=n_rows, kernel=Indicator(n))
            known = {c: probabilities(databases.scores(np.array(c)), epsilon, databases.sensitivity) for c in tables(n, n_rows)}
            for one, other in product(known, repeat=2):
                if sum(abs(a - b) for a, b in zip(one, other, strict=True)) == 2:
                    worst = max(worst, float(np.log(known[one] / known[other]).max()))
        assert 0.5 * epsilon < worst <= epsilon * (1 + 1e-12)


def drawn(databases: MultisetSampler, rows: Array, epsilon: float, times: int) -> Array:
    """How often the whole door gives each database."""
    place = {row.tobytes(): i for i, row in enumerate(databases.rows)}
    number = {tuple(members): i for i, members in enumerate(databases.members.tolist())}
    mechanism, counts = ExponentialMechanism(epsilon), np.zeros(databases.count)
    for _ in range(times):
        database = sample_database([rows[:2], rows[2:]], databases, mechanism, n_rows=len(rows))
        counts[number[tuple(place[row.tobytes()] for row in database)]] += 1
    return counts


def test_the_draw_has_the_enumerated_distribution_and_a_fifth_of_epsilon_is_detected():
    """Chi-square at a false alarm of 1e-6; at 0.8 ε and 1.2 ε it rejects with a computed probability above 0.999, and does."""
    times, epsilon, rows = 2_500, 4.0, np.array([[2.0], [0.0], [2.0], [0.0], [2.0]])
    databases = databases_of(3, 2, n_rows=5)
    scores = databases.scores(np.array([2, 0, 3]))
    expected = probabilities(scores, epsilon, databases.sensitivity)
    limit, rng = stats.chi2.isf(FALSE_ALARM, databases.count - 1), np.random.default_rng(0)
    assert expected.min() * times > 5
    for wrong in (0.8, 1.2):
        p = probabilities(scores, wrong * epsilon, databases.sensitivity)
        shift = times * float(((p - expected) ** 2 / expected).sum())
        assert stats.ncx2.sf(limit, databases.count - 1, shift) > 0.999
        assert statistic(rng.multinomial(times, p), expected) > limit
    assert statistic(drawn(databases, rows, epsilon, times), expected) < limit


def statistic(counts: Array, p: Array) -> float:
    expected = counts.sum() * p
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_scale_is_never_below_that_of_the_typed_decimal(monkeypatch):
    import opendp.prelude as dp

    scales = []
    mechanism.largest_with_gumbel.cache_clear()

    def record(*space: Any, k: int, scale: float) -> Any:
        scales.append(scale)
        return lambda scores: [0] * k

    monkeypatch.setattr(dp.m, "make_noisy_top_k", record)
    rng = np.random.default_rng(0)
    for epsilon in (0.1, 0.3, 1.0, 1e5, *rng.random(50)):
        sensitivity = int(rng.integers(1, 2**30))
        ExponentialMechanism(float(epsilon)).draw(np.zeros(2, dtype=int), sensitivity=sensitivity)
        with localcontext() as context:
            context.prec = 60
            needed = 2 * Decimal(sensitivity) / Decimal(repr(float(epsilon)))
            assert needed <= Decimal(scales[-1]) <= needed * (1 + Decimal("1e-15"))
    mechanism.largest_with_gumbel.cache_clear()


def test_a_rehearsal_has_the_same_distribution():
    databases, epsilon, counts = databases_of(3, 2, n_rows=5), 4.0, np.zeros(6)
    scores = databases.scores(np.array([3, 1, 1]))
    for seed in range(8000):
        rehearsed = RehearsedExponential(ExponentialMechanism(epsilon), seed)
        counts[rehearsed.draw(scores, sensitivity=databases.sensitivity)] += 1
    assert statistic(counts, probabilities(scores, epsilon, databases.sensitivity)) < stats.chi2.isf(1e-3, 5)


def test_the_stated_excess_is_exceeded_no_more_often_than_said():
    """McSherry & Talwar 2007, Theorem 8, by enumeration over every table of six rows."""
    for epsilon in [0.2, 1.0, 10.0]:
        databases = databases_of(4, 3, n_rows=6)
        unit = 3 * 6 * 2**20 / databases.diameter
        statement = published(LINE, epsilon=epsilon, points=3).statement
        assert statement is not None
        scale = 2 * databases.diameter / 6 / epsilon
        for level in (0.5, 0.95):
            excess = scale * np.log(databases.count / (1 - level))
            for counts in tables(4, 6):
                scores = databases.scores(np.array(counts))
                beyond = (scores - scores.min()) / unit > excess
                assert probabilities(scores, epsilon, databases.sensitivity)[beyond].sum() <= 1 - level
        expected = statement.score_scale * np.log(statement.n_databases / 0.05)  # type: ignore[operator]
        assert statement.excess(0.95) == pytest.approx(expected)


def test_every_row_of_a_domain_has_its_own_index():
    databases = small_databases(table_kernel(MIXED), MIXED, None, 1, n_rows=9, epsilon=1.0)
    assert len(databases.rows) == 6 * 3 * 3
    np.testing.assert_array_equal(databases.indices(databases.rows), np.arange(54))
    shuffled = np.random.default_rng(0).integers(0, 54, 500)
    np.testing.assert_array_equal(databases.indices(databases.rows[shuffled]), shuffled)


GRID_DOMAIN = Domain((Real(name="x", lower=0, upper=1), Real(name="y", lower=0, upper=1, missing=True)))
GRID = pd.DataFrame({"x": [0, 0, 1, 1, 0.5, 0.5], "y": [0.0, 1, 0, 1, 0.5, 0.5]})


def grid_databases(size: int = 2) -> MultisetSampler:
    return small_databases(Gaussian(1.0), GRID_DOMAIN, GRID_DOMAIN.encode(GRID), size, n_rows=50, epsilon=1.0)


def test_a_row_counts_as_the_nearest_of_a_grid_whatever_the_other_rows_are():
    databases = grid_databases()
    assert len(databases.rows) == 5  # a row that was given twice is one
    rows = GRID_DOMAIN.draw(300, 0)
    found = databases.indices(rows)
    known = ~np.isnan(rows).any(axis=1)
    gaps = np.linalg.norm(rows[known, None] - databases.rows[None], axis=2)
    np.testing.assert_array_equal(found[known], gaps.argmin(axis=1))
    np.testing.assert_array_equal(found, [databases.indices(row[None])[0] for row in rows])


def test_the_sensitivity_on_a_grid_is_that_of_the_statement():
    """A reader does not know the grid, and takes √2·B/N: the draw is as flat as that says."""
    databases = grid_databases()
    widest = distances(databases.kernel, databases.rows).max()
    assert databases.diameter == pytest.approx(np.sqrt(2))
    assert widest < 1.2
    assert databases.sensitivity == pytest.approx(2 * 2**20 * np.sqrt(2) / widest, abs=1)


class Anywhere(MultisetSampler):
    """Returns indices outside the list, and too many of them."""

    def indices(self, rows: Array) -> Array:
        return np.array([[-5, 99]]) if len(rows) == 1 else np.array([-5, 99, *[0] * (len(rows) - 2)])


def test_an_index_outside_the_list_is_moved_into_it():
    wild = Anywhere(**vars(grid_databases()))
    drawn = sample_database([np.zeros((4, 2)), np.zeros((1, 2))], wild, ExponentialMechanism(1.0), n_rows=5)
    assert drawn.shape == (2, 2)


FRAME = MIXED.decode(MIXED.draw(200, np.random.default_rng(1)))


def published(domain: Domain = MIXED, rows: Any = None, **options: Any) -> Release:
    rows = domain.decode(domain.draw(200, 0)) if rows is None else rows
    return publish(rows, domain, **{"epsilon": 1.0, "delta": 0.0, "method": "exponential", "points": 2} | options)


@pytest.mark.parametrize("grid", [None, GRID])
def test_a_release_has_a_sound_statement_and_is_read_back_as_it_was(grid, tmp_path):
    domain = MIXED if grid is None else GRID_DOMAIN
    release = published(domain, public_points=grid, output=tmp_path / "a.kme", points=3)
    statement = release.statement
    assert statement is not None
    assert release.measurement is None
    assert (release.method, len(release), release.weights.tolist()) == ("exponential", 3, [1 / 3] * 3)
    assert (statement.epsilon, statement.delta, statement.rho, statement.n_rows) == (1.0, 0.0, 0.125, 200)
    assert (statement.mechanism, statement.noise_scale) == ("exponential over multisets", None)
    assert statement.n_databases == n_databases(54 if grid is None else 5, 3)
    assert statement.sensitivity == diameter_over(release.kernel, domain) / 200
    assert statement.score_scale == 2 * statement.sensitivity
    assert statement.public_points == (0 if grid is None else 3)
    assert ("rows given as public" in "; ".join(statement.taken_as_public)) == (grid is not None)
    same(read_release(tmp_path / "a.kme"), release)
    assert validate_release(tmp_path / "a.kme") == []
    with zipfile.ZipFile(tmp_path / "a.kme") as archive:
        assert SCHEMA_TEST.is_valid(json.loads(archive.read("release.json")))


def test_points_are_near_the_table_where_epsilon_is_large():
    table = MIXED.decode(np.repeat(MIXED.enumerate_rows(54)[[7, 7, 20]], 100, axis=0))
    release = published(MIXED, table, epsilon=1e4, points=3, weak=True)
    np.testing.assert_array_equal(release.encoded_points, MIXED.enumerate_rows(54)[[7, 7, 20]])


def test_the_draw_is_fresh_for_every_publication():
    draws = {published(epsilon=1e-3, points=3).encoded_points.tobytes() for _ in range(8)}
    assert len(draws) > 1  # all equal with probability 29260^-7


def test_the_size_follows_from_public_numbers_alone():
    sizes = [default_size(54, n, 1.0) for n in (10, 1000, 10**6)]
    assert sizes == sorted(sizes)
    assert (sizes[0], n_databases(54, sizes[-1] + 1) > MOST_DATABASES) == (1, True)
    assert len(published(points=None)) == default_size(54, 200, 1.0)


def test_what_cannot_be_drawn_exactly_is_refused_before_a_row_is_read(monkeypatch):
    monkeypatch.setattr(rows_module._Frame, "_pieces", Mock(side_effect=AssertionError("a row was read")))
    refusals.check(Path(__file__).parent / "refusals_draw.txt", lambda text: eval(text, globals() | {"plan": plan}))


def test_scoring_is_prepared_before_a_row_is_read_and_the_spend_recorded_before_the_draw(monkeypatch):
    order: list[str] = []
    draw = ExponentialMechanism.draw
    monkeypatch.setattr(
        ExponentialMechanism, "draw", lambda self, *a, **options: (order.append("drawn"), draw(self, *a, **options))[1]
    )
    databases = databases_of(3, 2, n_rows=2)

    def rows() -> Any:
        order.append("members" if "members" in databases.__dict__ else "nothing")
        yield np.array([[0.0], [1.0]])

    sample_database(rows(), databases, ExponentialMechanism(1.0), n_rows=2, record_spend=lambda: order.append("spent"))
    assert order == ["members", "spent", "drawn"]


SECRET = "s3cret-4711"


def test_no_cell_raises_warns_or_leaves_a_trace(tmp_path, capfd, caplog):
    cells = [
        SECRET, np.nan, np.inf, -1e308, 10**400, None, pd.NA, [], {}, b"x", object(), "", "\x00", pd.Timestamp("1700-01-01"),
    ]  # fmt: skip
    hostile = pd.DataFrame({name: pd.Series(cells, dtype=object) for name in MIXED.names})
    table = pd.concat([FRAME.astype(object), hostile], ignore_index=True)
    with caplog.at_level(logging.DEBUG):
        release = published(MIXED, table, rehearsal=1, output=tmp_path / "a.kme")
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
    assert release.statement.n_rows == 214  # type: ignore[union-attr]
    assert SECRET not in (tmp_path / "a.kme").read_bytes().decode("latin-1") + repr(release)


def test_a_rehearsal_is_stamped_and_comes_out_the_same_again(tmp_path):
    one, again, other = (published(rehearsal=seed, epsilon=0.1, output=tmp_path / f"{i}.kme") for i, seed in enumerate((1, 1, 2)))
    assert one.encoded_points.tobytes() == again.encoded_points.tobytes() != other.encoded_points.tobytes()
    assert "NOT PRIVATE" in repr(one)
    with pytest.raises(FileRefused, match="stamped NOT PRIVATE"):
        read_release(tmp_path / "0.kme")
    assert read_release(tmp_path / "0.kme", allow_rehearsal=True).is_rehearsal


def test_the_ledger_counts_a_draw_by_its_epsilon_alone(tmp_path):
    ledger = tmp_path / "l"
    Ledger(ledger).init("t", 0.3, 0.0)
    for epsilon in (0.1, 0.2):
        published(epsilon=epsilon, ledger=ledger, table="t", output=tmp_path / f"{epsilon}.kme")
    account = Ledger(ledger).account("t")
    assert account.total_epsilon == 0.3
    assert [(s.spend.mechanism, s.spend.noise_multiplier, s.spend.method) for s in account.releases] == [
        ("exponential over multisets", 20.0, "exponential"), ("exponential over multisets", 10.0, "exponential"),
    ]  # fmt: skip
    message = r"a pure release of epsilon 0\.01, delta 0 does not fit.*no pure release fits"
    with pytest.raises(PublishError, match=message):
        published(epsilon=0.01, ledger=ledger, table="t")


def test_answers_say_that_the_privacy_error_is_not_known(tmp_path):
    release = published(points=4, rehearsal=1, output=tmp_path / "a.kme")  # a seed: all four rows could lack their age
    estimate = release.mean("age")
    assert estimate.parts["privacy"] is None
    assert "rows that the exponential mechanism drew have no known privacy error" in "; ".join(estimate.notes)
    result = mmd_test(release, FRAME)
    assert (result.noise_aware, result.epsilon, result.delta, result.n_release_rows) == (False, 1.0, 0.0, 200)
    shown = repr(release)
    assert "one of 395,010 databases" in shown
    assert f"at most {release.statement.excess(0.95):.3g} further from the table" in shown  # type: ignore[union-attr]
    for command in ("info", "validate", "expect"):
        words = [command, str(tmp_path / "a.kme"), *["missing(age)"] * (command == "expect"), "--allow-rehearsal"]
        answer = CliRunner().invoke(analyst, [*words, "--json"])
        assert answer.exit_code == 0, answer.output
        if command == "info":
            info = json.loads(answer.stdout)
            assert (info["n_rows"], info["n_features"], info["statement"]["n_databases"]) == (200, None, 395010)


def test_a_draw_keeps_its_statement_through_transform_and_thin(tmp_path):
    drawn = published(points=3)
    for i, made in enumerate((drawn.transform({"double": "age * 2"}), drawn.thin(2))):
        made.write(tmp_path / f"{i}.kme")
        assert read_release(tmp_path / f"{i}.kme").statement == made.statement
        assert validate_release(tmp_path / f"{i}.kme") == []


def test_a_measurement_and_a_draw_do_not_go_together(numeric_release):
    for changes, message in (
        ({"statement": published().statement}, r"has a measurement, and its statement is of the exponential .*Pass the"),
        ({"measurement": None}, "has a statement and no measurement"),
    ):
        with pytest.raises(ValueError, match=message):
            numeric_release.replaced(**changes)
