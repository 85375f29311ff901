"""Standing instructions are known by their form, in the user's own words, and the newest serves."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import Message, StoredMessage, ToolCall
from hiermem.core.text.instructions import FLAG, drop_flag, find, flags_of, of_messages

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

STANDING = [
    "Always answer in metric",
    "never call me after six",
    "From now on, answer in French.",
    "For the rest of this conversation, be brief",
    "Please always use Python 3.",
    "Call me Ada",
    "Don't use emojis anymore",
    "Stop apologizing.",
    "Can you always cite sources?",
    "Whenever I ask for code, use type hints.",
    "Always include version numbers when I ask about libraries.",
    "I'd prefer if you kept it short",
    "I\u2019d rather you didn\u2019t use tables.",
    "I prefer tea over coffee.",
    "I'm vegetarian",
    "I don't eat pork.",
    "answer in French from now on",
    "You can call me after six again",
    "Do not suggest meat ever again",
    "Remember that I live in Berlin",
    "Bitte antworte immer auf Deutsch",
    "Ab jetzt antworte auf Deutsch.",
    "Désormais, réponds en français",
    "A partir de ahora responde en español.",
    "今後は日本語で答えてください",
]

#: Requests for once, questions, narrative, advice to a friend, and other people's words.
PASSING = [
    "please make it shorter",
    "Use metric units here.",
    "I always loved this",
    "I always answer in metric.",
    "We never use the car.",
    "Should I always use braces?",
    "Always use braces?",
    "Do you prefer tea?",
    "If I prefer tea, what then?",
    "I prefer this one",
    "I prefer the second version.",
    "My boss told me to always answer politely",
    "Write a function that always returns 1",
    "What does never use goto mean?",
    'He said "Always use tabs." and left',
    "> Always use tabs",
    "```\nAlways use tabs.\n```",
    "<doc>Always use tabs.</doc>",
    "Proofread this:\nAlways wear gloves. Never use acid.",
    "Here is the mail:\n\nFrom now on, send the reports to Bob.",
    "Never mind",
    "Never give up!",
    "Never say never!",
    "Always a pleasure",
    "Whenever you need help, just let me know.",
    "In the future I want to travel",
    "When I ask my mum, she says no.",
    "When you arrive, call me",
    "Call me later",
    "Remember when we went to Rome?",
    "Could you tell me again?",
    "Ab jetzt arbeite ich zu Hause.",
]


def said(*texts: str, name: str | None = None, **fields: object) -> list[StoredMessage]:
    return [
        StoredMessage(i, Message.user(text, name=name, created_at=NOON), 1, 1, "h", **fields)
        for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize("text", STANDING)
def test_what_holds_from_then_on_is_found_alone_and_in_a_longer_message(text):
    [(begin, end, _)] = find(text)
    assert text[begin:end] == text
    longer = f"Thanks, that helps. {text}\nHow far is it to Bern?"
    [(begin, end, _)] = find(longer)
    assert text.rstrip(".") in longer[begin:end]


@pytest.mark.parametrize("text", PASSING)
def test_what_does_not_hold_from_then_on_is_not_found(text):
    assert find(text) == []


def test_a_preference_ends_where_the_question_begins():
    text = "I'm new here, and I prefer simple tools, can you suggest some? Thanks!"
    [(begin, end, kind)] = find(text)
    assert (text[begin:end], kind) == ("I prefer simple tools", "preference")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yeah, since I'm vegetarian I cook with tofu.", "since I'm vegetarian I cook with tofu."),
        (
            "Because I'm allergic to nuts I read labels.",
            "Because I'm allergic to nuts I read labels.",
        ),
        ("I bake a lot because I'm vegetarian.", "I'm vegetarian."),
        ("Since I'm vegetarian, can you suggest a soup? Thanks!", "I'm vegetarian"),
    ],
)
def test_a_clause_that_leads_its_sentence_keeps_the_word_that_joins_it(text, said):
    """Broken, "I'm vegetarian I cook with tofu" is what the user is said to have said."""
    [(begin, end, kind)] = find(text)
    assert (text[begin:end], kind) == (said, "preference")


def test_a_list_that_is_announced_is_read_and_a_document_only_at_its_ends():
    found = find("My rules:\n- Always answer in French\n- Never use emojis")
    assert len(found) == 2
    filler = "The committee met in the old hall and spoke of drains.\n" * 60
    assert find(filler + "Always use the front door.\n" + filler) == []
    assert len(find("Always answer in French.\n" + filler)) == 1
    assert len(find(filler * 9 + "Always answer in French.")) == 1


@given(st.text(max_size=300))
def test_every_text_is_read_and_the_places_are_in_it(text):
    for begin, end, _ in find(text + " Always answer in metric."):
        assert 0 <= begin < end <= len(text) + 25


def test_a_hostile_text_is_read_in_linear_time():
    for part in ("always ", "<a>", '"', "call me ", "when i ask ", "i prefer ", "[[hiermem "):
        find(part * 20_000 + "always use x")


def test_only_the_user_gives_instructions():
    text = "Always answer in metric."
    assert flags_of(Message.user(text), ("late",)) == ("late", FLAG)
    for message in (
        Message.assistant(text),
        Message.system(text),
        Message.tool(text, tool_call_id="c"),
        Message.assistant(text, tool_calls=(ToolCall("c", "f", "{}"),)),
        Message.user("Hello."),
    ):
        assert flags_of(message, (FLAG, "late")) == ("late",)
    for state in ("quarantined", "erased"):
        assert of_messages(said(text, state=state)) == ()


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Always answer in metric.", "Always answer in metric!"),
        ("Always answer in metric.", "From now on, answer in imperial units."),
        ("Always answer in English.", "Please always reply in French."),
        ("Never call me after six.", "Never call me after eight."),
        ("Never call me after six.", "You can call me after six again."),
        ("Always use bullet points.", "Stop using bullet points."),
        ("I prefer tea over coffee.", "I prefer coffee over tea."),
    ],
)
def test_the_newest_on_a_subject_replaces_the_older(older, newer):
    new, old = of_messages(said(older, newer))
    assert (new.text, new.superseded_by) == (newer, None)
    assert (old.text, old.superseded_by) == (older, new.id)


def test_different_subjects_and_speakers_stand_beside_each_other():
    texts = (
        "Always answer in metric.",
        "Always answer in French.",
        "Never call me after six.",
        "Always include version numbers when I ask about libraries.",
        "Always include error codes when I ask about servers.",
        "I prefer tea over coffee.",
    )
    assert all(one.superseded_by is None for one in of_messages(said(*texts)))
    two = [*said("Always answer in French.", name="Ada"), *said("Always answer in English.")]
    two[1] = replace(two[1], index=1)
    assert [one.superseded_by for one in of_messages(two)] == [None, None]


def test_a_dropped_one_is_not_listed_and_brings_back_nothing_older():
    messages = said("Always answer in metric.", "Hi.", "Always answer in imperial units.")
    dropped = of_messages(messages)[0]
    messages[2] = replace(messages[2], flags=(FLAG, drop_flag(dropped)))
    [left] = of_messages(messages)
    assert left.superseded_by == dropped.id


def test_an_id_stays_while_the_message_says_the_same():
    [one] = of_messages(said("Hi. Always answer in metric."))
    [moved] = of_messages(said("Hello there! And always answer in metric"))
    assert one.id != of_messages(said("Always answer in miles."))[0].id
    assert moved.id.split("-")[0] == one.id.split("-")[0] == "m0"
