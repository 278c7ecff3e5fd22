"""Kernels for strings: how many short substrings two of them share (Leslie, Eskin & Noble 2002).

An encoded string is a few whole numbers below 2^53: characters are digits 1, 2, ... of the base symbols + 1, and a digit 0 ends
the string. A missing one is NaN. Any number is read as a string: no value raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array, as_rows, check_width, checked_pair, is_whole
from kmeanalyst.kernels.continuous import UnitDiagonal

MOST_SYMBOLS = 1000
_MOST_NUMBERS = 1000  # numbers that one string takes
_LARGEST = 2**53
_MOST_IDS = 2**62  # possible p-mers: each is stored as a number
_DENSE = 2**24  # entries of the largest table of counts that is multiplied as a dense one


def characters_in_a_number(symbols: int) -> int:
    """The most digits of base symbols + 1 that are exact in a float64."""
    count = 0
    while (symbols + 1) ** (count + 1) <= _LARGEST:
        count += 1
    return count


def packed(digits: Array, symbols: int) -> Array:
    """Strings as numbers, float64 (n, w): digits (n, L) from 1 to `symbols`, 0 after a string's end."""
    k = characters_in_a_number(symbols)
    n, length = digits.shape
    w = -(-length // k)
    whole = np.zeros((n, w * k), dtype=np.int64)
    whole[:, :length] = digits
    return (whole.reshape(n, w, k) @ _place_values(symbols, k)).astype(np.float64)


def unpacked(numbers: Array, symbols: int) -> Array:
    """Digits (n, w·k) int64 of packed strings (n, w), 0 from a string's end on; of a missing one 0."""
    k = characters_in_a_number(symbols)
    base = symbols + 1
    whole = np.clip(np.where(np.isnan(numbers), 0.0, numbers), 0.0, float(base**k - 1)).astype(np.int64)
    digits = (whole[:, :, None] // _place_values(symbols, k) % base).reshape(len(numbers), -1)
    return np.where(np.logical_and.accumulate(digits > 0, axis=1), digits, 0)


def _place_values(symbols: int, k: int) -> Array:
    return np.array([(symbols + 1) ** (k - 1 - i) for i in range(k)], dtype=np.int64)


@dataclass(frozen=True)
class StringSpectrum(UnitDiagonal):
    """The normalised spectrum kernel: the cosine between two strings' counts of p-mers, substrings of p characters.

    k(s, t) = Σ_u #_u(s) #_u(t) / √(Σ_u #_u(s)² Σ_u #_u(t)²), u all substrings of `length` characters; blended: of 1 to
    `length` characters. Strings that have none (shorter than p, or empty if blended) are all alike and unlike others;
    so are missing ones. Sums are of whole numbers, so that k(s, s) = 1 and k ≤ 1 to the last bit, whatever the batch.

    length    p.
    symbols   how many characters there are.
    numbers   how many numbers an encoded string takes.
    blended   whether shorter substrings count too.

    >>> codes = packed(np.array([[1, 2, 1, 2], [1, 2, 2, 0]]), symbols=2)  # "abab" has ab, ba, ab; "abb" has ab, bb
    >>> StringSpectrum(length=2, symbols=2, numbers=1).gram(codes, codes).round(4)  # 2 / √(5 · 2)
    array([[1.    , 0.6325],
           [0.6325, 1.    ]])

    Source: Leslie, Eskin & Noble 2002, *The spectrum kernel*, equations 1 and 2; blended as in Shawe-Taylor &
    Cristianini 2004, chapter 11.
    """

    length: int
    symbols: int
    numbers: int
    blended: bool = False
    name: ClassVar[str] = "string-spectrum"

    def __post_init__(self) -> None:
        for field, most in (("length", 62), ("symbols", MOST_SYMBOLS), ("numbers", _MOST_NUMBERS)):
            value = getattr(self, field)
            if not is_whole(value) or not 1 <= value <= most:
                raise ValueError(
                    f"{field} must be a whole number from 1 to {most}, got {value!r:.80}: a spectrum counts substrings "
                    "of `length` characters, of `symbols` kinds, in strings of so many numbers. Pass e.g. length=3."
                )
        if not isinstance(self.blended, bool):
            raise ValueError(f"blended must be true or false, got {self.blended!r:.80}: shorter substrings count or not.")
        if (self.symbols + 1) ** self.length > _MOST_IDS:
            raise ValueError(
                f"length {self.length} over {self.symbols} symbols makes more substrings than 62 bits can number, and two "
                "strings would hardly share one. Pass a smaller length."
            )

    @property
    def width(self) -> int:
        return self.numbers

    def gram(self, X: Array, Y: Array) -> Array:
        X, Y = checked_pair(X, Y)
        return self.against(Y)(X)

    def against(self, Y: Array) -> Callable[[Array], Array]:
        Y = as_rows(Y)
        self._check_width(Y)
        mers, counts = self._counted(Y)
        others = counts.toarray().T if counts.shape[0] * counts.shape[1] <= _DENSE else counts.T.tocsr()
        lengths = _squared_lengths(counts)
        kinds = _kinds(Y, lengths)

        def gram(X: Array) -> Array:
            X, _ = checked_pair(X, Y)
            mers_of_x, counts_of_x = self._counted(X)
            K = _products(_onto(mers, mers_of_x, counts_of_x), others)
            lengths_of_x = _squared_lengths(counts_of_x)
            K /= np.sqrt(np.maximum(lengths_of_x, 1.0)[:, None] * np.maximum(lengths, 1.0))
            kinds_of_x = _kinds(X, lengths_of_x)
            for special in np.intersect1d(kinds_of_x, kinds[kinds < 2]):
                K[np.ix_(kinds_of_x == special, kinds == special)] = 1.0
            return K

        return gram

    def diagonal(self, X: Array) -> Array:
        self._check_width(as_rows(X))
        return super().diagonal(X)

    def _check_width(self, X: Array) -> None:
        check_width(X, self.numbers, f"this kernel is for strings of {self.numbers} numbers")

    def _counted(self, X: Array) -> tuple[Array, csr_array]:
        """The p-mers that occur, numbered (V,) increasing, and how often in each string, (n, V)."""
        digits = unpacked(X, self.symbols)
        n, L = digits.shape
        rows, found = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        window = np.zeros((n, L), dtype=np.int64)
        for p in range(1, min(self.length, L) + 1):  # p-mers of two lengths have different numbers: no digit is 0
            window = window[:, : L - p + 1] * (self.symbols + 1) + digits[:, p - 1 :]
            if p == self.length or self.blended:
                row, start = np.nonzero(digits[:, p - 1 :])  # a p-mer ends where the string has not
                rows.append(row)
                found.append(window[row, start])
        mers, column = np.unique(np.concatenate(found), return_inverse=True)
        each = np.concatenate(rows) * max(len(mers), 1) + column
        each, counts = np.unique(each, return_counts=True)
        indices = np.divmod(each, max(len(mers), 1))
        return mers, csr_array((counts.astype(np.float64), indices), shape=(n, len(mers)))


def _onto(mers: Array, theirs: Array, counts: csr_array) -> csr_array:
    """Counts (n, V') of other p-mers as counts (n, V) of these; those that are not among these are left out."""
    if len(mers) == 0 or len(theirs) == 0:
        return csr_array((counts.shape[0], len(mers)))
    index = np.minimum(np.searchsorted(mers, theirs), len(mers) - 1)
    counts = counts.tocoo()
    known = (mers[index] == theirs)[counts.col]
    indices = counts.row[known], index[counts.col[known]]
    return csr_array((counts.data[known], indices), shape=(counts.shape[0], len(mers)))


def _products(counts: csr_array, others: csr_array | Array) -> Array:
    """counts (n, V) · others (V, m): sums of whole numbers, exact in any order."""
    if isinstance(others, np.ndarray) and counts.shape[0] * counts.shape[1] <= _DENSE:
        return counts.toarray() @ others
    product = counts @ others
    return product if isinstance(product, np.ndarray) else product.toarray()


def _squared_lengths(counts: csr_array) -> Array:
    return np.asarray((counts * counts).sum(axis=1), dtype=np.float64).ravel()


def _kinds(X: Array, squared_lengths: Array) -> Array:
    """0 for a missing string, 1 for one without p-mers, 2 for the others."""
    return np.where(np.isnan(X).any(axis=1), 0, np.where(squared_lengths == 0, 1, 2))
