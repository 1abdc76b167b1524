"""The master of a backup cluster follows the upstream cluster (specification 13)."""
