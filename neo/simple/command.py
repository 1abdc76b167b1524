"""``neosimple``: a small cluster in the foreground, until Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from neo import __version__
from neo.node.config import VISIBLE
from neo.simple.cluster import Cluster, ClusterError

#: Interval of the checks of the processes.
WATCH_SECONDS = 0.5


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="neosimple",
        description="Start a whole small NEO cluster on this machine, until Ctrl-C or SIGTERM. "
        "The folder keeps addresses and data: give it again to go on later.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add("--folder", type=Path, default=Path("neo-data"), help="default: ./neo-data")
    add("--name", help="name of the cluster (default: neo)")
    add("--storages", type=int, metavar="N", help="storage nodes (default: 1)")
    add("--partitions", type=int, metavar="P", help="partitions, for ever (default: 12)")
    add("--replicas", type=int, metavar="R", help="copies besides the first (default: 0)")
    add("--masters", type=int, metavar="M", help="masters (default: 1)")
    add("--adapter", choices=("SQLite", "MySQL"), help="where storage nodes keep data")
    add(
        "--database",
        help="database string with {n} for the number of the storage node, "
        "such as user:password@neo{n} (default: a SQLite file in the folder). "
        f"{VISIBLE}: give it once, it is kept in neo.conf",
    )
    add("--host", help="address of this machine, such as ::1 (default: 127.0.0.1)")
    add("--port-base", type=int, metavar="PORT", help="first of the ports (default: free ones)")
    add("--processes", action="store_true", help="one process for each node instead of one for all")
    add("--ca", help="certificate authority; with --cert and --key every link uses TLS")
    add("--cert", help="certificate of the nodes")
    add("--key", help="its private key")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit codes: 0 stopped on request, 1 the cluster cannot be started or died."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _interrupt(stop))
    try:
        with Cluster(**vars(_arguments(argv))) as cluster:
            _introduce(cluster)
            return _watch(cluster, stop)
    except ClusterError as e:
        print(f"neosimple: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def _interrupt(stop: threading.Event) -> None:
    """End the watch, or the start, at the first signal."""
    if stop.is_set():
        return  # already stopping
    stop.set()
    raise KeyboardInterrupt


def _introduce(cluster: Cluster) -> None:
    print(f"Cluster {cluster.name!r} is running, its files are in {cluster.folder}.")
    print(f"\nApplications open:\n\n  {cluster.uri}\n\nor in ZConfig:\n")
    print("".join(f"  {line}\n" for line in cluster.zconfig.splitlines()))
    print(f"Operators type:\n\n  {cluster.neoctl} status\n")
    print("Ctrl-C stops it.", flush=True)


def _watch(cluster: Cluster, stop: threading.Event) -> int:
    """Report processes that die; the others continue, as on separate machines. Return when the operator
    has stopped the cluster, or no process is left."""
    reported: set[str] = set()
    seen: set[str] = set()
    while not stop.wait(WATCH_SECONDS):
        if cluster.stopped():
            print("neosimple: the cluster was stopped", flush=True)
            return 0
        # The processes of a cluster that stops do not all end at once.
        before, seen = seen, set(cluster.dead())
        for name in sorted(seen & before):
            if name not in reported:
                reported.add(name)
                print(
                    f"neosimple: {cluster.obituary(name)}\nStart it again with: "
                    f"{shlex.join(cluster.words(name))}",
                    file=sys.stderr,
                    flush=True,
                )
        if len(reported) == len(cluster.processes):
            print("neosimple: no process is left", file=sys.stderr)
            return 1
    return 0
