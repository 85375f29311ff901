"""Reads a session of Claude Code: a JSONL file with one event a line, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hiermem.convert import from_anthropic
from hiermem.importers.draft import Draft, Keyed, Options, id_of, kind_name, moment, name_of
from hiermem.importers.files import Export, Head, objects_of
from hiermem.types.conversation import Conversation
from hiermem.types.reading import as_mapping

_SPOKEN = ("user", "assistant")
#: Lines that hold nothing that was said.
_SILENT = frozenset(
    ("summary", "custom-title", "ai-title", "agent-name", "file-history-snapshot", "progress",
     "queue-operation", "last-prompt", "permission-mode", "mode", "attachment", "pr-link")
)  # fmt: skip
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
_THINKING = ("thinking", "redacted_thinking")


def recognise(head: Head) -> bool:
    """Return whether one of the first lines is an event of a session."""
    return head.kind == "lines" and any(
        isinstance(line, dict) and "sessionId" in line and "uuid" in line and "type" in line
        for line in head.values
    )


def read(export: Export, _options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file; each subagent's messages are a thread."""
    file = export.first
    draft = Draft(file.name)
    session: object = None
    titles: dict[str, Any] = {}
    lines: list[tuple[dict[str, Any], str]] = []
    for place, line in objects_of(file):
        kind = line.get("type")
        session = session or line.get("sessionId")
        if isinstance(kind, str) and kind in _TITLES:
            titles.setdefault(kind, line.get(_TITLES[kind]))
        if kind in _SPOKEN:
            why = _left_out(line)
            if why:
                draft.note(why)
            else:
                lines.append((line, place))
        elif kind == "system":
            draft.note("system lines left out")
        elif not isinstance(kind, str) or kind not in _SILENT:
            draft.note(f"lines of the type {kind_name(kind)} not understood")
    messages = [each for line, place in lines for each in _messages(line, place, draft)]
    draft.add_log(messages)
    title = next((t for kind in _TITLES if (t := name_of(titles.get(kind)))), None)
    yield from draft.finished("claude-code", id_of(session, export.stem), title)


def _left_out(line: dict[str, Any]) -> str | None:
    if line.get("isMeta") is True:
        return "messages that the program inserted left out"
    if line.get("isCompactSummary") is True:
        return "summaries of a compacted context left out"
    if line.get("isApiErrorMessage") is True:
        return "messages of failed requests left out"
    return None


def _messages(line: dict[str, Any], place: str, draft: Draft) -> Iterator[Keyed]:
    message = as_mapping(line.get("message"), where=f"{place}.message")
    content = message.get("content")
    if isinstance(content, list):
        kept = [b for b in content if not (isinstance(b, dict) and b.get("type") in _THINKING)]
        if len(kept) < len(content):
            draft.note("reasoning left out", len(content) - len(kept))
        content = kept
        texts = [b for b in kept if isinstance(b, dict) and set(b) == {"type", "text"}]
        if texts == kept and all(isinstance(b["text"], str) for b in kept):
            content = "\n".join(b["text"] for b in kept)
    if not content:
        return
    given = [{"role": message.get("role", line["type"]), "content": content}]
    uuid = line.get("uuid")
    fields: dict[str, Any] = {"created_at": moment(line.get("timestamp"))}
    if line.get("isSidechain") is True:
        agent = line.get("agentId")
        fields["thread"] = f"agent-{id_of(agent, 'side')}"
    for number, each in enumerate(from_anthropic(given)):
        key = f"{uuid}/{number}" if number else uuid
        yield replace(each, **fields), key if isinstance(uuid, str) else None
