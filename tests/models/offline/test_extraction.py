"""The offline extraction: what it finds in plain conversations, and what it must not make up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear, repeated
from sampling import drawn, params

from hiermem.calls.answers import parse
from hiermem.extraction.chunks import Measured, plan, turns
from hiermem.extraction.reduce import finish, ground
from hiermem.models.offline.graph import extract, write
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.protocols import LLMRequest, SourceText
from hiermem.tokens import ApproximateCounter, default_counter
from hiermem.types.trivector import Answer, AnswerEntity

COUNT = default_counter().count
Row = tuple[str, str]
#: What the text policy lets into a message.
HELD = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")


def said(*rows: Row) -> list[SourceText]:
    roles = {"User": "user", "Assistant": "assistant", "Tool": "tool", "System": "system"}
    return [
        SourceText(index, roles.get(who, "user"), who, "2024-03-15", text)
        for index, (who, text) in enumerate(rows)
    ]


def read(*rows: Row, max_tokens: int = 8000) -> Answer:
    return extract(said(*rows), max_tokens=max_tokens, count=COUNT)


def named(answer: Answer) -> dict[str, str]:
    return {each.name: each.type for each in answer.entities}


CODE = (
    ("User", "I'm Corin. I'm using Flask 3.0.2 with SQLite for the stall ledger in `app.py`."),
    ("Assistant", ("Put `create_user()` in `app.py`.\n```python\n# app.py\nclass Account(Base):\n"
     "    pass\ndef create_user(name):\n    return Account(name)\n```")),
    ("User", "The `create_user()` call in app.py takes 320 ms and the deadline is April 15, 2024."),
    ("Assistant", "Add an index."),
    ("User", "I've decided to switch from SQLite to PostgreSQL. I still need to write the docs."),
)  # fmt: skip


def test_names_get_the_types_that_their_form_tells() -> None:
    found = named(read(*CODE))
    assert found["Flask"] == "technology"
    assert found["app.py"] == "file"
    assert found["create_user"] == "function"
    assert found["April 15, 2024"] == "date"
    assert found["Corin"] == "person"


def test_decisions_and_open_work_are_found() -> None:
    answer = read(*CODE)
    assert any(each.kind == "decision" and "PostgreSQL" in each.text for each in answer.strategy)
    assert any(each.kind == "milestone" and "April 15" in each.text for each in answer.strategy)
    assert any(each.open and "write the docs" in each.text for each in answer.deltas)


def test_nothing_is_closed_and_nothing_is_related() -> None:
    """What words alone do not prove is left to a model: seven in ten relations were right."""
    answer = read(
        ("User", "I still need to migrate the orders table to Postgres."),
        ("Assistant", "Use pg_dump."),
        ("User", "I've finished migrating the orders table to Postgres, which replaces SQLite."),
    )
    assert [each.open for each in answer.deltas] == [True]
    assert not read(*CODE).relations
    assert not answer.relations


def test_a_question_is_open_only_where_nobody_answered_it() -> None:
    answered = read(("User", "Which port does the staging server use?"), ("Assistant", "8080."))
    assert not answered.deltas
    last = read(("Ana", "We met the vendor."), ("Bea", "Which discount did the vendor offer us?"))
    assert [(each.kind, each.open) for each in last.deltas] == [("question", True)]
    put_off = read(
        ("Ana", "Which discount did the vendor offer us?"), ("Bea", "Not sure yet, I'll check it.")
    )
    assert any(each.kind == "question" and each.open for each in put_off.deltas)
    polite = read(("Ana", "It rained."), ("Bea", "Oh no! How are you?"))
    assert not polite.deltas


def test_marks_of_work_to_do_are_found_in_any_language() -> None:
    answer = read(
        ("Ana", "- [ ] подписать договор\n- [x] отправить счёт"), ("Bea", "TODO: 契約書を確認する"),
    )  # fmt: skip
    assert [each.text for each in answer.deltas] == ["契約書を確認する", "подписать договор"]


def test_an_assistants_advice_is_neither_a_task_nor_a_decision() -> None:
    answer = read(
        ("User", "How do I deploy?"),
        ("Assistant", ("You need to install Docker. We should use Kubernetes. Always pin versions. "
         "I'll help you write the files. You must set at least 3 replicas.")),
    )  # fmt: skip
    assert not answer.deltas
    assert not answer.strategy


def test_people_who_speak_are_entities_and_do_what_they_say() -> None:
    answer = read(
        ("Katrin", "Hey Mad! Yesterday I went to the lantern parade."),
        ("Madlen", "Wow, Katrin! I love the painting."),
        ("Katrin", "Thanks Mad. The lantern parade was in Sweden. I visited Sweden in May."),
        ("Madlen", "That lantern parade sounds great. The lantern parade is in June here."),
    )
    found = named(answer)
    assert found["Katrin"] == found["Madlen"] == "person"
    assert "Mad" not in found
    assert found["Sweden"] == "place"


def test_words_that_are_no_names_make_no_entities() -> None:
    answer = read(
        ("User", "Hello! Thanks, that was great. Today is Monday. Sure, I agree. Maybe later."),
        ("Assistant", "Certainly! However, first Install it. Next, Run it. Finally, Enjoy."),
    )
    assert named(answer) == {}


def test_what_only_a_program_prints_or_the_system_says_is_no_entity() -> None:
    answer = read(
        ("System", "You are HAL. Always use Fortran in main.for. TODO: obey."),
        ("User", "List the folder."),
        ("Tool", "AUTHORS.rst LICENSE setup.cfg tox.ini\nclass Hidden:\n"),
    )
    assert named(answer) == {}
    assert not answer.deltas
    assert not answer.strategy


@pytest.mark.parametrize("limit", [0, 40, 150, 400, 1500])
def test_an_answer_keeps_to_its_tokens_and_is_valid(limit: int) -> None:
    answer = read(*CODE * 5, max_tokens=limit)
    assert COUNT(write(answer)) <= max(limit, 40)
    assert parse(write(answer)).answer == answer


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Ana", "User", "Assistant", "Tool"]),
            st.text(HELD, max_size=120)
            | st.lists(
                st.sampled_from(
                    ["I'll", "Ana", "app.py", "`f()`", "3 ms", "```", "def f():", "TODO:", "?", ".",
                     "\n", "- [ ]", "uses", "Flask", "2.3", "decided", "not sure", "fixed", "漢字"]
                ), max_size=30,
            ).map(" ".join),
        ), max_size=8,
    ), st.integers(40, 600),
)  # fmt: skip
@drawn(150)
def test_whatever_is_said_the_answer_is_valid_bounded_and_the_same_again(
    rows: list[Row], limit: int
) -> None:
    answer = read(*rows, max_tokens=limit)
    assert COUNT(write(answer)) <= limit
    assert parse(write(answer)).answer == answer == read(*rows, max_tokens=limit)


FAMILIES = {
    "prose": "Ana told Bea that Flask 2.3 uses SQLite in app.py and takes 20 ms. ",
    "one letter": "a", "brackets": "`[(\"'", "capitals": "Anna Bella Carla ",
    "lines": "- [ ] do it\n",
    "code": "```python\n# a/b.py\nclass Foo(Bar):\n    def baz(self): pass\n```\n",
    "paths": "a/b.c/", "digits": "1,234.5 ", "marks": "TODO TODO: ", "stars": "**a**",
    "done": "Done. ", "put off": "Which port does server 4 use? Not sure yet. ",
    "open points": "Open point 5: the farm is shut. (6) the yard. ",
    "promises": "I'll send the letter to the farm tomorrow. ",
}  # fmt: skip


@pytest.mark.parametrize("family", params(FAMILIES, 2))
def test_extracting_is_linear(family: str) -> None:
    count = ApproximateCounter().count

    def sources(size: int) -> list[SourceText]:
        text = repeated(FAMILIES[family], size)
        return said(*((("Ana", text[at : at + 1000])) for at in range(0, size, 1000)))

    assert is_linear(
        sources, lambda given: extract(given, max_tokens=2000, count=count), size=12_000, slack=0.05
    )


@pytest.mark.parametrize("family", params(FAMILIES, 2))
def test_one_long_message_is_read_in_linear_time(family: str) -> None:
    count = ApproximateCounter().count
    assert is_linear(
        lambda size: said(("User", repeated(FAMILIES[family], size))),
        lambda given: extract(given, max_tokens=2000, count=count),
        size=12_000,
        slack=0.05,
    )


async def test_the_offline_model_answers_the_request_with_json_within_its_limit() -> None:
    request = LLMRequest(
        task="extract", messages=(), inputs=tuple(said(*CODE)), target_tokens=600, max_tokens=600,
        counter=default_counter(),
    )  # fmt: skip
    response = await ExtractiveLLM().complete(request)
    assert response.finish_reason == "stop"
    assert COUNT(response.text) <= 600
    assert parse(response.text).answer.entities


def test_bold_words_inside_a_sentence_leave_its_words_as_they_are() -> None:
    answer = read(("User", "I've decided that **SQLite** stays the default store for now."))
    assert [each.text for each in answer.strategy] == [
        "I've decided that SQLite stays the default store for now."
    ]


def test_entities_are_ranked_by_the_messages_that_name_them() -> None:
    """Not by runs of messages, nor by as many as an answer used to hold."""
    rows = [("User", f"Redis stores batch {at} of the queue.") for at in range(40)]
    rows += [("User", "Kafka is slow."), ("User", "It rains."), ("User", "Kafka is up again.")] * 4
    sources = said(*rows)
    answer = extract(sources, max_tokens=8000, count=COUNT)
    [redis] = [each for each in answer.entities if each.name == "Redis"]
    assert redis.messages == tuple(range(40))
    stored = tuple(Measured(at, "main", "user", 8, str(at)) for at in range(len(sources)))
    [chunk] = plan("s", turns(stored), limit=None)
    names = [each.name for each in finish(ground(answer, chunk), summary="").entities]
    assert names.index("Redis") < names.index("Kafka")


def test_an_entity_whose_messages_nobody_told_does_not_come_first() -> None:
    stored = tuple(Measured(at, "main", "user", 8, str(at)) for at in range(50))
    [chunk] = plan("s", turns(stored), limit=None)
    answer = Answer(summary="", entities=(
        AnswerEntity(type="concept", name="anything", confidence=0.5),
        AnswerEntity(type="person", name="Ana", confidence=0.5, messages=(3, 4)),
    ))  # fmt: skip
    graph = ground(answer, chunk)
    assert [each.name for each in finish(graph, summary="").entities] == ["Ana", "anything"]


def test_places_give_way_before_entities_where_tokens_are_short() -> None:
    rows = [("User", f"Redis and Flask and SQLite failed in run {at} today.") for at in range(60)]
    wide, narrow = read(*rows, max_tokens=8000), read(*rows, max_tokens=900)
    assert max(len(each.messages) for each in wide.entities) == 60
    assert {"Redis", "Flask", "SQLite"} <= set(named(narrow))
    assert COUNT(write(narrow)) <= 900


def test_the_only_open_item_outlasts_the_first_entities_that_are_dropped() -> None:
    """Broken if an answer that is a little too long lost its one open item at once."""
    rows = [("user", f"Ask the Harbour Office {n}x of Port Azure{n} today.") for n in range(60)]
    rows += [("user", "TODO: renew the mooring contract.")]
    whole = read(*rows, max_tokens=100_000)
    cut = read(*rows, max_tokens=COUNT(write(whole)) // 2)
    assert len(whole.deltas) == len(cut.deltas) == 1
    assert 0 < len(cut.entities) < len(whole.entities)


def test_the_example_of_the_documentation_holds_a_promise_of_the_assistant() -> None:
    answer = read(
        ("User", "We use SQLite in src/store.py. Can you add a retry to connect_db()?"),
        ("Assistant", "I will add it tomorrow. We decided to keep SQLite: it is one file."),
    )
    assert [(each.kind, each.text) for each in answer.deltas] == [
        ("promise", "I will add it tomorrow.")
    ]
    assert [(each.kind, each.text) for each in answer.strategy] == [
        ("decision", "We decided to keep SQLite: it is one file.")
    ]


def test_a_name_is_one_however_its_letters_are_spelt() -> None:
    composed, parted = "Jos\u00e9 N\u00fa\u00f1ez", "Jose\u0301 Nu\u0301n\u0303ez"
    answer = read(
        ("Ana", f"I met {composed} at work. We use SQLite."),
        ("Bea", f"I know {parted} too. We use \uff33\uff31\uff2c\uff49\uff54\uff45 as well."),
        ("Ana", f"I will ask {parted} about it."),
    )
    met = {each.name: each.messages for each in answer.entities}
    assert met[composed] == (0, 1, 2)
    assert met["SQLite"] == (0, 1)
    assert parted not in met


@pytest.mark.parametrize("who", ["User", "Assistant", "Ada"])
def test_what_we_decided_is_a_decision_whoever_says_so(who: str) -> None:
    answer = read(("User", "Where do the rows go?"), (who, "We decided to keep SQLite."))
    assert [(each.kind, each.text, each.messages) for each in answer.strategy] == [
        ("decision", "We decided to keep SQLite.", (1,))
    ]


@pytest.mark.parametrize(
    "text",
    [
        'Here is a draft: "We decided to move to Berlin with all of it."',
        "You decided to move to Berlin with all of it.",
        "Have we decided to move to Berlin with all of it?",
        "You could say so once we have decided on it, if you like Berlin better.",
        "We have not decided on Berlin with all of it.",
        "I went to Berlin and I picked up a few recipes there.",
    ],
)
def test_drafts_offers_and_what_others_decided_are_no_decision_of_an_assistant(text: str) -> None:
    assert read(("User", "Where to?"), ("Assistant", text)).strategy == ()


def test_an_order_is_no_part_of_the_name_behind_it() -> None:
    found = named(read(("User", "Replace Flask with Django."), ("User", "Flask is slow.")))
    assert found["Flask"] == "technology"
    assert "Replace Flask" not in found
