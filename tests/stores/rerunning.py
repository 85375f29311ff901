"""Stores that run decisions again: one always, one where another write came between."""

import asyncio

from hiermem.stores.memory import MemoryStore, MemoryTenant
from hiermem.types.transaction import Batch, Changes


class RerunningStore:
    """Runs each decision of ``inner`` twice and throws the first run away.

    ``differing`` are the outcomes of decisions whose two runs differed.
    """

    def __init__(self, inner):
        self._inner, self.differing = inner, []

    @property
    def capabilities(self):
        return self._inner.capabilities

    def tenant(self, name):
        return _RerunningTenant(self._inner.tenant(name), self.differing)

    async def tenants(self, *, after=None, limit=100):
        return await self._inner.tenants(after=after, limit=limit)

    async def claim_due(self, limit, **how):
        return await self._inner.claim_due(limit, **how)

    async def close(self):
        await self._inner.close()


class _RerunningTenant:
    def __init__(self, inner, differing):
        self._inner, self._differing = inner, differing

    def __getattr__(self, name):
        if name == "mutate_here":  # a shortcut past ``mutate``
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def mutate(self, session_id, decide, *, keys=()):
        runs = []

        def kept(snapshot):
            runs.append(decide(snapshot))
            return runs[-1]

        def thrown_away(snapshot):
            kept(snapshot)
            return Changes(None)

        await self._inner.mutate(session_id, thrown_away, keys=keys)
        result = await self._inner.mutate(session_id, kept, keys=keys)
        self._compare(runs)
        return result

    async def transact(self, decide):
        runs = []

        def kept():
            runs.append((yield from decide()))
            return runs[-1]

        def thrown_away():
            yield from kept()
            return Batch(None)

        await self._inner.transact(thrown_away)
        result = await self._inner.transact(kept)
        self._compare(runs)
        return result

    def _compare(self, runs):
        if runs[0] != runs[1]:
            self._differing.append(runs)


class _AgainError(Exception):
    """What a decision was told does not hold any more."""


class OptimisticTenant(MemoryTenant):
    """Decides without a lock, and again where an answer no longer holds at the commit."""

    async def mutate(self, session_id, decide, *, keys=()):
        while True:
            seen = await super().mutate(session_id, Changes, keys=keys)
            outcome = _outcome(lambda seen=seen: decide(seen))
            await asyncio.sleep(0)

            def checked(now, seen=seen, outcome=outcome):
                if not self.holds(seen, now):
                    raise _AgainError
                return outcome()

            try:
                return await super().mutate(session_id, checked, keys=keys)
            except _AgainError:
                continue

    async def transact(self, decide):
        while True:
            answers, deciding = [], decide()
            try:
                outcome = await self._ran(deciding, answers)
            finally:
                deciding.close()

            def checked(answers=answers, outcome=outcome):
                for asked, reply in answers:
                    if not self.holds(reply, (yield asked)):
                        raise _AgainError
                return outcome()

            try:
                return await super().transact(checked)
            except _AgainError:
                continue

    async def _ran(self, deciding, answers):
        """Run a decision, note what it is told, and give its outcome as a function."""

        def answered(asked):
            reply = yield asked
            return Batch(reply)

        reply = None
        while True:
            try:
                asked = deciding.send(reply)
            except StopIteration as done:
                return lambda done=done: done.value
            except Exception as error:  # noqa: BLE001 - it is raised where the run counts
                return _raise(error)
            reply = await super().transact(lambda asked=asked: answered(asked))
            answers.append((asked, reply))
            await asyncio.sleep(0)

    def holds(self, before, now):
        """Say whether an answer, or a snapshot, is still true."""
        return before == now


def _outcome(act):
    """Call ``act`` now; give a function that returns its result or raises its error."""
    try:
        result = act()
    except Exception as error:  # noqa: BLE001 - it is raised where the run counts
        return _raise(error)
    return lambda: result


def _raise(error):
    def act():
        raise error

    return act


class OptimisticStore(MemoryStore):
    """A store in memory whose decisions hold nothing up."""

    @property
    def capabilities(self):
        return frozenset({"concurrent"})

    def tenant(self, name):
        return OptimisticTenant(self, name)
