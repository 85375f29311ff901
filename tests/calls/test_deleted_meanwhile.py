"""A session that is deleted while a run works on it leaves no trace, wherever the run dies."""

from contextlib import suppress

from stand_ins import memory_over

from hiermem import Message
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore
from hiermem.testing.llms import ScriptedLLM

NAME = "zq1canary"


class Deleting(ScriptedLLM):
    """A model at whose first call somebody else deletes the session; then the process dies."""

    def __init__(self, memory, plan, at):
        super().__init__(remote=True)
        self.memory, self.plan, self.at = memory, plan, at

    async def complete(self, request):
        if self.calls == 0:
            await self.memory.session(NAME).delete()
            self.plan.faults = {self.plan.arrivals + self.at: "die"}
        return await super().complete(request)


async def test_a_deleted_session_is_named_in_no_journal_wherever_its_run_dies():
    """Broken, the name of a deleted conversation stays in the journal of calls for good."""
    deaths = 0
    for at in range(40):
        store, plan = RecordStore(MemoryStore()), FaultPlan()
        memory = memory_over(store)
        said = [Message.user(f"We paid {n} euros for ticket {n}. " * 8) for n in range(60)]
        await memory.session(NAME).append(said)
        faulty = memory_over(FaultyStore(store, plan), llm=Deleting(memory, plan, at))
        with suppress(DiedError):
            await faulty.session(NAME).update()
        deaths += plan.dead
        tenant = store.tenant("default")
        journal = repr([await tenant.attempts(), await tenant.runs()])
        assert NAME not in journal, f"it died {at} operations after the deletion"
        assert (await memory.check()).findings == ()
    assert deaths > 8
