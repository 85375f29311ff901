"""Data that ships with the package: vocabulary, word lists and a sample conversation.

Only package resources are read here, each at most once in a process where it is kept in memory.
"""
