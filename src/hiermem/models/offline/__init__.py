"""The rule-based model that needs no network. Decides what it answers by form alone.

``model`` starts; ``notes`` answers for banks, ``graph`` for extractions.
Imports ``bank``, ``extraction``, ``summaries``, ``text`` and below.
"""
