"""Where sessions are kept: the in-memory reference and SQLite.

Each adapter is imported by its own module (``hiermem.stores.memory``, ``hiermem.stores.sqlite``),
so that importing hiermem imports no driver.
"""
