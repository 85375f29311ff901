"""Calls of models: failures and pauses, limits and caps, claims, the journal of a run.

Begin with ``call``: one request until its answer is fit, and each call. ``run`` is the frame around
a task's calls. The folder knows no task; it may import ``tree`` and ``text``.
"""
