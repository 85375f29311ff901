"""Finds what was said: passages and summaries that answer a question."""
