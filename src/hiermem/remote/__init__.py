"""Decides how the adapters of remote services read answers. No service's package is imported here.

``chat`` and ``responses`` start for models, ``object_storage`` for a bank's copies.
Imports ``bank``, ``calls``, ``protocols`` and below; never an adapter.
"""
