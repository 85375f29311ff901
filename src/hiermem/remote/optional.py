"""Looks for the optional packages that adapters need.

No package is loaded before it is used. Where one is missing, the adapter says so when it is made,
with the command that installs it.
"""

from __future__ import annotations

from importlib.util import find_spec

from hiermem.errors import ConfigError


def require(package: str, *, extra: str, what: str) -> None:
    """Check that ``package`` is installed, without loading it.

    Raises ConfigError that names the ``extra`` to install for ``what``.
    """
    try:
        found = find_spec(package) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise ConfigError(
            f"{what} needs the package {package!r}, which is not installed: "
            f"pip install 'hiermem-memory[{extra}]' (from a checkout: pip install '.[{extra}]')"
        )
