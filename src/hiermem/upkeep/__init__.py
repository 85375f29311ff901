"""Whole stores: checked, measured, copied."""
