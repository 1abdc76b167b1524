"""Addresses and the options of every TCP socket, for both shells."""

from __future__ import annotations

import socket

from neo.protocol.packets import Address

#: The protocol has no heartbeat: a peer that vanished is noticed after 60 + 3 × 10 s (FACTS 3.10).
KEEPALIVE_IDLE_SECONDS = 60
KEEPALIVE_INTERVAL_SECONDS = 10
KEEPALIVE_PROBES = 3
#: A portion read from a socket at once.
READ_SIZE = 256 * 1024


def configure(sock: socket.socket) -> None:
    """No delay for small messages, and detection of vanished peers."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


def parse_address(text: str, default_port: int | None = None) -> Address:
    """``host:port`` or ``[ipv6]:port`` with the host resolved to an IP literal.

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
    """Several addresses separated by spaces or commas, each once, in their order."""
    return list(dict.fromkeys(parse_address(part) for part in text.replace(",", " ").split()))


def format_address(address: Address | None) -> str:
    if address is None:
        return "-"
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
