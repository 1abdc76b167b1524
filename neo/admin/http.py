"""Pages of the admin node, for programs that watch a cluster: ``/live``, ``/ready``, ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from http import HTTPStatus
from typing import NamedTuple

from neo.admin.observing import Observer, Snapshot
from neo.node.figures import Sample
from neo.node.http import TEXT, TIMEOUT_SECONDS, FromThread, Page
from neo.node.pages import NOT_INSTALLED


class Observed(NamedTuple):
    """The cluster, and this node."""

    snapshot: Snapshot
    samples: list[Sample]


class AdminPages:
    """Methods are called in threads of requests. ``samples``: the figures of this node."""

    def __init__(
        self,
        cluster: str,
        observer: Observer,
        from_thread: FromThread,
        samples: Callable[[], Iterable[Sample]],
    ) -> None:
        self._cluster = cluster
        self._observer = observer
        self._from_thread = from_thread
        self._samples = samples

    def page(self, path: str) -> Page:
        answer = {"/live": _live, "/ready": _ready, "/metrics": self._metrics}.get(path)
        if answer is None:
            text = b"/live: this process works; /ready: the cluster serves; /metrics\n"
            return Page(HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND, TEXT, text)
        observed: Future[Observed] = Future()
        if answer is _live:  # whatever the master does
            self._from_thread(observed.set_result, Observed(Snapshot(), []))
        else:
            self._from_thread(self._observe, observed)
        try:
            return answer(observed.result(TIMEOUT_SECONDS))
        except TimeoutError:
            return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"no answer of the admin node\n")

    def _observe(self, observed: Future[Observed]) -> None:
        """Run on the thread of the core."""

        def done(snapshot: Snapshot) -> None:
            try:
                observed.set_result(Observed(snapshot, list(self._samples())))
            except Exception as e:  # noqa: BLE001 - the thread of the request raises it
                observed.set_exception(e)

        self._observer.observe(done)

    def _metrics(self, observed: Observed) -> Page:
        try:
            # Here, because it is an extra.
            from neo.admin.metrics import families
            from neo.node.metrics import CONTENT_TYPE, exposition
        except ImportError:
            return Page(HTTPStatus.NOT_IMPLEMENTED, TEXT, NOT_INSTALLED.encode())
        text = exposition(observed.samples, families(observed.snapshot, self._cluster))
        return Page(HTTPStatus.OK, CONTENT_TYPE, text)


def _live(observed: Observed) -> Page:
    return Page(HTTPStatus.OK, TEXT, b"live\n")


def _ready(observed: Observed) -> Page:
    snapshot = observed.snapshot
    status = HTTPStatus.OK if snapshot.ready else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(status, TEXT, f"{snapshot.summary}\n".encode())
