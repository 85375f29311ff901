"""Which facts are anchors, and which of them a summary is held to have kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear, repeated

from hiermem.core.text import anchors
from hiermem.core.text.anchors import ANCHOR_CAP, fidelity, find

TEXTS = st.text(max_size=200) | st.lists(
    st.sampled_from(
        ["May 3, 2024 ", "2024-13-40 ", "$1,200.50 ", "never deploy on Friday. ", '"go now" ',
         "`x_y`", "/etc/app.toml ", "https://a.b/c?d ", "3月5日", "1. ", "```\n", "\n", "ab.cd ",
         "Don\u2019t do it. "]
    ),
    max_size=20,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It costs $1,200.50 now", "$1,200.50"),
        ("down by 35% since", "35%"),
        ("at 10:30 sharp", "10:30"),
        ("on March 15, 2024 we", "March 15, 2024"),
        ("on the 3rd of May we", "3rd of May"),
        ("by 2024-03-15.", "2024-03-15"),
        ("締め切りは3月15日です", "3月15日"),
        ("see src/app.py for it", "src/app.py"),
        ("in /etc/hosts there", "/etc/hosts"),
        ("call get_user there", "get_user"),
        ("our parseJson fails", "parseJson"),
        ("call foo() first", "foo()"),
        ("upgrade to v2.3.1 now", "v2.3.1"),
        ("mail ann@example.org today", "ann@example.org"),
        ("read https://example.org/a?b=1.", "https://example.org/a?b=1"),
        ('she said "ship it now" and', "ship it now"),
        ("we must not use eval here", "must not use eval here"),
        ("Never deploy on Friday!", "Never deploy on Friday"),
    ],
)
def test_each_kind_of_anchor_is_found(text, wanted):
    assert wanted in find(text)


@pytest.mark.parametrize(
    "text",
    ["We went and/or stayed, he/she said.", "NASA Is Great", "I don't know.",
     "It's John's follow-up", "1. First\n2) second\n- third", "", "   ", "well-known"],
)  # fmt: skip
def test_ordinary_words_and_list_numbers_are_no_anchors(text):
    assert find(text) == ()


def test_code_bodies_do_not_flood_the_anchors():
    text = "```py\ndef run():\n" + "\n".join(f"    value_{n} = {n}" for n in range(100)) + "\n```"
    assert len(find(text)) < 5


def test_the_weightiest_come_first_and_the_limit_holds():
    text = "Item 3, then 512, 512, 512 and also foo_bar."
    assert find(text) == ("512", "foo_bar", "3")
    assert find(text, limit=1) == ("512",)
    assert find(text, limit=0) == ()


@given(TEXTS, st.integers(0, 70))
def test_a_text_keeps_all_of_its_own_anchors_and_claims_nothing_new(text, limit):
    found = fidelity(inputs=[text], output=text, limit=limit)
    assert found.missing == ()
    assert found.value == 1.0
    assert found.unsupported == ()
    assert len(found.required) <= limit


@given(TEXTS, TEXTS)
def test_required_are_the_inputs_anchors_and_the_value_counts_them(text, output):
    found = fidelity(inputs=[text], output=output, limit=64)
    assert found.required == find(text)
    assert set(found.missing) <= set(found.required)
    kept = len(found.required) - len(found.missing)
    assert found.value == (pytest.approx(kept / len(found.required)) if found.required else 1.0)
    assert all(0 < len(anchor) <= ANCHOR_CAP for anchor in found.required)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("It costs 12,500 dollars", "cost: 12500"),
        ("on March 15, 2024", "[2024-03-15] it began"),
        ("on May 3", "3 May 2024"),
        ("see src/App.py", "the file `src/app.py`"),
        ('he said "Ship It  Now"', "to ship it now"),
        ("Never deploy to production on Fridays", "They must not deploy to production on Friday"),
        ("call get_user()", "get_user is called"),
    ],
)
def test_another_spelling_keeps_a_fact(said, told):
    assert fidelity(inputs=[said], output=told, limit=9).missing == ()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("It costs 125 dollars", "cost: 1250"),
        ("on March 15, 2024", "on March 15"),
        ("Never deploy on Fridays", "They deploy on Fridays"),
        ("see src/app.py", "see the app"),
    ],
)
def test_a_changed_fact_is_missing(said, told):
    assert fidelity(inputs=[said], output=told, limit=9).value == 0.0


def test_made_up_figures_and_names_are_unsupported():
    found = fidelity(
        inputs=["Ann pays 900 for the flat in Porto."],
        output="## Key Points\nAnn pays 950, as Carlos said, for the flat in Porto.",
        limit=9,
    )
    assert found.unsupported == ("950", "Carlos")


def test_what_was_shown_beside_the_inputs_supports_but_is_not_required():
    found = fidelity(
        inputs=["We pay 900."],
        output="[2024-03-15]\nThey, says Carlos, pay 900 since 2024-03-14.",
        limit=9,
        beside=["2024-03-14", "Carlos"],
    )
    assert (found.required, found.unsupported) == (("900",), ())


@pytest.mark.parametrize(
    "family",
    ["a", "7", "./", ".", "`", '"', "'", " ", "never ", "do not a b c ", "2024-", "1 may ", "https://",
     "a_", "「", "\n", "# ", "**a", "a:", "A ", "12,345,", "中", "1月", "a/", "x@"],
)  # fmt: skip
def test_time_grows_linearly_with_hostile_text(family):
    assert is_linear(
        lambda size: repeated(family, size),
        lambda text: fidelity(inputs=[text], output=text, limit=64),
        size=15_000,
    )


DATED = st.lists(
    st.sampled_from(
        [
            "3 May 2024",
            "May 3rd",
            "2024-05-03",
            "5月3日",
            "x",
            " ",
            "\n",
            "of",
            "1st June,",
            "Sept.",
        ]
    ),
    max_size=12,
).map(" ".join)


@pytest.mark.parametrize("pattern", [anchors._NAMED_DATE, anchors._ISO_DATE, anchors._URL])
@given(text=DATED | st.text(max_size=80))
def test_what_is_taken_out_leaves_what_a_substitution_leaves(pattern, text):
    """Broken if one pass over the matches reads or leaves another text than two passes did."""
    steps = anchors._taken_out(
        lambda match: anchors._Anchor(match.group(), "date", ""), pattern, text
    )
    found = []
    while True:
        try:
            found.append(next(steps).text)
        except StopIteration as stop:
            left = stop.value
            break
    assert found == [match.group() for match in pattern.finditer(text)]
    assert left == pattern.sub(" ", text)
