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

Exceptions from outside
-----------------------
The handler of a signal, or another thread, may raise an exception at nearly any instruction of a thread
of the application (decision 28). It costs that call; the connection and all other threads go on:

* The interpreter raises such exceptions at the entry of a function of Python, after a call, and at a
  jump backwards, not between other instructions. So lines in which nothing is called happen as a
  whole; they are marked. A ``with`` statement takes and releases a lock of C without a gap.
* A request is queued together with its question, in such lines. Who has the send lock sends from
  where the last one stopped; the wire knows where that is.
* A message stays the first of the :class:`~neo.net.inbox.Inbox` until its effect is complete: the next
  leader gives it once more. So every effect is idempotent.
* A thread that is interrupted while it leads delivers what is here, and hands the lead on. If an
  exception comes even then, the others find out: the *presence* of a ticket is a lock that its thread
  holds while it waits, and a leader that is not present is none. Followers look every
  :data:`LOOK_SECONDS`, the watcher sweeps over its channels.
* The answer of an exclusive ticket whose owner is gone takes effect by its ``orphan``, in the thread
  that leads.

Locks, in the order they may be taken: send lock, mutex. The handler is called without either.
What blocks (sockets, locks, clock) is behind :mod:`neo.net.host`, for another world to replace it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from neo.net.connection import Connection, Mark
from neo.net.fault_sites import FaultSite
from neo.net.host import Host, Lock, Waker, Wire
from neo.net.inbox import Inbox
from neo.protocol.codec import encode
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer, HandshakeError, PeerError
from neo.protocol.packets import A, Error, Message, Ping, Pong, Request

Result = TypeVar("Result")

#: How often a thread that sleeps looks whether the leader is still there.
LOOK_SECONDS = 0.25


class Handler(Protocol):
    """What takes the messages of a channel that answer nothing. Called by the leading thread."""

    def notified(self, channel: Channel, message: Message) -> None:
        """In the order of arrival. Must not wait on this channel. Raises PeerError to end it."""

    def lost(self, channel: Channel, reason: str) -> None:
        """Once, before the tickets fail."""


class Ticket(Generic[A]):
    """A question whose answer will come. ``sink``: where the ticket is put when it is done, maybe twice.
    ``orphan``: called with the answer by the thread that leads, maybe twice, if the ticket was
    forgotten, or if it is exclusive and its thread is gone."""

    __slots__ = (
        *("answer", "context", "done", "exclusive", "forgotten", "orphan", "presence", "sent"),
        *("sink", "waker"),
    )

    def __init__(
        self,
        context: object = None,
        sink: deque[Ticket[Any]] | None = None,
        exclusive: bool = False,
        orphan: Callable[[A], None] | None = None,
    ) -> None:
        self.done = False
        self.answer: A | Error | ConnectionLost | None = None
        self.waker: Waker | None = None
        self.sink = sink
        self.context = context
        self.exclusive = exclusive
        self.orphan = orphan
        self.forgotten = False
        #: The question was queued: from then on it reaches the peer unless the connection ends.
        self.sent = False
        #: Taken as long as a thread waits for the answer, or will.
        self.presence: Lock | None = None

    @property
    def present(self) -> bool:
        return self.presence is not None and self.presence.locked()

    def result(self) -> A:
        """The answer. Raises ErrorAnswer for an Error packet, ConnectionLost."""
        answer = self.answer
        if type(answer) is Error and answer.code != ErrorCode.ACK.value:
            raise ErrorAnswer.of(answer.code, answer.message)
        if isinstance(answer, ConnectionLost):
            raise ConnectionLost(str(answer))
        # The connection matched it to the request.
        return answer  # type: ignore[return-value]


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
        self._outgoing = self._connection.outgoing
        self._presence = host.presence
        self._sending = host.lock()
        self._mutex = host.lock()
        # Tickets that somebody will wait for.
        self._awaited: set[Ticket[Any]] = set()
        # Changed with the mutex. The lead belongs to the thread that waits for that ticket.
        self._leader: Ticket[Any] | None = None
        self._followers: dict[Ticket[Any], None] = {}
        self._armed = False
        self._told = self._ended = False
        # Of the leader.
        self._inbox = Inbox(self._connection)
        self._heard = 0.0
        self._pinged = False
        # Of the watcher: never done.
        self._watching: Ticket[Any] = Ticket()
        self._watch = host.watch(wire, self)
        with self._mutex:
            self._rest()

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, message: Request[A], ticket: Ticket[A] | None = None) -> Ticket[A]:
        """Send a request. Raises ConnectionLost. The ticket must be waited for, or forgotten.

        After any other exception, ``sent`` of the ticket tells whether the peer is asked; nobody
        waits for the answer then.
        """
        if ticket is None:
            ticket = Ticket()
        try:
            self._awaited.add(ticket)
            if self._armed:
                with self._mutex:
                    if self._armed:
                        self._armed = False
                        self._watch.disarm()
            broken = None
            with self._sending:
                if self._connection.closed:
                    raise ConnectionLost(f"{self.name}: {self.lost or 'closing'}")
                self._connection.ask(message, ticket, ticket)
                if self.lost is None:
                    try:
                        self._wire.send(self._outgoing)
                    except (OSError, HandshakeError) as e:
                        broken = _reason(e)
        except BaseException:
            self.forget(ticket)
            raise
        if broken is not None:
            self._end(broken)
        return ticket

    def send(self, message: Message, mark: Mark | None = None) -> None:
        """Send a notification; nothing happens if the connection is lost, or ``mark`` is set already,
        which this does."""
        with self._sending:
            if mark is None or not mark.sent:
                self._connection.send(message, None, mark)
            broken = self._flush()
        if broken is not None:
            self._end(broken)

    def call(self, message: Request[A]) -> A:
        """Ask, and return the answer. Raises as ask() and wait()."""
        ticket: Ticket[A] = Ticket()
        ticket.presence = presence = self._presence()
        with presence:
            try:
                self.ask(message, ticket)
                self._wait(ticket, None)
            except BaseException:
                self.forget(ticket)
                raise
        return ticket.result()

    def _flush(self) -> str | None:
        """With the send lock. Returns why the connection is broken."""
        if self._outgoing and self.lost is None:
            try:
                self._wire.send(self._outgoing)
            except (OSError, HandshakeError) as e:
                return _reason(e)
        return None

    # -- waiting ---------------------------------------------------------------------------------

    def wait(self, ticket: Ticket[A], deadline: float | None = None) -> A:
        """The answer. Raises ErrorAnswer, ConnectionLost; TimeoutError after ``deadline``, also a little
        later: then the ticket may be waited for again."""
        assert not ticket.exclusive
        if not ticket.done:
            ticket.presence = presence = self._presence()
            with presence:
                try:
                    self._wait(ticket, deadline)
                except BaseException:
                    self.forget(ticket)
                    raise
        return ticket.result()

    def presence(self, ticket: Ticket[Any]) -> Lock:
        """Return what an exclusive ticket is asked and held with (``with``): it tells the others that
        the ticket has an owner."""
        ticket.presence = presence = self._presence()
        return presence

    def hold(self, ticket: Ticket[A], effect: Callable[[A], Result]) -> Result:
        """Wait for the answer of an exclusive ticket, and return ``effect`` of it; nothing that came
        later takes effect before. ``effect`` must not wait on this channel. Raises as wait()."""
        assert ticket.exclusive and ticket.present
        try:
            self._wait(ticket, None)
            if isinstance(ticket.answer, ConnectionLost):
                raise ticket.answer
            result = effect(ticket.result())
            self._inbox.drop()
            self._hand_on()
            return result
        except BaseException:
            self.forget(ticket)
            raise

    def forget(self, ticket: Ticket[Any]) -> None:
        """Nobody will wait for this ticket any more. Idempotent."""
        with self._mutex:
            ticket.forgotten = True
            self._awaited.discard(ticket)
            self._followers.pop(ticket, None)
            leads = self._leader is ticket
            if not leads:
                self._rest()
        if leads:
            self._hand_on()

    def _wait(self, ticket: Ticket[Any], deadline: float | None) -> None:
        """Until the ticket is done; if it is exclusive, this thread then has the lead, unless the
        connection is lost."""
        while True:
            waker = None
            with self._mutex:
                if ticket.done and not ticket.exclusive and self._leader is not ticket:
                    return
                leader = self._leader
                if leader is None or leader is ticket or not leader.present:
                    self._leader = ticket
                    if self._armed:
                        self._disarm()
                else:
                    ticket.waker = waker = self._host.waker()
                    self._followers[ticket] = None
            if waker is not None:
                waker.wait(LOOK_SECONDS)
                if deadline is not None and not ticket.done and self._host.now() > deadline:
                    raise TimeoutError(f"no answer from {self.name}")
                continue
            if not ticket.done:
                next_leader = self._lead(ticket, deadline)
                if next_leader is ticket:
                    return
                self._leave(next_leader)
            elif ticket.exclusive and not isinstance(ticket.answer, ConnectionLost):
                return
            else:
                self._leave(None)  # it was done when the lead came
            if ticket.done and (not ticket.exclusive or isinstance(ticket.answer, ConnectionLost)):
                return
            # Who holds an answer needs the lead, which may have been handed on.

    # -- leading: one thread at a time -----------------------------------------------------------

    def serve(self) -> None:
        """Take what is there, if nobody else does. The watcher's thread, when it was woken."""
        watching = self._watching
        with self.presence(watching):
            try:
                with self._mutex:
                    self._armed = False
                    leader = self._leader
                    if self._ended or (leader not in (None, watching) and leader.present):
                        return
                    self._leader = watching
                self._leave(self._lead(watching, None))
            except BaseException:
                self.forget(watching)
                raise

    def sweep(self) -> None:
        """As serve(), if it is not certain that somebody reads, or that the watcher will be woken."""
        if not self._armed or self._leader is not None or self._left:
            self.serve()

    @property
    def _left(self) -> bool:
        """Whether an interrupted thread left something to do: about this, no event tells."""
        return self._inbox.pending or bool(self._outgoing)

    def _lead(self, ticket: Ticket[Any], deadline: float | None) -> Ticket[Any] | None:
        """Deliver until ``ticket`` is done, for the watcher's only what is there. Returns the exclusive
        ticket whose owner has to go on, if there is one. This thread still has the lead."""
        self._heard = self._host.now()
        self._pinged = False
        inbox, watching = self._inbox, ticket is self._watching
        while True:
            if inbox.portions or inbox.current is not None:
                owner = self._deliver()
                if owner is not None:
                    return owner
            if self._outgoing:
                self._flush_left()
            if self._followers and self._host.fault(FaultSite.LEAD_HANDED_OVER):
                return None
            if ticket.done:
                return None
            # Also when messages for others keep coming: all that is here was delivered.
            if deadline is not None and self._host.now() > deadline:
                raise TimeoutError(f"no answer from {self.name}")
            if not self._read(not watching):
                return None

    def _deliver(self) -> Ticket[Any] | None:
        """All that is here, or up to an answer that its owner must handle alone."""
        inbox = self._inbox
        try:
            while (inbox.portions or inbox.current is not None) and (received := inbox.first()):
                question = received.question
                if question is not None:
                    ticket: Ticket[Any] = question.context
                    if not ticket.done:
                        ticket.answer = received.message
                        self._complete(ticket)
                    if ticket.exclusive and ticket.present and not ticket.forgotten:
                        return ticket
                    if ticket.orphan is not None and (ticket.forgotten or ticket.exclusive):
                        ticket.orphan(received.message)
                    inbox.drop()
                elif type(received.message) is Ping:
                    packed = encode(received.message_id, Pong())
                    inbox.drop_with(self._outgoing, packed)
                else:
                    self._handler.notified(self, received.message)
                    inbox.drop()
        except PeerError as e:
            with self._sending:
                self._connection.fail(e)
                self._flush()
            self._end(str(e))
        except ConnectionLost as e:
            self._end(str(e))
        return None

    def _flush_left(self) -> None:
        """Send what an interrupted thread did not, or this one has to answer. A thread that sends just
        now does it too: the leader does not wait for that, since the peer may wait for the leader."""
        if self._sending.locked():
            return
        with self._sending:
            broken = self._flush()
        if broken is not None:
            self._end(broken)

    def _read(self, wait: bool) -> bool:
        """Receive some more. False: nothing is there, and nobody waits for it."""
        if self.lost is not None:
            self._end(self.lost)
            return False
        portions = self._inbox.portions
        try:
            came = self._wire.receive(portions, wait)
        except (OSError, HandshakeError) as e:
            self._end(_reason(e))
            return True
        if came:
            self._heard = self._host.now()
            self._pinged = False
            if not portions[-1]:
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
            pong: Ticket[Pong] = Ticket()
            pong.forgotten = True
            with self._sending:
                if self.lost is None:
                    self._connection.ask(Ping(), pong)
                    self._flush()

    def _complete(self, ticket: Ticket[Any]) -> None:
        """The answer is there. Idempotent."""
        with self._mutex:
            if ticket.sink is not None:
                ticket.sink.append(ticket)
            self._awaited.discard(ticket)
            if not ticket.exclusive and ticket.waker is not None:
                self._wake(ticket)
            ticket.done = True

    def _hand_on(self) -> None:
        """Deliver what is here, then leave."""
        next_leader = None
        try:
            next_leader = self._lead(_DONE, None)
        finally:
            self._leave(next_leader)

    def _leave(self, next_leader: Ticket[Any] | None) -> None:
        with self._mutex:
            if next_leader is None and self._followers:
                next_leader = next(iter(self._followers))
            self._leader = next_leader
            if next_leader is not None:
                self._wake(next_leader)
            elif self.lost is not None:
                self._rest()
            elif not self._awaited and not self._armed:
                self._watch.arm()
                self._armed = True

    def _wake(self, follower: Ticket[Any]) -> None:
        """With the mutex. It may get the lead and its answer before it runs."""
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
        """With the mutex: let the watcher read if no thread does, or soon will; close what is lost."""
        if self._leader is None and self.lost is not None:
            # Nobody reads any more; nobody writes, since the send lock was taken after the end.
            if self._connection.closed:
                self._wire.close()
        elif self._leader is None and not self._awaited and not self._armed:
            self._watch.arm()
            self._armed = True

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
        """Idempotent: whoever comes does what is not done yet."""
        with self._mutex:
            if self.lost is None:
                # Nothing is called between these lines.
                self.lost = reason
                self._armed = False
            if not self._ended:
                # With the mutex, as the wire is closed: its descriptor may be another channel's then.
                self._watch.forget()
        if not self._ended:
            # Whoever holds the send lock is woken up by this.
            self._wire.end()
            if not self._told:
                self._told = True
                self._handler.lost(self, self.lost)
            # Threads that come while the first one is here wait until no ticket is left.
            with self._sending:
                self._connection.closed = True
                for question in self._connection.open_questions():
                    ticket: Ticket[Any] = question.context
                    if not ticket.done:
                        ticket.answer = ConnectionLost(f"{self.name}: {self.lost}")
                        self._complete(ticket)
                self._connection.close()
                self._ended = True
        with self._mutex:
            self._rest()


#: A ticket that is done: who leads for it delivers what is here, and reads no more.
_DONE: Ticket[Any] = Ticket()
_DONE.done = True


def _reason(error: Exception) -> str:
    """Why the connection is broken. Raises the error again if it is none of the connection's, but was
    raised by the handler of a signal while the kernel waited (often TimeoutError)."""
    if isinstance(error, OSError):
        if error.errno is None:
            raise error
        return error.strerror or str(error)
    return str(error)
