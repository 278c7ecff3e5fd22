"""Noisy scores of a release with their guarantee: a value that checks itself, and what a file's member `quality.json` holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.quality.composition import SLACK, spends_at_most
from kmeanalyst.releases.quality.intervals import Z, clipped, half_width, ratio_interval
from kmeanalyst.releases.quality.noisy_score import NoisyScore, points_text
from kmeanalyst.releases.quality.parts import (
    COLUMNS,
    GROUPS,
    K_MARGINAL,
    LARGEST,
    MOST_GROUPS,
    MOST_QUESTIONS,
    PARTS,
    QUESTIONS,
    SIZES,
    AskedQuestion,
    QualityError,
    ScorePart,
    check_text,
    score_sensitivity_of,
)
from kmeanalyst.releases.statement import (
    CALIBRATIONS,
    LONGEST_UNIT,
    NOISE_LAWS,
    SMALLEST_DELTA,
    VERSION,
    PrivacyStatement,
    gaussian_delta,
    is_digest,
    is_number,
    is_pure,
    is_rehearsal,
    is_selection,
    is_whole,
    pure_epsilon,
    zcdp_delta,
)
from kmeanalyst.releases.texts import shortened

FORMAT = "kmeanalyst quality"
_FEWEST = 5.0  # standard deviations of the noise that a group's noisy size must exceed


@dataclass(frozen=True, kw_only=True)
class PublishedScores:
    """Noisy scores of a release against its table, with their guarantee: what a file's member `quality.json` holds.

    epsilon, delta   the guarantee of these scores alone, for the neighbours of the release.
    mechanism        the noise, as in `PrivacyStatement`.
    calibration      how its scale follows from the guarantee, likewise.
    neighbouring     of the release, as are unit and n_rows.
    height           A: what a row counts in its cell.
    parts            which numbers were measured, in this order.
    noisy            for each part its whole numbers, with noise.
    noise_scale      standard deviation of the noise on each number.
    edges, atoms, missing   the cells of each column, as in the kernel `margins`.
    names            the columns that have cells, in the order of the domain: all but texts.
    group            the column that the tables of pairs are crossed with; None for none.
    labels           of the cells of that column.
    questions        what was asked.
    total_epsilon, total_delta   the guarantee of the release and these scores together.
    ledger_head      digest of the ledger's entry that counted the scores; None if no ledger did.
    versions         the software that made them.

    >>> published_scores.scores_of("k-marginal")[0].points  # with the interval of its noise
    (0.0, 0.0, 48.8...)
    """

    epsilon: float
    delta: float
    mechanism: str
    calibration: str
    neighbouring: str
    unit: str | None
    n_rows: int
    height: int
    parts: tuple[ScorePart, ...]
    noisy: Mapping[str, tuple[int, ...]]
    noise_scale: float
    edges: tuple[tuple[float, ...], ...]
    atoms: tuple[tuple[float, ...], ...]
    missing: tuple[bool, ...]
    names: tuple[str, ...]
    group: str | None = None
    labels: tuple[str, ...] = ()
    questions: tuple[AskedQuestion, ...] = ()
    total_epsilon: float
    total_delta: float
    ledger_head: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_words()
        self._check_numbers()
        self._check_parts()
        self._check_arithmetic()

    # ------------------------------------------------------------------ checks

    def _check_words(self) -> None:
        if self.mechanism not in NOISE_LAWS or is_selection(self.mechanism):
            raise QualityError(f"mechanism must be one of {', '.join(NOISE_LAWS)}, got {self.mechanism!r:.80}.")
        if self.calibration not in CALIBRATIONS[self.mechanism.removeprefix("rehearsal of ")]:
            raise QualityError(f"{self.mechanism} has no calibration {self.calibration!r:.80}.")
        if self.ledger_head is not None and not is_digest(self.ledger_head):
            raise QualityError(f"ledger_head must be 64 hexadecimal digits or null, got {self.ledger_head!r:.80}.")
        if self.group is not None and self.group not in self.names:
            raise QualityError(f"the group {self.group!r:.80} is no column.")
        for text in self.labels:
            check_text("the label of a group", text, LONGEST_UNIT)
        for text in chain.from_iterable(self.versions.items()):
            if not isinstance(text, str) or VERSION.fullmatch(text) is None:
                raise QualityError(f"versions must map names of software to version numbers, got {text!a:.80}.")

    def _check_numbers(self) -> None:
        for name in ("epsilon", "noise_scale", "total_epsilon"):
            if not (is_number(value := getattr(self, name)) and 0 < value < math.inf):
                raise QualityError(f"{name} must be a positive finite number, got {value!r:.80}.")
        for name in ("delta", "total_delta"):
            if not (is_number(value := getattr(self, name)) and 0 <= value < 1):
                raise QualityError(f"{name} must be in [0, 1), got {value!r:.80}.")
        for name in ("n_rows", "height"):
            if not (is_whole(value := getattr(self, name)) and 1 <= value < LARGEST):
                raise QualityError(f"{name} must be a positive whole number, got {value!r:.80}.")
        if self.noise_scale >= LARGEST:
            raise QualityError("noise_scale: 64 bits cannot hold such noise.")

    def _check_parts(self) -> None:
        """The parts are different ones, in their order, and have as many numbers as columns, cells and questions say."""
        kinds = [part.name for part in self.parts]
        if not kinds or kinds != [name for name in PARTS if name in kinds] or set(self.noisy) != set(kinds):
            raise QualityError(f"the parts must be some of {', '.join(PARTS)}, each once and in this order.")
        if (GROUPS in kinds) != (SIZES in kinds) or (GROUPS in kinds and self.group is None):
            raise QualityError("groups go with sizes, and with the column that they are the cells of.")
        sizes = self._cells().sizes
        if len(sizes) != len(self.names):
            raise QualityError(f"there are cells of {len(sizes)} columns, and {len(self.names)} names.")
        paired = len(self.names) - (self.group is not None)
        n_groups = 0 if self.group is None else sizes[self.names.index(self.group)]
        if n_groups != len(self.labels) or n_groups > MOST_GROUPS or len(self.questions) > MOST_QUESTIONS:
            raise QualityError(f"the group has {n_groups} cells and {len(self.labels)} labels, or there are too many.")
        pairs = paired * (paired - 1) // 2
        wanted = {
            K_MARGINAL: 1, COLUMNS: len(sizes), GROUPS: n_groups, SIZES: n_groups, QUESTIONS: len(self.questions),
        }  # fmt: skip
        if len({part.tables for part in self.parts if part.name in (K_MARGINAL, GROUPS)}) > 1:
            raise QualityError("the k-marginal and the groups are of the same tables, and here they are not.")
        for part in self.parts:
            if part.count != wanted[part.name] or part.tables > max(pairs, 1):
                raise QualityError(
                    f"{part.name}: {part.count} numbers of {part.tables} tables, and the columns give {wanted[part.name]} of at "
                    f"most {pairs}."
                )
            if part.step(self.height) * self.n_rows > LARGEST:
                raise QualityError(f"{part.name}: 64 bits cannot hold sums of such steps.")
            numbers = self.noisy[part.name]
            if len(numbers) != part.count or not all(is_whole(number) and abs(number) < 2**63 for number in numbers):
                raise QualityError(f"{part.name}: {part.count} whole numbers of 64 bits are needed.")
        if QUESTIONS not in kinds and self.questions:
            raise QualityError("there are questions, and no noisy answers to them.")

    def _cells(self) -> Margins:
        try:
            shares = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            return Margins(edges=self.edges, atoms=self.atoms, missing=self.missing, shares=shares)
        except (ValueError, TypeError) as error:
            raise QualityError(f"the cells of the columns make no sense: {error}") from None

    def _check_arithmetic(self) -> None:
        """QualityError if ε and δ claim more than the noise gives."""
        if is_pure(self.mechanism):
            given, claimed, name = pure_epsilon(noise_multiplier=self.noise_multiplier), self.epsilon, "ε"
            if self.delta != 0:
                raise QualityError(f"Laplace noise has delta 0, got {self.delta!r}.")
        else:
            claimed, name = self.delta, "δ"
            given = (
                zcdp_delta(epsilon=self.epsilon, rho=0.5 / self.noise_multiplier**2)
                if self.calibration == "zcdp"
                else gaussian_delta(epsilon=self.epsilon, noise_multiplier=self.noise_multiplier)
            )
            if claimed < SMALLEST_DELTA:
                raise QualityError(f"Gaussian noise has no delta as small as {claimed:.3g}.")
        if not given <= claimed * (1 + SLACK):
            raise QualityError(
                f"the scores claim {name} = {claimed:.6g}, but their noise gives {given:.6g}. The claim is better than the "
                "arithmetic: do not rely on it; ask its maker for a correct file."
            )

    def check_total(self, statement: PrivacyStatement) -> None:
        """QualityError unless the scores are of the release with this statement, and claim no less in all than both spend.

        >>> published_scores.check_total(release.statement)
        Traceback (most recent call last):
            ...
        kmeanalyst.releases.quality.parts.QualityError: the scores have n_rows 200, and the release 6000: they are of
            another table. Do not rely on either.
        """
        for name in ("neighbouring", "unit", "n_rows"):
            if getattr(self, name) != getattr(statement, name):
                raise QualityError(
                    f"the scores have {name} {getattr(self, name)!r:.80}, and the release {getattr(statement, name)!r:.80}: they "
                    "are of another table. Do not rely on either."
                )
        multiplier = None if is_pure(self.mechanism) else self.noise_multiplier
        spent = (self.epsilon, self.delta, multiplier)
        if not spends_at_most(statement, spent, self.total_epsilon, self.total_delta):
            raise QualityError(
                f"the file claims ε = {self.total_epsilon:.6g}, δ = {self.total_delta:.6g} for the release and its scores "
                "together, and they spend more. The claim is better than the arithmetic: do not rely on it."
            )

    # ------------------------------------------------------------------ what follows

    @property
    def is_rehearsal(self) -> bool:
        """Whether the noise came from a seed, so that the scores are NOT PRIVATE.

        >>> published_scores.is_rehearsal
        False
        """
        return is_rehearsal(self.mechanism)

    @property
    def sensitivity(self) -> int:
        """The most that replacing one row, or unit, moves the whole numbers: in L1 for Laplace noise, else in L2.

        >>> published_scores.sensitivity
        17592185689175
        """
        return score_sensitivity_of(self.parts, self.height, self.mechanism)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise / sensitivity.

        >>> published_scores.noise_multiplier
        2.230...
        """
        return self.noise_scale / self.sensitivity

    def deviation(self, name: str) -> float:
        """Standard deviation of the noise of a part: of a distance or an answer as a share, of groups and sizes in rows.

        >>> published_scores.deviation("columns")
        0.0431...
        """
        part = self._part(name)
        return self.noise_scale / part.step(self.height) / (1 if name in (GROUPS, SIZES) else self.n_rows)

    def scores(self) -> tuple[NoisyScore, ...]:
        """Every score with the interval that its noise leaves: post-processing of the noisy numbers.

        >>> [score.name for score in published_scores.scores() if score.part == "columns"]
        ['x', 'n', 'c']
        """
        return tuple(chain.from_iterable(self.scores_of(part.name) for part in self.parts if part.name != SIZES))

    def scores_of(self, name: str) -> tuple[NoisyScore, ...]:
        """The scores of one part.

        >>> published_scores.scores_of("questions")[0].held
        True
        """
        if name == GROUPS:
            return tuple(self._of_groups())
        if name == QUESTIONS:
            return tuple(self._of_questions())
        labels = self.names if name == COLUMNS else ("",)
        error = half_width(self.mechanism, self.deviation(name))
        values = (clipped(number / self._part(name).step(self.height) / self.n_rows) for number in self.noisy[name])
        return tuple(
            NoisyScore(name, label, value, clipped(value - error), clipped(value + error))
            for label, value in zip(labels, values, strict=True)
        )

    def group_sizes(self) -> tuple[tuple[float, float], ...]:
        """For each group its noisy number of rows, or of units, and the standard deviation of the noise.

        >>> published_scores.group_sizes()  # of 200 rows
        ((89.0..., 9.97...), (123.1..., 9.97...))
        """
        step, error = self._part(SIZES).step(self.height), self.deviation(SIZES)
        return tuple((number / step, error) for number in self.noisy[SIZES])

    def _of_groups(self) -> Iterator[NoisyScore]:
        step, error = self._part(GROUPS).step(self.height), self.deviation(GROUPS)
        for label, number, (size, of_size) in zip(self.labels, self.noisy[GROUPS], self.group_sizes(), strict=True):
            if size < _FEWEST * of_size:
                yield NoisyScore(GROUPS, label, None, None, None)
                continue
            low, high = ratio_interval(self.mechanism, number / step, size, error, of_size)
            yield NoisyScore(GROUPS, label, clipped(number / step / size), low, high)

    def _of_questions(self) -> Iterator[NoisyScore]:
        step = self._part(QUESTIONS).step(self.height) * self.n_rows
        for question, number in zip(self.questions, self.noisy[QUESTIONS], strict=True):
            width = question.high - question.low
            value, deviation = question.low + number / step * width, self.deviation(QUESTIONS) * width
            error = half_width(self.mechanism, deviation)
            held = None
            if question.standard_error is not None:
                held = abs(value - question.answer) <= Z * math.hypot(question.standard_error, deviation)
            value = min(max(value, question.low), question.high)
            low, high = max(value - error, question.low), min(value + error, question.high)
            yield NoisyScore(QUESTIONS, question.text, value, low, high, held)

    def _part(self, name: str) -> ScorePart:
        for part in self.parts:
            if part.name == name:
                return part
        raise QualityError(f"the part {name!r} was not measured: there are {', '.join(self.noisy)}.")

    def summary(self) -> dict[str, str]:
        """The scores in a few lines: label → text.

        >>> published_scores.summary()["in all"]
        'ε = 2.212, δ = 2e-06: the release and these scores together'
        """
        lines = {"quality": f"scores against the table, with noise: {self.guarantee_text()}"}
        kinds = [part.name for part in self.parts]
        if K_MARGINAL in kinds:
            paired = len(self.names) - (self.group is not None)
            tables, pairs = self._part(K_MARGINAL).tables, paired * (paired - 1) // 2
            what = "pairs" if tables == pairs else f"{tables:,} of {pairs:,} pairs"
            what += "" if self.group is None else f" crossed with {shortened(self.group, 40)}"
            lines["k-marginal"] = f"{points_text(self.scores_of(K_MARGINAL)[0])} of 1000, {what}"
        if COLUMNS in kinds:
            worst = max(self.scores_of(COLUMNS), key=lambda score: score.value or 0.0)
            lines["columns"] = (
                f"furthest {shortened(worst.name, 40)}: TV {worst.value:.3f} ({worst.low:.3f} to {worst.high:.3f})"
            )
        if GROUPS in kinds:
            scores = self.scores_of(GROUPS)
            given = [score for score in scores if score.value is not None]
            if given:
                worst = max(given, key=lambda score: score.value or 0.0)
                lines["groups"] = (
                    f"{len(given)} of {len(scores)} have a score; lowest {shortened(worst.name, 40)}: {points_text(worst)}"
                )
            else:
                lines["groups"] = f"none of {len(scores)} has a score: their noisy sizes are too small"
        if QUESTIONS in kinds:
            held = [score.held for score in self.scores_of(QUESTIONS) if score.held is not None]
            lines["questions"] = f"{sum(held)} of {len(held)} answers are within the noise of both (95 %)"
        return lines | {
            "in all": f"ε = {self.total_epsilon:.4g}, δ = {self.total_delta:.4g}: the release and these scores together"
        }

    def guarantee_text(self) -> str:
        """The guarantee of the scores alone, in a few words.

        >>> published_scores.guarantee_text()
        'ε = 2, δ = 1e-06, discrete gaussian'
        """
        stamp = "NOT PRIVATE, a rehearsal; " if self.is_rehearsal else ""
        return f"{stamp}ε = {self.epsilon:g}, δ = {self.delta:g}, {self.mechanism}"

    # ------------------------------------------------------------------ as a file has it

    def to_dict(self) -> dict[str, Any]:
        """The member `quality.json`, as plain values.

        >>> published_scores.to_dict()["format"]
        'kmeanalyst quality'
        """
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in _PLAIN},
            "sensitivity": self.sensitivity,
            "cells": {
                "edges": [list(edges) for edges in self.edges], "atoms": [list(atoms) for atoms in self.atoms],
                "missing": list(self.missing),
            },
            "labels": list(self.labels),
            "parts": [
                {"name": part.name, "multiplier": part.multiplier, "tables": part.tables, "noisy": list(self.noisy[part.name])}
                for part in self.parts
            ],
            "questions": [{name: getattr(question, name) for name in _QUESTION} for question in self.questions],
            "scores": {
                part.name: [score.to_list() for score in self.scores_of(part.name)]
                for part in self.parts
                if part.name != SIZES
            },
            "versions": dict(self.versions),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, table: Any, names: Sequence[str]) -> PublishedScores:
        """The scores of a file, every claim computed again; QualityError if something is missing, unknown, or not so.

        names   the columns of the file that have cells.

        >>> type(published_scores).from_dict(published_scores.to_dict(), published_scores.names) == published_scores
        True
        """
        _check_fields("quality", table, _FIELDS)
        _check_fields("cells", table["cells"], _CELLS)
        for name in ("labels", "parts", "questions"):
            if not isinstance(table[name], list):
                raise QualityError(f"{name} must be a list, got {table[name]!r:.80}.")
        if table["format"] != FORMAT:
            raise QualityError(f"format must be {FORMAT!r}, got {table['format']!r:.80}.")
        for entry in table["parts"]:
            _check_fields("a part", entry, {"name", "multiplier", "tables", "noisy"})
        for entry in table["questions"]:
            _check_fields("a question", entry, set(_QUESTION))
        if not isinstance(table["versions"], dict):
            raise QualityError("versions must map names to texts.")
        parts = tuple(
            ScorePart(entry["name"], entry["multiplier"], len(_list("noisy", entry["noisy"])), entry["tables"])
            for entry in table["parts"]
        )
        found = cls(
            **{name: table[name] for name in _PLAIN},
            parts=parts, noisy={entry["name"]: tuple(entry["noisy"]) for entry in table["parts"]},
            edges=_nested(table["cells"]["edges"]), atoms=_nested(table["cells"]["atoms"]),
            missing=tuple(_list("missing", table["cells"]["missing"])), names=tuple(names), labels=tuple(table["labels"]),
            questions=tuple(AskedQuestion(**entry) for entry in table["questions"]), versions=table["versions"],
        )  # fmt: skip
        found._check_claimed(table["sensitivity"], table["scores"])
        return found

    def _check_claimed(self, sensitivity: Any, scores: Any) -> None:
        """The sensitivity and the scores of a file are those that its numbers give."""
        if not is_whole(sensitivity) or sensitivity != self.sensitivity:
            raise QualityError(
                f"sensitivity must be {self.sensitivity}, as the parts give it, got {sensitivity!r:.80}."
            )
        kinds = {part.name for part in self.parts if part.name != SIZES}
        _check_fields("scores", scores, kinds)
        for name in kinds:
            found = [score.to_list() for score in self.scores_of(name)]
            said = _list(name, scores[name])
            if len(said) != len(found) or not all(map(_alike, said, found)):
                raise QualityError(f"scores, {name}: they are not what the noisy numbers give.")


_PLAIN = (
    "epsilon", "delta", "mechanism", "calibration", "neighbouring", "unit", "n_rows", "height", "noise_scale", "group",
    "total_epsilon", "total_delta", "ledger_head",
)  # fmt: skip
_QUESTION = ("text", "low", "high", "answer", "standard_error")
_CELLS = {"edges", "atoms", "missing"}
_FIELDS = {*_PLAIN, "format", "sensitivity", "cells", "labels", "parts", "questions", "scores", "versions"}


# ---------------------------------------------------------------------- plain values of a file


def _check_fields(what: str, table: Any, wanted: set[str]) -> None:
    if not isinstance(table, dict) or set(table) != wanted:
        raise QualityError(f"{what} must be a table of {', '.join(sorted(wanted))}, and of nothing else.")


def _list(what: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise QualityError(f"{what} must be a list, got {value!r:.80}.")
    return value


def _nested(value: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(_list("edges and atoms", inner)) for inner in _list("edges and atoms", value))


def _alike(said: Any, found: Any) -> bool:
    """Whether a file's score is the computed one, but for rounding on another machine."""
    if said is None or found is None:
        return said is found
    if not isinstance(said, list) or len(said) != len(found):
        return False
    return all(
        (math.isclose(a, b, rel_tol=SLACK, abs_tol=SLACK) if is_number(a) and is_number(b) else type(a) is type(b) and a == b)
        for a, b in zip(said, found, strict=True)
    )  # fmt: skip
