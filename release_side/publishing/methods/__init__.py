"""The release methods, a file or a folder for each. Adding one means a file here, its representation, and its line in METHODS.

random_features   a fit to noisy random features (Algorithm 2)
margins           rows drawn to fit noisy tables: random features' sibling, chosen by `--kernel margins`
adaptive          the same of tables that are chosen in rounds: the default, and where there is a target
subspace          weights on given points (Algorithm 1)
generator         rows of a trained network (DP-MERF)
exponential       a small database, drawn as a whole
"""

from __future__ import annotations

from dataclasses import replace

from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, position_of
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.kept_rows import check_kept
from release_side.choices.choices import METHOD_NAMES, Choices, check_one_of
from release_side.choices.options import check_named, public_rows
from release_side.choices.workload import lines_of, read_workload
from release_side.errors import PublishError
from release_side.publishing.methods.adaptive.method import AdaptiveMargins
from release_side.publishing.methods.base import Drawn, MeanMethod, ReleaseMethod
from release_side.publishing.methods.exponential import Exponential
from release_side.publishing.methods.generator import Generator
from release_side.publishing.methods.margins import Margins
from release_side.publishing.methods.random_features import RandomFeatures
from release_side.publishing.methods.subspace import Subspace

METHODS: dict[str, type[ReleaseMethod]] = {
    "random-features": RandomFeatures,
    "margins": Margins,
    "adaptive": AdaptiveMargins,
    "subspace": Subspace,
    "generator": Generator,
    "exponential": Exponential,
}


def method_class(method: str) -> type[ReleaseMethod]:
    """The method with this name; PublishError if curators know no such name."""
    check_one_of("method", method, METHOD_NAMES)
    return METHODS[method]


def chosen_kind(method: str, choices: Choices, domain: Domain) -> tuple[type[ReleaseMethod], Choices]:
    """Which method measures, and its choices; PublishError or DomainError if they do not go with the domain. No file is read.

    Margins where random features are asked for under a kernel of margins. PublishError as well for rules with a method that
    does not keep them; DomainError where no row was found that keeps all rules.
    """
    kind = method_class(method)
    if not isinstance(choices.kernel, str | None):  # before it is compared, as an array cannot be
        check_named(kernel_from_spec(choices.kernel, domain))
    choices = _of_targets(kind, choices, domain)
    _check_strings(kind, choices, domain)
    spec = kind.spec(choices, domain)
    if kind is RandomFeatures and spec == "adaptive":
        kind = AdaptiveMargins
    elif kind is RandomFeatures and isinstance(kernel_from_spec(spec, domain, choices.target), MarginsKernel):
        kind = Margins
    if kind.no_rules:
        _refuse_rules(domain, kind.no_rules)
    check_kept(domain)
    return kind, choices


def chosen_method(method: str, choices: Choices, domain: Domain) -> ReleaseMethod:
    """The method of `chosen_kind`, with its inputs read."""
    return with_inputs(*chosen_kind(method, choices, domain), domain)


def with_inputs(kind: type[ReleaseMethod], choices: Choices, domain: Domain) -> ReleaseMethod:
    """The method, its public rows and workload read; PublishError if they do not go with it, or rows break a rule."""
    public = public_rows(choices.public_points, domain)
    if public is not None:
        _refuse_broken(public, domain)
    if choices.workload is not None:
        if kind is not AdaptiveMargins:
            raise PublishError(
                "a workload says what adaptive margins measure, and this release measures something else. Leave the workload "
                'out, or choose the kernel "adaptive" and no choice that goes with other features.'
            )
        choices = replace(choices, workload=read_workload(choices.workload, domain))
    return kind(choices, public)


def _of_targets(kind: type[ReleaseMethod], choices: Choices, domain: Domain) -> Choices:
    """For targets: adaptive margins, and a workload that asks for the tables of each with every other column.

    What a column depends on is in these tables. One target goes with other measurements too, if they are asked for.
    """
    by_default = choices.kernel is None and choices.noise != "laplace"
    asked = kind is RandomFeatures and (choices.kernel == "adaptive" or by_default)
    several = isinstance(choices.target, tuple)
    if choices.target is None or (not asked and not several) or any(column.is_text for column in domain.columns):
        return choices
    targets = choices.target if several else (choices.target,)
    if not asked:
        raise PublishError(
            f"several targets share adaptive margins, and this release measures something else ({', '.join(targets)}). "
            "Name one target, or leave method and kernel out."
        )
    places = [position_of(domain, name) for name in targets]
    pairs = {tuple(sorted((j, k))) for j in places for k in range(len(domain)) if j != k}
    names = [words.column(name) for name in domain.names]
    tables = [f"table({names[j]}, {names[k]})" for j, k in sorted(pairs)]
    own = () if choices.workload is None else lines_of(choices.workload)
    return replace(choices, target=None, kernel="adaptive", workload=[*own, *tables])


def _check_strings(kind: type[ReleaseMethod], choices: Choices, domain: Domain) -> None:
    texts = ", ".join(column.name for column in domain.columns if column.is_text)
    if not texts:
        return
    if kind.places_points:
        raise PublishError(
            f"{texts} is a column of texts, and the method {kind.name} draws or moves points: there is no string between "
            'two others. Use method "subspace" with public points, or leave the column out of the domain.'
        )
    if choices.public_points is None:
        raise PublishError(
            f"{texts} is a column of texts, and strings drawn at random would be like none in the table. Name public "
            "points: a file of rows, with strings, that are public already."
        )


def _refuse_rules(domain: Domain, why: str) -> None:
    """PublishError where the domain has rules, which are kept by rows of margins alone."""
    if domain.rules:
        raise PublishError(
            f"{why}, and do not keep the {len(domain.rules)} rules of the domain. Rows of adaptive margins do, the default where "
            "columns have few enough levels: leave out kernel, features, family, public points, weights and bound, and method. Or "
            'leave the rules out of the domain; the method "subspace" keeps them where the points are given, strings too.'
        )


def _refuse_broken(public: Array, domain: Domain) -> None:
    """PublishError where public rows break a rule of the domain: they may not be points of the release."""
    rules = rules_of(domain)
    broken = rules.broken_by(public)
    if broken.any():
        first = int(broken.any(axis=0).argmax())
        raise PublishError(
            f"{int(broken.any(axis=1).sum())} of the {len(public)} public points break a rule, which no row of the release may, "
            f"such as {rules.compiled[first].rule.named(first + 1)}. Remove these rows, or the rule."
        )


__all__ = ["Drawn", "MeanMethod", "ReleaseMethod"]  # from `base`
