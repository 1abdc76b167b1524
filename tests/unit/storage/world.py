"""A storage node without process or sockets: real core, real database, peers that are test code."""

from __future__ import annotations

import queue
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from msgspec.structs import replace

from neo.net.connection import Connection
from neo.net.fault_sites import FaultSite
from neo.node.meter import Meter
from neo.node.peer import Peer
from neo.node.tracing import Traces
from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import PeerError
from neo.protocol.packets import (
    FEATURE_BLOBS,
    AcceptIdentification,
    Address,
    CellRow,
    Error,
    Message,
    NodeRow,
    NotifyNodeInformation,
    Ping,
    Pong,
    Request,
    RequestIdentification,
    SendPartitionTable,
    StartOperation,
)
from neo.storage.backend.api import BackendFailure
from neo.storage.backend.factory import make_backend
from neo.storage.blobs.contents import open_disk
from neo.storage.blobs.folder import ContentFolder
from neo.storage.database import Refusals
from neo.storage.node import NodeSettings, StorageNode
from neo.topology.masters import MasterCandidates
from tests.support.patience import Deadline

MASTER: Address = ("127.0.0.1", 1000)
STORAGE: Address = ("127.0.0.1", 2000)
M1, C1, C2 = -0x0FFFFFFF, -0x1FFFFFFF, -0x1FFFFFFE
UP, OUT, DISCARDED = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.DISCARDED

T = TypeVar("T")


class _Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when, self.callback = when, callback

    def cancel(self) -> None:
        self.callback = lambda: None


class FakeHost:
    """The clock stands still unless a test moves it; threads are real, those of the backend."""

    def __init__(self) -> None:
        self.random = Random(0)
        self.meter: Meter | None = None
        self.traces: Traces | None = None
        self.now = 1000.0
        self.dialed: list[Peer] = []
        self.exit_code: int | None = None
        self.restarts = 0
        self.reopened = 0
        self._timers: list[_Timer] = []
        self._calls: queue.Queue[tuple[Callable[..., None], tuple[object, ...]]] = queue.Queue()

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(self.now + delay, callback)
        self._timers.append(timer)
        return timer

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        self._calls.put((callback, args))
        return None

    def dial(self, peer: Peer) -> None:
        self.dialed.append(peer)

    def reopen_logs(self) -> None:
        self.reopened += 1

    def fault(self, site: FaultSite) -> bool:
        return False

    def stop(self, code: int) -> None:
        self.exit_code = code

    def restart(self, why: str) -> None:
        self.restarts += 1

    def renew(self) -> None:
        self.stop(0)

    shared = False

    def healthy(self) -> None:
        pass

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self._timers if timer.when <= self.now]
        self._timers = [timer for timer in self._timers if timer.when > self.now]
        for timer in due:
            timer.callback()

    def run_calls(self, timeout: float = 0.0) -> bool:
        """Run what threads asked for; False if nothing came in this time."""
        try:
            callback, args = (
                self._calls.get(timeout=timeout) if timeout else self._calls.get_nowait()
            )
        except queue.Empty:
            return False
        callback(*args)
        return True


class End:
    """The other end of a connection of the node; also the link of the node's peer."""

    def __init__(self, world: World, peer: Peer) -> None:
        self.world = world
        self.peer = peer
        self.connection = Connection(server=False)
        self.inbox: list[tuple[int | None, Any]] = []
        self.closed = False
        self.unsent = 0
        self.paused = False
        self.waiting = False  # to be accepted, and says so when it is asked
        self.complaint = ""  # an Error of the node that answers nothing
        #: What it answers without the test, by the type of the question.
        self.by_itself: dict[type[Message], Message] = {}
        peer.link = self
        peer.write_outgoing()

    def write(self, data: bytes) -> None:
        try:
            for message_id, message, question in self.connection.receive(data):
                if question is not None:
                    self.waiting = False
                    question.context(message)
                elif isinstance(message, Ping) and self.waiting:
                    self.connection.answer(message_id, Pong())
                    self._deliver()
                elif (known := self.by_itself.get(type(message))) is not None:
                    self.connection.answer(message_id, known)
                    self._deliver()
                else:
                    self.inbox.append((message_id, message))
        except PeerError as e:
            self.complaint = str(e)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def _deliver(self) -> None:
        self.peer.received(self.connection.take_outgoing())

    def send(self, message: Message, message_id: int | None = None) -> None:
        """``message_id``: that of the question of which this is a row of the answer."""
        self.connection.send(message, message_id)
        self._deliver()

    def answer(self, message_id: int, message: Message) -> None:
        self.connection.answer(message_id, message)
        self._deliver()

    def ask_later(self, message: Request[Any]) -> list[Any]:
        """A list that will have the answer."""
        answers: list[Any] = []
        self.connection.ask(message, answers.append)
        self._deliver()
        return answers

    def ask(self, message: Request[Any]) -> Any:
        answers = self.ask_later(message)
        self.world.wait(lambda: bool(answers), f"no answer to {message}")
        return answers[0]

    def take(self, kind: type[T]) -> T:
        """The next notification or request from the node, which must be of this kind."""
        self.world.wait(lambda: bool(self.inbox), f"no {kind.__name__}")
        _, message = self.inbox.pop(0)
        assert isinstance(message, kind), message
        return message

    def disconnect(self) -> None:
        self.peer.lost("closed by the peer")


class World:
    """One storage node S1 on a database, its master and its clients."""

    def __init__(
        self,
        database: str,
        cluster: str = "test",
        is_clone: bool = False,
        adapter: str = "SQLite",
        blob_dir: str | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self.host = FakeHost()
        self.backend: Any = make_backend(
            adapter, database, None, self.host.from_thread, self._failed
        )
        self.backend.open()
        self.folder = ContentFolder(blob_dir, self.host.from_thread) if blob_dir else None
        #: What the node announces to others because of the folder.
        self.blobs = [FEATURE_BLOBS] if blob_dir else []
        try:
            open_disk(self.folder, self.backend)
        except BackendFailure:
            self.backend.close()
            raise
        self.remembered: list[list[Address]] = []
        self.core = StorageNode(
            self.host,
            NodeSettings(cluster, STORAGE, ("host", "disk"), is_clone=is_clone),
            MasterCandidates([MASTER]),
            self.backend,
            self.folder,
            self.remembered.append,
            refusals=refusals,
        )
        self.core.start()
        self.timestamp = 1.0
        self.ids = 0

    def _failed(self, failure: Exception) -> None:
        self.core.fail(failure)

    def close(self) -> None:
        self.core.stop(0)

    def wait(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = Deadline()
        while not condition():
            assert not deadline.passed(), complaint
            self.host.advance(0)
            if self.host.run_calls(timeout=0.01):
                self.core.flush()

    def settle(self) -> None:
        """Everything written until now is durable and was answered."""
        done: list[bool] = []
        self.backend.engine.stored(lambda: done.append(True))
        self.wait(lambda: bool(done), "the disk does not sync")
        while self.host.run_calls():
            self.core.flush()

    # -- master --------------------------------------------------------------------------------

    def take_dial(self) -> End:
        return End(self, self.host.dialed.pop(0))

    def join(self, nid: int = 1, state: NodeState = NodeState.RUNNING) -> End:
        """Accept the identification of the node, as the primary master."""
        self.core.flush()
        master = self.take_dial()
        self.core.flush()
        message_id, request = master.inbox.pop(0)
        assert isinstance(request, RequestIdentification), request
        self.request = request
        master.connection.answer(
            message_id, AcceptIdentification(NodeType.MASTER, M1, request.nid or nid)
        )
        self.notify(
            master,
            (NodeType.STORAGE, STORAGE, request.nid or nid, state, 1.5),
            (NodeType.MASTER, MASTER, M1, NodeState.RUNNING, None),
        )
        return master

    def notify(self, master: End, *rows: NodeRow) -> None:
        self.timestamp += 1
        master.send(NotifyNodeInformation(self.timestamp, list(rows)))

    def send_table(
        self, master: End, rows: list[list[CellRow]] | None = None, ptid: int = 1
    ) -> None:
        master.send(SendPartitionTable(ptid, 0, rows or [[(1, UP)], [(1, UP)]]))

    def operate(self, rows: list[list[CellRow]] | None = None) -> End:
        """A master, up to NotifyReady."""
        master = self.join()
        self.send_table(master, rows)
        master.send(StartOperation(False))
        self.wait(lambda: bool(master.inbox), "the node is not ready")
        master.inbox.clear()
        return master

    # -- clients -------------------------------------------------------------------------------

    def client_row(self, nid: int, state: NodeState = NodeState.RUNNING) -> NodeRow:
        return (NodeType.CLIENT, None, nid, state, 10.0 + nid)

    def stranger(self) -> End:
        end = End(self, self.core.accepted(("127.0.0.1", 3000)))
        end.waiting = True
        return end

    def identify(self, end: End, nid: int = C1, **changes: Any) -> Any:
        request = RequestIdentification(NodeType.CLIENT, nid, None, "test", 10.0 + nid, {})
        return end.ask(replace(request, **changes))

    def client(self, master: End, nid: int = C1) -> End:
        self.notify(master, self.client_row(nid))
        end = self.stranger()
        answer = self.identify(end, nid)
        assert answer == AcceptIdentification(NodeType.STORAGE, 1, nid), answer
        return end


def refused(answer: Any) -> tuple[int, str]:
    """Code and text of an Error."""
    assert isinstance(answer, Error), answer
    return answer.code, answer.message


def check_refused(answer: Any, code: ErrorCode, text: str = "") -> None:
    """The answer is this Error, and says this, among other things."""
    found, message = refused(answer)
    assert found == code.value and text in message, answer


#: Another one on the same database, after a restart.
MakeWorld = Callable[[], World]
