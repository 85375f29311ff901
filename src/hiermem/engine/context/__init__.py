"""Selects contexts, and refines them where a question points."""
