"""A release together with a sample of one's own, or with a second release: for any statistic the best weighting of both.

Both sides' answers have influence functions, and their weighted mean has the least variance if both are of one population
(generalised least squares). Every answer says that this is assumed, and what a test of it found; the test chooses nothing, since an
interval after such a choice covers nothing in particular. With a bound on the difference, the weights are those of the shortest
interval that allows for it (Armstrong & Kolesár 2018, *Optimal inference in a class of regression models*).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import ncx2

from kmeanalyst.inference.estimate.error_model import MeasuredErrors, SamplingErrors, joined, joint_parts, total
from kmeanalyst.inference.estimate.estimate import SAMPLE, Estimate, Estimates
from kmeanalyst.inference.estimate.heterogeneity import heterogeneity_of
from kmeanalyst.inference.estimate.statistic import IntervalRule
from kmeanalyst.inference.questions import expectation as means
from kmeanalyst.inference.questions import moments, quantiles
from kmeanalyst.inference.questions.moments import MatrixEstimate
from kmeanalyst.inference.questions.quantiles import InverseCdf
from kmeanalyst.inference.two_sample.mmd_test import mmd_test
from kmeanalyst.inference.two_sample.result import OF_UNITS, TestResult
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.texts import Printed, shortened
from kmeanalyst.representation.weights.views import view_weights
from kmeanalyst.sources.tables import Recode, Rename, frame_of, translated

Overlap = Literal["disjoint", "contained", "unknown"]
_OF = {
    "disjoint": "no person is taken to be in both",
    "contained": "all persons of the sample are taken to be in the table",
    "unknown": "any number of the sample's persons may be in the table, and the error is the largest that follows",
}
_Z, _TRIED, _FAR, _TINY = float(ndtri(0.975)), 101, 20.0, 1e-300
_MUCH = 0.22  # of an error: if less is resolution, a second weight gains little


def combine(
    release: ReleaseData, sample: Any, *, overlap: Overlap = "disjoint", bound: float | None = None,
    rename: Rename = None, recode: Recode = None,
) -> Combination:  # fmt: skip
    """A release and a sample of your own, to be asked together: answers are the best weighted means of both sides' answers.

    Where the release leaves much open, what it measured of a statistic has a weight of its own, and corrects the sample's answer,
    so that an answer may lie outside both.

    sample   a DataFrame in natural units, or a table of any other source, as of `mmd_test`; or a second release, or a list of
             several, such as other sites', all of other persons.
    overlap  whether the sample's persons are in the released table: "disjoint", "contained", or "unknown", the wider of both.
    bound    None: one population is assumed. Else how far the sample's may be from the released one, which answers are then of: the
             most that a statistic differs, in standard deviations of a row (`Comparison.differences` has them). Above 0 all of
             an answer has one weight.
    rename, recode   how the sample is written as the release is: see `mmd_test`.
    Errors   ValueError for a release without a measurement, whose error is not known, and a sample of fewer than two rows.

    >>> both = ka.combine(release, sample)
    >>> both.mean("age")
    age: 38.36 ± 0.27 (95 %: 37.83 to 38.89; privacy 0.12, sampling 0.22, resolution 0.11) [3 notes]
    """
    listed = tuple(sample) if isinstance(sample, list | tuple) else (sample,)
    others = listed if all(isinstance(one, ReleaseData) for one in listed) else ()
    if overlap not in _OF or (overlap != "disjoint" and others):
        raise ValueError(
            f"overlap must be {', '.join(_OF)}, and disjoint of two releases, got {overlap!r:.80}: it says whether the sample's "
            'persons are in the table. Pass overlap="unknown" of a sample if you do not know.'
        )
    if bound is not None and not (0 <= bound < np.inf and len(others) < 2):
        raise ValueError(
            f"bound must be a number from 0 on, got {bound!r:.80}: it is the most that a statistic of the sample's population "
            "differs from the released one's, in standard deviations of a row. Pass e.g. 0.1, and none with several releases."
        )
    n, of_units = _rows_behind(release), release.statement is not None and release.statement.protects_units
    if others:
        return Combination(release, others[0], (n, *map(_rows_behind, others)), overlap, bound, further=others[1:])
    rows, notes = as_release(release, translated(sample, rename, recode))
    if not 2 <= len(rows) <= (n if overlap == "contained" else np.inf):
        raise ValueError(
            f"the sample needs at least two rows to show its own spread, and at most the table's {n:,} if all are in it, got "
            f'{len(rows):,}. Add rows, or pass overlap="unknown".'
        )
    frame = pd.concat([rows.frame, release.frame], ignore_index=True)
    errors = SamplingErrors(frame, rows.weights, (), others=view_weights(release, "probability"))
    notes += [OF_UNITS] * of_units
    return Combination(release, rows, (n, len(rows)), overlap, bound, tuple(notes), errors)


def _rows_behind(release: ReleaseData) -> int:
    if release.measurement is None or release.statement is None:
        raise ValueError(
            "a release without a measurement has no known error, so how much it should count is not known. Combine releases with "
            "their measurement, or give the rows as a DataFrame."
        )
    return release.statement.n_rows


def as_release(release: ReleaseData, sample: Any) -> tuple[ReleaseData, list[str]]:
    """A sample's rows as points of equal weight, with the release's columns; and notes on its cells.

    sample   a DataFrame in natural units, or a table of any other source (see `table_of`).
    """
    if (table := frame_of(sample, release.domain)) is None:
        raise TypeError(
            f"a sample is read by its columns' names, and a {type(sample).__name__} has none. Pass a DataFrame, "
            "or the path of a table."
        )
    encoded, counts = release.domain.encode_counted(table)
    counts.check(release.domain)
    rows = ReleaseData(
        points=release.domain.decode(encoded), weights=np.full(len(encoded), 1 / max(len(encoded), 1)), measurement=None,
        kernel=release.kernel, domain=release.domain, statement=None,
    )  # fmt: skip
    if release.derived:
        rows = rows.transform({one.column.name: one.expression for one in release.derived})
    derived = {one.column.name for one in release.derived}
    return rows, [note for note in counts.notes() if not set(counts.ignored) <= derived or "ignored" not in note]


def _of_both(question: Callable[..., Any]) -> Callable[..., Any]:
    def ask(self: Combination, *arguments: Any, **asked: Any) -> Any:
        return self._ask(question, arguments, asked)

    ask.__doc__ = f"As `Release.{question.__name__}`, of both sides together."
    return ask


@dataclass(frozen=True, eq=False, repr=False)
class Combination(Printed):
    """A release and a sample, or other releases, asked together; made by `combine`.

    release  the release; with a bound, answers are of its population.
    other    the sample's rows as points of equal weight, or the second release.
    n_rows   behind the release, and of the sample or behind the other releases.
    overlap, bound   as in `combine`.
    notes    on the sample's cells and the release's units.
    further  releases after the second, in order.

    Answers of different persons have `heterogeneity`: how far the sides' answers differ beyond their errors. It changes nothing.

    Its methods are those of `Release` of these names. What the sample has no answer to is the release's alone.

    >>> both = ka.combine(release, sample.head(500), overlap="unknown", bound=0.05)
    >>> both.check.pvalue, len(both.assumptions)  # of mmd_test; it is shown, and changes nothing
    (0.139..., 2)
    >>> both.probability("age > 50").notes[2]
    'age > 50: 0.202 ± 0.020 by the release and 0.192 ± 0.018 by the sample, which are 0.4 standard errors apart; the
        sample has a weight of 0.37; the interval allows for the bound, and the error does not'
    >>> ka.combine(release, sample.head(500)).mean("age").heterogeneity
    Q = 0.018 on 1 df, p = 0.89, I² = 0 %
    >>> both.mean("age"), both.std("age"), both.quantile("age", 0.9)
    (age: 38.58 ± 0.39 (95 %: 37.78 to 39.39; privacy 0.22, sampling 0.21, resolution 0.26) [3 notes], std(age): 13.89 ± 0.38 (95 %:
        13.01 to 14.77; privacy 0.18, sampling 0.24, resolution 0.23) [4 notes], quantile(age, 0.9): 58.00 ± 0.77 (95 %: 57.00 to
        61.00; privacy 0.27, sampling 0.45, resolution 0.56) [4 notes])
    >>> [ask("age").value for ask in (both.expectation, both.var, both.median)], len(both.expectations(["age", "age > 50"]))
    ([38.5810..., 192.8865..., 37.0], 2)
    >>> both.cdf("age", 50).value
    0.8015...
    >>> both.cov(["age", "hours-per-week"]).value.shape, both.corr(["age", "hours-per-week"]).names
    ((2, 2), ('age', 'hours-per-week'))
    """

    release: ReleaseData
    other: ReleaseData
    n_rows: tuple[int, ...]
    overlap: Overlap = "disjoint"
    bound: float | None = None
    notes: tuple[str, ...] = ()
    _shared: SamplingErrors | None = None  # of what both sides have in common; None of releases
    further: tuple[ReleaseData, ...] = ()

    expectation, expectations = _of_both(means.expectation), _of_both(means.expectations)
    mean, probability = _of_both(means.mean), _of_both(means.probability)
    var, std, cov, corr = (_of_both(each) for each in (moments.var, moments.std, moments.cov, moments.corr))
    cdf, quantile, median = (_of_both(each) for each in (quantiles.cdf, quantiles.quantile, quantiles.median))

    @cached_property
    def check(self) -> TestResult:
        """What `mmd_test` finds, of two sides; ValueError where it cannot test these."""
        return mmd_test(self.release, self.other if self._shared is None else self.other.frame)

    @property
    def _name(self) -> str:
        return "sample" if self._shared else "other releases" if self.further else "second release"

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """What every answer says: what is assumed, and what a test of it found."""
        first = "one population of both is assumed" if self.bound is None else (
            f"of the release's population, from which statistics of the {self._name}'s are assumed to differ by at most "
            f"{self.bound:g} standard deviations of a row"
        )  # fmt: skip
        try:
            found = f"p = {self.check.pvalue:.2g}"
            found += "".join(f" and {mmd_test(self.release, each).pvalue:.2g}" for each in self.further)
            if not self.further and self.check.detectable_mmd is not None:
                found += f", differences from an MMD of {self.check.detectable_mmd:.2g} on are found four times in five"
        except ValueError as refusal:
            found = f"no test, as {refusal}"
        if self.overlap != "disjoint":
            found += "; it takes the sample for other persons"
        found = f"a test of one population, which chooses nothing (mmd_test): {found}"
        return f"{first}; {_OF[self.overlap]}", found, *self.notes

    def __repr__(self) -> str:
        sides = f"{self.n_rows[0]:,} released rows and {'' if self.further else 'a '}{self._name} of "
        sides += " and ".join(f"{n:,}" for n in self.n_rows[1:])
        return "\n ".join([f"kmeanalyst.Combination of {sides}", *self.assumptions])

    def _ask(self, question: Callable[..., Any], arguments: tuple[Any, ...], asked: dict[str, Any]) -> Any:
        if self._shared is not None:  # the sample's own error model, which copies of a release do not keep
            weights = view_weights(self.other, "probability").tobytes()
            kept(self.other, ("expectation", weights), partial(replace, self._shared))
        ours = question(self.release, *arguments, **asked)
        if isinstance(ours, MatrixEstimate):  # of the same columns, where none were named
            arguments, asked = (), asked | {"columns": list(ours.names)}
        found, why = [ours], ""
        for other in (self.other, *self.further):
            try:
                found.append(question(other, *arguments, **asked | ({"view": "probability"} if self._shared else {})))
            except ValueError as refusal:
                why = str(refusal)
        return _each(found, lambda answers: self._together(answers, why))

    def _alone(self, ours: Estimate, why: str) -> Estimate:
        note = f"{ours.question}: the release's alone, as the {self._name} has no answer: {shortened(why, 200)}"
        return replace(ours, notes=(note, *ours.notes))

    def _together(self, answers: Sequence[Estimate], why: str) -> Estimate:
        ours, *others = answers
        if ours.standard_error == 0:
            return ours  # by declaration, or whatever the rows are
        others = [each for each in others if each.terms and 0 < each.standard_error < np.inf]
        if not (others and ours.terms and np.isfinite(ours.standard_error)):
            return self._alone(ours, why or "the error of one of them is not known, or 0 as its rows are alike in this")
        if self._shared is not None:
            others = [replace(each, view=SAMPLE) for each in others]
        sides = [ours, *others]
        curves = [each.interval_by for each in sides if isinstance(each.interval_by, InverseCdf)]
        if len(curves) == len(sides):  # the weighted distribution function, inverted
            found, weights, ratio = self._weighted([_of_cdf(*pair) for pair in zip(sides, curves, strict=True)])
            values = np.unique(np.concatenate([each.values for each in curves]))
            known = sum(weight * each.known(values) for weight, each in zip(weights, curves, strict=True))
            curve = replace(curves[0], values=values, cumulative=known, standard_error=found.standard_error)
            found = replace(-curve.slope * found, value=curve.at(curve.q), interval_by=curve)
        elif self._shared and not self.bound and (ours.parts["resolution"] or 0.0) > _MUCH * ours.standard_error:
            found, weights, ratio = self._controlled(ours, others[0])
        else:
            found, weights, ratio = self._weighted(sides)
        shown = [f"{each.written(each.value)} ± {each.written(each.standard_error)}" for each in sides]
        note = f"{ours.question}: {shown[0]} by the release and {', '.join(shown[1:])} by the {self._name}"
        values, errors = np.array([(each.value, each.standard_error) for each in sides]).T
        differ = heterogeneity_of(values, errors) if self.overlap == "disjoint" else None
        apart = abs(values[0] - values[1]) / np.hypot(*errors[:2])
        note += f", which are {apart:.1f} standard errors apart" if len(sides) == 2 else ", which differ"
        note += f" ({differ})" if differ else ""
        if isinstance(weights, np.ndarray):
            note += f"; the sample has a weight of {weights[0]:.2f} for what was measured of it, {weights[1]:.2f} for the rest"
        else:
            has = "have weights" if self.further else "has a weight"
            note += f"; the {self._name} {has} of {', '.join(f'{weight:.2f}' for weight in weights[1:])}"
        if len(sides) < len(self.n_rows):
            refused = len(self.n_rows) - len(sides)
            note += f"; of {len(self.n_rows)} releases {refused} had no answer: {shortened(why, 200)}"
        if self.bound is not None:
            note += "; the interval allows for the bound, and the error does not"
            found = replace(found, interval_by=WithinBound(found, ratio), terms=())
        notes = (*self.assumptions, note, *(f"of the release's: {each}" for each in ours.notes))
        return replace(found, question=ours.question, possible=ours.possible, notes=notes, heterogeneity=differ)

    def _weighted(self, sides: Sequence[Estimate]) -> tuple[Estimate, Any, float]:
        """The weighted mean, the weights, and how many standard errors the mean may be off under the bound."""
        if len(sides) > 2:
            precisions = np.array([each.standard_error for each in sides]).clip(_TINY**0.5) ** -2.0
            weights = [float(each) for each in precisions / precisions.sum()]
            return _with_resolution(reduce(operator.add, map(operator.mul, weights, sides)), weights, sides), weights, 0.0
        (ours, theirs), common = sides, self._common
        variances, sampled = (ours.standard_error**2, theirs.standard_error**2), theirs.parts["sampling"] or 0.0
        bias = (self.bound or 0.0) * self.n_rows[1] ** 0.5 * sampled
        weight = _best_weight(*variances, common * sampled**2, bias)
        found = _with_resolution((1 - weight) * ours + weight * theirs, (1 - weight, weight), sides)
        found = self._with_common(found, theirs, 2 * weight * (1 - weight) * common)
        return found, (1 - weight, weight), weight * bias / max(found.standard_error, _TINY)

    def _controlled(self, ours: Estimate, theirs: Estimate) -> tuple[Estimate, Any, float]:
        """The mean with a weight of the sample's for what the measurement shows of the influence, and one for the rest.

        What it shows is a mean that both sides answer: how far these are apart corrects the sample's answer, a control variate
        (Angelopoulos et al. 2023, *Prediction-powered inference*, whose prediction is the release's here). Weights are from 0 to 1.
        """
        (model, influence), (sample, there) = ours.terms[0], theirs.terms[0]
        assert isinstance(model, MeasuredErrors) and isinstance(sample, SamplingErrors)
        sides = self.other, self.release  # the rows of the sample's model
        seen = model.posterior.seen
        theirs_seen = kept(self.other, "features", lambda: seen(np.vstack([one.encoded_points for one in sides])))
        a = model.measured_part(influence)
        first = _Controlled.of(model, model.weights, influence, np.asarray(model.features @ a))
        second = _Controlled.of(sample, sample.probabilities, there, np.asarray(theirs_seen @ a))
        both = self._common * second.sampling
        total, least = first.covariance + second.covariance - 2 * both, (first.covariance - both).sum(axis=1)
        shown, rest = weights = np.clip(np.linalg.lstsq(total, least)[0], 0.0, 1.0)
        found = first.weighted(ours, 1 - shown, 1 - rest) + second.weighted(theirs, shown, rest)
        common = max(2 * float((1 - weights) @ both @ weights), 0.0)
        found = self._with_common(found, theirs, common / max(theirs.parts["sampling"] or 0.0, _TINY**0.5) ** 2)
        alone = self._weighted([ours, theirs])
        return (found, weights, 0.0) if found.standard_error < alone[0].standard_error else alone

    @property
    def _common(self) -> float:
        """How much of the sample's variance is the table's too."""
        return 0.0 if self.overlap == "disjoint" else min(self.n_rows[1] / self.n_rows[0], 1.0)

    def _with_common(self, found: Estimate, theirs: Estimate, times: float) -> Estimate:
        """With so many times the sample's variance in addition, from what persons in both add to both sides."""
        if self._shared is None or not times:
            return found
        at_rows = theirs.terms[0][1][: len(self._shared.frame)]  # without a bias
        return found + times**0.5 * replace(theirs, value=0.0, terms=((self._shared, at_rows),))


def _with_resolution(found: Estimate, weights: Sequence[float], sides: Sequence[Estimate]) -> Estimate:
    """A weighted mean with the resolution of all sides as one error: what one release does not see, others do not."""
    each = np.array([weight * (side.parts["resolution"] or 0.0) for weight, side in zip(weights, sides, strict=True)])
    more = float(np.sqrt(max(each.sum() ** 2 - (each**2).sum(), 0.0)))
    if not more:
        return found
    (model, influence), *others = found.terms
    parts = found.parts | {"resolution": float(np.hypot(found.parts["resolution"] or 0.0, more))}
    error = float(np.hypot(found.standard_error, more))
    return replace(found, standard_error=error, parts=parts, terms=((model, model.with_bias(influence, more)), *others))


def _each(answers: Sequence[Any], join: Callable[[Sequence[Estimate]], Estimate]) -> Any:
    """An answer of every side, joined estimate by estimate."""
    if isinstance(ours := answers[0], Estimate):
        return join(answers)
    if isinstance(ours, MatrixEstimate):
        return replace(ours, estimates=_each([each.estimates for each in answers], join))
    return Estimates(join(each) for each in zip(*answers, strict=True))


@dataclass(frozen=True, eq=False)
class _Controlled:
    """A side's influence function in two parts: a control (n,), with its mean, and the rest; (2, 2) covariances of their errors."""

    control: Array
    mean: float
    covariance: Array
    sampling: Array

    @classmethod
    def of(cls, model: MeasuredErrors | SamplingErrors, p: Array, influence: Array, shown: Array) -> _Controlled:
        control = np.append(shown, np.zeros(len(influence) - len(shown)))  # a bias is none of it
        found = model.covariance(np.column_stack([control, influence - control, influence]))
        return cls(control, float(p @ shown[: len(p)]), _of_two(joined(found)), _of_two(found["sampling"]))

    def weighted(self, whole: Estimate, shown: float, rest: float) -> Estimate:
        """The weighted sum of both parts of an estimate, for sums: its error is wrong until it is added to another."""
        ((model, influence),) = whole.terms
        terms = ((model, rest * influence + (shown - rest) * self.control),)
        return replace(whole, value=rest * whole.value + (shown - rest) * self.mean, terms=terms)


def _of_two(of_three: Array) -> Array:
    """(2, 2) a covariance of two numbers by the variances (on a diagonal) of them and of their sum: of rare events these are no
    smaller than usual ones, and covariances of rows are 0.
    """
    first, second, of_sum = np.diag(of_three)
    most = np.sqrt(first * second)
    off = np.clip((of_sum - first - second) / 2, -most, most)
    return np.array([[first, off], [off, second]])


def _of_cdf(quantile: Estimate, by: InverseCdf) -> Estimate:
    parts = joint_parts(terms := by.terms_at(quantile.value))
    return replace(quantile, value=by.q, standard_error=float(total(parts)), parts=parts, terms=terms, interval_by=None)


@dataclass(frozen=True, eq=False)
class WithinBound(IntervalRule):
    """The interval of an estimate that may be off by a ratio of its standard error."""

    of: Estimate
    ratio: float

    def interval(self, z: float) -> tuple[float, float]:
        of, z = self.of, float(_wider(z, np.array(self.ratio)))
        symmetric = of.value - z * of.standard_error, of.value + z * of.standard_error
        return symmetric if of.interval_by is None else of.interval_by.interval(z)


def _wider(z: float, ratio: Array) -> Array:
    """The z′ for which |N(ratio, 1)| is at most z′ as often as |N(0, 1)| is at most z."""
    near = np.minimum(ratio, _FAR)  # from there on z′ grows as ratio does
    return np.sqrt(ncx2.ppf(2 * ndtr(z) - 1, 1, near**2)) + ratio - near


def _best_weight(ours: float, theirs: float, shared: float, bias: float) -> float:
    """The other side's weight for the shortest 95 % interval, from variances, covariance, and the bias of a weight of 1."""
    of_difference = ours + theirs - 2 * shared
    best = float(np.clip((ours - shared) / of_difference, 0, 1)) if of_difference > 0 else 0.0
    tried = np.linspace(0, best, _TRIED) if bias else np.array([best])
    errors = np.sqrt((1 - tried) ** 2 * ours + tried**2 * theirs + 2 * tried * (1 - tried) * shared) + _TINY
    return float(tried[np.argmin(errors * _wider(_Z, tried * bias / errors))])
