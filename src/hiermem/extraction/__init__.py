"""Finds entities, relations and open items in a session and joins them into one graph."""
