# ruff: noqa: RUF001  # the letters of other languages are meant
"""Which spellings are one text, and that any text can be folded."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.text.terms import cased, fold

SAME = [
        ("Société Générale", "societe generale"), ("cafe\u0301", "CAFÉ"), ("Łódź", "lodz"),
        ("İstanbul Iğdır", "istanbul igdir"), ("Việt Nam", "viet nam"), ("Αθήνα", "αθηνα"),
        ("Ёлка, за\u0301мок", "елка, замок"), ("ＦＵＬＬ　ｗｉｄｔｈ　１２", "full width 12"),
        ("ｶﾞｲﾄﾞ", "ガイド"), ("مُحَمَّد", "محمد"), ("إلى الأحـــد", "الي الاحد"),
        ("مكتبة", "مكتبه"), ("ज़मीन हिन्दी", "जमीन हिंदी"), ("שָׁלוֹם", "שלום"),
        ("٢٠٢٤ १८ ๑๒", "2024 18 12"), ("a\u200fb\u202ac\u00add\ufeff", "abcd"),
]  # fmt: skip
APART = [("мой", "мои"), ("か", "が"), ("ñu", "mu"), ("는", "은")]


@pytest.mark.parametrize(("one", "other"), [*SAME, *APART])
def test_spellings_of_one_text_are_one_and_what_tells_words_apart_is_kept(one, other):
    assert (fold(one) == fold(other)) == ((one, other) in SAME)


@given(st.text(max_size=80))
def test_folding_twice_changes_nothing(text):
    """Broken if what is stored and what is asked were folded a different number of times."""
    assert fold(fold(text)) == fold(text)
    assert fold(cased(text)) == fold(text)


def test_every_code_point_can_be_folded(every):
    """Lone surrogates stand in text that other programs cut."""
    for code in range(0, sys.maxunicode + 1, every(7)):
        folded = fold(chr(code))
        assert fold(folded) == folded
