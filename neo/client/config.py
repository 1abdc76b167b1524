"""``%import neo.client`` and ``<NEOStorage>`` in ZConfig; see component.xml."""

from __future__ import annotations

import logging
from os.path import abspath
from typing import Any

from ZODB.config import BaseConfig

from neo.client.embedded import open_folder
from neo.client.errors import ConfigurationError
from neo.client.storage import NEOStorage

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NUMBERS = {"1": True, "0": False}
#: Keys with two spellings.
_BOTH = (
    *("master_nodes", "read_only", "cache_size", "wait_timeout", "dynamic_master_list"),
    *("cache_dir", "blob_dir", "blob_cache_size", "blob_cache_size_check"),
    *("durable_vote", "server_sync"),
)
_ONE = ("compress", "tracing", "ca", "cert", "key")


def parse_boolean(text: str) -> bool:
    """Parse ZConfig's words, or 1 or 0 as in URIs. Raise ValueError."""
    value = (_WORDS | _NUMBERS).get(text.lower())
    if value is None:
        raise ValueError(f"{text!r} is not true or false")
    return value


def parse_compress(text: str) -> bool | int:
    """Parse a boolean in ZConfig's words, or a level. Raise ConfigurationError."""
    word = _WORDS.get(text.lower())
    if word is not None:
        return word
    if text.isdigit():
        return int(text)
    raise ConfigurationError(f"compress is a boolean or a level from 0 to 9, not {text!r}")


def log_to(path: str) -> None:
    """Write log messages of the client to this file, too."""
    logger = logging.getLogger("neo.client")
    for handler in logger.handlers:
        if isinstance(handler, logging.FileHandler) and handler.baseFilename == abspath(path):
            return
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)


class NEOStorageFactory(BaseConfig):
    """A parsed section of ZConfig; open() returns the storage."""

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of NEOStorage, or with ``path`` those of
        :func:`neo.client.embedded.open_folder`. Raise ConfigurationError."""
        config = self.config
        options: dict[str, Any] = {name: getattr(config, name) for name in _ONE}
        for name in _BOTH:
            first, second = getattr(config, name), getattr(config, f"{name}_")
            if first is not None and second is not None:
                raise ConfigurationError(f"<NEOStorage>: {name} is given twice")
            options[name] = second if first is None else first
        options = {name: value for name, value in options.items() if value is not None}
        if config.path is not None:
            if config.name is not None:
                options["name"] = config.name
            options["path"] = config.path
        else:
            for name in ("master_nodes", "name"):
                if getattr(config, name, None) is None and options.get(name) is None:
                    raise ConfigurationError(
                        f"<NEOStorage>: {name} is missing; or give path, for a database in this process"
                    )
            options["name"] = config.name
        options["compress"] = parse_compress(options["compress"])
        return options

    def open(self) -> NEOStorage:
        options = self.options()
        if self.config.logfile:
            log_to(self.config.logfile)
        return open_folder(**options) if "path" in options else NEOStorage(**options)
