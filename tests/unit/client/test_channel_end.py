"""Other threads at the ends of a channel: the watcher that serves it, and a second one that ends it."""

from __future__ import annotations

import threading
from types import TracebackType

from neo.client.system import System
from neo.net.channel import Channel
from neo.net.host import Lock, Served, Watch, Wire
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.peers import Recorder


class OpenWire:
    """A wire on which nothing arrives."""

    def __init__(self) -> None:
        self.closed = False

    def send(self, outgoing: list[bytes]) -> None:
        outgoing.clear()

    def receive(self, portions: list[bytes], wait: bool) -> bool:
        return False

    def flow(self) -> tuple[int, int]:
        return 0, 0

    def end(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class ObservedLock:
    """A lock that sets ``stopped`` before a thread blocks on it."""

    def __init__(self, stopped: threading.Event) -> None:
        self._lock = threading.Lock()
        self._stopped = stopped

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._stopped.set()
            self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


class SlowWatch:
    """A watch whose first forget() lets a second thread end the channel, as far as that can go."""

    def __init__(self, host: TwoThreads, wire: Wire, served: Served) -> None:
        assert isinstance(wire, OpenWire)
        assert isinstance(served, Channel)
        self._host, self._wire, self._channel = host, wire, served
        self._called = False

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def forget(self) -> None:
        if not self._called:
            self._called = True
            self._host.second = threading.Thread(target=self._close)
            self._host.second.start()
            assert self._host.stopped.wait(PATIENCE_SECONDS)
            # The descriptor is unregistered here: a closed one is EBADF, or another channel's.
            self._host.closed_too_early = self._wire.closed

    def _close(self) -> None:
        self._channel.close("closed by the second thread")
        self._host.stopped.set()


class TwoThreads(System):
    """A host that runs a second thread while the first one forgets the descriptor."""

    def __init__(self) -> None:
        super().__init__(PATIENCE_SECONDS)
        #: Set when the second thread blocks on a lock, or has ended the channel.
        self.stopped = threading.Event()
        self.second: threading.Thread | None = None
        self.closed_too_early: bool | None = None

    def lock(self) -> Lock:
        return ObservedLock(self.stopped)

    def watch(self, wire: Wire, served: Served) -> Watch:
        return SlowWatch(self, wire, served)


def test_a_descriptor_is_open_while_the_watcher_forgets_it() -> None:
    host, wire, recorder = TwoThreads(), OpenWire(), Recorder()
    channel = Channel(host, wire, recorder, "peer", PATIENCE_SECONDS)
    channel.close("closed by the first thread")
    assert host.second is not None
    host.second.join(PATIENCE_SECONDS)
    assert host.closed_too_early is False
    assert wire.closed
    assert recorder.reasons == ["closed by the first thread"]


class UnarmedWatch:
    """A watch that the test's own thread serves."""

    def __init__(self) -> None:
        self.armed = False

    def arm(self) -> None:
        self.armed = True

    def disarm(self) -> None: ...

    def forget(self) -> None: ...


class EagerWatcher(System):
    """A host whose watcher sweeps a channel before the channel has its watch."""

    def __init__(self) -> None:
        super().__init__(PATIENCE_SECONDS)
        #: Set when the sweep waits for a lock, or is over.
        self.stopped = threading.Event()
        self.errors: list[Exception] = []
        self.made = UnarmedWatch()
        self.sweep = threading.Thread()

    def lock(self) -> Lock:
        return ObservedLock(self.stopped)

    def watch(self, wire: Wire, served: Served) -> Watch:
        self.sweep = threading.Thread(target=self._sweep, args=(served,))
        self.sweep.start()
        assert self.stopped.wait(PATIENCE_SECONDS)
        return self.made

    def _sweep(self, served: Served) -> None:
        try:
            served.sweep()
        except Exception as e:  # noqa: BLE001 - shown by the test
            self.errors.append(e)
        self.stopped.set()


def test_the_watcher_may_sweep_a_channel_that_is_being_made() -> None:
    host, recorder = EagerWatcher(), Recorder()
    channel = Channel(host, OpenWire(), recorder, "peer", PATIENCE_SECONDS)
    host.sweep.join(PATIENCE_SECONDS)
    assert not host.errors
    assert host.made.armed
    channel.close("closed by the test")
    assert recorder.reasons == ["closed by the test"]
