"""A snapshot of a cluster as figures of Prometheus. Needs the package prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from neo import __version__
from neo.admin.observing import Snapshot
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.ids import ZERO_TID, format_nid, time_from_tid


def families(found: Snapshot, cluster: str) -> Iterator[Metric]:
    """Return all figures of a cluster."""
    info = {"cluster": cluster, "version": __version__}
    yield InfoMetricFamily("neo_admin", "The admin node that tells this.", info)
    yield _gauge(
        "neo_connected", "1 if the admin node has a primary master.", found.primary is not None
    )
    yield _gauge("neo_ready", "1 if the cluster serves applications.", found.ready)
    yield _states(found.state)
    if found.primary is None:
        return
    yield from _tables(found)
    yield from _health(found)
    yield _lags(found)
    yield from _transactions(found)
    yield from _contents(found)
    yield from _disks(found)
    yield from _caches(found)


def _gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help, value=float(value))


def _labelled(name: str, help: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help, labels=labels)


def _states(state: ClusterState | None) -> Metric:
    family = _labelled("neo_cluster_state", "1 for the state in which the cluster is.", "state")
    for each in ClusterState:
        family.add_metric([each.name], float(each is state))
    return family


def _tables(found: Snapshot) -> Iterator[Metric]:
    nodes = _labelled("neo_nodes", "Nodes of the cluster.", "type", "state")
    for (kind, node_state), count in found.nodes.items():
        nodes.add_metric([kind.name, node_state.name], count)
    yield nodes
    cells = _labelled("neo_cells", "Copies of partitions.", "state")
    for cell in CellState:
        if cell is not CellState.DISCARDED:
            cells.add_metric([cell.name], found.cells[cell])
    yield cells
    yield _gauge("neo_partitions", "Partitions of the database.", found.partitions)
    yield _gauge("neo_replicas", "Copies besides the first that are wanted.", found.replicas)
    if found.last_tid not in (None, ZERO_TID):
        help = "When the last transaction was committed."
        yield _gauge("neo_last_transaction_timestamp_seconds", help, time_from_tid(found.last_tid))


def _health(found: Snapshot) -> Iterator[Metric]:
    for name, help, clusters in (
        ("neo_problem", "1 if something does not work now.", found.problems),
        ("neo_warning", "1 if something may not work soon.", found.warnings),
    ):
        family = _labelled(name, f"{help} backup: empty for this cluster itself.", "backup")
        for cluster in {None, *found.problems, *found.warnings}:
            family.add_metric([cluster or ""], float(cluster in clusters))
        yield family


def _lags(found: Snapshot) -> Metric:
    lags = _labelled(
        "neo_backup_lag_seconds", "By how much a watched standby is behind, if that is known.", "backup"
    )
    for name, seconds in found.lags.items():
        if seconds is not None:
            lags.add_metric([name], seconds)
    return lags


def _transactions(found: Snapshot) -> Iterator[Metric]:
    ages = [age for _, _, _, age, _, _, _ in found.transactions]
    waiting = sum(others for _, _, _, _, _, others, _ in found.transactions)
    yield _gauge("neo_transactions_open", "Transactions that have not ended.", len(ages))
    yield _gauge("neo_transactions_waiting", "Transactions that wait for a lock.", waiting)
    help = "Age of the oldest open transaction."
    yield _gauge("neo_transaction_oldest_seconds", help, max(ages, default=0.0))


def _contents(found: Snapshot) -> Iterator[Metric]:
    families = [
        _labelled("neo_blob_contents", "Contents of blobs that a storage node keeps.", "node"),
        _labelled("neo_blob_bytes", "Their bytes.", "node"),
        _labelled("neo_blob_disk_free_bytes", "Free bytes of the disk of its contents.", "node"),
        _labelled("neo_blob_contents_lost", "Contents whose files are missing or damaged.", "node"),
        _labelled("neo_blob_partitions_unverified", "Partitions that are still verified.", "node"),
    ]
    for nid, *values in found.contents:
        for family, value in zip(families, values, strict=True):
            family.add_metric([format_nid(nid)], value)
    yield from families


def _disks(found: Snapshot) -> Iterator[Metric]:
    versions = _labelled("neo_node_info", "1 for each storage node.", "node", "version")
    sizes = _labelled("neo_node_bytes", "Bytes that a storage node keeps.", "node")
    free = _labelled("neo_disk_free_bytes", "Free bytes of a disk.", "node", "disk")
    total = _labelled("neo_disk_size_bytes", "Bytes of a disk that can be used.", "node", "disk")
    for nid, version, size, disks in found.disks:
        node = format_nid(nid)
        versions.add_metric([node, version], 1.0)
        sizes.add_metric([node], size)
        for what, free_bytes, total_bytes in disks:
            free.add_metric([node, what], free_bytes)
            total.add_metric([node, what], total_bytes)
    yield from (versions, sizes, free, total)


def _caches(found: Snapshot) -> Iterator[Metric]:
    """The labels: ``client``, the process; ``node``, its id in the cluster, since a process may have
    several storages."""
    names, prefix = ("client", "node"), "neo_client_cache"
    families: list[GaugeMetricFamily | CounterMetricFamily] = [
        _labelled(f"{prefix}_capacity_bytes", "Bytes that the cache of a client may have.", *names),
        _labelled(f"{prefix}_bytes", "Bytes that it has.", *names),
        _labelled(f"{prefix}_entries", "Revisions of objects that it has.", *names),
        CounterMetricFamily(f"{prefix}_hits", "Loads that it answered.", labels=names),
        CounterMetricFamily(f"{prefix}_misses", "Loads that went to storage nodes.", labels=names),
    ]
    for nid, name, *values in found.caches:
        for family, value in zip(families, values, strict=True):
            family.add_metric([name, format_nid(nid)], value)
    yield from families
