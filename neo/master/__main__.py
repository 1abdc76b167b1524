"""``neomaster``: the process of a master node."""

from __future__ import annotations

import argparse
import logging
import math
import re
import sys
from contextlib import suppress
from typing import Protocol

from neo.master.election.folder import LogFolder
from neo.master.election.leadership import Tenure
from neo.master.election.log import LogFailure, genesis_of
from neo.master.election.node import MasterNode
from neo.master.primary import PrimaryMaster
from neo.master.serving.admin import MAX_REPLICAS
from neo.master.settings import MasterSettings, SyncPolicy
from neo.net.sockets import format_address, parse_addresses
from neo.node.config import (
    TRACING,
    ConfigError,
    Option,
    load,
    names,
    natural,
    one_of,
    positive,
    role_options,
    seconds,
)
from neo.node.core import Core
from neo.node.core_life import StartFailure
from neo.node.host import Host
from neo.node.known_masters import RememberedMasters
from neo.node.process import main as run
from neo.protocol.enums import NodeType
from neo.protocol.ids import nid_namespace, parse_nid
from neo.protocol.packets import Address
from neo.topology.partitions import MAX_PARTITIONS

logger = logging.getLogger("neo.master")


def master_nid(text: str) -> int:
    """Return the node id for ``M1`` or an integer. Raise ValueError with the accepted forms."""
    for parse in (int, parse_nid):
        with suppress(ValueError):
            nid = parse(text)
            if 0 < nid - nid_namespace(NodeType.MASTER) < 1 << 24:
                return nid
    raise ValueError(f"{text!r} is not the id of a master: write M1, M2, M3...")


def days(text: str) -> float:
    """Return a number of days. Raise ValueError unless it is a number that is not negative."""
    with suppress(ValueError):
        number = float(text)
        if 0 <= number < math.inf:
            return number
    raise ValueError(f"{text!r} is not a number of days")


OPTIONS = role_options(
    TRACING,
    Option("partitions", "number of partitions of a new database", positive, 100, short="p"),
    Option("replicas", "number of replicas of a new database", natural, 0, short="r"),
    Option(
        "autostart",
        "create a new database when this many storage nodes are connected; remove it afterwards",
        positive,
        short="A",
    ),
    Option("nid", "node id, M1 by default", master_nid, short="i", command_line_only=True),
    Option(
        "election_log",
        "folder of the log that several masters keep together; by default CLUSTER-PORT.election in the "
        "working directory",
    ),
    Option(
        "scrub_days",
        "days in which all copies are compared once, in the background; 0 for never",
        days,
        7.0,
    ),
    Option("upstream_cluster", "cluster to be a standby of", short="C"),
    Option("upstream_masters", "its masters", parse_addresses, short="M"),
    Option(
        "sync",
        "as a standby, have every transaction before the upstream cluster acknowledges it",
        flag=True,
    ),
    Option(
        "sync_backups",
        "standbys that must have a transaction before it is acknowledged, separated by spaces",
        names,
    ),
    Option(
        "sync_timeout",
        "seconds in which a synchronous standby must lock a transaction, 2 or more",
        seconds,
        3.0,
    ),
    Option(
        "sync_policy",
        "without a synchronous standby: continue, or stop to commit",
        one_of(*(policy.value for policy in SyncPolicy)),
        SyncPolicy.CONTINUE.value,
    ),
)

#: A synchronous backup may hold back locks for half of that (specification 25.41).
SYNC_TIMEOUT_MIN = 2.0


def load_settings(argv: list[str]) -> argparse.Namespace:
    settings = load("master", "Master node of a NEO cluster.", OPTIONS, argv)
    if settings.bind is None:
        raise ConfigError("setting 'bind' is missing: a master must listen on an address")
    if settings.partitions > MAX_PARTITIONS:
        raise ConfigError(f"setting 'partitions': at most {MAX_PARTITIONS} are possible")
    if settings.replicas > MAX_REPLICAS:
        raise ConfigError(f"setting 'replicas': at most {MAX_REPLICAS} are possible")
    if settings.bind not in settings.masters:
        raise ConfigError(
            f"setting 'masters' lacks {format_address(settings.bind)}, the address of 'bind': name all "
            "masters of the cluster, this one included"
        )
    if len(settings.masters) > 1 and settings.nid is not None:
        raise ConfigError("setting 'nid': several masters number themselves, leave it out")
    if settings.election_log is None:
        name = re.sub(r"[^\w.-]", "_", settings.cluster)
        settings.election_log = f"{name}-{settings.bind[1]}.election"
    if bool(settings.upstream_cluster) != bool(settings.upstream_masters):
        raise ConfigError("settings 'upstream_cluster' and 'upstream_masters' belong together")
    if settings.upstream_cluster == settings.cluster:
        raise ConfigError("setting 'upstream_cluster': a standby needs another name than its upstream")
    if settings.sync and not settings.upstream_cluster:
        raise ConfigError("setting 'sync' needs 'upstream_cluster' and 'upstream_masters'")
    if not SYNC_TIMEOUT_MIN <= settings.sync_timeout < math.inf:
        raise ConfigError(f"setting 'sync_timeout': at least {SYNC_TIMEOUT_MIN:g} seconds are needed")
    if settings.cluster in (settings.sync_backups or ()):
        raise ConfigError("setting 'sync_backups': a cluster is no standby of itself")
    return settings


def master_settings(settings: argparse.Namespace) -> MasterSettings:
    """Return the settings that the core needs."""
    return MasterSettings(
        cluster=settings.cluster,
        masters=settings.masters,
        partitions=settings.partitions,
        replicas=settings.replicas,
        autostart=settings.autostart,
        nid=settings.nid,
        scrub_days=settings.scrub_days,
        upstream_cluster=settings.upstream_cluster,
        upstream_masters=settings.upstream_masters,
        sync=settings.sync,
        sync_backups=tuple(settings.sync_backups or ()),
        sync_timeout=settings.sync_timeout,
        sync_policy=SyncPolicy(settings.sync_policy),
    )


class ConfiguredHost(Host, Protocol):
    """A host that knows the settings of its node, and where the node listens."""

    settings: argparse.Namespace
    bind: Address | None


def make_core(host: ConfiguredHost) -> Core:
    """Return the core of this process. Raise StartFailure if the log cannot be used, ConfigError for a
    wrong list of masters."""
    options, bind = host.settings, host.bind
    assert bind is not None
    settings = master_settings(options)
    remembered = RememberedMasters(options.dynamic_master_list)
    if len(settings.masters) == 1:
        if LogFolder.has_begun(options.election_log):
            raise StartFailure(
                f"this master keeps a log with others in {options.election_log!r}, but setting "
                "'masters' has no others: name them all; or, if they will never run again, move the "
                "folder elsewhere"
            )
        return PrimaryMaster(host, settings, bind)

    def make_primary(host: Host, tenure: Tenure) -> PrimaryMaster:
        return PrimaryMaster(host, settings, bind, tenure)

    try:
        genesis = genesis_of(settings.masters)
        path, name = options.election_log, format_address(bind)
        folder = LogFolder(path, name, genesis, host.from_thread, logger.warning)
        return MasterNode(
            host=host,
            cluster=settings.cluster,
            masters=settings.masters,
            bind=bind,
            disk=folder,
            make_primary=make_primary,
            remembered=remembered,
        )
    except LogFailure as e:
        raise StartFailure(str(e)) from None


def main() -> int:
    """Run the process, and return its exit code."""
    return run("master", load_settings, make_core)


if __name__ == "__main__":
    sys.exit(main())
