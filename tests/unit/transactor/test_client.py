"""The client library, against a scripted transactor."""

from __future__ import annotations

import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from unittest.mock import Mock

import pytest

from neo.transactor.client import ResponseReader, Transaction, Transactor, TransactorError
from neo.transactor.messages import Sid
from tests.support.patience import PATIENCE_SECONDS


class Played:
    """A scripted transactor: reads lines, and sends what the test wants."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()[:2]
        self._sock: socket.socket | None = None
        self._file: BufferedReader | None = None

    def accept(self) -> None:
        self._server.settimeout(PATIENCE_SECONDS)
        self._sock, _ = self._server.accept()
        self._sock.settimeout(PATIENCE_SECONDS)
        self._file = self._sock.makefile("rb")

    def line(self) -> bytes:
        assert self._file is not None
        found: bytes = self._file.readline()
        return found.rstrip(b"\n")

    def post(self) -> tuple[int, int, bytes]:
        """Return the number, transaction and data of the next post."""
        word, request, tid, size = self.line().split()
        assert word == b"post" and self._file is not None
        data = self._file.read(int(size) + 1)
        return int(request), int(tid), data[:-1]

    def decide(self, sid: str, data: bytes, word: bytes = b"") -> tuple[int, bytes]:
        """Take the next post, answer it with this word, if any, and decide this data for its
        transaction. Return the transaction and the data that were posted."""
        request, tid, posted = self.post()
        answer = b"post_response %d %s\n" % (request, word) if word else b""
        self.say(answer + tspec(tid, sid, data))
        return tid, posted

    def say(self, data: bytes) -> None:
        assert self._sock is not None
        self._sock.sendall(data)

    def hang_up(self) -> None:
        assert self._sock is not None and self._file is not None
        self._file.close()
        self._sock.close()

    def close(self) -> None:
        if self._sock is not None:
            self.hang_up()
        self._server.close()


def tspec(tid: int, sid: str, data: bytes) -> bytes:
    return b"tlog_tspec tid %d sid %s size %d\n%s\n" % (tid, sid.encode(), len(data), data)


class Calling(threading.Thread):
    def __init__(self, client: Transactor[bytes], data: bytes) -> None:
        super().__init__()
        self.client = client
        self.data = data
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.client.execute(self.data, PATIENCE_SECONDS)
        except Exception as e:  # noqa: BLE001 - it is the result
            self.result = e

    def outcome(self) -> object:
        self.join(PATIENCE_SECONDS)
        return self.result


@pytest.fixture
def played() -> Iterator[Played]:
    played = Played()
    yield played
    played.close()


@pytest.fixture
def applied() -> list[tuple[int, bytes]]:
    return []


@pytest.fixture
def client(played: Played, applied: list[tuple[int, bytes]]) -> Iterator[Transactor[bytes]]:
    def apply(tid: int, data: bytes) -> bytes:
        if data == b"bad":
            raise ValueError("refused by the application")
        applied.append((tid, data))
        return b"result of " + data

    client = Transactor(played.address, apply, tid=5)
    played.accept()
    assert played.line() == b"subscribe 5"
    yield client
    client.close()


def test_the_result_is_that_of_ones_own_transaction(
    played: Played, client: Transactor[bytes], applied: list[tuple[int, bytes]]
) -> None:
    call = Calling(client, b"mine")
    assert played.decide("0:7", b"mine", b"posted 0:7 5") == (5, b"mine")
    assert call.outcome() == b"result of mine"
    assert applied == [(5, b"mine")]


def test_what_another_won_is_posted_again_for_the_next(
    played: Played, client: Transactor[bytes], applied: list[tuple[int, bytes]]
) -> None:
    call = Calling(client, b"mine")
    assert played.decide("1:1", b"theirs", b"posted 0:7 5") == (5, b"mine")
    assert played.decide("0:8", b"mine", b"posted 0:8 6") == (6, b"mine")
    assert call.outcome() == b"result of mine"
    assert applied == [(5, b"theirs"), (6, b"mine")]


@pytest.mark.parametrize(
    "word", [b"tid_new", b"other_sid", b"tid_started", b"tid_old", b"post_error"]
)
def test_what_was_refused_is_posted_again(
    played: Played, client: Transactor[bytes], word: bytes
) -> None:
    call = Calling(client, b"mine")
    request, _, _ = played.post()
    played.say(b"status 3 0 majalive uptodate 4 5 not_started\nping\n")
    assert played.line() == b"pong"
    played.say(b"post_response %d %s\n" % (request, word))
    played.decide("0:9", b"mine")  # before the answer
    assert call.outcome() == b"result of mine"


def test_after_a_lost_connection_the_transaction_tells_whether_the_post_arrived(
    played: Played, client: Transactor[bytes], applied: list[tuple[int, bytes]]
) -> None:
    call = Calling(client, b"mine")
    played.post()
    played.hang_up()
    played.accept()
    assert played.line() == b"subscribe 5"
    assert played.decide("0:7", b"mine", b"tid_old") == (5, b"mine")
    assert call.outcome() == b"result of mine"
    assert applied == [(5, b"mine")]


def test_an_error_of_the_application_is_the_callers(
    played: Played, client: Transactor[bytes]
) -> None:
    call = Calling(client, b"bad")
    played.decide("0:7", b"bad")
    assert isinstance(call.outcome(), ValueError)


@pytest.mark.parametrize("unexpected", [False, True], ids=["told", "unexpected"])
def test_an_error_ends_the_client_and_not_its_thread_alone(
    played: Played,
    client: Transactor[bytes],
    unexpected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if unexpected:
        monkeypatch.setattr(ResponseReader, "feed", Mock(side_effect=MemoryError))
    call = Calling(client, b"mine")
    played.post()
    played.say(b"ping\n" if unexpected else b"error: you cannot do that\n")
    assert isinstance(call.outcome(), TransactorError)
    with pytest.raises(TransactorError, match="closed"):
        client.execute(b"more", PATIENCE_SECONDS)


@pytest.mark.parametrize("reason", [b"stopped", b"too many connections"])
def test_the_client_tries_again_when_it_is_told_to(
    played: Played, client: Transactor[bytes], reason: bytes
) -> None:
    call = Calling(client, b"mine")
    played.post()
    played.say(b"error: %s, try again later\n" % reason)
    played.hang_up()
    played.accept()
    assert played.line() == b"subscribe 5"
    played.decide("0:7", b"mine")
    assert call.outcome() == b"result of mine"


def test_closing_fails_what_waits(played: Played, client: Transactor[bytes]) -> None:
    call = Calling(client, b"mine")
    played.post()
    client.close()
    assert isinstance(call.outcome(), TransactorError)


def test_an_application_with_many_open_files(played: Played) -> None:
    """select() does not support descriptors above 1023."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        client = Transactor(played.address, lambda tid, data: data)
        stack.callback(client.close)
        played.accept()
        assert played.line() == b"subscribe 1"
        call = Calling(client, b"mine")
        played.decide("0:7", b"mine", b"posted 0:7 1")
        assert call.outcome() == b"mine"


def test_a_timeout_is_the_callers(played: Played, client: Transactor[bytes]) -> None:
    with pytest.raises(TimeoutError):
        client.execute(b"mine", 0.05)


def test_responses_may_come_in_pieces() -> None:
    stream = b"status 1 0 majalive uptodate 1 2 started\n" + tspec(1, "0:1", b"a\nb") + b"ping\n"
    reader = ResponseReader()
    found = []
    for byte in stream:
        reader.feed(bytes([byte]))
        while (item := reader.next()) is not None:
            found.append(item)
    assert found == [
        b"status 1 0 majalive uptodate 1 2 started",
        Transaction(1, Sid(0, 1), b"a\nb"),
        b"ping",
    ]
