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
    """Read a stored configuration; the same text returns the same object.

    Raises StoreCorruptError where hiermem did not write the text; the error holds nothing of it.
    """
    try:
        # With defaults any object would be a configuration; a stored one names its fields.
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
