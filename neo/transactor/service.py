"""Service and admin port: commands of application servers, subscriptions, and turns.

The application servers of a node share it fairly. If
several were refused in one transaction, the one that has waited longest posts first in the next one,
within a short time.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple

from neo.transactor.admin import Admin
from neo.transactor.catchup import LogReader
from neo.transactor.debug import Debug
from neo.transactor.messages import Entry, Kind, Refusal, Sid, Spec
from neo.transactor.node import Node
from neo.transactor.session import Client, Session, check
from neo.transactor.text import LATER, Command, SyntaxFault, number, response, sid

#: Send buffer at which a subscriber gets no more transactions until it reads.
FEED_BYTES = 256 * 1024
#: Transactions read from the log at once for a subscriber.
FEED_COUNT = 100
#: Maximum number of application servers of one node.
SESSIONS_MAX = 1000
#: Maximum of unauthenticated clients of the admin port, and ticks for each to authenticate (10 s).
STRANGERS_MAX = 20
STRANGER_TICKS = 400
#: Ticks for which the next transaction is reserved for sessions that were refused in the last one.
TURN_TICKS = 4


#: Posts, and passes the outcome to its argument.
Post = Callable[[Callable[[Sid | Refusal], None]], None]


class DeferredPost(NamedTuple):
    """A post that waits until the sessions before it have posted, or their time is over."""

    post: Post
    #: The first words of the answer.
    head: str
    tid: int


class Service:
    """All sessions of a node. ``keepalive``: in ticks, 0 for never."""

    def __init__(
        self,
        node: Node,
        log: LogReader,
        admin: Admin,
        debug: Debug,
        secret: str = "",
        keepalive: int = 0,
        admin_secret: str = "",
    ) -> None:
        self.node = node
        self.debug = debug
        self._secret = secret
        self._admin_secret = admin_secret
        self.serving = True
        self.sessions: list[Session] = []
        self._log = log
        self._admin = admin
        self._keepalive = keepalive
        #: Sessions that were refused and have not posted since, longest first; when this expires.
        self._turns: dict[Session, None] = {}
        self._turn_ends = 0
        self._deferred: dict[Session, DeferredPost] = {}
        self._commands: dict[str, Callable[[Session, Command], None]] = {
            "subscribe": self._subscribe,
            "post": self._post,
            "repost": self._repost,
            "gettid": self._gettid,
            "getstatus": lambda session, command: self._status(session),
            "gettspec": self._gettspec,
            "authenticate": self._authenticate,
            "quit": lambda session, command: session.quit(),
            "exit": lambda session, command: session.quit(),
            "start": lambda session, command: self._serve(session, True),
            "stop": lambda session, command: self._serve(session, False),
        }

    # -- for the daemon ----------------------------------------------------------------------------

    def open(
        self, client: Client, admin: bool, peer: str, challenge: str | None = None
    ) -> Session | None:
        """Open a session for a client that has connected; return None if it is refused.

        ``challenge``: random digits that a client of the admin port must answer with the secret; None if
        the operating system has authenticated it.
        """
        reason = self._refusal(admin, challenge)
        if reason:
            client.write(f"error: {reason}{LATER}\n".encode())
            client.close()
            return None
        self.debug("se_connections", f"{peer} connected")
        trusted = challenge is None and (admin or not self._secret)
        session = Session(self, client, admin, peer, challenge, trusted)
        self.sessions.append(session)
        if challenge is not None:
            session.respond(f"challenge {challenge}")
        return session

    def _refusal(self, admin: bool, challenge: str | None) -> str:
        """Return why a client is refused; an empty text if it is not."""
        if not admin:
            full = len(self.sessions) >= SESSIONS_MAX
            return "stopped" if not self.serving else "too many connections" if full else ""
        if challenge is None:
            return ""
        strangers = sum(each.admin and not each.trusted for each in self.sessions)
        return "too many connections" if strangers >= STRANGERS_MAX else ""

    def forget(self, session: Session) -> None:
        self.debug("se_connections", f"{session.peer} disconnected")
        if session in self.sessions:
            self.sessions.remove(session)
        self._turns.pop(session, None)
        self._deferred.pop(session, None)

    def decided(self, entries: list[Entry]) -> None:
        """Send durable transactions to subscribers, and begin the turns of refused sessions."""
        self._turn_ends = self.node.engine.now + TURN_TICKS
        for session in list(self.sessions):
            self.feed(session)
        self._post_deferred()
        if not self._turns:
            self._admin.post()

    def feed(self, session: Session) -> None:
        """Send a subscriber the transactions that it lacks, as far as its send buffer permits."""
        while session.subscribed is not None and not session.closed:
            if session.subscribed > self.node.tlog_tid or session.client.backlog() > FEED_BYTES:
                return
            count = min(FEED_COUNT, self.node.tlog_tid + 1 - session.subscribed)
            specs = self._log.read(session.subscribed, count, FEED_BYTES)
            if not specs:
                session.respond(f"tlog_tspec_not_available {session.subscribed}")
                session.subscribed += 1
            for spec in specs:
                if self.debug.shows("se_tasks"):
                    self.debug("se_tasks", f"transaction {session.subscribed} to {session.peer}")
                session.client.write(tspec(session.subscribed, spec))
                session.subscribed += 1

    def tick(self) -> None:
        flags = self._flags()
        for session in list(self.sessions):
            if session.subscribed is not None and session.flags != flags:
                self._status(session)
            self._keep_alive(session)
        if self.node.engine.now >= self._turn_ends and not self.node.engine.started:
            # A session that did not post in its turn loses it.
            self._turns = {each: None for each in self._turns if each in self._deferred}
            self._post_deferred()

    def _keep_alive(self, session: Session) -> None:
        session.idle += 1
        if session.admin and not session.trusted and session.idle >= STRANGER_TICKS:
            session.close()
            self.forget(session)
        if session.admin or not self._keepalive or session.idle < self._keepalive:
            return
        if session.pinged:
            session.close()
            self.forget(session)
        else:
            session.idle, session.pinged = 0, True
            session.respond("ping")

    # -- commands ----------------------------------------------------------------------------------

    def execute(self, session: Session, command: Command) -> None:
        """Execute a command. Raises SyntaxFault."""
        if command.word == "pong" and not command.arguments:
            return  # not a command: receive() has noted it
        if not session.trusted and command.word not in ("authenticate", "quit", "exit"):
            raise SyntaxFault('authenticate "secret" must be the first command')
        check(command, session.admin)
        handler = self._commands.get(command.word)
        if handler is not None:
            handler(session, command)
        else:
            self._admin.execute(session, command)

    def _authenticate(self, session: Session, command: Command) -> None:
        (secret,) = command.arguments
        expected = self._secret
        if session.challenge is not None:
            expected = response(self._admin_secret, session.challenge)
        if not hmac.compare_digest(secret, expected.encode()):
            raise SyntaxFault("the secret is wrong")
        session.trust()
        session.respond("authenticated")

    def _serve(self, session: Session, serving: bool) -> None:
        self.serving = serving
        session.respond("started" if serving else "stopped")
        if not serving:
            for other in list(self.sessions):
                if not other.admin:
                    other.close()
                    self.forget(other)

    def _subscribe(self, session: Session, command: Command) -> None:
        (word,) = command.arguments
        if word == b"off":
            session.subscribed = None
            return
        session.subscribed = max(1, number(word))
        self._status(session)
        self.feed(session)

    def _flags(self) -> tuple[bool, bool]:
        engine = self.node.engine
        uptodate = engine.cluster_tid == self.node.tlog_tid + 1 and not engine.learns
        return engine.majority_alive, uptodate

    def _status(self, session: Session) -> None:
        engine = self.node.engine
        session.flags = self._flags()
        alive, uptodate = session.flags
        nodes = engine.members.nodes
        iself = nodes.index(engine.me) if engine.me in nodes else -1
        session.respond(
            f"status {len(nodes)} {iself} {'majalive' if alive else 'majnotalive'}"
            f" {'uptodate' if uptodate else 'backlag'} {self.node.tlog_tid} {engine.cluster_tid}"
            f" {'started' if engine.started else 'not_started'}"
        )

    def _gettid(self, session: Session, command: Command) -> None:
        session.respond(f"tlog_tid {self.node.tlog_tid}")

    def _gettspec(self, session: Session, command: Command) -> None:
        (word,) = command.arguments
        tid = number(word)
        if tid > self.node.tlog_tid:
            session.respond(f"tlog_tid {self.node.tlog_tid}")
            return
        specs = self._log.read(tid, 1, 1)
        if specs:
            session.client.write(tspec(tid, specs[0]))
        else:
            session.respond(f"tlog_tspec_not_available {tid}")

    def _post(self, session: Session, command: Command) -> None:
        first, second, *rest = command.arguments
        data = command.data
        if data is None:
            if not rest:
                raise SyntaxFault("data, or its size, is missing; see help post")
            data = rest[0]
        request, tid = number(first, 32), number(second)
        head = f"post_response {request}"
        self._take_turn(session, lambda then: self.node.post(tid, data, then), head, tid)

    def _repost(self, session: Session, command: Command) -> None:
        first, second = command.arguments
        tid, which = number(first), sid(second)
        head = f"repost_response {tid} {which}"
        self._take_turn(session, lambda then: self.node.repost(tid, which, then), head, tid)

    # -- turns of application servers --------------------------------------------------------------

    def _take_turn(self, session: Session, post: Post, head: str, tid: int) -> None:
        """Post now; or, in the turn of another session, when that turn is over."""
        if session in self._deferred:
            session.respond(f"{head} {Refusal.OTHER}")  # one post of the session waits already
            return
        session.unanswered += 1
        deferred = DeferredPost(post, head, tid)
        if self._may_post(session, tid):
            self._act(session, deferred)
            self._post_deferred()
        else:
            self._deferred[session] = deferred

    def _may_post(self, session: Session, tid: int) -> bool:
        """Return False while this transaction is reserved for another session."""
        engine = self.node.engine
        reserved = bool(self._turns) and engine.now < self._turn_ends and not engine.started
        return tid != engine.tid or not reserved or next(iter(self._turns)) is session

    def _act(self, session: Session, deferred: DeferredPost) -> None:
        refused = False

        def answer(result: Sid | Refusal) -> None:
            nonlocal refused
            if isinstance(result, Sid):
                session.respond(f"{deferred.head} posted {result} {deferred.tid}")
            else:
                refused = True
                if result in (Refusal.OTHER, Refusal.STARTED):
                    self._turns.setdefault(session)
                session.respond(f"{deferred.head} {result}")
            session.answered()

        deferred.post(answer)
        if not refused:  # a refusal is answered at once, a success when it is durable
            self._turns.pop(session, None)

    def _post_deferred(self) -> None:
        """Execute the posts whose turn has come; the session that has waited longest is first."""
        while may := [each for each, it in self._deferred.items() if self._may_post(each, it.tid)]:
            places = {session: place for place, session in enumerate(self._turns)}
            for session in sorted(may, key=lambda each: places.get(each, len(places))):
                self._act(session, self._deferred.pop(session))


def tspec(tid: int, spec: Spec) -> bytes:
    """Format a transaction. Those of the transactor itself have no data for application servers."""
    data = spec.data if spec.kind == Kind.DATA else b""
    which = str(spec.sid).encode()
    return b"tlog_tspec tid %d sid %s size %d\n%s\n" % (tid, which, len(data), data)
