"""Whole stores: checked, measured, copied.

Begin with ``run_check``, ``read_metrics`` or ``copy``; ``check`` and ``copy_plan`` decide for them.
The folder may import every feature below it, and no adapter.
"""
