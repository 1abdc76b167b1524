"""The plan of the suite: which tests begin first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import plan

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.suite.test_plan" name="test_a" time="1.5" />
<testcase classname="tests.unit.suite.test_plan" name="test_b[1-2]" time="0.5" />
<testcase classname="tests.unit.suite.test_plan.Some" name="test_c" time="0.25" />
<testcase classname="tests.pipelines.spark.test_spark" name="test_d[a/b]" time="3" />
<testcase classname="tests.pipelines.spark.test_truth" name="test_e" time="4" />
</testsuite></testsuites>"""


def test_long_files_come_first_and_unknown_ones_are_taken_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "seconds.json"
    table.write_text('{"a.py": 3, "b.py": 400, "c.py": 0, "c.py::Big": 90}')
    monkeypatch.setattr(plan, "SECONDS", table)
    tests = [
        "a.py::x",
        "new.py::x",
        "c.py::Big::x",
        "b.py::y",
        "c.py::Small::x",
        "b.py::x",
        "a.py::y",
    ]
    assert plan.longest_first(tests, str) == [
        *("b.py::y", "b.py::x", "c.py::Big::x", "new.py::x"),
        *("a.py::x", "a.py::y", "c.py::Small::x"),
    ]


def test_seconds_are_added_up_by_file_and_class(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(REPORT)
    here = "tests/unit/suite/test_plan.py"
    together = "tests/pipelines/spark"
    assert plan.measured(report) == {here: (2, 2.0), f"{here}::Some": (1, 0.25), together: (2, 7.0)}


def test_the_table_names_files_that_exist() -> None:
    scopes = plan.known_seconds()
    assert scopes and all(Path(scope.partition("::")[0]).exists() for scope in scopes)
