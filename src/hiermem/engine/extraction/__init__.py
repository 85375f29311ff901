"""Extracts a session's graph: chunks, reduce, records."""
