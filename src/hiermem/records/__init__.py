"""Sessions and all that belongs to them, kept as rows of declared tables over five operations.

Start at ``tables``: which tables there are, and what a store reads and commits. A record is read
and decided on by a ``Transaction``, which commits with expectations and begins again if they fail.
May import ``types``, ``tree``, ``calls.claim`` and ``summaries.due``; no store.
"""
