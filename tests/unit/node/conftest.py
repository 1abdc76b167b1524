from __future__ import annotations

import pytest

from tests.support.remote import FakeShell
from tests.unit.node.serving import Asking, Server


@pytest.fixture
def shell() -> FakeShell:
    return FakeShell()


@pytest.fixture
def core(shell: FakeShell) -> Server:
    core = Server(shell)
    shell.core = core
    core.start()
    return core


@pytest.fixture
def asking(core: Server, shell: FakeShell) -> Asking:
    return Asking(core, shell)
