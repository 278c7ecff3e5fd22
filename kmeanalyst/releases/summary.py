"""A release in words: what it is and promises, for terminals and notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from kmeanalyst.releases.texts import shortened

if TYPE_CHECKING:
    from kmeanalyst.releases.measurement import Measurement
    from kmeanalyst.releases.release import ReleaseData
    from kmeanalyst.releases.statement import PrivacyStatement


_WIDEST = 40  # characters that names are padded to: one long name makes no other line longer


def summary(release: ReleaseData) -> dict[str, str]:
    """What the release is, line by line: label → text."""
    weights = release.weights
    lines = {
        "points": f"{len(release):,} weighted rows × {len(release.columns)} columns "
        f"({release.method}, {release.weight_view} weights)",
        "weights": f"Σw = {weights.sum():.4g}, Σ|w| = {np.abs(weights).sum():.4g}, {(weights < 0).mean():.0%} negative",
    }
    if release.thinning_error is not None:
        lines["thinned"] = f"at RKHS distance {release.thinning_error:.3g} from the release it was thinned from"
    if release.derived:
        names = ", ".join(one.column.name for one in release.derived)
        lines["derived"] = f"{names}: computed from the other columns (post-processing: the promise is unchanged)"
    promise = release.statement
    if promise is None:
        return lines | {"privacy": "none known: weighted points without a measurement"}
    if release.residual_over_noise is not None:
        lines["fit"] = f"residual {release.residual_over_noise:.3g} of the noise's size"
    stamp = {"NOT PRIVATE": "a rehearsal: its noise can be drawn again from a seed"} if release.is_rehearsal else {}
    return stamp | {
        "table": _table_text(promise) + (
            f", {promise.public_points:,} of the points given as public rows" if promise.public_points else ""
        ),
        "privacy": f"ε = {promise.epsilon:g}, δ = {promise.delta:g} (neighbours: {promise.neighbouring}; "
        f"ρ = {promise.rho:.3g})",
        "mechanism": f"{promise.mechanism}, sensitivity {promise.sensitivity:.3g}, {promise.calibration} calibration",
        **({} if promise.ledger_head is None else {"ledger": f"counted, head {promise.ledger_head}"}),
        **(_noise(release, release.measurement) if release.measurement is not None else _draw(release, promise)),
        **lines,
    }  # fmt: skip


def _table_text(promise: PrivacyStatement) -> str:
    """How much was measured: rows, or units of which each has rows."""
    if promise.protects_units:
        return f"{promise.n_rows:,} {promise.counted}, of equal weight however many private rows they have"
    return f"{promise.n_rows:,} private rows"


def _noise(release: ReleaseData, measurement: Measurement) -> dict[str, str]:
    dimension = measurement.feature_map.dimension
    return {
        "noise": f"{measurement.noise_scale:.3g} on each of {dimension:,} features "
        f"(total {measurement.noise_scale * dimension**0.5:.3g}, kernel scale {release.kernel.bound:g})"
    }


def _draw(release: ReleaseData, promise: PrivacyStatement) -> dict[str, str]:
    """What is known of rows that the exponential mechanism drew: how much worse than the best they can be."""
    return {
        "draw": f"one of {promise.n_databases:,} databases, P ∝ exp(−distance/{promise.score_scale:.3g}): with chance 95 % "
        f"at most {promise.excess():.3g} further from the table than the nearest one (kernel scale {release.kernel.bound:g})"
    }


def text(release: ReleaseData) -> str:
    """A release for a terminal."""
    width = min(_WIDEST, max(len(name) for name in release.columns.names))
    columns = [f"  {shortened(name, 60):<{width}}  {extent}" for name, extent in _column_lines(release)]
    lines = [f"  {label:<11} {text}" for label, text in summary(release).items()]
    return "\n".join(["kmeanalyst.Release", *lines, f"  columns     {len(columns)}", *[f"  {c}" for c in columns]])


def html(release: ReleaseData) -> str:
    """A release for a notebook."""

    def table(rows: list[tuple[str, str]]) -> str:
        cells = "".join(
            f'<tr><th style="text-align:left">{escape(a)}</th><td style="text-align:left">{escape(b)}</td></tr>'
            for a, b in rows
        )
        return f"<table>{cells}</table>"

    return (
        f"<div><strong>kmeanalyst.Release</strong>{table(list(summary(release).items()))}"
        f"<details><summary>{len(release.columns)} columns</summary>{table(_column_lines(release))}</details></div>"
    )


def _column_lines(release: ReleaseData) -> list[tuple[str, str]]:
    """For each column its name, and its kind with bounds or levels."""
    lines = [(column.name, column.describe()) for column in release.domain.columns]
    return lines + [(one.column.name, one.describe()) for one in release.derived]
