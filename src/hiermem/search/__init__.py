"""Decides which passages and summaries answer a question, and keeps the indexes for it.

``search`` starts with one question to one session; ``tenant`` asks all sessions of a tenant.
Imports ``summaries``, ``handle``, ``calls``, ``tree``, ``text`` and below; never ``context``.
"""
