"""Random variables: columns of releases, functions of them, and questions about these.

Kernel probabilistic programming: Σ w f(z) represents the distribution of f(X) (Schölkopf et al. 2015; Simon-Gabriel et al.
2016; Balog et al. 2018, §3.3). Columns of one release have its joint distribution; different releases are assumed to be
independent, and answers say so. The identity of the Release object decides which is the case: X - X is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate import population
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates, list_of_notes
from kmeanalyst.inference.questions.expectation import mean_of, probability_of, statistic_of
from kmeanalyst.inference.questions.groups import Group, increasing
from kmeanalyst.inference.questions.moments import deviation_of, variance_of
from kmeanalyst.inference.questions.quantiles import cdf_of, quantile_of
from kmeanalyst.inference.questions.tables import histogram_frame, histogram_of_groups
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.variables import distance as variable_distance
from kmeanalyst.inference.variables.distance import ReducedPoints, default_kernel, gathered
from kmeanalyst.inference.variables.nodes import Node, column_node, joined, missing_node, number_node
from kmeanalyst.inference.variables.operators import VariableOperators, is_variable
from kmeanalyst.inference.variables.product_distribution import ProductDistribution, check_bounded, joint_distribution
from kmeanalyst.kernels import Kernel, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.lazy import instead_of
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.releases.texts import Printed
from kmeanalyst.representation.thinning import ThinWeights

_RANGES = 10
_MIDDLE = (0.01, 0.99)  # orders of two quantiles: default ranges divide what lies between


def histogram_of(
    distribution: population.Distribution, node: Node, bins: int | Sequence[float] | None, level: float
) -> pd.DataFrame:
    """Probabilities of a variable's groups with error bars.

    bins   for a plain column see `Release.histogram`; a condition is false or true. For other variables a number of ranges
           (10 by default): equal ones between the 1 % and 99 % points of |w|, the first and last unbounded. A list: edges,
           the last range closed; values outside are in no range.
    """
    if isinstance(distribution, population.Population) and node.column is not None:
        return histogram_of_groups(distribution, node.column, bins, level)
    values = distribution.values(node)
    if node.kind == "condition" and bins is None:
        groups = [Group(label, f"{node.text} is {label}") for label in ("False", "True")]
        inside = [values == 0, values == 1]
    else:
        mass = np.abs(distribution.weights)
        edges = _edges(values[: len(mass)], mass, _RANGES if bins is None else bins)
        groups = [_range(node, left, right, right == edges[-1]) for left, right in pairwise(edges)]
        inside = [(values >= a) & ((values <= b) if b == edges[-1] else (values < b)) for a, b in pairwise(edges)]
    statistics = [
        statistic_of(distribution, np.where(np.isnan(values), np.nan, holds), group.condition)
        for holds, group in zip(inside, groups, strict=True)
    ]
    return histogram_frame(population.estimates(distribution, statistics), groups, node.text, level)


def _range(node: Node, left: float, right: float, last: bool) -> Group:
    opening, closing = "(" if np.isinf(left) else "[", "]" if last and np.isfinite(right) else ")"
    label = f"{opening}{left:.4g}, {right:.4g}{closing}"
    return Group(label, f"{node.text} in {label}", left, right)


def _edges(values: Array, mass: Array, bins: int | Sequence[float]) -> Array:
    if not isinstance(bins, int | np.integer):
        return np.array(increasing(bins), dtype=float)
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}: it is a number of ranges. Pass e.g. 10.")
    order = np.argsort(values)
    cumulative = np.cumsum(mass[order])
    low, high = (values[order][np.searchsorted(cumulative, q * cumulative[-1])] for q in _MIDDLE)
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.array([-np.inf, *np.linspace(low, high, bins + 1)[1:-1], np.inf])


_INSTEAD = {
    **dict.fromkeys(("values", "to_numpy", "unique"), ".to_frame() has the points with their weights"),
    **dict.fromkeys(("value_counts", "sum", "count"), "release.table(column) has shares, release.sum(column) the sum"),
    **dict.fromkeys(("apply", "map"), "ka.pushforward(function, variable) is the variable of a function"),
    **dict.fromkeys(("median", "min", "max", "describe"), "ask .mean(), .std() or .quantile(q)"),
    **dict.fromkeys(("hist", "plot"), ".histogram() has the shares, release.plot(column) draws a column"),
}


@dataclass(frozen=True, eq=False, repr=False)
class RandomVariable(VariableOperators, Printed):
    """One component, or several, of what rows of releases determine; made by `release["age"]` and calculated with.

    nodes       its components' expressions.
    view        the weights it is asked under: "signed" (as released), "probability", "fitted"; None: of one release its best
                answers, of several their points as released.
    conditions  it is asked given that these hold: see `given`.

    Numbers, comparisons (conditions), & | ~ of conditions, and numpy's elementwise functions apply; `ka.pushforward` takes
    any other function. Missing cells are NaN and must be excluded with `given` before a question is asked.

    >>> age, hours = release["age"], release["hours-per-week"]
    >>> (age * hours).mean()
    age * `hours-per-week`: 1602 ± 54 (95 %: 1497 to 1708; privacy 25, sampling 11, resolution 46) [1 note]
    >>> (age > 50).given(hours > 40).probability()
    age > 50 | `hours-per-week` > 40: 0.270 ± 0.057 (95 %: 0.158 to 0.382; privacy 0.021, sampling 0.009, resolution 0.052) [1 note]
    >>> np.sqrt(age).quantile(0.5)
    quantile(sqrt(age), 0.5): 6.083 ± 0.084 (95 %: 5.916 to 6.245; privacy 0.030, sampling 0.025, resolution 0.075) [1 note]
    """

    nodes: tuple[Node, ...]
    view: View | None = None
    conditions: tuple[Node, ...] = ()

    if not TYPE_CHECKING:  # for which every name would be an attribute
        __getattr__ = instead_of("a random variable", _INSTEAD)

    # ---------------------------------------------------------------- what it is

    @property
    def names(self) -> tuple[str, ...]:
        """The components' expressions as text.

        >>> release[["age", "sex"]].names
        ('age', 'sex')
        """
        return tuple(node.text for node in self.nodes)

    @property
    def releases(self) -> tuple[ReleaseData, ...]:
        """What it depends on, its conditions included.

        >>> release["age"].releases[0] is release
        True
        """
        return joined(node.releases for node in (*self.nodes, *self.conditions))

    @property
    def n_points(self) -> int:
        """How many weighted values it is computed from: combinations of the releases' points, or a draw of them.

        >>> release["age"].n_points
        16000
        """
        return len(self._distribution.weights)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is assumed and approximated: independence of releases, combinations that were drawn and their error.

        >>> other = ka.from_frame(sample[["age"]].assign(weight=1 / len(sample)))
        >>> (release["age"] - other["age"]).notes
        ('no measurement: the privacy noise is unknown, and the sampling part takes the points for rows', 'of different
            releases: they are taken as independent, which two releases of one table are not quite')
        """
        return self._distribution.model.notes

    def __getitem__(self, which: int | str) -> RandomVariable:
        """A component, by its position or its text."""
        index = self.names.index(which) if isinstance(which, str) and which in self.names else which
        if not isinstance(index, int | np.integer) or not -len(self.nodes) <= index < len(self.nodes):
            raise IndexError(f"no component {which!r:.80}: there are {', '.join(self.names)}. Pass a position or a name.")
        return replace(self, nodes=(self.nodes[index],))

    def __iter__(self) -> Iterator[RandomVariable]:
        return (replace(self, nodes=(node,)) for node in self.nodes)

    def __len__(self) -> int:
        """How many components it has."""
        return len(self.nodes)

    def missing(self) -> RandomVariable:
        """The condition that a component is missing or undefined: x.given(~x.missing()).

        >>> release["age"].missing().probability().value
        0.0
        """
        return self.combine([self], tuple(missing_node(node) for node in self.nodes))

    def named(self, *names: str) -> RandomVariable:
        """The same variable under other names, one for each component: columns of two releases may share theirs.

        >>> (release["hours-per-week"] * 52).named("yearly hours").mean()
        yearly hours: 2126 ± 32 (95 %: 2063 to 2190; privacy 19, sampling 8, resolution 24)
        """
        if len(names) != len(self.nodes):
            raise ValueError(f"a name for each of {len(self)} components, got {len(names)}: {names!r:.80}. Pass as many.")
        if not all(isinstance(name, str) and name for name in names):
            raise TypeError(f"names are texts, got {names!r:.80}: answers show them. Write them in quotes.")
        each = zip(self.nodes, names, strict=True)
        return replace(self, nodes=tuple(replace(node, text=name, atomic=True) for node, name in each))

    # ---------------------------------------------------------------- under which distribution

    def given(self, *conditions: RandomVariable) -> RandomVariable:
        """The variable given that conditions hold; what it is elsewhere does not matter.

        Conditions of other releases than the variable's tie them together: x.given(x < y).

        >>> release["age"].given(release["hours-per-week"] > 40).mean()
        age | `hours-per-week` > 40: 41.1 ± 2.2 (95 %: 36.7 to 45.5; privacy 0.7, sampling 0.3, resolution 2.1) [1 note]
        """
        nodes = [node for condition in conditions for node in _condition_nodes(condition)]
        joined(node.releases for node in (*self.nodes, *self.conditions, *nodes))
        return replace(self, conditions=(*self.conditions, *nodes))

    def in_view(self, view: View | None) -> RandomVariable:
        """The variable under other weights: "signed" (as released), "probability", "fitted" (of one release); None: the default.

        >>> release["age"].in_view("signed").mean()
        age: 38.25 ± 0.53 (95 %: 37.21 to 39.29; privacy 0.26, sampling 0.18, resolution 0.42) [1 note]
        """
        if view not in ("signed", "probability", "fitted", None):
            raise ValueError(f'view must be "signed", "probability" or "fitted", got {view!r:.80}: there are these weights.')
        return replace(self, view=view)

    def combine(self, variables: Sequence[Any], nodes: tuple[Node, ...]) -> Self:
        """Nodes made of these variables' as one variable; ValueError where their views or conditions differ.

        >>> age, hours = release["age"], release["hours-per-week"]
        >>> age.combine([age, hours], age.nodes + hours.nodes).names
        ('age', '`hours-per-week`')
        """
        first = variables[0]
        if any(other.view != first.view for other in variables):
            raise ValueError(
                "these variables are of different views of their releases' weights, and one distribution has one. Make them "
                'alike with in_view("probability").'
            )
        if any(set(other.conditions) != set(first.conditions) for other in variables):
            raise ValueError(
                "these variables are given different conditions, and one distribution has one. Calculate first and condition then: "
                "(x + y).given(condition)."
            )
        joined(node.releases for variable in variables for node in variable.nodes)
        return replace(self, nodes=nodes, view=first.view, conditions=first.conditions)

    @cached_property
    def _distribution(self) -> population.Distribution:
        distribution = joint_distribution(self.releases, self.conditions, self.view)
        if any(node.column is None for node in self.nodes):
            factors = distribution.factors if isinstance(distribution, ProductDistribution) else (distribution,)
            check_bounded([factor.weights for factor in factors], ", ".join(self.names))
        return distribution

    @property
    def _distribution_of_features(self) -> population.Distribution:
        return joint_distribution(self.releases, self.conditions, self.view, n_others=variable_distance.N_OTHERS)

    @property
    def _node(self) -> Node:
        if len(self.nodes) > 1:
            raise ValueError(
                f"this question is about one component, and there are {len(self)}: {', '.join(self.names)}. Pick one, such "
                "as variable[0]."
            )
        return number_node(self.nodes[0])

    @property
    def _asked(self) -> Any:
        """The component as its distribution takes a question: a plain column by its name, so that its bounds are known."""
        node = self._node
        plain = node.column is not None and len(self.releases) == 1 and node.kind == "number"
        return node.column if plain and not isinstance(self.releases[0].columns[node.column], Date) else node  # type: ignore[index]

    # ---------------------------------------------------------------- questions

    def mean(self) -> Estimate:
        """E[variable], with its error bar.

        >>> (release["age"] + 1).mean()
        age + 1: 39.60 ± 0.43 (95 %: 38.75 to 40.45; privacy 0.26, sampling 0.18, resolution 0.30)
        """
        return population.estimate(self._distribution, mean_of(self._distribution, self._node))

    def var(self) -> Estimate:
        """The variance, with its error bar; negative under some signed weights, and a note says so.

        >>> release["age"].var()
        var(age): 195 ± 17 (95 %: 161 to 229; privacy 10, sampling 4, resolution 13) [1 note]
        """
        return population.estimate(self._distribution, variance_of(self._distribution, self._node))

    def std(self) -> Estimate:
        """The standard deviation, with its error bar.

        >>> release["age"].std()
        std(age): 13.97 ± 0.62 (95 %: 12.71 to 15.13; privacy 0.37, sampling 0.13, resolution 0.47) [1 note]
        """
        return population.estimate(self._distribution, deviation_of(self._distribution, self._node))

    def probability(self) -> Estimate:
        """The probability of a condition, with its error bar; ValueError if the variable is not one.

        >>> ((release["age"] > 50) & (release["sex"] == "Male")).probability()
        (age > 50) & (sex == 'Male'): 0.119 ± 0.017 (95 %: 0.084 to 0.153; privacy 0.007, sampling 0.004, resolution 0.015) [1 note]
        """
        return population.estimate(self._distribution, probability_of(self._distribution, self._node))

    def cdf(self, x: float | Sequence[float]) -> Estimate | Estimates:
        """P(variable <= x): an Estimate for a number, Estimates for a list.

        >>> release["age"].cdf([30, 50])
        age <= 30: 0.339 ± 0.018 (95 %: 0.303 to 0.375; privacy 0.008, sampling 0.006, resolution 0.015) [1 note]
        age <= 50: 0.798 ± 0.020 (95 %: 0.759 to 0.836; privacy 0.008, sampling 0.005, resolution 0.018) [1 note]
        """
        return cdf_of(self._distribution, self._node, x)

    def quantile(self, q: float | Sequence[float] = 0.5) -> Estimate | Estimates:
        """The quantile of order q; of several releases in the probability view. See `Release.quantile`.

        >>> (release["age"] * 2).quantile([0.25, 0.75])
        quantile(age * 2, 0.25): 56.0 ± 1.5 (95 %: 52.0 to 58.0; privacy 0.6, sampling 0.4, resolution 1.4) [1 note]
        quantile(age * 2, 0.75): 94.0 ± 2.6 (95 %: 90.0 to 100.0; privacy 1.0, sampling 0.7, resolution 2.3) [1 note]
        """
        if self.view == "signed":
            raise ValueError(
                'quantiles are of the probability view, and this variable is of the signed one. Ask in_view("probability").'
            )
        fitted = len(self.releases) == 1 and population.default_view(self.releases[0]) == "fitted" and self.view is None
        distribution = self._distribution if fitted else self.in_view(self.view or "probability")._distribution
        return quantile_of(distribution, self._asked, q)

    def histogram(self, *, bins: int | Sequence[float] | None = None, level: float = 0.95) -> pd.DataFrame:
        """Probabilities of ranges or levels with error bars, as `Release.histogram` gives them; see `histogram_of`.

        >>> release["age"].histogram(bins=[0, 30, 60, 100])[["probability", "standard_error"]]
                   probability  standard_error
        age
        [0, 30)       0.320539        0.020956
        [30, 60)      0.598921        0.030297
        [60, 100]     0.080540        0.019376
        """
        if len(self.nodes) > 1:
            _ = self._node
        return histogram_of(self._distribution, self.nodes[0], bins, level)

    # ---------------------------------------------------------------- its points and its embedding

    def to_frame(self) -> pd.DataFrame:
        """The weighted values: a column for each component, and "weight", in the view's weights.

        >>> (release["age"] * 2).to_frame().head(2)
           age * 2        weight
        0     38.0  9.250170e-10
        1     36.0  6.257632e-06
        """
        cells = [variable_distance.at_points(self._distribution, node) for node in self.nodes]
        return pd.DataFrame(dict(zip(self.names, cells, strict=True))).assign(weight=self._distribution.weights)

    def thin(self, n: int = 1000, *, kernel: Kernel | None = None, weights: ThinWeights = "probability") -> ReducedPoints:
        """At most n weighted values near to all, with their distance in the RKHS of the kernel.

        kernel   Gaussian with the variable's standard deviation as lengthscale by default.
        weights  "probability", "uniform", or "signed" (Σ|w| at most that of the distribution, or 1 if that is more).

        >>> len((release["age"] + release["hours-per-week"]).thin(20).to_frame()) <= 20
        True
        """
        return variable_distance.reduced(self._gathered(kernel), n, weights)

    def embedding(self, kernel: Kernel | None = None) -> KernelMean:
        """The embedding of the variable's distribution: of its points, or where they are many, of cells of them (see `thin`).

        >>> release["age"].embedding().points.shape
        (90, 1)
        """
        return self._gathered(kernel).embedding

    def distance(self, other: RandomVariable, kernel: Kernel | None = None) -> Estimate:
        """MMD between the distributions of two variables, with its error bar; see `variable_distance`.

        >>> release["age"].distance(release["hours-per-week"])
        distance(age; `hours-per-week`): 0.225 ± 0.012 (95 %: 0.202 to 0.249; privacy 0.008, sampling 0.006, resolution
            0.007)
        """
        both = self.combine([self, other], (*self.nodes, *other.nodes))
        return variable_distance.distance(both._distribution_of_features, self.nodes, other.nodes, kernel)

    def mmd(self, sample: Any, kernel: Kernel | None = None) -> float:
        """MMD between the variable's distribution, as its points have it, and a sample of values (L,) or (L, d).

        >>> release["age"].mmd(sample["age"])
        0.01321...
        """
        embedding = self.embedding(kernel)
        return embedding.distance(KernelMean(embedding.kernel, variable_distance.sample_rows(self.nodes, sample, 1)))

    def mmd_test(self, sample: Any, kernel: Kernel | None = None) -> TestResult:
        """Test whether a sample of values has the variable's distribution, all errors of the releases counted in.

        >>> (release["age"] * 2).mmd_test(sample["age"] * 2).pvalue
        0.9187...
        """
        distribution = self._distribution_of_features
        return variable_distance.test_against_sample(distribution, self.releases, self.nodes, sample, kernel)

    def _gathered(self, kernel: Kernel | None) -> ReducedPoints:
        weights = self._distribution.weights
        values = np.column_stack(
            [variable_distance.at_points(self._distribution, number_node(node)) for node in self.nodes]
        ).astype(float)
        population.check_defined(values.sum(axis=1), self.nodes[0].exclusion)
        return gathered(values, weights, kernel or default_kernel(values, weights), self.names)

    # ---------------------------------------------------------------- looks

    def __repr__(self) -> str:
        return "\n".join(_line(one)[0] for one in self)

    def __str__(self) -> str:
        return "\n".join(line for one in self for line in _line(one))


def variable_of(release: ReleaseData, columns: str | Sequence[str], view: View | None = None) -> RandomVariable:
    names = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else [columns]
    if any(map(is_variable, names)):
        raise TypeError(
            "rows are not chosen from a release: it stands for a population. Ask variable.given(condition), or "
            "release.expectation(..., where=...)."
        )
    if not names:
        raise KeyError("no columns: name at least one, such as release['age'] or release[['age', 'wage']].")
    return RandomVariable(tuple(column_node(release, name) for name in names)).in_view(view)


def _condition_nodes(condition: Any) -> tuple[Node, ...]:
    if not is_variable(condition) or any(node.kind != "condition" for node in condition.nodes):
        raise TypeError(
            f"given takes conditions, random variables that are true or false, got {condition!r:.80}. Write a comparison, "
            "such as x.given(y > 0)."
        )
    return condition.nodes


def _line(variable: RandomVariable) -> list[str]:
    """A variable of one component as a line, and the notes on its mean."""
    node = variable.nodes[0]
    if node.kind == "levels":
        return [f"{node.text}: levels ({variable.n_points:,} points)"]
    try:
        mean = variable.mean()
    except ValueError as refusal:
        return [f"{node.text}: no mean ({refusal})"]
    value, error = (mean.written(number, ",") for number in (mean.value, mean.standard_error))
    return [f"{mean.question}: {value} ± {error} ({variable.n_points:,} points)", *list_of_notes((), [mean])]
