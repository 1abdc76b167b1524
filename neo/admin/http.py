"""Pages of the admin node, for programs that watch a cluster: ``/live``, ``/ready``, ``/metrics``."""

from __future__ import annotations

from concurrent.futures import Future
from http import HTTPStatus

from neo.admin.observing import Observer, Snapshot
from neo.node.http import TEXT, TIMEOUT_SECONDS, FromThread, Page

METRICS = "text/plain; version=0.0.4; charset=utf-8"
NOT_INSTALLED = "metrics need the package prometheus-client: pip install 'zodb-neo[metrics]'\n"


class AdminPages:
    """Methods are called in threads of requests."""

    def __init__(self, cluster: str, observer: Observer, from_thread: FromThread) -> None:
        self._cluster = cluster
        self._observer = observer
        self._from_thread = from_thread

    def page(self, path: str) -> Page:
        answer = {"/live": _live, "/ready": _ready, "/metrics": self._metrics}.get(path)
        if answer is None:
            text = b"/live: this process works; /ready: the cluster serves; /metrics\n"
            return Page(HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND, TEXT, text)
        snapshot: Future[Snapshot] = Future()
        if answer is _live:  # whatever the master does
            self._from_thread(snapshot.set_result, Snapshot())
        else:
            self._from_thread(self._observer.observe, snapshot.set_result)
        try:
            return answer(snapshot.result(TIMEOUT_SECONDS))
        except TimeoutError:
            return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"no answer of the admin node\n")

    def _metrics(self, snapshot: Snapshot) -> Page:
        try:
            # Here, because it is an extra.
            from neo.admin.metrics import exposition
        except ImportError:
            return Page(HTTPStatus.NOT_IMPLEMENTED, TEXT, NOT_INSTALLED.encode())
        return Page(HTTPStatus.OK, METRICS, exposition(snapshot, self._cluster))


def _live(snapshot: Snapshot) -> Page:
    return Page(HTTPStatus.OK, TEXT, b"live\n")


def _ready(snapshot: Snapshot) -> Page:
    status = HTTPStatus.OK if snapshot.ready else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(status, TEXT, f"{snapshot.summary}\n".encode())
