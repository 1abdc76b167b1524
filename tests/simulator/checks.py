"""Checks at the end of a run, on a quiet cluster: damage is found and repaired; packs and truncations
are complete.

They cannot run beside the workloads: damaged data makes every oracle fail, and most workloads do not
tolerate that commits vanish.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import cast

from neo.master.maintenance.check import Finding
from neo.master.primary import PrimaryMaster
from neo.node.peer import Peer
from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.ids import ZERO_OID, ZERO_TID, add64, p64
from neo.protocol.packets import CheckReplicas, Error, Message, Repair, RepairCells, Truncate
from neo.storage.backend.api import Transaction
from neo.storage.maintenance import check, pack
from neo.storage.node import StorageNode
from tests.simulator.cluster import Cluster
from tests.simulator.console import Command
from tests.simulator.content_volume import ContentVolume
from tests.simulator.disk_check import Rows, orphans
from tests.simulator.operator import Operator
from tests.simulator.planting import plant
from tests.simulator.process import Process
from tests.simulator.world import Violation

#: Virtual time for a check, a repair or a truncation.
SECONDS = 120.0
#: Probability and mean delay with which nodes are killed after a truncation was requested, and how long
#: they stay away.
KILL_CHANCE = 0.3
KILL_SECONDS = 0.05
AWAY_SECONDS = 2.0
#: Greatest number of checks whether nodes have deleted orphans in the background, and interval.
PRUNE_LOOKS = 10
PRUNE_SECONDS = 5.0
#: Time in which the operator's last command is executed and every node has heard of it.
HEARD_SECONDS = 5.0
#: How often that time may begin anew: each node comes back once, and cells are balanced.
ROUNDS_MAX = 20
#: A node that lost its cells erases them in the background, a few rows at a time. Checked at most this
#: often whether rows were erased, once a second.
ERASED_LOOKS = 20


#: Contents of a cell from which one is chosen.
CONTENTS_MOST = 10


class _Nobody:
    """A requester of packs that ignores the answers: the tables are checked instead."""

    def answer(self, message_id: int, message: Message) -> None: ...

    def refuse(self, message_id: int, code: ErrorCode, text: str = "") -> None: ...


class Drills:
    def __init__(self, cluster: Cluster, operator: Operator, random: Random) -> None:
        self._cluster = cluster
        self._operator = operator
        self._random = random

    @property
    def _master(self) -> PrimaryMaster:
        master = self._cluster.master_core
        assert master is not None
        return master

    def _type(self, message: Message) -> None:
        """Execute a command that must succeed."""
        answers: list[Message | None] = []
        Command(self._cluster, message, answers.append)
        self._wait(lambda: bool(answers), f"{type(message).__name__} is answered")
        answer = answers[0]
        self._cluster.world.log("drill", f"{message}: {answer}")
        if not isinstance(answer, Error) or answer.code:
            raise Violation(f"{message} is answered with {answer}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        self._cluster.world.run_until(condition, SECONDS, what)

    def _wait_moving(self, condition: Callable[[], bool], what: str) -> None:
        """Wait as :meth:`_wait`, but as long as rows come and go. Cells are erased and fetched a few
        rows at a time, with a sync after each piece."""
        world, before = self._cluster.world, list[int]()
        while not condition():
            tables = [disk.tables() for disk in self._cluster.disks.values()]
            rows = [sum(map(len, each.values())) for each in tables]
            if rows == before:
                raise Violation(f"nothing moves any more, and not yet: {what}")
            before = rows

            def over(end: float = world.now + SECONDS * world.slowness) -> bool:
                return condition() or world.now >= end

            world.run_until(over, 2 * SECONDS, what)

    def _wait_complete(self) -> None:
        self._wait_moving(lambda: self._operator.settled, "all cells are complete")

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Inside the block, all cells are complete and stay where they are; the operator rests. A node
        that copied damaged data would be wrong, too, and a node that gives its cell away while the cell
        is compared makes the check fail. Before, the operator lets in nodes that come back late."""
        for _ in range(ROUNDS_MAX):
            self._wait_complete()
            self._operator.rests = True
            self._cluster.world.run(HEARD_SECONDS)
            if self._operator.settled:
                break
            self._operator.rests = False
        else:
            raise Violation(
                f"cells were complete {ROUNDS_MAX} times, and not for {HEARD_SECONDS:g} s"
            )
        try:
            yield
        finally:
            self._operator.rests = False

    def _storage(self, nid: int) -> StorageNode:
        for process in self._cluster.storages:
            core = process.core
            if isinstance(core, StorageNode) and core.cluster.nid == nid:
                return core
        raise AssertionError(f"no storage node has the id {nid}")

    # -- check and repair --------------------------------------------------------------------------

    def check_and_repair(self) -> None:
        """Remove a row from one replica, or add one; check, and repair. Raise Violation."""
        with self._resting():
            cell = self._damage_one()
            if cell is None:
                return
            partition, victim = cell
            if self._check(partition, None) is Finding.UNDECIDED:
                self._believe_the_other(partition, victim)
            self._expect_wrong(partition, victim)
            self._type(RepairCells([cell]))
        self._end_repair()

    def scrub_and_repair(self) -> None:
        """Do the same without a command: the scrub finds the damage within its period. Raise
        Violation."""
        with self._resting():
            cell = self._damage_one()
            if cell is None:
                return
            partition, victim = cell
            found = (Finding.CORRUPTED, Finding.UNDECIDED)
            # The time of a period, and of the comparison itself.
            seconds = self._cluster.scrub_seconds + SECONDS * self._cluster.world.slowness
            self._cluster.world.run_until(
                lambda: self._reported(partition) in found, seconds, "the scrub finds what is wrong"
            )
            # What was found may be followed by other differences.
            self._cluster.world.run(1.0)
            if self._reported(partition) is Finding.UNDECIDED:
                self._believe_the_other(partition, victim)
            self._expect_wrong(partition, victim)
            self._type(RepairCells([cell]))
        self._end_repair()

    def _damage_one(self) -> tuple[int, int] | None:
        """Damage a cell that has a right copy. Return its partition and node, or None."""
        table = self._master.partitions
        readable = [(p, table.readable(p)) for p in range(len(table))]
        cells = [(p, nids) for p, nids in readable if len(nids) > 1]
        if not cells:
            return None
        partition, nids = self._random.choice(cells)
        victim = self._random.choice(nids)
        # Recorded before the damage is done, because the scrub may find it at once.
        self._cluster.damaged.add(partition)
        if not self._damage(self._storage(victim), partition):
            self._cluster.damaged.clear()
            return None
        return partition, victim

    def _believe_the_other(self, partition: int, victim: int) -> None:
        nids = self._master.partitions.readable(partition)
        if len(nids) == 2:
            (reference,) = set(nids) - {victim}
            self._check(partition, reference)

    def _expect_wrong(self, partition: int, *victims: int) -> None:
        """Raise Violation unless exactly these cells are CORRUPTED."""
        states = self._master.partitions.rows[partition]
        wrong = {nid for nid, state in states.items() if state is CellState.CORRUPTED}
        if wrong != {*victims}:
            raise Violation(
                f"check: {victims} are damaged in partition {partition}, found: {wrong or 'none'}"
            )

    def mend_contents(self) -> None:
        """Damage a content on one node that has a copy, and check: the node finds it, and copies it
        anew. Raise Violation."""
        with self._resting():
            found = self._content_with_copy()
            if found is None:
                return
            volume, name = found
            self._cluster.world.log("drill", f"{volume.name}: {volume.damage(name)}")
            partitions = range(len(self._master.partitions))
            self._type(CheckReplicas(dict.fromkeys(partitions), ZERO_TID, None))
            self._wait(lambda: name in volume.intact(), "a damaged content is copied anew")

    def _content_with_copy(self) -> tuple[ContentVolume, str] | None:
        """Return a content of a cell that another node has, too."""
        table, found = self._master.partitions, []
        for partition in range(len(table)):
            nids = table.readable(partition)
            for nid in nids if len(nids) > 1 else ():
                core = self._storage(nid)
                volume = self._volume(core)
                for _, content in core.database.backend.blobs.references(partition, -1, CONTENTS_MOST):
                    found.append((volume, content.checksum.hex()))
        return self._random.choice(found) if found else None

    def _volume(self, core: StorageNode) -> ContentVolume:
        (name,) = [p.name for p in self._cluster.storages if p.core is core]
        return self._cluster.disks[name].contents

    def _end_repair(self) -> None:
        self._wait_moving(lambda: self._operator.settled, "the cell is repaired")
        self._cluster.damaged.clear()
        self._check_all()

    def _reported(self, partition: int) -> Finding | None:
        rows = {row[0]: row[2] for row in self._master.checks.report().row_list}
        return Finding(rows[partition]) if partition in rows else None

    def _check_all(self) -> None:
        """Check all partitions that have several copies, twice in a row. Raise Violation.

        Nodes dial each other for a check and leave connections that the second check may want to use.
        Nodes and network are sound, so that no check has to be repeated.
        """
        with self._resting(), plant([(check, "AGAIN_SECONDS", ())]):
            table = self._master.partitions
            several: dict[int, int | None] = {
                p: None for p in range(len(table)) if len(table.readable(p)) > 1
            }
            for _ in range(2 if several else 0):
                self._type(CheckReplicas(several, ZERO_TID, None))
                self._wait(lambda: Finding.RUNNING not in self._findings(), "a check ends")
                if self._findings() != {Finding.EQUAL}:
                    raise Violation(f"all should be equal: {self._master.checks.report()}")

    def _findings(self) -> set[Finding]:
        return {Finding(row[2]) for row in self._master.checks.report().row_list}

    def compare_with_upstream(self) -> None:
        """Do the same in a backup that has caught up, also with a single copy. Raise Violation."""
        with self._resting():
            table, report = self._master.partitions, self._master.checks.report()
            if any(Finding(row[2]) is Finding.UNDECIDED for row in report.row_list):
                raise Violation(f"sound cells differ: {report}")
            partition = self._random.randrange(len(table))
            self._expect_equal(partition)
            nids = sorted(table.readable(partition))
            victim = self._random.choice(nids)
            if not self._damage(self._storage(victim), partition):
                return
            self._cluster.damaged.add(partition)
            self._check(partition, None)
            # Judge by the states of cells: the report may be of a later scrub, which omits CORRUPTED
            # cells.
            # A single copy does not become CORRUPTED, because the upstream may be wrong.
            self._expect_wrong(partition, *((victim,) if len(nids) > 1 else ()))
            self._type(RepairCells([(partition, victim)]))
        self._wait_moving(lambda: self._operator.settled, "the cell is repaired")
        self._wait(lambda: self._finding() is not Finding.RUNNING, "the cell is mended")
        with self._resting():
            self._expect_equal(partition)
        self._cluster.damaged.clear()

    def _expect_equal(self, partition: int) -> None:
        self._type(CheckReplicas({partition: None}, ZERO_TID, None))
        self._wait(lambda: self._finding() is not Finding.RUNNING, "the check ends")
        if self._finding() is not Finding.EQUAL:
            raise Violation(
                f"partition {partition} should be equal: {self._master.checks.report()}"
            )

    def _finding(self) -> Finding:
        ((_, _, text, _),) = self._master.checks.report().row_list
        return Finding(text)

    def _damage(self, core: StorageNode, partition: int) -> bool:
        """Damage a cell. Return False if it has no rows that could be damaged."""
        backend, last = core.database.backend, self._master.cluster.last_tid
        objects = backend.replication.objects_ascending(partition, ZERO_TID, ZERO_OID, last, 1000)
        tids = backend.reads.tids_ascending(ZERO_TID, last, 1000, partition)
        choice = self._random.randrange(3)
        if choice == 0 and objects:
            what = self._random.choice(objects)
            self._cluster.world.log("drill", f"{core.cluster.nid} loses object {what[1].hex()}")
            backend.replication.delete_objects([what])
        elif choice == 1 and tids:
            tid = self._random.choice(tids)
            self._cluster.world.log("drill", f"{core.cluster.nid} loses transaction {tid.hex()}")
            backend.replication.delete_transactions([tid])
        elif tids:
            tid = add64(self._random.choice(tids), -len(core.cells.partitions))
            if tid in tids:
                return False
            self._cluster.world.log("drill", f"{core.cluster.nid} invents transaction {tid.hex()}")
            backend.replication.add_transaction(Transaction(tid, b"", b"", b"", False, [], tid))
        else:
            return False
        done: list[bool] = []
        backend.engine.stored(lambda: done.append(True))
        self._wait(lambda: bool(done), "the damage is done")
        return True

    def _check(self, partition: int, reference: int | None) -> Finding:
        self._type(CheckReplicas({partition: reference}, ZERO_TID, None))

        finding, running = self._finding, (Finding.RUNNING, Finding.UNKNOWN)
        self._wait(lambda: finding() not in running, "the check ends")
        if finding() not in (Finding.CORRUPTED, Finding.UNDECIDED):
            raise Violation(f"check of partition {partition}: {self._master.checks.report()}")
        # What was found may be followed by other differences.
        self._cluster.world.run(1.0)
        return finding()

    # -- pack --------------------------------------------------------------------------------------

    def pack(self) -> None:
        """Pack object by object while nodes die. Oracles check that the pack is complete."""
        tids = self._tids()
        if not tids:
            return
        with plant([(pack, "STEP_LENGTH", 1)]):
            self._wait(lambda: not self._master.packs.running, "no pack is running")
            peer = cast(Peer, _Nobody())
            self._master.operations.check("history")
            self._master.packs.ask(peer, 0, p64(self._random.choice(tids)))
            self._master.flush()
            self._kill_some()
            self._wait(
                lambda: self._cluster.running and self._operator.settled and self._cluster.packed,
                "the pack is done",
            )
        self._cluster.world.run(1.0)

    # -- truncation --------------------------------------------------------------------------------

    def truncate(self) -> None:
        """Truncate while nodes die. Raise Violation unless it is done on every node at the end."""
        tids = self._tids()
        if not tids:
            return
        tid = self._random.choice(tids)
        self._type(Truncate(p64(tid)))
        self._kill_some()
        self._wait(
            lambda: self._cluster.running and self._operator.settled, "the truncation is done"
        )
        least, looks = sys.maxsize, 0
        while looks < ERASED_LOOKS:
            self._cluster.world.run(1.0)
            later = self._later(tid)
            if not later:
                return
            rows = sum(map(len, later.values()))
            least, looks = (rows, 0) if rows < least else (least, looks + 1)
        name, tids = next(iter(later.items()))
        raise Violation(f"{name} was to be truncated after {tid:016x} and has {max(tids):016x}")

    def _later(self, tid: int) -> dict[str, list[int]]:
        """Return the tids of all rows later than ``tid``, by storage node that has some."""
        disks = self._cluster.disks.items()
        return {name: tids for name, disk in disks if (tids := _later(disk.tables(), tid))}

    # -- orphans -----------------------------------------------------------------------------------

    def prune(self) -> None:
        """Run ``neoctl prune_orphan``. Raise Violation if data that crashes left behind stays."""
        nids = sorted(self._master.cluster.identified_storages())
        self._type(Repair(nids, False))
        for _ in range(PRUNE_LOOKS):
            self._cluster.world.run(PRUNE_SECONDS)
            if not any(orphans(disk.tables()) for disk in self._cluster.disks.values()):
                break
        for disk in self._cluster.disks.values():
            disk.check_pruned()

    def _tids(self) -> list[int]:
        """Return the tids of the transactions since the last pack."""
        tables = [disk.tables() for disk in self._cluster.disks.values()]
        first, last = self._master.packs.tid, self._master.cluster.last_tid
        tids = {row[1] for rows in tables for row in rows["trans"]}
        return sorted(tid for tid in tids if first <= p64(tid) <= last)

    def _kill_some(self) -> None:
        for process in self._cluster.storages:
            if self._random.random() < KILL_CHANCE:
                self._kill(process)
        self._cluster.world.run(2 * KILL_SECONDS)

    def _kill(self, process: Process) -> None:
        world = self._cluster.world

        def kill() -> None:
            if process.alive:
                process.kill()
                world.call_later(AWAY_SECONDS, process.revive, f"start {process.name}")

        world.call_later(self._random.random() * KILL_SECONDS, kill, f"kill {process.name}")


def _later(tables: Rows, tid: int) -> list[int]:
    tids = [row[1] for row in tables["trans"]] + [row[2] for row in tables["obj"]]
    return [found for found in tids if found > tid]
