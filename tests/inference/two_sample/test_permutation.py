"""Sample against sample: exact statistics, exact levels, what a comparison can show, and how samples are read."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import refusals
from scipy.stats import kstest
from threadpoolctl import threadpool_limits

import kmeanalyst as ka
from kmeanalyst.inference.two_sample import distance, gram_sums, without_noise
from kmeanalyst.inference.two_sample.gram_sums import GramSums, block_evaluator
from kmeanalyst.kernels import Gaussian, Indicator, Kernel, Laplacian, MultiScale, SoftenedProduct
from kmeanalyst.releases.domain.domain import Domain

KERNELS: dict[str, Kernel] = {
    "gaussian": Gaussian(1.3), "multi-scale": MultiScale((0.5, 1.0, 2.0)), "laplacian": Laplacian(1.1),
    "sum": Gaussian(1.0) + Gaussian(0.3) * 2.0,
    "table": SoftenedProduct((MultiScale((1.0, 2.0)), Indicator(4), Gaussian(1.0)), 0.4),
}  # fmt: skip


def dense(x, y, kernel: Kernel) -> float:
    """MMD² from its definition, the whole Gram matrix in float64."""
    n, m = len(x), len(y)
    Kx, Ky, Kxy = kernel.gram(x, x), kernel.gram(y, y), kernel.gram(x, y)
    within = (Kx.sum() - np.trace(Kx)) / (n * (n - 1)) + (Ky.sum() - np.trace(Ky)) / (m * (m - 1))
    return float(within - 2 * Kxy.mean())


def rows(n: int, seed: int, *, missing: bool = False) -> np.ndarray:
    """Three columns, the second of codes 0 ... 3."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(n, 3))
    made[:, 1] = rng.integers(0, 4, n)
    if missing:
        made[rng.random(made.shape) < 0.2] = np.nan
    return made


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(gram_sums, "_BLOCK", 16)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_statistic_is_float64_exact_for_every_kernel_unequal_sizes_and_missing_cells(small_blocks, name):
    for (n, m), missing in itertools.product([(13, 50), (50, 13), (40, 40)], [False, True]):
        if missing and name == "sum":
            continue  # of kernels without a meaning for a missing cell
        x, y = rows(n, 1, missing=missing), rows(m, 2, missing=missing)
        result = ka.mmd_test(x, y, kernel=KERNELS[name], permutations=9, rng=0)
        assert result.statistic == pytest.approx(dense(x, y, KERNELS[name]), abs=1e-13)
        assert result.mmd_squared == result.statistic and result.estimator == "unbiased"


def test_rows_far_from_zero_or_from_each_other_lose_no_digits():
    for offset, outlier in itertools.product([0.0, 1e6, 1e9], [0.0, 300.0, 1e5]):
        x, y = rows(30, 1) + offset, rows(40, 2) + offset
        x[0] += outlier
        y[:5] -= outlier  # a cluster of its own, whose inner distances a product of large numbers would lose
        result = ka.mmd_test(x, y, kernel=Gaussian(1.0), permutations=9, rng=0)
        assert result.statistic == pytest.approx(dense(x, y, Gaussian(1.0)), abs=1e-10), (offset, outlier)


def test_a_column_of_few_values_is_looked_up_and_of_many_computed(monkeypatch):
    made = rows(60, 3, missing=True)
    whole = KERNELS["table"].gram(made, made)
    for most in (0, 512):
        monkeypatch.setattr(gram_sums, "_MOST_VALUES", most)
        block = block_evaluator(KERNELS["table"], made)(slice(5, 40), slice(20, 60))
        np.testing.assert_allclose(block, whole[5:40, 20:60], atol=1e-14)


def test_every_relabelled_statistic_is_that_of_the_relabelled_rows(small_blocks):
    n, pooled = 45, rows(72, 5)
    found = without_noise._relabelled([Gaussian(1.0)], pooled, n, 20, np.random.default_rng(3))[0]
    first = next(without_noise.relabelled_rows(n, 72, 20, np.random.default_rng(3)))
    expected = [dense(pooled[of], pooled[~of], Gaussian(1.0)) for of in first.T]
    np.testing.assert_allclose(found.statistics, expected, atol=3e-7)
    assert np.abs(found.statistics[0] - found.observed) < found.tie  # rounding stays below what counts as a tie
    assert found.tie < 1e-3 * found.statistics.std()


def test_one_thread_gives_what_several_give():
    x, y = np.random.default_rng(0).normal(size=(2, 900, 3))
    with threadpool_limits(1):
        alone = ka.mmd_test(x, y, kernel=Gaussian(1.0), permutations=20, rng=1)
    assert ka.mmd_test(x, y, kernel=Gaussian(1.0), permutations=20, rng=1) == alone


def test_memory_does_not_grow_with_the_square_of_the_rows(monkeypatch):
    monkeypatch.setattr(gram_sums, "_BLOCK", 64)
    x, y = np.random.default_rng(0).normal(size=(2, 1500, 3))
    tracemalloc.start()
    ka.mmd_test(x, y, kernel=Gaussian(1.0), permutations=20, rng=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3000**2 * 8 / 10  # the whole Gram matrix has 72 MB


def test_p_values_are_those_of_a_hundred_thousand_plain_relabellings():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=(9, 2)) + 0.6
    K = Gaussian(1.2).gram(*[np.vstack([x, y])] * 2)
    np.fill_diagonal(K, 0)
    first = np.argsort(rng.random((100_000, 21)), axis=1)[:, :12]
    labels = np.zeros((100_000, 21))
    np.put_along_axis(labels, first, 1.0, axis=1)
    signed = labels / 12, (1 - labels) / 9
    within = (labels @ K * labels).sum(1) / (12 * 11) + ((1 - labels) @ K * (1 - labels)).sum(1) / (9 * 8)
    plain = float((within - 2 * (signed[0] @ K * signed[1]).sum(1) >= dense(x, y, Gaussian(1.2)) - 1e-12).mean())
    assert 0.01 < plain < 0.5
    ours = ka.mmd_test(x, y, kernel=Gaussian(1.2), permutations=20_000, rng=0).pvalue
    assert ours == pytest.approx(plain, abs=4 * np.sqrt(plain * (1 - plain) * (1 / 20_000 + 1e-5)))  # 4 standard errors


def test_ties_count_against_rejection():
    x, y = np.array([0.0, 0, 0, 1]), np.array([0.0, 1, 1, 1])
    pooled = np.concatenate([x, y])
    found = []
    for first in itertools.combinations(range(8), 4):
        of = np.isin(np.arange(8), first)
        found.append(dense(pooled[of, None], pooled[~of, None], Gaussian(1.0)))
    exact = np.mean(np.array(found) >= dense(x[:, None], y[:, None], Gaussian(1.0)) - 1e-9)  # of 70; most are ties
    ours = ka.mmd_test(x, y, kernel=Gaussian(1.0), permutations=9999, rng=2).pvalue
    assert ours == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 9999) + 1e-4)
    alike = np.zeros((5, 1))
    assert ka.mmd_test(alike, alike, kernel=Gaussian(1.0), permutations=99, rng=0).pvalue == 1.0
    far = ka.mmd_test(np.zeros((20, 1)), np.ones((20, 1)) * 5, permutations=999, rng=0)
    assert far.pvalue == 1 / 1000  # beyond all relabellings


def test_one_seed_gives_one_p_and_a_generator_is_advanced():
    x, y = rows(15, 1), rows(15, 2)
    first, again, other = (ka.mmd_test(x, y, permutations=99, rng=seed) for seed in (7, 7, 8))
    assert first == again and first.pvalue != other.pvalue
    rng = np.random.default_rng(7)
    assert ka.mmd_test(x, y, permutations=99, rng=rng).pvalue == first.pvalue
    assert ka.mmd_test(x, y, permutations=99, rng=rng).pvalue != first.pvalue


def test_relabellings_drawn_in_parts_are_as_many_as_asked(monkeypatch):
    monkeypatch.setattr(without_noise, "_AT_ONCE", 7)
    parts = list(without_noise.relabelled_rows(5, 11, 20, np.random.default_rng(0)))
    assert [part.shape[1] for part in parts] == [8, 7, 6]
    assert all((part.sum(axis=0) == 5).all() for part in parts) and parts[0][:5, 0].all()
    assert len({tuple(column) for part in parts for column in part.T}) > 15
    x, y = rows(20, 1), rows(15, 2)
    assert 1 / 21 <= ka.mmd_test(x, y, kernel=Gaussian(1.0), permutations=20, rng=0).pvalue <= 1


def test_the_level_holds_one_by_one_and_for_aggregated_kernels():
    # false-alarm rate 1e-4 each
    rng = np.random.default_rng(3)
    draws = [(rng.normal(size=(20, 2)), rng.standard_normal(size=(25, 2))) for _ in range(200)]
    for kernel in (None, "aggregated"):
        p = np.array([ka.mmd_test(*d, kernel=kernel, permutations=39, rng=i).pvalue for i, d in enumerate(draws)])
        assert kstest(p - 0.5 / 40, "uniform").pvalue > 1e-4
        assert (p <= 0.1).sum() <= 38


def test_the_lengthscale_is_one_of_the_pooled_rows_whoever_they_belong_to():
    rng = np.random.default_rng(0)
    pooled = np.vstack([rng.normal(size=(900, 2)), rng.normal(size=(2100, 2)) * 5])
    whole = distance.pooled_lengthscale(pooled[:900], pooled[900:])
    for _ in range(3):
        pooled = rng.permutation(pooled)
        assert distance.pooled_lengthscale(pooled[:50], pooled[50:]) == whole
    assert whole == pytest.approx(ka.median_lengthscale(pooled, most_rows=3000), rel=0.1)  # each side by its size
    mostly = np.concatenate([[3.0, 5.0], np.zeros(4998)])[:, None]
    assert distance.pooled_lengthscale(mostly, np.zeros((10, 1))) == 3.0


def wavy(n: int, rng: np.random.Generator) -> np.ndarray:
    """A normal distribution with fine ripples on it: the same at large, another in detail."""
    drawn = rng.normal(size=(4 * n, 1))
    return drawn[rng.random(len(drawn)) < (1 + np.sin(20 * drawn[:, 0])) / 2][:n]


def test_aggregated_lengthscales_show_a_local_difference_that_the_median_misses():
    rng = np.random.default_rng(5)
    draws = [(rng.normal(size=(200, 1)), wavy(200, rng)) for _ in range(20)]
    median, aggregated = (
        [ka.mmd_test(*d, kernel=kernel, permutations=99, rng=0) for d in draws] for kernel in (None, "aggregated")
    )
    assert np.mean([r.pvalue <= 0.05 for r in median]) <= 0.3  # its power is .07, of 60 draws elsewhere
    assert np.mean([r.pvalue <= 0.05 for r in aggregated]) >= 0.6  # .88
    for one, several in zip(median, aggregated, strict=True):
        assert several.mmd_squared == pytest.approx(one.mmd_squared, abs=1e-14)
        assert several.mmd_interval == one.mmd_interval and several.noise_floor == one.noise_floor
    note = aggregated[0].notes[0]
    assert note.startswith("kernel of the largest statistic: Gaussian(lengthscale=")
    assert float(note.split("=")[1].rstrip(")")) < distance.pooled_lengthscale(*draws[0]) / 8


def test_a_sequence_of_kernels_is_one_test_under_the_same_relabellings():
    x, y = rows(40, 1), rows(30, 2) + 0.3
    kernels = [Gaussian(1.0), Laplacian(0.4)]
    result = ka.mmd_test(x, y, kernel=kernels, permutations=50, rng=3)
    found = without_noise._relabelled(kernels, np.vstack([x, y]), 40, 50, np.random.default_rng(3))
    largest = np.max([each.statistics / each.scale for each in found], axis=0)
    assert result.statistic == pytest.approx(largest[0])
    assert result.pvalue == ((largest[1:] >= largest[0]).sum() + 1) / 51
    assert result.mmd_squared == pytest.approx(dense(x, y, Gaussian(1.0)), abs=1e-13)
    assert "the largest of 2 kernels' statistics" in result.method and "Laplacian" in " ".join(result.notes)


def test_the_scale_of_a_kernel_is_the_standard_deviation_of_its_relabelled_statistics():
    pooled = np.random.default_rng(0).normal(size=(150, 2))
    for lengthscale in (0.1, 1.0, 5.0):
        found = without_noise._relabelled([Gaussian(lengthscale)], pooled, 60, 3000, np.random.default_rng(1))[0]
        assert found.scale == pytest.approx(found.statistics.std(), rel=0.12)


def sums_of(x, y, kernel: Kernel) -> GramSums:
    return gram_sums.gram_sums([kernel], np.vstack([x, y]), len(x))[0]


def test_traces_are_unbiased_where_the_covariance_is_known():
    # the linear kernel of one bounded column: Σ is its variance
    class Linear(Kernel):
        name = "linear"
        bound = 1.0

        def gram(self, X, Y):
            return X @ Y.T

        def diagonal(self, X):
            return (X**2).sum(1)

    rng = np.random.default_rng(0)
    sums = [sums_of(*np.split(rng.uniform(-1, 1, (12, 1)) + 3, [5]), Linear()) for _ in range(4000)]
    traces = np.array([gram_sums.pooled_trace(s) for s in sums])
    squares = np.array([gram_sums.pooled_trace_of_square(s) for s in sums])
    assert traces.mean() == pytest.approx(1 / 3, abs=4 * traces.std() / 60)
    assert squares.mean() == pytest.approx(1 / 9, abs=4 * squares.std() / 60)  # 4 standard errors


def test_the_estimated_variance_is_that_of_the_statistic():
    for shift in [0.0, 1.0]:
        rng = np.random.default_rng(1)
        estimated, statistics = [], []
        for _ in range(400):
            x, y = rng.normal(size=(40, 2)), rng.normal(size=(60, 2)) + np.array([shift, 0])
            sums = sums_of(x, y, Gaussian(1.5))
            null, linear = gram_sums.variances_of_unbiased(sums)
            estimated.append(null + 4 * linear if shift else null)
            statistics.append(dense(x, y, Gaussian(1.5)))
        assert np.mean(estimated) == pytest.approx(np.var(statistics), rel=0.3)  # 4 standard errors of a variance of 400


def test_the_linear_part_is_that_of_the_populations_witness_and_not_of_the_samples():
    rng, kernel, shift = np.random.default_rng(3), Gaussian(1.0), np.array([0.8, 0])
    x, y = rng.normal(size=(3000, 2)), rng.normal(size=(3000, 2)) + shift
    witness = [kernel.gram(z, x).mean(axis=1) - kernel.gram(z, y).mean(axis=1) for z in (x, y)]
    truth, found = witness[0].var() / 40 + witness[1].var() / 50, []
    for _ in range(400):
        sums = sums_of(rng.normal(size=(40, 2)), rng.normal(size=(50, 2)) + shift, kernel)
        found.append(gram_sums.variances_of_unbiased(sums)[1])
    # 4 standard errors are .13, clipping at zero adds some .05; the samples' own witness has 1.38 times the variance
    assert np.mean(found) == pytest.approx(truth, rel=0.2)


def test_the_noise_floor_is_what_one_population_shows():
    rng = np.random.default_rng(2)
    samples = [(rng.normal(size=(20, 2)), rng.normal(size=(35, 2))) for _ in range(400)]
    squares = np.array([ka.mmd_squared(*pair, Gaussian(1.0)) for pair in samples])
    floor = np.mean([ka.mmd_test(*pair, kernel=Gaussian(1.0), permutations=1, rng=0).noise_floor ** 2 for pair in samples])
    assert floor == pytest.approx(squares.mean(), abs=4 * squares.std() / 20)  # 4 standard errors


def gaussian_mmd(shift: float, lengthscale: float, d: int) -> float:
    """MMD of N(0, I) and N(shift·e₁, I) in d columns under a Gaussian kernel, in closed form."""
    v = lengthscale**2 + 2
    return float(np.sqrt(2 * (lengthscale**2 / v) ** (d / 2) * (1 - np.exp(-(shift**2) / (2 * v)))))


def test_the_interval_holds_the_distance_of_the_populations():
    for shift in [0.0, 0.2, 0.5, 2.0]:
        # 95 % is claimed; of 200, fewer than 178 (89 %) has probability 3e-4 at 95 %. Longer runs: 93.7 to 97.8 %
        rng, truth = np.random.default_rng(7), gaussian_mmd(shift, 1.5, 2)
        held = 0
        for _ in range(200):
            x, y = rng.normal(size=(80, 2)), rng.normal(size=(60, 2)) + np.array([shift, 0])
            low, high = ka.mmd_test(x, y, kernel=Gaussian(1.5), permutations=1, rng=0).mmd_interval
            assert 0 <= low <= high
            held += low <= truth <= high
        assert held >= 178


def test_the_detectable_distance_is_found_four_times_in_five():
    rng, found = np.random.default_rng(8), []
    shift = 0.6  # MMD 0.100 in ten columns
    for i in range(120):
        x, y = rng.normal(size=(100, 10)), rng.normal(size=(100, 10))
        y[:, 0] += shift
        found.append(ka.mmd_test(x, y, kernel=Gaussian(4.5), permutations=99, rng=i))
    truth = gaussian_mmd(shift, 4.5, 10)
    assert np.mean([r.detectable_mmd for r in found]) == pytest.approx(truth, rel=0.06)
    assert 0.65 <= np.mean([r.pvalue <= 0.05 for r in found]) <= 0.93  # 0.8 ± 4 standard errors


def test_what_cannot_be_computed_is_none_and_nothing_is_nan():
    few = ka.mmd_test([[0.0], [1.0]], [[0.5], [2.0], [3.0]], permutations=9, rng=0)
    assert few.mmd_interval is None and few.detectable_mmd is None and few.noise_floor > 0
    zeros = np.zeros((9, 1)), np.zeros((8, 1))
    alike = ka.mmd_test(*zeros, kernel=Gaussian(1.0), permutations=99, rng=0)
    assert alike.mmd_interval == (0.0, 0.0) and alike.noise_floor == 0.0 and alike.detectable_mmd is None
    rounded = ka.mmd_test(*zeros, kernel=Gaussian(1.0) * 0.1, permutations=99, rng=0)
    assert rounded.noise_floor == 0.0 and rounded.detectable_mmd is None and rounded.pvalue == 1.0
    several = ka.mmd_test(*zeros, kernel=[Gaussian(1.0), Gaussian(2.0)], rng=0)
    assert several.statistic == 0.0 and several.pvalue == 1.0


def staff(n: int, seed: int, shift: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 60, n) + shift,
            "job": rng.choice(["clerk", "cook", "nurse"], n),
            "sex": pd.Categorical(rng.choice(["F", "M"], n)),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "wage": rng.normal(size=n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "wage"] = np.nan
    return frame


def test_tables_of_text_dates_and_missing_cells_are_tested_by_a_kernel_for_tables():
    rng_p = [ka.mmd_test(staff(60, 2 * i), staff(50, 2 * i + 1), permutations=39, rng=i).pvalue for i in range(30)]
    assert kstest(np.array(rng_p) - 0.5 / 40, "uniform").pvalue > 1e-4
    other = staff(80, 1)
    other["job"] = np.where(other["sex"] == "F", "nurse", "cook")  # the columns' relation, too
    result = ka.mmd_test(staff(80, 0), other, rng=0)
    assert result.pvalue <= 0.01
    kinds = "age (integer), job (categorical), sex (categorical), since (date), wage (real)"
    assert any(kinds in note for note in result.notes)
    assert ka.mmd_squared(staff(80, 0), other, estimator="unbiased") == pytest.approx(result.mmd_squared, abs=1e-12)


def test_columns_are_matched_by_name():
    for a, b in ((staff(40, 0), staff(30, 1)), (pd.DataFrame(rows(40, 0)), pd.DataFrame(rows(30, 1)))):
        first = ka.mmd_test(a, b, permutations=99, rng=0)
        assert ka.mmd_test(a, b[b.columns[::-1]], permutations=99, rng=0) == first


def test_tables_of_numbers_behave_as_arrays_in_natural_units():
    a, b = pd.DataFrame(rows(40, 0), columns=list("abc")), pd.DataFrame(rows(30, 1), columns=list("abc"))
    plain = ka.mmd_test(a.to_numpy(), b.to_numpy(), permutations=99, rng=0)
    assert ka.mmd_test(a, b, permutations=99, rng=0) == plain
    assert ka.mmd_test(a.astype(object), b.convert_dtypes(), permutations=99, rng=0) == plain
    a.loc[0, "b"] = np.nan
    notes = ka.mmd_test(a, b, permutations=9, rng=0).notes
    assert "a (real), b (integer), c (real)" in notes[0]  # missing is a value of its own there
    # with a kernel chosen for numbers, the kernel decides about a missing one
    chosen = ka.mmd_test(a, b, kernel=Gaussian(1.0), permutations=9, rng=0)
    assert chosen.mmd_squared == pytest.approx(dense(a.to_numpy(), b.to_numpy(), Gaussian(1.0)), abs=1e-13)


TEXT = pd.DataFrame({"a": ["u", "v", "u"], "b": [1.0, 2.0, 3.0]})
PLAIN = np.zeros((3, 1)), np.ones((3, 1))
WEIGHTED = np.zeros((3, 1)), np.ones(3) / 3


def test_tests_that_cannot_be_are_refused(mixed_release, numeric_release, foreign_release):
    names = {**globals(), **locals(), "frame": mixed_release.resample(20, rng=0)}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))


def test_weighted_points_are_tested_as_a_release_without_a_measurement_is():
    rng = np.random.default_rng(2)
    points, weights, sample = rng.normal(size=(50, 2)), rng.random(50) / 25, rng.normal(size=(80, 2)) + 0.2
    domain = Domain(tuple(ka.Real(name=name, lower=-9, upper=9) for name in ("x0", "x1")))
    frame = pd.DataFrame(points, columns=domain.names).assign(weight=weights)
    release = ka.mmd_test(ka.from_frame(frame, kernel=Gaussian(1.0), domain=domain), sample)
    for pair in (((points, weights), sample), (sample, (points, weights))):
        ours = ka.mmd_test(*pair, kernel=Gaussian(1.0))
        assert ours.pvalue == pytest.approx(release.pvalue, rel=1e-9)
        assert ours.mmd_squared == pytest.approx(release.mmd_squared, abs=1e-12)
        assert ours.statistic == pytest.approx(ka.mmd_squared(*pair, Gaussian(1.0)), abs=1e-12)
        for result in (ours, release):
            assert (result.n_release_points, result.n_sample_rows, result.noise_aware) == (50, 80, False)
            assert result.epsilon is None and any("tested as a fixed distribution" in note for note in result.notes)


@pytest.mark.levels
def test_a_fixed_distribution_is_tested_at_its_level_and_its_interval_holds():
    # false-alarm rate 1e-4; the points are the population itself, up to 1/2000
    points = np.random.default_rng(0).normal(size=(2000, 1))
    weights = np.full(2000, 1 / 2000)
    for shift in (0.0, 0.5):
        rng, p, held = np.random.default_rng(1), [], 0
        truth = ka.mmd((points, weights), points + shift, Gaussian(1.0))
        for _ in range(120):
            sample = rng.choice(points, 60, axis=0) + shift
            result = ka.mmd_test((points, weights), sample, kernel=Gaussian(1.0))
            p.append(result.pvalue)
            held += result.mmd_interval[0] <= truth <= result.mmd_interval[1]
        assert held >= 104  # of 120 at 95 %, fewer has probability 3e-4
        assert shift or kstest(p, "uniform").pvalue > 1e-4
        assert shift == 0 or np.mean(np.array(p) <= 0.05) > 0.8
    assert 0 < result.noise_floor < result.detectable_mmd < 0.5


def test_the_interval_with_a_fixed_distribution_is_as_wide_as_the_estimate_varies():
    rng, points, squares, widths = np.random.default_rng(4), np.linspace(-1, 1, 20)[:, None], [], []
    for _ in range(60):
        result = ka.mmd_test((points, np.full(20, 0.05)), rng.normal(size=(300, 1)) * 2, kernel=Gaussian(1.0))
        squares.append(result.mmd_squared)
        widths.append(result.mmd_interval[1] ** 2 - result.mmd_interval[0] ** 2)
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.std(squares), rel=0.37)  # 4 standard errors


def test_the_null_of_a_large_sample_has_its_mean_from_all_rows_and_its_shape_from_some(monkeypatch):
    rng = np.random.default_rng(3)
    points, sample = rng.normal(size=(100, 2)), rng.normal(size=(900, 2))
    whole = ka.mmd_test((points, np.full(100, 0.01)), sample, kernel=Gaussian(1.0))
    monkeypatch.setattr("kmeanalyst.inference.two_sample.without_noise._MOST_EIGEN_ROWS", 100)
    subset = ka.mmd_test((points, np.full(100, 0.01)), sample, kernel=Gaussian(1.0))
    assert subset.noise_floor == pytest.approx(whole.noise_floor, rel=1e-12)
    assert subset.statistic == pytest.approx(whole.statistic, rel=1e-12)
    assert subset.detectable_mmd == pytest.approx(whole.detectable_mmd, rel=0.1)
    assert subset.pvalue == pytest.approx(whole.pvalue, rel=0.3)


def pair_of_frames(seed: int, shift: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    return tuple(pd.DataFrame({"gain": rng.normal(0, 1e4, 200), "score": rng.normal(by, 1, 200)}) for by in (0, shift))  # type: ignore[return-value]


def test_each_column_counts_by_its_own_spread():
    """Of the raw numbers the power was .07; of 20 draws at level 5 % more than 5 are rejected with probability .0003."""
    found = np.array([
        [ka.mmd_test(*pair_of_frames(seed, shift), permutations=199, rng=seed).pvalue <= 0.05 for shift in (1.0, 0.0)]
        for seed in range(20)
    ])  # fmt: skip
    assert found[:, 0].all() and found[:, 1].sum() <= 5
    a, b = (frame.to_numpy() for frame in pair_of_frames(0, 1.0))
    scaled = ka.mmd_test(a, b, rng=0)
    assert ka.mmd_test(a * [1e-6, 3], b * [1e-6, 3], rng=0).statistic == pytest.approx(scaled.statistic, rel=1e-9)
    assert any("divided by its standard deviation over both samples" in note for note in scaled.notes)
    spread = np.vstack([a, b]).std(axis=0)
    kernel = Gaussian(distance.pooled_lengthscale(a / spread, b / spread))
    assert ka.mmd_test(a / spread, b / spread, kernel=kernel, rng=0).statistic == pytest.approx(scaled.statistic, rel=1e-9)
    assert ka.mmd_test(a, b, kernel=kernel, rng=0).notes == ()


def test_paths_of_two_tables_are_read_and_running_numbers_are_named(tmp_path):
    a, b = (frame.assign(id=range(start, start + 200)) for frame, start in zip(pair_of_frames(0, 0.2), (1, 900), strict=True))
    for words in (False, True):
        a, b = (frame.assign(city=["Bern", "Basel"] * 100) if words else frame for frame in (a, b))
        for name, frame in (("a.csv", a), ("b.csv", b)):
            frame.to_csv(tmp_path / name, index=False)
        whole = ka.mmd_test(a, b, permutations=99, rng=0)
        found = ka.mmd_test(tmp_path / "a.csv", str(tmp_path / "b.csv"), permutations=99, rng=0)
        assert (found.statistic, found.pvalue, found.notes) == (whole.statistic, whole.pvalue, whole.notes)
        assert found.notes[0] == "id looks like a running number of the rows; leave it out with columns=[...]"
    kept = ka.mmd_test(tmp_path / "a.csv", tmp_path / "b.csv", columns=["gain", "score"], permutations=99, rng=0)
    assert kept.statistic == ka.mmd_test(*pair_of_frames(0, 0.2), permutations=99, rng=0).statistic
    assert not any("running" in note for note in kept.notes)
    theirs = b.rename(columns={"city": "town"}).replace({"town": {"Bern": "BE"}})
    own = {"rename": {"town": "city"}, "recode": {"city": {"BE": "Bern"}}}
    assert ka.mmd_test(a, theirs, permutations=99, rng=0, **own).statistic == whole.statistic
