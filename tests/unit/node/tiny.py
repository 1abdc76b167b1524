"""The smallest node: a program for the tests of the process host. ``python -m tests.unit.node.tiny``"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys

from neo.node.config import load, role_options
from neo.node.core import Core
from neo.node.core_life import StartFailure
from neo.node.handler import Handler, on
from neo.node.node_host import NodeHost
from neo.node.peer import Peer
from neo.node.process import main
from neo.protocol.packets import (
    AnswerLastTransaction,
    AskLastTransaction,
    FlushLog,
    Message,
    NotifyReady,
    StartOperation,
    StopOperation,
)

OPTIONS = role_options()


class TinyHandler(Handler):
    def __init__(self, core: TinyCore) -> None:
        self.core = core

    @on(AskLastTransaction)
    def last(self, peer: Peer, message_id: int, message: Message) -> Message:
        """The number of the core, of those that this process has had."""
        return AnswerLastTransaction(TinyCore.count.to_bytes(8, "big"))

    @on(NotifyReady)
    def log(self, peer: Peer, message_id: int, message: Message) -> None:
        logging.getLogger("tiny").info("a line for the log")

    @on(StartOperation)
    def restart(self, peer: Peer, message_id: int, message: Message) -> None:
        """The core closes itself, and asks for another."""
        self.core.stopped = True
        for other in list(self.core.peers):
            other.close()
        self.core.host.restart("the tiny disk is away")  # type: ignore[attr-defined]

    @on(StopOperation)
    def fail(self, peer: Peer, message_id: int, message: Message) -> None:
        peer.send(NotifyReady())
        self.core.fail(RuntimeError("the disk is gone: replace it"))

    @on(FlushLog)
    def stumble(self, peer: Peer, message_id: int, message: Message) -> None:
        """A timer with a mistake."""
        self.core.call_later(0.0, lambda: self.core.stop(1 // 0))


class TinyCore(Core):
    count = 0

    def stranger_handler(self) -> Handler:
        return TinyHandler(self)


def make_core(host: NodeHost) -> Core:
    if host.settings.cluster == "patient" and not os.path.exists(host.settings.logfile + ".go"):
        raise StartFailure("there is nothing to go on with", math.inf)
    TinyCore.count += 1
    if TinyCore.count == 2 and host.settings.cluster == "mistaken":
        raise OSError("a folder is gone")
    if TinyCore.count == 2 or host.settings.cluster == "broken":
        raise StartFailure(f"no start number {TinyCore.count}")
    return TinyCore(host)


def load_settings(argv: list[str]) -> argparse.Namespace:
    return load("tiny", "A node that does nothing", OPTIONS, argv)


if __name__ == "__main__":
    sys.exit(main("tiny", load_settings, make_core))
