"""Prepared transactions of a storage node (specification 24)."""
