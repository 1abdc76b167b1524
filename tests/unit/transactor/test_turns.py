"""Turns of the application servers of one transactor (specification 20.47)."""

from __future__ import annotations

import pytest

from neo.transactor.service import TURN_TICKS
from tests.unit.transactor.talking import Host


def test_application_servers_take_turns() -> None:
    """The first one posts as soon as it can; the second still gets every other transaction."""
    host = Host(3)
    fast, slow = host.client(), host.client()
    winners = []
    fast.say(b'post 0 1 "fast"\n')
    slow.say(b'post 0 1 "slow"\n')
    for tid in range(1, 9):
        winners.append(host.confirm())
        fast.say(b'post 0 %d "fast"\n' % (tid + 1))
        host.tick()
        slow.say(b'post 0 %d "slow"\n' % (tid + 1))
        host.tick()
    assert winners[1:] == [b"slow", b"fast"] * 3 + [b"slow"]


@pytest.mark.parametrize("ticks", [0, 10])
def test_the_slowest_of_three_application_servers_gets_its_share(ticks: int) -> None:
    """They post in a constant order. ``ticks``: duration of a decision."""
    host = Host(3)
    clients = {name: host.client() for name in (b"fast", b"mid", b"slow")}
    winners = []
    for tid in range(1, 31):
        for name, client in clients.items():
            client.say(b'post 0 %d "%s"\n' % (tid, name))
        host.tick(ticks)
        winners.append(host.confirm())
    assert {name: winners.count(name) for name in clients} == dict.fromkeys(clients, 10)


def test_the_one_that_waits_longest_is_first_when_a_turn_passes() -> None:
    host = Host(3)
    winner, first, second = host.client(), host.client(), host.client()
    for client in (winner, first, second):
        client.say(b'post 0 1 "x"\n')
        client.got()
    host.confirm()
    assert winner.say(b'post 1 2 "y"\n') == second.say(b'post 1 2 "z"\n') == b""
    host.tick(TURN_TICKS)
    assert winner.got() == b"post_response 1 other_sid\n"
    assert b"post_response 1 posted" in second.got()


def test_quit_waits_for_the_answer_of_a_deferred_post() -> None:
    host = Host(3)
    one, other = host.client(), host.client()
    one.say(b'post 0 1 "one"\n')
    other.say(b'post 0 1 "other"\n')
    host.confirm()
    one.got()
    assert one.say(b'post 1 2 "one again"\nquit\ngettid\n') == b"" and not one.closed
    host.tick(TURN_TICKS)
    assert one.got().startswith(b"post_response 1 posted") and one.closed


def test_a_turn_that_is_not_taken_passes() -> None:
    host = Host(3)
    one, other = host.client(), host.client()
    one.say(b'post 0 1 "one"\n')
    assert b"other_sid" in other.say(b'post 0 1 "other"\n')
    host.confirm()
    assert one.say(b'post 1 2 "one again"\n') == b""
    host.tick(TURN_TICKS)
    assert b"post_response 1 posted" in one.got()
