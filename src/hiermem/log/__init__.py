"""The log of a session: append, sync, import, fork and rebuild.

Begin with ``append``. What it seals is decided in ``tree``; ``trees`` finds where a stored message
is, ``events`` reads the log's events, ``rebuild`` folds the log anew.
"""
