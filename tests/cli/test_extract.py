"""The command ``extract``: its result alone on standard output, as a table, JSON or a graph."""

import json
import re
from dataclasses import fields, replace

import pytest
from commands import run

from hiermem import Memory, Session
from hiermem.types import ChunkReport, ExtractionReport, Failure, TriVector
from hiermem.types.trivector import Delta, Provenance, Strategy


@pytest.fixture
def db(tmp_path):
    """A memory of one conversation, with a terminal escape in the name of a file."""
    lines = []
    for n in range(20):
        lines += [
            {"role": "user", "content": f"Ada, can you fix parse_{n}() in src/module_{n}.py? "
             f"We use SQLite and it takes {n + 3} ms. red\x1b[31m\u202e_file.py"},
            {"role": "assistant", "content": f"I will fix parse_{n}() tomorrow. We decided to "
             "keep SQLite because it is one file."},
        ]  # fmt: skip
    talk = tmp_path / "talk.jsonl"
    talk.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    path = tmp_path / "memory.db"
    run("import", talk, "--session", "talk", "--db", path)
    return path


def test_the_table_shows_each_vector(db):
    said = run("extract", "--db", db).stdout
    assert re.search(r"session +talk\noutcome +ok", said)
    assert re.search(r"(?m)^entities, 20 of \d+$", said)
    assert "SQLite" in said
    assert re.search(r"model +extractive", said)
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_json_is_the_whole_result_and_a_second_run_makes_no_call(db):
    found = json.loads(run("extract", "--db", db, "--json").stdout)
    assert found["outcome"] == "ok"
    assert found["live"] is False
    assert found["kept"] is True
    assert {each.name for each in fields(ExtractionReport)} <= set(found)
    (chunk,) = found["chunks"]
    assert {each.name for each in fields(ChunkReport)} == set(chunk)
    assert chunk["calls"] == found["map"]["calls"] == found["calls"] == 1
    assert found["map"]["state"] == found["reduce"]["state"] == "ok"
    with Memory.open(db) as memory:
        vector = memory.session("talk").tri_vector()
        assert vector.model_dump(mode="json") == found["tri_vector"]
        assert memory.graph.entity("sqlite").name == "SQLite"
        assert memory.graph.mentions("SQLite")
        memory.graph.neighbours("SQLite")
    assert json.loads(run("extract", "--db", db, "--json").stdout)["calls"] == 0


def test_a_long_session_is_chunked_with_a_limit(db):
    limits = ("--safe-processing-tokens", 3400, "--output-tokens", 512)
    found = json.loads(run("extract", "--db", db, *limits, "--json").stdout)
    assert found["chunked"]
    ids = [chunk["id"] for chunk in found["chunks"]]
    assert ids == [f"talk:chunk:{n}" for n in range(len(ids))]


def test_what_ended_it_goes_to_standard_error_and_a_stop_is_code_3(db):
    result = run("extract", "--db", db, "--max-calls", 0, code=3)
    assert "stopped by max_calls" in result.stderr


def test_what_is_refused_is_called_by_its_flag(db):
    limited = ("extract", "--db", db, "--safe-processing-tokens")
    refused = run(*limited, 100, code=2)
    assert refused.stdout == ""
    assert "safe_processing_tokens is 100" in refused.stderr
    assert "output_tokens" in refused.stderr
    failed = run(*limited, 2960, "--output-tokens", 1000, code=1)
    assert "oversized='slice'" in failed.stderr


def test_many_failures_do_not_flood_the_terminal(db, monkeypatch):
    with Memory.open(db) as memory:
        report = memory.session("talk").extract()
    failures = tuple(Failure(f"talk:chunk:{n}", "map", "timeout", 1) for n in range(500))
    missing = tuple(each.id for each in failures)
    found = replace(report, failures=failures, tri_vector=TriVector(summary="", missing=missing))
    monkeypatch.setattr(Session, "extract", lambda *_, **__: found)
    result = run("extract", "--db", db)
    told = result.stderr.splitlines()
    assert told[0] == "failed: id talk:chunk:0, phase map, reason timeout, attempts 1"
    assert told[-1] == "failed: 480 more; --json lists all of them"
    assert len(told) == 21
    assert "missing   talk:chunk:0, talk:chunk:1, " in result.stdout
    assert "and 480 more" in result.stdout


def test_a_graph_is_written_for_other_tools_and_not_as_json(db):
    """It would be written in the one notation or the other, and silently so."""
    drawn = run("extract", "--db", db, "--graph", "mermaid").stdout
    assert drawn.startswith("flowchart LR\n")
    refused = run("extract", "--db", db, "--graph", "mermaid", "--json", code=2)
    assert refused.stdout == ""
    assert "--json" in refused.stderr


def test_the_table_shows_the_newest_of_what_it_cuts_off(db, monkeypatch):
    """With --most the last decisions and open ends are shown: what was said last holds."""
    with Memory.open(db) as memory:
        report = memory.session("talk").extract()
    place = (Provenance(chunk="talk:chunk:0", start=0, stop=1),)
    vector = TriVector(
        summary="s",
        strategy=tuple(Strategy(kind="decision", text=f"d{n}", provenance=place) for n in range(9)),
        deltas=tuple(
            Delta(kind="task", text=f"t{n}", open=n != 8, provenance=place) for n in range(9)
        ),
    )
    found = replace(report, tri_vector=vector)
    monkeypatch.setattr(Session, "extract", lambda *_, **__: found)
    said = run("extract", "--db", db, "--most", 2).stdout
    assert re.search(r"strategy, 2 of 9\nkind +text\ndecision +d8 *\ndecision +d7 *\n", said)
    deltas = r"deltas, 2 of 9\nopen +kind +text *\n *yes +task +t7 *\n *yes +task +t6"
    assert re.search(deltas, said)
