"""A process that appends to a store in PostgreSQL: DSN SCHEMA NAME SESSION COUNT [stop].

It prints a line when it begins, and one for each message that was acknowledged. With "stop" it
stops itself inside its first transaction, when it holds the session's lock.
"""

import asyncio
import os
import signal
import sys

from hiermem.errors import HiermemError, StoreError
from hiermem.stores.postgres import PostgresStore
from hiermem.testing.samples import write
from hiermem.types import Message
from hiermem.types.transaction import Batch, NeedMessages, NeedSession


def tell(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(dsn, schema, name, session, count, *how):
    store = await PostgresStore.open(dsn, schema=schema)
    tenant = store.tenant("t")
    tell("begun")
    if how:

        def stopping():
            yield session, NeedSession()
            os.kill(os.getpid(), signal.SIGSTOP)
            yield session, NeedMessages(0, 1)
            return Batch(None)

        try:
            await tenant.transact(stopping)
        except HiermemError as error:
            tell(type(error).__name__)
        await store.close()
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
