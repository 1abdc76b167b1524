"""Votes for synchronous backups, sent and received (specification 25)."""
