"""The session of a client of the service port or the admin port, and the table of its commands."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from neo.transactor.debug import Debug
from neo.transactor.text import Command, CommandReader, SyntaxFault


class Usage(NamedTuple):
    """The least and the greatest number of arguments of a command, and its line of help."""

    least: int
    most: int
    text: str


HELP = {
    "subscribe": Usage(1, 1, "subscribe TID|off: receive all transactions from TID on, and status"),
    "post": Usage(
        2, 3, 'post RQNUM TID "DATA", or post RQNUM TID SIZE, DATA on the next line: a transaction'
    ),
    "repost": Usage(2, 2, "repost TID SID: try again with what was posted before"),
    "gettid": Usage(0, 0, "gettid: the last transaction in the local log"),
    "getstatus": Usage(0, 0, "getstatus: peers, own index, majority, log, transactions"),
    "gettspec": Usage(1, 1, "gettspec TID: a transaction of the log"),
    "authenticate": Usage(
        1, 1, 'authenticate "SECRET": first command, if a secret is configured; see the documentation'
    ),
    "quit": Usage(0, 0, "quit: close this connection"),
    "exit": Usage(0, 0, "exit: close this connection"),
    "terminate": Usage(0, 0, "terminate: end the transactor"),
    "help": Usage(0, 1, "help [COMMAND]: this text"),
    "start": Usage(0, 0, "start: serve application servers again"),
    "stop": Usage(0, 0, "stop: disconnect application servers, and serve none"),
    "reset_node": Usage(
        1, 1, 'reset_node "NAME": forget which journal a peer had; it may come back with another'
    ),
    "info": Usage(0, 0, "info: the present state"),
    "dump": Usage(0, 1, "dump [FILE]: all details, here or into a file of the debug folder"),
    "debugdump": Usage(0, 0, "debugdump: all details, into the debug file"),
    "debugfile": Usage(1, 1, "debugfile FILE: write debug messages there, in the debug folder"),
    "debugmask": Usage(0, 1, "debugmask [all|none|+FLAG|-FLAG]: which debug messages are written"),
    "debug": Usage(0, 1, "debug [on|off]: debug messages at all"),
    "speedtest": Usage(1, 1, "speedtest SIZE|off: random transactions of SIZE bytes, without end"),
    "peers": Usage(0, 0, "peers: members, their addresses, and how they are reached"),
    "add_peer": Usage(
        3, 3, 'add_peer "NAME" HOST PORT: a new member; start it with --join afterwards'
    ),
    "remove_peer": Usage(1, 1, 'remove_peer "NAME": it is not a member any more'),
    "move_peer": Usage(3, 3, 'move_peer "NAME" HOST PORT: it has another address'),
}
#: Commands that the service port accepts. All others belong to the admin port.
SERVICE = frozenset(
    "subscribe post repost gettid getstatus gettspec authenticate quit exit help".split()
)


def check(command: Command, admin: bool) -> None:
    """Check that the port has this command, with this number of arguments. Raises SyntaxFault."""
    usage = HELP.get(command.word)
    if usage is None:
        raise SyntaxFault(f"unknown command {command.word[:40]!r}; see help")
    if not admin and command.word not in SERVICE:
        raise SyntaxFault(f"{command.word} is a command of the admin port")
    if not usage.least <= len(command.arguments) <= usage.most:
        raise SyntaxFault(f"{command.word} has {len(command.arguments)} arguments; {usage.text}")


class Client(Protocol):
    """A connection, as the daemon provides it."""

    def write(self, data: bytes) -> None: ...

    def backlog(self) -> int:
        """Return the number of bytes that were written but not sent yet."""

    def close(self) -> None:
        """Close the connection after all data is sent."""


class Commands(Protocol):
    """What a session needs of the service."""

    debug: Debug

    def execute(self, session: Session, command: Command) -> None:
        """Execute a command. Raises SyntaxFault."""

    def forget(self, session: Session) -> None:
        """Forget a session whose connection is lost."""


class Session:
    """One connection: bytes in, bytes out. ``trusted``: the client has authenticated, or need not."""

    def __init__(
        self,
        service: Commands,
        client: Client,
        admin: bool,
        peer: str,
        challenge: str | None,
        trusted: bool,
    ) -> None:
        self.client = client
        self.admin = admin
        self.peer = peer
        #: The challenge that the client must answer with the secret of operators; None: no challenge.
        self.challenge = challenge
        #: The next transaction to send; None: not subscribed.
        self.subscribed: int | None = None
        self.flags: tuple[bool, bool] | None = None
        self.closed = False
        #: Number of posts without an answer yet; after ``quit`` no further command is read.
        self.unanswered = 0
        self.quitting = False
        self.trusted = trusted
        #: Ticks since the client sent something; whether it was pinged since.
        self.idle = 0
        self.pinged = False
        self._service = service
        self._reader = CommandReader(self.trusted)

    def trust(self) -> None:
        """Accept long lines and data: the client has authenticated."""
        self.trusted = self._reader.trusted = True

    def receive(self, data: bytes) -> None:
        self.idle, self.pinged = 0, False
        self._reader.feed(data)
        while not (self.closed or self.quitting):
            try:
                command = self._reader.next()
                if command is None:
                    return
                self._service.debug("se_requests", f"{self.peer}: {command.word}")
                self._service.execute(self, command)
            except SyntaxFault as e:
                self.fail(str(e))

    def fail(self, text: str) -> None:
        """Answer with an error. Close the connection, unless an operator made a mistake in a command.

        An application server might take the next response for that of another command. A first word that
        is no command indicates another protocol, such as HTTP from a browser.
        """
        self.respond(f"error: {text}")
        if not self.admin or not self.trusted or self._reader.word not in HELP:
            self.close()

    def respond(self, line: str) -> None:
        if not self.closed:
            self.client.write(line.encode() + b"\n")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.client.close()

    def answered(self) -> None:
        self.unanswered -= 1
        if self.quitting:
            self.quit()

    def quit(self) -> None:
        """Close when all posts are answered."""
        self.quitting = True
        if self.unanswered == 0:
            self.close()

    def lost(self) -> None:
        """Close the session after its connection was lost."""
        self.closed = True
        self._service.forget(self)
