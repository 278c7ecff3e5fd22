"""Draft a domain from a PUBLIC sample: guess the kinds, widen the bounds, and note what the curator should check.

Never from the private table: bounds and levels learned from private rows are themselves a release. Curators come here
through `release_side.choices.drafting`, which asks them to declare the sample public; analysts draft domains of their own
rows. A note asks a question and changes nothing: it is about identifiers, codes for missing values and rare levels.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import poisson

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.strings import MOST_SYMBOLS
from kmeanalyst.releases.domain import draft_notes
from kmeanalyst.releases.domain.cells import parse_day, parse_number, text_of
from kmeanalyst.releases.domain.column import Column, DomainError, is_code
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import WHOLE, Boolean, Categorical
from kmeanalyst.releases.domain.numbers import FROM_SCALE, TO_SCALE, Date, Integer, Real
from kmeanalyst.releases.domain.text_column import MOST_CHARACTERS, Text
from kmeanalyst.releases.texts import other_separator

_MOST_LEVELS = 200
_FEWEST_STRINGS, _OFTEN_NEW = 20, 0.5  # different texts, and their share of the rows, that make a column of strings
_MARGIN = 0.1  # share of the sample's range added at each end before rounding outward
_HEAVY = 0.03  # a value of a number column that carries this share of the rows may be suggested as an atom,
_HEAVY_AMONG_MANY = 0.01  # or this share where a finer table does not show single values:
_TOLD_APART = 300  # in columns of more steps than this, or of none;
_ABOVE_NEIGHBOURS = 3  # if it is this many times as frequent as the median of
_NEIGHBOURS = 3  # so many values at either side,
_BY_CHANCE = 0.01  # and fewer values than this would be as frequent by chance
_MOST_ATOMS, _MOST_AMONG_MANY = 8, 12
_FEW_VALUES = 20  # a column of so few is cut into its values without atoms,
_FEW_WITH_GAPS = 32  # or into atoms, if there are gaps between them
_MOST_OFTEN = 0.9  # and those that are seen often have more than this share of the rows
_MOST_DECIMALS, _FEWEST_DECIMALS = 6, 10  # of a column that has a step, and rows that show it
_LARGEST_COUNT = 2**50  # steps from zero
_RANGES, _FEW_RANGES = 12, 16  # ranges between proposed edges; a column of so few values has one for each
_REPEATED = 5  # of these, the median number of rows
_MOST_BINS = 48  # of the histogram that says where ranges are needed
_ROUND = (5, 2, 1)  # round numbers are multiples of these times powers of ten, the roundest first
_DIGITS = 15  # of a proposed edge
_LARGEST = 1e90  # a number beyond it, infinity too, is a code for something else; kernels hold lengths up to 1e100
_SMALLEST = 1e-290  # bounds that are not zero are no nearer to it
_OFTEN_A_WORD = 0.05  # share of cells that are no numbers, from which a column of few values is of levels
_MOST_BAD = 0.5  # a column with a smaller share of cells that are not numbers, or not dates, is still one of them
_CALENDAR = (-719162, 2932896)  # 0001-01-01 and 9999-12-31
_MOST_PROBLEMS = 10  # columns that one error names
_OTHER = "other"  # the level that rare ones are collapsed into
_BOOLEANS = ({"true", "false"}, {"yes", "no"}, {"0", "1"}, {"t", "f"}, {"y", "n"})
_END = re.compile(r"(?P<sign>[<>]=?|[≤≥])\s*(?P<number>-?[\d.]+)|(?P<bound>-?[\d.]+)\s*\+")
_PADDED = re.compile(r"0\d+")
_UNSEEN = 0.005  # share of levels seen once, from which a level for unseen ones is drafted
_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d%m%Y", "%m%d%Y")
# of dates: without marks between them the last four digits are a year of our time
_DAY, _DIGITS_OF_DAY = r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}( \d{1,2}(:\d\d){1,2})?", r"[0-3]\d{3}(19|20)\d\d"


@dataclass(frozen=True)
class Draft:
    """A drafted domain, and for each column the notes on what the curator should check.

    >>> draft = release_side.draft_domain("public_sample.csv", this_sample_is_public=True)
    >>> draft.notes["age"]
    ['CHECK bounds: the sample runs from 17 to 80; values outside are clamped', 'CHECK edges: tables are cut at 20, 25, ...']
    """

    domain: Domain
    notes: dict[str, list[str]] = field(default_factory=dict)


def draft_domain(
    sample: pd.DataFrame, *, strings: bool = False, collapse_rare: bool = False,
    missing_codes: Mapping[str, Sequence[Any]] | None = None,
) -> Draft:  # fmt: skip
    """Guess a domain from rows that are not private; DomainError names the columns that cannot be drafted.

    strings         whether a column of many different texts is one of strings, and no error.
    collapse_rare   whether levels seen fewer than ten times are drafted as one level, "other", the default.
    missing_codes   of a column, the codes that stand for a missing cell: its bounds and levels are without them.
    """
    if len(sample) == 0 or len(sample.columns) == 0:
        raise DomainError("the sample has no rows or no columns, so it suggests nothing. Name a file with both.")
    if mark := other_separator(list(sample.columns)):
        raise DomainError(
            f"the sample has one column, named {str(sample.columns[0])!r:.80}: is the separator {mark!r}? Tables are read with "
            f"commas. Write it with commas, or pass pd.read_csv(path, sep={mark!r}, dtype=str)."
        )
    if odd := [name for name, times in Counter(map(str, sample.columns)).items() if times > 1 or not name]:
        twice = f"{odd[0]!r:.80} more than once: it is unclear which is meant. Rename or remove one, in the private table too."
        nameless = 'a column without a name, as an index has none. Name it, or leave it out (--without "").'
        raise DomainError(f"the sample has {twice if odd[0] else nameless}")
    notes: dict[str, list[str]] = {}
    columns, problems = [], []
    for name in sample.columns:
        own = notes.setdefault(str(name), [])
        try:
            codes = tuple((missing_codes or {}).get(str(name), ()))
            cells = sample[name].astype(object)
            if codes:
                cells = cells.mask([is_code(text_of(cell) or "", codes, as_number=True) for cell in cells], "")
            drafted = _draft_column(str(name), cells, own, strings, collapse_rare)
            columns.append(replace(drafted, missing=True, missing_codes=(*codes, *drafted.missing_codes)) if codes else drafted)
        except DomainError as error:
            problems.append(str(error))
    if problems:
        further = len(problems) - _MOST_PROBLEMS
        more = f" {further} further columns cannot be drafted either." if further > 0 else ""
        raise DomainError(" ".join(problems[:_MOST_PROBLEMS]) + more)
    for name, other in draft_notes.copies(sample).items():
        notes[name].append(
            f"CHECK copy: it tells the sample's rows apart exactly as {other} does, so that measuring both costs twice. Leave one "
            f"out (--without {name}), unless questions will name both"
        )
    return Draft(Domain(tuple(columns)), notes)


def _draft_column(name: str, cells: pd.Series, notes: list[str], strings: bool, collapse_rare: bool) -> Column:
    """cells   as Python objects."""
    texts = [text if (text := text_of(cell) or "").strip() else "" for cell in cells]
    present = [text for text in texts if text]
    missing = len(present) < len(texts)
    if missing:
        notes.append(f"CHECK missing: {len(texts) - len(present)} of {len(texts)} cells are empty; kept as a value of its own")
    if not present:
        raise DomainError(f"column {name} is empty in the whole sample, so it suggests nothing. Remove it or fill it.")
    counts = Counter(present)
    if _is_boolean(sorted(counts)):
        if len(counts) == 1:
            notes.append(draft_notes.constant(repr(present[0]), "the other of true and false is drafted all the same"))
        return Boolean(name=name, missing=missing)
    digits = all(text.strip().isdecimal() for text in counts)
    zeros = [text for text in counts if _PADDED.fullmatch(text.strip())]
    alike = digits and len(set(map(float, counts))) < len(counts)  # as numbers, of which float64 has 15 digits
    many = max(_FEWEST_STRINGS, _OFTEN_NEW * len(present))
    as_text = strings and (len(counts) > _MOST_LEVELS or len(counts) > many)
    form = _format(counts, notes)
    codes = digits and (bool(zeros) or alike) and not form
    if codes and as_text:
        return _draft_text(name, sorted(counts), missing)
    if codes:
        why = "begin with a zero" if zeros else "have more digits than numbers keep"
        notes.append(
            f"CHECK codes: cells such as {(*zeros, present[0])[0][:40]!r} {why}, so they are codes and no numbers: each is a level"
        )
        return _draft_levels(name, Counter(text.strip() for text in present), missing, notes, collapse_rare)
    notes.extend(draft_notes.marks_of_thousands(counts))
    as_dates: Any = (partial(parse_day, form=form) if form else _day, "dates", partial(_draft_date, form=form))
    for parse, what, draft in (as_dates, (_number, "numbers", draft_number)):
        parsed = [parse(text) for text in present]
        values = np.array([value for value in parsed if value is not None], dtype=float)
        words = [text for text, value in zip(present, parsed, strict=True) if value is None]
        dates = what == "dates"
        if len(values) > _MOST_BAD * len(present) and (dates or not _are_codes(words, counts, strings)):
            capped = {} if dates else _ends_told(words, values)
            if bad := [word for word in words if word.strip() not in capped]:
                reads = draft_notes.read_otherwise(bad, dates=dates)
                also = f"; they count as missing: {reads}in both tables" if reads else "; they count as missing"
                notes.append(f"CHECK {len(bad)} cells were not {what} (such as {bad[0][:80]!r}){also}")
            if capped:
                draft = partial(_draft_capped, words=Counter(map(str.strip, words)), capped=capped)
            infinite = dict.fromkeys(word.strip() for word in bad if not dates and parse_number(word) is not None)
            # else these would be clamped
            notes.extend([] if dates else draft_notes.versions(counts))
            return replace(draft(name, values, missing or bool(bad), notes), missing_codes=tuple(infinite))
    if as_text:
        return _draft_text(name, sorted(counts), missing)
    inner = [text.strip() for text in present]  # as cells match levels
    return _draft_levels(name, Counter(_as_levels(inner)), missing, notes, collapse_rare)


def _as_levels(texts: Sequence[str]) -> list[str]:
    """Codes without the ".0" that pandas writes behind them: cells with it match, and of level 1.0 the cell 1 is not one."""
    known, numbers = set(texts), map(parse_number, set(texts))
    integral = all(number is None or number.is_integer() for number in numbers)
    wholes = [(text, WHOLE.fullmatch(text)) for text in texts]
    return [whole[1] if whole and (integral or whole[1] in known) else text for text, whole in wholes]


def _are_codes(words: Sequence[str], counts: Mapping[str, int], strings: bool) -> bool:
    """Whether cells that are no numbers make all of the column levels, as of wards 1, 2 and A: they mark no missing cell, and
    values are few. A domain of `strings` is of rows at hand: one such cell is then enough.
    """
    named = [word for word in words if parse_number(word) is None and not draft_notes.is_mark(word.strip())]
    least, most = (0.0, _MOST_LEVELS) if strings else (_OFTEN_A_WORD * sum(counts.values()), _FEW_WITH_GAPS)
    return len(named) > least and len(counts) <= most


def _draft_levels(name: str, counts: Counter[str], missing: bool, notes: list[str], collapse_rare: bool) -> Column:
    """Levels; with `collapse_rare` the rare ones as one, to which rare and unseen levels of private rows then belong."""
    rare = [level for level in sorted(counts) if counts[level] < draft_notes.FEW]
    kept = [level for level in sorted(counts) if not collapse_rare or counts[level] >= draft_notes.FEW]
    if reads := draft_notes.read_otherwise(sorted(counts)):
        notes.append(f"CHECK cells: {reads}in the private table too")
    if len(kept) > _MOST_LEVELS or (len(counts) > _MOST_LEVELS and not kept):
        if reads:
            raise DomainError(f"column {name}: {reads}in both tables, or leave the column out (--without {name}).")
        raise DomainError(
            f"column {name} has {len(counts)} different texts in {counts.total()} rows: it looks like a name or an "
            f"identifier, which a release cannot carry. Leave it out (--without {name}); if strings are meant to be compared "
            'by what they share, write kind = "text", length and alphabet in the domain yourself.'
        )
    once = sum(count == 1 for count in counts.values())  # the share of further rows with an unseen level (Good 1953)
    unseen = not missing and once > _UNSEEN * counts.total()
    other = _free_name(kept) if (collapse_rare and rare) or unseen else None
    lost = repr(other) if other else "missing" if missing else "the default (the first)"
    notes.append(f"CHECK levels: the sample's only; a level it lacks becomes {lost} on the private side")
    notes.extend(draft_notes.texts_may_identify(counts))
    notes.extend(draft_notes.spellings({level: counts[level] for level in kept}))
    notes.extend(draft_notes.rare_levels(rare, other if collapse_rare else None))
    levels = (*kept, other) if other else tuple(kept)
    if len(levels) == 1:
        notes.append(draft_notes.constant(repr(levels[0]), "list the levels of the code book"))
    return Categorical(name=name, missing=missing, default=other, levels=levels)


def _draft_text(name: str, distinct: Sequence[str], missing: bool) -> Text:
    """Strings over the characters that occur, or over the most frequent of very many; others become an unknown one."""
    often = Counter(character for text in distinct for character in text if character.isprintable())
    alphabet = "".join(sorted(character for character, _ in often.most_common(MOST_SYMBOLS - 2)))
    length = min(max(map(len, distinct)), MOST_CHARACTERS)
    return Text(name=name, missing=missing, length=length, alphabet=alphabet or "?", unknown="?")


def _is_boolean(distinct: Sequence[str]) -> bool:
    words = {text.lower() for text in distinct}
    if len(distinct) == 1:  # a lone letter or digit may as well be a level or a number
        return bool(words & {"true", "false", "yes", "no"})
    return words == set().union(*(pair for pair in _BOOLEANS if pair <= words))


def _day(text: str) -> float | None:
    return parse_day(text) if len(text) >= 10 and text[4] == "-" else None


def _format(counts: Mapping[str, int], notes: list[str]) -> str:
    """The one way to write a day by which most of these texts are days; "" for none, and for several, which a note names."""
    texts = [text for text in counts if re.fullmatch(rf"\s*({_DIGITS_OF_DAY}|{_DAY})\s*", text)]
    time = ("", " %H:%M", " %H:%M:%S")[max((text.count(":") for text in texts), default=0)]
    forms = [form + time for form in _FORMATS]
    read = {form: sum(counts[text] for text in texts if parse_day(text, form) is not None) for form in forms}
    most = max(read.values())
    found = [form for form, cells in read.items() if cells == most] if most > _MOST_BAD * sum(counts.values()) else [""]
    form, *others = found
    shown = next(iter(counts))[:40]
    if form and not others:
        notes.append(f"CHECK format: cells such as {shown!r} are read as days by {form}, and released as YYYY-MM-DD")
    elif form:
        notes.append(
            f'CHECK dates: cells such as {shown!r} may be days by {form} or by {others[0]}: write kind = "date", format, lower and '
            "upper"
        )
    return "" if others else form


def _number(text: str) -> float | None:
    value = parse_number(text)
    return value if value is not None and abs(value) < _LARGEST else None


def _ends_told(words: Sequence[str], numbers: Array) -> dict[str, float]:
    """Texts such as 90+, >89 and <5 that are beyond all of the numbers, each with the value nearest to these that it may be."""
    step = 1.0 if (numbers == np.rint(numbers)).all() else _decimal_step(numbers, float(np.abs(numbers).max())) or 0.0
    found = {}
    for word in dict.fromkeys(map(str.strip, words)):
        match = _END.fullmatch(word)
        if match is None or (number := _number(match["number"] or match["bound"])) is None:
            continue
        value = number + {"<": -step, ">": step}.get(match["sign"], 0.0)
        if value <= numbers.min() if (match["sign"] or "").startswith(("<", "≤")) else value >= numbers.max():
            found[word] = value
    return found


def _draft_capped(
    name: str, numbers: Array, missing: bool, notes: list[str], *, words: Counter[str], capped: Mapping[str, float]
) -> Column:
    """A column of numbers some of which are told as an end, such as 90+: that end is its bound."""
    every = np.append(numbers, [value for word, value in capped.items() for _ in range(words[word])])
    column: Any = draft_number(name, every, missing, notes)
    shown = ", ".join(f"{word[:40]!r} ({words[word]} cells) as {value:g}" for word, value in capped.items())
    notes.append(f"CHECK recode: {shown}, the nearest value that it may be: means are of values that end there")
    meant = {word: type(column.lower)(value) for word, value in sorted(capped.items())}
    lower = min(meant.values()) if every.min() in capped.values() and np.ptp(every) > 0 else column.lower
    upper = max(meant.values()) if every.max() in capped.values() and np.ptp(every) > 0 else column.upper
    return replace(column, lower=lower, upper=upper, recode=tuple(meant.items()))


def _draft_date(name: str, days: Array, missing: bool, notes: list[str], form: str = "") -> Column:
    first, last = float(days.min()), float(days.max())
    if first == last:
        notes.append(draft_notes.constant(_iso(first), "write the bounds of the code book"))
    else:
        notes.append(f"CHECK bounds: the sample runs from {_iso(first)} to {_iso(last)}; days far outside are clamped")
    notes.extend(draft_notes.codes_for_missing(days, _iso))
    atoms = tuple(map(_iso, _drafted_atoms(days, 1.0, _iso, notes)[0]))
    margin = max(1, math.ceil((last - first) * _MARGIN))
    lower, upper = max(first - margin, _CALENDAR[0]), min(last + margin, _CALENDAR[1])
    return Date(name=name, missing=missing, lower=_iso(lower), upper=_iso(upper), atoms=atoms, format=form or None)


def _iso(day: float) -> str:
    return str(np.datetime64(int(day), "D"))


def draft_number(name: str, numbers: Array, missing: bool, notes: list[str]) -> Column:
    whole = bool((numbers == np.rint(numbers)).all())
    low, high = _widened(float(numbers.min()), float(numbers.max()), whole)
    whole = whole and max(-low, high) <= 2**53
    if numbers.min() == numbers.max():
        notes.append(draft_notes.constant(f"{numbers[0]:g}", "write the bounds of the code book"))
    else:
        notes.append(f"CHECK bounds: the sample runs from {numbers.min():g} to {numbers.max():g}; values outside are clamped")
    notes.extend(draft_notes.numbers_may_identify(numbers))
    notes.extend(draft_notes.days_as_digits(numbers))
    notes.extend(draft_notes.codes_for_missing(numbers, lambda value: f"{value:.15g}"))
    kind = Integer if whole else Real
    number = int if whole else float
    options: dict[str, Any] = {}
    step = 1.0 if whole else _decimal_step(numbers, max(-low, high))
    if step and not whole:
        options["step"] = step
        notes.append(f"CHECK step: values are multiples of {step:g}, as in the sample; others are rounded to them")
    atoms, few = _drafted_atoms(numbers, step, lambda value: f"{value:.15g}", notes)
    if len(atoms):
        options["atoms"] = tuple(number(v) for v in atoms)
    scale = _suggested_scale(numbers, low)
    if few:
        edges, why_there = atoms[len(atoms) // 2 :][:1], "the middle of its few values"
    else:
        edges, why_there = _suggested_edges(numbers[~np.isin(numbers, atoms)], scale, step)
        edges = edges[(edges > low) & (edges <= high)]
    if len(edges):
        options["edges"] = tuple(number(v) for v in edges)
        listed = ", ".join(f"{value:.{_DIGITS}g}" for value in edges)
        notes.append(
            f"CHECK edges: tables are cut at {listed}, {why_there}; an answer is best where a question "
            "compares with an edge, so add the thresholds of laws and the groups that questions will name"
        )
    if scale != "linear":
        notes.append(f"CHECK scale: {scale}, because the sample is heavily skewed")
        options["scale"] = scale
        if scale == "log":
            low = max(low, _round_out(float(numbers.min()) / 2, math.floor), 1.0 if whole else 0.0)
    return kind(name=name, missing=missing, lower=number(low), upper=number(high), **options)


def _drafted_atoms(numbers: Array, step: float | None, shown: Callable[[float], str], notes: list[str]) -> tuple[Array, bool]:
    """The values to be measured by themselves, increasing, with a note; and whether they are those of a column of few."""
    every = _few_with_gaps(numbers, step)
    few = len(every[0]) > 1
    atoms, shares = every if len(every[0]) else _spikes(numbers, step)
    if len(atoms):
        why = "are its few values" if few else "are far more frequent in the sample than their neighbours"
        listed = ", ".join(f"{shown(value)} ({share:.0%})" for value, share in zip(atoms, shares, strict=True))
        notes.append(
            f"CHECK atoms: {listed} {why}, so each is measured by itself; add other values that "
            "questions will name (the threshold of a law, a rounded number, a cap)"
        )
    return atoms, few


def _decimal_step(numbers: Array, largest: float) -> float | None:
    """The place of the last decimal that the numbers have; None where they have many, or are whole or very large."""
    places = (digits for digits in range(_MOST_DECIMALS + 1) if (np.round(numbers, digits) == numbers).all())
    digits = next(places, 0) if len(numbers) >= _FEWEST_DECIMALS else 0
    return 1.0 / 10**digits if digits and largest * 10**digits < _LARGEST_COUNT else None


def _few_with_gaps(numbers: Array, step: float | None) -> tuple[Array, Array]:
    """The frequent values of a column that has few, with gaps between them, and their shares; none of other columns."""
    values, counts = np.unique(numbers, return_counts=True)
    often = counts >= _REPEATED
    gaps = step is None or bool((np.diff(values) > 1.5 * step).any())
    nearly_all = len(values) >= 2 and counts[often].sum() > _MOST_OFTEN * len(numbers)
    if not (nearly_all and gaps and len(values) <= _FEW_WITH_GAPS):
        return np.zeros(0), np.zeros(0)
    return values[often], counts[often] / len(numbers)


def _spikes(numbers: Array, step: float | None) -> tuple[Array, Array]:
    """Values that carry many rows, alone among their neighbours, and their shares: a dozen at most, increasing."""
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= _FEW_VALUES:
        return np.zeros(0), np.zeros(0)
    among_many = step is None or np.ptp(values) > _TOLD_APART * step
    heavy, most = (_HEAVY_AMONG_MANY, _MOST_AMONG_MANY) if among_many else (_HEAVY, _MOST_ATOMS)
    usual = np.array([np.median(np.delete(counts[max(k - _NEIGHBOURS, 0) : k + _NEIGHBOURS + 1], min(k, _NEIGHBOURS)))
                      for k in range(len(values))])  # fmt: skip
    chance = len(values) * poisson.sf(counts - 1, np.maximum(usual, 1.0))  # in a small sample some values of many come often
    spikes = np.flatnonzero((counts > heavy * len(numbers)) & (counts > _ABOVE_NEIGHBOURS * usual) & (chance < _BY_CHANCE))
    kept = np.sort(spikes[np.argsort(-counts[spikes], kind="stable")][:most])
    return values[kept], counts[kept] / len(numbers)


def _suggested_edges(numbers: Array, scale: str, step: float | None) -> tuple[Array, str]:
    """Round numbers between a dozen ranges, increasing; of few values each, and what follows, if seen often. And why there.

    Ranges are as dense as the cube root of the sample's density on the column's scale, which loses least of the squared
    values to rounding (Panter & Dite 1951). Each edge is the roundest number between the middles of two ranges.
    """
    values, times = np.unique(numbers, return_counts=True)
    if len(values) <= _FEW_RANGES:
        after = values[-1:] + (step or 0.0)  # a range for values beyond: they are not those of the last
        often = len(values) > 1 and np.median(times) >= _REPEATED
        return np.unique([*values, *after])[: None if often else 0], "a range for each of its few values"
    bins = int(np.clip(math.sqrt(len(numbers)) / 2, _RANGES, _MOST_BINS))
    counts, ends = np.histogram(TO_SCALE[scale](numbers), bins=bins)
    cumulative = np.append(0.0, np.cumsum(np.cbrt(counts)))
    middles = FROM_SCALE[scale](np.interp((np.arange(_RANGES) + 0.5) / _RANGES * cumulative[-1], cumulative, ends))
    rounded = [_roundest(low, high, step == 1) for low, high in pairwise(middles.tolist()) if low < high]
    inside = np.unique([value for value in rounded if values[0] < value <= values[-1]])
    return inside, "round numbers, closer where the sample has more rows"


def _roundest(low: float, high: float, whole: bool) -> float:
    """Of the numbers in (low, high], the multiples of the largest of 1, 2, 5, 10, ...: the one nearest to the middle.

    whole   whether to prefer whole numbers to smaller fractions: where there is none, the next one above.
    """
    middle = (low + high) / 2
    for power in range(math.ceil(math.log10(max(abs(low), abs(high)))), math.floor(math.log10(high - low)) - 2, -1):
        for unit in (digit * 10.0**power for digit in _ROUND):
            if whole and unit < 1:
                return math.ceil(middle)
            near = [float(f"{(round(middle / unit) + k) * unit:.{_DIGITS}g}") for k in (-1, 0, 1)]
            if inside := [value for value in near if low < value <= high]:
                return min(inside, key=lambda value: abs(value - middle))
    return middle


def _suggested_scale(numbers: Array, low: float) -> str:
    """A logarithm where it takes most of a strong skew away and the column cannot be negative."""
    if low < 0 or numbers.max() < 1000 or len(numbers) < 30:
        return "linear"
    scale = "log" if numbers.min() > 4 * _SMALLEST else "log1p"  # half the least must be a bound above zero
    logged = np.log(numbers) if scale == "log" else np.log1p(numbers)
    return scale if _skew(numbers) > 1.2 and abs(_skew(logged)) < _skew(numbers) / 1.5 else "linear"


def _skew(values: Array) -> float:
    centred = values - values.mean()
    spread = centred.std()
    return 0.0 if spread == 0 else float((centred**3).mean() / spread**3)


def _widened(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Bounds a tenth of the range beyond the extremes, rounded outward; not below zero if the sample is not.

    Around a constant: a tenth of it, and at least 1 for whole numbers.
    """
    margin = (high - low) * _MARGIN if high > low else max(abs(high) * _MARGIN, float(whole))
    margin = max(margin, abs(high) * 1e-3, 1e-9)
    lower, upper = _round_out(low - margin, math.floor), _round_out(high + margin, math.ceil)
    return (max(0.0, lower) if low >= 0 else lower), upper


def _round_out(value: float, direction: Callable[[float], float]) -> float:
    if abs(value) < _SMALLEST:
        return float(direction(value)) * _SMALLEST
    exponent = math.floor(math.log10(abs(value))) - 1
    return float(f"{direction(value / 10.0**exponent)}e{exponent}")


def _free_name(levels: Sequence[str]) -> str:
    taken = {level.strip().casefold() for level in levels}
    names = (_OTHER, *(f"{_OTHER}_{number}" for number in range(2, len(levels) + 3)))
    return next(name for name in names if name not in taken)
