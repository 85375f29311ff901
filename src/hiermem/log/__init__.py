"""Decides what appends, forks and rebuilds do to a session's trees; appends and imports.

``append`` starts; ``trees`` and ``rebuild`` decide what a change of the log reaches.
Imports ``handle``, ``tree``, ``text``, ``convert`` and below; never ``summaries``.
"""
