"""The words of a text: the quick way of reading them finds what the full one does."""

from hypothesis import given
from hypothesis import strategies as st

from hiermem.text import policy as lexicon

WORDISH = st.text(st.sampled_from("abAB19_-'’./: \n"), max_size=60)  # noqa: RUF001


@given(WORDISH | st.text(max_size=60))
def test_a_text_without_slashes_and_inner_dots_has_the_same_words_by_the_plain_pattern(text):
    """Broken if the quick pattern parts a word that the full one holds together."""
    plain = text.replace("/", " ").replace(".", " ")
    assert lexicon._PLAIN_WORD.findall(plain) == lexicon._WORD.findall(plain)
    ended = plain + "."
    assert lexicon._PLAIN_WORD.findall(ended) == lexicon._WORD.findall(ended)


@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=30), max_size=12))
def test_a_word_reads_the_same_whether_it_was_met_before_or_not(words):
    """Broken if what is kept of earlier selections changes a later one."""
    text = " ".join(words)
    lexicon._readings.clear()
    first = lexicon.terms_of(text)
    assert lexicon.terms_of(text) == first
    assert [lexicon._readings[word] for word in words] == list(map(lexicon._read, words))


def test_nothing_but_words_of_letters_is_kept():
    """Broken if a number, path or identifier of an erased conversation stays in the process."""
    lexicon._readings.clear()
    lexicon.terms_of("x9k2 4711 /etc/passwd api_key " + "z" * 25)
    assert not lexicon._readings


def test_no_more_readings_are_kept_than_allowed(monkeypatch):
    """Broken if the memory of a process grows with the words that it has met."""
    monkeypatch.setattr(lexicon, "_MOST_KEPT", 3)
    lexicon._readings.clear()
    lexicon.terms_of("five words are too many")
    assert 0 < len(lexicon._readings) <= 3


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_words_of_ascii_text_are_those_of_the_pattern(text):
    """Broken if a word counts in one text and not in another that holds a letter more."""
    assert lexicon.words_of(text) == lexicon._LETTERS.findall(text)
    if "/" not in text and "." not in text:
        assert lexicon._words(text) == lexicon._PLAIN_WORD.findall(text)
