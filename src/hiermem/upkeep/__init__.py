"""Decides which promises a store breaks and what a copy carries; checks, measures, copies.

``run_check`` starts for ``check``, ``copy`` for ``copy_plan``; ``read_metrics`` measures.
Imports ``changes``, ``context``, ``bank``, ``search``, ``summaries``, ``log`` and below.
"""
