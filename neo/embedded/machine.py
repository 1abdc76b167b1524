"""All nodes of one embedded database, in one thread.

The cores are those of the processes ``neomaster`` and ``neostorage``; an :class:`EmbeddedHost` is what
the process is for one of them. Two nodes are connected by :mod:`neo.node.local`, a client and a node by
:mod:`.wires`.

A node of which the database fails begins anew after a pause, as it would in a process of its own. If a
node stops, or an event raises an unexpected error, the machine is over: clients are told why.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import time
from collections.abc import Callable, Collection
from functools import partial
from queue import Empty, SimpleQueue

from neo.client.errors import NEOStorageError, RefusedError, UnavailableError
from neo.embedded.folder import Folder
from neo.embedded.loop import Loop, LoopTimer, monotonic
from neo.embedded.wires import ClientLink, LocalWire
from neo.master.__main__ import make_core as make_master
from neo.master.primary import PrimaryMaster
from neo.net.connection import Connection
from neo.net.fault_sites import FaultSite
from neo.node.config import ConfigError
from neo.node.core import Core
from neo.node.core_life import CoreLife, StartFailure
from neo.node.local import LocalLink, join
from neo.node.meter import Meter
from neo.node.node_host import STRANGERS_MOST
from neo.node.peer import Peer
from neo.node.tracing import Traces
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.packets import A, Address, Error, Request
from neo.storage.__main__ import make_core as make_storage
from neo.storage.backend.acknowledged import Acknowledged
from neo.storage.database import Refusals
from neo.storage.node import StorageNode

logger = logging.getLogger("neo.embedded")

#: Timeout of a start, which takes some milliseconds, but longer after a crash in a big transaction.
START_SECONDS = 60.0


class EmbeddedHost:
    """Implements :class:`neo.storage.host.StorageHost` for one node of a machine."""

    #: The process is the application's.
    shared = True
    meter: Meter | None = None
    traces: Traces | None = None

    def __init__(
        self, machine: Machine, settings: argparse.Namespace, make_core: Callable[[EmbeddedHost], Core]
    ) -> None:
        self.random = random.Random()
        self.settings = settings
        self.bind: Address | None = settings.bind
        self.life = CoreLife(self, partial(make_core, self), f"a node of {machine.folder.path}")
        self._machine = machine
        self._loop = machine.loop

    # -- Host ------------------------------------------------------------------------------------

    monotonic = staticmethod(monotonic)

    def time(self) -> float:
        # Looked up each time: a test of the application may replace the clock, and expect tids to follow.
        return time.time()

    def call_later(self, delay: float, callback: Callable[[], None]) -> LoopTimer:
        return self._loop.call_later(delay, callback)

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        self._loop.put((self._call, (callback, args)))
        return None

    def _call(self, call: tuple[Callable[..., None], tuple[object, ...]]) -> None:
        self.life.call(*call)

    def dial(self, peer: Peer) -> None:
        assert peer.address is not None
        node = self._machine.node_at(peer.address)
        if node is None:
            self._loop.call_later(
                0.0, partial(peer.lost, "no node of this process has that address")
            )
        else:
            join(peer, self._loop.deliveries, node.accept)

    def reopen_logs(self) -> None:
        """Do nothing: the logs belong to the application."""

    def fault(self, site: FaultSite) -> bool:
        return False

    def stop(self, code: int) -> None:
        self.life.end("it has stopped")
        self._machine.stopped(self)

    def restart(self, why: str) -> None:
        self.life.restart(why)

    def renew(self) -> None:
        """Stop. It is not asked for in a process that is shared."""
        self.stop(0)

    def healthy(self) -> None:
        self.life.healthy()

    @property
    def over(self) -> bool:
        """The node shall not start any more."""
        return bool(self._machine.over)

    # -- connections -----------------------------------------------------------------------------

    def accept(self, link: LocalLink) -> None:
        """Accept another node of this process."""
        core = self.life.core
        if core is None:
            link.refuse(self.life.waits)
        else:
            link.attach(self._peer(core))
            core.flush()

    def accept_client(self, link: ClientLink) -> None:
        core = self.life.core
        if core is None:
            refusal = Connection(server=True)
            refusal.answer(None, Error(ErrorCode.NOT_READY.value, self.life.waits))
            link.end_with(refusal.take_outgoing())
        else:
            link.attach(self._peer(core))
            core.flush()

    def _peer(self, core: Core) -> Peer:
        assert self.bind is not None
        core.limit_strangers(STRANGERS_MOST)
        return core.accepted(self.bind)


class Machine:
    """The nodes of a folder. :meth:`start` starts them, :meth:`close` stops them; other threads than the
    loop's call both, and :meth:`connect`."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.loop = Loop(self._failed, self._look, f"neo {folder.path}")
        #: Why no node serves any more; empty as long as they do.
        self.over = ""
        self._pid = os.getpid()
        self._closing = False
        self._started: SimpleQueue[Exception | None] = SimpleQueue()
        self._starting = True
        self._master = EmbeddedHost(self, folder.master, make_master)
        self._storages = [EmbeddedHost(self, each, _maker()) for each in folder.storages]
        self._nodes = {node.bind: node for node in (self._master, *self._storages)}

    def node_at(self, address: Address) -> EmbeddedHost | None:
        return self._nodes.get(address)

    def connect(self, address: Address) -> LocalWire:
        """Return a wire to the node of an address. Raise NEOStorageError if none can be had any more,
        ConnectionRefusedError."""
        self.check()
        node = self.node_at(address)
        if node is None:
            raise ConnectionRefusedError("no node of this process has that address")
        wire = LocalWire(self.loop)
        self.loop.put((node.accept_client, wire.link))
        return wire

    def answer(self, nids: Collection[int], message: Request[A]) -> A | None:
        """Implement :class:`neo.net.host.DirectReads`."""
        # In the child of a fork, connect() tells what is wrong.
        if not self.over and os.getpid() == self._pid:
            for node in self._storages:
                core = node.life.core
                if isinstance(core, StorageNode) and core.cluster.nid in nids:
                    answer = core.direct.answer(message)
                    if answer is not None:
                        return answer
        return None

    def check(self) -> None:
        """Raise NEOStorageError if the nodes do not run in this process any more."""
        if os.getpid() != self._pid:
            raise RefusedError(
                f"{self.folder.path} was opened by process {self._pid} before it forked this one: an"
                " embedded database cannot be used by the child of a fork. Open it only after the fork;"
                f" if both processes need it, run: neosimple --folder {self.folder.path}"
            )
        if self.over:
            raise RefusedError(f"{self.folder.path}: {self.over}")

    # -- start and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and return when the nodes serve. Raise NEOStorageError; then all of them are stopped."""
        self.loop.start()
        self.loop.put((self._start, None))
        try:
            error: Exception | None
            try:
                error = self._started.get(timeout=START_SECONDS)
            except Empty:
                error = UnavailableError(
                    f"{self.folder.path}: the database did not start in {START_SECONDS:g} s; see the log"
                    " of this process (logger 'neo')"
                )
            if error is not None:
                raise error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all nodes, and return when their databases are closed and the folder is free. Do nothing
        in the child of a fork."""
        if os.getpid() == self._pid:
            self.loop.put((self._stop, None))
            self.loop.join()
            self.folder.release()

    def _start(self, _: None) -> None:
        try:
            for node in (self._master, *self._storages):
                node.life.start()
        except (StartFailure, ConfigError) as e:
            self._report(RefusedError(f"{self.folder.path} cannot be opened: {e}"))

    def _look(self) -> None:
        """Report the end of the start."""
        if self._starting:
            master = self._master.life.core
            if isinstance(master, PrimaryMaster):
                cluster = master.cluster
                if cluster.state is ClusterState.RUNNING and not cluster.starting:
                    self._report(None)

    def _report(self, error: NEOStorageError | None) -> None:
        if self._starting:
            self._starting = False
            self._started.put(error)

    def _stop(self, _: None) -> None:
        self._closing = True
        self.over = self.over or "it was closed"
        self._stop_nodes(0)
        self.loop.stop()

    def stopped(self, node: EmbeddedHost) -> None:
        """React to a node that has stopped."""
        if not self._closing:
            self._end(
                "a node has stopped, for a reason that the log of this process tells (logger 'neo')"
            )

    def _failed(self, error: Exception) -> None:
        logger.critical("unexpected error in the nodes of %s", self.folder.path, exc_info=error)
        self._end(
            f"its nodes stopped after an unexpected error: {error!r}. Close it, and open it again"
        )

    def _end(self, why: str) -> None:
        """Stop all nodes; keep the folder until :meth:`close`."""
        self.over = why
        self._closing = True
        self._report(RefusedError(f"{self.folder.path}: {why}"))
        self._stop_nodes(1)

    def _stop_nodes(self, code: int) -> None:
        for node in (*self._storages, self._master):
            core = node.life.end("it has stopped")
            if core is not None:
                try:
                    core.stop(code)
                except Exception:
                    logger.exception("a node of %s could not be stopped cleanly", self.folder.path)


def _maker() -> Callable[[EmbeddedHost], StorageNode]:
    """Return what makes the cores of one storage node."""
    return partial(make_storage, acknowledged=Acknowledged(), refusals=Refusals())
