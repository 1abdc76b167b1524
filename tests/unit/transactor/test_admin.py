"""Commands of operators."""

from __future__ import annotations

import pytest

from neo.transactor.debug import ALL, FLAGS, parse_mask
from neo.transactor.messages import Decide, Status
from tests.unit.transactor.talking import Host


def test_operators_see_the_state_and_set_debug_flags() -> None:
    host = Host(3)
    operator = host.client(admin=True)
    assert b"tlog tid: 0\n" in operator.say(b"info\n")
    assert operator.say(b"debugmask\n") == b"debugmask 00 none\n"
    assert operator.say(b"debugmask +se_tasks\n") == b"debugmask 01 se_tasks\n"
    assert operator.say(b"debugmask +pl_packets\n").startswith(
        b"debugmask 02000000001 se_tasks pl_packets"
    )
    assert operator.say(b"debugmask all\n").startswith(b"debugmask 03777777777 ")
    assert operator.say(b"debugmask -se_tasks\n").startswith(b"debugmask 03777777776 ")
    assert operator.say(b"debugmask none\n") == b"debugmask 00 none\n"
    assert operator.say(b"debug\n") == b"debug off\n"
    assert operator.say(b"debugdump\n").startswith(b"error: debugging is off")
    assert operator.say(b"debug on\n") == b"debug on\n"
    assert operator.say(b"debugfile full\n") == b"error: full: No space left on device\n"
    assert operator.say(b"debugdump\n") == b"debugdump\n" and host.lines
    assert operator.say(b"debug off\n") == b"debug off\n"
    assert operator.say(b"dump\n").startswith(b"node: n0\n")
    assert operator.say(b"dump a-file.1\n") == b"dump a-file.1\n" and host.lines[-1] == "a-file.1"
    assert operator.say(b"help\n").count(b"\n") == 25
    assert operator.say(b"help gettid\n").startswith(b"gettid: ")
    assert operator.say(b"peers\n").splitlines()[1] == b"peer 1 n1 host 1 udp"
    operator.say(b"terminate\n")
    assert host.ended


def test_reset_node_forgets_the_journal_of_a_peer() -> None:
    host = Host(3)
    operator = host.client(admin=True)
    host.node.receive("n1", [Status(1, 50, False, False)])
    host.node.receive("n1", [Status(1, 51, False, False)])
    assert b"strangers: n1\n" in operator.say(b"info\n")
    assert operator.say(b'reset_node "n1"\n') == b"reset_node n1\n"
    assert b"strangers: none\n" in operator.say(b"info\n")


def test_members_are_changed_through_the_log() -> None:
    """Specification 20.43."""
    host = Host()
    operator = host.client(admin=True)
    assert operator.say(b'move_peer "n0" elsewhere 9\n') == (
        b"posted 0:4294967297 1: see peers for the outcome\n"
    )
    assert operator.say(b"peers\n") == b"peer 0 n0 elsewhere 9 this node\n"
    assert operator.say(b"gettspec 1\n") == b"tlog_tspec tid 1 sid 0:4294967297 size 0\n\n"
    assert operator.say(b"remove_peer n0\n") == b"error: n0 is the only member left\n"
    assert operator.say(b"add_peer n0 h 1\n") == b"error: n0 is a member already\n"
    operator.say(b"add_peer n1 h 1\n")
    assert host.engine.members.nodes == (0, 1)
    operator.say(b"remove_peer n1\n")
    assert operator.say(b"add_peer n2 h 1\n").startswith(b"error: other_sid")


def test_the_own_place_in_a_status_is_that_in_the_present_list() -> None:
    """Specification 20.42."""
    host = Host(3, name="n2")
    operator = host.client(admin=True)
    assert operator.say(b"getstatus\n").startswith(b"status 3 2 ")
    for name, status in ((b"n0", b"status 2 1 "), (b"n2", b"status 1 -1 ")):
        operator.say(b"remove_peer %s\n" % name)
        host.confirm()
        operator.got()
        assert operator.say(b"getstatus\n").startswith(status)


def test_the_speed_test_posts_after_each_decision_until_it_is_switched_off() -> None:
    """Specification 20.53."""
    host = Host(3)
    operator = host.client(admin=True)
    assert operator.say(b"speedtest 67108864\n") == b"speedtest 67108864\n"
    assert operator.say(b"speedtest 100\n") == b"speedtest 100\n"
    host.tick()
    for tid in range(1, 6):  # in no time
        assert host.engine.mine is not None and host.engine.tid == tid
        host.node.receive("n1", [Decide(tid, host.engine.mine.sid)])
        if tid == 5:
            assert operator.say(b"speedtest off\n") == b"speedtest off\n"
        host.run()
    assert host.node.tlog_tid == 5 and {len(spec.data) for spec in host.specs} == {100}
    host.tick()
    assert host.engine.mine is None


def test_the_speed_test_must_be_allowed_at_the_start() -> None:
    """Specification 20.53."""
    operator = Host(speedtest=False).client(admin=True)
    assert operator.say(b"speedtest 100\n").startswith(b"error: the speed test is not allowed")


def test_debug_flags_have_the_bits_of_the_page() -> None:
    """Specification 20.51."""
    assert FLAGS == {
        **{"se_tasks": 0o1, "se_requests": 0o2, "se_connections": 0o4, "ta_state": 0o10},
        **{"ta_arrivals": 0o20, "ta_posts": 0o40, "ta_moreposts": 0o100, "ta_acks": 0o200},
        **{"ta_trns": 0o400, "ta_part": 0o1000, "ta_coord": 0o2000, "ta_trntime": 0o4000},
        **{"select": 0o10000, "peerdi": 0o20000, "msg_arrived": 0o40000, "queueing": 0o100000},
        **{"msg_ackobs": 0o200000, "msg_payload": 0o400000, "slot": 0o1000000},
        **{"connectivity": 0o2000000, "peer_index": 0o4000000, "pl_connection": 0o10000000},
        **{"pl_queueing": 0o20000000, "pl_sendreceive": 0o40000000, "pl_readwrite": 0o100000000},
        **{"pl_status": 0o200000000, "pl_listeninfo": 0o400000000},
        **{"pl_nosupperrors": 0o1000000000, "pl_packets": 0o2000000000},
    }
    assert [parse_mask(text) for text in ("0x10", "017", "12", "0")] == [16, 15, 12, 0]
    assert ALL == 0o3777777777
    for wrong in ("0x100000000", "-1", "x", "08", "0o17", "0_7", "1_0", "0x", "", "٣"):
        with pytest.raises(ValueError):
            parse_mask(wrong)
