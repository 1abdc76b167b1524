"""A client's connections to a cluster: the primary master, storage nodes on demand, reads from replicas.

Thread-safe. Each wait is bounded: an unreachable cluster, partition or node is tried again for
``wait_timeout`` seconds, then UnavailableError is raised.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from neo.client.errors import ClosedError, CorruptedError, NEOStorageError, RefusedError
from neo.client.invalidations import Invalidations
from neo.client.master import MasterLink, StorageLink, View
from neo.client.pause import LOST, NOT_HERE, Pause
from neo.client.records import sound
from neo.client.replicas import ask, collect, read_many
from neo.net.channel import Channel, Ticket
from neo.net.host import Host
from neo.net.sockets import format_address
from neo.net.tls import TlsLink
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    FEATURE_LOCKS,
    FEATURE_OIDS,
    FEATURES,
    A,
    AcceptIdentification,
    Address,
    AnswerLastTransaction,
    AnswerObject,
    AskLastTransaction,
    Ping,
    Request,
    RequestIdentification,
)
from neo.topology.masters import MasterCandidates, MasterListFile, PrimarySearch

logger = logging.getLogger("neo.client")

#: A peer that is silent for this time while an answer is due is sent a Ping; see neo.net.channel.
PATIENCE_SECONDS = 20.0
#: The same for a primary master that another master may replace. It is lost after twice this time.
MASTER_PATIENCE_SECONDS = 1.5
#: Timeout of identification. A storage node may wait for the master to announce this client.
IDENTIFY_SECONDS = 10.0
#: The same at one of several masters, which answers at once unless it is stopped.
MASTER_IDENTIFY_SECONDS = 2.0
#: A master that does not answer for this time is logged. The first dial ends after this time, and is
#: repeated with the usual timeout.
LATE_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """Settings of a client. ``tls``: None for plain text. ``wait_timeout``: seconds."""

    cluster: str
    masters: Sequence[Address]
    tls: ssl.SSLContext | None = None
    wait_timeout: float = 30.0
    master_list: str | None = None


class Rebasable(Protocol):
    """A transaction that the master's messages may concern."""

    def rebase(self, locking_tid: bytes) -> None: ...

    def ended_by_operator(self) -> None: ...


class Session:
    def __init__(self, host: Host, settings: Settings, invalidations: Invalidations) -> None:
        self.invalidations = invalidations
        self.settings = settings
        self.host = host
        #: Transactions that are being committed, by ttid.
        self.commits: dict[bytes, Rebasable] = {}
        #: Called when the cluster stops, by the thread that leads on the master's channel.
        self.stopping: Callable[[], object] = lambda: None
        self._master_list = MasterListFile(settings.master_list) if settings.master_list else None
        known = self._master_list.load() if self._master_list else []
        self._candidates = MasterCandidates([*settings.masters, *known])
        self._nid: int | None = None
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._joining = self.host.lock()
        self._dialing: dict[int, AbstractContextManager[object]] = {}
        self._master: Channel | None = None
        #: The address of the last primary master.
        self._primary: Address | None = None
        self._link: MasterLink | None = None
        self._storages: dict[int, Channel] = {}
        self._storage_links: dict[int, StorageLink] = {}

    # -- the master ------------------------------------------------------------------------------

    def master(self) -> Channel:
        """Return the channel to the primary master. Raise UnavailableError, RefusedError, ClosedError."""
        channel = self._master
        if channel is not None and channel.lost is None:
            return channel
        # The timeout includes the wait for another thread that joins.
        pause = Pause(self)
        with self._joining:
            if self._master is None or self._master.lost is not None:
                self._join(pause)
            assert self._master is not None
            return self._master

    def ask_master(self, message: Request[A]) -> A:
        """Ask the primary master; repeat the question if the connection is lost, so it must be
        idempotent. Raise ErrorAnswer and the errors of master()."""
        pause = Pause(self)
        while True:
            try:
                return self.master().call(message)
            except ConnectionLost as e:
                pause.take(f"master: {e}")

    @property
    def stops(self) -> bool:
        """Whether the last master announced that the cluster stops."""
        return self._link is not None and self._link.stops

    def barrier(self) -> None:
        """Wait until all messages that the master sent before this call have taken effect."""
        self.ask_master(Ping())

    def view(self) -> View:
        """Return the last known location of objects. Join the cluster first if that was never done."""
        if self._link is None:
            self.master()
        assert self._link is not None
        return self._link.view

    def _join(self, pause: Pause) -> None:
        """Find the primary master and identify. Call with the lock."""
        reported: set[str] = set()
        search = PrimarySearch(self._candidates)
        dial: float | None = LATE_SECONDS
        if self._primary is not None:
            self._candidates.silent(self._primary)
            self._primary = None
        while True:
            if self._closed:
                raise ClosedError("the storage is closed")
            address = search.next()
            link = MasterLink(self)
            try:
                self._join_at(address, link, dial, reported)
                self._primary = address
                return
            except ErrorAnswer as e:
                reason = f"it refused: {e}"
                if self._link is not None and self._link.missing is not None:
                    reason += f", since {self._link.why_stopped()}"
                if e.code is not ErrorCode.NOT_READY:
                    if self._nid is None:
                        raise RefusedError(
                            f"master {format_address(address)} of cluster "
                            f"{self.settings.cluster!r}: {e}"
                        ) from None
                    # The master may not have noticed that this node left: identify as a new client.
                    self._nid = None
                    continue
            except LOST as e:
                reason = (e.strerror if isinstance(e, OSError) else None) or str(e)
                reason = reason.removeprefix(f"{format_address(address)}: ")
                if isinstance(e, TimeoutError):
                    self._candidates.silent(address)
                if link.redirected is not None:
                    search.redirected(link.redirected)
            if not (seconds := search.pause()):
                continue
            dial = MASTER_IDENTIFY_SECONDS if search.several else None
            if reason not in reported:
                reported.add(reason)
                logger.warning("master %s: %s", format_address(address), reason)
            pause.take(f"master {format_address(address)}: {reason}", seconds)

    def _join_at(
        self, address: Address, link: MasterLink, dial: float | None, reported: set[str]
    ) -> None:
        several = len(self._candidates.addresses) > 1
        patience = MASTER_PATIENCE_SECONDS if several else PATIENCE_SECONDS
        channel = self._open(address, link, format_address(address), patience, dial)
        try:
            request = RequestIdentification(
                NodeType.CLIENT, self._nid, None, self.settings.cluster, None,
                {FEATURES: [FEATURE_OIDS, FEATURE_LOCKS]},
            )  # fmt: skip
            limit = MASTER_IDENTIFY_SECONDS if several else IDENTIFY_SECONDS
            accepted = self._identify(channel, request, NodeType.MASTER, limit, reported)
            self._nid = accepted.your_nid
            ticket: Ticket[AnswerLastTransaction] = Ticket(exclusive=True)
            with channel.presence(ticket):
                channel.ask(AskLastTransaction(), ticket)
                channel.hold(ticket, partial(self._joined, channel, link))
        except BaseException:
            channel.close("identification failed")
            raise

    def _joined(self, channel: Channel, link: MasterLink, answer: AnswerLastTransaction) -> None:
        if not link.view.readable:
            raise ConnectionLost("the master has no partition table yet")
        # Storage nodes know this client by its former identity.
        for storage in list(self._storages.values()):
            storage.close("the client joined the cluster again")
        self.invalidations.joined(answer.tid, channel)
        link.joined = True
        self._link, self._master = link, channel

    def _open(
        self,
        address: Address,
        link: MasterLink | StorageLink,
        name: str,
        patience: float = PATIENCE_SECONDS,
        dial: float | None = None,
    ) -> Channel:
        tls = None if self.settings.tls is None else TlsLink(self.settings.tls, server=False)
        wire = self.host.connect(address, tls, dial)
        try:
            return Channel(self.host, wire, link, name, patience)
        except BaseException:
            wire.close()
            raise

    def _identify(
        self,
        channel: Channel,
        request: RequestIdentification,
        node_type: NodeType,
        limit: float = IDENTIFY_SECONDS,
        reported: set[str] | None = None,
    ) -> AcceptIdentification:
        """Wait until the peer accepts this client. ``reported``: masters that were logged as silent; None
        for a storage node."""
        # After an exception the caller closes the channel.
        ticket, begin = channel.ask(request), self.host.now()
        if reported is None or channel.name in reported:
            accepted = channel.wait(ticket, begin + limit)
        else:
            try:
                accepted = channel.wait(ticket, begin + LATE_SECONDS)
            except TimeoutError:
                reported.add(channel.name)
                logger.warning(
                    "master %s: connected, but it does not answer yet; check the address, and that both"
                    " sides use TLS, or none",
                    channel.name,
                )
                accepted = channel.wait(ticket, begin + limit)
        if accepted.node_type is not node_type:
            raise ConnectionLost(f"{channel.name} is not a {node_type.name.lower()}")
        return accepted

    def masters_known(self, addresses: Iterable[Address]) -> None:
        """Add candidates that the master announced. Called by the thread that leads on its channel."""
        if self._candidates.add(addresses) and self._master_list is not None:
            try:
                self._master_list.save(self._candidates.addresses)
            except OSError as e:
                logger.error("cannot write the list of masters: %s", e)

    def deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        commit = self.commits.get(ttid)
        if commit is not None:
            commit.rebase(locking_tid)

    def ended_by_operator(self, ttid: bytes) -> None:
        """Handle NotifyTransactionEnded. Called by the thread that leads on the master's channel."""
        commit = self.commits.get(ttid)
        if commit is not None:
            commit.ended_by_operator()

    def ended(self, ttid: bytes, commit: Rebasable) -> None:
        """Stop forwarding the master's messages to a transaction. Another one may have its ttid: a new
        master whose clock is behind may allocate the ttids of aborted transactions again."""
        if self.commits.get(ttid) is commit:
            del self.commits[ttid]

    # -- storage nodes ---------------------------------------------------------------------------

    def storage(self, nid: int) -> Channel:
        """Return a channel to a storage node. Raise the errors of LOST, ErrorAnswer."""
        channel = self._storages.get(nid)
        if channel is not None and channel.lost is None:
            return channel
        master = self.master()
        with self._dialing.setdefault(nid, self.host.lock()):
            channel = self._storages.get(nid)
            if channel is None or channel.lost is not None:
                channel = self._dial(nid, master)
            return channel

    def _dial(self, nid: int, master: Channel) -> Channel:
        if self._closed:
            raise ClosedError("the storage is closed")
        assert self._link is not None and self._nid is not None
        address = self._link.view.addresses.get(nid)
        if address is None:
            raise ConnectionLost(f"{format_nid(nid)} is not running")
        link = StorageLink()
        channel = self._open(address, link, f"{format_nid(nid)} {format_address(address)}")
        try:
            timestamp = self._link.id_timestamp(self._nid)
            request = RequestIdentification(
                NodeType.CLIENT, self._nid, None, self.settings.cluster, timestamp,
                {FEATURES: [FEATURE_OIDS]},
            )  # fmt: skip
            accepted = self._identify(channel, request, NodeType.STORAGE)
            if accepted.nid != nid:
                raise ConnectionLost(f"{channel.name} is {format_nid(accepted.nid)}")
        except BaseException:
            channel.close("identification failed")
            raise
        self._storage_links[nid] = link
        self._storages[nid] = channel
        if self._master is not master or self._closed:
            channel.close("the client joined the cluster again")
        return channel

    def connected_storages(self) -> dict[int, Channel]:
        """Return the open channels to storage nodes by node id. If there is none, open one, unless that
        fails. Does not wait for an unreachable cluster."""
        found = {nid: c for nid, c in list(self._storages.items()) if c.lost is None}
        if not found and self._master is not None and self._master.lost is None:
            nids = list(self.view().addresses)
            try:
                if nids:
                    nid = self.host.choose(nids)
                    found[nid] = self.storage(nid)
            except (*LOST, ErrorAnswer, NEOStorageError) as e:
                logger.info("no storage node can be asked now: %s", e)
        return found

    def announced(self, nid: int) -> frozenset[str]:
        """Return the features that a storage node has announced so far."""
        link = self._storage_links.get(nid)
        return frozenset() if link is None else link.features

    def last_words(self, nid: int) -> str:
        """Return why the connection to a storage node ended."""
        channel = self._storages.get(nid)
        if channel is None or channel.lost is None:
            return f"{format_nid(nid)} is not running"
        return f"{channel.name}: {channel.lost}"

    def features(self, nid: int) -> frozenset[str]:
        """Return the features of a storage node. Raise the errors of storage()."""
        # A node announces its features after it accepts; they have arrived when it answers a Ping.
        self.storage(nid).call(Ping())
        return self._storage_links[nid].features

    # -- reads -----------------------------------------------------------------------------------

    def read(self, partition: int, message: Request[A]) -> A:
        """Ask a node with a readable cell of a partition. Raise ErrorAnswer if it answers with an Error;
        UnavailableError after ``wait_timeout``; CorruptedError if no node has sound data."""
        return collect(self, partition, message, ask(self, partition, message))

    def read_patiently(self, partition: int, message: Request[A]) -> A:
        """Ask the nodes of a partition until one answers. Ask each node once per round; before a new
        round, wait for the master's messages."""
        pause = Pause(self)
        failed: set[int] = set()
        damaged: set[int] = set()
        reason = "no running node has a readable cell"
        while True:
            view = self.view()
            nids = [nid for nid in view.readable[partition] if nid not in failed | damaged]
            if nids:
                nid = self.host.choose(nids)
                try:
                    answer = self.storage(nid).call(message)
                    if not isinstance(answer, AnswerObject) or sound(answer):
                        return answer
                    reason = f"the answer of {format_nid(nid)} does not match its checksum"
                    damaged.add(nid)
                    continue
                except LOST as e:
                    reason = f"{format_nid(nid)}: {e}"
                except ErrorAnswer as e:
                    reason = f"{format_nid(nid)}: {e}"
                    if e.code is ErrorCode.CHECKING_ERROR:
                        damaged.add(nid)
                        continue
                    if e.code not in NOT_HERE:
                        raise
                failed.add(nid)
                self.barrier()
                if self.view() is not view:
                    # The node answered correctly: this client's tables were outdated.
                    failed.discard(nid)
                    pause.check(f"partition {partition}: {reason}")
            elif damaged and not failed:
                raise CorruptedError(
                    f"{message}: no storage node has sound data of partition {partition}: {reason}"
                )
            else:
                pause.take(f"partition {partition}: {reason}")
                self.barrier()
                failed.clear()

    def read_many(self, requests: Sequence[tuple[int, Request[A]]]) -> list[A | ErrorAnswer]:
        """Do the same as read() for many (partition, message); Error packets are in the result."""
        return read_many(self, requests)

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End all connections. Threads that wait raise an error."""
        self._closed = True
        channels = [self._master, *self._storages.values()]
        for channel in channels:
            if channel is not None:
                channel.close("the storage is closed")

    def forked(self) -> None:
        """Abandon the parent's connections; open new ones on demand. Call in the child of a fork."""
        channels = [self._master, *self._storages.values()]
        # First, so that a later failure does not leave the parent's connections in use here.
        self._reset()
        self._nid = None
        self.commits.clear()
        for channel in channels:
            if channel is not None:
                channel.abandon()

    @property
    def closed(self) -> bool:
        return self._closed
