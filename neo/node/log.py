"""Logging of a process: text or JSON lines, to stderr or to a file."""

from __future__ import annotations

import json
import logging

from neo.net.logfiles import reopen

TEXT = "%(asctime)s.%(msecs)03d %(levelname)-8s %(name)-12s %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"
FORMATS = ("text", "json")

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
            "node": self._node,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logging(node: str, path: str | None, form: str, level: str) -> None:
    """Send all logs to ``path``, or stderr. Raises OSError when the file cannot be written."""
    handler: logging.Handler = logging.FileHandler(path) if path else logging.StreamHandler()
    handler.setFormatter(JsonFormatter(node) if form == "json" else logging.Formatter(TEXT, TIME))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def reopen_logs() -> None:
    """Write what is buffered, and reopen a log file that was moved. For SIGUSR2 and FlushLog."""
    reopen(logging.getLogger().handlers, logger, "send SIGUSR2, or neoctl flush_log")
