"""The benchmark driver: does the same work on FileStorage, ZEO, RelStorage and NEO, in one run."""
