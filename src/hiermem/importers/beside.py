"""Reads what a message says beside its text: forwarded and quoted texts, polls, cards, files.

Programs name these alike: a file stands in "attachments" or "photos", a poll has a
``question``. So fields are known by their names, without regard to case and ``_``, however they
stand inside one another. Who wrote, reacted or was mentioned is no part of what was said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hiermem.data import word_lists
from hiermem.importers.values import text_at

_WORDS = word_lists("export_words")
#: The names of fields: those that hold files, those that are texts and which of these belong to a
#: file, and those of which no part was said in the message.
_FILES, _TEXTS, _OF_FILES, _LEFT = (_WORDS[kind] for kind in ("files", "texts", "of files", "left"))
#: What names a file, the best first.
_NAMES = ("original_name", "fileName", "file_name", "filename", "name", "title", "export_name",
          "file.filename", "uri", "url", "file_uuid")  # fmt: skip
#: Fields of a message that hold texts, with the mark before these.
_HOLD = {
    "forward": "forwarded", "messagesnapshots": "forwarded", "snapshots": "forwarded",
    "quote": "quoted", "poll": "poll", "annotations": "", "card": "", "components": "",
    "contact": "", "embeds": "", "inlinebotbuttons": "", "invoice": "", "merged": "", "share": "",
    "todolist": "",
}  # fmt: skip
#: Fields of a poll or a list that hold what can be chosen.
_CHOICES = frozenset(("answers", "choices", "items", "options"))


def spoken(text: str, item: Mapping[str, Any], but: Collection[str] = ()) -> str:
    """Return all that a message says: its text, then what stands beside it; "" for nothing.

    ``but`` names the fields that hold the text. The message of another person that was passed on
    bears his name.
    """
    pieces = [text] if text.strip() else []
    pieces += [piece for piece in beside(item, but) if piece not in text]
    for field in ("forwarded_from", "saved_from"):
        if pieces and field in item:
            who = item[field] if isinstance(item[field], str) else text_at(item, f"{field}.name")
            pieces.insert(0, f"[forwarded from {who or '?'}]")
            break
    return "\n".join(dict.fromkeys(pieces))


def beside(item: Mapping[str, Any], but: Collection[str] = ()) -> list[str]:
    """Return the texts and files in the known fields of a message, in the order of these."""
    pieces: list[str] = []
    for name, value in item.items():
        kind = _plain(name)
        if name in but or not value:
            continue
        if kind in _FILES:
            pieces += files_of(value, kind)
        elif isinstance(value, (dict, list)):
            prefix = next((prefix for prefix in _HOLD if kind.startswith(prefix)), None)
            texts = [] if prefix is None else [p for p in words_of(value, kind) if p.strip()]
            if texts and prefix is not None and (mark := _HOLD[prefix]):
                who = text_at(value, "creator.name") or text_at(value, "author.name")
                texts[0] = f"[{mark}{f' from {who}' if who else ''}] {texts[0]}"
            pieces += texts
    return pieces


def files_of(value: object, kind: str = "") -> Iterator[str]:
    """Yield the name of each file in brackets, and the texts that belong to it."""
    if isinstance(value, str):
        value = value.split() if "://" in value else [value]
    what = "sticker" if kind.startswith("sticker") else "file"
    for item in value if isinstance(value, list) else [value]:
        fields = item if isinstance(item, dict) else {}
        named = (item if isinstance(item, str) else text_at(item, path) for path in _NAMES)
        name = next((each for each in named if each and not each.startswith("data:")), "?")
        if "/" in name:
            name = name.partition("?")[0].rstrip("/").rpartition("/")[2]
        yield f"[{what}: {name or '?'}]"
        for field, inner in fields.items():
            if _plain(field) in _OF_FILES:
                yield from (text for text in words_of(inner, "text") if text.strip())


def words_of(value: object, kind: str = "") -> Iterator[str]:
    """Yield the texts in a value that stands in a field of this kind."""
    if isinstance(value, str):
        yield from [value] if kind in _TEXTS else []
    elif isinstance(value, list) and kind == "text":  # parts of it are links or bold
        yield "".join(p if isinstance(p, str) else text_at(p, "text") or "" for p in value)
    elif isinstance(value, list):
        mark = "- " if kind in _CHOICES else ""
        yield from (f"{mark}{text}" for each in value for text in words_of(each, kind))
    elif isinstance(value, dict):
        if isinstance(value.get("name"), str) and ("value" in value or kind == "author"):
            yield value["name"]
        for name, inner in value.items():
            inside = _plain(name)
            if inside in _FILES and isinstance(inner, list):
                yield from files_of(inner, inside)
            elif inside not in _LEFT and not (inside == "author" and text_at(inner, "id")):
                yield from words_of(inner, inside)


def _plain(name: str) -> str:
    return name.replace("_", "").casefold()
