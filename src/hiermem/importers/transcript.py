"""Reads plain transcripts and Markdown: text in which a line begins with a speaker.

A speaker stands before a colon (``Name: text``, with or without a time in brackets before), in bold
(``**User:** text``), in a heading (``## User``) or in a line of its own (``You said:``). A file
keeps the form of its first speaker. Whether a line begins a message is decided by that line and the
first one, never by what comes later: a longer copy of a transcript begins with the same messages. A
name is a word or a few words that are all capitalised; words that commonly stand before a colon
(``Note:``) are none. Where the caller names the speakers, these and no others are.

What ``hiermem export`` writes as Markdown is read back as it was: below a heading with the day
stands ``**Name** (thread): text``, then a line for each call of a tool. A user has the name alone,
anybody else stands as ``Assistant (Name)``. In a text, a line that looks like one of these has a
backslash before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from hiermem.data import word_lists
from hiermem.importers.dates import moment
from hiermem.importers.draft import Draft, Options, id_of, role_of, zone_note
from hiermem.importers.files import Export, Head, head_of, lines_of
from hiermem.importers.values import name_of
from hiermem.types import Message, Role, ToolCall
from hiermem.types.message import Conversation

#: The second range are accents that stand behind their letters.
_NAME = r"[^\W\d_][\w.'\u2019\u0300-\u036f-]*(?: [\w.'\u2019\u0300-\u036f-]+){0,3}"
#: The forms of a line that begins a message.
_FORMS = {
    "bold": re.compile(r"\*\*(?P<name>[^*\n]{1,512}?)(?:\*\*:|:\*\*|\*\*\s*$)(?:\s+|$)"),
    "heading": re.compile(rf"#{{1,4}} (?P<name>{_NAME}):?\s*$"),
    "said": re.compile(rf"(?:#{{1,6}} )?(?P<name>{_NAME}) said:\s*$"),
    "plain": re.compile(rf"(?:\[(?P<at>[^\]\n]{{4,40}})\]\s*)?(?P<name>{_NAME}):(?:\s+|$)"),
}
_ROLES: dict[str, Role] = {
    "user": "user", "human": "user", "you": "user", "system": "system", "tool": "tool",
    "assistant": "assistant", "ai": "assistant", "bot": "assistant", "chatgpt": "assistant",
    "claude": "assistant", "gemini": "assistant", "cursor": "assistant", "copilot": "assistant",
    "github copilot": "assistant",
}  # fmt: skip
#: Roles where the first speaker is one of them.
_ASKED: dict[str, Role] = {"q": "user", "a": "assistant", "prompt": "user", "response": "assistant"}
_WORDS = word_lists("transcript_words")
#: Words inside a name that are not capitalised.
_PARTICLES = _WORDS["particles"]
#: Words before a colon that are not a speaker.
_LABELS = _WORDS["labels"]
_DAY = re.compile(r"## (\d{4}-\d\d-\d\d)\s*$")
#: What Markdown exports put before the first message.
_FRAME = re.compile(r"(?:#{1,4} .*|_.*_|>.*|---+|\*\*\*+|\s*)$")
#: The lines of an export: a speaker with a thread, or a call; a backslash stands before some marks.
_OWN = re.compile(
    r"\*\*(?P<name>(?:[^\\*\n]|\\.){1,1024})\*\*"
    r"(?: \((?P<thread>(?:[^\\()\n]|\\.){1,1024})\))?:(?: |$)"
)
_CALL = re.compile(r"`(?P<name>[^`(\n]{1,200})\((?P<arguments>.*)\)`$")
#: Where a line begins that may be taken for one of an export, behind any backslashes.
LIKE_OWN = (
    r"(?:^|(?<=[\u2028\u2029]))(?=\\*(?:\*\*[^*\n]+\*\*[^:\n]*:|"
    rf"{_OWN.pattern.replace('?P<name>', '?:').replace('?P<thread>', '?:')}|"
    r"## \d{4}-\d\d-\d\d\s*(?:$|[\u2028\u2029])|`[^`(\n]{1,200}\(.*\)`$))"
)
_ESCAPED = re.compile(LIKE_OWN.replace("(?=\\\\*", "\\\\(?=\\\\*", 1), re.MULTILINE)
_NAMED = re.compile(r"(?P<role>User|Assistant|System|Tool)(?: \((?P<name>.+)\))?")
#: Aider marks what the user asked as headings, and its own lines as quotations.
_AIDER = re.compile(r"# aider chat started at ([\d-]{10} [\d:]{8})")


def recognise(head: Head) -> bool:
    """Return whether a text's first line that may be a speaker's is one."""
    if head.kind != "text" or _is_own(head):
        return head.kind == "text"
    turns = _Turns(Options())
    begun = [line for line in head.lines if turns.begins(line)]
    if not begun:
        return False
    texts = [line for line in head.lines if not _FRAME.match(line) or line in begun]
    several = turns.form in ("aider", "plain") or turns.by_role
    most = len(begun) > 2 and 2 * len(begun) >= len(texts)
    return most or (texts[0] == begun[0] and (several or len(begun) > 1))


def _is_own(head: Head) -> bool:
    """Return whether a text begins as an export does: a title, a day, a speaker."""
    lines = head.lines[head.lines[0].startswith("# ") :] if head.lines else ()
    return len(lines) > 1 and bool(_DAY.match(lines[0]) and _OWN.match(lines[1]))


class _Turns:
    """Tells the lines that begin a message, from the form of the first one."""

    def __init__(self, options: Options) -> None:
        self.form: str | None = None
        self.by_role = False
        self.roles = _ROLES
        self._options, self._lower = options, True

    def begins(self, line: str) -> re.Match[str] | None:
        """Return the match of a line with a speaker, None for another."""
        if self.form == "aider" or (self.form is None and _AIDER.match(line)):
            self.form = "aider"
            return _AIDER.match(line) or re.match(r"(?P<name>####) ", line)
        if self.form is not None:
            match = _FORMS[self.form].match(line)
            return match if match is not None and self._speaks(match) else None
        for form, pattern in _FORMS.items():
            if (match := pattern.match(line)) is None:
                continue
            name = match["name"].casefold()
            self.form, self.roles = form, _ROLES | _ASKED if name in _ASKED else _ROLES
            self.by_role = name in self.roles
            if self._speaks(match):
                # The first speaker shows whether names begin with small letters.
                self._lower = match["name"][0].islower() and not self.by_role
                return match
            self.form, self.roles, self.by_role = None, _ROLES, False
        return None

    def _speaks(self, match: re.Match[str]) -> bool:
        name, folded = match["name"], match["name"].casefold()
        if folded in self._options.assistants | self._options.speakers or folded in self.roles:
            return True
        if self._options.speakers or self.form in ("heading", "said"):
            return False
        if self.form == "bold":
            return not self.by_role and _is_name(name, lower=False)
        return bool(match["at"]) or _is_name(name, lower=self._lower)


def _is_name(name: str, *, lower: bool) -> bool:
    """Return whether words are a name; ``lower`` says that it may begin with a small letter."""
    if name.casefold().rstrip(".") in _LABELS:
        return False
    first, *others = name.split(" ")
    if first[0].islower() and not (lower and not others):
        return False
    return not any(word[:1].islower() and word not in _PARTICLES for word in others)


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name, file.notes)
    if _is_own(head_of(file)):
        yield from _own(export, draft, options)
        return
    turns = _Turns(options)
    title: str | None = None
    turn: re.Match[str] | None = None
    texts: list[str] = []
    for number, line in lines_of(file):
        match = turns.begins(line)
        if turns.form == "aider":
            yield from _aider(export, draft, options)
            return
        if match is not None:
            if turn is not None:
                _add(draft, turn, texts, turns, options)
            turn, texts = match, [line[match.end() :]]
            draft.where = f"{file.name}, line {number}"
        elif turn is not None:
            texts.append(line)
        elif not _FRAME.match(line):
            draft.notes.miss("lines before the first speaker", f"{file.name}, line {number}")
        elif title is None and line.startswith("# "):
            title = name_of(line[2:])
    if turn is not None:
        _add(draft, turn, texts, turns, options)
    yield from draft.named("text", export.stem, title)


def _add(
    draft: Draft, turn: re.Match[str], texts: list[str], turns: _Turns, options: Options
) -> None:
    name, when = turn["name"].strip(), turn.groupdict().get("at") or ""
    role = turns.roles.get(name.casefold())
    at = moment(when, options.zone) if when else None
    if when and at is None:
        draft.note("times without a date or not understood")
    elif when:
        zone_note(draft, options, when)
    text = "\n".join(texts).strip()
    if turns.form != "plain":
        text = text.removesuffix("\n---").rstrip()
    speaker = name_of(name) if role is None else None
    with draft.reading():
        message = Message(role or role_of(name, options), text, name=speaker, created_at=at)
        draft.add(message, when=when if at is None else "")


def _own(export: Export, draft: Draft, options: Options) -> Iterator[Conversation]:
    """Yield the conversation of what ``hiermem export`` wrote."""
    title: str | None = None
    day: datetime | None = None
    turn: re.Match[str] | None = None
    texts: list[str] = []
    calls: list[str] = []

    def close() -> None:
        if turn is not None:
            with draft.reading():
                message = _own_message(draft, turn, texts, calls, options)
                draft.add(replace(message, created_at=day))

    for number, line in lines_of(export.first):
        begun, dated = _OWN.match(line), _DAY.match(line)
        if begun is None and dated is None:
            if turn is None and title is None:
                title = name_of(re.sub(r" \(space: .*\)$", "", line.removeprefix("# ")))
            texts.append(line)
            continue
        if texts[-1:] == [""]:
            texts.pop()
        close()
        draft.where = f"{export.first.name}, line {number}"
        turn, texts = begun, [line[begun.end() :]] if begun else []
        day = moment(dated[1], options.zone) if dated else day
    close()
    yield from draft.named("text", export.stem, title)


def _own_message(
    draft: Draft, turn: re.Match[str], texts: list[str], open_calls: list[str], options: Options
) -> Message:
    """Return a message of an export; ``open_calls`` are the calls that wait for their results."""
    shown = re.sub(r"\\(.)", r"\1", turn["name"])
    named = _NAMED.fullmatch(shown)
    role = named["role"].casefold() if named else role_of(shown, options)
    matches: list[re.Match[str]] = []
    while len(texts) > 2 and (call := _CALL.match(texts[-1])) and not texts[-2]:
        matches.insert(0, call)
        del texts[-2:]
    line = draft.where.rpartition(" ")[2]
    calls = tuple(
        ToolCall(f"call-{line}-{number}", call["name"], call["arguments"])
        for number, call in enumerate(matches)
    )
    if calls:
        open_calls[:] = [call.id for call in calls]
    return Message(
        cast("Any", role),
        _ESCAPED.sub("", "\n".join(texts)),
        name=name_of(named["name"] if named else shown),
        thread=id_of(re.sub(r"\\(.)", r"\1", turn["thread"] or ""), "main"),
        tool_calls=calls,
        tool_call_id=open_calls.pop(0) if role == "tool" and open_calls else None,
    )


def _aider(export: Export, draft: Draft, options: Options) -> Iterator[Conversation]:
    """Yield the conversation of a history of aider, which marks only what the user asked."""
    texts: dict[str, list[str]] = {"user": [], "assistant": []}
    at: datetime | None = None

    def close(role: str) -> None:
        text = "\n".join(texts[role]).strip()
        texts[role] = []
        if text:
            make = Message.user if role == "user" else Message.assistant
            draft.add(make(text, created_at=at))

    for _, line in lines_of(export.first):
        if match := _AIDER.match(line):
            close("user")
            close("assistant")
            at = moment(match[1], options.zone)
            zone_note(draft, options, match[1])
        elif line.startswith("#### "):
            close("assistant")
            texts["user"].append(line[5:].rstrip())
        elif not line.startswith(">"):
            if line.strip():
                close("user")
            texts["assistant"].append(line)
    close("user")
    close("assistant")
    yield from draft.named("text", export.stem)
