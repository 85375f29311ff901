"""Bridges from agent frameworks to hiermem, a module for each; nothing is imported here.

A bridge keeps the whole conversation in a session and gives the framework a context within a token
budget. Bridges use only the public API of ``hiermem``, and each needs an extra of its own.
"""
