"""A transactor, and clients of its two ports."""

from __future__ import annotations

from neo.transactor.admin import Admin
from neo.transactor.debug import Debug
from neo.transactor.durable import Begun, JournalState, empty_log
from neo.transactor.engine import Engine, Timing
from neo.transactor.members import first_members
from neo.transactor.messages import Decide, Entry, Message, Record, Spec
from neo.transactor.node import Node
from neo.transactor.service import Service
from neo.transactor.session import Session


class Host:
    """A node alone, or with two silent peers. Its disk is synced when the test says so."""

    def __init__(
        self,
        count: int = 1,
        secret: str = "",
        keepalive: int = 0,
        speedtest: bool = True,
        name: str = "n0",
        admin_secret: str = "",
        begun: Begun = Begun.FRESH,
    ) -> None:
        self.specs: list[Spec] = []
        self.sent: list[tuple[str, Message]] = []
        self.auto = True
        self.asked = False
        self.ended = False
        self.debug = Debug()
        self.lines: list[str] = []
        genesis = first_members((f"n{i}", ("host", i)) for i in range(count))
        durable = JournalState(1, 1 << 32).durable(begun, empty_log(genesis))
        self.engine = Engine(name, durable, self, Timing())
        self.node = Node(self.engine, self)
        self.admin = Admin(self.node, self, self.debug, speedtest)
        self.service = Service(self.node, self, self.admin, self.debug, secret, keepalive, admin_secret)

    # hosts of the node and of the admin commands, LogReader

    def append(self, records: list[Record]) -> None:
        self.specs += [record.spec for record in records if isinstance(record, Entry)]

    def sync(self) -> None:
        self.asked = True

    def run(self) -> None:
        while self.asked:
            self.asked = False
            self.node.synced()

    def transmit(self, peer: str, messages: list[Message]) -> None:
        self.sent += [(peer, message) for message in messages]

    def decided(self, entries: list[Entry]) -> None:
        self.service.decided(entries)

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        return self.specs[tid - 1 : tid - 1 + count] if tid > 0 else []

    def terminate(self) -> None:
        self.ended = True

    def debug_file(self, name: str | None) -> None:
        if name == "full":
            raise OSError(28, "No space left on device", name)
        self.debug.write = self.lines.append

    def debug_off(self) -> None:
        self.debug.write = None

    def dump(self) -> str:
        return "\n".join(self.admin.info())

    def write_dump(self, name: str) -> None:
        self.lines.append(name)

    def links(self) -> dict[str, str]:
        return {"n1": "udp"}

    def random_bytes(self, size: int) -> bytes:
        return bytes(size)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.node.tick()
            self.service.tick()
            self.admin.post()
            self.run()

    def confirm(self) -> bytes:
        """Let the others decide the transaction that this node wants. Return its data."""
        mine = self.engine.mine
        assert mine is not None
        self.node.receive("n1", [Decide(self.engine.tid, mine.sid)])
        self.run()
        return mine.data

    def client(self, admin: bool = False, challenge: str | None = None) -> Client:
        return Client(self, admin, challenge)


class Client:
    def __init__(self, host: Host, admin: bool, challenge: str | None = None) -> None:
        self.host = host
        self.output = b""
        self.closed = False
        self.stuck = 0
        session = host.service.open(self, admin, "client", challenge)
        assert session is not None
        self.session: Session = session

    def write(self, data: bytes) -> None:
        self.output += data

    def backlog(self) -> int:
        return self.stuck

    def close(self) -> None:
        self.closed = True

    def say(self, data: bytes) -> bytes:
        """Send bytes, and return the response."""
        self.session.receive(data)
        if self.host.auto:
            self.host.run()
        return self.got()

    def got(self) -> bytes:
        output, self.output = self.output, b""
        return output
