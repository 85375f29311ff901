"""The published parameters of ``summaries_update`` as a configuration of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hiermem import HierarchyConfig, UsageError, published


def wanted(config: HierarchyConfig, given: Mapping[str, Any], *, full: bool) -> HierarchyConfig:
    """Return a session's configuration with the published parameters that are given.

    A session in tokens that is re-packed with sizes in characters gets the characters preset.

    Raises UsageError for sizes in characters on a session in tokens that is not re-packed, and
    ConfigError for what no configuration may be.
    """
    sizes = [name for name in given if published.keys()[name].unit == "chars"]
    if config.unit == "chars" or not sizes:
        return HierarchyConfig.from_published(given, base=config)
    if full:
        return HierarchyConfig.from_published(given)
    raise UsageError(
        f"{', '.join(sizes)}: sizes in characters, but this session is measured in tokens; "
        "leave them out, or re-pack the session in characters with strategy 'full'"
    )
