"""Log files that another program rotates."""

from __future__ import annotations

import logging
from collections.abc import Iterable


def reopen(handlers: Iterable[logging.Handler], logger: logging.Logger, again: str) -> None:
    """Flush buffers, and open a file again that was moved away. ``again``: how the operator repeats that.

    Raises nothing: a log that stays in the moved file is no reason to stop a node or an application.
    """
    for handler in handlers:
        handler.flush()
        if isinstance(handler, logging.FileHandler):
            path = handler.baseFilename
            try:
                stream = open(path, "a", encoding=handler.encoding)
            except OSError as e:
                logger.error(
                    "log %s cannot be opened again (%s): this process goes on writing to the file that "
                    "was moved away; correct the path or its permissions, then %s",
                    path,
                    e.strerror,
                    again,
                )
            else:
                old = handler.setStream(stream)
                if old is not None:
                    old.close()
