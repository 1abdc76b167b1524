"""Settings of a client."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from neo.client.errors import ConfigurationError
from neo.client.tracing.spans import Tracer
from neo.net.sockets import parse_addresses
from neo.net.tls import tls_context
from neo.protocol.packets import Address

CACHE_BYTES = 20 * 1024 * 1024
WAIT_SECONDS = 30.0
#: Bound of the folder of blobs.
BLOB_CACHE_BYTES = 10 << 30
#: Percentage of this bound that a process adds before it lists the folder again.
BLOB_CACHE_CHECK = 10
#: zlib's default level.
COMPRESS_LEVEL = 6
#: Data of a transaction that may wait for answers, even without a cache.
UNANSWERED_MIN_BYTES = 4 * 1024 * 1024
#: The same where client and nodes share the interpreter's lock: less switches more often between their
#: threads, more makes them wait for each other at each statement of SQL and each compressed record.
UNANSWERED_TURN_BYTES = 48 * 1024
#: Requests of a transaction that wait for the next ones while a node is at work: they leave with one
#: write, which wakes up the node once, and their answers the client. More would leave a quick node idle.
HELD = 7
#: Where they take turns, bytes are the bound; deletions have none.
HELD_TURN = 255


@dataclass(frozen=True)
class Settings:
    """``tls``: None for plain text. ``wait_timeout``: seconds. ``compress``: level of zlib.

    ``cache_size``, ``unanswered_max``, ``cached_max``: bytes; the last two are data of a transaction that
    waits for answers, for the cache. ``held``: requests of a transaction that may wait for the next ones.
    ``cache_dir``: the folder in which the cache is kept, or None.
    ``blob_dir``: the folder in which contents of blobs are kept for the processes of this machine; None
    for a temporary one. ``blob_cache_size``: its bound in bytes; the client looks at the folder again
    after it has added ``blob_cache_size_check`` percent of that. ``durable_vote``: each vote is on disk
    before tpc_vote returns, also if one storage node takes part. ``server_sync``: sync() waits for the
    master, so that everything is visible that was committed before. ``tracer``: takes spans of commits
    and loads, or None.
    """

    cluster: str
    masters: Sequence[Address]
    tls: ssl.SSLContext | None
    wait_timeout: float
    master_list: str | None
    compress: int
    cache_size: int
    unanswered_max: int
    held: int
    cached_max: int
    cache_dir: str | None = None
    blob_dir: str | None = None
    blob_cache_size: int = BLOB_CACHE_BYTES
    blob_cache_size_check: int = BLOB_CACHE_CHECK
    durable_vote: bool = False
    server_sync: bool = True
    tracer: Tracer | None = None


def make_settings(
    master_nodes: str | Iterable[str],
    name: str,
    wait_timeout: float,
    master_list: str | None,
    tls: tuple[str | None, str | None, str | None],
    compress: bool | int,
    cache_size: int,
    blobs: tuple[str | None, int, int] = (None, BLOB_CACHE_BYTES, BLOB_CACHE_CHECK),
    waits: tuple[bool, bool] = (False, True),
    cache_dir: str | None = None,
    tracing: bool = False,
    turns: bool = False,
) -> Settings:
    """Check and convert the arguments of a storage. ``tls``: ca, cert, key. ``blobs``:
    blob_dir, blob_cache_size, blob_cache_size_check. ``waits``: durable_vote, server_sync. ``tracing``:
    by OpenTelemetry. ``turns``: client and nodes share the interpreter's lock, and take turns with it.

    Raise ConfigurationError.
    """
    if not isinstance(master_nodes, str):
        master_nodes = " ".join(master_nodes)
    blob_dir, blob_cache_size, blob_cache_size_check = blobs
    try:
        addresses = parse_addresses(master_nodes)
        if not addresses:
            raise ValueError("no master is given: set master_nodes")
        if not name:
            raise ValueError("the cluster has no name: set name")
        if not 0 <= wait_timeout < inf:
            raise ValueError(f"wait_timeout is a number of seconds, not {wait_timeout}")
        context = _tls(*tls)
        _check_cache(cache_size, cache_dir)
        _check_blobs(blob_cache_size, blob_cache_size_check)
        if not 0 <= compress <= 9:
            raise ValueError(f"compress is a boolean or a level from 0 to 9, not {compress}")
    except ValueError as e:
        raise ConfigurationError(str(e)) from None
    return Settings(
        cluster=name,
        masters=addresses,
        tls=context,
        wait_timeout=wait_timeout,
        master_list=master_list,
        compress=COMPRESS_LEVEL if compress is True else int(compress),
        cache_size=cache_size,
        unanswered_max=UNANSWERED_TURN_BYTES if turns else max(cache_size, UNANSWERED_MIN_BYTES),
        held=HELD_TURN if turns else HELD,
        cached_max=cache_size // 2,
        cache_dir=cache_dir,
        blob_dir=blob_dir,
        blob_cache_size=blob_cache_size,
        blob_cache_size_check=blob_cache_size_check,
        durable_vote=waits[0],
        server_sync=waits[1],
        tracer=_tracer() if tracing else None,
    )


def _tls(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext | None:
    if ca and cert and key:
        return tls_context(ca, cert, key, server=False)
    if ca or cert or key:
        raise ValueError("TLS needs all of ca, cert and key")
    return None


def _tracer() -> Tracer:
    try:
        # Here, because it is an extra.
        from neo.client.tracing.open_telemetry import open_tracer
    except ImportError as e:
        raise ConfigurationError(
            f"option 'tracing' needs OpenTelemetry ({e}): pip install 'zodb-neo[tracing]'"
        ) from None
    return open_tracer()


def _check_cache(cache_size: int, cache_dir: str | None) -> None:
    if cache_size < 0:
        raise ValueError(f"cache_size is a number of bytes, not {cache_size}")
    if cache_dir is not None and not (cache_dir and cache_size):
        raise ValueError("cache_dir is a folder, and needs a cache_size of more than 0 bytes")


def _check_blobs(cache_size: int, check: int) -> None:
    if cache_size < 0:
        raise ValueError(f"blob_cache_size is a number of bytes, not {cache_size}")
    if not 0 <= check <= 100:
        raise ValueError(f"blob_cache_size_check is a percentage, not {check}")
