"""The client's blocking side of a connection: any thread asks, and a thread that waits reads for all.

Theory of operation
-------------------
A channel is one connection shared by all threads of a client. A thread writes its request itself,
under the *send lock*, and reads the answer itself when it is the first to wait: it is then the
**leader**, the only thread that reads, decodes and delivers. The threads that come to wait meanwhile
are **followers**: each sleeps on a waker of its own until its answer was delivered or until the
leader, leaving, hands the lead to it. A thread that is alone thus pays for no switch.

* Messages take effect strictly in the order of arrival: the leader gives a notification to the
  handler, and an answer to its ticket, before it looks at the next message. An answer whose effect
  must also be complete before the next message is asked for with :meth:`Channel.hold`: the leader
  stops there, and the lead goes to the thread that waits for that answer until it says so.
* While no thread leads and no answer is expected, the *watcher* (one thread for all channels of a
  client) reads. It is armed for one event, and disarmed as soon as a thread asks: left armed, it
  would wake up for every answer and fight for the interpreter's lock.
* A peer that is silent for ``patience`` seconds is sent a Ping, also while no answer is due: the watcher
  sends it if no thread reads. A peer that is silent for as long again is lost. So a thread waits as long
  as a lock is held, and never for a dead peer. While bytes of this side are on their way, the peer is
  silent only if its machine acknowledges none of them: a long message on a slow network takes its time.
* When the connection ends, every ticket fails with ConnectionLost, once.

Exceptions from outside
-----------------------
The handler of a signal, or another thread, may raise an exception at nearly any instruction of a thread
of the application (decision 28). It costs that call; the connection and all other threads go on:

* The interpreter raises such exceptions at the entry of a function of Python, after a call, and at a
  jump backwards, not between other instructions. So lines in which nothing is called happen as a
  whole; they are marked. A ``with`` statement takes and releases a lock of C without a gap.
* A request is queued together with its question, in such lines. The thread with the send lock sends
  from where the last one stopped; the wire knows where that is.
* A message stays the first of the :class:`~neo.net.inbox.Inbox` until its effect is complete: the next
  leader delivers it once more. So every effect is idempotent.
* A thread that is interrupted while it leads delivers what has come, and hands the lead on. If an
  exception comes even then, the other threads find out: the *presence* of a ticket is a lock that its
  thread holds while it waits, and a leader that is not present is replaced. Followers check every
  :data:`LOOK_SECONDS`, the watcher sweeps over its channels.
* The answer of an exclusive ticket whose owner is gone takes effect by its ``orphan``, in the thread
  that leads.

Locks, in the order they may be taken: send lock, mutex. The handler is called without either.
What blocks (sockets, locks, clock) is behind :mod:`neo.net.host`, for another world to replace it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from neo.net.connection import Connection, SentFlag
from neo.net.fault_sites import FaultSite
from neo.net.host import Lock, ThreadHost, Waker, Wire
from neo.net.inbox import Inbox
from neo.protocol.codec import encode
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer, HandshakeError, PeerError
from neo.protocol.packets import A, Error, Message, Ping, Pong, Request

Result = TypeVar("Result")

#: How often a sleeping thread checks that the leader is present.
LOOK_SECONDS = 0.25


class DeadlinePassed(TimeoutError):
    """The answer has not come in time. The ticket can be waited for again. No other code raises it: a
    TimeoutError may come from outside."""


class Handler(Protocol):
    """Handles the messages that are no answers. Called by the leading thread."""

    def notified(self, channel: Channel, message: Message) -> Message | None:
        """Handle a message, in the order of arrival. Return the answer, if it is a request. Must not wait
        on this channel. Raise PeerError to end the connection."""

    def lost(self, channel: Channel, reason: str) -> None:
        """React to the end of the connection. Called once, before the tickets fail."""


class Ticket(Generic[A]):
    """A pending request. ``sink``: where the ticket is put when it is done, maybe twice. ``orphan``:
    called with the answer by the thread that leads, maybe twice, if the ticket was forgotten, or if it is
    exclusive and its thread is gone. ``effect``: called with each answer by the thread that leads, maybe
    twice, before the ticket is done and before any later message takes effect."""

    __slots__ = (
        *("answer", "context", "done", "effect", "exclusive", "forgotten", "orphan", "presence"),
        *("sent", "sink", "waker"),
    )

    def __init__(
        self,
        context: object = None,
        sink: deque[Ticket[Any]] | None = None,
        exclusive: bool = False,
        orphan: Callable[[A], None] | None = None,
        effect: Callable[[A], None] | None = None,
    ) -> None:
        self.done = False
        self.answer: A | Error | ConnectionLost | None = None
        self.waker: Waker | None = None
        self.sink = sink
        self.context = context
        self.exclusive = exclusive
        self.orphan = orphan
        self.effect = effect
        self.forgotten = False
        #: Whether the request was queued: then it reaches the peer unless the connection ends.
        self.sent = False
        #: Held while a thread waits, or will wait, for the answer.
        self.presence: Lock | None = None

    @property
    def present(self) -> bool:
        return self.presence is not None and self.presence.locked()

    def result(self) -> A:
        """Return the answer. Raise ErrorAnswer for an Error packet, ConnectionLost."""
        answer = self.answer
        if type(answer) is Error and answer.code != ErrorCode.ACK.value:
            raise ErrorAnswer.of(answer.code, answer.message)
        if isinstance(answer, ConnectionLost):
            raise ConnectionLost(str(answer))
        # The connection matched it to the request.
        return answer  # type: ignore[return-value]


class Channel:
    """One connection, shared by threads. ``name``: the peer's node id and address, for messages."""

    def __init__(self, host: ThreadHost, wire: Wire, handler: Handler, name: str, patience: float):
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
        # Set by a thread that found another one sending: that one may leave requests held.
        self._missed = False
        self._mutex = host.lock()
        # Tickets that a thread will wait for.
        self._awaited: set[Ticket[Any]] = set()
        # Changed with the mutex. The lead belongs to the thread that waits for that ticket.
        self._leader: Ticket[Any] | None = None
        self._followers: dict[Ticket[Any], None] = {}
        self._armed = False
        self._told = self._ended = False
        # Used by the leader.
        self._inbox = Inbox(self._connection)
        #: When the last bytes came.
        self.heard = host.now()
        #: Whether the connection ended because the peer was silent; or speaks another protocol, TLS or no
        #: TLS included.
        self.silent = self.stranger = False
        # When the leader looked at the clock last.
        self._now = self.heard
        # Whether a Ping has no answer; since when nothing moved; bytes that the peer's machine had then.
        self._pinged = False
        self._since: float | None = None
        self._taken = 0
        # The watcher's ticket, which is never done.
        self._watching: Ticket[Any] = Ticket()
        with self._mutex:
            # The watcher may serve the channel at once: a hangup and a sweep need no armed watch.
            self._watch = host.watch(wire, self)
            self._rest()

    # -- asking ----------------------------------------------------------------------------------

    def ask(
        self, message: Request[A], ticket: Ticket[A] | None = None, held: int = 0
    ) -> Ticket[A]:
        """Send a request. Raise ConnectionLost. The caller must wait for the ticket, or forget it.
        ``held``: so many requests may wait for the next one, which takes them along, for a thread that
        waits, or for :meth:`flush`.

        After any other exception, ``sent`` of the ticket tells whether the request was queued, and the
        ticket is forgotten.
        """
        if ticket is None:
            ticket = Ticket()
        try:
            self._awaited.add(ticket)
            if self._armed:
                self._stop_watching()
            broken = None
            with self._sending:
                if self._connection.closed:
                    raise ConnectionLost(f"{self.name}: {self.lost or 'closing'}")
                self._connection.ask(message, ticket, ticket)
                if self.lost is None and len(self._outgoing) > held:
                    try:
                        self._wire.send(self._outgoing)
                    except (OSError, HandshakeError) as e:
                        broken = _reason(e)
        except BaseException:
            self.forget(ticket)
            raise
        if broken is not None:
            self.close(broken)
        elif self._missed and self._outgoing:
            self._missed = False
            self._flush_left()
        return ticket

    def ask_many(self, messages: Sequence[Request[A]]) -> list[Ticket[A]]:
        """Send requests with one write, so that the peer is woken once. Return their tickets. Raise
        ConnectionLost. The caller must wait for each ticket, or forget it. After any exception all
        tickets are forgotten."""
        tickets: list[Ticket[A]] = [Ticket() for _ in messages]
        try:
            self._awaited.update(tickets)
            if self._armed:
                self._stop_watching()
            with self._sending:
                if self._connection.closed:
                    raise ConnectionLost(f"{self.name}: {self.lost or 'closing'}")
                self._connection.ask_many(list(zip(messages, tickets, strict=True)))
                broken = self._flush()
        except BaseException:
            for ticket in tickets:
                self.forget(ticket)
            raise
        if broken is not None:
            self.close(broken)
        return tickets

    def send(self, message: Message, flag: SentFlag | None = None) -> None:
        """Send a notification, and set ``flag``. Do nothing if the connection is lost or the flag is
        set."""
        with self._sending:
            if flag is None or not flag.sent:
                self._connection.send(message, None, flag)
            broken = self._flush()
        if broken is not None:
            self.close(broken)

    def flush(self) -> None:
        """Send the requests that are held."""
        if self._outgoing:
            self._flush_left()

    def call(
        self,
        message: Request[A],
        ticket: Ticket[A] | None = None,
        seconds: float | None = None,
    ) -> A:
        """Send a request and return its answer. Raise the errors of ask() and wait(); DeadlinePassed
        after ``seconds`` or a little later: then the caller may wait() for the ticket again."""
        if ticket is None:
            ticket = Ticket()
        ticket.presence = presence = self._presence()
        with presence:
            try:
                self.ask(message, ticket)
                self._wait(ticket, None, seconds)
            except BaseException:
                self.forget(ticket)
                raise
        return ticket.result()

    def _stop_watching(self) -> None:
        """Disarm the watcher: a thread waits for answers from now on."""
        with self._mutex:
            if self._armed:
                self._armed = False
                self._watch.disarm()

    def _flush(self) -> str | None:
        """Send what is queued. Return why the connection is broken, or None. Call with the send lock."""
        if self._outgoing and self.lost is None:
            try:
                self._wire.send(self._outgoing)
            except (OSError, HandshakeError) as e:
                return _reason(e)
        return None

    # -- waiting ---------------------------------------------------------------------------------

    def wait(self, ticket: Ticket[A], deadline: float | None = None) -> A:
        """Return the answer. Raise ErrorAnswer, ConnectionLost; DeadlinePassed at ``deadline`` or a
        little later: then the caller may wait for the ticket again."""
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
        """Return a lock for the ``with`` block in which an exclusive ticket is asked and held. It shows
        the other threads that the ticket has an owner."""
        ticket.presence = presence = self._presence()
        return presence

    def hold(
        self, ticket: Ticket[A], effect: Callable[[A], Result], deadline: float | None = None
    ) -> Result:
        """Wait for the answer of an exclusive ticket, and return ``effect(answer)``. Later messages take
        effect after it. ``effect`` must not wait on this channel. Raise the errors of wait()."""
        assert ticket.exclusive and ticket.present
        try:
            self._wait(ticket, deadline)
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
        """Give up a ticket: no thread will wait for it any more. Idempotent."""
        with self._mutex:
            ticket.forgotten = True
            self._awaited.discard(ticket)
            self._followers.pop(ticket, None)
            leads = self._leader is ticket
            if not leads:
                self._rest()
        if leads:
            self._hand_on()

    def _wait(
        self, ticket: Ticket[Any], deadline: float | None, seconds: float | None = None
    ) -> None:
        """Wait until the ticket is done. If it is exclusive, this thread then has the lead, unless the
        connection is lost. ``seconds``: from now to the deadline, for which the clock is read only where
        the wait is a long one, or the leader reads it anyway."""
        while True:
            waker = None
            with self._mutex:
                if ticket.done and not ticket.exclusive and self._leader is not ticket:
                    return
                leader = self._leader
                if leader is None or leader is ticket or not leader.present:
                    self._leader = ticket
                    if self._armed:
                        self._armed = False
                        self._watch.disarm()
                else:
                    ticket.waker = waker = self._host.waker()
                    self._followers[ticket] = None
            if waker is not None:
                waker.wait(LOOK_SECONDS)
                if deadline is None and seconds is not None:
                    deadline = self._host.now() + seconds
                if deadline is not None and not ticket.done and self._host.now() > deadline:
                    raise DeadlinePassed(f"no answer from {self.name}")
                continue
            if not ticket.done:
                next_leader = self._lead(ticket, deadline, seconds)
                if next_leader is ticket:
                    return
                self._leave(next_leader)
            elif ticket.exclusive and not isinstance(ticket.answer, ConnectionLost):
                return
            else:
                self._leave(None)  # the ticket was done when the lead came
            if ticket.done and (not ticket.exclusive or isinstance(ticket.answer, ConnectionLost)):
                return
            # The owner of an exclusive answer needs the lead, which may have been handed on.

    # -- leading: one thread at a time -----------------------------------------------------------

    def serve(self) -> None:
        """Deliver what has come, unless a thread leads. Called by the watcher when it is woken."""
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
        """Serve if it is not certain that a thread reads, or that the watcher will be woken; or if the
        peer is silent."""
        if not self._armed or self._leader is not None or self._left or self._quiet:
            self.serve()

    @property
    def _quiet(self) -> bool:
        return self._host.now() - self.heard > self._patience

    @property
    def _left(self) -> bool:
        """Whether an interrupted thread left work, of which no event tells, or requests are held."""
        return self._inbox.pending or bool(self._outgoing)

    def _lead(
        self, ticket: Ticket[Any], deadline: float | None, seconds: float | None = None
    ) -> Ticket[Any] | None:
        """Deliver until ``ticket`` is done; for the watcher's ticket, only what has come. Return the
        exclusive ticket whose owner must continue, if there is one. This thread keeps the lead."""
        self._now = self._host.now()
        if deadline is None and seconds is not None:
            deadline = self._now + seconds
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
            # Checked also while messages for other threads keep coming.
            if deadline is not None and self._now > deadline:
                raise DeadlinePassed(f"no answer from {self.name}")
            if not self._read(not watching):
                return None

    def _deliver(self) -> Ticket[Any] | None:
        """Deliver what has come, up to an answer that its owner must handle; return that ticket."""
        inbox = self._inbox
        try:
            while (inbox.portions or inbox.current is not None) and (received := inbox.first()):
                question = received.question
                if question is not None:
                    ticket: Ticket[Any] = question.context
                    if not ticket.done:
                        if ticket.effect is not None:
                            ticket.effect(received.message)
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
                    response = self._handler.notified(self, received.message)
                    if response is None:
                        inbox.drop()
                    else:
                        inbox.drop_with(self._outgoing, encode(received.message_id, response))
        except PeerError as e:
            self.stranger = isinstance(e, HandshakeError)
            with self._sending:
                self._connection.fail(e)
                self._flush()
            self.close(str(e))
        except ConnectionLost as e:
            self.close(str(e))
        return None

    def _flush_left(self) -> None:
        """Send what an interrupted thread did not send, what is held, and this thread's answers. If
        another thread is sending, it sends all, or looks again if it holds its own; do not wait for it,
        because the peer may wait for the leader."""
        if self._sending.locked():
            self._missed = True
            return
        with self._sending:
            broken = self._flush()
        if broken is not None:
            self.close(broken)

    def _read(self, wait: bool) -> bool:
        """Receive more bytes. Return False if none came and the caller does not wait."""
        if self.lost is not None:
            self.close(self.lost)
            return False
        portions = self._inbox.portions
        try:
            came = self._wire.receive(portions, wait)
        except (OSError, HandshakeError) as e:
            self.stranger = isinstance(e, HandshakeError)
            self.close(_reason(e))
            return True
        if came:
            self.heard = self._now = self._host.now()
            self._pinged, self._since = False, None
            if not portions[-1]:
                self.close("closed by the peer")
            return True
        self._now = self._host.now()
        if self._now - self.heard > self._patience:
            self._check_silence(self._now)
        return wait

    def _check_silence(self, now: float) -> None:
        """Send a Ping to a silent peer, or give it up. Call after a read that found nothing: bytes that
        came while this process was suspended count first."""
        taken, unsent = self._wire.flow()
        if self._since is None or (taken > self._taken and not self._pinged):
            self._since, self._taken = now, taken
        if now - self._since > self._patience:
            self.silent = True
            self.close(f"no answer, not even to Ping, for {now - self.heard:.0f} s")
        elif not (self._pinged or unsent or self._sending.locked()):
            # Nothing is on its way, so that this thread, which may be the watcher, does not block.
            self._pinged, self._since = True, now
            pong: Ticket[Pong] = Ticket()
            pong.forgotten = True
            with self._sending:
                if self.lost is None and not self._connection.closed:
                    self._connection.ask(Ping(), pong)
                    self._flush()

    def _complete(self, ticket: Ticket[Any]) -> None:
        """Mark a ticket as done. Idempotent."""
        with self._mutex:
            if ticket.sink is not None:
                ticket.sink.append(ticket)
            self._awaited.discard(ticket)
            if not ticket.exclusive and ticket.waker is not None:
                self._wake(ticket)
            ticket.done = True

    def _hand_on(self) -> None:
        """Deliver what has come, then hand on the lead."""
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
        """Wake a follower, which may get the lead and its answer before it runs. Call with the mutex."""
        self._followers.pop(follower, None)
        if follower.waker is not None:
            follower.waker.wake()
            follower.waker = None

    # -- the watcher -----------------------------------------------------------------------------

    def _rest(self) -> None:
        """Let the watcher read if no thread does or will; close a lost connection. Call with the
        mutex."""
        if self._leader is None and self.lost is not None:
            # No thread reads any more, and none writes, because the send lock was taken after the end.
            if self._connection.closed:
                self._wire.close()
        elif self._leader is None and not self._awaited and not self._armed:
            self._watch.arm()
            self._armed = True

    # -- the end ---------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Drop the connection in the child of a fork: it belongs to the parent, and no other thread
        runs."""
        self.lost = "the process forked"
        self._sending, self._mutex = self._host.lock(), self._host.lock()
        self._connection.close()
        self._wire.close()

    def close(self, reason: str = "closed") -> None:
        """End the connection and wake all threads. Any thread may call this.

        Idempotent: each call does what is not done yet.
        """
        with self._mutex:
            if self.lost is None:
                # Nothing is called between these lines.
                self.lost = reason
                self._armed = False
            if not self._ended:
                # With the mutex, like the close of the wire: a closed descriptor may belong to another
                # channel.
                self._watch.forget()
        if not self._ended:
            # This wakes the thread that holds the send lock.
            self._wire.end()
            if not self._told:
                self._told = True
                self._handler.lost(self, self.lost)
            # Threads that end the channel meanwhile wait here until no ticket is left.
            with self._sending:
                self._connection.closed = True
                for question in list(self._connection.questions.values()):
                    ticket: Ticket[Any] = question.context
                    if not ticket.done:
                        ticket.answer = ConnectionLost(f"{self.name}: {self.lost}")
                        self._complete(ticket)
                self._connection.close()
                self._ended = True
        with self._mutex:
            self._rest()


#: A ticket that is done: a thread that leads for it delivers what has come, and reads no more.
_DONE: Ticket[Any] = Ticket()
_DONE.done = True


def _reason(error: Exception) -> str:
    """Return why the connection is broken. Raise the error again if the handler of a signal raised it
    while the kernel waited (often TimeoutError)."""
    if isinstance(error, OSError):
        if error.errno is None:
            raise error
        return error.strerror or str(error)
    return str(error)
