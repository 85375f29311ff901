"""A process that appends to a store in PostgreSQL: DSN SCHEMA NAME SESSION COUNT [stop].

It prints a line when it begins, and one for each message that was acknowledged. With "stop" it
stops itself while it decides again what was refused, when it holds the session's lock.
"""

import asyncio
import os
import signal
import sys

from samples import write, writing

from hiermem.errors import HiermemError, StoreError
from hiermem.records.run import RecordStore
from hiermem.stores.postgres import PostgresStore
from hiermem.types import Message


def tell(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def opened(dsn, schema):
    return RecordStore(await PostgresStore.open(dsn, schema=schema))


async def stop(store, other, session):
    """Decide a second time, in the turn that a refused commit got, and stop there."""
    await write(store.tenant("t"), session, ["the head that is remembered"])
    await write(other.tenant("t"), session, ["another's"])
    append, calls = writing(session, ["decided twice"]), []

    def stopping(snapshot):
        calls.append(snapshot)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        return append(snapshot)

    try:
        await store.tenant("t").mutate(session, stopping)
        tell("done")
    except HiermemError as error:
        tell(type(error).__name__)


async def main(dsn, schema, name, session, count, *how):
    store = await opened(dsn, schema)
    tenant = store.tenant("t")
    tell("begun")
    if how:
        await stop(store, await opened(dsn, schema), session)
        return
    for number in range(int(count)):
        key = f"{name}:{number}"
        while True:
            try:
                seen = await write(tenant, session, keys=[key])
                if key not in seen.keys:
                    await write(tenant, session, [Message.user(key, key=key)], keys=[key])
                break
            except StoreError:  # the key says what became of it
                await asyncio.sleep(0.05)
        tell(key)
    await store.close()


asyncio.run(main(*sys.argv[1:]))
