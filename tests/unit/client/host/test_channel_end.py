"""Other threads at the ends of a channel: the watcher that serves it, and a second one that ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from neo.client.host.system import System
from neo.net.channel import Channel
from neo.net.host import Lock, Watch, Watched, Wire
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


class QuietWatch:
    """A watch of a watcher that does nothing by itself."""

    def __init__(self) -> None:
        self.armed = False

    def arm(self) -> None:
        self.armed = True

    def disarm(self) -> None: ...

    def forget(self) -> None: ...


class SlowWatch(QuietWatch):
    """A watch whose first forget() lets a second thread end the channel, as far as that can go."""

    def __init__(self, host: TwoThreads, wire: Wire, watched: Watched) -> None:
        super().__init__()
        assert isinstance(wire, OpenWire)
        assert isinstance(watched, Channel)
        self._host, self._wire, self._channel = host, wire, watched
        self._called = False

    def forget(self) -> None:
        if not self._called:
            self._called = True
            self._host.begin(self._close)
            # The descriptor is unregistered here: a closed one is EBADF, or another channel's.
            self._host.closed_too_early = self._wire.closed

    def _close(self) -> None:
        self._channel.close("closed by the second thread")


class SecondThread(System):
    """A host with a second thread."""

    def __init__(self) -> None:
        super().__init__(PATIENCE_SECONDS)
        #: Set when the second thread blocks on a lock, or is over.
        self.stopped = threading.Event()
        self.second = threading.Thread()
        self.errors: list[Exception] = []

    def lock(self) -> Lock:
        return ObservedLock(self.stopped)

    def begin(self, act: Callable[[], None]) -> None:
        """Run something in the second thread, until it blocks or is over."""

        def run() -> None:
            try:
                act()
            except Exception as e:  # noqa: BLE001 - shown by the test
                self.errors.append(e)
            self.stopped.set()

        self.second = threading.Thread(target=run)
        self.second.start()
        assert self.stopped.wait(PATIENCE_SECONDS)


class TwoThreads(SecondThread):
    """A host that runs a second thread while the first one forgets the descriptor."""

    closed_too_early: bool | None = None

    def watch(self, wire: Wire, watched: Watched) -> Watch:
        return SlowWatch(self, wire, watched)


def test_a_descriptor_is_open_while_the_watcher_forgets_it() -> None:
    host, wire, recorder = TwoThreads(), OpenWire(), Recorder()
    channel = Channel(host, wire, recorder, "peer", PATIENCE_SECONDS)
    channel.close("closed by the first thread")
    host.second.join(PATIENCE_SECONDS)
    assert not host.errors
    assert host.closed_too_early is False
    assert wire.closed
    assert recorder.reasons == ["closed by the first thread"]


class EagerWatcher(SecondThread):
    """A host whose watcher sweeps a channel before the channel has its watch."""

    def __init__(self) -> None:
        super().__init__()
        self.made = QuietWatch()

    def watch(self, wire: Wire, watched: Watched) -> Watch:
        self.begin(watched.sweep)
        return self.made


def test_the_watcher_may_sweep_a_channel_that_is_being_made() -> None:
    host, recorder = EagerWatcher(), Recorder()
    channel = Channel(host, OpenWire(), recorder, "peer", PATIENCE_SECONDS)
    host.second.join(PATIENCE_SECONDS)
    assert not host.errors
    assert host.made.armed
    channel.close("closed by the test")
    assert recorder.reasons == ["closed by the test"]
