"""Small files of every format: at least ten ways in which each is met.

``golden.txt`` has the results. ``python tests/importers/variants.py`` writes what is read now; read
the difference before it is committed.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chat_files
from chat_files import NOON, node

from hiermem import HiermemError
from hiermem.importers import read_chats

GOLDEN = Path(__file__).with_name("golden.txt")
U, A = "user", "assistant"


def tree(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a conversation of ChatGPT; the current node is the last one."""
    return {"id": "c", "title": "T", "current_node": nodes[-1]["id"] if nodes else None,
            "mapping": {each["id"]: each for each in nodes}, **fields}  # fmt: skip


def said(uuid: str, sender: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"uuid": uuid, "sender": sender, "text": text, "created_at": "2025-10-01T10:00:00Z",
            **fields}  # fmt: skip


def cc(uuid: str, parent: str | None, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"uuid": uuid, "parentUuid": parent, "sessionId": "s", "type": kind, **fields,
            "timestamp": "2025-10-01T10:00:00Z",
            "message": {"role": kind, "content": content}}  # fmt: skip


def answer(uuid: str, parent: str, content: Any) -> dict[str, Any]:
    """Return a line of Claude Code whose message has the model's own id."""
    line = cc(uuid, parent, A, content)
    return {**line, "message": {**line["message"], "id": "msg_1"}}


def cx(payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
    return {"timestamp": "2025-10-01T10:00:00Z", "type": kind, "payload": payload}


def item(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == A else "input_text"
    return cx({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})


def done(kind: str, text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return cx({"type": "item_completed", "item": {"type": kind, "id": text, "content": content}},
              "event_msg")  # fmt: skip


def slack(user: str, text: str, second: int = 1, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "user": user, "text": text, "ts": f"170000000{second}.0", **fields}


def tg(number: int, who: str, text: Any, **fields: Any) -> dict[str, Any]:
    return {"id": number, "type": "message", "date": "2025-01-31T20:00:00", "from": who,
            "date_unixtime": str(NOON + number), "from_id": "user1", "text": text, **fields}  # fmt: skip


def tg_chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "Ben", "type": "personal_chat", "id": 42, "messages": list(messages), **fields}


def dc(number: int, who: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"id": str(number), "type": "Default", "timestamp": f"2025-01-31T20:00:0{number}+00:00",
            "content": text, "author": {"id": "1", "name": who, "nickname": who}, **fields}  # fmt: skip


def dc_chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"guild": {"name": "Club"}, "channel": {"id": "2", "name": "general"},
            "messages": list(messages), **fields}  # fmt: skip


def gm(ident: str, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"id": ident, "timestamp": "2025-10-01T10:00:00Z", "type": kind, "content": content,
            **fields}  # fmt: skip


def gm_chat(*messages: Any) -> dict[str, Any]:
    return {"sessionId": "g", "startTime": "2025-10-01T10:00:00Z", "messages": list(messages)}


def activity(title: str, answer: str | None, minute: int = 0) -> dict[str, Any]:
    shown = {} if answer is None else {"safeHtmlItem": [{"html": answer}]}
    return {"header": "Gemini Apps", "title": title, "time": f"2025-01-31T20:{minute:02}:00Z",
            **shown}  # fmt: skip


def ask(ident: str, question: Any, *answers: Any, **fields: Any) -> dict[str, Any]:
    return {"requestId": ident, "message": question, "response": list(answers), "timestamp": NOON,
            **fields}  # fmt: skip


def vs(*requests: Any, **fields: Any) -> dict[str, Any]:
    return {"requesterUsername": "i", "responderUsername": "GitHub Copilot",
            "requests": list(requests), **fields}  # fmt: skip


def ow(ident: str, parent: str | None, role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"id": ident, "parentId": parent, "role": role, "content": content, "timestamp": NOON,
            **fields}  # fmt: skip


def ow_chat(*messages: Any, current: str | None = None) -> dict[str, Any]:
    nodes = {each["id"] if isinstance(each, dict) else "x": each for each in messages}
    return {"id": "w", "title": "Pumps",
            "chat": {"history": {"messages": nodes, "currentId": current}}}  # fmt: skip


def lc(ident: str, parent: str | None, text: str, *, mine: bool = True, **fields: Any) -> Any:
    return {"messageId": ident, "parentMessageId": parent, "text": text, "isCreatedByUser": mine,
            "createdAt": "2025-01-31T20:00:00Z", **fields}  # fmt: skip


def lc_chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"conversationId": "l", "title": "Pumps", "messages": list(messages), **fields}


def st(name: str, text: str, *, mine: bool, **fields: Any) -> dict[str, Any]:
    return {"name": name, "is_user": mine, "mes": text, "send_date": "January 31, 2025 8:00pm",
            **fields}  # fmt: skip


class Lines(list[Any]):
    """Values of which each stands in a line of its own."""


HI, YO = node("u", None, U, "Hi", NOON), node("a", "u", A, "Hello", NOON + 1)
ALT, TOP = node("b", "u", A, "Other", NOON + 2), {"user_name": "You", "character_name": "Ann"}
CITE, OLD = "\ue200cite\ue202turn0search0\ue201", "\u301016:1\u2020source\u3011"
PAGE = {"title": "HP", "url": "https://x.org/hp"}
REFS = [{"matched_text": CITE, "items": [PAGE]}]
CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "out"}]
EDITED = "2/2/25, 10:00 - Ann: Yes <This message was edited>\n2/2/25, 10:01 - Bo: ok\n"
RICH = [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [
    {"type": "text", "text": "see "}, {"type": "link", "url": "https://x.org"},
    {"type": "user", "user_id": "U1"}]}]}]  # fmt: skip
CARD = [{"type": "header", "text": {"type": "plain_text", "text": "Alert"}},
        {"type": "section", "text": {"type": "mrkdwn", "text": "host *web-3*"},
         "fields": [{"type": "mrkdwn", "text": "97 %"}]}]  # fmt: skip
CUT = '{"uuid": "z", "sessionId": "s", "type": "user", "mess'


def broken(value: object, old: str, new: str) -> str:
    """Return JSON with one place damaged."""
    text = json.dumps(value)
    assert text.count(old) == 1
    return text.replace(old, new)


#: By format: a label, the file's name, and its content (text, bytes, JSON, or JSON lines).
VARIANTS: dict[str, list[tuple[str, str, Any]]] = {
    "chatgpt": [
        ("plain", "c.json", [tree(HI, YO)]),
        ("an object alone", "c.json", tree(HI, YO)),
        ("a regenerated answer is a fork", "c.json", [tree(HI, ALT, YO)]),
        ("no current node: the newest leaf", "c.json", [tree(HI, ALT, YO, current_node=None)]),
        ("a circle", "c.json", [tree(node("x", "y", U, "one"), node("y", "x", A, "two"))]),
        ("sources of a search", "c.json",
         [tree(HI, node("s", "u", A, f"Usual {CITE}. {OLD}", NOON, content_references=REFS))]),
        ("a conversation without messages, first", "c.json",
         [{"id": "n", "title": "N", "mapping": None, "current_node": None}, tree(HI, YO)]),
        ("null conversation, null node, no author", "c.json",
         [None, tree(HI, {"id": "q", "parent": "u", "message": {"content": {"parts": ["?"]}}},
                     {"id": "r", "parent": "u", "message": {"author": {"role": None},
                                                            "content": {"parts": ["?"]}}}, YO)]),
        ("content as text, parts null", "c.json",
         [tree(HI, {"id": "a", "parent": "u", "message": {"author": {"role": A},
                                                          "content": "as text"}},
               node("n", "a", A, {"content_type": "text", "parts": None}))]),
        ("quoted words, and an image by its name", "c.json",
         [tree(node("u", None, U, "What of this?", NOON, targeted_reply="The pump is loud"),
               node("a", "u", A, "", NOON, attachments=[{"name": "p.png", "mime_type": "image/png"}]))]),
        ("a node is damaged", "c.json", broken([tree(HI, YO)], '"Hello"', '"Hello')),
        ("cut off", "c.json", json.dumps([tree(HI, YO)])[:-60]),
        ("code and its result", "c.json",
         [tree(HI, node("k", "u", A, {"content_type": "code", "text": "1+1"}, NOON,
                        recipient="python"),
               node("o", "k", "tool", {"content_type": "execution_output", "text": "2"}, NOON,
                    name="python"))]),
    ],
    "claude": [
        ("plain", "c.json", [{"uuid": "c", "name": "G", "chat_messages": [
            said("1", "human", "Hi"), said("2", A, "Hello")]}]),
        ("speech, and blocks that hold no words", "c.json", {"uuid": "c", "chat_messages": [
            said("1", "human", "", content=[{"type": "voice_note", "title": "Note", "text": "buy milk"}]),
            said("2", A, "the words", content=[{"type": "flag"}])]}),
        ("a branch", "c.json", {"uuid": "c", "current_leaf_message_uuid": "3", "chat_messages": [
            said("1", "human", "Hi"), said("2", A, "old", parent_message_uuid="1"),
            said("3", A, "new", parent_message_uuid="1")]}),
        ("no current leaf: the newest", "c.json", {"uuid": "c", "chat_messages": [
            said("1", "human", "Hi"),
            {**said("2", A, "newest", parent_message_uuid="1"), "created_at": "2025-11-01T00:00:00Z"},
            said("3", A, "older", parent_message_uuid="1")]}),
        ("a project", "projects.json", [{"uuid": "p", "name": "Allotment", "prompt_template": "Be brief",
            "created_at": "2025-10-01T10:00:00Z",
            "docs": [{"filename": "soil.md", "content": "pH 6.5"}]}]),
        ("memories", "memories.json", [{"conversations_memory": "Likes tomatoes",
                                        "project_memories": {"p": "Has a bed"}}]),
        ("messages missing, then good", "c.json", [{"uuid": "x", "chat_messages": None},
            {"uuid": "c", "chat_messages": [said("1", "human", "Hi"), said("2", A, "Hello")]}]),
        ("no sender, a text for a message", "c.json", {"uuid": "c", "chat_messages": [
            {"uuid": "0", "text": "?"}, "text", said("1", "human", "Hi"), said("2", A, "Yo")]}),
        ("an attachment", "c.json", {"uuid": "c", "chat_messages": [
            said("1", "human", "Look", attachments=[{"file_name": "p.txt",
                                                     "extracted_content": "Bed 1"}]),
            said("2", A, "Yes")]}),
        ("a tool without ids", "c.json", {"uuid": "c", "chat_messages": [
            said("1", "human", "Hi"), said("2", A, "", content=[
                {"type": "tool_use", "id": None, "name": "web", "input": {"q": 1}},
                {"type": "tool_result", "name": "web", "content": [{"type": "text", "text": "red"}]},
                {"type": "text", "text": "Red."}])]}),
        ("a block not known", "c.json", {"uuid": "c", "chat_messages": [
            said("1", "human", "Hi"), said("2", A, "", content=[
                {"type": "hologram"}, {"type": "text", "text": "Yes"}])]}),
    ],
    "claude-code": [
        ("plain", "s.jsonl", Lines([cc("1", None, U, "Fix it"), cc("2", "1", A, "Done")])),
        ("rewound: an abandoned attempt", "s.jsonl", Lines([
            cc("1", None, U, "Fix it"), cc("2", "1", A, "Done"), cc("3", "2", U, "ABANDONED"),
            cc("4", "3", A, "bad"), cc("5", "2", U, "Better"), cc("6", "5", A, "good")])),
        ("results of parallel calls stay", "s.jsonl", Lines([
            cc("1", None, U, "List"), cc("2", "1", A, [CALL]), cc("3", "2", A, [{**CALL, "id": "t2"}]),
            cc("4", "2", U, RESULT), cc("5", "3", U, [{**RESULT[0], "tool_use_id": "t2"}]),
            cc("6", "5", A, "Done")])),
        ("turns that stand there again under other ids", "s.jsonl", Lines([
            cc("1", None, U, "Fix it"), answer("2", "1", [CALL]), cc("3", "2", U, RESULT),
            answer("4", "3", "Done"), cc("1x", None, U, "Fix it"), answer("2x", "1x", [CALL]),
            cc("3x", "2x", U, RESULT), answer("4x", "3x", "Done"), cc("5", "4x", U, "Fix it"),
            cc("6", "5", A, "Done")])),
        ("a compacted session", "s.jsonl", Lines([
            cc("1", None, U, "First"), cc("2", "1", A, "Yes"),
            {"type": "system", "uuid": "b", "parentUuid": None, "logicalParentUuid": "2",
             "sessionId": "s", "subtype": "compact_boundary"},
            cc("3", "b", U, "This is continued", isCompactSummary=True),
            cc("4", "3", U, "Second"), cc("5", "4", A, "Ok")])),
        ("what the program inserts", "s.jsonl", Lines([
            cc("1", None, U, "<task-notification>x</task-notification>"),
            cc("2", "1", U, "<local-command-stdout>x</local-command-stdout>"),
            cc("3", "2", U, "<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>"),
            cc("4", "3", U, "<system-reminder>x</system-reminder>"),
            cc("5", "4", U, "Go on <system-reminder>x</system-reminder>"), cc("6", "5", A, "Ok")])),
        ("commands as they were typed", "s.jsonl", Lines([
            cc("1", None, U, "<command-name>/clear</command-name><command-args>all</command-args>"),
            cc("2", "1", U, "<bash-input>ls</bash-input>"), cc("3", "2", A, "Ok")])),
        ("the last line is cut off", "s.jsonl",
         f"{json.dumps(cc('1', None, U, 'Hi'))}\n{json.dumps(cc('2', '1', A, 'Yo'))}\n{CUT}"),
        ("a line of NULs and a broken byte", "s.jsonl",
         json.dumps(cc("1", None, U, "Hi")).encode() + b"\n" + b"\0" * 40 + b"\n"
         + json.dumps(cc("2", "1", A, "caf#")).encode().replace(b"#", b"\xe9") + b"\n"),
        ("a subagent is a thread", "s.jsonl", Lines([
            cc("1", None, U, "Hi"), cc("2", "1", A, "Yo"),
            cc("3", None, U, "Look", isSidechain=True, agentId="a"),
            cc("4", "3", A, "Seen", isSidechain=True, agentId="a")])),
        ("a title, and a kind not known", "s.jsonl", Lines([
            {"type": "summary", "summary": "Fix", "leafUuid": "2"}, cc("1", None, U, "Hi"),
            {"type": "brand-new", "uuid": "9", "sessionId": "s"}, cc("2", "1", A, "Yo")])),
        ("a message of another shape", "s.jsonl", Lines([
            cc("1", None, U, "Hi"), cc("2", "1", A, 5), cc("3", "2", A, "Yo")])),
    ],
    "codex": [
        ("items", "r.jsonl", Lines([cx({"id": "x"}, "session_meta"), item(U, "Hi"), item(A, "Yo")])),
        ("items and events are one", "r.jsonl", Lines([
            item(U, "Hi"), cx({"type": "user_message", "message": "Hi"}, "event_msg"),
            item(A, "Yo"), cx({"type": "agent_message", "message": "Yo"}, "event_msg")])),
        ("events alone", "r.jsonl", Lines([
            cx({"type": "user_message", "message": "Hi"}, "event_msg"),
            cx({"type": "agent_message", "message": "Yo"}, "event_msg")])),
        ("completed items alone", "r.jsonl", Lines([
            done("UserMessage", "Hi"), cx({"type": "agent_message", "message": "Yo"}, "event_msg"),
            done("AgentMessage", "Yo")])),
        ("inserted texts", "r.jsonl", Lines([
            item(U, f"<{tag}>x</{tag}>") for tag in (
                "user_shell_command", "recommended_plugins", "hook_prompt", "skill",
                "subagent_notification", "environment_context")
        ] + [item(U, "<div>x</div>"), item(A, "Yo")])),
        ("the developer's role", "r.jsonl",
         Lines([item("developer", "Be safe"), item(U, "Hi"), item(A, "Yo")])),
        ("calls, each before its result", "r.jsonl", Lines([
            item(U, "Hi"), cx({"type": "function_call", "name": "sh", "call_id": "1", "arguments": "{}"}),
            cx({"type": "custom_tool_call", "name": "ed", "call_id": "2", "input": "p"}),
            cx({"type": "function_call_output", "call_id": "1", "output": "42"}),
            cx({"type": "custom_tool_call_output", "call_id": "2", "output": "ok"}), item(A, "Yo")])),
        ("the earlier form", "r.jsonl", Lines([
            {"id": "o", "timestamp": "2025-05-01T00:00:00Z", "instructions": None},
            {"record_type": "state"}, item(U, "Hi")["payload"], item(A, "Yo")["payload"]])),
        ("a payload that is none", "r.jsonl",
         Lines([item(U, "Hi"), {**cx({}), "payload": 5}, item(A, "Yo")])),
        ("reasoning and a compaction", "r.jsonl", Lines([
            item(U, "Hi"), cx({"type": "reasoning", "summary": [], "encrypted_content": "x"}),
            cx({"message": "short"}, "compacted"), item(A, "Yo")])),
    ],
    "slack": [
        ("a day", "d.json", [slack("U1", "hello"), slack("U2", "hi <@U1> &amp; all", 2)]),
        ("blocks alone", "d.json", [slack("U1", "", blocks=RICH), slack("U2", "ok", 2)]),
        ("forwarded, a voice's transcript, fields", "d.json", [
            slack("U1", "see", attachments=[{"is_share": True, "author_name": "Carl", "text": "At noon"}]),
            slack("U2", "", 2, files=[{"name": "v.m4a", "transcription": {"preview": {"content": "call me"}}}]),
            slack("B", "", 3, attachments=[{"fields": [{"title": "Host", "value": "web-3"}]}])]),
        ("blocks in an attachment", "d.json", [slack("U2", "ok", 2), slack("B", "", 3, attachments=[
            {"fallback": "[no preview available]", "blocks": CARD}])]),
        ("an attachment beside a text", "d.json", [slack("U2", "ok", 2), slack("B", "Alert", 3,
            attachments=[{"title": "host", "text": "web-3 at 97 %", "fallback": "x"}])]),
        ("the preview of a link", "d.json", [slack("U2", "ok", 2), slack("U1", "<https://x.org>", 3,
            attachments=[{"from_url": "https://x.org", "text": "A page"}])]),
        ("a bot's fallback", "d.json", [slack("U1", "a"), {"type": "message", "ts": "1700000009.0",
            "subtype": "bot_message", "username": "ci", "text": "",
            "attachments": [{"fallback": "build failed"}]}]),
        ("system lines and files", "d.json", [slack("U1", "joined", subtype="channel_join"),
            slack("U1", "", 2, files=[{"name": "p.pdf"}]), slack("U2", "ok", 3)]),
        ("a thread out of order", "d.json", [slack("U2", "reply", 5, thread_ts="1700000001.0"),
                                             slack("U1", "question")]),
        ("a text for a message", "d.json", [slack("U1", "a"), "text", slack("U2", "b", 2)]),
        ("a guest", "d.json", [slack("U9", "hi", user_profile={"real_name": "Guest"}),
                               slack("U2", "ok", 2)]),
    ],
    "messages": [
        ("speech and a refusal without content", "m.json", [
            {"role": U, "content": "Hi"}, {"role": A, "content": None, "audio": {"transcript": "Hello"}},
            {"role": A, "content": None, "refusal": "I cannot"}]),
        ("OpenAI chat", "m.json", [{"role": U, "content": "Hi"}, {"role": A, "content": "Yo"}]),
        ("JSON lines", "m.jsonl", Lines([{"role": U, "content": "Hi"}, {"role": A, "content": "Yo"}])),
        ("a request to Anthropic", "m.json", {"system": "s", "messages": [
            {"role": U, "content": "Hi"}, {"role": A, "content": [{"type": "text", "text": "Yo"}]}]}),
        ("items of Responses", "m.json", [
            {"role": U, "content": "Hi"}, {"type": "reasoning", "id": "r", "summary": []},
            {"type": "message", "id": "m1", "role": A,
             "content": [{"type": "output_text", "text": "Yo", "annotations": []}]}]),
        ("fine-tuning", "m.jsonl", Lines([
            {"messages": [{"role": U, "content": q}, {"role": A, "content": "a"}]} for q in "xyy"])),
        ("a response", "m.json", {"object": "response", "model": "m", "output": [
            {"role": A, "content": "Yo"}]}),
        ("messages and lists of them", "m.jsonl", Lines([
            {"role": U, "content": "Hi"}, {"messages": [{"role": U, "content": "in a list"}]},
            {"role": A, "content": "Yo"}])),
        ("a role and a type not known", "m.json", [
            {"role": "wizard", "content": "?"}, {"type": "m.room", "content": "?"},
            {"role": U, "content": "Hi"}, {"role": A, "content": "Yo"}]),
        ("a bad time, a bad content", "m.json", [
            {"role": U, "content": "Hi", "created_at": "yesterday"}, {"role": U, "content": 5},
            {"role": A, "content": "Yo"}]),
        ("half a list", "m.json", '[{"role": "user", "content": "Hi"}, {"role": "assistant", "cont'),
        ("a comma too many, and more", "m.json",
         '[{"role": "user", "content": "Hi"},{"role": "assistant", "content": "Yo"},] rest'),
        ("CP1252 and half a surrogate", "m.json",
         b'[{"role": "user", "content": "caf\xe9"}, {"role": "assistant", "content": "\\ud83d"}]'),
    ],
    "whatsapp": [
        ("names with quotation marks", "w.txt",
         '2/2/25, 10:00 - Robert "Bob" K: one\n2/2/25, 10:01 - Мама «дом»: two\n'
         '2/2/25, 10:02 - “Ace” Ann: three\n2/2/25, 10:03 - 5" Tom: four\n'
         '2/2/25, 10:03 - 5" Tom: five\n'
         '2/2/25, 10:04 - 5" Tom changed the subject to "Plan: B"\n'),
        ("notices of a group on iOS", "w.txt",
         "[01.02.25, 10:00:00] Club: \u200eMessages and calls are end-to-end encrypted.\n"
         "[01.02.25, 10:00:01] Club: \u200eAnn created this group\n"
         "[01.02.25, 10:00:02] Ann: hello\n[01.02.25, 10:00:03] Club: \u200eAnn added Bo\n"
         "[01.02.25, 10:00:04] Bo: \u200eBo joined using a link\n[01.02.25, 10:00:05] Bo: hi\n"
         "\u200e[01.02.25, 10:00:06] Bo: \u200eimage omitted\n"),
        ("notices in several languages, marked or not", "w.txt",
         "[01.02.25, 10:00:00] Ann: Messages and calls are end-to-end encrypted. Only you can read them.\n"
         "[01.02.25, 10:00:01] Ann: hello\n[01.02.25, 10:00:02] Bo: \u200eDu hast Bo hinzugefügt\n"
         "[01.02.25, 10:00:03] Bo: Bo joined using a link\n[01.02.25, 10:00:04] Bo: Ann added salt\n"
         "[01.02.25, 10:00:05] Ann: \u200eLos mensajes y las llamadas están cifrados.\n"
         "[01.02.25, 10:00:06] Bo: \u200eПропущенный звонок\n[01.02.25, 10:00:07] Bo: You left early\n"),
        ("notices with a colon on Android", "w.txt",
         "2/2/25, 10:00 - Ann: hello\n2/2/25, 10:01 - Bo: hi\n2/2/25, 10:02 - Ann changed the group name to Plan: B\n"
         "2/2/25, 10:03 - Du hast den Betreff zu Plan: B geändert\n2/2/25, 10:04 - Ann van der Berg: me too\n"),
        ("files in several languages", "w.txt",
         "[01.02.25, 10:00:00] Ann: \u200eBild weggelassen\n[01.02.25, 10:00:01] Bo: \u200eplan.pdf • \u200e3 pages \u200edocument omitted\n"
         "[01.02.25, 10:00:02] Ann: \u200e<adjunto: 00012-PHOTO.jpg>\n[01.02.25, 10:00:03] Bo: see \u200evidéo absente\n"
         "[01.02.25, 10:00:04] Ann: I omitted the image\n[01.02.25, 10:00:05] Bo: <3\n"),
        ("lines in another form are quoted", "w.txt",
         "2016-06-27, 8:04:08 AM: Neil: see\n[28.06.16, 10:00:00] Ann: quoted\n28.06.16, 10:00 - museum: tickets\n"
         "2016-06-27, 8:05:08 PM: Ann: yes\n"),
        ("a number that is no contact", "w.txt",
         "[01.02.25, 10:00:00] ~\u202fYSL: hi\n[01.02.25, 10:00:01] Ann: yes\n"),
        ("edited and deleted", "w.txt", EDITED + "2/2/25, 10:02 - Ann: This message was deleted\n"
         "2/2/25, 10:03 - Ann: Ja \u200e<Diese Nachricht wurde bearbeitet.>\n"),
        ("Bulgarian", "w.txt", "20.06.17 г., 10:00 - Ann: hi\n20.06.17 г., 10:01 - Bo: yes\n"),
        ("Turkish halves", "w.txt", "20.06.2017 ÖS 3:05 - Ann: hi\n20.06.2017 3:06 ÖS - Bo: yes\n"),
        ("Hungarian halves", "w.txt", "2017. 06. 20. du. 3:05 - Ann: hi\n2017. 06. 20. du. 3:06 - Bo: y\n"),
        ("Chinese halves", "w.txt", "2025/2/13 晚上8:05 - Ann: hi\n2025/2/13 凌晨12:06 - Bo: y\n"),
        ("a date in words", "w.txt", "13/02/2025 a las 10:00 - Ann: hi\n13/02/2025 om 10:01 - Bo: y\n"),
        ("a time quoted inside a message", "w.txt",
         "13.02.25, 10:00 - Ann: see\n13.02.25, 09:00 - Bo: quoted\r\n13.02.25, 10:01 - Bo: y\r\n"
         "13.02.25, 10:02 - Ann: z\r\n13.02.25, 10:03 - Bo: q\r\n" + "".join(
             f"13.02.25, 10:{n} - Bo: {n}\r\n" for n in range(10, 20))),
        ("UTF-16 without a mark", "w.txt",
         "13.02.25, 10:00 - Änn: hi\n13.02.25, 10:01 - Bo: y\n".encode("utf-16-le")),
        ("a first line that is cut", "w.txt", "ll right\n13.02.25, 10:00 - Ann: hi\n13.02.25, 10:01 - Bo: y\n"),
        ("Arabic digits", "w.txt", "[١٣\u200f/٢\u200f/٢٠٢٥، ٣:٠٥:٠٩ م] Ana: x\n[١٣/٢/٢٠٢٥، ٣:٠٦:٠٩ م] Bo: y\n"),
        ("Korean", "w.txt", "2025년 2월 13일 오후 3:05, Ana : x\n2025년 2월 13일 오전 3:06, Bo : y\n"),
    ],
    "irc": [
        ("irssi", "d.log", "--- Log opened Sat Nov 01 23:58:12 2025\n23:59 <@ada> hi\n00:01 < bob> yo\n"),
        ("no space after the time", "d.log", "16:59:05< ada> hi\n16:59:06< bob> yo\n"),
        ("continuation lines", "w.weechatlog",
         "2025-11-01 00:00:12\tada\tfirst\nsecond: line\n2025-11-01 00:00:13\tbob\tyo\n"),
        ("colours", "m.log", "[00:01] <ada> \x0304,01red\x03 and \x02bold\x02\n[00:02] <bob> yo\n"),
        ("HexChat", "h.log", "**** BEGIN LOGGING AT Sat Nov  1 00:00:12 2025\n\n"
         "Nov 01 00:00:14 <ada>\thi\nNov 01 00:00:15 *\tbob has joined\nNov 01 00:00:16 <bob>\tyo\n"),
        ("ZNC", "2025-11-01.log", "[00:00:12] *** Joins: bob (~b@h)\n[00:00:14] <ada> hi\n[00:00:15] <bob> yo\n"),
        ("actions", "d.log", "00:01  * ada sighs\n00:02 <bob> yo\n"),
        ("several charsets", "d.log", "00:01 <ada> caf\xe9\n".encode("cp1252")
         + "00:02 <bob> ćao\n".encode() + b"00:03 <ada> cut \xe2\x82 off\n"),
        ("a NUL", "d.log", "00:01 <ada> a\0b\n00:02 <bob> yo\n"),
        ("no times", "d.txt", "<ada> hi\n<bob> yo\n"),
        ("mIRC", "m.log", "Session Start: Sat Nov 01 00:00:12 2025\n[00:01] * bob has joined #x\n"
         "[00:02] <ada> hi\n[00:03] <bob> yo\n"),
    ],
    "text": [
        ("names", "t.txt", "Ada: hello\nBen: hi\nNote: that is gross.\nAda: and?\n"),
        ("what hiermem exports", "t.md", "# Trip\n\n## 2025-02-01\n\n**Anna**: Hi\n\n"
         "**Assistant** (side): Look:\n\n\\**Bold**: text\n\n`ls({\"a\": 1})`\n"
         "\n**Tool**: 42\n\n## 2025-02-02\n\n**Assistant**: Done\n"),
        ("bold roles", "t.md", "# Pumps\n\n**User:** Which?\n\n**Assistant:** This:\n\n**Note:** careful\n"
         "\n**Step 1:** go\n\n**User:** Thanks\n"),
        ("headings", "t.md", "# Chat\n\n## User\n\nWhich?\n\n## Assistant\n\n### Answer\n\nThis.\n"),
        ("copied from the page", "t.txt", "You said:\nWhich?\nChatGPT said:\nThis.\n"),
        ("Cursor", "t.md", "# Pumps\n_Exported on 10/1/2025 from Cursor (1.7.0)_\n\n---\n\n**User**\n\n"
         "Which?\n\n---\n\n**Cursor**\n\nThis.\n"),
        ("aider", "t.md", "\n# aider chat started at 2025-10-01 10:00:00\n\n> aider --model x  \n\n"
         "#### Which?  \n#### And why?\n\nThis.\n\n#### Thanks\n\nWelcome.\n"),
        ("questions and answers", "t.txt", "Q: Which?\nA: This.\nQ: And?\nA: That.\n"),
        ("times in brackets", "t.txt", "[2026-02-02 08:15] Ada: Hello\n[2026-02-02T08:16:30+01:00] Ben: Hm.\n"),
        ("CP1252", "t.txt", "Ada: café\nBen: “ja”\n".encode("cp1252")),
        ("UTF-16 with a mark", "t.txt", "Ada: café\nBen: ja\n".encode("utf-16")),
        ("capitals", "t.txt", "ANNA: which?\n\nBEN: this\n\nANNA: good\n"),
    ],
    "telegram": [
        ("a chat", "t.json", tg_chat(tg(1, "Ann", "hi"), tg(2, "Ben", "yo"))),
        ("an account", "t.json", {"about": "x", "chats": {"list": [
            tg_chat(tg(1, "Ann", "hi"), tg(2, "Ben", "yo")),
            tg_chat(tg(1, "Ann", "two"), tg(2, "Cy", "three"), id=43, name="Group")]}}),
        ("links in a text", "t.json", tg_chat(tg(1, "Ann", ["see ", {"type": "link", "text": "x.org"}, "!"]),
                                              tg(2, "Ben", "yo"))),
        ("service lines", "t.json", tg_chat({**tg(1, "Ann", ""), "type": "service", "actor_id": "u"},
                                            tg(2, "Ben", "yo"), tg(3, "Ann", "hi"))),
        ("a photo and a file", "t.json", tg_chat(tg(1, "Ann", "", photo="(File not included)"),
                                                 tg(2, "Ben", "this", file="x", file_name="p.pdf"))),
        ("forwarded, a poll and a contact", "t.json", tg_chat(
            tg(1, "Ann", "I sold the boat", forwarded_from="Carl"), tg(2, "Ben", "", poll={
                "question": "Which day?", "answers": [{"text": "Monday", "voters": 2}, {"text": "Friday"}]}),
            tg(3, "Ann", "", contact_information={"first_name": "Olga", "phone_number": "+7 900"}))),
        ("a deleted account", "t.json", tg_chat(tg(1, None, "hi", from_id=None), tg(2, "Ben", "yo"))),
        ("no seconds since 1970", "t.json", tg_chat(
            {k: v for k, v in tg(1, "Ann", "hi").items() if k != "date_unixtime"}, tg(2, "Ben", "yo"))),
        ("a kind not known", "t.json", tg_chat({**tg(1, "Ann", "?"), "type": "hologram"},
                                               tg(2, "Ben", "yo"), tg(3, "Ann", "hi"))),
        ("cut off", "t.json", json.dumps(tg_chat(tg(1, "Ann", "hi"), tg(2, "Ben", "yo"), tg(3, "Ann", "x")))[:-30]),
    ],
    "discord": [
        ("a channel", "d.json", dc_chat(dc(1, "Ann", "hi"), dc(2, "Ben", "yo"))),
        ("a direct message", "d.json", dc_chat(dc(1, "Ann", "hi"), dc(2, "Ben", "yo"),
                                               guild={"name": "Direct Messages"})),
        ("a reply", "d.json", dc_chat(dc(1, "Ann", "hi"), dc(2, "Ben", "yo", type="Reply"))),
        ("system lines", "d.json", dc_chat(dc(1, "Ann", "joined", type="GuildMemberJoin"),
                                           dc(2, "Ben", "yo"), dc(3, "Ann", "hi"))),
        ("attachments and embeds", "d.json", dc_chat(
            dc(1, "Ann", "", attachments=[{"fileName": "p.png"}]),
            dc(2, "Ben", "", embeds=[{"title": "Build", "description": "failed"}]))),
        ("no nickname", "d.json", dc_chat(dc(1, "Ann", "hi", author={"id": "1", "name": "ann"}),
                                          dc(2, "Ben", "yo"))),
        ("a sticker", "d.json", dc_chat(dc(1, "Ann", "", stickers=[{"name": "wave"}]), dc(2, "Ben", "yo"))),
        ("forwarded", "d.json", dc_chat(
            dc(1, "Ann", "", forwardedMessage={"content": "At noon", "attachments": [{"fileName": "map.pdf"}]}),
            dc(2, "Ben", "", message_snapshots=[{"message": {"content": "Old", "sticker_items": [{"name": "ha"}]}}]))),
        ("a poll, fields of a card, what a picture shows", "d.json", dc_chat(
            dc(1, "Ann", "", poll={"question": {"text": "Where?"}, "answers": [{"poll_media": {"text": "Rome"}}]},
               reactions=[{"emoji": {"name": "no"}, "users": [{"name": "no"}]}], mentions=[{"name": "no"}]),
            dc(2, "Bot", "", embeds=[{"author": {"name": "CI"}, "fields": [{"name": "Branch", "value": "main"}]}]),
            dc(3, "Ann", "", attachments=[{"fileName": "p.png", "description": "A red barn"}]))),
        ("nothing in a message", "d.json", dc_chat(dc(1, "Ann", ""), dc(2, "Ben", "yo"), dc(3, "Ann", "hi"))),
        ("no author", "d.json", dc_chat(dc(1, "Ann", "hi", author=None), dc(2, "Ben", "yo"))),
    ],
    "gemini": [
        ("a session of the CLI", "g.json", gm_chat(gm("1", U, "Hi"), gm("2", "gemini", "Yo"))),
        ("parts", "g.json", gm_chat(gm("1", U, [{"text": "Hi"}, {"text": "there"}]), gm("2", "gemini", "Yo"))),
        ("tools", "g.json", gm_chat(gm("1", U, "Hi"), gm("2", "gemini", "", toolCalls=[
            {"id": "t", "name": "ls", "args": {"p": "."},
             "result": [{"functionResponse": {"response": {"output": "a.py"}}}]}]),
            gm("3", "gemini", "One file"))),
        ("thoughts and info", "g.json", gm_chat(gm("0", "info", "update"), gm("1", U, "Hi"),
                                                gm("2", "gemini", "Yo", thoughts=[{"subject": "x"}]))),
        ("a type not known", "g.json", gm_chat(gm("0", "hologram", "?"), gm("1", U, "Hi"),
                                               gm("2", "gemini", "Yo"))),
        ("Takeout, newest first", "MyActivity.json", [
            activity("Prompted second", "<p>two &amp; more</p>", 5), activity("Prompted first", "<p>one</p>")]),
        ("Takeout, another language", "MyActivity.json", [activity("Frage", "<p>Antwort<br>zwei</p>")]),
        ("Takeout in German", "MyActivity.json", [
            {**activity("Eingegebener Prompt: zwei", "<p>b</p>", 5), "header": "Gemini-Apps"},
            {**activity("Eingegebener Prompt: eins", None), "header": "Gemini-Apps", "attachedFiles": ["p.pdf"]}]),
        ("Takeout in a language not known", "MyActivity.json", [
            {**activity("Промпт: раз: один", "<p>a</p>"), "header": "Приложения Gemini"},
            {**activity("Промпт: раз: два", "<p>b</p>", 5), "header": "Приложения Gemini"}]),
        ("Takeout, other activities", "MyActivity.json", [
            activity("Used Gemini Apps", None), activity("Prompted first", "<p>one</p>")]),
    ],
    "copilot": [
        ("a chat", "c.json", vs(ask("1", {"text": "Hi"}, {"value": "Yo"}))),
        ("a title", "c.json", vs(ask("1", {"text": "Hi"}, {"value": "Yo"}), sessionId="v", customTitle="T")),
        ("parts of an answer", "c.json", vs(ask("1", {"text": "Hi"}, {"value": "See "},
            {"kind": "inlineReference", "name": "a.py"}, {"value": "."}))),
        ("steps of the program", "c.json", vs(ask("1", {"text": "Hi"}, {"kind": "toolInvocationSerialized"},
                                                  {"kind": "markdownContent", "content": {"value": "Yo"}}))),
        ("a question as text", "c.json", vs(ask("1", "Hi", {"value": "Yo"}))),
        ("no answer", "c.json", vs(ask("1", {"text": "Hi"}, {"value": "Yo"}), ask("2", {"text": "And?"}))),
        ("no id", "c.json", vs(ask(None, {"text": "Hi"}, {"value": "Yo"}))),  # type: ignore[arg-type]
        ("null for a request", "c.json", vs(None, ask("1", {"text": "Hi"}, {"value": "Yo"}))),
        ("cut off", "c.json", json.dumps(
            vs(ask("1", {"text": "Hi"}, {"value": "Yo"}), ask("2", {"text": "x"})))[:-20]),
        ("no time", "c.json", vs(ask("1", {"text": "Hi"}, {"value": "Yo"}, timestamp=None))),
    ],
    "open-webui": [
        ("a chat", "w.json", [ow_chat(ow("1", None, U, "Hi"), ow("2", "1", A, "Yo"), current="2")]),
        ("a branch", "w.json", [ow_chat(ow("1", None, U, "Hi"), ow("2", "1", A, "old"),
                                        ow("3", "1", A, "new"), current="3")]),
        ("no current message: the newest", "w.json", [ow_chat(
            ow("1", None, U, "Hi"), ow("2", "1", A, "newest", timestamp=NOON + 9), ow("3", "1", A, "old"))]),
        ("a list of messages", "w.json", [{"id": "w", "title": "P", "chat": {"messages": [
            ow("1", None, U, "Hi"), ow("2", "1", A, "Yo")]}}]),
        ("parts and a file", "w.json", [ow_chat(
            ow("1", None, U, [{"type": "text", "text": "Hi"}], files=[{"name": "p.pdf"}]), ow("2", "1", A, "Yo"))]),
        ("null for a message", "w.json", [ow_chat(None, ow("1", None, U, "Hi"), ow("2", "1", A, "Yo"))]),
        ("a role not known", "w.json", [ow_chat(ow("1", None, U, "Hi"), ow("2", "1", "wizard", "?"),
                                                ow("3", "2", A, "Yo"))]),
        ("no messages, then good", "w.json", [{"id": "n", "chat": {"messages": None, "history": {}}},
                                              ow_chat(ow("1", None, U, "Hi"), ow("2", "1", A, "Yo"))]),
        ("a circle", "w.json", [ow_chat(ow("1", "2", U, "Hi"), ow("2", "1", A, "Yo"))]),
        ("two chats", "w.json", [ow_chat(ow("1", None, U, "Hi"), ow("2", "1", A, "Yo")),
                                 {**ow_chat(ow("1", None, U, "Oh"), ow("2", "1", A, "Ah")), "id": "v"}]),
    ],
    "librechat": [
        ("a chat", "l.json", lc_chat(lc("1", "0", "Hi"), lc("2", "1", "Yo", mine=False))),
        ("inside one another", "l.json", lc_chat(
            lc("1", "0", "Hi", children=[lc("2", "1", "Yo", mine=False, children=[lc("3", "2", "And?")])]))),
        ("a branch", "l.json", lc_chat(lc("1", "0", "Hi"), lc("2", "1", "old", mine=False),
                                       lc("3", "1", "new", mine=False, createdAt="2025-02-01T00:00:00Z"))),
        ("content in parts", "l.json", lc_chat(lc("1", "0", "Hi"), lc("2", "1", "", mine=False, content=[
            {"type": "think", "think": "hm"}, {"type": "text", "text": "Yo"},
            {"type": "tool_call", "tool_call": {}}, {"type": "text", "text": {"value": "More"}}]))),
        ("words that are quoted alone", "l.json", lc_chat(
            lc("1", "0", "", quotes=["the old rule"]), lc("2", "1", "Yo", mine=False))),
        ("by its sender", "l.json", lc_chat(
            {"messageId": "1", "parentMessageId": "0", "sender": "User", "text": "Hi"},
            {"messageId": "2", "parentMessageId": "1", "sender": "GPT", "text": "Yo"})),
        ("a file", "l.json", lc_chat(lc("1", "0", "Hi", files=[{"filename": "p.pdf"}]),
                                     lc("2", "1", "Yo", mine=False))),
        ("null for a message", "l.json", lc_chat(None, lc("1", "0", "Hi"), lc("2", "1", "Yo", mine=False))),
        ("no times", "l.json", lc_chat(lc("1", "0", "Hi", createdAt=None),
                                       lc("2", "1", "Yo", mine=False, createdAt=None))),
        ("messages that are none", "l.json", [lc_chat(lc("1", "0", "Hi"), lc("2", "1", "Yo", mine=False)),
                                              {"conversationId": "x", "messages": [5]}]),
    ],
    "sillytavern": [
        ("a chat", "s.jsonl", Lines([TOP, st("You", "Hi", mine=True), st("Ann", "Yo", mine=False)])),
        ("no line for the chat", "s.jsonl", Lines([st("You", "Hi", mine=True), st("Ann", "Yo", mine=False)])),
        ("hidden from the model", "s.jsonl", Lines([TOP, st("S", "?", mine=False, is_system=True),
                                           st("You", "Hi", mine=True), st("Ann", "Yo", mine=False)])),
        ("a line of the program's, a caption", "s.jsonl", Lines([
            TOP, st("SillyTavern System", "?", mine=False, is_system=True, extra={"type": "welcome"}),
            st("You", "", mine=True, extra={"image": "a.png", "title": "a cat"}), st("Ann", "Yo", mine=False)])),
        ("times of a later version", "s.jsonl", Lines([
            TOP, st("You", "Hi", mine=True, send_date="2025-01-31@20h05m09s120ms"),
            st("Ann", "Yo", mine=False, send_date="2025-01-31T20:06:00.000Z")])),
        ("times of an earlier version", "s.jsonl", Lines([
            TOP, st("You", "Hi", mine=True, send_date="2025-1-31 @20h 05m 09s 120ms"),
            st("Ann", "Yo", mine=False, send_date=NOON * 1000)])),
        ("a time that is none", "s.jsonl", Lines([
            TOP, st("You", "Hi", mine=True), st("Ann", "Yo", mine=False, send_date="then")])),
        ("a line that is no message", "s.jsonl", Lines([
            TOP, st("You", "Hi", mine=True), {"odd": 1}, st("Ann", "Yo", mine=False)])),
        ("several lines in a text", "s.jsonl", Lines([
            TOP, st("You", "Hi\nthere", mine=True), st("Ann", "Yo", mine=False)])),
        ("two characters", "s.jsonl", Lines([TOP, st("You", "Hi", mine=True), st("Ann", "Yo", mine=False),
                                             st("Cy", "Ho", mine=False)])),
        ("a broken byte", "s.jsonl", (json.dumps(st("You", "Hi", mine=True)) + "\n").encode()
         + json.dumps(st("Ann", "caf#", mine=False)).encode().replace(b"#", b"\xe2\x82")),
    ],
}  # fmt: skip


def write(folder: Path, name: str, content: Any) -> Path:
    """Write the content of a variant to a file."""
    path = folder / name
    if isinstance(content, Lines):
        content = "".join(json.dumps(each) + "\n" for each in content)
    elif not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def shown(path: Path, **options: Any) -> Iterator[str]:
    """Yield lines that say what is read of a file."""
    try:
        for chat in read_chats(path, **options):
            fork = "" if chat.parent is None else f" from {chat.parent} after {chat.after}"
            yield f"{chat.format} {chat.id} {chat.title or '-'}{fork}"
            for m in chat.messages:
                text = m.content if isinstance(m.content, str) else repr(m.content)
                text += "".join(f" [{c.id}: {c.name}({c.arguments})]" for c in m.tool_calls)
                who = f"{m.role} {m.name}" if m.name else m.role
                who += f" <{m.thread}>" if m.thread != "main" else ""
                who += f" to {m.tool_call_id}" if m.tool_call_id else ""
                at = "" if m.created_at is None else f"{m.created_at:%m-%d %H:%M} "
                yield f"  {at}{who}: {text}".replace("\n", "\\n").replace("\r", "\\r")
            yield from (f"  note {what}: {count}" for what, count in chat.notes.items())
            yield from (f"  unread {what}: {count}" for what, count in chat.unread.items())
    except HiermemError as error:
        yield f"refused: {error}"


def read_all(folder: Path) -> str:
    """Return what is read of all variants."""
    lines: list[str] = []
    for label, build in chat_files.FORMATS.items():
        lines += [f"## a longer file of {label}", *shown(build(folder)), ""]
    for form, variants in VARIANTS.items():
        for label, name, content in variants:
            lines += [f"## {form}: {label}", *shown(write(folder, name, content)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(read_all(Path(made)), encoding="utf-8")
        sys.stdout.write(f"{GOLDEN}\n")
