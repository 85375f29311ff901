"""PostgreSQL meets the contract."""

from pathlib import Path
from typing import ClassVar

import postgres_server
import pytest
import sampling
from conformance import Conformance
from hypothesis import settings

from hiermem.protocols import Store
from hiermem.testing import StoreConformance

pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from hiermem.stores.postgres import PostgresStore


class TestPostgres(Conformance):
    machine_settings: ClassVar[settings] = settings(
        Conformance.machine_settings,
        max_examples=sampling.share(StoreConformance.machine_settings.max_examples, 2),
    )

    async def open_store(self, path: Path) -> Store:
        return await PostgresStore.open(
            postgres_server.dsn(), schema=postgres_server.emptied_schema(str(path)), idle_timeout=60
        )

    # These take seconds each; that dumps come and go, test_postgres_copy.py shows as well.

    @pytest.mark.thorough
    def test_a_dumped_session_is_restored_as_it_was(self, tmp_path: Path) -> None:
        super().test_a_dumped_session_is_restored_as_it_was(tmp_path)

    @pytest.mark.thorough
    def test_of_a_restore_that_is_cut_off_nothing_is_kept(self, tmp_path: Path) -> None:
        super().test_of_a_restore_that_is_cut_off_nothing_is_kept(tmp_path)


@pytest.mark.thorough
class TestPostgresConfined(Conformance):
    """The same as a role that the database itself confines to one tenant at a time."""

    async def open_store(self, path: Path) -> Store:
        schema, known = postgres_server.schema_of(str(path)), self._known
        if schema not in known:
            known[schema] = postgres_server.roles(schema)["app"]
            # Some conditions restore what comes from a store with another secret.
            postgres_server.run(f"GRANT UPDATE (secret) ON {schema}.store TO {schema}_app")
            # What is due of all tenants, the dispatcher lists; here one role does both.
            postgres_server.run(f"GRANT SELECT ON {schema}.named_sessions TO {schema}_app")
        return await PostgresStore.open(
            known[schema], schema=schema, create=False, row_security=True
        )

    _known: ClassVar[dict[str, str]] = {}
