"""Which forms of a word are one term, and that any word is safe."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.text.terms import root, stem


@pytest.mark.parametrize("word", ["", "a", "is", "2023", "über", "明日", "x" * 400, "a1b"])
def test_what_is_no_english_word_stays(word):
    assert stem(word) == word


@given(st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=40))
def test_a_stem_is_a_stem_of_something(word):
    """No word loses everything, and none grows by more than the e that a participle lost."""
    assert 1 <= len(stem(word)) <= len(word) + 1
    assert word.startswith(root(word))


def test_stems_do_not_depend_on_a_compiled_stemmer():
    """Where it finds PyStemmer, ``snowballstemmer`` itself uses that, with rules of its own."""
    code = (
        "import sys, types; sys.modules['Stemmer'] = types.ModuleType('Stemmer')\n"
        "sys.modules['Stemmer'].algorithms = sys.modules['Stemmer'].Stemmer = None\n"
        "from hiermem.text.terms import stem\nprint(stem('relational'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "relat"
