"""The daemon: a node with its logs, links and ports on one event loop, and a thread that syncs.

Exit codes: 0 ended on request, 1 the logs or sockets cannot be used, 2 a setting is wrong.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO

from neo.transactor.admin import Admin
from neo.transactor.codec import messages as codec
from neo.transactor.config import Config, Options
from neo.transactor.debug import ALL, FOREGROUND, Debug
from neo.transactor.disk import StoreError, failing
from neo.transactor.durable import Begun
from neo.transactor.engine import Engine, Timing
from neo.transactor.links import Links
from neo.transactor.messages import (
    Ack,
    Collect,
    Decide,
    Entry,
    Estimate,
    Message,
    Nack,
    Propose,
    Record,
    Wish,
)
from neo.transactor.mlog import new_journal_id
from neo.transactor.node import Node
from neo.transactor.service import Service
from neo.transactor.sockets import ClientConnection, PeerSockets, Stream, listener, local_listener
from neo.transactor.store import Store, recover

logger = logging.getLogger("transactor")

TICK_SECONDS = 0.025
#: The debug flag of each message type of the algorithm.
FLAG_OF: dict[type, str] = {
    **dict.fromkeys((Ack, Nack), "ta_acks"),
    **dict.fromkeys((Collect, Propose, Decide), "ta_coord"),
    **dict.fromkeys((Estimate, Wish), "ta_part"),
}
#: Time for the last answers to leave when the daemon ends.
DRAIN_SECONDS = 0.2


class Daemon:
    """Implements the hosts of the node and of the admin commands."""

    def __init__(self, config: Config, options: Options) -> None:
        """Open logs and sockets, before the process detaches. Raises StoreError."""
        self.config = config
        self._options = options
        self.debug = Debug()
        self._debug_path: str | None = options.debug
        self._debug_file: IO[str] | None = None
        begun = Begun.JOINED if options.join else Begun.FRESH
        logs = (config.tlog, config.mlog, config.name)
        if options.recover:
            recover(*logs, new_journal_id(), logger.warning)
        self.store = Store(*logs, config.members, new_journal_id(), logger.warning, begun)
        self._sockets = (
            listener(config.bind, socket.SOCK_STREAM),
            listener(config.service, socket.SOCK_STREAM),
            local_listener(config.admin)
            if isinstance(config.admin, str)
            else listener(config.admin, socket.SOCK_STREAM),
            listener(config.bind, socket.SOCK_DGRAM) if config.udp else None,
        )
        timing = Timing(silence=max(2, round(config.silence / TICK_SECONDS)))
        self.engine = Engine(config.name, self.store.durable, self.store, timing, logger.warning)
        self.node = Node(self.engine, self)
        self.admin = Admin(self.node, self, self.debug, options.speedtest)
        keepalive = round(config.keepalive / TICK_SECONDS)
        self.service = Service(
            self.node, self.store, self.admin, self.debug, config.service_secret, keepalive,
            config.admin_secret,
        )
        self._syncer = ThreadPoolExecutor(1, "sync")
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[int]
        self._links: Links
        self._known_members = object()
        #: The state and paths traced last; the transaction in progress, and when it began.
        self._state = self._paths = ""
        self._started = (0, 0.0)
        self._set_debug()

    # -- life --------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until told to end, then return the exit code."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        peers, service, admin, datagrams = self._sockets
        network = PeerSockets(self._make_links)
        self._links = network.links
        if datagrams is not None:
            await self._loop.create_datagram_endpoint(lambda: network, sock=datagrams)
        servers = [
            await self._loop.create_server(lambda: Stream(network, None), sock=peers),
            await self._loop.create_server(
                lambda: ClientConnection(self.service, admin=False), sock=service
            ),
            await self._serve_operators(admin),
        ]
        self._loop.set_exception_handler(self._unexpected)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.terminate)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._signal_dump)
        self._write_pid()
        self.debug("pl_listeninfo", "peers at {}:{}".format(*self.config.bind))
        logger.info("%s is ready, transaction %d is next", self.config.name, self.engine.tid)
        self._tick()
        code = await self._ended
        await asyncio.sleep(DRAIN_SECONDS)
        for server in servers:
            server.close()
        network.close()
        self._syncer.shutdown()
        self.store.close()
        for path in (self.config.pidfile, self.config.admin):
            if path and isinstance(path, str):
                with suppress(FileNotFoundError):  # newer event loops remove their sockets
                    os.unlink(path)
        return code

    async def _serve_operators(self, sock: socket.socket) -> asyncio.Server:
        """Listen for operators: on a Unix socket, or on a TCP port, which sends challenges."""
        if sock.family == socket.AF_UNIX:
            return await self._loop.create_unix_server(
                lambda: ClientConnection(self.service, admin=True), sock=sock
            )
        return await self._loop.create_server(
            lambda: ClientConnection(self.service, True, os.urandom(16).hex()), sock=sock
        )

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, StoreError):
            logger.critical("%s", error)
        else:
            logger.critical("internal error: %s", context.get("message"), exc_info=error)  # type: ignore[arg-type]
        self._end(1)

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    def _tick(self) -> None:
        if self._ended.done():
            return
        self._loop.call_later(TICK_SECONDS, self._tick)
        self._links.tick(time.monotonic())
        self.node.tick()
        self._trace_state()
        self.service.tick()
        self.admin.post()
        self._meet()

    def _meet(self) -> None:
        """Keep links to the members of the log, and to configured peers, which may know newer members."""
        members = self.engine.members
        if members is self._known_members:
            return
        self._known_members = members
        first = {member.name: member.address for member in self.engine.genesis.all}
        peers = dict(self.config.peers)
        for member in members.all:
            # The configuration may be newer than the first list of members, but not than a change.
            if member.name not in peers or first.get(member.name) != member.address:
                peers[member.name] = member.address
        peers.pop(self.config.name, None)
        self._links.set_peers(peers)

    # -- links -------------------------------------------------------------------------------------

    def _make_links(self, network: PeerSockets) -> Links:
        config = self.config
        return Links(
            name=config.name,
            secret=config.key,
            transport=network,
            random_bytes=os.urandom,
            receive=self._receive,
            greeting=self._greeting,
            debug=self.debug,
            udp=config.udp,
            mtu_limit=config.mtu,
        )

    def _greeting(self) -> tuple[bytes, bytes]:
        names = repr([(m.node, m.name) for m in self.engine.genesis.all]).encode()
        cluster = b"" if self.engine.catch_up.joins else hashlib.sha256(names).digest()[:8]
        return cluster, codec.encode(self.engine.status())

    def _receive(self, name: str, messages: list[Message]) -> None:
        if self._ended.done():
            return
        if self.debug.write is not None:
            member = self.engine.members.named(name)
            self.debug("peer_index", f"{name} is {member.node if member else 'no member'}")
            self._trace("ta_arrivals", f"from {name}", messages)
        self.node.receive(name, messages)
        self._trace_state()

    # -- host of the node --------------------------------------------------------------------------

    def append(self, records: list[Record]) -> None:
        self.store.begin_with(self.engine.genesis)
        self.store.append(records)

    def sync(self) -> None:
        future = self._loop.run_in_executor(self._syncer, self.store.sync)
        future.add_done_callback(self._synced)

    def _synced(self, future: asyncio.Future[None]) -> None:
        future.result()  # an error ends the daemon: see _unexpected
        self.node.synced()

    def transmit(self, peer: str, messages: list[Message]) -> None:
        if self.debug.write is not None:
            self._trace("ta_posts", f"to {peer}", messages)
            self.debug("queueing", f"{len(messages)} messages for {peer}")
        self._links.send(peer, messages)

    def decided(self, entries: list[Entry]) -> None:
        for tid, spec in entries:
            self.debug("ta_trns", f"transaction {tid} is {spec.sid}, {len(spec.data)} bytes")
            if tid == self._started[0]:
                took = time.monotonic() - self._started[1]
                self.debug("ta_trntime", f"transaction {tid} took {took * 1000:.1f} ms")
        self.service.decided(entries)

    # -- debug messages ----------------------------------------------------------------------------

    def _trace(self, flag: str, way: str, bundle: list[Message]) -> None:
        self.debug(flag, f"{way}: {' '.join(type(message).__name__ for message in bundle)}")
        for message in bundle:
            if flag == "ta_posts":
                self.debug("ta_moreposts", f"{way}: {message!r:.300}")
            if type(message) in FLAG_OF:
                self.debug(FLAG_OF[type(message)], f"{way}: {message!r:.300}")

    def _trace_state(self) -> None:
        engine = self.engine
        if engine.started and self._started[0] != engine.tid:
            self._started = (engine.tid, time.monotonic())
        if self.debug.shows("ta_state"):
            p = engine.process
            state = f"{engine.tid} round {p.round} {p.estimate} stamp {p.stamp}" if p else "no part"
            if state != self._state:
                self._state = state
                self.debug("ta_state", f"transaction {state}")
        if self.debug.shows("pl_status") and (paths := str(self._links.paths())) != self._paths:
            self._paths = paths
            self.debug("pl_status", paths)

    # -- host of the admin commands ----------------------------------------------------------------

    def terminate(self) -> None:
        if not self._ended.done():
            logger.info("%s ends", self.config.name)
            self._end(0)

    def links(self) -> dict[str, str]:
        return self._links.paths()

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def dump(self) -> str:
        paths = [f"link {name}: {path}" for name, path in self._links.paths().items()]
        detector = self.engine.detector
        silent = [
            f"silent {m.name}: {detector.silent_for(m.node, self.engine.now) * TICK_SECONDS:.3f} s"
            for m in self.engine.members.all
        ]
        counts = [
            f"packets sent: {self._links.sent}",
            f"packets refused: {self._links.refused}",
            f"sessions: {len(self.service.sessions)}",
        ]
        return "\n".join([*self.admin.info(), *paths, *silent, *counts])

    def write_dump(self, name: str) -> None:
        self._write_dump(self._in_debug_folder(name))

    def _write_dump(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.dump() + "\n")

    def _in_debug_folder(self, name: str) -> str:
        """Return the path. Raises OSError, also for a symbolic link, which may lead anywhere."""
        folder = self.config.debug_folder
        os.makedirs(folder, 0o700, exist_ok=True)
        path = os.path.join(folder, name)
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "is a link", path)
        return path

    def _signal_dump(self) -> None:
        if not self.config.signal_dumpfile:
            logger.warning("setting 'signal_dumpfile' is missing: nothing is dumped")
            return
        try:
            self._write_dump(self.config.signal_dumpfile)
        except OSError as e:
            logger.error("cannot write to %s: %s", self.config.signal_dumpfile, e.strerror)

    # -- debugging ---------------------------------------------------------------------------------

    def _set_debug(self) -> None:
        options = self._options
        if options.debugmask is not None:
            self.debug.mask = options.debugmask
        elif options.debug:
            self.debug.mask = ALL
        elif options.nodetach:
            self.debug.mask = FOREGROUND
        if options.debug or options.nodetach:
            with failing(f"write to {options.debug}"):
                self._debug_to(self._debug_path)

    def debug_file(self, name: str | None) -> None:
        self._debug_to(self._in_debug_folder(name) if name else self._debug_path)

    def _debug_to(self, path: str | None) -> None:
        if not path and not self._options.nodetach:
            raise FileNotFoundError(errno.ENOENT, "no debug file: see debugfile")
        stream: IO[str] = open(path, "a", encoding="utf-8", buffering=1) if path else sys.stderr
        self.debug_off()
        self._debug_path = path
        self._debug_file = stream
        self.debug.write = lambda line: print(line, file=stream)

    def debug_off(self) -> None:
        if self._debug_file is not None and self._debug_file is not sys.stderr:
            self._debug_file.close()
        self._debug_file = None
        self.debug.write = None

    def _write_pid(self) -> None:
        if self.config.pidfile:
            with (
                failing(f"write to {self.config.pidfile}"),
                open(self.config.pidfile, "w", encoding="ascii") as f,
            ):
                f.write(f"{os.getpid()}\n")
