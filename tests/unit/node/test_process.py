"""The process host with real sockets, signals and exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from neo import __version__
from neo.net.sockets import format_address, parse_address
from neo.net.tls import tls_context
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    Address,
    AnswerLastTransaction,
    AskLastTransaction,
    Error,
    FlushLog,
    NotifyReady,
    Ping,
    Pong,
    StartOperation,
    StopOperation,
)
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range
from tests.support.raw import RawPeer
from tests.support.resets import reset_unseen


class Tiny:
    """A tiny node as a process, with its log in a file."""

    def __init__(self, folder: Path, argv: tuple[str, ...], bind: str, files: int) -> None:
        self.log = folder / "tiny.log"
        command = [sys.executable, "-m", "tests.unit.node.tiny", "-c", "lab", "-m", "127.0.0.1:1"]
        command += ["-b", bind, "-l", str(self.log), *argv]
        if files:
            command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def address(self) -> Address:
        """Where it listens, once it does."""

        def listening() -> re.Match[str] | None:
            assert self.process.poll() is None, self.process.communicate()
            return re.search(r"listening on (\S+:\d+)", self.text())

        return parse_address(wait_until(listening, "tiny listens")[1])

    @contextmanager
    def greeted(self, context: ssl.SSLContext | None = None) -> Iterator[RawPeer]:
        """Yield a connection to the process, after the handshakes."""
        with RawPeer(self.address(), context) as peer:
            peer.greet()
            yield peer

    def serves(self, context: ssl.SSLContext | None = None) -> bool:
        """Return whether it answers on a new connection."""
        with self.greeted(context) as peer:
            return peer.ask(Ping()) == Pong()

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int, str]:
        """Exit code and standard error."""
        _, stderr = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, stderr

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Start:
    """Starts tiny nodes, which end with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def __call__(self, *argv: str, bind: str = "127.0.0.1:0", files: int = 0) -> Tiny:
        """``files``: that the process may open; 0: as many as this one."""
        tiny = Tiny(self._folder, argv, bind, files)
        self._stack.callback(tiny.kill)
        return tiny


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        yield Start(tmp_path, stack)


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
def test_serves_over_ipv4_and_ipv6(start: Start, bind: str) -> None:
    assert start(bind=bind).serves()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_signal_ends_it_with_0(start: Start, number: signal.Signals) -> None:
    """Specification 22.1, 22.11."""
    tiny = start()
    with tiny.greeted() as peer:
        assert peer.ask(Ping()) == Pong()
        tiny.signal(number)
        assert peer.rest() == []
    assert tiny.end() == (0, "")
    assert f"{number.name} received" in tiny.text()


def test_a_peer_that_never_reads_does_not_keep_it_alive(start: Start) -> None:
    tiny = start()
    with tiny.greeted():
        tiny.signal(signal.SIGTERM)
        assert tiny.end()[0] == 0


def test_idle_connections_keep_nobody_out(start: Start) -> None:
    """More of them than the process may open files; the oldest ones make room (specification 2.38)."""
    tiny = start(files=64)
    address = tiny.address()
    with ExitStack() as stack:
        idle = [stack.enter_context(RawPeer(address)) for _ in range(80)]
        assert tiny.serves()
        idle[-1].greet()
        assert idle[-1].ask(Ping()) == Pong(), "the newest ones stay"
    assert "more than 16 unidentified peers: disconnecting the oldest" in tiny.text()
    assert "Too many open files" not in tiny.text()


def test_without_tls_an_address_that_others_reach_is_warned_of(start: Start) -> None:
    tiny = start(bind="0.0.0.0:0")
    tiny.address()
    wait_until(lambda: "no TLS on 0.0.0.0:" in tiny.text(), "a warning")
    assert "can stop the cluster" in tiny.text()


def test_loopback_is_not_warned_of(start: Start) -> None:
    tiny = start(bind=":0")
    assert tiny.address()[0] == "127.0.0.1"
    assert tiny.serves()
    assert "no TLS" not in tiny.text()


def test_a_peer_that_is_gone_before_it_was_seen_does_no_harm(start: Start) -> None:
    tiny = start()
    address = tiny.address()
    reset_unseen(tiny.process.pid, address)
    assert tiny.serves()
    assert tiny.process.poll() is None and "Traceback" not in tiny.text()


def test_a_failure_ends_it_with_1_after_the_last_words(start: Start) -> None:
    """Specification 22.1."""
    tiny = start()
    with tiny.greeted() as peer:
        peer.say(StopOperation())
        assert peer.rest() == [NotifyReady()]
    assert tiny.end()[0] == 1
    assert "CRITICAL neo.node     the disk is gone: replace it" in tiny.text()


def test_an_unexpected_error_in_a_timer_ends_it_with_1(start: Start) -> None:
    """Specification 22.7."""
    tiny = start()
    with tiny.greeted() as peer:
        peer.say(FlushLog())
        assert tiny.end()[0] == 1
    assert "Traceback" in tiny.text() and "ZeroDivisionError" in tiny.text()


def test_a_log_that_was_moved_is_opened_again(start: Start) -> None:
    """Specification 22.11."""
    tiny = start()
    with tiny.greeted() as peer:
        moved = tiny.log.rename(tiny.log.with_name("old.log"))
        tiny.signal(signal.SIGUSR2)
        wait_until(tiny.log.exists, "a new log file")
        peer.say(NotifyReady())
        assert peer.ask(Ping()) == Pong()
    assert "a line for the log" in tiny.text()
    assert "a line for the log" not in moved.read_text()
    assert tiny.process.poll() is None


def test_a_log_whose_folder_is_gone_ends_no_node(start: Start) -> None:
    tiny = start()
    with tiny.greeted() as peer:
        folder = tiny.log.parent.rename(tiny.log.parent.with_name("moved"))
        tiny.signal(signal.SIGUSR2)
        moved = folder / tiny.log.name
        wait_until(lambda: "cannot be opened again" in moved.read_text(), "the complaint")
        peer.say(NotifyReady())
        assert peer.ask(Ping()) == Pong()
    assert "a line for the log" in moved.read_text()
    assert tiny.process.poll() is None


def test_json_log(start: Start) -> None:
    tiny = start("--log-format", "json")
    address = tiny_address(tiny)
    first, entry = map(json.loads, tiny.text().splitlines()[:2])
    assert first["message"] == f"neotiny {__version__} begins"
    assert entry["message"] == f"listening on {format_address(address)}"
    assert (entry["level"], entry["logger"], entry["node"]) == ("INFO", "neo.node", "neotiny")


def tiny_address(tiny: Tiny) -> Address:
    """From a JSON log."""

    def message() -> str | None:
        lines = tiny.text().splitlines()
        return json.loads(lines[1])["message"] if len(lines) > 1 else None

    return parse_address(wait_until(message, "two lines in the log").rpartition(" ")[2])


def test_an_address_that_it_cannot_listen_on(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        port = occupant.getsockname()[1]
        code, stderr = start(bind=f"127.0.0.1:{port}").end()
    assert code == 1
    assert stderr == f"neotiny: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    code, stderr = start(bind="192.0.2.1:1").end()
    assert code == 1
    assert stderr.startswith("neotiny: cannot listen on 192.0.2.1:1: ")


def test_what_stops_the_start_is_in_the_log_too(start: Start) -> None:
    tiny = start("-c", "broken")
    assert tiny.end() == (1, "neotiny: no start number 1\n")
    assert "CRITICAL neo.node     no start number 1" in tiny.text()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_node_that_waits_for_what_it_needs_says_so_to_everybody(
    start: Start, tmp_path: Path, tls: bool
) -> None:
    """Specification 22.6."""
    argv, context = ["-c", "patient"], None
    if tls:
        files = Authority(tmp_path).node()
        argv += ["--ca", files.ca, "--cert", files.cert, "--key", files.key]
        context = tls_context(*files, server=False)
    tiny = start(*argv)
    with tiny.greeted(context) as peer:
        words = "not started yet: there is nothing to go on with"
        assert peer.rest() == [Error(ErrorCode.NOT_READY.value, words)]
    assert "trying again each second: there is nothing to go on" in tiny.text()
    tiny.log.with_name("tiny.log.go").touch()

    def answers() -> bool:
        try:
            return tiny.serves(context)
        except (EOFError, ConnectionResetError):
            return False

    wait_until(answers, "the core does not answer")


def test_pages_over_tls_say_why_a_node_is_not_ready(start: Start, tmp_path: Path) -> None:
    """Specification 17.35."""
    files, port = Authority(tmp_path).node(), free_range(1)
    argv = ["-c", "patient", "--ca", files.ca, "--cert", files.cert, "--key", files.key]
    tiny = start(*argv, "--http", f"0.0.0.0:{port}")
    context = tls_context(*files, server=False)

    def page(name: str) -> tuple[int, str]:
        try:
            with urlopen(f"https://127.0.0.1:{port}/{name}", context=context) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as e:
            with e:
                return e.code, e.read().decode()

    wait_until(lambda: f"HTTP on 0.0.0.0:{port}" in tiny.text(), "pages")
    assert page("live") == (200, "live\n")
    assert page("ready") == (503, "not started yet: there is nothing to go on with\n")
    tiny.log.with_name("tiny.log.go").touch()
    wait_until(lambda: page("ready") == (200, "this node works\n"), "a core")
    assert tiny.serves(context)
    assert 'neo_request_seconds_count{message="Ping"} 1.0' in page("metrics")[1]
    code, stderr = start("--http", str(port)).end()
    said = f"neotiny: cannot listen on 127.0.0.1:{port} for HTTP: Address already in use; each node of a"
    assert code == 1 and stderr.startswith(said) and "[DEFAULT]" in stderr
    tiny.signal(signal.SIGTERM)
    assert tiny.end() == (0, "")


def test_a_node_that_waits_can_be_stopped(start: Start) -> None:
    tiny = start("-c", "patient")
    wait_until(lambda: "trying again each second" in tiny.text(), "it waits")
    tiny.signal(signal.SIGTERM)
    assert tiny.end() == (0, "")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-c", ""], "setting 'cluster' is missing"),
        (["-b", "nonsense"], "setting 'bind': 'nonsense' is not an address"),
        (["-l", "/no/such/folder/log"], "setting 'logfile': [Errno 2] No such file or directory"),
        (["--ca", "/missing", "--cert", "/missing", "--key", "/missing"],
         "certificate authority '/missing' cannot be used: "),
        (["-f", "/missing"], "configuration file '/missing' cannot be read: No such file"),
    ],
)  # fmt: skip
def test_a_wrong_setting_ends_it_with_2(start: Start, argv: list[str], text: str) -> None:
    """Specification 22.1, 22.2."""
    code, stderr = start(*argv).end()
    assert code == 2
    assert stderr.startswith(f"neotiny: {text}")
    assert stderr.count("\n") == 1


def test_another_core_after_a_restart(start: Start) -> None:
    """The second core cannot be made; the process tries again by itself (specification 22.4, 22.6)."""
    tiny = start()
    with tiny.greeted() as peer:
        peer.say(StartOperation(False))
        assert peer.rest() == []
    with tiny.greeted() as peer:  # there is no core now
        assert peer.rest() == [Error(ErrorCode.NOT_READY.value, "the tiny disk is away")]

    def answer() -> object:
        try:
            with tiny.greeted() as peer:
                return peer.ask(AskLastTransaction())
        except (AssertionError, EOFError, ConnectionResetError):
            return None

    assert wait_until(answer, "the third core") == AnswerLastTransaction((3).to_bytes(8, "big"))
    assert "this node starts again in 1 s" in tiny.text()
    assert "no start number 2" in tiny.text()
    assert "this node starts again in 2 s" in tiny.text()


def test_a_restart_that_meets_an_unexpected_error_ends_it_with_1(start: Start) -> None:
    tiny = start("-c", "mistaken")
    with tiny.greeted() as peer:
        peer.say(StartOperation(False))
        assert peer.rest() == []
    assert tiny.end()[0] == 1
    assert "cannot start again: a folder is gone" in tiny.text()


def test_tls_with_real_sockets(start: Start, tmp_path: Path) -> None:
    files = Authority(tmp_path).node()
    tiny = start("--ca", files.ca, "--cert", files.cert, "--key", files.key)
    address = tiny.address()
    assert tiny.serves(tls_context(*files, server=False))
    with RawPeer(address) as plain:
        plain.send(b"\x92\xa3NEO\x01")
        assert plain.read_until_closed()[:1] == b"\x15"  # a TLS alert
    assert "this node uses TLS and the peer does not" in tiny.text()
