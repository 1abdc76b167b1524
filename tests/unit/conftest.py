from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def backend(node: Any) -> Any:
    """The backend of ``node``, with a new database in which node 1 has all cells. The contract of
    backends is tested in several folders; each has ``node`` fixtures of its own."""
    return node.ready()
