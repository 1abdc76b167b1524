"""Mails leave by SMTP."""

from __future__ import annotations

import queue
import socket
import threading

from neo.admin.smtp import Smtp
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_range


def serve(listener: socket.socket, received: list[str]) -> None:
    """A mail server that takes one mail."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rw", newline="\r\n") as stream:

        def say(text: str) -> None:
            stream.write(text + "\n")
            stream.flush()

        say("220 test")
        for line in stream:
            word = line[:4].upper().strip()
            if word == "DATA":
                say("354 go on")
                for data in stream:
                    if data.strip() == ".":
                        break
                    received.append(data.strip())
                say("250 taken")
            elif word == "EHLO":
                say("250-test")
                say("250 AUTH PLAIN")
            elif word == "QUIT":
                say("221 bye")
                return
            else:
                say("250 ok")


def result(server: tuple[str, int], login: tuple[str, str] | None = None) -> str | None:
    done: queue.Queue[str | None] = queue.Queue()
    smtp = Smtp(
        server, "neo@test", ("one@test", "two@test"), False, login, lambda call, *args: call(*args)
    )
    smtp.send("NEO test: PROBLEM: bak", "RUNNING\n", done.put)
    return done.get(timeout=PATIENCE_SECONDS)


def test_a_mail_reaches_the_server() -> None:
    received: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, received))
        thread.start()
        assert result(listener.getsockname()) is None
        thread.join(PATIENCE_SECONDS)
    assert "Subject: NEO test: PROBLEM: bak" in received
    assert "To: one@test, two@test" in received and "RUNNING" in received


def test_a_password_that_smtp_cannot_send_is_a_failure_that_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, []))
        thread.start()
        failure = result(listener.getsockname(), login=("neo", "pässword"))
        thread.join(PATIENCE_SECONDS)
    assert failure is not None and "can't encode" in failure


def test_a_server_that_is_away_is_named() -> None:
    address = ("127.0.0.1", free_range(1))
    failure = result(address)
    assert failure is not None and failure.startswith(f"127.0.0.1:{address[1]}: ")
