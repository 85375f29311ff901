"""How the offline extraction relates things: by what is told to be so, not by what is asked for."""

from __future__ import annotations

import pytest

from hiermem.models.offline.extraction.offline import extract
from hiermem.protocols import SourceText
from hiermem.tokens import default_counter
from hiermem.types import Role

COUNT = default_counter().count


def related(*rows: tuple[str, str]) -> set[tuple[str, str, str]]:
    """Give the relations of a conversation, without those that only share a sentence."""
    roles: dict[str, Role] = {"Assistant": "assistant"}
    sources = [
        SourceText(index, roles.get(who, "user"), who, "2024-03-15", text)
        for index, (who, text) in enumerate(rows)
    ]
    answer = extract(sources, max_tokens=8000, count=COUNT)
    return {(each.source.name, each.relation, each.target.name) for each in answer.relations}


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("Ada wrote src/store.py.", ("Ada", "works_on", "src/store.py")),
        ("Ada has just built the src/store.py.", ("Ada", "works_on", "src/store.py")),
        ("src/store.py was written by Ada.", ("Ada", "works_on", "src/store.py")),
        ("Ada said that Bob wrote src/store.py.", ("Bob", "works_on", "src/store.py")),
        ("Ada uses PostgreSQL.", ("Ada", "uses", "PostgreSQL")),
        ("We use SQLite in src/store.py.", ("src/store.py", "uses", "SQLite")),
        ("Ada works at Initech.", ("Ada", "works_at", "Initech")),
        ("Bob, who works for Acme Corp, is ill.", ("Bob", "works_at", "Acme Corp")),
        ("I work at Initech.", ("Zoe", "works_at", "Initech")),
        ("Flask relies on Werkzeug.", ("Flask", "depends_on", "Werkzeug")),
        ("I decided on SQLite.", ("Zoe", "decided_for", "SQLite")),
        ("I've decided to go with SQLite.", ("Zoe", "decided_for", "SQLite")),
    ],
)
def test_a_statement_relates_what_it_names(text: str, relation: tuple[str, str, str]) -> None:
    assert relation in related(("Zoe", text))


@pytest.mark.parametrize(
    "text",
    [
        "Run src/build.sh with Docker.",
        "Replace `Flask` with `Quart` in your code.",
        "1. Install Docker. 2. Use nginx with Gunicorn.",
        "Error handling: Use Sentry with Netlify.",
        "Please start nginx with Docker.",
        "You should use Docker with nginx.",
        "To deploy, run Docker with nginx.",
        "To integrate nginx with Docker, a file is needed.",
        "Customize Docker to work with nginx.",
        "Never use MySQL with Django.",
        "Let's set up Docker with nginx.",
        "Can you show me how Docker works with nginx?",
        "Does Flask depend on anything, or is Flask based on Werkzeug?",
        "If Ada wrote src/store.py, we are lost.",
        "Maybe Ada wrote src/store.py?",
    ],
)
def test_orders_requests_and_questions_relate_nothing(text: str) -> None:
    assert related(("User", text)) == set()


def test_a_statement_with_a_request_around_it_still_counts() -> None:
    text = "Can you help me with this, I'm using Flask with Redis, please?"
    assert ("Flask", "used_with", "Redis") in related(("User", text))
    text = "I'm using Flask with Redis, can you help me?"
    assert ("Flask", "used_with", "Redis") in related(("User", text))


def test_an_order_still_tells_when_something_is_due() -> None:
    [due] = [
        each
        for each in related(("Zoe", "Please finish app.py by April 15, 2024."))
        if each[2] == "April 15, 2024"
    ]
    assert due[:2] == ("app.py", "due_on")


@pytest.mark.parametrize(
    "text",
    [
        "I chose them because they help LGBTQ folks.",
        "I've decided to work with the LGBTQ community.",
    ],
)
def test_what_stands_somewhere_behind_a_decision_is_not_what_was_decided_for(text: str) -> None:
    rows = [("Zoe", text), ("Bob", "The LGBTQ center is great."), ("Zoe", "The LGBTQ group too.")]
    assert not [each for each in related(*rows) if each[1] == "decided_for"]


def test_who_would_like_something_does_not_like_it_yet() -> None:
    assert ("Zoe", "likes", "Paris") in related(("Zoe", "I like Paris."))
    assert ("Zoe", "likes", "Paris") not in related(("Zoe", "I'd like to see Paris."))
