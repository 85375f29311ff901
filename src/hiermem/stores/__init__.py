"""Where sessions are kept: the in-memory reference, SQLite and PostgreSQL.

Each adapter is imported by its own module (``hiermem.stores.memory``, ``hiermem.stores.sqlite``,
``hiermem.stores.postgres``), so that importing hiermem imports no driver.
They import ``summaries``, ``changes`` and below for what a transaction decides.
"""
