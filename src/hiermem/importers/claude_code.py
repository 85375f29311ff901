"""Reads a session of Claude Code: a JSONL file with one event a line, in the order of time.

Each event names its parent. What was rewound stays in the file, beside the path that was kept: each
such attempt that a person began becomes a fork. Results of parallel calls leave the path as well,
and belong to it. A session that was resumed may hold turns again under new ids: the model's message
keeps its own id, and so does a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from hiermem.convert import from_anthropic
from hiermem.importers.chats import without_circles
from hiermem.importers.draft import Draft, Keyed, Options, digest_of, id_of
from hiermem.importers.files import Export, Head, objects_of
from hiermem.importers.values import found_at, kind_name, name_at, objects, text_at
from hiermem.log.alignment import branch_id
from hiermem.types.message import Conversation, as_mapping

#: An event: its id, what it holds, and its place in the file.
_Line: TypeAlias = tuple[str, dict[str, Any], str]
_SPOKEN = ("user", "assistant")
#: Flags of events that are no part of what was said, with their notes.
_LEFT_OUT = {
    "isMeta": "messages that the program inserted left out",
    "isCompactSummary": "summaries of a compacted context left out",
    "isApiErrorMessage": "messages of failed requests left out",
}
#: Lines that hold nothing that was said.
_SILENT = frozenset(
    ("summary", "custom-title", "ai-title", "agent-name", "file-history-snapshot", "progress",
     "queue-operation", "last-prompt", "permission-mode", "mode", "attachment", "pr-link")
)  # fmt: skip
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
_THINKING = ("thinking", "redacted_thinking")
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>\s*|\Z)", re.DOTALL)
#: Texts that the program sends as the user's.
_INSERTED = re.compile(
    r"\s*<(?:task-notification|local-command-\w+|bash-std(?:out|err)|user-prompt-submit-hook)>"
)
_COMMAND = re.compile(r"<command-name>\s*([^<]*?)\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>([^<]*)</command-args>")
_SHELL = re.compile(r"\s*<bash-input>(.*?)</bash-input>\s*", re.DOTALL)


def recognise(head: Head) -> bool:
    """Return whether one of the first lines is an event of a session."""
    return head.kind == "lines" and any(
        "sessionId" in line and "uuid" in line and "type" in line for line in head.objects
    )


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the conversation of the file, then its abandoned attempts."""
    file = export.first
    draft = Draft(file.name, file.notes)
    session: object = None
    titles, parents = dict[str, Any](), dict[str, str | None]()
    lines: list[_Line] = []
    for place, line in objects_of(file, part=lambda each: "sessionId" in each):
        kind, uuid = line.get("type"), text_at(line, "uuid")
        session = session or line.get("sessionId")
        if isinstance(kind, str) and kind in _TITLES:
            titles.setdefault(kind, line.get(_TITLES[kind]))
        name = uuid or place
        parents.setdefault(name, text_at(line, "parentUuid") or text_at(line, "logicalParentUuid"))
        left = next((why for flag, why in _LEFT_OUT.items() if line.get(flag) is True), None)
        if kind in _SPOKEN and left is None:
            lines.append((name, line, place))
        elif kind in _SPOKEN or kind == "system":
            draft.note(left or "system lines left out")
        elif not isinstance(kind, str) or kind not in _SILENT:
            draft.notes.miss(f"lines of the type {kind_name(kind)} not understood", place)
    parents = without_circles(parents)[0]
    again = _replayed(lines, parents, draft)
    lines = [each for each in lines if each[0] not in again]
    parents = {n: again.get(up or "", up) for n, up in parents.items() if n not in again}
    attempts = _attempts(lines, parents)
    title = name_at(titles, *_TITLES)
    session_id = id_of(session, "claude-code", export.stem)
    about = Conversation(session_id, title, (), format="claude-code", branching=True)
    base, last = about.id.replace("~", "-"), dict[str, str | None]()
    for root in (None, *dict.fromkeys(attempts.values())):
        messages = [
            (name, each)
            for name, line, place in lines
            if attempts.get(name) == root
            for each in _messages(line, place, draft, options)
        ]
        draft.add_log([each for _, each in messages])
        branch = draft.take()
        last |= {name: key for name, (_, key) in messages}
        if branch and root is None:
            yield replace(about, id=base, messages=branch)
        elif branch and root is not None and options.branches != "skip":
            above = parents[root]
            while above is not None and above not in last:
                above = parents.get(above)
            fork_id = branch_id(base, branch[0].key or root)
            after = None if above is None else last[above]
            yield replace(about, id=fork_id, messages=branch, parent=base, after=after)


def _attempts(lines: list[_Line], parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return the events of attempts that were abandoned, each with the first event of its own.

    Of several branches the one with the last event is kept. A branch in which nobody asks holds
    results, and is no attempt.
    """
    current: set[str] = set()
    dropped: set[str] = set()
    for name, line, _ in reversed(lines):
        path: list[str] = []
        node: str | None = name if line.get("isSidechain") is not True else None
        while node is not None and node in parents and node not in current and node not in dropped:
            path.append(node)
            node = parents[node]
        (dropped if node in current or node in dropped else current).update(path)
    first: dict[str, str] = {}
    for name, above in parents.items():
        if name not in current and above is not None and (above in current or above in first):
            first[name] = first.get(above, name)
    asking = {first[name] for name, line, _ in lines if name in first and _asks(line)}
    return {name: root for name, root in first.items() if root in asking}


def _replayed(
    lines: list[_Line], parents: Mapping[str, str | None], draft: Draft
) -> dict[str, str]:
    """Return the events that stand there again, each with the event that it repeats.

    An answer repeats one of the same message's id and content, a result one of the same call. What
    was asked has no such id: it is repeated if the answer to it is.
    """
    contents = {name: content for name, line, _ in lines if (content := _content(line))}
    preceding: dict[str, str | None] = dict(zip(contents, [None, *contents], strict=False))
    again: dict[str, str] = {}
    first: dict[str, str] = {}

    def said_before(name: str) -> str | None:
        above = parents[name]
        while above is not None and above not in contents:
            above = parents.get(above)
        return above or preceding[name]

    for name, line, _ in lines:
        content = contents.get(name)
        calls = [str(block.get("tool_use_id") or "") for block in objects(content)]
        message_id = text_at(line, "message.id") or "".join(calls)
        if not content or not message_id:
            continue
        copy: str | None = name
        source: str | None = first.setdefault(digest_of(message_id, json.dumps(content)), name)
        while copy is not None and source is not None and copy != source and copy not in again:
            again[copy] = source
            draft.note("messages that stand there again under other ids left out")
            copy, source = said_before(copy), said_before(source)
            if contents.get(copy or "") != contents.get(source or ""):
                break
    return again


def _content(line: object) -> Any:
    """Return the content of a line's message without the model's thoughts."""
    content = found_at(line, "message.content")
    if not isinstance(content, list):
        return content
    return [block for block in content if text_at(block, "type") not in _THINKING]


def _asks(line: dict[str, Any]) -> bool:
    """Return whether a line is a person's, and not a result or a subagent's."""
    results = (block.get("type") == "tool_result" for block in objects(_content(line)))
    return line.get("type") == "user" and line.get("isSidechain") is not True and not any(results)


def _said(text: str) -> str:
    """Return a user's text without what the program put in; a command as it was typed."""
    if "<" not in text:
        return text
    if _INSERTED.match(text):
        return ""
    if match := _COMMAND.search(text):
        arguments = _ARGUMENTS.search(text)
        return f"{match[1]} {arguments[1] if arguments else ''}".strip()
    if match := _SHELL.fullmatch(text):
        return f"! {match[1].strip()}"
    return _REMINDER.sub("", text)


def _messages(line: dict[str, Any], place: str, draft: Draft, options: Options) -> Iterator[Keyed]:
    keyed: list[Keyed] = []
    with draft.reading(place):
        message = as_mapping(line.get("message"), where="message")
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if isinstance(blocks, list):
            content = _kept(blocks, str(line.get("type")), draft)
        if content:
            messages = [{"role": message.get("role", line["type"]), "content": content}]
            uuid = line.get("uuid")
            fields: dict[str, Any] = {"created_at": draft.time(line.get("timestamp"), options)}
            if line.get("isSidechain") is True:
                fields["thread"] = f"agent-{id_of(line.get('agentId'), 'side')}"
            for number, converted in enumerate(from_anthropic(messages)):
                key = f"{uuid}/{number}" if number else uuid
                keyed.append((replace(converted, **fields), key if isinstance(uuid, str) else None))
    yield from keyed


def _kept(blocks: list[Any], kind: str, draft: Draft) -> Any:
    """Return the blocks of a message that were said; one text where all are texts."""
    kept: list[Any] = []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") in _THINKING:
            draft.note("reasoning left out")
            continue
        text, shown = text_at(block, "text"), block
        if kind == "user" and text is not None:
            said = _said(text)
            if not said.strip():
                draft.note("messages that the program inserted left out")
                continue
            shown = {**block, "text": said}
        kept.append(shown)
    texts = [block for block in kept if isinstance(block, dict) and set(block) == {"type", "text"}]
    if texts == kept and all(isinstance(block["text"], str) for block in kept):
        return "\n".join(block["text"] for block in kept)
    return kept
