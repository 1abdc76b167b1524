"""Addresses, and the options of every TCP socket."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from neo.protocol.packets import Address

#: The protocol has no heartbeat: the kernel notices that a machine vanished (power, cable). An idle
#: connection is probed, this long after the last byte...
KEEPALIVE_IDLE_SECONDS = 10
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_PROBES = 2
#: ...but one with unacknowledged data is not: without a limit, that is sent again for a quarter of an
#: hour, in which a transaction that waits for its answer blocks all others. As long as the probes take.
UNACKNOWLEDGED_SECONDS = 20
#: A portion read from a socket at once.
READ_SIZE = 256 * 1024


def configure(sock: socket.socket) -> None:
    """Set the options: no delay for small messages, and detection of vanished peers."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_SECONDS * 1000)


#: Where a node listens if its address names no host: a program that reaches the port of a cluster
#: without TLS can stop it.
LOOPBACK = "127.0.0.1"


def parse_bind(text: str) -> Address:
    """Return the address to listen on. Without a host it is that of loopback. See
    :func:`parse_address`."""
    text = text.strip()
    port = text.removeprefix(":")
    return parse_address(f"{LOOPBACK}:{port}" if port.isdigit() else text)


def is_loopback(address: Address) -> bool:
    """Return whether only this machine reaches an address, whose host is a literal."""
    return ip_address(address[0].partition("%")[0]).is_loopback


def parse_address(text: str, default_port: int | None = None) -> Address:
    """Return the address of ``host:port`` or ``[ipv6]:port``, with the host resolved to an IP literal.

    Raises ValueError when the form is wrong or the name is unknown.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon and default_port is not None:
        host, port = text.strip(), str(default_port)
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: write host:port or [ipv6]:port")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        raise ValueError(f"host of {text!r} cannot be resolved: {e}") from None
    literal: str = found[0][4][0]  # type: ignore[assignment]
    return literal, int(port)


def parse_addresses(text: str) -> list[Address]:
    """Return addresses that are separated by spaces or commas, each once, in their order."""
    return list(dict.fromkeys(parse_address(part) for part in text.replace(",", " ").split()))


def format_address(address: Address | None) -> str:
    if address is None:
        return "-"
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
