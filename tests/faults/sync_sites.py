"""Two sites, of which one is the synchronous backup of the other: ``python -m tests.faults.sync_sites``.

Each site is a cluster on a machine of its own (:mod:`tests.faults.network`), with a long link between the
two (:mod:`tests.faults.link`). Threads commit in the site that serves (:mod:`tests.faults.sync_load`).

A *fault* strikes the link or the backup: commits stand still for a bounded time, or with the policy to
stop until the operator lets them go on; both sites say so; and the backup comes into sync again.

In a *round* the serving site is lost at a random moment (:mod:`tests.faults.sync_losses`), and the backup
takes over, in its lease or after it. All transactions that were acknowledged while it was in sync are
there, whole, and so is what readers saw (:mod:`tests.faults.sync_readers`). With the policy to stop all
that were acknowledged are there, also when the lost site lives on. The lost site then becomes the backup,
as docs/standby.md says, and the next round begins.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from ZODB.DB import DB

from neo.client import Storage
from neo.protocol.enums import ClusterState
from neo.protocol.packets import AskLastTransaction, Truncate
from tests.faults.link import Link
from tests.faults.network import Network, isolated
from tests.faults.operator import neoctl
from tests.faults.rows import Cells, cells
from tests.faults.storm import longest_gap
from tests.faults.sync_load import Acknowledged, Load, check, prepare
from tests.faults.sync_losses import LEASE_SECONDS, LOSSES, Evidence, Loss, evidence
from tests.faults.sync_readers import Reader
from tests.faults.sync_site import PARTITIONS, REPLICAS, SYNC_TIMEOUT, WAIT_SECONDS, Site
from tests.support import seeds

NAMES = tuple(REPLICAS)
#: The time that a packet takes from one site to the other.
DELAY_SECONDS = 0.01
#: The same on the slow link: the way there and back takes longer than SYNC_TIMEOUT.
SLOW_SECONDS = 2.0
#: Commits stand still for SYNC_TIMEOUT and the lease (specification 25.15), or for the timeout of a vote
#: (specification 25.8), then SYNC_TIMEOUT. The machine may stand still for 30 seconds besides. Virtual
#: time measures exactly, in tests/unit/master/commit/test_sync_backups.py.
STALL_SECONDS = 3 + SYNC_TIMEOUT + 2.1 + 30
#: Time in which no client may commit. It is fixed, because the absence of an event is tested; it is
#: longer than commits wait with the policy to continue.
SILENT_SECONDS = SYNC_TIMEOUT + 2.1 + 2
#: A strike hits any moment of a commit.
SPREAD_SECONDS = 0.3
#: A take-over comes within the lease, of 2 seconds, or after it.
TAKE_OVER_SECONDS = 4.0
#: Commits of each thread in a round.
COMMITS = 3
STOP = "stop"


# -- both sites --------------------------------------------------------------------------------------


class Sites:
    """``up`` serves, ``bak`` is its backup."""

    def __init__(self, up: Site, bak: Site, link: Link, seed: int, policy: str) -> None:
        self.up, self.bak, self.link = up, bak, link
        self.policy = policy
        self.choices = random.Random(seed)
        #: What was acknowledged since ``since``, the last transaction that was checked.
        self.acknowledged: list[Acknowledged] = []
        self.since = bytes(8)
        self.commits = 0
        self.whole = self.snapshots = 0
        self._losses: list[Loss] = []
        self.serve_seconds: list[float] = []

    def wait_in_sync(self) -> None:
        self.bak.wait(self.bak.is_in_sync, "it does not come into sync")
        self.up.wait(lambda: self.up.backup_is("sync"), "it does not say that its backup is in sync")

    def open(self) -> DB:
        return DB(Storage(self.up.masters, self.up.name, wait_timeout=WAIT_SECONDS))

    @contextmanager
    def load(self) -> Iterator[Load]:
        load = Load(self.open(), self.choices.randrange(2**32))
        try:
            yield load
        finally:
            load.stop()
            self.acknowledged += load.acknowledged
            self.commits += len(load.acknowledged)

    def wait_commits(self, load: Load, count: int = COMMITS) -> None:
        """Wait until every thread has ``count`` more commits."""
        goals = [commits + count for commits in load.commits()]

        def reached() -> bool:
            load.check()
            return all(n >= goal for n, goal in zip(load.commits(), goals, strict=True))

        self.up.wait(reached, f"no {count} commits of each thread: {load.commits()}")

    # -- rounds --------------------------------------------------------------------------------------

    def lose(self) -> None:
        """Lose the serving site at a random moment, and let the backup take over."""
        up, bak = self.up, self.bak
        loss = self._next_loss()
        print(f"{up.name}: {loss.what}", flush=True)
        with Reader(bak) as there, Reader(up) as here, self.load() as load:
            self.wait_commits(load)
            self.wait_in_sync()
            # A fixed time: the loss shall hit any moment of a commit.
            time.sleep(self.choices.random() * SPREAD_SECONDS)
            begin = time.monotonic()
            with loss.strike(up, self.link):
                lost = time.monotonic()
                # Another one: the take-over shall hit any moment of the lease, or come after it.
                time.sleep(self.choices.random() * TAKE_OVER_SECONDS)
                said = evidence(bak)
                self._take_over(bak)
            if loss.lives:
                self._live_on(up)
                up.destroy()
        assert said.until <= lost + LEASE_SECONDS, "it says that it was in sync after the loss"
        self.up, self.bak = bak, up
        self._check(said, begin, [there, here])
        self.snapshots += len(there.seen) + len(here.seen)

    def _next_loss(self) -> Loss:
        """Return the kind of the next loss: each of them comes once before any comes again."""
        if not self._losses:
            self._losses = self.choices.sample(LOSSES, len(LOSSES))
        return self._losses.pop()

    def _take_over(self, bak: Site) -> None:
        begin = time.monotonic()
        bak.set_state(ClusterState.STOPPING_BACKUP)
        bak.wait(lambda: bak.is_state(ClusterState.RUNNING), "it does not take over")
        if self.policy == STOP:
            neoctl(bak.admin_address, "set", "sync", self.up.name, "off")
        with closing(DB(Storage(bak.masters, bak.name, wait_timeout=WAIT_SECONDS))) as db:
            with db.transaction(note="1") as connection:
                connection.root()["served"] = bak.name
        self.serve_seconds.append(time.monotonic() - begin)

    def _live_on(self, up: Site) -> None:
        """Let a site that was lost, and lives, do what it can. With the policy to stop, it can commit
        nothing more."""
        if self.policy == STOP:
            up.wait(lambda: up.misses_backup(SILENT_SECONDS), "it does not miss its backup")

    def _check(self, said: Evidence, begin: float, readers: Sequence[Reader]) -> None:
        """Check what was acknowledged, and read, in the site that was lost, in the one that took over:
        all with the policy to stop, else what came while the backup was in sync."""
        until = float("inf") if self.policy == STOP else said.until
        expected = [item for item in self.acknowledged if item.when <= until]
        self.whole += until >= begin
        seen = {
            it.tid for r in readers for it in r.seen if it.when <= until or r.name == self.up.name
        }
        with closing(self.open()) as db:
            check(db, expected, self.since, seen)
            self.since = db.lastTransaction()
        late = [item for item in self.acknowledged if item.when <= said.until and item.tid > said.tid]
        assert not late, f"it says that it is complete up to {said.tid.hex()}, and lacks {len(late)}"
        assert self.up.cut_tid() >= said.tid, "it cut what it had"
        self.acknowledged = []

    def return_(self) -> None:
        """Let the killed site become the backup (docs/standby.md, Switch back)."""
        bak, tid = self.bak, self.up.cut_tid()
        bak.start()
        if bak.ask(AskLastTransaction()).tid > tid:
            bak.ask(Truncate(tid))
            bak.wait(
                lambda: bak.is_state(ClusterState.RUNNING) and bak.ask(AskLastTransaction()).tid == tid,
                "it is not truncated",
            )
        bak.set_state(ClusterState.STARTING_BACKUP)
        if self.policy == STOP:
            neoctl(self.up.admin_address, "set", "sync", bak.name, "on")
        self.wait_in_sync()

    # -- faults --------------------------------------------------------------------------------------

    def suffer(self, fault: Fault) -> None:
        """Let commits go on without the backup, which comes into sync again after the fault."""
        with self.load() as load:
            self.wait_commits(load)
            self.wait_in_sync()
            begin = time.monotonic()
            with fault.strike(self):
                if fault.away:
                    self.up.wait(lambda: self.up.backup_is("async"), "it waits for its backup")
                self.wait_commits(load)
                if fault.away:
                    self._check_claim(load, begin)
        # A load that takes all of the machine would not let the backup catch up: both share it.
        self.wait_in_sync()
        with self.load() as after:
            self.wait_commits(after)
        gap = longest_gap([item.when for item in load.acknowledged])
        assert gap.seconds < STALL_SECONDS, f"{fault.what}: no commit for {gap.seconds:.1f} s"
        seconds = time.monotonic() - begin
        print(f"{fault.what}: no commit for {gap.seconds:.2f} s; in all {seconds:.1f} s", flush=True)

    def _check_claim(self, load: Load, begin: float) -> None:
        """Check what the backup, which hears nothing, says: it has all that was acknowledged before the
        time that it tells."""
        self.bak.wait(lambda: not self.bak.is_in_sync(), "it does not say that it is not in sync")
        until, tid = self.bak.claim()
        assert until >= begin
        assert all(item.when > until for item in load.acknowledged if item.tid > tid)

    def wait_for_operator(self) -> None:
        """Cut the link with the policy to stop: commits wait until the operator switches the backup off,
        and it comes into sync again when it is switched on."""
        up, bak = self.up, self.bak
        with self.load() as load:
            self.wait_commits(load)
            self.wait_in_sync()
            self.link.set(None, None)
            up.wait(lambda: up.backup_is("lost"), "it does not miss its backup")
            bak.wait(lambda: not bak.is_in_sync(), "it does not say that it is not in sync")
            count = len(load.acknowledged)
            up.wait(lambda: up.misses_backup(SILENT_SECONDS), "it waits no longer")
            assert len(load.acknowledged) == count, "commits do not wait"
            _, tid = bak.claim()
            assert all(item.tid <= tid for item in load.acknowledged)
            # A new reader goes on: the root is not locked.
            with closing(self.open()) as db, db.transaction() as connection:
                assert len(connection.root()) > 1
            assert len(load.acknowledged) == count, "commits do not wait"
            neoctl(up.admin_address, "set", "sync", bak.name, "off")
            self.wait_commits(load)
            assert up.backup_is("off")
            self.link.set(DELAY_SECONDS, DELAY_SECONDS)
            neoctl(up.admin_address, "set", "sync", bak.name, "on")
            self.wait_in_sync()
            self.wait_commits(load)

    # -- the end -------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Check that all acknowledged transactions are there, and that both sites have the same rows."""
        with closing(self.open()) as db:
            check(db, self.acknowledged, self.since)
            tid = db.lastTransaction()
        self.bak.wait(lambda: self.bak.claim()[1] == tid, "it does not get the last transaction")
        self.bak.stop_all()
        self.up.stop_all()
        ours, theirs = (_merged(cells(site.conf.path)) for site in (self.up, self.bak))
        assert ours.keys() == theirs.keys() == set(range(PARTITIONS))
        for partition, rows in ours.items():
            difference = sorted(rows ^ theirs[partition], key=repr)
            assert not difference, f"partition {partition}: {difference[:3]}"


# -- faults ------------------------------------------------------------------------------------------


Strike = Callable[[Sites], AbstractContextManager[None]]


class Fault(NamedTuple):
    """``strike``: entered, the fault is there; left, it is over. ``away``: the backup is not in sync
    meanwhile."""

    what: str
    away: bool
    strike: Strike


def _link(to_backup: float | None, from_backup: float | None) -> Strike:
    @contextmanager
    def strike(both: Sites) -> Iterator[None]:
        delays = (to_backup, from_backup)
        both.link.set(*delays if both.up.name == NAMES[0] else delays[::-1])
        yield
        both.link.set(DELAY_SECONDS, DELAY_SECONDS)

    return strike


def _killed(name: str) -> Strike:
    @contextmanager
    def strike(both: Sites) -> Iterator[None]:
        both.bak.kill(name)
        yield
        both.bak.restart(name)

    return strike


FAULTS = (
    Fault("the link is cut", True, _link(None, None)),
    Fault("what the backup is sent is lost", True, _link(None, DELAY_SECONDS)),
    Fault("what the backup sends is lost", True, _link(DELAY_SECONDS, None)),
    Fault("the link is slow", True, _link(SLOW_SECONDS, SLOW_SECONDS)),
    Fault("a storage node of the backup is killed", False, _killed("storage1")),
    Fault("the backup's master is killed", False, _killed("master1")),
)


# -- the whole ---------------------------------------------------------------------------------------


def _merged(found: Cells) -> dict[int, set[tuple[object, ...]]]:
    """Return the rows of each partition. All copies must have the same ones."""
    merged = {}
    for partition, copies in found.items():
        first, *others = copies.values()
        assert all(rows == first for rows in others), f"copies of partition {partition} differ"
        merged[partition] = first
    return merged


@contextmanager
def sites(folder: Path, seed: int, masters: int, policy: str) -> Iterator[Sites]:
    """Start two sites. The first one serves, and has the other one as its backup in sync."""
    with ExitStack() as stack:
        network = Network(NAMES)
        stack.callback(network.close)
        one, other = network.machines.values()
        link = Link(one, other, DELAY_SECONDS)
        stack.callback(link.close)
        up, bak = (
            stack.enter_context(Site(folder / name, network, peer, masters, policy))
            for name, peer in zip(NAMES, reversed(NAMES), strict=True)
        )
        both = Sites(up, bak, link, seed, policy)
        bak.set_state(ClusterState.STARTING_BACKUP)
        both.wait_in_sync()
        with closing(both.open()) as db:
            prepare(db)
            both.since = db.lastTransaction()
        yield both


def run(folder: Path, seed: int, rounds: int, faults: int, masters: int, policy: str) -> str:
    """Return the report. Raise AssertionError."""
    with sites(folder, seed, masters, policy) as both:
        if policy == STOP and not rounds:
            both.wait_for_operator()
        for fault in both.choices.sample(FAULTS, faults):
            both.suffer(fault)
        for number in range(rounds):
            begin = time.monotonic()
            both.lose()
            lost = time.monotonic()
            both.return_()
            print(
                f"round {number}: {lost - begin:.1f} s, served after {both.serve_seconds[-1]:.2f} s,"
                f" returned after {time.monotonic() - lost:.1f} s",
                flush=True,
            )
        both.finish()
    seconds = both.serve_seconds or [0.0]
    return (
        f"faults: {faults}; rounds: {rounds}, in {both.whole} of them in sync until the end\n"
        f"acknowledged: {both.commits}, lost: 0; snapshots: {both.snapshots}\n"
        f"seconds to serve: median {statistics.median(seconds):.2f}, longest {max(seconds):.2f}"
    )


def command(folder: Path, seed: int, *options: str) -> list[str]:
    """Return the command that runs this on a network of its own. Raise NetworkError."""
    module = [sys.executable, "-m", "tests.faults.sync_sites", "--inside", str(folder)]
    return isolated([*module, "--seed", str(seed), *options])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--faults", type=int, default=0, help=f"0 to {len(FAULTS)}, with continue")
    parser.add_argument("--masters", type=int, default=1, help="of each site")
    parser.add_argument("--policy", choices=("continue", STOP), default="continue")
    parser.add_argument("--seed", type=int, default=seeds.FIXED)
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.policy == STOP and a.faults:
        parser.error("with the policy to stop, commits do not go on without the backup")
    if a.inside is not None:
        print(run(a.inside, a.seed, a.rounds, a.faults, a.masters, a.policy))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        print(f"--seed {a.seed}", flush=True)
        options = [f"--{name}={getattr(a, name)}" for name in ("rounds", "faults", "masters", "policy")]
        return subprocess.run(command(Path(folder), a.seed, *options)).returncode


if __name__ == "__main__":
    sys.exit(main())
