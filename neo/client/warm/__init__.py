"""A cache that survives its process: ``cache-dir`` (specification, page 16, "A cache that is kept")."""
