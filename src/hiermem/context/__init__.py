"""Decide what a context shows inside its budget, in which form, and what keeps its place."""
