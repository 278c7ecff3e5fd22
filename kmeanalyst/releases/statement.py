"""The privacy promise of a release in one value, and the two-line arithmetic that checks it."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from typing import Any

from kmeanalyst.releases.noise import (
    NOISE_LAWS,
    calibrations_of,
    gaussian_delta,
    is_pure,
    is_rehearsal,
    pure_epsilon,
    zcdp_delta,
    zcdp_rho,
)

REPLACE_ROW, REPLACE_UNIT = "replace-one", "replace-one-unit"
NEIGHBOURS = (REPLACE_ROW, REPLACE_UNIT)
_SLACK = 1e-6  # relative room for rounding when a claim is recomputed
_SMALLEST_DELTA = 1e-100  # that Gaussian noise may claim: none of ours does, and far below the arithmetic underflows


class StatementError(ValueError):
    """A privacy statement that contradicts itself or its own arithmetic."""


def software_versions(*packages: str) -> dict[str, str]:
    """Python's version and those of the packages, as statements and file headers record them."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """What a release promises about the rows it was made from. A field never changes its meaning.

    epsilon, delta    the (ε, δ) of differential privacy.
    neighbouring      which two tables are neighbours: "replace-one" (a row; N is public), or "replace-one-unit" (all rows
                      of one unit, a person; the number of units is public, the number of rows is not, and every unit
                      counts with the average of its rows).
    mechanism         the noise: "discrete gaussian" or "discrete laplace", or "rehearsal of" one of them: drawn
                      from a seed, and so NOT PRIVATE.
    sensitivity       largest distance between the noiseless vectors of two neighbours, in units of the mean:
                      Euclidean for Gaussian noise, L1 for Laplace.
    noise_scale       standard deviation of the noise on one coordinate, in the same units.
    calibration       how the scale follows from ε, δ and the sensitivity: "analytic" (Balle & Wang 2018) or "zcdp"
                      (through ρ; Canonne, Kamath & Steinke 2020) for Gaussian noise, "pure" for Laplace.
    rho               ρ of zero-concentrated differential privacy: sensitivity² / 2σ², or ε²/2 for Laplace.
    n_rows            N, what the mean is over, taken as public: the rows of the table under "replace-one", its units
                      under "replace-one-unit".
    public_points     how many of the points were given as public rows.
    taken_as_public   everything that was treated as public, in words.
    versions          the software that made the release.
    """

    epsilon: float
    delta: float
    neighbouring: str
    mechanism: str
    sensitivity: float
    noise_scale: float
    calibration: str
    rho: float
    n_rows: int
    public_points: int = 0
    taken_as_public: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("epsilon", "sensitivity", "noise_scale", "rho"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf):
                raise StatementError(
                    f"{name} must be a positive finite number, got {value!r}: no promise follows from it."
                )
        if not (isinstance(self.delta, int | float) and not isinstance(self.delta, bool) and 0 <= self.delta < 1):
            raise StatementError(
                f"delta must be in [0, 1), got {self.delta!r}: it is the chance that the promise fails."
            )
        if isinstance(self.n_rows, bool) or not isinstance(self.n_rows, int) or self.n_rows < 1:
            raise StatementError(f"n_rows must be a positive whole number, got {self.n_rows!r}.")
        if isinstance(self.public_points, bool) or not isinstance(self.public_points, int) or self.public_points < 0:
            raise StatementError(f"public_points must be a whole number of at least 0, got {self.public_points!r}.")
        self._check_words("neighbouring", NEIGHBOURS)
        self._check_words("mechanism", NOISE_LAWS)
        self._check_words("calibration", calibrations_of(self.mechanism))

    def _check_words(self, name: str, known: tuple[str, ...]) -> None:
        if getattr(self, name) not in known:
            raise StatementError(f"{name} must be one of {known}, got {getattr(self, name)!r:.80}. Upgrade kmeanalyst.")

    @property
    def is_rehearsal(self) -> bool:
        """Whether the noise came from a seed: the release is NOT PRIVATE, whatever ε and δ say."""
        return is_rehearsal(self.mechanism)

    @property
    def protects_units(self) -> bool:
        """Whether the promise is made to units (persons), each with all rows it has; `n_rows` then counts units."""
        return self.neighbouring == REPLACE_UNIT

    @property
    def counted(self) -> str:
        """What `n_rows` counts, in a word: "rows" or "persons"."""
        return "persons" if self.protects_units else "rows"

    @property
    def noise_multiplier(self) -> float:
        """σ / sensitivity."""
        return self.noise_scale / self.sensitivity

    def check_arithmetic(self, noise_multiplier: float | None = None) -> None:
        """StatementError if ε and δ claim more than the noise gives.

        noise_multiplier   σ / sensitivity, where it is known better than from the recorded two.
        """
        multiplier = noise_multiplier or self.noise_multiplier
        noise = f"its noise scale {self.noise_scale:.6g} and sensitivity {self.sensitivity:.6g} give"
        mend = "The claim is better than the arithmetic: do not rely on it; ask its maker for a correct file."
        if is_pure(self.mechanism):
            epsilon = pure_epsilon(noise_multiplier=multiplier)
            if epsilon > self.epsilon * (1 + _SLACK):
                raise StatementError(f"the file claims ε = {self.epsilon:.6g}, but {noise} ε = {epsilon:.6g}. {mend}")
        elif self.delta < _SMALLEST_DELTA:
            raise StatementError(
                f"the file claims δ = {self.delta:.3g} for Gaussian noise, which has none so small. {mend}"
            )
        elif (delta := self._recomputed_delta(multiplier)) > self.delta * (1 + _SLACK):
            raise StatementError(
                f"the file claims δ = {self.delta:.3g} at ε = {self.epsilon:.6g}, but {noise} δ = {delta:.3g}. {mend}"
            )
        rho = zcdp_rho(self.mechanism, noise_multiplier=multiplier)
        if not math.isclose(rho, self.rho, rel_tol=_SLACK):
            raise StatementError(
                f"the file claims ρ = {self.rho:.6g}, its noise gives {rho:.6g}. Ask for a correct file."
            )

    def _recomputed_delta(self, multiplier: float) -> float:
        """δ of Gaussian noise at the claimed ε, by the way in which it was calibrated."""
        if self.calibration == "zcdp":
            return zcdp_delta(epsilon=self.epsilon, rho=0.5 / multiplier**2)
        return gaussian_delta(epsilon=self.epsilon, noise_multiplier=multiplier)

    def to_dict(self) -> dict[str, Any]:
        """The statement as the file header has it."""
        return asdict(self) | {"taken_as_public": list(self.taken_as_public)}

    @classmethod
    def from_dict(cls, header: Any) -> PrivacyStatement:
        """The statement from a file header; StatementError if fields are missing or unknown."""
        known = {f.name for f in fields(cls)}
        if not isinstance(header, dict) or set(header) != known:
            got = sorted(set(header) ^ known) if isinstance(header, dict) else header
            raise StatementError(f"the privacy statement is not complete or has unknown fields: {got!r:.200}.")
        public, versions = header["taken_as_public"], header["versions"]
        if not isinstance(public, list) or not all(isinstance(item, str) for item in public):
            raise StatementError("taken_as_public must be a list of texts.")
        if not isinstance(versions, dict) or not all(isinstance(v, str) for v in versions.values()):
            raise StatementError("versions must map names to texts.")
        return cls(**(header | {"taken_as_public": tuple(public)}))
