"""The suites of all stores and of the records in one, over PostgreSQL."""

import postgres_server
import pytest
from record_conformance import RecordConformance

pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from hiermem.records.run import RecordStore
from hiermem.stores.postgres import PostgresStore
from hiermem.testing import StoreConformance


async def opened(path):
    schema = postgres_server.emptied_schema(str(path))
    return await PostgresStore.open(postgres_server.dsn(), schema=schema)


class TestPostgres(StoreConformance):
    async def open_store(self, path):
        return await opened(path)


class TestRecordsInPostgres(RecordConformance):
    async def open_store(self, path):
        return RecordStore(await opened(path))
