"""Strings: a cell becomes some numbers and returns; two strings are as alike as the short substrings they share."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from contracts import TEXTS, every
from hypothesis import given
from hypothesis import strategies as st

from kmeanalyst.inference.two_sample import sides
from kmeanalyst.kernels import Gaussian, OnColumns, StringSpectrum, kernel_from_dict
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.strings import characters_in_a_number, packed, unpacked
from kmeanalyst.releases.domain.column import CLAMPED, KEPT, REPLACED, DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.draft import draft_domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.domain.text_column import Text
from release_side.private_rows.rows import open_private

EACH = every(TEXTS, of="column")
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=60)  # half surrogate pairs and control characters too


def texts_of(column: Text, n: int = 50) -> list[str]:
    return column.decode(column._draw_present(n, np.random.default_rng(0))).tolist()


@EACH
def test_a_string_of_the_column_comes_back_to_the_letter(column):
    texts = [*texts_of(column), column.symbols[0] * column.length, column.symbols[-1]]
    encoded, status = column.encode(texts)
    assert encoded.shape == (len(texts), column.width) and (status == KEPT).all()
    assert column.decode(encoded).tolist() == texts


@EACH
@given(st.lists(st.one_of(ANY_TEXT, st.none(), st.integers(), st.floats(), st.binary()), max_size=8))
def test_every_cell_becomes_a_string_of_the_column_silently_whatever_its_neighbours(column, cells):
    encoded, _ = column.encode(cells)
    back = column.decode(encoded)
    for cell, own, text in zip(cells, encoded, back, strict=True):
        np.testing.assert_array_equal(own, column.encode([cell])[0][0])
        assert pd.isna(text) if np.isnan(own[0]) else (len(text) <= column.length and set(text) <= set(column.symbols))
        assert column.missing or not np.isnan(own).any()
    np.testing.assert_array_equal(column.encode(list(back))[0], encoded)  # what comes back stays as it is


def test_long_strings_are_cut_and_other_characters_replaced_and_both_are_counted():
    column = Text(name="code", length=4, alphabet="ABC")
    encoded, status = column.encode(["ABCA", "ABCAB", "AxC", "", None, b"AB"])
    assert column.decode(encoded).tolist() == ["ABCA", "ABCA", "A?C", "", "", ""]
    assert status.tolist() == [KEPT, CLAMPED, CLAMPED, KEPT, KEPT, REPLACED]


@every(
    [({}, "", ""), ({"default": "B"}, "B", "B"), ({"missing": True}, None, None), ({"missing": True, "default": "B"}, None, "B")],
    of="options, empty, bad",
)  # fmt: skip
def test_an_empty_cell_is_missing_where_declared_else_the_default_else_the_empty_string(options, empty, bad):
    column = Text(name="code", length=4, alphabet="ABC", **options)
    back = column.decode(column.encode(["", object()])[0])
    assert [None if pd.isna(text) else text for text in back] == [empty, bad]


def test_numbers_next_to_strings_keep_their_own_indices():
    domain = Domain((Text(name="a", length=60, alphabet="ab"), Real(name="x", lower=0, upper=1), TEXTS[0]))
    frame = pd.DataFrame({"a": ["ab" * 30, "b"], "x": [0.25, 0.5], "text": ["ACGT", ""]})
    rows = domain.encode(frame)
    assert domain.width == rows.shape[1] > len(domain)
    np.testing.assert_array_equal(rows[:, 1], [0.25, 0.5])
    assert domain.decode(rows).astype({"a": object, "text": object}).equals(frame.astype({"a": object, "text": object}))
    assert domain.column_of[domain.coordinates[2]].tolist() == [2] * TEXTS[0].width
    alone = Domain((domain.columns[2], domain.columns[0]))
    np.testing.assert_array_equal(rows[:, domain.indices_of([2, 0])], alone.encode(frame))


def counted_by_hand(text: str, p: int, blended: bool) -> Counter[str]:
    """Substrings, one after another: the definition."""
    lengths = range(1, p + 1) if blended else [p]
    return Counter(text[i : i + q] for q in lengths for i in range(len(text) - q + 1))


@EACH
@every([(1, False), (2, False), (3, True), (4, False)], of="p, blended")
def test_the_spectrum_kernel_is_the_cosine_of_counts_of_substrings(column, p, blended):
    """Leslie, Eskin & Noble 2002, equations 1 and 2, against a plain loop over substrings."""
    texts = [*texts_of(column, 40), ""]
    kernel = StringSpectrum(p, len(column.symbols), column.width, blended)
    rows = column._packed(texts)
    counts = [counted_by_hand(text, p, blended) for text in texts]
    inner = np.array([[sum(a[u] * b[u] for u in a) for b in counts] for a in counts], dtype=float)
    norms = np.sqrt(np.diagonal(inner))
    none = norms == 0
    expected = np.where(np.outer(none, none), 1.0, inner / np.maximum(np.outer(norms, norms), 1e-300))
    np.testing.assert_allclose(kernel.gram(rows, rows), np.where(np.outer(none, none) | np.outer(~none, ~none), expected, 0))


@EACH
def test_a_string_is_wholly_like_itself_and_no_pair_is_more(column):
    kernel = StringSpectrum(2, len(column.symbols), column.width, blended=True)
    rows = column.draw(200, np.random.default_rng(1))
    K = kernel.gram(rows, rows)
    assert (np.diagonal(K) == 1).all() and K.min() >= 0 and K.max() <= 1 and kernel.bound == 1
    assert np.linalg.eigvalsh(K).min() > -1e-12


def test_the_value_of_a_pair_of_strings_does_not_depend_on_the_other_strings():
    column = TEXTS[0]
    rows = column.draw(300, np.random.default_rng(2))
    kernel = StringSpectrum(4, 5, column.width)
    whole = kernel.gram(rows, rows)
    for i in (0, 7, 299):
        assert np.array_equal(kernel.gram(rows[i : i + 1], rows[::-1])[0, ::-1], whole[i])
    features = Nystroem.fit(kernel, rows[:100])
    assert np.array_equal(features(rows)[7:9], features(rows[7:9]))


def test_dense_and_sparse_counts_give_the_same_kernel(monkeypatch):
    column = Text(name="x", length=30)
    rows, kernel = column.draw(100, np.random.default_rng(3)), StringSpectrum(2, 95, column.width, blended=True)
    K = kernel.gram(rows, rows)
    monkeypatch.setattr("kmeanalyst.kernels.strings._DENSE", 0)
    assert np.array_equal(kernel.gram(rows, rows), K)


def test_missing_strings_are_alike_and_unlike_all_others_the_empty_one_too():
    column = Text(name="x", length=20, alphabet="AB", missing=True)
    rows = np.vstack([np.full((2, column.width), np.nan), column._packed(["", "AB"])])
    K = StringSpectrum(2, 3, column.width).gram(rows, rows)
    np.testing.assert_array_equal(K, [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


@given(st.lists(st.floats(), min_size=2, max_size=2), st.integers(1, 9))
def test_whatever_the_numbers_they_are_read_as_strings(numbers, symbols):
    row = np.array([numbers])
    digits = unpacked(row, symbols)
    assert digits.shape[1] == 2 * characters_in_a_number(symbols) and digits.min() >= 0 and digits.max() <= symbols
    np.testing.assert_array_equal(unpacked(packed(digits, symbols), symbols), digits)
    assert (np.diff((digits > 0).astype(int), axis=1) <= 0).all()  # nothing stands after a string's end
    assert StringSpectrum(2, symbols, 2).gram(row, row) == 1


def test_a_kernel_with_columns_of_other_kinds_is_the_product_over_the_columns():
    domain = Domain((TEXTS[0], Categorical(name="kind", levels=("a", "b")), Real(name="x", lower=0, upper=1)))
    rows = domain.draw(30, 0)
    text, kind, number = (table_kernel(Domain((column,))) for column in domain.columns)
    at = [rows[:, domain.coordinates[j]] for j in range(3)]
    parts = [kernel.gram(X, X) for kernel, X in zip((text, kind, number), at, strict=True)]
    p = table_kernel(domain).inclusion
    expected = (np.prod([1 - p + p * K for K in parts], axis=0) - (1 - p) ** 3) / (1 - (1 - p) ** 3)
    np.testing.assert_allclose(table_kernel(domain).gram(rows, rows), expected, atol=1e-14)
    spectrum = StringSpectrum(3, 5, TEXTS[0].width, blended=True)
    plain = OnColumns(spectrum, tuple(domain.coordinates[0])) * OnColumns(Gaussian(0.1), (2,)) + OnColumns(Gaussian(1.0), (2,))
    assert np.isfinite(plain.gram(rows, rows)).all() and kernel_from_dict(plain.to_dict()) == plain


def test_the_table_kernel_takes_the_length_of_substrings():
    found = kernel_from_spec("table:length=5", Domain((TEXTS[0],)))
    assert found.kernels == (StringSpectrum(5, 5, TEXTS[0].width, blended=False),)
    assert kernel_from_spec("table:length=2,blended=1", Domain((TEXTS[0],))).kernels[0].blended


def test_private_strings_of_any_kind_are_read_silently(tmp_path, recwarn):
    path = tmp_path / "private.csv"
    path.write_bytes(b'text,x\nACGT,1\n"AC,GT",2\n\xff\xfeA,3\n' + b"A" * 10_000 + b",4\n,5\n\x1b[31m,6\nshort\n")
    domain = Domain((TEXTS[0], Real(name="x", lower=0, upper=10)))
    (rows,) = open_private(path).encoded(domain)
    assert domain.decode(rows)["text"].tolist() == ["ACGT", "AC?GT", "??A", "A" * 30, "", "?????", "?????"]
    assert not recwarn.list


def test_a_sample_has_notes_on_what_became_of_its_strings():
    domain = Domain((TEXTS[0],))
    _, counts = domain.encode_counted(pd.DataFrame({"text": ["ACGT", "xx", "A" * 99]}))
    assert counts.notes() == ["text: 2 of 3 values were outside the bounds and were clamped"]
    with pytest.raises(ValueError, match=f"the release has {TEXTS[0].width} columns, the sample 1"):
        sides._encoded(domain, np.zeros((3, 1)))


def test_a_draft_holds_strings_where_they_are_wanted_and_else_says_how_to_have_them():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"name": ["".join(rng.choice(list("héllo\n"), 7)) for _ in range(300)]})
    column = draft_domain(frame, strings=True).domain.columns[0]
    assert isinstance(column, Text) and column.length == 7 and set(column.alphabet) == set("hélo")
    with pytest.raises(DomainError, match='write kind = "text"'):
        draft_domain(frame)
