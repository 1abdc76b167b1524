"""Whatever goes wrong: a line that says what to do, and an exit code that is not 0.

That line is the only one; or the words that scripts know are alone on stdout, and it is on stderr.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from neo.net.connection import HANDSHAKE
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AnswerNodeList,
    AskClusterState,
    AskNodeList,
    AskPartitionList,
    NodeRow,
    SetNodeState,
    Truncate,
)
from neoctl.__main__ import main
from neoctl.verbs import VERBS
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_range
from tests.unit.neoctl.conftest import Make, healthy
from tests.unit.neoctl.scripted import ScriptedAdmin

Capture = pytest.CaptureFixture[str]


@contextmanager
def raw_server(*answers: bytes) -> Iterator[str]:
    """A server that sends these bytes to its only visitor, then waits until it leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(PATIENCE_SECONDS)
                for answer in answers:
                    sock.sendall(answer)
                while sock.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("print", "invalid command: print"),
        ("print nothing", "invalid command: print nothing"),
        ("set", "invalid command: set"),
        ("kill", "wrong number of arguments, write: neoctl kill NODE"),
        ("kill S1 S2", "wrong number of arguments, write: neoctl kill NODE"),
        ("print cluster now", "wrong number of arguments, write: neoctl print cluster"),
        ("prune_orphan 1", "wrong number of arguments, write: neoctl prune_orphan 0|1 NODE...|all"),
        ("kill 9", "'9' is not a node: write S1, M1, C1 or A1"),
        ("drop X1", "'X1' is not a node: write S1, M1, C1 or A1"),
        ("set replicas many", "'many' is not a number"),
        ("set replicas -- -1", "'-1' is not a number"),
        (
            "set cluster asleep",
            "'asleep' is none of recovering, verifying, running, stopping, starting_backup, "
            "backingup, stopping_backup",
        ),
        ("print node disk", "'disk' is none of master, storage, client, admin"),
        ("prune_orphan 2 all", "'2' is neither 0 (delete) nor 1 (only look)"),
        ("check 1 2 3", "at most two TIDs, the first and the last to check"),
        (
            "check S1",
            "'S1' is not a TID: write an integer, 0x..., or a timestamp with a dot (seconds"
            " since 1970, such as 1795171507.0)",
        ),
        ("check 1:X", "'X' is not a node: write S1, M1, C1 or A1"),
        ("check one:", "'one' is not a number"),
        ("check 0:S1 0:S2", "partition 0: only one node can be the one to believe"),
        ("check : :S2", "all partitions: only one node can be the one to believe"),
        ("set replicas " + 19 * "1", "a number of 19 digits is too big"),
        (
            "start -n",
            "option -n is of tweak, backup, restore, replace, add, remove, upgrade, set partitions alone",
        ),
    ],
)
def test_wrong_words_are_named_before_anything_is_sent(
    console: Make, words: str, expected: str
) -> None:
    ctl = console()
    assert ctl(*words.split()) == 1
    assert ctl.out == f"{expected}\n"
    assert ctl.admin.asked == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("print pt 0 0 S99", "S99 is no storage node of this cluster"),
        ("repair 6:", "there is no partition 6: there are 6, from 0"),
        ("repair :S9", "S9 has no cell of any partition"),
        ("prune_orphan 0 all", "no storage node is RUNNING"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_is_changed(
    console: Make, words: str, expected: str
) -> None:
    pending: list[NodeRow] = [(NodeType.STORAGE, None, 1, NodeState.PENDING, 1.0)]
    ctl = console({AskNodeList: AnswerNodeList(pending)})
    assert ctl(*words.split()) == 1
    assert ctl.out == f"{expected}\n"
    assert all(isinstance(message, QUESTIONS) for message in ctl.admin.asked)


@pytest.mark.parametrize("text", ["tomorrow", "0xfg", "", "-1", "1" * 30, "nan.0", "1.5.2"])
def test_wrong_tid_names_the_accepted_forms(console: Make, text: str) -> None:
    ctl = console({Truncate: "done"})
    assert ctl("truncate", "--", text) == 1
    assert ctl.out.startswith(f"{text!r} is not a TID: write an integer, 0x..., or a timestamp")
    assert ctl.admin.asked == []


def test_admin_away_says_what_to_start(capsys: Capture) -> None:
    port = free_range(1)
    words = ["-a", f"127.0.0.1:{port}", "print", "cluster"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"neoctl: admin node 127.0.0.1:{port} cannot be reached")
    assert "start neoadmin" in err
    assert err.count("\n") == 1
    assert main(["--json", *words]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "AdminAway"


def test_admin_without_primary_says_where_to_look(console: Make) -> None:
    refusal = ErrorAnswer(ErrorCode.NOT_READY, "Not connected to a primary master.")
    ctl = console({AskClusterState: refusal})
    assert ctl("print", "cluster") == 1
    assert ctl.out == "Not connected to a primary master.\n"
    assert "is a master running?" in ctl.err


def test_connection_closed_instead_of_an_answer(console: Make) -> None:
    ctl = console({AskClusterState: None})
    assert ctl("print", "cluster") == 1
    assert ctl.out == ""
    assert "closed the connection without an answer" in ctl.err
    assert ctl.err.count("\n") == 1


@pytest.mark.parametrize(
    ("sent", "stream", "told"),
    [
        pytest.param(
            [HANDSHAKE],
            "stderr",
            "did not answer in 0.5 s: look at its log",
            id="silent admin node",
        ),
        pytest.param(
            [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
            "stderr",
            "not a NEO node, it began with b'HTTP/1': give the address of neoadmin",
            id="web server",
        ),
        # A web server waits for the end of a line, which never comes.
        pytest.param(
            [],
            "stderr",
            "accepts connections, but did not greet as a NEO node in 0.5 s.*address of neoadmin with"
            " --address",
            id="web server that waits",
        ),
        pytest.param(
            [b"\x92\xa3NEO\x07"], "stderr", "the peer speaks version 7", id="another version"
        ),
        pytest.param(
            [HANDSHAKE + b"\x93\x00\xcd\x80\x02\x90"],
            "stderr",
            "AnswerClusterState expected",
            id="wrong answer",
        ),
        pytest.param(
            [HANDSHAKE + b"\x93\x00\xcd\x80\x00\x92\x63\xc4\x03odd"],
            "stdout",
            "unknown error code 99: odd\n",
            id="unknown error",
        ),
    ],
)
def test_a_server_that_answers_otherwise_is_recognised(
    capsys: Capture, sent: list[bytes], stream: str, told: str
) -> None:
    with raw_server(*sent) as address:
        timeout = "0.5" if "0.5 s" in told else str(PATIENCE_SECONDS)
        assert main(["-a", address, "--timeout", timeout, "print", "cluster"]) == 1
    out, err = capsys.readouterr()
    if stream == "stdout":
        assert out == told
    else:
        assert re.search(told, err) and err.count("\n") == 1, err


def test_without_address_the_ways_to_give_one_are_told(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEO_ADMIN", raising=False)
    assert main(["print", "cluster"]) == 1
    err = capsys.readouterr().err
    assert all(way in err for way in ("-a HOST:PORT", "-f neo.conf", "NEO_ADMIN"))


def test_without_verb_the_usage_is_shown(capsys: Capture) -> None:
    assert main([]) == 2
    assert "usage: neoctl" in capsys.readouterr().err
    assert main(["--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "no command is given"


def test_malformed_address_is_named(capsys: Capture) -> None:
    assert main(["-a", "nowhere", "start"]) == 1
    assert "'nowhere' is not an address: write host:port" in capsys.readouterr().err


def test_address_comes_from_the_environment(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedAdmin(healthy()) as admin:
        monkeypatch.setenv("NEO_ADMIN", admin.name)
        assert main(["print", "cluster"]) == 0
    assert capsys.readouterr().out == "RUNNING\n"


def test_address_comes_from_neo_conf(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NEO_ADMIN", raising=False)
    conf = tmp_path / "neo.conf"
    with ScriptedAdmin(healthy()) as admin:
        conf.write_text(f"[DEFAULT]\ncluster = x\n[admin]\nbind = {admin.name}\n")
        assert main(["-f", str(conf), "print", "cluster"]) == 0
    assert capsys.readouterr().out == "RUNNING\n"
    assert main(["-f", str(conf), "-s", "boss", "print", "cluster"]) == 1
    assert "has no section [boss]; it has admin" in capsys.readouterr().err
    assert main(["-f", str(tmp_path / "none"), "print", "cluster"]) == 1
    assert "cannot be read: No such file" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_named(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "neo.conf"
    path.write_bytes(b"[admin]\nbind = \xff\xfe\n")
    assert main(["-f", str(path), "print", "cluster"]) == 1
    assert f"configuration file {str(path)!r}: " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "1e20", "soon"])
def test_a_timeout_is_a_number_of_seconds(capsys: Capture, text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--timeout", text, "print", "cluster"])
    assert ended.value.code == 2
    assert f"{text!r} is no number of seconds, up to 86400" in capsys.readouterr().err


def test_part_of_the_tls_files_is_refused(capsys: Capture) -> None:
    assert main(["-a", "127.0.0.1:1", "--ca", "ca.pem", "start"]) == 1
    assert "TLS needs all of" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "code"), [(["kill", "S1"], "DENIED"), (["nonsense"], "COMMAND")])
def test_errors_are_data_with_json(console: Make, words: list[str], code: str) -> None:
    ctl = console({SetNodeState: ErrorAnswer(ErrorCode.DENIED, "unknown node")})
    assert ctl("--json", *words) == 1
    error = json.loads(ctl.out)["error"]
    assert error["code"] == code
    assert error["message"]
    assert error["hint"]
    assert ctl.err == ""


#: More than any message can carry.
BIG = "9" * 25
S_BIG = f"S{BIG}"
#: For each command, wrong arguments.
WRONG_FORMS: dict[str, list[str]] = {
    "status": ["now"],
    "print cluster": ["now"],
    "print primary": ["M1"],
    "print node": ["disk", "storage master"],
    "print pt": [
        *("one", "0 last", "-- -1", "0 3 4", "0 3 S1 S2", BIG, f"0 {BIG}", f"0 3 {S_BIG}"),
        *("0 0 S99", "0 0 M1"),
    ],
    "print ids": ["S1"],
    "print summary": ["now"],
    "print check": ["0"],
    "print masters": ["M1"],
    "print transactions": ["C1"],
    "print prepared": ["all", "-- -1", "1 2", BIG],
    "print backups": ["bak"],
    "print blobs": ["S1"],
    "print lost": ["S1"],
    "set sync": ["", "bak", "on", "bak maybe", "bak ON", "bak on off"],
    "commit": ["", "0x1", "0xzz", "ä", "neo-1 neo-2", "x" * 141],
    "rollback": ["", "0x1", "0xzz", "ä", "neo-1 neo-2", "x" * 141],
    "forget": ["", "0x1", "0xzz", "ä", "neo-1 neo-2", "x" * 141],
    "start": ["now", "-n"],
    "set cluster": ["", "asleep", "running now"],
    "set primary": ["", "first", "M1 M2", S_BIG],
    "forget_table": ["", "last", "1 2", BIG],
    "set replicas": ["", "many", "-- -1", "1 2", "1.5", "²", "١", BIG],
    "set partitions": ["", "many", "-- -1", "1 2", "1.5", "²", "١", BIG],
    "add": ["", "1", "all S1", "S1 all", "S", "S1,S2", "S0", "S²", S_BIG, "-n M1"],
    "admit": ["", "1", "all S1", "S1 all", "S", "S1,S2", "S0", "S²", S_BIG],
    "replace": ["", "S1", "S1 S2 S3", "1 S2", "S1 2", "all S1", S_BIG],
    "upgrade": ["1", "all", "S1 all", "S", "S1,S2", "S0", "S²", S_BIG],
    "remove": ["", "1", "all", "S1 all", "S", "S1,S2", "S0", "S²", S_BIG],
    "tweak": ["all", "1", "S1,S2", S_BIG],
    "drop": ["", "all", "1", "S1 S2", "M268435457", S_BIG],
    "kill": ["", "all", "1", "S1 S2", "M268435457", S_BIG],
    "check": [
        *("S1", "one:", "1:X", "-- -1:", "1:S1:S2", "1 2 3", "0: soon", f"{BIG}:", f"0:{S_BIG}"),
        *(f":{S_BIG}", BIG, f"0: 1 {BIG}", "0:S1 0:S2", "0:S1 0:", ":S1 :"),
    ],
    "repair": [
        *("1", "S1", "all", "one:", "1:X", "-- -1:", "6:", ":S9", "0: :S9", f"{BIG}:"),
        *(f"{BIG}:S1", f"0:{S_BIG}"),
    ],
    "prune_orphan": ["", "0", "1", "2 all", "yes S1", "0 1", "0 S1 all", f"{BIG} S1", f"0 {S_BIG}"],
    "end": ["", "all", "1 2", "C1", "-- -1", BIG],
    "truncate": ["", "yesterday", "1 2", "-- -1", BIG],
    "flush_log": ["S1"],
    "backup": ["", "relative/path", "/path all", "/path full again"],
    "restore": ["", "relative/path", "/path yesterday", "/path 1 2", f"/path {BIG}"],
    "verify": ["", "/no/such/folder", "/path yesterday", "/path 1 2", f"/path {BIG}"],
    "print operations": ["all", "1 2", "-- -1", BIG],
    "abort": ["", "all", "1 2", "-- -1", BIG],
    "print disks": ["S1"],
    "print caches": ["C1"],
    "init": ["", "/no/such/folder shop", "/no/such/folder shop 10.0.0.1 10.0.0.2"],
    "password": ["", "file", "file a:b", "file ada more"],
    "completion": ["", "fish", "bash zsh"],
    "man": ["status"],
    "forget_operation": ["", "1", "S1 1", "1 all", "1 S1 S2", f"1 {S_BIG}", f"{BIG} S1"],
}
#: What may be asked to find out that it is wrong.
QUESTIONS = (AskPartitionList, AskNodeList)


def test_wrong_forms_of_every_command_are_listed() -> None:
    assert set(WRONG_FORMS) == set(VERBS)


@pytest.mark.parametrize(
    "words", [f"{verb} {form}" for verb, forms in WRONG_FORMS.items() for form in forms]
)
def test_wrong_forms_reach_nobody(console: Make, words: str) -> None:
    ctl = console()
    assert ctl(*words.split()) == 1
    assert ctl.out.strip() and ctl.out.count("\n") == 1
    assert ctl.err.count("\n") == (1 if ctl.err else 0) and "Traceback" not in ctl.err
    assert all(isinstance(message, QUESTIONS) for message in ctl.admin.asked)
    assert ctl("--json", *words.split()) == 1
    assert json.loads(ctl.out)["error"]["message"] and ctl.err == ""
