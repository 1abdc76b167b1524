"""Logging of a process: text or JSON lines, to stderr or to a file."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextvars import ContextVar
from typing import NamedTuple

from neo.net.logfiles import reopen

TEXT = "%(asctime)s.%(msecs)03d %(levelname)-8s %(name)-12s %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"
FORMATS = ("text", "json")
#: The format of a process with several nodes: each line has the name of one.
SHARED = TEXT.replace("%(message)s", "%(node)-9s %(message)s")

#: The node of this process that is at work; empty if it has one node only, or in threads of databases.
NODE: ContextVar[str] = ContextVar("node", default="")

logger = logging.getLogger("neo.node")


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, node, message, and the traceback if any."""

    def __init__(self, node: str) -> None:
        super().__init__(datefmt="%Y-%m-%dT%H:%M:%S")
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03d}",
            "level": record.levelname,
            "logger": record.name,
            "node": NODE.get() or self._node,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class LogFile(NamedTuple):
    """Where the log of a node goes. ``node``: its name among the nodes of this process, or empty."""

    node: str
    program: str
    path: str | None
    form: str
    level: str


def configure_logging(node: str, path: str | None, form: str, level: str) -> None:
    """Send all logs to ``path``, or stderr. Raises OSError when the file cannot be written."""
    configure_logs([LogFile("", node, path, form, level)])


def configure_logs(files: Sequence[LogFile]) -> None:
    """Send what each node logs to its file, or stderr, and what belongs to no node to all of them. Nodes
    may share a file, whose lines then have their names. Raises OSError when a file cannot be written."""
    handlers: dict[str | None, logging.Handler] = {}
    for file in files:
        if file.path not in handlers:
            sharing = [other for other in files if other.path == file.path]
            handlers[file.path] = _handler(file, sharing)
    root = logging.getLogger()
    root.handlers[:] = handlers.values()
    root.setLevel(min(handler.level for handler in handlers.values()))


def _handler(file: LogFile, sharing: Sequence[LogFile]) -> logging.Handler:
    handler: logging.Handler
    handler = logging.FileHandler(file.path) if file.path else logging.StreamHandler()
    if file.form == "json":
        handler.setFormatter(JsonFormatter(file.program))
    else:
        handler.setFormatter(logging.Formatter(TEXT if len(sharing) == 1 else SHARED, TIME))
    handler.setLevel(file.level.upper())
    names = {"", *(other.node for other in sharing)}

    def mine(record: logging.LogRecord) -> bool:
        node = vars(record)["node"] = NODE.get()
        return node in names

    handler.addFilter(mine)
    return handler


def reopen_logs() -> None:
    """Write what is buffered, and reopen a log file that was moved. For SIGUSR2 and FlushLog."""
    reopen(logging.getLogger().handlers, logger, "send SIGUSR2, or neoctl flush_log")
