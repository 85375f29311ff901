"""Names in a sentence: what is looked for first never hides a name that the patterns find."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.text import entity_names

SENTENCES = st.text(st.sampled_from("aAbBX12.-_/v js io py app Vue "), max_size=60)


@pytest.mark.parametrize(
    ("pattern", "sign"),
    [(entity_names.FILE, entity_names._FILE_END), (entity_names._CAMEL, entity_names._CASE_CHANGE)],
)
@given(text=SENTENCES)
@drawn(300)
def test_no_match_is_without_its_sign(pattern, sign, text):
    """Broken if a sentence is passed over that holds a file or an identifier."""
    for match in pattern.finditer(text):
        assert sign.search(text, match.start())


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("See src/app.py and compose.yml.", [("file", "src/app.py"), ("file", "compose.yml")]),
        ("We use Next.js, Flask 2.3.1.", [("technology", "Next.js"), ("technology", "Flask")]),
        ("A UserAuth class, an HTTPError.", [("class", "UserAuth"), ("identifier", "HTTPError")]),
        ("I met Dr Okafor at Heron Labs.", [("person", "Okafor"), ("organisation", "Heron Labs")]),
    ],
)  # fmt: skip
def test_each_kind_of_name_is_found(sentence, found):
    assert [(mention.type, mention.name) for mention in entity_names.find(sentence)] == found


@given(st.from_regex(r"[A-Z][a-z]{0,12}", fullmatch=True), st.integers(0, 50))
def test_one_word_is_taken_as_a_run_of_one_word_is(word, at):
    """Broken if the quick way for one word keeps or drops another name than the full one."""
    # A mark behind it sends the same word the full way.
    assert list(entity_names._trimmed(word, at)) == list(entity_names._trimmed(word + ".", at))
