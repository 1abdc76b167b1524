"""Bugs of several masters: broken promises, leases that are not over, epochs that are mixed up."""

from __future__ import annotations

from typing import Any

from neo.master.election import election, lease
from neo.master.election.election import Election
from neo.master.election.epochs import Claim, Decision, Epochs, decode
from neo.master.election.leadership import ElectedMaster, Tenure
from neo.master.election.lease import Grant, Lease
from neo.master.phases import recovery
from neo.protocol.packets import NotifyLease, NotifyLeaseGranted
from neo.transactor.consensus import Process
from neo.transactor.learner import Learner
from neo.transactor.messages import Entry, Message, Vote
from neo.transactor.node import Names, Node, Waiting
from neo.transactor.outbox import Outbox
from tests.simulator import log_disk, master_faults
from tests.simulator.planting import Canary, Patch

#: Options for runs with three masters and few other faults.
THREE: dict[str, Any] = {
    "masters": 3,
    "workloads": ("bank",),
    "disk": "memory",
    "storages": 2,
    "backup": False,
    "seconds": 20.0,
}
LOST_POWER = {**THREE, "faults": ("kill-master", "slow-log", "kill-server", "part-masters")}

AWAY = {**THREE, "faults": ("pause-master", "cut-master", "part-masters")}
SLOW = {**THREE, "faults": ("pause-master", "cut-master", "slow-masters")}

CHANGED: dict[str, Any] = {
    **THREE,
    "faults": ("change-masters", "hand-over", "end-master", "lose-log"),
    "storages": 1,
    "seconds": 20.0,
}


#: Masters that suspect the primary before its lease is over. Allowed, because a new primary waits.
IMPATIENT: list[Patch] = [(election, "SILENCE_SECONDS", 1.0)]


#: A vote is lost only if its master crashes before the sync, and counts only if another transaction is
#: decided before the others are back: disks are ten times slower, crashes and elections more frequent.
CRASHES: list[Patch] = [
    (master_faults, "SYNC_SECONDS", 10 * log_disk.SYNC_SECONDS),
    (master_faults, "BETWEEN_SECONDS", (0.1, 0.3)),
    (election, "TURN_SECONDS", 0.0),
]


def _promise_not_synced() -> list[Patch]:
    def send(self: Outbox, to: int, message: Message) -> None:
        self.aside(to, message)

    return [(Outbox, "send", send), *CRASHES]


def _decided_before_synced() -> list[Patch]:
    def flush(self: Node) -> None:
        records, sends, asides = self.engine.take()
        self._transmit(asides)
        if not records:
            self._transmit(sends)
            return
        self._host.append(records)
        self._waiting.append(Waiting(sends, [], []))
        self._sync()
        entries = [record for record in records if isinstance(record, Entry)]
        if entries:
            self.tlog_tid = entries[-1].tid
            self._host.decided(entries)

    return [(Node, "flush", flush)]


def _lease_outlives_suspicion() -> list[Patch]:
    return [(lease, "LEASE_SECONDS", 3 * lease.LEASE_SECONDS)]


def _old_epoch_granted() -> list[Patch]:
    def asked(self: Election, master: str, m: NotifyLease, now: float) -> NotifyLeaseGranted | None:
        if m.serving:
            self._deadline = now + 2.5
        self.grantor.used(now)
        return NotifyLeaseGranted(m.epoch, m.sent, max(0.0, now - self.grantor.former))

    return [(Election, "asked", asked)]


def _no_wait_before_serving() -> list[Patch]:
    original = Lease.__init__

    def init(self: Lease, me: str, epoch: int, now: float, doubt: bool, clear: float) -> None:
        original(self, me, epoch, now, False, clear)

    return [(Lease, "__init__", init), *IMPATIENT]


def _lease_from_the_answer() -> list[Patch]:
    original = Lease.granted

    def granted(self: Lease, master: str, sent: float, age: float, now: float) -> None:
        original(self, master, now, age, now)

    return [(Lease, "granted", granted)]


def _lease_not_looked_at() -> list[Patch]:
    def may_send(self: Tenure) -> bool:
        return not self.over

    return [(Tenure, "may_send", may_send)]


def _table_not_logged() -> list[Patch]:
    def log_table(self: Tenure, ptid: int, nodes: set[int]) -> None:
        """Do nothing: the table was in the log when it was created."""

    return [(Tenure, "log_table", log_table)]


def _guard_forgotten() -> list[Patch]:
    original = Tenure.__init__

    def init(self: Tenure, node: ElectedMaster, epoch: int, nid: int) -> None:
        original(self, node, epoch, nid)
        self.nodes = frozenset()

    return [(Tenure, "__init__", init), (recovery, "STORAGES_SECONDS", 0.5)]


def _lease_of_a_minority() -> list[Patch]:
    def refresh(self: Lease, members: tuple[str, ...], now: float) -> None:
        self._grants[self._me] = self._grants[self._me]._replace(sent=now)
        grants = sorted((g for m, g in self._grants.items() if m in members), reverse=True)
        half = max(1, len(members) // 2)
        if len(grants) >= half:
            self.begun = self.begun or not self._doubt or _clear(grants, half) <= now
            self._until = max(self._until, grants[half - 1].sent + lease.LEASE_SECONDS)

    return [(Lease, "refresh", refresh)]


def _clear(grants: list[Grant], count: int) -> float:
    return sorted(grant.clear for grant in grants)[count - 1]


def _log_of_a_minority() -> list[Patch]:
    original = Process.__init__

    def init(
        self: Process, tid: int, me: int, members: Any, first: int, host: Any, vote: Vote | None
    ) -> None:
        original(self, tid, me, members, first, host, vote)
        self.majority = max(1, len(members) // 2)

    return [(Process, "__init__", init)]


def _votes_before_it_learned() -> list[Patch]:
    def may_vote(self: Learner, me: int, former: Any, members: Any, tid: int) -> bool:
        return me in members

    return [(Learner, "may_vote", may_vote)]


def _claimed_twice() -> list[Patch]:
    original = Epochs.apply

    def apply(self: Epochs, data: bytes) -> Decision | None:
        decision = decode(data)
        if isinstance(decision, Claim) and decision.epoch == self.epoch:
            self.epoch, self.primary, self.incarnation = decision
            self.resigned, self.successor = False, ""
            return decision
        return original(self, data)

    # Masters claim at the same time, which is allowed, because the log decides.
    return [(Epochs, "apply", apply), (election, "TURN_SECONDS", 0.0)]


def _index_of_the_configuration() -> list[Patch]:
    original = Names.index

    def index(self: Names, name: str) -> int:
        member = self._engine.members.named(name)
        return original(self, name) if member is None else member.node

    return [(Names, "index", index)]


CANARIES = (
    Canary(
        "promise-not-synced",
        "a master sends its vote when it is written, not when it is durable",
        "log: two masters have another transaction under one number",
        _promise_not_synced,
        120,
        {
            **THREE,
            "faults": ("kill-master",) * 3 + ("slow-log",) * 3 + ("hand-over",),
            "storages": 1,
        },
        first=14,
    ),
    Canary(
        "decided-before-synced",
        "a decision counts when it is written, not when it is durable",
        "log: a master acts on what is not on its disk",
        _decided_before_synced,
        10,
        LOST_POWER,
    ),
    Canary(
        "lease-outlives-suspicion",
        "the lease lasts longer than others wait for it",
        "reigns: a primary may act when the next one does",
        _lease_outlives_suspicion,
        40,
        AWAY,
        first=7,
    ),
    Canary(
        "old-epoch-granted",
        "a master grants the lease to every master that asks, whatever its epoch is",
        "reigns: a primary of an older epoch acts",
        _old_epoch_granted,
        80,
        AWAY,
        first=24,
    ),
    Canary(
        "no-wait-before-serving",
        "a new primary of impatient masters does not wait until the leases of older epochs are over",
        "reigns: a primary may act when the next one does",
        _no_wait_before_serving,
        40,
        AWAY,
    ),
    Canary(
        "lease-from-the-answer",
        "the lease is counted from the arrival of the answer, not from the sending of the question",
        "reigns: a primary may act when the next one does",
        _lease_from_the_answer,
        200,
        SLOW,
        first=2,
    ),
    Canary(
        "lease-not-looked-at",
        "messages are still sent when the lease is over",
        "reigns: a primary that was stopped acts again",
        _lease_not_looked_at,
        150,
        AWAY,
        first=2,
    ),
    Canary(
        "table-not-logged",
        "a partition table is sent before it is in the log",
        "reigns: the log does not know the table",
        _table_not_logged,
        10,
        LOST_POWER,
    ),
    Canary(
        "guard-forgotten",
        "a new primary does not wait long, and not for the nodes that could be read last",
        "reigns: an older table; history: an acknowledged commit is lost",
        _guard_forgotten,
        100,
        {**LOST_POWER, "faults": ("kill-master", "kill-server", "hand-over"), "replicas": 1},
        first=12,
    ),
    Canary(
        "lease-of-a-minority",
        "half of the masters, rounded down, is taken for a majority when leases are counted",
        "reigns: two primaries",
        _lease_of_a_minority,
        20,
        AWAY,
        first=7,
    ),
    Canary(
        "log-of-a-minority",
        "half of the masters, rounded down, is taken for a majority when votes are counted",
        "log: two masters have another transaction under one number",
        _log_of_a_minority,
        60,
        {**AWAY, "faults": ("part-masters", "cut-master", "hand-over", "kill-server")},
    ),
    Canary(
        "votes-before-it-learned",
        "a master that lost its log votes at once",
        "log: two masters have another transaction under one number",
        _votes_before_it_learned,
        160,
        {**THREE, "faults": ("lose-log", "move-parts", "kill-server"), "storages": 1},
        first=12,
    ),
    Canary(
        "claimed-twice",
        "of two claims of one epoch, of masters that do not take turns, the second counts, too",
        "reigns: one epoch, two primaries",
        _claimed_twice,
        80,
        AWAY,
        first=138,
    ),
    Canary(
        "index-of-the-configuration",
        "a master that is added takes the present members for the first ones, with their indices",
        "progress: a majority of the masters has no primary",
        _index_of_the_configuration,
        60,
        CHANGED,
        first=2,
    ),
)
