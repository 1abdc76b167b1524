"""The :class:`~neo.net.host.ThreadHost` of a client whose nodes run in the same process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from neo.client.host.system import SWEEP_SECONDS, RealThreads
from neo.embedded.machine import Machine
from neo.embedded.wires import LocalWatch, LocalWire
from neo.net.host import Watched, Wire
from neo.net.tls import TlsLink
from neo.protocol.packets import Address

logger = logging.getLogger("neo.client")


class LocalWatcher:
    """The thread that serves channels on which no other thread waits. :meth:`stop` ends it."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[LocalWatch | None] = SimpleQueue()
        self._watches: dict[LocalWatch, None] = {}
        threading.Thread(target=self._run, name="neo-client-watcher", daemon=True).start()

    def watch(self, wire: LocalWire, watched: Watched) -> LocalWatch:
        watch = LocalWatch(wire, watched, self._queue)
        self._watches[watch] = None
        return watch

    def stop(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        next_sweep = time.monotonic() + SWEEP_SECONDS
        while True:
            try:
                watch = self._queue.get(timeout=max(0.0, next_sweep - time.monotonic()))
                if watch is None:
                    return
                self._serve(watch, sweep=False)
            except Empty:
                for each in list(self._watches):
                    if each.watched() is None:
                        del self._watches[each]
                    else:
                        self._serve(each, sweep=True)
                next_sweep = time.monotonic() + SWEEP_SECONDS

    def _serve(self, watch: LocalWatch, sweep: bool) -> None:
        watched = watch.watched()
        if watched is not None:
            try:
                watched.sweep() if sweep else watched.serve()
            except Exception:
                # One channel's error must not stop the thread that serves all of them.
                logger.exception("unexpected error in the watcher's thread")


class LocalSystem(RealThreads):
    """``release``: called once, when the client is closed."""

    def __init__(self, machine: Machine, release: Callable[[Machine], None]) -> None:
        super().__init__()
        self._machine = self.direct = machine
        self._release: Callable[[Machine], None] | None = release
        self._watcher: LocalWatcher | None = None
        self._watcher_lock = threading.Lock()

    def connect(
        self, address: Address, tls: TlsLink | None, seconds: float | None = None
    ) -> LocalWire:
        return self._machine.connect(address)

    def watch(self, wire: Wire, watched: Watched) -> LocalWatch:
        assert isinstance(wire, LocalWire)
        with self._watcher_lock:
            if self._release is None:
                raise OSError("the client was closed while it connected")
            if self._watcher is None:
                self._watcher = LocalWatcher()
            return self._watcher.watch(wire, watched)

    def stop(self) -> None:
        with self._watcher_lock:
            watcher, self._watcher = self._watcher, None
            release, self._release = self._release, None
        if watcher is not None:
            watcher.stop()
        if release is not None:
            release(self._machine)

    def forked(self) -> None:
        super().forked()
        self._watcher = None
        self._watcher_lock = threading.Lock()
