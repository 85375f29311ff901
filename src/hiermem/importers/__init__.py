"""Reads conversations from the files that people have: exports, logs and transcripts.

``read_chats`` yields the conversations of a file, ``survey`` counts them, and
``Memory.import_chats`` appends them. The readers open files and nothing else: no memory, no
network. Memory use is bounded by one conversation where the format allows it.
"""

from __future__ import annotations

from hiermem.importers.formats import FORMATS, Format, read_chats
from hiermem.importers.survey import Survey, survey
from hiermem.importers.transcript import LIKE_OWN
from hiermem.types.message import Conversation

__all__ = ["FORMATS", "LIKE_OWN", "Conversation", "Format", "Survey", "read_chats", "survey"]
