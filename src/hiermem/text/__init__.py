"""Decides what a text is: its policy, its fences, its units, its words, the facts it must keep.

``policy`` starts: which texts are accepted; ``measure`` says what a message weighs.
Imports ``convert``, ``tokens``, ``protocols``, ``types`` and below.
"""
