"""Locks on data of one node, by name (specification 27.35; requirement 17 of the source document)."""

from __future__ import annotations

import pytest

from neo.node.task import Future, Task
from neo.storage.operations.local_locks import LocalLocks


class Users:
    """Workflows that hold a lock until they are told to end."""

    def __init__(self) -> None:
        self.locks = LocalLocks()
        self.log: list[str] = []
        self.ends: dict[str, Future[None]] = {}

    def begin(self, who: str, name: str = "rows") -> Task[None]:
        return Task(self._use(who, name))

    async def _use(self, who: str, name: str) -> None:
        self.ends[who] = Future()
        await self.locks.take(name)
        try:
            self.log.append(f"{who} begins")
            await self.ends[who]
        finally:
            self.log.append(f"{who} ends")
            self.locks.give(name)

    def end(self, who: str) -> None:
        self.ends[who].resolve(None)


def test_one_after_the_other_in_their_order_requirement_17() -> None:
    users = Users()
    for who in "abc":
        users.begin(who)
    assert users.log == ["a begins"]
    for who in "abc":
        users.end(who)
    assert users.log == [f"{who} {what}" for who in "abc" for what in ("begins", "ends")]
    assert not users.locks._waiting


def test_other_data_is_not_waited_for() -> None:
    users = Users()
    users.begin("a", "rows")
    users.begin("b", "archive")
    assert users.log == ["a begins", "b begins"]


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_one_that_is_cancelled_keeps_nobody_waiting(victim: str) -> None:
    users = Users()
    tasks = {who: users.begin(who) for who in "abc"}
    tasks[victim].cancel()
    left = [who for who in "abc" if who != victim]
    for who in left:
        users.end(who)
    assert [line for line in users.log if line.endswith("begins") and line[0] in left] == [
        f"{who} begins" for who in left
    ]
    assert not users.locks._waiting


def test_one_that_is_cancelled_when_it_has_just_got_the_lock_passes_it_on() -> None:
    users = Users()
    users.begin("a")
    second = users.begin("b")
    users.begin("c")
    second._cancelled = True  # by what "a" does when it ends
    users.end("a")
    assert users.log[-1] == "c begins"
    users.end("c")
    assert not users.locks._waiting
