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


@pytest.mark.parametrize(
    "text",
    ["I will add the retry tomorrow.", "I'll get back to you tomorrow on the figures of the run."],
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


def test_marks_of_layout_are_no_part_of_what_is_said() -> None:
    rows = (("Ana", "> *Next.* I'll send the *signed* letter to the printer.\n> 2 * 3 * 4 is 24."),)
    assert opened(*rows) == [("promise", "I'll send the signed letter to the printer.")]


@pytest.mark.parametrize(
    "reply",
    [
        "I do not know.", "I haven't found out yet.", "I don't have that information.",
        "No answer so far.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("asked", ["What does connect_db() return?", "Which port?"])
@pytest.mark.parametrize("who", ["Assistant", "Bob"])
def test_a_reply_that_does_not_know_leaves_a_short_question_open(
    asked: str, reply: str, who: str
) -> None:
    assert opened(("User", asked), (who, reply)) == [("question", asked)]
