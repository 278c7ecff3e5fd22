"""The privacy guarantee of a release in one value, and the arithmetic that checks it.

`guarantee` says what ε and δ guarantee, in the one sentence that help, errors, statements and reports share. δ is an
addend. It is not the probability that the guarantee fails, nor that the privacy loss exceeds ε: for Gaussian noise that
probability is larger (`loss_above_epsilon`).

Gaussian noise is calibrated to the Euclidean distance of two neighbours' vectors, Laplace noise to their L1 distance, with δ = 0.
The exponential mechanism draws one of finitely many databases, P(r) ∝ exp(−score(r)/b), and gives ε = 2Δ/b with δ = 0.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, TypeGuard

from kmeanalyst.releases.texts import Printed, flaw_of, one_line, spacing_flaw_of


def guarantee(epsilon: float | None = None, delta: float | None = None, *, units: bool = False) -> str:
    """The guarantee of (ε, δ)-differential privacy, addressed to someone whose row is in the table.

    epsilon, delta   their values, to be named in the sentence; None: the letters alone.
    units            whether all rows of one unit are protected together, rather than each row.

    >>> guarantee(1.0, 0.0)
    'whatever is seen, its probability is at most e^ε = 2.72 times what it would be with any other row in place of yours'
    """
    factor = "" if epsilon is None else f" = {_rounded_up(math.exp(epsilon))}"
    other = "the rows of any other unit in place of all of yours" if units else "any other row in place of yours"
    addend = ", plus δ" if delta is None else f", plus δ = {delta:g}" if delta else ""
    return f"whatever is seen, its probability is at most e^ε{factor} times what it would be with {other}{addend}"


def _rounded_up(value: float) -> str:
    """Three digits, never less than the value: an upper bound may not be rounded down."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step) * step:.3g}"


GAUSSIAN, LAPLACE = "discrete gaussian", "discrete laplace"
EXPONENTIAL = "exponential over multisets"  # a small database is drawn, a multiset of rows: they have no order
_REHEARSAL = "rehearsal of "
NOISE_LAWS = (GAUSSIAN, LAPLACE, _REHEARSAL + GAUSSIAN, _REHEARSAL + LAPLACE)
SELECTIONS = (EXPONENTIAL, _REHEARSAL + EXPONENTIAL)
CALIBRATIONS = {GAUSSIAN: ("analytic", "zcdp"), LAPLACE: ("pure",), EXPONENTIAL: ("pure",)}


def rehearsed(law: str) -> str:
    return _REHEARSAL + law


def is_rehearsal(law: str) -> bool:
    return law.startswith(_REHEARSAL)


def is_pure(law: str) -> bool:
    """Whether the mechanism gives ε with δ = 0, and so is calibrated to the L1 distance of neighbours."""
    return law.removeprefix(_REHEARSAL) == LAPLACE


def is_selection(law: object) -> bool:
    """Whether the mechanism draws one of finitely many databases, so that there is a scale of scores and no noise."""
    return isinstance(law, str) and law in SELECTIONS


def gaussian_delta(*, epsilon: float, noise_multiplier: float) -> float:
    """The smallest δ at which Gaussian noise of σ = noise_multiplier · sensitivity is (ε, δ)-private.

    δ = Φ(1/2s − εs) − e^ε Φ(−1/2s − εs), s the multiplier (Balle & Wang 2018, Theorem 8), in logarithms
    so that e^ε does not overflow.
    """
    from scipy.special import log_ndtr  # late: the command line's help needs this module, and no scipy

    half, shift = 0.5 / noise_multiplier, epsilon * noise_multiplier
    log_first, log_second = float(log_ndtr(half - shift)), epsilon + float(log_ndtr(-half - shift))
    return math.exp(log_first) * -math.expm1(min(0.0, log_second - log_first))


def loss_above_epsilon(*, epsilon: float, noise_multiplier: float) -> float:
    """The probability that the privacy loss of Gaussian noise exceeds ε, for the worst pair of neighbours.

    Φ(1/2s − εs), s the multiplier: the loss ln P(x)/P′(x) is normal with mean 1/2s² and standard deviation 1/s. This
    probability, p, is larger than δ. With q the probability of the same event under the neighbour, δ = p − e^ε q
    (`gaussian_delta`).
    """
    from scipy.special import log_ndtr

    return math.exp(log_ndtr(0.5 / noise_multiplier - epsilon * noise_multiplier))


def zcdp_delta(*, epsilon: float, rho: float) -> float:
    """A δ at which every ρ-zCDP mechanism is (ε, δ)-private, the best that Rényi divergences give.

    δ = min_α exp((α − 1)(αρ − ε)) (1 − 1/α)^α / (α − 1) (Canonne, Kamath & Steinke 2020, Corollary 13); any
    α > 1 gives a true bound, so a search that stops early is still right.
    """
    from scipy.optimize import minimize_scalar

    def log_bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α − 1
        power = (1 + excess) * (log_excess - math.log1p(excess))  # log (1 − 1/α)^α
        return excess * ((1 + excess) * rho - epsilon) + power - log_excess

    best = math.log(max(1e-3, (epsilon / rho - 1) / 2))  # of the leading term; the minimum is near
    found = minimize_scalar(log_bound, bounds=(best - 5, best + 5), method="bounded", options={"xatol": 1e-10})
    return math.exp(min(0.0, found.fun))


def pure_epsilon(*, noise_multiplier: float) -> float:
    """ε of Laplace noise whose standard deviation is noise_multiplier · L1 sensitivity: √2 / multiplier.

    The discrete distribution of scale b has standard deviation √2 b (1 − 1/24b² + …): no difference at b > 10⁶.
    """
    return math.sqrt(2) / noise_multiplier


def selection_epsilon(*, scale_multiplier: float) -> float:
    """ε of a draw with P(r) ∝ exp(−score(r)/b), b = scale_multiplier · sensitivity: 2 / multiplier."""
    return 2 / scale_multiplier


def zcdp_rho(law: str, *, noise_multiplier: float) -> float:
    """ρ of zero-concentrated differential privacy: 1/2s² for Gaussian noise, ε²/2 for Laplace (Bun & Steinke 2016).

    ε²/8 for a selection, s its scale multiplier: its privacy losses lie in a range of length ε (Cesar & Rogers 2021).
    """
    if is_selection(law):
        return selection_epsilon(scale_multiplier=noise_multiplier) ** 2 / 8
    return 0.5 * pure_epsilon(noise_multiplier=noise_multiplier) ** 2 if is_pure(law) else 0.5 / noise_multiplier**2


REPLACE_ROW, REPLACE_UNIT = "replace-one", "replace-one-unit"
NEIGHBOURS = (REPLACE_ROW, REPLACE_UNIT)
LONGEST_UNIT = 200  # characters of the name of the column that identifies units
METHOD = re.compile("[a-z0-9][a-z0-9-]{0,59}")  # how points were made: a word, so that it cannot pass for a sentence
VERSION = re.compile("[A-Za-z0-9][A-Za-z0-9._+!-]{0,59}")  # the name of a software, or its version number
_SLACK = 1e-6  # relative tolerance for rounding when a claim is recomputed
MOST_DATABASES = 2_000_000  # databases from which the exponential mechanism may draw: each is scored
SMALLEST_DELTA = 1e-100  # least δ that Gaussian noise may claim: far below it the arithmetic underflows


class StatementError(ValueError):
    """A privacy statement that contradicts itself or its own arithmetic."""


def software_versions(*packages: str) -> dict[str, str]:
    """Python's version and those of the packages, as statements and file headers record them."""
    return {"python": platform.python_version()} | {name: _version(name) for name in packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # of a source tree that was not installed: noise that is drawn by then must not be lost
        return "unknown"


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement(Printed):
    """What a release guarantees about the rows it was made from. A field never changes its meaning.

    epsilon, delta    the (ε, δ) of differential privacy: P(A) ≤ e^ε P′(A) + δ for every set A of files, P and P′ those of
                      two neighbouring tables.
    neighbouring      which two tables are neighbours: "replace-one" (a row; N is public), or "replace-one-unit" (all rows
                      of one unit; the number of units is public, the number of rows is not, and every unit counts with
                      the average of its rows).
    unit              under "replace-one-unit" the name of the column whose values identify the units; None for rows.
    mechanism         the noise: "discrete gaussian" or "discrete laplace"; or "exponential over multisets", a small
                      database drawn instead; or "rehearsal of" one of them: drawn from a seed, and so NOT PRIVATE.
    sensitivity       largest distance between the noiseless vectors of two neighbours, in units of the mean:
                      Euclidean for Gaussian noise, L1 for Laplace. Of the exponential mechanism: how far replacing a
                      row can move the score ‖μ_D − μ_R‖ of a database R.
    noise_scale       standard deviation of the noise on one coordinate, in the same units; None without noise.
    calibration       how the scale follows from ε, δ and the sensitivity: "analytic" (Balle & Wang 2018) or "zcdp"
                      (through ρ; Canonne, Kamath & Steinke 2020) for Gaussian noise, "pure" for the others.
    rho               ρ of zero-concentrated differential privacy: sensitivity² / 2σ², ε²/2 for Laplace, or ε²/8 for
                      the exponential mechanism.
    n_rows            N, what the mean is over, taken as public: the rows of the table under "replace-one", its units
                      under "replace-one-unit".
    public_points     how many of the points were given as public rows.
    taken_as_public   everything that was treated as public, in words.
    versions          the software that made the release.
    score_scale       of the exponential mechanism, and of it alone: b in P(R) ∝ exp(−‖μ_D − μ_R‖/b).
    n_databases       likewise: how many databases R it drew one of, each of them counted once.
    ledger_head       digest of the ledger's entry that counted this release, 64 hexadecimal digits; None if no ledger did.
                      `release-side ledger verify LEDGER --head FILE.kme` compares it with the ledger.

    >>> statement = release.statement
    >>> statement.epsilon, statement.delta, statement.mechanism, statement.n_rows, statement.counted
    (1.0, 1e-06, 'discrete gaussian', 6000, 'rows')
    >>> statement.is_rehearsal, statement.protects_units, statement.is_selection
    (False, False, False)
    >>> statement.claim, round(statement.mu, 3)
    ('ε = 1, δ = 1e-06', 0.237)
    >>> round(statement.noise_multiplier, 3), statement.excess() is None  # it has noise, and no choice among databases
    (4.225, True)
    >>> statement.check_arithmetic()  # silent, or StatementError
    >>> ka.PrivacyStatement.from_dict(statement.to_dict()) == statement
    True
    """

    epsilon: float
    delta: float
    neighbouring: str
    unit: str | None = None
    mechanism: str
    sensitivity: float
    noise_scale: float | None = None
    calibration: str
    rho: float
    n_rows: int
    public_points: int = 0
    taken_as_public: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    score_scale: float | None = None
    n_databases: int | None = None
    ledger_head: str | None = None

    declared_by: ClassVar[None] = None  # what a DeclaredStatement has
    notes: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return "\n".join(f"{label:<11} {text}" for label, text in guarantee_lines(self).items())

    def __post_init__(self) -> None:
        self._check_words("mechanism", (*NOISE_LAWS, *SELECTIONS))
        self._check_scales()
        for name in ("epsilon", "sensitivity", _scale_name(self.mechanism), "rho"):
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < math.inf):
                raise StatementError(f"{name} must be a positive finite number, got {value!r}: no guarantee follows from it.")
        if not (is_number(self.delta) and 0 <= self.delta < 1):
            raise StatementError(
                f"delta must be in [0, 1), got {self.delta!r}: {guarantee()}. With δ of 1 or more this says nothing."
            )
        if not (is_whole(self.n_rows) and self.n_rows >= 1):
            raise StatementError(f"n_rows must be a positive whole number, got {self.n_rows!r}.")
        if not (is_whole(self.public_points) and self.public_points >= 0):
            raise StatementError(f"public_points must be a whole number of at least 0, got {self.public_points!r}.")
        self._check_words("neighbouring", (REPLACE_ROW,) if self.is_selection else NEIGHBOURS)
        self._check_words("calibration", CALIBRATIONS[self.mechanism.removeprefix(_REHEARSAL)])
        self._check_unit()
        self._check_texts()
        if self.ledger_head is not None and not is_digest(self.ledger_head):
            raise StatementError(
                f"ledger_head must be 64 hexadecimal digits or null, got {self.ledger_head!r:.80}: it is a digest of an entry "
                "of a ledger."
            )

    def _check_unit(self) -> None:
        if not self.protects_units and self.unit is not None:
            raise StatementError(
                f"unit goes with the neighbours {REPLACE_UNIT!r}, and these are {self.neighbouring!r}. Leave it out."
            )
        if self.protects_units and not is_unit_name(self.unit):
            raise StatementError(
                f"unit must be a text of 1 to {LONGEST_UNIT} printable characters under {REPLACE_UNIT!r}, got {self.unit!r:.80}: "
                "it says what the release protects. Name the column that identifies the units."
            )

    def _check_texts(self) -> None:
        """StatementError for texts that could pass for more of the statement where they are shown."""
        for text in self.taken_as_public:
            flaw = flaw_of(text) or spacing_flaw_of(text)
            if flaw is not None:
                raise StatementError(f"taken_as_public has a text with {flaw}, which could deceive: {text!a:.80}.")
        check_versions(self.versions)

    def _check_scales(self) -> None:
        for name in ("noise_scale",) if self.is_selection else ("score_scale", "n_databases"):
            if getattr(self, name) is not None:
                raise StatementError(f"{name} goes with another mechanism than {self.mechanism!r}. Leave it out.")
        n: Any = self.n_databases
        if self.is_selection and not (is_whole(n) and 1 <= n <= MOST_DATABASES):
            raise StatementError(
                f"n_databases must be a whole number from 1 to {MOST_DATABASES}, got {n!r:.80}: more cannot be scored "
                "one by one, and a draw by other means is not exact."
            )

    def _check_words(self, name: str, known: tuple[str, ...]) -> None:
        if getattr(self, name) not in known:
            raise StatementError(f"{name} must be one of {known}, got {getattr(self, name)!r:.80}. Upgrade kmeanalyst.")

    @property
    def is_rehearsal(self) -> bool:
        """Whether the noise came from a seed: the release is NOT PRIVATE, whatever ε and δ say."""
        return is_rehearsal(self.mechanism)

    @property
    def protects_units(self) -> bool:
        """Whether the guarantee is for units, each with all its rows; `n_rows` then counts units."""
        return self.neighbouring == REPLACE_UNIT

    @property
    def counted(self) -> str:
        """What `n_rows` counts: "rows", or "units of 'patient'" where the column "patient" identifies the units."""
        return counted_as(self.unit)

    @property
    def is_selection(self) -> bool:
        """Whether rows were drawn by the exponential mechanism, so that there is no measurement and no noise."""
        return is_selection(self.mechanism)

    @property
    def noise_multiplier(self) -> float:
        """σ / sensitivity; of the exponential mechanism score_scale / sensitivity."""
        return float(getattr(self, _scale_name(self.mechanism))) / self.sensitivity

    @property
    def mu(self) -> float | None:
        """μ of Gaussian differential privacy, sensitivity / σ (Dong, Roth & Su 2022, Theorem 2.7); None for other noise.

        >>> round(release.statement.mu, 3)
        0.237
        """
        return None if self.is_selection or is_pure(self.mechanism) else 1 / self.noise_multiplier

    @property
    def claim(self) -> str:
        """ε and δ in a phrase."""
        return f"ε = {self.epsilon:g}, δ = {self.delta:g}"

    def excess(self, chance: float = 0.95) -> float | None:
        """‖μ_D − μ_R‖ exceeds that of the best database by at most this much with this probability; None with noise.

        b (ln n − ln(1 − chance)), n the number of databases: those worse by that much weigh, together, at most
        n · e^(−excess/b) times the best one.
        Source   McSherry & Talwar 2007, Theorem 8.
        """
        if self.score_scale is None or self.n_databases is None:
            return None
        return self.score_scale * (math.log(self.n_databases) - math.log1p(-chance))

    def check_arithmetic(self, noise_multiplier: float | None = None) -> None:
        """StatementError if ε and δ claim more than the noise gives.

        noise_multiplier   σ / sensitivity, where it is known better than from the recorded two.
        """
        multiplier = noise_multiplier or self.noise_multiplier
        scale = _scale_name(self.mechanism)
        noise = f"its {scale.replace('_', ' ')} {getattr(self, scale):.6g} and sensitivity {self.sensitivity:.6g} give"
        hint = "The claim is better than the arithmetic: do not rely on it; ask its maker for a correct file."
        if self.is_selection or is_pure(self.mechanism):
            of_selection = selection_epsilon(scale_multiplier=multiplier)
            epsilon = of_selection if self.is_selection else pure_epsilon(noise_multiplier=multiplier)
            if epsilon > self.epsilon * (1 + _SLACK):
                raise StatementError(f"the file claims ε = {self.epsilon:.6g}, but {noise} ε = {epsilon:.6g}. {hint}")
        elif self.delta < SMALLEST_DELTA:
            raise StatementError(f"the file claims δ = {self.delta:.3g} for Gaussian noise, which has none so small. {hint}")
        elif (delta := self._recomputed_delta(multiplier)) > self.delta * (1 + _SLACK):
            raise StatementError(
                f"the file claims δ = {self.delta:.3g} at ε = {self.epsilon:.6g}, but {noise} δ = {delta:.3g}. {hint}"
            )
        rho = zcdp_rho(self.mechanism, noise_multiplier=multiplier)
        if not math.isclose(rho, self.rho, rel_tol=_SLACK):
            raise StatementError(f"the file claims ρ = {self.rho:.6g}, but its noise gives {rho:.6g}. Ask for a correct file.")

    def _recomputed_delta(self, multiplier: float) -> float:
        if self.calibration == "zcdp":
            return zcdp_delta(epsilon=self.epsilon, rho=0.5 / multiplier**2)
        return gaussian_delta(epsilon=self.epsilon, noise_multiplier=multiplier)

    def to_dict(self) -> dict[str, Any]:
        entries = asdict(self) | {"taken_as_public": list(self.taken_as_public)}
        return {name: entries[name] for name in _field_names(self.mechanism)}

    @classmethod
    def from_dict(cls, header: Any) -> PrivacyStatement:
        """The statement from a file header; StatementError if fields are missing or unknown."""
        names = _field_names(header.get("mechanism") if isinstance(header, dict) else None)
        return cls(**fields_of_header(header, names, texts="taken_as_public"))


def fields_of_header(header: Any, names: Iterable[str], *, texts: str) -> dict[str, Any]:
    """The fields of a statement in a file header, those of `texts` as a tuple; StatementError unless it has just these fields."""
    given = set(header) if isinstance(header, dict) else set()
    if wrong := given ^ set(names):
        raise StatementError(f"the statement is not complete or has unknown fields: {sorted(wrong)!r:.200}.")
    if not isinstance(header[texts], list) or not all(isinstance(text, str) for text in header[texts]):
        raise StatementError(f"{texts} must be a list of texts.")
    return header | {texts: tuple(header[texts])}


def check_versions(versions: Any) -> None:
    """StatementError unless these are names of software with version numbers, which cannot pass for more of a statement."""
    texts = [text for pair in versions.items() for text in pair] if isinstance(versions, dict) else [None]
    if not all(isinstance(text, str) and VERSION.fullmatch(text) for text in texts):
        raise StatementError(f"versions must map names of software to version numbers, got {versions!a:.80}.")


@dataclass(frozen=True)
class PopulationSize:
    """The public size of a table.

    count   N, the number of rows; with a unit the number of units.
    unit    the column that identifies the units; None where rows are protected.
    """

    count: int
    unit: str | None = None

    @property
    def counted(self) -> str:
        """What was counted, in words: "rows", or the units that the column identifies."""
        return counted_as(self.unit)

    @property
    def neighbouring(self) -> str:
        """What is replaced in a neighbouring table, as statements name it."""
        return REPLACE_ROW if self.unit is None else REPLACE_UNIT


def guarantee_lines(statement: PrivacyStatement) -> dict[str, str]:
    """What was measured and under which guarantee, as label → text; the stamp of a rehearsal first."""
    measured = f"{statement.n_rows:,} private rows"
    if statement.protects_units:
        measured = f"{statement.n_rows:,} {statement.counted}, of equal weight however many private rows they have"
    public = f", {statement.public_points:,} of the points given as public rows" if statement.public_points else ""
    stamp = {"NOT PRIVATE": "a rehearsal: its noise can be drawn again from a seed"} if statement.is_rehearsal else {}
    return stamp | {
        "table": measured + public,
        "privacy": f"{statement.claim} (neighbours: {statement.neighbouring}; ρ = {statement.rho:.3g})",
        **attack_line(statement.mu, unit=statement.unit),
        "mechanism": f"{statement.mechanism}, sensitivity {statement.sensitivity:.3g}, {statement.calibration} calibration",
        **({} if statement.ledger_head is None else {"ledger": f"counted, head {statement.ledger_head}"}),
    }


def attack_line(*mus: float | None, unit: str | None = None) -> dict[str, str]:
    """What releases with these μ leave to an attacker together, as label → text; nothing if one has none, as of Laplace noise.

    Whoever knows all but which of two rows is in the table is right with probability Φ(μ/2) at most; with a unit, which of two
    units with all their rows.
    Source   Gaussian differential privacy, Dong, Roth & Su 2022, Cor. 3.3: μ² adds up.

    >>> attack_line(0.2367)["attack"]
    'of 100 guesses which of two rows is in the table at most 55 are right (μ = 0.237, Gaussian differential privacy)'
    """
    known = [mu for mu in mus if mu is not None]
    if not known or len(known) < len(mus):
        return {}
    mu = math.hypot(*known)
    what = "rows" if unit is None else f"units of {one_line(unit)}"
    guesses = f"of 100 guesses which of two {what} is in the table at most {math.ceil(100 * right_guesses(mu))} are right"
    return {"attack": f"{guesses} (μ = {mu:.3g}, Gaussian differential privacy)"}


def right_guesses(mu: float) -> float:
    """Φ(μ/2): the share of right guesses which of two distributions it was, under Gaussian differential privacy."""
    return 0.5 + 0.5 * math.erf(mu / math.sqrt(8))


def is_whole(value: object) -> TypeGuard[int]:
    """Whether this is a whole number: True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a whole or real number: True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_digest(value: object) -> bool:
    """Whether this can be a SHA-256: 64 hexadecimal digits, in lower case."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def is_unit_name(name: object) -> bool:
    """Whether this can be the name of a column of identifiers: a single line that a statement and a ledger can show."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_UNIT and not (flaw_of(name) or spacing_flaw_of(name))


def counted_as(unit: str | None) -> str:
    """What N counts, in words: "rows", or the units that this column identifies."""
    return "rows" if unit is None else f"units of {unit!r}"


def _scale_name(mechanism: object) -> str:
    return "score_scale" if is_selection(mechanism) else "noise_scale"


def _field_names(mechanism: object) -> list[str]:
    others = ("noise_scale",) if is_selection(mechanism) else ("score_scale", "n_databases")
    return [f.name for f in fields(PrivacyStatement) if f.name not in others]
