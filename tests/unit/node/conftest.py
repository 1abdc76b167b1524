from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.remote import FakeHost
from tests.unit.node.serving import Asking, Server


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def core(host: FakeHost) -> Server:
    core = Server(host)
    host.core = core
    core.start()
    return core


@pytest.fixture
def asking(core: Server, host: FakeHost) -> Asking:
    return Asking(core, host)


@pytest.fixture
def root_logger() -> Iterator[None]:
    """The root logger as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
