"""Decides nothing of a summary: runs the updates of many sessions, each with its own claim.

``turns`` starts: one session's turn, and ``update_all``; ``worker`` takes turns in the background.
Imports ``summaries``, ``search``, ``calls``, ``handle`` and below.
"""
