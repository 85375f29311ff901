"""Says what a file looks like that is of no format which is read."""

from __future__ import annotations

import re

from hiermem.importers.draft import found_at
from hiermem.importers.files import Head

#: Fields by which JSON is known, each with whose it is and how ``--map`` reads it.
_JSON = (
    (("messages.sender_name",), "Messenger's or Instagram's JSON",
     "sender=sender_name,text=content,time=timestamp_ms"),
    (("messages.creator", "messages.created_date"), "Google Chat's JSON",
     "sender=creator.name,text=text"),
    (("conversations.MessageList",), "Skype's JSON",
     "sender=from,text=content,time=originalarrivaltime"),
    (("room_name", "messages.event_id"), "a room exported from Element",
     "sender=sender,text=content.body,time=origin_server_ts,key=event_id"),
    (("conversations.responses",), "Grok's JSON",
     "sender=response.sender,text=response.message"),
    (("mapping", "inserted_at"), "DeepSeek's JSON", ""),
    (("messages.versions",), "LM Studio's JSON", ""),
    (("conversations.from",), "a training file in the form of ShareGPT",
     "sender=from,text=value"),
    (("data.content", "type"), "messages of LangChain", "sender=type,text=data.content"),
    (("contents.parts",), "a request to Gemini", "sender=role,text=parts"),
    (("Contents", "Timestamp"), "Discord's own package, which has one side of each chat",
     "text=Contents,time=Timestamp,key=ID"),
)  # fmt: skip
#: How texts begin, each with whose they are.
_TEXTS = (
    (r"WEBVTT", "subtitles (WebVTT)"),
    (r"From \S+ \w{3} \w{3} [ \d]", "a mailbox (mbox)"),
    (r"\s*<\?xml.*|\s*<smses", "XML"),
    (r"\s*<(?:!doctype|html|div)", "a web page; import the JSON of the same export instead"),
    (r"\[LINE\]", "LINE's text"),
    (r"\[\d\d?:\d\d(?: [AP]M)?\] [^:]*$", "text copied from Teams"),
    (r"\w{3} \d\d?, \d{4} +\d\d?:\d\d:\d\d [AP]M", "text exported from iMessage"),
    (r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\t? ?(?:From )?", "the chat of a Zoom meeting"),
    (r"\w+[,;\t]\w+[,;\t]", "CSV; --map sender=…,text=…,time=… says how to read it"),
)  # fmt: skip


def looks_like(head: Head) -> str:
    """Return what a file seems to be and what may be done, "" where nothing is known."""
    for value in head.objects[:1]:
        for paths, what, fields in _JSON:
            if all(_has(value, path) for path in paths):
                way = f"; --map {fields} reads it" if fields else ""
                return f"this is {what}, which is not read yet{way}"
        return "this is JSON of another program; --map sender=…,text=…,time=… says how to read it"
    for pattern, what in _TEXTS:
        if head.lines and re.match(pattern, head.lines[0], re.IGNORECASE):
            return f"this looks like {what}" + ("" if ";" in what else ", which is not read yet")
    return ""


def _has(value: object, path: str) -> bool:
    """Return whether a path leads somewhere, through the first item of each list."""
    name, _, rest = path.partition(".")
    found = found_at(value, name)
    if isinstance(found, list):
        found = found[0] if found else None
    if not rest:
        return isinstance(value, dict) and name in value
    return _has(found, rest)
