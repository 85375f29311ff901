"""The newest turns, as they are counted from the end."""

from datetime import UTC, datetime

import pytest

from hiermem.context.render import Shown, newest, pieces_of
from hiermem.types import Message, StoredMessage


def pieces(roles):
    at = datetime(2024, 3, 1, tzinfo=UTC)
    names = {"u": "user", "a": "assistant", "s": "system"}
    found = []
    for index, role in enumerate(roles):
        said = "" if role == "." else "said"
        message = Message(names.get(role, "user"), said, created_at=at)
        found.append(Shown(StoredMessage(index, message, tokens=9, size=9, hash="h")))
    return pieces_of(found)


@pytest.mark.parametrize(
    ("roles", "turns", "number"),
    [
        ("uauaua", 1, 2), ("uauaua", 2, 4), ("uauauau", 1, 1), ("uauauau", 2, 3), ("uauuaa", 1, 4),
        ("uaaa", 5, 4), ("a", 2, 1), ("uuuuuu", 1, 2), ("uuuuuu", 2, 4), ("uuu", 2, 3),
        ("uuuuu.", 1, 3), ("", 1, 1),
    ],
)  # fmt: skip
def test_a_turn_is_what_follows_a_user_and_two_messages_where_only_users_speak(
    roles, turns, number
):
    assert newest(pieces(roles), turns) == number
