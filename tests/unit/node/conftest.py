from __future__ import annotations

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
