"""Reads the configuration that a session's record, or an event of its log, holds as text.

Only text that hiermem wrote is accepted as a configuration. The same text returns the same object,
so reading it again costs nothing.
"""

from __future__ import annotations

import json
from functools import lru_cache

from hiermem.config import HierarchyConfig
from hiermem.errors import StoreCorruptError


@lru_cache(maxsize=64)
def config_from(text: str) -> HierarchyConfig:
    """Read a stored configuration; the same text gives the same object.

    Raises StoreCorruptError where it is not one that hiermem wrote; the error tells nothing of it.
    """
    try:
        # Defaults would make a configuration of any object; what was stored names its fields.
        given = json.loads(text)
        whole = isinstance(given, dict) and given.keys() >= {"unit", "target", "levels"}
        config = HierarchyConfig.from_json(text) if whole else None
    except (ValueError, RecursionError):
        config = None
    if config is None:
        raise StoreCorruptError(
            "a session's configuration is not what hiermem wrote; the store is damaged"
        )
    return config
