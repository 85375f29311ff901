"""Decides how messages become windows and windows become levels: one fold over a session's log.

``fold`` starts; ``windows`` decides when a window closes, ``levels`` when a group does.
Imports ``text``, ``config``, ``types`` and below; it knows no store and no model.
"""
