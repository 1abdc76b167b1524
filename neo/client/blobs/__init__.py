"""Blobs of a client: their contents are uploaded, downloaded, and kept in a folder."""
