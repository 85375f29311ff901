"""Decides what a context shows inside its budget, in which form, and what keeps its place.

``select`` starts for one context, which ``cut`` decides; ``read`` serves other reads.
Imports ``bank``, ``search``, ``summaries``, ``log``, ``tree``, ``text`` and below.
"""
