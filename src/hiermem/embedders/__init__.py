"""Embedders that ship with hiermem; an application may bring any other.

``hashing`` starts: it needs no model; a module is one provider.
Imports ``remote``, ``calls``, ``text`` and below; adapters do not know each other.
"""

from hiermem.embedders.hashing import HashingEmbedder

__all__ = ["HashingEmbedder"]
