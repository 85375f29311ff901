"""Decides what a text is: its policy, its fences, its units, its words, the facts it must keep."""
