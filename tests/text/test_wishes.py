"""Standing wishes are known by cue words, in the user's own words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear, repeated

from hiermem import Message
from hiermem.data import word_lists
from hiermem.text.wishes import (
    IN_PHRASES,
    PIN,
    WISH,
    WITHDRAWN,
    _has_cue,
    find,
    flags_of,
    wishes_in,
    without_flags,
)

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
    "Remember to always use metric",
    "Keep in mind I'm allergic to nuts.",
    "If I ask about flights, always list prices first.",
    "For all answers, use British spelling.",
    "Keep your answers short.",
    "I don't like long answers.",
    "Ask me before you delete anything.",
    "I'd rather not use third-party libraries.",
    "I prioritize clear communication",
    "I'm more comfortable with Python.",
    "Bitte antworte immer auf Deutsch",
    "Ab jetzt antworte auf Deutsch.",
    "Désormais, réponds en français",
    "A partir de ahora responde en español.",
    "今後は日本語で答えてください",
]

#: What takes back or replaces an earlier wish: it has to stand beside it.
WITHDRAWALS = [
    "Stop using bullet points.",
    "No more bullet points, please.",
    "You can stop using bullet points now",
    "You don't need to use metric any more.",
    "You don't have to answer in French anymore.",
    "You no longer need to cite sources.",
    "There's no need to cite sources any more.",
    "I don't want bullet points any more.",
    "I no longer prefer tea.",
    "I'm no longer vegetarian",
    "Actually never use tables.",
    "On second thought, always answer in English.",
    "From now on you can use emojis.",
    "Instead of metric, use imperial units from now on.",
    "Please answer in English again",
    "Go back to using imperial units.",
    "Forget what I said about metric.",
    "Ignore my earlier instructions about tables.",
    "I've changed my mind about the bullet points: use plain paragraphs.",
    "Bitte nicht mehr auf Französisch antworten.",
    "Hör auf, Emojis zu benutzen.",
    "Arrête de répondre en anglais",
    "N'utilise plus d'emojis.",
    "Deja de usar emojis.",
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
    "I like my new job.",
    "I like your answers.",
    "I don't like the code.",
    "I hate it when you can't use the car.",
    "It isn't laid out as I prefer.",
    "Nobody can do it like I prefer",
    "I prefer these explanations to be in a list?",
    "I'd rather not say.",
    "Don't do that again!",
    "You don't need to do that any more.",
    "Stop saying that!",
    "Forget it.",
    "I changed my mind",
    "Go back to the second version.",
    "No more than five.",
    "I no longer work there.",
]


@pytest.mark.parametrize("text", [*STANDING, *WITHDRAWALS])
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
        ("I'm vegetarian, can you suggest a soup? Thanks!", "I'm vegetarian"),
        ("Can you draw it, given my preference for short paths?", "my preference for short paths"),
        ("I've chosen to keep the old boiler.", "I've chosen to keep the old boiler."),
        ("I'm looking for shoes with wide soles.", "I'm looking for shoes with wide soles."),
    ],
)
def test_a_preference_is_a_whole_statement_and_ends_where_a_question_begins(text, said):
    """Broken, "I prefer" or "I'm vegetarian I cook" is what the user is said to have said."""
    [(begin, end)] = find(text)
    assert said in text[begin:end]
    assert "?" not in text[begin:end]


def test_what_a_user_says_behind_code_that_was_announced_is_read():
    """Broken, a wish is lost wherever a user pastes code above it."""
    code = "Here is my code:\n\n```python\nAlways = 1\n```\nI prefer short names."
    assert wishes_in(code) == ("I prefer short names.",)
    assert wishes_in("Here is the mail:\n\nAlways use the back door.\n\nI prefer tea.") == ()


def test_each_phrase_of_the_data_has_a_cue():
    """Broken, the phrase is never found: a text without a cue is not looked at."""
    lists = word_lists("wish_words")
    names = {name.upper(): sorted(lists[name]) for name in IN_PHRASES}
    names |= {"SOME": ["", "long "], "NAME": ["Ada"], "*": [" x"]}
    place = re.compile("|".join(map(re.escape, names)))
    for phrase in sorted(lists["commands"] | lists["preferences"] | lists["elsewhere"]):
        # Each member of each list once.
        for number in range(max(len(names[name]) for name in place.findall(phrase) or ["*"])):
            said = place.sub(lambda at, n=number: names[at[0]][n % len(names[at[0]])], phrase)
            assert _has_cue(said.lower()), said


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
