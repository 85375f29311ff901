"""Decides about model calls: pace, failures, circuit, order, counts, journal, how answers are read."""
