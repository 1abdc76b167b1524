"""Frames of the logs: a frame that a crash cut off is told from damage."""

from __future__ import annotations

import struct
import zlib

import pytest

from neo.transactor.frames import Damage, frame, scan


def test_frames_are_cut_only_where_a_crash_can_cut() -> None:
    """Specification 20.26."""
    data = frame(b"one") + frame(b"two" * 20)
    assert scan(data).frames == [b"one", b"two" * 20]
    assert scan(data + bytes(4096)) == (scan(data).frames, len(data))
    with pytest.raises(Damage):
        scan(data[:-20] + bytes(20))  # it is shorter than a block
    with pytest.raises(Damage):
        scan(data[:-21] + b"!" + data[-20:])


@pytest.mark.parametrize("zeros", [0, 1, 499, 1200])
def test_each_flipped_bit_of_a_frame_is_damage(zeros: int) -> None:
    data = frame(b"first") + frame(b"second" + bytes(zeros)) + frame(b"third" + bytes(zeros))
    assert len(scan(data).frames) == 3
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(Damage):
                scan(bytes(flipped))


@pytest.mark.parametrize("zeros", [0, 1, 499, 1200])
def test_what_a_crash_left_as_zeros_is_told_from_content_that_is_zeros(zeros: int) -> None:
    """Blocks at the end were not written, wherever the last frame begins in a block."""
    for before in range(500):
        whole = frame(b"a" * before)
        data = whole + frame(b"last" + bytes(zeros))
        for cut in range(0, len(data), 512):
            written = data[:cut] + bytes(len(data) - cut)
            assert scan(written).end == (len(whole) if cut >= len(whole) else 0)
        assert scan(whole + bytes(len(data) - len(whole))).end == len(whole)


def test_frames_of_before_are_read_and_gone_on_behind() -> None:
    """Specification 20.25."""
    def old(content: bytes) -> bytes:
        length = struct.pack(">I", len(content))
        return length + struct.pack(">II", zlib.crc32(length), zlib.crc32(content)) + content

    data = old(b"one") + old(b"two" + bytes(2000))
    assert scan(data + frame(b"three")).frames == [b"one", b"two" + bytes(2000), b"three"]
    assert scan(data + frame(b"three")[:-1]) == ([b"one", b"two" + bytes(2000)], len(data))
    with pytest.raises(Damage):
        scan(data[:-1] + b"!")
    with pytest.raises(Damage):
        scan(data[:-2003] + b"!" + data[-2002:])
