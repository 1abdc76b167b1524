"""An engine with its disk and network: promises leave when they are durable.

The process that embeds the log (the daemon, a NEO master) calls the engine through this object, and is
told of decided transactions. No IO here: one thread, callbacks only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from neo.transactor.catchup import GUEST
from neo.transactor.engine import Engine
from neo.transactor.messages import Entry, Kind, Message, Record, Refusal, Sid


class Host(Protocol):
    """What a node needs of its process."""

    def append(self, records: list[Record]) -> None:
        """Append to the logs, without a sync."""

    def sync(self) -> None:
        """Begin to sync what was appended; :meth:`Node.synced` is called when it is done."""

    def transmit(self, peer: str, messages: list[Message]) -> None:
        """Send to a peer, or drop. The messages may share a packet."""

    def decided(self, entries: list[Entry]) -> None:
        """Handle transactions that are in the log, on this node's disk."""


class Names:
    """The names and indices of peers: an engine knows a peer by its index, the layers around it by name.

    Indices are assigned by the list of members, which is part of the log. A node that does not have the
    log as far as its peers may not know their indices: the first members of its configuration have other
    indices if members have left since. Therefore a peer that is no member in this node's copy of the log
    is a *guest*, with an index below those of members. The node learns the log from guests, and nothing
    else (:meth:`neo.transactor.catchup.CatchUp.on_guest`). Bound: one guest per peer of the owner's
    links.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guests: list[str] = []
        #: Former members too, because the decision that removed a member is sent to it as well.
        self._members: dict[int, str] = {}

    def index(self, name: str) -> int:
        """Return the index of a peer. It changes with the list of members: do not keep it."""
        engine = self._engine
        member = engine.members.named(name)
        if member is not None and not engine.catch_up.joins:
            return member.node
        if name not in self._guests:
            self._guests.append(name)
        return GUEST - self._guests.index(name)

    def name(self, index: int) -> str | None:
        """Return the name of a peer; None if the index is unknown here."""
        if index <= GUEST:
            return self._guests[GUEST - index]
        member = self._engine.members.at(index)
        if member is not None:
            self._members[index] = member.name
        return self._members.get(index)


class Waiting(NamedTuple):
    """Actions that wait until some records are durable."""

    sends: list[tuple[int, Message]]
    entries: list[Entry]
    callbacks: list[Callable[[], None]]


class Node:
    def __init__(self, engine: Engine, host: Host) -> None:
        self.engine = engine
        self._host = host
        self._names = Names(engine)
        self._waiting: deque[Waiting] = deque()
        self._callbacks: list[Callable[[], None]] = []
        #: Number of waiting items that the current sync covers.
        self._syncing = 0
        #: The last transaction that is durable here.
        self.tlog_tid = engine.tid - 1

    def receive(self, peer: str, messages: list[Message]) -> None:
        """Handle messages of a peer. ``peer``: its verified name; it need not be a member."""
        for message in messages:
            self.engine.receive(self._names.index(peer), message)
        self.flush()

    def tick(self) -> None:
        self.engine.tick()
        self.flush()

    def post(
        self, tid: int, data: bytes, then: Callable[[Sid | Refusal], None], kind: int = Kind.DATA
    ) -> None:
        """Post; ``then`` is called with a refusal at once, or with the sid when it is durable."""
        self._answer(self.engine.post(tid, data, kind), then)

    def repost(self, tid: int, sid: Sid, then: Callable[[Sid | Refusal], None]) -> None:
        self._answer(self.engine.repost(tid, sid), then)

    def _answer(self, result: Sid | Refusal, then: Callable[[Sid | Refusal], None]) -> None:
        if isinstance(result, Refusal):
            then(result)
        else:
            self._callbacks.append(lambda: then(result))
        self.flush()

    def flush(self) -> None:
        """Execute what the engine has put into its outbox. Call it after each call of the engine."""
        records, sends, asides = self.engine.take()
        self._transmit(asides)
        entries: list[Entry] = []
        if records:
            entries = [record for record in records if isinstance(record, Entry)]
            self._host.append(records)
        callbacks, self._callbacks = self._callbacks, []
        if records or ((sends or callbacks) and self._waiting):
            self._waiting.append(Waiting(sends, entries, callbacks))
            self._sync()
        else:
            self._transmit(sends)
            for callback in callbacks:
                callback()

    def _transmit(self, messages: list[tuple[int, Message]]) -> None:
        bundles: dict[str, list[Message]] = {}
        for to, message in messages:
            name = self._names.name(to)
            if name is not None:
                bundles.setdefault(name, []).append(message)
        for name, bundle in bundles.items():
            self._host.transmit(name, bundle)

    def _sync(self) -> None:
        if not self._syncing and self._waiting:
            self._syncing = len(self._waiting)
            self._host.sync()

    def synced(self) -> None:
        """Release what waited for the sync that is done."""
        done = [self._waiting.popleft() for _ in range(self._syncing)]
        self._syncing = 0
        self._transmit([send for each in done for send in each.sends])
        entries = [entry for each in done for entry in each.entries]
        if entries:
            self.tlog_tid = entries[-1].tid
            self._host.decided(entries)
        for each in done:
            for callback in each.callbacks:
                callback()
        self._sync()
