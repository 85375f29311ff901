"""Finds entities, relations, open items and strategy by rule."""
