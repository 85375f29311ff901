"""Which session a name means: its title, its id, or the beginning of one that no other has.

Everything here is decided over records alone; ``options`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise

import hiermem
from hiermem.cli.screen import clean, one_line

#: The name of the session with the newest message.
LAST = "@last"
#: How many sessions an error names.
NAMED = 3
LISTED = "'hiermem sessions' lists them"
#: The least length of a shortened id, and the most characters that are shown of a title.
_SHORT, _TITLE = 8, 40


def chosen(
    name: str, records: Sequence[hiermem.SessionRecord], *, whole: bool = False
) -> hiermem.SessionRecord:
    """Return the session that a name means: by its id, its title, or the beginning of either.

    The first of these that fits a session decides. Of a session and its forks it means the session.
    Upper and lower case are the same, except in two ids. With ``whole``, no beginning is taken.

    Raises NotFoundError, with the sessions whose title or id is nearest, and UsageError if the name
    means several.
    """
    given = _plain(name)
    begun = "\0" if whole or not given else given.removesuffix("…")
    plain = [(each, _plain(each.id), _plain(each.title or each.id)) for each in records]
    found = (
        [each for each in records if each.id == name]
        or [each for each, *texts in plain if given in texts]
        or [each for each, *texts in plain if any(text.startswith(begun) for text in texts)]
    )
    found = [group[0] for group in families(found, records)]
    if len(found) == 1:
        return found[0]
    if found:
        raise hiermem.UsageError(
            f"{len(found):,} sessions begin with {name!r}: {described(found, records)}; write more "
            "of the title or of the id"
        )
    near = _nearest(name, records)
    there = f"there is {described(near, records)}" if near else LISTED
    raise hiermem.NotFoundError(
        f"there is no session {name!r}{' by its whole title or id' if whole else ''}; {there}"
    )


def families(
    found: Iterable[hiermem.SessionRecord], records: Sequence[hiermem.SessionRecord]
) -> list[list[hiermem.SessionRecord]]:
    """Group sessions with their forks: the one that all others stem from comes first.

    The groups stand in the order of the first of each. ``records`` are all sessions.
    """
    known, members = {each.id: each for each in records}, {each.id: each for each in found}
    groups: dict[str, list[hiermem.SessionRecord]] = {}
    for each in members.values():
        root, above = each, each
        while above.forked_from is not None and above.forked_from in known:
            above = known[above.forked_from]
            root = members.get(above.id, root)
        groups.setdefault(root.id, [root])
        if each is not root:
            groups[root.id].append(each)
    return list(groups.values())


def holds(record: hiermem.SessionRecord, words: Iterable[str]) -> bool:
    """Return whether a session's title holds all of these words, or its id begins with them."""
    title = _plain(record.title or record.id)
    return all(_plain(word) in title or record.id.startswith(word) for word in words)


def short_ids(records: Iterable[hiermem.SessionRecord]) -> dict[str, str]:
    """Return a beginning of each id that means the session; of a fork, the whole id."""
    ids = sorted(each.id for each in records if each.forked_from is None)
    least = dict.fromkeys(ids, _SHORT)
    for one, two in pairwise(ids):
        apart = (
            next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one))
            + 1
        )
        least[one], least[two] = max(least[one], apart), max(least[two], apart)
    return {each: each[: least[each]] for each in ids}


def title_of(session: hiermem.SessionRecord | hiermem.SessionStatus) -> str:
    """Return the beginning of a session's title on one line, or its id if it has none."""
    return one_line(session.title, _TITLE) if session.title else clean(session.id)


def labelled(
    session: hiermem.SessionRecord | hiermem.SessionStatus, short: Mapping[str, str] | None = None
) -> str:
    """Return a session's title and its id, or the beginning of that: ``Plans (9a2ef80f)``."""
    name = clean((short or {}).get(session.id, session.id))
    return f"{title_of(session)} ({name})" if session.title else clean(session.id)


def described(
    found: Sequence[hiermem.SessionRecord], records: Iterable[hiermem.SessionRecord]
) -> str:
    """Name the first sessions, and count the rest."""
    short = short_ids(records)
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    return ", ".join(labelled(each, short) for each in found[:NAMED]) + more


def _nearest(name: str, records: Sequence[hiermem.SessionRecord]) -> list[hiermem.SessionRecord]:
    """Return the sessions whose title holds the name, or whose title or id is most like it."""
    given = _plain(name)
    roots = [group[0] for group in families(records, records)]
    found = [each for each in roots if given and given in _plain(each.title or each.id)]
    like: dict[str, list[hiermem.SessionRecord]] = {}
    for each in roots:
        for text in {_plain(each.id), _plain(each.title or each.id)}:
            like.setdefault(text, []).append(each)
    for text in get_close_matches(given, like, NAMED, 0.5):
        found += [each for each in like[text] if each not in found]
    return found[:NAMED]


def _plain(text: str) -> str:
    return " ".join(clean(text).split()).casefold()
