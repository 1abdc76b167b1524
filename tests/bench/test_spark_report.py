"""The benchmark of Spark: its database and its arithmetic. Only a measurement runs all of it."""

from __future__ import annotations

import json
import os

import pytest

from neo.codec import decode
from tests.bench.spark import cpu
from tests.bench.spark.database import transactions
from tests.bench.spark.readers import KINDS
from tests.bench.spark.report import markdown, to_json
from tests.bench.spark.run import READERS, Figure, Measured

SPEEDS = {"iterator": 10.0, "one process": 20.0, "local[1]": 25.0, "local[2]": 40.0}


def measured() -> Measured:
    """Return figures of three rounds. In the second one the machine is ten times as slow."""
    figures = [
        Figure(kind, reader, number, 1000, 1000 / SPEEDS[reader] * slow, 0.5)
        for number, slow in enumerate((1, 10, 1))
        for kind in KINDS
        for reader in READERS
    ]
    return Measured(1000, 500_000, figures)


def test_ratios_are_those_of_rounds_and_targets_are_judged() -> None:
    found = to_json({"generated": measured()})["databases"]["generated"]
    assert json.loads(json.dumps(found)) == found
    assert [(t["kind"], t["found"], t["met"]) for t in found["targets"]] == [
        ("raw", pytest.approx(4.0), False),
        ("references", pytest.approx(4.0), True),
        ("json", pytest.approx(4.0), True),
        ("references", pytest.approx(2.0), True),
        ("json", pytest.approx(2.0), True),
    ]
    text = markdown({"generated": measured()})
    assert "| raw: 5.0 × iterator | 4.00, missed |" in text
    assert "| references: 1.5 × one process | 2.00 |" in text
    assert "| 10 (0.0) [500.0] |" in text


def test_the_generated_database_is_of_realistic_records() -> None:
    found = [
        change
        for changes in transactions(1, range(1, 81), range(1, 200), 400)
        for change in changes
    ]
    assert len({oid for oid, _ in found}) == 80
    records = [decode(data) for _, data in found]
    assert {record.error for record in records} == {None}
    assert 450 < sum(len(data) for _, data in found) / len(found) < 650
    assert 6 < sum(len(record.references) for record in records) / len(records) < 8


def test_the_processors_time_of_a_process_and_of_one_that_is_gone() -> None:
    sum(range(10**6))
    assert 0 < cpu.used([os.getpid()]) < 10_000
    assert cpu.used([2**22 + 1]) == 0
