"""``neomaster``: what its settings may be."""

from __future__ import annotations

import pytest

from neo.master.__main__ import load_settings
from neo.node.config import ConfigError
from neo.protocol.enums import NodeType
from neo.protocol.ids import nid_namespace

ARGUMENTS = ["-c", "lab", "-m", "127.0.0.1:1", "-b", "127.0.0.1:1"]
MASTERS = nid_namespace(NodeType.MASTER)


@pytest.mark.parametrize("text", ["M2", "m2", str(MASTERS + 2)])
def test_the_id_of_a_master(text: str) -> None:
    assert load_settings([*ARGUMENTS, f"--nid={text}"]).nid == MASTERS + 2


@pytest.mark.parametrize("text", ["abc", "S1", "M", "M0", "M-1", "2", "0x10", str(MASTERS), "1e3"])
def test_what_is_not_the_id_of_a_master(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings([*ARGUMENTS, f"--nid={text}"])
    expected = f"setting 'nid': {text!r} is not the id of a master: write M1, M2, M3..."
    assert str(raised.value) == expected
