"""Text columns: short strings over a public alphabet, such as codes, names or sequences.

A cell is encoded as a few whole numbers, each of which holds as many characters as a float64 can (`kernels.strings`),
so that rows stay tables of numbers. Any other cell silently becomes a string of the column: this runs on private rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array, slices
from kmeanalyst.kernels.strings import MOST_SYMBOLS, characters_in_a_number, packed, unpacked
from kmeanalyst.releases.domain.cells import factorised, text_of
from kmeanalyst.releases.domain.column import CLAMPED, KEPT, REPLACED, Column, DomainError, check_shown

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))  # the printable characters of ASCII
MOST_CHARACTERS = 1000
_MOST_DIGITS = 2**20  # digits at a time: each is a number in memory


@dataclass(frozen=True, kw_only=True)
class Text(Column):
    """A string of at most `length` characters of a public alphabet.

    length    the most characters; a longer string is cut there.
    alphabet  the characters, each once; ASCII's letters, digits, space and signs by default.
    unknown   the character that replaces any other; it need not be in the alphabet.

    A bad or empty cell becomes the default, or missing where that is declared; without a default it is the empty string.

    >>> column = Text(name="code", length=4, alphabet="ABC")
    >>> column.decode(column.encode(["ABBA", "CCCCCC", "Ab", ""])[0]).tolist(), column.symbols
    (['ABBA', 'CCCC', 'A?', ''], 'ABC?')
    """

    length: int
    alphabet: str = _PRINTABLE
    unknown: str = "?"
    kind: ClassVar[str] = "text"
    is_text: ClassVar[bool] = True
    _always_written: ClassVar[tuple[str, ...]] = ("alphabet", "unknown")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.length, bool) or not isinstance(self.length, int) or not 1 <= self.length <= MOST_CHARACTERS:
            raise DomainError(
                f"column {self.name}: length must be a whole number from 1 to {MOST_CHARACTERS}, got {self.length!r:.80}: "
                "a longer string is cut there. Write the most characters that matter."
            )
        for field in ("alphabet", "unknown"):
            self._check_characters(field, getattr(self, field))
        if len(self.unknown) != 1:
            raise DomainError(
                f"column {self.name}: unknown must be one character, got {self.unknown!r:.80}: it stands for each one "
                'that is not in the alphabet. Write e.g. "?".'
            )
        if self.missing_codes or self.recode:
            raise DomainError(
                f"column {self.name}: a column of strings has no missing_codes or recode, since any text is a value. Write such "
                "cells empty, or as they are meant."
            )
        if self.default is not None:
            text = text_of(self.default) or ""
            if not text or self._status(text) != KEPT:
                raise DomainError(
                    f"column {self.name}: default {self.default!r:.80} is not a value of the column, and every bad cell would "
                    "become it. Name a text of the alphabet that is not too long."
                )

    def _check_characters(self, field: str, value: Any) -> None:
        what = f"column {self.name}: {field}"
        if not isinstance(value, str) or not 1 <= len(value) < MOST_SYMBOLS or len(set(value)) != len(value):
            raise DomainError(f"{what} must be 1 to {MOST_SYMBOLS - 1} distinct characters, got {value!r:.80}. Write each once.")
        for character in value:  # one by one: a text of the column has them in any order
            check_shown(what, character)

    @cached_property
    def symbols(self) -> str:
        """All characters that a string of the column may have, in the order of their digits 1, 2, ..."""
        return self.alphabet if self.unknown in self.alphabet else self.alphabet + self.unknown

    @property
    def width(self) -> int:
        return -(-self.length // characters_in_a_number(len(self.symbols)))

    @cached_property
    def _digits(self) -> dict[str, int]:
        return {character: digit for digit, character in enumerate(self.symbols, start=1)}

    def _status(self, text: str) -> int:
        whole = len(text) <= self.length and all(character in self._digits for character in text)
        return KEPT if whole else CLAMPED

    def held(self, text: str) -> str:
        """The string of the column that a text becomes.

        >>> ka.Text(name="code", length=4, alphabet="ABC").held("ABxCC")
        'AB?C'
        """
        return "".join(c if c in self._digits else self.unknown for c in text[: self.length])

    def parse(self, text: str) -> float | None:
        """The first of the numbers a text becomes; a text always becomes some."""
        return float(self._packed([text])[0, 0])

    def _packed(self, texts: Sequence[str]) -> Array:
        blocks = [self._packed_block(texts[block]) for block in slices(len(texts), _MOST_DIGITS // self.length)]
        return np.concatenate([np.zeros((0, self.width)), *blocks])

    def _packed_block(self, texts: Sequence[str]) -> Array:
        digits, other = np.zeros((len(texts), self.length), dtype=np.int64), self._digits[self.unknown]
        for own, text in zip(digits, texts, strict=True):
            cut = text[: self.length]
            own[: len(cut)] = [self._digits.get(character, other) for character in cut]
        return packed(digits, len(self.symbols))

    @property
    def default_code(self) -> float:
        """The first of the default's numbers."""
        return float(self._default_numbers[0])

    @property
    def _default_numbers(self) -> Array:
        if self.default is not None:
            return self._packed([text_of(self.default) or ""])[0]
        return np.full(self.width, math.nan if self.missing else 0.0)

    def encode(self, cells: Any) -> tuple[Array, Array]:
        """Encoded strings (n, width), and what became of each cell, (n,)."""
        codes, texts = factorised(cells)
        encoded = self._packed([text or "" for text in texts])
        encoded[[not text for text in texts]] = self._default_numbers
        encoded[[text == "" and self.missing for text in texts]] = math.nan
        kept_empty = self.missing or self.default is None
        status = [self._status(text) if text else KEPT if text == "" and kept_empty else REPLACED for text in texts]
        return encoded[codes], np.array(status, dtype=int)[codes]

    def decode(self, encoded: Array) -> pd.Series:
        """The strings of packed numbers (n, width), or (n,) of one each."""
        encoded = np.asarray(encoded, dtype=float).reshape(len(encoded), self.width)
        letters, texts = np.array(["", *self.symbols], dtype=object), []
        for block in slices(len(encoded), _MOST_DIGITS // self.length):
            texts.extend(letters[unpacked(encoded[block], len(self.symbols))].sum(axis=1))
        return pd.Series(texts, name=self.name, dtype="str").where(~np.isnan(encoded[:, 0]))

    def grid(self, size: int, rng: np.random.Generator) -> Array:
        return self._draw_present(size, rng)

    def _draw_present(self, n: int, rng: np.random.Generator) -> Array:
        digits = rng.integers(1, len(self.symbols) + 1, (n, self.length))
        ends = rng.integers(1, self.length + 1, n)
        return packed(np.where(np.arange(self.length) < ends[:, None], digits, 0), len(self.symbols))

    def _extent(self) -> str:
        shown = self.alphabet if len(self.alphabet) <= 40 else f"{self.alphabet[:20]}... ({len(self.alphabet)})"
        return f"of up to {self.length} characters of {shown}"
