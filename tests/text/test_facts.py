"""Which facts are anchors, and which of them a summary is held to have kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear

from hiermem.text.facts import Source, find


def fidelity(*, inputs, output, limit, beside=()):
    return Source(inputs, limit=limit, beside=beside).fidelity(output)


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
        ("It costs $1,200.50 now", "$1,200.50"), ("down by 35% since", "35%"),
        ("at 10:30 sharp", "10:30"), ("by 2024-03-15.", "2024-03-15"),
        ("see src/app.py for it", "src/app.py"), ("in /etc/hosts there", "/etc/hosts"),
        ("call get_user there", "get_user"), ("our parseJson fails", "parseJson"),
        ("call foo() first", "foo()"), ("upgrade to v2.3.1 now", "v2.3.1"),
        ("mail ann@example.org today", "ann@example.org"),
        ("read https://example.org/a?b=1.", "https://example.org/a?b=1"),
        ('she said "ship it now" and', "ship it now"),
        ("we must not use eval here", "must not use eval here"),
        ("Never deploy on Friday!", "Never deploy on Friday"),
    ],
)  # fmt: skip
def test_each_kind_of_anchor_is_found(text, wanted):
    assert wanted in find(text)


def test_an_address_that_is_cut_is_no_anchor():
    """Broken, a summary that names the whole address lacks an anchor that nobody wrote."""
    long = "https://api.example.org/data/2.5/weather?units=metric"
    assert find(f"```js\nconst apiEndpoint = '{long}';\nload()\n```") == ("apiEndpoint",)
    assert find(f"Ask {long} for it") == (long,)


def test_the_weightiest_come_first_and_the_limit_holds():
    text = "Item 3, then 512, 512, 512 and also foo_bar."
    assert find(text) == ("512", "foo_bar")
    assert find(text, limit=1) == ("512",)
    assert find(text, limit=0) == ()


@given(TEXTS, st.integers(0, 70))
def test_a_text_keeps_all_of_its_own_anchors_and_claims_nothing_new(text, limit):
    found = fidelity(inputs=[text], output=text, limit=limit)
    assert found.missing == ()
    assert found.value == (1.0 if found.required else None)
    assert found.unsupported == ()
    assert len(found.required) <= limit


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("It costs 12,500 dollars", "cost: 12500"), ("on March 15, 2024", "[2024-03-15] it began"),
        ("on May 3", "3 May 2024"), ("see src/App.py", "the file `src/app.py`"),
        ('he said "Ship It  Now"', "to ship it now"),
        ("Never deploy to production on Fridays", "They must not deploy to production on Friday"),
        ("Never deploy to production on Fridays", "They shouldn't deploy to production on Friday"),
        ("It costs 120 000 roubles", "120,000 roubles"), ("It costs 25.000 Euro", "25 000 Euro"),
        ("It costs 38.000 Euro", "38 Tausend Euro"), ("It costs 120,000", "总预算12万元"),
        ("from November 1 to November 15, 2023", "Nov 1-15, 2023"),
        ("until 15 de marzo de 2024", "2024-03-15"), ("am 3. Juni 2024", "3 June 2024"),
        ("le 28 juin", "June 28"), ("截止日期是四月十五日", "4月15日前"),
        ("by December 15, 2023 and January 15, 2024", "Dec 15 and Jan 15 (2023, 2024)"),
        ('the page "Design," comes first', "Design comes first"),
        ("call get_user()", "get_user is called"),
    ],
)  # fmt: skip
def test_another_spelling_keeps_a_fact(said, told):
    assert fidelity(inputs=[said], output=told, limit=9).missing == ()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("It costs 125 dollars", "cost: 1250"), ("on March 15, 2024", "on March 15"),
        ("Never deploy on Fridays", "They deploy on Fridays"), ("see src/app.py", "see the app"),
        ("It costs 120 000 roubles", "It costs 120 roubles"),
        ("from November 1 to November 15, 2023", "Nov 1, 2023"),
    ],
)  # fmt: skip
def test_a_changed_fact_is_missing(said, told):
    assert fidelity(inputs=[said], output=told, limit=9).value < 1.0


def test_what_was_shown_beside_the_inputs_supports_but_is_not_required():
    found = fidelity(
        inputs=["We pay 900."],
        output="[2024-03-15]\nThey, says Carlos, pay 900 since 2024-03-14.",
        limit=9,
        beside=["2024-03-14", "Carlos"],
    )
    assert (found.required, found.unsupported) == (("900",), ())


def test_fidelity_is_none_where_nothing_was_required():
    """Broken if an invented text about a record without facts would count as faithful."""
    assert fidelity(inputs=["Hello there."], output="They met in 1987.", limit=9).value is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("since 4 years, we met on 2023-06-09", "Since 2019."),
        ("last year we painted it; 2023-06-09", "It was painted in 2022."),
        ("It costs 25.000 to 38.000 Euro", "etwa 25 bis 38 Tausend Euro"),
        ("We talked at 13:56", "They spoke at 1:56 pm."),
        ("Step 3: tests", "Phase 12 is about tests."),
        ("2024-05-25: we ran last Saturday", "They ran on 2024-05-18."),
        ("2024-05-25: next month we go", "They go in June 2024."),
    ],
)
def test_a_figure_that_follows_from_the_record_is_supported(said, told):
    days = [word.rstrip(":") for word in said.split() if word[:2] == "20"]
    assert fidelity(inputs=[said], output=told, limit=9, beside=days).invented == ()


@pytest.mark.parametrize("figure", ["300", "404", "2.5", "3600000"])
def test_a_figure_in_the_code_of_a_record_is_not_invented(figure):
    """Broken, a quarter of the good answers about a programmer's chat are refused."""
    code = "```js\nif (code === 404) wait(300); // 2.5 s\nconst TTL = 3600000;\n```"
    told = f"Ada set it to {figure}, and later to 7777."
    found = fidelity(inputs=[f"Here is the code:\n{code}"], output=told, limit=9)
    assert found.invented == ("7777",)


def test_a_loop_of_figures_takes_linear_time_beside_code():
    """Broken, an answer that counts up keeps the process busy for a minute."""
    assert is_linear(
        lambda size: (
            "```\n" + size * "x = word\n" + "```",
            " ".join(f"{10_000 + each} of them," for each in range(size // 10)),
        ),
        lambda texts: fidelity(inputs=[texts[0]], output=texts[1], limit=9),
        size=4_000,
    )


@pytest.mark.parametrize(
    ("said", "told", "wanted"),
    [
        ("four years", "for 14 years", ("14",)), ("on 2023-05-25", "on 4 July 1998", ("1998",)),
        ("on 2023-05-25", "on 2025-08-30", ("2025-08-30",)),
        ("预算十二万元", "预算二十万元", ("二十万",)),
        ("截止四月十五日", "截止五月二十日", ("二十",)), ("2.300 euros", "9.000 euros", ("9.000",)),
        ("120 000 and 80 000", "a loan of 200 000", ("200 000",)),
        ("no figure", "about 42 km", ("42",)),
    ],
)  # fmt: skip
def test_a_figure_that_the_record_does_not_have_is_invented(said, told, wanted):
    assert fidelity(inputs=[said], output=told, limit=9).invented == wanted


def test_german_nouns_are_no_names():
    said = "Wir haben die Heizung und das Bad mit dem Installateur besprochen, er kommt am Montag."
    told = "Der Installateur hat die alte Anlage und den Keller gesehen und die Kosten genannt."
    assert fidelity(inputs=[said], output=told, limit=9).unsupported == ()
