"""Settings of the primary master, as its parts know them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from neo.protocol.packets import Address


class SyncPolicy(Enum):
    """What a cluster does without a synchronous backup (specification 25.16)."""

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True)
class MasterSettings:
    """Settings that do not change while the process runs."""

    #: Name of the cluster.
    cluster: str
    #: Addresses of the configured masters, this one included.
    masters: list[Address]
    #: Number of partitions and of replicas of a new database.
    partitions: int
    replicas: int
    #: Create a new database when this many storage nodes are connected.
    autostart: int | None = None
    #: Node id of a master that runs alone.
    nid: int | None = None
    #: Days in which all copies are compared once; 0 for never.
    scrub_days: float = 0.0
    #: The cluster that this one is, or can become, a backup of.
    upstream_cluster: str | None = None
    upstream_masters: list[Address] | None = None
    #: As a backup, have every transaction before the upstream cluster acknowledges it.
    sync: bool = False
    #: Backups that must have a transaction before it is acknowledged; the seconds in which they must lock
    #: it; and what is done without them.
    sync_backups: tuple[str, ...] = ()
    sync_timeout: float = 3.0
    sync_policy: SyncPolicy = SyncPolicy.CONTINUE
