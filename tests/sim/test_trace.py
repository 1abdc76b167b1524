"""The story has every message."""

from __future__ import annotations

from neo.net.connection import HANDSHAKE
from neo.protocol.codec import encode
from neo.protocol.ids import p64
from neo.protocol.packets import AskLockInformation, AskObject, Ping
from tests.simulator.network import End, Network
from tests.simulator.run import Options
from tests.simulator.trace import describe, traced
from tests.simulator.trial import Trial
from tests.simulator.world import World


def test_a_message_is_one_line_and_data_is_cut() -> None:
    assert describe(AskObject(p64(5), None, p64(9))) == (
        "AskObject(oid=0000000000000005, at=None, before=0000000000000009)"
    )
    assert describe(AskObject(b"x" * 100, None, None)).startswith("AskObject(oid=<100 bytes>")
    assert describe(Ping()) == "Ping()"


def test_messages_are_told_when_they_are_sent_whatever_their_portions() -> None:
    world = World(0)
    network = Network(world)
    near, far = End(network, "a", "near"), End(network, "b", "far")
    near.link(far)
    data = HANDSHAKE + encode(0, Ping()) + encode(1, AskLockInformation(p64(1), p64(2)))
    digest = World(0).digest
    with traced(world):
        near.write(data[:-3])
        near.write(data[-3:])
    assert [line.split("-> ")[1] for line in world.story] == [
        "b: Ping()",
        "b: AskLockInformation(ttid=0000000000000001, tid=0000000000000002)",
    ]
    assert world.digest == digest
    near.write(data)
    assert len(world.story) == 2


def test_a_report_tells_of_the_objects_in_question_and_of_the_nodes() -> None:
    oid, other = "0000000000000005", "0000000000000006"
    trial = Trial(
        1,
        Options(),
        error=f"Violation: {oid} is wrong, not 0000000000000000",
        story=(
            "1.0 storage1 is killed",
            f"1.1 client1 -> storage1: AskObject(oid={oid})",
            f"1.2 client1 -> storage1: AskObject(oid={other})",
            "1.3 client1 -> storage1: Ping()",
        ),
    )
    assert trial.told(10) == [trial.story[0], trial.story[1]]
    assert trial.told(1) == [trial.story[1]]
    trial.error = "Violation: something is wrong"
    assert trial.told(10) == list(trial.story)
