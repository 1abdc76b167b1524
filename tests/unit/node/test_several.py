"""Several nodes in one process: one loop, connections without sockets, one end."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from neo.net.transport import Transport
from neo.node.core import Core
from neo.node.core_life import StartFailure
from neo.node.handler import Handler
from neo.node.host import Host
from neo.node.log import NODE, LogFile, configure_logs
from neo.node.node_host import NodeHost
from neo.node.peer import Peer
from neo.node.process import NodePlan, Process
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost
from neo.protocol.packets import AskLastTransaction, Ping, Pong
from tests.support.ports import free_range
from tests.unit.node.serving import Serving

logger = logging.getLogger("tiny")


class Named(Core):
    """Notes by which node it was called."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.handler = Serving()
        self.addresses: list[object] = []

    def stranger_handler(self) -> Handler:
        return self.handler

    def accepted(self, address: tuple[str, int]) -> Peer:
        logger.info("%s connects", address)
        self.addresses.append(address)
        return super().accepted(address)

    def ask(self, node: NodeHost) -> Future[Pong]:
        assert node.bind is not None
        peer = self.dial(node.bind, self.handler)
        future = peer.ask(Ping())
        self.flush()
        return future


class Several:
    """A process of nodes with these roles."""

    def __init__(self, *roles: str, make_core: Callable[[NodeHost], Core] = Named) -> None:
        base = free_range(len(roles))
        plans = [
            NodePlan(
                f"{role}{number}",
                role,
                argparse.Namespace(
                    bind=("127.0.0.1", base + number), ca=None, http=None, log_slow=None
                ),
                make_core,
            )
            for number, role in enumerate(roles)
        ]
        self.process = Process(plans)
        self.nodes = self.process.nodes

    def core(self, number: int) -> Named:
        core = self.nodes[number].core
        assert isinstance(core, Named)
        return core

    def run(self, test: Callable[[], Awaitable[None]]) -> int:
        """Run the process with a test beside it. Return the exit code."""

        async def both() -> int:
            process = asyncio.create_task(self.process.run())
            while any(node._server is None for node in self.nodes):
                assert not process.done(), await process
                await asyncio.sleep(0)
            await test()
            return await process

        return asyncio.run(asyncio.wait_for(both(), 30))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_nodes_reach_each_other_without_sockets() -> None:
    several = Several("master", "storage")

    async def test() -> None:
        answer = several.core(0).ask(several.nodes[1])
        await until(lambda: answer.done)
        assert answer.result() == Pong()
        assert Transport.open_count == 0
        assert several.core(1).addresses == [several.nodes[0].bind], "as configured"
        several.nodes[0].stop(0)
        several.nodes[1].stop(0)

    assert several.run(test) == 0


def test_an_error_of_one_node_ends_all() -> None:
    several = Several("master", "storage", "admin")

    async def test() -> None:
        survivor = several.core(0)
        several.core(1).fail(RuntimeError("the disk is gone"))
        assert survivor.stopped

    assert several.run(test) == 1


def test_nodes_that_are_stopped_end_the_process_when_only_admin_nodes_are_left() -> None:
    several = Several("master", "storage", "storage", "admin")

    async def test() -> None:
        for number in (1, 2):
            several.core(number).stop(0)
            await asyncio.sleep(0)
        master, admin = several.core(0), several.core(3)
        answer = admin.ask(several.nodes[0])
        await until(lambda: answer.done)
        last = admin.ask(several.nodes[0])
        master.stop(0)
        await until(lambda: admin.stopped)
        with pytest.raises(ConnectionLost):
            last.result()

    assert several.run(test) == 0


def test_a_node_that_has_stopped_is_not_reached_any_more() -> None:
    several = Several("master", "storage")

    async def test() -> None:
        several.core(1).stop(0)
        answer = several.core(0).ask(several.nodes[1])
        await until(lambda: answer.done)
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            answer.result()
        several.core(0).stop(0)

    assert several.run(test) == 0


def test_a_core_that_starts_again_is_lost_and_refuses_with_its_reason() -> None:
    """Specification 22.4, 22.6."""
    several = Several("master", "storage")

    async def test() -> None:
        master, storage = several.core(0), several.core(1)
        open_question = master.dial(several.nodes[1].bind, master.handler).ask(AskLastTransaction())  # type: ignore[arg-type]
        master.flush()
        await until(lambda: open_question.done)
        storage.stopped = True
        for peer in list(storage.peers):
            peer.farewell(ErrorCode.NOT_READY, "the disk is away")
        storage.flush()
        several.nodes[1].restart("the disk is away")
        answer = master.ask(several.nodes[1])
        await until(lambda: answer.done)
        with pytest.raises(ConnectionLost):
            answer.result()
        assert master.handler.lost_peers == ["the peer says: the disk is away"] * 2
        assert not master.peers
        master.stop(0)
        several.nodes[1].stop(0)

    assert several.run(test) == 0


def test_a_node_that_cannot_start_is_named_and_ends_the_others() -> None:
    def make(host: NodeHost) -> Core:
        if host.role == "storage":
            raise StartFailure("the database is damaged")
        cores.append(core := Named(host))
        return core

    cores: list[Core] = []
    several = Several("master", "storage", make_core=make)
    with pytest.raises(StartFailure, match="storage1: the database is damaged"):
        asyncio.run(several.process.run())
    assert [core.stopped for core in cores] == [True]


def test_each_node_logs_to_its_file(tmp_path: Path, root_logger: None) -> None:
    """What belongs to no node is in each; nodes that share a file are named in it."""
    own, shared = str(tmp_path / "own"), str(tmp_path / "shared")
    paths = {"master0": own, "storage1": shared, "storage2": shared}
    configure_logs([LogFile(name, "x", path, "text", "info") for name, path in paths.items()])
    several = Several("master", "storage", "storage")

    async def test() -> None:
        logger.info("of the process")
        answers = [
            several.nodes[asker]._context.run(several.core(asker).ask, several.nodes[asked])
            for asker, asked in ((0, 1), (1, 2), (2, 0))
        ]
        await until(lambda: all(answer.done for answer in answers))
        several.nodes[1].from_thread(logger.info, "from a thread")
        several.nodes[2]._context.run(
            several.core(2).call_later, 0.0, lambda: logger.info("a time has come")
        )
        await until(lambda: "a time has come" in Path(shared).read_text())
        for node in several.nodes:
            node.stop(0)

    assert NODE.get() == ""
    assert several.run(test) == 0
    lines = [line.split(" ", 3)[3].split("tiny")[1].split() for line in _of_tiny(own)]
    assert [line[0] for line in lines] == ["of", "('127.0.0.1',"]
    lines = [line.split("tiny")[1].split() for line in _of_tiny(shared)]
    assert [line[0] for line in lines] == ["of", "storage1", "storage2", "storage1", "storage2"]
    assert lines[3][1:] == ["from", "a", "thread"]


def _of_tiny(path: str) -> list[str]:
    return [line for line in Path(path).read_text().splitlines() if " tiny " in line]
