"""What the soak test (``soak.py``) reads of a store, and compares with the calls that returned."""

from __future__ import annotations

import re
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from soak_calls import Call, Model, disorder, said, word_of

from hiermem import AsyncMemory
from hiermem.types import StoredMessage

WORD = re.compile(r"zq\d+x\d+x\d+qz")
MOST = 10_000


async def everything(memory: AsyncMemory) -> dict[str, list[StoredMessage]]:
    """Read all messages, by session."""
    records = await memory.sessions(limit=MOST)
    return {one.id: await memory.session(one.id).messages() for one in records}


async def compare(
    memory: AsyncMemory, calls: Sequence[Call]
) -> tuple[str, set[str], dict[str, int]]:
    """Compare messages and versions with the calls; return what was, the words, what is wrong."""
    model, stored, wrong = Model(calls), await everything(memory), Counter[str]()
    wrong["lost"] += len(model.sessions - {*stored})
    wrong["doubled"] += len({*stored} - model.sessions) + model.moved
    words, versions = {*stored}, 0
    for session, messages in stored.items():
        expected, have = model.keys(session), [str(one.message.key) for one in messages]
        wrong["lost"] += len({*expected.values()} - {*have})
        wrong["doubled"] += len(have) - len({*have} & {*expected.values()})
        wrong["misplaced"] += sum(expected.get(at) != key for at, key in enumerate(have))
        appends = sorted(model.appends[session], key=lambda call: call.placed)
        wrong["misplaced"] += disorder(appends)
        for call in appends:
            start = call.placed[0]
            wrong["torn"] += call.placed != tuple(range(start, start + len(call.keys)))
        for one, key in zip(messages, have, strict=True):
            if one.state == "erased":
                wrong["lost"] += key not in model.gone | model.unsure
                rest = one.content or one.message.metadata or one.message.name
                wrong["bytes_of_erased_text"] += len(str(rest)) if rest else 0
                continue
            wrong["bytes_of_erased_text"] += len(one.content) if key in model.gone else 0
            edits, texts = model.edited(session, one.index), [str(one.content)]
            if edits:
                earlier = await memory.session(session).versions(one.index)
                texts = [*(str(each.content) for each in earlier), *texts]
                versions += len(earlier)
            own, *later = [(WORD.findall(text) or [""])[0] for text in texts]
            words.update((own, *later))
            wrong["torn"] += texts != [said(word) for word in (own, *later)]
            wrong["torn"] += own != word_of(key) or one.message.metadata != {"note": own}
            wrong["lost"] += sum(must and word not in later for word, (_, must) in edits.items())
            known = [edits[word][0] for word in later if word in edits]
            once = {call.word for call in known if not call.killed}
            again = {call.word for call in known if call.killed}
            wrong["doubled"] += len(later) - len(once) - sum(word in again for word in later)
            wrong["misplaced"] += disorder(known)
    messages_read = sum(map(len, stored.values()))
    what = f"{len(stored)} sessions, {messages_read} messages, {versions} versions: each once"
    return f"{what}, in order", words, dict(wrong)


async def unfinished(memory: AsyncMemory) -> tuple[str, dict[str, int]]:
    """Update all sessions and show a context of each; return what was and what is wrong."""
    report, summaries, wrong = await memory.update_all(), 0, Counter[str]()
    wrong["errors"] += len(report.failures)
    for session_id, messages in (await everything(memory)).items():
        session = memory.session(session_id)
        shown = [f"{one.content} {one.message.name}" for one in messages]
        now = set(WORD.findall(" ".join(shown)))
        wrong["unfinished"] += sum((await session.status()).unfinished.values())
        for one in await session.summaries():
            summaries += 1
            wrong["quoted_after_an_edit"] += bool(set(WORD.findall(one.text or "")) - now)
        context = await session.context(9_000)
        live = any(one.state == "live" for one in messages)
        wrong["unfinished"] += live and not context.to_openai()
        wrong["quoted_after_an_edit"] += bool(set(WORD.findall(context.to_text())) - now)
    return f"{summaries} summaries are made, and contexts render", dict(wrong)


def erased_bytes(
    place: str, schema: str, words: set[str], ids: set[str]
) -> tuple[dict[str, int], list[str]]:
    """Count the bytes that are stored of other words than ``words``, and those of them in ``ids``.

    Returns the counts, and where each was found.
    """
    # A process of its own: closing an SQLite file here would drop the locks of the memory.
    with get_context("spawn").Pool(1) as pool:
        found: dict[str, Counter[str]] = pool.apply(_words_in, (place, schema))
    wrong, places = Counter[str](), list[str]()
    for where, counted in found.items():
        for word in counted.keys() - words:
            wrong["bytes_of_erased_text"] += len(word) * counted[word] * (word not in ids)
            places.append(f"{word} {counted[word]} times in {where}")
    wrong["deleted_ids"] = len(
        {word for counted in found.values() for word in counted} & ids - words
    )
    return dict(wrong), places


def _words_in(place: str, schema: str) -> dict[str, Counter[str]]:
    """Count the words in the files and in the rows of each table."""
    found: dict[str, Counter[str]] = {}
    base: Any
    if place.startswith("postgresql:"):
        import psycopg

        base = psycopg.connect(place)
        listed = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
        schema = f'"{schema}".'
    else:
        for path in Path(place).parent.glob(f"{Path(place).name}*"):
            found[path.name] = Counter(WORD.findall(path.read_bytes().decode("latin-1")))
        base, schema = sqlite3.connect(place), ""
        listed = "SELECT name FROM sqlite_master WHERE type = 'table'"
    for (table,) in base.execute(listed).fetchall():
        cells = chain.from_iterable(base.execute(f'SELECT * FROM {schema}"{table}"'))
        found[table] = Counter(chain.from_iterable(map(_words_of, cells)))
    base.close()
    return found


def _words_of(cell: object) -> Iterator[str]:
    """Find the words of a value, and those of the compressed block that it may be."""
    data = cell if isinstance(cell, bytes) else str(cell).encode()
    yield from WORD.findall(data.decode("latin-1"))
    for match in re.finditer(rb"x[\x01\x9c\xda]", data[:24]):
        try:
            inner = zlib.decompressobj().decompress(data[match.start() :])
        except zlib.error:
            continue
        yield from WORD.findall(inner.decode("latin-1"))
