"""Calls of models: failures and pauses, limits and caps, claims, the journal of a run.

Begin with ``ask``: one request until its answer is fit. ``call`` makes one call, ``run`` is the
frame around a task's calls. The folder knows no task; it may import ``tree`` and ``text``.
"""
