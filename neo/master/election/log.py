"""The log of the masters: a node of the transactor, embedded in the process of a master.

The owner provides the disk and the links, and is told of each decision when it is durable. A post is
retried until it is decided or withdrawn. One thread; no IO here.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from neo.master.election.epochs import Decision, Epochs, encode
from neo.net.sockets import format_address
from neo.protocol.packets import Address
from neo.transactor.codec import messages as codec
from neo.transactor.durable import Begun, Durable
from neo.transactor.engine import Engine, Timing
from neo.transactor.members import Members, first_members
from neo.transactor.messages import Entry, Kind, Message, Record, Refusal, Sid, Spec
from neo.transactor.node import Node

#: The tick of the engine; :data:`TIMING` is in ticks.
TICK_SECONDS = 0.05
TIMING = Timing(resend=4, fetch=20, heartbeat=5, silence=30, round_timeout=40, fairness=2)
#: Transactions read at once when the log is replayed.
REPLAY_COUNT = 1000
REPLAY_BYTES = 1 << 20


class LogFailure(Exception):
    """The log cannot be used; the message names the file, the failure and the remedy."""


class LogDisk(Protocol):
    """The storage of a master's log. Methods raise LogFailure; the disk is unusable afterwards."""

    #: The id of the journal: a random number of 32 bits, other than 0, chosen once.
    journal: int
    #: The state on the disk; None if the log has not begun.
    durable: Durable | None

    def begin(self, begun: Begun, genesis: Members, known: dict[int, int]) -> None:
        """Begin the log, durably. ``known``: ids of the journals of others, by index."""

    def begin_with(self, genesis: Members) -> None:
        """Set the first members, as they are known now; ignored if there are transactions."""

    def append(self, records: list[Record]) -> None:
        """Append, without a sync."""

    def sync(self, done: Callable[[], None], failed: Callable[[LogFailure], None]) -> None:
        """Make all appended records durable; then call ``done`` or ``failed`` on the owner's thread."""

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        """See :class:`neo.transactor.catchup.LogReader`."""

    def close(self) -> None: ...


def genesis_of(masters: Iterable[Address]) -> Members:
    """Return the first members of a log: all configured masters, in the same order on all nodes."""
    return first_members((format_address(address), address) for address in masters)


#: Returns what to post, for each attempt; None withdraws the post.
Make = Callable[[], Decision | Members | None]


class Post(NamedTuple):
    make: Make
    done: Callable[[], None]


class MasterLog:
    """Implements the Host of :class:`neo.transactor.node.Node`."""

    def __init__(
        self,
        me: str,
        disk: LogDisk,
        send: Callable[[str, list[bytes]], None],
        decided: Callable[[Decision], None],
        warn: Callable[[str], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """``send`` sends or drops messages. ``decided`` is called with each decision that is durable and
        applied."""
        assert disk.durable is not None
        self.me = me
        self.epochs = Epochs()
        self._disk = disk
        self._send = send
        self._decided = decided
        self._fail = fail
        self._failed = False
        self._posts: deque[Post] = deque()
        self._inflight: tuple[int, Sid] | None = None
        self._replay(disk.durable.end.tid)
        self.engine = Engine(me, disk.durable, disk, TIMING, warn)
        self.node = Node(self.engine, self)

    def _replay(self, end: int) -> None:
        tid = 1
        while tid < end:
            specs = self._disk.read(tid, REPLAY_COUNT, REPLAY_BYTES)
            if not specs:
                raise LogFailure(
                    f"the log of the masters cannot be read from transaction {tid} on: move the folder"
                    " 'election_log' elsewhere, and this master learns the log from the others"
                )
            for spec in specs:
                if spec.kind == Kind.DATA:
                    self.epochs.apply(spec.data)
            tid += len(specs)

    def close(self) -> None:
        """Stop writing."""
        self._failed = True

    # -- state -------------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the members in the order of their indices, which is the same on all masters."""
        return tuple(member.name for member in self.engine.members.all)

    @property
    def tid(self) -> int:
        """The last transaction that is durable here."""
        return self.node.tlog_tid

    @property
    def genesis(self) -> bytes:
        """A digest of the first members; empty while they are unknown."""
        if self.engine.catch_up.joins:
            return b""
        return hashlib.sha256(self.engine.genesis.encode()).digest()[:8]

    def journals(self) -> list[tuple[Address, int]]:
        """Return the members, and the ids of their journals; 0 if an id is unknown."""
        known = self.engine.peers.known
        return [
            (member.address, self._disk.journal if member.name == self.me else known.get(member.node, 0))
            for member in self.engine.members.all
        ]

    # -- events ------------------------------------------------------------------------------------

    def tick(self) -> None:
        self.node.tick()
        self._try()

    def greeting(self) -> list[bytes]:
        """Return the first messages for a member on a new connection."""
        return [codec.encode(self.engine.status())]

    def receive(self, master: str, packets: list[bytes]) -> None:
        """Handle messages of a master. Raises ValueError if they are malformed."""
        self.node.receive(master, [codec.decode(packet) for packet in packets])

    def gone(self, master: str) -> None:
        """Suspect a master, whose process is down."""
        member = self.engine.members.named(master)
        if member is not None:
            self.engine.detector.gone(member.node)

    def post(self, make: Make, done: Callable[[], None]) -> None:
        """Post what ``make`` returns until it is decided; then call ``done``."""
        self._posts.append(Post(make, done))
        self._try()

    def _try(self) -> None:
        while self._posts and self._inflight is None:
            made = self._posts[0].make()
            if made is None:
                self._posts.popleft()
                continue
            tid = self.engine.tid
            if isinstance(made, Members):
                sid = self.engine.post(tid, made.encode(), Kind.MEMBERS)
            else:
                sid = self.engine.post(tid, encode(made))
            if not isinstance(sid, Refusal):
                self._inflight = tid, sid
            self.node.flush()
            if isinstance(sid, Refusal):
                return  # try again at the next tick or decision

    # -- host of the node --------------------------------------------------------------------------

    def append(self, records: list[Record]) -> None:
        if self._failed:
            return
        try:
            self._disk.begin_with(self.engine.genesis)
            self._disk.append(records)
        except LogFailure as e:
            self._failed = True
            self._fail(e)

    def sync(self) -> None:
        if not self._failed:
            self._disk.sync(self.node.synced, self._fail)

    def transmit(self, peer: str, messages: list[Message]) -> None:
        self._send(peer, [codec.encode(message) for message in messages])

    def decided(self, entries: list[Entry]) -> None:
        for tid, spec in entries:
            if spec.kind == Kind.DATA:
                decision = self.epochs.apply(spec.data)
                if decision is not None:
                    self._decided(decision)
            if self._inflight is not None and self._inflight[0] == tid:
                won = self._inflight[1] == spec.sid
                self._inflight = None
                if won:
                    self._posts.popleft().done()
        self._try()
