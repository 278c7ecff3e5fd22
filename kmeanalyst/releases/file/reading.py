"""From a path to a release: the layers of a file in order, each of which may trust only those before it.

The cells of derived columns are in the file for other readers. This one computes them from the expressions, texts of a
small grammar that can do nothing but arithmetic on columns, and refuses a file whose cells differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.derived import Derived, kind_of
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain, column_from_dict
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.expressions import LONGEST
from kmeanalyst.releases.file.archive import HEADER, POINTS, Members, contents, members_in
from kmeanalyst.releases.file.header import check_header, check_members, parsed, plain
from kmeanalyst.releases.file.kernel import check_kernel, kernel_of
from kmeanalyst.releases.file.limits import MOST_DERIVED_COLUMNS, FileRefused, limits, reading, refusal, refusing, too_large
from kmeanalyst.releases.file.measurement import measurement_of, statement_of
from kmeanalyst.releases.file.points import points_and_weights
from kmeanalyst.releases.function import ReleasedFunction
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import DERIVE, Rule, rules_from
from kmeanalyst.releases.texts import one_line, shown

R = TypeVar("R", bound=ReleaseData)
_T = TypeVar("_T", bound=ReleaseData | ReleasedFunction)
_FIELDS = {"column", "expression", "uses"}
_PLAIN = {"name", "kind", "lower", "upper", "missing"}  # the fields that a derived column can have
_ROUNDING = 1e-9  # logarithms and powers are rounded differently on other machines
REMAINDER = 49  # more characters that a % counts as: a long division bit by bit, of numbers of very different size
_OF_A_ROW = 40  # characters of an expression that cost as much as making its rows


# ---------------------------------------------------------------------- any file


def read_container(path: str | Path, parse: Callable[[Members], _T], what: str, *, allow_rehearsal: bool, large: bool) -> _T:
    """Parse the members of a file; FileRefused, with the path, where that fails or the file is a rehearsal.

    what    "release" or "function".
    large   lift the usual limits on size and work.
    """
    try:
        with reading(large=large):
            found = parse(members_in(contents(Path(path))))
        if found.is_rehearsal and not allow_rehearsal:
            raise refusal(
                "the file is stamped NOT PRIVATE",
                "it is a rehearsal, whose noise a seed gives back: no row of the table is protected",
                f"Ask its maker for the {what} itself; to read it all the same, say --allow-rehearsal "
                "(in Python allow_rehearsal=True)",
            )
        return found
    except FileRefused as refused:
        raise type(refused)(one_line(f"{shown(path)}: {refused}")) from None


def columns_in(header: dict[str, Any]) -> Domain:
    """The measured columns; ValueError where they are not written as a domain writes them."""
    domain = Domain.from_dict(header["columns"])
    if plain(domain.to_dict()) != header["columns"]:
        raise ValueError("they are not written as a domain writes them")
    return domain


# ---------------------------------------------------------------------- a release


def read_release(path: str | Path, kind: type[R], *, allow_rehearsal: bool = False, large: bool = False) -> R:
    """As `kmeanalyst.release.read_release`, for any class of release."""
    return read_container(path, lambda members: release_of(members, kind), "release", allow_rehearsal=allow_rehearsal, large=large)


def release_of(members: Members, kind: type[R]) -> R:
    """Make a release of class `kind` from the members; or FileRefused."""
    header = parsed(members[HEADER].data)
    check_header(header)
    check_members(header, members)
    with refusing("the columns"):
        domain = columns_in(header)
    with refusing("the rules"):
        domain = replace(domain, rules=rules_in(header, domain))
    kernel = kernel_of(header["kernel"], domain.width)
    derived = derived_of(header, domain)
    columns = Domain((*domain.columns, *(one.column for one in derived)))
    points, weights = points_and_weights(members[POINTS], columns, header["n_points"])
    check_kernel(kernel, domain, points)
    with refusing("the release"):
        measurement = measurement_of(header, kernel, domain, members)
        statement = statement_of(header, measurement, kernel, domain)
        release = kind(
            points=points, weights=weights, measurement=measurement, kernel=kernel, domain=domain,
            statement=statement, method=header["method"],
            weight_view=header["weight_view"],
            fit_distance=None if header["fit_distance"] is None else float(header["fit_distance"]), derived=derived,
        )  # fmt: skip
    check_cells(release, points)
    check_trying_work(domain, len(release), None if measurement is None else measurement.feature_map)
    return release


# ---------------------------------------------------------------------- derived columns


def derived_of(header: dict[str, Any], domain: Domain) -> tuple[Derived, ...]:
    """The derived columns that a header describes, each of which fits the columns before it."""
    entries = header.get("derived", [])
    if len(entries) > MOST_DERIVED_COLUMNS:
        raise refusal(f"the file has {len(entries)} derived columns", f"at most {MOST_DERIVED_COLUMNS}")
    with refusing("a derived column"):
        length = sum(map(_length, entries))  # it bounds the cost of the expressions, before any is parsed
    levels = max(len(column.levels) if isinstance(column, Categorical) else 0 for column in domain.columns)
    work = length * (header["n_points"] + 5000 + 100 * (len(domain) + len(entries)) + 50 * levels)
    if work > limits().derived_work:
        raise too_large(
            f"the expressions of derived columns have {length} characters (a % counts as {REMAINDER + 1})",
            f"times {header['n_points']} points, 5000, 100 for each column and 50 for each level of the largest column ({levels}), "
            f"that is {work}, and at most {limits().derived_work}",
        )
    found: list[Derived] = []
    for entry in entries:
        with refusing("a derived column"):
            found.append(_entry(entry, domain))
            domain = Domain((*domain.columns, found[-1].column))
    return tuple(found)


def _length(entry: Any) -> int:
    """The characters of an expression, or of one that costs as much."""
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        raise ValueError(f"it should be a table of {', '.join(sorted(_FIELDS))}")
    if not isinstance(entry["expression"], str) or not 0 < len(entry["expression"]) <= LONGEST:
        raise ValueError(f"its expression must be a text of 1 to {LONGEST} characters")
    return length_of(entry["expression"])


def _entry(entry: dict[str, Any], known: Domain) -> Derived:
    one = Derived(column=column_from_dict(entry["column"]), expression=entry["expression"])
    if plain(one.to_dict()) != entry or not set(entry["column"]) <= _PLAIN:
        raise ValueError("it is not written as a derived column is: what it uses is what its expression names")
    kind, _ = kind_of(one.parsed, known)
    if type(one.column) is not kind:
        raise ValueError(f"it is said to be {one.column.kind}, and its expression gives {kind.kind} cells")
    return one


def check_cells(release: ReleaseData, cells: pd.DataFrame) -> None:
    """FileRefused unless the derived cells of a file (M, d) are the values of their expressions, by `derived` and by rules."""
    frame, domain = release.frame, release.domain
    by_rules = [column for column in domain.columns if column.name not in domain.names_read]
    for column in (*by_rules, *(one.column for one in release.derived)):
        said, computed = (_codes(column, source[column.name]) for source in (cells, frame))
        alike = np.isclose(said, computed, **_tolerances(column, computed[~np.isnan(computed)]), equal_nan=True)
        if not alike.all():
            raise refusal(
                f"{POINTS}, derived column {column.name}", f"{int((~alike).sum())} of its cells are not what its expression gives"
            )


def _codes(column: Column, cells: pd.Series) -> Array:
    """Cells as numbers: of levels their codes."""
    if isinstance(column, Categorical) and not isinstance(column, Boolean):
        return column.encode(cells)[0]
    return cells.to_numpy(dtype=np.float64, na_value=np.nan)


def _tolerances(column: Column, values: Array) -> dict[str, float]:
    """By how much cells of a derived column may differ from these values, as another machine computed them."""
    if not isinstance(column, Real):
        return {"rtol": 0.0, "atol": 0.0}
    low, high = _ROUNDING * np.array(column.natural_bounds)  # before they are subtracted, which might overflow
    spread = float(np.ptp(_ROUNDING * values)) if len(values) else 0.0
    return {"rtol": _ROUNDING, "atol": min(high - low, spread or _ROUNDING) if column.scale == "linear" else 0.0}


# ---------------------------------------------------------------------- what rules cost: few characters can ask for much


def length_of(expression: str) -> int:
    """The characters of an expression, or of one that costs as much."""
    return len(expression) + REMAINDER * expression.count("%")


def rules_in(header: dict[str, Any], domain: Domain) -> tuple[Rule, ...]:
    """The rules of a header, not yet on the domain; ValueError where one is not written as a rule is, FileRefused for too many."""
    entries = header.get("rules", [])
    rules = rules_from(entries)
    if plain([rule.to_dict() for rule in rules]) != entries:
        raise ValueError("they are not written as a domain writes them")
    if (work := reading_work(rules, domain, header["n_points"])) > limits().derived_work:
        raise too_large(
            f"the expressions of rules have {sum(length_of(each.text) for each in rules)} characters (% counts as {REMAINDER + 1})",
            f"times 5000, 100 for each column and 50 for each level of the largest column, and {header['n_points']} for those of "
            f"derived columns, that is {work}, and at most {limits().derived_work}",
        )
    return rules


def reading_work(rules: Sequence[Rule], domain: Domain, n_points: int) -> int:
    """What it costs to read these rules on these columns: steps for each character, and for derived columns at each point."""
    levels = max(len(column.levels) if isinstance(column, Categorical) else 0 for column in domain.columns)
    once = sum(length_of(rule.text) for rule in rules) * (5000 + 100 * len(domain) + 50 * levels)
    return once + sum(length_of(rule.text) for rule in rules if rule.kind == DERIVE) * n_points


def trying_work(domain: Domain, n_points: int, feature_map: FeatureMap | None) -> int:
    """What it costs to try the rules at so many points, and at values in the cells of measured tables."""
    rules = rules_of(domain)
    kernel = feature_map.kernel if isinstance(feature_map, MarginFeatures) else None
    return sum(
        (n_points + rules.n_tried(i, kernel)) * (_OF_A_ROW + length_of(one.rule.text)) for i, one in enumerate(rules.compiled)
    )


def check_trying_work(domain: Domain, n_points: int, feature_map: FeatureMap | None) -> None:
    """FileRefused where this is more than is allowed."""
    with refusing("the rules"):
        work = trying_work(domain, n_points, feature_map)
    if work > limits().rule_work:
        raise too_large(
            f"the rules are not tried at {n_points} points and at values of their columns",
            f"that takes {work:.3g} steps, {_OF_A_ROW} and one for each character at each of them, and at most "
            f"{limits().rule_work:.3g} are taken",
        )
