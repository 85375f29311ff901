"""Embedders that ship with hiermem; an application may bring any other."""

from hiermem.embedders.hashing import HashingEmbedder

__all__ = ["HashingEmbedder"]
