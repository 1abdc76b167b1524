"""A storage node reduced to its locks, and transactions written as in the specification."""

from __future__ import annotations

from neo.protocol.ids import ZERO_TID, p64
from neo.storage.backend.api import Stored
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import CellMode, Client, Hopeless, RebaseConflict

Answer = bytes | None | RebaseConflict | Hopeless


def tid(number: int) -> bytes:
    return p64(number)


def oid(name: str) -> bytes:
    return p64(ord(name))


class LockNode:
    """Objects are named by letters, transactions by numbers: ``store(1, "A")``."""

    def __init__(self) -> None:
        self.serials: dict[bytes, bytes] = {}
        self.modes: dict[bytes, CellMode] = {}
        self.deadlocks: list[tuple[bytes, bytes]] = []
        self.discarded: list[int | None] = []
        self.answers: list[tuple[str, Answer]] = []
        self.now = 0.0
        self._data_id = 0
        self.last_serial = self.serials.get
        self.locks = Locks(self)

    def cell_mode(self, oid: bytes) -> CellMode:
        return self.modes.get(oid, CellMode.NORMAL)

    def deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        self.deadlocks.append((ttid, locking_tid))

    def discard(self, stored: Stored) -> None:
        self.discarded.append(stored.data_id)

    def clock(self) -> float:
        return self.now

    def watch(self) -> None:
        """Do nothing: the tests refuse overdue requests themselves."""

    def client(self, number: int) -> Client:
        return Client(number, number)

    def take_answers(self) -> dict[str, Answer]:
        """What was answered since the last call: ``A1`` is the store of A by 1, ``a1`` its check."""
        self.locks.validate()
        answers, self.answers = dict(self.answers), []
        return answers

    def take_deadlocks(self) -> list[tuple[bytes, bytes]]:
        deadlocks, self.deadlocks = self.deadlocks[:], []
        return deadlocks

    def do(self, *actions: str, serial: bytes = ZERO_TID) -> dict[str, Answer]:
        """Stores (``A1``) and checks (``a1``) in turn, and what was answered during them."""
        for action in actions:
            name, number = action[0], int(action[1:])
            stored = None
            if name.isupper():
                self._data_id += 1
                stored = Stored(oid(name), self._data_id, None)
            self.locks.store(
                tid(number),
                self.client(number),
                oid(name.upper()),
                serial,
                stored,
                lambda answer, action=action: self.answers.append((action, answer)),
            )
            self.locks.validate()
        return self.take_answers()

    def rebase(self, number: int, locking: int) -> str:
        """AskRebaseTransaction: the names of the objects to rebase, sorted."""
        oids = self.locks.rebase(tid(number), self.client(number), tid(locking))
        self.locks.validate()
        return "".join(sorted(chr(o[-1]) for o in oids))

    def rebase_object(self, number: int, name: str) -> None:
        """Its answer comes as ``r`` + the name of the store."""
        self.locks.rebase_object(
            tid(number),
            self.client(number),
            oid(name),
            lambda answer: self.answers.append((f"r{name}{number}", answer)),
        )
        self.locks.validate()

    def finish(self, number: int, final: int) -> dict[str, Answer]:
        """Vote, lock and unlock; what was answered thereby."""
        ttid = tid(number)
        stored = self.locks.vote(ttid, self.client(number), metadata=False)
        self.locks.validate()
        assert self.locks.lock(ttid, tid(final))
        self.locks.validate()
        for change in stored:
            self.serials[change.oid] = tid(final)
        self.locks.unlock(ttid)
        return self.take_answers()

    def abort(self, number: int) -> dict[str, Answer]:
        self.locks.abort(tid(number), self.client(number))
        return self.take_answers()
