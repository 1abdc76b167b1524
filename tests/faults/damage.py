"""Delete rows of one partition of a node that is away."""

from __future__ import annotations

DAMAGED = 1  # the partition
LOSSES = [
    f"DELETE FROM {table} WHERE `partition`={DAMAGED} AND tid="
    f"(SELECT MIN(tid) FROM {table} WHERE `partition`={DAMAGED})"
    for table in ("obj", "trans")
]
