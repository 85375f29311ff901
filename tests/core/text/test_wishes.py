"""Standing wishes are known by cue words, in the user's own words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear, repeated

from hiermem import Message
from hiermem.core.text import wishes
from hiermem.core.text.wishes import PIN, WISH, WITHDRAWN, find, flags_of, without_flags
from hiermem.data import word_lists

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


@pytest.mark.parametrize("text", STANDING)
def test_what_holds_from_then_on_is_found_alone_and_in_a_longer_message(text):
    [(begin, end)] = find(text)
    assert text[begin:end] == text
    longer = f"Thanks, that helps. {text}\nHow far is it to Bern?"
    [(begin, end)] = find(longer)
    assert text.rstrip(".") in longer[begin:end]


@pytest.mark.parametrize("text", PASSING)
def test_what_does_not_hold_from_then_on_is_not_found(text):
    assert find(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I'm new, and I prefer simple tools, can you suggest some?", "I prefer simple tools"),
        (
            "I may add a few short clips to the front of my page like I prefer, but I'm not sure.",
            "I may add a few short clips to the front of my page like I prefer",
        ),
        (
            "I prefer comparing two ways to see which is faster, so how do they compare?",
            "I prefer comparing two ways to see which is faster",
        ),
        ("Yeah, since I'm vegetarian I cook with tofu.", "since I'm vegetarian I cook with tofu."),
        ("I bake a lot because I'm vegetarian.", "I bake a lot because I'm vegetarian."),
        ("Since I'm vegetarian, can you suggest a soup? Thanks!", "Since I'm vegetarian"),
        ("I've chosen to keep the old boiler.", "I've chosen to keep the old boiler."),
        ("I'm looking for shoes with wide soles.", "I'm looking for shoes with wide soles."),
    ],
)
def test_a_preference_is_a_whole_statement_and_ends_where_a_question_begins(text, said):
    """Broken, "I prefer" or "I'm vegetarian I cook" is what the user is said to have said."""
    [(begin, end)] = find(text)
    assert said in text[begin:end]
    assert "?" not in text[begin:end]


def test_a_list_that_is_announced_is_read_and_a_document_only_at_its_ends():
    found = find("My rules:\n- Always answer in French\n- Never use emojis")
    assert len(found) == 2
    filler = "The committee met in the old hall and spoke of drains.\n" * 60
    assert find(filler + "Always use the front door.\n" + filler) == []
    assert len(find("Always answer in French.\n" + filler)) == 1
    assert len(find(filler * 9 + "Always answer in French.")) == 1


@given(st.text(max_size=300))
def test_every_text_is_read_and_the_places_are_in_it(text):
    for begin, end in find(text + " Always answer in metric."):
        assert 0 <= begin < end <= len(text) + 25


def test_in_every_phrase_of_a_wish_is_a_cue(monkeypatch):
    """Broken, a phrase of the lists is never found: a text without a cue is not looked at."""
    lists = word_lists("wish_words")

    def example(name):
        words = sorted(lists.get(name.lower()) or lists.get(f"{name.lower()}s") or [name.title()])
        return "" if name == "SOME" else words[0]

    texts = [
        re.sub("[A-Z]+", lambda part: example(part[0]), phrase).replace("*", " it ").strip() + more
        for name in ("commands", "preferences", "elsewhere")
        for phrase in sorted(lists[name])
        for more in ("", ".", " metric units.")
    ]
    found = [find(text) for text in texts]
    assert sum(map(bool, found)) > len(texts) // 2
    monkeypatch.setattr(wishes, "_has_cue", lambda _: True)
    assert [text for text, places in zip(texts, found, strict=True) if find(text) != places] == []


@pytest.mark.parametrize(
    "part", ["always ", "<a>", '"', "call me ", "when i ask ", "i prefer ", "[[hiermem "]
)
def test_a_hostile_text_is_read_in_linear_time(part):
    assert is_linear(lambda size: repeated(part, size) + "always use x", find, size=20_000)


def test_only_the_user_has_wishes_and_an_application_has_the_last_word():
    text = "Always answer in metric."
    assert flags_of(Message.user(text), ("late",)) == ("late", PIN, WISH)
    assert flags_of(Message.user(text), (WITHDRAWN,)) == (WITHDRAWN,)
    assert flags_of(Message.user("Hello."), (PIN,)) == (PIN,)
    assert without_flags(("late", PIN, WISH, WITHDRAWN)) == ("late",)
    for message in (
        Message.assistant(text),
        Message.system(text),
        Message.tool(text, tool_call_id="c"),
        Message.user("Hello."),
    ):
        assert flags_of(message, (PIN, WISH, "late")) == ("late",)
