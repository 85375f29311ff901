"""Reads which session a name means, and lists sessions with their forks, the newest first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from heapq import heappop, heappush
from typing import Final
from unicodedata import normalize

from hiermem.errors import InvalidMessageError, NotFoundError, UsageError
from hiermem.handle import every_session
from hiermem.protocols import TenantStore
from hiermem.text.policy import check_name
from hiermem.types import SessionRecord
from hiermem.types.brief import Brief
from hiermem.types.tree import SessionFilter

#: The name of the session with the newest message.
LAST: Final = "@last"
#: How many sessions an error names, and the most characters that it shows of a title.
_NAMED, _TITLE = 3, 40


@dataclass(frozen=True, slots=True)
class Family(Brief):
    """A session with the ids of its forks, and the times of its first and of the newest message."""

    session: SessionRecord
    forks: tuple[str, ...]
    first: datetime | None
    last: datetime | None


async def find_session(store: TenantStore, name: str, which: SessionFilter, *, whole: bool) -> str:
    """Return the id of the session that a name means; ``whole`` as for ``choose``.

    Raises what ``choose`` raises.
    """
    with suppress(InvalidMessageError):  # a title may be no id
        record = await store.session(check_name(name, what="session id"))
        if record is not None and record.messages:
            return record.id
    records = [record async for record in every_session(store, which, order_by="last_activity")]
    if whole or name != LAST:
        return choose(name, records, whole=whole).id
    async for record, _ in newest_first(store, records):
        return record.id
    raise NotFoundError("there is no session yet; append or import a conversation first")


async def list_families(
    store: TenantStore, words: Iterable[str], which: SessionFilter, *, apart: bool
) -> AsyncIterator[Family]:
    """Yield the sessions that hold all words with their forks, the newest message first.

    With ``apart``, each fork is yielded by itself.
    """
    given = [plain(word) for word in words]
    records = [record async for record in every_session(store, which, order_by="last_activity")]
    texts = [(each, plain(each.id), plain(each.title or each.id)) for each in records]
    fitting = [
        each
        for each, name, title in texts
        if all(word in title or name.startswith(word) for word in given)
    ]
    groups = [[each] for each in fitting] if apart else families(fitting, records)
    group_of = {member.id: group for group in groups for member in group}
    async for record, last in newest_first(store, fitting):
        if (group := group_of.get(record.id)) is None:
            continue
        for member in group:
            del group_of[member.id]
        begun = await store.messages(group[0].id, 0, 1)
        first = min(last, begun[0].created_at) if last and begun else last
        yield Family(group[0], tuple(each.id for each in group[1:]), first, last)


async def newest_first(
    store: TenantStore, records: Iterable[SessionRecord]
) -> AsyncIterator[tuple[SessionRecord, datetime | None]]:
    """Yield sessions with the times of their last messages, newest first; empty ones at the end.

    ``records`` come by last activity. A last message is read only if it may be the next one: none
    is newer than its session's last activity, except one that its time puts in the future. A fork
    that has no message of its own comes behind the session that it stems from.
    """
    waiting: list[tuple[float, bool, int, SessionRecord, datetime]] = []
    empty: list[SessionRecord] = []
    for number, record in enumerate(records):
        while waiting and -waiting[0][0] > record.last_activity.timestamp():
            yield heappop(waiting)[3:]
        said = await store.messages(record.id, max(0, record.messages - 1), record.messages)
        if said:
            at, is_fork = said[0].created_at, record.forked_from is not None
            heappush(waiting, (-at.timestamp(), is_fork, number, record, at))
        elif not record.messages:  # any other was erased meanwhile
            empty.append(record)
    while waiting:
        yield heappop(waiting)[3:]
    for record in empty:
        yield record, None


def choose(name: str, records: Sequence[SessionRecord], *, whole: bool = False) -> SessionRecord:
    """Return the session that a name means: its label or id, its title, the beginning of either.

    The first of these that fits a session decides. Of a session and its forks it means the session.
    Upper and lower case are the same, except in two ids. With ``whole``, no beginning is taken.

    Raises NotFoundError, with the sessions whose title or id is nearest, and UsageError if the name
    means several.
    """
    given = plain(name)
    begun = "\0" if whole or not given else plain(name.removesuffix("…"))
    texts = [(each, plain(each.id), plain(each.title or each.id)) for each in records]
    fitting = (
        [each for each in records if name in (each.id, label(each))]
        or [each for each, *own in texts if given in own]
        or [each for each, *own in texts if any(text.startswith(begun) for text in own)]
    )
    fitting = [group[0] for group in families(fitting, records)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        several = ", ".join(map(label, fitting[:_NAMED]))
        raise UsageError(
            f"{len(fitting):,} sessions begin with {name!r}: {several}; write more of the title "
            "or of the id"
        )
    near = ", ".join(map(label, _nearest(given, records)[:_NAMED]))
    there = f"there is {near}" if near else "list the sessions to see what there is"
    by = " by its whole title or id" if whole else ""
    raise NotFoundError(f"session {name!r} does not exist{by}; {there}")


def families(
    fitting: Iterable[SessionRecord], records: Sequence[SessionRecord]
) -> list[list[SessionRecord]]:
    """Group sessions with their forks: the one that all others stem from comes first.

    The groups stand in the order of the first of each. ``records`` are all sessions.
    """
    known, members = {each.id: each for each in records}, {each.id: each for each in fitting}
    groups: dict[str, list[SessionRecord]] = {}
    for each in members.values():
        root, above = each, each
        while above.forked_from is not None and above.forked_from in known:
            above = known[above.forked_from]
            root = members.get(above.id, root)
        groups.setdefault(root.id, [root])
        if each is not root:
            groups[root.id].append(each)
    return list(groups.values())


def label(record: SessionRecord) -> str:
    """Return a session's title and its id: ``Plans (9a2ef80f-58ee)``."""
    title = " ".join((record.title or "").split())
    cut = title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…"
    return f"{cut} ({record.id})" if title else record.id


def plain(text: str) -> str:
    """Return a text as it is compared: in one normal form, case and width of blanks."""
    # An accented letter has two spellings, which look the same.
    return normalize("NFKC", normalize("NFKC", " ".join(text.split())).casefold())


def _nearest(given: str, records: Sequence[SessionRecord]) -> list[SessionRecord]:
    """Return the sessions whose title holds the name, or whose title or id is most like it."""
    roots = [group[0] for group in families(records, records)]
    texts = {plain(text): each for each in roots for text in (each.id, each.title or each.id)}
    near = [each for each in roots if given and given in plain(each.title or each.id)]
    near += [texts[text] for text in get_close_matches(given, texts, _NAMED, 0.5)]
    return list({each.id: each for each in near}.values())
