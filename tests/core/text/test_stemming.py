"""Porter's published examples, and that any word is safe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.core.text.stemming import stem

#: The examples of the paper, each run through all steps.
_PAGE = """
caresses caress  ponies poni  ties ti  caress caress  cats cat
feed feed  agreed agre  plastered plaster  bled bled  motoring motor  sing sing
conflated conflat  troubled troubl  sized size  hopping hop  tanned tan  falling fall
hissing hiss  fizzed fizz  failing fail  filing file  happy happi  sky sky
relational relat  conditional condit  rational ration  valenci valenc  hesitanci hesit
digitizer digit  conformabli conform  radicalli radic  differentli differ  vileli vile
analogousli analog  vietnamization vietnam  predication predic  operator oper
feudalism feudal  decisiveness decis  hopefulness hope  callousness callous
formaliti formal  sensitiviti sensit  sensibiliti sensibl
triplicate triplic  formative form  formalize formal  electriciti electr  electrical electr
hopeful hope  goodness good
revival reviv  allowance allow  inference infer  airliner airlin  gyroscopic gyroscop
adjustable adjust  defensible defens  irritant irrit  replacement replac  adjustment adjust
dependent depend  adoption adopt  homologou homolog  communism commun  activate activ
angulariti angular  homologous homolog  effective effect  bowdlerize bowdler
probate probat  rate rate  cease ceas  controll control  roll roll
"""
PUBLISHED = _PAGE.split()


@pytest.mark.parametrize(
    ("word", "expected"), list(zip(PUBLISHED[::2], PUBLISHED[1::2], strict=True))
)
def test_published_examples(word, expected):
    assert stem(word) == expected


@pytest.mark.parametrize("word", ["", "a", "is", "2023", "über", "明日", "x" * 400, "a1b"])
def test_what_is_no_english_word_stays(word):
    assert stem(word) == word


@given(st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=40))
def test_a_stem_is_a_stem_of_something(word):
    """No word loses everything, and none grows by more than the e that a participle lost."""
    found = stem(word)
    assert 1 <= len(found) <= len(word) + 1


@given(st.text(max_size=30))
def test_any_text_is_safe(text):
    assert isinstance(stem(text), str)
