"""What is said of a measurement that others made: who declares its noise, and that nobody verified it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

from kmeanalyst.releases.statement import (
    GAUSSIAN,
    LAPLACE,
    PrivacyStatement,
    StatementError,
    check_versions,
    fields_of_header,
    is_number,
    is_whole,
)
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of

UNNAMED = "whoever passed the tables"
_LONGEST, _LONGEST_NAME, _MOST_NOTES = 1000, 120, 50  # characters of a note, and of who declares; notes


@dataclass(frozen=True, kw_only=True)
class DeclaredStatement:
    """What others declare of the measurement of a release, in place of a `PrivacyStatement`: nothing in it was verified.

    declared_by      who says so.
    epsilon, delta   as declared; None where nobody says.
    mechanism        the law of the noise, "discrete gaussian" or "discrete laplace", as the measurement has it.
    noise_scale      its standard deviation on a coordinate of the measurement.
    n_rows           N.
    notes            what was assumed, and how far the tables agree.
    versions         the software that made the release.

    >>> domain = ka.Domain((ka.Boolean(name="ill"),))
    >>> table = ka.NoisyTable(np.array([5013.2, 987.9]), ["ill"], noise="laplace", scale=10.0)
    >>> statement = ka.from_measurements(domain, [table], statement="the census bureau").statement
    >>> statement.claim
    'measured by others, as declared by the census bureau; not verified'
    >>> statement.epsilon, statement.n_rows, ka.DeclaredStatement.from_dict(statement.to_dict()) == statement
    (None, 6001, True)
    """

    declared_by: str
    epsilon: float | None = None
    delta: float | None = None
    mechanism: str
    noise_scale: float
    n_rows: int
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    mu: ClassVar[None] = None
    unit: ClassVar[None] = None  # what a PrivacyStatement has besides, and others do not say
    counted: ClassVar[str] = "rows"
    is_rehearsal: ClassVar[bool] = False
    is_selection: ClassVar[bool] = False
    protects_units: ClassVar[bool] = False
    public_points: ClassVar[int] = 0
    n_databases: ClassVar[None] = None
    taken_as_public: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for text in (self.declared_by, *self.notes):
            longest = _LONGEST_NAME if text is self.declared_by else _LONGEST
            whole = isinstance(text, str) and 0 < len(text) <= longest
            if not whole or flaw_of(text) or spacing_flaw_of(text):
                raise StatementError(
                    f"declared_by and notes are texts of 1 to {longest} printable characters on one line, got {text!a:.80}. "
                    "Name who declares the noise."
                )
        if len(self.notes) > _MOST_NOTES or self.mechanism not in (GAUSSIAN, LAPLACE):
            raise StatementError(f"a declared statement has a law of noise, and at most {_MOST_NOTES} notes.")
        for name, least, most in (("epsilon", 0, math.inf), ("delta", -math.ulp(0.0), 1), ("noise_scale", 0, math.inf)):
            value = getattr(self, name)
            if not (value is None and name != "noise_scale") and not (is_number(value) and least < value < most):
                raise StatementError(f"{name} is out of its range, got {value!r:.80}. Correct it, or leave it out.")
        if not (is_whole(self.n_rows) and self.n_rows >= 1):
            raise StatementError(f"n_rows must be a positive whole number, got {self.n_rows!r:.80}.")
        check_versions(self.versions)

    @property
    def claim(self) -> str:
        """The statement in a phrase, as every output shows it."""
        names = {"ε": self.epsilon, "δ": self.delta}
        known = "".join(f", {name} = {value:g}" for name, value in names.items() if value is not None)
        return f"measured by others, as declared by {self.declared_by}{known}; not verified"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"notes": list(self.notes)}

    @classmethod
    def from_dict(cls, header: Any) -> DeclaredStatement:
        """The statement from a file header; StatementError if fields are missing or unknown."""
        return cls(**fields_of_header(header, [each.name for each in fields(cls)], texts="notes"))


Statement: TypeAlias = PrivacyStatement | DeclaredStatement


def declared_lines(statement: DeclaredStatement) -> dict[str, str]:
    """What was measured, and who says so, as label → text."""
    notes = {f"note {i}" if i > 1 else "note": text for i, text in enumerate(statement.notes, 1)}
    return {"table": f"{statement.n_rows:,} rows", "privacy": statement.claim, "mechanism": statement.mechanism} | notes
