"""The kit is tested by wrong stores: each of them must be rejected, and the right ones accepted.

Every mutant is the reference with one fault that a store author could make. If one of them gets
through the conformance suite, the suite has a hole.
"""

import asyncio
import time
import unicodedata
from dataclasses import replace
from datetime import UTC
from typing import ClassVar

import pytest
from hypothesis import Phase, settings

from hiermem.errors import HiermemError
from hiermem.protocols import Changes
from hiermem.stores.contract import check_record_writes
from hiermem.stores.memory import MemoryStore, MemoryTenant
from hiermem.testing import StoreConformance
from hiermem.types import Message

MUTANTS: dict[str, type] = {}
SPENT: list[float] = []


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
        # Which example fails is of no interest here, so no time is spent on making it small.
        machine_settings = settings(
            StoreConformance.machine_settings, max_examples=8, phases=(Phase.generate,)
        )

        async def open_store(self, path):
            return store.at(path)

    return Suite


def complaints(suite, tmp_path):
    """Run the suite's tests until one fails; give the name of that one, or None."""
    tests = [name for name in dir(suite) if name.startswith("test_")]
    # The state machine last: the others are quicker, and tell what is wrong.
    tests.sort(key=lambda name: (name == "test_it_agrees_with_the_reference", name))
    for number, name in enumerate(tests):
        room = tmp_path / str(number)
        room.mkdir()
        try:
            getattr(suite(), name)(room)
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - any complaint will do
            return name
    return None


def mutant(cls):
    """Enter a handle with a fault, or a store with one, into the list."""
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
class OverwritesKeys(MemoryTenant):
    """Lets a message claim a key that another one has."""

    async def mutate(self, session_id, decide, *, keys=()):
        def unclaimed(snapshot):
            changes = decide(snapshot)
            found = self._session(session_id)
            for key, _ in changes.keys if found and changes.session else ():
                found.keys.pop(key, None)
            return changes

        return await super().mutate(session_id, unclaimed, keys=keys)


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
class ForgetsTimeZones(Rewrites):
    """Gives every time back in UTC."""

    def rewrite(self, changes):
        return replace(
            changes,
            messages=tuple(
                replace(m, message=replace(m.message, created_at=m.created_at.astimezone(UTC)))
                for m in changes.messages
            ),
        )


@mutant
class ForgetsToolCallTypes(Rewrites):
    """Keeps id, name and arguments of a tool call, not its type."""

    def rewrite(self, changes):
        def plain(message: Message) -> Message:
            calls = tuple(replace(call, type="function") for call in message.tool_calls)
            return replace(message, tool_calls=calls)

        return replace(
            changes, messages=tuple(replace(m, message=plain(m.message)) for m in changes.messages)
        )


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
                found.nodes.update({node.id: node for node in changes.nodes})
            return changes

        return await super().mutate(session_id, eager, keys=keys)


@mutant
class WritesWithoutRecord(MemoryTenant):
    """Appends messages although the changes have no session record."""

    async def mutate(self, session_id, decide, *, keys=()):
        def written(snapshot):
            changes = decide(snapshot)
            if changes.session is None and changes.nodes:
                from hiermem.stores.memory import _Session
                from hiermem.testing.samples import writing

                record = writing(session_id)(snapshot).session
                _, kept = self._store.open_tenant(self._name)
                kept.sessions.setdefault(session_id, _Session(record))
            return changes

        return await super().mutate(session_id, written, keys=keys)


@mutant
class DecidesTwice(MemoryTenant):
    """Calls the decision once to look and once to write."""

    async def mutate(self, session_id, decide, *, keys=()):
        def twice(snapshot):
            decide(snapshot)
            return decide(snapshot)

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
        _, kept = self._store.open_tenant(self._name)
        return next((view for (_, n), view in kept.views.items() if n == name), None)


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


@mutant
class SortsSessions(MemoryTenant):
    """Gives sessions by name."""

    async def sessions(self):
        return sorted(await super().sessions(), key=lambda one: one.id)


@mutant
class OrdersNodesAsTexts(MemoryTenant):
    """Puts L1.10 before L1.9."""

    async def level(self, session_id, level, start, stop=None):
        found = await super().level(session_id, level, start, stop)
        return sorted(found, key=lambda one: one.id)


@mutant
class CountsProvisionalNodes(MemoryTenant):
    """Counts nodes that are not sealed."""

    async def levels(self, session_id):
        counts = await super().levels(session_id)
        for one in await self.provisional(session_id):
            counts[one.level] = counts.get(one.level, 0) + 1
        return counts


@mutant
class AnswersNodesInStoredOrder(MemoryTenant):
    """Ignores the order of the ids asked for."""

    async def nodes(self, session_id, ids):
        found = self._session(session_id)
        return [one for id_, one in found.nodes.items() if id_ in ids] if found else []


@mutant
class OverlooksDirtyNodes(MemoryTenant):
    """Does not give active nodes that are dirty as unfinished."""

    async def unfinished(self, session_id, level, after, limit):
        found = await super().unfinished(session_id, level, after, 10_000)
        return [one for one in found if one.status != "active" or one.degraded][:limit]


@mutant
class RepeatsTheLastUnfinished(MemoryTenant):
    """Takes ``after`` for the first ordinal wanted."""

    async def unfinished(self, session_id, level, after, limit):
        return await super().unfinished(session_id, level, after - 1, limit)


@mutant
class IgnoresVersions(MemoryTenant):
    """Writes a node whatever its version is."""

    async def write_nodes(self, session_id, writes, *, attempts=()):
        found = self._session(session_id)
        free = [
            replace(
                one, expected=found.nodes[one.node.id].version,
                node=replace(one.node, version=found.nodes[one.node.id].version + 1),
            )
            if found and one.node.id in found.nodes and one.node.version == one.expected + 1
            else one
            for one in writes
        ]  # fmt: skip
        return await super().write_nodes(session_id, free, attempts=attempts)


@mutant
class IgnoresInputs(MemoryTenant):
    """Does not look whether the inputs still serve."""

    async def write_nodes(self, session_id, writes, *, attempts=()):
        free = [replace(one, inputs=()) for one in writes]
        return await super().write_nodes(session_id, free, attempts=attempts)


@mutant
class JournalsOnlySuccess(MemoryTenant):
    """Records attempts only where a write was applied."""

    async def write_nodes(self, session_id, writes, *, attempts=()):
        applied = await super().write_nodes(session_id, writes)
        if any(applied) or not writes:
            await super().write_nodes(session_id, [], attempts=attempts)
        return applied


@mutant
class AppliesAllOrNone(MemoryTenant):
    """Applies no write of a call where one does not hold."""

    async def write_nodes(self, session_id, writes, *, attempts=()):
        found = self._session(session_id)
        nodes = found.nodes if found else {}
        if any(
            one.node.id not in nodes or nodes[one.node.id].version != one.expected
            for one in writes
            if one.node.version == one.expected + 1
        ):
            writes = [replace(one, inputs=(("nothing", -1),)) for one in writes]
        return await super().write_nodes(session_id, writes, attempts=attempts)


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
        nodes = self._session(session_id).nodes if children else {}
        for child in children:
            nodes[child] = replace(nodes[child], version=nodes[child].version - 1)
        return result


@mutant
class KeepsDroppedRevisions(MemoryTenant):
    """Removes a dropped node and leaves what it said."""

    async def mutate(self, session_id, decide, *, keys=()):
        found = self._session(session_id)
        before = dict(found.revisions) if found else {}
        result = await super().mutate(session_id, decide, keys=keys)
        if found:
            found.revisions |= before
        return result


@mutant
class ReusesTheOldest(MemoryTenant):
    """Gives the first revision with the input hash."""

    async def reusable(self, input_hash):
        _, kept = self._store.open_tenant(self._name)
        for _, made in kept.written:
            if made.input_hash == input_hash and not made.degraded:
                return made
        return None


@mutant
class ReusesTheLatestByClock(MemoryTenant):
    """Takes the revision with the latest timestamp for the newest."""

    async def reusable(self, input_hash):
        _, kept = self._store.open_tenant(self._name)
        found = [m for _, m in kept.written if m.input_hash == input_hash and not m.degraded]
        return max(found, key=lambda made: made.created_at, default=None)


@mutant
class ReusesDegraded(MemoryTenant):
    """Gives a degraded revision for reuse."""

    async def reusable(self, input_hash):
        _, kept = self._store.open_tenant(self._name)
        return next((m for _, m in reversed(kept.written) if m.input_hash == input_hash), None)


@mutant
class ForgetsEarlierRevisions(MemoryTenant):
    """Keeps only the serving revision of a node."""

    async def revisions(self, session_id, wanted):
        found = self._session(session_id)
        nodes = found.nodes if found else {}
        serving = [(i, n) for i, n in wanted if i in nodes and nodes[i].revision == n]
        return await super().revisions(session_id, serving)


@mutant
class MovesEndedRuns(MemoryTenant):
    """Puts a run that is replaced at the end of the journal."""

    async def put_run(self, run):
        _, kept = self._store.open_tenant(self._name)
        kept.runs.pop(run.id, None)
        await super().put_run(run)


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
class LosesFlagsOnReopen(KeepingStore):
    """Forgets the flags of messages when it is closed."""

    def reopened(self):
        for session in self.sessions_kept():
            session.messages = [replace(one, flags=()) for one in session.messages]


@mutant
class LosesKeysOnReopen(KeepingStore):
    """Keeps the keys in a cache alone."""

    def reopened(self):
        for session in self.sessions_kept():
            session.keys.clear()


@mutant
class LosesTheLastWriteOnReopen(KeepingStore):
    """Does not write the last run out."""

    def reopened(self):
        for tenant in self._tenants.values():
            if tenant.runs:
                tenant.runs.popitem()


@mutant
class AnswersAfterClosing(KeepingStore):
    """Goes on after it was closed."""

    async def close(self):
        pass


@mutant
class WritesRecordsOneByOne(MemoryTenant):
    """Applies the writes of records whose own expectation holds."""

    async def put_records(self, writes):
        check_record_writes(writes)
        done = True
        for one in writes:
            done = await super().put_records([one]) and done
        return done


@mutant
class ForgetsRecordVersions(MemoryTenant):
    """Writes a record whatever version was expected."""

    async def put_records(self, writes):
        return await super().put_records([replace(one, expected=None) for one in writes])


@mutant
class KeepsEmptyRecords(MemoryTenant):
    """Deletes a record by giving it an empty body."""

    async def put_records(self, writes):
        return await super().put_records([replace(one, body=one.body or "") for one in writes])


@mutant
class ListsRecordsAsWritten(MemoryTenant):
    """Gives records in the order of their writing."""

    async def records(self, kind, *, scope=None, key=None, limit=10_000):
        _, kept = self._store.open_tenant(self._name)
        found = [one for one in kept.records.values() if one.kind == kind]
        found = [one for one in found if scope in (None, one.scope) and key in (None, one.key)]
        return found[: max(limit, 0)]


@mutant
class FindsRecordsByFoldedKey(MemoryTenant):
    """Compares keys of records without regard to case."""

    async def records(self, kind, *, scope=None, key=None, limit=10_000):
        found = await super().records(kind, scope=scope, limit=10_000)
        return [one for one in found if key is None or one.key.lower() == key.lower()][:limit]


def test_the_double_that_the_mutants_are_made_from_is_accepted(tmp_path):
    assert complaints(conformance_of(KeepingStore), tmp_path) is None


def test_there_are_enough_mutants():
    assert len(MUTANTS) >= 20


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_wrong_store_is_rejected(name, tmp_path):
    began = time.perf_counter()
    caught = complaints(conformance_of(MUTANTS[name]), tmp_path)
    SPENT.append(time.perf_counter() - began)
    assert caught is not None, f"{name} got through: {MUTANTS[name].__doc__}"


def test_all_of_them_are_rejected_within_a_minute():
    assert sum(SPENT) < 60
