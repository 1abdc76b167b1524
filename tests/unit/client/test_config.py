"""Settings of the client that need no cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.client.config import log_to


@pytest.fixture
def handlers() -> Iterator[list[logging.Handler]]:
    """Return the handlers of the client's logger, which is emptied at the end."""
    logger = logging.getLogger("neo.client")
    yield logger.handlers
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


def test_storages_with_one_logfile_write_each_line_once(
    handlers: list[logging.Handler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("client.log", str(tmp_path / "client.log"), "client.log"):
        log_to(path)
    logging.getLogger("neo.client").error("a line")
    assert len(handlers) == 1
    assert (tmp_path / "client.log").read_text().count("a line") == 1
