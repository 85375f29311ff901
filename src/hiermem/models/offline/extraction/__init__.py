"""Finds things, links, open items and strategy by rule."""
