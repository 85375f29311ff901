"""The schema of a store in PostgreSQL, its version, and the steps from older versions.

A new store gets the schema in ``current.sql``. A change of what is stored raises VERSION. Until the
first release is tagged, it raises FIRST too. After that, it adds a step ``NNNN.sql`` (from version
NNNN - 1 to NNNN).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

#: The version that this library reads and writes; the table ``store`` holds that of a store.
VERSION: Final = 5
#: The oldest version that is migrated; older stores were written by development versions.
FIRST: Final = 5


def script(name: str = "current") -> str:
    """Return the statements of a new store, or of the step ``name``."""
    return files(__name__).joinpath(f"{name}.sql").read_text("utf-8")
