"""Searches a session, and maintains its index, labels and vectors."""
