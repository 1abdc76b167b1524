"""Settings of the primary master, as its parts know them."""

from __future__ import annotations

from dataclasses import dataclass

from neo.protocol.packets import Address


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
