"""What a newcomer types: titles of 300 conversations, mistakes, numbers as people write them."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
import typer
from chat_files import node
from commands import run
from hypothesis import given
from hypothesis import strategies as st
from sampling import crossed

from hiermem import Memory, Message
from hiermem.cli.app import _misuse, app
from hiermem.cli.options import tokens

#: Phrases of the libraries that read a command line.
THEIRS = ("Input should", "Value error", "pydantic", "unable to parse", "validation error")


def _chats(count):
    """Yield conversations as ChatGPT exports them, each third one with a second branch."""
    for number in range(count):
        at = 1_700_000_000 + number * 86_400
        nodes = [
            node("root", None),
            node("q", "root", "user", f"What does pump {number} cost?", at),
            node("a", "q", "assistant", f"Pump {number} costs {number * 17} EUR.", at + 1),
            node("b", "q", "assistant", f"Pump {number}: nobody knows.", at + 2),
        ][: 3 + (number % 3 == 0)]
        chat_id = f"{number * 7919 % 65_536:08x}-58ee-8571-f499-8d7c4093f6de"
        yield {"id": chat_id, "title": f"Pump {number}", "current_node": "a",
               "mapping": {each["id"]: each for each in nodes}}  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A memory of 300 imported conversations."""
    folder = tmp_path_factory.mktemp("many")
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps(list(_chats(300))))
    run("import", folder / "export.zip", "--db", folder / "m.db")
    return folder / "m.db"


def test_one_of_300_conversations_is_used_without_its_id(many, tmp_path):
    """Broken, each command costs somebody 36 pasted characters."""
    db = ("--db", many)
    found = run("sessions", "pump", "40", *db).stdout.splitlines()
    assert [line.split()[:2] for line in found[1:]] == [["Pump", "240"], ["Pump", "140"],
                                                        ["Pump", "40"]]  # fmt: skip
    assert len(run("sessions", *db).stdout.splitlines()) == 301, "forks stand under their source"
    assert "Pump 40 costs 680 EUR." in run("context", "pump 40", *db).stdout
    assert "Pump 299 costs" in run("context", "@last", *db).stdout
    asked = run("search", "what", "does", "pump", "40", "cost", *db, "--limit", 5).stdout
    assert "Pump 40 m0" in asked
    run("export", "Pump 40", tmp_path / "pump.jsonl", *db)
    assert len((tmp_path / "pump.jsonl").read_text().splitlines()) == 2
    run("export", "Pump 40", tmp_path / "pump.md", *db)
    assert (tmp_path / "pump.md").read_text().startswith("# Pump 40 (space: me)\n")
    run("delete", "Pump 44", "--yes", *db)
    with Memory.open(many) as memory:
        left = [each.title for each in memory.sessions(limit=1_000)]
    assert "Pump 44" not in left
    assert "Pump 40" in left


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("list", "Did you mean 'sessions'?"),
        ("ls", "Did you mean 'sessions'?"),
        ("add hello", "Did you mean 'import'?"),
        ("chat", "Did you mean 'context'?"),
        ("serch x", "Did you mean 'search'?"),
        ("search x --all", "No such option: --all; without --session, all are searched"),
        ("--db x sessions", "No such option: --db; write options after the command"),
        ("import chat.txt chat.zip", "one file or folder is imported at a time"),
        ("runs --run x1 --db chat.db", "the list of runs has those that do"),
        ("pin one --remove 0 --db chat.db", "is not pinned; the list of its pins has"),
        ("context one --max-tokens 1 --db chat.db", "needs at least"),
        ("context pump 4", "put a name of several words between quotes"),
        ("context --max-tokens 4kb", "'4kb' is no number of tokens; write 8000, 8,000 or 8k"),
        ("context --max-tokens 0", "'0'; it must be at least 1 tokens"),
        ("sessions --limit many", "'many'; it must be a valid integer"),
        ("update --level 0", "'0'; it must be greater than or equal to 1"),
        ("update --concurrency 999", "'999'; it must be less than or equal to 256"),
        ("search x --since yesterday", "'yesterday'; it must be a valid datetime"),
        ("export --format pdf", "--format': 'pdf' is not one of 'jsonl', 'markdown'"),
        ("sessions --db chat", "there is chat.db"),
        ("import chats.zip", "there is no chats.zip; there is chat.zip"),
        ("import chat.txt --timezone berlin", 'such as "Europe/Berlin"'),
        ("import chat.txt --dates dd.mm.yy", "'dd.mm.yy' is not one of 'dmy', 'mdy', 'ymd'"),
        (
            "show one --node 3 --db chat.db",
            "it has none yet; the next is made when its group of messages is full",
        ),
        ("erase one 3-1 --db chat.db --yes", "write 1-3"),
        ("erase 3 1 --db chat.db --yes", "session '3' does not exist"),
        ("erase one --db chat.db --yes", "hiermem erase @last 3 5-9"),
    ],
)
def test_a_mistake_is_met_with_what_would_be_right(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.zip").write_text("")
    (tmp_path / "chat.txt").write_text("1/2/25, 10:00 - Ana: x\n")
    with Memory.open(tmp_path / "chat.db") as memory:
        memory.session("one").append({"role": "user", "content": "Hello."})
    result = run(*words.split(), code=None)
    assert result.exit_code in (1, 2)
    assert says in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_no_phrase_of_a_library_reaches_whoever_types_nonsense():
    """Every option of every command, read but not run."""
    group = typer.main.get_command(app)
    commands = [each for each in group.commands.values() if not hasattr(each, "commands")]
    commands += [
        *group.commands["bank"].commands.values(),
        *group.commands["store"].commands.values(),
    ]
    refused = 0
    for command in commands:
        for option in command.params:
            if not option.opts[0].startswith("--") or option.is_flag:
                continue
            for nonsense in ("-1", "%", "1e999"):
                try:
                    command.make_context("x", [f"{option.opts[0]}={nonsense}"])
                except typer.BadParameter as error:
                    refused += "Missing" not in str(error.format_message())
                    error.message = _misuse(error)
                    assert not [each for each in THEIRS if each in error.format_message()]
    assert refused > 100


@given(st.integers(0, 10**9), st.sampled_from(["{:d}", "{:,}", "{:_}"]))
def test_a_number_of_tokens_is_read_as_people_write_it(count, form):
    assert tokens(0)(form.format(count)) == count
    assert tokens(0)(f"{count}k") == count * 1_000
    assert tokens(0)(f"{count}M") == count * 1_000_000
    with pytest.raises(typer.BadParameter, match="at least"):
        tokens(count + 1)(str(count))


@pytest.mark.parametrize("wrong", ["", "k", "8.000", "8,00", "-1", "1 000", "4kk", "1.5", "x"])
def test_what_is_no_number_of_tokens_is_refused(wrong):
    with pytest.raises(typer.BadParameter, match="8000, 8,000 or 8k"):
        tokens(0)(wrong)
    assert tokens(0)("1.5k") == 1_500


def test_the_help_groups_the_commands_and_cuts_no_sentence():
    told = run("--help").stdout
    assert [line for line in told.splitlines() if line.endswith(":") and line[0] != " "] == [
        "Options:", "Start:", "Read:", "Change:", "Operate:",
    ]  # fmt: skip
    assert "..." not in told.partition("Start:")[2]
    assert run("help", "show").stdout == run("show", "--help").stdout
    assert run("-v").stdout == run("--version").stdout


def test_a_shell_completes_commands_and_options():
    """In a real shell's protocol, as the script that --show-completion prints asks."""
    words = {"_HIERMEM_COMPLETE": "complete_bash", "COMP_WORDS": "hiermem se", "COMP_CWORD": "1"}
    command = "import sys; sys.argv[0] = 'hiermem'; from hiermem.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command], env={**os.environ, **words},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["sessions", "search"]


@pytest.mark.parametrize(
    ("name", "command"),
    crossed(
        ["openai", "anthropic"],
        ["update", "extract talk", "work", "work --once", "bank consolidate", "mcp"],
    ),
)
def test_a_missing_key_is_said_before_any_work(tmp_path, monkeypatch, name, command):
    """Broken, a night's work is made by extracts alone, and nobody knows why."""
    pytest.importorskip(name)
    for each in ("OPENAI", "ANTHROPIC", "HIERMEM_MODEL"):
        monkeypatch.delenv(f"{each}_API_KEY", raising=False)
    with Memory.open(tmp_path / "m.db") as memory:
        memory.session("talk").append(
            [{"role": "user", "content": f"Pump {n}."} for n in range(20)]
        )
        memory.space("team", rules="- plans.md: what is planned").note("A pump.")
    told = run(*command.split(), "--db", tmp_path / "m.db", "--model", f"{name}:tiny", code=2)
    assert f"pass api_key, or set {name.upper()}_API_KEY in the environment" in told.stderr
    assert told.stdout == ""
    with Memory.open(tmp_path / "m.db") as memory:
        assert not any(each.made for each in memory.session("talk").summaries())
        assert not memory.runs()


def test_no_line_in_a_pipe_ends_with_blanks(tmp_path):
    """Broken, a row of a table is followed by hundreds of blanks in every file and editor."""
    db = tmp_path / "m.db"
    with Memory.open(db) as memory:
        memory.space("me", person="the user").files()
        for name, text in (("a", "Gas. " * 90), ("b", "Gas.")):
            memory.session(name, title=name, space="me").append(Message.user(text))
    for words in ("about gas", "about", "forget gas --dry-run", "sessions", "show a", "runs"):
        told = run(*words.split(), "--db", db)
        assert [line for line in told.output.split("\n") if line != line.rstrip(" ")] == []
    assert "a  " in run("sessions", "--db", db).stdout


def test_what_a_context_leaves_out_is_listed_and_advised_only_once(tmp_path):
    """Broken, an option is advised to whoever passed it, or what it lists is nowhere."""
    db = tmp_path / "m.db"
    with Memory.open(db) as memory:
        memory.session("s").append(Message.user(f"Message {n}. " * 50) for n in range(60))
    words = ("context", "s", "--db", db, "--max-tokens")
    assert "With --allow-omission" in run(*words, 400, code=1).stderr
    assert "omitted: messages " in run(*words, 400, "--allow-omission").stderr
    assert "--allow-omission" not in run(*words, 20, "--allow-omission", code=1).stderr


def test_a_command_of_a_group_is_said_in_a_whole_sentence():
    """Broken, the help of a group cuts what its commands do."""
    for name in ("store", "bank"):
        listed = run(name, "--help").stdout.partition("Commands:")[2]
        assert listed.strip()
        assert "..." not in listed


def test_the_default_memory_is_not_named(tmp_path, monkeypatch):
    """Broken, each suggested command repeats what it means without it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HIERMEM_DB", raising=False)
    (tmp_path / "chat.txt").write_text("1/2/25, 10:00 - Ana: x\n")
    assert "'hiermem import FILE' makes one" in run("sessions", code=1).stderr
    assert "--db" not in run("import", "chat.txt").stderr
    assert "--db DSN" not in run("import", "chat.txt", HIERMEM_DB="other.db").output
    assert "--db third.db" in run("import", "chat.txt", "--db", "third.db").stderr
