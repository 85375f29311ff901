"""Translation of PostgreSQL's failures for the caller, by SQLSTATE.

The text of an error is always our own: PostgreSQL quotes rows in its details, and a driver quotes
connection strings. No cause is kept for the same reason.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from hiermem import errors

#: The exceptions that the driver and its pool may raise.
FAILURES: Final = (psycopg.Error, UnicodeEncodeError, OverflowError)
#: The state of ``SELECT 1 / 0``, with which a statement refuses a write that contradicts the store.
REFUSED: Final = "22012"
BEYOND: Final = "a number is beyond the 64 bits that the store keeps"
#: Transient failures: a conflict, a lock, a time limit, too many connections, a server that stops,
#: starts or is read-only.
_BUSY: Final = {
    "40001": "another write came between",
    "40P01": "another write came between",
    "55P03": "another write holds the session for too long",
    "57014": "a statement took longer than its time limit",
    "25P03": "the transaction waited too long for this process",
    "25P04": "the transaction took longer than its time limit",
    "53300": "it has no connection left",
    "57P01": "it is being stopped",
    "57P02": "it is being stopped",
    "57P03": "it is starting or stopping",
    "25006": "it takes no writes now, as a replica",
}


#: What may help, by what failed.
_HINTS: Final = {
    "53100": ": its disk is full; make room on it, and call again",
    "53200": ": it has no memory left; call again when it has",
}
#: A server's words when it refuses a connection; libpq does not keep the SQLSTATE.
_REFUSED: Final = {
    "too many": "53300",
    "connection slots": "53300",
    "starting up": "57P03",
    "shutting down": "57P03",
    "not currently accepting": "57P03",
    "permission denied": "42501",
    "authentication failed": "28P01",
    "no password": "28P01",
    "pg_hba": "28000",
    "role": "28000",
    "no such user": "28000",
    "database": "3D000",
}
#: Why a connection was not made, by what libpq says; its own text may quote the connection string.
_UNREACHED: Final = {
    "SSL": "TLS could not be agreed on; check sslmode",
    "certificate": "TLS could not be agreed on; check sslmode and sslrootcert",
    "resolve": "the name of its host is not known",
    "translate host": "the name of its host is not known",
    "No such file": "no server listens there",
    "refused": "no server listens there",
    "timeout": "it did not answer in time",
}
#: The names of users and databases in such a text.
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")


def refused_connection(error: psycopg.Error) -> str:
    """Return the SQLSTATE that the text of a failed connection means, or "" for any other one."""
    text = _QUOTED.sub("", str(error))
    if "FATAL" not in text and "no password" not in text:
        return ""
    return next((state for words, state in _REFUSED.items() if words in text), "")


def _unreached(error: psycopg.Error) -> str:
    """Return why a connection was not made, in our words, or ""."""
    text = _QUOTED.sub("", str(error))
    return next((f": {why}" for words, why in _UNREACHED.items() if words in text), "")


def _is_bad_setting(error: psycopg.Error) -> bool:
    """Return whether libpq refused a value of the connection string before it connected."""
    text = _QUOTED.sub("", str(error))
    return "FATAL" not in text and ("invalid" in text or "bad value" in text)


def translate(error: Exception, shown: str, *, committing: bool = False) -> Exception:
    """Return the error of hiermem that corresponds to ``error``, or ``error`` if there is none.

    ``shown`` names the server and the database. ``committing`` says that the commit was sent; then
    it is unknown whether a write took effect whose connection was lost.
    """
    if isinstance(error, PoolClosed):
        return errors.MemoryClosedError("the store is closed; open it again")
    if isinstance(error, PoolTimeout):
        return errors.StoreBusyError(f"no connection to {shown} was free in time; try again")
    if isinstance(error, UnicodeEncodeError):
        return errors.InvalidTextError("a text holds a lone surrogate; replace it before storing")
    if isinstance(error, OverflowError):
        return errors.UsageError(BEYOND)
    if isinstance(error, psycopg.Error):
        return _of_server(error, shown, committing=committing)
    return error


def _of_server(error: psycopg.Error, shown: str, *, committing: bool) -> errors.HiermemError:
    state = error.sqlstate or refused_connection(error)
    where = f"PostgreSQL at {shown}"
    made: errors.HiermemError
    if state in _BUSY:
        made = errors.StoreBusyError(f"{where}: {_BUSY[state]} ({state}); try again")
    elif state.startswith("28"):
        made = errors.ConfigError(
            f"{where} refused the user or the password ({state}); check the connection string"
        )
    elif state in ("3D000", "42501"):
        what = "has no such database (3D000); create it, or check the connection string"
        if state == "42501":
            what = "denies this to the role (42501); the page on PostgreSQL names what roles need"
        made = errors.ConfigError(f"{where} {what}")
    elif state == REFUSED:
        made = errors.UsageError(
            "the write contradicts what is stored: a flag, a parent or a copied text is for "
            "something that does not exist"
        )
    elif state == "22003":
        made = errors.UsageError(BEYOND)
    elif state.startswith(("21", "22", "23")) or isinstance(error, psycopg.DataError):
        made = errors.UsageError(f"the write contradicts what is stored ({state or 'a value'})")
    elif state in ("42P01", "42703"):
        made = errors.StoreCorruptError(
            f"{where}: a table or a column of the store is missing ({state}); restore a copy of it"
        )
    elif not state and _is_bad_setting(error):
        made = errors.ConfigError(
            f"the connection string to {where} has a value that libpq does not take; check the "
            "port, sslmode and the other settings"
        )
    elif not state or state.startswith("08"):
        made = errors.StoreError(
            f"the connection to {where} was lost or not made{_unreached(error)}"
        )
    else:
        made = errors.StoreError(f"{where} failed ({state}){_HINTS.get(state, '')}")
    lost = not state or state.startswith(("08", "57P"))
    if committing and lost and isinstance(made, errors.StoreError):
        made.committed = None
    return made
