"""Decides about model calls: limits, failures, circuit, order, usage, and how answers are read."""
