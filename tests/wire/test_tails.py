"""Extension messages with the tails of cells are decoded to what was encoded."""

from __future__ import annotations

import pytest

from neo.protocol.codec import LIMIT_PEER, Decoder, encode
from neo.protocol.errors import PeerError
from neo.protocol.ids import p64
from neo.protocol.packets import CODES, AnswerTails, AskTails, Message, NotifyCellsBehind

TID, OID = p64(0x10), p64(3)
MESSAGES: list[Message] = [
    AskTails([0, 7], None, 100),
    AskTails([], TID, 1),
    AnswerTails(TID, [(0, True, [TID], [(TID, OID)]), (7, False, [], [])]),
    NotifyCellsBehind(3, 1, True, {2: (TID, 12), 4: (TID, 1)}),
]


def decoded(data: bytes) -> Message:
    decoder = Decoder(LIMIT_PEER)
    for i in range(len(data)):
        assert list(iter(decoder.take, None)) == []
        decoder.feed(data[i : i + 1])
    (packet,) = iter(decoder.take, None)
    return packet.message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_as_it_was_sent(message: Message) -> None:
    assert decoded(encode(3, message)) == message


def test_they_have_codes_of_our_own() -> None:
    codes = [CODES[kind] for kind in (AskTails, AnswerTails, NotifyCellsBehind)]
    assert codes == [0x4070, 0xC070, 0x4071]


@pytest.mark.parametrize(
    "wrong",
    [AskTails([0], b"short", 1), AnswerTails(TID, [(0, True, [OID[1:]], [])])],
    ids=["tid", "row"],
)
def test_ids_have_eight_bytes(wrong: Message) -> None:
    with pytest.raises(PeerError):
        decoded(encode(3, wrong))
