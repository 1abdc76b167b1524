"""Open a ZODB database by an address such as ``neo://demo@127.0.0.1:24000``.

Packages register for schemes as entry points of zodburi. So the demonstration also runs against
FileStorage, ZEO or RelStorage.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from ZODB import DB


class UnknownAddress(LookupError):
    """No installed package supports an address; the message says what to install."""


def open_storage(uri: str) -> Any:
    """Open the storage at an address. Raise UnknownAddress."""
    return _resolve(uri)[0]()


def open_database(uri: str) -> Any:
    """Open the storage at an address as a ZODB.DB. Raise UnknownAddress."""
    factory, options = _resolve(uri)
    return DB(
        factory(),
        pool_size=int(options.get("connection_pool_size", 7)),
        cache_size=int(options.get("connection_cache_size", 10000)),
        database_name=options.get("database_name", "unnamed"),
    )


def _resolve(uri: str) -> tuple[Any, dict[str, Any]]:
    scheme, colon, _ = uri.partition(":")
    found = list(entry_points(group="zodburi.resolvers", name=scheme))
    if not colon or not found:
        raise UnknownAddress(
            f"no installed package opens the storage address {uri!r}: install one that provides "
            f"{scheme}: addresses (zodburi provides file:, zodburi with ZEO zeo:)"
        )
    factory, options = found[0].load()(uri)
    return factory, options
