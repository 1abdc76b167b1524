"""The connection to the primary master: what it tells, the search for it, the view of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from neo.client.connect.connections import (
    DIAL_SECONDS,
    IDENTIFY_SECONDS,
    LATE_SECONDS,
    LOST,
    Backoff,
    Connections,
)
from neo.client.errors import RefusedError, RegroupedError
from neo.client.read.invalidations import Invalidations
from neo.net.channel import Channel, Ticket
from neo.net.sockets import format_address
from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer, HandshakeError, PeerError
from neo.protocol.packets import (
    FEATURE_CACHES,
    FEATURE_OURS,
    FEATURES,
    A,
    Address,
    AnswerLastTransaction,
    AskCache,
    AskLastTransaction,
    FlushLog,
    InvalidateObjects,
    Message,
    NotifyClusterInformation,
    NotifyDeadlock,
    NotifyFeatures,
    NotifyPack,
    NotifyTransactionEnded,
    NotPrimaryMaster,
    Ping,
    Request,
    RequestIdentification,
    StopOperation,
)
from neo.topology.masters import MasterCandidates, MasterListFile, PrimarySearch
from neo.topology.mirror import Mirror, TableMessage

logger = logging.getLogger("neo.client")

#: Bound of the patience with a primary master that another one may replace. It is lost after twice this
#: time.
MASTER_PATIENCE_SECONDS = 1.5
#: Timeout of identification at one of several masters, which answers at once unless it is stopped.
MASTER_IDENTIFY_SECONDS = 2.0


class Partition(NamedTuple):
    """Partition ``number`` of ``partitions``. It cannot be read any more when there is another number of
    partitions (specification 27.90)."""

    number: int
    partitions: int


class View(NamedTuple):
    """The location of objects: per partition, ids of running nodes with a readable, a writable cell.

    Immutable, so any thread may read it; the handler replaces it.
    """

    readable: tuple[tuple[int, ...], ...]
    writable: tuple[tuple[int, ...], ...]
    addresses: dict[int, Address]
    #: How often this client has seen another number of partitions.
    regrouped: int

    def partition(self, id_: bytes) -> int:
        return int.from_bytes(id_, "big") % len(self.readable)

    def all_partitions(self) -> list[Partition]:
        count = len(self.readable)
        return [Partition(number, count) for number in range(count)]

    def nodes(self, where: bytes | Partition) -> tuple[int, ...]:
        """Return the nodes with a readable cell of a partition, or of that of an id. Raise
        RegroupedError."""
        readable = self.readable
        if isinstance(where, bytes):
            return readable[int.from_bytes(where, "big") % len(readable)]
        if where.partitions != len(readable):
            raise RegroupedError(
                f"partitions were read one after the other, and their number was changed from"
                f" {where.partitions} to {len(readable)}: begin again"
            )
        return readable[where.number]


#: Before the first connection.
NOTHING = View((), (), {}, 0)


class Transactions(Protocol):
    """The transactions of this client that messages of the master concern."""

    def deadlock(self, ttid: bytes, locking_tid: bytes) -> None: ...

    def ended_by_operator(self, ttid: bytes) -> None: ...

    def stop(self) -> None: ...


class MasterHandler:
    """The handler of the channel to a master. All methods but :attr:`view` run in its leading thread.

    ``masters_known`` is called with the addresses of masters that the master announces.
    """

    def __init__(
        self,
        connections: Connections,
        invalidations: Invalidations,
        transactions: Transactions,
        masters_known: Callable[[Iterable[Address]], object],
        before: View,
    ) -> None:
        """``before``: the view of the last connection."""
        self._connections = connections
        self._invalidations = invalidations
        self._transactions = transactions
        self._masters_known = masters_known
        self._mirror = Mirror()
        self._nodes, self._partitions = self._mirror.nodes, self._mirror.partitions
        self.view = NOTHING
        self._before = before
        #: Set by a master that is not the primary.
        self.redirected: NotPrimaryMaster | None = None
        #: Set when the cluster stops serving: storage nodes with readable cells that it lacks.
        self.missing: list[int] | None = None
        #: The cluster is STOPPING: the end of the connection is expected.
        self.stops = False
        #: The extensions of protocol version 1 that the master announced.
        self.features: frozenset[str] = frozenset()
        #: True after the answer to AskLastTransaction.
        self.joined = False

    def id_timestamp(self, nid: int) -> float | None:
        """Return the time at which the master identified this client; storage nodes compare it."""
        node = self._nodes.get(nid)
        return None if node is None else node.id_timestamp

    def lost(self, channel: Channel, reason: str) -> None:
        if not self.joined or self._connections.closed:
            return
        if self.stops:
            logger.info("the cluster stops: connection to primary master %s ended", channel.name)
        else:
            logger.warning("connection to primary master %s lost: %s", channel.name, reason)

    def notified(self, channel: Channel, message: Message) -> Message | None:
        if isinstance(message, InvalidateObjects):
            self._invalidations.invalidate(message.tid, message.oid_list, channel)
        elif isinstance(message, TableMessage):
            self._mirror.apply(message)
            self._masters_known(self._nodes.addresses(NodeType.MASTER))
            self._update_view()
        elif isinstance(message, NotifyDeadlock):
            self._transactions.deadlock(message.ttid, message.locking_tid)
        elif isinstance(message, NotifyTransactionEnded):
            self._transactions.ended_by_operator(message.ttid)
        elif isinstance(message, NotPrimaryMaster):
            self.redirected = message
            channel.close("it is not the primary master")
        elif isinstance(message, StopOperation):
            self.missing = self._missing()
            channel.close(self.why_stopped())
        elif isinstance(message, NotifyClusterInformation):
            if message.state is ClusterState.STOPPING:
                self.stops = True
                self._transactions.stop()
        elif isinstance(message, NotifyPack):
            self._invalidations.packed(message.tid)
        elif isinstance(message, FlushLog):
            self._connections.host.reopen_logs()
        elif isinstance(message, NotifyFeatures):
            self.features = frozenset(message.features)
        elif isinstance(message, AskCache):
            return self._invalidations.cache.figures(self._connections.host.name())
        else:
            raise PeerError(f"unexpected {type(message).__name__}")
        return None

    def _missing(self) -> list[int]:
        nids = {
            nid
            for partition, running in enumerate(self.view.readable)
            if not running
            for nid in self._partitions.readable(partition)
        }
        return sorted(nids)

    def why_stopped(self) -> str:
        """Return why the cluster stopped serving. Call only if ``missing`` is not None. Any thread."""
        reasons = map(self._connections.why_lost, self.missing or ())
        return "; ".join(["the cluster stopped serving", *reasons])

    def _update_view(self) -> None:
        addresses = {
            node.nid: node.address
            for node in self._nodes.of_type(NodeType.STORAGE)
            if node.nid is not None and node.address is not None and node.state is NodeState.RUNNING
        }
        count, before = range(len(self._partitions)), self.view if self.view.readable else self._before
        self.view = View(
            tuple(tuple(n for n in self._partitions.readable(p) if n in addresses) for p in count),
            tuple(tuple(n for n in self._partitions.writable(p) if n in addresses) for p in count),
            addresses,
            before.regrouped + (len(count) != len(before.readable) != 0),
        )


class Joined(NamedTuple):
    """A connection to a primary master that accepted this client. ``nid``: of this client."""

    channel: Channel
    handler: MasterHandler
    nid: int


class MasterConnection:
    """The connection to the primary master, which is found again after a loss. Thread-safe.

    A cluster that does not answer is tried again for ``wait_timeout`` seconds; then methods raise
    UnavailableError.
    """

    def __init__(
        self, connections: Connections, invalidations: Invalidations, transactions: Transactions
    ) -> None:
        self._connections = connections
        self._invalidations = invalidations
        self._transactions = transactions
        settings = connections.settings
        self._master_list = MasterListFile(settings.master_list) if settings.master_list else None
        known = self._master_list.load() if self._master_list else []
        self._candidates = MasterCandidates([*settings.masters, *known])
        self._reset()

    def _reset(self) -> None:
        self._joining = self._connections.host.lock()
        self._nid: int | None = None
        #: The address of the last primary master.
        self._primary: Address | None = None
        #: The last connection, which may be lost; None before the first.
        self.current: Joined | None = None
        # Why the last attempt to join failed.
        self._failure = "it did not answer"

    def joined(self, backoff: Backoff | None = None) -> Joined:
        """Return a connection that is not lost. ``backoff``: of the operation that needs it. Raise
        UnavailableError, RefusedError, ClosedError."""
        joined = self.current
        if joined is not None and joined.channel.lost is None:
            return joined
        # The timeout includes the wait for another thread that joins.
        backoff = backoff or self._connections.backoff()
        waits = self._joining.locked()
        with self._joining:
            joined = self.current
            if joined is None or joined.channel.lost is not None:
                if waits:
                    backoff.check(f"master: {self._failure}")
                joined = self._join(backoff)
            return joined

    def channel(self, backoff: Backoff | None = None) -> Channel:
        """Return the channel to the primary master. Raise the errors of joined()."""
        return self.joined(backoff).channel

    def ask(self, message: Request[A], backoff: Backoff | None = None) -> A:
        """Ask the primary master; repeat the question if the connection is lost, so it must be
        idempotent. Raise ErrorAnswer and the errors of joined()."""
        backoff = backoff or self._connections.backoff()
        while True:
            try:
                channel = self.channel(backoff)
                return backoff.answer(channel, channel.ask(message))
            except ConnectionLost as e:
                backoff.wait(f"master: {e}")

    def barrier(self, backoff: Backoff | None = None) -> None:
        """Wait until all messages that the master sent before this call have taken effect. Raise the
        errors of joined()."""
        self.ask(Ping(), backoff)

    def view(self) -> View:
        """Return the last known location of objects. Join the cluster first if that was never done."""
        joined = self.current
        return (self.joined() if joined is None else joined).handler.view

    @property
    def stops(self) -> bool:
        """Whether the last master announced that the cluster stops."""
        return self.current is not None and self.current.handler.stops

    def _join(self, backoff: Backoff) -> Joined:
        """Find the primary master and identify. Call with the lock."""
        reported: set[str] = set()
        search = PrimarySearch(self._candidates)
        strangers: dict[Address, str] = {}
        dial: float | None = LATE_SECONDS
        if self._primary is not None:
            self._candidates.silent(self._primary)
            self._primary = None
        while True:
            self._connections.check_open()
            address = search.next()
            before = NOTHING if self.current is None else self.current.handler.view
            handler = MasterHandler(
                self._connections, self._invalidations, self._transactions, self._masters_known, before
            )
            try:
                joined = self._join_at(address, handler, dial, reported, backoff)
                self._primary = address
                return joined
            except ErrorAnswer as e:
                reason = f"it refused: {e}"
                if self.current is not None and self.current.handler.missing is not None:
                    reason += f", since {self.current.handler.why_stopped()}"
                if e.code is not ErrorCode.NOT_READY:
                    if self._nid is None:
                        raise RefusedError(
                            f"master {format_address(address)} of cluster "
                            f"{self._connections.settings.cluster!r}: {e}"
                        ) from None
                    # The master may not have noticed that this node left: identify as a new client.
                    self._nid = None
                    continue
            except LOST as e:
                reason = (e.strerror if isinstance(e, OSError) else None) or str(e)
                reason = reason.removeprefix(f"{format_address(address)}: ")
                if isinstance(e, TimeoutError):
                    self._candidates.silent(address)
                strangers.pop(address, None)
                if isinstance(e, HandshakeError):
                    strangers[address] = reason
                    self._check_strangers(strangers)
                if handler.redirected is not None:
                    search.redirected(handler.redirected)
            self._failure = reason
            if not (seconds := search.pause()):
                backoff.check(f"master {format_address(address)}: {reason}")
                continue
            dial = MASTER_IDENTIFY_SECONDS if search.several else None
            if reason not in reported:
                reported.add(reason)
                logger.warning("master %s: %s", format_address(address), reason)
            backoff.wait(f"master {format_address(address)}: {reason}", seconds)

    def _check_strangers(self, strangers: dict[Address, str]) -> None:
        """Raise RefusedError if no master speaks as this client does, and the client has never joined:
        a wrong address, or a mistake in the settings of TLS, does not end by waiting."""
        if self._nid is None and strangers.keys() >= set(self._candidates.addresses):
            reasons = (f"master {format_address(a)}: {why}" for a, why in strangers.items())
            cluster = self._connections.settings.cluster
            raise RefusedError(f"cluster {cluster!r} cannot be joined: {'; '.join(reasons)}")

    def _join_at(
        self,
        address: Address,
        handler: MasterHandler,
        dial: float | None,
        reported: set[str],
        backoff: Backoff,
    ) -> Joined:
        several, patience = len(self._candidates.addresses) > 1, self._connections.patience
        if several:
            patience = min(patience, MASTER_PATIENCE_SECONDS)
        name, now = format_address(address), self._connections.host.now
        limit = MASTER_IDENTIFY_SECONDS if several else IDENTIFY_SECONDS
        deadline = backoff.attempt(limit + DIAL_SECONDS)
        seconds = min(DIAL_SECONDS if dial is None else dial, deadline - now())
        channel = self._connections.open(address, handler, name, patience, seconds)
        try:
            request = RequestIdentification(
                NodeType.CLIENT, self._nid, None, self._connections.settings.cluster, None,
                {FEATURES: [FEATURE_OURS, FEATURE_CACHES]},
            )  # fmt: skip
            accepted = self._connections.identify(
                channel, request, NodeType.MASTER, min(deadline, now() + limit), reported
            )
            if accepted.your_nid is None:
                raise ConnectionLost("the master gave this client no node id")
            self._nid = accepted.your_nid
            joined = Joined(channel, handler, self._nid)
            ticket: Ticket[AnswerLastTransaction] = Ticket(exclusive=True)
            with channel.presence(ticket):
                channel.ask(AskLastTransaction(), ticket)
                return channel.hold(ticket, partial(self._joined, joined), deadline)
        except ConnectionLost as e:
            channel.close("identification failed")
            if channel.stranger:
                raise HandshakeError(str(e)) from None
            raise
        except BaseException:
            channel.close("identification failed")
            raise

    def _joined(self, joined: Joined, answer: AnswerLastTransaction) -> Joined:
        if not joined.handler.view.readable:
            raise ConnectionLost("the master has no partition table yet")
        # Storage nodes know this client by its former identity.
        self._connections.close_storages("the client joined the cluster again")
        self._invalidations.joined(answer.tid, joined.channel)
        # Nothing is called between these lines.
        joined.handler.joined = True
        self.current = joined
        return joined

    def _masters_known(self, addresses: Iterable[Address]) -> None:
        """Add candidates that the master announced. Called by the thread that leads on its channel."""
        if self._candidates.add(addresses) and self._master_list is not None:
            try:
                self._master_list.save(self._candidates.addresses)
            except OSError as e:
                logger.error("cannot write the list of masters: %s", e)

    # -- the end ---------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """End the connection."""
        if self.current is not None:
            self.current.channel.close(reason)

    def forked(self) -> list[Channel]:
        """Forget the parent's connection and return its channel. Call in the child of a fork."""
        joined = self.current
        self._reset()
        return [] if joined is None else [joined.channel]
