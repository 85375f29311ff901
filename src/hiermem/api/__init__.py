"""The public classes: memory, session, space, extractor. Decides which arguments are accepted.

``memory`` starts; ``sync`` derives the blocking classes from the asynchronous ones.
Imports every feature, and adapters only through ``defaults``.
"""
