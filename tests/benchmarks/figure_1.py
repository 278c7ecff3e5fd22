"""Figure 1 of Balog, Tolstikhin & Schölkopf 2018: Algorithm 1 with the first M private rows public.

    python tests/benchmarks/figure_1.py [--most-points 3000] [--draws 5]

Reads ../shared/anchors (data and published curves) and says so when they are not there. First the papers'
own weights at the papers' own noise scale, beside the published numbers: the projection distances must
agree, the privacy error on average. Then the weights of this package at its own (smaller) noise scale.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kmeanalyst.kernels import Gaussian, Kernel, KernelMean
from kmeanalyst.kernels.features import Nystroem
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.reweight import weights_for
from release_side.mechanism import GaussianNoise

ANCHORS = Path(__file__).resolve().parents[3] / "shared" / "anchors"
DELTA = 1e-6


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
    place = {row.tobytes(): m for m, row in enumerate(setting.rows[: len(setting.inner)])}
    inner = setting.inner[[place[row.tobytes()] for row in feature_map.points]]
    exact = np.linalg.solve(feature_map.function_values(np.eye(len(inner))), inner)
    return Measurement(
        vector=exact + noise_scale * rng.standard_normal(len(exact)),
        noise_scale=noise_scale or 1e-300,
        noise_law="normal",
        n_rows=len(setting.rows),
        feature_map=feature_map,
        noisy_sum=np.zeros(len(exact), dtype=np.int64),
    )


def compare(dimension: int, most_points: int, draws: int) -> None:
    """Print the published curve and ours at every published M up to most_points."""
    published = json.loads((ANCHORS / f"published_D{dimension}_alg1_leak_M10000.json").read_text())
    setting = load(dimension, most_points)
    n, epsilons = len(setting.rows), published["epsilons"]
    rng = np.random.default_rng(0)
    worst, log_ratios = 0.0, []
    print(
        f"\nD = {dimension}: projection, then per ε = {epsilons}: published / its weights here / signed here / uniform"
    )
    for i, m in enumerate(published["Ns_public"]):
        if m > most_points:
            break
        points = setting.rows[:m]
        theirs_map = Nystroem.fit(setting.kernel, points, tolerance=1e-5, in_given_order=True)  # their Gram-Schmidt
        feature_map = Nystroem.fit(setting.kernel, points)
        exact = weights_for("published", points, measure(setting, theirs_map, 0.0, rng))
        projection, theirs = setting.error(m, exact), published["dists_proj"][i]
        if theirs > 1e-4:
            worst = max(worst, abs(projection / theirs - 1))
        cells = []
        for e, epsilon in enumerate(epsilons):
            classical = np.sqrt(2 * np.log(1.25 / DELTA)) * (2 / n) / epsilon
            analytic = GaussianNoise(epsilon, DELTA).multiplier() * 2 / n
            raw = [
                setting.error(m, weights_for("published", points, measure(setting, theirs_map, classical, rng)))
                for _ in range(draws)
            ]
            ours = [
                setting.error(
                    m, weights_for("signed", points, measure(setting, feature_map, analytic, rng), n_public=m)
                )
                for _ in range(draws)
            ]
            there = published["dists_alg1"][e][i]
            if m >= 20:
                log_ratios.append(np.log(np.median(raw) / there))
            cells.append(
                f"{there:.5f} / {np.median(raw):.5f} / {np.median(ours):.5f} / {published['dists_base'][i]:.5f}"
            )
        print(f"M {m:5d}  proj {theirs:.6f} / {projection:.6f}   " + "   ".join(cells), flush=True)
    print(f"projection: worst relative difference {worst:.4f} where it exceeds 1e-4")
    print(f"privacy error at the papers' noise scale: mean ratio to the published {np.exp(np.mean(log_ratios)):.3f}")


def main() -> None:
    """Both dimensions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most-points", type=int, default=3000)
    parser.add_argument("--draws", type=int, default=5)
    arguments = parser.parse_args()
    if not ANCHORS.is_dir():
        print(f"the published data are not at {ANCHORS}: nothing to compare with. Skipped.")
        return
    for dimension in (2, 5):
        compare(dimension, arguments.most_points, arguments.draws)


if __name__ == "__main__":
    main()
