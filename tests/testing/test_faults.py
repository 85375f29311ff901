"""The faulty store: a site before and after every operation, and faults that mean what they say."""

import os
import signal
import subprocess
import sys

import pytest
from record_conformance import RecordConformance
from samples import write

from hiermem.errors import StoreError
from hiermem.records.run import RecordStore, Tenant
from hiermem.stores.memory import MemoryStore
from hiermem.testing import DiedError, FaultPlan, FaultyStore
from hiermem.testing.faults import OPERATIONS, SITES, _FaultyHandle
from hiermem.types import Message


@pytest.mark.thorough
class TestAFaultyStoreWithoutFaults(RecordConformance):
    """With nothing planned, the wrapper is a store like any other."""

    async def open_store(self, path):
        return FaultyStore(RecordStore(MemoryStore()), FaultPlan())


class _Nothing:
    """A tenant's handle, and a tree's, whose operations do nothing."""

    def __getattr__(self, name):
        async def operation():
            return None

        return (lambda *of: _Nothing()) if name == "tree" else operation


async def _everything(plan):
    """Call each operation once."""
    handle = _FaultyHandle(_Nothing(), plan)
    for name in OPERATIONS:
        await getattr(handle if hasattr(Tenant, name) else handle.tree("s"), name)()


async def test_a_fault_can_be_put_at_every_site():
    plan = FaultPlan()
    await _everything(plan)
    assert set(plan.visits) == set(SITES)
    for place in range(plan.arrivals):
        faults = FaultPlan({place: "fail"})
        with pytest.raises(StoreError) as caught:
            await _everything(faults)
        (hit,) = faults.hits
        assert caught.value.committed is (None if hit[0].endswith("after") else False)


async def test_a_fault_before_writes_nothing_and_one_after_has_written():
    for place, count in ((0, 0), (1, 1)):
        inner = RecordStore(MemoryStore())
        plan = FaultPlan({place: "fail"}, only=frozenset({"mutate.before", "mutate.after"}))
        with pytest.raises(StoreError):
            await write(FaultyStore(inner, plan).tenant("t"), "s", [Message.user("x")])
        assert len(await inner.tenant("t").messages("s", 0, 9)) == count


async def test_busy_is_retryable_and_only_before():
    store = FaultyStore(RecordStore(MemoryStore()), FaultPlan({0: "busy", 2: "busy"}))
    with pytest.raises(StoreError) as caught:
        await store.tenant("t").sessions()
    assert caught.value.retryable
    await store.tenant("t").sessions()
    await store.tenant("t").sessions()


async def test_a_dead_store_stays_dead_until_it_is_revived():
    plan = FaultPlan({1: "die"})
    store = FaultyStore(RecordStore(MemoryStore()), plan)
    with pytest.raises(DiedError):
        await write(store.tenant("t"), "s", [Message.user("x")])
    for _ in range(2):
        with pytest.raises(DiedError):
            await store.tenant("t").sessions()
    plan.revive()
    assert len(await store.tenant("t").messages("s", 0, 9)) == 1


def test_no_handler_for_errors_stops_a_death():
    assert not issubclass(DiedError, Exception)


def test_kill_ends_the_process():
    code = (
        "import asyncio\n"
        "from hiermem.records.run import RecordStore\n"
        "from hiermem.stores.memory import MemoryStore\n"
        "from hiermem.testing import FaultPlan, FaultyStore\n"
        "store = FaultyStore(RecordStore(MemoryStore()), FaultPlan({2: 'kill'}))\n"
        "async def main():\n"
        "    await store.tenant('t').sessions()\n"
        "    print('one', flush=True)\n"
        "    await store.tenant('t').sessions()\n"
        "    print('two', flush=True)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "one\n")


def test_the_library_does_not_import_its_testing_package():
    code = (
        "import sys, hiermem, hiermem.stores.memory, hiermem.stores.sqlite\n"
        "print({'pytest', 'hypothesis', 'hiermem.testing'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
