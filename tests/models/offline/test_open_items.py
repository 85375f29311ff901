"""What the offline extraction finds unfinished: what must be found, and what must be left alone."""

import pytest

from hiermem.models.offline.open_items import OpenItem, open_ends
from hiermem.models.offline.speech import sentences
from hiermem.protocols import SourceText

Row = tuple[str, str] | tuple[str, str, str]
ROLES = {"User": "user", "Assistant": "assistant", "Tool": "tool", "System": "system"}


def found(*rows: Row) -> list[OpenItem]:
    sources = [
        SourceText(at, ROLES.get(row[0], "user"), row[0], (*row, "2024-03-15")[2], row[1])
        for at, row in enumerate(rows)
    ]
    return open_ends(list(sentences(sources)), sources)


def opened(*rows: Row) -> list[tuple[str, str]]:
    return [(each.kind, each.text) for each in found(*rows)]


NOT_PROMISED = [
    "I'll keep rowing until my wishes come true!",
    "I'm gonna go on trusting my own hands.",
    "We'll make some awesome memories at the lake!",
    "I'm sure we'll find the right place for the studio.",
    "Is the early frost a sign that I'll meet the deadline of the grant.",
    "I'm thinking about how the feedback helps my communication skills.",
    'He wrote: "I will write in May to talk over the libretto."',
    "If the oven smokes again, I'll ask the baker.",
]


@pytest.mark.parametrize("text", NOT_PROMISED)
def test_vows_hopes_forecasts_and_others_words_are_no_promises(text: str) -> None:
    assert opened(("Ana", text), ("Bea", "That is good.")) == []


@pytest.mark.parametrize(
    "text",
    [
        "I'll send the video to the printer.",
        "I will ask Frau Sutter about the tax rate.",
        "I'm planning to record three talks with beekeepers in August.",
        "I'll keep a file with every gap that we find.",
    ],
)
def test_what_somebody_says_they_will_do_is_a_promise(text: str) -> None:
    assert opened(("Ana", text), ("Bea", "That is good.")) == [("promise", text)]


@pytest.mark.parametrize(
    "text",
    [
        "I will add the retry tomorrow.",
        "I'll get back to you tomorrow on the figures of the run.",
    ],
)
def test_an_assistant_promises_what_it_will_do_later(text: str) -> None:
    rows = (("User", "We want a retry."), ("Assistant", f"Understood. {text}"))
    assert opened(*rows) == [("promise", text)]


@pytest.mark.parametrize(
    "text",
    [
        "I'll walk you through the three steps.",
        "We'll use SQLAlchemy for the access to the database.",
        "I will create a route that returns the chart.",
        "If you share the plan, I'll review it tomorrow.",
        "Let me know if I'll need to change the example next week.",
    ],
)
def test_what_an_assistant_does_in_the_same_breath_or_offers_is_no_promise(text: str) -> None:
    assert opened(("User", "We want a retry."), ("Assistant", f"Sure. {text} 1. Install it.")) == []


@pytest.mark.parametrize(
    "text",
    [
        "I need to write the tests for the parser.",
        "I'm getting an error when I start the parser.",
        "I'll double-check the steps that you listed.",
        "```python\n# TODO: compare the passwords\n```",
    ],
)
def test_what_a_user_needs_is_served_by_the_assistants_next_answer(text: str) -> None:
    assert opened(("User", text), ("Assistant", "Here is how it is done.")) == []


def test_an_agent_promises_where_it_does_not_act_at_once() -> None:
    tool = ("Tool", "81 passed, 1 failed")
    later = ("Assistant", "I'll make the parser accept both formats of the time.")
    acts = ("Assistant", f'{later[1]}\nedit({{"path":"parser.py"}})')
    assert opened(("User", "Go on."), tool, later) == [("promise", later[1])]
    assert opened(("User", "Go on."), acts, tool) == []


@pytest.mark.parametrize(
    "text",
    [
        "Don't forget to rest and hum a tune now and then!",
        "Evenings on the pier remind me to thank my neighbours.",
        "I still have the tin whistle from the fair!",
        "A list keeps my mind on all that I have to do in the bakery.",
        "To get the share of both, I need to multiply the two fractions.",
        "I'm getting the sharpest pictures from the new lens here.",
        "I'm getting a 200 response from the server with a latency of 20 ms.",
    ],
)
def test_advice_memories_and_sums_are_no_tasks_and_no_troubles(text: str) -> None:
    assert opened(("Ana", text), ("Bea", "That is good.")) == []


def test_a_point_that_is_put_on_a_list_or_said_to_be_open_is_open() -> None:
    rows = (
        ("Ilse", "docs/open.md (4): seasonal farms."),
        ("Matteo", "The adviser should confirm both rates. I put it down as open point 5."),
        ("Ilse", "Restore has to be rehearsed once before launch, put it on the list."),
        ("Matteo", "We are still waiting for the signature of the bank."),
        ("Ilse", "I like that list of songs."),
    )
    assert [text for _, text in opened(*rows)] == [
        "docs/open.md (4): seasonal farms.",
        "The adviser should confirm both rates. I put it down as open point 5.",
        "Restore has to be rehearsed once before launch, put it on the list.",
        "We are still waiting for the signature of the bank.",
    ]


def test_marks_of_programs_and_of_examples_are_nobodys_tasks() -> None:
    assert opened(("Ana", "Look."), ("Tool", "src/a.py:3: # TODO: drop Python 2")) == []
    example = "```python\n# TODO: add your own logic here\n```\n- [ ] Define your goals\n"
    assert opened(("User", "How?"), ("Assistant", example)) == []
    assert opened(("User", "Call XXX XXXX or mail crystal@example.org, thanks.")) == []


def test_a_list_that_an_assistant_makes_is_a_plan_where_it_has_days_or_ticks() -> None:
    plan = "- [x] Outline the letter\n- [ ] Write the introduction\n"
    assert opened(("User", "Plan it."), ("Assistant", plan)) == [("task", "Write the introduction")]
    dated = "- [ ] Write the introduction (March 26)\n"
    assert len(opened(("User", "Plan it."), ("Assistant", dated))) == 1


def test_a_question_stays_open_over_what_the_asker_goes_on_to_say_until_a_reply() -> None:
    asked = ("Ana", "Which discount did the vendor offer us?")
    more = ("Ana", "I met her on Monday.")
    assert opened(asked, more, ("Bea", "Ten percent.")) == []
    assert opened(asked, more) == [("question", asked[1])]


def test_a_reply_need_share_no_word_with_the_question() -> None:
    assert opened(("Ana", "Which port does the staging server use?"), ("Bea", "8080.")) == []


def test_an_answer_with_a_doubt_further_down_is_an_answer() -> None:
    rows = (
        ("Ana", "Did your guests like the walnut bread?"),
        ("Bea", "Most did! I can't say whether everybody will bake it."),
    )
    assert opened(*rows) == []


def test_what_an_assistant_asks_last_waits_for_an_answer() -> None:
    asks = ("Assistant", "Two designs fit. Which of the two databases runs in production?")
    assert [kind for kind, _ in opened(("User", "Plan the move."), asks)] == ["question"]
    assert opened(("User", "Plan the move."), asks, ("User", "Postgres.")) == []
    offers = ("Assistant", "It is done. Would you like me to write tests for the module too?")
    assert opened(("User", "Plan the move."), offers) == []


def test_neither_a_later_statement_nor_time_closes_anything() -> None:
    """To know that a report is of that task, one must understand both."""
    promise = ("Ana", "I'll send the letter to the printer tomorrow.", "2024-03-15")
    assert opened(promise, ("Bea", "Good.", "2024-04-02")) == [("promise", promise[1])]
    task = ("Ana", "TODO: update the changelog")
    for report in ("Done.", "I've updated the changelog.", "- [x] update the changelog"):
        assert opened(task, ("Bea", report)) == [("task", "update the changelog")]


def test_nothing_is_closed_by_the_message_that_opens_it() -> None:
    rows = (("Ana", "I fixed the login page. I still need to test the login page."),)
    assert len(opened(*rows)) == 1


def test_marks_of_layout_are_no_part_of_what_is_said() -> None:
    rows = (("Ana", "> *Next.* I'll send the *signed* letter to the printer.\n> 2 * 3 * 4 is 24."),)
    assert opened(*rows) == [("promise", "I'll send the signed letter to the printer.")]


@pytest.mark.parametrize(
    "reply",
    [
        "I do not know.",
        "Sorry, I cannot answer that.",
        "I could not find that out yet.",
        "I was not able to find that.",
        "I haven't found out yet.",
        "I don't have that information.",
        "That is still unknown.",
        "No answer so far.",
    ],
)
@pytest.mark.parametrize("asked", ["What does connect_db() return?", "Which port?"])
@pytest.mark.parametrize("who", ["Assistant", "Bob"])
def test_a_reply_that_does_not_know_leaves_a_short_question_open(
    asked: str, reply: str, who: str
) -> None:
    assert opened(("User", asked), (who, reply)) == [("question", asked)]


@pytest.mark.parametrize(
    "reply",
    [
        "I'm not sure, but it is a connection.",
        "I do not know what I would do without you!",
        "A connection.",
    ],
)
def test_a_reply_that_answers_all_the_same_leaves_nothing_open(reply: str) -> None:
    assert opened(("User", "What does connect_db() return?"), ("Bob", reply)) == []


def test_which_one_asks_for_nothing_that_could_stay_open() -> None:
    assert opened(("Ann", "Which one?"), ("Bob", "I don't know.")) == []
