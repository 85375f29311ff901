"""Reads Slack's export: a folder or archive with a folder of days for each channel, or one day."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hiermem.importers.beside import files_of, words_of
from hiermem.importers.dates import seconds
from hiermem.importers.draft import Draft, Options, id_of, role_of
from hiermem.importers.files import Export, File, Head, objects_of
from hiermem.importers.values import kind_name, name_at, name_of, objects, text_at
from hiermem.types import Message
from hiermem.types.message import Conversation

_DAY = re.compile(r"\d{4}-\d\d-\d\d\.json")
_LISTS = ("channels.json", "groups.json", "dms.json", "mpims.json")
#: Kinds of messages that people or bots wrote; all others are the program's.
_SPOKEN = (None, "bot_message", "me_message", "thread_broadcast", "file_share", "file_comment",
           "reply_broadcast", "slackbot_response")  # fmt: skip
#: Where a user's name stands, and where that of a message's speaker does, the best first.
_PERSON = ("profile.display_name", "profile.real_name", "real_name", "name")
_SPEAKER = ("user_profile.display_name", "user_profile.real_name", "username", "bot_profile.name",
            "user", "bot_id")  # fmt: skip
#: The parts of a line that name something, with the field that does, and how it is written.
_MENTIONS = {"user": ("user_id", "@{}"), "usergroup": ("usergroup_id", "@{}"),
             "channel": ("channel_id", "#{}"), "emoji": ("name", ":{}:"),
             "broadcast": ("range", "@{}")}  # fmt: skip
_LINK = re.compile(r"<([^<>\n]{1,4000})>")


def recognise(head: Head) -> bool:
    """Return whether a file is a list of messages of a channel."""
    return any(
        isinstance(each.get("ts"), str)
        and ("user" in each or "bot_id" in each or each.get("type") == "message")
        for each in head.objects
    )


def roots(export: Export) -> set[tuple[str, ...]]:
    """Return the folders of exports: those with lists, and with days in folders below them."""
    lists = {file.parts[:-1] for file in export.files if file.parts[-1] in ("users.json", *_LISTS)}
    days = {file.parts[:-2] for file in export.files if _DAY.fullmatch(file.parts[-1])}
    return lists & days


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the conversation of each channel; each thread of replies is a thread."""
    people = {
        user["id"]: name_at(user, *_PERSON) or user["id"]
        for user in _listed(export, "users.json")
        if isinstance(user.get("id"), str)
    }
    channels = {
        name: channel
        for channel in _listed(export, *_LISTS)
        if isinstance(name := channel.get("name") or channel.get("id"), str)
    }
    days: dict[str, list[File]] = {}
    for file in export.files:
        if len(export.files) == 1:
            days[""] = [file]
        elif len(file.parts) > 1 and _DAY.fullmatch(file.parts[-1]):
            days.setdefault(file.parts[-2], []).append(file)
    for folder, files in days.items():
        channel = channels.get(folder, {})
        draft = Draft(folder or export.stem, export.first.notes)
        for file in files:
            day = objects_of(file, part=lambda each: "ts" in each and "text" in each)
            for place, value in sorted(day, key=lambda each: seconds(each[1].get("ts"))):
                with draft.reading(place):
                    _add(draft, value, people, options)
        name = id_of(channel.get("id"), "slack", folder or export.stem)
        yield from draft.finished("slack", name, _title(channel, folder, export.stem, people))


def _listed(export: Export, *names: str) -> Iterator[dict[str, Any]]:
    """Yield what the lists of an export hold."""
    listed = (file for file in export.files if file.parts[-1] in names)
    return (value for _, value in objects_of(*listed, part=lambda each: "id" in each))


def _title(
    channel: Mapping[str, Any], folder: str, stem: str, people: Mapping[str, str]
) -> str | None:
    members = channel.get("members")
    if "name" not in channel and isinstance(members, list) and members:
        return name_of(", ".join(people.get(m, m) for m in members if isinstance(m, str)))
    return name_of(f"#{folder}" if folder else stem)


def _add(
    draft: Draft, message: dict[str, Any], people: Mapping[str, str], options: Options
) -> None:
    subtype = message.get("subtype")
    if message.get("type", "message") != "message" or subtype not in _SPOKEN:
        if message.get("type") == "message":
            draft.note("system lines left out")
        else:
            draft.miss(f"items of the type {kind_name(message.get('type'))} not understood")
        return
    text = _text(message, people)
    if not text.strip():
        draft.note("messages without text left out")
        return
    name = people.get(str(message.get("user"))) or name_at(message, *_SPEAKER) or "?"
    stamp, thread = message.get("ts"), message.get("thread_ts")
    made = Message(role_of(name, options), text, name=name, created_at=draft.time(stamp, options))
    if isinstance(thread, str) and thread and thread != stamp:
        made = replace(made, thread=id_of(thread, "main"))
    draft.add(made, key=stamp)


def _text(message: Mapping[str, Any], people: Mapping[str, str]) -> str:
    """Return a message's text, those of its blocks and attachments, and names for its files."""
    pieces = _said(message, people)
    for card in objects(message.get("attachments")):
        if "from_url" in card and "is_share" not in card and "is_msg_unfurl" not in card:
            continue  # the preview of a link that the message holds
        heads = (text_at(card, field) for field in ("pretext", "title"))
        texts = [_plain(text, people) for text in heads if text is not None]
        texts += _said(card, people)
        texts += [_plain(text, people) for text in words_of(card.get("fields"))]
        fallback = text_at(card, "fallback")
        if not texts and fallback is not None and fallback != "[no preview available]":
            texts = [_plain(fallback, people)]
        if texts and (card.get("is_share") or card.get("is_msg_unfurl")):
            who = name_of(card.get("author_name")) or people.get(str(card.get("author_id")))
            texts[0] = f"[forwarded from {who or '?'}] {texts[0]}"
        pieces += [text for text in texts if text not in pieces]
    pieces += files_of(objects(message.get("files")))
    comment = text_at(message, "comment.comment")
    if comment is not None and comment not in pieces:
        pieces.append(_plain(comment, people))
    return "\n".join(pieces) or "\n".join(words_of(message))


def _said(message: Mapping[str, Any], people: Mapping[str, str]) -> list[str]:
    """Return a text, else the text of the blocks that stand for it."""
    text = message.get("text")
    if isinstance(text, str) and text.strip():
        return [_plain(text, people)]
    blocks = "".join(_block(block, people) for block in objects(message.get("blocks"))).strip()
    return [blocks] if blocks else []


def _block(block: Mapping[str, Any], people: Mapping[str, str]) -> str:
    """Return the text of a block and of those inside it, each that is no part of a line in one."""
    kind, inner = block.get("type"), block.get("text")
    if kind == "link":
        url = text_at(block, "url") or ""
        return f"{inner} ({url})" if inner else url
    if kind in _MENTIONS:
        field, form = _MENTIONS[kind]
        name = block.get(field)
        return form.format(people.get(name, name) if isinstance(name, str) else "?")
    text = _plain(inner, people) if isinstance(inner, str) else ""
    if kind in ("text", "mrkdwn", "plain_text"):
        return text if kind == "text" else f"{text}\n"
    pending = [inner, *(block.get(field) for field in ("title", "fields", "elements", "alt_text"))]
    for value in pending:
        for part in value if isinstance(value, list) else [value]:
            text += _block(part, people) if isinstance(part, dict) else ""
    return f"{text.rstrip()}\n" if text and kind != "rich_text" else text


def _plain(text: str, people: Mapping[str, str]) -> str:
    """Return a text with its mentions, links and entities as a reader sees them."""

    def shown(match: re.Match[str]) -> str:
        target, _, label = match[1].partition("|")
        mark, rest = target[:1], target[1:]
        if mark == "@":
            return f"@{label or people.get(rest, rest)}"
        if mark == "#":
            return f"#{label or rest}"
        if mark == "!":
            return label if label.startswith("@") else f"@{label or rest.partition('^')[0]}"
        return f"{label} ({target})" if label and label not in target else target

    return html.unescape(_LINK.sub(shown, text))
