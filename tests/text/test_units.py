"""What a unit is, and that what is rendered can be taken apart again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear, repeated
from sampling import params

from hiermem.errors import StoreCorruptError
from hiermem.protocols import SourceText
from hiermem.text.units import LABEL_CAP, UNIT_CAP, of_source, pack, prose, render, split, unpack
from hiermem.types import Unit

TEXTS = st.text(max_size=300) | st.lists(
    st.sampled_from(
        ["We met. ", "Yes. ", "```", "py\ndef f():\n", "\n", "# Head\n", "Wow, ", "中文。", " ",
         "e.g. ", "1. ", "...", '" ', "a" * 700, "[2024-01-01]\n", "Ann: "]
    ),
    max_size=25,
).map("".join)  # fmt: skip
LABELS = st.sampled_from(["Ann", "Bob", "", "User", "A\nB", "x" * 90])
DATES = st.sampled_from(["", "2024-03-15", "2024-03-16"])


@st.composite
def conversations(draw: st.DrawFn) -> list[Unit]:
    found: list[Unit] = []
    for index in range(draw(st.integers(0, 5))):
        found += split(
            draw(TEXTS),
            index=draw(st.sampled_from([index, None])),
            role=draw(st.sampled_from(["user", "assistant"])),
            speaker=draw(LABELS),
            date=draw(DATES),
        )
    return found


def pieces(text: str) -> list[str]:
    return [unit.text for unit in split(text, index=0, role="user", speaker="Ann", date="")]


@given(conversations(), st.data())
def test_any_kept_units_come_back_exactly_from_text_and_provenance(units, data):
    kept = [unit for unit in units if data.draw(st.booleans())]
    assert unpack(pack(kept), render(kept)) == tuple(kept)


@given(conversations())
def test_no_unit_starts_a_line_so_a_speaker_or_date_cannot_be_forged(units):
    for unit in units:
        assert len(unit.text) <= UNIT_CAP
        assert unit.text.strip()
        assert len((unit.text + unit.speaker).splitlines()) == 1
        assert len(unit.speaker) <= LABEL_CAP


@given(TEXTS)
def test_a_text_that_is_not_blank_gives_a_unit(text):
    assert bool(pieces(text)) == bool(text.strip())


@given(conversations())
def test_provenance_of_another_text_is_refused(units):
    with pytest.raises(StoreCorruptError):
        unpack(pack(units), render(units) + "!")


@pytest.mark.parametrize(
    "packed", ["[", "{}", "[1,2,3]", "[[],[],[[0,9,9,0,5]]]", "null", "[" * 9999]
)
def test_damaged_provenance_is_a_typed_error(packed):
    with pytest.raises(StoreCorruptError):
        unpack(packed, "some text")


def test_no_provenance_gives_no_units():
    assert unpack("", "written by a model") == ()


def test_sentences_lines_and_closing_quotes_are_kept_apart_rightly():
    assert pieces('He said "go." Then we left.\n- buy milk') == [
        'He said "go."',
        "Then we left.",
        "- buy milk",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "- 1. Install it first",
        "I met Dr. Miller today",
        "Use e.g. Redis for that",
        "No. We stay.",
        "They flew from John A. Osborne Airport",
        "Die Pumpe Nr. 1 läuft heiß, ca. 91 Grad",
        "See Fig. 3, and No. 7 on Jan. 5",
        "St. Louis is far",
        "I read J.K. Rowling and George R.R. Martin",
        "N.K. Jemisin writes, he is in the U.S. Navy",
    ],
)
def test_a_dot_that_ends_no_sentence_does_not_part_it(text):
    assert pieces(text) == [text]


def test_a_sentence_may_end_in_a_single_letter():
    assert pieces("It was I. Then she left.") == ["It was I.", "Then she left."]
    assert pieces("We left the U.S. It was late.") == ["We left the U.S.", "It was late."]
    assert pieces("It is 6 ft. Dive in.") == ["It is 6 ft.", "Dive in."]
    assert pieces("It is rich in vitamin c. Eat it.") == ["It is rich in vitamin c.", "Eat it."]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**Note:** use **both** keys.", "Note: use both keys."),
        ("这是**重点**内容", "这是重点内容"),
        ("Put it into **.env** then.", "Put it into .env then."),
        ("Match **.py and **.js files", None),
        ("It overflows at 2**40; f(**kw), g(**kw).", None),
        ("Match src/**/*.py and lib/**/*.js", None),
        ("Wait 2 ** i and 3 ** j seconds", None),
        ("f(**one, **two) returns", None),
    ],
)
def test_only_bold_text_loses_its_marks(text, shown):
    """Broken: every "**" was deleted, so that 2**40 became 240."""
    assert pieces(text) == [shown or text]


def test_lists_and_headings_are_told_by_one_mark_and_without_numbers():
    """Broken if an excerpt shows the holes of a list, or a heading that looks like a statement."""
    assert pieces("## Set up\n1. **Keys**: rotate\n2) Logs\n**Costs:**\n* none") == [
        "Set up:",
        "- Keys: rotate",
        "- Logs",
        "Costs:",
        "- none",
    ]


def test_a_sentence_stays_whole_and_a_piece_of_one_that_is_too_long_says_so() -> None:
    """Broken once: a third of the lines of a chat were halves that ended in a comma."""
    long = (
        "I've always loved playing strategy games like Civilization and Total War, so I decided"
        " to challenge myself and create one of my own, and I want to finish it by March 3."
    )
    assert pieces(long) == [long]
    cut = pieces(", ".join(f"then we moved crate number {at} into the hall" for at in range(30)))
    assert len(cut) > 2
    assert all(piece.endswith("…") and piece[-2] != "," for piece in cut[:-1])
    assert not cut[-1].endswith("…")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Thanks, John. She and I went.", ["She and I went."]),
        ("Yeah, John! It takes a lot of strategy.", ["It takes a lot of strategy."]),
        ("No worries, Mel! We won.", ["We won."]),
        ("Yes, Tuesday. We won.", ["Tuesday.", "We won."]),
    ],
)
def test_a_name_that_was_only_addressed_is_no_line(said: str, kept: list[str]) -> None:
    assert pieces(said) == kept


def test_chinese_and_japanese_are_split_without_spaces():
    assert pieces("我们决定用它。明天开始。「はい。」次に進む。") == [
        "我们决定用它。",
        "明天开始。",
        "「はい。」",
        "次に進む。",
    ]


def test_code_becomes_one_digest_of_signatures_and_files():
    text = (
        "Look:\n```python\n# app/main.py\ndef run(port: int):\n    secret = 1\n```\nDone with that."
    )
    assert pieces(text) == [
        "Look:",
        "[python: # app/main.py; def run(port: int)]",
        "Done with that.",
    ]
    assert "secret" not in prose(text)


def test_the_digest_of_other_code_is_its_beginning_and_says_that_it_goes_on():
    assert pieces("```\nx = 1\n\ny = 2\n```") == ["[code: x = 1 y = 2]"]
    (digest,) = pieces("```js\n" + "const key = value\n" * 9 + "```")
    assert digest.startswith("[js: const key = value const")
    assert digest.endswith("…]")


def test_an_unclosed_fence_is_code_to_its_end():
    assert pieces("Look ```\ndef f():\n  x.") == ["Look", "[code: def f()]"]


def test_fillers_go_only_where_punctuation_follows():
    assert pieces("Wow, thanks so much Mel, we won the cup.") == ["We won the cup."]
    assert pieces("Yeah, I sold it.") == ["I sold it."]
    assert pieces("No new bugs.") == ["No new bugs."]
    assert pieces("No, we keep Postgres.") == ["No, we keep Postgres."]


def test_back_channel_is_dropped_beside_content_and_kept_alone():
    assert pieces("Sounds great! I will fly on Monday.") == ["I will fly on Monday."]
    assert pieces("Sounds great!") == ["Sounds great!"]


def test_rendering_writes_a_date_when_it_changes_and_a_speaker_for_each_message():
    units = [
        *split("We met. We ate.", index=1, role="user", speaker="Ann", date="2024-03-15"),
        *split("It rained.", index=2, role="user", speaker="Bob", date="2024-03-15"),
        *split("It was over.", index=5, role="user", speaker="Bob", date="2024-03-16"),
    ]
    assert render(units) == (
        "[2024-03-15]\nAnn: We met. We ate.\nBob: It rained.\n[2024-03-16]\nBob: It was over."
    )


def test_a_source_with_units_is_not_read_again():
    kept = (Unit(7, 3, "user", "Ann", "", "We met."),)
    source = SourceText(None, "user", "Summary", "", "Ann: We met.", units=kept)
    assert of_source(source) == list(kept)


FAMILIES = ["a", "7", "QmFz+/=", "/", ".", "`", "\n", " ", '."', "e.g. X", "Wow, ", "中文。", "😀",
            "```\n", "Ab. ", "# ", "\t|", "a\u0301"]  # fmt: skip


@pytest.mark.parametrize("family", params(FAMILIES, 7))
def test_time_grows_linearly_with_hostile_text(family):
    assert is_linear(lambda size: repeated(family, size), pieces, size=25_000, slack=0.01)
