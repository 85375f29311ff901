"""Decides nothing of a summary: runs the updates of many sessions, each with its own claim.

``worker`` starts in the background, ``update_all`` at a call; ``due`` is one session's turn.
Imports ``summaries``, ``search``, ``calls``, ``handle`` and below.
"""
