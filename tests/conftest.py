"""Settings of all tests: no excuse, the same examples each time, the longest first."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer

from tests import plan

# A machine that runs other tests may be slow, so that no test has a deadline. The suite tries the same
# examples each time, and only the search, ``make soak``, tries others.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("search", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("NEO_HYPOTHESIS", "suite"))


def _no_excuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail a test that was skipped, failed as expected, or passed where a failure was expected.
    Imported suites skip tests of features that a storage lacks, and the skip would not be noticed."""
    if report.skipped or hasattr(report, "wasxfail"):
        excuse = getattr(report, "wasxfail", None) or report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which no test here may: {excuse}"
        vars(report).pop("wasxfail", None)


# The first wrapper, so that it gets the results of pytest's own wrappers for xfail and unittest.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _no_excuse(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _no_excuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that leaves the process in another folder or environment: which tests share a process
    depends on how long others take, so that a test that needs what another one left fails at times."""
    _surroundings[:] = [_found()]
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None]:
    yield
    before, after = _surroundings[0], _found()
    assert before == after, f"the test left other surroundings: {set(before) ^ set(after)}"


#: Of the running test: what it found.
_surroundings: list[list[tuple[str, str]]] = []


def _found() -> list[tuple[str, str]]:
    # Of pytest, and of PySpark, which tells itself so what its session is.
    own = ("PYTEST_CURRENT_TEST", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
    variables = [each for each in os.environ.items() if each[0] not in own]
    return [("the folder", os.getcwd()), *sorted(variables)]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # After pytest-randomly, whose order stays within a file or class.
    items[:] = plan.longest_first(items, lambda item: item.nodeid)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which some runs leave out
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> plan.Scopes | None:
    return plan.Scopes(config, log) if config.getoption("dist") == "loadscope" else None


#: Failures of the run, as they happen: the summary comes at the end, after many minutes.
FAILURES = Path(__file__).parents[1] / "build" / "failures.txt"


def pytest_sessionstart(session: pytest.Session) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:  # nor a run inside a test
        FAILURES.parent.mkdir(exist_ok=True)
        FAILURES.write_text("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with FAILURES.open("a") as file:
            file.write(f"{report.nodeid} ({report.when})\n{report.longreprtext}\n\n")
