"""The process of one node or of several: event loop, signals, logs, exit codes.

Exit codes: 0 stopped on request, 1 a node cannot continue, 2 a setting is wrong.

A process dies as a whole: what ends one of its nodes with an error ends all. A node that ends on request
leaves the others alone, until only admin nodes are left, which have nothing to administer.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import uvloop

from neo import __version__
from neo.net.transport import Transport
from neo.node.config import ConfigError
from neo.node.core_life import StartFailure
from neo.node.local import Deliveries
from neo.node.log import LogFile, configure_logs, reopen_logs
from neo.node.node_host import MakeCore, NodeHost
from neo.node.supervisor import Supervisor
from neo.protocol.packets import Address

logger = logging.getLogger("neo.node")

#: At the end, time for written bytes to leave. A peer that does not read is then given up.
DRAIN_SECONDS = 2.0

#: Options for one start.
ONCE = ("--reset", "--new-nid")


class NodePlan(NamedTuple):
    """A node that a process runs. ``name``: its section, empty if there is one node only."""

    name: str
    role: str
    settings: argparse.Namespace
    make_core: MakeCore


class Process:
    """What the nodes of a process share."""

    loop: asyncio.AbstractEventLoop
    #: The thread of the loop.
    thread: int
    deliveries: Deliveries
    #: The exit code, when the process ends.
    ended: asyncio.Future[int]

    def __init__(self, plans: Sequence[NodePlan] = ()) -> None:
        self.nodes: list[NodeHost] = []
        #: The program is executed again when the process ends.
        self.renews = False
        for plan in plans:
            NodeHost(self, plan.settings, plan.make_core, plan.name, plan.role)

    # -- called by nodes -------------------------------------------------------------------------

    def node_at(self, address: Address) -> NodeHost | None:
        """Return the node of this process that listens at ``address``, as bound or as configured."""
        for node in self.nodes:
            if address in (node.bind, node.settings.bind) and not node.ended:
                return node
        return None

    def node_ended(self, node: NodeHost, code: int) -> None:
        """React to the end of a node. Idempotent."""
        node.ended = True
        if code:
            self._end(code)
        elif not self.ended.done():
            node.close()
            if all(other.ended or other.role == "admin" for other in self.nodes):
                self.loop.call_soon(self._end_rest)

    def renew(self) -> None:
        """Stop, and have :func:`run_nodes` execute the program again, unless the process ends already."""
        self.renews = not self.ended.done()
        self._end(0)

    def _end(self, code: int) -> None:
        if self.ended.done():
            return
        self.ended.set_result(code)
        for node in self.nodes:
            if not node.ended:
                node.ended = True
                node.end(code)

    def _wake(self) -> None:
        self.loop.call_soon(self.deliveries.run)

    def _end_rest(self) -> None:
        """End the admin nodes, once they have passed on what the others said last."""
        if self.deliveries.waiting:
            self.loop.call_soon(self._end_rest)
        else:
            self._end(0)

    # -- the loop --------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until the end, and return the exit code. Raise ConfigError, StartFailure."""
        loop = self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.ended = loop.create_future()
        self.deliveries = Deliveries(self._wake)
        loop.set_exception_handler(self._unexpected)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.signal, number)
        loop.add_signal_handler(signal.SIGUSR2, reopen_logs)
        try:
            for node in self.nodes:
                node.prepare()
            await asyncio.gather(*(node.start() for node in self.nodes))
        except BaseException:
            self._end(1)  # the nodes that have started already
            await self._drain()
            raise
        supervisor = Supervisor()
        supervisor.ready(loop)
        code = await self.ended
        if not self.renews:
            supervisor.tell("STOPPING=1")
        await self._drain()
        return code

    def signal(self, number: signal.Signals) -> None:
        """End because of a signal."""
        logger.info("%s received", number.name)
        self.renews = False  # the signal is for the next program, too
        for node in self.nodes:
            if not node.ended:
                node.terminate()

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an uncaught error of a callback of the loop. It ends the process, because the state of a
        node would be unknown. An OSError belongs to one connection, which has ended."""
        error = context.get("exception")
        core = next((node.core for node in self.nodes if node.core is not None), None)
        if core is None or not isinstance(error, Exception) or isinstance(error, OSError):
            loop.default_exception_handler(context)
        else:
            logger.critical("unexpected error: %s", context.get("message"), exc_info=error)
            core.fail(error)

    async def _drain(self) -> None:
        """Wait until closing transports have sent their last bytes."""
        for node in self.nodes:
            node.close()
        deadline = self.loop.time() + DRAIN_SECONDS
        while Transport.open_count and self.loop.time() < deadline:
            await asyncio.sleep(0.005)


def _begin_anew() -> NoReturn:
    """Execute the program again: the same process for those who watch it. Its sockets and locks are
    closed. Raise StartFailure."""
    logger.warning("this process begins anew with the release that is installed")
    try:
        os.execv(sys.executable, [sys.executable, *words_again(sys.orig_argv[1:])])
    except OSError as e:
        raise StartFailure(f"{sys.executable} cannot be executed again: {e}") from None


def words_again(words: list[str]) -> list[str]:
    """Return the words of a command line without those that must not be followed twice: ``--reset``
    would erase the database. They may be shortened to what is not ambiguous."""
    return [
        word
        for word in words
        if len(word) <= 2 or not any(option.startswith(word) for option in ONCE)
    ]


def main(
    role: str,
    load_settings: Callable[[list[str]], argparse.Namespace],
    make_core: MakeCore,
) -> int:
    """Run the process of one node and return its exit code. Call on the main thread."""
    return run_nodes(
        f"neo{role}", lambda argv: [NodePlan("", role, load_settings(argv), make_core)]
    )


def run_nodes(program: str, load: Callable[[list[str]], Sequence[NodePlan]]) -> int:
    """Run the nodes that ``load`` makes of the command line. Return the exit code of the process. Call on
    the main thread."""
    try:
        plans = load(sys.argv[1:])
        try:
            configure_logs([log_file(program, plan) for plan in plans])
        except OSError as e:
            raise ConfigError(f"setting 'logfile': {e}") from None
        logger.info("%s %s begins", program, __version__)
        try:
            process = Process(plans)
            code = uvloop.run(process.run())
            if process.renews:
                _begin_anew()
            return code
        except (ConfigError, StartFailure) as e:
            # Without a file the log is on stderr, where the error is printed below.
            if all(plan.settings.logfile for plan in plans):
                logger.critical("%s", e)
            raise
    except ConfigError as e:
        print(f"{program}: {e}", file=sys.stderr)
        return 2
    except StartFailure as e:
        print(f"{program}: {e}", file=sys.stderr)
        return 1


def log_file(program: str, plan: NodePlan) -> LogFile:
    """Return where a node's log goes."""
    settings = plan.settings
    return LogFile(plan.name, program, settings.logfile, settings.log_format, settings.log_level)
