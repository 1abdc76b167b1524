"""Addresses as people write them, and the options of every socket."""

from __future__ import annotations

import socket

import pytest

from neo.net.sockets import (
    configure,
    format_address,
    is_loopback,
    parse_address,
    parse_addresses,
    parse_bind,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        (" 127.0.0.1:0 ", ("127.0.0.1", 0)),
        ("[::1]:8000", ("::1", 8000)),
    ],
)
def test_address(text: str, address: tuple[str, int]) -> None:
    """Specification 2.9."""
    assert parse_address(text) == address
    assert format_address(address) == text.strip(), "it is written as it is read"


def test_names_of_hosts_are_resolved() -> None:
    assert parse_address("localhost:1")[0] in {"127.0.0.1", "::1"}
    with pytest.raises(ValueError, match=r"host of 'no-such-host.invalid:1' cannot be resolved"):
        parse_address("no-such-host.invalid:1")
    assert format_address(None) == "-", "there is no address"


@pytest.mark.parametrize(
    "text", ["", ":", "host", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:http", "::1",
             "127.0.0.1:65536", "127.0.0.1:-1"]
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="write host:port or|cannot be resolved"):
        parse_address(text)


def test_default_port() -> None:
    assert parse_address("127.0.0.1", default_port=7) == ("127.0.0.1", 7)
    assert parse_address("127.0.0.1:8", default_port=7) == ("127.0.0.1", 8)


def test_addresses_are_each_there_once_in_their_order() -> None:
    text = "127.0.0.1:2, 127.0.0.1:1 [::1]:1,127.0.0.1:2"
    assert parse_addresses(text) == [("127.0.0.1", 2), ("127.0.0.1", 1), ("::1", 1)]
    assert parse_addresses("") == []


def test_options_of_a_socket() -> None:
    """Specification 2.31."""
    with socket.socket() as sock:
        configure(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        values = [
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        idle, interval, probes = values
        # A machine that vanished is noticed as late while data waits for it as while none does.
        limit = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert idle + interval * probes == limit / 1000 == 20


def test_an_address_without_a_host_listens_on_loopback() -> None:
    """Specification 22.9."""
    assert parse_bind(":2051") == parse_bind("2051") == parse_bind("127.0.0.1:2051")
    assert parse_bind(" 2051 ") == ("127.0.0.1", 2051)
    assert parse_bind("0.0.0.0:2051") == ("0.0.0.0", 2051)
    for text in ("", ":", "host", ":70000", "::1"):
        with pytest.raises(ValueError):
            parse_bind(text)


@pytest.mark.parametrize(
    ("host", "only_here"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("fe80::1%eth0", False)],
)  # fmt: skip
def test_which_addresses_only_this_machine_reaches(host: str, only_here: bool) -> None:
    assert is_loopback((host, 1)) is only_here
