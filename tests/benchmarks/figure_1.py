"""Figure 1 of Balog, Tolstikhin & Schölkopf 2018: Algorithm 1 with the first M private rows public.

    python tests/benchmarks/figure_1.py [--most-points 3000] [--draws 5] [--dimension 2 5]

Reads ../shared/anchors (data and published curves) and says so when they are not there. First the papers' own weights at the
papers' own noise scale, next to the published numbers: the projection distances must agree, the privacy error on average. Then,
at this package's own (smaller) noise scale, the raw weights on the better of two bases, and every view of weights: median error
and (largest − smallest)/median over draws. Last, where any view is above the uniform baseline or above the raw weights by more
than the draws vary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from harness import ANCHORS, command_line, require
from simulated_releases import measurement_of

from kmeanalyst.kernels import Gaussian, Kernel, KernelMean
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.weights.reweight import weights_for
from release_side.door.mechanism import GaussianNoise

DELTA = 1e-6
NUMBERS = (1, 2, 3, 5, 8, 12, 19, 31, 49, 79, 126, 200, 319, 509, 811, 1072, 1555, 2056, 2983)  # among the published
VIEWS = ("signed", "probability", "bounded")
BOUND = 700.0  # bound of every column, in the papers' code
NEGLIGIBLE = 0.01  # relative; less is no difference worth a line


@dataclass
class Setting:
    """The private rows as far as the errors need them: k, ⟨k(z, ·), μ⟩ for the first rows, ‖μ‖²."""

    kernel: Kernel
    rows: Any
    inner: Any  # (most points,) mean of k(z_m, x) over all rows x
    squared_norm: float

    def error(self, n_points: int, weights: Any) -> float:
        """RKHS distance of the weighted first rows to the embedding of all rows."""
        points = KernelMean(self.kernel, self.rows[:n_points], weights)
        square = points.squared_norm() - 2 * weights @ self.inner[:n_points] + self.squared_norm
        return float(np.sqrt(max(0.0, square)))


@dataclass
class Curves:
    """Errors of one dimension: by name, one list per ε, with one entry per M: median and draws."""

    dimension: int
    epsilons: list[float]
    numbers: list[int] = field(default_factory=list)
    draws: dict[tuple[str, float], list[Any]] = field(default_factory=dict)

    def add(self, name: str, epsilon: float, draws: Any) -> str:
        """Keep the draws of the next M; returns them in print."""
        draws = np.atleast_1d(draws)
        self.draws.setdefault((name, epsilon), []).append(draws)
        spread = f" ±{np.ptp(draws) / 2 / np.median(draws):4.0%}" if len(draws) > 1 else ""
        return f"{np.median(draws):.5f}{spread}"

    def above(self, view: str, reference: str, epsilon: float) -> list[str]:
        """The M, and the ratio, where the view's error is above the reference's by more than the draws vary."""
        found = []
        for m, *both in zip(self.numbers, self.draws[view, epsilon], self.draws[reference, epsilon], strict=True):
            ours, theirs = (float(np.median(draws)) for draws in both)
            noise = np.hypot(*(1.25 * draws.std() / np.sqrt(len(draws)) for draws in both))  # of the medians
            if ours - theirs > 2 * noise and ours > (1 + NEGLIGIBLE) * theirs:
                found.append(f"{m} (×{ours / theirs:.2f})")
        return found


def load(dimension: int, most_points: int) -> Setting:
    """The papers' private data in D dimensions."""
    stem = ANCHORS / f"mixture_of_Gaussians_N100000_D{dimension}"
    rows = np.load(stem.with_suffix(".npz"))["X_private"]
    facts = json.loads(stem.with_suffix(".json").read_text())
    squared_norm = next(value for key, value in facts.items() if key.startswith("kernel_mean"))
    kernel = Gaussian(float(np.sqrt(1e4 * dimension / 2)))
    inner = KernelMean(kernel, rows).evaluate(rows[:most_points])
    return Setting(kernel, rows, inner, squared_norm)


def measure(setting: Setting, feature_map: Nystroem, noise_scale: float, rng: np.random.Generator) -> Measurement:
    """The noisy coordinates at a given noise scale (by linearity: the mean of L⁻¹k(Z, x) is L⁻¹ of the mean)."""
    index_of = {row.tobytes(): m for m, row in enumerate(setting.rows[: len(setting.inner)])}
    inner = setting.inner[[index_of[row.tobytes()] for row in feature_map.points]]
    exact = np.linalg.solve(feature_map.basis_features(np.arange(len(inner))), inner)
    noisy = exact + noise_scale * rng.standard_normal(len(exact))
    return measurement_of(feature_map, noisy, noise_scale or 1e-300, len(setting.rows), "normal")


def certified(basis: Nystroem) -> Nystroem:
    """The basis that publish measures these points by, unless N·ε is very large."""
    return CertifiedNystroem.of(basis) or basis


def our_scale(setting: Setting, feature_map: Nystroem, epsilon: float) -> float:
    """This package's noise on a coordinate: √2·B instead of 2·B for a map with a certificate."""
    return GaussianNoise(epsilon, DELTA).multiplier() * feature_map.diameter / len(setting.rows)


def errors(
    setting: Setting, feature_map: Nystroem, m: int, noise_scale: float, view: str, draws: int, rng: np.random.Generator
) -> list[float]:
    """One error per draw of the noise, of one view of weights on the first m rows."""
    points = setting.rows[:m]
    return [
        setting.error(m, weights_for(view, points, measure(setting, feature_map, noise_scale, rng), n_public=m))
        for _ in range(draws)
    ]


def compare(dimension: int, most_points: int, draws: int) -> Curves:
    """Print the published curve and ours at some of the published M up to most_points."""
    published = json.loads((ANCHORS / f"published_D{dimension}_alg1_leak_M10000.json").read_text())
    setting = load(dimension, most_points)
    curves = Curves(dimension, published["epsilons"])
    rng = np.random.default_rng(0)
    worst, log_ratios = 0.0, []
    print(f"\nD = {dimension}: published / its weights here, then at our noise scale: raw / uniform / {' / '.join(VIEWS)}")
    for m in (m for m in NUMBERS if m <= most_points):
        i = published["Ns_public"].index(m)
        points = setting.rows[:m]
        theirs_map = Nystroem.fit(setting.kernel, points, tolerance=1e-5, in_given_order=True)  # their Gram-Schmidt
        feature_map, theirs_certified = certified(Nystroem.fit(setting.kernel, points)), certified(theirs_map)
        curves.numbers.append(m)
        projection, theirs = errors(setting, theirs_map, m, 0.0, "published", 1, rng)[0], published["dists_proj"][i]
        if theirs > 1e-4:
            worst = max(worst, abs(projection / theirs - 1))
        print(f"M {m:5d}  basis {feature_map.dimension} ({theirs_map.dimension})  proj {theirs:.6f} / {projection:.6f}")
        for e, epsilon in enumerate(curves.epsilons):
            classical = float(np.sqrt(2 * np.log(1.25 / DELTA)) * (2 / len(setting.rows)) / epsilon)
            analytic = our_scale(setting, feature_map, epsilon)
            there = published["dists_alg1"][e][i]
            replayed = errors(setting, theirs_map, m, classical, "published", draws, rng)
            raw = [
                errors(setting, basis, m, our_scale(setting, basis, epsilon), "published", draws, rng)
                for basis in (theirs_certified, feature_map)
            ]
            if m >= 20:
                log_ratios.append(np.log(np.median(replayed) / there))
            cells = [
                curves.add("published", epsilon, there),
                f"{np.median(replayed):.5f}",
                curves.add("raw", epsilon, min(raw, key=np.median)),
                curves.add("uniform", epsilon, setting.error(m, np.full(m, 1 / m))),
                *(curves.add(view, epsilon, errors(setting, feature_map, m, analytic, view, draws, rng)) for view in VIEWS),
            ]
            print(f"    ε {epsilon:<5}" + " / ".join(cells), flush=True)
    print(f"projection: worst relative difference {worst:.4f} where it exceeds 1e-4")
    print(f"privacy error at the papers' noise scale: mean ratio to the published {np.exp(np.mean(log_ratios)):.3f}")
    return curves


def closing_line(curves: Curves) -> str:
    """Where any view is above the uniform baseline or the raw weights by more than the draws vary."""
    found = [
        f"{view} above {reference} at ε = {epsilon}, M = {', '.join(at)}"
        for view in VIEWS
        for reference in ("uniform", "raw")
        for epsilon in curves.epsilons
        if (at := curves.above(view, reference, epsilon))
    ]
    beyond = "by more than 1 % and two standard errors of the medians"
    return f"D = {curves.dimension}, {beyond}: " + ("; ".join(found) or "no view is above uniform or raw") + "."


def main() -> None:
    arguments = command_line(__doc__, most_points=3000, draws=5, dimension=(2, 5))
    require(ANCHORS)
    all_curves = [compare(dimension, arguments.most_points, arguments.draws) for dimension in arguments.dimension]
    print(*map(closing_line, all_curves), sep="\n")


if __name__ == "__main__":
    main()
