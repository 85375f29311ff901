"""Edits whose summaries the next update makes again."""

from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import Any

from hiermem.changes import change
from hiermem.config import replaced


def regenerating(of: Any, regenerate: bool = True) -> Any:
    """Return a handle under such a policy, or of an asynchronous session its ``edit``."""
    if hasattr(of, "_handle"):
        return SimpleNamespace(
            edit=partial(change.edit, regenerating(of._handle, regenerate), of.id)
        )
    changed = copy(of)
    changed.update_policy = replaced(of.update_policy, regenerate_on_edit=regenerate)
    return changed
