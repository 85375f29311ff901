"""Decides what an edit, an erasure or a quarantine changes, in every feature.

``change`` starts: it runs what ``propagate`` and ``erase`` decide.
Imports ``context``, ``bank``, ``extraction``, ``search``, ``summaries``, ``log`` and below.
"""
