"""Service and admin port: what application servers and operators ask of a node.

A session is a connection; it is given bytes and gives bytes. Several application servers share the node
fairly: of those who were turned away from a transaction, the one who waits longest has the first turn in
the next one, for a short while.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple, Protocol

from neo.transactor.admin import HELP, Admin, check
from neo.transactor.debug import Debug
from neo.transactor.messages import Entry, Kind, Refusal, Sid, Spec
from neo.transactor.node import Node
from neo.transactor.text import LATER, Command, CommandReader, SyntaxFault, number, response, sid

#: Subscribers that do not read are fed no further than this.
FEED_BYTES = 256 * 1024
#: Transactions read from the log at once for a subscriber.
FEED_COUNT = 100
#: Application servers of one node; the page thinks of one.
SESSIONS_MAX = 1000
#: Strangers at the admin port, and ticks within which a client must tell the secret: ten seconds.
STRANGERS_MAX = 20
STRANGER_TICKS = 400
#: For so many ticks the next transaction is kept for those who were turned away from the last.
TURN_TICKS = 4


#: Tries to post, and passes the outcome on.
Post = Callable[[Callable[[Sid | Refusal], None]], None]


class Patient(NamedTuple):
    """A post that waits whether those whose turn it is will post."""

    post: Post
    #: Of the answer.
    head: str
    tid: int


class Client(Protocol):
    """A connection, as its shell shows it."""

    def write(self, data: bytes) -> None: ...

    def backlog(self) -> int:
        """Bytes written that were not sent yet."""

    def close(self) -> None:
        """When everything written is sent."""


class Log(Protocol):
    def read(self, tid: int, count: int, size: int) -> list[Spec]: ...


class Session:
    def __init__(
        self, service: Service, client: Client, admin: bool, peer: str, challenge: str | None
    ) -> None:
        self.client = client
        self.admin = admin
        self.peer = peer
        #: What the client has to answer with the secret of operators; None where it need not.
        self.challenge = challenge
        #: The next transaction to send, if subscribed.
        self.subscribed: int | None = None
        self.flags: tuple[bool, bool] | None = None
        self.closed = False
        #: Answers to posts that are still to come; no command after quit counts.
        self.owed = 0
        self.quits = False
        self.trusted = challenge is None and (admin or not service.secret)
        #: Ticks since the client said something; since it was asked to.
        self.idle = 0
        self.pinged = False
        self._service = service
        self._reader = CommandReader(self.trusted)

    def trust(self) -> None:
        """The client has told the secret."""
        self.trusted = self._reader.trusted = True

    def receive(self, data: bytes) -> None:
        self.idle, self.pinged = 0, False
        self._reader.feed(data)
        while not (self.closed or self.quits or self._run()):
            pass

    def _run(self) -> bool:
        """Execute what is there; False after an error, when there may be more."""
        try:
            for command in self._reader.commands():
                self._service.debug("se_requests", f"{self.peer}: {command.word}")
                self._service.execute(self, command)
                if self.closed or self.quits:
                    break
        except SyntaxFault as e:
            self.fail(str(e))
            return False
        return True

    def fail(self, text: str) -> None:
        """Answer with an error, and close the connection unless an operator made a mistake in a command.

        Application servers might mistake what comes next for something else. What begins with a line that
        is not a command speaks another protocol, such as the HTTP of a web page.
        """
        self.say(f"error: {text}")
        if not self.admin or not self.trusted or self._reader.word not in HELP:
            self.close()

    def say(self, line: str) -> None:
        if not self.closed:
            self.client.write(line.encode() + b"\n")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.client.close()

    def answered(self) -> None:
        self.owed -= 1
        if self.quits:
            self.quit()

    def quit(self) -> None:
        """Close when all posts are answered."""
        self.quits = True
        if self.owed == 0:
            self.close()

    def lost(self) -> None:
        """The connection is gone."""
        self.closed = True
        self._service.forget(self)


class Service:
    """All sessions of a node. ``keepalive`` is in ticks, 0 for never."""

    def __init__(
        self,
        node: Node,
        log: Log,
        admin: Admin,
        debug: Debug,
        secret: str = "",
        keepalive: int = 0,
        admin_secret: str = "",
    ) -> None:
        self.node = node
        self.debug = debug
        self.secret = secret
        self._admin_secret = admin_secret
        self.serving = True
        self.sessions: list[Session] = []
        self._log = log
        self._admin = admin
        self._keepalive = keepalive
        #: Who was turned away and did not post since, the longest first; until when that counts.
        self._turns: dict[Session, None] = {}
        self._turn_ends = 0
        self._patient: dict[Session, Patient] = {}
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

    # -- for the shell -----------------------------------------------------------------------------

    def open(
        self, client: Client, admin: bool, peer: str, challenge: str | None = None
    ) -> Session | None:
        """Serve a client that has connected; None if it is not served now.

        ``challenge``: random digits that a client of the admin port has to answer with the secret; None
        if the system has checked already who it is.
        """
        reason = self._refusal(admin, challenge)
        if reason:
            client.write(f"error: {reason}{LATER}\n".encode())
            client.close()
            return None
        self.debug("se_connections", f"{peer} connected")
        session = Session(self, client, admin, peer, challenge)
        self.sessions.append(session)
        if challenge is not None:
            session.say(f"challenge {challenge}")
        return session

    def _refusal(self, admin: bool, challenge: str | None) -> str:
        """Why a client is not served now; empty if it is."""
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
        self._patient.pop(session, None)

    def decided(self, entries: list[Entry]) -> None:
        """Transactions are durable: subscribers get them, and it is the turn of who was turned away."""
        self._turn_ends = self.node.engine.now + TURN_TICKS
        for session in list(self.sessions):
            self.feed(session)
        self._let_patient_post()
        if not self._turns:
            self._admin.post()

    def feed(self, session: Session) -> None:
        """Send a subscriber what it lacks, as far as it reads."""
        while session.subscribed is not None and not session.closed:
            if session.subscribed > self.node.tlog_tid or session.client.backlog() > FEED_BYTES:
                return
            count = min(FEED_COUNT, self.node.tlog_tid + 1 - session.subscribed)
            specs = self._log.read(session.subscribed, count, FEED_BYTES)
            if not specs:
                session.say(f"tlog_tspec_not_available {session.subscribed}")
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
            # Who did not even try loses its place.
            self._turns = {each: None for each in self._turns if each in self._patient}
            self._let_patient_post()

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
            session.say("ping")

    # -- commands ----------------------------------------------------------------------------------

    def execute(self, session: Session, command: Command) -> None:
        """Raises SyntaxFault."""
        if command.word == "pong" and not command.arguments:
            return  # not a command: that it came was noted
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
        expected = self.secret
        if session.challenge is not None:
            expected = response(self._admin_secret, session.challenge)
        if not hmac.compare_digest(secret, expected.encode()):
            raise SyntaxFault("the secret is wrong")
        session.trust()
        session.say("authenticated")

    def _serve(self, session: Session, serving: bool) -> None:
        self.serving = serving
        session.say("started" if serving else "stopped")
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
        session.say(
            f"status {len(nodes)} {iself} {'majalive' if alive else 'majnotalive'}"
            f" {'uptodate' if uptodate else 'backlag'} {self.node.tlog_tid} {engine.cluster_tid}"
            f" {'started' if engine.started else 'not_started'}"
        )

    def _gettid(self, session: Session, command: Command) -> None:
        session.say(f"tlog_tid {self.node.tlog_tid}")

    def _gettspec(self, session: Session, command: Command) -> None:
        (word,) = command.arguments
        tid = number(word)
        if tid > self.node.tlog_tid:
            session.say(f"tlog_tid {self.node.tlog_tid}")
            return
        specs = self._log.read(tid, 1, 1)
        if specs:
            session.client.write(tspec(tid, specs[0]))
        else:
            session.say(f"tlog_tspec_not_available {tid}")

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
        """Post now; or, when it is somebody else's turn, when that one has posted or let it pass."""
        if session in self._patient:
            session.say(f"{head} {Refusal.OTHER}")  # one post of it waits already
            return
        session.owed += 1
        patient = Patient(post, head, tid)
        if self._may_post(session, tid):
            self._act(session, patient)
            self._let_patient_post()
        else:
            self._patient[session] = patient

    def _may_post(self, session: Session, tid: int) -> bool:
        """False while this transaction is kept for somebody else who was turned away."""
        engine = self.node.engine
        reserved = bool(self._turns) and engine.now < self._turn_ends and not engine.started
        return tid != engine.tid or not reserved or next(iter(self._turns)) is session

    def _act(self, session: Session, patient: Patient) -> None:
        refused = False

        def answer(result: Sid | Refusal) -> None:
            nonlocal refused
            if isinstance(result, Sid):
                session.say(f"{patient.head} posted {result} {patient.tid}")
            else:
                refused = True
                if result in (Refusal.OTHER, Refusal.STARTED):
                    self._turns.setdefault(session)
                session.say(f"{patient.head} {result}")
            session.answered()

        patient.post(answer)
        if not refused:  # a refusal is told at once, success when it is on disk
            self._turns.pop(session, None)

    def _let_patient_post(self) -> None:
        """Those who may by now; who waits longest first."""
        while may := [each for each, it in self._patient.items() if self._may_post(each, it.tid)]:
            places = {session: place for place, session in enumerate(self._turns)}
            for session in sorted(may, key=lambda each: places.get(each, len(places))):
                self._act(session, self._patient.pop(session))


def tspec(tid: int, spec: Spec) -> bytes:
    """What the transactor logs for itself has no data for application servers."""
    data = spec.data if spec.kind == Kind.DATA else b""
    return b"tlog_tspec tid %d sid %s size %d\n%s\n" % (
        tid,
        str(spec.sid).encode(),
        len(data),
        data,
    )
