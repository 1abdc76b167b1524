"""Caches of clients (specification 17.65)."""

from __future__ import annotations

from rich.filesize import decimal

from neo.admin.facts import Data, cache_data
from neo.protocol.packets import AskClientCaches
from neo.protocol.words import counted
from neoctl.client import AdminClient
from neoctl.verbs import Arguments, Reply, verb


@verb("print caches", "of each client: how full its cache is, and how many loads it answered")
def print_caches(admin: AdminClient, arguments: Arguments) -> Reply:
    """Data: ``caches``, see :func:`neo.admin.facts.cache_data`."""
    rows = cache_data(admin.ask(AskClientCaches()).row_list)
    lines = [" | ".join([row["nid"], row["name"], _room(row), _hits(row)]) for row in rows]
    return Reply("\n".join(lines) or "No client tells its cache.", {"caches": rows})


def _room(row: Data) -> str:
    entries = counted(row["entries"], "revision")
    return f"{decimal(row['bytes'])} of {decimal(row['capacity'])}, {entries}"


def _hits(row: Data) -> str:
    loads = row["hits"] + row["misses"]
    return f"{row['hits'] / loads:.1%} of {counted(loads, 'load')}" if loads else "no loads"
