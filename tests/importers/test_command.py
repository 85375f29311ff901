"""The command reads what people have: the round trip of an export, and fields that are named."""

import csv
import io
import json

import chat_files
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sampling import drawn
from typer.testing import CliRunner

from hiermem import Memory, Message, ToolCall
from hiermem.cli.app import app
from hiermem.importers import read_chats, survey

runner = CliRunner()
lines = st.sampled_from(
    ["```", "~~~python", "**Assistant:** no", "**Ann**: no", "\\**Ann** (x): no", "**User**", "",
     "## 2025-02-01", "# aider chat started at 2025-10-01 10:00:00", "`look({})`", "## User", "---",
     "You said:", "> **Tool**: 42", "a\u2028**Ben**: no", "  indented  "]
) | st.text(
    st.sampled_from("ab*#:()`\\ ") | st.characters(categories=("L", "N", "P")), max_size=30
)  # fmt: skip
names = st.sampled_from(
    [None, "Ann", "Step 1", "Assistant", "Tool (x)", "A*b", "**Ben**: no", "Ann (side)", "b\\"]
)


@st.composite
def messages(draw):
    """Draw a message as somebody may write it who knows how an export looks."""
    role = draw(st.sampled_from(["user", "assistant", "system", "tool"]))
    calls = (ToolCall("c", "look", '{"a": "`x`  (y)"}'), ToolCall("d", "look", "{}"))
    return Message(
        role,
        "\n".join(draw(st.lists(lines, max_size=5))),
        name=draw(names),
        thread=draw(st.sampled_from(["main", "side", "a(b): c\\"])),
        tool_calls=draw(st.sampled_from([(), calls])) if role == "assistant" else (),
    )


def run(*arguments):
    result = runner.invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


@given(st.lists(messages(), min_size=1, max_size=6))
@example([Message.user("Look"), Message.assistant("```\n**Assistant:** no\n```")])
@drawn(60)
def test_markdown_that_was_exported_is_read_as_it_was(tmp_path, said):
    """Broken if what looks like a speaker began a message, or anything of a message were lost."""
    db, out = tmp_path / "m.db", tmp_path / "trip.md"
    for path in tmp_path.iterdir():
        path.unlink()
    with Memory.open(str(db)) as memory:
        memory.session("trip", title="A trip").append(said)
    run("export", "@last", out, "--db", db, "--format", "markdown")
    (chat,) = read_chats(out)

    def told(m):
        return m.role, m.name, m.content, m.thread, [(c.name, c.arguments) for c in m.tool_calls]

    assert (chat.title, list(map(told, chat.messages))) == ("A trip", list(map(told, said)))


def test_the_results_of_tools_that_were_exported_follow_their_calls(tmp_path):
    db, out = tmp_path / "m.db", tmp_path / "trip.md"
    with Memory.open(str(db)) as memory:
        asked = Message.assistant(tool_calls=(ToolCall("c1", "look", "{}"),))
        memory.session("trip").append([asked, Message.tool("42", tool_call_id="c1")])
    run("export", "@last", out, "--db", db, "--format", "markdown")
    (chat,) = read_chats(out)
    assert chat.messages[1].tool_call_id == chat.messages[0].tool_calls[0].id


ROWS = [
    {"author": {"name": "Ann"}, "content": "second", "at": "2025-02-01T10:01:00Z"},
    {"author": {"name": "Ben"}, "content": "first", "at": "2025-02-01T10:00:00Z"},
    {"author": {"name": "assistant"}, "content": ["third", {"text": "part"}], "at": 1_760_000_000},
]


def as_csv(mark):
    out = io.StringIO()
    made = csv.writer(out, delimiter=mark)
    made.writerow(["author.name", "content", "at"])
    made.writerows([r["author"]["name"], r["content"], r["at"]] for r in ROWS[:2])
    made.writerow(["assistant", "third\npart", 1_760_000_000])
    return out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS), json.dumps({"room": {"log": ROWS}}, indent=1),
        "".join(json.dumps(row) + "\n" for row in ROWS), as_csv(","), as_csv(";"), as_csv("\t"),
    ],
    ids=["list", "nested", "lines", "comma", "semicolon", "tab"],
)  # fmt: skip
def test_fields_that_are_named_are_read_from_any_json_or_csv(text, tmp_path):
    path = chat_files.write(tmp_path / "log.txt", text)
    fields = "sender=author.name,text=content,time=at"
    run("import", path, "--map", fields, "--db", tmp_path / "m.db")
    with Memory.open(str(tmp_path / "m.db")) as memory:
        (session,) = memory.sessions()
        held = [s.message for s in memory.session(session.id).messages()]
    assert [(m.role, m.name, m.content) for m in held] == [
        ("user", "Ben", "first"), ("user", "Ann", "second"), ("assistant", None, "third\npart"),
    ]  # fmt: skip


@pytest.mark.parametrize("given", ["text", "sender=a", "text=", "text=a,what=b"])
def test_fields_that_are_none_are_refused(given, tmp_path):
    path = chat_files.transcript(tmp_path)
    result = runner.invoke(app, ["import", str(path), "--map", given, "--dry-run"])
    assert result.exit_code == 2
    assert "text" in result.stderr


def test_an_account_of_chats_is_a_session_each_and_says_what_was_left(tmp_path):
    """Broken if the exit code did not tell a script that something was not read."""
    day = [{"type": "message", "user": u, "text": "x", "ts": f"{1_700_000_000 + n}.0"}
           for n, u in enumerate(["U1", "U2", "U1"])]  # fmt: skip
    path = chat_files.dump(tmp_path / "d.json", [*day, {"type": "hologram", "ts": "1.0"}])
    result = runner.invoke(app, ["import", str(path), "--dry-run"])
    assert (result.exit_code, result.stdout.count("\nnot read\n")) == (3, 1)
    assert sum(survey(read_chats(path)).unread.values()) == 1
