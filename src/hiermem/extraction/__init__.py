"""Decides how a session is split, and how answers become one graph; runs the extractions.

``extract`` starts; ``chunk`` has one chunk answered, ``join`` makes one result of the answers.
Imports ``summaries``, ``prompts``, ``calls``, ``tree``, ``text`` and below; never ``context``.
"""
