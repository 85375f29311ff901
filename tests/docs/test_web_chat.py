"""The example of a chat with several users and conversations, over HTTP."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from scripts import free_port, wait_for

pytest.importorskip("fastapi")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def client(tmp_path):
    """Return a client of the example, which is served from a file of this test."""
    port = free_port()
    words = [sys.executable, "-m", "uvicorn", "web_chat:app", "--app-dir", EXAMPLES]
    server = subprocess.Popen(
        [*words, "--port", str(port), "--log-level", "warning"],
        env={**os.environ, "CHAT_DB": str(tmp_path / "chat.db")},
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as opened:
        wait_for(port)
        yield opened
    server.terminate()
    assert server.wait(20) in (0, -15)


def say(client, user, chat, text, number="1"):
    given = {"id": f"{chat}-{number}", "text": text}
    response = client.post(f"/chats/{chat}", json=given, headers={"X-User": user})
    assert response.status_code == 200, response.text
    return response.json()["answer"]


def test_a_user_is_known_in_the_next_conversation_and_to_nobody_else(client):
    """Broken, an application built after the example forgets its users or mixes them up."""
    say(client, "ada", "may", "Always answer in metric units. My locker is 4711.")
    answer = say(client, "ada", "july", "How far is it?")
    assert "Always answer in metric units." in answer
    assert say(client, "ada", "july", "How far is it?") == answer, "a repeated request"
    assert "metric" not in say(client, "ben", "may", "How far is it? What is the locker?")
    of = {"headers": {"X-User": "ada"}}
    assert client.get("/chats", **of).json() == ["july", "may"]
    known = client.get("/known", params={"about": "locker"}, **of).json()
    assert "Always answer in metric units. My locker is 4711." in known
    gone = client.delete("/known", params={"text": "locker"}, **of).json()
    assert "4711" in str(gone["forgotten"])
    assert "4711" not in client.get("/known", params={"about": "locker"}, **of).text
    assert client.get("/known").status_code == 422
    bad = client.post("/chats/may", json={"id": "x", "text": "a\0b"}, **of)
    assert bad.status_code == 400
    assert "NUL" in bad.text
