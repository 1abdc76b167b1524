"""Loads: the cache, invalidations, and requests to replicas."""
