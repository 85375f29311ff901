"""Decides about model calls: failures, back-offs, usage, and how answers are read."""
