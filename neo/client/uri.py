"""``neo://``, ``neos://`` and ``neo+embedded://`` for zodburi.

``neo://name@host:port,host:port?option=value&…``. Options of the storage are those of NEOStorage, with
underscores or hyphens. All others belong to zodburi (``connection_pool_size``, ``database_name``…) and
are passed on. With zodburi's ``demostorage``, changes stay in the memory of the process.
``neos://`` uses TLS: its files come from the options ``ca``, ``cert``, ``key`` or from the
environment variables NEO_CA, NEO_CERT, NEO_KEY.

``neo+embedded:///folder?option=value&…`` opens a folder inside the process (:mod:`neo.embedded`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote

from ZConfig.datatypes import SuffixMultiplier
from ZODB.DemoStorage import DemoStorage

from neo.client.config import log_to, parse_boolean, parse_compress
from neo.client.embedded import open_folder
from neo.client.errors import ConfigurationError
from neo.client.storage import NEOStorage

Resolved = tuple[Callable[[], NEOStorage | DemoStorage], dict[str, str]]

_byte_size = SuffixMultiplier({"kb": 1024, "mb": 1024**2, "gb": 1024**3})
_OPTIONS: dict[str, Callable[[str], Any]] = {
    "compress": parse_compress,
    "read_only": parse_boolean,
    "durable_vote": parse_boolean,
    "server_sync": parse_boolean,
    "tracing": parse_boolean,
    "cache_size": _byte_size,
    "cache_dir": str,
    "wait_timeout": float,
    "blob_dir": str,
    "blob_cache_size": _byte_size,
    "blob_cache_size_check": int,
    "dynamic_master_list": str,
    "logfile": str,
    "ca": str,
    "cert": str,
    "key": str,
}
_TLS = ("ca", "cert", "key")
#: An option of zodburi's own resolvers. ZConfig has the section <demostorage> instead.
_DEMO = "demostorage"


def resolve(uri: str) -> Resolved:
    """Return (factory of the storage, arguments for ZODB.DB). Raise ConfigurationError."""
    options, others = _parse(uri)
    return partial(_open, options), others


def resolve_tls(uri: str) -> Resolved:
    """Do the same as resolve(), with TLS only."""
    options, others = _parse(uri)
    for name in _TLS:
        variable = f"NEO_{name.upper()}"
        value = options.get(name) or os.environ.get(variable)
        if not value:
            raise ConfigurationError(f"neos://: option {name!r} or variable {variable} is missing")
        options[name] = value
    return partial(_open, options), others


def resolve_embedded(uri: str) -> Resolved:
    """Do the same as resolve() for a folder, without a cluster."""
    location, _, query = uri.partition("://")[2].partition("?")
    path = unquote(location)
    if not path.startswith("/"):
        raise ConfigurationError(f"{uri!r} is not neo+embedded:///absolute/path?option=value")
    options, others = _parse_query(uri, query)
    return partial(_open, {"path": path, **options}), others


def _parse(uri: str) -> tuple[dict[str, Any], dict[str, str]]:
    location, _, query = uri.partition("://")[2].partition("?")
    name, at, masters = location.rstrip("/").rpartition("@")
    if not at or not name or not masters:
        raise ConfigurationError(f"{uri!r} is not neo://name@host:port,host:port?option=value")
    options, others = _parse_query(uri, query)
    return {"master_nodes": masters, "name": unquote(name), **options}, others


def _parse_query(uri: str, query: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the options of the storage, and the others."""
    options: dict[str, Any] = {}
    others = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        convert = parse_boolean if key == _DEMO else _OPTIONS.get(key.replace("-", "_"))
        if convert is None:
            others[key] = value
            continue
        try:
            options[key.replace("-", "_")] = convert(value)
        except ValueError as e:
            raise ConfigurationError(f"option {key!r} of {uri!r}: {e}") from None
    return options, others


def _open(options: dict[str, Any]) -> NEOStorage | DemoStorage:
    options = dict(options)
    demo = options.pop(_DEMO, False)
    logfile = options.pop("logfile", None)
    if logfile:
        log_to(logfile)
    path = options.pop("path", None)
    storage = NEOStorage(**options) if path is None else open_folder(path, **options)
    return DemoStorage(base=storage) if demo else storage
