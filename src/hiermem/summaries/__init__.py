"""Decides what is summarised next, from what, and whether an answer is fit; runs the updates.

``update`` starts: the rounds of one run, then ``node``, which makes one node; ``repack`` makes all.
Imports ``handle``, ``log``, ``calls``, ``prompts``, ``tree``, ``text`` and below.
"""
