"""Every subset of a cluster's machines is cut off from every other: ``python -m tests.faults.cuts``.

Three masters and two storage nodes run on a machine of their own each (:mod:`tests.faults.network`).
Clients, the admin node and observers are on the hub, which always reaches all machines. That is the
hardest place, because two primaries could both be reached from there. Where a majority of the masters
reaches a storage node, clients must go on; where none does, nothing may be acknowledged; when all is
healed, clients go on. Observers and logs show all the time which master serves: never two
(:mod:`tests.faults.reigns`).
"""

from __future__ import annotations

import argparse
import configparser
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import combinations, permutations, product
from pathlib import Path
from typing import NamedTuple

from ZODB.DB import DB

from neo.client import Storage
from neo.net.sockets import parse_address
from neo.protocol.enums import NodeType
from neo.protocol.ids import time_from_tid
from tests.faults.machines import MachineCluster
from tests.faults.mixed import check_end, prepare
from tests.faults.mixed_load import Load
from tests.faults.network import HUB, Network, isolated
from tests.faults.reigns import Epoch, Observer, check_alone, check_commits, check_heard, epochs_of
from tests.faults.rows import check_equal
from tests.faults.storm import MASTER_PORT, Fault, longest_gap
from tests.support import seeds

MASTERS = ("master1", "master2", "master3")
STORAGES = ("storage1", "storage2")
MACHINES = (*MASTERS, *STORAGES)
CLUSTER, PARTITIONS, CLIENTS = "cuts", 6, 2
#: Longer than a lease, and than a failover usually takes.
HOLD_SECONDS = 4.5
#: Time in which no client may commit. It is fixed, because the absence of an event is tested.
SILENT_SECONDS = 4.5


# -- what is cut ---------------------------------------------------------------------------------


class Cut(NamedTuple):
    """A cut. ``pairs``: packets from the first machine to the second are lost. ``serves``: clients must
    go on meanwhile."""

    what: str
    pairs: list[tuple[str, str]]
    serves: bool


def _serves(group: Sequence[str]) -> bool:
    masters = sum(name in MASTERS for name in group)
    return masters > len(MASTERS) // 2 and masters < len(group)


def split(group: Sequence[str]) -> Cut:
    """Return a cut between ``group`` and all other machines."""
    rest = [name for name in MACHINES if name not in group]
    pairs = [*product(group, rest), *product(rest, group)]
    return Cut(f"{' '.join(group)} | {' '.join(rest)}", pairs, _serves(group) or _serves(rest))


def all_cuts() -> list[Cut]:
    first, *others = MACHINES
    cuts = [split([first, *some]) for n in range(len(others)) for some in combinations(others, n)]
    cuts += [
        Cut(f"{one} does not reach {other}", [(one, other)], True)
        for one, other in permutations(MASTERS, 2)
    ]
    cuts += [Cut("each master is alone", list(permutations(MASTERS, 2)), False)]
    for one in MASTERS:
        others = [name for name in MACHINES if name != one]
        cuts += [Cut(f"{one} reaches no other machine", list(product([one], others)), True)]
        cuts += [Cut(f"no machine reaches {one}", list(product(others, [one])), True)]
    return cuts


# -- the whole -----------------------------------------------------------------------------------


def configuration(folder: Path, network: Network) -> configparser.ConfigParser:
    masters = [f"{network.machines[name].address}:{MASTER_PORT}" for name in MASTERS]
    parser = configparser.ConfigParser(interpolation=None)
    parser["DEFAULT"] = {
        "cluster": CLUSTER,
        "masters": " ".join(masters),
        "partitions": str(PARTITIONS),
        "replicas": str(len(STORAGES) - 1),
        "autostart": str(len(STORAGES)),
        "adapter": "SQLite",
    }
    for name, bind in zip(MASTERS, masters, strict=True):
        parser[name] = {"bind": bind, "election_log": str(folder / f"{name}.election")}
    for name in STORAGES:
        bind = f"{network.machines[name].address}:{MASTER_PORT + 1}"
        parser[name] = {"bind": bind, "database": str(folder / f"{name}.sqlite")}
    parser["admin"] = {"bind": f"{HUB}:{MASTER_PORT + 2}"}
    for name in (*MACHINES, "admin"):
        parser[name]["logfile"] = str(folder / f"{name}.log")
    return parser


def _newest_commit(database: Path) -> float:
    """Return the time of the last commit, in seconds since 1970; a locked transaction counts, too."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
        ((tid,),) = db.execute(
            "SELECT MAX(tid) FROM (SELECT tid FROM trans UNION ALL SELECT tid FROM ttrans)"
        )
    return time_from_tid(tid.to_bytes(8, "big"))


class Trial:
    """Tries one cut after the other, under load."""

    def __init__(self, cluster: MachineCluster, load: Load) -> None:
        self.cluster = cluster
        self.load = load
        self.served: list[Fault] = []

    def suffer(self, cut: Cut) -> None:
        # A node that was cut off must have caught up, or the cluster may have to wait for its replica.
        self.load.wait(self.cluster.complete, "some cell is not up to date")
        machines = self.cluster.machines
        begin = time.monotonic()
        print(f"{begin:.3f} {cut.what}", flush=True)
        for one, other in cut.pairs:
            machines[one].lose(machines[other])
        # Meanwhile the old primary loses its lease, and another one may begin.
        time.sleep(HOLD_SECONDS)
        if cut.serves:
            self.load.wait_progress()
            self.served.append(Fault(begin, time.monotonic(), cut.what, "cut"))
        else:
            self._check_silence()
        self._check_commits()
        for one, other in cut.pairs:
            machines[one].find(machines[other])
        self.load.wait_progress()

    def _check_silence(self) -> None:
        """Check that no master serves and nothing is acknowledged."""
        before = [len(journals.acknowledged) for journals in self.load.journals]
        time.sleep(SILENT_SECONDS)
        after = [len(journals.acknowledged) for journals in self.load.journals]
        assert before == after, f"commits without a majority: {before} {after}"

    def log(self, name: str) -> str:
        return self.cluster.log(name).read_text()

    def epochs(self) -> list[Epoch]:
        return epochs_of(map(self.log, MASTERS))

    def _check_commits(self) -> None:
        """Check that no storage node took part in commits of a former primary."""
        newest = {name: _newest_commit(self.cluster.folder / f"{name}.sqlite") for name in STORAGES}
        logs = {name: self.log(name) for name in STORAGES}
        epochs = self.epochs()
        for name in STORAGES:
            check_commits(epochs, logs[name], newest[name])

    def pauses(self) -> list[tuple[float, str]]:
        """Return the longest time without a commit for each cut in which clients had to go on."""
        found = []
        times = [[e.when for e in j.acknowledged.entries()] for j in self.load.journals]
        for cut in self.served:
            gaps = [
                longest_gap([when for when in of_client if cut.begin - 1 < when < cut.end + 1])
                for of_client in times
            ]
            found.append((max(gap.seconds for gap in gaps), cut.what))
        return sorted(found)


def _chosen(choices: random.Random, count: int) -> list[Cut]:
    """Choose cuts, at least one in which clients must go on."""
    cuts = all_cuts()
    choices.shuffle(cuts)
    cuts.sort(key=lambda cut: not cut.serves)
    return [cuts[0], *choices.sample(cuts[1:], min(count, len(cuts)) - 1)]


def _observers(masters: str, stop: threading.Event) -> list[Observer]:
    """Return two observers of each master: a client and an admin node."""
    return [
        Observer(name, parse_address(address), CLUSTER, own, stop)
        for number, (name, address) in enumerate(zip(MASTERS, masters.split(), strict=True))
        for own in (None, (HUB, 3000 + number))
    ]


def run(folder: Path, seed: int, count: int) -> str:
    """Run ``count`` cuts, or all. Return the report. Raise AssertionError, Violation."""
    cuts = _chosen(random.Random(seed), count)
    with ExitStack() as stack:
        network = Network(MACHINES)
        stack.callback(network.close)
        cluster = stack.enter_context(
            MachineCluster(folder, network, configuration(folder, network))
        )
        prepare(Storage(cluster.masters, cluster.name), CLIENTS)
        load = Load(cluster.masters, cluster.name, folder, [()] * CLIENTS, seed)
        stack.callback(load.kill)
        stop = threading.Event()
        observers = _observers(cluster.masters, stop)
        for observer in observers:
            observer.start()
        stack.callback(stop.set)
        load.wait_progress()
        trial = Trial(cluster, load)
        for cut in cuts:
            trial.suffer(cut)
        load.wait(cluster.complete, "some cell is not up to date")
        # A master that is not reached would not be told that the cluster stops.
        load.wait(cluster.together, "some master is not reached")
        load.stop()
        stop.set()
        for observer in observers:
            observer.join()
        db = DB(Storage(cluster.masters, cluster.name))
        try:
            done = check_end(db.open(), folder, CLIENTS)
        finally:
            db.close()
        cluster.stop_all()
        check_equal(cluster.conf.path, PARTITIONS, len(STORAGES))
        reigns = [reign for observer in observers for reign in observer.reigns]
        check_alone(reigns)
        by_clients = sum(len(o.reigns) for o in observers if o.node_type is NodeType.CLIENT)
        epochs = trial.epochs()
        heard = check_heard(epochs, {name: trial.log(name) for name in STORAGES})
    pauses = trial.pauses()
    return "\n".join(
        [
            f"cuts: {len(cuts)}; epochs: {len(epochs)}, each of one master",
            f"reigns seen: {by_clients} by clients, {len(reigns) - by_clients} by admin nodes, never two"
            f" at once; storage nodes heard {heard} times of the newest primary, never of an older one",
            "acknowledged: " + ", ".join(f"{n} {kind}" for kind, n in sorted(done.items())),
            f"longest time without a commit of a client, with a majority ({len(pauses)} cuts): median"
            f" {pauses[len(pauses) // 2][0]:.1f} s, longest {pauses[-1][0]:.1f} s ({pauses[-1][1]})",
        ]
    )


def command(folder: Path, seed: int, count: int) -> list[str]:
    """Return the command that runs the cuts on a network of its own. Raise NetworkError."""
    module = [sys.executable, "-m", "tests.faults.cuts", "--inside", str(folder)]
    return isolated([*module, "--seed", str(seed), "--count", str(count)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=len(all_cuts()))
    parser.add_argument("--seed", type=int, default=seeds.FIXED)
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        print(run(options.inside, options.seed, options.count))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        print(f"--seed {options.seed}", flush=True)
        return subprocess.run(command(Path(folder), options.seed, options.count)).returncode


if __name__ == "__main__":
    sys.exit(main())
