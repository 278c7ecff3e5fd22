"""What a draft asks the curator to check: each function looks at a public sample and gives no note, or one."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import parse_day, parse_number

FEW = 10  # a level seen fewer times is rare
_NEARLY_ALL = 0.95  # an identifier has at least this share of distinct values
_FEWEST_UNIQUE = 20  # numbers that must be present before their being distinct suggests an identifier
_FEWEST_TEXTS = 10  # the same for texts
_FEWEST_IN_SEQUENCE = 5  # the same for numbers without a gap
_UUID = re.compile(r"\{?[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", flags=re.IGNORECASE)
_CODE = re.compile(r"-?(9*[6-9]|8+|7+)|-1")  # the usual codes for "missing", "refused", "not asked"
_MARKS = {  # of a missing cell, without marks around and between the letters
    "na", "null", "none", "nan", "missing", "blank", "empty", "unknown", "unk", "nil", "nodata", "notavailable", "notapplicable",
    "notknown", "undefined", "n", "unspecified",
}  # fmt: skip
_NO_LETTER = re.compile(r"[.\-?–—…*\s]+|-9|-99|999")
_EPOCHS = ((1e9, 2e9, 86_400, "seconds"), (1e12, 2e12, 86_400_000, "milliseconds"))  # 2001 to 2033
_THOUSANDS = re.compile(r"\s*-?(\d{1,3}|[1-9]\d{0,2}(\.\d{3})+)\s*")
_DAY_NUMBER = re.compile(r"[2-5]\d{4}(\.\d+)?")  # 1954 to 2064
_OTHERWISE = (
    (re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?(\s?[AaPp]\.?[Mm]\.?)?"),
     "reads as a time of day: write it as a number of hours, 7.5 for 07:30, "),
    (re.compile(r"([A-Z]{0,2}[^\w\s,.]{1,2}|[A-Z]{3}\s|)\s?-?\d{1,3}(([,.' \u00a0\u202f]?\d{3})*|\d*)([.,]\d+)?"
                r"(\s?[^\w\s,.+-]{1,2}|\s[^\W\d]+|-|)"),
     "reads as a number with a comma, a unit or other marks: write it as digits with a point alone, and a minus before them, "),
)  # fmt: skip
_TWINS = str.maketrans("АВЕЅІЈКМНОРСТУХаеѕіјорсухΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "ABESIJKMHOPCTYXaesijopcyxABEZHIKMNOPTYXo")
_MOST_CODES = 3  # codes at one end of a column
_SHOWN = 6  # values that a note lists


def is_mark(text: str) -> bool:
    """Whether a text usually marks a missing cell: N.A., (blank), <NA>, unknown, -, 999; of a lone n, \\N only."""
    bare = re.sub(r"[\W_]+", "", text.casefold())
    return bool(_NO_LETTER.fullmatch(text)) or (bare in _MARKS and (bare != "n" or "\\" in text))


def versions(counts: Mapping[str, int]) -> list[str]:
    """Texts that are one number and yet differ by zeros at their ends, such as versions 1.1 and 1.10."""
    first = dict[float, str]()
    for text in sorted((text.strip() for text in counts if "." in text), key=len):
        number = parse_number(text)
        if number is not None and len(other := first.setdefault(number, text)) < len(text):
            return [
                f"CHECK codes: {other[:40]!r} and {text[:40]!r} are one number: if they differ, as versions do, write "
                'kind = "categorical" and the texts as levels'
            ]
    return []


def days_as_digits(numbers: Array) -> list[str]:
    """Whole numbers that all read as days, such as 20230623, or as moments counted since 1970."""

    def as_day(value: float) -> str:
        text = f"{value:.0f}"
        return f"{text[:4]}-{text[4:6]}-{text[6:]}"

    for least, most, of_day, what in _EPOCHS:
        if numbers.min() >= least and numbers.max() < most and (numbers == np.rint(numbers)).all():
            day = str(np.datetime64(int(numbers.min()) // of_day, "D"))
            return [
                f"CHECK dates: every value may be {what} since 1970, such as {numbers.min():.0f} for {day}: if so, write days so, "
                "in the private table too, and they are drafted as dates"
            ]
    if not all(len(day) == 10 and parse_day(day) is not None for day in map(as_day, np.unique(numbers))):
        return []
    first = numbers.min()
    return [
        f"CHECK dates: every value reads as a day, such as {first:.0f}: as a number its months are 100 apart. Write it as "
        f"{as_day(first)}, in the private table too, and it is drafted as a date"
    ]


def read_otherwise(texts: Collection[str], dates: bool = False) -> str:
    """What most of some texts read as that are no numbers as they are, or no `dates`, and how to write them; "" for nothing."""
    if dates and 2 * sum(bool(_DAY_NUMBER.fullmatch(text.strip())) for text in texts) > len(texts):
        return "numbers may be days of a spreadsheet, counted from 1899-12-30: write them as the other days, "
    for pattern, what in _OTHERWISE:
        of_it = [text for text in texts if pattern.fullmatch(text.strip())]
        marked = [text for text in of_it if parse_number(text) is None]
        if marked and 2 * len(of_it) > len(texts):
            return f"{marked[0][:40]!r} {what}"
    return ""


def marks_of_thousands(texts: Collection[str]) -> list[str]:
    """Numbers such as 4.914, if behind every point there are three digits, and none begins with a zero."""
    marked = [text for text in texts if "." in text]
    if not marked or not all(_THOUSANDS.fullmatch(text) for text in texts):
        return []
    return [
        f"CHECK thousands: behind each point there are three digits, as in {marked[0][:40]!r}: if points are marks of thousands, "
        "write the numbers without them, in the private table too"
    ]


def spellings(counts: Mapping[str, int]) -> list[str]:
    """Levels that differ by case or Unicode form alone, or look the same, and levels that usually mark a missing cell."""
    form = {level: unicodedata.normalize("NFKC", level).translate(_TWINS).casefold() for level in sorted(counts)}
    alike = Counter(form.values())
    twice = [level for level in form if alike[form[level]] > 1]
    marks = [level for level in sorted(counts) if is_mark(level)]
    said = (
        (twice, "CHECK spellings: {} differ by case, Unicode form or a letter that looks the same: if they are one level, take "
         "OTHER out of levels and write recode = [[OTHER, THIS]]"),
        (marks, "CHECK marks: {} may mark a missing cell, and are drafted as levels: if so, take them out of levels and "
         "write missing = true, missing_codes = [...]"),
    )  # fmt: skip
    return [text.format(", ".join(map(repr, own[:_SHOWN]))) for own, text in said if own]


def numbers_may_identify(numbers: Array) -> list[str]:
    distinct = np.unique(numbers)
    if len(distinct) < _NEARLY_ALL * len(numbers) or not (numbers == np.rint(numbers)).all():
        return []
    in_sequence = len(distinct) >= _FEWEST_IN_SEQUENCE and distinct[-1] - distinct[0] == len(distinct) - 1
    return _identifier(len(distinct), len(numbers)) if in_sequence or len(numbers) >= _FEWEST_UNIQUE else []


def texts_may_identify(counts: Mapping[str, int]) -> list[str]:
    """Texts that differ in nearly every row, or look like UUIDs, may be an identifier."""
    n, distinct = sum(counts.values()), len(counts)
    uuids = sum(bool(_UUID.fullmatch(text.strip())) for text in counts)
    unique = n >= _FEWEST_TEXTS and distinct >= _NEARLY_ALL * n
    return _identifier(distinct, n) if unique or uuids > distinct / 2 else []


def _identifier(distinct: int, n: int) -> list[str]:
    return [
        f"CHECK identifier: {distinct} different values in {n} cells: if it identifies rows, remove the column: "
        "a release is of a population, and an identifier says nothing of it"
    ]


def copies(sample: pd.DataFrame) -> dict[str, str]:
    """Columns → one before that has the same cells in every row, or others that each stand for one of its own.

    >>> copies(pd.DataFrame({"sex": ["F", "M", "M"] * 9, "female": [1, 0, 0] * 9, "age": range(27)}))
    {'female': 'sex'}
    """
    found, first = dict[str, str](), dict[bytes, str]()
    for column in sample.columns if len(sample) >= _FEWEST_UNIQUE else ():
        texts, name = sample[column].map(str), str(column)
        codes, values = pd.factorize(texts)
        alike = codes.tobytes() if len(values) <= len(texts) / 2 else "\0".join(texts).encode()
        if len(values) > 1 and (other := first.setdefault(alike, name)) != name:
            found[name] = other
    return found


def codes_for_missing(numbers: Array, shown: Callable[[float], str]) -> list[str]:
    """Repeated extreme values that are far from the others, such as 999 or -9, may be codes for a missing value.

    shown   how a value is written in the sample.
    """
    values, counts = np.unique(numbers, return_counts=True)
    high, low = list[float](), list[float]()
    for _ in range(2):  # those of one end are not counted among the others of the other
        rest = ~np.isin(values, high)
        low = [-v for v in _codes_at_the_end(-values[rest][::-1], counts[rest][::-1], lambda v: shown(-v))]
        rest = ~np.isin(values, low)
        high = _codes_at_the_end(values[rest], counts[rest], shown)
    found = [*sorted(low), *high]
    written = [shown(value) if parse_number(shown(value)) is not None else json.dumps(shown(value)) for value in found]
    times = [int(counts[np.searchsorted(values, value)]) for value in found]
    listed = ", ".join(f"{shown(value)} ({n} times)" for value, n in zip(found, times, strict=True))
    note = (
        f"CHECK codes: {listed}, far from all other values: if this is a code for a missing value, write missing = true, "
        f"missing_codes = [{', '.join(written)}], and bounds without it, or draft with --missing-code COLUMN=CODE"
    )
    return [note] if found else []


def _codes_at_the_end(values: Array, counts: Array, shown: Callable[[float], str]) -> list[float]:
    """The largest values, at most three, if they are repeated and far from the others; `values` are distinct and increasing."""
    for k in range(min(_MOST_CODES, len(values) - 2), 0, -1):
        rest, end = values[:-k], values[-k:]
        gap, spacing, extent = end[0] - rest[-1], float(np.median(np.diff(rest))), rest[-1] - rest[0]
        usual = all(_CODE.fullmatch(shown(value)) for value in end)
        negative = all(shown(value).startswith("-") for value in end) and rest[-1] <= 0 < end[0]
        negative &= len(rest) > 2  # -1, 0, 1 are values
        far = k == 1 and gap > 2 * extent
        if counts[-k:].min() >= 2 and (far or (usual and (negative or gap > 4 * spacing))):
            return [float(value) for value in end]
    return []


def rare_levels(rare: Sequence[str], other: str | None) -> list[str]:
    """Levels seen a few times; `other` is the one that they were collapsed into."""
    if other:
        return [
            f"CHECK collapsed: {len(rare)} level{'s' * (len(rare) > 1)} seen fewer than {FEW} times became {other!r}, which is "
            "the default: rare and unseen levels of private rows become it too"
        ]
    listed = ", ".join(f"{text[:40]!r}" for text in rare[:_SHOWN])
    more = f" and {len(rare) - _SHOWN} more" if len(rare) > _SHOWN else ""
    note = (
        f"CHECK rare levels: {listed}{more} seen fewer than {FEW} times: is each level itself public, as in a code book? "
        "Remove those that are not, or draft with --collapse-rare"
    )
    return [note] if rare else []


def constant(what: str, hint: str) -> str:
    return f"CHECK constant: every cell of the sample that has a value is {what}: {hint}, or remove the column"
