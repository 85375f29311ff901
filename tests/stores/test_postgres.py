"""PostgreSQL meets the contract."""

from pathlib import Path

import postgres_server
import pytest
from conformance import Conformance

from hiermem.protocols import Store

pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from hiermem.stores.postgres import PostgresStore


class TestPostgres(Conformance):
    async def open_store(self, path: Path) -> Store:
        return await PostgresStore.open(
            postgres_server.dsn(), schema=postgres_server.schema_of(str(path))
        )
