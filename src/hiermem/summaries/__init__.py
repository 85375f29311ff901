"""Decides what is summarised next, from what, and whether an answer is fit; runs the updates.

``update`` starts: the rounds of one run, then ``node``, which drives ``making`` for each node.
Imports ``handle``, ``log``, ``calls``, ``prompts``, ``tree``, ``text`` and below.
"""
