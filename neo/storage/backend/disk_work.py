"""How often, and how fast, a database makes writes durable."""

from __future__ import annotations

from typing import NamedTuple

from neo.node.meter import Histogram


class DiskWork(NamedTuple):
    """What a database did since the process opened it first, for monitoring. ``syncs``: the group commits
    that made something durable. ``log_bytes``: of a write-ahead log that this process copies into the
    database in ``checkpoints``; None if the server of the database does that."""

    syncs: Histogram
    log_bytes: int | None
    checkpoints: int
