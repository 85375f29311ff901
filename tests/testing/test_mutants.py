"""The kit is tested by wrong stores: each of them must be rejected, and the right ones accepted.

Every mutant is the reference with one fault that a store author could make. If one of them gets
through the conformance suite, the suite has a hole.
"""

import asyncio
import base64
import json
import re
import unicodedata
from collections import Counter
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partialmethod
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from rerunning import OptimisticTenant

from hiermem.errors import HiermemError
from hiermem.stores.contract import check_record_writes
from hiermem.stores.dump import RowReader
from hiermem.stores.memory import MemoryStore, MemoryTenant, MemoryTree
from hiermem.stores.memory.reads import SessionData, TenantData
from hiermem.testing import StoreConformance
from hiermem.testing.samples import writing
from hiermem.types import SessionRecord
from hiermem.types.transaction import Batch, Changes, NeedEchoes, NeedSession, Snapshot, ViewRecord

MUTANTS: dict[str, type] = {}
#: The conditions that take longer than all others together.
SLOW = {
    "test_a_secret_goes_with_a_copy_and_is_never_replaced",
    "test_a_restore_is_whole_or_nothing",
    "test_of_a_restore_that_is_cut_off_nothing_is_kept",
    "test_a_dumped_session_is_restored_as_it_was",
    "test_a_dump_is_of_one_state",
    "test_it_agrees_with_the_reference",
}


class KeepingStore(MemoryStore):
    """The reference, made durable within the process: what is opened at a path again is the same.

    ``handle`` is the class of its tenants' handles.
    """

    kept: ClassVar[dict] = {}
    handle: type[MemoryTenant] = MemoryTenant

    @classmethod
    def at(cls, path):
        store = cls()
        before = cls.kept.get((cls, path))
        if before is not None:
            store._secret, store._tenants = before._secret, before._tenants
            store.reopened()
        cls.kept[cls, path] = store
        return store

    @property
    def capabilities(self):
        return frozenset({"durable"})

    def tenant(self, name):
        return self.handle(self, name)

    def reopened(self):
        pass

    def sessions_kept(self):
        return [one for tenant in self._tenants.values() for one in tenant.sessions.values()]


def conformance_of(store):
    class Suite(StoreConformance):
        patience = 0.5
        # Which example fails is of no interest here, so no time is spent on making it small.
        machine_settings = settings(
            StoreConformance.machine_settings, max_examples=8, phases=(Phase.generate,)
        )

        async def open_store(self, path):
            return store.at(path)

    return Suite


def stems(text):
    """Return the beginnings of the words of a name or sentence."""
    return {word.lower()[:5] for word in re.findall(r"[A-Za-z][a-z]+", text)}


def in_order(suite, fault):
    """Return the names of the suite's tests, those first that speak of what ``fault`` speaks of.

    The order decides what a rejection costs and not whether there is one: every test has its turn.
    Rare words weigh more. Those that take long are last.
    """
    tests = [name for name in dir(suite) if name.startswith("test_")]
    frequency = Counter(stem for name in tests for stem in stems(name))

    def likeness(name):
        common = stems(fault) & stems(f"{name} {getattr(suite, name).__doc__ or ''}")
        return sum(1 / frequency.get(stem, 40) for stem in sorted(common))

    near = {name: likeness(name) for name in tests}
    return sorted(tests, key=lambda name: (name in SLOW, -near[name], name))


def complaints(suite, tmp_path, fault=""):
    """Run the suite's tests until one fails; give the name of that one, or None."""
    for number, name in enumerate(in_order(suite, fault)):
        room = tmp_path / str(number)
        room.mkdir()
        try:
            getattr(suite(), name)(room)
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - any complaint will do
            return name
    return None


def _tree_of(tenant, cls, session_id, number=None):
    return cls(tenant, session_id, number)


def mutant(cls):
    """Enter a handle with a fault, a tree's handle with one, or a store, into the list."""
    if issubclass(cls, MemoryTree):
        cls = type(
            cls.__name__,
            (MemoryTenant,),
            {"tree": partialmethod(_tree_of, cls), "__doc__": cls.__doc__},
        )
    if issubclass(cls, MemoryTenant):
        cls = type(cls.__name__, (KeepingStore,), {"handle": cls, "__doc__": cls.__doc__})
    MUTANTS[cls.__name__] = cls
    return cls


def _text(stored, change):
    message = stored.message
    if not isinstance(message.content, str):
        return stored
    return replace(stored, message=replace(message, content=change(message.content)))


class Rewrites(MemoryTenant):
    """A handle that changes what decisions changed, before it is written."""

    def rewrite(self, changes):
        raise NotImplementedError

    async def mutate(self, session_id, decide, *, keys=()):
        return await super().mutate(session_id, lambda s: self.rewrite(decide(s)), keys=keys)


@mutant
class ForgetsKeys(Rewrites):
    """Never remembers a message key."""

    def rewrite(self, changes):
        return replace(changes, keys=())


@mutant
class FoldsCaseOfKeys(MemoryTenant):
    """Holds "A" and "a" for the same key."""

    async def mutate(self, session_id, decide, *, keys=()):
        def folded(snapshot):
            everything = self._session(session_id)
            known = dict(everything.keys) if everything else {}
            fold = {key.casefold(): entry for key, entry in known.items()}
            seen = {key: fold[key.casefold()] for key in keys if key.casefold() in fold}
            return decide(replace(snapshot, keys=seen))

        return await super().mutate(session_id, folded, keys=keys)


@mutant
class TrimsKeys(Rewrites):
    """Strips white space from keys."""

    def rewrite(self, changes):
        return replace(
            changes, keys=tuple({k.strip(): (k.strip(), e) for k, e in changes.keys}.values())
        )


@mutant
class GivesEveryKey(MemoryTenant):
    """Puts all of the session's keys into the snapshot."""

    async def mutate(self, session_id, decide, *, keys=()):
        found = self._session(session_id)
        return await super().mutate(session_id, decide, keys=list(found.keys) if found else keys)


@mutant
class CutsLongTexts(Rewrites):
    """Keeps the first thousand characters."""

    def rewrite(self, changes):
        cut = tuple(_text(one, lambda text: text[:1000]) for one in changes.messages)
        return replace(changes, messages=cut)


@mutant
class TrimsTexts(Rewrites):
    """Strips white space from the ends of texts."""

    def rewrite(self, changes):
        return replace(changes, messages=tuple(_text(m, str.rstrip) for m in changes.messages))


@mutant
class NormalisesTexts(Rewrites):
    """Stores texts in normal form C."""

    def rewrite(self, changes):
        normal = tuple(
            _text(one, lambda text: unicodedata.normalize("NFC", text)) for one in changes.messages
        )
        return replace(changes, messages=normal)


@mutant
class ForgetsSlices(Rewrites):
    """Drops where an oversize message was cut."""

    def rewrite(self, changes):
        return replace(changes, messages=tuple(replace(m, slices=()) for m in changes.messages))


@mutant
class ForgetsEvents(Rewrites):
    """Keeps one event a write."""

    def rewrite(self, changes):
        return replace(changes, events=changes.events[:1])


@mutant
class CommitsBeforeChecking(MemoryTenant):
    """Writes the nodes before it finds that the changes are refused."""

    async def mutate(self, session_id, decide, *, keys=()):
        def eager(snapshot):
            changes = decide(snapshot)
            found = self._session(session_id)
            if found and changes.session:
                found.tree().nodes.update({node.id: node for node in changes.nodes})
            return changes

        return await super().mutate(session_id, eager, keys=keys)


@mutant
class WritesWithoutRecord(MemoryTenant):
    """Appends messages although the changes have no session record."""

    async def mutate(self, session_id, decide, *, keys=()):
        def written(snapshot):
            changes = decide(snapshot)
            if changes.session is None and changes.nodes:
                record = writing(session_id)(snapshot).session
                self._kept().sessions.setdefault(session_id, SessionData(record))
            return changes

        return await super().mutate(session_id, written, keys=keys)


@mutant
class WritesEveryCall(MemoryTenant):
    """Calls the decision twice and writes the changes of both calls."""

    async def mutate(self, session_id, decide, *, keys=()):
        await super().mutate(session_id, decide, keys=keys)
        return await super().mutate(session_id, decide, keys=keys)


@mutant
class ReturnsTheFirstCall(MemoryTenant):
    """Calls the decision twice, writes what the second gives and returns what the first gave."""

    async def mutate(self, session_id, decide, *, keys=()):
        def twice(snapshot):
            result = decide(snapshot).result
            return replace(decide(snapshot), result=result)

        return await super().mutate(session_id, twice, keys=keys)


@mutant
class LosesUpdates(MemoryTenant):
    """Reads the snapshot, lets others write, then writes over them."""

    async def mutate(self, session_id, decide, *, keys=()):
        snapshot = None

        def peek(seen):
            nonlocal snapshot
            snapshot = seen
            return Changes(None)

        await super().mutate(session_id, peek, keys=keys)
        changes = decide(snapshot)
        await asyncio.sleep(0)
        return await super().mutate(session_id, lambda _: changes, keys=keys)


@mutant
class WrapsErrors(MemoryTenant):
    """Turns what a decision raises into an error of its own."""

    async def mutate(self, session_id, decide, *, keys=()):
        try:
            return await super().mutate(session_id, decide, keys=keys)
        except HiermemError:
            raise
        except Exception as error:
            raise RuntimeError("the decision failed") from error


@mutant
class MatchesTenantsByCase(MemoryTenant):
    """Holds tenant "A" and tenant "a" for the same."""

    def __init__(self, store, name):
        super().__init__(store, name.casefold())
        self.given = name

    @property
    def tenant(self):
        return self.given


@mutant
class MatchesTenantsByPrefix(MemoryTenant):
    """Reads sessions with LIKE 'tenant%'."""

    async def sessions(self):
        self._store.open_tenant(self._name)
        return [
            session.record
            for name, tenant in self._store._tenants.items()
            if name.startswith(self._name)
            for session in tenant.sessions.values()
        ]


@mutant
class ReusesAcrossTenants(MemoryTenant):
    """Looks revisions up by input hash in every tenant."""

    async def reusable(self, input_hash):
        for name in list(self._store._tenants):
            found = await MemoryTenant(self._store, name).reusable(input_hash)
            if found:
                return found
        return None


@mutant
class SharesViews(MemoryTenant):
    """Keeps views by name alone."""

    async def view(self, session_id, name):
        kept = self._kept()
        return next((view for (_, n), view in kept.views.items() if n == name), None)


@mutant
class CachesViews(MemoryTenant):
    """Keeps the views that it has read, and does not look for changes that drop them."""

    def _read(self):
        return self._store.__dict__.setdefault("read", {})

    async def view(self, session_id, name):
        place = (self.tenant, session_id, name)
        if place not in self._read():
            self._read()[place] = await super().view(session_id, name)
        return self._read()[place]

    async def put_view(self, view, *, epoch=None):
        self._read().pop((self.tenant, view.session_id, view.name), None)
        return await super().put_view(view, epoch=epoch)

    async def transact(self, decide, **more):
        deleted = []

        def watched():
            reply = yield from decide()
            deleted[:] = reply.delete
            return reply

        result = await super().transact(watched, **more)
        for place in list(self._read()):
            if place[1] in deleted:
                del self._read()[place]
        return result

    async def erase_all(self):
        self._read().clear()
        return await super().erase_all()


@mutant
class FindsRecordsByKeyEverywhere(MemoryTenant):
    """Looks records up by key in every tenant."""

    async def records(self, kind, *, scope=None, key=None, limit=10_000):
        if key is None or scope is not None:
            return await super().records(kind, scope=scope, key=key, limit=limit)
        found = []
        for name in list(self._store._tenants):
            found += await MemoryTenant(self._store, name).records(kind, key=key, limit=limit)
        return sorted(found, key=lambda one: (one.scope, one.key))[: max(limit, 0)]


@mutant
class ListsAttemptsByTheirIds(MemoryTenant):
    """Gives attempts in the order of their ids."""

    async def attempts(self, *, run_id=None, session_id=None, limit=1000):
        found = await super().attempts(run_id=run_id, session_id=session_id, limit=10_000)
        return sorted(found, key=lambda one: one.id)[: max(limit, 0)]


@mutant
class ListsRunsByTheirIds(MemoryTenant):
    """Gives runs in the reverse order of their ids."""

    async def runs(self, *, subject=None, limit=100):
        found = await super().runs(subject=subject, limit=10_000)
        return sorted(found, key=lambda one: one.id, reverse=True)[: max(limit, 0)]


@mutant
class FoldsSessions(MemoryTenant):
    """Holds session "S" and session "s" for the same when it reads messages."""

    async def messages(self, session_id, start, stop, *, thread=None):
        return await super().messages(session_id.casefold(), start, stop, thread=thread)


@mutant
class OrdersByTime(MemoryTenant):
    """Gives messages in the order of their timestamps."""

    async def messages(self, session_id, start, stop, *, thread=None):
        found = await super().messages(session_id, start, stop, thread=thread)
        return sorted(found, key=lambda one: one.created_at)


@mutant
class IncludesTheStop(MemoryTenant):
    """Takes ``stop`` for the last index wanted."""

    async def messages(self, session_id, start, stop, *, thread=None):
        return await super().messages(session_id, start, stop + (stop > start), thread=thread)


@mutant
class MatchesThreadsByPattern(MemoryTenant):
    """Finds a thread with LIKE."""

    async def messages(self, session_id, start, stop, *, thread=None):
        found = await super().messages(session_id, start, stop)
        wanted = thread and thread.rstrip("%")
        return [one for one in found if thread is None or one.thread.startswith(wanted)]


class Lists(MemoryTenant):
    """A handle that lists sessions in a way of its own."""

    def listed(self, records, *, after, metadata, order_by):
        raise NotImplementedError

    async def sessions(self, *, after=None, limit=100, metadata=None, order_by="created"):
        records = await super().sessions(limit=1 << 30, order_by=order_by)
        found = self.listed(records, after=after, metadata=metadata or {}, order_by=order_by)
        return found[: max(limit, 0)]

    @staticmethod
    def begun(records, after):
        ids = [one.id for one in records]
        return records[ids.index(after) + 1 :] if after in ids else records

    @staticmethod
    def holding(records, metadata):
        return [one for one in records if metadata.items() <= one.metadata.items()]


@mutant
class EndsWhereItsCursorIsGone(Lists):
    """Gives an empty page after a session that was deleted."""

    def listed(self, records, *, after, metadata, order_by):
        if after is not None and all(one.id != after for one in records):
            return []
        return self.holding(self.begun(records, after), metadata)


@mutant
class BeginsAmongTheSelected(Lists):
    """Finds the session that a page begins after only if its metadata match too."""

    def listed(self, records, *, after, metadata, order_by):
        return self.begun(self.holding(records, metadata), after)


@mutant
class PagesByTimeOfCreation(Lists):
    """Takes the stated time of creation for the order of creation."""

    def listed(self, records, *, after, metadata, order_by):
        if order_by == "created":
            records = sorted(records, key=lambda one: one.created_at)
        return self.holding(self.begun(records, after), metadata)


@mutant
class SkipsSessionsOfTheSameTime(Lists):
    """Begins a page with what was active before the last session of the page before."""

    def listed(self, records, *, after, metadata, order_by):
        last = next((one for one in records if one.id == after), None)
        begun = self.begun(records, after)
        if last is not None and order_by == "last_activity":
            begun = [one for one in records if one.last_activity < last.last_activity]
        return self.holding(begun, metadata)


@mutant
class ListsTheLeastActiveFirst(Lists):
    """Gives the session that was active longest ago first."""

    def listed(self, records, *, after, metadata, order_by):
        if order_by == "last_activity":
            records = records[::-1]
        return self.holding(self.begun(records, after), metadata)


@mutant
class TakesWritesForActivity(Rewrites):
    """Sets the last activity at every write."""

    def rewrite(self, changes):
        record = changes.session
        if record is None:
            return changes
        later = record.last_activity + timedelta(hours=record.version)
        return replace(changes, session=replace(record, last_activity=later))


@mutant
class CountsOnePage(MemoryTenant):
    """Counts the sessions that a page can hold."""

    async def count_sessions(self, *, metadata=None):
        return len(await self.sessions(metadata=metadata))


@mutant
class CountsByOnePair(MemoryTenant):
    """Counts the sessions that hold the last of the pairs."""

    async def count_sessions(self, *, metadata=None):
        last = dict(list((metadata or {}).items())[-1:])
        return await super().count_sessions(metadata=last)


@mutant
class FoldsMetadata(Lists):
    """Compares metadata without regard to case."""

    def listed(self, records, *, after, metadata, order_by):
        def fold(pairs):
            return {(key.casefold(), value.casefold()) for key, value in pairs.items()}

        begun = self.begun(records, after)
        return [one for one in begun if fold(metadata) <= fold(one.metadata)]


@mutant
class FiltersThePage(MemoryTenant):
    """Cuts the page off before it looks at the metadata."""

    async def sessions(self, *, after=None, limit=100, metadata=None, order_by="created"):
        page = await super().sessions(after=after, limit=limit, order_by=order_by)
        return Lists.holding(page, metadata or {})


@mutant
class MergesMetadata(MemoryTenant):
    """Keeps the pairs that a later record does not hold."""

    async def mutate(self, session_id, decide, *, keys=()):
        def merged(snapshot):
            changes = decide(snapshot)
            if snapshot.session is None or changes.session is None:
                return changes
            both = {**snapshot.session.metadata, **changes.session.metadata}
            return replace(changes, session=replace(changes.session, metadata=both))

        return await super().mutate(session_id, merged, keys=keys)


def _cut(name):
    """Cut a name off as an index with short keys would."""
    return None if name is None else name.encode()[:2000].decode(errors="ignore")


@mutant
class CutsLongRecordKeys(MemoryTenant):
    """Compares the first 2,000 bytes of a record's key."""

    async def records(self, kind, *, scope=None, key=None, limit=10_000):
        found = await super().records(kind, scope=scope)
        return [one for one in found if key is None or _cut(one.key) == _cut(key)][:limit]


@mutant
class StoresLongRecordKeysCut(MemoryTenant):
    """Writes the first 2,000 bytes of a record's key."""

    async def put_records(self, writes, *, epochs=None, standing=()):
        cut = [replace(write, key=_cut(write.key)) for write in writes]
        return await super().put_records(cut, epochs=epochs, standing=standing)


@mutant
class CutsLongSessionIds(MemoryTenant):
    """Compares the first 2,000 bytes of a session's id."""

    async def mutate(self, session_id, decide, *, keys=()):
        like = [id_ for id_ in self._kept().sessions if _cut(id_) == _cut(session_id)]
        if not like or session_id in like:
            return await super().mutate(session_id, decide, keys=keys)

        def changed(snapshot):
            changes = decide(snapshot)
            return replace(
                changes, session=changes.session and replace(changes.session, id=like[0])
            )

        return await super().mutate(like[0], changed, keys=keys)


class Dumps(MemoryTenant):
    """A handle that dumps something else than it keeps."""

    def dumped(self, dump):
        raise NotImplementedError

    async def dump(self, session_id):
        inner = await super().dump(session_id)

        async def altered():
            rows = [row async for page in inner for row in page]
            kept = self.dumped(rows[1:-1])
            yield [rows[0], *kept, {"kind": "end", "rows": len(kept)}]

        return altered()


def _dumping(name, what, change):
    """Enter a handle whose dump is changed row by row; rows that become None are left out."""

    def dumped(self, rows):
        return [new for row in rows if (new := change(json.loads(json.dumps(row)))) is not None]

    mutant(type(name, (Dumps,), {"dumped": dumped, "__doc__": what}))


def _value(kind, **fields):
    def change(row):
        if row["kind"] == kind:
            row["value"].update(fields)
        return row

    return change


for _kind in ("version", "key", "event", "revision", "view", "record", "run", "attempt", "block"):
    _dumping(
        f"DumpsNo{_kind.title()}s", f"Leaves {_kind}s out of a dump.",
        lambda row, kind=_kind: None if row["kind"] == kind else row,
    )  # fmt: skip
_dumping(
    "DumpsTheServingTree", "Leaves other trees out of a dump.",
    lambda row: None if row["kind"] in ("node", "revision") and row["at"] != 5 else row,
)  # fmt: skip
_dumping("DumpsRecordsAsNew", "Gives every record version 1.", _value("record", version=1))
_dumping("DumpsNoMetadata", "Leaves the metadata out.", _value("session", metadata={}))
_dumping("DumpsNodesAsNew", "Gives every node version 0.", _value("node", version=0))


@mutant
class DumpsWhatIsThere(MemoryTenant):
    """Reads each page when it is asked for."""

    async def dump(self, session_id):
        if await self.session(session_id) is None:
            return await super().dump(session_id)

        async def late():
            sizes = [len(page) async for page in await MemoryTenant.dump(self, session_id)]
            sent = 0
            for size in sizes:
                rows = [row async for page in await MemoryTenant.dump(self, session_id)
                        for row in page]  # fmt: skip
                yield rows[sent : sent + size]
                sent += size

        return late()


@mutant
class RestoresPageByPage(MemoryTenant):
    """Writes what has come before it knows whether the rest comes."""

    async def restore(self, rows, **how):
        taken = []
        async for page in rows:
            taken.append(page)
            if len(taken) == 1 and any(row["kind"] == "session" for row in page):
                await self.put_view(ViewRecord("half", "v", ""))

        async def again():
            for page in taken:
                yield page

        await super().restore(again(), **how)
        self._kept().views.pop(("half", "v"), None)


@mutant
class RestoresOverWhatIsThere(MemoryTenant):
    """Replaces a session of the same name."""

    async def restore(self, rows, **how):
        pages_ = [page async for page in rows]
        for row in (row for page in pages_ for row in page):
            if row["kind"] == "session":
                await self.transact(lambda name=row["value"]["id"]: _batched_delete(name))

        async def again():
            for page in pages_:
                yield page

        await super().restore(again(), **how)


def _batched_delete(name):
    yield name, NeedSession()
    return Batch(None, delete=(name,))


@mutant
class TakesAnySecret(MemoryTenant):
    """Restores under a secret that is not the one of the rows."""

    async def restore(self, rows, **how):
        own = await self.secret()

        async def ours():
            async for page in rows:
                yield [
                    {**row, "secret": base64.b64encode(own).decode()}
                    if row.get("kind") == "dump" and "secret" in row else row
                    for row in page
                ]  # fmt: skip

        await super().restore(ours(), **how)


@mutant
class ReplacesItsSecret(MemoryTenant):
    """Takes the secret of every restored session over, whatever the store holds."""

    async def restore(self, rows, **how):
        pages_ = [page async for page in rows]
        if pages_ and pages_[0] and "secret" in pages_[0][0]:
            self._store._secret = base64.b64decode(pages_[0][0]["secret"])

        async def again():
            for page in pages_:
                yield page

        await super().restore(again(), **how)


@mutant
class AddsToWhatBelongsToNoSession(MemoryTenant):
    """Leaves what belonged to no session beside the rows that replace it."""

    async def restore(self, rows, *, replaces=None):
        kept = [run for run in await self.runs() if await self.session(run.subject) is None]
        await super().restore(rows, replaces=replaces)
        for run in kept:
            await self.put_run(run)


@mutant
class ShowsWhatWasCutOff(MemoryTenant):
    """Shows a session of which only a part has come."""

    async def restore(self, rows, **how):
        taken = []
        try:
            async for page in rows:
                taken += page
        except ConnectionResetError:
            self._kept().sessions["s"] = SessionData(_record_of(taken))
            raise

        async def again():
            yield taken

        self._kept().sessions.pop("s", None)
        await super().restore(again(), **how)


def _record_of(rows):
    reader = RowReader("t")
    for row in rows:
        reader.take(row)
    return reader.record


@mutant
class TellsNaiveTimes(MemoryTenant):
    """Gives a time without a zone."""

    async def now(self):
        return (await super().now()).replace(tzinfo=None)


@mutant
class TellsTheTimeOfItsOpening(KeepingStore):
    """Has a clock that stands still."""

    def __init__(self):
        began = datetime.now(UTC)
        super().__init__(clock=lambda: began)


@mutant
class ListsTenantsThatWereOpened(KeepingStore):
    """Lists a tenant of which nothing is stored."""

    async def tenants(self, *, after=None, limit=100):
        names = sorted(name for name in self._tenants if name != "")
        return [name for name in names if after is None or name > after][: max(limit, 0)]


@mutant
class ClaimsForNobody(KeepingStore):
    """Hands out what is due to whoever asks."""

    async def claim_due(self, limit, *, lease, **which):
        return await super().claim_due(limit, lease=lease and -1.0, **which)


@mutant
class SettlesAnyGeneration(MemoryTenant):
    """Removes an entry that became due again after the claim."""

    async def settle_due(self, claimed, *, at=None):
        found = self._session(claimed.session_id)
        if found is None or found.due is None:
            return False
        return await super().settle_due(replace(claimed, generation=found.due.generation), at=at)


@mutant
class ForgetsWhatTextsLeave(MemoryTree):
    """Enters nothing where a node is written that is to be made again."""

    async def write_nodes(self, writes, **how):
        found = self._session()
        before = copy(found.due) if found else None
        applied = await super().write_nodes(writes, **how)
        if found:
            found.due = before
        return applied


@mutant
class OrdersNodesAsTexts(MemoryTree):
    """Puts L1.10 before L1.9."""

    async def level(self, level, start, stop=None):
        found = await super().level(level, start, stop)
        return sorted(found, key=lambda one: one.id)


@mutant
class AnswersNodesInStoredOrder(MemoryTree):
    """Ignores the order of the ids asked for."""

    async def nodes(self, ids):
        found = self._session()
        nodes = found.tree(self._number).nodes if found else {}
        return [one for id_, one in nodes.items() if id_ in ids]


@mutant
class RepeatsTheLastUnfinished(MemoryTree):
    """Takes ``after`` for the first ordinal wanted."""

    async def unfinished(self, level, after, limit):
        return await super().unfinished(level, after - 1, limit)


@mutant
class IgnoresVersions(MemoryTree):
    """Writes a node whatever its version is."""

    async def write_nodes(self, writes, **journalled):
        found = self._session()
        nodes = found.tree(self._number).nodes if found else {}
        free = [
            replace(
                one, expected=nodes[one.node.id].version,
                node=replace(one.node, version=nodes[one.node.id].version + 1),
            )
            if one.node.id in nodes and one.node.version == one.expected + 1
            else one
            for one in writes
        ]  # fmt: skip
        return await super().write_nodes(free, **journalled)


@mutant
class IgnoresInputs(MemoryTree):
    """Does not look whether the inputs still serve."""

    async def write_nodes(self, writes, **journalled):
        free = [replace(one, inputs=()) for one in writes]
        return await super().write_nodes(free, **journalled)


@mutant
class JournalsOnlySuccess(MemoryTree):
    """Records attempts only where a write was applied."""

    async def write_nodes(self, writes, *, attempts=(), claim=None):
        applied = await super().write_nodes(writes, claim=claim)
        if applied is not None and (any(applied) or not writes):
            await super().write_nodes([], attempts=attempts)
        return applied


@mutant
class JournalsWhatAClaimDidNotAllow(MemoryTree):
    """Records the attempts of a run that was taken over."""

    async def write_nodes(self, writes, *, attempts=(), claim=None):
        applied = await super().write_nodes(writes, claim=claim)
        await super().write_nodes([], attempts=attempts)
        return applied


@mutant
class WritesWithoutTheClaim(MemoryTree):
    """Writes the nodes of a run that was taken over, and says that it did not."""

    async def write_nodes(self, writes, *, attempts=(), claim=None):
        if claim and await super().write_nodes([], claim=claim) is None:
            await super().write_nodes(writes)
            return None
        return await super().write_nodes(writes, attempts=attempts, claim=claim)


@mutant
class ClaimsEndByTime(MemoryTree):
    """Refuses a write under a claim whose time is over, though nobody took the session over."""

    async def write_nodes(self, writes, *, attempts=(), claim=None):
        found = self._session()
        if claim and found and found.due and not found.due.holds(datetime.now(UTC)):
            return None
        return await super().write_nodes(writes, attempts=attempts, claim=claim)


@mutant
class NotesWhatTheHolderWrites(MemoryTree):
    """Makes a session due at once for what the holder of its claim left to make."""

    async def write_nodes(self, writes, **how):
        found = self._session()
        applied = await super().write_nodes(writes, **how)
        if found and found.due and applied:
            found.due.noted = True
        return applied


@mutant
class TakesWhatIsHeld(MemoryTenant):
    """Gives a session that another holds to whoever asks for it by name."""

    async def take_due(self, session_id, *, lease, held=None):
        found = self._session(session_id)
        if held is None and found and found.due:
            found.due.claimed = False
        return await super().take_due(session_id, lease=lease, held=held)


@mutant
class RenewsWhatWasTaken(MemoryTenant):
    """Renews a claim after somebody else took the session over."""

    async def take_due(self, session_id, *, lease, held=None):
        taken = await super().take_due(session_id, lease=lease, held=held)
        return held or taken


@mutant
class TakesOnlyWhatIsDue(MemoryTenant):
    """Claims no session that has no entry."""

    async def take_due(self, session_id, *, lease, held=None):
        found = self._session(session_id)
        if found is None or found.due is None:
            return None
        return await super().take_due(session_id, lease=lease, held=held)


@mutant
class ListsEveryTenant(KeepingStore):
    """Claims and lists sessions of other tenants than the one that is named."""

    async def claim_due(self, limit, *, tenant=None, **how):
        return await super().claim_due(limit, **how)


@mutant
class ListsNothingAhead(KeepingStore):
    """Lists what is due now alone."""

    async def claim_due(self, limit, *, ahead=0.0, **how):
        return await super().claim_due(limit, **how)


@mutant
class ClaimsWhatItLists(KeepingStore):
    """Claims what it was asked to list."""

    async def claim_due(self, limit, *, lease, ahead=0.0, **how):
        return await super().claim_due(limit, lease=lease or 60.0, **how)


@mutant
class AppliesAllOrNone(MemoryTree):
    """Applies no write of a call where one does not hold."""

    async def write_nodes(self, writes, **journalled):
        found = self._session()
        nodes = found.tree(self._number).nodes if found else {}
        if any(
            one.node.id not in nodes or nodes[one.node.id].version != one.expected
            for one in writes
            if one.node.version == one.expected + 1
        ):
            writes = [replace(one, inputs=(("nothing", -1),)) for one in writes]
        return await super().write_nodes(writes, **journalled)


@mutant
class KeepsVersionOfChildren(MemoryTenant):
    """Sets a parent without counting it as a write to the node."""

    async def mutate(self, session_id, decide, *, keys=()):
        children = []

        def noted(snapshot):
            changes = decide(snapshot)
            children.extend(child for child, _ in changes.parents)
            return changes

        result = await super().mutate(session_id, noted, keys=keys)
        nodes = self._session(session_id).tree().nodes if children else {}
        for child in children:
            nodes[child] = replace(nodes[child], version=nodes[child].version - 1)
        return result


@mutant
class KeepsForgottenRevisions(MemoryTenant):
    """Forgets what a node said, and leaves it in the tree."""

    async def mutate(self, session_id, decide, *, keys=()):
        found = self._session(session_id)
        before = dict(found.tree().revisions) if found else {}
        result = await super().mutate(session_id, decide, keys=keys)
        if found:
            found.tree().revisions |= before
        return result


@mutant
class ReusesDegraded(MemoryTenant):
    """Gives a degraded revision for reuse."""

    async def reusable(self, input_hash):
        kept = self._kept()
        return next((m for _, _, m in reversed(kept.written) if m.input_hash == input_hash), None)


@mutant
class ForgetsEarlierRevisions(MemoryTree):
    """Keeps only the serving revision of a node."""

    async def revisions(self, wanted):
        found = self._session()
        nodes = found.tree(self._number).nodes if found else {}
        serving = [(i, n) for i, n in wanted if i in nodes and nodes[i].revision == n]
        return await super().revisions(serving)


@mutant
class ListsRunsByClock(MemoryTenant):
    """Takes the run with the latest timestamp for the newest."""

    async def runs(self, *, subject=None, limit=100):
        found = await super().runs(subject=subject, limit=10_000)
        return sorted(found, key=lambda run: run.started_at, reverse=True)[:limit]


@mutant
class FiltersAttemptsByRunAlone(MemoryTenant):
    """Ignores the session where attempts are asked for."""

    async def attempts(self, *, run_id=None, session_id=None, limit=1000):
        return await super().attempts(run_id=run_id, limit=limit)


@mutant
class LendsItsLists(MemoryTenant):
    """Gives out the very list that it keeps."""

    async def events(self, session_id):
        found = self._session(session_id)
        return found.events if found else []


@mutant
class LendsItsMessages(MemoryTenant):
    """Gives out the very metadata that it keeps."""

    async def messages(self, session_id, start, stop, *, thread=None):
        found = self._session(session_id)
        return [
            one
            for one in (found.messages if found else [])
            if start <= one.index < stop and thread in (None, one.thread)
        ]


@mutant
class MakesASecretEachTime(KeepingStore):
    """Has another secret whenever it is opened."""

    def reopened(self):
        self._secret = MemoryStore()._secret


@mutant
class AnswersAfterClosing(KeepingStore):
    """Goes on after it was closed."""

    async def close(self):
        pass


@mutant
class WritesRecordsOneByOne(MemoryTenant):
    """Applies the writes of records whose own expectation holds."""

    async def put_records(self, writes, **conditions):
        check_record_writes(writes)
        done = True
        for one in writes:
            done = await super().put_records([one], **conditions) and done
        return done


@mutant
class DropsTheAttemptsOfRecords(MemoryTenant):
    """Writes records without the attempts that go with them."""

    async def put_records(self, writes, *, attempts=(), **conditions):
        return await super().put_records(writes, **conditions)


@mutant
class ForgetsRecordVersions(MemoryTenant):
    """Writes a record whatever version was expected."""

    async def put_records(self, writes, **conditions):
        free = [replace(one, expected=None) for one in writes]
        return await super().put_records(free, **conditions)


@mutant
class KeepsEmptyRecords(MemoryTenant):
    """Deletes a record by giving it an empty body."""

    async def put_records(self, writes, **conditions):
        kept = [replace(one, body=one.body or "") for one in writes]
        return await super().put_records(kept, **conditions)


@mutant
class WritesRecordsWhateverStands(MemoryTenant):
    """Writes records without a look at those that they go with."""

    async def put_records(self, writes, *, epochs=None, standing=(), attempts=()):
        return await super().put_records(writes, epochs=epochs, attempts=attempts)


@mutant
class LooksAtTheVersionOfWhatStands(MemoryTenant):
    """Takes a record of the same version for the one that is meant."""

    async def put_records(self, writes, *, epochs=None, standing=(), attempts=()):
        for one in standing:
            found = await self.records(one.kind, scope=one.scope, key=one.key)
            if [each.version for each in found] != [one.version]:
                return False
        return await super().put_records(writes, epochs=epochs, attempts=attempts)


@mutant
class KeepsDroppedJournals(MemoryTenant):
    """Leaves the journal of what a decision says is to go."""

    async def transact(self, decide):
        return await super().transact(_batched(decide, drop_journals=()))


@mutant
class KeepsDroppedRecords(MemoryTenant):
    """Leaves the records that a decision drops."""

    async def transact(self, decide):
        return await super().transact(_batched(decide, drop_records=()))


def _batched(decide, **fields):
    """Give the decision with another outcome."""

    def deciding():
        batch = yield from decide()
        return replace(batch, **fields)

    return deciding


@mutant
class ListsRecordsAsWritten(MemoryTenant):
    """Gives records in the order of their writing."""

    async def records(self, kind, *, scope=None, key=None, limit=10_000):
        kept = self._kept()
        found = [one for one in kept.records.values() if one.kind == kind]
        found = [one for one in found if scope in (None, one.scope) and key in (None, one.key)]
        return found[: max(limit, 0)]


class Meddles(MemoryTenant):
    """A handle that spoils what a decision changed, after it was written."""

    def spoil(self, before, kept, session_id, changes):
        """Spoil ``kept``; ``before`` is a copy of what it was."""
        raise NotImplementedError

    def _copy(self):
        draft = self._kept().draft()
        draft.sessions = {id_: one.copy() for id_, one in draft.sessions.items()}
        return draft

    async def mutate(self, session_id, decide, *, keys=()):
        before, made = self._copy(), []

        def noted(snapshot):
            made.append(decide(snapshot))
            return made[0]

        result = await super().mutate(session_id, noted, keys=keys)
        if made[0].session is not None:
            self.spoil(before, self._kept(), session_id, made[0])
        return result

    async def transact(self, decide):
        before, made = self._copy(), []

        def noted():
            made.append((yield from decide()))
            return made[0]

        result = await super().transact(noted)
        for session_id, changes in made[0].sessions:
            if changes.session is not None and session_id in self._kept().sessions:
                self.spoil(before, self._kept(), session_id, changes)
        return result


@mutant
class TransactsOneByOne(MemoryTenant):
    """Commits the sessions of a transaction one after the other."""

    async def transact(self, decide):
        batch = None

        def noted():
            nonlocal batch
            batch = yield from decide()
            return Batch(batch.result)

        result = await super().transact(noted)
        for session_id, changes in batch.sessions:
            await self.mutate(session_id, lambda _, changes=changes: changes)
        rest = replace(batch, sessions=())

        def last():
            yield "s", NeedSession()
            return rest

        await super().transact(last)
        return result


@mutant
class TransactsOnAnOldState(MemoryTenant):
    """Lets others write between what a transaction reads and what it writes."""

    async def transact(self, decide):
        batch = None

        def noted():
            nonlocal batch
            batch = yield from decide()
            return Batch(None)

        await super().transact(noted)
        await asyncio.sleep(0)

        def again():
            yield "s", NeedSession()
            return batch

        return await super().transact(again)


@mutant
class TransactsEveryRun(MemoryTenant):
    """Runs a decision twice and writes the effects of both runs."""

    async def transact(self, decide):
        await super().transact(decide)
        return await super().transact(decide)


@mutant
class ReturnsTheFirstRun(MemoryTenant):
    """Runs a decision twice, writes what the second gives and returns what the first gave."""

    async def transact(self, decide):
        def twice():
            result = (yield from decide()).result
            return replace((yield from decide()), result=result)

        return await super().transact(twice)


@mutant
class DecidesOnAnyAnswers(OptimisticTenant):
    """Does not look whether what a decision was told still holds."""

    def holds(self, before, now):
        return True


@mutant
class LocksOnlyWhatExists(OptimisticTenant):
    """Takes a session that did not exist for one that nobody else writes."""

    def holds(self, before, now):
        missing = before is None or (isinstance(before, Snapshot) and before.session is None)
        return missing or before == now


@mutant
class LocksOnlyWhatWasNamed(OptimisticTenant):
    """Does not see that a fork that a decision was told about has changed."""

    def holds(self, before, now):
        records = isinstance(before, list) and before and isinstance(before[0], SessionRecord)
        return bool(records) or before == now


@mutant
class ClaimsToBeConcurrent(KeepingStore):
    """Runs a decision while all of the tenant waits, and says otherwise."""

    @property
    def capabilities(self):
        return super().capabilities | {"concurrent"}


@mutant
class DeletesLast(MemoryTenant):
    """Writes the runs of a transaction before it deletes sessions."""

    async def transact(self, decide):
        deleted = ()

        def noted():
            nonlocal deleted
            batch = yield from decide()
            deleted = batch.delete
            return batch

        result = await super().transact(noted)
        kept = self._kept()
        kept.runs = {id_: run for id_, run in kept.runs.items() if run.subject not in deleted}
        return result


class AnswersOtherwise(MemoryTenant):
    """Gives a decision another answer than it should."""

    def need(self, need):
        """Change a need before it is answered."""
        return need

    def other(self, session_id, need, reply):
        """Change the answer to one need."""
        return reply

    def several(self, asked, replies):
        """Change the answers to several needs that were asked at once."""
        return replies

    async def transact(self, decide):
        def asked():
            deciding, reply = decide(), None
            while True:
                try:
                    wanted = deciding.send(reply)
                except StopIteration as done:
                    return done.value
                one = bool(wanted) and isinstance(wanted[0], str)
                pairs = [wanted] if one else wanted
                replies = yield tuple((id_, self.need(need)) for id_, need in pairs)
                found = tuple(
                    self.other(*pair, each) for pair, each in zip(pairs, replies, strict=True)
                )
                reply = found[0] if one else self.several(wanted, found)

        return await super().transact(asked)


@mutant
class AnswersWithTheServingTree(AnswersOtherwise):
    """Does not look at the tree that a decision asks for."""

    def need(self, need):
        return replace(need, tree=None) if hasattr(need, "tree") else need


@mutant
class AnswersTheFirstAlone(AnswersOtherwise):
    """Answers the first of several needs, and none of the others."""

    def several(self, asked, replies):
        return (*replies[:1], *([] for _ in replies[1:]))


@mutant
class AnswersRepeatedNeedsOnce(AnswersOtherwise):
    """Gives one answer for two needs that are alike."""

    def several(self, asked, replies):
        return tuple(dict(zip(asked, replies, strict=True)).values())


@mutant
class TakesOneOfSeveralForOne(AnswersOtherwise):
    """Gives a tuple of one need the bare answer."""

    def several(self, asked, replies):
        return replies[0] if len(replies) == 1 else replies


@mutant
class OverlooksEarlierEchoes(AnswersOtherwise):
    """Finds memory that came back only where no edit has replaced it."""

    def other(self, session_id, need, reply):
        if not isinstance(need, NeedEchoes):
            return reply
        kept = self._kept().sessions
        return [index for index in reply if kept[session_id].messages[index].echoes]


@mutant
class TakesMetadataForEchoes(AnswersOtherwise):
    """Looks for memory that came back by what a row looks like."""

    def other(self, session_id, need, reply):
        if not isinstance(need, NeedEchoes) or session_id not in self._kept().sessions:
            return reply
        messages = self._kept().sessions[session_id].messages
        looks = [one.index for one in messages if "echoes" in str(one.message.metadata)]
        return sorted({*reply, *looks})


@mutant
class KeepsVersionsOfErased(Meddles):
    """Leaves earlier versions of an erased message readable."""

    def spoil(self, before, kept, session_id, changes):
        old = before.sessions.get(session_id)
        for one in changes.rewrites:
            index = one.message.index
            if one.kind == "erase" and old and index in old.versions:
                kept.sessions[session_id].versions[index] = old.versions[index]


@mutant
class KeepsFingerprints(Meddles):
    """Leaves the fingerprint of an erased message beside its key."""

    def spoil(self, before, kept, session_id, changes):
        old = before.sessions.get(session_id)
        kept.sessions[session_id].keys |= old.keys if old else {}


@mutant
class GivesNewestVersionsFirst(MemoryTenant):
    """Turns the order of versions round."""

    async def versions(self, session_id, index):
        return (await super().versions(session_id, index))[::-1]


@mutant
class KeepsStaleBlocks(Meddles):
    """Leaves the blocks over a rewritten message."""

    def spoil(self, before, kept, session_id, changes):
        old = before.sessions.get(session_id)
        kept.sessions[session_id].blocks |= old.blocks if old else {}


@mutant
class DropsBlocksByTheirStart(Meddles):
    """Drops the blocks that begin at a rewritten message alone."""

    def spoil(self, before, kept, session_id, changes):
        old = before.sessions.get(session_id)
        places = {one.message.index for one in changes.rewrites}
        blocks = old.blocks if old else {}
        left = {place: block for place, block in blocks.items() if block.start not in places}
        kept.sessions[session_id].blocks |= left


@mutant
class CopiesTheWholeLog(Meddles):
    """Copies keys that are claimed beyond the place of the fork."""

    def spoil(self, before, kept, session_id, changes):
        if changes.copy:
            new = kept.sessions[session_id]
            new.keys = kept.sessions[changes.copy.source].keys | new.keys


@mutant
class CopiesWithoutVersions(Meddles):
    """Leaves the earlier versions of messages behind when it copies them."""

    def spoil(self, before, kept, session_id, changes):
        if changes.copy:
            kept.sessions[session_id].versions.clear()


@mutant
class CopiesBlocks(Meddles):
    """Takes the index over the source for the copy's."""

    def spoil(self, before, kept, session_id, changes):
        if changes.copy:
            blocks = dict(kept.sessions[changes.copy.source].blocks)
            kept.sessions[session_id].blocks = blocks


@mutant
class CopiesServingRevisionsAlone(Meddles):
    """Copies texts under number 1 whatever they were."""

    def spoil(self, before, kept, session_id, changes):
        if changes.copy:
            tree = kept.sessions[session_id].tree(changes.tree)
            tree.revisions = {
                (id_, 1): replace(made, number=1) for (id_, _), made in tree.revisions.items()
            }


@mutant
class KeepsForgottenTexts(Meddles):
    """Gives a forgotten text for reuse."""

    def spoil(self, before, kept, session_id, changes):
        if changes.forget:
            kept.written = before.written


@mutant
class ForgetsTheLastTextAlone(Meddles):
    """Leaves what a forgotten node said before."""

    def spoil(self, before, kept, session_id, changes):
        old = before.sessions.get(session_id)
        for (id_, number), made in (old.tree(changes.tree).revisions if old else {}).items():
            if id_ in changes.forget and number < old.tree(changes.tree).nodes[id_].revision:
                kept.sessions[session_id].tree(changes.tree).revisions[id_, number] = made


@mutant
class ForgetsNodes(Meddles):
    """Drops a node whose texts shall be forgotten."""

    def spoil(self, before, kept, session_id, changes):
        tree = kept.sessions[session_id].tree(changes.tree)
        for id_ in {*changes.forget} - {one.id for one in changes.nodes}:
            tree.nodes.pop(id_, None)


@mutant
class KeepsDroppedTrees(Meddles):
    """Drops the nodes of a tree and leaves what they said."""

    def spoil(self, before, kept, session_id, changes):
        old = before.sessions.get(session_id)
        if old and changes.drop_tree is not None:
            tree = kept.sessions[session_id].tree(changes.drop_tree)
            tree.revisions |= old.tree(changes.drop_tree).revisions


@mutant
class DropsViewsOfAll(Meddles):
    """Drops views by name alone."""

    def spoil(self, before, kept, session_id, changes):
        kept.views = {at: v for at, v in kept.views.items() if at[1] not in changes.drop_views}


@mutant
class DropsRecordsOfAll(Meddles):
    """Drops records by kind and key, whatever their scope."""

    def spoil(self, before, kept, session_id, changes):
        gone = changes.drop_records
        kept.records = {at: r for at, r in kept.records.items() if (at[0], at[2]) not in gone}


class Deletes(MemoryTenant):
    """A handle that leaves something of a deleted session, or takes too much."""

    def leave(self, before, kept, gone):
        raise NotImplementedError

    async def transact(self, decide):
        before, gone = self._kept().draft(), ()

        def noted():
            nonlocal gone
            batch = yield from decide()
            gone = batch.delete
            return batch

        result = await super().transact(noted)
        if gone:
            self.leave(before, self._kept(), gone)
        return result


@mutant
class LeavesRecordsOfDeleted(Deletes):
    """Deletes a session and leaves its records."""

    def leave(self, before, kept, gone):
        kept.records = before.records


@mutant
class LeavesViewsOfDeleted(Deletes):
    """Deletes a session and leaves its views."""

    def leave(self, before, kept, gone):
        kept.views = before.views


@mutant
class LeavesTheJournalOfDeleted(Deletes):
    """Deletes a session and leaves its attempts."""

    def leave(self, before, kept, gone):
        kept.attempts = before.attempts


@mutant
class LeavesTextsOfDeleted(Deletes):
    """Deletes a session and goes on to reuse its texts."""

    def leave(self, before, kept, gone):
        kept.written = before.written


@mutant
class DeletesByFoldedName(Deletes):
    """Deletes the sessions whose names differ in case alone, too."""

    def leave(self, before, kept, gone):
        folded = {one.casefold() for one in gone}
        kept.sessions = {i: one for i, one in kept.sessions.items() if i.casefold() not in folded}


@mutant
class ErasesSessionsAlone(MemoryTenant):
    """Leaves what belongs to no session when it erases a tenant."""

    async def erase_all(self):
        kept = self._kept()
        views, records = kept.views, kept.records
        count = await super().erase_all()
        kept.views, kept.records = views, records
        return count


@mutant
class ErasesEveryTenant(MemoryTenant):
    """Erases all tenants at once."""

    async def erase_all(self):
        count = await super().erase_all()
        for kept in self._store._tenants.values():
            kept.become(TenantData())
        return count


@mutant
class ScrubsTooMuch(MemoryTenant):
    """Takes views for something that was removed."""

    async def scrub(self):
        self._kept().views.clear()
        return await super().scrub()


@mutant
class FindsForksByPrefix(MemoryTenant):
    """Looks forks up with LIKE."""

    async def forks(self, session_id):
        prefix = session_id.rstrip("%").casefold()
        return [
            one
            for one in await self.sessions()
            if one.forked_from is not None and one.forked_from.casefold().startswith(prefix)
        ]


@mutant
class KnowsOneTree(MemoryTree):
    """Does not look at the tree where nodes are asked for."""

    async def nodes(self, ids):
        return await MemoryTree(self._tenant, self._session_id, None).nodes(ids)


@mutant
class ServesTheFirstTree(MemoryTree):
    """Takes tree 0 for the one that serves."""

    async def level(self, level, start, stop=None):
        first = MemoryTree(self._tenant, self._session_id, self._number or 0)
        return await first.level(level, start, stop)


@mutant
class WritesTheServingTree(MemoryTree):
    """Commits the texts of a tree that is being built to the one that serves."""

    async def write_nodes(self, writes, **journalled):
        serving = MemoryTree(self._tenant, self._session_id, None)
        return await serving.write_nodes(writes, **journalled)


@mutant
class ResolvesTheTreeOnce(MemoryTenant):
    """Looks up the tree that serves when the handle is made, and keeps to it."""

    def tree(self, session_id, number=None):
        found = self._session(session_id)
        return super().tree(session_id, found.record.tree if found and number is None else number)


@mutant
class FindsOutdatedWhereItServes(MemoryTree):
    """Looks for texts of another strategy in the tree that serves, whichever is asked."""

    async def outdated(self, level, strategies, after, limit):
        serving = MemoryTree(self._tenant, self._session_id, None)
        return await serving.outdated(level, strategies, after, limit)


@mutant
class CoversOnce(MemoryTree):
    """Finds one window over a message that several share."""

    async def covering(self, thread, index):
        return (await super().covering(thread, index))[:1]


@mutant
class CountsUnmadeAsOutdated(MemoryTree):
    """Holds a node that was never made for one that was made otherwise."""

    async def outdated(self, level, strategies, after, limit):
        ids = {one.id for one in await super().outdated(level, strategies, after, 999)}
        return [
            one for one in await self.level(level, after + 1) if one.id in ids or not one.revision
        ][: max(limit, 0)]


@mutant
class LooksAtEveryText(MemoryTree):
    """Takes any revision of a node for what it says now."""

    async def outdated(self, level, strategies, after, limit):
        found = self._session()
        made = found.tree(self._number).revisions if found else {}
        ids = {id_ for (id_, _), one in made.items() if one.strategy not in strategies}
        nodes = await self.level(level, after + 1)
        return [one for one in nodes if one.id in ids][: max(limit, 0)]


@mutant
class AddsUpEarlierTexts(MemoryTree):
    """Counts the cost of every text that a node ever had."""

    async def tally(self):
        found = self._session()
        made = found.tree(self._number).revisions if found else {}
        spent = sum(one.tokens_in for one in made.values())
        tallies = await super().tally()
        return [replace(one, tokens_in=spent) if one.made else one for one in tallies]


@mutant
class CountsEndedCallsAlone(MemoryTenant):
    """Does not count a call that was cut off."""

    async def spent(self, session_id=None):
        found = await super().spent(session_id)
        return replace(found, calls=found.calls - found.unknown)


@mutant
class PutsLateRecords(MemoryTenant):
    """Stores records whatever the epochs are."""

    async def put_records(self, writes, *, epochs=None, **more):
        return await super().put_records(writes, **more)


@mutant
class LooksAtOneEpoch(MemoryTenant):
    """Compares the epoch of the first session alone."""

    async def put_records(self, writes, *, epochs=None, **more):
        first = dict(list((epochs or {}).items())[:1])
        return await super().put_records(writes, epochs=first, **more)


@mutant
class PutsLateBlocks(MemoryTenant):
    """Stores blocks in any epoch that was once the session's."""

    async def put_blocks(self, session_id, blocks, *, epoch):
        found = self._session(session_id)
        now = found.record.epoch if found and epoch <= found.record.epoch else epoch
        return await super().put_blocks(session_id, blocks, epoch=now)


@mutant
class TakesGoneSessionsForFresh(MemoryTenant):
    """Holds a session that is gone for one of epoch 0."""

    async def put_view(self, view, *, epoch=None):
        gone = self._session(view.session_id) is None
        return await super().put_view(view, epoch=None if gone and epoch == 0 else epoch)


@mutant
class FoldsKindsOfBlocks(MemoryTenant):
    """Compares the kinds of blocks without regard to case."""

    async def blocks(self, session_id, kind, start=0, stop=None):
        found = self._session(session_id)
        blocks = found.blocks.values() if found else ()
        return sorted(
            (
                one
                for one in blocks
                if one.kind.casefold() == kind.casefold()
                and start <= one.start < (10**9 if stop is None else stop)
            ),
            key=lambda one: one.start,
        )


@mutant
class KeepsSegmentsOfWhatIsErased(Meddles):
    """Leaves the pages over a rewritten message."""

    def spoil(self, before, kept, session_id, changes):
        kept.segments = before.segments


@mutant
class ReadsOneAfterTheOther(MemoryTenant):
    """Answers each need from the state that it finds then."""

    async def read(self, needs):
        found = []
        for need in needs:
            found += await super().read([need])
            await asyncio.sleep(0)
        return found


@mutant
class KnowsNoDeadBlocks(MemoryTenant):
    """Holds a block that was replaced for one that stands."""

    async def index_state(self, pages=(), *, limit=100):
        state = await super().index_state(pages, limit=limit)
        return replace(state, segments=tuple(replace(one, dead=()) for one in state.segments))


@mutant
class PutsLateSegments(MemoryTenant):
    """Puts a segment of blocks that were read in an earlier epoch."""

    async def put_segment(self, blocks, pages, *, replaces=()):
        known = self._kept().sessions
        now = [
            replace(one, session=known[one.session.id].record) if one.session.id in known else one
            for one in blocks
        ]
        return await super().put_segment(now, pages, replaces=replaces)


@mutant
class UsesNumbersAgain(MemoryTenant):
    """Gives a segment the number of one that was dissolved."""

    async def put_segment(self, blocks, pages, *, replaces=()):
        kept = self._kept()
        done = await super().put_segment(blocks, pages, replaces=replaces)
        if done and blocks:
            segment = kept.segments.pop(max(kept.segments))
            kept.segments[len(kept.segments) + 1] = segment
        return done


@mutant
class CountsEveryBlockAsOfTerms(MemoryTenant):
    """Takes any block for one in which a message is found."""

    async def index_state(self, pages=(), *, limit=100):
        state = await super().index_state(pages, limit=limit)
        known = self._kept().sessions
        left = tuple(one for one in state.unindexed if not known[one[0].id].blocks)
        return replace(state, unindexed=left)


@mutant
class LosesTreesOnReopen(KeepingStore):
    """Keeps a tree that is being built in memory alone."""

    def reopened(self):
        for session in self.sessions_kept():
            serving = session.record.tree
            session.trees = {n: tree for n, tree in session.trees.items() if n == serving}


def test_the_double_that_the_mutants_are_made_from_is_accepted(tmp_path):
    assert complaints(conformance_of(KeepingStore), tmp_path) is None


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_wrong_store_is_rejected(name, tmp_path):
    fault = f"{name} {MUTANTS[name].__doc__}"
    caught = complaints(conformance_of(MUTANTS[name]), tmp_path, fault)
    assert caught is not None, f"{name} got through: {MUTANTS[name].__doc__}"
