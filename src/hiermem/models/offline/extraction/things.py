"""Decides which entities a conversation names, the kind of each, and which names mean the same one.

An entity collects what its names have in common over all sentences. ``entity_names`` finds the
names. Here they are counted, their kinds decided, short and long forms of a person's name joined,
and recurring phrases added as concepts. ``worth`` decides which of them to keep.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hiermem.core.extraction.reduce import normalise
from hiermem.core.text.entity_names import NameMention, find
from hiermem.models.offline.extraction.phrases import TOKEN
from hiermem.models.offline.extraction.phrases import phrases as find_phrases
from hiermem.models.offline.extraction.speech import Definition, Sentence
from hiermem.models.offline.extraction.worth import Thing, keep
from hiermem.types.trivector import EntityType

_MEASURED: Final = re.compile(
    r"\b(?:time|latency|budget|costs?|price|memory|coverage|load|port|limit|rate|size|score|deadline"
    r"|salary|rent|hours|sprint|response|storage|capacity|uptime|distance|weight|speed)\b",
    re.IGNORECASE,
)


_PLAIN: Final = re.compile(r"\b[a-z][a-z'’-]+\b")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class MarkedSentence:
    """A sentence with the kept entities that it names, as (start, stop, thing)."""

    said: Sentence
    things: tuple[tuple[int, int, Thing], ...]


_Key = tuple[EntityType, str]


class _ThingTable:
    """All entities so far, by kind and normalised name."""

    def __init__(self) -> None:
        self.things: dict[_Key, Thing] = {}
        self._kinds: dict[str, Counter[EntityType]] = {}

    def meet(self, said: Sentence, mention: NameMention) -> None:
        """Count one mention."""
        thing = self.get(mention.type, mention.name)
        thing.spellings[mention.name] += 1
        thing.messages[said.index] = None
        if said.own:
            thing.own[said.index] = None
        if mention.detail:
            thing.details[mention.detail] += 1
        thing.sure = max(thing.sure, mention.sure)
        worth = _telling(said, mention)
        if worth > thing.about_worth:
            thing.about, thing.about_worth = said.text, worth

    def get(self, kind: EntityType, name: str) -> Thing:
        return self.things.setdefault((kind, normalise(name)), Thing(kind))

    def settle(self, speakers: Iterable[str]) -> None:
        """Assign names of unknown kind the kind that they have elsewhere."""
        by_name: dict[str, list[Thing]] = {}
        for (_, name), thing in self.things.items():
            by_name.setdefault(name, []).append(thing)
        for name, group in by_name.items():
            if len(group) < 2:
                continue
            # Form comes before frequency; files, figures and dates are unambiguous.
            group.sort(key=lambda t: (t.type != "concept", t.sure, len(t.messages)), reverse=True)
            best = group[0]
            for other in group[1:]:
                weak = other.type == "concept" or other.sure <= 0.7
                if weak or {best.type, other.type} <= {"identifier", "class", "technology"}:
                    best.absorb(other)
                    del self.things[other.type, name]
        self._join_people(speakers)
        self._join_files()

    def _join_files(self) -> None:
        """Join the short and the long paths of a file, if only one long path fits."""
        paths = sorted((name for kind, name in self.things if kind == "file"), key=len)
        tails: dict[str, list[str]] = {}
        for path in paths:
            parts = path.strip("/").split("/")
            for at in range(len(parts)):
                tails.setdefault("/".join(parts[at:]), []).append(path)
        for path in paths:
            longer = [o for o in tails.get(path.strip("/"), ()) if len(o) > len(path)]
            longest = max(longer, key=len, default="")
            # All paths with this ending must be endings of one another; otherwise it is ambiguous.
            if longest and all(longest.endswith(other.lstrip("/")) for other in longer):
                self.things["file", longest].absorb(self.things.pop(("file", path)))

    def _join_people(self, speakers: Iterable[str]) -> None:
        """Join the short and the long name of a person, if only one long name fits."""
        known = {normalise(name): name for name in speakers}
        for lower, name in known.items():
            person = self.get("person", name)
            person.spellings[name] += 1_000
            person.sure = 1.0
            other = self.things.pop(("concept", lower), None)
            if other:
                person.absorb(other)
        people = [key for key in self.things if key[0] == "person"]
        for key in sorted(self.things, key=lambda k: len(k[1])):
            kind, lower = key
            if kind not in ("person", "concept") or len(lower) < 2 or key not in self.things:
                continue
            nick = kind == "person" or any(lower == name[: len(lower)] for name in known)
            longer = [
                other
                for other in people
                if other[1] != lower
                and other in self.things
                and (
                    other[1].startswith(lower + " ")
                    or (
                        nick
                        and len(lower) >= 3
                        and other[1] in known
                        and other[1].startswith(lower)
                    )
                )
            ]
            if len(longer) == 1 and lower not in known:
                self.things[longer[0]].absorb(self.things.pop(key))


def _telling(said: Sentence, mention: NameMention) -> float:
    """Return how well a sentence describes a name in it."""
    text = said.text
    length = len(text)
    worth = 1.0 if 40 <= length <= 220 else 0.4 if length > 220 else 0.3
    after = text[mention.stop : mention.stop + 24].lower()
    if re.match(r"(?: is| are| was|,? an? |,? the |,? which| \(| handles| provides| will)", after):
        worth += 0.6
    if said.own:
        worth += 0.8
    if text.rstrip().endswith("?"):
        worth -= 0.5
    return worth - 0.2 * mention.start / max(1, length)


def collect(
    said: Sequence[Sentence],
    defined: Sequence[Definition],
    shown: Sequence[tuple[int, str]],
    speakers: Sequence[str],
) -> tuple[list[Thing], list[MarkedSentence]]:
    """Return the entities worth keeping, best first, and the sentences that name them.

    ``defined`` is what code defines, ``shown`` the (message, file) pairs that code and programs
    name, ``speakers`` the people who speak under names of their own.
    """
    table = _ThingTable()
    mentions = [find(one.text) for one in said]
    _ground_names(mentions)
    for one, found in zip(said, mentions, strict=True):
        telling = any(m.sure > 0.3 and m.type not in ("number", "date") for m in found)
        for mention in found:
            if mention.sure > 0.3:
                table.meet(one, mention)
                if telling or _MEASURED.search(one.text):
                    table.get(mention.type, mention.name).company = True
    _add_code(table, defined, shown)
    table.settle(speakers)
    phrases = find_phrases(said, mentions)
    for phrase, (messages, own, text) in phrases.items():
        thing = table.get("concept", phrase)
        thing.spellings[phrase] += len(messages)
        thing.messages.update(dict.fromkeys(messages))
        thing.own.update(dict.fromkeys(own))
        thing.sure = max(thing.sure, min(0.75, 0.35 + 0.04 * (len(messages) + len(own))))
        if not thing.about:
            thing.about = text
    plain = Counter(word for one in said for word in _PLAIN.findall(one.text))
    own_names = frozenset(part for name in speakers for part in name.lower().split())
    kept = keep(table.things.values(), own_names, plain)
    return kept, _sentences(said, mentions, kept, phrases)


def _ground_names(mentions: list[list[NameMention]]) -> None:
    """Raise the certainty of names at the start of a sentence to that of their other places."""
    known: dict[str, NameMention] = {}
    for found in mentions:
        for mention in found:
            name = normalise(mention.name)
            if mention.sure > 0.3 and (name not in known or known[name].sure < mention.sure):
                known[name] = mention
    for found in mentions:
        for at, mention in enumerate(found):
            better = known.get(normalise(mention.name))
            if better and (mention.sure <= 0.3 or (mention.type == "concept" != better.type)):
                found[at] = mention._replace(type=better.type, sure=better.sure)


def _add_code(
    table: _ThingTable, defined: Sequence[Definition], shown: Sequence[tuple[int, str]]
) -> None:
    """Count occurrences in code, for names that speech has too, or that code defines repeatedly."""
    times = Counter((each.kind, normalise(each.name)) for each in defined)
    for each in defined:
        name = normalise(each.name)
        for kind in ("concept", "identifier", "function", "class"):
            other = table.things.get((kind, name))
            if other is not None and kind != each.kind and each.name in other.spellings:
                del table.things[kind, name]
                table.get(each.kind, each.name).absorb(other)
                table.things[each.kind, name].sure = 0.9
        known = (each.kind, name) in table.things
        if known or (times[each.kind, name] > 1 and re.search(r"_[a-z]|[a-z][A-Z]", each.name)):
            thing = table.get(each.kind, each.name)
            thing.spellings[each.name] += 1
            thing.messages[each.index] = None
            thing.sure = max(thing.sure, 0.85)
            if not thing.about:
                thing.about = f"Defined in {each.file}" if each.file else ""
    bases = {name for kind, name in table.things if kind == "file"}
    tails = {name.rsplit("/", 1)[-1]: name for name in bases}
    counts = Counter(normalise(path.removeprefix("./")) for _, path in shown)
    for index, path in shown:
        name = normalise(path.removeprefix("./"))
        if name in bases or (counts[name] > 2 and "/" in name):
            target = name
        elif (tail := name.rsplit("/", 1)[-1]) in tails:
            target = tails[tail]
        else:
            continue
        thing = table.get("file", target if target in bases else path.removeprefix("./"))
        thing.spellings[path.removeprefix("./") if target == name else target] += 1
        thing.messages[index] = None
        thing.sure = max(thing.sure, 0.9)


def _sentences(
    said: Sequence[Sentence],
    mentions: Sequence[Sequence[NameMention]],
    kept: Sequence[Thing],
    phrases: Iterable[str],
) -> list[MarkedSentence]:
    """Return each sentence with the kept entities that it names, in order of position."""
    by_name: dict[tuple[str, str], Thing] = {}
    any_kind: dict[str, Thing] = {}
    for thing in kept:
        for spelling in thing.spellings:
            by_name.setdefault((thing.type, normalise(spelling)), thing)
            any_kind.setdefault(normalise(spelling), thing)
    wanted = {phrase: any_kind[phrase] for phrase in phrases if phrase in any_kind}
    result: list[MarkedSentence] = []
    for one, found in zip(said, mentions, strict=True):
        placed: list[tuple[int, int, Thing]] = []
        for mention in found:
            if mention.sure <= 0.3:
                continue
            name = normalise(mention.name)
            known = by_name.get((mention.type, name)) or any_kind.get(name)
            if known is not None:
                placed.append((mention.start, mention.stop, known))
        placed += _placed_phrases(one.text, wanted, placed)
        placed.sort(key=lambda place: place[0])
        result.append(MarkedSentence(one, tuple(placed)))
    return result


def _placed_phrases(
    text: str, wanted: dict[str, Thing], placed: Sequence[tuple[int, int, Thing]]
) -> list[tuple[int, int, Thing]]:
    if not wanted:
        return []
    tokens = list(TOKEN.finditer(text))
    found: list[tuple[int, int, Thing]] = []
    for at in range(len(tokens)):
        for size in (3, 2, 1):
            gram = tokens[at : at + size]
            if len(gram) < size:
                continue
            meant = wanted.get(" ".join(token.group().lower() for token in gram))
            start, stop = gram[0].start(), gram[-1].end()
            if meant is not None and not any(a < stop and start < b for a, b, _ in placed):
                found.append((start, stop, meant))
                break
    return found
