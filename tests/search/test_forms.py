# ruff: noqa: RUF001  # the letters of other languages are meant
"""By which other forms a word is found, and that English text has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.search.query import _telling, indexed, languages, read_query
from hiermem.text.terms import number, terms, words


def held(text):
    """Return the numbers of everything that the index has for a text."""
    return {number(term) for term in [*terms(text), *indexed(text, words(text))]}


def finds(query, text):
    """Return whether every word of the query is found in the text."""
    found = held(text)
    asked = read_query(query).terms
    return bool(asked) and all(
        not found.isdisjoint((term.number, *term.forms, *term.parts)) for term in asked
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Societe Generale", "la Société Générale"), ("Zurich", "Wir waren in Zürich."),
        ("Zurich", "We went to Zürich."), ("cafe", "at the Café"), ("Mueller", "I met Mr Müller"),
        ("Mueller", "Frau Müller hat angerufen"), ("Muller", "Herr Müller war da"),
        ("Mueller", "Müller"), ("Häuser", "das Haus"), ("verkaufte", "Wir haben es verkauft"),
        ("chevaux", "le cheval de ma tante"), ("vendieron", "ella vende su casa"),
        ("falavam", "ela não falou"), ("lavorano", "lui non lavora"),
        ("fietsen", "de fiets is nieuw"), ("собаками", "у нас есть собака"),
        ("собака", "без собак"), ("библиотеками", "В библиотеке тихо"), ("السيارات", "سيارة"),
        ("المدرسة", "في مدرستنا"), ("مفتاح", "مفاتيح"), ("लड़कियों", "लड़की"), ("किताबें", "किताब"),
        ("서울", "서울에서 봤어"), ("kitaplarımız", "Babam bir kitap aldı"),
        ("samochodami", "To był jego samochód"), ("böckerna", "Jag läste en bok och två böcker"),
        ("taloissa", "Se oli hyvä talo"), ("házakban", "Ez egy régi ház"),
    ],
)  # fmt: skip
def test_forms_of_a_word_are_found_by_one_another(one, other):
    assert finds(one, other)
    assert any(finds(word, one) for word in other.split())


PARTS = [
    ("Prüfung", "Er hat die Führerscheinprüfung bestanden"),
    ("Führerscheinprüfung", "die Prüfung für den Führerschein"),
    ("Versicherung", "der Versicherungsbeitrag ist hoch"), ("Schränke", "Er ist im Küchenschrank"),
    ("verzekering", "de ziektekostenverzekering is duur"), ("猫", "我家的猫很可爱"),
    ("犬", "うちの犬が"), ("ね", "ねこがすき"), ("책", "새책을 샀어"),
    ("🎂", "Happy birthday 🎂!"), ("👍", "ok 👍🏽"), ("🇩🇪", "we won 🇩🇪🇩🇪"), ("❤", "❤\ufe0f"),
]  # fmt: skip
OTHERS = [
    ("Prüfung", "Er hat den Führerschein"), ("🎂", "👍"), ("猫", "我家的狗"),
    ("blue", "Er ist blass"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "text"), [*PARTS, *OTHERS])
def test_parts_are_found_and_other_words_are_not(query, text):
    assert finds(query, text) == ((query, text) in PARTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wir haben das Haus gesehen", ("german",)),
        ("Je ne sais pas où est la clé", ("french",)),
        ("I told him: das ist die Katze und nicht der Hund", ("german",)),
        ("The war of the man was a hat", ()),
        (
            "Treffen morgen",
            (
                "german", "spanish", "french", "italian", "dutch", "portuguese", "polish",
                "turkish", "?",
            ),
        ),
        ("ćma " * 20, ("?",)),
        ("", ()),
    ],
)  # fmt: skip
def test_function_words_tell_the_language(text, expected):
    assert languages(text, words(text)) == expected


@given(st.text(max_size=60))
def test_a_text_is_found_by_itself(text):
    """Both sides must read a text alike, whatever it is."""
    found = held(text)
    for term in read_query(text).terms:
        assert term.number in found or term.word not in terms(text)
    assert {number(term) for term in terms(text)} <= found


@given(
    st.lists(
        st.sampled_from(
            [
                "Müllers", "Häuser", "chevaux", "собаками", "सड़कें", "السيارات", "猫が好き",
                "서울에서", "🎂", "trips",
            ]
        ),
        min_size=1,
        max_size=8,
    )
)  # fmt: skip
def test_a_mixed_text_is_found_by_each_of_its_words(spoken):
    text = " ".join(spoken)
    assert all(finds(word, text) for word in spoken)


def test_function_words_of_english_tell_no_language():
    """Otherwise English pays for other languages, and its questions lose words."""
    assert not {"we", "take", "care", "size", "sense", "see", "till", "go"} & _telling().keys()
