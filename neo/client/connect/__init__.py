"""Connections of a client to the primary master and to storage nodes."""
