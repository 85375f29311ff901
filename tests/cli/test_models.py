"""A model on the command line: chosen by name, with its address, its key out of the environment."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import commands
import pytest
from provider import Provider
from sampling import params

typer = pytest.importorskip("typer")

from stand_ins import talk  # noqa: E402

from hiermem import Memory, Message, UpdatePolicy  # noqa: E402
from hiermem.cli import output, update  # noqa: E402
from hiermem.cli.app import app  # noqa: E402
from hiermem.models.openai import OpenAIChat  # noqa: E402
from hiermem.types import UpdateReport, WorkerStatus  # noqa: E402


@pytest.fixture
def db(tmp_path):
    path = tmp_path / "chat.db"
    with Memory.open(path) as memory:
        session = memory.session("pumps")
        said = "Pump {n} was set to {n}7 rpm by Ada on 3 March. " * 3
        session.append(talk(10, said, created_at=None))
    return path


run = partial(commands.run, code=None)


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_an_update_asks_the_model_that_is_named(name, db):
    """Without it nobody could try a provider before writing a program."""
    with Provider() as provider:
        url = provider.openai_url if name == "openai" else provider.url
        done = run(
            "update", "--db", db, "--model", f"{name}:tiny", "--model-url", url,
            HIERMEM_MODEL_KEY=provider.key,
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "made 1" in done.output
        assert len(provider.served) == 1
        assert (
            f"tokens in {provider.tokens_in:,}, tokens out {provider.tokens_out:,}" in done.output
        )
    with Memory.open(db) as memory:
        (summary,) = memory.session("pumps").summaries(level=1)
        assert summary.revision.model == "tiny"


def test_a_model_that_finds_nothing_to_make_is_told_whose_the_summaries_are(db):
    """Broken, whoever tried it offline first takes the offline summaries for the model's."""
    run("update", "--db", db)
    with Provider() as provider:
        named = ("--model", "openai:tiny", "--model-url", provider.openai_url)

        def ask(*words):
            return run("update", "--db", db, *named, *words, HIERMEM_MODEL_KEY=provider.key)

        done = ask()
        assert "nothing to make" in done.stdout
        assert done.stderr == (
            "the newest summaries are by extractive-2; --strategy full makes them again by tiny\n"
        )
        assert (done.exit_code, len(provider.served)) == (0, 0)
        assert "are by" not in ask("--strategy", "full").stderr
        assert provider.served
        done = ask()
        assert "nothing to make" in done.stdout
        assert "are by" not in done.stderr


def test_an_extraction_asks_it_too_and_the_options_may_be_in_the_environment(db):
    with Provider() as provider:
        done = run(
            "extract", "--db", db,
            HIERMEM_MODEL="openai:tiny",
            HIERMEM_MODEL_URL=provider.openai_url,
            HIERMEM_MODEL_KEY=provider.key,
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert provider.served[0].body["response_format"]["type"] == "json_schema"


ASKING = {"update": ["update"], "extract": ["extract"], "bank consolidate": ["bank", "consolidate"]}


@pytest.mark.timeout(100)  # less than any time-out that nobody named
@pytest.mark.parametrize("command", ASKING)
def test_every_command_that_asks_a_model_says_how_it_is_asked(command, db, tmp_path):
    """A slow server cannot be used where nobody can say how long to wait."""
    rules = tmp_path / "rules.md"
    rules.write_text("- pumps.md: how they are set")
    run("bank", "note", "Pump 3 was set to 21 rpm.", "--db", db, "--space", "x", "--rules", rules)

    def ask(provider, *words):
        return run(
            *ASKING[command], "--db", db, "--model", "openai:tiny",
            "--model-url", provider.openai_url, *words,
            HIERMEM_MODEL_KEY=provider.key,
        ).output  # fmt: skip

    with Provider(lambda served: "hang") as provider:
        ask(provider, "--retries", 0, "--timeout", 3, "--concurrency", 2)
        assert [one.body["model"] for one in provider.served] == ["tiny"]
    with Provider(lambda served: "500") as provider:
        ask(provider, "--retries", 0, "--temperature", 0.7)
        assert [one.body["temperature"] for one in provider.served] == [0.7]
        ask(provider, "--retries", 1)
        assert len(provider.served) == 3


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (["--model", "gpt-5"], "litellm:MODEL", 2),
        (["--model", "nobody:x"], "litellm:MODEL", 2),
        (["--model", "openai:"], "litellm:MODEL", 2),
        (["--model-url", "http://127.0.0.1:1"], "need a --model", 2),
        (["--temperature", "1"], "need a --model", 2),
        (["--concurrency", "0"], "--concurrency", 2),
        (["--timeout", "0"], "--timeout", 2),
        (["--model", "openai:x", "--model-url", "nowhere"], "base_url", 2),
    ],
)
def test_what_names_no_model_is_said_and_nothing_is_asked(words, says, code, db):
    done = run("update", "--db", db, *words)
    assert done.exit_code == code
    assert says in done.output


def test_no_option_takes_a_key():
    """A key on the command line stands in the list of processes, and in the shell's history."""
    commands = typer.main.get_command(app).commands
    asking = (commands["update"], commands["extract"], commands["bank"].commands["consolidate"])
    options = {option for each in asking for found in each.params for option in found.opts}
    assert all("--model" in {o for found in each.params for o in found.opts} for each in asking)
    assert not [option for option in options if "key" in option]


def test_a_provider_that_is_down_is_said_with_its_address_and_exit_code_3(tmp_path):
    """Broken, a job that runs every night sees success, and no summary is ever made."""
    path = tmp_path / "chat.db"
    with Memory.open(path) as memory:
        said = (f"Pump {n} was set to {n * 7} rpm by Ada. " * 3 for n in range(10))
        memory.session("pumps").append(map(Message.user, said))
    done = run(
        "update", "--db", path, "--model", "openai:tiny", "--model-url", "http://127.0.0.1:1/v1",
        "--retries", 0, HIERMEM_MODEL_KEY="k",
    )  # fmt: skip
    assert done.exit_code == 3, done.output
    assert "failed 1" in done.stdout
    assert "connection refused" in done.stderr
    assert "http://127.0.0.1:1" in done.stderr


def test_a_model_that_is_down_has_a_reason_everywhere(tmp_path, caplog):
    """Broken, an operator sees that nothing is made, and nowhere why."""
    path = tmp_path / "chat.db"
    why = "connection refused; check that the server runs at this address (http://127.0.0.1:1)"
    llm = OpenAIChat("tiny", base_url="http://127.0.0.1:1/v1", api_key="k", context_window=32_000)
    policy = UpdatePolicy(batch_delay=0, retries=0, down_after=2)
    with Memory.open(path, llm=llm, update_policy=policy) as memory:
        for name in ("a", "b", "c"):
            said = (f"Pump {n} was set to {n * 7} rpm by Ada. " * 9 for n in range(30))
            memory.session(name).append(map(Message.user, said))
        report = memory.session("a").update()
        assert (report.stopped, report.last_error) == ("model_down", why)
        assert why in caplog.text
        assert memory.session("a").status().last_error == why
        with memory.worker(poll=0.05) as worker:
            until = time.monotonic() + 20
            while worker.status.last_error is None and time.monotonic() < until:
                time.sleep(0.05)
        assert worker.status.last_error == why
        assert memory.update_all().last_error == why
        assert memory.session("b").status().last_error == why
    with Memory.open(path) as memory:
        memory.session("b").update()
        assert memory.session("b").status().last_error is None, "a later run made all of it"


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (UpdateReport(), 0),
        (UpdateReport(made=3), 0),
        (UpdateReport(made=3, degraded=1), 0),
        (UpdateReport(reused=1, degraded=1), 0),
        (UpdateReport(made=3, failed=1), 1),
        (UpdateReport(degraded=2), 1),
        (UpdateReport(degraded=2, failed=1), 1),
        (UpdateReport(failed=2), 3),
        (UpdateReport(made=3, stopped="max_calls"), 3),
        (UpdateReport(failed=4, stopped="model_down"), 3),
        (WorkerStatus(made=3), 0),
        (WorkerStatus(made=3, last_error="StoreError"), 0),
        (WorkerStatus(made=3, resting=1, last_error="ConfigError"), 1),
        (WorkerStatus(made=3, failed=1), 1),
        (WorkerStatus(failed=2), 3),
    ],
)
def test_the_exit_code_says_whether_anything_was_made(report, code):
    assert update.exit_code(report) == code


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize(
    ("number", "code"), params([(signal.SIGTERM, 143), (signal.SIGINT, 130)], plain=1)
)
@pytest.mark.thorough
def test_an_update_that_is_ended_says_so(db, number, code):
    """Broken, a log of a job that was stopped holds nothing, and a lease is left."""
    with Provider(lambda served: "hang") as provider:
        child = subprocess.Popen(
            [sys.executable, "-c", _UPDATE, "--db", str(db), "--model", "openai:tiny",
             "--model-url", provider.openai_url],
            env={**os.environ, "HIERMEM_MODEL_KEY": provider.key},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until = time.monotonic() + 30
        while not provider.served and time.monotonic() < until:
            time.sleep(0.05)
        child.send_signal(number)
        said, told = child.communicate(timeout=30)
    assert child.returncode == code, told
    assert said == ""
    assert told.startswith("pumps: 0 of 1 summaries\n"), "the log is empty until the first answer"
    assert f"interrupted by {number.name}: what was made is kept" in told
    assert "Traceback" not in told
    with Memory.open(db) as memory:
        (newest,) = memory.session("pumps").runs()
        assert newest.outcome == "interrupted"


_UPDATE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from hiermem.cli import main
sys.argv = ["hiermem", "update", *sys.argv[1:]]
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize(
    ("address", "code", "form"),
    params(
        [("", 0, []), ("http://127.0.0.1:1/v1", 3, []), ("http://127.0.0.1:1/v1", 3, ["--json"])],
        plain=1,
    ),
)
@pytest.mark.thorough
def test_a_pipe_that_nobody_reads_changes_no_exit_code(db, address, code, form):
    """Broken, an update whose output is cut off by "head" counts as failed, or as made."""
    asked = ["--model", "openai:tiny", "--model-url", address, "--retries", "0"] if address else []
    asked += form
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-c", _UPDATE, "--db", str(db), *asked], check=False, timeout=60,
            env={**os.environ, "HIERMEM_MODEL_KEY": "k"}, stdout=nobody, stderr=subprocess.PIPE,
        )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    with Memory.open(db) as memory:
        assert memory.session("pumps").metrics().queue == (1 if code else 0)


def test_a_cap_is_that_of_the_whole_command(tmp_path):
    """Broken, a cap of two calls over three sessions lets six be paid for."""
    path = tmp_path / "many.db"
    with Memory.open(path) as memory:
        for name in ("a", "b", "c"):
            said = [f"Pump {n} of {name} was set to {n * 7} rpm. " * 4 for n in range(10)]
            memory.session(name).append(map(Message.user, said))
    with Provider() as provider:
        given = ("update", "--db", path, "--model", "openai:tiny", "--model-url",
                 provider.openai_url)  # fmt: skip
        done = run(*given, "--max-calls", 2, HIERMEM_MODEL_KEY=provider.key)
        assert (done.exit_code, len(provider.served)) == (3, 2)
        assert "3 sessions: made 2, calls 2, " in done.stdout
        assert "stopped max_calls" in done.stdout
        done = run(*given, HIERMEM_MODEL_KEY=provider.key)
        assert (done.exit_code, len(provider.served)) == (0, 3)


def test_a_consolidation_whose_provider_fails_may_be_tried_again(tmp_path):
    """Broken, a job that watches exit codes takes an outage for an error of its own."""
    path = tmp_path / "team.db"
    with Memory.open(path) as memory:
        memory.space("team", rules="- plans.md: plans").note("We plan a pump.")
    done = run(
        "bank", "consolidate", "--db", path, "--model", "openai:tiny", "--retries", 0,
        "--model-url", "http://127.0.0.1:1/v1", HIERMEM_MODEL_KEY="k",
    )  # fmt: skip
    assert done.exit_code == 3, done.output
    assert "0 notes consolidated; 1 remain live; stopped: " in done.stdout
    assert "live notes  1" in run("bank", "show", "--db", path).stdout


def test_what_is_done_is_said_where_no_terminal_draws_it(db, monkeypatch):
    """Broken, the log of a job is empty for as long as a slow model works."""
    monkeypatch.setattr(output, "_QUIET", 0.0)
    told = run("update", "--db", db).stderr.splitlines()
    assert told[0] == "pumps: 0 of 1 summaries"
    assert told[-1] == "pumps: 1 of 1 summaries"
