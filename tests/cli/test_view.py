"""The command that writes a memory as a page."""

import json
from functools import partial

import pytest
from commands import run

from hiermem import Memory, Message


@pytest.fixture
def view(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Memory.open("hiermem.db") as memory:
        memory.session("trip", title="A trip").append(Message.user("We go to Lisbon."))
        memory.session("house").append(Message.user("The boiler is loud."))

    return partial(run, "view")


def test_all_sessions_or_one_are_written(view, tmp_path):
    view()
    page = (tmp_path / "memory.html").read_text(encoding="utf-8")
    assert '"id":"trip"' in page
    assert '"id":"house"' in page
    found = view("trip", "-o", "trip.html", "--json")
    page = (tmp_path / "trip.html").read_text(encoding="utf-8")
    assert '"id":"house"' not in page
    size = (tmp_path / "trip.html").stat().st_size
    assert json.loads(found.stdout) == {"session_id": "trip", "file": "trip.html", "bytes": size}
    assert "does not exist" in view("trap", code=1).output


def test_a_page_is_replaced_and_another_file_is_not(view, tmp_path):
    view()
    view("--no-text")
    assert "A trip" not in (tmp_path / "memory.html").read_text(encoding="utf-8")
    view("-o", str(tmp_path / "none" / "a.html"), code=2)
    view("-o", str(tmp_path), code=2)
    page = (tmp_path / "memory.html").read_text(encoding="utf-8")
    mark = '<meta name="generator" content="hiermem view">'
    for letter in (
        "<p>Dear",
        "",
        f"<p>Its head says {mark}",
        f"<!-- {mark} -->\n<!doctype html>\n<html><head></head><body>mine",
        f"<!doctype html>\n<html lang='en'>\n<head>\n{mark}\n</head><body>mine",
        f"<!doctype html>\n<html>\n<head>\n<title>{mark}</title></head><body>mine",
        f"My notes\n\n{page}",
        f" {page}",
        page.replace("<head>", "<head><!-- mine -->"),
    ):
        (tmp_path / "letter.html").write_text(letter, encoding="utf-8")
        assert "no page of" in view("-o", "letter.html", code=2).output
        assert (tmp_path / "letter.html").read_text(encoding="utf-8") == letter
    view("-o", "letter.html", "--overwrite")
    assert mark in (tmp_path / "letter.html").read_text(encoding="utf-8")


def test_a_page_shows_the_contexts_for_a_question(view, tmp_path):
    view("trip", "-q", "Lisbon?")
    assert '"query":"Lisbon?"' in (tmp_path / "memory.html").read_text(encoding="utf-8")
