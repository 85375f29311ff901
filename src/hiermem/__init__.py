"""Conversation memory without end: an embeddable library of hierarchical summaries.

The public classes are loaded when one of them is first used, so that importing the package, or one
of its parts, costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hiermem import atfork as _atfork  # noqa: F401 - it watches the imports of all others

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hiermem.api import *  # noqa: F403 - each name is public there
else:

    def _public(name: str) -> bool:
        """Return whether a name is a public one; a module's begins with a small letter."""
        return name[:1].isupper() or name == "escape"

    def __dir__() -> list[str]:
        """Name what can be imported, loaded or not."""
        return sorted({*__getattr__("__all__"), *globals()})

    def __getattr__(name: str) -> Any:
        """Return a public name of ``hiermem.api`` (PEP 562)."""
        if name == "__all__":
            return [*sorted(filter(_public, vars(import_module("hiermem.api")))), "__version__"]
        face = import_module("hiermem.api") if _public(name) else None
        if not hasattr(face, name):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(face, name)
        return value
