"""What an edit, an erasure or a quarantine changes, in every feature.

Begin with ``change``, which runs them. ``propagate`` decides an edit, ``erase`` an erasure;
``receipts`` says what was done. The folder may import every feature below it, and no adapter.
"""
