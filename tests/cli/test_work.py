"""The commands over all tenants: a process that works until it is ended, and one that goes once."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from hiermem import Memory, Message
from hiermem.cli.app import app
from hiermem.types import Worker


@pytest.fixture
def db(tmp_path):
    """A file with sessions of three tenants, of which nothing is summarised."""
    path = tmp_path / "m.db"
    with Memory.open(path) as memory:
        for tenant in ("a", "b", "c"):
            session = memory.for_tenant(tenant).session("s")
            session.append(
                Message.user(f"{tenant}: the refund of order {n} was {n}.50 EUR " * 20)
                for n in range(30)
            )
            session.flush()
    return path


def left(path):
    with Memory.open(path) as memory:
        states = {name: memory.for_tenant(name).session("s").status() for name in memory.tenants()}
    return [name for name, state in states.items() if any(state.unfinished.values())]


@pytest.mark.thorough
def test_it_works_for_all_tenants_until_it_is_ended(db):
    """Ended by the signal that a service manager sends, it gives back what it holds."""
    assert left(db) == ["a", "b", "c"]
    command = [sys.executable, "-m", "hiermem", "work", "--db", str(db), "--poll", "0.1"]
    worker = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        end = time.monotonic() + 60
        while left(db) and time.monotonic() < end:
            time.sleep(0.2)
        worker.send_signal(signal.SIGTERM)
        shown, hints = worker.communicate(timeout=30)
    finally:
        worker.kill()
    assert worker.returncode == 0, hints
    assert "turns: made " in shown
    assert "working for all tenants" in hints
    assert left(db) == []


def test_work_that_a_cap_stops_is_continued_by_the_same_command(db):
    runner = CliRunner()
    command = ["work", "--once", "--db", str(db), "--json"]
    first = runner.invoke(app, [*command, "--max-calls", "0"])
    assert (first.exit_code, json.loads(first.stdout)["stopped"]) == (3, "max_calls")
    assert left(db) == ["a", "b", "c"]
    assert runner.invoke(app, command).exit_code == 0
    assert left(db) == []


def test_work_that_fails_ends_as_an_update_does(db, monkeypatch):
    """Broken, a scheduled ``work --once`` that makes nothing would be reported as done."""
    pytest.importorskip("openai")
    monkeypatch.setenv("HIERMEM_MODEL_KEY", "k")
    model = ["--model", "openai:none", "--model-url", "http://127.0.0.1:1/v1"]
    command = [sys.executable, "-m", "hiermem", "work", "--once", "--json", "--db", str(db)]
    failed = subprocess.run(
        [*command, *model, "--model-window", "300"],
        capture_output=True, text=True, env=os.environ, timeout=60, check=False,
    )  # fmt: skip
    assert failed.returncode == 1
    status = json.loads(failed.stdout)
    assert (status["made"], status["last_error"]) == (0, "ConfigError")
    assert failed.stderr == ""  # of JSON lines there is none, and of the log nothing else


def test_work_that_has_an_end_says_that_it_was_interrupted(db, monkeypatch):
    """A worker without an end is ended in no other way, so that is no failure."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "drain", interrupt)
    assert CliRunner().invoke(app, ["work", "--once", "--db", str(db)]).exit_code == 130
    monkeypatch.setattr("hiermem.cli.update.time", SimpleNamespace(sleep=interrupt))
    ended = CliRunner().invoke(app, ["work", "--db", str(db)])
    assert (ended.exit_code, ended.stdout[2:6]) == (0, "turn")


def test_what_is_meant_for_a_database_is_not_repeated(tmp_path):
    """Broken, the password of a connection string would stand on the screen."""
    for wrong in ("host=h password=canary-4711", "mysql://u:canary-4711@h/d"):
        found = CliRunner().invoke(app, ["work", "--db", wrong])
        assert found.exit_code == 2
        assert "postgresql://" in found.output
        assert "canary-4711" not in found.output
