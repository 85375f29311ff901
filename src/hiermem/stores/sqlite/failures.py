"""Translation of SQLite's failures for the caller: busy, damaged, refused, or any other failure.

The error says whether the write took effect. It never repeats a bound value; a cause that could
hold one is cut off.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hiermem import errors

#: The errors that a statement may raise. With a damaged file, even the error's text may be
#: unreadable, which raises UnicodeDecodeError.
FAILURES = (sqlite3.Error, UnicodeDecodeError)

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: The advice about a damaged file, with which several messages end.
DAMAGED = "the file was left untouched; restore a copy of it"


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection held a lock that the statement needed."""
    return _primary(error) in _BUSY


def translate(
    error: Exception, *, committing: bool = False, opening: Path | None = None
) -> Exception:
    """Return the error of hiermem that corresponds to ``error``, or ``error`` if there is none.

    ``opening`` is the file that could not be opened, which the error then names.

    ``committing`` says that the commit itself raised ``error``. Then only a full disk and a held
    lock are known to have undone the commit: a failed sync may still have reached the disk.
    """
    if isinstance(error, errors.HiermemError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return errors.InvalidTextError("a text holds a lone surrogate; replace it before storing")
    if isinstance(error, UnicodeDecodeError):
        return errors.StoreCorruptError(f"the store is damaged (its schema is no text); {DAMAGED}")
    if isinstance(error, OverflowError):
        return errors.UsageError("a number is beyond the 64 bits that the store keeps")
    if not isinstance(error, sqlite3.Error):
        return error
    code = _primary(error)
    result: errors.HiermemError
    store = "the store" if opening is None else f"the store at {opening}"
    if code in _BUSY:
        result = errors.StoreBusyError(f"another process holds {store}; try again")
    elif code in _CORRUPT or "decode to UTF-8" in str(error):
        result = errors.StoreCorruptError(f"{store} is damaged ({error}); {DAMAGED}")
    elif code == sqlite3.SQLITE_CONSTRAINT:
        result = errors.UsageError(f"the write contradicts what is stored ({error})")
    else:
        what = "SQLite failed" if opening is None else f"{store} cannot be opened"
        failed = errors.StoreError(f"{what} ({_name(error)}): {error}")
        failed.committed = None if committing and code != sqlite3.SQLITE_FULL else False
        result = failed
    result.__cause__ = error
    return result


def _primary(error: sqlite3.Error) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def _name(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", None)
    return name if isinstance(name, str) else type(error).__name__
