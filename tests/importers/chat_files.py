"""Files of every format, with what is awkward in each; ``more`` adds what was said later."""

import json
import zipfile
from pathlib import Path

NOON = 1_760_000_000


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def dump(path: Path, value: object) -> Path:
    return write(path, json.dumps(value, ensure_ascii=False))


def lines(path: Path, values: list[object]) -> Path:
    return write(path, "\n".join(json.dumps(value, ensure_ascii=False) for value in values) + "\n")


def node(ident, parent, role=None, content=None, at=None, **more):
    """Return a node of ChatGPT's tree; without a role its message is null."""
    if role is None:
        return {"id": ident, "parent": parent, "children": [], "message": None}
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    message = {
        "id": ident,
        "author": {"role": role, "name": more.pop("name", None), "metadata": {}},
        "create_time": at,
        "content": content,
        "recipient": more.pop("recipient", "all"),
        "weight": more.pop("weight", 1.0),
        "metadata": more,
    }
    return {"id": ident, "parent": parent, "children": [], "message": message}


def chatgpt_tree(*, more: bool, current: str = "a2b") -> dict[str, object]:
    """Return a conversation with every kind of node; ``more`` adds an exchange at the end."""
    picture = {
        "content_type": "multimodal_text",
        "parts": [
            {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-abc"},
            "What is on invoice 4711?",
        ],
    }
    code = {"content_type": "code", "language": "python", "text": "print(6 * 7)"}
    ran = {"content_type": "execution_output", "text": "42"}
    nodes = [
        node("root", None),
        node("sys", "root", "system", "", weight=0.0),
        node("custom", "sys", "user", {"content_type": "user_editable_context"}, NOON),
        node("hid", "custom", "user", "secret", NOON, is_visually_hidden_from_conversation=True),
        node("u1", "hid", "user", picture, NOON),
        node("think", "u1", "assistant", {"content_type": "thoughts", "thoughts": []}, NOON + 1),
        node("call", "think", "assistant", code, NOON + 2, recipient="python"),
        node("ran", "call", "tool", ran, NOON + 3, name="python"),
        node("a1", "ran", "assistant", "It is 42 EUR.", None),
        node("u2", "a1", "user", "And the other?", NOON + 5),
        node("a2a", "u2", "assistant", "ABANDONED: 999 EUR.", NOON + 6),
        node("a2b", "u2", "assistant", "12 EUR.", NOON + 7),
        node("odd", "a2a", "user", {"content_type": "hologram"}, NOON + 8),
    ]
    if more:
        nodes += [node("u3", "a2b", "user", "Thanks.", NOON + 9)]
    return {
        "title": "Invoices",
        "conversation_id": "conv-1",
        "create_time": NOON,
        "current_node": "u3" if more and current == "a2b" else current,
        "mapping": {each["id"]: each for each in nodes},
    }


def chatgpt(folder: Path, *, more: bool = False) -> Path:
    short = {
        "title": "Short",
        "id": "conv-2",
        "mapping": {n["id"]: n for n in [node("r", None), node("s1", "r", "user", "Hi", NOON)]},
        "current_node": "s1",
    }
    path = folder / "chatgpt.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("chat.html", "<html></html>")
        archive.writestr("conversations.json", json.dumps([chatgpt_tree(more=more), short]))
    return path


def claude(folder: Path, *, more: bool = False) -> Path:
    def message(uuid, sender, *blocks, **fields):
        text = "".join(b["text"] for b in blocks if b["type"] == "text")
        return {"uuid": uuid, "sender": sender, "text": text, "content": list(blocks),
                "created_at": "2025-10-01T10:00:00.5Z", "attachments": [], "files": [],
                **fields}  # fmt: skip

    def text(words):
        return {"type": "text", "text": words, "citations": []}

    said = [
        message("m1", "human", text("Look at my plan."),
                attachments=[{"file_name": "plan.txt", "extracted_content": "Bed 1: tomatoes"}],
                files=[{"file_name": "garden.png"}]),
        message("m2", "assistant", {"type": "thinking", "thinking": "hm"}, text("Searching."),
                {"type": "tool_use", "id": None, "name": "web_search", "input": {"q": "tomato"}},
                {"type": "tool_result", "name": "web_search",
                 "content": [{"type": "text", "text": "red"}]},
                text("They are red.")),
        {"uuid": "m3", "sender": "human", "text": "Thanks", "created_at": None},
    ]  # fmt: skip
    if more:
        said.append(message("m4", "assistant", text("Welcome.")))
    chat = {"uuid": "claude-1", "name": "Garden", "created_at": "2025-10-01T10:00:00Z",
            "chat_messages": said}  # fmt: skip
    return dump(folder / "conversations.json", [chat])


def claude_code(folder: Path, *, more: bool = False) -> Path:
    def line(uuid, kind, content, **fields):
        return {"uuid": uuid, "sessionId": "cc-1", "type": kind, "parentUuid": None,
                "timestamp": "2025-10-01T10:00:00Z", "isSidechain": False,
                "message": {"role": kind, "content": content}, **fields}  # fmt: skip

    def use(name):
        return [{"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "ls"}}]

    def result(name):
        return [{"type": "tool_result", "tool_use_id": name, "content": f"out {name}"}]

    values = [
        {"type": "summary", "summary": "Fix the login", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        line("c0", "user", "<caveat>", isMeta=True),
        line("c1", "user", "Fix the login bug"),
        line("c2", "assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}]),
        line("c3", "assistant", [{"type": "text", "text": "Looking."}]),
        line("c4", "assistant", use("t1")),
        line("c5", "assistant", use("t2")),
        line("c6", "user", result("t1")),
        line("c7", "user", result("t2")),
        line("c8", "user", "Look into it", isSidechain=True, agentId="a7"),
        {"type": "system", "uuid": "c9", "sessionId": "cc-1", "content": "Compacted"},
        {"type": "brand-new-kind", "sessionId": "cc-1"},
        line("c3", "assistant", [{"type": "text", "text": "Looking."}]),
    ]
    if more:
        values.append(line("d1", "assistant", [{"type": "text", "text": "Fixed."}]))
    return lines(folder / "cc.jsonl", values)


def codex(folder: Path, *, more: bool = False) -> Path:
    def line(kind, payload):
        return {"timestamp": "2025-10-01T10:00:00.1Z", "type": kind, "payload": payload}

    def said(role, words):
        kind = "output_text" if role == "assistant" else "input_text"
        return line("response_item", {"type": "message", "role": role,
                                      "content": [{"type": kind, "text": words}]})  # fmt: skip

    values = [
        line("session_meta", {"id": "codex-1", "cwd": "/x"}),
        said("user", "<environment_context>cwd</environment_context>"),
        said("user", "What is 6 x 7?"),
        line("event_msg", {"type": "user_message", "message": "What is 6 x 7?"}),
        line("response_item", {"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        line("response_item", {"type": "function_call", "name": "sh", "call_id": "k1",
                               "arguments": "{}"}),
        line("response_item", {"type": "custom_tool_call", "name": "ed", "call_id": "k2",
                               "input": "p"}),
        line("response_item", {"type": "function_call_output", "call_id": "k1", "output": "42"}),
        line("response_item", {"type": "custom_tool_call_output", "call_id": "k2",
                               "output": "ok"}),
        said("assistant", "42."),
    ]  # fmt: skip
    if more:
        values.append(said("user", "What is 6 x 7?"))
    return lines(folder / "rollout.jsonl", values)


def slack(folder: Path, *, more: bool = False) -> Path:
    def said(ts, user, text, **fields):
        return {"type": "message", "ts": ts, "user": user, "text": text, **fields}

    path = folder / "slack.zip"
    day = [
        said("1700000002.000100", "U2", "<@U1> see <https://x.org|the page> &amp; <#C1|general>"),
        said("1700000001.000100", "U1", "hello"),
        said("1700000003.000100", "U2", "<@U2> joined", subtype="channel_join"),
        said("1700000004.000100", "U9", "reply", thread_ts="1700000001.000100"),
        {"type": "message", "subtype": "bot_message", "ts": "1700000005.0", "username": "ci",
         "text": "", "attachments": [{"fallback": "build failed"}]},
        said("1700000006.0", "U1", "", files=[{"name": "plan.pdf"}]),
    ]  # fmt: skip
    if more:
        day.append(said("1700000007.0", "U1", "hello"))
    with zipfile.ZipFile(path, "w") as archive:
        users = [{"id": "U1", "name": "anna", "profile": {"display_name": "Anna Müller"}},
                 {"id": "U2", "real_name": "Ben"}]  # fmt: skip
        archive.writestr("users.json", json.dumps(users))
        archive.writestr("channels.json", json.dumps([{"id": "C1", "name": "general"}]))
        archive.writestr("dms.json", json.dumps([{"id": "D1", "members": ["U1", "U2"]}]))
        archive.writestr("general/2023-11-14.json", json.dumps(day))
        archive.writestr("D1/2023-11-15.json", json.dumps([said("1700100000.0", "U2", "psst")]))
    return path


def messages(folder: Path, *, more: bool = False) -> Path:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    values = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "See"}, image],
         "timestamp": "2026-02-02T08:00:00+01:00"},
        {"role": "assistant", "content": None, "tool_calls": [call], "key": "mine"},
        {"role": "tool", "tool_call_id": "c1", "content": "42", "created_at": 1_770_020_000},
        {"role": "user", "content": "ok"},
        {"role": "user", "content": "ok"},
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant",
         "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]},
    ]  # fmt: skip
    if more:
        values.append({"role": "user", "content": "ok"})
    return lines(folder / "chat.jsonl", values)


def fine_tuning(folder: Path, *, more: bool = False) -> Path:
    def line(n):
        return {"messages": [{"role": "system", "content": "s"},
                             {"role": "user", "content": f"q{n}"},
                             {"role": "assistant", "content": f"a{n}"}]}  # fmt: skip

    return lines(folder / "train.jsonl", [line(n) for n in [1, 2, 2, *([3] if more else [])]])


def whatsapp_ios(folder: Path, *, more: bool = False) -> Path:
    text = (
        "\u200e[01.02.25, 09:59:00] Anna Müller: \u200eMessages are end-to-end encrypted.\n"
        "[01.02.25, 10:00:01] Anna Müller: Hi all, dinner on Friday?\r\n"
        "[01.02.25, 10:01:12] Ben: Yes! 19:30 at Luigi's\n"
        "It has two floors.\n\nSee: the garden.\n"
        "\u200e[01.02.25, 10:02:00] \u202a+49 170 1234567\u202c: \u200eimage omitted\n"
        "[01.02.25, 10:03:00] Ben: ok\n[01.02.25, 10:03:00] Ben: ok\n"
    )
    return write(folder / "_chat.txt", text + ("[13.02.25, 10:04:00] Ben: ok\n" if more else ""))


def whatsapp_android(folder: Path, *, more: bool = False) -> Path:
    text = (
        "2/1/25, 9:58\u202fAM - Messages and calls are end-to-end encrypted.\n"
        "2/1/25, 10:00\u202fAM - Anna Müller: Hi all, dinner on Friday?\n"
        '2/1/25, 10:00\u202fAM - Ben changed the subject to "Plan: B"\n'
        "2/1/25, 12:01\u202fAM - +49 170 1234567: Yes!\nsecond line: with a colon\n"
        "2/14/25, 1:02\u202fPM - Anna Müller: <Media omitted>\n"
    )
    return write(folder / "wa.txt", text + ("2/15/25, 1:02\u202fPM - Ben: Fine.\n" if more else ""))


def irc(folder: Path, *, more: bool = False) -> Path:
    text = (
        "--- Log opened Sat Nov 01 23:58:12 2025\n"
        "23:58 -!- ada [~ada@host] has joined #dev\n"
        "23:59 <@ada> has anyone seen the build?\n"
        "23:59 < bob> yes: it failed at step 4\n"
        "00:01  * ada sighs\n"
        "--- Day changed Mon Nov 03 2025\n"
        "00:04 <carl> hi, re: build, url is http://ci/55\n"
    )
    return write(folder / "dev.log", text + ("00:05 <ada> thanks\n" if more else ""))


def transcript(folder: Path, *, more: bool = False) -> Path:
    text = (
        "Ada: hello\nBen: hi there\nAda: shall we ask Carl?\n"
        "Carl: I am here, my budget is 900 EUR\nNote: that is gross.\n\n"
        "http://x.org: so does this\n"
        "Two things: eggs\nLudwig van Beethoven: good\nassistant: Noted.\n"
    )
    return write(folder / "talk.txt", text + ("Carl: also, I pay\n" if more else ""))


#: Each format by its builder, with the messages that ``more`` adds.
FORMATS = {
    "chatgpt": chatgpt, "claude": claude, "claude-code": claude_code, "codex": codex,
    "slack": slack, "messages": messages, "fine-tuning": fine_tuning,
    "whatsapp on iOS": whatsapp_ios, "whatsapp on Android": whatsapp_android, "irc": irc,
    "text": transcript,
}  # fmt: skip
