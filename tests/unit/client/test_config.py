"""The log file of the client."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.client.config import log_to
from neo.protocol.packets import FlushLog
from tests.unit.client.scripted import scripted


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


def test_the_log_of_a_client_is_opened_again(
    handlers: list[logging.Handler], tmp_path: Path
) -> None:
    """FlushLog arrives after the file was moved away. Handlers of the application stay."""
    client, path = logging.getLogger("neo.client"), tmp_path / "client.log"
    log_to(str(path))
    own = logging.FileHandler(tmp_path / "own.log")
    logging.getLogger().addHandler(own)
    try:
        with scripted([1]) as (cluster, storage):
            client.error("before")
            for name in ("client.log", "own.log"):
                (tmp_path / name).rename(tmp_path / f"{name}.1")
            cluster.tell(FlushLog())
            storage.sync()
            client.error("after")
        assert "after" in path.read_text() and "before" not in path.read_text()
        assert not (tmp_path / "own.log").exists()
    finally:
        logging.getLogger().removeHandler(own)
        own.close()
