"""``--json``: the keys that programs rely on (specification 17.30)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from neo.protocol.packets import (
    AnswerTweakPartitionTable,
    SetNumReplicas,
    TweakPartitionTable,
)
from tests.unit.neoctl.conftest import ROWS, SUMMARY, Make

PAGE = Path(__file__).parents[3] / "docs" / "json.md"
ZERO = "0x0000000000000000"
UP = "UP_TO_DATE"


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("print cluster", {"state": "RUNNING"}),
        ("print primary", {"primary": "M1"}),
        (
            "print ids",
            {
                "last_oid": ZERO,
                "last_tid": ZERO,
                "last_tid_date": "1900-01-01 00:00:00",
                "backup_tid": None,
                "truncate_tid": None,
                "last_ptid": 1,
            },
        ),
        ("print summary", {"warnings": [], "problems": [], "summary": SUMMARY}),
        ("set replicas 1", {"message": "done"}),
        ("flush_log", {"message": ""}),
    ],
)
def test_data_of_a_verb(console: Make, words: str, data: dict[str, Any]) -> None:
    ctl = console({SetNumReplicas: "done"})
    for line in (["--json", *words.split()], [*words.split(), "--json"]):
        assert ctl(*line) == 0
        assert json.loads(ctl.out) == data


def test_nodes(console: Make) -> None:
    ctl = console()
    nodes = ctl.data("print", "node")["nodes"]
    assert [node["nid"] for node in nodes] == ["A1", "M1", "S1", "S2", "S3"]
    assert nodes[2] == {
        "nid": "S1",
        "type": "STORAGE",
        "address": "127.0.0.1:2101",
        "state": "RUNNING",
        "id_timestamp": 1795177991.445111,
    }


def test_partition_table(console: Make) -> None:
    ctl = console()
    table = ctl.data("print", "pt")
    assert (table["ptid"], table["replicas"], len(table["nodes"])) == (1, 1, 3)
    assert table["partitions"][1] == {"partition": 1, "cells": {"S1": UP, "S3": UP}}
    assert ctl.data("print", "pt", "4")["partitions"][0]["partition"] == 4


def test_tweak(console: Make) -> None:
    ctl = console({TweakPartitionTable: AnswerTweakPartitionTable(True, ROWS)})
    data = ctl.data("tweak", "-n")
    assert (data["changed"], data["dry_run"]) == (True, True)
    assert data["partitions"][0]["cells"] == {"S1": UP, "S2": UP}


def test_status(console: Make) -> None:
    ctl = console()
    data = ctl.data("status")
    assert set(data) == {
        "state", "primary", "election", "last_oid", "last_tid", "last_tid_date", "nodes",
        "upstream", "ptid", "replicas", "partitions", "can_lose", "scrub", "sync", "blobs",
        "operations", "conditions", "disks", "problems",
    }  # fmt: skip
    assert (data["state"], data["primary"], data["can_lose"]) == ("RUNNING", "M1", 1)
    assert data["nodes"][2]["cells"] == {UP: 4}
    assert data["problems"] == []
    assert data["scrub"] is None
    assert data["sync"] == {"backups": [], "own": None}


def test_page_of_operators_has_every_key_of_status(console: Make) -> None:
    page = PAGE.read_text("utf-8").partition("## Keys of `status --json`")[2]
    table = page.partition("\n## ")[0]
    first = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    described = {key for cell in first for key in re.findall(r"`(\w+)`", cell)}
    assert described == set(console().data("status"))
