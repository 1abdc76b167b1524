"""The client's blocking side of a connection: any thread asks, whoever waits reads for everybody.

Theory of operation
-------------------
A channel is one connection shared by all threads of a client. A thread writes its request itself,
under the *send lock*, and reads the answer itself when it is the first to wait: it is then the
**leader**, the only thread that reads, decodes and delivers. The threads that come to wait meanwhile
are **followers**: each sleeps on a waker of its own until its answer was delivered or until the
leader, leaving, hands the lead to it. A thread that finds nobody waiting thus pays for no switch.

* Messages take effect strictly in the order of arrival: the leader gives a notification to the
  handler, and an answer to its ticket, before it looks at the next message. An answer whose effect
  must also be complete before the next message is asked for with :meth:`Channel.hold`: the leader
  stops there, and the lead goes to the thread that waits for that answer until it says so.
* While nobody leads and no answer is expected, the *watcher* (one thread for all channels of a
  client) reads. It is armed for one event, and disarmed as soon as somebody asks: left armed, it
  would wake up for every answer and fight for the interpreter's lock.
* A peer that is silent for ``patience`` seconds while an answer is due is asked with a Ping; silent
  for as long again, it is lost. So a thread waits as long as a lock is held, and never for a dead peer.
* When the connection ends, every ticket fails with ConnectionLost, once.

Locks, in the order they may be taken: send lock, mutex. The handler is called without either.
What blocks (sockets, locks, clock) is behind :mod:`neo.net.host`, for another world to replace it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from neo.net.connection import Connection, Received
from neo.net.fault_sites import FaultSite
from neo.net.host import Host, Waker, Wire
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer, HandshakeError, PeerError
from neo.protocol.packets import Error, Message, Ping, Pong


class Handler(Protocol):
    """What takes the messages of a channel that answer nothing. Called by the leading thread."""

    def notified(self, channel: Channel, message: Message) -> None:
        """In the order of arrival. Must not wait on this channel. Raises PeerError to end it."""

    def lost(self, channel: Channel, reason: str) -> None:
        """Once, before the tickets fail."""


class Ticket:
    """A question whose answer will come. ``sink``: where it is put when it is done."""

    __slots__ = ("answer", "context", "done", "exclusive", "forgotten", "sink", "waker")

    def __init__(
        self, context: object = None, sink: deque[Ticket] | None = None, exclusive: bool = False
    ) -> None:
        self.done = False
        self.answer: Message | ConnectionLost = None
        self.waker: Waker | None = None
        self.sink = sink
        self.context = context
        self.exclusive = exclusive
        self.forgotten = False

    def result(self) -> Message:
        """The answer. Raises ErrorAnswer for an Error packet, ConnectionLost."""
        answer = self.answer
        if type(answer) is Error:
            if answer.code == ErrorCode.ACK.value:
                return answer
            raise ErrorAnswer.of(answer.code, answer.message)
        if isinstance(answer, ConnectionLost):
            raise ConnectionLost(str(answer))
        return answer


class Channel:
    """See the module's docstring. ``name`` is for people: the peer's node id and address."""

    def __init__(self, host: Host, wire: Wire, handler: Handler, name: str, patience: float):
        self.name = name
        #: Why the connection ended; None while it lives.
        self.lost: str | None = None
        self._host = host
        self._wire = wire
        self._handler = handler
        self._patience = patience
        self._connection = Connection(server=False)
        self._sending = host.lock()
        self._mutex = host.lock()
        # Protected by the mutex. The lead belongs to the thread that waits for that ticket.
        self._leader: Ticket | None = None
        self._followers: dict[Ticket, None] = {}
        self._expected = 0  # tickets that somebody will wait for
        self._armed = False
        # Of the leader. What was decoded last may have messages left when the lead changes.
        self._arrived: Iterator[Received] = iter(())
        self._heard = 0.0
        self._pinged = False
        self._watch = host.watch(wire, self)
        self._rest()

    # -- asking ----------------------------------------------------------------------------------

    def ask(
        self,
        message: Message,
        context: object = None,
        sink: deque[Ticket] | None = None,
        exclusive: bool = False,
    ) -> Ticket:
        """Send a request. Raises ConnectionLost. The ticket must be waited for, or forgotten."""
        ticket = Ticket(context, sink, exclusive)
        with self._mutex:
            self._expected += 1
            self._disarm()
        with self._sending:
            if self._connection.closed:
                raise ConnectionLost(f"{self.name}: {self.lost or 'closing'}")
            self._connection.ask(message, ticket)
            broken = self._flush()
        if broken is not None:
            self._end(broken)
        return ticket

    def send(self, message: Message) -> None:
        """Send a notification; nothing happens if the connection is lost."""
        self._transmit(partial(self._connection.send, message))

    def _transmit(self, queue: Callable[[], None]) -> None:
        with self._sending:
            queue()
            broken = self._flush()
        if broken is not None:
            self._end(broken)

    def call(self, message: Message) -> Message:
        """ask() and wait()."""
        return self.wait(self.ask(message))

    def _flush(self) -> str | None:
        """With the send lock. Returns why the connection is broken."""
        data = self._connection.take_outgoing()
        if data and self.lost is None:
            try:
                self._wire.send(data)
            except (OSError, HandshakeError) as e:
                return _reason(e)
        return None

    # -- waiting ---------------------------------------------------------------------------------

    def wait(self, ticket: Ticket, deadline: float | None = None) -> Message:
        """The answer. Raises ErrorAnswer, ConnectionLost; TimeoutError after ``deadline``, which is
        for the time before the peer is known to be one of us."""
        assert not ticket.exclusive
        if not ticket.done:
            self._wait(ticket, deadline)
        return ticket.result()

    @contextmanager
    def hold(self, ticket: Ticket) -> Iterator[Message]:
        """Wait for the answer of an exclusive ticket, and let nothing that came later take effect
        before the end of the block. The block must not wait on this channel. Raises as wait()."""
        assert ticket.exclusive
        self._wait(ticket, None)
        if isinstance(ticket.answer, ConnectionLost):
            raise ticket.answer
        try:
            yield ticket.result()
        finally:
            self._lead(None, None)

    def forget(self, ticket: Ticket) -> None:
        """Nobody will wait for this ticket any more."""
        with self._mutex:
            if not ticket.done and not ticket.forgotten:
                ticket.forgotten = True
                self._expected -= 1
        self._rest()

    def _wait(self, ticket: Ticket, deadline: float | None) -> None:
        """Until the ticket is done; if it is exclusive, this thread then has the lead."""
        while True:
            waker = None
            with self._mutex:
                if ticket.done and not ticket.exclusive and self._leader is not ticket:
                    return
                if self._leader is None or self._leader is ticket:
                    self._leader = ticket
                    self._disarm()
                else:
                    ticket.waker = waker = self._host.waker()
                    self._followers[ticket] = None
            if waker is None:
                if led := not ticket.done:
                    self._lead(ticket, deadline)
                elif not ticket.exclusive or isinstance(ticket.answer, ConnectionLost):
                    self._leave(None)  # it was done when the lead came
                if ticket.done and not (led and ticket.exclusive):
                    return
                continue  # who holds an answer needs the lead, which may have been handed on
            try:
                waker.wait()
            except BaseException:
                self._withdraw(ticket)
                raise

    def _withdraw(self, ticket: Ticket) -> None:
        """A follower was interrupted (KeyboardInterrupt)."""
        self.forget(ticket)
        with self._mutex:
            self._followers.pop(ticket, None)
            leading = self._leader is ticket
        if leading:
            self._leave(None)

    # -- leading: one thread at a time -----------------------------------------------------------

    def serve(self) -> None:
        """Take what is there, if nobody else does. The watcher's thread, when it was woken."""
        with self._mutex:
            self._armed = False
            if self._leader is not None or self.lost is not None:
                return
            self._leader = _WATCHER
        self._lead(_WATCHER, None)

    def _lead(self, ticket: Ticket | None, deadline: float | None) -> None:
        """Deliver until ``ticket`` is done, then leave (but not with an exclusive one). None: only
        what is decoded. The watcher's: only what is there."""
        next_leader = None
        try:
            self._heard = self._host.now()
            self._pinged = False
            while True:
                next_leader = self._deliver_arrived()
                if next_leader is not None:
                    break
                if self._followers and self._host.fault(FaultSite.LEAD_HANDED_OVER):
                    break
                if ticket is None or ticket.done or not self._read(ticket is not _WATCHER):
                    break
                if deadline is not None and self._host.now() > deadline:
                    raise TimeoutError(f"no answer from {self.name}")
        except TimeoutError:
            self._leave(None)
            raise
        except BaseException:
            # A message may have been taken without its effect.
            self._end("interrupted")
            self._leave(None)
            raise
        if ticket is None or next_leader is not ticket:
            self._leave(next_leader)

    def _deliver_arrived(self) -> Ticket | None:
        """All that is decoded, or up to an answer that its owner must handle alone."""
        try:
            for received in self._arrived:
                message = received.message
                if received.question is not None:
                    ticket: Ticket = received.question.context
                    ticket.answer = message
                    self._complete(ticket)
                    if ticket.exclusive and not ticket.forgotten:
                        return ticket
                elif type(message) is Ping:
                    message_id = received.message_id
                    self._transmit(partial(self._connection.answer, message_id, Pong()))
                else:
                    self._handler.notified(self, message)
        except PeerError as e:
            self._transmit(partial(self._connection.fail, e))
            self._end(str(e))
        return None

    def _read(self, wait: bool) -> bool:
        """Decode some more. False: nothing is there, and nobody waits for it."""
        if self.lost is not None:
            self._end(self.lost)
            return False
        try:
            data = self._wire.receive(wait)
        except (OSError, HandshakeError) as e:
            self._end(_reason(e))
            return True
        if data:
            self._heard = self._host.now()
            self._pinged = False
            self._arrived = self._connection.receive(data)
        elif data is not None:
            self._end("closed by the peer")
        elif wait:
            self._check_silence()
        else:
            return False
        return True

    def _check_silence(self) -> None:
        silent = self._host.now() - self._heard
        if self._pinged and silent > 2 * self._patience:
            self._end(f"no answer, not even to Ping, for {silent:.0f} s")
        elif silent > self._patience and not self._pinged:
            self._pinged = True
            pong = Ticket()
            pong.forgotten = True
            with self._sending:
                if self.lost is None:
                    self._connection.ask(Ping(), pong)
                    self._flush()

    def _complete(self, ticket: Ticket) -> None:
        with self._mutex:
            ticket.done = True
            if not ticket.forgotten:
                self._expected -= 1
            if ticket.sink is not None:
                ticket.sink.append(ticket)
            if not ticket.exclusive:
                self._wake(ticket)

    def _leave(self, next_leader: Ticket | None) -> None:
        with self._mutex:
            if next_leader is None and self._followers:
                next_leader = next(iter(self._followers))
            self._leader = next_leader
            if next_leader is not None:
                self._wake(next_leader)
        self._rest()

    def _wake(self, follower: Ticket) -> None:
        """With the mutex. Once for each sleep: it may get the lead and its answer before it runs."""
        self._followers.pop(follower, None)
        if follower.waker is not None:
            follower.waker.wake()
            follower.waker = None

    # -- the watcher -----------------------------------------------------------------------------

    def _disarm(self) -> None:  # with the mutex
        if self._armed:
            self._armed = False
            self._watch.disarm()

    def _rest(self) -> None:
        """Let the watcher read if nobody does, or soon will. At the end, close the wire."""
        with self._mutex:
            if self._leader is None and self.lost is not None:
                # Nobody reads any more; nobody writes, since the send lock was taken after the end.
                if self._connection.closed:
                    self._wire.close()
            elif self._leader is None and not self._expected and not self._armed:
                self._armed = True
                self._watch.arm()

    # -- the end ---------------------------------------------------------------------------------

    def close(self, reason: str = "closed") -> None:
        """End the connection and wake everybody. Any thread, several times."""
        self._end(reason)

    def abandon(self) -> None:
        """In the child of a fork: the connection is the parent's, no other thread is here or runs."""
        self.lost = "the process forked"
        self._sending, self._mutex = self._host.lock(), self._host.lock()
        self._connection.close()
        self._wire.close()

    def _end(self, reason: str) -> None:
        with self._mutex:
            first = self.lost is None
            if first:
                self.lost = reason
                self._armed = False
                self._watch.forget()
        if first:
            # Whoever holds the send lock is woken up by this.
            self._wire.end()
            self._handler.lost(self, reason)
        # Threads that come while the first one is here wait until no ticket is left.
        with self._sending:
            for question in self._connection.close():
                ticket: Ticket = question.context
                ticket.answer = ConnectionLost(f"{self.name}: {self.lost}")
                self._complete(ticket)
        self._rest()


#: Stands for the watcher as leader: a ticket that is never done.
_WATCHER = Ticket()


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
