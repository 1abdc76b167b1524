"""The text protocol on both ports."""

from __future__ import annotations

import random

import pytest

from neo.transactor.durable import Begun
from neo.transactor.messages import Data, Decide, Propose, Sid, Spec, Status
from neo.transactor.service import SESSIONS_MAX, TURN_TICKS
from neo.transactor.text import CommandReader, SyntaxFault, quote, sid, unquote, words
from tests.unit.transactor.talking import Host


def test_a_post_in_both_encodings_is_answered_and_logged() -> None:
    """Specification 20.3, 20.37, 20.38, 20.43, 20.44."""
    client = Host().client()
    for line, answer in (
        (b"gettid", b"tlog_tid 0\n"),
        (b"getstatus", b"status 1 0 majalive uptodate 0 1 not_started\n"),
        (b'  post 7 1 "a\\"b\\\\ \\000\\377"  \r', b"post_response 7 posted 0:4294967297 1\n"),
        (b"post 8 2 5\na\nb\n\xff", b"post_response 8 posted 0:4294967298 2\n"),
        (b"gettspec 1", b'tlog_tspec tid 1 sid 0:4294967297 size 7\na"b\\ \x00\xff\n'),
        (b"gettspec 2", b"tlog_tspec tid 2 sid 0:4294967298 size 5\na\nb\n\xff\n"),
        (b"gettspec 3", b"tlog_tid 2\n"),
        (b"gettspec 0", b"tlog_tspec_not_available 0\n"),
        (b"quit", b""),
    ):
        assert client.say(line + b"\n") == answer
    assert client.closed


def test_commands_may_come_byte_by_byte() -> None:
    client = Host().client()
    for byte in b"post 1 1 3\nabc\ngettid\n":
        client.session.receive(bytes([byte]))
        client.host.run()
    assert client.got() == b"post_response 1 posted 0:4294967297 1\ntlog_tid 1\n"


def test_posted_is_told_when_it_is_on_disk() -> None:
    """Specification 20.45."""
    host = Host()
    host.auto = False
    client = host.client()
    assert client.say(b'post 1 1 "x"\n') == b""
    host.run()
    assert client.got() == b"post_response 1 posted 0:4294967297 1\n"


def test_refusals_use_the_words_of_the_page() -> None:
    """Specification 20.45, 20.46."""
    host = Host(3)
    host.auto = True
    client, other = host.client(), host.client()
    assert client.say(b'post 1 2 "x"\n') == b"post_response 1 tid_new\n"
    assert client.say(b'post 2 0 "x"\n') == b"post_response 2 tid_old\n"
    assert b"posted" in client.say(b'post 3 1 "x"\n')
    assert other.say(b'post 4 1 "y"\n') == b"post_response 4 other_sid\n"
    assert other.say(b"repost 1 0:99\n") == b"repost_response 1 0:99 other_sid\n"
    assert client.say(b"getstatus\n") == b"status 3 0 majalive uptodate 0 1 started\n"
    host.confirm()
    assert client.say(b"repost 2 0:4294967297\n") == b""  # the other one's turn
    host.tick(TURN_TICKS)
    assert client.got() == b"repost_response 2 0:4294967297 sid_done\n"


def test_the_transaction_of_another_node_refuses_posts_and_allows_reposts() -> None:
    """Specification 20.45, 20.46."""
    host = Host(3)
    client = host.client()
    theirs = Spec(Sid(1, 5), 0, b"theirs")
    assert b"posted 0:4294967297 1" in client.say(b'post 1 1 "mine"\n')
    host.node.receive("n1", [Data(theirs), Decide(1, theirs.sid)])
    host.run()
    assert client.say(b"repost 1 0:4294967297\n") == b"repost_response 1 0:4294967297 tid_old\n"
    assert client.say(b"repost 3 0:4294967297\n") == b"repost_response 3 0:4294967297 tid_new\n"
    again = b"repost_response 2 0:4294967297 posted 0:4294967297 2\n"
    assert client.say(b"repost 2 0:4294967297\n") == again
    host.node.receive("n1", [Data(Spec(Sid(1, 6), 0, b"2")), Decide(2, Sid(1, 6))])
    host.node.receive("n1", [Data(Spec(Sid(1, 7), 0, b"3")), Propose(3, 0, Sid(1, 7))])
    assert client.say(b'post 9 3 "late"\n') == b"post_response 9 tid_started\n"
    late = b"repost_response 3 0:4294967297 tid_started\n"
    assert client.say(b"repost 3 0:4294967297\n") == late


@pytest.mark.parametrize(
    ("name", "begun"), [("n9", Begun.FRESH), ("n0", Begun.RECOVERED)], ids=["no member", "learns"]
)
def test_a_node_that_does_not_vote_cannot_propose(name: str, begun: Begun) -> None:
    """Specification 20.45, 20.46."""
    client = Host(3, name=name, begun=begun).client()
    assert client.say(b'post 1 1 "x"\n') == b"post_response 1 propose_error\n"
    assert client.say(b"repost 1 0:7\n") == b"repost_response 1 0:7 propose_error\n"


def test_subscribers_get_everything_from_where_they_ask() -> None:
    """Specification 20.41."""
    host = Host()
    client = host.client()
    for tid in range(1, 4):
        client.say(b'post 1 %d "%d"\n' % (tid, tid))
    reader = host.client()
    first = b"tlog_tspec tid 2 sid 0:4294967298 size 1\n2\n"
    assert reader.say(b"subscribe 2\n").startswith(
        b"status 1 0 majalive uptodate 3 4 not_started\n" + first
    )
    client.say(b'post 1 4 ""\n')
    assert reader.got() == b"tlog_tspec tid 4 sid 0:4294967300 size 0\n\n"
    reader.say(b"subscribe off\n")
    client.say(b'post 1 5 "5"\n')
    assert reader.got() == b""
    reader.stuck = 1 << 20
    reader.say(b"subscribe 5\n")
    assert b"tlog_tspec" not in reader.got()
    reader.stuck = 0
    host.service.feed(reader.session)
    assert reader.got().startswith(b"tlog_tspec tid 5")


def test_changes_of_status_are_told_to_subscribers_only() -> None:
    """Specification 20.41, 20.42."""
    host = Host(3)
    reader, other = host.client(), host.client()
    reader.say(b"subscribe 1\n")
    host.tick(100)
    assert reader.got() == b"status 3 0 majnotalive uptodate 0 1 not_started\n"
    host.node.receive("n1", [Status(9, 4, False, False)])
    host.tick()
    assert reader.got() == b"status 3 0 majalive backlag 0 9 not_started\n"
    assert other.got() == b""


@pytest.mark.parametrize(
    "line",
    [
        *(b"post 1 1", b'post 1 1 "open', b'post x 1 "1"', b'post 4294967296 1 "1"', b"gettspec"),
        *(b"subscribe -1", b"repost 1 12", b'post 1 1 "\\8"', b"post 1 1 99999999999"),
        *(b"subscribe 18446744073709551616", b'post 1 1 "a"b', b"reset_node nobody"),
        *(b"debugmask +x", b"speedtest 67108865", b"add_peer n9 b..example 1", b"add_peer n9 h 0"),
        # A number of arguments that the command does not have.
        *(b"subscribe", b"subscribe 1 2", b'post 1 1 "x" 1', b"repost 1", b"gettid 1"),
        *(b"getstatus foo bar", b"gettspec 1 2", b"quit 1", b"exit now"),
        *(b"authenticate", b"terminate later please", b"help me now", b"start x", b"stop x"),
        *(b"reset_node", b'reset_node "n1" n2', b"info x", b"dump a b c", b"debugdump x"),
        *(b"debugfile", b"debugfile a b", b"debugmask all none", b"debug on off", b"peers x"),
        *(b"speedtest", b"speedtest 1 2", b"add_peer n1 h", b"remove_peer", b"move_peer n0 h"),
    ],
)
def test_an_error_disconnects_application_servers_but_not_operators(line: bytes) -> None:
    """Specification 20.38, 20.40."""
    host = Host()
    client, operator = host.client(), host.client(admin=True)
    answer = client.say(line + b"\ngettid\n")
    assert answer.startswith(b"error: ") and answer.count(b"\n") == 1
    assert client.closed
    answer = operator.say(line + b"\ngettid\n")
    assert answer.startswith(b"error: ") and answer.endswith(b"\ntlog_tid 0\n")
    assert not operator.closed
    assert not host.ended and host.service.serving and host.lines == []


@pytest.mark.parametrize("line", [b"nonsense", b"\xff\xfe", b"pong 1", b'"', b"GET / HTTP/1.1\r"])
def test_what_is_no_command_disconnects_operators_too(line: bytes) -> None:
    """Specification 20.40."""
    operator = Host().client(admin=True)
    answer = operator.say(line + b"\ngettid\n")
    assert answer.startswith(b"error: ") and answer.count(b"\n") == 1
    assert operator.closed


def test_a_change_of_members_that_loses_a_race_is_an_error() -> None:
    host = Host(3)
    operator = host.client(admin=True)
    host.client().say(b'post 1 1 "x"\n')
    refused = operator.say(b"add_peer n9 h 1\n")
    assert refused.startswith(b"error: other_sid: another transaction")
    assert not operator.closed


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(
            b"post 1 1 3\nabcd",
            b"error: 3 bytes of data are not followed by a newline\n",
            id="data without its newline",
        ),
        pytest.param(b"x" * 1_100_000, b"error: the line has more than", id="line without end"),
    ],
)
def test_what_has_no_end_is_an_error(data: bytes, error: bytes) -> None:
    """Specification 20.37, 20.38."""
    client = Host().client()
    assert client.say(data).startswith(error)
    assert client.closed


def test_a_silent_application_server_is_pinged_and_then_disconnected() -> None:
    """People are not pinged (specification 20.48)."""
    host = Host(keepalive=5)
    client, silent, operator = host.client(), host.client(), host.client(admin=True)
    host.tick(5)
    assert client.got() == silent.got() == b"ping\n"
    client.say(b"pong\n")
    host.tick(5)
    assert silent.closed and not client.closed
    assert client.got() == b"ping\n"
    assert operator.got() == b"" and not operator.closed


def test_a_ping_may_be_answered_before_the_secret_is_told() -> None:
    host = Host(secret="x", keepalive=5)
    client = host.client()
    host.tick(5)
    assert client.got() == b"ping\n"
    assert client.say(b"pong\n") == b""
    assert client.say(b'authenticate "x"\n') == b"authenticated\n"


def test_stop_and_start_are_for_application_servers() -> None:
    host = Host()
    client, operator = host.client(), host.client(admin=True)
    assert operator.say(b"stop\n") == b"stopped\n"
    assert client.closed and not operator.closed
    assert host.service.open(client, False, "client") is None
    assert client.got() == b"error: stopped, try again later\n"
    assert operator.say(b"start\n") == b"started\n"
    assert host.client().say(b"gettid\n") == b"tlog_tid 0\n"


def test_one_application_server_too_many_is_told_so() -> None:
    host = Host()
    clients = [host.client() for _ in range(SESSIONS_MAX)]
    assert host.service.open(clients[0], False, "one more") is None
    assert clients[0].got() == b"error: too many connections, try again later\n"
    assert host.client(admin=True).say(b"gettid\n") == b"tlog_tid 0\n"


def test_a_secret_is_asked_of_application_servers() -> None:
    """Specification 20.49."""
    host = Host(secret="pass word")
    assert host.client().say(b"gettid\n").startswith(b"error: authenticate")
    assert host.client().say(b'authenticate "wrong"\n') == b"error: the secret is wrong\n"
    answer = host.client().say(b'authenticate "pass word"\ngettid\n')
    assert answer == b"authenticated\ntlog_tid 0\n"
    assert host.client(admin=True).say(b"gettid\n") == b"tlog_tid 0\n"


def test_garbage_is_answered_with_errors_and_nothing_else() -> None:
    chance = random.Random(1)
    pieces = [
        *(b"post 1 1 3\nabc\n", b'post 1 2 "x"\n', b"subscribe 1\n", b"getstatus\n"),
        *(b"debugmask +\n", b"repost 1 0:1\n", b"gettspec 1\n", b"info\n"),
        *(b"\\", b'"', b"\n", b" ", b"\xff\0"),
    ]
    host = Host()
    operator = host.client(admin=True)
    for _ in range(3000):
        piece = bytearray(chance.choice(pieces))
        if chance.random() < 0.5:
            piece[chance.randrange(len(piece))] = chance.randrange(256)
        operator.say(bytes(piece))
        if operator.closed:  # a line that is no command closes the connection
            operator = host.client(admin=True)
        if chance.random() < 0.1:
            host.tick()
    assert b"error: " in operator.say(b"\n" + b"x" * 100 + b"\n") and operator.closed


def test_promises_wait_for_the_records_of_before() -> None:
    """Specification 20.29."""
    host = Host(3)
    host.auto = False
    host.client().say(b'post 1 1 "x"\n')
    assert host.asked and host.sent == []
    host.node.engine.send(1, Propose(1, 0, Sid(0, 1)))  # without a record of its own
    host.node.flush()
    assert host.sent == []
    host.run()
    types = [(peer, type(message)) for peer, message in host.sent]
    assert types == [("n1", Data), ("n1", Propose), ("n2", Data), ("n2", Propose), ("n1", Propose)]


def test_strings_are_those_of_c() -> None:
    """Specification 20.37."""
    every = bytes(range(256))
    assert words(quote(every)) == [every]
    assert quote(b"a\n'\xff") == b'"a\\012\\\'\\377"'
    assert unquote(b"\\101\\n") == b"A\n"
    assert words(b' a  "b c" "" d ') == [b"a", b"b c", b"", b"d"]
    assert sid(b"3:18446744073709551615") == Sid(3, (1 << 64) - 1)
    for wrong in (b"\\400", b"\\x", b"abc\\"):
        with pytest.raises(SyntaxFault):
            unquote(wrong)


def test_after_an_error_the_reader_goes_on_with_the_next_line() -> None:
    reader = CommandReader()
    reader.feed(b'bad "\nexit\n')
    with pytest.raises(SyntaxFault):
        reader.next()
    command = reader.next()
    assert command is not None and command.word == "exit" and reader.next() is None
