"""The published parameters of ``summaries_update`` as a configuration of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hiermem import HierarchyConfig, UsageError

#: The published sizes in characters, and the settings that they are.
IN_CHARS: Final = {
    "windowChars": "target",
    "minFlushChars": "min_flush",
    "overlapChars": "overlap",
    "groupChars": "max_size",
}
#: The settings without a unit.
_PLAIN: Final = {
    "ratioOnly": "ratio_only",
    "sealPolicy": "seal_policy",
    "flushAfterMs": "flush_after",
}


def wanted(config: HierarchyConfig, given: Mapping[str, Any], *, full: bool) -> HierarchyConfig:
    """Return a session's configuration with the published parameters that are given.

    A session in tokens that is re-packed with sizes in characters gets the characters preset.

    Raises UsageError for sizes in characters on a session in tokens that is not re-packed, and
    ConfigError for what no configuration may be.
    """
    sizes = [name for name in IN_CHARS if name in given]
    if config.unit == "tokens" and sizes:
        if not full:
            raise UsageError(
                f"{', '.join(sizes)}: sizes in characters, but this session is measured in tokens; "
                "leave them out, or re-pack the session in characters with strategy 'full'"
            )
        config = HierarchyConfig.by_chars(
            **{"target": given["windowChars"]} if "windowChars" in given else {}
        )
    changes = {name: given[key] for key, name in (IN_CHARS | _PLAIN).items() if key in given}
    changes |= _following(config, changes.get("target", config.target), changes)
    regrouped = {"max_size": changes.pop("max_size", None), "tolerance": given.get("wiggle")}
    regrouped = {name: value for name, value in regrouped.items() if value is not None}
    if "wiggle" in given:
        changes["tolerance"] = given["wiggle"]
    settings = config.model_dump()
    first, *higher = settings.pop("levels")
    levels = (first, *({**level, **regrouped} for level in higher))
    return HierarchyConfig(**{**settings, **changes, "levels": levels})


def _following(
    config: HierarchyConfig, target: int, changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the settings that follow from the target, where they did before and none is given."""
    followed: dict[str, Any] = {}
    if config.hard_limit == int(1.5 * config.target):
        followed["hard_limit"] = int(1.5 * target)
    usual = min(3000, config.target // 2)
    if config.unit == "chars" and "min_flush" not in changes and config.min_flush == usual:
        followed["min_flush"] = min(3000, target // 2)
    return followed
