"""Searches a session, and keeps its index, labels and vectors."""
