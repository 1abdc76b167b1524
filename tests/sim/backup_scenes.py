"""States of a backup and its upstream cluster in which ``neoctl status`` has an advice."""

from __future__ import annotations

from neo.master.settings import SyncPolicy
from neo.protocol.enums import ClusterState
from tests.sim.advice import Stage, write
from tests.simulator.cluster import CLUSTER_NAME


def never_reached() -> Stage:
    stage = Stage(1, 4, backup=True, follows=False)
    assert stage.up is not None
    stage.lose(*stage.up.servers)
    stage.neoctl("set cluster starting_backup")
    stage.world.run(3.0)
    return stage


def upstream_lost() -> Stage:
    stage = Stage(2, 4, 1, backup=True)
    assert stage.up is not None
    return stage.lose(*stage.up.servers)


def upstream_silent() -> Stage:
    stage = Stage(1, 4, backup=True)
    assert stage.up is not None
    stage.up.master.pause()
    stage.world.run(10.0)
    return stage


def upstream_and_copy_lost() -> Stage:
    stage = upstream_lost()
    return stage.lose(stage.cluster.storages[1])


def not_configured() -> Stage:
    stage = Stage(1, 4, backup=True)
    up, stage.cluster.upstream = stage.cluster.upstream, None
    stage.restart_master()
    stage.wait(ClusterState.STARTING_BACKUP)
    stage.up = up
    stage.world.run(1.0)
    return stage


# -- synchronous backups -----------------------------------------------------------------------------


def synchronous(policy: SyncPolicy) -> Stage:
    """The cluster is a synchronous backup, and in sync."""
    stage = Stage(1, 4, backup=True, sync=policy)
    stage.until(lambda: stage.sync_state() == "sync", "it is in sync")
    return stage


def sync_backup_lost(policy: SyncPolicy) -> Stage:
    stage = synchronous(policy).go_upstream()
    assert stage.up is not None
    stage.lose(*stage.up.servers)
    stage.world.run(10.0)
    return stage


def switched_off() -> Stage:
    stage = synchronous(SyncPolicy.CONTINUE).go_upstream()
    stage.neoctl(f"set sync {CLUSTER_NAME} off")
    stage.world.run(5.0)
    return stage


def refused() -> Stage:
    """The backup hears why it is not in sync."""
    stage = switched_off().go_upstream()
    stage.world.run(5.0)
    return stage


def behind() -> Stage:
    """The backup was away, and its storage node gets nothing from that of the upstream cluster yet."""
    stage = synchronous(SyncPolicy.CONTINUE)
    assert stage.up is not None
    stage.lose(*stage.cluster.servers)
    write(stage, "upstream")
    (source,), (target,) = stage.up.storages, stage.cluster.storages
    stage.cut(source, target)
    stage.revive()
    stage.wait(ClusterState.BACKINGUP)
    stage.world.run(10.0)
    assert "near the end" in stage.neoctl("print backups").data["own"]["reason"]
    return stage
