"""Lines of the log, for people and for programs."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from neo.node.log import configure_logging, reopen_logs

pytestmark = pytest.mark.usefixtures("root_logger")


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "log"
    configure_logging("neomaster", str(path), "text", "info")
    logging.getLogger("neo.node").warning("%s of %s", 1, 2)
    logging.getLogger("neo.node").debug("not this")
    (line,) = path.read_text().splitlines()
    assert line.endswith(" WARNING  neo.node     1 of 2")


def test_json_is_one_object_a_line_whatever_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "log"
    configure_logging("neomaster", str(path), "json", "debug")
    try:
        raise KeyError("a\nb")
    except KeyError:
        logging.getLogger("neo.node").exception('line 1\nline "2"')
    (line,) = path.read_text().splitlines()
    entry = json.loads(line)
    assert entry["message"] == 'line 1\nline "2"'
    assert entry["traceback"].startswith("Traceback")
    assert (entry["level"], entry["node"]) == ("ERROR", "neomaster")


@pytest.mark.parametrize("gone", ["moved", "removed"])
def test_a_file_that_is_gone_is_made_again_when_asked(tmp_path: Path, gone: str) -> None:
    path, moved = tmp_path / "log", tmp_path / "moved"
    configure_logging("neomaster", str(path), "text", "info")
    if gone == "moved":
        path.rename(moved)
    else:
        path.unlink()
    logging.getLogger("a").info("before")
    reopen_logs()
    logging.getLogger("a").info("after")
    assert path.read_text().splitlines()[0].endswith("after")
    assert gone == "removed" or "before" in moved.read_text()


def test_a_file_that_cannot_be_opened_again_is_written_on(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "log"
    configure_logging("neomaster", str(path), "text", "info")
    moved = (tmp_path / "logs").rename(tmp_path / "moved")
    reopen_logs()
    logging.getLogger("a").info("goes on")
    lines = (moved / "log").read_text().splitlines()
    assert f"log {path} cannot be opened again (No such file or directory)" in lines[0]
    assert "goes on" in lines[1]
    (tmp_path / "logs").mkdir()
    reopen_logs()
    logging.getLogger("a").info("mended")
    assert "mended" in path.read_text()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        configure_logging("neomaster", str(tmp_path / "missing" / "log"), "text", "info")


def test_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("neomaster", None, "text", "error")
    logging.getLogger("a").error("seen")
    reopen_logs()
    assert "seen" in capsys.readouterr().err
