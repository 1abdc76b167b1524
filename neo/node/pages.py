"""The pages of a node: ``/live``, ``/ready``, ``/metrics`` (specification 17.35)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from typing import NamedTuple, Protocol

from neo.node.core import Core
from neo.node.figures import Sample
from neo.node.http import TEXT, TIMEOUT_SECONDS, Page

NOT_INSTALLED = "metrics need the package prometheus-client: pip install 'zodb-neo[metrics]'\n"
HELP = b"/live: this process works; /ready: this node does its part; /metrics\n"


class Observed(NamedTuple):
    """What a node says of itself."""

    ready: bool
    summary: str
    samples: list[Sample]


class Owner(Protocol):
    """The host of the node."""

    @property
    def core(self) -> Core | None: ...

    @property
    def waits(self) -> str:
        """Why there is no core."""

    def from_thread(self, callback: Callable[..., None], *args: object) -> object: ...


class NodePages:
    """Methods are called in threads of requests."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def page(self, path: str) -> Page:
        answer = {"/live": _live, "/ready": _ready, "/metrics": _metrics}.get(path)
        if answer is None:
            return Page(HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND, TEXT, HELP)
        observed: Future[Observed] = Future()
        self._owner.from_thread(self._observe, observed)
        try:
            return answer(observed.result(TIMEOUT_SECONDS))
        except TimeoutError:
            return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"no answer of the node\n")

    def _observe(self, observed: Future[Observed]) -> None:
        """Run on the thread of the core."""
        core = self._owner.core
        try:
            if core is None:
                observed.set_result(Observed(False, self._owner.waits, []))
            else:
                readiness = core.readiness()
                observed.set_result(Observed(readiness.ready, readiness.text, list(core.samples())))
        except Exception as e:  # noqa: BLE001 - the thread of the request raises it
            observed.set_exception(e)


def _live(observed: Observed) -> Page:
    return Page(HTTPStatus.OK, TEXT, b"live\n")


def _ready(observed: Observed) -> Page:
    status = HTTPStatus.OK if observed.ready else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(status, TEXT, f"{observed.summary}\n".encode())


def _metrics(observed: Observed) -> Page:
    try:
        # Here, because it is an extra.
        from neo.node.metrics import CONTENT_TYPE, exposition
    except ImportError:
        return Page(HTTPStatus.NOT_IMPLEMENTED, TEXT, NOT_INSTALLED.encode())
    return Page(HTTPStatus.OK, CONTENT_TYPE, exposition(observed.samples))
