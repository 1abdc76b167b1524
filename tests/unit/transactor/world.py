"""A cluster of engines under a random schedule of faults, and the properties that must hold.

Messages are lost, duplicated, delayed and reordered; nodes crash, with and without the unsynced part of
the disk; clocks (ticks) run at any speed; members are added and removed; a node may lose its whole disk,
if a majority of the others is left. :class:`World` checks agreement, validity and integrity at each
decision.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from neo.transactor.durable import Begun, JournalState, empty_log
from neo.transactor.engine import Engine, Timing
from neo.transactor.members import Members, first_members
from neo.transactor.messages import Entry, Held, Kind, Message, Record, Refusal, Sid, Spec, Voter
from neo.transactor.node import Names

#: Short timeouts: many rounds in few steps, and many wrong suspicions.
TIMINGS = (
    Timing(resend=3, fetch=6, heartbeat=6, silence=18, round_timeout=24, fairness=2),
    Timing(resend=2, fetch=4, heartbeat=9, silence=6, round_timeout=5, fairness=1),
)
#: Bound of the messages in flight; more are lost.
NETWORK = 120


class Disk:
    """Synced content, and an unsynced tail."""

    def __init__(self, log: int, begun: Begun) -> None:
        self.log = log
        self.begun = begun
        #: Known once there is a transaction.
        self.genesis: Members | None = None
        self.entries: list[Spec] = []
        self.journal: list[Record] = []
        self.tail: list[Record] = []

    def sync(self) -> None:
        for record in self.tail:
            if isinstance(record, Entry):
                assert record.tid == len(self.entries) + 1, "the log is contiguous"
                self.entries.append(record.spec)
            else:
                self.journal.append(record)
        self.tail.clear()

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        appended = [record.spec for record in self.tail if isinstance(record, Entry)]
        if tid > len(self.entries):
            return appended[tid - len(self.entries) - 1 :][:count]
        return (self.entries[tid - 1 : tid - 1 + count] + appended)[:count]


class Node:
    def __init__(self, world: World, name: str, disk: Disk, genesis: Members) -> None:
        self.world = world
        #: The members of its configuration; those of a node that joins are not the first ones.
        self.configured = genesis
        self.name = name
        #: Its index in the log, which it may not know yet.
        self.index = int(name[1:])
        self.disk = disk
        self.engine: Engine | None = None
        #: Promises that wait for a sync.
        self.held_back: list[tuple[int, Message]] = []

    def start(self) -> None:
        end = empty_log(self.disk.genesis or self.configured)
        for spec in self.disk.entries:
            end = end.after(spec)
        log = self.disk.log
        durable = JournalState(log, log << 32, self.disk.journal).durable(self.disk.begun, end)
        self.engine = Engine(self.name, durable, self.disk, self.world.timing)
        self.names = Names(self.engine)
        self.flush()

    def receive(self, sender: int, message: Message) -> None:
        assert self.engine is not None
        self.engine.receive(self.names.index(f"n{sender}"), message)

    def _send(self, messages: list[tuple[int, Message]]) -> None:
        for to, message in messages:
            name = self.names.name(to)
            if name is not None:
                self.world.put(int(name[1:]), self.index, message)

    def flush(self) -> None:
        assert self.engine is not None
        batch = self.engine.take()
        world = self.world
        for record in batch.records:
            if not self.disk.tail and not self.disk.journal:
                self.disk.genesis = self.engine.genesis
            self.disk.tail.append(record)
            if type(record) is Entry and len(world.nodes) > 1:
                world.decided(self.name, record)  # even if this node forgets it
        self._send(batch.asides)
        if self.disk.tail:
            self.held_back += batch.sends
        else:
            self._send(batch.sends)

    def sync(self) -> None:
        self._write()
        self._send(self.held_back)
        self.held_back.clear()

    def _write(self) -> None:
        for record in self.disk.tail:
            if type(record) is Entry:
                self.world.decided(self.name, record)
        self.disk.sync()

    def crash(self, keep: int) -> None:
        """Crash; ``keep`` records of the tail survive."""
        lost = {r.spec.sid for r in self.disk.tail[keep:] if isinstance(r, Held)}
        known = (*self.disk.journal, *self.disk.tail[:keep])
        for sid in lost - {r.spec.sid for r in known if isinstance(r, Held)}:
            if self.engine and sid.node == self.engine.me and sid.number >> 32 == self.disk.log:
                self.world.posted.pop(sid, None)  # the post was never acknowledged
        del self.disk.tail[keep:]
        self._write()
        self.held_back.clear()
        self.engine = None


class World:
    def __init__(self, seed: int, count: int, changes: bool = False) -> None:
        """``changes``: members are added and removed."""
        self.random = random.Random(seed)
        self.seed = seed
        self.changes = changes
        self.genesis = first_members((f"n{i}", ("host", i)) for i in range(count))
        self.nodes = [
            Node(self, f"n{i}", Disk(i + 1, Begun.FRESH), self.genesis) for i in range(count)
        ]
        self.network: list[tuple[int, int, Message]] = []
        #: Actions that had an effect.
        self.steps = 0
        self.loss = self.random.choice([0, 0.05, 0.4])
        self.timing = self.random.choice(TIMINGS)
        #: The decided transactions; the posts; the transaction of each id.
        self.log: dict[int, Spec] = {}
        self.wanted: set[tuple[int, Sid]] = set()
        self.posted: dict[Sid, bytes] = {}
        self.place: dict[Sid, int] = {}
        self.logs = count
        self.lossless = False
        #: Nodes that are cut off from the others.
        self.away: set[int] = set()
        self.members = self.genesis
        #: The list of members before that one.
        self.former = self.genesis
        self.last_change = 0
        #: Posted changes: the transaction for which each was posted, and the list after it.
        self.changes_posted: dict[Sid, tuple[int, Members]] = {}
        for node in self.nodes:
            node.start()
        impatience = self.random.choice([0.05, 0.2, 0.6])
        eagerness = self.random.choice([0.02, 0.1])
        trouble = self.random.choice([0.003, 0.01, 0.02])
        rates: list[tuple[float, Callable[[], bool]]] = [
            (0.6, self.deliver), (impatience, self.tick), (0.12, self.sync), (eagerness, self.post),
            (trouble, self.crash), (trouble, self.recover), (trouble, self.cut),
        ]  # fmt: skip
        self._actions = [action for _, action in rates]
        self._weights = [rate for rate, _ in rates]

    @property
    def configured(self) -> Members:
        """Return the members that a node would be configured with today."""
        return first_members((member.name, member.address) for member in self.members.all)

    def __repr__(self) -> str:
        return f"World({self.seed}, {len(self.genesis.all)}, {self.changes})"

    # -- the properties --------------------------------------------------------------------------

    def decided(self, name: str, entry: Entry) -> None:
        tid, spec = entry
        before = self.log.setdefault(tid, spec)
        assert before == spec, (
            f"{self}: agreement: {name} decides {spec.sid} for {tid}, not {before.sid}"
        )
        assert self.place.setdefault(spec.sid, tid) == tid, f"{self}: integrity: {spec.sid} twice"
        if spec.kind == Kind.DATA:
            assert (tid, spec.sid) in self.wanted, f"{self}: validity: {spec.sid} not for {tid}"
            assert spec.data == self.posted.get(spec.sid), f"{self}: validity: data of {spec.sid}"
        elif spec.kind == Kind.MEMBERS and before is spec and self.last_change < tid:
            self.last_change = tid
            self.former, self.members = self.members, Members.decode(spec.data)
            changed = {*self.former.nodes} ^ {*self.members.nodes}
            assert len(changed) <= 1, f"{self}: validity: {changed} come or go in {tid}"
            if len(self.nodes) < self.members.next_index:
                self.logs += 1
                name = self.members.all[-1].name
                self.nodes.append(Node(self, name, Disk(self.logs, Begun.JOINED), self.configured))

    # -- actions; each returns whether it had an effect -------------------------------------------

    def run(self, steps: int) -> None:
        """Take this number of actions; some have no effect."""
        for action in self.random.choices(self._actions, self._weights, k=steps):
            self.steps += action()

    def put(self, to: int, sender: int, message: Message) -> None:
        network = self.network
        if len(network) >= NETWORK:
            network[int(self.random.random() * NETWORK)] = (to, sender, message)
        else:
            network.append((to, sender, message))

    def alive(self) -> Node | None:
        node = self.nodes[int(self.random.random() * len(self.nodes))]
        return node if node.engine else None

    def deliver(self) -> bool:
        network = self.network
        if not network:
            return self.tick()
        at = int(self.random.random() * len(network))
        chance = 1.0 if self.lossless else self.random.random()
        to, sender, message = network[at]
        if (to in self.away) != (sender in self.away):
            return False  # later
        if chance >= 0.05:  # else it will come again
            network[at] = network[-1]
            network.pop()
        if chance > 1 - self.loss or to >= len(self.nodes):
            return True  # it is lost
        node = self.nodes[to]
        if node.engine is not None:
            node.receive(sender, message)
            node.flush()
        return node.engine is not None

    def tick(self) -> bool:
        node = self.alive()
        if node is None or node.engine is None:
            return False
        node.engine.tick()
        node.flush()
        return True

    def sync(self) -> bool:
        node = self.alive()
        if node is None or not node.disk.tail:
            return False
        node.sync()
        return True

    def post(self) -> bool:
        node = self.alive()
        if node is None or node.engine is None:
            return False
        engine, tid = node.engine, node.engine.tid
        if engine.mine is not None and self.random.random() < 0.5:
            result = engine.repost(tid, engine.mine.sid)
        else:
            kind, data = Kind.DATA, b"%d" % len(self.posted)
            if self.changes and self.random.random() < 0.1 and not engine.catch_up.joins:
                change = self._change(engine.members)
                kind, data = Kind.MEMBERS, change.encode()
            result = engine.post(tid, data, kind)
            if isinstance(result, Sid):
                assert result not in self.posted, f"{self}: {result} is used twice"
                self.posted[result] = data
        if not isinstance(result, Refusal):
            self.wanted.add((tid, result))
            if engine.mine is not None and engine.mine.kind == Kind.MEMBERS:
                self.changes_posted[result] = tid, Members.decode(engine.mine.data)
            engine.validate()
        node.flush()
        return not isinstance(result, Refusal)

    def _change(self, members: Members) -> Members:
        count = len(members.all)
        name = members.all[int(self.random.random() * count)].name
        if count < 7 and members.next_index < 20 and self.random.random() < 0.5:
            return members.added(f"n{members.next_index}", ("host", members.next_index))
        if count > 2 and self._enough(fewer := members.removed(name)):
            return fewer
        return members.moved(name, ("elsewhere", 1))

    def crash(self) -> bool:
        node = self.alive()
        if node is None:
            return False
        tail = len(node.disk.tail)
        node.crash(self.random.choice([0, tail, int(self.random.random() * (tail + 1))]))
        if self.random.random() < 0.15 and self._may_wipe(node):
            self.logs += 1
            node.disk = Disk(self.logs, Begun.RECOVERED)
            node.configured = self.configured  # peers to learn from
        return True

    def _may_wipe(self, node: Node) -> bool:
        """Return whether a majority that remembers remains in each list that may be valid now."""
        if node.index not in self.members.nodes:
            return False
        tid = max(self.log, default=0)
        lists = [self.members, *(each for at, each in self.changes_posted.values() if at > tid)]
        others = [self.nodes[i] for i in self.members.nodes if i != node.index]
        if any(len(other.disk.entries) < self.last_change for other in others):
            lists.append(self.former)
        return all(self._enough(members, node) for members in lists)

    def _enough(self, members: Members, wiped: Node | None = None) -> bool:
        nodes = [self.nodes[i] for i in members.nodes if i < len(self.nodes)]
        count, whole = len(members.all), [n for n in nodes if n is not wiped and self._remembers(n)]
        return len(whole) > count // 2 or len(whole) == count - 1 > 0

    @staticmethod
    def _remembers(node: Node) -> bool:
        """Return whether a node holds all its promises; one of two may vote again before it does."""
        disk = node.disk
        voter = [record.tid for record in disk.journal if isinstance(record, Voter)]
        return disk.begun is not Begun.RECOVERED or bool(voter and len(disk.entries) > voter[0])

    def cut(self) -> bool:
        """Heal a cut, or cut some nodes off."""
        if self.away:
            self.away = set()
        else:
            count = len(self.nodes)
            self.away = set(self.random.sample(range(count), self.random.randint(0, count // 2)))
        return True

    def recover(self) -> bool:
        for node in self.nodes:
            if node.engine is None:
                node.start()
                return True
        return False

    # -- progress after the network has healed ----------------------------------------------------

    def heal(self) -> None:
        self.lossless = True
        self.away = set()
        for node in self.nodes:
            if node.engine is None:
                node.start()

    def settle(self, decisions: int = 3, limit: int = 4000) -> None:
        """Check termination: after healing, posts are decided on all nodes."""
        self.heal()
        goal = max(self.log, default=0) + decisions
        for _ in range(limit):
            members = [self.nodes[i] for i in self.members.nodes]
            for node in self.nodes:
                if node.engine is None:
                    node.start()
                assert node.engine is not None
                node.engine.tick()
                node.flush()
                node.sync()
            self._deliver_all()
            node = members[int(self.random.random() * len(members))]
            assert node.engine is not None
            if max(self.log, default=0) < goal and node.engine.mine is None:
                self.post()
            elif node.engine.mine is not None:
                tid = node.engine.tid
                result = node.engine.repost(tid, node.engine.mine.sid)
                if isinstance(result, Sid):
                    self.wanted.add((tid, result))
                node.flush()
            tids = {n.engine.tid for n in members if n.engine}
            if len(tids) == 1 and min(tids) > goal:
                for n in self.nodes:
                    assert n.engine is not None
                    n.engine.validate()
                return
        where = [(n.engine.tid, n.engine.learns, n.engine.process and n.engine.process.round)
                 for n in self.nodes if n.engine]  # fmt: skip
        raise AssertionError(f"{self}: termination: {where} after healing, not {goal}")

    def _deliver_all(self) -> None:
        messages, self.network = self.network, []
        self.random.shuffle(messages)
        for to, sender, message in messages:
            if to < len(self.nodes) and self.nodes[to].engine is not None:
                self.nodes[to].receive(sender, message)
                self.nodes[to].flush()
