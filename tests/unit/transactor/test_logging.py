"""The destination of the daemon's log messages."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.transactor.__main__ import configure_logging
from neo.transactor.config import Config, load
from tests.support.patience import PATIENCE_SECONDS

CONFIG = """
[transactor]
name = a
service = 127.0.0.1:1
tlog = tlog
mlog = mlog
log = {}
[peers]
a = 127.0.0.1:3
"""


@pytest.fixture(autouse=True)
def _root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def config(tmp_path: Path, log: str) -> Config:
    path = tmp_path / "conf"
    path.write_text(CONFIG.format(log))
    return load(str(path))


@pytest.mark.parametrize(("log", "facility"), [("", 3), ("syslog:local1", 17)])
def test_in_the_background_messages_go_to_syslog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str, facility: int
) -> None:
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(path)
        syslog.settimeout(PATIENCE_SECONDS)
        configure_logging(config(tmp_path, log), foreground=False, socket=path)
        logging.getLogger("transactor").warning("something happened")
        assert syslog.recv(1000) == b"<%d>transactor: something happened\0" % (facility * 8 + 4)
    assert capsys.readouterr().err == ""


def test_without_syslog_the_start_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "log")
    configure_logging(config(tmp_path, ""), foreground=False, socket=path)
    told = capsys.readouterr().err
    assert told.startswith(f"transactor: syslog does not listen at {path}: messages are lost")


def test_a_log_that_cannot_be_opened_again_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    configure_logging(config(tmp_path, str(folder / "log")), foreground=False)
    folder.rename(tmp_path / "moved")
    logging.getLogger("transactor").warning("while it is away")
    assert "while it is away" in capsys.readouterr().err
    folder.mkdir()
    logging.getLogger("transactor").warning("it is back")
    assert (folder / "log").read_text().endswith("transactor: it is back\n")
