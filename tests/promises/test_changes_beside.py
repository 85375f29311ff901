"""P4, P5 and P11 where two memories work on one session: one changes it between any two store calls
of what the other does.

Whatever was read before the change and is written after it, in the end the tree is the one that the
log explains, every text is made of what stands there, and nothing is left of what was taken back.
The clock stands still, so that nothing can be told apart by its time.
"""

import pickle
from datetime import timedelta

import pytest
from editing import regenerating
from hypothesis import given
from hypothesis import strategies as st
from logbook import START, Words
from sampling import drawn
from stand_ins import Intercepted
from test_erasure_of_what_was_shown import Echo, config, said

from hiermem import AsyncMemory, HiermemError, Limits, UpdatePolicy
from hiermem.config import ExtractionOptions
from hiermem.errors import StoreError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore

MARK, AT = "zqcanary", 9
CONFIGS = {"plain": config(), "overlap": config(overlap=200)}
PARTS = ExtractionOptions(safe_processing_tokens=2_100, output_tokens=256, oversized="slice")
#: What another has claimed is not waited for: whoever has it waits for the change.
SOON = 0.05


def a_day_later():
    return START + timedelta(days=1)


def memory_over(store, settings):
    policy = UpdatePolicy(batch_delay=0, lease=5, follow_strategy=False, regenerate_on_edit=True)
    parts = {"token_counter": Words(), "update_policy": policy, "clock": a_day_later}
    return AsyncMemory(store=store, config=settings, llm=Echo(), **parts)


async def _begun_anew(memory, session):
    await memory.session("s").delete()
    await session.append([said(n, words=30) for n in range(26)])
    await session.update(limits=Limits(deadline=SOON))


async def _edited_and_erased(memory, session):
    await regenerating(session).edit(AT, said(5).content)
    await session.erase([AT])


async def _erased_and_repacked(memory, session):
    await session.erase([AT])
    await session.update(strategy="full", limits=Limits(deadline=SOON))


async def _recompressed(memory, session):
    await session.recompress(1, None)
    await session.update(limits=Limits(deadline=SOON))


async def _reopened(memory, session):
    await session.close()
    await session.reopen()


WORK = {
    "update": lambda memory, session: session.update(),
    "full": lambda memory, session: session.update(strategy="full"),
    "fork": lambda memory, session: session.fork("f2", at=20),
    "extract": lambda memory, session: session.extract(PARTS),
    "context": lambda memory, session: session.context(900, query=MARK),
    "edit": lambda memory, session: regenerating(session).edit(2, said(77).content),
    "append": lambda memory, session: session.append([said(n) for n in range(26, 33)]),
}
CHANGES = {
    "erase": lambda memory, session: session.erase([AT]),
    "quarantine": lambda memory, session: session.quarantine([AT]),
    "edited and erased": _edited_and_erased,
    "begun anew": _begun_anew,
    "erased and re-packed": _erased_and_repacked,
    "recompressed": _recompressed,
    "edit": lambda memory, session: session.edit(3, said(5, words=90).content),
    "append": lambda memory, session: session.append([said(n) for n in range(26, 40)]),
    "re-packed": lambda memory, session: session.update(
        strategy="full", limits=Limits(deadline=SOON)
    ),
    "reconfigured": lambda memory, session: session.reconfigure(config(target=200)),
    "reopened": _reopened,
}
KEEP = {"quarantine", "recompressed", "edit", "append", "re-packed", "reconfigured", "reopened"}


def held(store):
    """Return all that the store holds, as bytes: a repr shows the beginning of a text alone."""
    return pickle.dumps([rows.by_key for rows in store.store._rows.values()])


@pytest.mark.parametrize("what", sorted(CHANGES))
@drawn(3, 1)
@given(
    work=st.sampled_from(sorted(WORK)),
    kind=st.sampled_from(sorted(CONFIGS)),
    n=st.integers(1, 45),
    made=st.booleans(),
    forked=st.booleans(),
)
async def test_whatever_changes_beside_it_the_session_ends_true(what, work, kind, n, made, forked):
    """Broken, what was worked out before a change is written over it."""
    store, settings = RecordStore(MemoryStore(clock=a_day_later)), CONFIGS[kind]
    other = memory_over(store, settings)
    session = other.session("s")
    await session.append([said(k, extra=MARK if k == AT else "") for k in range(26)])
    if made:
        await session.update()
    if forked:
        await session.fork("f", at=15)
    left = [n]

    async def beside(name, do, *_):
        left[0] -= 1
        if not left[0]:
            await CHANGES[what](other, session)
        return await do()

    one = memory_over(Intercepted(store, beside), settings)
    try:
        await WORK[work](one, one.session("s"))
    except HiermemError as error:
        # It may say that the session was changed, never that the store is damaged.
        assert not isinstance(error, StoreError), error
    if left[0] > 0:
        await CHANGES[what](other, session)
    if what not in KEEP:
        assert MARK.encode() not in held(store)
    last = memory_over(store, settings)
    await last.update_all()
    assert (await last.check()).findings == ()
    if what not in KEEP:
        assert MARK.encode() not in held(store)
    for record in await last.sessions():
        known = last.session(record.id)
        assert not any(summary.node.dirty for summary in await known.summaries())
        if what not in KEEP or what == "quarantine":
            assert not any(MARK in summary.text for summary in await known.summaries())
            assert MARK not in (await known.context(900, query="code")).to_text()
