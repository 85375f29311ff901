"""Decides what becomes of a space's notes, and keeps its bank: Markdown files and a synthesis.

``space`` starts for notes and files, ``consolidate`` for what a model makes of them.
Imports ``handle``, ``calls``, ``prompts``, ``tree``, ``text`` and below; never ``context``.
"""
