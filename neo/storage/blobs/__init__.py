"""The contents of blobs: files beside the database (specification 26)."""
